"""The page's server answers its user alone: other sites and other users of the machine get nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import aiohttp
import pytest
from yarl import URL

from kqueue.clock import FakeClock, SystemClock
from kqueue.connections import Bounds
from kqueue.errors import ConfigError, NotFoundError
from kqueue.page.asker_page import AskerPage
from kqueue.page.server import PageServer
from kqueue.page.views import ClusterViews

JSON = dict[str, Any]
LIMIT = 20.0


class Cluster:
    """Views without a cluster."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.more: JSON = {}
        """Added to each answer."""

    async def one(self, feed: str) -> JSON:
        """Return an answer that names its feed."""
        self.asked.append(feed)
        return {"feed": feed, **self.more}

    async def explanation(self, namespace: str, name: str) -> JSON:
        """Explain one Workload, and know no other."""
        if name != "known":
            raise NotFoundError(f"{namespace}/{name} not found", status=404, reason="NotFound")
        return {"lines": [["waits", 0, ""]]}

    async def life(self, namespace: str, name: str) -> JSON:
        """Return a life that names its Workload."""
        return {"of": f"{namespace}/{name}"}

    async def what_if(self, spec: JSON) -> JSON:
        """Answer with the question."""
        return {"asked": spec}


@asynccontextmanager
async def served(**settings: Any) -> AsyncIterator[tuple[PageServer, Cluster, aiohttp.ClientSession]]:
    """A server, and a browser without its key."""
    cluster = Cluster()
    server = PageServer(cast("ClusterViews", cluster), clock=SystemClock(), **settings)
    jar = aiohttp.CookieJar(unsafe=True)  # the host is an address
    async with server.listening(), aiohttp.ClientSession(f"http://127.0.0.1:{server.port}", cookie_jar=jar) as browser:
        yield server, cluster, browser


async def entered(server: PageServer, browser: aiohttp.ClientSession) -> None:
    async with browser.get(URL(server.address).path_qs) as answer:
        assert answer.status == 200
        assert "<title>kqueue</title>" in await answer.text()


@pytest.mark.parametrize("path", ["/", "/static/modules/main.js", "/api/events?feed=queues", "/api/explanations/a/b"])
async def test_nothing_is_served_without_the_key(path: str) -> None:
    """Other users of the machine reach the port, too."""
    async with served() as (_, cluster, browser):
        for more in ("", "&key=x" if "?" in path else "?key=x"):
            async with browser.get(path + more) as answer:
                assert answer.status == 403
                assert "open the address that kqueue dashboard printed" in await answer.text()
        assert set(cluster.asked) <= {"trends"}, "which the server asks for by itself"


async def test_a_name_of_another_site_that_leads_here_is_refused() -> None:
    """A site may point its own name to loopback; its requests carry that name, and might carry the cookie."""
    async with served() as (server, _, browser):
        await entered(server, browser)
        async with browser.get("/", headers={"Host": f"evil.example:{server.port}"}) as answer:
            assert answer.status == 421


async def test_scripts_and_frames_of_others_are_kept_out() -> None:
    """The cookie is no script's and no other site's, and the page loads nothing from elsewhere."""
    async with served() as (server, _, browser):
        async with browser.get(URL(server.address).path_qs, allow_redirects=False) as answer:
            cookie = answer.headers["Set-Cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=Strict" in cookie
            assert server.address.partition("key=")[2] not in answer.headers["Location"]
        async with browser.get("/static/style.css") as answer:
            assert answer.status == 200
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/static/vendor/uplot/LICENSE",
        "/static/../server.py",
        "/static/%2e%2e/server.py",
        "/static/nothing.js",
        "/other",
    ],
)
async def test_no_other_file_is_served(path: str) -> None:
    """Neither from outside the folder, nor one that does not exist."""
    async with served() as (server, _, browser):
        await entered(server, browser)
        async with browser.get(URL(path, encoded=True)) as answer:
            assert answer.status == 404


async def test_a_taken_port_is_told() -> None:
    """With the flag to change."""
    async with served() as (server, _, _browser):
        other = PageServer(cast("ClusterViews", Cluster()), clock=SystemClock())
        with pytest.raises(ConfigError, match=f"--port: 127.0.0.1:{server.port}: address already in use"):
            async with other.listening(server.port):
                raise AssertionError("two servers listen on one port")


async def test_nothing_is_written_through_the_page() -> None:
    """A form of another site cannot even try."""
    async with served() as (server, _, browser):
        await entered(server, browser)
        async with browser.post("/api/explanations/ns/known", data=b"{}") as answer:
            assert answer.status == 405


OWN = "http://127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("origin", "kind", "path", "status"),
    [
        pytest.param(OWN, "application/json", "/api/whatifs", 200, id="the page itself"),
        pytest.param(OWN, "application/json; charset=utf-8", "/api/whatifs", 200, id="with a charset"),
        pytest.param("", "application/json", "/api/whatifs", 405, id="no browser"),
        pytest.param("http://127.0.0.1:1", "application/json", "/api/whatifs", 405, id="another port of this machine"),
        pytest.param("http://evil.example", "application/json", "/api/whatifs", 405, id="another site"),
        pytest.param("null", "application/json", "/api/whatifs", 405, id="a frame without an origin"),
        pytest.param(OWN, "text/plain", "/api/whatifs", 405, id="a form"),
        pytest.param(OWN, "application/json", "/api/explanations/ns/known", 405, id="another path"),
    ],
)
async def test_questions_are_posted_by_the_page_alone(origin: str, kind: str, path: str, status: int) -> None:
    """The browser sends the cookie to other ports of the same host, too."""
    async with served() as (server, _, browser):
        await entered(server, browser)
        headers = (
            {"Origin": origin.format(port=server.port), "Content-Type": kind} if origin else {"Content-Type": kind}
        )
        async with browser.post(path, data=b'{"drains": ["b0"]}', headers=headers) as answer:
            assert answer.status == status
            assert status != 200 or await answer.json() == {"asked": {"drains": ["b0"]}}


async def test_a_question_needs_the_key() -> None:
    """Even with the right origin."""
    async with served() as (server, _, browser):
        headers = {"Origin": OWN.format(port=server.port), "Content-Type": "application/json"}
        async with browser.post("/api/whatifs", data=b"{}", headers=headers) as answer:
            assert answer.status == 403


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"[]", "send an object with changes"),
        (b"{", "the question cannot be read"),
        (b"\xff", "the question cannot be read"),
        (b"[" * 5_000, "the question cannot be read"),
        (b'"' + b"x" * 20_000, "at most 16384 bytes of a question are read"),
    ],
)
async def test_odd_questions_are_refused_with_the_cause(body: bytes, message: str) -> None:
    """Before the cluster is asked."""
    async with served() as (server, _, browser):
        await entered(server, browser)
        headers = {"Origin": OWN.format(port=server.port), "Content-Type": "application/json"}
        async with browser.post("/api/whatifs", data=body, headers=headers) as answer:
            assert answer.status == 400
            assert message in (await answer.json())["error"]


async def test_trends_are_remembered_without_an_open_page() -> None:
    """From the start of the server on, so that a page has points from before it was opened; none is sent unasked."""
    async with served() as (server, cluster, browser):
        async with asyncio.timeout(LIMIT):
            while cluster.asked != ["trends"]:
                await asyncio.sleep(0.01)
        await entered(server, browser)
        async with asyncio.timeout(LIMIT), browser.get("/api/events?feed=queues") as answer:
            assert (await answer.content.readline()).strip() == b"event: queues"
        async with asyncio.timeout(LIMIT), browser.get("/api/events?feed=trends") as answer:
            assert (await answer.content.readline()).strip() == b"event: trends"
        assert cluster.asked == ["trends", "queues"], "a page gets the points that are there"


async def test_a_point_of_the_trends_is_asked_for_each_half_minute() -> None:
    """For ever, while nobody reads anything, so that curves have no hole."""
    cluster, clock = Cluster(), FakeClock()
    remembering = asyncio.create_task(AskerPage(cast("ClusterViews", cluster), clock=clock).remember())
    try:
        await clock.advance(300)
        assert cluster.asked == ["trends"] * 11
    finally:
        remembering.cancel()
        await asyncio.gather(remembering, return_exceptions=True)
    await clock.advance(300)
    assert len(cluster.asked) == 11, "nothing is asked after the end"


async def test_a_life_is_answered() -> None:
    """As explanations are."""
    async with served() as (server, _, browser):
        await entered(server, browser)
        async with browser.get("/api/lives/ns/a") as answer:
            assert await answer.json() == {"of": "ns/a"}


async def test_an_event_has_the_name_of_its_feed() -> None:
    """Several feeds share a stream."""
    async with served() as (server, _, browser):
        await entered(server, browser)
        async with asyncio.timeout(LIMIT), browser.get("/api/events?feed=queues&feed=map/dc") as answer:
            assert answer.content_type == "text/event-stream"
            found: dict[str, JSON] = {}
            while len(found) < 2:
                name = (await answer.content.readline()).decode().removeprefix("event: ").strip()
                data = (await answer.content.readline()).decode().removeprefix("data: ")
                await answer.content.readline()
                found[name] = json.loads(data)

    assert found == {"queues": {"feed": "queues"}, "map/dc": {"feed": "map/dc"}}


WRONG_FEEDS = [
    "",
    "feed=secrets",
    "feed=queues/x",
    "feed=map/",
    "feed=map/a%2Fb",
    "feed=map/" + "x" * 300,
    "&".join(f"feed=map/{n}" for n in range(9)),
]


@pytest.mark.parametrize("query", WRONG_FEEDS)
async def test_feeds_that_do_not_exist_are_refused(query: str) -> None:
    """Before anything is asked."""
    async with served() as (server, cluster, browser):
        await entered(server, browser)
        async with browser.get(URL(f"/api/events?{query}", encoded=True)) as answer:
            assert answer.status == 400
        assert set(cluster.asked) <= {"trends"}, "which the server asks for by itself"


async def test_a_question_that_fails_says_why() -> None:
    """With the status of the API server."""
    async with served() as (server, _, browser):
        await entered(server, browser)
        async with browser.get("/api/explanations/ns/known") as answer:
            assert await answer.json() == {"lines": [["waits", 0, ""]]}
        async with browser.get("/api/explanations/ns/other") as answer:
            assert answer.status == 404
            assert await answer.json() == {"error": "ns/other not found", "reason": "NotFound"}


async def test_a_reader_that_takes_nothing_is_dropped() -> None:
    """It holds neither memory nor one of the streams for ever; other readers notice nothing."""
    async with served(bounds=Bounds(write=0.2)) as (server, cluster, browser):
        await entered(server, browser)
        cluster.more = {"much": "x" * 40_000_000}  # more than the buffers of both sides take
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        key = server.address.partition("key=")[2]
        lines = ("GET /api/events?feed=queues HTTP/1.1", f"Host: 127.0.0.1:{server.port}", f"Cookie: kqueue-page={key}")
        writer.write("\r\n".join((*lines, "", "")).encode())
        async with asyncio.timeout(LIMIT):
            while "queues" not in cluster.asked:
                await asyncio.sleep(0.01)
            while server.streams:
                await asyncio.sleep(0.01)
        writer.close()
        async with browser.get("/api/explanations/ns/known") as answer:
            assert answer.status == 200
