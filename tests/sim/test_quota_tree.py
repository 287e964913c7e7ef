"""The arithmetic that simulated worlds are judged by gives what can be worked out by hand."""

from __future__ import annotations

import pytest

from kqueue.sandbox.api import Object
from tests.sim.quota_tree import QuotaTree

_COLUMN = ("red", "cpu")


def _spec(nominal: int, *, borrowing: int | None = None, lending: int | None = None, **above: str) -> Object:
    limits = {"borrowingLimit": borrowing, "lendingLimit": lending}
    quota = {"name": "cpu", "nominalQuota": str(nominal), **{k: str(v) for k, v in limits.items() if v is not None}}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "red", "resources": [quota]}]}
    return {"resourceGroups": [group], **above}


TREE = QuotaTree(
    {
        "open": _spec(10, cohortName="left"),
        "careful": _spec(10, borrowing=2, lending=5, cohortName="left"),
        "content": _spec(20, borrowing=0, cohortName="root"),
    },
    {"left": _spec(4, lending=6, parentName="root"), "root": _spec(0)},
)
USED = {"open": {_COLUMN: 13_000}, "careful": {_COLUMN: 4_000}, "content": {_COLUMN: 12_000}}


@pytest.mark.parametrize(
    ("queue", "free", "reach"),
    [
        pytest.param(
            "open", 14, 39, id="what its cohort keeps and what the root has left: all that the others do not use"
        ),
        pytest.param("careful", 8, 12, id="no more than its nominal quota and its borrowing limit"),
        pytest.param("content", 8, 20, id="its own and nothing else"),
    ],
)
def test_room_is_what_the_tree_has_left(queue: str, free: int, reach: int) -> None:
    """The last core that fits, and the one after it; and the most that could ever be used."""
    assert TREE.overrun(queue, _COLUMN, free * 1000, USED) is None
    assert TREE.overrun(queue, _COLUMN, (free + 1) * 1000, USED) is not None
    assert TREE.reach(queue, _COLUMN) == reach * 1000


def test_who_keeps_quota_for_itself_may_use_it_in_a_tree_that_has_too_little() -> None:
    """An administrator took quota away: what is not lent is there all the same, and not a core more."""
    tree = QuotaTree({"poor": _spec(0, cohortName="c"), "keeper": _spec(5, lending=2, cohortName="c")}, {})
    used = {"poor": {_COLUMN: 9_000}}

    assert tree.overrun("keeper", _COLUMN, 3_000, used) is None
    assert (
        tree.overrun("keeper", _COLUMN, 4_000, used) == "cohort c would have 10000 of ('red', 'cpu'), and may have 2000"
    )


def test_a_circle_of_cohorts_gives_nothing() -> None:
    """Nobody is admitted below one."""
    tree = QuotaTree({"q": _spec(5, cohortName="a")}, {"a": _spec(0, parentName="b"), "b": _spec(0, parentName="a")})

    assert tree.overrun("q", _COLUMN, 1, {}) is not None
    assert tree.reach("q", _COLUMN) == 0
