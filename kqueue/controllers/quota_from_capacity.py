"""Resolves nominal quotas that are shares of what the nodes of a flavor have now.

The annotation `kqueue.dev/resolved-quota` is the only memory of a resolved quota: every replica reads its quotas from
there, and a new leader goes on from there.  The spec belongs to its user, and is never written.  Capacities are
computed anew from the nodes of the watch each time, so they cannot drift.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kqueue.api import quota_names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers import resources as kinds
from kqueue.controllers.manager import Manager
from kqueue.core.quantity import format_quantity, saturating_add
from kqueue.core.quota import FlavorResource
from kqueue.core.quota_shares import WHOLE, Descent, next_amount, share_of
from kqueue.core.topology import NodeFacts
from kqueue.core.workload import Flavor
from kqueue.model.quota_shares import quota_shares, resolved_quota, resolved_text
from kqueue.runtime.controller import Result
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.store import Store
from kqueue.state.conditions import Conditions, Stamp, status_patch

Patch = dict[str, Any]
Shares = Mapping[FlavorResource, int]
Capacities = Mapping[str, Mapping[str, int]]

_EVERY = 15.0
"""Seconds between two looks at the nodes."""
_CHUNK = 500
"""Nodes that are counted between two turns of the event loop."""
_KEY = "all"
_MOST_NAMED = 8
_OURS = frozenset((quota_names.QUOTA_SHARES_ANNOTATION, quota_names.RESOLVED_QUOTA_ANNOTATION))


class QuotaFromCapacity:
    """Resolves the shares of all ClusterQueues."""

    def __init__(
        self,
        *,
        cluster_queues: Store[wire.ClusterQueue],
        nodes: Callable[[], Mapping[str, NodeFacts]],
        flavors: Mapping[str, Flavor],
        writer: StatusWriter[wire.ClusterQueue],
        clock: Clock,
    ) -> None:
        """Take the stores; `flavors` are the present flavors by name."""
        self._cluster_queues, self._nodes, self._flavors = cluster_queues, nodes, flavors
        self._writer, self._clock = writer, clock
        self._descents: dict[tuple[str, FlavorResource], Descent] = {}
        """The quotas that fall, by ClusterQueue and column."""

    async def reconcile(self, _key: str) -> Result:
        """Write all resolved quotas and conditions that differ; look again soon while any ClusterQueue has shares."""
        shares = {
            queue.metadata.name: quota_shares(queue.metadata.annotations)[0]
            for queue in list(self._cluster_queues.values())
            if not _OURS.isdisjoint(queue.metadata.annotations)
        }
        wanted = {name: own for name, own in shares.items() if own}
        flavors = {column.flavor for own in wanted.values() for column in own}
        capacities = await self._capacities(flavors & self._flavors.keys())
        demands = _demands(wanted)
        self._descents = {key: d for key, d in self._descents.items() if key[1] in wanted.get(key[0], {})}
        for name in shares:
            await self._resolve(name, wanted.get(name, {}), capacities, demands)
        return Result(requeue_after=_EVERY if wanted else None)

    async def _capacities(self, flavors: Iterable[str]) -> Capacities:
        """Return what the usable nodes of each flavor have; the event loop gets a turn every few hundred nodes."""
        labels = {flavor: self._flavors[flavor].node_labels.items() for flavor in flavors}
        found: dict[str, dict[str, int]] = {flavor: defaultdict(int) for flavor in labels}
        for number, node in enumerate(list(self._nodes().values()) if labels else ()):
            if number % _CHUNK == _CHUNK - 1:
                await self._clock.sleep(0)
            for flavor, own in labels.items() if node.usable else ():
                if own <= node.labels.items():
                    for resource, amount in node.allocatable.items():
                        found[flavor][resource] = saturating_add(found[flavor][resource], amount)
        return found

    async def _resolve(
        self, name: str, shares: Shares, capacities: Capacities, demands: Mapping[FlavorResource, list[str]]
    ) -> None:
        queue = self._writer.newest(name)
        if queue is None or queue.metadata.deletion_timestamp is not None:
            return
        amounts = self._amounts(queue, shares, capacities)
        text = resolved_text(amounts) if shares else None
        await self._writer.write(name, lambda now: _annotated(now, text), subresource=None)
        await self._writer.write(name, lambda now: self._condition(now, shares, amounts, capacities, demands))

    def _amounts(self, queue: wire.ClusterQueue, shares: Shares, capacities: Capacities) -> dict[FlavorResource, int]:
        present, found = resolved_quota(queue.metadata.annotations), dict[FlavorResource, int]()
        for column, share in shares.items():
            key = queue.metadata.name, column
            if column.flavor not in capacities:
                if column in present:
                    found[column] = present[column]
                continue
            target = share_of(capacities[column.flavor].get(column.resource, 0), share)
            found[column], descent = next_amount(
                present.get(column), target, self._descents.pop(key, None), self._clock.now()
            )
            if descent is not None:
                self._descents[key] = descent
        return found

    def _condition(
        self,
        queue: wire.ClusterQueue,
        shares: Shares,
        amounts: Mapping[FlavorResource, int],
        capacities: Capacities,
        demands: Mapping[FlavorResource, list[str]],
    ) -> Patch | None:
        stamp = Stamp(self._clock.now())
        conditions = Conditions(queue.status.conditions, generation=queue.metadata.generation, stamp=stamp)
        if not shares:
            conditions.remove(quota_names.CONDITION_QUOTA_FROM_CAPACITY)
            return status_patch(conditions)
        unknown = sorted({column.flavor for column in shares if column.flavor not in capacities})
        parts = [_sentence(c, amounts[c], shares[c], capacities) for c in sorted(shares) if c.flavor in capacities]
        shown = "; ".join(parts[:_MOST_NAMED]) + (f"; {len(parts) - _MOST_NAMED} more" * (len(parts) > _MOST_NAMED))
        above = [column for column in sorted(shares) if column in demands]
        reason, message = quota_names.REASON_CAPACITY_FOLLOWED, shown
        if unknown:
            reason = quota_names.REASON_CAPACITY_UNKNOWN
            message = f"ResourceFlavor {', '.join(unknown)} does not exist; create it, or remove its shares"
        elif above:
            reason = quota_names.REASON_SHARES_ABOVE_CAPACITY
            first = above[0]
            message = (
                f"The shares of {first.flavor}/{first.resource} in ClusterQueues {', '.join(demands[first])} exceed "
                f"{WHOLE} per mille together; lower them. {shown}"
            )
        conditions.set(quota_names.CONDITION_QUOTA_FROM_CAPACITY, status=not unknown, reason=reason, message=message)
        return status_patch(conditions)


def _demands(wanted: Mapping[str, Shares]) -> dict[FlavorResource, list[str]]:
    """Return the ClusterQueues of each column whose shares exceed the whole together, by name."""
    sums, queues = defaultdict[FlavorResource, int](int), defaultdict[FlavorResource, list[str]](list)
    for name in sorted(wanted):
        for column, share in wanted[name].items():
            sums[column] += share
            queues[column].append(name)
    return {column: queues[column][:_MOST_NAMED] for column, total in sums.items() if total > WHOLE}


def _sentence(column: FlavorResource, amount: int, share: int, capacities: Capacities) -> str:
    whole = capacities[column.flavor].get(column.resource, 0)
    target = share_of(whole, share)
    name, resource = f"{column.flavor}/{column.resource}", column.resource
    falling = f", falling to {format_quantity(target, resource)}" if amount > target else ""
    shown = f"{format_quantity(amount, resource)}{falling}"
    return f"{name} is {shown}: {share} per mille of {format_quantity(whole, resource)}"


def _annotated(queue: wire.ClusterQueue, text: str | None) -> Patch | None:
    key = quota_names.RESOLVED_QUOTA_ANNOTATION
    if queue.metadata.annotations.get(key) == text:
        return None
    return {"metadata": {"annotations": {key: text}}}


def setup(manager: Manager) -> None:
    """Add the reconciler; it looks at the nodes while any ClusterQueue has shares."""
    watches = manager.watches
    reconciler = QuotaFromCapacity(
        cluster_queues=watches.cluster_queues.store,
        nodes=lambda: manager.cache.ledger.nodes,
        flavors=manager.cache.quota.flavors,
        writer=manager.writer(kinds.CLUSTER_QUEUES, watches.cluster_queues, wire.ClusterQueue),
        clock=manager.clock,
    )
    controller = manager.controller("quota_from_capacity", reconciler.reconcile)

    def on_cluster_queue(old: wire.ClusterQueue | None, new: wire.ClusterQueue | None) -> None:
        before, after = (
            {key: one.metadata.annotations.get(key) for key in _OURS} if one is not None else {} for one in (old, new)
        )
        if before != after and any([*before.values(), *after.values()]):
            controller.enqueue(_KEY)

    watches.cluster_queues.subscribe(on_cluster_queue)
