"""A state with another policy and other nodes: quotas, priorities, drained domains, added nodes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kqueue.core.planned_state import PlannedState, with_spares
from kqueue.core.quota import FlavorResource, Quota
from kqueue.core.spares import Spare
from kqueue.core.topology.node import HOSTNAME
from kqueue.core.topology.result import Path
from kqueue.core.topology.tree import Leaf, Tree
from kqueue.core.workload import Admitted, Snapshot, TopologyView

_STEP = 200
"""Workloads between two pieces of work."""
ADDED = "added"
"""The reason of a node that exists only in a question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChange:
    """Changes that are made together.

    Args:
        quotas: by ClusterQueue and column.
        drained: domains without their nodes, by their paths in any topology.
        added: nodes that come, of all flavors.
        priorities: of workloads with usage, by key.
    """

    quotas: Mapping[str, Mapping[FlavorResource, Quota]] = field(default_factory=dict)
    drained: frozenset[Path] = frozenset()
    added: tuple[Spare, ...] = ()
    priorities: Mapping[str, int] = field(default_factory=dict)


def drained_workloads(world: PlannedState, drained: Collection[Path]) -> Iterator[Admitted | None]:
    """Yield the workloads with pods in these domains, and None between pieces of work."""
    gone = {name: _leaves(view.tree, drained) for name, view in world.snapshot.topologies.items() if view.tree.paths}
    for number, workload in enumerate(world.holders if any(gone.values()) else ()):
        if number % _STEP == 0:
            yield None
        if _is_in(workload, world.snapshot, gone):
            yield workload


def changed(
    world: PlannedState, change: PolicyChange, queues: Iterable[str], drained: Collection[Admitted]
) -> Generator[None, None, PlannedState]:
    """Return the state after the change, in steps.  The workloads of drained domains have ended there, because their
    pods must leave.

    The snapshot has copies of the quota trees of `queues`; all others are shared and must only be read.
    """
    copy = yield from world.copied_steps(queues, ended=drained, quotas=change.quotas)
    views = dict(copy.topologies)
    for name, view in copy.topologies.items():
        views[name] = _without(view, change.drained)
        yield
    for flavor in {spare.flavor for spare in change.added}:
        views[flavor] = with_spares(views[flavor], [spare for spare in change.added if spare.flavor == flavor])
        yield
    copy.topologies = views
    copy.admitted = _with_priorities(copy, change.priorities)
    return replace(world, snapshot=copy)


def nodes_like(snapshot: Snapshot, like: str, domain: Path, names: Iterable[str]) -> list[Spare]:
    """Return nodes with these names like an existing one in a domain, for each flavor in whose topology that one is.

    Empty if no topology has the node, or the domain's path is not one level above its hosts.
    """
    found: list[Spare] = []
    chosen = list(names)
    for flavor, view in snapshot.topologies.items():
        leaf = next((leaf for leaf in view.tree.leaves for node in leaf.nodes if node.name == like), None)
        levels = len(view.tree.levels) - 1 if view.tree.is_hostname else len(view.tree.levels)
        if leaf is None or len(domain) != levels:
            continue
        node = next(node for node in leaf.nodes if node.name == like)
        for name in chosen:
            path = (*domain, name) if view.tree.is_hostname else domain
            made = replace(node, name=name, labels={**node.labels, HOSTNAME: name})
            found.append(
                Spare(
                    node=name,
                    flavor=flavor,
                    reason=ADDED,
                    leaf=Leaf(path, (made,)),
                    free=dict(node.allocatable),
                    idle=dict(node.allocatable),
                )
            )
    return found


def has_domain(snapshot: Snapshot, domain: Path) -> bool:
    """Whether any topology has the domain."""
    return bool(domain) and any(_leaves(view.tree, [domain]) for view in snapshot.topologies.values())


def _leaves(tree: Tree, domains: Iterable[Path]) -> list[int]:
    """Return the leaves of these domains in order: those of one domain follow each other."""
    found: set[int] = set()
    for domain in domains:
        found.update(tree.below(domain))
    return sorted(found)


def _is_in(workload: Admitted, snapshot: Snapshot, gone: Mapping[str, Sequence[int]]) -> bool:
    for flavor, usages in workload.domains.items():
        leaves = gone.get(flavor)
        if leaves:
            tree = snapshot.topologies[flavor].tree
            for usage in usages:
                leaf = tree.leaf_of(usage.values)
                at = bisect_left(leaves, leaf) if leaf is not None else len(leaves)
                if at < len(leaves) and leaves[at] == leaf:
                    return True
    return False


def _without(view: TopologyView, drained: Collection[Path]) -> TopologyView:
    gone = _leaves(view.tree, drained)
    if not gone:
        return view
    tree, edit = view.tree.edited(gone, [])
    return TopologyView(view.name, tree, view.capacity.edited(tree, edit, [], idle=[]), view.unusable)


def _with_priorities(copy: Snapshot, priorities: Mapping[str, int]) -> Mapping[str, Mapping[str, Admitted]]:
    if not priorities:
        return copy.admitted
    found = {queue: dict(some) for queue in copy.nodes if (some := copy.admitted.get(queue)) is not None}
    for of_queue in found.values():
        for key in of_queue.keys() & priorities.keys():
            of_queue[key] = replace(of_queue[key], priority=priorities[key])
    return found
