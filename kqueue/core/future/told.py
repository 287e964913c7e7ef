"""Start times as they were told, and how well they hold: the memory compares them with the starts that follow.

A told interval is from p50 to p90.  A start up to a few seconds beside it counts as inside: pods of an ended workload
take moments to go, and cycles follow each other at intervals.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum

from kqueue.core.future.drain import NoStart, NotPlanned
from kqueue.core.future.start_times import StartTime
from kqueue.core.value import value

MOST_REMEMBERED = 20_000
"""The number of waiting workloads whose told start times are remembered."""
TOLERANCE = timedelta(seconds=5)
"""A start so long before p50, or after p90, still counts as inside the interval."""


@value(kw_only=True)
class ToldStart:
    """What was told of the start of one workload.

    Args:
        key: namespace/name.
        queue: the ClusterQueue in which it waits; empty: it is in none while it leaves its hosts.
        at: the time of the state from which the start times come.
        p50, p90: the two start times; None: there is none, for `reason`.
        reason: a `NoStart`, with `message` as a sentence; empty: both times are known.
    """

    uid: str
    key: str
    queue: str
    at: datetime
    p50: datetime | None = None
    p90: datetime | None = None
    reason: str = ""
    message: str = ""


def told_start(start: StartTime, *, uid: str, key: str, queue: str, at: datetime, horizon: int) -> ToldStart:
    """Return what is told of a start time; `horizon`: that of the drains, in seconds."""
    return ToldStart(
        uid=uid,
        key=key,
        queue=queue,
        at=at,
        p50=at + timedelta(seconds=start.earlier.seconds) if start.earlier is not None else None,
        p90=at + timedelta(seconds=start.later.seconds) if start.later is not None else None,
        reason=str(start.reason.reason) if start.reason is not None else "",
        message=no_start_sentence(start.reason, horizon) if start.reason is not None else "",
    )


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
        yield HeldStart(last.queue, Telling.FIRST, _outcome(first, at))
        yield HeldStart(last.queue, Telling.LAST, _outcome(last, at))

    def left(self, uid: str, at: datetime) -> Iterator[HeldStart]:
        """Forget a workload that does not wait any more and did not start: it counts only where its p90 has passed."""
        for held in self.started(uid, at):
            if held.outcome is StartOutcome.AFTER:
                yield held


def _outcome(told: ToldStart | None, at: datetime) -> StartOutcome:
    if told is None or told.p50 is None or told.p90 is None:
        return StartOutcome.UNTOLD
    if at < told.p50 - TOLERANCE:
        return StartOutcome.BEFORE
    return StartOutcome.INSIDE if at <= told.p90 + TOLERANCE else StartOutcome.AFTER
