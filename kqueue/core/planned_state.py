"""The state from which explanations and joint rounds start: a snapshot, workloads with usage, and left-out nodes."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Generator, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from kqueue.core import quota
from kqueue.core.charging import release_domains
from kqueue.core.hooks import HooksByProfile
from kqueue.core.preemption import Rules
from kqueue.core.quota import FlavorResource, Quota, QuotaNode
from kqueue.core.spares import Spare
from kqueue.core.steps import result_of
from kqueue.core.topology.result import Path
from kqueue.core.topology.tree import Leaf
from kqueue.core.workload import Admitted, Snapshot, TopologyView

_STEP = 500
"""Workloads, or names, between two pieces of work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedState:
    """A state of the cluster from which trials begin.  It never changes: trials work on copies.

    Args:
        snapshot: a snapshot of the queues in question, and perhaps of more. Its claims are not charged yet.
        rules: the rules of preemption.
        holders: all workloads with usage, also of queues that the snapshot does not have.
        spares: nodes that are left out, of all flavors; a node has one for each flavor.
        hooks: plugins by the profile of a ClusterQueue.
    """

    snapshot: Snapshot
    rules: Rules
    holders: Sequence[Admitted] = ()
    spares: Sequence[Spare] = ()
    hooks: HooksByProfile = field(default_factory=dict)

    def copied(
        self,
        queues: Iterable[str],
        *,
        ended: Collection[Admitted] = (),
        returned: Collection[Spare] = (),
        quotas: Mapping[str, Mapping[FlavorResource, Quota]] | None = None,
    ) -> Snapshot:
        """Return a copy without the `ended` workloads, with the `returned` nodes, and with other quotas of
        ClusterQueues. Quota trees of these, of `queues` and of claims are copied; all others are shared and must only
        be read.
        """
        return result_of(self.copied_steps(queues, ended=ended, returned=returned, quotas=quotas))

    def copied_steps(
        self,
        queues: Iterable[str],
        *,
        ended: Collection[Admitted] = (),
        returned: Collection[Spare] = (),
        quotas: Mapping[str, Mapping[FlavorResource, Quota]] | None = None,
    ) -> Generator[None, None, Snapshot]:
        """Do as `copied`, with yields between pieces of the work; nothing of the state may change before the end."""
        now = self.snapshot
        nodes = yield from self._tree_steps({*queues, *(quotas or ()), *(claim.queue for claim in now.claims)})
        changed_roots: dict[int, QuotaNode] = {}
        for name, changed in (quotas or {}).items():
            nodes[name].quotas = {**nodes[name].quotas, **changed}
            root = nodes[name].root
            changed_roots[id(root)] = root
        for root in changed_roots.values():
            yield from quota.rebuild_steps(root)
        views: dict[str, TopologyView] = {}
        for name, v in now.topologies.items():
            views[name] = TopologyView(v.name, v.tree, v.capacity.fork(), v.unusable)
            yield
        for name in {spare.flavor for spare in returned}:
            views[name] = with_spares(views[name], [spare for spare in returned if spare.flavor == name])
            yield
        copy = replace(now, nodes={**now.nodes, **nodes}, topologies=views)
        if ended:
            copy.admitted = _without(now.admitted, ended)
            for number, workload in enumerate(ended):
                if number and number % _STEP == 0:
                    yield
                release(workload, copy, nodes)
        return copy

    def _tree_steps(self, queues: Iterable[str]) -> Generator[None, None, dict[str, QuotaNode]]:
        roots: dict[int, QuotaNode] = {}
        for number, name in enumerate(queues):
            if number and number % _STEP == 0:
                yield
            node = self.snapshot.nodes.get(name)
            if node is not None:
                roots[id(node.root)] = node.root
        found: dict[str, QuotaNode] = {}
        for number, root in enumerate(roots.values()):
            copy = yield from quota.copy_steps(root)
            found |= copy.queues
            if number and number % _STEP == 0:
                yield
        return found


def with_spares(view: TopologyView, spares: Sequence[Spare], *, free: bool = True) -> TopologyView:
    """Return a flavor's domains with nodes that have come back; `free=False`: the nodes have no free capacity yet.

    A node of an existing leaf adds to the leaf's free capacity.
    """
    new: dict[Path, Spare] = {}
    added: list[tuple[int, Spare]] = []
    capacity = view.capacity
    for spare in spares:
        leaf = view.tree.leaf_of(spare.leaf.path[-1:] if view.tree.is_hostname else spare.leaf.path)
        if leaf is not None:
            added.append((leaf, spare))
        elif spare.leaf.path in new:
            new[spare.leaf.path] = _together(new[spare.leaf.path], spare)
        else:
            new[spare.leaf.path] = spare
    if free:
        for leaf, spare in added:
            capacity.add(leaf, spare.free)
            if capacity.empty() is not capacity:
                capacity.empty().add(leaf, spare.idle)
    if not new:
        return TopologyView(view.name, view.tree, capacity, view.unusable)
    ordered = sorted(new.values(), key=lambda spare: spare.leaf.path)
    tree, edit = view.tree.edited([], [spare.leaf for spare in ordered])
    columns = [spare.free if free else dict.fromkeys(spare.free, 0) for spare in ordered]
    return TopologyView(view.name, tree, capacity.edited(tree, edit, columns, idle=[s.idle for s in ordered]))


def _together(one: Spare, other: Spare) -> Spare:
    """Return two nodes of one leaf as one."""
    leaf = Leaf(one.leaf.path, (*one.leaf.nodes, *other.leaf.nodes))
    return replace(one, leaf=leaf, free=_sum(one.free, other.free), idle=_sum(one.idle, other.idle))


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {resource: one.get(resource, 0) + other.get(resource, 0) for resource in {**one, **other}}


def release(workload: Admitted, copy: Snapshot, own: Collection[str]) -> None:
    """Release the usage of a workload; its quota only if its ClusterQueue is among `own`, whose trees are copies."""
    if workload.queue in own:
        node = copy.nodes[workload.queue]
        for column, amount in workload.usage.items():
            quota.remove_usage(node, column, amount)
    for flavor, domains in workload.domains.items():
        release_domains(flavor, domains, copy.topologies)


_Admitted = Mapping[str, Mapping[str, Admitted]]


def _without(admitted: _Admitted, ended: Iterable[Admitted]) -> _Admitted:
    left: dict[str, dict[str, Admitted]] = {}
    for workload in ended:
        of_queue = left.get(workload.queue)
        if of_queue is None:
            of_queue = left[workload.queue] = dict(admitted.get(workload.queue) or {})
        of_queue.pop(workload.key, None)
    layers = (left, admitted)  # only the first layer could be written, and no code writes to it
    return ChainMap(*cast("tuple[MutableMapping[str, Mapping[str, Admitted]], ...]", layers))
