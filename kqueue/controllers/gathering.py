"""Collects events of one key for a moment, so that many events cause one reconcile."""

from __future__ import annotations

from typing import Protocol

from kqueue.clock import Clock

_FIRST, _WINDOW = 0.05, 0.2
"""Seconds for which events of one key are collected: after the last event, and in total."""


class Enqueue(Protocol):
    """Adds a key to a work queue."""

    def __call__(self, key: str, after: float = 0.0) -> None:
        """Reconcile `key` in `after` seconds."""
        ...


class Gathering:
    """Enqueues a key soon after its first event, and later while events go on."""

    def __init__(self, enqueue: Enqueue, clock: Clock) -> None:
        self._enqueue, self._clock = enqueue, clock
        self._last: dict[str, float] = {}
        """The time of the last event, by key."""

    def add(self, key: str) -> None:
        """Note an event of the key."""
        now = self._clock.monotonic()
        quiet = now - self._last.get(key, float("-inf")) > _WINDOW
        self._last[key] = now
        self._enqueue(key, after=_FIRST if quiet else _WINDOW)

    def forget(self, key: str) -> None:
        """Forget a key of which no event will come."""
        self._last.pop(key, None)
