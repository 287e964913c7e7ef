"""Metrics of one ClusterQueue and of one LocalQueue.  Label children are bound once and kept here.

An object of these stays valid after its queue is forgotten: what is reported then is counted for nobody.
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
from kqueue.observe.family import Counter, Family, Gauge, Histogram, Waits

_M = TypeVar("_M", bound=Family)


Values = tuple[str, ...]
"""Of the custom labels of a Workload, in their order."""


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
    """Domains of one level that hold pods, and the fewest that could have."""

    @property
    def level(self) -> str:
        """Name of the level."""
        ...

    @property
    def used(self) -> int:
        """Domains that hold pods."""
        ...

    @property
    def lower_bound(self) -> int:
        """Fewest that could have."""
        ...


class _Bound:
    """The children of some families for one object."""

    def __init__(self, *labels: str) -> None:
        self._labels = labels
        self._children: dict[tuple[Family, tuple[str, ...]], Any] = {}
        self._replaced: dict[Gauge, dict[tuple[str, ...], float]] = {}
        """What `_replace` has set."""
        self._closed = False

    def close(self) -> None:
        """From now on count for nobody: the object is gone, and late reports must not bring its series back."""
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
        """Negative times come from clocks that disagree and count as 0."""
        if not self._closed:
            (self._children.get((family, rest)) or self._of(family, *rest)).observe(max(0.0, seconds))

    def _replace(self, family: Gauge, values: Mapping[tuple[str, ...], float]) -> None:
        """Set the series of `values` and remove this object's others."""
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
    """What both kinds of queues report."""

    def __init__(self, families: ClusterQueueFamilies | LocalQueueFamilies, *labels: str) -> None:
        super().__init__(*labels)
        self._q = families
        self._waits: dict[tuple[str, bool, Values], Waits] = {}
        """Reservations by priority class, whether they admit, and values of Workloads' custom labels: what four
        families show is taken in once.
        """

    def close(self) -> None:
        """From now on count for nobody."""
        super().close()
        self._waits.clear()

    def pending(self, *, active: int, inadmissible: int) -> None:
        """Workloads in the heap and set aside."""
        self._set(self._q.pending, active, "active")
        self._set(self._q.pending, inadmissible, "inadmissible")

    def holding(self, *, reserving: int, admitted: int) -> None:
        """Workloads that hold quota, and those of them that are admitted."""
        self._set(self._q.reserving, reserving)
        self._set(self._q.admitted_active, admitted)

    def holding_of(self, *, reserving: int, admitted: Mapping[Values, int]) -> None:
        """The same where Workloads have custom labels: those that are admitted by their values."""
        self._set(self._q.reserving, reserving)
        self._replace(self._q.admitted_active, admitted)

    def finished_kept(self, workloads: int) -> None:
        """Finished Workloads that still exist."""
        self._set(self._q.finished_now, workloads)

    def quota_reserved(self, *, priority_class: str, waited: float, admitted: bool, values: Values = ()) -> None:
        """A reservation was made, `waited` seconds after queueing, and with it the Workload was admitted or not.

        `values` are those of the Workload's custom labels.
        """
        if self._closed:
            return
        waits = self._waits.get((priority_class, admitted, values))
        if waits is None:
            waits = self._shown_waits(priority_class, values, admitted=admitted)
            self._waits[priority_class, admitted, values] = waits
        waits.take(max(0.0, waited))

    def expect(self, *, priority_class: str, values: Values = ()) -> None:
        """Make the series of an admission beforehand: that takes ten times as long as to count one.

        `values` are those of the Workload's custom labels.
        """
        if not self._closed and (priority_class, True, values) not in self._waits:
            self._waits[priority_class, True, values] = self._shown_waits(priority_class, values, admitted=True)

    def _shown_waits(self, priority_class: str, values: Values, *, admitted: bool) -> Waits:
        waits = Waits()
        self._of(self._q.reserved, priority_class).show(waits)
        self._of(self._q.reserved_wait, priority_class).show(waits)
        if admitted:
            self._of(self._q.admitted, priority_class, *self._told_apart(values)).show(waits)
            self._of(self._q.admission_wait, priority_class, *self._told_apart(values)).show(waits)
        return waits

    def _told_apart(self, values: Values) -> Values:
        """Values by which admissions are counted."""
        del values
        return ()

    def admitted(self, *, priority_class: str, waited: float, since_reserved: float, values: Values = ()) -> None:
        """A Workload that had a reservation was admitted, `waited` seconds after queueing.

        `values` are those of its custom labels.
        """
        rest = self._told_apart(values)
        self._count(self._q.admitted, priority_class, *rest)
        self._observe(self._q.admission_wait, waited, priority_class, *rest)
        self._observe(self._q.checks_wait, since_reserved, priority_class)

    def ready(self, *, priority_class: str, waited: float, since_admitted: float) -> None:
        """A Workload's pods are ready, `waited` seconds after queueing."""
        self._observe(self._q.ready_wait, waited, priority_class)
        self._observe(self._q.admitted_until_ready, since_admitted, priority_class)

    def finished(self, *, priority_class: str, ran: float | None) -> None:
        """A Workload finished; `ran` seconds in all, None when it was not admitted at the end."""
        self._count(self._q.finished, priority_class)
        if ran is not None:
            self._observe(self._q.execution, ran, priority_class)


class ClusterQueueMetrics(_QueueMetrics):
    """One ClusterQueue."""

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
        """`below` counts admissions for each of the cohorts `above` it."""
        super().__init__(families, name)
        self._f, self._r, self._p, self._below = families, resources, preemptor, below
        self._above = tuple(above)
        self._figures: Mapping[tuple[str, str], ResourceFigures] | None = None
        self._cohort = ""
        self._domains: dict[tuple[str, str], tuple[Counter, Counter]] = {}
        """Domains used and fewest possible, by algorithm and level."""

    def close(self) -> None:
        """From now on count for nobody."""
        super().close()
        self._domains.clear()

    def pending_of(self, workloads: Mapping[Values, tuple[int, int]]) -> None:
        """Workloads in the heap and set aside, by the values of their custom labels."""
        self._replace(
            self._f.pending,
            {
                (status, *values): number
                for values, numbers in workloads.items()
                for status, number in zip(("active", "inadmissible"), numbers, strict=True)
            },
        )

    def _shown_waits(self, priority_class: str, values: Values, *, admitted: bool) -> Waits:
        waits = super()._shown_waits(priority_class, values, admitted=admitted)
        for cohort in self._above if admitted else ():
            self._below.labels(cohort, priority_class).show(waits)
        return waits

    def admitted(self, *, priority_class: str, waited: float, since_reserved: float, values: Values = ()) -> None:
        """A Workload that had a reservation was admitted, `waited` seconds after queueing."""
        super().admitted(priority_class=priority_class, waited=waited, since_reserved=since_reserved, values=values)
        for cohort in self._above if not self._closed else ():
            self._below.labels(cohort, priority_class).inc()

    def forms(self, *, active: int, inadmissible: int) -> None:
        """Forms of the Workloads in the heap and of those set aside."""
        self._set(self._f.pending_hashes, active, "active")
        self._set(self._f.pending_hashes, inadmissible, "inadmissible")

    def pending_resources(self, amounts: Mapping[str, float]) -> None:
        """What Workloads that wait request, by resource."""
        self._replace(self._r.pending, {(resource,): amount for resource, amount in amounts.items()})

    def status(self, current: str) -> None:
        """`pending`, `active` or `terminating`."""
        for status in ("pending", "active", "terminating"):
            self._set(self._f.status, float(status == current), status)

    def unadmitted(self, workloads: Mapping[tuple[str, str], int]) -> None:
        """Workloads not admitted, by (reason of Admitted, reason of QuotaReserved)."""
        self._replace(self._f.unadmitted, {tuple(why): count for why, count in workloads.items()})

    def place(self, above: Sequence[str]) -> None:
        """Where it hangs in the tree: the cohorts above it, from its parent to the root."""
        parent, root = (above[0], above[-1]) if above else ("", "")
        self._replace(self._f.info, {(parent, root): 1})
        if tuple(above) != self._above:
            self._above = tuple(above)
            self._waits.clear()  # what was counted stays with the cohorts that were above it

    def resources(self, cohort: str, figures: Mapping[tuple[str, str], ResourceFigures]) -> None:
        """Quota and use by (flavor, resource); what is not in `figures` disappears."""
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
        """Its fair share; infinity is shown as not a number."""
        self._replace(self._r.weighted_share, {(cohort,): finite(share)})

    def evicted(
        self, *, reason: str, underlying_cause: str, priority_class: str, first: bool, since_ready: float | None = None
    ) -> None:
        """A Workload was evicted; `first` when never before for that reason and cause, `since_ready` seconds after its
        pods were ready (None: they were not).
        """
        self._count(self._f.evicted, reason, underlying_cause, priority_class)
        if since_ready is not None:
            self._observe(self._f.ready_to_evicted, since_ready, reason, underlying_cause)
        if first:
            self._count(self._f.evicted_once, reason, underlying_cause, priority_class)

    def eviction_ended(self, *, reason: str, took: float) -> None:
        """An evicted Workload gave its quota back after `took` seconds."""
        self._observe(self._f.eviction_latency, took, reason)

    def preempts(self, *, reason: str) -> None:
        """A Workload was evicted to make room for one of this queue."""
        self._count(self._p.preempted, reason)

    def quarantined(self, number: int) -> None:
        """So many of its Workloads are in quarantine."""
        self._set(self._f.quarantined, number)

    def quarantines(self) -> None:
        """A Workload came into quarantine."""
        self._count(self._f.quarantines)

    def preemption_loop(self) -> None:
        """A Workload of this queue made another one leave again, without having been admitted in between."""
        self._count(self._f.preemption_loops)

    def preemption_skips(self, preemptors: int) -> None:
        """So many Workloads of this queue found whom to preempt in the last cycle, and others took that."""
        self._set(self._f.preemption_skips, preemptors)

    def retargeted(self, *, result: str) -> None:
        """Others had taken some of a preemptor's targets: `new_targets`, `deferred_fit` or `skipped`."""
        self._count(self._f.retargeted, result)

    def gate_removed(self, *, gate: str, is_group: bool, since_admitted: float) -> None:
        """A pod's scheduling gate was removed."""
        self._observe(self._f.gate_removal, since_admitted, gate, "true" if is_group else "false")

    def placed(self, *, algorithm: str, proven: bool | None, levels: Iterable[UsedDomains]) -> None:
        """Pods were placed together; `proven` None: nobody asked."""
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
        """Pods were released into their topology domain; `in_order`: by their ranks, None where they have none."""
        self._count(self._f.ungated, by=pods)
        if in_order is not None:
            self._count(self._f.ranked, "kept" if in_order else "lost", by=pods)


class LocalQueueMetrics(_QueueMetrics):
    """One LocalQueue."""

    def __init__(self, name: str, namespace: str, families: LocalQueueFamilies) -> None:
        super().__init__(families, name, namespace)
        self._f = families

    def _told_apart(self, values: Values) -> Values:
        return values

    def status(self, active: str) -> None:
        """Status of condition Active: `True`, `False` or `Unknown`."""
        for status in ("True", "False", "Unknown"):
            self._set(self._f.status, float(status == active), status)

    def resources(self, figures: Mapping[tuple[str, str], tuple[float, float]]) -> None:
        """(reserved, used) by (flavor, resource); what is not in `figures` disappears."""
        self._replace(self._f.reservation, {tuple(key): reserved for key, (reserved, _) in figures.items()})
        self._replace(self._f.usage, {tuple(key): used for key, (_, used) in figures.items()})

    def unadmitted(self, cluster_queue: str, workloads: Mapping[tuple[str, str], int]) -> None:
        """Workloads not admitted, by (reason of Admitted, reason of QuotaReserved)."""
        self._replace(self._f.unadmitted, {(cluster_queue, *why): count for why, count in workloads.items()})

    def fair_usage(self, cluster_queue: str, usage: float) -> None:
        """What it used lately, as the order of its ClusterQueue sees it; +Inf for a queue of weight 0."""
        self._replace(self._f.fair_usage, {(cluster_queue,): usage})

    def evicted(self, *, reason: str, underlying_cause: str, priority_class: str) -> None:
        """A Workload was evicted."""
        self._count(self._f.evicted, reason, underlying_cause, priority_class)


class CohortMetrics(_Bound):
    """One cohort."""

    def __init__(self, name: str, families: CohortFamilies, active: CohortActiveFamilies) -> None:
        super().__init__(name)
        self._f, self._a = families, active

    def share(self, share: float) -> None:
        """Its fair share; infinity is shown as such."""
        self._set(self._f.weighted_share, share)

    def place(self, above: Sequence[str], *, root: str) -> None:
        """The cohorts above it, from its parent on, and the root, which is itself where there are none."""
        self._replace(self._f.info, {(above[0] if above else "", root): 1})

    def subtree(
        self,
        *,
        quota: Mapping[tuple[str, str], float],
        reserved: Mapping[tuple[str, str], float],
        admitted: Mapping[tuple[str, ...], int],
    ) -> None:
        """What all below it have and hold by (flavor, resource), without what is not above 0; and how many Workloads
        of theirs are admitted, by the custom labels of ClusterQueues.
        """
        self._replace(self._f.subtree_quota, {tuple(key): amount for key, amount in quota.items() if amount > 0})
        held = {tuple(key): amount for key, amount in reserved.items() if amount > 0}
        self._replace(self._f.subtree_reservations, held)
        self._replace(self._a.active, admitted)


def finite(share: float) -> float:
    """The share as dashboards of the compatible system expect it: an endless one is not a number."""
    return math.nan if math.isinf(share) else share


def _limit(value: float | None) -> float:
    return math.inf if value is None else value
