"""`make mutants`: small faults are put into the rooms that decide, one at a time, and unit tests must notice each.

    python -m tests.mutants --seed 7 --count 40 --rooms core,state

A fault that no test notices is a survivor: either the fault makes no difference, or a test is missing.  Faults are
sampled from a seed, so a run can be repeated.  They are put into a copy of the tree in a temporary folder, which is
removed at the end, after ctrl-C too.  Not part of CI: a run takes minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.mutants.faults import Fault, faults_in

ROOT = Path(__file__).resolve().parents[2]
TESTS = {
    "core": ("tests/unit/core",),
    "state": ("tests/unit/state",),
    "scheduling": ("tests/unit/scheduling",),
    "jobs": ("tests/unit/jobs", "tests/unit/controllers"),
}
"""Room to the tests that must notice its faults.  The simulation would notice more, and says less about the cause."""
RANDOM = ("test_topology_reference.py", "test_preemption_reference.py", "test_why_is_true.py")
"""Tests with drawn inputs: `--without-random` leaves them out, to see what only they notice."""
_COPIED = ("kqueue", "webhooks", "tests", "config", "charts", "docs", "examples", "tools", "pyproject.toml")
_SECONDS = 240.0
"""What the tests of one fault may take; a fault that makes them hang counts as noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One fault, and whether tests noticed it."""

    file: str
    line: int
    before: str
    after: str
    noticed: bool
    seconds: float

    def text(self) -> str:
        """One line for people."""
        verdict = "noticed " if self.noticed else "SURVIVED"
        return f"{verdict} {self.file}:{self.line}: {self.before}  ->  {self.after}  ({self.seconds:.1f} s)"


def sampled(rooms: Sequence[str], count: int, chance: random.Random) -> list[tuple[Path, Fault]]:
    """So many faults, spread over the rooms by the number of their places."""
    every = [(path, fault) for room in rooms for path in _sources(room) for fault in faults_in(path.read_text())]
    return chance.sample(every, min(count, len(every)))


def _sources(room: str) -> list[Path]:
    return sorted((ROOT / "kqueue" / room).rglob("*.py"))


def _stages(path: Path, *, without_random: bool) -> Iterator[list[str]]:
    """Unit tests of any room that import the module, then all of its room's: most faults are noticed by the first."""
    room = path.relative_to(ROOT / "kqueue").parts[0]
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    every = [file for file in sorted((ROOT / "tests/unit").rglob("test_*.py")) if "charts" not in file.parts]
    every = [file for file in every if not (without_random and file.name in RANDOM)]
    near = [file for file in every if module in file.read_text() or file.stem == f"test_{path.stem}"]
    own = [file for folder in TESTS[room] for file in every if file.is_relative_to(ROOT / folder)]
    for some in (near, [file for file in own if file not in near]):
        if some:
            yield [str(file.relative_to(ROOT)) for file in some]


def _is_noticed(copy: Path, path: Path, *, without_random: bool) -> bool:
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    for files in _stages(path, without_random=without_random):
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *files]
        try:
            done = subprocess.run(
                command, cwd=copy, env=environment, capture_output=True, timeout=_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return True
        if done.returncode != 0:
            return True
    return False


def run(arguments: argparse.Namespace) -> Iterator[Outcome]:
    """The outcome of each fault, as it is known."""
    chance = random.Random(arguments.seed)
    chosen = sampled(arguments.rooms.split(","), arguments.count, chance)
    with tempfile.TemporaryDirectory(prefix="kqueue-mutants-") as folder:
        copy = Path(folder)
        for name in _COPIED:
            source = ROOT / name
            ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
            shutil.copytree(source, copy / name, ignore=ignored) if source.is_dir() else shutil.copy(source, copy)
        for path, fault in chosen:
            target, began = copy / path.relative_to(ROOT), time.monotonic()
            target.write_text(fault.applied(path.read_text()))
            noticed = _is_noticed(copy, path, without_random=arguments.without_random)
            target.write_text(path.read_text())
            where = str(path.relative_to(ROOT))
            yield Outcome(
                file=where,
                line=fault.line,
                before=fault.before,
                after=fault.after,
                noticed=noticed,
                seconds=round(time.monotonic() - began, 1),
            )


def main() -> int:
    """Exit code 1 where a fault survived."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="which faults are drawn (%(default)s)")
    parser.add_argument("--count", type=int, default=30, help="how many (%(default)s)")
    parser.add_argument("--rooms", default=",".join(TESTS), help="of these rooms (%(default)s)")
    parser.add_argument("--without-random", action="store_true", help="leave tests with drawn inputs out")
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text", help="how to print (%(default)s)")
    arguments = parser.parse_args()
    if unknown := set(arguments.rooms.split(",")) - TESTS.keys():
        parser.error(f"--rooms: unknown {', '.join(sorted(unknown))}; rooms are {', '.join(TESTS)}")
    outcomes: list[Outcome] = []
    try:
        for outcome in run(arguments):
            outcomes.append(outcome)
            if arguments.output == "text":
                print(f"{len(outcomes)}/{arguments.count} {outcome.text()}", flush=True)
    except KeyboardInterrupt:
        print("ended early", file=sys.stderr)
    survived = [outcome for outcome in outcomes if not outcome.noticed]
    if arguments.output == "json":
        print(json.dumps({"seed": arguments.seed, "outcomes": [asdict(outcome) for outcome in outcomes]}, indent=2))
    else:
        print(f"{len(outcomes)} faults, {len(outcomes) - len(survived)} noticed, {len(survived)} survived")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
