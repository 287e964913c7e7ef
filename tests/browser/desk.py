"""The page's server on answers of the test, on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, cast

from playwright.sync_api import Page

from kqueue.clock import SystemClock
from kqueue.errors import NotFoundError
from kqueue.page.server import PageServer
from kqueue.page.views import ClusterViews

JSON = dict[str, Any]


class Answers:
    """The answers behind the page, by feed."""

    def __init__(self) -> None:
        self.feeds: dict[str, JSON] = {}
        self.explanations: dict[str, JSON] = {}
        self.lives: dict[str, JSON] = {}
        self.questions: list[JSON] = []
        self.what_if_lines: list[Any] = []
        """The lines of the answer to each question about changes."""

    async def one(self, feed: str) -> JSON:
        """Return the answer of a feed."""
        while feed == "trends" and feed not in self.feeds:  # the server asks for them before a test can set them
            await asyncio.sleep(0.05)
        if feed not in self.feeds:
            raise NotFoundError(f"no {feed}", status=404, reason="NotFound")
        return self.feeds[feed]

    async def explanation(self, namespace: str, name: str) -> JSON:
        """Return the lines of a Workload."""
        if f"{namespace}/{name}" not in self.explanations:
            raise NotFoundError(f"Workload {name} not found", status=404, reason="NotFound")
        return self.explanations[f"{namespace}/{name}"]

    async def life(self, namespace: str, name: str) -> JSON:
        """Return the life of a Workload."""
        if f"{namespace}/{name}" not in self.lives:
            raise NotFoundError(f"Workload {name} not found", status=404, reason="NotFound")
        return self.lives[f"{namespace}/{name}"]

    async def what_if(self, spec: JSON) -> JSON:
        """Remember the question, and return the answer to all questions."""
        self.questions.append(spec)
        return {"lines": self.what_if_lines}


class Desk:
    """The page's server on a thread of its own, and its answers."""

    def __init__(self, server: PageServer, answers: Answers) -> None:
        self.server, self.answers = server, answers

    def open(self, page: Page, route: str = "") -> None:
        """Open the page at a route, such as `#/topology`."""
        page.goto(self.server.address)
        if route:
            page.goto(f"http://127.0.0.1:{self.server.port}/{route}")


@contextmanager
def serving(answers: Answers) -> Iterator[PageServer]:
    """Run the server of one user."""
    server = PageServer(cast("ClusterViews", answers), clock=SystemClock())
    with on_thread(server.listening):
        yield server


@contextmanager
def on_thread(listening: Callable[[], AbstractAsyncContextManager[Any]]) -> Iterator[None]:
    """Run a server on a loop in another thread, because the browser's driver blocks this one."""
    ready, ends = threading.Event(), list[Callable[[], object]]()

    async def serve() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        ends.append(lambda: loop.call_soon_threadsafe(stop.set))
        async with listening():
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    try:
        assert ready.wait(10), "the server does not listen"
        yield
    finally:
        for end in ends:
            end()
        thread.join(10)
        assert not thread.is_alive(), "the server does not end"
