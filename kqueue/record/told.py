"""Start times that were told: what the record keeps of them, in bounded memory and at a bounded rate.

A report compares two of them with the start of a workload: the first one with a p90, and the last one before the start.
The record has these two, however often the start time is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from kqueue.core.decision import Admit, Decision


@dataclass(frozen=True, slots=True)
class ToldInterval:
    """A start time as it was told: the workload starts between `p50` and `p90`, in seconds from `at`.

    `p90` None: no end of the interval was known.
    """

    uid: str
    at: datetime
    p50: int
    p90: int | None


@dataclass(slots=True)
class _Waiting:
    last: ToldInterval
    has_first: bool = False
    """Whether an interval with a p90 was told."""


class ToldIntervals:
    """The start times of waiting workloads that were told and may have to be recorded."""

    def __init__(self, *, most: int = 20_000, most_at_once: int = 2_000) -> None:
        """`most`: workloads that are remembered, the latest ones; `most_at_once`: first start times for one cycle."""
        self._most, self._most_at_once = most, most_at_once
        self._waiting: dict[str, _Waiting] = {}
        self._first: dict[str, ToldInterval] = {}
        """First start times with a p90 that are not recorded yet."""

    def note(self, at: datetime, told: Iterable[tuple[str, int, int | None]]) -> None:
        """Remember start times that were told at a time, as UID, p50 and p90 in seconds."""
        for uid, p50, p90 in told:
            one = ToldInterval(uid, at, p50, p90)
            known = self._waiting.get(uid)
            if known is None:
                self._make_room()
                known = self._waiting[uid] = _Waiting(one)
            known.last = one
            if p90 is not None and not known.has_first:
                known.has_first = True
                self._first[uid] = one

    def _make_room(self) -> None:
        if len(self._waiting) >= self._most:
            forgotten = next(iter(self._waiting))
            del self._waiting[forgotten]
            self._first.pop(forgotten, None)

    def taken(self, decisions: Iterable[Decision]) -> tuple[ToldInterval, ...]:
        """Return what belongs before a cycle with these decisions, and forget the workloads that start in it."""
        started = {decision.head.uid for decision in decisions if isinstance(decision, Admit)}
        return tuple(self._taken([uid for uid in started if uid in self._waiting]))

    def _taken(self, started: list[str]) -> Iterator[ToldInterval]:
        due = dict.fromkeys(uid for uid in started if uid in self._first)
        due.update(dict.fromkeys(islice(self._first, self._most_at_once)))
        written = {uid: self._first.pop(uid) for uid in due}
        yield from written.values()
        for uid in started:
            last = self._waiting.pop(uid).last
            if written.get(uid) is not last:
                yield last
