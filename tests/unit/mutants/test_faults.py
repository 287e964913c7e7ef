"""Faults are put where something is decided, and nowhere else."""

from __future__ import annotations

import pytest

from tests.mutants.faults import faults_in


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("return a < b", ["return (a <= b)"]),
        ("return a + b", ["return (a - b)"]),
        ("return a and b", ["return (a or b)"]),
        ("return not a", ["return (a)"]),
        ("return 1", ["return (2)"]),
        ("return True", ["return (False)"]),
        ("return 'ü' if a == b else ''", ["return 'ü' if (a != b) else ''"]),
        ("x: int | None = a - b", ["x: int | None = (a + b)"]),
        ("raise ValueError(a + b)", []),
        ("return f'{a + b}'", []),
        ("return a", []),
    ],
)
def test_each_decision_gets_another_one(body: str, wanted: list[str]) -> None:
    source = f'def f(a, b):\n    """1 < 2."""\n    {body}\n'

    assert [fault.applied(source).splitlines()[2].strip() for fault in faults_in(source)] == wanted


def test_what_stands_outside_of_functions_is_left_alone() -> None:
    assert faults_in("LIMIT = 3\n\n\nclass A:\n    field: int = 1 + 2\n") == []
