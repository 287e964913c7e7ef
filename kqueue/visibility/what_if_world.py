"""The two sides of a what-if: the present configuration, and that with objects which are only proposed."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.core import quota
from kqueue.core.planned_state import PlannedState
from kqueue.core.quota import QuotaNode, Usage
from kqueue.core.workload import Admitted, TopologyView
from kqueue.model.pending import Pending
from kqueue.state.proposed import ProposedObjects
from kqueue.state.quota_cache import QuotaCache
from kqueue.visibility.pacing import RequestPace, stepped
from kqueue.visibility.sources import Known
from kqueue.visibility.what_if_lines import HeldBack, TriedLine, tried_line

_STEP = 500


class LocalQueues:
    """LocalQueues of which some are proposed."""

    def __init__(self, known: Known, proposed: Mapping[str, wire.LocalQueue]) -> None:
        self._known, self._proposed = known.local_queues, proposed

    def get(self, key: str, /) -> wire.LocalQueue | None:
        """Return a LocalQueue by namespace/name; None: there is none."""
        return self._proposed.get(key) or self._known.get(key)

    def keys(self) -> list[str]:
        """Return the keys of all."""
        return list({**dict.fromkeys(self._known), **self._proposed})


class ProposalReader(Protocol):
    """Reads manifests of policy, and tells what they would hold back."""

    async def read(self, manifests: Sequence[Mapping[str, Any]]) -> ProposedObjects:
        """Return the objects of the manifests.

        Raises:
            ConfigError: one is of another kind, or would be refused; names all such manifests.
        """
        ...

    def held_back(self, local_queues: LocalQueues, quota: QuotaCache) -> HeldBack:
        """Return what tells the reasons that would keep a Workload out of its queue with these queues."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A configuration, with and without which the planner decides.

    Args:
        queues: the ClusterQueues that may admit.
        lines: by ClusterQueue, what it tries.
        heads_by: the configuration by which heads are made; None: the present one.
    """

    world: PlannedState
    queues: frozenset[str]
    lines: Mapping[str, TriedLine]
    heads_by: QuotaCache | None = None


async def active_queues(quota_cache: QuotaCache, pace: RequestPace) -> frozenset[str]:
    """Return the ClusterQueues that may admit."""
    found: set[str] = set()
    for number, name in enumerate(quota_cache.queue_names()):
        if quota_cache.inactive(name) is None:
            found.add(name)
        if number % _STEP == 0:
            await pace.step()
    return frozenset(found)


async def proposed_side(
    known: Known, now: Side, objects: ProposedObjects, reader: ProposalReader, pace: RequestPace
) -> Side:
    """Return the side with proposed objects: their trees, flavors and lines, and those that they make active or not."""
    world = now.world
    made, built = await stepped(known.cache.quota.proposed(objects, _usage_of(world)), pace)
    queues = await active_queues(made, pace)
    views = await _views(known, world, objects, made, pace)
    world = await _with_configuration(world, made, built, queues, views, pace)
    local_queues = LocalQueues(known, objects.local_queues)
    lines = await _lines(known, now, objects, queues, local_queues, reader.held_back(local_queues, made), made, pace)
    return Side(world=world, queues=queues, lines=lines, heads_by=made)


async def dissolve(nodes: Mapping[str, QuotaNode], kept: Mapping[str, QuotaNode], pace: RequestPace) -> None:
    """Take the trees of copied nodes apart, but for trees that other nodes are in, too."""
    roots, others = dict[int, QuotaNode](), set[int]()
    for number, node in enumerate(kept.values()):
        others.add(id(node.root))
        if number % _STEP == 0:
            await pace.step()
    for number, node in enumerate(nodes.values()):
        roots[id(node.root)] = node.root
        if number % _STEP == 0:
            await pace.step()
    await stepped(quota.dissolve_steps(root for key, root in roots.items() if key not in others), pace)


def stopped_workloads(now: Side, objects: ProposedObjects) -> list[Admitted]:
    """Return the workloads that leave because a proposed queue drains."""
    drains = {n for n, q in objects.cluster_queues.items() if q.spec.stop_policy == names.STOP_HOLD_AND_DRAIN}
    of_local = {n for n, q in objects.local_queues.items() if q.spec.stop_policy == names.STOP_HOLD_AND_DRAIN}
    if not (drains or of_local):
        return []
    return [workload for workload in now.world.holders if workload.queue in drains or workload.local_queue in of_local]


def _usage_of(world: PlannedState) -> Callable[[str], Usage]:
    """Return a function for the usage of a ClusterQueue, also of one that may not admit, or does not exist any more."""
    nodes = world.snapshot.nodes
    others: dict[str, list[Usage]] = {}
    for workload in world.holders:
        if workload.queue not in nodes:
            others.setdefault(workload.queue, []).append(workload.usage)
    return lambda name: nodes[name].usage if name in nodes else quota.total(others.get(name, ()))


async def _views(
    known: Known, world: PlannedState, objects: ProposedObjects, made: QuotaCache, pace: RequestPace
) -> Mapping[str, TopologyView]:
    """Return the domains of all flavors, those of proposed ones as they would be."""
    views = dict(world.snapshot.topologies)
    for name in objects.flavors:
        views.pop(name, None)
        flavor = made.flavor(name)
        levels = made.topologies().get(flavor.topology) if flavor is not None and flavor.topology is not None else None
        if flavor is not None and levels:
            capacity, unusable = await stepped(known.cache.ledger.proposed(flavor, levels), pace)
            views[name] = TopologyView(capacity.tree.topology, capacity.tree, capacity, unusable)
    return views


async def _with_configuration(
    world: PlannedState,
    made: QuotaCache,
    built: frozenset[str],
    queues: frozenset[str],
    views: Mapping[str, TopologyView],
    pace: RequestPace,
) -> PlannedState:
    now, trees = world.snapshot, made.trees.queues
    nodes: dict[str, QuotaNode] = {name: node for name, node in now.nodes.items() if name not in built}
    nodes |= {name: trees[name] for name in built}
    for name in queues - nodes.keys():  # a flavor has made it active
        node = made.node_of(name)
        if node is not None:
            nodes |= quota.copy_tree(node.root)
    await pace.step()
    specs = {name: spec for name in queues if (spec := made.queue_spec(name)) is not None}
    await pace.step()
    inactive = {name: why.message for name in made.queue_names() if (why := made.inactive(name)) is not None}
    await pace.step()
    admitted = _admitted(world, nodes)
    await pace.step()
    snapshot = replace(
        now,
        queues=specs,
        nodes=nodes,
        flavors=dict(made.flavors),
        topologies=views,
        inactive=inactive,
        admitted=admitted,
    )
    limits = made.run_limits()
    await pace.step()
    return replace(world, snapshot=snapshot, rules=replace(world.rules, limits=limits))


def _admitted(world: PlannedState, nodes: Mapping[str, QuotaNode]) -> Mapping[str, Mapping[str, Admitted]]:
    """Return the workloads with reservations, also of ClusterQueues that the snapshot did not have."""
    new: dict[str, Mapping[str, Admitted]] = {name: {} for name in nodes.keys() - world.snapshot.nodes.keys()}
    for workload in world.holders if new else ():
        if workload.queue in new:
            cast("dict[str, Admitted]", new[workload.queue])[workload.key] = workload
    return ChainMap(new, cast("Any", world.snapshot.admitted)) if new else world.snapshot.admitted


async def _lines(
    known: Known,
    now: Side,
    objects: ProposedObjects,
    queues: frozenset[str],
    local_queues: LocalQueues,
    held_back: HeldBack,
    made: QuotaCache,
    pace: RequestPace,
) -> Mapping[str, TriedLine]:
    """Return the lines of all ClusterQueues; those of queues that the objects change are read anew."""
    changed = set(objects.cluster_queues) | (queues - now.queues)
    changed |= {q.spec.cluster_queue for q in objects.local_queues.values() if q.spec.cluster_queue}
    items: dict[str, list[Pending]] = {name: [] for name in changed & queues}
    for number, key in enumerate(local_queues.keys()):
        local = local_queues.get(key)
        of_queue = items.get(local.spec.cluster_queue or "") if local is not None else None
        if of_queue is not None:
            of_queue += known.queues.of_local(key)
        if number % _STEP == 0:
            await pace.step()
    lines = {name: now.lines[name] for name in queues - changed if name in now.lines}
    for name, some in items.items():
        obj = made.queue_object(name)
        is_strict = obj is not None and obj.spec.queueing_strategy == names.STRATEGY_STRICT_FIFO
        lines[name] = await tried_line(known, name, some, held_back, pace, is_strict=is_strict)
    return lines
