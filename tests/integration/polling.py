"""Waits for a state of another process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime


async def eventually(true: Callable[[], bool], within: float = 30.0) -> None:
    """Return as soon as `true` holds; fail if it does not within so many seconds."""
    async with asyncio.timeout(within):
        while not true():
            await asyncio.sleep(0.01)


async def next_second() -> None:
    """Wait for the next second: creation times of objects have no fractions, and equal times are decided by UID."""
    now = datetime.now(UTC).replace(microsecond=0)
    while datetime.now(UTC).replace(microsecond=0) == now:
        await asyncio.sleep(0.01)
