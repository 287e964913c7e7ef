"""A gang in the scheduling loop: one entry of its queue, and one decision for all members."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kqueue.controllers.resources import CLUSTER_QUEUES
from kqueue.jobs.copied import CopiedKeys
from kqueue.jobs.gang.compose import Composition, compose, workload_of
from kqueue.jobs.gang.coscheduling_labels import FRAMEWORK
from kqueue.jobs.gang.dialect import GroupProblem
from kqueue.jobs.gang.key import KUEUE_GROUPS
from kqueue.jobs.gang.members import in_order
from kqueue.jobs.gang.pods import managed_pod
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import Priority
from tests.unit.controllers.builders import JSON, make_cluster_queue, status_of
from tests.unit.jobs.pods import make_pod
from tests.unit.scheduling.scheduled import Scheduled

ON = JobFeatures(gangs=(KUEUE_GROUPS, FRAMEWORK))
NAME, QUORUM = "pod-group.scheduling.x-k8s.io/name", "pod-group.scheduling.x-k8s.io/min-available"


def gang(name: str, members: int) -> JSON:
    """The Workload that kqueue makes for so many pods with two labels."""
    pods = [make_pod(f"{name}-{i}", role="r", labels={NAME: name, QUORUM: str(members)}) for i in range(members)]
    for pod in pods:
        pod["metadata"]["namespace"] = "ns"
    made = compose(in_order(managed_pod(pod, ON) for pod in pods), ON)
    assert isinstance(made, Composition)
    found = workload_of(made, name=name, priority=Priority(), copied=CopiedKeys(), switches=ON)
    assert not isinstance(found, GroupProblem)
    found["metadata"] |= {"uid": name, "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "1"}
    return found


@pytest.mark.mechanism("0.19")
async def test_a_gang_of_a_hundred_is_one_head_and_one_decision(make: Callable[..., Scheduled]) -> None:
    """Row 0.19: one entry in the queue, one cycle, one write for all pods; the next gang does not fit in part."""
    world = make((CLUSTER_QUEUES, make_cluster_queue(cpus=150)))
    world.add(gang("first", 100), gang("second", 100))
    assert world.queues.counts("team") == (2, 0)

    assert [await world.cycle(), await world.cycle()] == [True, False]

    assert (world.observed.reservations, world.free()) == (["first"], 50)
    [write] = [call for call in world.client.writes() if "admission" in call.body.get("status", {})]
    assert [entry["count"] for entry in write.body["status"]["admission"]["podSetAssignments"]] == [100]
    assert status_of(world.workload("second"), "QuotaReserved")[0] != "True"
