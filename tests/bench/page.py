"""`page/*`: the page of `kqueue dashboard` with the map of a whole data centre, in a Chromium.

    page/5000     hosts of the map; one in a hundred changes every two seconds
    page/20000    the same
    page/table    20,000 workloads, of which one in a hundred changes every five seconds
    page/viewers  50 readers of the events of one server, at 5,000 hosts, 100 ClusterQueues
    page/screens  the same by the server for many people, all with one token
    page/people   the same, each with a token and so with questions of its own, which are paced

`paint_ms` is the time from the navigation to the first paint with content, `map_ms` to the drawn map, `update_ms` the
time of the main thread for one change: decoding, merging, drawing.  `table_ms` is the time to the first drawn rows, and
`scroll_ms` the time of the main thread for the rows of a jump to another place, of which a frame has 16.  `server_percent` is the processor time of the server
in percent of one core.  Answers come from a process of their own; a cluster's time to answer is not part of any figure.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import aiohttp
from playwright.sync_api import Browser, Page, sync_playwright

from tests.bench._meter import cpu_seconds, peak_mib
from tests.bench._page_server import WORKLOADS
from tests.bench.table import REPETITIONS, Figure, Row, at_most, check
from tools import browser

VIEWERS, SECONDS = 50, 20.0
_MAP, _TABLE = ("topology/dc", "map/dc"), ("workloads", "workloads")
"""Views and the feeds that they draw."""
_JUMPS = """async () => {
  const found = [];
  for (let place = 0; place < 60; place++) {
    scrollTo(0, (place * 7919 % 60) * 9000);
    await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
    found.push(performance.getEntriesByName('rows').at(-1).duration);
  }
  return found;
}"""
"""Jump to sixty places; return the time for the rows of each."""


def _measured(feed: str) -> str:
    return f"performance.getEntriesByName('draw {feed}')[0]"


@contextmanager
def _server(hosts: int, *more: str) -> Iterator[tuple[int, str]]:
    """Run a server; yield its pid and its address."""
    command = [sys.executable, "-m", "tests.bench._page_server", str(hosts), *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None, "the output is a pipe"
            yield process.pid, process.stdout.readline().strip()
        finally:
            process.kill()


def _window(chromium: Browser) -> Page:
    """Open a window.  The driver waits by code in the page, which the page's own rules would not let in."""
    return chromium.new_page(viewport={"width": 1600, "height": 1000}, bypass_csp=True)


def _drawn(page: Page, address: str, view: tuple[str, str]) -> tuple[float, float]:
    """Open a view; return the milliseconds to the first paint and to the drawn view."""
    measured = _measured(view[1])
    page.goto(address)
    page.goto(f"{address.partition('?')[0]}#/{view[0]}")
    page.reload()
    page.wait_for_function(f"{measured} !== undefined")
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    return paint, page.evaluate(f"{measured}.startTime + {measured}.duration")


def _updates(page: Page, count: int, feed: str) -> Iterator[float]:
    """Yield the milliseconds of the main thread for each of the next changes."""
    measured = _measured(feed)
    for _ in range(count):
        before = page.evaluate(f"{measured}.startTime")
        page.wait_for_function(f"{measured} !== undefined && {measured}.startTime > {before}")
        yield page.evaluate(f"{measured}.duration")


def _map(hosts: int) -> Iterator[Figure]:
    check(browser.chromium() is not None, browser.why_missing() or "")
    with (
        _server(hosts) as (_, address),
        sync_playwright() as driver,
        driver.chromium.launch(executable_path=browser.chromium(), args=["--no-sandbox"]) as chromium,
    ):
        drawn = []
        for _ in range(REPETITIONS):
            page = _window(chromium)
            drawn.append(_drawn(page, address, _MAP))
            page.close()
        page = _window(chromium)
        _drawn(page, address, _MAP)
        updates = list(_updates(page, REPETITIONS, _MAP[1]))
        check(f"{hosts} hosts" in page.inner_text("h2"), "the map has other hosts")
    small = hosts <= 5_000
    yield Figure("paint_ms", [paint for paint, _ in drawn], goal=at_most(1_000) if small else None)
    yield Figure("map_ms", [done for _, done in drawn], goal=at_most(1_000) if small else None)
    yield Figure("update_ms", updates, goal=at_most(50))


def _table() -> Iterator[Figure]:
    check(browser.chromium() is not None, browser.why_missing() or "")
    with (
        _server(500) as (_, address),
        sync_playwright() as driver,
        driver.chromium.launch(executable_path=browser.chromium(), args=["--no-sandbox"]) as chromium,
    ):
        page = _window(chromium)
        paint, drawn = _drawn(page, address, _TABLE)
        jumps = page.evaluate(_JUMPS)
        updates = list(_updates(page, REPETITIONS, _TABLE[1]))
        check(f"{WORKLOADS} of {WORKLOADS} workloads" in page.inner_text("caption"), "the table has other workloads")
    yield Figure("paint_ms", [paint], goal=at_most(1_000))
    yield Figure("table_ms", [drawn])
    yield Figure("scroll_ms", jumps, goal=at_most(16))
    yield Figure("update_ms", updates, goal=at_most(50))


def _viewers() -> Iterator[Figure]:
    with _server(5_000) as (pid, address):
        used, events = asyncio.run(_watched(pid, address))
    check(events >= VIEWERS * SECONDS / 2 * 0.8, f"{VIEWERS} viewers got {events} events in {SECONDS} s")
    yield Figure("server_percent", [100 * used / SECONDS], goal=at_most(2))


def _shared(tokens: int) -> Iterator[Figure]:
    """Measure the server for many people; `tokens` of the viewers differ."""
    with _server(5_000, "shared") as (pid, address):
        bearers = [f"token-{viewer % tokens}" for viewer in range(VIEWERS)]
        used, events = asyncio.run(_watched(pid, address, bearers))
        if tokens == 1:
            check(events >= VIEWERS * SECONDS / 2 * 0.8, f"{VIEWERS} viewers got {events} events in {SECONDS} s")
        yield Figure("server_percent", [100 * used / SECONDS], goal=at_most(2))
        yield Figure("memory_mib", [peak_mib(pid)])
        yield Figure("renewed_s", [SECONDS * VIEWERS / events])


async def _watched(pid: int, address: str, bearers: Sequence[str] = ()) -> tuple[float, int]:
    """Return the server's processor time while all viewers read, and the number of events."""
    events = 0

    async def read(browser: aiohttp.ClientSession, base: str, bearer: str) -> None:
        nonlocal events
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        async with browser.get(f"{base}api/events?feed=map/dc", headers=headers) as answer:
            async for line in answer.content:
                events += line.startswith(b"event: ")

    base = address.partition("?")[0]
    connector = aiohttp.TCPConnector(limit=0)
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=jar, read_bufsize=2**22) as session:
        await (await session.get(address)).read()
        readers = [
            asyncio.create_task(read(session, base, bearer)) for bearer in bearers or [""] * VIEWERS
        ]  # fmt: skip
        await asyncio.sleep(5 if len(set(bearers)) <= 1 else 25)  # all are connected and have the whole map
        before, began, events = cpu_seconds(pid), time.monotonic(), 0
        await asyncio.sleep(SECONDS)
        used = (cpu_seconds(pid) - before) * SECONDS / (time.monotonic() - began)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    return used, events


ROWS = (
    Row("page/5000", partial(_map, 5_000)),
    Row("page/20000", partial(_map, 20_000)),
    Row("page/table", _table),
    Row("page/viewers", _viewers),
    Row("page/screens", partial(_shared, 1)),
    Row("page/people", partial(_shared, VIEWERS)),
)
