"""Fixtures for tests of commands."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kqueue.api.crd_files import crd_folder
from kqueue.runtime.client import Client
from kqueue.sandbox import Sandbox, SandboxOptions


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """An API server without anybody who works on what is in it."""
    started = Sandbox(SandboxOptions(parts=frozenset({"server"}), crds=(crd_folder(),)))
    await started.start()
    try:
        yield started
    finally:
        await started.stop()


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    async with Client(sandbox.url) as connected:
        yield connected
