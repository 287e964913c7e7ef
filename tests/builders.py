"""Builders with keyword defaults, for values of the core."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from kqueue.core import cycle, quota
from kqueue.core.decision import Decision
from kqueue.core.preemption import Rules
from kqueue.core.quota import FlavorResource, Quota, QuotaNode
from kqueue.core.topology import (
    HOSTNAME,
    Capacity,
    Leaf,
    NodeFacts,
    PodSetRequest,
    TopologyRequest,
    Tree,
)
from kqueue.core.workload import Flavor, Head, PodSet, QueueSpec, ResourceGroup, Snapshot, TopologyView

GPU = "nvidia.com/gpu"
START = datetime(2026, 1, 1, tzinfo=UTC)
LEVELS = ("block", "rack", HOSTNAME)


def make_node(name: str, *, block: str = "b0", rack: str = "r0", gpus: int = 8) -> NodeFacts:
    """A node with GPUs, in a rack of a block."""
    labels = {"block": block, "rack": rack, HOSTNAME: name, "pool": "gpu"}
    return NodeFacts(name=name, labels=labels, allocatable={"cpu": 64_000, GPU: gpus, "pods": 110})


def make_view(shape: tuple[int, int, int] = (1, 2, 4), *, gpus: int = 8) -> TopologyView:
    """Blocks x racks x hosts, all free."""
    blocks, racks, hosts = shape
    nodes = [
        make_node(f"b{b}-r{r}-h{h}", block=f"b{b}", rack=f"b{b}-r{r}", gpus=gpus)
        for b in range(blocks)
        for r in range(racks)
        for h in range(hosts)
    ]
    leaves = [Leaf(tuple(node.labels[level] for level in LEVELS), (node,)) for node in nodes]
    tree = Tree(topology="dc", levels=LEVELS, leaves=leaves)
    return TopologyView("dc", tree, Capacity.of(tree))


def make_head(
    name: str,
    *,
    queue: str = "team",
    pods: int = 4,
    gpus: int = 8,
    required: str | None = "rack",
    preferred: str | None = None,
    priority: int = 0,
    age: int = 0,
    requests: Mapping[str, int] | None = None,
) -> Head:
    """A workload of one pod set.  A larger `age` is older."""
    asks = required is not None or preferred is not None
    topology = TopologyRequest(required=required, preferred=preferred) if asks else TopologyRequest()
    per_pod = dict(requests) if requests is not None else {GPU: gpus}
    request = PodSetRequest(name="main", count=pods, requests=per_pod, topology=topology)
    return Head(
        key=f"default/{name}",
        uid=name,
        queue=queue,
        priority=priority,
        timestamp=START - timedelta(seconds=age),
        pod_sets=(PodSet(request=request, quota_requests=per_pod, asks_topology=asks),),
    )


def plan(snapshot: Snapshot, heads: Sequence[Head], **more: Any) -> Iterator[Decision]:
    """One cycle of the planner, with classical rules unless others are given."""
    return cycle.plan(snapshot, heads, **{"rules": Rules(now=START), **more})


def make_queue(
    name: str = "team", *, flavors: Sequence[str] = ("gpu",), resource: str = GPU, **settings: Any
) -> QueueSpec:
    """A ClusterQueue over one resource."""
    return QueueSpec(name=name, groups=(ResourceGroup((resource,), tuple(flavors)),), **settings)


def make_snapshot(
    quotas: Mapping[str, Mapping[str, int]],
    *,
    cohort: str | None = None,
    specs: Sequence[QueueSpec] = (),
    flavors: Sequence[Flavor] = (Flavor(name="gpu", node_labels={"pool": "gpu"}, topology="dc"),),
    topologies: Mapping[str, TopologyView] | None = None,
    resource: str = GPU,
) -> Snapshot:
    """Queues with nominal quota per flavor, all of one cohort or each alone."""
    root = QuotaNode(cohort, is_cohort=True) if cohort else None
    nodes: dict[str, QuotaNode] = {}
    for name, columns in quotas.items():
        rows = {FlavorResource(flavor, resource): Quota(amount) for flavor, amount in columns.items()}
        node = nodes[name] = QuotaNode(name, quotas=rows, parent=root)
        if root is not None:
            root.children.append(node)
    for node in [root] if root is not None else nodes.values():
        quota.rebuild(node)
    made = {name: make_queue(name, flavors=tuple(columns)) for name, columns in quotas.items()}
    return Snapshot(
        queues=made | {spec.name: spec for spec in specs},
        nodes=nodes,
        flavors={flavor.name: flavor for flavor in flavors},
        topologies={"gpu": make_view()} if topologies is None else dict(topologies),
    )
