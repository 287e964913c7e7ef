"""The common base of doubles of controllers that the real control plane does not have."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def playing(double: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """The double acts while the block runs."""
    task = asyncio.create_task(double)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
