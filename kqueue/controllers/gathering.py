"""Collects events of one key for a moment, so that many events cause one reconcile."""

from __future__ import annotations

from typing import Protocol

from kqueue.clock import Clock

_FIRST, _WINDOW = 0.05, 0.2
"""Seconds for which events of one key are collected: after the last event, and in total."""


_KEYS = 1000
"""Keys that are remembered before old ones are dropped."""


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
        """The time of the last event, by key; times that no longer matter are dropped when there are `_swept` keys."""
        self._swept = _KEYS

    def add(self, key: str) -> None:
        """Note an event of the key."""
        now = self._clock.monotonic()
        if len(self._last) >= self._swept:
            self._last = {other: at for other, at in self._last.items() if now - at <= _WINDOW}
            self._swept = max(_KEYS, 2 * len(self._last))
        quiet = now - self._last.get(key, float("-inf")) > _WINDOW
        self._last[key] = now
        self._enqueue(key, after=_FIRST if quiet else _WINDOW)
