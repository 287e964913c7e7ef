"""Pauses before evicted Workloads come back, and what lets them."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.state import requeueing
from kqueue.state.requeueing import RequeueBackoff
from tests.unit.state.life import NOON, at, held, workload


@pytest.mark.parametrize(
    ("backoff", "want"),
    [
        pytest.param(
            RequeueBackoff(60, 3600), [60, 120, 240, 480, 960, 1920, 3600, 3600], id="doubled up to the longest"
        ),
        pytest.param(RequeueBackoff(60, 10), [60, 10, 10], id="the first is the base whatever the longest is"),
        pytest.param(RequeueBackoff(1, 0), [1, 2, 4, 8], id="without an upper bound"),
        pytest.param(RequeueBackoff(0, 3600), [0, 0, 0], id="no pause at all"),
    ],
)
def test_pauses_double(backoff: RequeueBackoff, want: list[int]) -> None:
    """In seconds, the first to the last."""
    assert [backoff.pause(count) for count in range(1, len(want) + 1)] == want


def test_a_count_beyond_reason_is_the_longest_pause() -> None:
    """Whoever writes such a count."""
    assert RequeueBackoff(60, 3600).pause(2**31) == 3600
    assert RequeueBackoff(60, 0).pause(2**31) == 2**31 - 1


@pytest.mark.parametrize(
    ("limit", "count", "want"),
    [(None, 10**6, True), (2, 2, True), (2, 3, False), (0, 1, False)],
    ids=["without a limit", "the last time", "once too often", "never"],
)
def test_how_often_one_may_come_back(limit: int | None, count: int, want: bool) -> None:
    """Counted from its activation."""
    assert RequeueBackoff(60, 3600, limit).allows(count) is want


@pytest.mark.parametrize(
    ("state", "count", "seconds"),
    [
        pytest.param({}, 1, 60, id="the first time"),
        pytest.param({"count": 2}, 3, 240, id="the third time"),
        pytest.param({"count": 1, "requeueAt": "2026-01-01T13:00:00Z"}, 2, 3600, id="a later time stays"),
        pytest.param({"count": -5}, 1, 60, id="a count below nothing is nothing"),
        pytest.param({"count": 2**31 - 1}, 2**31 - 1, 3600, id="the count ends where its field does"),
    ],
)
def test_the_next_pause_is_counted(state: dict[str, Any], count: int, seconds: int) -> None:
    """Up to a part in ten thousand is added, the same each time it is worked out."""
    obj = workload(requeueState=state)
    found = requeueing.next_requeue(obj, RequeueBackoff(60, 3600), NOON)
    assert found.count == count
    assert found.requeue_at is not None
    assert at(seconds) <= found.requeue_at <= at(seconds * 1.0001)
    assert requeueing.next_requeue(obj, RequeueBackoff(60, 3600), NOON) == found


def test_those_that_leave_together_do_not_come_back_together() -> None:
    """Each has a part of its own."""
    times = {
        requeueing.next_requeue(workload(metadata={"uid": uid}), RequeueBackoff(3600, 3600), NOON).requeue_at
        for uid in "abcd"
    }
    assert len(times) == 4


OUT: Any = {"status": "False"}


@pytest.mark.parametrize(
    ("reason", "stopped", "active", "want"),
    [
        pytest.param("Deactivated", "", True, "Reactivated", id="its user made it active again"),
        pytest.param("DeactivatedDueToRequeuingLimitExceeded", "", True, "Reactivated", id="after we switched it off"),
        pytest.param("Deactivated", "", False, None, id="still inactive"),
        pytest.param("LocalQueueStopped", "local", True, None, id="its LocalQueue is stopped"),
        pytest.param("LocalQueueStopped", "cluster", True, "LocalQueueRestarted", id="its LocalQueue runs"),
        pytest.param("ClusterQueueStopped", "cluster", True, None, id="its ClusterQueue is stopped"),
        pytest.param("ClusterQueueStopped", "local", True, "ClusterQueueRestarted", id="its ClusterQueue runs"),
        pytest.param("PodsReadyTimeout", "", True, "BackoffFinished", id="a pause"),
        pytest.param("AdmissionCheck", "", True, "BackoffFinished", id="a check's pause"),
        pytest.param("Whatever", "", True, "BackoffFinished", id="nobody knows why"),
        pytest.param("Inadmissible", "", True, None, id="its claims are refused"),
    ],
)
def test_what_lets_an_evicted_one_return(reason: str, stopped: str, active: bool, want: str | None) -> None:
    """The reason of Requeued=True; None while it is to stay out."""
    obj = workload(held("Requeued", reason=reason, **OUT), spec={"active": active})
    found = requeueing.reason_to_return(obj, local_stopped=stopped == "local", cluster_stopped=stopped == "cluster")
    assert found == want


def test_one_that_nothing_keeps_out_needs_no_leave() -> None:
    """Without the condition, and with it True."""
    for obj in (workload(), workload(held("Requeued", reason="Preempted"))):
        assert requeueing.reason_to_return(obj, local_stopped=False, cluster_stopped=False) is None
