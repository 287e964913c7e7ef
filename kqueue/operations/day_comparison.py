"""Two days side by side: waits, starts, evictions and use, for people and programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from kqueue.core.future.day import Day, lived
from kqueue.core.quota import FlavorResource
from kqueue.operations.day_policy import DayPolicy, question_of
from kqueue.operations.report.figures import at_tenth
from kqueue.record.day import RecordedDay

_SECOND = timedelta(seconds=1)


class Waits(NamedTuple):
    """Waits of the workloads that arrived, in seconds; those that did not start have waited until the day's end."""

    arrived: int
    started: int
    mean: int
    p90: int
    longest: int

    @classmethod
    def of(cls, waits: Sequence[int], started: int) -> Waits:
        """Return the figures of these waits."""
        ordered = sorted(waits)
        if not ordered:
            return cls(0, 0, 0, 0, 0)
        return cls(len(ordered), started, sum(ordered) // len(ordered), at_tenth(ordered, 9) or 0, ordered[-1])


class LivedDay(NamedTuple):
    """The figures of one day.

    Args:
        waits: by ClusterQueue.
        evictions: by ClusterQueue of the evicted workloads.
        used_percent: by column, the average use, in percent of all nominal quota.
        domains: topology domains above the hosts that starts have, times 100, for each start with any.
        tries: heads that the planner decided.
    """

    waits: Mapping[str, Waits]
    all_waits: Waits
    evictions: Mapping[str, int]
    used_percent: Mapping[str, int]
    domains: int
    tries: int

    def shown(self) -> dict[str, Any]:
        """Return the figures as JSON."""
        return {
            **self._asdict(),
            "all_waits": self.all_waits._asdict(),
            "waits": {queue: waits._asdict() for queue, waits in self.waits.items()},
        }


def compare(day: RecordedDay, policy: DayPolicy) -> tuple[LivedDay, LivedDay]:
    """Return the figures of the day under the recorded policy and under the other one."""
    return live(day, DayPolicy()), live(day, policy)


def live(day: RecordedDay, policy: DayPolicy) -> LivedDay:
    """Return the figures of the day under a policy."""
    question = question_of(day, policy)
    found = lived(question)
    seconds = question.bounds.horizon
    nominal: dict[FlavorResource, int] = {}
    for root in {id(node.root): node.root for node in question.state.snapshot.nodes.values()}.values():
        for node in root.walk():
            for column, own in node.quotas.items():
                nominal[column] = nominal.get(column, 0) + own.nominal
    used = found.used(seconds)
    evictions: dict[str, int] = {}
    for stay in found.stays:
        if stay.was_evicted:
            evictions[stay.queue] = evictions.get(stay.queue, 0) + 1
    placed = [stay.domains for stay in found.stays if stay.domains]
    return LivedDay(
        *_waits(day, found, seconds),
        evictions=evictions,
        used_percent={
            str(column): 100 * used.get(column, 0) // (amount * seconds)
            for column, amount in sorted(nominal.items())
            if amount
        },
        domains=100 * sum(placed) // len(placed) if placed else 0,
        tries=found.tries,
    )


def _waits(day: RecordedDay, found: Day, seconds: int) -> tuple[dict[str, Waits], Waits]:
    starts = found.first_starts()
    by_queue: dict[str, list[int]] = {}
    started: dict[str, int] = {}
    for uid, arrival in day.arrivals.items():
        came = (arrival.at - day.begin) // _SECOND
        wait = max(0, starts.get(uid, seconds) - came)
        queue = arrival.head.queue
        by_queue.setdefault(queue, []).append(wait)
        started[queue] = started.get(queue, 0) + (uid in starts)
    all_waits = Waits.of([wait for waits in by_queue.values() for wait in waits], sum(started.values()))
    return {queue: Waits.of(waits, started[queue]) for queue, waits in sorted(by_queue.items())}, all_waits


def recorded_waits(day: RecordedDay) -> Waits:
    """Return the waits as they were."""
    end = [max(0, (day.starts.get(uid, day.end) - one.at) // _SECOND) for uid, one in day.arrivals.items()]
    return Waits.of(end, sum(uid in day.starts for uid in day.arrivals))
