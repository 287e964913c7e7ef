"""Probes and metrics over HTTP."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest
from aiohttp import web

from kqueue.errors import ConfigError
from kqueue.observe import Checks, HealthServer, HttpEndpoint, Metrics, Route
from kqueue.observe.health import ProbePaths
from tests.readings import failing

FREE = "127.0.0.1:0"


def probes(address: str = FREE) -> HttpEndpoint:
    """The probes' endpoint."""
    return HttpEndpoint(setting="health.healthProbeBindAddress", bind_address=address)


def metrics_on(address: str = FREE) -> HttpEndpoint:
    """The metrics' endpoint."""
    return HttpEndpoint(setting="metrics.bindAddress", bind_address=address)


class Site:
    """A running server and how to read from it."""

    def __init__(self, checks: Checks, server: HealthServer) -> None:
        self.checks, self.server = checks, server

    async def get(self, path: str, setting: str = "health.healthProbeBindAddress") -> tuple[int, str]:
        """Status and body."""
        address = self.server.addresses[setting]
        async with aiohttp.ClientSession() as session, session.get(f"http://{address}{path}") as response:
            return response.status, await response.text()


async def _hello(request: web.BaseRequest) -> web.Response:
    return web.Response(text="hello")


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Site]]:
    """Makes servers that are stopped at the end."""
    made: list[HealthServer] = []

    def site(**options: object) -> Site:
        checks = Checks()
        server = HealthServer(checks=checks, metrics=Metrics(), **options)  # type: ignore[arg-type]
        made.append(server)
        return Site(checks, server)

    yield site
    for server in made:
        await server.stop()


async def test_a_live_process_is_live_even_when_not_ready(make: Callable[..., Site]) -> None:
    """Restarting does not help a process that waits for its watches."""
    site = make()
    site.checks.add("watch pods", lambda: "not synced")
    await site.server.start(probes=probes(), metrics=metrics_on())
    assert await site.get("/healthz") == (200, "ok\n")


async def test_readiness_names_each_failing_check(make: Callable[..., Site]) -> None:
    """503 with one line per failing check and its reason; 200 when all pass; verbose lists the passing ones."""
    site = make()
    reasons: dict[str, str | None] = {"watch pods": "no sign of life for 200 s", "lease": None}
    for name in reasons:
        site.checks.add(name, lambda name=name: reasons[name])  # type: ignore[misc]
    await site.server.start(probes=probes(), metrics=metrics_on())
    assert await site.get("/readyz") == (503, "[-] watch pods: no sign of life for 200 s\nnot ready\n")
    assert (await site.get("/readyz?verbose"))[1].splitlines()[1] == "[+] lease: ok"
    assert failing(site.checks) == {"watch pods": "no sign of life for 200 s"}
    reasons["watch pods"] = None
    assert await site.get("/readyz") == (200, "ok\n")


async def test_a_broken_check_means_not_ready(make: Callable[..., Site]) -> None:
    """A check that raises is a failing check, and can be removed."""
    site = make()
    site.checks.add("bug", lambda: str(1 // 0))
    await site.server.start(probes=probes(), metrics=metrics_on())
    status, body = await site.get("/readyz")
    assert (status, "ZeroDivisionError" in body) == (503, True)
    site.checks.remove("bug")
    assert (await site.get("/readyz"))[0] == 200


async def test_metrics_and_routes_are_served_apart_from_probes(make: Callable[..., Site]) -> None:
    """Each address answers its own paths only."""
    site = make(routes=[Route("/debug/hello", _hello)])
    await site.server.start(probes=probes(), metrics=metrics_on())
    status, body = await site.get("/metrics", "metrics.bindAddress")
    assert (status, "kueue_build_info" in body) == (200, True)
    assert await site.get("/debug/hello", "metrics.bindAddress") == (200, "hello")
    assert (await site.get("/metrics"))[0] == 404
    assert (await site.get("/readyz", "metrics.bindAddress"))[0] == 404


async def test_both_may_share_one_address(make: Callable[..., Site], unused_tcp_port: int) -> None:
    """The same address for both is one server with all paths."""
    site = make()
    address = f"127.0.0.1:{unused_tcp_port}"
    await site.server.start(probes=probes(address), metrics=metrics_on(address))
    assert (await site.get("/metrics"))[0] == 200
    assert (await site.get("/readyz", "metrics.bindAddress"))[0] == 200


async def test_paths_can_be_renamed(make: Callable[..., Site]) -> None:
    """The configuration may name the probes' paths."""
    site = make(paths=ProbePaths(readiness="/ready", liveness="/live"))
    await site.server.start(probes=probes(), metrics=metrics_on("0"))
    assert [(await site.get(path))[0] for path in ("/ready", "/live", "/readyz")] == [200, 200, 404]
    assert "metrics.bindAddress" not in site.server.addresses


async def test_unauthorized_readers_are_refused(make: Callable[..., Site]) -> None:
    """Whoever may not read metrics gets the guard's answer, also for the other pages; probes stay open."""

    async def needs_token(request: web.Request) -> web.Response | None:
        return None if "Authorization" in request.headers else web.Response(status=403)

    site = make(guard=needs_token, routes=[Route("/debug/hello", _hello)])
    await site.server.start(probes=probes(), metrics=metrics_on())
    assert (await site.get("/metrics", "metrics.bindAddress"))[0] == 403
    assert (await site.get("/debug/hello", "metrics.bindAddress"))[0] == 403
    assert (await site.get("/healthz"))[0] == 200


async def test_probes_and_metrics_do_not_share_an_address_where_the_latter_are_secured(
    make: Callable[..., Site],
) -> None:
    """Kubelets ask without TLS and without a token; scrapers must not be able to."""
    site = make()
    with pytest.raises(ConfigError, match=r"metrics\.bindAddress: .* choose another port"):
        await site.server.start(
            probes=HttpEndpoint(setting="health.healthProbeBindAddress", bind_address="127.0.0.1:18099"),
            metrics=HttpEndpoint(
                setting="metrics.bindAddress",
                bind_address="127.0.0.1:18099",
                tls=ssl.create_default_context(ssl.Purpose.CLIENT_AUTH),
            ),
        )


async def test_writing_is_no_option(make: Callable[..., Site]) -> None:
    """All routes are read-only."""
    site = make()
    await site.server.start(probes=probes(), metrics=metrics_on())
    address = site.server.addresses["metrics.bindAddress"]
    async with aiohttp.ClientSession() as session, session.post(f"http://{address}/metrics") as response:
        assert response.status == 405


async def test_a_taken_port_is_named_with_the_remedy(make: Callable[..., Site]) -> None:
    """The error names the setting and the address; what was opened before is closed again."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        site = make()
        with pytest.raises(
            ConfigError, match=rf"metrics.bindAddress: {address}: address already in use; .* switch it off"
        ):
            await site.server.start(probes=probes(), metrics=metrics_on(address))
        assert site.server.addresses == {}


@pytest.mark.parametrize(
    ("address", "want"),
    [
        pytest.param("192.0.2.1:8080", "is no address of this machine", id="foreign-address"),
        pytest.param("nonsense", "host:port", id="malformed"),
    ],
)
async def test_an_unusable_address_is_named(make: Callable[..., Site], address: str, want: str) -> None:
    """Addresses that are not ours or not addresses are refused with the setting's name."""
    with pytest.raises(ConfigError, match=f"health.healthProbeBindAddress: .*{want}"):
        await make().server.start(probes=probes(address), metrics=metrics_on("0"))
