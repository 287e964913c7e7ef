"""Objects of a cluster with three racks, and the plans for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from kqueue.clock import utc_text
from kqueue.core.joint.defrag import DefragSettings
from kqueue.core.joint.movable import MoveLimits
from kqueue.operations.defrag.reading import ClusterObjects, state_of
from kqueue.state.defrag.planning import AskedGoal, DefragAnswer, plan

JSON = dict[str, Any]
GPU, HOST = "nvidia.com/gpu", "kubernetes.io/hostname"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
VERSION = "kueue.x-k8s.io/v1beta2"
RACKS = ("a", "b", "c")
WAITING = AskedGoal(workload="team-a/big")


def ours(kind: str, name: str, spec: JSON, **metadata: Any) -> JSON:
    return {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def ago(seconds: int) -> str:
    return utc_text(NOW - timedelta(seconds=seconds))


def workload(
    name: str, rack: str | None, first: int, pods: int, *, namespace: str = "team-a", **annotations: str
) -> JSON:
    """A Workload of whole hosts; it runs on hosts of a rack from number `first` on, or waits (`rack` None)."""
    container = {"name": "c", "image": "i", "resources": {"requests": {GPU: "8"}}}
    pod_set = {
        "name": "main",
        "count": pods,
        "topologyRequest": {"required": "rack"},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}},
    }
    made = ours(
        "Workload",
        name,
        {"queueName": "main", "active": True, "podSets": [pod_set]},
        namespace=namespace,
        uid=f"uid-{name}",
        creationTimestamp=ago(7200),
        annotations={f"kqueue.dev/{key.replace('_', '-')}": value for key, value in annotations.items()},
    )
    if rack is not None:
        hosts = [f"{rack}{number:02}" for number in range(first, first + pods)]
        made["status"] = {
            "admission": {
                "clusterQueue": "team",
                "podSetAssignments": [
                    {
                        "name": "main",
                        "flavors": {GPU: "gpu"},
                        "resourceUsage": {GPU: str(8 * pods)},
                        "count": pods,
                        "topologyAssignment": {
                            "levels": [HOST],
                            "slices": [
                                {
                                    "domainCount": pods,
                                    "valuesPerLevel": [{"individual": {"roots": hosts}}],
                                    "podCounts": {"universal": 1},
                                }
                            ],
                        },
                    }
                ],
            },
            "conditions": [
                {"type": kind, "status": "True", "reason": "r", "message": "", "lastTransitionTime": ago(3600)}
                for kind in ("QuotaReserved", "Admitted")
            ],
        }
    return made


def cluster(**consent: str) -> ClusterObjects:
    """Racks a, b and c of 16 hosts, of which 10, 6 and 5 are free; `consent` by workload."""
    always = {"v1": "Always", "v2": "Always", "u": "Always", **consent}
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"{rack}{number:02}",
                "labels": {"pool": "gpu", "rack": rack, HOST: f"{rack}{number:02}"},
            },
            "status": {
                "allocatable": {GPU: "8", "cpu": "64", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        for rack in RACKS
        for number in range(16)
    ]
    quota = {"name": GPU, "nominalQuota": "1000"}
    group = {"coveredResources": [GPU], "flavors": [{"name": "gpu", "resources": [quota]}]}
    return ClusterObjects(
        topologies=[ours("Topology", "dc", {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": HOST}]})],
        flavors=[ours("ResourceFlavor", "gpu", {"topologyName": "dc", "nodeLabels": {"pool": "gpu"}})],
        cluster_queues=[ours("ClusterQueue", "team", {"resourceGroups": [group], "namespaceSelector": {}})],
        local_queues=[ours("LocalQueue", "main", {"clusterQueue": "team"}, namespace="team-a")],
        nodes=nodes,
        workloads=[
            workload("v1", "a", 0, 3, reschedule=always["v1"], last_checkpoint=ago(1200)),
            workload("v2", "a", 3, 3, reschedule=always["v2"], last_checkpoint=ago(300)),
            workload("u", "b", 0, 10, namespace="team-b", reschedule=always["u"], last_checkpoint=ago(0)),
            workload("c", "c", 0, 11, namespace="team-b"),
            workload("big", None, 0, 16),
        ],
    )


def answered(objects: ClusterObjects, asked: AskedGoal = WAITING, **settings: Any) -> DefragAnswer:
    return plan(
        state_of(objects, NOW),
        asked,
        DefragSettings(**{"least_gain": 0, "pod_seconds": 10_000, **settings}),
        limits=MoveLimits(),
    )
