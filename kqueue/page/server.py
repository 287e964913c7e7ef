"""The server of the page: static files, answers as JSON, and server-sent events of feeds.

On a desk it listens on loopback.  Other users of the machine reach loopback, too, and so does any site that the browser
has open; so each request needs the key of this run (in the first address, then in a cookie that scripts cannot read and
other sites cannot use), and the name of this server as its host, which a rebound name of another site is not.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from aiohttp import web

from kqueue.clock import Clock
from kqueue.connections import Bounds, Connection, Connections, not_listening
from kqueue.errors import ConfigError
from kqueue.page.changes import map_change, workloads_change
from kqueue.page.feeds import Change, Feed
from kqueue.page.questions import answered, is_posted, question
from kqueue.page.trends import trends_change
from kqueue.page.views import TREND_SECONDS, ClusterViews

STATIC = Path(__file__).with_name("static")
LOOPBACK: Final = "127.0.0.1"
_COOKIE = "kqueue-page"
_KEY = "key"
_MOST_FEEDS = 8
"""Feeds of one stream of events."""
BOUNDS = Bounds(connections=256, write=20.0)
"""Limits: an open page has one stream, and some short requests."""
_STOP_SECONDS = 1.0
_REMEDY = "open the address that kqueue dashboard printed"
_BEAT_SECONDS = 15.0
"""Seconds between comments in a silent stream, by which both sides notice a lost connection."""
_SECONDS = {
    "queues": 2.0, "topologies": 10.0, "map": 2.0, "workloads": 5.0, "starts": 30.0, "trends": TREND_SECONDS
}  # fmt: skip
_CHANGES: dict[str, Change] = {"map": map_change, "trends": trends_change, "workloads": workloads_change}
_KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class PageServer:
    """Serves the page of one user on loopback."""

    def __init__(self, views: ClusterViews, *, clock: Clock, bounds: Bounds = BOUNDS) -> None:
        """`bounds` limit the connections; a reader that takes nothing for `bounds.write` seconds is dropped."""
        self._views, self._clock = views, clock
        self._key = secrets.token_urlsafe(24)
        self._feeds: dict[str, Feed] = {}
        self._connections = Connections(self._answer, clock=clock, bounds=bounds, context=lambda: None)
        self._files = {
            f"/static/{file.relative_to(STATIC)}": file for file in STATIC.rglob("*.*") if file.suffix in _KINDS
        }
        self.streams = 0
        """The number of open streams of events."""

    @property
    def port(self) -> int:
        """The port; 0 before the server listens."""
        return self._connections.port

    @property
    def address(self) -> str:
        """The address with the key, which gives the rights of the page's user."""
        return f"http://{LOOPBACK}:{self.port}/?{_KEY}={self._key}"

    @asynccontextmanager
    async def listening(self, port: int = 0) -> AsyncGenerator[PageServer, None]:
        """Listen on a port of loopback during the block; 0: a free port.

        Raises:
            ConfigError: the port cannot be used.
        """
        try:
            self._connections.listen(LOOPBACK, port)
        except OSError as e:
            where = f"{LOOPBACK}:{port}"
            raise ConfigError(not_listening("--port", where, e, remedy="choose another port")) from e
        self._connections.start()
        try:
            yield self
        finally:
            await self._connections.stop(_STOP_SECONDS)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = cast("Connection", request.protocol)
        connection.begin()
        try:
            response = self._refused(request) or await self._admitted(request)
            if request.can_read_body:  # nothing reads it
                response.force_close()
            return response
        finally:
            connection.end(self._clock.monotonic())

    def _refused(self, request: web.BaseRequest) -> web.StreamResponse | None:
        """Return the answer to a request of another site or of another user; None: it is the page's user."""
        hosts = (f"{LOOPBACK}:{self.port}", f"localhost:{self.port}")
        if request.host not in hosts:
            return _refusal(421, "this server does not serve the host of the request")
        if request.method != "GET" and not is_posted(request, hosts):
            return _refusal(405, "the page only reads")
        if request.path == "/" and _KEY in request.query:
            if not self._is_key(request.query[_KEY]):
                return _refusal(403, f"the key is wrong: {_REMEDY}")
            answer = web.Response(status=303, headers={"Location": "/", **_HEADERS})
            answer.set_cookie(_COOKIE, self._key, httponly=True, samesite="Strict", path="/")
            return answer
        if not self._is_key(request.cookies.get(_COOKIE, "")):
            return _refusal(403, f"the key is missing: {_REMEDY}")
        return None

    def _is_key(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(errors="replace"), self._key.encode())

    async def _admitted(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer the page's user."""
        path = "/static/index.html" if request.path == "/" else request.path
        if path in self._files:
            return _file(self._files[path])
        if path == "/api/events":
            return await self._events(request)
        ask = question(self._views, request)
        if ask is not None:
            answer, status = await answered(ask)
            return _json(answer, status=status)
        return _refusal(404, "there is no such page")

    # --- events

    async def _events(self, request: web.BaseRequest) -> web.StreamResponse:
        """Send the versions of some feeds (`?feed=queues&feed=map/NAME`) until the reader goes."""
        wanted = list(dict.fromkeys(request.query.getall("feed", [])))
        if not 1 <= len(wanted) <= _MOST_FEEDS or not all(_is_feed(feed) for feed in wanted):
            return _refusal(
                400, f"name 1 to {_MOST_FEEDS} feeds: queues, topologies, workloads, starts, trends, map/NAME"
            )
        stream = web.StreamResponse(headers={**_HEADERS, "Content-Type": "text/event-stream; charset=utf-8"})
        sender = _Sender(stream)
        self.streams += 1
        try:
            await stream.prepare(request)
            async with asyncio.TaskGroup() as group:
                for feed in wanted:
                    group.create_task(self._follow(feed, sender), name=f"events of {feed}")
                group.create_task(self._beat(sender), name="beat")
                group.create_task(self._remember(), name="trends")
        except* ConnectionError:  # the reader has gone, or was cut because it read nothing
            pass
        finally:
            self.streams -= 1
        return stream

    async def _follow(self, name: str, sender: _Sender) -> None:
        async with aclosing(self._feed(name).versions()) as versions:
            async for version in versions:
                await sender.send(name, version)

    async def _remember(self) -> None:
        """Read the trends without sending them: they are remembered while any page is open, whatever it shows."""
        async with aclosing(self._feed("trends").versions()) as versions:
            async for _ in versions:
                pass

    async def _beat(self, sender: _Sender) -> None:
        while True:
            await self._clock.sleep(_BEAT_SECONDS)
            await sender.comment()

    def _feed(self, name: str) -> Feed:
        """Return the feed of a name.  Feeds without readers are forgotten, so that names do not add up."""
        self._feeds = {other: feed for other, feed in self._feeds.items() if feed.has_readers}
        feed = self._feeds.get(name)
        if feed is None:
            kind = name.partition("/")[0]
            feed = self._feeds[name] = Feed(
                lambda: self._views.one(name),
                clock=self._clock,
                seconds=_SECONDS[kind],
                change=_CHANGES.get(kind),
            )
        return feed


class _Sender:
    """Writes the events of several feeds to one stream, each event whole."""

    def __init__(self, stream: web.StreamResponse) -> None:
        self._stream, self._turn = stream, asyncio.Lock()

    async def send(self, feed: str, data: bytes) -> None:
        """Send one event, and wait until the reader has taken most of it.

        Raises:
            ConnectionError: the reader has gone, or was cut.
        """
        await self._write(b"event: " + feed.encode() + b"\ndata: " + data + b"\n\n")

    async def comment(self) -> None:
        """Send a comment, which readers ignore."""
        await self._write(b": \n\n")

    async def _write(self, chunk: bytes) -> None:
        async with self._turn:
            await self._stream.write(chunk)


def _is_feed(name: str) -> bool:
    kind, _, rest = name.partition("/")
    if kind == "map":
        return 0 < len(rest) <= 253 and all(letter.isalnum() or letter in "-." for letter in rest) and rest.isascii()
    return kind in _SECONDS and not rest and name == kind


def _json(answer: Any, *, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(answer), status=status, content_type="application/json", headers=_HEADERS
    )


def _file(path: Path) -> web.Response:
    """Return a file of the page; the folder has no others, and they are small."""
    return web.Response(body=path.read_bytes(), content_type=_KINDS[path.suffix], charset="utf-8", headers=_HEADERS)


def _refusal(status: int, why: str) -> web.Response:
    return web.Response(text=f"kqueue dashboard: {why}\n", status=status, headers=_HEADERS)
