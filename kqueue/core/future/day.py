"""A day of arrivals under one policy: a drain that remembers every start, end and eviction.

arrivals    a workload is tried from its arrival on (`WaitingWorkload.not_before`)
run times   as the day had them: a workload that starts earlier or elsewhere ends as much earlier or later
policy      the quota trees, specs, flavors and rules of the question
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from kqueue.core.decision import Admit
from kqueue.core.future.drain import Drain
from kqueue.core.future.question import StartQuestion
from kqueue.core.future.remaining import Quantile
from kqueue.core.quota import FlavorResource
from kqueue.core.value import value
from kqueue.core.workload import Admitted


@value(kw_only=True)
class PlannedStay:
    """The time from a start of a workload to its end, in seconds from the begin of the day.

    Args:
        domains: the number of topology domains above the hosts that its pods are in; 0 without topology.
        until: None: it has not ended.
        was_evicted: whether it was preempted.
        was_running: whether it ran when the day began.
    """

    uid: str
    queue: str
    usage: Mapping[FlavorResource, int]
    start: int
    domains: int = 0
    until: int | None = None
    was_evicted: bool = False
    was_running: bool = False


@dataclass(slots=True)
class Day:
    """The stays of all workloads in a day."""

    stays: list[PlannedStay]
    tries: int
    is_complete: bool
    """Whether no bound of the question has stopped it."""

    def first_starts(self) -> dict[str, int]:
        """Return the seconds at which workloads that arrived in the day started first, by UID."""
        found: dict[str, int] = {}
        for stay in self.stays:
            if not stay.was_running:
                found[stay.uid] = min(stay.start, found.get(stay.uid, stay.start))
        return found

    def used(self, seconds: int) -> dict[FlavorResource, int]:
        """Return the usage by column, times its seconds, over the first `seconds` of the day."""
        total: dict[FlavorResource, int] = {}
        for stay in self.stays:
            end = seconds if stay.until is None else min(stay.until, seconds)
            for column, amount in stay.usage.items():
                total[column] = total.get(column, 0) + amount * max(0, end - stay.start)
        return total


def lived(question: StartQuestion) -> Day:
    """Return the day that follows from the question; workloads that arrive later are in its lines."""
    drain = RememberingDrain(question)
    drain.run()
    return drain.day()


def _always() -> bool:
    return True


class RememberingDrain(Drain):
    """A drain that keeps the stays of all workloads."""

    def __init__(self, question: StartQuestion) -> None:
        super().__init__(question, Quantile.P50, goes_on=_always)
        self.stays: list[PlannedStay] = []
        """Stays that have ended."""
        self.open: dict[str, PlannedStay] = {
            holder.uid: PlannedStay(uid=holder.uid, queue=holder.queue, usage=holder.usage, start=0, was_running=True)
            for holder in self._world.holders.values()
        }
        """Stays of running workloads, by UID."""
        self._leaves_early: Collection[str] = ()

    def day(self) -> Day:
        """Return what happened; call it after `run`."""
        stays = [*self.stays, *self.open.values()]
        stays.sort(key=lambda stay: (stay.start, stay.uid))
        return Day(stays, self.tries, self.is_complete)

    def _start(self, decision: Admit) -> None:
        super()._start(decision)
        head = decision.head
        domains = self._world.domains_of(decision.admission.pod_sets)
        usage = decision.admission.usage()
        self.open[head.uid] = PlannedStay(
            uid=head.uid, queue=head.queue, usage=usage, start=self._second, domains=len(domains)
        )

    def _release(self, uids: Iterable[str]) -> None:
        uids = list(uids)
        for uid in uids:
            stay = self.open.pop(uid, None)
            if stay is not None:
                was_evicted = uid in self._leaves_early
                self.stays.append(replace(stay, until=self._second, was_evicted=was_evicted))
        super()._release(uids)

    def _end_early(self, victims: Iterable[Admitted]) -> None:
        victims = list(victims)
        self._leaves_early = {victim.uid for victim in victims}
        super()._end_early(victims)
        self._leaves_early = ()
