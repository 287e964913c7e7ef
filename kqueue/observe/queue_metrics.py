"""Metrics of one ClusterQueue, of one LocalQueue and of one cohort.  Label children are bound once and kept here.

These objects stay valid after their queue is forgotten: later reports have no effect on pages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from kqueue.observe.families import (
    ClusterQueueFamilies,
    ClusterQueueResourceFamilies,
    CohortActiveFamilies,
    CohortFamilies,
    LocalQueueFamilies,
    PreemptorFamilies,
)
from kqueue.observe.family import Counter, Family, Gauge, Histogram, WaitTimes

_M = TypeVar("_M", bound=Family)


Values = tuple[str, ...]
"""Values of the custom labels of a Workload, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceFigures:
    """Quota and use of one resource of one flavor, in the resource's unit as users write it (CPUs, bytes)."""

    nominal: float
    reservation: float
    usage: float
    borrowing_limit: float | None = None
    """None: without limit."""
    lending_limit: float | None = None
    """None: without limit."""


class UsedDomains(Protocol):
    """Domains of one level with pods of a placement, and the fewest possible."""

    @property
    def level(self) -> str:
        """Name of the level."""
        ...

    @property
    def used(self) -> int:
        """Domains with pods."""
        ...

    @property
    def lower_bound(self) -> int:
        """Fewest possible domains."""
        ...


class _Bound:
    """The label children of one object in several families."""

    def __init__(self, *labels: str) -> None:
        self._labels = labels
        self._children: dict[tuple[Family, tuple[str, ...]], Any] = {}
        self._replaced: dict[Gauge, dict[tuple[str, ...], float]] = {}
        """Label values of the series that `_replace` has set."""
        self._closed = False

    def close(self) -> None:
        """Ignore later reports: the object is deleted, and late reports must not create its series again."""
        self._closed = True
        self._children.clear()
        self._replaced.clear()

    def _of(self, family: _M, *rest: str) -> _M:
        key = (family, rest)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = family.labels(*self._labels, *rest)
        bound: _M = child
        return bound

    def _set(self, family: Gauge, value: float, *rest: str) -> None:
        if not self._closed:
            self._of(family, *rest).set(value)

    def _count(self, family: Counter, *rest: str, by: float = 1) -> None:
        if not self._closed:
            (self._children.get((family, rest)) or self._of(family, *rest)).inc(by)

    def _observe(self, family: Histogram, seconds: float, *rest: str) -> None:
        """Observe a time; a negative one, from clocks that disagree, counts as 0."""
        if not self._closed:
            (self._children.get((family, rest)) or self._of(family, *rest)).observe(max(0.0, seconds))

    def _replace(self, family: Gauge, values: Mapping[tuple[str, ...], float]) -> None:
        """Set the series of `values` and remove other series of this object."""
        if self._closed:
            return
        before = self._replaced.get(family)
        if before == values:
            return
        for rest in before or ():
            if rest not in values:
                del self._children[family, rest]
                family.remove(*self._labels, *rest)
        for rest, value in values.items():
            self._of(family, *rest).set(value)
        self._replaced[family] = dict(values)


class _QueueMetrics(_Bound):
    """Metrics that ClusterQueues and LocalQueues share."""

    def __init__(self, families: ClusterQueueFamilies | LocalQueueFamilies, *labels: str) -> None:
        super().__init__(*labels)
        self._q = families
        self._waits: dict[tuple[str, bool, Values], WaitTimes] = {}
        """Reservations by priority class, whether they admit, and values of Workloads' custom labels.

        Each reservation is observed once and shown by four families.
        """

    def close(self) -> None:
        """Ignore later reports: the queue is deleted."""
        super().close()
        self._waits.clear()

    def pending(self, *, active: int, inadmissible: int) -> None:
        """Set how many Workloads wait in the heap, and how many are parked."""
        self._set(self._q.pending, active, "active")
        self._set(self._q.pending, inadmissible, "inadmissible")

    def holding(self, *, reserving: int, admitted: int) -> None:
        """Set how many Workloads have quota reserved, and how many of them are admitted."""
        self._set(self._q.reserving, reserving)
        self._set(self._q.admitted_active, admitted)

    def holding_of(self, *, reserving: int, admitted: Mapping[Values, int]) -> None:
        """Set the Workloads with reservations, and admitted ones by the values of Workloads' custom labels."""
        self._set(self._q.reserving, reserving)
        self._replace(self._q.admitted_active, admitted)

    def finished_kept(self, workloads: int) -> None:
        """Set how many finished Workloads exist."""
        self._set(self._q.finished_now, workloads)

    def quota_reserved(self, *, priority_class: str, waited: float, admitted: bool, values: Values = ()) -> None:
        """Observe a reservation, `waited` seconds after queueing; `admitted`: the Workload was admitted with it.

        `values` are the values of the Workload's custom labels.
        """
        if self._closed:
            return
        waits = self._waits.get((priority_class, admitted, values))
        if waits is None:
            waits = self._shown_waits(priority_class, values, admitted=admitted)
            self._waits[priority_class, admitted, values] = waits
        waits.take(max(0.0, waited))

    def expect(self, *, priority_class: str, values: Values = ()) -> None:
        """Create the series of an admission beforehand, because creation takes ten times as long as counting.

        `values` are the values of the Workload's custom labels.
        """
        if not self._closed and (priority_class, True, values) not in self._waits:
            self._waits[priority_class, True, values] = self._shown_waits(priority_class, values, admitted=True)

    def _shown_waits(self, priority_class: str, values: Values, *, admitted: bool) -> WaitTimes:
        waits = WaitTimes()
        self._of(self._q.reserved, priority_class).show(waits)
        self._of(self._q.reserved_wait, priority_class).show(waits)
        if admitted:
            self._of(self._q.admitted, priority_class, *self._label_values(values)).show(waits)
            self._of(self._q.admission_wait, priority_class, *self._label_values(values)).show(waits)
        return waits

    def _label_values(self, values: Values) -> Values:
        """Return the label values by which admissions are counted."""
        del values
        return ()

    def admitted(self, *, priority_class: str, waited: float, since_reserved: float, values: Values = ()) -> None:
        """Observe the admission of a Workload with a reservation, `waited` seconds after queueing.

        `values` are the values of its custom labels.
        """
        rest = self._label_values(values)
        self._count(self._q.admitted, priority_class, *rest)
        self._observe(self._q.admission_wait, waited, priority_class, *rest)
        self._observe(self._q.checks_wait, since_reserved, priority_class)

    def ready(self, *, priority_class: str, waited: float, since_admitted: float) -> None:
        """Observe that a Workload's pods are ready, `waited` seconds after queueing."""
        self._observe(self._q.ready_wait, waited, priority_class)
        self._observe(self._q.admitted_until_ready, since_admitted, priority_class)

    def finished(self, *, priority_class: str, ran: float | None) -> None:
        """Count a finished Workload; `ran`: seconds in all, None when it was not admitted at the end."""
        self._count(self._q.finished, priority_class)
        if ran is not None:
            self._observe(self._q.execution, ran, priority_class)


class ClusterQueueMetrics(_QueueMetrics):
    """Metrics of one ClusterQueue."""

    def __init__(
        self,
        name: str,
        families: ClusterQueueFamilies,
        resources: ClusterQueueResourceFamilies,
        preemptor: PreemptorFamilies,
        below: Counter,
        *,
        above: Sequence[str] = (),
    ) -> None:
        """`below` counts admissions for each cohort `above` the ClusterQueue."""
        super().__init__(families, name)
        self._f, self._r, self._p, self._below = families, resources, preemptor, below
        self._above = tuple(above)
        self._figures: Mapping[tuple[str, str], ResourceFigures] | None = None
        self._cohort = ""
        self._domains: dict[tuple[str, str], tuple[Counter, Counter]] = {}
        """Counters of used domains and of fewest possible domains, by algorithm and level."""

    def close(self) -> None:
        """Ignore later reports: the queue is deleted."""
        super().close()
        self._domains.clear()

    def pending_of(self, workloads: Mapping[Values, tuple[int, int]]) -> None:
        """Set the Workloads in the heap and the parked ones, by the values of their custom labels."""
        self._replace(
            self._f.pending,
            {
                (status, *values): number
                for values, numbers in workloads.items()
                for status, number in zip(("active", "inadmissible"), numbers, strict=True)
            },
        )

    def _shown_waits(self, priority_class: str, values: Values, *, admitted: bool) -> WaitTimes:
        waits = super()._shown_waits(priority_class, values, admitted=admitted)
        for cohort in self._above if admitted else ():
            self._below.labels(cohort, priority_class).show(waits)
        return waits

    def admitted(self, *, priority_class: str, waited: float, since_reserved: float, values: Values = ()) -> None:
        """Observe the admission of a Workload with a reservation, `waited` seconds after queueing."""
        super().admitted(priority_class=priority_class, waited=waited, since_reserved=since_reserved, values=values)
        for cohort in self._above if not self._closed else ():
            self._below.labels(cohort, priority_class).inc()

    def start_told(self, told: str, outcome: str) -> None:
        """Count a start by where it lies beside the start time that was told, the `first` or the `last` one."""
        self._count(self._f.told_starts, told, outcome)

    def forms(self, *, active: int, inadmissible: int) -> None:
        """Set the number of shapes of Workloads in the heap, and of parked Workloads."""
        self._set(self._f.pending_hashes, active, "active")
        self._set(self._f.pending_hashes, inadmissible, "inadmissible")

    def pending_resources(self, amounts: Mapping[str, float]) -> None:
        """Set the requests of waiting Workloads by resource."""
        self._replace(self._r.pending, {(resource,): amount for resource, amount in amounts.items()})

    def status(self, current: str) -> None:
        """Set the status: `pending`, `active` or `terminating`."""
        for status in ("pending", "active", "terminating"):
            self._set(self._f.status, float(status == current), status)

    def unadmitted(self, workloads: Mapping[tuple[str, str], int]) -> None:
        """Set the Workloads not admitted, by (reason of Admitted, reason of QuotaReserved)."""
        self._replace(self._f.unadmitted, {tuple(why): count for why, count in workloads.items()})

    def place(self, above: Sequence[str]) -> None:
        """Set the place in the tree: the cohorts above the ClusterQueue, from its parent to the root."""
        parent, root = (above[0], above[-1]) if above else ("", "")
        self._replace(self._f.info, {(parent, root): 1})
        if tuple(above) != self._above:
            self._above = tuple(above)
            self._waits.clear()  # former counts stay with the former cohorts

    def resources(self, cohort: str, figures: Mapping[tuple[str, str], ResourceFigures]) -> None:
        """Set quota and use by (flavor, resource); other series of the ClusterQueue are removed."""
        if (cohort, figures) == (self._cohort, self._figures):
            return
        self._cohort, self._figures = cohort, figures
        rows = {(cohort, flavor, resource): row for (flavor, resource), row in figures.items()}
        self._replace(self._r.reservation, {key: row.reservation for key, row in rows.items()})
        self._replace(self._r.usage, {key: row.usage for key, row in rows.items()})
        self._replace(self._r.nominal, {key: row.nominal for key, row in rows.items()})
        self._replace(self._r.borrowing_limit, {key: _limit(row.borrowing_limit) for key, row in rows.items()})
        self._replace(self._r.lending_limit, {key: _limit(row.lending_limit) for key, row in rows.items()})

    def weighted_share(self, cohort: str, share: float) -> None:
        """Set the fair share; infinity is shown as NaN."""
        self._replace(self._r.weighted_share, {(cohort,): finite(share)})

    def evicted(
        self, *, reason: str, underlying_cause: str, priority_class: str, first: bool, since_ready: float | None = None
    ) -> None:
        """Count an eviction.

        `first`: the Workload was never evicted before for this reason and cause.  `since_ready`: seconds since its pods
        were ready; None: they were not ready.
        """
        self._count(self._f.evicted, reason, underlying_cause, priority_class)
        if since_ready is not None:
            self._observe(self._f.ready_to_evicted, since_ready, reason, underlying_cause)
        if first:
            self._count(self._f.evicted_once, reason, underlying_cause, priority_class)

    def eviction_ended(self, *, reason: str, took: float) -> None:
        """Observe that an evicted Workload released its quota after `took` seconds."""
        self._observe(self._f.eviction_latency, took, reason)

    def preempts(self, *, reason: str) -> None:
        """Count a Workload that was evicted for a Workload of this queue."""
        self._count(self._p.preempted, reason)

    def quarantined(self, number: int) -> None:
        """Set how many Workloads of the queue are in quarantine."""
        self._set(self._f.quarantined, number)

    def quarantines(self) -> None:
        """Count a Workload that came into quarantine."""
        self._count(self._f.quarantines)

    def preemption_loop(self) -> None:
        """Count that a Workload of this queue preempted again without an admission in between."""
        self._count(self._f.preemption_loops)

    def dispatched(self, cluster: str) -> None:
        """Count a copy of a Workload that was created on a worker cluster."""
        self._count(self._f.dispatched, cluster)

    def admitted_elsewhere(self, cluster: str) -> None:
        """Count a Workload that a worker cluster has admitted, and whose job it runs."""
        self._count(self._f.admitted_elsewhere, cluster)

    def preemption_skips(self, preemptors: int) -> None:
        """Set how many preemptors of this queue lost their targets to other preemptors in the last cycle."""
        self._set(self._f.preemption_skips, preemptors)

    def planned_start_kept(self, *, result: str) -> None:
        """Count a workload with a planned start that has started; the result is `in_time` or `later`."""
        self._count(self._f.planned_starts, result)

    def planned_start_moved(self, *, cause: str) -> None:
        """Count a planned start that became later."""
        self._count(self._f.planned_moves, cause)

    def backfilled(self) -> None:
        """Count a workload that started in room that is kept for another one, or for a Reservation."""
        self._count(self._f.backfilled)

    def retargeted(self, *, result: str) -> None:
        """Count a preemptor whose targets others took; the result is `new_targets`, `deferred_fit` or `skipped`."""
        self._count(self._f.retargeted, result)

    def gate_removed(self, *, gate: str, is_group: bool, since_admitted: float) -> None:
        """Observe the removal of a pod's scheduling gate."""
        self._observe(self._f.gate_removal, since_admitted, gate, "true" if is_group else "false")

    def placed(self, *, algorithm: str, proven: bool | None, levels: Iterable[UsedDomains]) -> None:
        """Count a placement of a group of pods; `proven` None: optimality was not examined."""
        if self._closed:
            return
        self._count(self._f.placements, algorithm, "unknown" if proven is None else str(proven).lower())
        for found in levels:
            domains = self._domains.get((algorithm, found.level))
            if domains is None:
                domains = (
                    self._of(self._f.domains, algorithm, found.level),
                    self._of(self._f.fewest_domains, algorithm, found.level),
                )
                self._domains[algorithm, found.level] = domains
            used, fewest = domains
            used.inc(found.used)
            fewest.inc(found.lower_bound)

    def ungated(self, pods: int, *, in_order: bool | None = None) -> None:
        """Count pods released into their topology domain; `in_order`: by rank order, None: pods have no ranks."""
        self._count(self._f.ungated, by=pods)
        if in_order is not None:
            self._count(self._f.ranked, "kept" if in_order else "lost", by=pods)


class LocalQueueMetrics(_QueueMetrics):
    """Metrics of one LocalQueue."""

    def __init__(self, name: str, namespace: str, families: LocalQueueFamilies) -> None:
        super().__init__(families, name, namespace)
        self._f = families

    def _label_values(self, values: Values) -> Values:
        return values

    def status(self, active: str) -> None:
        """Set the status of condition Active: `True`, `False` or `Unknown`."""
        for status in ("True", "False", "Unknown"):
            self._set(self._f.status, float(status == active), status)

    def resources(self, figures: Mapping[tuple[str, str], tuple[float, float]]) -> None:
        """Set (reserved, used) by (flavor, resource); other series of the LocalQueue are removed."""
        self._replace(self._f.reservation, {tuple(key): reserved for key, (reserved, _) in figures.items()})
        self._replace(self._f.usage, {tuple(key): used for key, (_, used) in figures.items()})

    def unadmitted(self, cluster_queue: str, workloads: Mapping[tuple[str, str], int]) -> None:
        """Set the Workloads not admitted, by (reason of Admitted, reason of QuotaReserved)."""
        self._replace(self._f.unadmitted, {(cluster_queue, *why): count for why, count in workloads.items()})

    def fair_usage(self, cluster_queue: str, usage: float) -> None:
        """Set the recent usage that orders the ClusterQueue; +Inf for a LocalQueue of weight 0."""
        self._replace(self._f.fair_usage, {(cluster_queue,): usage})

    def evicted(self, *, reason: str, underlying_cause: str, priority_class: str) -> None:
        """Count an eviction."""
        self._count(self._f.evicted, reason, underlying_cause, priority_class)


class CohortMetrics(_Bound):
    """Metrics of one cohort."""

    def __init__(self, name: str, families: CohortFamilies, active: CohortActiveFamilies) -> None:
        super().__init__(name)
        self._f, self._a = families, active

    def share(self, share: float) -> None:
        """Set the fair share; infinity is shown as +Inf."""
        self._set(self._f.weighted_share, share)

    def place(self, above: Sequence[str], *, root: str) -> None:
        """Set the parent cohort and the root cohort; a cohort without a parent is its own root."""
        self._replace(self._f.info, {(above[0] if above else "", root): 1})

    def subtree(
        self,
        *,
        quota: Mapping[tuple[str, str], float],
        reserved: Mapping[tuple[str, str], float],
        admitted: Mapping[tuple[str, ...], int],
    ) -> None:
        """Set the quota and reservations below the cohort by (flavor, resource), and its admitted Workloads.

        Amounts of 0 or less have no series.  The Workloads are counted by the custom labels of ClusterQueues.
        """
        self._replace(self._f.subtree_quota, {tuple(key): amount for key, amount in quota.items() if amount > 0})
        held = {tuple(key): amount for key, amount in reserved.items() if amount > 0}
        self._replace(self._f.subtree_reservations, held)
        self._replace(self._a.active, admitted)


def finite(share: float) -> float:
    """Return the share as Kueue's dashboards expect it: infinity becomes NaN."""
    return math.nan if math.isinf(share) else share


def _limit(value: float | None) -> float:
    return math.inf if value is None else value
