"""The next steps of a BatchProcess, decided from its objects."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.jobs.gang.batch_pods import pod_name
from kqueue.jobs.gang.batch_process import plan_of
from tests.unit.jobs.gang.batch_builders import (
    ADMITTED,
    NOW,
    after,
    batch,
    ended,
    made,
    places,
    pod,
    pods,
    steps,
    workload,
)
from tests.unit.jobs.gang.test_batch_process import process

JSON = dict[str, Any]
BP = batch()
ONE = {"minAvailable": 1}


# --- the Workload -----------------------------------------------------------------------------------------------------


def test_the_workload_comes_before_any_pod() -> None:
    """G3.B20, G3.B21."""
    assert steps(BP, None, []).create
    assert made(steps(BP, workload(BP), [])) == []
    assert made(steps(BP, workload(BP, "QuotaReserved"), [])) == []


@pytest.mark.parametrize(
    ("obj", "more", "left"),
    [
        pytest.param(BP, {"ready": False}, {}, id="no queue, or refused pods"),
        pytest.param(batch(suspend=True), {}, {}, id="suspended"),
        pytest.param(BP, {}, {"teacher_0": "running"}, id="a pod of the earlier Workload runs"),
        pytest.param(BP, {}, {"teacher_0": "stopping"}, id="a pod of the earlier Workload ends"),
    ],
)
def test_no_workload_is_created_yet(obj: JSON, more: JSON, left: dict[str, str]) -> None:
    assert not steps(obj, None, pods(obj, **left), **more).create


def test_a_workload_like_another_spec_follows_the_object() -> None:
    """G3.B30."""
    assert steps(BP, workload(BP), [], same=False).follow
    assert not steps(BP, workload(BP), [], same=True).follow
    assert not steps(BP, workload(BP), pods(BP, teacher_0="stopping"), same=False).follow


@pytest.mark.proves("BatchProcess", "stop and restore")
@pytest.mark.parametrize(
    ("suspend", "active", "was_suspended", "wanted"),
    [(True, True, False, False), (True, False, False, None), (False, False, True, True),
     pytest.param(False, False, False, None, id="another actor has deactivated it"), (False, True, True, None)],
)  # fmt: skip
def test_suspend_makes_the_workload_inactive(
    suspend: bool, active: bool, was_suspended: bool, wanted: bool | None
) -> None:
    """G3.B12."""
    condition = {"type": "Suspended", "status": "True" if was_suspended else "False"}
    obj = batch(suspend=suspend, status={"conditions": [condition]})

    assert steps(obj, workload(obj, active=active), []).active is wanted


@pytest.mark.proves("BatchProcess", "maximum execution time")
def test_the_longest_execution_time_follows_the_object() -> None:
    """G3.B17."""
    limited = batch(activeDeadlineSeconds=60)

    assert steps(limited, workload(BP), []).limit
    assert not steps(limited, workload(limited), []).limit
    assert workload(limited)["spec"]["maximumExecutionTimeSeconds"] == 60


def test_quota_of_an_evicted_workload_without_pods_is_given_back() -> None:
    evicted = workload(BP, *ADMITTED, "Evicted")

    assert steps(BP, evicted, []).give_back
    assert not steps(BP, evicted, pods(BP, teacher_0="stopping")).give_back, "the common code does it after the last"
    assert not steps(BP, workload(BP, "Evicted"), []).give_back


def test_a_waiting_workload_has_no_pods() -> None:
    members = pods(BP, teacher_0="gated", teacher_1="stopped", student_0="running")
    found = steps(BP, workload(BP, *ADMITTED, "Evicted"), members)

    assert [p.name for p in found.drop] == [members[0].name]
    assert [p.name for p in found.release] == [members[1].name]
    assert (found.stop, found.make) == ((), ())


def test_nothing_is_done_while_the_workload_is_being_deleted() -> None:
    going = workload(BP, *ADMITTED)
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z"

    found = steps(BP, going, pods(BP, teacher_0="running"))

    assert (found.make, found.stop, found.create) == ((), (), False)


# --- pods -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        pytest.param({}, ["teacher-0", "student-0"], id="the base first"),
        pytest.param({"teacher_0": "gated"}, ["student-0"], id="what is missing of it"),
        pytest.param({"teacher_0": "gated", "student_0": "gated"}, [], id="nothing more before the quorum has nodes"),
        pytest.param({"teacher_0": "pending", "student_0": "running"}, [], id="one has no node yet"),
        pytest.param(
            {"teacher_0": "running", "student_0": "running"}, ["teacher-1", "student-1"], id="then those beyond it"
        ),
        pytest.param({"teacher_0": "running", "student_0": "succeeded"}, ["teacher-1", "student-1"], id="one is done"),
        pytest.param(
            {"teacher_0": "failed", "student_0": "running"}, ["teacher-0/1"], id="a failed one is made anew"
        ),
        pytest.param({"teacher_0": "deleted", "student_0": "running"}, ["teacher-0/1"], id="a deleted one, too"),
        pytest.param({"teacher_0": "lost", "student_0": "running"}, ["teacher-0/1"], id="one that never had a node"),
        pytest.param({"teacher_0": "leaving", "student_0": "running"},
                     ["teacher-1", "student-1"], id="not before its end"),
        pytest.param({"teacher_0": "stopped", "student_0": "stopped"}, ["teacher-0/1", "student-0/1"], id="evicted"),
    ],
)  # fmt: skip
def test_pods_to_make(states: dict[str, str], expected: list[str]) -> None:
    """G3.B21, G3.B28, G3.22."""
    assert made(steps(BP, workload(BP, *ADMITTED), pods(BP, **states))) == expected


def test_at_most_sixteen_pods_beyond_the_quorum_wait() -> None:
    """G3.22; pods whose event is under way count."""
    obj = batch(process("a", 40, 1), group=ONE)
    running = [pod(obj, "a-0", "running")]
    load = workload(obj, *ADMITTED)

    first = steps(obj, load, running)
    assert made(first) == [f"a-{i}" for i in range(1, 17)]

    names = frozenset(pod_name(obj, m.role, m.index, m.attempt) for m in first.make)
    assert made(steps(obj, load, running, pending=names)) == []

    waiting = [pod(obj, f"a-{i}", "gated") for i in range(1, 17)]
    assert made(steps(obj, load, [*running, *waiting])) == []
    assert made(steps(obj, load, [*running, pod(obj, "a-1", "running"), *waiting[1:]])) == ["a-17"]


def test_a_pod_whose_event_is_under_way_is_not_made_again() -> None:
    """G3.B22."""
    teacher = plan_of(BP).roles[0]

    found = steps(BP, workload(BP, *ADMITTED), [], pending=frozenset({pod_name(BP, teacher, 0, 0)}))

    assert made(found) == ["student-0"]


def test_failures_go_on_with_the_next_attempt() -> None:
    """G3.B28; an eviction makes another attempt and is no failure."""
    members = [pod(BP, "teacher-0", "failed", attempt=3, failures=1), pod(BP, "student-0", "stopped", attempt=1)]

    found = steps(BP, workload(BP, *ADMITTED), members).make

    assert [(m.role.name, m.attempt, m.failures) for m in found] == [("teacher", 4, 2), ("student", 2, 0)]


def test_a_gang_restarts_as_a_whole() -> None:
    """G3.B28, restart: Gang; those that have succeeded stay."""
    obj = batch(failurePolicy={"restart": "Gang"})
    load = workload(obj, *ADMITTED)
    members = [pod(obj, "teacher-0", "failed"), pod(obj, "student-0", "running")]

    found = steps(obj, load, members)
    assert [p.name for p in found.stop] == [members[1].name]
    assert [(m.index, m.attempt, m.failures) for m in found.make] == [(0, 1, 1)]

    later = [members[0], pod(obj, "teacher-0", "gated", attempt=1, failures=1), pod(obj, "student-0", "stopped")]
    again = steps(obj, load, later)
    assert again.stop == ()
    assert steps(obj, load, [members[0], pod(obj, "student-0", "succeeded")]).stop == ()
    assert [(m.role.name, m.attempt, m.failures) for m in again.make] == [("student", 1, 1)]


def test_members_that_fail_in_one_round_count_once() -> None:
    obj = batch(failurePolicy={"restart": "Gang", "backoffLimit": 1})
    members = [pod(obj, "teacher-0", "failed"), pod(obj, "student-0", "failed")]

    assert places(obj, members).failures(whole_gang=True) == 1
    assert made(steps(obj, workload(obj, *ADMITTED), members)) == ["teacher-0/1", "student-0/1"]


def test_the_service_is_there_before_the_pods() -> None:
    """G3.B15, G3.B26."""
    assert steps(BP, workload(BP, *ADMITTED), []).service
    assert not steps(BP, workload(BP), []).service
    single = batch(process("a", 1), group={})
    assert not steps(single, workload(single, *ADMITTED), []).service


# --- the end ----------------------------------------------------------------------------------------------------------


def test_nothing_is_removed_before_the_end_is_written() -> None:
    obj = batch(successPolicy={"operator": "Any"})
    found = steps(obj, workload(obj, *ADMITTED), pods(obj, teacher_0="running", student_0="succeeded"))

    assert (found.stop, found.drop, found.finish, found.make) == ((), (), None, ())


def test_after_the_end_pods_go_and_then_the_quota() -> None:
    """G3.B19, G3.B27: the Workload finishes with the last pod."""
    obj = ended(BP, "Failed", reason="TimedOut")
    load = workload(obj, *ADMITTED)
    members = pods(obj, teacher_0="running", student_0="gated", teacher_1="failed")

    first = steps(obj, load, members)
    assert [p.name for p in first.stop] == [members[0].name]
    assert [p.name for p in first.drop] == [members[1].name]
    assert [p.name for p in first.release] == [members[2].name]
    assert first.finish is None

    assert steps(obj, load, pods(obj, teacher_0="stopping")).finish is None
    last = steps(obj, load, pods(obj, teacher_0="stopped")).finish
    assert last is not None
    assert (last.success, last.reason) == (False, "TimedOut")
    assert steps(obj, workload(obj, *ADMITTED, "Finished"), []).finish is None


@pytest.mark.parametrize(("ttl", "deleted", "again"), [(None, False, None), (5, True, None), (60, False, 110)])
def test_the_object_is_deleted_so_long_after_its_end(ttl: int | None, deleted: bool, again: int | None) -> None:
    """G3.B16; it ended 10 s before the 60th second."""
    spec: JSON = {} if ttl is None else {"ttlSecondsAfterFinished": ttl}
    obj = ended(batch(**spec), "Complete")

    found = steps(obj, workload(obj, *ADMITTED, "Finished"), [])

    assert found.delete is deleted
    assert found.again == (None if again is None else after(again))


def test_pods_of_a_deleted_object_are_let_go() -> None:
    """G3.B31."""
    obj = {**BP, "metadata": {**BP["metadata"], "deletionTimestamp": "2026-01-01T00:00:30Z"}}
    members = pods(obj, teacher_0="gated", teacher_1="deleted", student_0="running")

    found = steps(obj, workload(obj, *ADMITTED), members)

    assert [p.name for p in found.drop] == [members[0].name]
    assert [p.name for p in found.release] == [members[1].name]
    assert (found.make, found.stop, found.create) == ((), (), False)


def test_the_timeout_wakes_the_controller() -> None:
    obj = batch(group={"minAvailable": 2, "timeoutSeconds": 90})

    assert steps(obj, workload(obj), []).again == after(90)
    assert steps(BP, workload(BP), [], now=NOW).again is None
