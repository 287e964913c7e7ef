"""The ways in which a campaign takes the lead from a controller process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.controlplane.cluster import Cluster
from tests.integration.controlplane.processes import Process
from tests.integration.failover import NAME, Contender, Election, by_relay, contender
from tests.integration.network import Relay

TIMES = Election(lease=4, renew=2.5, retry=0.5)
STRANGER = "nobody-that-runs"
"""Holder of the lease for the second in which a leader loses it to a process that does not exist."""
HAND_OVER_SECONDS = 60.0
"""When nobody leads for so long after a fault, the campaign says so and ends."""
STARVED_SECONDS = 15.0
BUSY_LOOPS = 60
"""Busy processes beside the leader, all on one CPU: its share is a sixtieth."""
_POLL = 0.05
_WON = "leadership won"
_BUSY = "import time\nend = time.monotonic() + float(__import__('sys').argv[1])\nwhile time.monotonic() < end: pass"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/" + NAME


class NoLeaderError(Exception):
    """Nobody led within `HAND_OVER_SECONDS`."""


@dataclass(slots=True)
class Pair:
    """Two controller processes, each behind a network of its own that can fail."""

    cluster: Cluster
    folder: Path
    namespace: str
    stack: AsyncExitStack
    relays: dict[str, Relay] = field(default_factory=dict)
    kubeconfigs: dict[str, Path] = field(default_factory=dict)
    running: dict[str, Contender] = field(default_factory=dict)

    async def start(self, name: str) -> None:
        """Start the process of this name, or start it again."""
        if name not in self.relays:
            way = by_relay(self.cluster.kubeconfig, self.cluster, self.folder, name)
            self.relays[name], self.kubeconfigs[name] = await self.stack.enter_async_context(way)
        made = contender(name, self.kubeconfigs[name], self.folder, self.namespace, times=TIMES)
        self.running[name] = await self.stack.enter_async_context(made)

    async def leader(self, *, other_than: Contender | None = None, since: float = 0.0) -> tuple[Contender, float]:
        """The process that leads and when it won (Unix time), as soon as one won after `since`.

        Raises:
            NoLeaderError: none did in time.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HAND_OVER_SECONDS):
                while True:
                    alive = [each for each in self.running.values() if each.process.returncode is None]
                    won = [(each.times(_WON)[-1], each) for each in alive if each is not other_than and each.leads]
                    # A process that was frozen has not logged yet that it lost the lead: the last winner leads.
                    if won and (latest := max(won, key=lambda pair: pair[0]))[0] > since:
                        return latest[1], latest[0]
                    await asyncio.sleep(_POLL)
        raise NoLeaderError("\n".join(f"{each.name}:\n{each.tail()}" for each in self.running.values()))

    def follower_of(self, leader: Contender) -> Contender:
        """The other process."""
        return next(each for each in self.running.values() if each is not leader)

    async def warm(self) -> Contender:
        """The leader, when both processes run and say that they are ready."""
        for name, each in list(self.running.items()):
            if each.process.returncode is not None:
                await self.start(name)
        for each in self.running.values():
            await each.until_ready(HAND_OVER_SECONDS)
        return (await self.leader())[0]


@asynccontextmanager
async def pair(cluster: Cluster, folder: Path) -> AsyncIterator[Pair]:
    """Two controllers that compete for one lease; both are ended with the block."""
    async with AsyncExitStack() as stack:
        both = Pair(cluster, folder, await cluster.create_namespace("election"), stack)
        await both.start("one")
        await both.start("two")
        yield both


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """How one fault went."""

    lost: bool
    """False: the leader kept the lead, which is no loss."""
    seconds: float = 0.0
    """From the fault to the moment at which a process led again."""


Fault = Callable[[Pair, Contender, random.Random], Awaitable[Loss]]


async def kill(both: Pair, leader: Contender, _: random.Random) -> Loss:
    """SIGKILL; the other process takes over, and the killed one is started again."""
    began = time.time()
    leader.signal(signal.SIGKILL)
    await leader.ended()
    _leader, won = await both.leader(other_than=leader, since=began)
    await both.start(leader.name)
    return Loss(lost=True, seconds=won - began)


async def stop(both: Pair, leader: Contender, chance: random.Random) -> Loss:
    """SIGSTOP until the other process leads and a moment longer, then SIGCONT."""
    began = time.time()
    leader.signal(signal.SIGSTOP)
    try:
        _leader, won = await both.leader(other_than=leader, since=began)
        await asyncio.sleep(chance.uniform(0, 1))  # how long a machine pauses is not for the leader to choose
    finally:
        leader.signal(signal.SIGCONT)
    return Loss(lost=True, seconds=won - began)


async def cut(both: Pair, leader: Contender, chance: random.Random) -> Loss:
    """The connection to the API server hangs, or is reset and then hangs, until the other process leads."""
    relay, began = both.relays[leader.name], time.time()
    relay.silence()
    if chance.random() < 0.5:
        relay.cut()
    try:
        _leader, won = await both.leader(other_than=leader, since=began)
        await asyncio.sleep(chance.uniform(0, 1))
    finally:
        relay.resume()
    return Loss(lost=True, seconds=won - began)


async def regain(both: Pair, leader: Contender, chance: random.Random) -> Loss:
    """The leader loses the lease and wins it again seconds later in the same process, while the other one is frozen.

    A leader that was slow for as long as the stranger's lease lasts renews its own as if nothing had been: no loss.
    """
    follower, began = both.follower_of(leader), time.time()
    follower.signal(signal.SIGSTOP)
    try:
        if chance.random() < 0.5:
            await _give_to_a_stranger(both)
            with contextlib.suppress(TimeoutError):
                await _loses(leader, began)
        else:
            both.relays[leader.name].silence()
            await _loses(leader, began)
            await asyncio.sleep(chance.uniform(0, 1))
            both.relays[leader.name].resume()
        if not _has_lost(leader, began) and leader.process.returncode is None:
            return Loss(lost=False)
        if leader.process.returncode is not None:  # its work did not end in time, so it ended itself
            follower.signal(signal.SIGCONT)
        _leader, won = await both.leader(since=began)
    finally:
        both.relays[leader.name].resume()
        follower.signal(signal.SIGCONT)
    return Loss(lost=True, seconds=won - began)


async def starve(both: Pair, leader: Contender, _: random.Random) -> Loss:
    """Busy loops share one CPU with the leader until it has lost the lead, or `STARVED_SECONDS` have passed."""
    began = time.time()
    with busy_beside(leader.process.pid, both.folder), contextlib.suppress(TimeoutError):
        await _loses(leader, began, STARVED_SECONDS)
    if not _has_lost(leader, began) and leader.process.returncode is None:
        return Loss(lost=False)
    _leader, won = await both.leader(since=began)
    return Loss(lost=True, seconds=won - began)


FAULTS: dict[str, Fault] = {"kill": kill, "stop": stop, "cut": cut, "regain": regain, "starve": starve}


async def _give_to_a_stranger(both: Pair) -> None:
    """Write a holder that does not exist into the lease, for one second."""
    path = _LEASES.format(namespace=both.namespace)
    spec = {"holderIdentity": STRANGER, "leaseDurationSeconds": 1}
    content_type = "application/merge-patch+json"
    await both.cluster.request("PATCH", path, {"spec": spec}, content_type=content_type)


def _has_lost(leader: Contender, since: float) -> bool:
    return any(at > since for at in leader.times("leadership lost"))


async def _loses(leader: Contender, since: float, seconds: float = HAND_OVER_SECONDS) -> None:
    """Wait until the leader has said that it does not lead any more, or has ended.  Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not _has_lost(leader, since) and leader.process.returncode is None:
            await asyncio.sleep(_POLL)


@contextmanager
def busy_beside(pid: int, folder: Path) -> Iterator[None]:
    """The process and many busy loops share one CPU while the block runs (Linux; elsewhere the loops are anywhere)."""
    cpus = os.sched_getaffinity(pid) if hasattr(os, "sched_getaffinity") else set()
    one = {max(cpus)} if cpus else set()
    argv = [sys.executable, "-I", "-S", "-c", _BUSY, str(2 * STARVED_SECONDS)]
    loops: list[Process] = []
    try:
        _pin(pid, one)
        for _ in range(BUSY_LOOPS):
            loops.append(Process.start(argv, logs=folder))
            _pin(loops[-1].pid, one)
        yield
    finally:
        for each in loops:
            each.stop()
        _pin(pid, cpus)


def _pin(pid: int, cpus: set[int]) -> None:
    """Let a process run on these CPUs only; nothing happens without any, or when the process is gone."""
    if cpus:
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(pid, cpus)
