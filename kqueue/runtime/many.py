"""Calls for many objects, some at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from kqueue.errors import KqueueError

T = TypeVar("T")


async def each(items: Iterable[T], act: Callable[[T], Awaitable[object]], *, at_once: int) -> None:
    """Call `act` with each item, `at_once` of them at a time; the first error is raised after all items were tried.

    Without items no task is started.
    """
    every = list(items)
    todo = iter(every)
    failed: list[KqueueError] = []

    async def work() -> None:
        for item in todo:
            try:
                await act(item)
            except KqueueError as e:
                failed.append(e)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(at_once, len(every))):
            tasks.create_task(work())
    if failed:
        raise failed[0]
