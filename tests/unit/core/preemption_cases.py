"""Quota trees with running workloads, and readers of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from datetime import timedelta
from typing import Any

from kqueue.core import preemption, quota
from kqueue.core.preemption import Findings, Preemptor, Rules, Target
from kqueue.core.quota import FlavorResource, Quota, QuotaNode, Usage
from kqueue.core.topology.result import DomainUsage
from kqueue.core.workload import Admitted, Preempts, QueueSpec, Snapshot, TopologyView
from tests.builders import START, make_queue

GPUS = FlavorResource("gpu", "nvidia.com/gpu")
CPU = FlavorResource("cpu", "cpu")
NOW = START + timedelta(days=1)
RULES = Rules(now=NOW)
BILLION = 1_000_000_000

Amounts = int | Mapping[FlavorResource, int]


def columns(amounts: Amounts) -> Usage:
    """Amounts per column; a plain number counts GPUs."""
    return {GPUS: amounts} if isinstance(amounts, int) else dict(amounts)


def cohort(
    name: str,
    *children: QuotaNode,
    nominal: Amounts = 0,
    lends: int | None = None,
    borrows: int | None = None,
    weight: int = 1,
) -> QuotaNode:
    """An inner node of the tree."""
    quotas = {column: Quota(amount, borrows, lends) for column, amount in columns(nominal).items()}
    node = QuotaNode(name, is_cohort=True, quotas=quotas, weight=weight * BILLION, children=list(children))
    for child in children:
        child.parent = node
    return node


def leaf(
    name: str, *, nominal: Amounts = 0, lends: int | None = None, borrows: int | None = None, weight: int = 1
) -> QuotaNode:
    """A ClusterQueue."""
    quotas = {column: Quota(amount, borrows, lends) for column, amount in columns(nominal).items()}
    return QuotaNode(name, quotas=quotas, weight=weight * BILLION)


def runs(
    name: str,
    queue: str,
    size: Amounts,
    *,
    priority: int = 0,
    reserved: int | None = 0,
    created: int = 0,
    evicted: bool = False,
    local_queue: str = "main",
    domains: Mapping[str, tuple[DomainUsage, ...]] | None = None,
) -> Admitted:
    """A workload that holds quota; `created` and `reserved` in seconds after the start, None: not written yet."""
    return Admitted(
        key=f"default/{name}",
        uid=name,
        queue=queue,
        local_queue=f"default/{local_queue}",
        priority=priority,
        timestamp=START + timedelta(seconds=created),
        reserved_at=None if reserved is None else START + timedelta(seconds=reserved),
        evicted=evicted,
        usage=columns(size),
        domains=domains or {},
    )


def policy(name: str, **settings: Any) -> QueueSpec:
    """A ClusterQueue's preemption settings."""
    return make_queue(name, **settings)


def world(
    roots: Iterable[QuotaNode],
    running: Sequence[Admitted],
    specs: Sequence[QueueSpec] = (),
    *,
    topologies: Mapping[str, TopologyView] | None = None,
) -> Snapshot:
    """A snapshot of these trees in which these workloads hold what they use."""
    nodes: dict[str, QuotaNode] = {}
    for root in roots:
        for node in root.walk():
            if not node.is_cohort:
                nodes[node.name] = node
                node.usage = quota.total(w.usage for w in running if w.queue == node.name)
        quota.rebuild(root)
    return Snapshot(
        queues={name: make_queue(name) for name in nodes} | {spec.name: spec for spec in specs},
        nodes=nodes,
        flavors={},
        topologies=dict(topologies or {}),
        admitted={name: {w.key: w for w in running if w.queue == name} for name in nodes},
    )


def wants(
    queue: str, size: Amounts, *, priority: int = 0, created: int = 100, needs: Iterable[FlavorResource] | None = None
) -> Preemptor:
    """A workload that waits.  Every column that it asks for is in need, unless `needs` says which."""
    usage = columns(size)
    return Preemptor(
        uid="waiting",
        key="default/waiting",
        queue=queue,
        priority=priority,
        timestamp=START + timedelta(seconds=created),
        usage=usage,
        needs=frozenset(usage if needs is None else needs),
    )


def spared(*uids: str) -> dict[str, frozenset[str]]:
    """These must not be preempted for the workload that `wants` makes."""
    return {"waiting": frozenset(uids)}


def find_targets(snapshot: Snapshot, preemptor: Preemptor, rules: Rules, **more: Any) -> tuple[Target, ...]:
    """The targets of a plan that has found out nothing so far."""
    return preemption.find_targets(snapshot, preemptor, Findings(rules), **more)


def none_may_be_preempted(
    snapshot: Snapshot, preemptor: Preemptor, needs: frozenset[FlavorResource], rules: Rules
) -> bool:
    """The short answer of a plan that has found out nothing so far."""
    return preemption.none_may_be_preempted(snapshot, preemptor, needs, Findings(rules))


def named(targets: Iterable[Target]) -> list[tuple[str, str]]:
    """Name and reason of each target, in their order."""
    return [(target.admitted.uid, target.reason.value) for target in targets]


def victims(targets: Iterable[Target]) -> list[str]:
    """The names of the targets, in their order."""
    return [target.admitted.uid for target in targets]


def state(snapshot: Snapshot) -> object:
    """All that a search must leave alone."""
    usage = {(id(node), name): dict(node.usage) for name, q in snapshot.nodes.items() for node in q.path_to_root()}
    free = {name: [v.capacity.free(i) for i in range(len(v.tree))] for name, v in snapshot.topologies.items()}
    return deepcopy((usage, free))


ANY = Preempts.ANY
LOWER = Preempts.LOWER_PRIORITY
LOWER_OR_NEWER = Preempts.LOWER_OR_NEWER_EQUAL
NEVER = Preempts.NEVER
