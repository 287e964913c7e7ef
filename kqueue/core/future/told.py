"""Start times as they were told, and how well they hold: the memory compares them with the starts that follow.

Workloads that arrive later and go first, and run times that nobody knew, make starts later than both drains say.  How
much later is learned from the last starts of each ClusterQueue, and stretches the p90 of the next ones.

A told interval is from p50 to p90.  A start up to a few seconds beside it counts as inside: pods of an ended workload
take moments to go, and cycles follow each other at intervals.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum

from kqueue.core.future.drain import NoStart, NotPlanned
from kqueue.core.future.histogram import RunHistogram
from kqueue.core.future.start_times import StartTime
from kqueue.core.value import value

WHOLE = 1_000
"""A stretch of one: p90 is as the drains say."""
_MOST_STRETCH = 10 * WHOLE
"""The most by which a p90 is stretched."""
_LEAST_STARTS = 20
"""The number of starts of a ClusterQueue from which its p90 is stretched."""
_LEAST_WAIT = timedelta(minutes=1)
"""A wait that was told to be shorter counts as so long: seconds more or less say nothing about long waits."""
_MOST_QUEUES = 2_000
"""The number of ClusterQueues with a stretch."""
MOST_REMEMBERED = 20_000
"""The number of waiting workloads whose told start times are remembered."""
TOLERANCE = timedelta(seconds=5)
"""A start so long before p50, or after p90, still counts as inside the interval."""


@value(kw_only=True)
class ToldStart:
    """The start of one workload, as it was told.

    Args:
        key: namespace/name.
        queue: the ClusterQueue in which it waits; empty: it is in none while it leaves its hosts.
        at: the time of the state from which the start times come.
        p50, p90: the two start times; None: there is none, for `reason`.
        planned: p90 as the drains say, before it was stretched.
        reason: a `NoStart`, with `message` as a sentence; empty: both times are known.
    """

    uid: str
    key: str
    queue: str
    at: datetime
    p50: datetime | None = None
    p90: datetime | None = None
    planned: datetime | None = None
    reason: str = ""
    message: str = ""


def told_start(
    start: StartTime, *, uid: str, key: str, queue: str, at: datetime, horizon: int, stretch: int = WHOLE
) -> ToldStart:
    """Return a start time in the form for users.

    Args:
        horizon: the horizon of the drains in seconds.
        stretch: the factor of the time until p90 in thousandths.
    """
    later = start.later
    return ToldStart(
        uid=uid,
        key=key,
        queue=queue,
        at=at,
        p50=at + timedelta(seconds=start.earlier.seconds) if start.earlier is not None else None,
        p90=at + timedelta(seconds=stretched(later.seconds, stretch)) if later is not None else None,
        planned=at + timedelta(seconds=later.seconds) if later is not None else None,
        reason=str(start.reason.reason) if start.reason is not None else "",
        message=no_start_sentence(start.reason, horizon) if start.reason is not None else "",
    )


def stretched(seconds: int, stretch: int) -> int:
    """Return a time until p90, stretched by so many thousandths, rounded up."""
    return -(-seconds * stretch // WHOLE)


def no_start_sentence(why: NotPlanned, horizon: int) -> str:
    """Return the reason for which a workload has no start time, for users; it names no other workload."""
    match why.reason:
        case NoStart.UNKNOWN_RUN_TIMES:
            noun = "workload has" if why.count == 1 else "workloads have"
            return f"{why.count} {noun} no known run time"
        case NoStart.BEYOND_HORIZON:
            return f"it does not start within {horizon // 3600} h"
        case NoStart.NOT_IN_SIGHT:
            return "it does not start even when all running workloads have ended; see the blockers"
        case NoStart.ON_HOLD:
            return "it is held back"
        case NoStart.NOT_COMPUTED:
            return "the computation has reached its limit before"
    raise AssertionError(why.reason)


class Telling(StrEnum):
    """Which of the start times that were told of a workload is compared with its start."""

    FIRST = "first"
    """The first one with a p90."""
    LAST = "last"
    """The last one before the start."""


class StartOutcome(StrEnum):
    """Where a start lies beside the told interval."""

    BEFORE = "before"
    """Before p50."""
    INSIDE = "inside"
    """From p50 to p90."""
    AFTER = "after"
    """After p90; or the workload left without a start after p90."""
    UNTOLD = "untold"
    """No p90 was told."""


@value()
class HeldStart:
    """The comparison of one told start time with the start."""

    queue: str
    telling: Telling
    outcome: StartOutcome


class ToldStarts:
    """The start times that were told of workloads that still wait, in bounded memory."""

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        """Remember at most so many workloads; of more, those that were told first are forgotten."""
        self._most = most
        self._told: OrderedDict[str, tuple[ToldStart | None, ToldStart]] = OrderedDict()
        """By UID, the first one with a p90, and the last one."""
        self._waits: OrderedDict[str, RunHistogram] = OrderedDict()
        """By ClusterQueue, the waits until a start in thousandths of the wait until the first planned p90."""

    def __len__(self) -> int:
        return len(self._told)

    def __contains__(self, uid: object) -> bool:
        return uid in self._told

    def tell(self, told: ToldStart) -> None:
        """Remember what was told of a waiting workload."""
        first, _ = self._told.get(told.uid, (None, told))
        self._told[told.uid] = (first or (told if told.p90 is not None else None), told)
        if len(self._told) > self._most:
            self._told.popitem(last=False)

    def started(self, uid: str, at: datetime) -> Iterator[HeldStart]:
        """Compare what was told with the start of a workload, and forget it; nothing if nothing was told."""
        found = self._told.pop(uid, None)
        if found is None:
            return
        first, last = found
        self._learn(last.queue, first, at)
        yield HeldStart(last.queue, Telling.FIRST, _outcome(first, at))
        yield HeldStart(last.queue, Telling.LAST, _outcome(last, at))

    def stretch(self, queue: str) -> int:
        """Return by how many thousandths the p90 of a ClusterQueue is stretched, `WHOLE` or more: nine of ten of its
        last starts were not later.
        """
        waits = self._waits.get(queue)
        if waits is None or waits.runs < _LEAST_STARTS:
            return WHOLE
        return max(WHOLE, min(_MOST_STRETCH, waits.quantile(90)))

    def _learn(self, queue: str, first: ToldStart | None, at: datetime) -> None:
        if first is None or first.planned is None or at < first.at:
            return
        planned = max(_LEAST_WAIT, first.planned - first.at)
        waits = self._waits.setdefault(queue, RunHistogram())
        waits.add(min(_MOST_STRETCH, (at - first.at) * WHOLE // planned))
        self._waits.move_to_end(queue)
        if len(self._waits) > _MOST_QUEUES:
            self._waits.popitem(last=False)

    def left(self, uid: str, at: datetime) -> Iterator[HeldStart]:
        """Forget a workload that does not wait any more and did not start: it counts only where its p90 has passed."""
        found = self._told.get(uid)
        if found is not None and StartOutcome.AFTER not in (_outcome(one, at) for one in found):
            del self._told[uid]
            return
        for held in self.started(uid, at):
            if held.outcome is StartOutcome.AFTER:
                yield held


def _outcome(told: ToldStart | None, at: datetime) -> StartOutcome:
    if told is None or told.p50 is None or told.p90 is None:
        return StartOutcome.UNTOLD
    if at < told.p50 - TOLERANCE:
        return StartOutcome.BEFORE
    return StartOutcome.INSIDE if at <= told.p90 + TOLERANCE else StartOutcome.AFTER
