"""Commands that come with a change: exact, and none where no command makes it."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime
from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.core.quota import FlavorResource
from kqueue.core.why import FewerPods, MoreQuota, NodesReturn, OtherQueue, OtherWish
from kqueue.core.why.changes import Change, QuotaIncrease
from kqueue.core.workload import Admitted
from kqueue.visibility.remedies import commands, stops
from tests.unit.controllers.builders import make_workload, read

GPU = "nvidia.com/gpu"
RACK = "cloud.example.com/rack"


def quotas(*flavors: str, resources: tuple[str, ...]) -> dict[str, Any]:
    amounts = [{"name": resource, "nominalQuota": "1"} for resource in resources]
    return {"coveredResources": list(resources), "flavors": [{"name": f, "resources": amounts} for f in flavors]}


def make_queue() -> wire.ClusterQueue:
    """Two groups; flavor `spot` is the second of the second group, and GPUs its second resource."""
    groups = [quotas("disk", resources=("storage",)), quotas("fixed", "spot", resources=("cpu", GPU))]
    queue: wire.ClusterQueue = read(
        wire.ClusterQueue, {"metadata": {"name": "team"}, "spec": {"resourceGroups": groups}}
    )
    return queue


def owned(kind: str, api_version: str = "batch/v1") -> wire.Workload:
    owner = {"apiVersion": api_version, "kind": kind, "name": "train", "uid": "u", "controller": True}
    workload: wire.Workload = read(wire.Workload, make_workload(metadata={"ownerReferences": [owner]}))
    return workload


def more(*increases: QuotaIncrease) -> MoreQuota:
    return MoreQuota(queue="team", increases=increases)


def increase(resource: str, to: int, *, field: str = "nominalQuota", flavor: str = "spot") -> QuotaIncrease:
    return QuotaIncrease(column=FlavorResource(flavor, resource), field=field, to=to, instead_of=1)


@pytest.mark.parametrize(
    ("change", "workload", "wanted"),
    [
        pytest.param(
            NodesReturn(nodes=(("h1", "unschedulable"), ("h2", "notReady"))),
            owned("Job"),
            ["kubectl uncordon h1"],
            id="a-cordoned-node-and-one-that-is-not-ready",
        ),
        pytest.param(
            NodesReturn(nodes=tuple((f"h{n}", "unschedulable") for n in range(11))), owned("Job"), [], id="too-many-nodes"
        ),
        pytest.param(
            OtherQueue(local_queue="other", queue="spare"),
            owned("Job"),
            ["kubectl label job.v1.batch/train -n ns kueue.x-k8s.io/queue-name=other --overwrite"],
            id="another-queue",
        ),
        pytest.param(
            OtherQueue(local_queue="other", queue="spare"), owned("StatefulSet", "apps/v1"), [], id="pods-that-are-there"
        ),
        pytest.param(FewerPods(pod_set="main", count=1, of=2), owned("Job"), [], id="fewer-pods"),
        pytest.param(
            OtherWish(pod_sets=("main",), level=RACK, required=True, instead_of="block"),
            owned("JobSet", "jobset.x-k8s.io/v1alpha2"),
            [],
            id="another-level-of-another-kind",
        ),
        pytest.param(more(increase("memory", 8)), owned("Job"), [], id="quota-that-the-queue-does-not-list"),
    ],
)  # fmt: skip
def test_a_change_has_its_commands(change: Change, workload: wire.Workload, wanted: list[str]) -> None:
    assert commands(change, workload=workload, queue=make_queue()) == wanted


def parsed(command: str) -> tuple[list[str], Any]:
    """The words before the patch, and the patch."""
    *words, patch = shlex.split(command)
    return words, json.loads(patch)


def test_more_quota_is_one_patch_that_checks_where_it_is_written() -> None:
    """As kubectl and the API server take it."""
    change = more(increase(GPU, 64), increase("cpu", 8500, field="borrowingLimit", flavor="fixed"))
    [command] = commands(change, workload=owned("Job"), queue=make_queue())
    words, patch = parsed(command)

    assert words == ["kubectl", "patch", "clusterqueue", "team", "--type=json", "-p"]
    at = "/spec/resourceGroups/1/flavors"
    assert patch == [
        {"op": "test", "path": f"{at}/1/name", "value": "spot"},
        {"op": "test", "path": f"{at}/1/resources/1/name", "value": GPU},
        {"op": "add", "path": f"{at}/1/resources/1/nominalQuota", "value": "64"},
        {"op": "test", "path": f"{at}/0/name", "value": "fixed"},
        {"op": "test", "path": f"{at}/0/resources/0/name", "value": "cpu"},
        {"op": "add", "path": f"{at}/0/resources/0/borrowingLimit", "value": "8500m"},
    ]


@pytest.mark.parametrize("required", [True, False])
def test_another_level_is_a_patch_of_the_jobs_template(required: bool) -> None:
    """The former request goes where it is of another kind."""
    change = OtherWish(pod_sets=("main",), level=RACK, required=required, instead_of=RACK)
    [command] = commands(change, workload=owned("Job"), queue=None)
    words, patch = parsed(command)

    assert words == ["kubectl", "patch", "job.v1.batch/train", "-n", "ns", "--type=merge", "-p"]
    annotations = {"kueue.x-k8s.io/podset-required-topology": RACK if required else None}
    if not required:
        annotations["kueue.x-k8s.io/podset-preferred-topology"] = RACK
    assert patch == {"spec": {"template": {"metadata": {"annotations": annotations}}}}


def running(name: str, *, evicted: bool = False) -> Admitted:
    return Admitted(
        key=f"ns/{name}",
        uid=name,
        queue="team",
        local_queue="main",
        priority=0,
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        reserved_at=None,
        evicted=evicted,
        usage={},
    )


def test_workloads_that_hold_the_room_are_stopped_unless_they_leave_anyway() -> None:
    assert stops((running("a"), running("b", evicted=True))) == ["kqueue stop workload a -n ns"]
    assert stops(tuple(running(f"w{n}") for n in range(11))) == []
