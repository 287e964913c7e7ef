"""Measures the use of budgets, writes it to ClusterQueues, and tells LocalQueues what is left.

The use is written to the ClusterQueue, because users of a namespace may write its LocalQueues, and could reset a budget
there.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from datetime import datetime
from functools import partial
from typing import Any

from kqueue import model
from kqueue.api import quota_names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers import resources as kinds
from kqueue.controllers.manager import Manager
from kqueue.core.budgets import Spent
from kqueue.model.budgets import Meter, ledger, ledger_text
from kqueue.runtime.controller import Result
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.store import Store
from kqueue.state.budgets import Account
from kqueue.state.cache import Cache
from kqueue.state.conditions import Conditions, Stamp, status_patch

Patch = dict[str, Any]

_EVERY = 15.0
"""Seconds between two looks at the budgets."""
_WRITE_EVERY = 60.0
"""Seconds between two writes of the use."""
_STEPS = 100
"""The condition of a LocalQueue changes when another hundredth of a budget is used."""
_KEY = "all"
_CHUNK = 100
"""LocalQueues between two turns of the event loop."""
_CONDITION = quota_names.CONDITION_BUDGET_LEFT
_USED = quota_names.BUDGETS_USED_ANNOTATION


class BudgetKeeper:
    """Keeps the budgets of all ClusterQueues."""

    def __init__(
        self,
        *,
        cluster_queues: Store[wire.ClusterQueue],
        local_queues: Store[wire.LocalQueue],
        queue_writer: StatusWriter[wire.ClusterQueue],
        local_writer: StatusWriter[wire.LocalQueue],
        cache: Cache,
        clock: Clock,
    ) -> None:
        self._cluster_queues, self._local_queues = cluster_queues, local_queues
        self._queue_writer, self._local_writer = queue_writer, local_writer
        self._cache, self._budgets, self._clock = cache, cache.budgets, clock
        self._written: dict[str, float] = {}
        """The monotonic time of the last write of the use, by ClusterQueue; absent: it is written at once."""
        self._exhausted: set[tuple[str, str]] = set()
        """ClusterQueues with LocalQueues in which no workload may start."""

    def begin(self) -> None:
        """Start from the written use, when this process becomes the leader."""
        holdings = [one for name in self._budgets.names() for one in self._cache.held.holdings(name)]
        self._budgets.begin(self._clock, self._cluster_queues.values(), holdings)
        for holding in holdings:
            self._follow(holding.queue, holding.local_queue)

    def on_workload(self, old: wire.Workload | None, new: wire.Workload | None) -> None:
        """Follow a Workload that was created, changed or deleted, after the cache has followed it."""
        places = {
            (seen.status.admission.cluster_queue, model.local_queue_key(seen))
            for seen in (old, new)
            if seen is not None and seen.status.admission is not None
        }
        for queue, local_queue in places:
            self._follow(queue, local_queue)

    def _follow(self, queue: str, local_queue: str) -> None:
        if self._budgets.has_budgets(queue):
            self._budgets.follow(queue, local_queue, self._cache.held.held_through(local_queue, queue).used)

    async def reconcile(self, _key: str) -> Result:
        """Read all meters, publish renewals, and write what differs; look again soon while there are budgets."""
        names = set(self._budgets.names())
        for queue in names:
            for local_queue in {*self._budgets.metered(queue), *self._in_use(queue)}:
                self._follow(queue, local_queue)
        await self._note_ends(names)
        for name in self._traced(names):
            await self._write_use(name)
        for number, (key, queue) in enumerate(self._told_queues(names)):
            if number % _CHUNK == _CHUNK - 1:
                await self._clock.sleep(0)
            accounts = self._budgets.accounts(queue, key)
            await self._local_writer.write(key, partial(self._told, accounts))
        return Result(requeue_after=_EVERY if names else None)

    async def _note_ends(self, names: Set[str]) -> None:
        """Note the LocalQueues in which no workload may start now, and publish that others may start again."""
        before, exhausted = self._exhausted | self._budgets.take_refused(), set[tuple[str, str]]()
        for number, (key, queue) in enumerate(self._told_queues(names)):
            if number % _CHUNK == _CHUNK - 1:
                await self._clock.sleep(0)
            if self._budgets.exhausted(queue, key) is not None:
                exhausted.add((queue, key))
        for queue in {queue for queue, _ in before - exhausted}:
            self._budgets.on_renewed(queue)
        for queue in {queue for queue, _ in before ^ exhausted}:
            self._written.pop(queue, None)
        self._exhausted = exhausted

    def _told_queues(self, names: Set[str]) -> list[tuple[str, str]]:
        """Return LocalQueues (namespace/name) with their ClusterQueue: those with budgets, or with a condition."""
        return [
            (f"{obj.metadata.namespace}/{obj.metadata.name}", obj.spec.cluster_queue or "")
            for obj in self._local_queues.values()
            if obj.spec.cluster_queue in names or any(c.type == _CONDITION for c in obj.status.conditions)
        ]

    def _traced(self, names: Set[str]) -> list[str]:
        """Return the ClusterQueues with budgets, or with a use that was written."""
        queues = (obj.metadata for obj in self._cluster_queues.values())
        return [meta.name for meta in queues if meta.name in names or _USED in meta.annotations]

    def _in_use(self, queue: str) -> set[str]:
        return {holding.local_queue for holding in self._cache.held.holdings(queue)}

    async def _write_use(self, name: str) -> None:
        now = self._clock.monotonic()
        if not self._budgets.has_budgets(name):
            self._written.pop(name, None)
            await self._queue_writer.write(name, _without_use, subresource=None)
        elif name not in self._written or now - self._written[name] >= _WRITE_EVERY:
            self._written[name] = now
            use = partial(_with_use, self._budgets.spent(name), self._clock.now())
            await self._queue_writer.write(name, use, subresource=None)

    def _told(self, accounts: list[Account], local: wire.LocalQueue) -> Patch | None:
        """Return the change of the condition of a LocalQueue; None: it has that already, to a hundredth."""
        kind, stamp = _CONDITION, Stamp(self._clock.now())
        conditions = Conditions(local.status.conditions, generation=local.metadata.generation, stamp=stamp)
        if not accounts:
            conditions.remove(kind)
            return status_patch(conditions)
        over = [account for account in accounts if account.is_exhausted]
        message = "; ".join(_rounded(account) for account in over or accounts)
        reason = quota_names.REASON_BUDGET_EXHAUSTED if over else quota_names.REASON_BUDGET_LEFT
        conditions.set(kind, status=not over, reason=reason, message=message)
        return status_patch(conditions)


def _rounded(account: Account) -> str:
    """Return what is left of a budget, rounded down to a hundredth of it, as a sentence."""
    step = max(1, account.budget.amount // _STEPS)
    left = max(0, account.budget.amount - account.used) // step * step
    return f"{account.who}: {account.with_left(left)}"


def _with_use(spent: Mapping[Meter, Spent], at: datetime, queue: wire.ClusterQueue) -> Patch | None:
    """Return the patch with the use at a time; None: it is written, so nothing was used since."""
    if _USED in queue.metadata.annotations and ledger(queue.metadata.annotations).spent == spent:
        return None
    return {"metadata": {"annotations": {_USED: ledger_text(at, spent)}}}


def _without_use(queue: wire.ClusterQueue) -> Patch | None:
    return {"metadata": {"annotations": {_USED: None}}} if _USED in queue.metadata.annotations else None


def setup(manager: Manager) -> None:
    """Add the keeper; it works while any ClusterQueue has budgets."""
    watches = manager.watches
    keeper = BudgetKeeper(
        cluster_queues=watches.cluster_queues.store,
        local_queues=watches.local_queues.store,
        queue_writer=manager.writer(kinds.CLUSTER_QUEUES, watches.cluster_queues, wire.ClusterQueue),
        local_writer=manager.writer(kinds.LOCAL_QUEUES, watches.local_queues, wire.LocalQueue),
        cache=manager.cache,
        clock=manager.clock,
    )
    controller = manager.controller("budgets", keeper.reconcile)

    def on_cluster_queue(old: wire.ClusterQueue | None, new: wire.ClusterQueue | None) -> None:
        before, after = (
            one.metadata.annotations.get(quota_names.BUDGETS_ANNOTATION) if one is not None else None
            for one in (old, new)
        )
        if before != after:
            controller.enqueue(_KEY)

    watches.cluster_queues.subscribe(on_cluster_queue)
    watches.workloads.subscribe(keeper.on_workload)
    manager.on_lead.append(keeper.begin)
