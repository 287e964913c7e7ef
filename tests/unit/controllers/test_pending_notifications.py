"""Which Workloads say nothing of a try."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.controllers.pending_notifications import PendingNotifications
from tests.unit.controllers.builders import condition, make_workload, read

NAMES = ("a", "b", "c")


def says(name: str, reason: str | None) -> wire.Workload:
    """A Workload that waits for this reason; None: it says nothing."""
    conditions = [condition("QuotaReserved", "False", reason)] if reason is not None else []
    workload: wire.Workload = read(wire.Workload, make_workload(name, status={"conditions": conditions}))
    return workload


def told(pending: PendingNotifications, *names: str) -> None:
    """The watch brings that a try has said something of them."""
    for name in names:
        pending.observe(None, says(name, "WaitingForQuota"))


@pytest.mark.parametrize(
    ("reasons", "first"),
    [
        pytest.param([None], True, id="it says nothing"),
        pytest.param(["PendingEvaluation"], True, id="no cycle has tried it"),
        pytest.param(["Suspended"], True, id="its queue was stopped"),
        pytest.param(["WaitingForQuota"], False, id="a try has said why"),
        pytest.param([None, "WaitingForQuota"], False, id="it has been told"),
        pytest.param(["WaitingForQuota", "PendingEvaluation"], True, id="it is to be tried anew"),
    ],
)
def test_who_is_owed_a_first_word(reasons: list[str | None], first: bool) -> None:
    """As its condition says now; nobody who is gone is."""
    pending, before = PendingNotifications(), None
    for reason in reasons:
        now = says("a", reason)
        pending.observe(before, now)
        before = now

    assert pending.is_first("ns/a") is first
    assert list(pending.among(["ns/a"])) == (["ns/a"] if first else [])
    pending.observe(before, None)
    assert not pending.is_first("ns/a")
    assert list(pending.among(["ns/a"])) == []


@pytest.mark.parametrize("asked", [["ns/a"], [f"ns/{n}" for n in range(99)] + ["ns/a"]], ids=["few", "many"])
def test_those_among_many_that_say_nothing_of_a_try(asked: Collection[str]) -> None:
    """Each once, however many are asked about, and as often as it is asked."""
    pending = PendingNotifications()
    told(pending, *NAMES)
    assert list(pending.among(asked)) == []
    pending.observe(None, says("a", None))
    pending.observe(None, says("x", None))

    assert list(pending.among(asked)) == ["ns/a"]
    assert list(pending.among(asked)) == ["ns/a"]
