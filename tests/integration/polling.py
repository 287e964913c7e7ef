"""Waits for a state of another process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def eventually(true: Callable[[], bool], within: float = 30.0) -> None:
    """Return as soon as `true` holds; fail if it does not within so many seconds."""
    async with asyncio.timeout(within):
        while not true():
            await asyncio.sleep(0.01)
