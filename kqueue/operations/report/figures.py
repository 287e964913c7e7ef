"""The figures of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from kqueue.api.gang_names import REASON_GANG_MADE_WAY
from kqueue.core.quota import FlavorResource

ALL_QUEUES = ""
"""The key of the figures of all ClusterQueues together."""


def at_tenth(ordered: Sequence[int], tenths: int) -> int | None:
    """Return the value that so many tenths of all values do not exceed: the higher one of two; None: there are none."""
    return ordered[min(len(ordered) - 1, tenths * len(ordered) // 10)] if ordered else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFigures:
    """Waits before starts, in seconds.

    Args:
        starts: starts whose wait is known.
        waiting: workloads that were tried and had not started at the end; `longest_waiting` is the longest wait so far.
    """

    starts: int
    mean: int | None
    p50: int | None
    p90: int | None
    longest: int | None
    waiting: int
    longest_waiting: int | None

    @classmethod
    def of(cls, waits: Sequence[int], waiting: Sequence[int]) -> WaitFigures:
        """Return the figures of these waits, and of the waits that have not ended."""
        ordered = sorted(waits)
        return cls(
            starts=len(ordered),
            mean=sum(ordered) // len(ordered) if ordered else None,
            p50=at_tenth(ordered, 5),
            p90=at_tenth(ordered, 9),
            longest=ordered[-1] if ordered else None,
            waiting=len(waiting),
            longest_waiting=max(waiting, default=None),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UseFigures:
    """The average use of a column over the time in which the record knows it, in units of the resource.

    A start is recorded when it is decided, an end when the next cycle sees it.  So the use was between `least` and
    `most`.  The percentages are of `nominal`; None: there is no nominal quota.
    """

    seconds: int
    nominal: int
    least: int
    most: int
    least_percent: int | None
    most_percent: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingFigures:
    """Domains of one level: `used` by all searches that led to a start, and the `fewest` possible for them.

    `tight`: the searches that used the fewest possible.
    """

    searches: int
    used: int
    fewest: int
    tight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageFigures:
    """Starts by where they lie beside a told interval, from p50 to p90.

    Args:
        untold: starts before which no interval with a p90 was told.
        late_p50: the middle time from p90 to the start, in seconds, of those in `after`.
        overdue: workloads that had not started when their p90 had passed, and had not started at the end either.
    """

    before: int
    inside: int
    after: int
    untold: int
    late_p50: int | None
    overdue: int

    @property
    def inside_percent(self) -> int | None:
        """The share of `inside` in all starts with an interval, in percent; None: there are none."""
        told = self.before + self.inside + self.after
        return 100 * self.inside // told if told else None


@dataclass(frozen=True, slots=True)
class UseSlot:
    """The use of a column in one slot of time, summed over microseconds; `nominal` likewise."""

    least: int
    most: int
    nominal: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFacts:
    """Facts of the record itself.

    Args:
        begin, end: the times of the first and the last cycle of the report.
        cycles: their number.
        missing: cycles that were planned between them and are not in the record.
        writers: processes that wrote them.
        ended_early: cycles whose plan ended with an error.
        not_carried_out: admissions that were decided, but not held by the next cycle, in which the workload was tried
            again.
        unseen_starts: workloads that held quota although the record has no start of them.
        steps_back: times at which the clock went back; the report goes on at the later time.
        versions: of kqueue.
    """

    begin: datetime
    end: datetime
    cycles: int
    missing: int
    writers: int
    ended_early: int
    not_carried_out: int
    unseen_starts: int
    steps_back: int
    versions: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReport:
    """The figures, by ClusterQueue where not said otherwise; `ALL_QUEUES` has those of all together.

    Args:
        use: by ClusterQueue and column.
        use_over_time: by column, slots of `slot_seconds` from `slots_begin` on.
        packing: by ClusterQueue and level.
        evictions: by ClusterQueue of the evicted workload and cause; `NOT_RECORDED` where the record has none.
        coverage: by ClusterQueue and `first` or `last`; None: the record has no told start times.
    """

    record: RecordFacts
    waits: Mapping[str, WaitFigures]
    use: Mapping[tuple[str, FlavorResource], UseFigures]
    use_over_time: Mapping[FlavorResource, Sequence[UseSlot]]
    slots_begin: datetime
    slot_seconds: int
    packing: Mapping[tuple[str, str], PackingFigures]
    evictions: Mapping[tuple[str, str], int]
    coverage: Mapping[tuple[str, str], CoverageFigures] | None


NOT_RECORDED = "NotRecorded"
"""The cause of evictions that the record shows without their cause."""
MADE_WAY = REASON_GANG_MADE_WAY
"""The cause of evictions of gangs for which flavors were kept that another gang now uses."""
