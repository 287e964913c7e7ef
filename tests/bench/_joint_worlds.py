"""Fragmented clusters and loads of gangs for the rows of joint placement, drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from kqueue.core import quota
from kqueue.core.joint.batch import Batch
from kqueue.core.joint.graph import FlowSolver
from kqueue.core.joint.round import RoundInput
from kqueue.core.joint.settings import JointOrder, JointSettings
from kqueue.core.planned_state import PlannedState
from kqueue.core.preemption import Rules
from kqueue.core.quota import UNLIMITED, FlavorResource, Quota, QuotaNode
from kqueue.core.topology import (
    HOSTNAME,
    Capacity,
    Leaf,
    NodeFacts,
    Placement,
    PodSetRequest,
    TopologyRequest,
    Tree,
    place,
    usage_of,
)
from kqueue.core.topology.result import DomainUsage
from kqueue.core.workload import Flavor, Head, PodSet, QueueSpec, ResourceGroup, Snapshot, TopologyView

GPU = "nvidia.com/gpu"
GPUS = 8
NOW = datetime(2026, 1, 1, tzinfo=UTC)
REQUIRED = TopologyRequest(required="rack")
_FILLING = 2, 12
"""The fewest and the most hosts of the gangs that fill the cluster before the load comes."""
_MISFITS = 100
"""Gangs without room after which a cluster counts as full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A load: racks of 16 hosts, of which gangs of 2 to 12 whole hosts have filled 90 %; half of these gangs have left
    again; other gangs ask for the room.

    Args:
        demand: requested hosts by free ones.
        whole: each pod takes a whole host; otherwise `gpus`.
        leave: the part of the gangs on the cluster that has left.
        shapes: the number of different gangs; 0: without limit.
        requests: topology requests, which gangs have in turn.
    """

    racks: int
    hosts: int = 16
    gangs: int
    demand: float
    smallest: int = 2
    largest: int = 12
    whole: bool = True
    gpus: tuple[int, ...] = (1, 2, 4, 8)
    leave: float = 0.5
    shapes: int = 0
    requests: tuple[TopologyRequest, ...] = (REQUIRED,)


def gang(name: str, pods: int, gpus: int, number: int, request: TopologyRequest = REQUIRED) -> Head:
    """A gang of equal pods; lower numbers are older."""
    requests = {GPU: gpus}
    pod_set = PodSetRequest(name="main", count=pods, requests=requests, topology=request)
    return Head(
        key=f"default/{name}",
        uid=f"{number:05}",
        queue="team",
        priority=0,
        timestamp=NOW + timedelta(seconds=number),
        pod_sets=(PodSet(request=pod_set, quota_requests=requests, asks_topology=True),),
    )


def tree_of(racks: int, hosts: int) -> Tree:
    """Racks of hosts."""
    leaves = []
    for rack in range(racks):
        for host in range(hosts):
            name = f"r{rack:04}-h{host:02}"
            labels = {"rack": f"r{rack:04}", HOSTNAME: name}
            leaves.append(
                Leaf(
                    (labels["rack"], name), (NodeFacts(name=name, labels=labels, allocatable={GPU: GPUS, "pods": 110}),)
                )
            )
    return Tree(topology="dc", levels=("rack", HOSTNAME), leaves=leaves)


def fragmented(tree: Tree, chance: random.Random, load: Load) -> Capacity:
    """A capacity that gangs of 2 to 12 whole hosts have filled to 90 %, and a part of which have left."""
    capacity, there = Capacity.of(tree), list[tuple[DomainUsage, ...]]()
    wanted, misfits = 9 * len(tree) // 10, 0
    while wanted > 0 and misfits < _MISFITS:
        pods = chance.randint(*_FILLING)
        found = place(capacity, [PodSetRequest(name="main", count=pods, requests={GPU: GPUS}, topology=REQUIRED)])
        if isinstance(found, Placement):
            wanted -= pods
            there.append(usage_of(found))
            capacity.charge(there[-1])
        else:
            misfits += 1
    for usage in chance.sample(there, int(len(there) * load.leave)):
        capacity.release(usage)
    return capacity


def drawn(chance: random.Random, load: Load) -> tuple[int, int]:
    """The pods of a gang, and the GPUs of each."""
    return chance.randint(load.smallest, load.largest), (GPUS if load.whole else chance.choice(load.gpus))


def round_input(
    seed: int,
    load: Load,
    solver: FlowSolver | None,
    *,
    steps: int = 16_384,
    order: JointOrder = JointOrder.STRICT,
) -> RoundInput:
    """The input of a round: the gangs of a load on a fragmented cluster."""
    chance, tree = random.Random(seed), tree_of(load.racks, load.hosts)
    capacity = fragmented(tree, chance, load)
    row = capacity.row(GPU)
    assert row is not None
    left, heads = int(load.demand * int(row.sum())), list[Head]()
    shapes = [drawn(chance, load) for _ in range(load.shapes)]
    while left > 0 and len(heads) < load.gangs:
        pods, gpus = chance.choice(shapes) if shapes else drawn(chance, load)
        left -= pods * gpus
        request = load.requests[len(heads) % len(load.requests)]
        heads.append(gang(f"g{len(heads)}", pods, gpus, len(heads), request))
    return RoundInput(
        state=PlannedState(snapshot=snapshot_of(tree, capacity), rules=Rules(now=NOW)),
        batch=Batch(queues={"team": tuple(heads)}),
        waited={head.uid: len(heads) - i for i, head in enumerate(heads)},
        settings=JointSettings(order=order, steps=steps),
        solver=solver,
    )


def snapshot_of(tree: Tree, capacity: Capacity) -> Snapshot:
    """One ClusterQueue without a limit, and one flavor."""
    node = QuotaNode("team", quotas={FlavorResource("gpu", GPU): Quota(UNLIMITED)})
    quota.rebuild(node)
    return Snapshot(
        queues={"team": QueueSpec(name="team", groups=(ResourceGroup((GPU,), ("gpu",)),))},
        nodes={"team": node},
        flavors={"gpu": Flavor(name="gpu", topology="dc")},
        topologies={"gpu": TopologyView("dc", tree, capacity)},
    )
