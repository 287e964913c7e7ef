"""The server of the page on a desk: it has one user, and listens on loopback.

Other users of the machine reach loopback, too, and so does any site that the browser has open; so each request needs
the key of this run (in the first address, then in a cookie that scripts cannot read and other sites cannot use), and
the name of this server as its host, which a rebound name of another site is not.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final, cast

from aiohttp import web

from kqueue.clock import Clock
from kqueue.connections import Bounds, Connection, Connections, not_listening
from kqueue.errors import ConfigError
from kqueue.page.asker_page import AskerPage
from kqueue.page.questions import is_posted
from kqueue.page.replies import HEADERS, refusal
from kqueue.page.views import ClusterViews

LOOPBACK: Final = "127.0.0.1"
_COOKIE = "kqueue-page"
_KEY = "key"
BOUNDS = Bounds(connections=256, write=20.0)
"""Limits: an open page has one stream, and some short requests."""
_STOP_SECONDS = 1.0
_REMEDY = "open the address that kqueue dashboard printed"


class PageServer:
    """Serves the page of one user on loopback."""

    def __init__(self, views: ClusterViews, *, clock: Clock, bounds: Bounds = BOUNDS) -> None:
        """`bounds` limit the connections; a reader that takes nothing for `bounds.write` seconds is dropped."""
        self._page, self._clock = AskerPage(views, clock=clock), clock
        self._key = secrets.token_urlsafe(24)
        self._connections = Connections(self._answer, clock=clock, bounds=bounds, context=lambda: None)

    @property
    def port(self) -> int:
        """The port; 0 before the server listens."""
        return self._connections.port

    @property
    def streams(self) -> int:
        """The number of open streams of events."""
        return self._page.streams

    @property
    def address(self) -> str:
        """The address with the key, which gives the rights of the page's user."""
        return f"http://{LOOPBACK}:{self.port}/?{_KEY}={self._key}"

    @asynccontextmanager
    async def listening(self, port: int = 0) -> AsyncGenerator[PageServer, None]:
        """Listen on a port of loopback during the block; 0: a free port.  Points of the trends are collected from the
        first moment on, also while no page is open.

        Raises:
            ConfigError: the port cannot be used.
        """
        try:
            self._connections.listen(LOOPBACK, port)
        except OSError as e:
            where = f"{LOOPBACK}:{port}"
            raise ConfigError(not_listening("--port", where, e, remedy="choose another port")) from e
        self._connections.start()
        remembering = asyncio.create_task(self._page.remember(), name="trends")
        try:
            yield self
        finally:
            remembering.cancel()
            await asyncio.gather(remembering, return_exceptions=True)
            await self._connections.stop(_STOP_SECONDS)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = cast("Connection", request.protocol)
        connection.begin()
        try:
            response = self._refused(request) or await self._page.answer(request)
            if request.can_read_body:  # nothing reads it
                response.force_close()
            return response
        finally:
            connection.end(self._clock.monotonic())

    def _refused(self, request: web.BaseRequest) -> web.StreamResponse | None:
        """Return the answer to a request of another site or of another user; None: it is the page's user."""
        hosts = (f"{LOOPBACK}:{self.port}", f"localhost:{self.port}")
        if request.host not in hosts:
            return refusal(421, "this server does not serve the host of the request")
        if request.method != "GET" and not is_posted(request, hosts):
            return refusal(405, "the page only reads")
        if request.path == "/" and _KEY in request.query:
            if not self._is_key(request.query[_KEY]):
                return refusal(403, f"the key is wrong: {_REMEDY}")
            answer = web.Response(status=303, headers={"Location": "/", **HEADERS})
            answer.set_cookie(_COOKIE, self._key, httponly=True, samesite="Strict", path="/")
            return answer
        if not self._is_key(request.cookies.get(_COOKIE, "")):
            return refusal(403, f"the key is missing: {_REMEDY}")
        return None

    def _is_key(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(errors="replace"), self._key.encode())
