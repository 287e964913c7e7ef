"""A time limit on the clock that was handed in, so that simulations own it too."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from kqueue.clock import Clock

T = TypeVar("T")


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when it takes longer than `seconds`.

    Returns only when `work` has ended, so that nothing of it goes on behind the caller's back.

    Raises:
        TimeoutError: it took too long.
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
    """Cancel `task` if it runs, and return when it has ended; its outcome, an error included, is dropped."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # read, or asyncio reports that nobody did
