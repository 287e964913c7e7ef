"""Keeps answers of the API server for some seconds, up to a limit; equal questions at once are one request."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from kqueue.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """Kept answers by question.  All waiting callers get a failure, and it is not kept."""

    def __init__(self, clock: Clock, *, seconds: Callable[[V], float], most: int) -> None:
        """`seconds` returns the lifetime of an answer.  Beyond `most` answers the oldest one is dropped."""
        self._clock, self._seconds, self._most = clock, seconds, most
        self._kept: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._asking: dict[K, asyncio.Task[V]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """Return the answer to `key`, from `ask` if none is kept.  Raises the errors of `ask`."""
        known = self._kept.get(key)
        if known is not None and self._clock.monotonic() < known[0]:
            return known[1]
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.create_task(self._ask(key, ask))
            asking.add_done_callback(_looked_at)
        return await asyncio.shield(asking)  # a client that disconnects must not cancel the answer for other clients

    async def _ask(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        try:
            answer = await ask()
        finally:
            del self._asking[key]
        self._kept.pop(key, None)
        self._kept[key] = (self._clock.monotonic() + self._seconds(answer), answer)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return answer


def _looked_at(task: asyncio.Task[V]) -> None:
    """Retrieve the error of a task that no caller waits for any more."""
    if not task.cancelled():
        task.exception()
