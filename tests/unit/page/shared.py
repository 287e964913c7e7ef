"""A server for many people without a cluster: an API server that knows some tokens, and views of each token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import aiohttp

from kqueue.clock import Clock, FakeClock
from kqueue.config.address import Address
from kqueue.connections import Bounds
from kqueue.errors import ApiError, ForbiddenError, UnauthorizedError
from kqueue.observe import MetricGroups, Metrics
from kqueue.page.askers import OpenedViews
from kqueue.page.shared_server import BOUNDS, COOKIE, SharedLimits, SharedPageServer
from kqueue.page.views import ClusterViews
from kqueue.runtime.client import Client
from kqueue.visibility.front_proxy import User
from kqueue.visibility.rights import Rights

JSON = dict[str, Any]
SAME = {"Sec-Fetch-Site": "same-origin"}
LIMIT = 20.0
_OURS = "kqueue_dashboard_"
QUIET = SharedLimits(connections=replace(BOUNDS, idle=1e9, first_request=1e9))
"""Limits without those that a fake clock would reach on its way."""


class ApiServer:
    """Knows the users of some tokens, and counts what it is asked with which credentials."""

    def __init__(self) -> None:
        self.users = {"token-of-ann": "ann", "token-of-bob": "bob", "second-token-of-ann": "ann"}
        self.own: list[tuple[str, str]] = []
        """Verb and kind of requests with the account of the server itself."""
        self.asked: list[tuple[str, str]] = []
        """Token and question of requests with the token of an asker."""
        self.closed: list[str] = []
        self.down = False
        self.more: JSON = {}
        """Added to each answer."""

    async def create(self, resource: Any, review: JSON, **_: Any) -> JSON:
        """Review a token, for the account of the server itself."""
        self.own.append(("create", resource.kind))
        if self.down:
            raise ApiError("no answer", status=0)
        user = self.users.get(review["spec"]["token"])
        status = {"authenticated": True, "user": {"username": user}} if user else {"authenticated": False}
        return {"status": status}

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        raise AssertionError(f"the account of the server itself is used to {verb}")

    async def opened(self, token: str, user: User) -> OpenedViews:
        """Open views that ask with this token."""
        views = cast("ClusterViews", _Views(self, token))

        async def close() -> None:
            self.closed.append(token)

        return OpenedViews(views, close)

    def judged(self, token: str, question: str) -> str:
        """Return the user of a question."""
        self.asked.append((token, question))
        if token not in self.users:
            raise UnauthorizedError("Unauthorized", status=401, reason="Unauthorized")
        return self.users[token]


class _Views:
    def __init__(self, api: ApiServer, token: str) -> None:
        self._api, self._token = api, token

    async def one(self, feed: str) -> JSON:
        """Ann sees everything, bob sees no map."""
        user = self._api.judged(self._token, feed)
        if user == "bob" and feed.startswith("map/"):
            raise ForbiddenError('User "bob" cannot get', status=403, reason="Forbidden")
        return {"seen by": user, **self._api.more}

    async def explanation(self, namespace: str, name: str) -> JSON:
        """Each sees the namespace of its own name."""
        user = self._api.judged(self._token, f"{namespace}/{name}")
        if user != namespace:
            raise ForbiddenError(f'User "{user}" cannot get', status=403, reason="Forbidden")
        return {"lines": [[f"for {user}", 0, ""]]}

    async def what_if(self, spec: JSON) -> JSON:
        """Answer a question about changes."""
        return {"asked by": self._api.judged(self._token, "whatif"), **spec}


class Browser:
    """Keeps the cookie as a browser does that reaches the server by TLS."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self.http, self.cookie = http, ""

    def headers(self, more: dict[str, str] | None = None) -> dict[str, str]:
        """Return the headers of a request."""
        return {**({"Cookie": f"{COOKIE}={self.cookie}"} if self.cookie else {}), **(more or {})}

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        """Return status and text, without following where it leads."""
        async with self.http.get(path, headers=self.headers(headers), allow_redirects=False) as answer:
            return answer.status, answer.headers.get("Location", "") or await answer.text()

    async def sign_in(self, token: str, **headers: str) -> int:
        """Send the form; return the status."""
        given = self.headers({**SAME, **headers})
        async with self.http.post("/sign-in", data={"token": token}, headers=given, allow_redirects=False) as answer:
            if COOKIE in answer.cookies:
                self.cookie = answer.cookies[COOKIE].value
            return answer.status

    async def sign_out(self) -> int:
        """Sign out, and keep the cookie."""
        async with self.http.post("/sign-out", headers=self.headers(SAME)) as answer:
            return answer.status

    @asynccontextmanager
    async def events(self, *feeds: str, **headers: str) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open a stream of events."""
        query = "&".join(f"feed={feed}" for feed in feeds)
        async with self.http.get(f"/api/events?{query}", headers=self.headers(headers)) as answer:
            yield answer


class Shared:
    """One server, and what surrounds it."""

    def __init__(
        self,
        server: SharedPageServer,
        api: ApiServer,
        clock: FakeClock,
        http: aiohttp.ClientSession,
        stop: Callable[[], Awaitable[None]],
        metrics: Metrics,
    ) -> None:
        self.server, self.api, self.clock, self._http, self.stop = server, api, clock, http, stop
        self.metrics = metrics

    def browser(self) -> Browser:
        """A browser without a session."""
        return Browser(self._http)

    async def signed_in(self, token: str) -> Browser:
        """A browser with a session."""
        browser = self.browser()
        assert await browser.sign_in(token) == 303
        return browser


@asynccontextmanager
async def sharing(limits: SharedLimits = QUIET, *, clock: Clock | None = None) -> AsyncIterator[Shared]:
    """Serve on loopback."""
    api, used = ApiServer(), clock or FakeClock()
    metrics = Metrics(groups=MetricGroups(dashboard=True), clock=used, cache_seconds=0)
    rights = Rights(cast("Client", api), clock=used, on_review=metrics.dashboard.reviewed)
    server = SharedPageServer(rights, api.opened, clock=used, tls=None, limits=limits, metrics=metrics.dashboard)
    metrics.dashboard.follow(
        readers=lambda: server.streams, sessions=lambda: server.sessions, picture_age=lambda: server.picture_age
    )
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(server.listening(Address("127.0.0.1", 0)))
        jar = aiohttp.DummyCookieJar()
        async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}", cookie_jar=jar) as http:
            yield Shared(server, api, cast("FakeClock", used), http, stack.aclose, metrics)


async def numbers(metrics: Metrics) -> dict[str, float]:
    """Return the series of the page by their names and labels, without the name's beginning and the role."""
    lines = [line.rsplit(" ", 1) for line in (await metrics.render()).decode().splitlines() if line.startswith(_OURS)]
    return {
        series.removeprefix(_OURS).replace('replica_role="standalone"', "").replace("{}", "").replace(",}", "}"): float(
            n
        )
        for series, n in lines
    }


async def next_event(answer: aiohttp.ClientResponse) -> tuple[str, str]:
    """Return name and data of the next event; empty at the end of the stream."""
    async with asyncio.timeout(LIMIT):
        while line := (await answer.content.readline()).decode():
            if line.startswith("event: "):
                data = (await answer.content.readline()).decode()
                return line.removeprefix("event: ").strip(), data.removeprefix("data: ").strip()
    return "", ""


def slow(write: float) -> SharedLimits:
    """Limits for a reader that takes nothing for so many seconds."""
    return SharedLimits(connections=Bounds(write=write))
