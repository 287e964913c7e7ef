"""How a BatchProcess ends."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from kqueue.jobs.gang.batch_end import BatchEnd, end_of, quorum_due
from kqueue.jobs.gang.batch_process import plan_of
from kqueue.jobs.pod_view import ManagedPod
from tests.unit.jobs.gang.batch_builders import (
    ADMITTED,
    NOW,
    after,
    batch,
    ended,
    places,
    pod,
    pods,
    workload,
)

JSON = dict[str, Any]
BOTH = {"teacher_0": "succeeded", "student_0": "succeeded"}


def end(
    obj: JSON, members: list[ManagedPod], *conditions: str, now: datetime = NOW, refusal: str = "", **load: Any
) -> BatchEnd | None:
    found = workload(obj, *(conditions or ADMITTED), **load)
    return end_of(obj, plan_of(obj), found, places(obj, members), now, refusal=refusal)


@pytest.mark.parametrize(
    ("policy", "states", "complete"),
    [
        pytest.param(None, BOTH, True, id="all of the base, and nothing else was started"),
        pytest.param(None, {**BOTH, "teacher_1": "gated"}, True, id="one that waits is dropped"),
        pytest.param(None, {**BOTH, "teacher_1": "running"}, False, id="one beyond the quorum runs"),
        pytest.param(None, {**BOTH, "teacher_1": "failed"}, False, id="one beyond the quorum will be made anew"),
        pytest.param(None, {"teacher_0": "succeeded", "student_0": "running"}, False, id="one runs"),
        pytest.param(None, {"student_0": "succeeded"}, False, id="one of the base does not exist"),
        pytest.param(None, {"teacher_0": "stopped", "student_0": "succeeded"}, False, id="one was evicted"),
        pytest.param(None, {}, False, id="nothing was started"),
        pytest.param({"processes": ["student"]}, {"teacher_0": "running", "student_0": "succeeded"}, True, id="named"),
        pytest.param({"processes": ["teacher"]}, {"teacher_0": "running", "student_0": "succeeded"}, False, id="not"),
        pytest.param({"operator": "Any"}, {"teacher_0": "running", "student_0": "succeeded"}, True, id="any"),
        pytest.param({"operator": "Any"}, {"teacher_0": "running", "student_0": "running"}, False, id="none"),
        pytest.param({"operator": "Any", "processes": ["teacher"]}, {"teacher_0": "running", "student_0": "succeeded"},
                     False, id="any of the named"),
    ],
)  # fmt: skip
def test_success(policy: JSON | None, states: dict[str, str], complete: bool) -> None:
    """G3.B27."""
    obj = batch(**({"successPolicy": policy} if policy else {}))

    found = end(obj, pods(obj, **states))

    assert (found is not None and found.success) is complete


@pytest.mark.parametrize(
    ("policy", "states", "reason"),
    [
        pytest.param({}, {"teacher_0": "failed"}, "", id="six failures are made good"),
        pytest.param({"restart": "None"}, {"teacher_0": "failed"}, "PodFailed", id="none is"),
        pytest.param({"restart": "None"}, {"teacher_0": "stopped"}, "", id="an eviction is no failure"),
        pytest.param({"restart": "None"}, {"teacher_0": "leaving"}, "", id="not before its end"),
        pytest.param({"restart": "None"}, {"teacher_0": "deleted"}, "PodFailed", id="deleted by another client"),
        pytest.param({"backoffLimit": 0}, {"teacher_0": "failed"}, "BackoffLimitExceeded", id="no failure is allowed"),
        pytest.param({"backoffLimit": 1}, {"teacher_0": "failed"}, "", id="as many as allowed"),
        pytest.param({"backoffLimit": 1}, {"teacher_0": "failed", "student_0": "failed"}, "BackoffLimitExceeded",
                     id="the sum of all places"),
        pytest.param({"backoffLimit": 0}, {"teacher_0": "gated"}, "", id="one that waits"),
    ],
)  # fmt: skip
def test_failure(policy: JSON, states: dict[str, str], reason: str) -> None:
    """G3.B28."""
    obj = batch(failurePolicy=policy)

    found = end(obj, pods(obj, **states))

    assert (found.reason if found is not None else "") == reason


def test_the_failure_says_which_pod_and_how() -> None:
    obj = batch(failurePolicy={"backoffLimit": 2})
    failed = pod(obj, "teacher-0", "failed", attempt=2, failures=2)
    failed.obj["status"]["containerStatuses"] = [{"state": {"terminated": {"exitCode": 137}}}]

    found = end(obj, [failed])

    assert found is not None
    assert found.message == f"pod {failed.name} failed (exit code 137), the 3rd failure; backoffLimit is 2"


def test_failures_of_pods_that_are_gone_count() -> None:
    """G3.B28: the status remembers them."""
    obj = batch(status={"failures": 7})

    found = end(obj, pods(obj, teacher_0="failed"))

    assert found is not None
    assert found.reason == "BackoffLimitExceeded"


@pytest.mark.parametrize(
    ("seconds", "status", "states", "failed"),
    [
        pytest.param(60, {}, {"teacher_0": "running"}, True, id="one of two at the moment of the timeout"),
        pytest.param(61, {}, {"teacher_0": "running"}, False, id="a second before"),
        pytest.param(60, {}, {"teacher_0": "running", "student_0": "running"}, False, id="the quorum wins"),
        pytest.param(10, {"scheduledTime": "2026-01-01T00:00:09Z"}, {}, False, id="met before an eviction"),
        pytest.param(40, {"suspendedSeconds": 30}, {}, False, id="suspended time does not count"),
        pytest.param(40, {"suspendedSeconds": 10}, {}, True, id="the rest does"),
        pytest.param(None, {}, {}, False, id="no timeout"),
    ],
)
def test_timeout(seconds: int | None, status: JSON, states: dict[str, str], failed: bool) -> None:
    """G3.B19, G7.6."""
    group = {"minAvailable": 2, **({} if seconds is None else {"timeoutSeconds": seconds})}
    obj = batch(group=group, status=status)

    found = end(obj, pods(obj, **states))

    assert (found is not None and found.reason == "TimedOut") is failed


def test_the_timeout_says_how_many_were_scheduled() -> None:
    obj = batch(group={"minAvailable": 2, "timeoutSeconds": 60})

    found = end(obj, pods(obj, teacher_0="running"))

    assert found is not None
    assert found.message == (
        "1 of 2 pods were scheduled within 60 s of the creation; all pods were removed; delete it, or make it anew with "
        "a longer spec.podGroup.timeoutSeconds"
    )


def test_no_timeout_runs_while_it_is_suspended() -> None:
    obj = batch(group={"timeoutSeconds": 10}, suspend=True)

    assert quorum_due(obj) is None
    assert end(obj, [], now=after(1000)) is None


@pytest.mark.parametrize(
    ("conditions", "reason", "expected"),
    [
        pytest.param((*ADMITTED, "Finished"), "FailedToStart", ("Failed", "FailedToStart"), id="could not start"),
        pytest.param((*ADMITTED, "Finished"), "Succeeded", ("Complete", "Succeeded"), id="finished by another actor"),
        pytest.param(("Evicted",), "DeactivatedDueToMaximumExecutionTimeExceeded", ("Failed", "DeadlineExceeded"),
                     id="ran for too long"),
        pytest.param(("Evicted",), "Preempted", None, id="preempted"),
    ],
)  # fmt: skip
def test_the_end_of_the_workload(conditions: tuple[str, ...], reason: str, expected: tuple[str, str] | None) -> None:
    """G3.B17."""
    obj = batch()

    found = end(obj, [], *conditions, reason=reason, message="m")

    assert (None if found is None else (found.condition, found.reason)) == expected


def test_a_refused_pod_is_the_end() -> None:
    """G3.B28."""
    found = end(batch(), [], refusal="spec.containers[0].name: invalid")

    assert found is not None
    assert (found.condition, found.reason, found.message) == (
        "Failed",
        "PodRefused",
        "spec.containers[0].name: invalid",
    )


def test_a_written_end_stays() -> None:
    """G3.B19: whatever the pods do."""
    obj = ended(batch(), "Failed", reason="TimedOut")

    found = end(obj, pods(obj, **BOTH))

    assert found is not None
    assert (found.condition, found.reason, found.written) == ("Failed", "TimedOut", True)
