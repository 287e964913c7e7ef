"""A controller in this process that dies, as by SIGKILL, at a chosen write, and the controllers that come after it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from kqueue.clock import SystemClock
from kqueue.config import Configuration, Timings
from kqueue.manager.operator import PARTS, Operator
from kqueue.observe import Checks, Metrics
from kqueue.runtime.client import Client
from kqueue.runtime.kubeconfig import find_cluster
from kqueue.runtime.lane import Lane
from kqueue.runtime.transport import Call
from tests.sim.api_client import KilledError

_TIMINGS = Timings(queue_flush_window=0.1, status_refresh_window=0.2)
_BESIDE = frozenset({"webhooks"})
"""Parts of other processes, which live on."""


class Fate:
    """The write before or `after` which a controller dies; `at` 0: it does not die.

    Only writes below a path with `within` count, and no events: no decision depends on these.
    """

    def __init__(self, at: int = 0, *, after: bool = False, within: str = "") -> None:
        self.at, self.after, self.within = at, after, within
        self.writes: list[str] = []
        """The writes that counted, as `PATCH /api/v1/...`."""
        self.dead = asyncio.Event()

    @property
    def struck(self) -> bool:
        """Whether there was such a write."""
        return 0 < self.at <= len(self.writes)

    def strikes(self, call: Call) -> bool:
        """Whether the controller dies at this request; counts it."""
        if call.method == "GET" or call.lane is Lane.EVENTS or self.within not in call.path:
            return False
        self.writes.append(f"{call.method} {call.path}")
        return len(self.writes) == self.at


class MortalClient(Client):
    """The product's client, whose process may die: then it sends nothing more, and no answer reaches it."""

    fate: Fate

    async def _send(self, call: Call, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        fate = self.fate
        if fate.dead.is_set():
            raise KilledError
        struck = fate.strikes(call)
        if struck and not fate.after:
            fate.dead.set()
            raise KilledError
        response = await super()._send(call, timeout)
        if struck:
            await response.read()
            fate.dead.set()
        if fate.dead.is_set():
            response.close()
            raise KilledError
        return response


@asynccontextmanager
async def mortal(kubeconfig: Path, configuration: Configuration, fate: Fate) -> AsyncIterator[None]:
    """Run a controller with this fate during the block, and another one from its death on; its webhooks are elsewhere.

    An error that ends one of them fails the block.
    """
    async with asyncio.TaskGroup() as group:
        work = group.create_task(_one_after_the_other(kubeconfig, configuration, fate))
        try:
            yield
        finally:
            work.cancel()


async def _one_after_the_other(kubeconfig: Path, configuration: Configuration, fate: Fate) -> None:
    await _live(kubeconfig, configuration, fate)
    await _live(kubeconfig, configuration, Fate())


async def _live(kubeconfig: Path, configuration: Configuration, fate: Fate) -> None:
    """Run one controller until it dies."""
    clock = SystemClock()
    client = MortalClient(await find_cluster(kubeconfig, None), clock=clock)
    client.fate = fate
    operator = Operator(
        client=client,
        config=configuration,
        timings=_TIMINGS,
        clock=clock,
        metrics=Metrics(clock=clock),
        checks=Checks(),
        parts=frozenset(PARTS) - _BESIDE,
    )
    work, death = asyncio.create_task(operator.run()), asyncio.create_task(fate.dead.wait())
    try:
        await asyncio.wait({work, death}, return_when=asyncio.FIRST_COMPLETED)
        if work.done() and not fate.dead.is_set():
            work.result()
    finally:
        fate.dead.set()  # at the end of a block, too: nothing is drained
        for task in (work, death):
            task.cancel()
        await asyncio.wait({work, death})
        await client.close()
        gc.unfreeze()  # each controller has frozen what it found, which is right for a process that has only one
