"""The page of one asker: answers as JSON and server-sent events, each from questions with the rights of that asker.

Feeds belong to this page and to no other one, so no answer to one asker is ever sent to another.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

from aiohttp import web

from kqueue.clock import Clock
from kqueue.connections import Connection
from kqueue.errors import ForbiddenError, UnauthorizedError
from kqueue.observe.dashboard_metrics import DashboardMetrics, QuestionResult
from kqueue.page.changes import map_change, workloads_change
from kqueue.page.feeds import Change, Feed
from kqueue.page.questions import answered, question
from kqueue.page.replies import HEADERS, STATIC, file_reply, json_reply, refusal, static_files
from kqueue.page.trends import trends_change
from kqueue.page.views import TREND_SECONDS, ClusterViews

_MOST_FEEDS: Final = 8
"""Feeds of one stream of events."""
_BEAT_SECONDS = 15.0
"""Seconds between comments in a silent stream, by which both sides notice a lost connection."""
_QUESTION_SECONDS = 60.0
"""For a question with its body and its answer."""
_SECONDS = {
    "queues": 2.0, "topologies": 10.0, "map": 2.0, "workloads": 5.0, "starts": 30.0, "trends": TREND_SECONDS
}  # fmt: skip
_CHANGES: dict[str, Change] = {"map": map_change, "trends": trends_change, "workloads": workloads_change}


Pace = Callable[[bool], Awaitable[None]]
"""Returns when a question may be sent; True: a person waits for its answer, False: it renews an answer."""


async def _at_once(_: bool) -> None:
    """Wait for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskerLimits:
    """Limits of one asker, whatever the number of its browsers."""

    feeds: int = 256
    streams: int = 256
    questions: int = 64
    """Questions outside of feeds at one time."""


class AskerPage:
    """Answers one asker."""

    def __init__(
        self,
        views: ClusterViews,
        *,
        clock: Clock,
        limits: AskerLimits | None = None,
        pace: Pace = _at_once,
        on_unauthorized: Callable[[], None] = lambda: None,
        metrics: DashboardMetrics | None = None,
    ) -> None:
        """`pace` is awaited before each question to the cluster; `on_unauthorized` is called when the API server does
        not know the asker's credentials (any more); `metrics` None: nothing is counted.
        """
        self._metrics = metrics or DashboardMetrics(None)
        self._views, self._clock, self._limits = views, clock, limits or AskerLimits()
        self._pace, self._on_unauthorized = pace, on_unauthorized
        self._feeds: dict[str, Feed] = {}
        self._wanted = Counter[str]()
        """Streams by the name of the feed."""
        self._files = static_files()
        self._begun: set[str] = set()
        """Feeds with readers that were asked for."""
        self._asking = 0
        self.streams = 0
        """The number of open streams of events."""

    async def answer(self, request: web.BaseRequest, *, ended: asyncio.Event | None = None) -> web.StreamResponse:
        """Answer a request of the asker.  A stream of events is over when `ended` is set."""
        if request.path == "/":
            return file_reply(STATIC / "index.html")
        if request.path in self._files:
            return file_reply(self._files[request.path])
        if request.path == "/api/events":
            return await self._events(request, ended)
        ask = question(self._views, request)
        return refusal(404, "there is no such page") if ask is None else await self._answered(ask)

    async def _answered(self, ask: Callable[[], Awaitable[dict[str, Any]]]) -> web.StreamResponse:
        if self._asking >= self._limits.questions:
            return refusal(429, "too many questions at one time; ask again", Retry_After="1")

        async def paced() -> dict[str, Any]:
            async with self._question(awaited=True):
                return await ask()

        self._asking += 1
        try:
            async with asyncio.timeout(_QUESTION_SECONDS):
                answer, status = await answered(paced)
        except TimeoutError:
            return refusal(408, "the question or its answer did not come in time")
        finally:
            self._asking -= 1
        return json_reply(answer, status=status)

    @asynccontextmanager
    async def _question(self, *, awaited: bool) -> AsyncIterator[None]:
        """Wait for the pace, count the question, and notice that the API server does not know the asker."""
        await self._pace(awaited)
        result: QuestionResult = "failed"
        try:
            yield
            result = "answered"
        except UnauthorizedError:
            self._on_unauthorized()
            result = "unauthorized"
            raise
        except ForbiddenError:
            result = "forbidden"
            raise
        finally:
            self._metrics.asked(result)

    # --- events

    async def _events(self, request: web.BaseRequest, ended: asyncio.Event | None) -> web.StreamResponse:
        """Send the versions of some feeds (`?feed=queues&feed=map/NAME`) until the reader goes."""
        wanted = list(dict.fromkeys(request.query.getall("feed", [])))
        if not 1 <= len(wanted) <= _MOST_FEEDS or not all(_is_feed(feed) for feed in wanted):
            return refusal(
                400, f"name 1 to {_MOST_FEEDS} feeds: queues, topologies, workloads, starts, trends, map/NAME"
            )
        if self.streams >= self._limits.streams or len({*self._feeds, *wanted}) > self._limits.feeds:
            return refusal(429, "too many open pages of this user; close some", Retry_After="5")
        stream = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream; charset=utf-8"})
        sender = _Sender(stream, cast("Connection", request.protocol))
        self.streams += 1
        try:
            with self._wanting(wanted) as feeds:
                await stream.prepare(request)
                async with asyncio.TaskGroup() as group:
                    for name, feed in feeds.items():
                        group.create_task(_follow(name, feed, sender), name=f"events of {name}")
                    group.create_task(self._beat(sender), name="beat")
                    if ended is not None:
                        group.create_task(_until(ended), name="end")
        except* ConnectionError:  # the reader has gone, was cut because it read nothing, or its session is over
            if cast("Connection", request.protocol).expired(self._clock.monotonic()):
                self._metrics.dropped_reader()
        finally:
            self.streams -= 1
        stream.force_close()
        return stream

    async def remember(self) -> None:
        """Ask for the trends until cancelled, whatever pages are open: their points have no hole then."""
        with self._wanting(["trends"]) as feeds:
            async with aclosing(feeds["trends"].versions()) as versions:
                async for _ in versions:
                    pass

    def oldest_picture(self) -> float:
        """Return the seconds since the oldest answer that readers have was made; 0: no answer is read."""
        ages = (feed.age for feed in self._feeds.values() if feed.has_readers)
        return max((age for age in ages if age is not None), default=0.0)

    @contextmanager
    def _wanting(self, names: Sequence[str]) -> Iterator[dict[str, Feed]]:
        """Keep feeds for the block; feeds without readers are forgotten, so that names and answers do not add up."""
        self._wanted.update(names)
        try:
            yield {name: self._feed(name) for name in names}
        finally:
            self._wanted.subtract(names)
            for name in names:
                if not self._wanted[name]:
                    del self._wanted[name], self._feeds[name]
                    self._begun.discard(name)

    async def _beat(self, sender: _Sender) -> None:
        while True:
            await self._clock.sleep(_BEAT_SECONDS)
            await sender.comment()

    def _feed(self, name: str) -> Feed:
        feed = self._feeds.get(name)
        if feed is None:
            kind = name.partition("/")[0]
            feed = self._feeds[name] = Feed(
                lambda: self._one(name),
                clock=self._clock,
                seconds=_SECONDS[kind],
                change=_CHANGES.get(kind),
            )
        return feed

    async def _one(self, feed: str) -> dict[str, Any]:
        async with self._question(awaited=feed not in self._begun):
            self._begun.add(feed)
            return await self._views.one(feed)


class _Sender:
    """Writes the events of several feeds to one stream, each event whole."""

    def __init__(self, stream: web.StreamResponse, connection: Connection) -> None:
        self._stream, self._connection, self._turn = stream, connection, asyncio.Lock()

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
            if self._connection.cut_off:  # a write that waited for the reader ends then without an error
                raise ConnectionResetError("the reader took nothing, or has gone")


async def _follow(name: str, feed: Feed, sender: _Sender) -> None:
    async with aclosing(feed.versions()) as versions:
        async for version in versions:
            await sender.send(name, version)


async def _until(ended: asyncio.Event) -> None:
    await ended.wait()
    raise ConnectionResetError("the session is over")


def _is_feed(name: str) -> bool:
    kind, _, rest = name.partition("/")
    if kind == "map":
        return 0 < len(rest) <= 253 and all(letter.isalnum() or letter in "-." for letter in rest) and rest.isascii()
    return kind in _SECONDS and not rest and name == kind
