"""A time limit on the injected clock, so that simulations control it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from kqueue.clock import Clock

T = TypeVar("T")


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`; cancel it when it takes longer than `seconds`.

    Returns only after `work` has ended, so that no part of it still runs.

    Raises:
        TimeoutError: `work` took too long.
    """
    task = asyncio.ensure_future(work)
    alarm = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait({task, alarm}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise TimeoutError(f"took longer than {seconds:g} s")
    finally:
        alarm.cancel()
        await cancel_and_wait(task)


async def cancel_and_wait(task: asyncio.Future[Any]) -> None:
    """Cancel `task` if it runs, and return when it has ended; its result or error is dropped."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # read the error, else asyncio reports that it was never retrieved
