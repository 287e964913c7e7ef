"""Small worlds for rounds: racks of hosts, and gangs of whole hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kqueue.core.joint.batch import Batch
from kqueue.core.joint.ortools_flow import solver
from kqueue.core.joint.plan import JointPlan
from kqueue.core.joint.round import RoundInput, plan_round
from kqueue.core.joint.round_policies import NO_POLICIES, PolicyInput
from kqueue.core.joint.settings import JointOrder, JointSettings
from kqueue.core.planned_state import PlannedState
from kqueue.core.preemption import Rules
from kqueue.core.topology import HOSTNAME, Capacity, Leaf, NodeFacts, TopologyRequest, Tree
from kqueue.core.workload import Head, Snapshot, TopologyView
from tests.builders import GPU, START, make_snapshot

LEVELS = ("rack", HOSTNAME)


def racks(*sizes: int, gpus: int = 8, levels: Sequence[str] = LEVELS, **more: int) -> TopologyView:
    """Racks r0, r1 ... with so many free hosts, all in one domain of each wider level."""
    leaves = []
    for rack, size in enumerate(sizes):
        for number in range(size):
            host = f"r{rack}-h{number:03}"
            labels = {**dict.fromkeys(levels, "all"), "rack": f"r{rack}", HOSTNAME: host}
            node = NodeFacts(name=host, labels=labels, allocatable={GPU: gpus, "pods": 110, **more})
            leaves.append(Leaf(tuple(labels[level] for level in levels), (node,)))
    tree = Tree(topology="dc", levels=levels, leaves=leaves)
    return TopologyView("dc", tree, Capacity.of(tree))


def world_of(view: TopologyView, queues: Iterable[str] = ("team",), quota: int = 100_000) -> Snapshot:
    """A state with these racks, and ClusterQueues with quota for all."""
    return make_snapshot({name: {"gpu": quota} for name in queues}, topologies={"gpu": view})


def round_of(
    snapshot: Snapshot,
    heads: Sequence[Head],
    *,
    strict: Iterable[str] = (),
    order: JointOrder = JointOrder.STRICT,
    waited: Mapping[str, int] | None = None,
    solved: bool = True,
    policies: PolicyInput = NO_POLICIES,
    **settings: Any,
) -> JointPlan:
    """The plan for these workloads, which are in the order of their queues."""
    queues: dict[str, list[Head]] = {}
    for head in heads:
        queues.setdefault(head.queue, []).append(head)
    return plan_round(
        RoundInput(
            state=PlannedState(snapshot=snapshot, rules=Rules(now=START)),
            batch=Batch(queues={name: tuple(some) for name, some in queues.items()}, strict=frozenset(strict)),
            waited=waited or {},
            settings=JointSettings(order=order, **settings),
            solver=solver() if solved else None,
            policies=policies,
        )
    )


def admitted(plan: JointPlan) -> list[str]:
    """The names of the workloads that a plan admits, in the order of admission."""
    return [one.head.uid for one in plan.workloads if one.admitted is not None]


def places(plan: JointPlan) -> dict[str, dict[str, int]]:
    """The pods of each admitted workload by host."""
    return {
        one.head.uid: {
            domain.values[-1]: domain.count
            for pod_set in one.admitted.pod_sets
            if pod_set.topology is not None
            for domain in pod_set.topology.domains
        }
        for one in plan.workloads
        if one.admitted is not None
    }


def anywhere(head: Head) -> Head:
    """The workload, whose pods may be on any hosts."""
    free = TopologyRequest(unconstrained=True)
    pod_sets = [replace(p, request=replace(p.request, topology=free), asks_topology=True) for p in head.pod_sets]
    return replace(head, pod_sets=tuple(pod_sets))
