"""Requests to one API server: connections, credentials, time limits, retries and priority lanes."""

from __future__ import annotations

import asyncio
import copy
import random
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from kqueue import __version__
from kqueue.clock import Clock, SystemClock
from kqueue.errors import (
    ApiError,
    ConfigError,
    NotFoundError,
    NotLeadingError,
    ServerError,
    TooManyRequestsError,
    UnauthorizedError,
    UnreachableError,
)
from kqueue.runtime.failure import error_from_answer
from kqueue.runtime.kubeconfig import ClusterAccess
from kqueue.runtime.lane import Lane, LaneLimit, Lanes
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.stream import Stream

_HEADERS = (
    ("Accept-Encoding", "identity"),
    ("Accept", "application/json"),
    ("User-Agent", f"kqueue/{__version__}"),
)

_UNFENCED = frozenset({Lane.LEASE, Lane.EVENTS})
_PASSING = frozenset({408, 500, 502, 503, 504})
"""Statuses that may not occur at the next attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Limits of the client; times in seconds."""

    call_timeout: float = 30.0
    """Time limit of a call with all its retries, from the moment when its lane admits it."""
    attempts: int = 5
    """Limit of requests for one call."""
    retry_base: float = 0.1
    """Pause before the second attempt; doubles, with jitter."""
    retry_max: float = 5.0
    """Longest pause, and the longest `Retry-After` that the client waits for; a longer one is raised."""
    connect_timeout: float = 5.0
    """Time limit for opening a connection."""
    watch_read_timeout: float = 90.0
    """A watch without data for so long is broken; bookmarks arrive about each minute."""
    per_second: float | None = None
    """Requests per second over all lanes except the lease's; None: no limit."""
    burst: int = 500
    """Requests at once after a quiet time, when `per_second` is set."""
    lanes: Mapping[Lane, LaneLimit] = field(default_factory=dict)
    """Limits that differ from the lanes' defaults."""
    answer_max: int | None = None
    """Largest answer in bytes; a larger one is an error.  None: no limit, for a server that is trusted.  Lines of
    watches have a limit of their own.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request with its answer; `status` 0: no answer.  A call with retries makes several requests."""

    verb: str
    """get, list, watch, create, update, patch or delete."""
    resource: str
    """`jobs.batch`, `pods`."""
    subresource: str
    """`status`; empty for the object itself."""
    lane: Lane
    status: int
    seconds: float
    attempt: int
    """1 for the first attempt."""


class NeverSentError(UnreachableError):
    """The connection could not be opened, so the server cannot have acted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request as data."""

    method: str
    verb: str
    resource: ResourceType
    path: str
    what: str
    lane: Lane
    params: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"
    subresource: str = ""
    repeatable: bool = True
    """Whether the call may be repeated without harm."""


class Transport:
    """Sends calls over one pool of kept-alive connections.

    - Every request has a time limit and a `Lane`.
    - 429 and, for requests that may be repeated, 5xx and lost connections are retried with jitter, honouring
      `Retry-After`.  A create is repeated only when the server cannot have acted.
    - On 401 the credentials are read again and the request is sent once more.
    - Failures are `kqueue.errors.ApiError`s, chained to their cause.
    """

    def __init__(
        self,
        cluster: str | ClusterAccess,
        *,
        settings: ClientSettings | None = None,
        clock: Clock | None = None,
        chance: random.Random | None = None,
        on_request: Callable[[RequestRecord], None] | None = None,
    ) -> None:
        """Require a running event loop.  `cluster` says how to reach the API server; a text is only its base URL."""
        if isinstance(cluster, str):
            cluster = ClusterAccess(server=cluster)
        self.server = cluster.server.rstrip("/")
        self.settings = settings or ClientSettings()
        self.on_request = on_request
        """Called for each answered or failed request; must be quick and must not raise."""
        self._credentials = cluster.credentials
        self._clock = clock or SystemClock()
        self._chance = chance or random.Random()
        s = self.settings
        self.lanes = Lanes(s.lanes, clock=self._clock, per_second=s.per_second, burst=s.burst)
        self._proxy, self._tls_server_name = cluster.proxy, cluster.tls_server_name
        self._link = _Link(cluster.tls, cluster.headers)
        self._may_write: Callable[[], bool] | None = None
        self._paid: bool | None = None
        """None: each request waits for a place of its lane.  True: the next request has waited for place and rate."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; running requests fail."""
        self.lanes.close()
        await self._link.close()

    def fenced(self, may_write: Callable[[], bool]) -> Self:
        """Return a client over the same connections and lanes that sends a write only while `may_write` is True.

        `may_write` is called just before each attempt; when it returns False, the write raises NotLeadingError.  Writes
        of events and of the lease are not fenced.  Closing either client closes both.
        """
        fenced = copy.copy(self)
        vars(fenced)["_may_write"] = may_write
        return fenced

    @asynccontextmanager
    async def placed(self, lane: Lane) -> AsyncIterator[Self]:
        """Wait for a place of `lane` and for the rate, and yield a client whose first request does not wait again.

        For requests that must not wait for a place while their caller holds a lock that more urgent requests need.
        """
        async with self.lanes.place(lane):
            placed = copy.copy(self)
            vars(placed)["_paid"] = True
            yield placed

    # --- sending

    async def send(self, call: Call) -> bytes:
        """Send a call until it is answered, finally refused, out of attempts or out of time."""
        async with self._place(call.lane):
            deadline = self._clock.monotonic() + self.settings.call_timeout
            renewed = False
            attempt = 1
            while True:
                known = self._link.renewals
                try:
                    self._check_fence(call)
                    return await self._attempt(call, attempt, deadline)
                except NotFoundError:
                    if call.verb == "delete" and attempt > 1:
                        return b""  # an earlier attempt without an answer has succeeded
                    raise
                except ApiError as e:
                    if is_about_trust(e) and not renewed:
                        renewed = True
                        await self._reload_credentials(known)
                        continue
                    pause = self._pause(call, e, attempt)
                    if pause is None or self._clock.monotonic() + pause >= deadline:
                        raise
                    await self._clock.sleep(pause)
                attempt += 1
                await self.lanes.pace(call.lane)

    @asynccontextmanager
    async def _place(self, lane: Lane) -> AsyncIterator[None]:
        if self._paid is None:
            async with self.lanes.place(lane):
                yield
            return
        if not self._paid:
            await self.lanes.pace(lane)
        self._paid = False
        yield

    def _check_fence(self, call: Call) -> None:
        if self._may_write is None or call.method == "GET" or call.lane in _UNFENCED or self._may_write():
            return
        raise NotLeadingError(f"{call.what}: not sent, because this process does not lead (any more)")

    def _pause(self, call: Call, error: ApiError, attempt: int) -> float | None:
        """Return the seconds until the next attempt; None: no further attempt."""
        s = self.settings
        lost = isinstance(error, UnreachableError) or error.status in _PASSING
        refused = isinstance(error, TooManyRequestsError | NeverSentError)  # the server has not executed the request
        if attempt >= s.attempts or not (refused or (lost and call.repeatable)):
            return None
        pause = min(s.retry_max, s.retry_base * 2.0 ** (attempt - 1)) * self._chance.uniform(0.5, 1.0)
        if error.retry_after is None:
            return pause
        # Jitter on top of the requested pause, because a busy server asks all clients for the same one.
        return None if error.retry_after > s.retry_max else error.retry_after + pause

    async def _attempt(self, call: Call, attempt: int, deadline: float) -> bytes:
        left = max(0.001, deadline - self._clock.monotonic())
        timeout = aiohttp.ClientTimeout(total=left, sock_connect=self.settings.connect_timeout)
        started, status = self._clock.monotonic(), 0
        try:
            async with await self._send(call, timeout) as response:
                body = await self._body(call, response)
                status = response.status
                if status >= 300:
                    raise error_from_answer(call.what, status=status, headers=response.headers, body=body)
                return body
        except (aiohttp.ClientError, OSError) as e:  # TimeoutError is an OSError
            raise self._unreachable(call, e) from e
        finally:
            self._report(call, status=status, started=started, attempt=attempt)

    async def open_stream(self, call: Call) -> Stream:
        """Send a call whose answer is read line by line."""
        s = self.settings
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=s.connect_timeout, sock_read=s.watch_read_timeout)
        started, status = self._clock.monotonic(), 0
        try:
            await self.lanes.pace(call.lane)
            response = await self._send(call, timeout)
            status = response.status
            if status == 200 and response.content_type == "application/json":
                return Stream(response, call.what)
            async with response:
                body = await self._body(call, response)
                raise error_from_answer(call.what, status=status, headers=response.headers, body=body)
        except (aiohttp.ClientError, OSError) as e:
            raise self._unreachable(call, e) from e
        finally:
            self._report(call, status=status, started=started, attempt=1)

    async def _body(self, call: Call, response: aiohttp.ClientResponse) -> bytes:
        """Return the body of an answer.

        Raises:
            ServerError: it is larger than the limit; the connection is closed, and the rest is not read.
        """
        most = self.settings.answer_max
        if most is None:
            return await response.read()
        pieces, size = list[bytes](), response.content_length or 0
        if size <= most:
            size = 0
            async for piece in response.content.iter_any():
                pieces.append(piece)
                size += len(piece)
                if size > most:
                    break
            else:
                return b"".join(pieces)
        response.close()
        raise ServerError(f"{call.what}: an answer of more than {most >> 20} MiB", status=response.status)

    async def _send(self, call: Call, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        headers = {"Content-Type": call.content_type} if call.body is not None else {}
        authorization = await self._credentials.header()
        if authorization:
            headers["Authorization"] = authorization
        query = f"?{urlencode(call.params)}" if call.params else ""
        return await self._link.session.request(
            call.method,
            URL(f"{self.server}{call.path}{query}", encoded=True),
            data=call.body,
            headers=headers,
            timeout=timeout,
            proxy=self._proxy,
            server_hostname=self._tls_server_name,
            allow_redirects=False,  # a redirect would send our token to its target
        )

    def _unreachable(self, call: Call, error: Exception) -> UnreachableError:
        kind = NeverSentError if isinstance(error, aiohttp.ClientConnectorError) else UnreachableError
        reason = "timed out" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        return kind(f"{call.what}: no answer from {self.server}: {reason}")

    def _report(self, call: Call, *, status: int, started: float, attempt: int) -> None:
        if self.on_request is None:
            return
        record = RequestRecord(
            verb=call.verb,
            resource=str(call.resource),
            subresource=call.subresource,
            lane=call.lane,
            status=status,
            seconds=self._clock.monotonic() - started,
            attempt=attempt,
        )
        self.on_request(record)

    async def _reload_credentials(self, known: int) -> None:
        """Read the credentials again, once for all requests that were refused with the `known` credentials."""
        link = self._link
        if known != link.renewals:
            return
        if link.renewing is None or link.renewing.done():
            link.renewing = asyncio.create_task(self._read_credentials())
        await asyncio.shield(link.renewing)

    async def _read_credentials(self) -> None:
        try:
            tls = await self._credentials.reload()
        except ConfigError as e:
            # The file may be in replacement: requests fail until it exists again.
            raise UnauthorizedError(f"credentials cannot be read again: {e}", status=401) from e
        if tls is not None:
            self._link.replace(tls, after=self.settings.call_timeout)
        self._link.renewals += 1


class _Link:
    """The connections of a client and of its fenced clients."""

    def __init__(self, tls: ssl.SSLContext | None, headers: Sequence[tuple[str, str]]) -> None:
        self._headers = [*_HEADERS, *headers]
        self.session = self._open(tls)
        self.renewals = 0
        """How many times the credentials were read again."""
        self.renewing: asyncio.Task[None] | None = None
        self._former: dict[aiohttp.ClientSession, asyncio.TimerHandle] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def _open(self, tls: ssl.SSLContext | None) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls or True),
            headers=self._headers,
            read_bufsize=1 << 20,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    def replace(self, tls: ssl.SSLContext, *, after: float) -> None:
        """Make new connections with `tls`.  Former calls have `after` seconds to end; then former watches end."""
        former, self.session = self.session, self._open(tls)
        self._former[former] = asyncio.get_running_loop().call_later(after, self._close_former, former)

    def _close_former(self, session: aiohttp.ClientSession) -> None:
        self._former.pop(session, None)
        task = asyncio.get_running_loop().create_task(session.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all connections."""
        for session, timer in self._former.items():
            timer.cancel()
            await session.close()
        self._former.clear()
        await asyncio.gather(*self._closing)
        await self.session.close()


def is_about_trust(error: ApiError) -> bool:
    """Whether client and server do not trust each other any more, so that reading the credentials again may help."""
    return isinstance(error, UnauthorizedError) or isinstance(
        error.__cause__, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError
    )
