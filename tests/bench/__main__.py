"""`make bench`: the rows of all modules of this folder, as tables or as JSON lines.

`python -m tests.bench [--json] [PATTERN[,PATTERN...] ...]`.  `table.py` says what a row is and how to add one.  A
module without rows but with a `main` is run as a program, chosen by its name; in JSON it has no part, its words go to
stderr.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np

from kqueue.runtime.loop import tune_collector
from tests.bench.table import HEADER, Figure, Row, WrongAnswerError, chosen, line, pace, verdict


@cache
def modules() -> list[str]:
    """The modules that measure something: those of this folder with rows or a program."""
    names = sorted(p.stem for p in Path(__file__).parent.glob("*.py") if not p.stem.startswith("_"))
    return [name for name in names if rows_of(name) or hasattr(loaded(name), "main")]


@cache
def loaded(module: str) -> ModuleType:
    """Of this folder.  One that cannot be imported counts as a program, which will say why when it is run."""
    try:
        return importlib.import_module(f"tests.bench.{module}")
    except ImportError:
        broken = ModuleType(module)
        broken.main = None  # type: ignore[attr-defined]
        return broken


def rows_of(module: str) -> Sequence[Row]:
    """Its rows; empty when it has none."""
    rows: Sequence[Row] = getattr(loaded(module), "ROWS", ())
    return rows


def processes(module: str, patterns: Sequence[str]) -> list[list[str]]:
    """Names of the chosen rows, process by process; the module's own name where it is a program."""
    rows = rows_of(module)
    if not rows:
        return [[module]] if chosen(module, module, patterns) else []
    mine = [row for row in rows if row.chosen(module, patterns)]
    together = [row.name for row in mine if not row.alone]
    return [part for part in (together, *([row.name] for row in mine if row.alone)) if part]


def measure_here(module: str, names: Sequence[str]) -> int:
    """Measure these rows in this process and write each figure as a line; the exit code is 1 when one has none."""
    tune_collector()
    code = 0
    for row in rows_of(module):
        if row.name not in names:
            continue
        before = pace()
        try:
            figures = list(row.measure())
        except (WrongAnswerError, AssertionError):
            traceback.print_exc()
            print(json.dumps({"row": row.name, "figure": None}), flush=True)
            code = 1
            continue
        for figure in figures:
            print(json.dumps({"row": row.name, "figure": figure.as_json()}), flush=True)
        print(json.dumps({"row": row.name, "pace": (before + pace()) / 2}), flush=True)
    return code


def measured(module: str, names: Sequence[str], paces: dict[str, float]) -> Iterator[tuple[str, Figure | None]]:
    """(row, figure) as a process of its own finds them; None in place of the figures of a row that failed.

    How fast the machine was beside each row is put into `paces`.
    """
    command = [sys.executable, "-m", "tests.bench", "--here", module, *names]
    left = list(names)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for text in child.stdout:
            found = json.loads(text)
            left = [name for name in left if name != found["row"]]
            if "pace" in found:
                paces[found["row"]] = found["pace"]
                continue
            yield found["row"], None if found["figure"] is None else Figure.from_json(found["figure"])
    if child.returncode:
        yield from ((name, None) for name in left)


def ran(module: str, *, as_json: bool) -> bool:
    """Run a module that is a program."""
    if not as_json:
        print(f"\n== {module}", flush=True)
    output = sys.stderr if as_json else None
    return not subprocess.run([sys.executable, "-m", f"tests.bench.{module}"], check=False, stdout=output).returncode


def report(plan: Sequence[tuple[str, list[str]]], *, as_json: bool) -> list[str]:
    """Run everything, show it as it comes; returns what failed."""
    failed: list[str] = []
    found: list[tuple[str, Figure]] = []
    paces: dict[str, float] = {}
    shown = ""
    for module, names in plan:
        if names == [module]:
            failed += [] if ran(module, as_json=as_json) else [module]
            continue
        if shown != module and not as_json:
            print(f"\n== {module}\n{HEADER}", flush=True)
        shown = module
        for row, figure in measured(module, names, paces):
            if figure is None:
                failed.append(row)
            elif as_json:
                print(json.dumps({"row": row, "metric": figure.metric, "value": round(figure.value, 6)}), flush=True)
            else:
                print(line(row, figure), flush=True)
                found.append((row, figure))
    if not as_json:
        for text in verdict(found, paces):
            print(text)
    return failed


def main() -> int:
    """Run the chosen rows; the exit code is 1 when one of them failed, 2 when none is chosen."""
    parser = argparse.ArgumentParser(prog="make bench", description="Figures with their conditions.")
    parser.add_argument("rows", nargs="*", metavar="ROW", help="names or patterns, with commas between; all without")
    parser.add_argument("--json", action="store_true", help="an object a line: row, metric, value")
    parser.add_argument("--here", metavar="MODULE", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here is not None:
        return measure_here(arguments.here, arguments.rows)
    patterns = [pattern for text in arguments.rows for pattern in text.replace(",", " ").split()]
    plan = [(module, names) for module in modules() for names in processes(module, patterns)]
    for pattern in patterns:
        if not any(processes(module, [pattern]) for module in modules()):
            parser.error(f"no row is called {pattern}; modules are {', '.join(modules())}")
    if not arguments.json:
        conditions = f"{os.cpu_count()} CPUs, {platform.machine()}, CPython {platform.python_version()}"
        print(f"{conditions}, numpy {np.__version__}, {platform.system()}; one thread, load {os.getloadavg()[0]:.1f}")
    failed = report(plan, as_json=arguments.json)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
