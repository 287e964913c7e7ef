"""Ranks of keys: give-backs before starts, starts before what is followed, words last."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.controllers.ranks import owner_rank, workload_rank
from kqueue.runtime.workqueue import KeyRank
from tests.unit.controllers.builders import JSON, condition, make_workload, read, reserved

EVICTED = condition("Evicted", reason="Preempted")
ADMITTED = condition("Admitted", reason="Admitted")
NOT_YET = condition("Admitted", "False", "UnsatisfiedAdmissionChecks")
GIVEN_BACK = condition("QuotaReserved", "False", "PendingEvaluation")
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def make(status: JSON | None = None, **more: Any) -> wire.Workload:
    """A Workload; pending without a status."""
    found: wire.Workload = read(wire.Workload, make_workload(status=status, **more))
    return found


def answered(state: str) -> JSON:
    """A reservation of which a check says `state`."""
    check = {"name": "budget", "state": state, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return reserved(NOT_YET, admissionChecks=[check])


LEAVING = {
    "evicted-and-holds": make(reserved(ADMITTED, EVICTED)),
    "deleted-and-holds": make(reserved(), metadata=DELETED),
    "inactive-and-holds": make(reserved(), active=False),
    "to-be-deactivated": make(reserved(ADMITTED, condition("DeactivationTarget"))),
    "a-check-wants-it-back": make(answered("Retry")),
    "a-check-refuses-it": make(answered("Rejected")),
    "contradicts-itself": make({"conditions": [condition("QuotaReserved")]}),
    "given-back-by-another-client": make({**reserved(), "conditions": [GIVEN_BACK, EVICTED]}),
}
FINISHED = make(reserved(ADMITTED, condition("Finished")))
RESERVED, RUNNING, PENDING = make(reserved(NOT_YET)), make(reserved()), make()


@pytest.mark.parametrize(
    ("workload", "want"),
    [
        *(pytest.param(workload, KeyRank.FREE, id=name) for name, workload in LEAVING.items()),
        pytest.param(make(metadata=DELETED), KeyRank.FREE, id="deleted-and-pending"),
        pytest.param(RESERVED, KeyRank.START, id="reserved-and-not-admitted"),
        pytest.param(make(active=False), KeyRank.START, id="inactive-to-be-taken-out-of-its-queue"),
        pytest.param(
            make({"conditions": [GIVEN_BACK, EVICTED, condition("Requeued", "False")]}),
            KeyRank.START,
            id="evicted-to-be-queued-again",
        ),
        pytest.param(RUNNING, KeyRank.FOLLOW, id="admitted"),
        pytest.param(FINISHED, KeyRank.FOLLOW, id="finished"),
        pytest.param(None, KeyRank.FOLLOW, id="gone"),
        pytest.param(PENDING, KeyRank.TELL, id="new"),
        pytest.param(make({"conditions": [GIVEN_BACK]}), KeyRank.TELL, id="pending"),
    ],
)
def test_workloads_have_a_rank(workload: wire.Workload | None, want: KeyRank) -> None:
    """What gives quota back comes first, and words come last."""
    assert workload_rank(workload) is want


@pytest.mark.parametrize("held_back", [True, False])
@pytest.mark.parametrize("workload", LEAVING.values(), ids=LEAVING)
def test_owners_of_leaving_workloads_go_first(workload: wire.Workload, held_back: bool) -> None:
    """Whatever the owner looks like, its reconciler ends the eviction."""
    assert owner_rank([RUNNING, workload], ended=False, held_back=held_back) is KeyRank.FREE


@pytest.mark.parametrize(
    ("workloads", "ended", "held_back", "want"),
    [
        pytest.param([RUNNING], True, False, KeyRank.FREE, id="ended-and-its-quota-is-held"),
        pytest.param([FINISHED], True, False, KeyRank.FOLLOW, id="ended-and-its-quota-is-free"),
        pytest.param([], True, False, KeyRank.FOLLOW, id="gone-without-workload"),
        pytest.param([RUNNING], False, True, KeyRank.START, id="admitted-and-not-started"),
        pytest.param([], False, True, KeyRank.START, id="new"),
        pytest.param([], False, False, KeyRank.START, id="runs-without-workload"),
        pytest.param([RUNNING], False, False, KeyRank.FOLLOW, id="runs"),
        pytest.param([RESERVED], False, True, KeyRank.FOLLOW, id="reserved"),
        pytest.param([PENDING], False, True, KeyRank.FOLLOW, id="pending"),
    ],
)
def test_owners_have_a_rank(workloads: list[wire.Workload], ended: bool, held_back: bool, want: KeyRank) -> None:
    """Ends that free quota come before starts, and starts before what is only followed."""
    assert owner_rank(workloads, ended=ended, held_back=held_back) is want
