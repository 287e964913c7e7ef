"""The tenants of a simulated cluster: flavors, cohorts, queues, and the controller's configuration.

`PEACEFUL` is the same in every world, without preemption.  `rivals(seed)` draws tenants that do: a tree of cohorts with
nominal quota, borrowing and lending limits in several flavors, ClusterQueues with rules of preemption, some strict, and
several LocalQueues for each; some worlds have fair sharing, blocked admission, or pods that end slowly.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kqueue.config.joint import JointPlacementSettings
from kqueue.config.policy import FairSharingSettings, WaitForPodsReady
from kqueue.sandbox.api import GroupVersionResource, Object
from kqueue.sandbox.topology_spec import POOL_LABEL, Pool
from tests.sim.objects import (
    CLUSTER_QUEUES,
    COHORTS,
    FLAVORS,
    GPU,
    LEVELS,
    LOCAL_QUEUES,
    NAMESPACE,
    TOPOLOGIES,
    WORKLOAD_PRIORITY_CLASSES,
    ours,
    queue_objects,
)
from tests.sim.quota_tree import QuotaTree


def pool(name: str, counts: tuple[int, int, int], *, gpus: int = 0, cpus: int = 32, pods: int = 20) -> Pool:
    """Return a pool of equal nodes."""
    allocatable = {"cpu": str(cpus), "memory": "64Gi", GPU: str(gpus), "pods": str(pods)}
    return Pool(name=name, counts=counts, labels={}, taints=(), allocatable=allocatable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenancy:
    """The objects and settings of a world, besides the actions on it."""

    objects: tuple[tuple[GroupVersionResource, Object], ...]
    """Objects in a valid order of creation."""
    pools: tuple[Pool, ...]
    placed: frozenset[str]
    """Flavors whose pods are placed by topology."""
    fair_sharing: FairSharingSettings | None = None
    pods_ready: WaitForPodsReady | None = None
    start_seconds: float = 0.0
    """Seconds from a pod's binding to its readiness."""
    stop_seconds: float = 0.0
    """Seconds from a pod's deletion to its end."""
    joint: JointPlacementSettings | None = None
    """None: the feature gate of joint placement is off."""

    def specs(self, resource: GroupVersionResource) -> dict[str, Object]:
        """Return the specs of one kind, by name."""
        return {obj["metadata"]["name"]: obj["spec"] for kind, obj in self.objects if kind == resource}

    def tree(self) -> QuotaTree:
        """Return the original quota."""
        return QuotaTree(self.specs(CLUSTER_QUEUES), self.specs(COHORTS))

    def flavors_of(self, queue: str) -> list[str]:
        """Return the flavors of a ClusterQueue, in the order of their tries."""
        groups = self.specs(CLUSTER_QUEUES)[queue]["resourceGroups"]
        return [flavor["name"] for group in groups for flavor in group["flavors"]]


PEACEFUL = Tenancy(
    objects=tuple(queue_objects()),
    pools=(pool("gpu", (2, 2, 4), gpus=8), pool("cheap", (1, 1, 2))),
    placed=frozenset({"gpu", "spot"}),
)

_PLAIN, _PLACED = ("red", "blue", "green"), ("gpu", "spot")
_COHORTS = ("north", "south", "east")
_PRIORITIES = (("low", -10), ("high", 10), ("top", 100))
_FINAL, _INITIAL = "LessThanOrEqualToFinalShare", "LessThanInitialShare"
_STRATEGIES = ((_FINAL,), (_INITIAL,), (_FINAL, _INITIAL))


def rivals(seed: int | str) -> Tenancy:
    """Return the tenants of a seed.  Every second seed has fair sharing; every eighth waits for ready pods."""
    chance = random.Random(f"{seed}/tenancy")
    number = chance.randrange(8) if isinstance(seed, str) else seed
    placed = chance.random() < 0.4
    flavors = [
        *((flavor, {"nodeLabels": {POOL_LABEL: "cheap"}}) for flavor in _PLAIN),
        ("gpu", {"nodeLabels": {POOL_LABEL: "gpu"}, "topologyName": "dc"}),
        ("spot", {"nodeLabels": {POOL_LABEL: "gpu"}, "topologyName": "racks"}),
    ]
    topologies = [("dc", LEVELS), ("racks", LEVELS[1:])]
    queues = [
        ours("ClusterQueue", f"q{n}", spec=queue_spec(chance, placed=placed and n < 2, least=0 if n else 4))
        for n in range(chance.randint(2, 4))
    ]
    doors = [(f"{q['metadata']['name']}-{door}", q["metadata"]["name"]) for q in queues for door in ("a", "b")]
    objects: list[tuple[GroupVersionResource, Object]] = [
        *(
            (TOPOLOGIES, ours("Topology", name, spec={"levels": [{"nodeLabel": level} for level in levels]}))
            for name, levels in topologies
        ),
        *((FLAVORS, ours("ResourceFlavor", name, spec=spec)) for name, spec in flavors),
        *((WORKLOAD_PRIORITY_CLASSES, ours("WorkloadPriorityClass", n, value=v)) for n, v in _PRIORITIES),
        *((COHORTS, ours("Cohort", name, spec=cohort_spec(chance, name))) for name in _COHORTS),
        *((CLUSTER_QUEUES, queue) for queue in queues),
        *(
            (LOCAL_QUEUES, ours("LocalQueue", name, namespace=NAMESPACE, spec={"clusterQueue": queue}))
            for name, queue in doors
        ),
    ]
    return Tenancy(
        objects=tuple(objects),
        pools=(pool("gpu", (2, 2, 4), gpus=8), pool("cheap", (1, 1, 3), cpus=128, pods=110)),
        placed=frozenset(_PLACED),
        fair_sharing=FairSharingSettings(preemption_strategies=chance.choice(_STRATEGIES)) if number % 2 else None,
        pods_ready=WaitForPodsReady(block_admission=True) if number % 8 == 6 else None,
        stop_seconds=chance.choice((0.0, 0.0, 4.0, 20.0)),
        start_seconds=chance.choice((1.0, 5.0)) if number % 8 == 6 else 0.0,
    )


def queue_spec(chance: random.Random, *, placed: bool, least: int = 0) -> Object:
    """Return a ClusterQueue's spec; `placed`: with topology; `least`: minimum of its nominal quota."""
    cohort = chance.choice(("north", "north", "north", "south", "south", "east", None))
    names, resources = (_PLACED, ("cpu", GPU)) if placed else (_PLAIN, ("cpu",))
    flavors = chance.sample(names, chance.choice((1, 1, 2)))
    return {
        "namespaceSelector": {},
        "queueingStrategy": chance.choice(("StrictFIFO", "BestEffortFIFO", "BestEffortFIFO")),
        "resourceGroups": quotas(chance, flavors, resources, limits=cohort is not None, least=least),
        "preemption": preemption(chance),
        "flavorFungibility": _fungibility(chance),
        **({"cohortName": cohort} if cohort is not None else {}),
        **({"fairSharing": {"weight": chance.choice(("0", "500m", "2"))}} if chance.random() < 0.3 else {}),
    }


def cohort_spec(chance: random.Random, name: str) -> Object:
    """Return a Cohort's spec without cycles: parents come earlier in the order of `_COHORTS`."""
    above = _COHORTS[: _COHORTS.index(name)]
    parent = chance.choice((*above, None)) if above else None
    spec: Object = {"parentName": parent} if parent is not None else {}
    if chance.random() < 0.4:
        flavors = chance.sample(_PLAIN, chance.choice((1, 2)))
        spec["resourceGroups"] = quotas(chance, flavors, ("cpu",), limits=parent is not None)
    return spec


def quotas(
    chance: random.Random, flavors: Iterable[str], resources: tuple[str, ...], *, limits: bool, least: int = 0
) -> list[Object]:
    """Return one resource group; `limits`: it may have borrowing and lending limits."""

    def quota(resource: str) -> Object:
        amounts = {"cpu": (0, 3, 6, 6, 9), GPU: (0, 8, 16, 32)}[resource]
        if len(resources) > 1 and resource == "cpu":
            return {"name": resource, "nominalQuota": "100"}
        nominal = max(least, chance.choice(amounts))
        out: dict[str, Any] = {"name": resource, "nominalQuota": str(nominal)}
        if limits and chance.random() < 0.25:
            out["borrowingLimit"] = str(chance.choice(amounts))
        if limits and chance.random() < 0.25:
            out["lendingLimit"] = str(chance.randint(0, nominal))
        return out

    made = [{"name": flavor, "resources": [quota(resource) for resource in resources]} for flavor in flavors]
    return [{"coveredResources": list(resources), "flavors": made}]


def preemption(chance: random.Random) -> Object:
    """Return a ClusterQueue's rules of preemption."""
    reclaim = chance.choice(("Never", "LowerPriority", "LowerPriority", "Any", "Any"))
    rules: Object = {
        "reclaimWithinCohort": reclaim,
        "withinClusterQueue": chance.choice(("Never", *("LowerPriority", "LowerOrNewerEqualPriority") * 2)),
        "borrowWithinCohort": {"policy": "Never"},
    }
    if reclaim != "Never" and chance.random() < 0.4:
        rules["borrowWithinCohort"] = {"policy": "LowerPriority"}
        if chance.random() < 0.5:
            rules["borrowWithinCohort"]["maxPriorityThreshold"] = chance.choice((-5, 0, 10))
    return rules


def _fungibility(chance: random.Random) -> Object:
    borrow, preempt = (chance.choice(("MayStopSearch", "TryNextFlavor")) for _ in range(2))
    out = {"whenCanBorrow": borrow, "whenCanPreempt": preempt}
    if borrow == preempt == "TryNextFlavor" and chance.random() < 0.5:
        out["preference"] = "PreemptionOverBorrowing"
    return out
