"""Write docs/mechanisms.md from tools/mechanisms.toml and the marks of the tests.  `--check` only compares.

A test that carries `@pytest.mark.mechanism("0.1", "0.2")` shows these rows.  Tests are read, not run.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.marks import PLANES, ROOT, MarkedTest, MarkError, marked

TABLE = ROOT / "tools" / "mechanisms.toml"
PAGE = ROOT / "docs" / "mechanisms.md"
_HEAD = """# Mechanisms of batch scheduling and their tests

Three published designs describe gang scheduling for Kubernetes: groups by labels on pods, a PodGroup object with a
status, and a scheduler with several strategies, a BatchProcess object and classes of nodes. A fourth one describes
scheduling of all waiting pods together, as a flow in a network. The tables list each mechanism of these designs, its
form in kqueue, and the tests that show it. `make mechanisms` writes this page from the marks of the tests; a row
without a test fails the build, unless it says that it is planned.

Where the tests run: u unit, M simulation, S sandbox, R real control plane.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One mechanism, and its form in kqueue."""

    id: str
    mechanism: str
    form: str
    planes: str
    """The letters of the planes on which tests must show it."""


@dataclass(frozen=True, slots=True)
class Design:
    """One design with its rows in order."""

    title: str
    rows: tuple[Row, ...]
    planned: frozenset[str]
    """Rows that are not built yet."""


def designs(path: Path = TABLE) -> list[Design]:
    """Return the table."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    return [
        Design(
            title=entry["title"],
            rows=tuple(Row(number, *texts) for number, texts in entry["rows"].items()),
            planned=frozenset(entry.get("planned", ())),
        )
        for entry in table["design"]
    ]


def shown(table: Sequence[Design], folder: Path = ROOT / "tests") -> Mapping[str, list[MarkedTest]]:
    """Return the tests that show each row.

    Raises:
        MarkError: a mark names a row that the table does not have.
    """
    known = {row.id for design in table for row in design.rows}
    found: dict[str, list[MarkedTest]] = defaultdict(list)
    for test in marked("mechanism", folder):
        if not test.complete or not test.arguments or not known.issuperset(test.arguments):
            raise MarkError(f"{test.where}: mechanism{test.arguments} names no rows of {TABLE.name}")
        for number in test.arguments:
            found[str(number)].append(test)
    return found


def page(table: Sequence[Design], found: Mapping[str, Sequence[MarkedTest]]) -> str:
    """Return the whole page."""
    lines = [_HEAD]
    for design in table:
        lines += [f"## {design.title}", "", "| # | mechanism | in kqueue | shown by |", "|---|---|---|---|"]
        for row in design.rows:
            lines.append(f"| {row.id} | {row.mechanism} | {row.form} | {letters(found.get(row.id, ()))} |")
        lines.append("")
    lines += ["<details><summary>The tests behind each row</summary>", ""]
    for design in table:
        for row in design.rows:
            tests = dict.fromkeys(f"`{test.test}` ({' and '.join(test.planes)})" for test in found.get(row.id, ()))
            lines += [f"- {row.id}: {test}" for test in tests]
    return "\n".join([*lines, "", "</details>", ""])


def letters(tests: Iterable[MarkedTest]) -> str:
    """Return the letters of the planes on which tests run, in the order of `PLANES`; `planned` without tests."""
    planes = {plane for test in tests for plane in test.planes}
    return "".join(letter for plane, letter in PLANES.items() if plane in planes) or "planned"


def main() -> None:
    """Write, or compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 when the page differs")
    check = parser.parse_args().check
    table = designs()
    found = shown(table)
    wanted = page(table, found)
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == wanted:
        return
    if check:
        sys.exit("docs/mechanisms.md is not what the tests show; run `make mechanisms`")
    PAGE.write_text(wanted, encoding="utf-8")
    print(f"docs/mechanisms.md: {len(found)} of {sum(len(d.rows) for d in table)} rows shown by tests")


if __name__ == "__main__":
    main()
