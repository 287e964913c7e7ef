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
        drained: domains without their nodes, by their paths in any topology; the nodes are gone in all topologies.
        added: nodes that come, of all flavors.
        priorities: of workloads with usage, by key.
    """

    quotas: Mapping[str, Mapping[FlavorResource, Quota]] = field(default_factory=dict)
    drained: frozenset[Path] = frozenset()
    added: tuple[Spare, ...] = ()
    priorities: Mapping[str, int] = field(default_factory=dict)


def drained_workloads(world: PlannedState, drained: Collection[Path]) -> Iterator[Admitted | None]:
    """Yield the workloads with pods on the nodes of these domains, in all topologies, and None between pieces of
    work.
    """
    nodes, gone = _nodes(world, drained), dict[str, _Gone]()
    for name, view in world.snapshot.topologies.items():
        gone[name] = _Gone(_leaves_of_nodes(view.tree, nodes), set())
        yield None
    for spare in world.spares:
        if spare.node in nodes and spare.flavor in gone:
            gone[spare.flavor].left_out.update((spare.leaf.path, spare.leaf.path[-1:]))
    yield None
    for number, workload in enumerate(
        world.holders if any(one.leaves or one.left_out for one in gone.values()) else ()
    ):
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
    views, nodes = dict(copy.topologies), _nodes(world, change.drained)
    for name, view in copy.topologies.items():
        views[name] = _without(view, nodes)
        yield
    for flavor in {spare.flavor for spare in change.added}:
        views[flavor] = with_spares(views[flavor], [spare for spare in change.added if spare.flavor == flavor])
        yield
    copy.topologies = views
    copy.admitted = _with_priorities(copy, change.priorities)
    return replace(world, snapshot=copy)


def nodes_like(snapshot: Snapshot, like: str, domain: Path, names: Iterable[str]) -> list[Spare]:
    """Return nodes with these names like an existing one in a domain, for each flavor in whose topology that one is.

    In topologies with other levels they are in the domain that the labels of both, the node and the domain, give.
    Empty if no topology has the node, or the domain's path is not one level above its hosts.
    """
    there = {
        flavor: (view.tree, node)
        for flavor, view in snapshot.topologies.items()
        if (node := next((node for leaf in view.tree.leaves for node in leaf.nodes if node.name == like), None))
    }
    fitting = [tree for tree, _ in there.values() if len(_above_hosts(tree)) == len(domain)]
    named = [tree for tree in fitting if len(tree.below(domain))] or fitting  # a domain may be new, too
    if not named:
        return []
    found: list[Spare] = []
    chosen = list(names)
    for flavor, (tree, node) in there.items():
        levels = _above_hosts(tree)
        its = tree if tree in named else named[0]
        labels = {**node.labels, **dict(zip(_above_hosts(its), domain, strict=True))}
        above = tuple(labels.get(level, "") for level in levels)
        for name in chosen:
            made = replace(node, name=name, labels={**labels, HOSTNAME: name})
            found.append(
                Spare(
                    node=name,
                    flavor=flavor,
                    reason=ADDED,
                    leaf=Leaf((*above, name) if tree.is_hostname else above, (made,)),
                    free=dict(node.allocatable),
                    idle=dict(node.allocatable),
                )
            )
    return found


def _above_hosts(tree: Tree) -> Sequence[str]:
    """Return the levels of a topology without that of hosts."""
    return tree.levels[:-1] if tree.is_hostname else tree.levels


def has_domain(world: PlannedState, domain: Path) -> bool:
    """Whether any topology has the domain, also if all its nodes are left out."""
    return bool(domain) and bool(_nodes(world, [domain]))


@dataclass(frozen=True, slots=True)
class _Gone:
    """The drained domains of one flavor: leaves of its tree in order, and values of nodes that are left out of it."""

    leaves: Sequence[int]
    left_out: set[Path]


def _nodes(world: PlannedState, domains: Collection[Path]) -> frozenset[str]:
    """Return the names of the nodes of domains, in whichever topology each domain is; cordoned and broken ones, too."""
    found: set[str] = set()
    for domain in domains:
        for view in world.snapshot.topologies.values():
            found.update(node.name for leaf in view.tree.below(domain) for node in view.tree.leaves[leaf].nodes)
        found.update(spare.node for spare in world.spares if spare.leaf.path[: len(domain)] == domain)
    return frozenset(found)


def _leaves_of_nodes(tree: Tree, nodes: frozenset[str]) -> list[int]:
    """Return the leaves that have no other nodes, in order.  Flavors of several topologies have the same nodes."""
    if not nodes:
        return []
    leaves = enumerate(tree.leaves)
    return [number for number, leaf in leaves if leaf.nodes and all(node.name in nodes for node in leaf.nodes)]


def _is_in(workload: Admitted, snapshot: Snapshot, gone: Mapping[str, _Gone]) -> bool:
    for flavor, usages in workload.domains.items():
        drained = gone.get(flavor)
        if drained is None or not (drained.leaves or drained.left_out):
            continue
        leaves, tree = drained.leaves, snapshot.topologies[flavor].tree
        for usage in usages:
            leaf = tree.leaf_of(usage.values)
            at = bisect_left(leaves, leaf) if leaf is not None else len(leaves)
            if (at < len(leaves) and leaves[at] == leaf) or (leaf is None and usage.values in drained.left_out):
                return True
    return False


def _without(view: TopologyView, nodes: frozenset[str]) -> TopologyView:
    gone = _leaves_of_nodes(view.tree, nodes)
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
