"""`python -m tests.chaos`: the fault campaign as a command.  Exit code 1 means that the judge found something."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kqueue.sandbox.simulated_kinds import SIMULATED
from tests.chaos.campaign import Campaign, Plan, judged_again
from tests.chaos.faults import FAULTS, HAND_OVER_SECONDS, NoLeaderError
from tests.chaos.judge import NO_LEADER, PATIENCE, RULES, STUCK
from tests.integration.conftest import CRDS
from tests.integration.controlplane import binaries
from tests.integration.controlplane.command_lines import ALL_PARTS
from tests.integration.controlplane.plane import ControlPlane

INTERRUPTED, FOUND = 130, 1
Facts = dict[str, Any]


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--losses", type=int, default=200, help="losses of the lead, of all processes of the campaign")
    parser.add_argument("--kinds", default=",".join(FAULTS), help="kinds of faults to draw from")
    parser.add_argument("--seed", type=int, default=1, help="draws faults, their moments, and Jobs")
    parser.add_argument("--piece", type=int, default=0, help="end after so many losses in this process; 0: all of them")
    parser.add_argument("--json", type=Path, help="append one JSON object per loss, rest and breach; a campaign "
                        "that was stopped goes on after the last loss in the file")  # fmt: skip
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds before a state counts as stuck")
    parser.add_argument("--keep", type=Path, help="a folder for logs and histories, kept; else a temporary one")
    parser.add_argument("--judge", type=Path, help="only judge the histories in a folder that was kept")
    found = parser.parse_args(argv)
    found.kinds = found.kinds.split(",")
    if unknown := sorted(set(found.kinds) - set(FAULTS)):
        parser.error(f"--kinds: {', '.join(unknown)} is unknown; choose from {', '.join(FAULTS)}")
    return found


class Journal:
    """Prints progress, and appends facts to the file of the campaign, which may hold those of earlier processes."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.entries: list[Facts] = list(read_journal(path)) if path is not None and path.exists() else []

    @property
    def losses(self) -> int:
        """How many times the lead was lost."""
        return sum(entry["what"] == "loss" and entry["lost"] for entry in self.entries)

    def write(self, what: str, facts: Facts) -> None:
        """One more fact."""
        self.entries.append({"what": what, **facts})
        print(progress(what, facts), flush=True)
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(self.entries[-1]) + "\n")


def read_journal(path: Path) -> Iterable[Facts]:
    """The facts in a file; a line that was cut off when its process was killed is left out."""
    for line in path.read_text().splitlines():
        with contextlib.suppress(ValueError):
            yield json.loads(line)


def progress(what: str, facts: Facts) -> str:
    """One line of progress."""
    if what == "loss":
        took = f"{facts['seconds']:6.2f} s" if facts["lost"] else "not lost"
        return f"{facts['number']:4d}  {facts['kind']:7s} {took}  {facts['jobs']} jobs finished"
    if what == "rest":
        return f"      at rest after {facts['seconds']:.1f} s: {facts['completed']} jobs, {facts['changes']} changes judged"
    if what == "end":
        return f"      this process has judged {facts['completed']} jobs and {facts['admissions']} admissions"
    return f"      BREACH  {facts['rule']}: {facts['subject']}: {facts['sentence']} (revision {facts['revision']})"


def table(entries: Sequence[Facts]) -> str:
    """The figures of the whole campaign: hand-overs by kind, and what the judge found."""
    losses = [entry for entry in entries if entry["what"] == "loss"]
    lines = [f"{'kind':8s}{'losses':>8s}{'median s':>10s}{'worst s':>9s}{'not lost':>10s}"]
    for kind in FAULTS:
        of_kind = [entry for entry in losses if entry["kind"] == kind]
        took = [entry["seconds"] for entry in of_kind if entry["lost"]]
        if of_kind:
            median, worst = (statistics.median(took), max(took)) if took else (0.0, 0.0)
            lines.append(f"{kind:8s}{len(took):8d}{median:10.2f}{worst:9.2f}{len(of_kind) - len(took):10d}")
    found = [entry["rule"] for entry in entries if entry["what"] == "breach"]
    judged = [entry for entry in entries if entry["what"] == "end"]
    sums = {key: sum(entry[key] for entry in judged) for key in ("completed", "admissions", "evictions", "changes")}
    lines.append(
        f"{sums['completed']} jobs finished, {sums['admissions']} admissions and {sums['evictions']} evictions judged "
        f"from {sums['changes']} changes"
    )
    lines += [f"{found.count(rule):4d}  {rule}" for rule in RULES]
    stuck = found.count(STUCK)
    return "\n".join([*lines, f"{stuck} stuck jobs, {len(found) - stuck} breaches"])


async def run(options: argparse.Namespace, journal: Journal, folder: Path) -> None:
    """One process of the campaign; what it started is gone when it returns, however it ends."""
    missing = max(0, options.losses - journal.losses)
    plan = Plan(
        losses=min(missing, options.piece) if options.piece else missing,
        kinds=options.kinds,
        seed=options.seed,
        first=journal.losses + 1,
        patience=options.patience,
    )
    _end_on_sigterm()
    async with ControlPlane.start(folder, parts=ALL_PARTS, crds=(CRDS, SIMULATED)) as plane:
        campaign = Campaign(plan, plane.cluster, folder, journal.write)
        try:
            await campaign.run()
        finally:
            journal.write("end", asdict(campaign.outcome.totals))


def _end_on_sigterm() -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


def judge_again(folder: Path, patience: float) -> int:
    """Print the verdict on a folder that was kept, and return the exit code."""
    judge = judged_again(folder, patience)
    for breach in judge.breaches:
        print(progress("breach", asdict(breach)))
    print(progress("end", asdict(judge.totals)))
    return FOUND if judge.breaches else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the table, and return the exit code."""
    options = arguments(argv)
    if options.judge is not None:
        return judge_again(options.judge, options.patience)
    if reason := binaries.why_missing():
        print(reason, file=sys.stderr)
        return 2
    journal, code = Journal(options.json), 0
    folder = options.keep or Path(tempfile.mkdtemp(prefix="kqueue-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        asyncio.run(run(options, journal, folder))
    except (KeyboardInterrupt, asyncio.CancelledError):
        code = INTERRUPTED
    except NoLeaderError as error:
        print(error, file=sys.stderr)
        sentence = f"nobody led within {HAND_OVER_SECONDS:.0f} s of a fault"
        journal.write("breach", {"rule": NO_LEADER, "subject": "lease", "sentence": sentence, "revision": 0})
    print(table(journal.entries))
    if any(entry["what"] == "breach" for entry in journal.entries):
        print(f"logs and histories of this process are in {folder}")
        return FOUND
    if options.keep is None:
        shutil.rmtree(folder, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
