"""Which released pods count as not running, since when, and what the scheduler says of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.state.not_running import SILENT, NotRunning, not_running, sentences

START = datetime(2026, 1, 1, tzinfo=UTC)
AFTER = timedelta(seconds=60)
REFUSED = "0/4 nodes are available: 4 node(s) didn't have free ports for the requested pod ports."
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job", "controller": True}


def at(seconds: int) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


def condition(kind: str, status: str, *, seconds: int, reason: str = "R", message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at(seconds)}


def scheduled(*, seconds: int = 10, reason: str = "Unschedulable", message: str = REFUSED) -> list[dict[str, str]]:
    return [condition("PodScheduled", "False", seconds=seconds, reason=reason, message=message)]


def make_view(name: str = "p", *, conditions: Any = None, of: str = "w", owner: Any = JOB, **more: Any) -> Any:
    """A pod of the Job that was released and that the scheduler refused, or another one by `more`."""
    meta: dict[str, Any] = {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": at(0)}
    meta |= {"annotations": {"kueue.x-k8s.io/workload": of}, "ownerReferences": [owner] if owner else []}
    status = {"phase": more.pop("phase", "Pending"), "conditions": scheduled() if conditions is None else conditions}
    pod = {"metadata": meta | more.pop("metadata", {}), "spec": more, "status": status}
    return model.pod_view(msgspec.convert(pod, wire_core.Pod))


def make_workload(*conditions: dict[str, str], admitted: int = 5, owner: str = "job") -> wire.Workload:
    granted = [condition(kind, "True", seconds=admitted) for kind in ("QuotaReserved", "Admitted")]
    reference = {"apiVersion": "v1", "kind": "K", "name": "o", "uid": owner}
    spec = {"queueName": "main", "podSets": []}
    status = {"admission": {"clusterQueue": "team"}, "conditions": [*granted, *conditions]}
    meta = {"name": "w", "namespace": "ns", "uid": "w", "ownerReferences": [reference]}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, wire.Workload)


def found(workload: wire.Workload, *views: Any, seconds: int = 600) -> list[NotRunning]:
    now = START + timedelta(seconds=seconds)
    return not_running(workload, views, controllers={"job"}, now=now, after=AFTER)


def test_a_refused_pod_comes_with_the_sentence_of_its_scheduler() -> None:
    """Since the condition changed, where that was after the admission."""
    (pod,) = found(make_workload(), make_view())

    assert pod == NotRunning(key="ns/p", since=START + timedelta(seconds=10), message=REFUSED)


@pytest.mark.parametrize(
    ("view", "workload"),
    [
        pytest.param(make_view(nodeName="n1"), make_workload(), id="a node runs the pod"),
        pytest.param(make_view(schedulingGates=[{"name": "g"}]), make_workload(), id="a gate holds the pod"),
        pytest.param(make_view(phase="Failed"), make_workload(), id="the pod has ended"),
        pytest.param(make_view(metadata={"deletionTimestamp": at(20)}), make_workload(), id="the pod is being deleted"),
        pytest.param(make_view(owner={**JOB, "uid": "other"}), make_workload(), id="another object controls the pod"),
        pytest.param(make_view(owner=None), make_workload(), id="a user wrote the Workload's name onto the pod"),
        pytest.param(make_view(conditions=scheduled(seconds=590)), make_workload(), id="the pod was just refused"),
        pytest.param(make_view(), make_workload(admitted=590), id="the Workload was just admitted"),
        pytest.param(
            make_view(), make_workload(condition("Finished", "True", seconds=20)), id="the Workload has finished"
        ),
    ],
)
def test_other_pods_do_not_count(view: Any, workload: wire.Workload) -> None:
    """They run, may not run, or were released less than a minute ago."""
    assert found(workload, view) == []


def test_a_pod_that_is_queued_itself_owns_its_workload() -> None:
    """No object controls such a pod."""
    (pod,) = found(make_workload(owner="p"), make_view(owner=None))
    assert pod.key == "ns/p"


def test_a_pod_counts_from_its_release_although_its_condition_is_older() -> None:
    """The time of PodScheduled does not move when its reason changes from SchedulingGated to Unschedulable."""
    (pod,) = found(make_workload(admitted=300), make_view(conditions=scheduled(seconds=0)))
    assert pod.since == START + timedelta(seconds=300)


@pytest.mark.parametrize(
    "conditions",
    [
        pytest.param([], id="no condition"),
        pytest.param(scheduled(reason="SchedulingGated", message="blocked by gates"), id="the condition of the gate"),
    ],
)
def test_a_pod_that_no_scheduler_has_tried_says_so(conditions: list[dict[str, str]]) -> None:
    """The scheduler is down, or the pod names another one."""
    (pod,) = found(make_workload(), make_view(conditions=conditions))
    assert pod.message == SILENT


def test_equal_sentences_are_kept_once_and_are_cut() -> None:
    """A gang of thousands of pods does not take thousands of sentences of memory."""
    first, second = (make_view(name, conditions=scheduled(message="x" * 2000)) for name in ("a", "b"))

    assert first.unbound.message is second.unbound.message
    assert len(first.unbound.message) == 512


def test_the_longest_comes_first_and_sentences_are_counted() -> None:
    """The sentence of most pods comes first."""
    other = make_view("c", conditions=scheduled(seconds=8, message="other"))
    pods = found(make_workload(), make_view("b"), make_view("a"), other)

    assert [pod.key for pod in pods] == ["ns/c", "ns/a", "ns/b"]
    assert sentences(pods) == [(REFUSED, 2), ("other", 1)]
