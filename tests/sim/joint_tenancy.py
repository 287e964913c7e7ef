"""Tenants whose gangs are planned jointly: queues, Cohorts, Topologies or the configuration say so, others beside them do
not; some queues are strict, some preempt, some have policies of their own.
"""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

from kqueue.api import names
from kqueue.config.joint import JointPlacementSettings, JointPolicy, ReschedulingSettings
from kqueue.sandbox.api import GroupVersionResource, Object
from kqueue.sandbox.topology_spec import POOL_LABEL
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
    cluster_queue,
    ours,
)
from tests.sim.tenancy import Tenancy, pool

JOINT_QUEUES = ("joint-a", "joint-b", "joint-c")
OTHER = "other"
"""A queue beside them, whose gangs are never planned."""
JOINT = {names.PLACEMENT_PROFILE_ANNOTATION: "joint"}
TIME_LIMIT = 5.0
LOCAL = '[{"name": "locality", "parameters": {"perLevel": [40, 10, 1]}}]'
"""Policies of a queue whose gangs wait for the place that they prefer, 40 seconds at most."""
_OF_QUEUE = ('[{"name": "packing"}]', '[{"name": "spreading"}]', '[{"name": "topology"}, {"name": "packing"}]', LOCAL)


def _who_says(chance: random.Random) -> str:
    """Return which objects name the profile."""
    return chance.choice(("queue", "queue", "cohort", "topology", "default"))


def joint_tenancy(seed: int | str) -> Tenancy:
    """Return the tenants of a seed.  Every second seed has the order Priority, every fourth policies of its own."""
    chance = random.Random(f"{seed}/joint")
    number = chance.randrange(8) if isinstance(seed, str) else seed
    says = _who_says(chance)
    settings = JointPlacementSettings(
        default=says == "default",
        order="Priority" if number % 2 else "Strict",
        within=chance.choice(("BestFit", "BestFit", "balanced")),
        max_workloads=chance.choice((1000, 1000, 5)),
        max_per_queue=chance.choice((100, 100, 3)),
        time_limit=timedelta(seconds=TIME_LIMIT),
        policies=(JointPolicy(name=chance.choice(("packing", "spreading"))),)
        if number % 4 == 3
        else (JointPolicy(name="topology"),),
        rescheduling=ReschedulingSettings(preemption=chance.choice(("Cycle", "Joint"))),
    )
    return Tenancy(
        objects=tuple(_objects(chance, says, local=number % 3 == 2)),
        pools=(pool("gpu", (2, 2, 3), gpus=8), pool("cheap", (1, 1, 1))),
        placed=frozenset({"gpu", "spot"}),
        stop_seconds=chance.choice((0.0, 0.0, 4.0)),
        joint=settings,
    )


def _objects(chance: random.Random, says: str, *, local: bool) -> list[tuple[GroupVersionResource, Object]]:
    of_topology = {"annotations": JOINT} if says == "topology" else {}
    topologies = [
        ours("Topology", name, spec={"levels": [{"nodeLabel": level} for level in levels]})
        for name, levels in (("dc", LEVELS), ("racks", LEVELS[1:]))
    ]
    for each in topologies:
        each["metadata"] |= of_topology
    gpu = {"nodeLabels": {POOL_LABEL: "gpu"}, "topologyName": "dc"}
    cohort = ours("Cohort", "tenants", spec={})
    if says == "cohort":
        cohort["metadata"]["annotations"] = JOINT
    queues = [_queue(chance, name, says, local=local and name == "joint-c") for name in JOINT_QUEUES]
    other = cluster_queue(OTHER, flavors={"gpu": {"cpu": 200, GPU: 40}}, cohort="tenants", profile="BestFit")
    every = [*queues, other, cluster_queue("plain", flavors={"cheap": {"cpu": 20, GPU: 0}})]
    return [
        *((TOPOLOGIES, each) for each in topologies),
        (FLAVORS, ours("ResourceFlavor", "gpu", spec=gpu)),
        (FLAVORS, ours("ResourceFlavor", "spot", spec={**gpu, "topologyName": "racks"})),
        (FLAVORS, ours("ResourceFlavor", "cheap", spec={"nodeLabels": {POOL_LABEL: "cheap"}})),
        *(
            (WORKLOAD_PRIORITY_CLASSES, ours("WorkloadPriorityClass", n, value=v))
            for n, v in (("high", 10), ("low", -10))
        ),
        (COHORTS, cohort),
        *((CLUSTER_QUEUES, each) for each in every),
        *(
            (LOCAL_QUEUES, ours("LocalQueue", name, namespace=NAMESPACE, spec={"clusterQueue": name}))
            for name in (each["metadata"]["name"] for each in every)
        ),
    ]


def _queue(chance: random.Random, name: str, says: str, *, local: bool) -> Object:
    flavors: dict[str, dict[str, int]] = {"gpu": {"cpu": 200, GPU: chance.choice((24, 48, 64))}}
    if chance.random() < 0.25 and not local:
        flavors = {"spot": {"cpu": 200, GPU: 24}, **flavors}
    strict = chance.random() < 0.4
    made = cluster_queue(name, flavors=flavors, cohort="tenants", strict=strict)
    if chance.random() < 0.5:
        made["spec"]["preemption"] = {
            "withinClusterQueue": chance.choice(("LowerPriority", "LowerOrNewerEqualPriority")),
            "reclaimWithinCohort": chance.choice(("Never", "Any", "LowerPriority")),
        }
    notes: dict[str, Any] = dict(JOINT) if says == "queue" else {}
    if local:
        notes[names.JOINT_POLICIES_ANNOTATION] = LOCAL
    elif chance.random() < 0.2:
        notes[names.JOINT_POLICIES_ANNOTATION] = chance.choice(_OF_QUEUE[:3])
    if notes:
        made["metadata"]["annotations"] = notes
    return made
