"""The server of the page: static files, answers as JSON, and server-sent events of feeds.

On a desk it listens on loopback.  Other users of the machine reach loopback, too, and so does any site that the browser
has open; so each request needs the key of this run (in the first address, then in a cookie that scripts cannot read and
other sites cannot use), and the name of this server as its host, which a rebound name of another site is not.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from aiohttp import web

from kqueue.clock import Clock
from kqueue.errors import ApiError, KqueueError
from kqueue.page.feeds import Feed
from kqueue.page.views import ClusterViews, map_change

STATIC = Path(__file__).with_name("static")
LOOPBACK: Final = "127.0.0.1"
_COOKIE = "kqueue-page"
_KEY = "key"
_MOST_FEEDS = 8
"""Feeds of one stream of events."""
_MOST_STREAMS = 200
_SEND_SECONDS = 20.0
"""Seconds in which a reader must take an event; a reader that does not is dropped."""
_BEAT_SECONDS = 15.0
"""Seconds between comments in a silent stream, by which both sides notice a lost connection."""
_SECONDS = {"queues": 2.0, "topologies": 10.0, "map": 2.0, "workloads": 5.0}
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

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PageServer:
    """Serves the page of one user on loopback."""

    def __init__(self, views: ClusterViews, *, clock: Clock) -> None:
        self._views, self._clock = views, clock
        self._key = secrets.token_urlsafe(24)
        self._feeds: dict[str, Feed] = {}
        self._streams = 0
        self.port = 0
        """The port; 0 before the server listens."""

    @property
    def address(self) -> str:
        """The address with the key: whoever has it has the rights of the page's user."""
        return f"http://{LOOPBACK}:{self.port}/?{_KEY}={self._key}"

    @asynccontextmanager
    async def listening(self, port: int = 0) -> AsyncGenerator[PageServer, None]:
        """Listen on a port of loopback during the block; 0: a free port.

        Raises:
            OSError: the port is taken.
        """
        runner = web.AppRunner(self._app(), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(runner.cleanup)
            site = web.TCPSite(runner, LOOPBACK, port)
            await site.start()
            self.port = runner.addresses[0][1]
            yield self

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._guard], client_max_size=1024 * 1024)
        app.router.add_get("/", self._index)
        app.router.add_get("/api/events", self._events)
        app.router.add_get("/api/explanations/{namespace}/{name}", self._explanation)
        app.router.add_static("/static/", STATIC, follow_symlinks=False)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse requests of other sites and other users, and add the headers that keep scripts of others out."""
        if request.host not in (f"{LOOPBACK}:{self.port}", f"localhost:{self.port}"):
            return _refusal(421, "this server does not serve the host of the request")
        if request.path == "/" and _KEY in request.query:
            if not self._is_key(request.query[_KEY]):
                return _refusal(403, "the key is wrong: open the address that kqueue dashboard printed")
            answer = web.Response(status=303, headers={"Location": "/", **_HEADERS})
            answer.set_cookie(_COOKIE, self._key, httponly=True, samesite="Strict", path="/")
            return answer
        if not self._is_key(request.cookies.get(_COOKIE, "")):
            return _refusal(403, "the key is missing: open the address that kqueue dashboard printed")
        try:
            response = await handler(request)
        except web.HTTPException as e:
            return _refusal(e.status, e.reason)
        if not response.prepared:
            response.headers.update(_HEADERS)
        return response

    def _is_key(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(errors="replace"), self._key.encode())

    async def _index(self, _request: web.Request) -> web.StreamResponse:
        return web.FileResponse(STATIC / "index.html")

    async def _explanation(self, request: web.Request) -> web.StreamResponse:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        try:
            return _json(await self._views.explanation(namespace, name))
        except ApiError as e:
            return _json({"error": str(e), "reason": e.reason}, status=e.status or 502)
        except KqueueError as e:
            return _json({"error": str(e), "reason": ""}, status=502)

    # --- events

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Send the versions of some feeds (`?feed=queues&feed=map/NAME`) until the reader goes."""
        wanted = list(dict.fromkeys(request.query.getall("feed", [])))
        if not 1 <= len(wanted) <= _MOST_FEEDS or not all(_is_feed(feed) for feed in wanted):
            return _refusal(400, f"name 1 to {_MOST_FEEDS} feeds: queues, topologies, workloads, map/NAME")
        if self._streams >= _MOST_STREAMS:
            return _refusal(503, f"{_MOST_STREAMS} pages are open; close one")
        stream = web.StreamResponse(headers={**_HEADERS, "Content-Type": "text/event-stream; charset=utf-8"})
        await stream.prepare(request)
        sender = _Sender(stream)
        self._streams += 1
        try:
            async with asyncio.TaskGroup() as group:
                for feed in wanted:
                    group.create_task(self._follow(feed, sender), name=f"events of {feed}")
                group.create_task(self._beat(sender), name="beat")
        except* (ConnectionError, TimeoutError):  # the reader has gone, or does not read
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._streams -= 1
        return stream

    async def _follow(self, name: str, sender: _Sender) -> None:
        async with aclosing(self._feed(name).versions()) as versions:
            async for version in versions:
                await sender.send(name, version)

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
                change=map_change if kind == "map" else None,
            )
        return feed


class _Sender:
    """Writes the events of several feeds to one stream, each event whole."""

    def __init__(self, stream: web.StreamResponse) -> None:
        self._stream, self._turn = stream, asyncio.Lock()

    async def send(self, feed: str, data: bytes) -> None:
        """Send one event.

        Raises:
            TimeoutError: the reader does not take it.
            ConnectionError: the reader has gone.
        """
        await self._write(b"event: " + feed.encode() + b"\ndata: " + data + b"\n\n")

    async def comment(self) -> None:
        """Send a comment, which readers ignore."""
        await self._write(b": \n\n")

    async def _write(self, chunk: bytes) -> None:
        async with asyncio.timeout(_SEND_SECONDS), self._turn:
            await self._stream.write(chunk)


def _is_feed(name: str) -> bool:
    kind, _, rest = name.partition("/")
    if kind == "map":
        return 0 < len(rest) <= 253 and all(letter.isalnum() or letter in "-." for letter in rest) and rest.isascii()
    return kind in _SECONDS and not rest and name == kind


def _json(answer: Any, *, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(answer), status=status, content_type="application/json")


def _refusal(status: int, why: str) -> web.Response:
    return web.Response(text=f"kqueue dashboard: {why}\n", status=status, headers=_HEADERS)
