"""Fixtures with worlds that are closed after the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.unit.controllers.workload_world import Workloads


@pytest.fixture
async def make_world() -> AsyncIterator[Callable[..., Workloads]]:
    worlds: list[Workloads] = []

    def build(*args: Any, **settings: Any) -> Workloads:
        worlds.append(Workloads(*args, **settings))
        return worlds[-1]

    yield build
    for world in worlds:
        await world.close()
