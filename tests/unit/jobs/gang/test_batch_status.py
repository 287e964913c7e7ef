"""The status of a BatchProcess, computed from its objects."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from kqueue.api.batch_process import BatchProcess
from kqueue.jobs.gang.batch_end import end_of
from kqueue.jobs.gang.batch_process import plan_of
from kqueue.jobs.gang.batch_status import NO_QUEUE, BatchView, QueueHindrance, changed_state, invalid_status, status_of
from kqueue.jobs.pod_view import ManagedPod
from tests.unit.jobs.gang.batch_builders import ADMITTED, NOW, after, batch, ended, places, pod, pods, workload

JSON = dict[str, Any]
RUNNING = {"teacher_0": "running", "student_0": "running"}


def status(obj: JSON, load: JSON | None, members: list[ManagedPod], *, now: datetime = NOW, **more: Any) -> JSON:
    plan, found = plan_of(obj), places(obj, members)
    more.setdefault("end", end_of(obj, plan, load, found, now))
    made = status_of(BatchView(obj=obj, plan=plan, workload=load, places=found, now=now, **more))
    BatchProcess.model_validate({**obj, "status": made})
    return made


def condition(found: JSON, kind: str) -> tuple[str, str] | None:
    """Status and reason."""
    return next(((c["status"], c["reason"]) for c in found["conditions"] if c["type"] == kind), None)


@pytest.mark.parametrize(
    ("before", "conditions", "states", "phase"),
    [
        pytest.param("", (), {}, "Pending", id="new"),
        pytest.param("Pending", ("QuotaReserved",), {}, "Pending", id="checks"),
        pytest.param("Pending", ADMITTED, {}, "Scheduling", id="admitted"),
        pytest.param("Scheduling", ADMITTED, {"teacher_0": "pending", "student_0": "running"}, "Scheduling", id="one"),
        pytest.param("Scheduling", ADMITTED, {"teacher_0": "bound", "student_0": "running"}, "Scheduled", id="bound"),
        pytest.param("Scheduled", ADMITTED, RUNNING, "Running", id="runs"),
        pytest.param("Running", ADMITTED, {"teacher_0": "failed", "student_0": "running"}, "Failed", id="failed"),
        pytest.param("Failed", ADMITTED, RUNNING, "Running", id="made good"),
        pytest.param("Running", (*ADMITTED, "Evicted"), RUNNING, "Pending", id="evicted"),
        pytest.param("Running", ADMITTED, {"teacher_0": "succeeded", "student_0": "succeeded"}, "Finished", id="done"),
        pytest.param("Suspended", ADMITTED, {}, "Scheduling", id="resumed"),
    ],
)
def test_phase(before: str, conditions: tuple[str, ...], states: dict[str, str], phase: str) -> None:
    """G3.B32."""
    obj = batch(status={"phase": before} if before else None)
    members = pods(obj, **{name: "pending" if state == "bound" else state for name, state in states.items()})
    for member, state in zip(members, states.values(), strict=True):
        if state == "bound":
            member.obj["spec"]["nodeName"] = "n1"

    assert status(obj, workload(obj, *conditions), members)["phase"] == phase


def test_a_suspended_one_says_so() -> None:
    """G3.B12."""
    obj = batch(suspend=True)

    found = status(obj, None, [])

    assert found["phase"] == "Suspended"
    assert condition(found, "Queued") == ("False", "Suspended")
    assert condition(found, "Suspended") == ("True", "Suspended")


def test_suspended_time_is_added_when_it_is_resumed() -> None:
    """G3.B19; and not before its Workload is active again."""
    since = {"type": "Suspended", "status": "True", "lastTransitionTime": "2026-01-01T00:00:20Z"}
    obj = batch(status={"conditions": [since], "suspendedSeconds": 5})

    waits = status(obj, workload(obj, active=False), [])
    assert (condition(waits, "Suspended"), waits["suspendedSeconds"]) == (("True", "Suspended"), 5)

    resumed = status(obj, workload(obj), [])
    assert (condition(resumed, "Suspended"), resumed["suspendedSeconds"]) == (("False", "Resumed"), 45)

    again = status({**obj, "status": resumed}, workload(obj), [], now=after(300))
    assert again["suspendedSeconds"] == 45


def test_counts_by_process() -> None:
    obj = batch()
    members = [
        *pods(obj, teacher_0="running", teacher_1="gated", student_0="succeeded"),
        pod(obj, "student-1", "failed"),
        pod(obj, "student-1", "running", attempt=1, failures=1),
    ]

    found = status(obj, workload(obj, *ADMITTED), members)

    assert {k: found[k] for k in ("quorum", "replicas", "created", "scheduled", "running", "succeeded", "failed")} == {
        "quorum": "2/4", "replicas": 4, "created": 4, "scheduled": 3, "running": 2, "succeeded": 1, "failed": 1,
    }  # fmt: skip
    assert found["failures"] == 1
    assert found["processes"] == [
        {"name": "teacher", "replicas": 2, "minAvailable": 1, "created": 2, "scheduled": 1, "running": 1,
         "succeeded": 0, "failed": 0},
        {"name": "student", "replicas": 2, "minAvailable": 1, "created": 2, "scheduled": 2, "running": 1,
         "succeeded": 1, "failed": 1},
    ]  # fmt: skip


def test_failures_never_decrease() -> None:
    obj = batch(status={"failures": 3})

    assert status(obj, workload(obj, *ADMITTED), pods(obj, teacher_0="failed"))["failures"] == 3


@pytest.mark.parametrize(
    ("hindrance", "queued"),
    [(NO_QUEUE, ("False", "NoQueue")), (QueueHindrance("Invalid", "spec: wrong"), ("False", "Invalid")), (None, None)],
)
def test_queued_says_why_there_is_no_workload(hindrance: QueueHindrance | None, queued: tuple[str, str] | None) -> None:
    """G3.B18, G3.B10."""
    found = status(batch(), None, [], hindrance=hindrance)

    assert condition(found, "Queued") == queued
    assert found.get("message") == (hindrance.message if hindrance else None)


def test_admitted_is_as_of_the_workload() -> None:
    obj = batch()

    assert condition(status(obj, workload(obj, "QuotaReserved"), []), "Admitted") is None
    assert condition(status(obj, workload(obj, *ADMITTED), []), "Admitted") == ("True", "Admitted")
    waits = workload(obj)
    waits["status"]["conditions"] = [
        {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "full"}
    ]
    found = status(obj, waits, [])
    assert condition(found, "Admitted") == ("False", "Pending")
    assert found["message"] == "full"


def test_scheduled_is_written_after_the_last_bind() -> None:
    """Row 3.34."""
    obj = batch()
    load = workload(obj, *ADMITTED)

    before = status(obj, load, pods(obj, teacher_0="running", student_0="pending"))
    assert condition(before, "Scheduled") == ("False", "Starting")
    assert "scheduledTime" not in before

    after_it = status({**obj, "status": before}, load, pods(obj, **RUNNING))
    assert condition(after_it, "Scheduled") == ("True", "QuorumScheduled")
    assert after_it["scheduledTime"] == "2026-01-01T00:01:00Z"

    evicted = workload(obj, "Evicted", reason="GangScheduleTimeout", message="late")
    lost = status({**obj, "status": after_it}, evicted, pods(obj, teacher_0="stopped"))
    assert condition(lost, "Scheduled") == ("False", "GangScheduleTimeout")
    assert lost["scheduledTime"] == "2026-01-01T00:01:00Z"


@pytest.mark.parametrize(("service", "network"), [(True, ("True", "ServiceReady")), (False, ("False", "ServiceExists")), (None, None)])  # fmt: skip
def test_network(service: bool | None, network: tuple[str, str] | None) -> None:
    """G3.B26."""
    obj = batch()

    assert condition(status(obj, workload(obj, *ADMITTED), [], service=service), "Network") == network


def test_the_end_has_its_time_and_message() -> None:
    obj = batch(failurePolicy={"restart": "None"})

    found = status(obj, workload(obj, *ADMITTED), pods(obj, teacher_0="failed"))

    assert found["phase"] == "Failed"
    assert condition(found, "Failed") == ("True", "PodFailed")
    assert found["completionTime"] == "2026-01-01T00:01:00Z"
    assert found["message"].startswith("pod distill-teacher-0-")


def test_the_same_facts_give_the_same_status() -> None:
    """G7.22: nothing is written again, later or after a restart."""
    obj = ended(batch(), "Complete")
    first = status(obj, workload(obj, *ADMITTED, "Finished"), pods(obj, teacher_0="succeeded"))

    again = status({**obj, "status": first}, workload(obj, *ADMITTED, "Finished"), pods(obj, teacher_0="succeeded"),
                   now=after(9000))  # fmt: skip

    assert again == first


def test_a_change_of_counts_alone_is_no_change_of_state() -> None:
    """G3.17."""
    obj = batch(status={"phase": "Running"})
    load = workload(obj, *ADMITTED)
    first = status(obj, load, pods(obj, **RUNNING))
    second = status({**obj, "status": first}, load, pods(obj, **RUNNING, teacher_1="gated"))

    assert first != second
    assert not changed_state(first, second)
    assert changed_state(first, status({**obj, "status": first}, load, []))


def test_an_object_that_cannot_be_read_keeps_its_counts() -> None:
    obj = batch(status={"running": 2, "phase": "Running"})

    found = invalid_status(obj, QueueHindrance("Invalid", "spec: wrong"), NOW)

    assert (found["running"], found["phase"], found["message"]) == (2, "Running", "spec: wrong")
    assert condition(found, "Queued") == ("False", "Invalid")
