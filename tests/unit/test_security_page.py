"""docs/security.md names a test for each attack, and every test that it names is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
ATTACKS = PAGE.partition("| Attack |")[2].partition("\n\n")[0].splitlines()[2:]


@pytest.mark.parametrize("row", ATTACKS)
def test_each_attack_names_a_test_that_is_there(row: str) -> None:
    """A file of the tests, and a function in it that pytest collects."""
    found = NAMED.findall(row)

    assert found, f"no test is named: {row}"
    for file, function in found:
        tree = ast.parse((ROOT / file).read_text())
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert function.startswith("test_")
        assert function in names, f"{file} has no {function}"


def test_the_table_is_read() -> None:
    """A page without a table would pass the test above."""
    assert len(ATTACKS) >= 12
    assert all(row.count("|") == 5 for row in ATTACKS)
