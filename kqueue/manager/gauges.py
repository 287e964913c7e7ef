"""Refreshes the gauges of queues and cohorts from cache and queues, in pieces with turns of the event loop between."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.core.fair_share import dominant_share
from kqueue.core.quota import UNLIMITED, FlavorResource, QuotaNode
from kqueue.errors import InvalidObjectError
from kqueue.observe import Metrics, ResourceFigures
from kqueue.state.cache import Cache
from kqueue.state.fair_usage import FairUsage
from kqueue.state.held import QueueHoldings
from kqueue.state.queues import Queues

_WORKLOADS, _QUEUES = 500, 25
"""Workloads and queues of one piece: about 2 ms."""
_MOST_FORMS = 1000
"""Most forms of waiting Workloads whose requests are read for one ClusterQueue; further forms do not count."""


class QueueGauges:
    """The gauges of ClusterQueues, cohorts and LocalQueues: one pass over Workloads, one over queues."""

    def __init__(
        self,
        metrics: Metrics,
        cache: Cache,
        queues: Queues,
        *,
        clock: Clock,
        workload: Callable[[str], wire.Workload | None],
        fair_sharing: bool = False,
        fair_usage: FairUsage | None = None,
    ) -> None:
        """`workload(key)` returns a Workload; None when it is deleted."""
        self._metrics, self._cache, self._queues = metrics, cache, queues
        self._clock, self._workload = clock, workload
        self._fair_sharing, self._fair_usage = fair_sharing, fair_usage
        self._cluster_queues: set[str] = set()
        self._cohorts: set[str] = set()
        self._local_queues: set[str] = set()

    async def refresh(self, local_queues: Iterable[wire.LocalQueue], workloads: Iterable[wire.Workload]) -> None:
        """Set every gauge, and remove the series of deleted queues.  Changes meanwhile may count or not."""
        tally, found = _Tally(self._queues, self._metrics), iter(list(workloads))
        while some := list(islice(found, _WORKLOADS)):
            for workload in some:
                tally.add(workload)
            await self._give_way()
        await self._count_waiting(tally)
        names_now = set(self._cache.quota.queue_names())
        for name in self._cluster_queues - names_now:
            self._metrics.forget_cluster_queue(name)
        self._cluster_queues = names_now
        for number, name in enumerate(sorted(names_now)):
            if self._cache.quota.queue_object(name) is not None:  # it may be deleted since
                self._cluster_queue(name, self._cache.held.held_in(name), tally)
                if self._metrics.has_resources:
                    await self._show_pending(name)
            if number % _QUEUES == 0:
                await self._give_way()
        await self._refresh_cohorts()
        await self._refresh_local_queues(local_queues, tally)

    async def _give_way(self) -> None:
        await self._clock.sleep(0)

    async def _count_waiting(self, tally: _Tally) -> None:
        """Count waiting Workloads by LocalQueue.  A Workload in no ClusterQueue counts as inadmissible."""
        found = iter(self._queues.known())
        while some := list(islice(found, _WORKLOADS)):
            for key in some:
                where = self._queues.status_of(key)
                if where is not None:
                    tally.waits(*where)
                    if self._metrics.has_workload_labels and (home := self._queues.home(key)) is not None:
                        tally.waits_in(home, self._values_of(key), is_active=where[1])
            await self._give_way()

    def _values_of(self, key: str) -> tuple[str, ...]:
        workload = self._workload(key)
        if workload is None:
            return self._metrics.values_of({}, {})
        return self._metrics.values_of(workload.metadata.labels, workload.metadata.annotations)

    # --- ClusterQueues -----------------------------------------------------------------------------------------

    def _cluster_queue(self, name: str, held: QueueHoldings, tally: _Tally) -> None:
        queue = self._metrics.cluster_queue(name)
        active, inadmissible = self._queues.counts(name)
        idle = self._cache.quota.inactive(name)
        if self._metrics.has_workload_labels:
            told_apart = tally.waiting_in.get(name, {}).items()
            queue.pending_of({values: (0, a + b) if idle else (a, b) for values, (a, b) in told_apart})
            queue.holding_of(reserving=held.reserving, admitted=tally.admitted.get(name, {}))
        else:
            queue.pending(active=0 if idle else active, inadmissible=inadmissible + (active if idle else 0))
            queue.holding(reserving=held.reserving, admitted=held.admitted)
        forms, parked = self._queues.shape_counts(name)
        queue.forms(active=0 if idle else forms, inadmissible=parked + (forms if idle else 0))
        queue.finished_kept(tally.finished[name])
        queue.unadmitted(tally.unadmitted.get(name, {}))
        terminating = idle is not None and idle.reason == names.REASON_TERMINATING
        queue.status("terminating" if terminating else "pending" if idle is not None else "active")
        node = self._cache.quota.node_of(name)
        if node is not None:
            above = cohorts_above(node)
            queue.place(above)
            if self._metrics.has_resources:
                queue.resources(above[0] if above else "", _figures(node, held))
            if self._fair_sharing:
                queue.weighted_share(above[0] if above else "", dominant_share(node).precise())

    async def _show_pending(self, name: str) -> None:
        """Show the requests of waiting Workloads; each form of Workloads is read once."""
        numbers: Counter[str] = Counter()
        first: dict[str, str] = {}
        waiting = iter(self._queues.waiting(name))
        while some := list(islice(waiting, _WORKLOADS)):
            for item in some:
                numbers[item.shape] += 1
                first.setdefault(item.shape, item.key)
            await self._give_way()
        total: Counter[str] = Counter()
        for read, (form, number) in enumerate(islice(numbers.items(), _MOST_FORMS), start=1):
            if read % _QUEUES == 0:
                await self._give_way()
            workload = self._workload(first[form])
            if workload is not None:
                try:
                    asked = self._cache.requests.total(workload)
                except InvalidObjectError:
                    continue  # its requests cannot be read; the Workload's own status says why
                for resource, amount in asked.items():
                    total[resource] += number * amount
        shown = {resource: as_written(resource, amount) for resource, amount in total.items()}
        self._metrics.cluster_queue(name).pending_resources(shown)

    # --- cohorts -----------------------------------------------------------------------------------------------

    async def _refresh_cohorts(self) -> None:
        cohorts = {
            name: node for name in self._cache.quota.cohort_names() if (node := self._cache.quota.cohort_node(name))
        }
        for name in self._cohorts - cohorts.keys():
            self._metrics.forget_cohort(name)
        self._cohorts = set(cohorts)
        reserved: defaultdict[str, Counter[FlavorResource]] = defaultdict(Counter)
        admitted: defaultdict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
        for number, name in enumerate(self._cache.quota.queue_names()):
            node, held = self._cache.quota.node_of(name), self._cache.held.held_in(name)
            custom = self._metrics.custom_values(name)
            for cohort in cohorts_above(node) if node is not None else ():
                reserved[cohort].update(held.reserved)
                admitted[cohort][custom] += held.admitted
            if number % _QUEUES == 0:
                await self._give_way()
        for number, (name, node) in enumerate(cohorts.items()):
            if self._cache.quota.cohort_node(name) is None:
                continue  # it was deleted meanwhile
            cohort_metrics, above = self._metrics.cohort(name), cohorts_above(node)
            cohort_metrics.place(above, root=above[-1] if above else name)
            cohort_metrics.subtree(quota=_shown(node.subtree), reserved=_shown(reserved[name]), admitted=admitted[name])
            if self._fair_sharing:
                cohort_metrics.share(dominant_share(node).precise())
            if number % _QUEUES == 0:
                await self._give_way()

    # --- LocalQueues -------------------------------------------------------------------------------------------

    async def _refresh_local_queues(self, local_queues: Iterable[wire.LocalQueue], tally: _Tally) -> None:
        locals_now = {f"{q.metadata.namespace}/{q.metadata.name}": q for q in local_queues}
        for key in self._local_queues - locals_now.keys():
            namespace, _, name = key.partition("/")
            self._metrics.forget_local_queue(namespace=namespace, name=name)
        self._local_queues = set(locals_now)
        self._metrics.without_local_queue(_without_queue(tally, locals_now))
        for number, (key, queue) in enumerate(locals_now.items()):
            self._local_queue(key, queue, self._cache.held.held_through(key, queue.spec.cluster_queue or ""), tally)
            if number % _QUEUES == 0:
                await self._give_way()

    def _local_queue(self, key: str, queue: wire.LocalQueue, held: QueueHoldings, tally: _Tally) -> None:
        metrics = self._metrics.local_queue(namespace=queue.metadata.namespace, name=queue.metadata.name)
        active, inadmissible = tally.waiting.get(key, (0, 0))
        cluster_queue = self._queues.cluster_queue_of(key)
        idle = cluster_queue is None or self._cache.quota.inactive(cluster_queue) is not None
        metrics.pending(active=0 if idle else active, inadmissible=inadmissible + (active if idle else 0))
        if self._metrics.has_workload_labels:
            metrics.holding_of(reserving=held.reserving, admitted=tally.admitted_local.get(key, {}))
        else:
            metrics.holding(reserving=held.reserving, admitted=held.admitted)
        metrics.finished_kept(tally.finished_local[key])
        metrics.unadmitted(queue.spec.cluster_queue or "", tally.unadmitted_local.get(key, {}))
        found = model.condition(queue.status.conditions, names.CONDITION_ACTIVE)
        metrics.status(found.status if found is not None else "Unknown")
        if self._fair_usage is not None and queue.spec.cluster_queue:
            metrics.fair_usage(queue.spec.cluster_queue, self._fair_usage.usage(key))
        reserved, used = _shown(held.reserved), _shown(held.used)
        metrics.resources({column: (amount, used.get(column, 0)) for column, amount in reserved.items()})


def _without_queue(tally: _Tally, local_queues: Collection[str]) -> Counter[str]:
    """Count unadmitted Workloads that name a LocalQueue which does not exist, by namespace."""
    missing = Counter[str]()
    for key, why in tally.unadmitted_local.items():
        namespace, _, name = key.partition("/")
        if name and key not in local_queues:
            missing[namespace] += why.total()
    return missing


class _Tally:
    """Waiting, finished and unadmitted Workloads, by queue."""

    def __init__(self, queues: Queues, metrics: Metrics) -> None:
        self._cluster_queue_of = queues.cluster_queue_of
        self._values_of = metrics.values_of if metrics.has_workload_labels else None
        self.waiting_in: dict[str, dict[tuple[str, ...], tuple[int, int]]] = {}
        """By ClusterQueue and the values of custom labels of Workloads; empty where no such labels are configured."""
        self.admitted: dict[str, Counter[tuple[str, ...]]] = {}
        self.admitted_local: dict[str, Counter[tuple[str, ...]]] = {}
        self.waiting: dict[str, tuple[int, int]] = {}
        self.finished: Counter[str] = Counter()
        self.finished_local: Counter[str] = Counter()
        self.unadmitted: dict[str, Counter[tuple[str, str]]] = {}
        self.unadmitted_local: dict[str, Counter[tuple[str, str]]] = {}

    def waits(self, local_queue: str, is_active: bool) -> None:
        """Count a waiting Workload as active or inadmissible."""
        active, inadmissible = self.waiting.get(local_queue, (0, 0))
        self.waiting[local_queue] = (active + is_active, inadmissible + (not is_active))

    def waits_in(self, cluster_queue: str, values: tuple[str, ...], *, is_active: bool) -> None:
        """Count a waiting Workload of a ClusterQueue by the values of its custom labels."""
        of_queue = self.waiting_in.setdefault(cluster_queue, {})
        active, inadmissible = of_queue.get(values, (0, 0))
        of_queue[values] = (active + is_active, inadmissible + (not is_active))

    def add(self, workload: wire.Workload) -> None:
        """Count a Workload as finished, admitted or unadmitted."""
        local = model.local_queue_key(workload)
        admission = workload.status.admission
        cluster_queue = admission.cluster_queue if admission is not None else self._cluster_queue_of(local)
        if model.condition_true(workload, names.CONDITION_FINISHED):
            self.finished_local[local] += 1
            if cluster_queue is not None:
                self.finished[cluster_queue] += 1
            return
        admitted = model.condition(workload.status.conditions, names.CONDITION_ADMITTED)
        if self._values_of is not None and admission is not None and admitted is not None and admitted.status == "True":
            values = self._values_of(workload.metadata.labels, workload.metadata.annotations)
            self.admitted.setdefault(admission.cluster_queue, Counter())[values] += 1
            self.admitted_local.setdefault(local, Counter())[values] += 1
        if workload.metadata.deletion_timestamp is not None or (admitted is not None and admitted.status == "True"):
            return
        reserved = model.condition(workload.status.conditions, names.CONDITION_QUOTA_RESERVED)
        reason = admitted.reason if admitted is not None else names.REASON_NO_RESERVATION
        why = (reason, reserved.reason if reserved is not None else "")
        self.unadmitted_local.setdefault(local, Counter())[why] += 1
        if cluster_queue is not None:
            self.unadmitted.setdefault(cluster_queue, Counter())[why] += 1


def cohorts_above(node: QuotaNode) -> tuple[str, ...]:
    """Return the names of the cohorts above a queue or a cohort, from its parent to the root."""
    return tuple(above.name for above in node.path_to_root() if above is not node)


def _figures(node: QuotaNode, held: QueueHoldings) -> dict[tuple[str, str], ResourceFigures]:
    reserved, used = _shown(held.reserved), _shown(held.used)
    figures = {}
    for column, quota in node.quotas.items():

        def shown(amount: int, resource: str = column.resource) -> float:
            return as_written(resource, amount)

        figures[column.flavor, column.resource] = ResourceFigures(
            nominal=shown(quota.nominal),
            reservation=reserved.get(column, 0),
            usage=used.get(column, 0),
            borrowing_limit=None if quota.borrowing_limit is None else shown(quota.borrowing_limit),
            lending_limit=None if quota.lending_limit is None else shown(quota.lending_limit),
        )
    return figures


def _shown(usage: Mapping[FlavorResource, int]) -> dict[tuple[str, str], float]:
    return {(column.flavor, column.resource): as_written(column.resource, n) for column, n in usage.items()}


def as_written(resource: str, amount: int) -> float:
    """Convert an amount to the unit that users write: CPUs, bytes, devices.  No limit is infinity."""
    if amount >= UNLIMITED:
        return float("inf")
    return amount / 1000 if resource == "cpu" else float(amount)
