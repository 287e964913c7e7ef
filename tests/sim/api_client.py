"""The product's own client on an API server without sockets, with faults that a seed decides.

`SimulatedClient` is `kqueue.runtime.client.Client` down to the one method that sends: lanes, retries, time limits and
errors are the real ones, and so are the bytes of a watch.  Below that a `Server` answers from a `ClusterApi`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self, cast

import aiohttp
import msgspec

from kqueue.clock import Clock
from kqueue.errors import ApiError
from kqueue.runtime.client import Client
from kqueue.runtime.lane import Lane
from kqueue.runtime.transport import Call
from kqueue.sandbox import discovery, failure, listing, route, watching
from kqueue.sandbox.cluster_api import ClusterApi
from kqueue.sandbox.deletion import Preconditions
from kqueue.sandbox.objects import WriteOptions
from kqueue.sandbox.registry import ServedKind
from kqueue.sandbox.route import ResourcePath

PARTITION_SECONDS = 30.0
"""Seconds until a request on a cut connection fails."""
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Frequencies of faults, each per 1000 requests (for watches per 1000 portions of events)."""

    latency: int = 0
    """Requests and answers are delayed by up to `latency_max` seconds each; events of a watch are, too."""
    latency_max: float = 2.0
    conflict: int = 0
    """A write is answered with 409 without another write."""
    server_error: int = 0
    """A request is answered with 500 and has no effect."""
    lost_request: int = 0
    """The connection breaks before the server has seen the request."""
    lost_answer: int = 0
    """The write is done, and then the connection breaks."""
    watch_cut: int = 0
    """A watch breaks, and its next events are lost."""
    watch_gone: int = 0
    """A watch is refused with 410: list again."""
    duplicate: int = 0
    """Events are delivered twice."""


NONE = Faults()
ROUGH = Faults(
    latency=100,
    conflict=30,
    server_error=30,
    lost_request=20,
    lost_answer=40,
    watch_cut=20,
    watch_gone=100,
    duplicate=50,
)


class KilledError(asyncio.CancelledError):
    """The process that sends this request does not exist any more."""


@dataclass(slots=True)
class Answer:
    """The parts of aiohttp's response that the client uses: status, headers, body, or a stream as `content`."""

    status: int
    body: bytes = b""
    content: Line | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"

    async def __aenter__(self) -> Answer:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def read(self) -> bytes:
        """Return the whole body."""
        return self.body

    def close(self) -> None:
        """Drop the connection."""
        if self.content is not None:
            self.content.close()


class Line:
    """The received bytes of one watch."""

    def __init__(self, client: SimulatedClient, source: AsyncGenerator[bytes], chance: random.Random) -> None:
        self._client, self._source, self._chance = client, source, chance
        self._again = b""
        self._reader: asyncio.Task[Any] | None = None
        """The task that waits for the next portion."""
        self._closed = False

    def _was_closed(self) -> bool:
        return self._closed

    async def readany(self) -> bytes:
        """Return received bytes, at least one event; empty at the end.  A cut raises aiohttp's error."""
        if self._again:
            again, self._again = self._again, b""
            return again
        if self._closed:
            raise aiohttp.ClientConnectionError("Connection closed")
        self._reader = reader = asyncio.current_task()
        try:
            portion = await anext(self._source, b"")
            return await self._client.received(portion, self, self._chance)
        except asyncio.CancelledError:
            if self._was_closed() and reader is not None and reader.uncancel() == 0:
                raise aiohttp.ClientConnectionError("Connection closed") from None
            raise
        finally:
            self._reader = None

    def repeat(self, portion: bytes) -> None:
        """Deliver `portion` once more."""
        self._again = portion

    def close(self) -> None:
        """Stop watching; a waiting reader gets aiohttp's error."""
        if self._closed:
            return
        self._closed = True
        if self._reader is not None:
            self._reader.cancel()  # which ends the source, too
        else:
            self._client.tidy(self._source)


class Server:
    """Answers requests from a `ClusterApi`, as its HTTP front does."""

    def __init__(self, api: ClusterApi) -> None:
        self.api = api

    async def answer(self, call: Call) -> Answer:
        """Answer any request but a watch; failures are answers, too."""
        try:
            status, body = await self._answer(call)
            return Answer(status, body)
        except ApiError as error:
            return failed(error)

    def watch(self, call: Call) -> AsyncGenerator[bytes]:
        """Return the bytes of a watch.  Raises ApiError if the watch is refused."""
        found, kind = self._target(call)
        chosen = route.selection(found, kind, call.params)
        wanted = watching.request(kind, chosen, call.params, listing.encoded)
        return watching.stream(self.api, wanted, lambda: self.api.stopped)

    def _target(self, call: Call) -> tuple[ResourcePath, ServedKind]:
        found = route.parse(call.path)
        if found is None:
            raise failure.unknown_path()
        return found, self.api.kind(found.resource)

    async def _answer(self, call: Call) -> tuple[int, bytes]:
        if call.path == "/version":
            return 200, _encode(discovery.VERSION)
        match call.path.strip("/").split("/"):
            case ["apis", group, version]:
                resources = discovery.resource_list(self.api.registry, group, version)
                if resources is None:
                    raise failure.unknown_path()
                return 200, _encode(resources)
            case _:
                pass
        found, kind = self._target(call)
        options = route.write_options(call.params, "kqueue/sim", "system:admin")
        sent: Any = msgspec.json.decode(call.body) if call.body is not None else None
        match call.method:
            case "GET" if found.name:
                return 200, listing.encoded(kind, self.api.record(kind, found.name, found.namespace))
            case "GET":
                page = await listing.page(self.api, kind, route.selection(found, kind, call.params), call.params)
                return 200, listing.joined(kind, page)
            case "POST":
                return 201, _encode(await self.api.create_owned(kind, sent, found.namespace or None, options))
            case "PUT":
                new = await self.api.update_owned(kind, sent, found.name, found.namespace, found.subresource, options)
                return 200, _encode(new)
            case "PATCH":
                return 200, _encode(await self._patch(call, found, kind, sent, options))
            case _:
                return 200, await self._delete(found, kind, sent, options)

    async def _patch(self, call: Call, found: ResourcePath, kind: ServedKind, sent: Any, options: WriteOptions) -> Any:
        return await self.api.patch(
            kind.resource,
            found.name,
            sent,
            namespace=found.namespace,
            subresource=found.subresource,
            content_type=call.content_type,
            options=options,
        )

    async def _delete(self, found: ResourcePath, kind: ServedKind, sent: Any, options: WriteOptions) -> bytes:
        asked = sent.get("preconditions") or {}
        done = await self.api.delete_owned(
            kind,
            found.name,
            found.namespace,
            propagation=sent.get("propagationPolicy"),
            grace_period_seconds=sent.get("gracePeriodSeconds"),
            preconditions=Preconditions(uid=asked.get("uid"), resource_version=asked.get("resourceVersion")),
            options=options,
        )
        return _encode(done.obj)


class SimulatedClient(Client):
    """A client whose requests never leave the process, with faults and kills.

    The fault of a request is drawn from the seed, the request's path and the number of earlier requests to that path,
    so that the order of requests to different paths does not change their faults.
    """

    def __init__(
        self,
        api: ClusterApi,
        clock: Clock,
        *,
        seed: str,
        faults: Faults = NONE,
        slow: Callable[[str], float] = lambda _path: 0.0,
    ) -> None:
        """`slow` returns the seconds that a write to a path takes, besides faults."""
        super().__init__("https://simulated", clock=clock, chance=random.Random(f"{seed}/retries"))
        self.faults = faults
        self._slow = slow
        self.partitioned = False
        """Whether all requests and watches get no answer until their time limits."""
        self.killed = False
        self.writes: list[str] = []
        """Each write that has reached the server, as `PATCH /api/v1/...`."""
        self.troubles: list[tuple[float, str]] = []
        """Time and path of each fault."""
        self.before_write: Callable[[str], None] = lambda _write: None
        """Called with each write just before the server sees it; may call `kill`."""
        self.after_write: Callable[[str], None] = lambda _write: None
        """Called with each write after its effect and before the client's answer; may call `kill`."""
        self._server, self._seed, self._time = Server(api), seed, clock
        self.sent: dict[str, int] = {}
        """The number of all requests, watches included, by `METHOD /path`."""
        self._under_way: set[asyncio.Task[Any]] = set()
        self._tidying: set[asyncio.Task[None]] = set()

    def kill(self) -> None:
        """Simulate SIGKILL: send nothing more, and drop the answers of running requests."""
        self.killed = True
        for task in self._under_way - {asyncio.current_task()}:
            task.cancel()

    def fenced(self, may_write: Callable[[], bool]) -> Self:
        """Return the client itself, so that a kill or cut concerns all requests of the process."""
        self._may_write = may_write
        return self

    @asynccontextmanager
    async def placed(self, lane: Lane) -> AsyncIterator[Self]:
        """Yield the client itself, because a copy would go on after a kill.  Its requests take slots one by one."""
        yield self

    async def close(self) -> None:
        """Close, and end the watches that were dropped."""
        await super().close()
        if self._tidying:
            await asyncio.wait(self._tidying)

    def tidy(self, source: AsyncGenerator[bytes]) -> None:
        """End a watch without a reader."""
        task = asyncio.ensure_future(_end(source))
        self._tidying.add(task)
        task.add_done_callback(self._tidying.discard)

    async def _send(self, call: Call, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        if self.killed:
            raise KilledError
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            return cast("aiohttp.ClientResponse", await self._through(call, timeout))
        finally:
            self._under_way.discard(task)

    async def _through(self, call: Call, timeout: aiohttp.ClientTimeout) -> Answer:
        if self.partitioned:
            await self._time.sleep(min(timeout.total or PARTITION_SECONDS, PARTITION_SECONDS))
            raise TimeoutError
        where = f"{call.method} {call.path}"
        number = self.sent[where] = self.sent.get(where, 0) + 1
        chance = random.Random(f"{self._seed}/{where}/{number}")
        await self._delayed(chance, call.path)
        if call.method in _WRITES and (seconds := self._slow(call.path)):
            await self._time.sleep(seconds)
        if call.verb == "watch":
            return self._watched(call, chance)
        answer = await self._tried(call, where, chance)
        await self._delayed(chance, call.path)
        return answer

    async def _tried(self, call: Call, where: str, chance: random.Random) -> Answer:
        is_write = call.method in _WRITES
        if self._strikes(chance, self.faults.lost_request, call.path):
            raise aiohttp.ServerDisconnectedError
        if self._strikes(chance, self.faults.server_error, call.path):
            return _status(500, "InternalError", "etcdserver: leader changed")
        if call.method in ("PUT", "PATCH") and self._strikes(chance, self.faults.conflict, call.path):
            return _status(409, "Conflict", "the object has been modified")
        if not is_write:
            return await self._server.answer(call)
        self.before_write(where)
        if self.killed:
            raise KilledError
        self.writes.append(where)
        answer = await self._server.answer(call)
        self.after_write(where)
        if self.killed:
            raise KilledError
        if self._strikes(chance, self.faults.lost_answer, call.path):
            raise aiohttp.ServerDisconnectedError
        return answer

    def _watched(self, call: Call, chance: random.Random) -> Answer:
        if "resourceVersion" in call.params and self._strikes(chance, self.faults.watch_gone, call.path):
            return _status(410, "Expired", "too old resource version")
        try:
            return Answer(200, content=Line(self, self._server.watch(call), chance))
        except ApiError as error:
            return failed(error)

    async def received(self, portion: bytes, line: Line, chance: random.Random) -> bytes:
        """Return `portion` of a watch after faults."""
        if self.killed:
            raise KilledError
        if self.partitioned:
            await self._time.sleep(self.settings.watch_read_timeout)
            raise TimeoutError
        await self._delayed(chance, "watch")
        if portion and self._strikes(chance, self.faults.watch_cut, "watch"):
            raise aiohttp.ClientPayloadError("connection lost")
        if portion and self._strikes(chance, self.faults.duplicate, "watch"):
            line.repeat(portion)
        return portion

    async def _delayed(self, chance: random.Random, path: str) -> None:
        if self._strikes(chance, self.faults.latency, path):
            await self._time.sleep(chance.random() * self.faults.latency_max)

    def _strikes(self, chance: random.Random, per_thousand: int, path: str) -> bool:
        """Whether a fault occurs.  Draws in any case, so that a fault that is off does not change the others."""
        struck = chance.randrange(1000) < per_thousand
        if struck:
            self.troubles.append((self._time.monotonic(), path))
        return struck


def failed(error: ApiError) -> Answer:
    """Return an error of the server as an answer."""
    return Answer(error.status, _encode(failure.status_object(error)))


def _status(code: int, reason: str, message: str) -> Answer:
    body = {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": message}
    return Answer(code, _encode(body))


async def _end(source: AsyncGenerator[bytes]) -> None:
    await source.aclose()
