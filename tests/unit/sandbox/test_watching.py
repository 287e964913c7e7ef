"""Watches in a time that moves only when told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import msgspec
import pytest

from kqueue.clock import FakeClock
from kqueue.sandbox import listing, route, watching
from kqueue.sandbox.api import NODES
from kqueue.sandbox.cluster_api import ClusterApi
from kqueue.sandbox.route import ResourcePath

BOOKMARKS = {"allowWatchBookmarks": "true"}


def watch(api: ClusterApi, **query: str) -> AsyncGenerator[bytes]:
    """A watch of nodes from now on."""
    kind = api.kind(NODES)
    params = {"resourceVersion": str(api.versions.current), **query}
    wanted = watching.request(kind, route.selection(ResourcePath(NODES), kind, params), params, listing.encoded)
    return watching.stream(api, wanted, lambda: api.stopped)


async def portions(source: AsyncGenerator[bytes], clock: FakeClock, steps: list[float]) -> list[float]:
    """When the watch brought something, or ended, while time passed in these steps."""
    brought: list[float] = []

    async def read() -> None:
        async for _ in source:
            brought.append(clock.monotonic())
        brought.append(clock.monotonic())

    reading = asyncio.create_task(read())
    for step in steps:
        await clock.advance(step, turns=4)
    reading.cancel()
    await asyncio.wait({reading})
    return brought


async def test_a_quiet_watch_without_bookmarks_sleeps_until_its_end() -> None:
    """After the minute in which others would get a bookmark it still waits for a time, and does not spin."""
    clock = FakeClock()
    reading = asyncio.ensure_future(anext(watch(ClusterApi(clock), timeoutSeconds="600")))
    await clock.advance(61.0)

    wake = clock.next_wake()

    reading.cancel()
    await asyncio.wait({reading})
    assert wake == 539.0


async def test_bookmarks_come_each_minute_and_the_last_at_the_end() -> None:
    """A watch of 150 s brings three bookmarks and ends."""
    clock = FakeClock()
    api = ClusterApi(clock)

    brought = await portions(watch(api, timeoutSeconds="150", **BOOKMARKS), clock, [30.0] * 6)

    assert brought == [60.0, 120.0, 150.0, 150.0]


@pytest.mark.parametrize("late", [pytest.param(61.0, id="each minute"), pytest.param(700.0, id="at the end")])
async def test_a_bookmark_is_not_ahead_of_changes_that_are_still_to_come(late: float) -> None:
    """A slow reader who resumes from a bookmark misses nothing: changes may come while he takes the last ones."""
    clock = FakeClock()
    api = ClusterApi(clock)
    source = watch(api, timeoutSeconds="600", **BOOKMARKS)
    reading = asyncio.ensure_future(anext(source))
    await clock.advance(1.0)
    first = await api.create(NODES, {"metadata": {"name": "n1"}})
    await reading
    await api.create(NODES, {"metadata": {"name": "n2"}})
    await clock.advance(late)

    told = msgspec.json.decode(await anext(source))
    await source.aclose()

    assert (told["type"], told["object"]["metadata"]["resourceVersion"]) == (
        "BOOKMARK",
        first["metadata"]["resourceVersion"],
    )


def test_a_bookmark_says_how_far_the_watch_has_come() -> None:
    """Its object has a version and nothing else that could be mistaken for an object's."""
    api = ClusterApi(FakeClock())
    told = msgspec.json.decode(watching.bookmark(api.kind(NODES), 7))
    assert told["type"] == "BOOKMARK"
    assert told["object"]["metadata"] == {"resourceVersion": "7", "creationTimestamp": None}
