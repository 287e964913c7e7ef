"""docs/mechanisms.md says what the tests show; each row has a test or is planned, and never both."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.marks import MarkError
from tools.mechanisms import PAGE, designs, letters, page, shown

COUNTS = [20, 31, 39, 22]
"""Rows of each design."""


def test_the_page_is_what_the_tests_show() -> None:
    """`make mechanisms` would write nothing."""
    table = designs()

    assert PAGE.read_text() == page(table, shown(table)), "run `make mechanisms`"


def test_no_row_is_lost() -> None:
    assert [len(design.rows) for design in designs()] == COUNTS


def test_each_row_that_is_not_planned_has_a_test_on_each_plane() -> None:
    table = designs()
    found = shown(table)
    built = [row for design in table for row in design.rows if row.id not in design.planned]

    missing = {row.id: set(row.planes) - set(letters(found.get(row.id, ()))) for row in built}
    assert {number: planes for number, planes in missing.items() if planes} == {}


def test_no_planned_row_has_a_test() -> None:
    """Then the row is built: take it out of `planned`."""
    table = designs()

    assert sorted(shown(table).keys() & {row for design in table for row in design.planned}) == []


@pytest.mark.parametrize("mark", ['mechanism("9.9")', "mechanism(number)", "mechanism()"])
def test_a_mark_of_no_row_is_refused(tmp_path: Path, mark: str) -> None:
    (tmp_path / "test_x.py").write_text(f"@pytest.mark.{mark}\ndef test_a(): ...")

    with pytest.raises(MarkError, match=r"test_x.py:1: mechanism"):
        shown(designs(), tmp_path)
