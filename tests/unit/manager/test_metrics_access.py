"""Who may read metrics, and over what."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import cast

import aiohttp
import pytest

from kqueue.clock import FakeClock, SystemClock
from kqueue.config import Configuration
from kqueue.errors import ConfigError, TooManyRequestsError, UnreachableError
from kqueue.manager.metrics_access import certificate, guard
from kqueue.observe import Checks, HealthServer, HttpEndpoint, Metrics
from kqueue.runtime.certificates import make_bundle, write_bundle
from kqueue.visibility.front_proxy import User
from kqueue.visibility.rights import Action, Rights
from tests.unit.visibility.doors import Judge

SCRAPER = User(name="scraper", groups=())


@asynccontextmanager
async def served(judge: Judge, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The metrics page behind the guard; its URL."""
    server = HealthServer(checks=Checks(), metrics=Metrics(), guard=guard(cast("Rights", judge)))
    await server.start(
        probes=HttpEndpoint(setting="probes", bind_address="0"),
        metrics=HttpEndpoint(setting="metrics", bind_address="127.0.0.1:0", tls=tls),
    )
    try:
        yield f"{'http' if tls is None else 'https'}://{server.addresses['metrics']}/metrics"
    finally:
        await server.stop()


@pytest.mark.parametrize(
    ("header", "judge", "status", "says"),
    [
        pytest.param("Bearer good", Judge, 200, "kueue_build_info", id="who may"),
        pytest.param("bearer   good", Judge, 200, "kueue_build_info", id="schemes have no case"),
        pytest.param("Bearer good", lambda **k: Judge(allowed=False, **k), 403,
                     'User "scraper" cannot get path "/metrics"; bind ClusterRole kqueue-metrics-reader', id="who may not"),
        pytest.param("Bearer bad", Judge, 401, "does not know this token", id="a token of nobody"),
        pytest.param("Bearer ", Judge, 401, "send the bearer token", id="an empty token"),
        pytest.param("Basic good", Judge, 401, "send the bearer token", id="another scheme"),
        pytest.param("", Judge, 401, "send the bearer token", id="nothing"),
        pytest.param("Bearer good", lambda **k: Judge(failure=UnreachableError("down"), **k), 503, "did not say",
                     id="nobody to ask"),
        pytest.param("Bearer good", lambda **k: Judge(failure=TooManyRequestsError("many", status=429), **k), 429,
                     "too many", id="a flood of tokens"),
    ],
)  # fmt: skip
async def test_the_api_server_says_who_may_read(
    header: str, judge: Callable[..., Judge], status: int, says: str
) -> None:
    """By a token that it knows, for the path itself; without its word nobody reads."""
    asked = judge(tokens={"good": SCRAPER})
    sent = {"Authorization": header} if header else {}
    async with (
        served(asked) as url,
        aiohttp.ClientSession() as session,
        session.get(url, headers=sent) as answer,
    ):
        text = await answer.text()

    assert (answer.status, says in text) == (status, True), text
    assert ("kueue_build_info" in text) is (status == 200)
    assert asked.asked == ([(SCRAPER, Action(verb="get", path="/metrics"))] if status in (200, 403) else [])


async def test_the_page_is_served_over_tls_with_a_certificate_of_its_own() -> None:
    """Where none is mounted; nobody can verify it, and plain HTTP is not answered."""
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    token = {"Authorization": "Bearer good"}
    async with (
        certificate(Configuration(), SystemClock(), folder=Path("/nowhere")) as tls,
        served(Judge(tokens={"good": SCRAPER}), tls) as url,
        aiohttp.ClientSession() as session,
    ):
        async with session.get(url, headers=token, ssl=unverified) as answer:
            assert answer.status == 200
        with pytest.raises(aiohttp.ClientError):
            await session.get(url, headers=token)
        with pytest.raises(aiohttp.ClientError):
            await session.get(url.replace("https", "http"), headers=token)


async def test_a_mounted_certificate_is_followed(tmp_path: Path) -> None:
    """What cert-manager puts there is served, and what it puts there later, too; broken files are an error at start."""
    clock = FakeClock()
    bundles = [make_bundle(["localhost"], now=clock.now(), valid=timedelta(days=days)) for days in (10, 20)]
    write_bundle(bundles[0], tmp_path)
    async with certificate(Configuration(), clock, folder=tmp_path) as tls:
        assert await _shown(tls) == bundles[0].certificate
        write_bundle(bundles[1], tmp_path)
        await clock.advance(11)
        assert await _shown(tls) == bundles[1].certificate

    (tmp_path / "tls.crt").write_text("no certificate")
    with pytest.raises(ConfigError):
        async with certificate(Configuration(), clock, folder=tmp_path):
            pass


async def _shown(tls: ssl.SSLContext) -> bytes:
    """The certificate that a client sees, as PEM."""
    async with served(Judge(), tls) as url:
        port = int(url.rsplit(":", 1)[1].split("/")[0])
        return (await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))).encode()
