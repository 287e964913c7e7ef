"""How well told start times held: each start is compared with the first interval that was told, and with the last one.

    first     the first interval with a p90 that the record has since the workload is in line
    last      the last one that was told before the start

A start up to a few seconds beside an interval counts as inside: pods of an ended workload take moments to go, and
cycles follow each other at intervals.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kqueue.core.future.told import TOLERANCE, Telling
from kqueue.operations.report.figures import ALL_QUEUES, CoverageFigures, at_tenth
from kqueue.record.told import ToldInterval

_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Tellings:
    """The intervals that were told of one workload; `first` None: none of them had a p90."""

    first: ToldInterval | None
    last: ToldInterval


@dataclass(slots=True)
class _Count:
    before: int = 0
    inside: int = 0
    untold: int = 0
    late: list[int] = field(default_factory=list)
    overdue: int = 0

    def figures(self) -> CoverageFigures:
        late = sorted(self.late)
        return CoverageFigures(
            before=self.before,
            inside=self.inside,
            after=len(late),
            untold=self.untold,
            late_p50=at_tenth(late, 5),
            overdue=self.overdue,
        )


class Coverage:
    """Follows told intervals and starts in the order of the record."""

    def __init__(self) -> None:
        self._told: dict[str, Tellings] = {}
        self._counts: dict[tuple[str, str], _Count] = {}
        self._is_recorded = False

    def tell(self, told: Iterable[ToldInterval], running: Collection[str]) -> None:
        """Take intervals.  Intervals of running workloads come from before their start, and do not count."""
        for one in told:
            self._is_recorded = True
            if one.uid not in running:
                known = self._told.get(one.uid)
                first = known.first if known is not None else None
                self._told[one.uid] = Tellings(first or (one if one.p90 is not None else None), one)

    def taken(self, uid: str) -> Tellings | None:
        """Return and forget what was told of a workload that starts."""
        return self._told.pop(uid, None)

    def give_back(self, uid: str, told: Tellings) -> None:
        """Remember again what was told of a workload: its start was not carried out."""
        self._told[uid] = told

    def started(self, queue: str, at: datetime, told: Tellings | None) -> None:
        """Count a start."""
        for telling, one in _each(told):
            for count in self._counts_of(queue, telling):
                _add(count, at, one)

    def finish(self, waiting: Iterable[tuple[str, str]], end: datetime) -> None:
        """Count the workloads (UID and ClusterQueue) that still wait at the end although their p90 has passed."""
        for uid, queue in waiting:
            for telling, one in _each(self._told.get(uid)):
                if one is not None and one.p90 is not None and _after(one, one.p90) + TOLERANCE < end:
                    for count in self._counts_of(queue, telling):
                        count.overdue += 1

    def _counts_of(self, queue: str, telling: str) -> Iterator[_Count]:
        for name in (queue, ALL_QUEUES):
            yield self._counts.setdefault((name, telling), _Count())

    def figures(self) -> dict[tuple[str, str], CoverageFigures] | None:
        """Return the counts; None: the record has no told start times."""
        if not self._is_recorded:
            return None
        return {key: count.figures() for key, count in sorted(self._counts.items())}


def _each(told: Tellings | None) -> tuple[tuple[str, ToldInterval | None], ...]:
    if told is None:
        return (Telling.FIRST, None), (Telling.LAST, None)
    return (Telling.FIRST, told.first), (Telling.LAST, told.last)


def _after(told: ToldInterval, seconds: int) -> datetime:
    return told.at + timedelta(seconds=seconds)


def _add(count: _Count, at: datetime, told: ToldInterval | None) -> None:
    if told is None or told.p90 is None:
        count.untold += 1
        return
    begin, end = _after(told, told.p50), _after(told, told.p90)
    if at < begin - TOLERANCE:
        count.before += 1
    elif at <= end + TOLERANCE:
        count.inside += 1
    else:
        count.late.append((at - end) // _SECOND)
