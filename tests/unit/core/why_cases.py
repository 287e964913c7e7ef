"""Worlds for explanations: the planner admitted the running workloads, on racks of four hosts with eight GPUs each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from kqueue.core import cycle
from kqueue.core.decision import Admit
from kqueue.core.preemption import Rules
from kqueue.core.topology import Leaf, NodeFacts
from kqueue.core.topology.result import DomainUsage
from kqueue.core.why import Alternative, ChangeSearch, Look, PlannedState, Spare, Trials, WhatIf, look
from kqueue.core.workload import Admitted, Head, Snapshot
from tests.builders import LEVELS, START, make_node

RULES = Rules(now=START)


def admitted(decision: Admit, head: Head, **more: Any) -> Admitted:
    """A workload as it holds what it was given."""
    requests = {p.name: p.request.requests for p in head.pod_sets}
    domains: dict[str, tuple[DomainUsage, ...]] = {}
    for p in decision.admission.pod_sets:
        if p.topology is not None:
            flavor = min(set(p.flavors.values()))
            placed = tuple(DomainUsage(d.values, requests[p.name], d.count) for d in p.topology.domains)
            domains[flavor] = domains.get(flavor, ()) + placed
    facts: dict[str, Any] = {
        "key": head.key,
        "uid": head.uid,
        "queue": head.queue,
        "local_queue": "default/main",
        "priority": head.priority,
        "timestamp": head.timestamp,
        "reserved_at": START,
        "evicted": False,
        "usage": decision.admission.usage(),
        "domains": domains,
    }
    return Admitted(**{**facts, **more})


def run(snapshot: Snapshot, *heads: Head, evicted: Iterable[str] = ()) -> list[Admitted]:
    """Let the planner admit these, one after the other; those named are on their way out."""
    holders = [w for queue in snapshot.admitted.values() for w in queue.values()]
    for head in heads:
        (decision,) = cycle.plan(snapshot, [head], rules=RULES)
        assert isinstance(decision, Admit), decision
        holders.append(admitted(decision, head, evicted=head.uid in evicted))
    by_queue: dict[str, dict[str, Admitted]] = {name: {} for name in snapshot.nodes}
    for workload in holders:
        by_queue[workload.queue][workload.key] = workload
    snapshot.admitted = by_queue
    return holders


def make_world(
    snapshot: Snapshot, *running: Head, spares: Sequence[Spare] = (), evicted: Iterable[str] = ()
) -> PlannedState:
    """The snapshot with these workloads on it."""
    return PlannedState(snapshot=snapshot, rules=RULES, holders=run(snapshot, *running, evicted=evicted), spares=spares)


def make_spare(name: str, *, rack: str, block: str = "b0", reason: str = "unschedulable", **facts: Any) -> Spare:
    """A node of flavor `gpu` that is left out."""
    node: NodeFacts = make_node(name, block=block, rack=rack, **facts)
    leaf = Leaf(tuple(node.labels[level] for level in LEVELS), (node,))
    return Spare(node=name, flavor="gpu", reason=reason, leaf=leaf, free=node.allocatable, idle=node.allocatable)


def explain(
    head: Head, world: PlannedState, alternatives: Sequence[Alternative] = (), *, steps: int = 1_000_000
) -> tuple[Look, ChangeSearch]:
    """Everything that is found, in so many steps of the search at most."""
    found = Look()
    trials = Trials(world, {head.queue, *(other.head.queue for other in alternatives)})
    for _ in look(head, world, trials, found):
        pass
    search = ChangeSearch(head, world, trials, found, alternatives)
    for number, _ in enumerate(search.steps()):
        if number >= steps:
            break
    return found, search


def what_ifs(head: Head, world: PlannedState, alternatives: Sequence[Alternative] = ()) -> list[WhatIf]:
    """What would let it start, the cheapest first."""
    _, search = explain(head, world, alternatives)
    assert not search.unfinished
    return search.found


def in_queue(head: Head, queue: str) -> Head:
    """The same workload in another ClusterQueue."""
    return replace(head, queue=queue)
