"""A state with another policy and other nodes: quotas, priorities, drained domains, added nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from kqueue.core.planned_state import PlannedState, with_spares
from kqueue.core.quota import FlavorResource, Quota
from kqueue.core.spares import Spare
from kqueue.core.topology.node import HOSTNAME
from kqueue.core.topology.result import Path
from kqueue.core.topology.tree import Leaf, Tree
from kqueue.core.workload import Admitted, Snapshot, TopologyView

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


def drained_workloads(world: PlannedState, drained: Collection[Path]) -> list[Admitted]:
    """Return the workloads with pods in these domains."""
    trees = {name: view.tree for name, view in world.snapshot.topologies.items()}
    return [workload for workload in world.holders if drained and any(_is_in(workload, trees, drained))]


def changed(world: PlannedState, change: PolicyChange, queues: Iterable[str]) -> PlannedState:
    """Return the state after the change; workloads of drained domains have ended there, because their pods must leave.

    The snapshot has copies of the quota trees of `queues`; all others are shared and must only be read.
    """
    copy = world.copied(queues, ended=drained_workloads(world, change.drained), quotas=change.quotas)
    copy.topologies = {name: _without(view, change.drained) for name, view in copy.topologies.items()}
    for flavor in {spare.flavor for spare in change.added}:
        spares = [spare for spare in change.added if spare.flavor == flavor]
        copy.topologies[flavor] = with_spares(copy.topologies[flavor], spares)
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
    return any(
        path[: len(domain)] == domain for view in snapshot.topologies.values() for path in view.tree.paths if domain
    )


def _is_in(workload: Admitted, trees: Mapping[str, Tree], drained: Collection[Path]) -> Iterable[bool]:
    for flavor, domains in workload.domains.items():
        tree = trees.get(flavor)
        for usage in domains if tree is not None else ():
            assert tree is not None
            leaf = tree.leaf_of(usage.values)
            if leaf is not None:
                yield any(tree.paths[leaf][: len(domain)] == domain for domain in drained)


def _without(view: TopologyView, drained: Collection[Path]) -> TopologyView:
    gone = [n for n, path in enumerate(view.tree.paths) if any(path[: len(domain)] == domain for domain in drained)]
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
