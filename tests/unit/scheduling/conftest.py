"""Fixtures with scheduling loops."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.unit.scheduling.scheduled import Scheduled


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Scheduled]]:
    worlds: list[Scheduled] = []

    def build(*objects: Any, **more: Any) -> Scheduled:
        worlds.append(Scheduled(*objects, **more))
        return worlds[-1]

    yield build
    for world in worlds:
        await world.close()
