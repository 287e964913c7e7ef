"""The admission server under clients that mean harm: whoever asks properly is answered all the same."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kqueue.clock import FakeClock, SystemClock
from kqueue.connections import Bounds
from kqueue.runtime.certificates import CertificateFolder, make_bundle, write_bundle
from tests.unit.webhooks.test_review import review
from webhooks.review import ALLOWED, Request, ReviewResult
from webhooks.routes import Handler
from webhooks.server import MAX_BODY, MAX_LARGE, CrowdedError, LargeBodies, ReviewLimits, WebhookServer

FEW = Bounds(connections=8)
HEAD = b"POST /ok HTTP/1.1\r\nHost: h\r\n"

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def allow(_request: Request) -> ReviewResult:
    return ALLOWED


async def talkative(_request: Request) -> ReviewResult:
    return ReviewResult(patch={"spec": {"a": "x" * 20_000_000}})


@asynccontextmanager
async def serving(handlers: Mapping[str, Handler] | None = None, **options: Any) -> AsyncIterator[WebhookServer]:
    limits = {f.name: options.pop(f.name) for f in fields(ReviewLimits) if f.name in options}
    limits = {"max_body": 20_000, **limits}
    server = WebhookServer(handlers or {"/ok": allow}, **{"ssl_context": None} | options, limits=ReviewLimits(**limits))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def connected(server: WebhookServer, count: int, sent: bytes = b"") -> AsyncIterator[list[Pair]]:
    """So many connections, one after the other, each of which sends that and waits."""
    pairs: list[Pair] = []
    try:
        for _ in range(count):
            pairs.append(await asyncio.open_connection("127.0.0.1", server.port))
            pairs[-1][1].write(sent)
        yield pairs
    finally:
        for _, writer in pairs:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for _, writer in pairs), return_exceptions=True)


def posted(body: bytes, path: str = "/ok") -> bytes:
    return b"POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(body)) + body


async def asked(pair: Pair, body: bytes | None = None, path: str = "/ok") -> str:
    """What one review on this connection is answered with."""
    reader, writer = pair
    writer.write(posted(review() if body is None else body, path))
    return await answered(reader)


async def answered(reader: asyncio.StreamReader) -> str:
    async with asyncio.timeout(10):
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length"))
        return (head + await reader.readexactly(length)).decode()


async def is_cut(reader: asyncio.StreamReader) -> bool:
    """Whether the connection ends soon."""
    try:
        async with asyncio.timeout(10):
            while await reader.read(1 << 16):
                pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="say-nothing"),
        pytest.param(b"POST /o", id="begin-a-request-line"),
        pytest.param(HEAD + b"X-A: ", id="begin-a-header"),
        pytest.param(HEAD + b"Content-Length: 9000\r\n\r\n{", id="begin-a-body"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{", id="begin-a-chunk"),
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n", id="ask-for-a-probe-and-stay"),
    ],
)
async def test_three_hundred_connections_keep_nobody_out(sent: bytes) -> None:
    """The oldest of them make room; who has asked a review stays although it was there first."""
    async with serving(bounds=FEW) as server, connected(server, 1) as [first]:
        assert '"allowed":true' in await asked(first)
        async with connected(server, 300, sent) as flood, connected(server, 1) as [late]:
            assert '"allowed":true' in await asked(late)
            assert '"allowed":true' in await asked(first)
            assert await is_cut(flood[0][0])


async def test_handshakes_that_never_end_keep_nobody_out(tmp_path: Path) -> None:
    """Three hundred clients connect and do not begin TLS; the API server's review is answered."""
    write_bundle(make_bundle(["127.0.0.1"], now=SystemClock().now()), tmp_path)
    context = CertificateFolder(tmp_path, clock=SystemClock()).context
    tls = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    async with (
        serving(bounds=replace(FEW, handshake=60), ssl_context=context) as server,
        connected(server, 300) as flood,
    ):
        pair = await asyncio.open_connection("127.0.0.1", server.port, ssl=tls)
        assert '"allowed":true' in await asked(pair)
        pair[1].transport.abort()
        assert await is_cut(flood[0][0])


async def test_connections_that_are_answered_are_not_pushed_out() -> None:
    """When nobody is idle, the new one is refused and the reviews go on."""
    free, entered = asyncio.Event(), asyncio.Semaphore(0)

    async def wait(_request: Request) -> ReviewResult:
        entered.release()
        await free.wait()
        return ALLOWED

    async with serving({"/ok": wait}, bounds=FEW) as server, connected(server, 8, posted(review())) as busy:
        for _ in busy:
            await entered.acquire()
        async with connected(server, 20) as late:
            assert all([await is_cut(reader) for reader, _ in late])
            free.set()
            assert all(['"allowed":true' in await answered(reader) for reader, _ in busy])


@pytest.mark.parametrize(
    ("seconds", "cut"),
    [pytest.param(119, False, id="an-api-server-may-come-back"), pytest.param(122, True, id="not-for-ever")],
)
async def test_an_idle_connection_is_kept_for_a_while(seconds: float, cut: bool) -> None:
    """Longer than API servers keep theirs."""
    clock = FakeClock()
    async with serving(clock=clock) as server, connected(server, 1) as [pair]:
        await asked(pair)
        await clock.advance(seconds)
        if cut:
            assert await is_cut(pair[0])
        else:
            assert '"allowed":true' in await asked(pair)


async def test_a_reader_that_does_not_read_is_cut() -> None:
    """Its answer is dropped."""
    clock = FakeClock()
    async with serving({"/ok": talkative}, clock=clock) as server, connected(server, 1) as [(reader, writer)]:
        writer.write(posted(review()))
        await reader.readuntil(b"\r\n\r\n")
        await clock.advance(12)
        async with asyncio.timeout(10):
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(20_000_000)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(HEAD + b"X-A: " + b"a" * 100_000, id="a-header-of-100-kilobytes"),
        pytest.param(HEAD + b"".join(b"X-%d: a\r\n" % n for n in range(500)) + b"\r\n", id="500-headers"),
        pytest.param(b"POST /" + b"a" * 100_000, id="a-path-of-100-kilobytes"),
        pytest.param(HEAD + b"Content-Length: 99999999999\r\n\r\n" + b"a" * 2_000_000, id="a-body-without-end"),
        pytest.param(b"\x16\x03\x01" + b"\x00" * 1000, id="no-http"),
    ],
)
async def test_what_is_too_much_ends_the_connection(sent: bytes) -> None:
    """And the next client is answered."""
    async with serving() as server, connected(server, 1, sent) as [(reader, _)]:
        assert await is_cut(reader)
        async with connected(server, 1) as [other]:
            assert '"allowed":true' in await asked(other)


async def test_bodies_that_arrive_take_bounded_memory() -> None:
    """Where all of them together are too much, the one that began first is given up; others are read."""
    begun = HEAD + b"Content-Length: 9000\r\n\r\n" + b" " * 8000
    async with serving(max_held=30_000) as server, connected(server, 3, begun) as slow:
        async with connected(server, 1) as [other]:
            padded = b" " * 8000 + review()
            assert '"allowed":true' in await asked(other, padded)
        assert await is_cut(slow[0][0])


MANY = b"{}," * 700_000
"""2 MiB, more values than a review may have."""
LARGE_REVIEW = b" " * 100_000 + review()


@pytest.mark.parametrize(
    ("sent", "fact"),
    [
        pytest.param(b'{"a":[' + MANY, "more than 250000 values", id="empty-objects"),
        pytest.param(b'{"a":[' + MANY.replace(b"{}", b"[]"), "more than 250000 values", id="empty-lists"),
        pytest.param(b'{"a":[' + MANY.replace(b"{}", b"1"), "more than 250000 values", id="numbers"),
        pytest.param(b'{"' + b'\\"' * 50_000 + b'":[' + MANY, "more than 250000 values", id="behind-a-long-text"),
        pytest.param(b" " * 100_000 + b'{"a":' * 300, "nested more than 200 levels", id="depth"),
    ],
)
async def test_a_hostile_body_is_refused_before_it_has_arrived(sent: bytes, fact: str) -> None:
    """8 MiB are announced; the answer comes when the first part breaks a limit, and no objects were made of it."""
    head = HEAD + b"Content-Length: %d\r\n\r\n" % MAX_BODY
    async with serving(max_body=MAX_BODY, read_seconds=60) as server, connected(server, 2) as [hostile, honest]:
        hostile[1].write(head + sent)
        answer = await answered(hostile[0])

        assert answer.startswith("HTTP/1.1 400")
        assert fact in answer
        assert '"allowed":true' in await asked(honest)


async def test_a_chunk_that_is_none_is_refused_in_words() -> None:
    """A bad request, not a bug of ours."""
    sent = HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\nzz\r\n"
    async with serving() as server, connected(server, 1, sent) as [(reader, _)]:
        assert " 400 " in (await answered(reader)).splitlines()[0]


async def test_large_reviews_are_read_one_by_one_with_rests() -> None:
    """One that takes a second is followed by three seconds in which none is read."""
    clock = FakeClock()
    bodies, read_at = LargeBodies(clock), []

    async def read_one() -> None:
        async with bodies.turn():
            read_at.append(clock.monotonic())
            await clock.advance(1)

    began = clock.monotonic()
    tasks = [asyncio.create_task(read_one()) for _ in range(3)]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        await clock.advance(0.5)

    assert len(read_at) == 3
    assert read_at[0] - began < 1
    assert all(4 <= later - before <= 6 for before, later in pairwise(read_at))


async def test_few_large_reviews_wait() -> None:
    """One more is refused at once, so what waits takes bounded memory; a review that is read has given up its place."""
    bodies, free = LargeBodies(FakeClock()), asyncio.Event()

    async def read_one() -> None:
        async with bodies.turn():
            await free.wait()

    tasks = [asyncio.create_task(read_one()) for _ in range(MAX_LARGE)]
    await asyncio.sleep(0)
    with pytest.raises(CrowdedError, match="try again"):
        await read_one()
    free.set()
    await asyncio.gather(*tasks)
    await read_one()


async def test_a_large_review_is_answered() -> None:
    """Its size alone is no harm."""
    async with serving(max_body=MAX_BODY) as server, connected(server, 1) as [pair]:
        for _ in range(3):
            assert '"allowed":true' in await asked(pair, LARGE_REVIEW)


@pytest.mark.parametrize(
    ("freed", "fact"),
    [pytest.param(True, '"allowed":true', id="it-waits"), pytest.param(False, '"code":429', id="not-for-ever")],
)
async def test_a_review_beyond_those_at_once_waits(freed: bool, fact: str) -> None:
    """A refusal would fail what the user did, so it comes last, and in words."""
    free, entered = asyncio.Event(), asyncio.Event()

    async def wait(_request: Request) -> ReviewResult:
        entered.set()
        await free.wait()
        return ALLOWED

    handlers: dict[str, Handler] = {"/wait": wait, "/ok": allow}
    async with (
        serving(handlers, at_once=1, read_seconds=5 if freed else 0.2) as server,
        connected(server, 2) as [one, two],
    ):
        first = asyncio.create_task(asked(one, path="/wait"))
        await entered.wait()
        second = asyncio.create_task(asked(two))
        if freed:
            await asyncio.sleep(0)
            free.set()
        answer = await second
        free.set()
        await first

    assert fact in answer
