"""Serve reviews over HTTPS: of admission and of conversion.  The server is stateless and runs as a separate process or
inside the controller.

A bug in a handler refuses that one request inside a well-formed review, whatever the failure policy is: an unchecked
job could exceed its quota, and the user gets a sentence instead of "failed calling webhook".  Only a body that is not a
review gets an HTTP error.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import structlog
from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawRequestMessage
from aiohttp.web_protocol import RequestHandler

from kqueue.api.v1beta1.names import CONVERT_PATH
from kqueue.clock import Clock, SystemClock
from kqueue.connections import Bounds, Connection, Connections, not_listening
from kqueue.documents import LIMITS, DocumentLimits, JsonScan, TooMuchError
from kqueue.errors import ConfigError
from kqueue.isolation import isolated_logged
from webhooks.conversion import review as conversion
from webhooks.review import Fault, NotAReviewError, Request, ReviewResult, read, write
from webhooks.routes import Handler

_log = structlog.get_logger(__name__)

MAX_BODY = 8 * 1024 * 1024
"""A request to the API server has at most 3 MiB, and a review carries the object twice: old and new."""
READ_SECONDS = 10.0
"""Seconds for a body to arrive; no entry of kqueue's webhook configurations has a longer time limit."""
STOP_SECONDS = 10.0
BOUNDS = Bounds(connections=1024, headers=64, idle=120.0, lingering=1.0)
"""API servers close idle connections after 90 s, before this limit, so the server never closes a connection in use."""
MAX_HELD = 32 * 1024 * 1024
"""Bytes of all bodies that are arriving."""
MAX_AT_ONCE = 256
"""Maximum number of concurrent reviews; some of them wait for the API server."""
LARGE = 64 * 1024
"""Size in bytes beyond which bodies are parsed one at a time: parsing may block the event loop for tens of
milliseconds.  A thread would not help, because the parser holds the interpreter's lock."""
MAX_LARGE = 4
"""Maximum number of large bodies that wait to be parsed."""
REST = 3
"""Rest after a large body, in multiples of its parsing time, so that small bodies get three quarters of the time."""
_HEADERS_BYTES = 512 * 1024
_OPERATIONS = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})
_PROBES = frozenset({"/healthz", "/readyz"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewRecord:
    """One review that was answered; `result` is allowed, denied, converted, error or bad-request.

    `operation` is CREATE, UPDATE, DELETE or CONNECT; empty for any other, and for conversions.
    """

    path: str
    operation: str
    result: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewLimits:
    """Limits of reviews.

    Args:
        max_body: bytes of the body of one admission review.
        read_seconds: for the arrival of a body, and for the wait until a review is worked on.
        max_held: bytes of bodies that are still arriving; beyond that the server drops the oldest one.
        at_once: reviews that are worked on; others wait, and are then refused with a message.
        bounds: of connections.
    """

    max_body: int = MAX_BODY
    read_seconds: float = READ_SECONDS
    max_held: int = MAX_HELD
    at_once: int = MAX_AT_ONCE
    bounds: Bounds = BOUNDS


DEFAULT_LIMITS = ReviewLimits()
T = TypeVar("T", covariant=True)


class Parse(Protocol[T]):
    """Makes something of the body of a review."""

    def __call__(self, body: bytes, *, judged: bool) -> T:
        """Parse the body; `judged`: depth and number of values were checked.  Raises NotAReviewError."""
        ...


class WebhookServer:
    """Serves the routes over TLS."""

    def __init__(
        self,
        routes: Mapping[str, Handler],
        *,
        ssl_context: ssl.SSLContext | None,
        host: str = "127.0.0.1",
        port: int = 0,
        limits: ReviewLimits = DEFAULT_LIMITS,
        on_review: Callable[[ReviewRecord], None] = lambda _record: None,
        clock: Clock | None = None,
    ) -> None:
        """`ssl_context` None serves plain HTTP, for tests on loopback; `port` 0 takes a free one."""
        self._routes, self._ssl, self._host, self._port = dict(routes), ssl_context, host, port
        self._on_review, self._clock = on_review, clock or SystemClock()
        self._max_body, self._read_seconds = limits.max_body, limits.read_seconds
        self._bodies = _Bodies(limits.max_held)
        self._large = LargeBodies(self._clock)
        self._places = asyncio.Semaphore(limits.at_once)
        # Without an application around it: its routing takes as long as the answer to a small review.
        self._connections = Connections(
            self._serve,
            clock=self._clock,
            bounds=replace(limits.bounds, request_bytes=2 * max(limits.max_body, conversion.MAX_BODY) + _HEADERS_BYTES),
            context=lambda: self._ssl,
            request_factory=self._request,
        )

    @property
    def port(self) -> int:
        """The address on which the server listens, with the real port if 0 was requested."""
        return self._port

    async def start(self) -> None:
        """Listen.

        Raises:
            ConfigError: the address cannot be used.
        """
        try:
            self._connections.listen(self._host, self._port)
        except OSError as e:
            address, remedy = f"{self._host or '*'}:{self._port}", "choose another webhook.host or webhook.port"
            raise ConfigError(not_listening("webhook", address, e, remedy=remedy)) from e
        self._port = self._connections.port
        self._connections.start()

    async def stop(self) -> None:
        """Finish the reviews in progress, then close."""
        await self._connections.stop(STOP_SECONDS)

    def _request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        loop = asyncio.get_running_loop()
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=self._max_body)

    async def _serve(self, http: web.BaseRequest) -> web.Response:
        connection = http.protocol
        assert isinstance(connection, Connection), "no other is made"
        try:
            return await self._reviewed(http, connection)
        finally:
            connection.end(self._clock.monotonic())

    async def _reviewed(self, http: web.BaseRequest, connection: Connection) -> web.Response:
        started, path = self._clock.monotonic(), http.path
        handler = self._routes.get(path)
        if handler is None and path != CONVERT_PATH:
            if path in _PROBES:
                return web.Response(text="ok")
            text = f"no webhook at {path}; paths are {CONVERT_PATH}, /mutate-<group>-<version>-<kind> and /validate-..."
            return web.Response(status=404, text=text)
        if http.method != "POST":
            return web.Response(status=405, text="send the review by POST", headers={"Allow": "POST"})
        longest = self._max_body if handler is not None else conversion.MAX_BODY
        try:
            if handler is None:
                return await self._converted(http, connection, started)
            request = await self._parsed(http, connection, longest, LIMITS, read)
        except web.HTTPRequestEntityTooLarge:
            return self._refuse(http, 413, f"the body is larger than {longest} bytes; no review may be", started)
        except TimeoutError:
            return self._refuse(http, 408, f"the body did not arrive within {self._read_seconds:g} s", started)
        except CrowdedError as e:
            return self._refuse(http, 429, str(e), started)
        except (NotAReviewError, TooMuchError, HttpProcessingError, web.RequestPayloadError) as e:
            return self._refuse(http, 400, _sentence(e), started)
        answer, result = await self._in_turn(handler, request, path)
        self._record(path, request.operation, result, started)
        return web.Response(body=answer, content_type="application/json")

    async def _converted(self, http: web.BaseRequest, connection: Connection, started: float) -> web.Response:
        """Answer a ConversionReview.  Raises as `_parsed`."""
        answer, is_converted = await self._parsed(
            http, connection, conversion.MAX_BODY, conversion.LIMITS, conversion.answer
        )
        self._record(http.path, "", "converted" if is_converted else "error", started)
        return web.Response(body=answer, content_type="application/json")

    async def _parsed(
        self,
        http: web.BaseRequest,
        connection: Connection,
        longest: int,
        limits: DocumentLimits,
        parse: Parse[T],
    ) -> T:
        """Read the review in a request's body, and return it parsed.

        Raises:
            NotAReviewError, TooMuchError, HttpProcessingError, RequestPayloadError: the body is no readable review.
            HTTPRequestEntityTooLarge, TimeoutError: the body is too long, or did not arrive in time.
            CrowdedError: too many large bodies wait.
        """
        coding = http.headers.get("Content-Encoding", "identity").strip().lower()
        if coding != "identity":
            raise NotAReviewError(f"the body is compressed (Content-Encoding: {coding[:32]}); send it as it is")
        async with asyncio.timeout(self._read_seconds):
            body = await self._bodies.read(http, connection, longest, limits)
        connection.begin()  # not earlier: a connection whose body is still arriving may be closed for a new one
        if len(body) <= LARGE:
            return parse(body, judged=False)
        try:
            async with asyncio.timeout(self._read_seconds), self._large.turn():
                return parse(body, judged=True)
        except TimeoutError:
            raise CrowdedError("the review waited too long to be read, behind other large ones; try again") from None

    async def _in_turn(self, handler: Handler, request: Request, path: str) -> tuple[bytes, str]:
        """Review the request as soon as a slot is free, so that a flood delays other reviews and does not refuse
        them."""
        try:
            if not self._places.locked():
                await self._places.acquire()  # at once
            else:
                async with asyncio.timeout(self._read_seconds):
                    await self._places.acquire()
        except TimeoutError:
            fault = Fault(429, "TooManyRequests", "too many objects are being checked at once; try again")
            return write(request, ReviewResult(fault=fault)), "error"
        try:
            return await self._answered(handler, request, path)
        finally:
            self._places.release()

    async def _answered(self, handler: Handler, request: Request, path: str) -> tuple[bytes, str]:
        """Return the response; a bug refuses only this request, with a message."""
        with isolated_logged(_log, "webhook failed on a bug", path=path) as check:
            try:
                answer = await handler(request)
                return write(request, answer), _result(answer)
            except RecursionError:
                fault = Fault(400, "BadRequest", "the object is nested too deeply to be judged; flatten it")
                return write(request, ReviewResult(fault=fault)), "error"
        sentence = (
            f"the check failed on a bug in kqueue ({type(check.error).__name__}: {check.error}); please report it"
        )
        return write(request, ReviewResult(fault=Fault(500, "InternalError", sentence))), "error"

    def _refuse(self, http: web.BaseRequest, status: int, text: str, started: float) -> web.Response:
        """Return an HTTP error, and close the connection, because the rest of the body may still arrive."""
        self._record(http.path, "", "bad-request", started)
        answer = web.Response(status=status, text=text)
        answer.force_close()
        return answer

    def _record(self, path: str, operation: str, result: str, started: float) -> None:
        seconds = self._clock.monotonic() - started
        operation = operation if operation in _OPERATIONS else ""  # a metric's label: only known values
        self._on_review(ReviewRecord(path=path, operation=operation, result=result, seconds=seconds))


class _Bodies:
    """Bodies that are arriving, with a limit on their total size."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._arriving: dict[Connection, None] = {}
        """Oldest first."""

    async def read(self, http: web.BaseRequest, connection: Connection, longest: int, limits: DocumentLimits) -> bytes:
        """Read the whole body, of at most `longest` bytes.

        Raises:
            HTTPRequestEntityTooLarge: the body is too long.
            TooMuchError: its JSON has too many values, or is too deep; raised before the end of the body.
        """
        if (http.content_length or 0) > longest:
            raise web.HTTPRequestEntityTooLarge(longest, http.content_length or 0)
        pieces: list[bytes] = []
        size = 0
        scan: JsonScan | None = None
        self._arriving[connection] = None
        try:
            async for piece in http.content.iter_any():
                pieces.append(piece)
                size += len(piece)
                self._held += len(piece)
                if size > longest:
                    raise web.HTTPRequestEntityTooLarge(longest, size)
                if self._held > self._most:
                    self._give_up_first()
                if scan is not None:
                    scan.feed(piece)
                elif size > LARGE:
                    scan = JsonScan(limits)
                    for each in pieces:
                        scan.feed(each)
        finally:
            self._held -= size
            self._arriving.pop(connection, None)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _give_up_first(self) -> None:
        first = next(iter(self._arriving), None)
        if first is not None:
            del self._arriving[first]
            first.cut()


class CrowdedError(Exception):
    """Too many large reviews are waiting."""


class LargeBodies:
    """Lets large bodies be parsed one at a time, with a rest after each, and limits the number of waiting ones."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting = 0
        self._one = asyncio.Lock()
        self._rested_at = 0.0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Acquire the slot; the block must not await.

        Raises:
            CrowdedError: too many wait already.
        """
        if self._waiting >= MAX_LARGE:
            raise CrowdedError(f"more than {MAX_LARGE} reviews above {LARGE} bytes wait to be read; try again")
        self._waiting += 1
        try:
            async with self._one:
                if (rest := self._rested_at - self._clock.monotonic()) > 0:
                    await self._clock.sleep(rest)
                began = self._clock.monotonic()
                try:
                    yield
                finally:
                    now = self._clock.monotonic()
                    self._rested_at = now + REST * (now - began)
        finally:
            self._waiting -= 1


def _sentence(error: Exception) -> str:
    if isinstance(error, NotAReviewError):
        return str(error)
    if isinstance(error, TooMuchError):
        return f"the body is refused: {error}"
    return "the body cannot be read to its end: its chunks or its length are wrong"


def _result(answer: ReviewResult) -> str:
    if answer.fault is not None:
        return "error"
    return "allowed" if answer.allowed else "denied"
