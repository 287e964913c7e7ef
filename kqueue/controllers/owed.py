"""What waiting Workloads are owed: a first word of a try, or to hear anew where they stand.

Thousands are set aside at each refusal, again and again, and hardly any of them is to be told anything: those few are
found without a look at the others.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator
from typing import NamedTuple

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.state import from_api

MOST = 100_000
"""So many times are kept; the oldest one goes then, and what it stood for begins anew."""
UNTRIED = (names.REASON_DEACTIVATED, names.REASON_PENDING_EVALUATION, names.REASON_SUSPENDED, names.REASON_PENDING)
"""Reasons that say nothing of a try; what a try has said of an equal workload says more."""
_SLACK = 64


class Again(NamedTuple):
    """When a Workload is told anew, in monotonic seconds, and the pause before that."""

    due: float
    pause: float


class Owed:
    """Of all Workloads, which one is to be told something at the next occasion."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._first: dict[str, None] = {}
        self._again: dict[str, Again] = {}
        self._heap: list[tuple[float, str]] = []  # an entry counts only if `_again` agrees
        self._come: dict[str, None] = {}

    def observe(self, old: wire.Workload | None, new: wire.Workload | None) -> None:
        """Take in what the watch says of one."""
        if new is not None and _says_nothing_of_a_try(new):
            self._first[from_api.workload_key(new)] = None
            return
        seen = new if new is not None else old
        if seen is not None:
            self._first.pop(from_api.workload_key(seen), None)

    def is_first(self, key: str) -> bool:
        """Whether a Workload says nothing of a try yet: what the try of an equal one has said is news to it."""
        return key in self._first

    def again(self, key: str) -> Again | None:
        """When it is told anew; None when nothing is noted of that."""
        return self._again.get(key)

    def tell_again(self, key: str, after: float, pause: float) -> Again:
        """Note that it is to be told anew after so many seconds; `pause` is what the next ones go by."""
        again = Again(self._clock.monotonic() + after, pause)
        self.forget_again(key)
        self._again[key] = again
        if len(self._again) > MOST:
            self.forget_again(next(iter(self._again)))
        heapq.heappush(self._heap, (again.due, key))
        if len(self._heap) > 2 * len(self._again) + _SLACK:
            self._heap = [(due, known) for known, (due, _) in self._again.items()]
            heapq.heapify(self._heap)
        return again

    def forget_again(self, key: str) -> None:
        """It is not to be told anew."""
        self._again.pop(key, None)
        self._come.pop(key, None)

    def is_due(self, key: str) -> bool:
        """Whether the time has come to tell it anew."""
        again = self._again.get(key)
        return again is not None and again.due <= self._clock.monotonic()

    def among(self, keys: Collection[str]) -> Iterator[str]:
        """Those of these, each once, that are owed something; costs by the fewer of either.

        Nothing may change until it has been gone through.
        """
        self._bring_up()
        yield from _common(self._first, keys)
        yield from (key for key in _common(self._come, keys) if key not in self._first)

    def _bring_up(self) -> None:
        now = self._clock.monotonic()
        while self._heap and self._heap[0][0] <= now:
            due, key = heapq.heappop(self._heap)
            again = self._again.get(key)
            if again is not None and again.due == due:
                self._come[key] = None


def _common(one: Collection[str], other: Collection[str]) -> Iterator[str]:
    fewer, more = (one, other) if len(one) <= len(other) else (other, one)
    return (key for key in fewer if key in more)


def _says_nothing_of_a_try(workload: wire.Workload) -> bool:
    told = from_api.condition(workload.status.conditions, names.CONDITION_QUOTA_RESERVED)
    return told is None or told.reason in UNTRIED
