"""Two controllers on a real control plane under load: whatever happens to the one that leads, nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from kqueue.clock import SystemClock
from kqueue.config import Timings
from kqueue.config import load as load_configuration
from kqueue.manager.process import Flags, running
from kqueue.sandbox.simulated_kinds import SIMULATED
from tests.integration.conftest import CRDS
from tests.integration.controlplane.certificates import KeyPair, issue_client
from tests.integration.controlplane.command_lines import ALL_PARTS
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.failover import (
    LEASE,
    REMEMBERED,
    RENEW,
    RETRY,
    SLACK,
    TAKEN_WITHIN,
    Account,
    Contender,
    Load,
    by_gateway,
    by_relay,
    contender,
    leader_of,
    load,
    redirected,
    write_configuration,
)
from tests.integration.network import Gateway, Relay

pytestmark = [pytest.mark.slow, pytest.mark.controlplane]
SELDOM = pytest.mark.seldom


class Pair:
    """Two contenders, each with a way of its own to the API server."""

    def __init__(self, ways: dict[str, Gateway | Relay], contenders: list[Contender]) -> None:
        self.ways, self.contenders = ways, contenders

    async def sorted_by_rank(self) -> tuple[Contender, Contender]:
        """The leader, and the follower, which is warm."""
        leader = await leader_of(*self.contenders)
        follower = next(each for each in self.contenders if each is not leader)
        await leader.until_ready()
        await follower.until_ready()
        return leader, follower

    def way(self, of: Contender) -> Gateway | Relay:
        return self.ways[of.name]


@asynccontextmanager
async def pair(plane: ControlPlane, folder: Path, namespace: str, way: str) -> AsyncIterator[Pair]:
    """Both are started; `way` is direct, gateway or relay."""
    async with AsyncExitStack() as stack:
        ways: dict[str, Gateway | Relay] = {}
        contenders = []
        for name in ("one", "two"):
            kubeconfig = plane.kubeconfig
            if way != "direct":
                make: Any = by_gateway if way == "gateway" else by_relay
                ways[name], kubeconfig = await stack.enter_async_context(
                    make(plane.kubeconfig, plane.cluster, folder, name)
                )
            contenders.append(await stack.enter_async_context(contender(name, kubeconfig, folder, namespace)))
        yield Pair(ways, contenders)


async def taken_over(gangs: Load, by: Contender, since: float, *, within: float) -> tuple[float, float]:
    """Seconds from `since` (Unix time) until another one led, and until it first reserved quota; printed and judged."""
    await gangs.more(4)  # for there must be something to be decided
    await leader_of(by, seconds=within + 20)
    took = by.times("leadership won")[-1] - since
    await gangs.more(1)  # a leader whose token the API server remembers may have admitted all others before its end
    async with asyncio.timeout(30):
        while not by.times("quota reserved"):
            await asyncio.sleep(0.05)
    decided = by.times("quota reserved")[0] - since
    print(f"\nhanded over after {took:.2f} s, first admission after {decided:.2f} s (bound {within:.1f} s)")
    assert took <= within + SLACK, by.tail()
    return took, decided


async def test_a_leader_that_is_killed_is_followed_within_a_lease(plane: ControlPlane, tmp_path: Path) -> None:
    """SIGKILL: nobody gives the lease back, so it has to run out."""
    namespace = await plane.cluster.create_namespace("election")
    async with load(plane.cluster) as gangs, pair(plane, tmp_path, namespace, "direct") as both:
        leader, follower = await both.sorted_by_rank()
        await gangs.until_complete(3)
        killed = time.time()
        leader.signal(signal.SIGKILL)
        await leader.ended()
        await taken_over(gangs, follower, killed, within=TAKEN_WITHIN)
        await gangs.until_complete(len(gangs.names))


async def test_a_leader_that_is_told_to_end_finishes_its_writes_and_hands_over(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """SIGTERM with writes under way, each of which takes half a second: all are answered, no new ones are begun after
    the drain, the lease is given back, and the successor leads one look later.
    """
    namespace = await plane.cluster.create_namespace("election")
    async with load(plane.cluster) as gangs, pair(plane, tmp_path, namespace, "gateway") as both:
        leader, follower = await both.sorted_by_rank()
        gateway = both.way(leader)
        assert isinstance(gateway, Gateway)
        gateway.write_delay = 0.5
        await gangs.until_complete(3)
        async with asyncio.timeout(30):
            while not any(write.status == 0 and write.is_decision for write in gateway.writes):
                await asyncio.sleep(0.01)
        told = time.time()
        under_way = [write for write in gateway.writes if write.status == 0 and write.is_decision]
        leader.signal(signal.SIGTERM)
        assert await leader.ended() == 0
        ended = time.time() - told
        took, _ = await taken_over(gangs, follower, told, within=LEASE)
        [released] = leader.times("lease released")
        print(
            f"{len(under_way)} writes under way, lease released after {released - told:.2f} s, exit after {ended:.2f} s"
        )

        cut_off = [write for write in gateway.writes if write.is_decision and not write.status]
        assert cut_off == []
        assert took - (released - told) <= 1.2 * RETRY + SLACK
        await gangs.until_complete(len(gangs.names))


async def test_a_leader_that_was_frozen_does_not_write_when_it_goes_on(plane: ControlPlane, tmp_path: Path) -> None:
    """SIGSTOP for longer than the lease, then SIGCONT: it knows at once that its time is over, and follows."""
    namespace = await plane.cluster.create_namespace("election")
    async with load(plane.cluster) as gangs, pair(plane, tmp_path, namespace, "gateway") as both:
        leader, follower = await both.sorted_by_rank()
        gateway = both.way(leader)
        assert isinstance(gateway, Gateway)
        await gangs.until_complete(3)
        frozen = time.time()
        leader.signal(signal.SIGSTOP)
        await taken_over(gangs, follower, frozen, within=TAKEN_WITHIN)
        await asyncio.sleep(max(0.0, LEASE + 2 - (time.time() - frozen)))
        before = len(gateway.writes)
        leader.signal(signal.SIGCONT)
        await leader.until_ready()
        await gangs.until_complete(len(gangs.names))

        # a request that it was sending when it was frozen may still arrive; the API server refuses it
        written = [w for w in gateway.writes[before:] if w.is_decision]
        assert [w for w in written if w.status != HTTPStatus.CONFLICT] == []
        assert len(written) <= 1
        assert (leader.leads, follower.leads) == (False, True)
        assert leader.process.returncode is None, "it follows, it need not be started again"


@pytest.mark.parametrize("fault", [pytest.param("silence", marks=SELDOM), "cut", pytest.param("delay", marks=SELDOM)])
async def test_a_leader_whose_network_fails_goes_in_time(plane: ControlPlane, tmp_path: Path, fault: str) -> None:
    """Connections that hang or are reset for longer than a lease cost it the lead before another one gets it; a slow
    network costs nothing.
    """
    namespace = await plane.cluster.create_namespace("election")
    async with load(plane.cluster) as gangs, pair(plane, tmp_path, namespace, "relay") as both:
        leader, follower = await both.sorted_by_rank()
        relay = both.way(leader)
        assert isinstance(relay, Relay)
        await gangs.until_complete(3)
        failed = time.time()
        if fault == "delay":
            relay.delay = 0.1
            await gangs.until_complete(12, seconds=90)
            assert (leader.leads, leader.times("leadership lost")) == (True, [])
            relay.delay = 0.0
            await gangs.until_complete(len(gangs.names))
            return
        relay.silence()
        if fault == "cut":
            relay.cut()
        took, _ = await taken_over(gangs, follower, failed, within=TAKEN_WITHIN)
        lost = leader.times("leadership lost")
        ended = leader.process.returncode is not None
        print(f"the former leader {'ended' if ended else f'noticed after {lost[0] - failed:.2f} s'}")
        assert ended or (lost and lost[0] - failed <= min(took, RENEW + RETRY + SLACK))
        await gangs.until_complete(8)
        relay.resume()
        if not ended:
            await leader.until_ready()
        await gangs.until_complete(len(gangs.names))
        assert (leader.leads, follower.leads) == (False, True)


async def test_tokens_are_rotated_under_a_leader(plane: ControlPlane, tmp_path: Path) -> None:
    """A new token in the file before the former one ends costs nobody the lead; one that ends without a successor does,
    and another one with a token of its own takes over; the first one follows when its file is renewed.
    """
    namespace = await plane.cluster.create_namespace("election")
    accounts = {name: Account(plane.cluster, namespace, name, tmp_path) for name in ("one", "two")}
    async with load(plane.cluster) as gangs, AsyncExitStack() as stack:
        contenders = []
        for name, account in accounts.items():
            await account.create()
            path = tmp_path / f"{name}.kubeconfig"
            kubeconfig = redirected(plane.kubeconfig, path, plane.cluster.url, tokenFile=str(account.file))
            contenders.append(await stack.enter_async_context(contender(name, kubeconfig, tmp_path, namespace)))
        leader, follower = await Pair({}, contenders).sorted_by_rank()
        own = accounts[leader.name]

        await own.expire(await own.renew())
        await gangs.until_complete(6)
        assert (leader.leads, leader.times("leadership lost")) == (True, [])

        refused = await own.expire()
        await taken_over(gangs, follower, refused, within=REMEMBERED + TAKEN_WITHIN)
        await own.renew()
        await leader.until_ready()
        await gangs.until_complete(len(gangs.names))
        assert (leader.leads, follower.leads) == (False, True)
        assert leader.process.returncode is None, "it follows, it need not be started again"


@SELDOM
async def test_client_certificates_are_rotated_under_a_leader(plane: ControlPlane, tmp_path: Path) -> None:
    """New files are there before the former certificate ends; when it has ended and all connections are cut, the
    leader comes back with the new one within its lease.
    """
    namespace = await plane.cluster.create_namespace("election")
    files = KeyPair(tmp_path / "client.crt", tmp_path / "client.key")
    ends = issue_client(plane.layout.certificates, files, seconds=25)
    url = urlsplit(plane.cluster.url)
    assert url.hostname
    assert url.port
    async with load(plane.cluster) as gangs, Relay(url.hostname, url.port).serving() as relay:
        user = {"client-certificate": str(files.certificate), "client-key": str(files.key)}
        address = f"{url.scheme}://127.0.0.1:{relay.port}"
        kubeconfig = redirected(plane.kubeconfig, tmp_path / "rotated.kubeconfig", address, **user)
        async with contender("one", kubeconfig, tmp_path, namespace) as only:
            await leader_of(only)
            await gangs.until_complete(3)
            issue_client(plane.layout.certificates, files, seconds=3600)
            await asyncio.sleep(max(0.0, ends + 2 - time.time()))  # what ends a certificate is the real clock
            relay.cut()
            await gangs.until_complete(len(gangs.names))
            assert (only.leads, only.times("leadership lost")) == (True, [])


class JumpingClock(SystemClock):
    """A wall clock that somebody sets."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.ahead


async def test_steps_of_the_wall_clock_cost_nothing(plane: ControlPlane, tmp_path: Path) -> None:
    """Ten minutes ahead, then ten behind, under load: the lead stays, and every gang is started once.

    A step that is longer than `waitForPodsReady.timeout` evicts whose pods are not ready yet: that time is a stored one.
    """
    namespace = await plane.cluster.create_namespace("election")
    clock = JumpingClock()
    configuration = load_configuration(write_configuration(tmp_path, namespace))
    flags = Flags(
        kubeconfig=plane.kubeconfig,
        parts=frozenset({"core", "jobs", "scheduler", "topology"}),
        health_address="0",
        metrics_address="0",
    )
    async with (
        load(plane.cluster) as gangs,
        running(configuration, flags, clock=clock, timings=Timings(queue_flush_window=0.1)) as leader,
    ):
        await asyncio.wait_for(leader.operator.ready.wait(), 40)
        async with contender("two", plane.kubeconfig, tmp_path, namespace) as follower:
            await follower.until_ready()
            await gangs.until_complete(3)
            for minutes in (10, -10, 0):
                clock.ahead = timedelta(minutes=minutes)
                await gangs.more(3)
                await asyncio.sleep(LEASE + RETRY)  # by then a lead that the step had cost would have changed hands
                assert (leader.operator.may_write(), follower.leads) == (True, False)
            await gangs.until_complete(len(gangs.names))


async def test_an_api_server_that_restarts_is_found_again(tmp_path: Path) -> None:
    """Away for longer than the renew deadline: whoever led stops, one leads again soon after it is back, and goes on."""
    (tmp_path / "plane").mkdir()
    async with ControlPlane.start(tmp_path / "plane", parts=ALL_PARTS, crds=(CRDS, SIMULATED)) as plane:
        namespace = await plane.cluster.create_namespace("election")
        async with load(plane.cluster) as gangs, pair(plane, tmp_path, namespace, "direct") as both:
            await both.sorted_by_rank()
            await gangs.until_complete(3)
            went = time.time()
            await plane.restart_api_server(away=RENEW)
            back = time.time()
            async with asyncio.timeout(60):
                while not (led := [t for each in both.contenders for t in each.times("leadership won") if t > went]):
                    await asyncio.sleep(0.05)
            print(f"\nthe API server was ready after {back - went:.1f} s, one led after {led[0] - went:.1f} s")
            assert led[0] - back <= TAKEN_WITHIN + SLACK
            await gangs.until_complete(len(gangs.names), seconds=90)
            assert sum(each.leads for each in both.contenders) == 1
            assert all(each.process.returncode is None for each in both.contenders)
