"""The API server's verbs, with time limits, retries and priority lanes."""

from __future__ import annotations

import asyncio
import copy
import random
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

from kqueue import __version__
from kqueue.clock import Clock, SystemClock
from kqueue.errors import (
    ApiError,
    ConfigError,
    FieldError,
    InvalidObjectError,
    NotFoundError,
    NotLeadingError,
    ServerError,
    TooManyRequestsError,
    UnauthorizedError,
    UnreachableError,
)
from kqueue.runtime.credentials import Credentials, NoCredentials
from kqueue.runtime.failure import error_from_answer
from kqueue.runtime.kubeconfig import Cluster, find_cluster
from kqueue.runtime.lane import Lane, LaneLimit, Lanes
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.stream import Stream

T = TypeVar("T")

Json = dict[str, Any]
"""A JSON object as it stands on the wire."""


class PatchType(StrEnum):
    """How a patch is to be understood; the value is its content type."""

    MERGE = "application/merge-patch+json"
    """RFC 7386: maps are merged, lists replaced.  With `metadata.resourceVersion` inside it is an optimistic lock."""
    STRATEGIC = "application/strategic-merge-patch+json"
    """Lists are merged by key; built-in kinds only."""
    JSON = "application/json-patch+json"
    """RFC 6902: a list of operations."""
    APPLY = "application/apply-patch+yaml"
    """Server-side apply; needs a field manager."""


class Propagation(StrEnum):
    """What happens to an object's dependents when it is deleted."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Limits of the client; times in seconds."""

    call_timeout: float = 30.0
    """One call with all its retries, from the moment its lane lets it go."""
    attempts: int = 5
    """Requests that one call may cost."""
    retry_base: float = 0.1
    """Pause before the second attempt; doubles, with jitter."""
    retry_max: float = 5.0
    """Longest pause; also the longest `Retry-After` that the client sits out by itself.  A longer one is raised."""
    connect_timeout: float = 5.0
    """Opening a connection."""
    watch_read_timeout: float = 90.0
    """A watch that brings nothing for so long is broken; bookmarks arrive about each minute."""
    per_second: float | None = None
    """Requests per second over all lanes but the lease's; None for no limit."""
    burst: int = 500
    """Requests that may go at once after a quiet time, when `per_second` is set."""
    lanes: Mapping[Lane, LaneLimit] = field(default_factory=dict)
    """Limits that differ from the lanes' defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request that was answered, or not (`status` 0).  A call that is retried makes several."""

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
    """1 for the first."""


class _NeverSentError(UnreachableError):
    """The connection could not be opened, so the server cannot have acted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
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
    """Whether doing it twice does no harm."""


class Client:
    """The verbs of one API server over one pool of kept-alive connections.

    - Every request has a time limit and a `Lane`.
    - 429 and, for requests that may be repeated, 5xx and lost connections are retried with jitter, honouring
      `Retry-After`.  A create is repeated only when the server cannot have acted.
    - On 401 the credentials are read again and the request is sent once more.
    - Failures are `kqueue.errors.ApiError`s, chained to their cause.
    - Whole objects are never written, except the lease: use patches of the fields we own.

    Objects go in as JSON-ready values and come out as dictionaries, or as the struct that `decode` names.
    """

    def __init__(
        self,
        server: str,
        *,
        settings: ClientSettings | None = None,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        tls_server_name: str | None = None,
        proxy: str | None = None,
        clock: Clock | None = None,
        chance: random.Random | None = None,
        on_request: Callable[[RequestRecord], None] | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Needs a running event loop.  `server` is the base URL; `tls` None uses the system's CAs for https.

        `headers` go with every request.
        """
        self.server = server.rstrip("/")
        self.settings = settings or ClientSettings()
        self.on_request = on_request
        """Called for each answered or failed request; must be quick and must not raise."""
        self._credentials = credentials or NoCredentials()
        self._clock = clock or SystemClock()
        self._chance = chance or random.Random()
        s = self.settings
        self.lanes = Lanes(s.lanes, clock=self._clock, per_second=s.per_second, burst=s.burst)
        self._proxy, self._tls_server_name = proxy, tls_server_name
        self._link = _Link(tls, headers)
        self._may_write: Callable[[], bool] | None = None
        self._paid: bool | None = None
        """None: each request waits for a place of its lane.  True: the next one has waited for all there is."""

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; requests under way fail."""
        self.lanes.close()
        await self._link.close()

    def fenced(self, may_write: Callable[[], bool]) -> Client:
        """A client over the same connections and lanes that sends a write only while `may_write` says so.

        It is asked just before each attempt.  Events and the lease itself are not fenced.  Closing either closes both.

        The writes of it raise NotLeadingError otherwise.
        """
        fenced = copy.copy(self)
        vars(fenced)["_may_write"] = may_write
        return fenced

    @asynccontextmanager
    async def placed(self, lane: Lane) -> AsyncIterator[Client]:
        """Wait for a place of `lane` and for the rate, and yield a client for a request or two that wait for no place.

        For requests that must not wait for a place while their caller holds a lock that more urgent requests need.
        """
        async with self.lanes.place(lane):
            placed = copy.copy(self)
            vars(placed)["_paid"] = True
            yield placed

    # --- reading

    async def version(self) -> Json:
        """What the server says about itself: the quickest proof that it answers and accepts us."""
        call = _Call(method="GET", verb="get", resource=_VERSION, path="/version", what="get /version", lane=Lane.JOBS)
        return _json(await self._call(call), call.what)

    async def get(
        self,
        resource: ResourceType,
        name: str,
        namespace: str | None = None,
        *,
        decode: type[T],
        lane: Lane = Lane.JOBS,
    ) -> T:
        """One object as a `decode`.

        Raises:
            NotFoundError: there is none.
            InvalidObjectError: it does not have the shape of `decode`.
        """
        what = _words("get", resource, namespace, name)
        return _typed(await self._get(resource, name, namespace, lane), decode, what)

    async def get_json(
        self, resource: ResourceType, name: str, namespace: str | None = None, *, lane: Lane = Lane.JOBS
    ) -> Json:
        """One object as a dictionary.

        Raises:
            NotFoundError: there is none.
        """
        return _json(await self._get(resource, name, namespace, lane), _words("get", resource, namespace, name))

    async def get_path(
        self, path: str, params: Mapping[str, str] | None = None, *, resource: ResourceType, lane: Lane = Lane.JOBS
    ) -> Json:
        """What is at a path that no object has: an answer of an aggregated API, discovery.  `resource` is for metrics.

        Raises:
            NotFoundError: there is nothing at this path.
        """
        what = f"get {path}"
        call = _Call(
            method="GET", verb="get", resource=resource, path=path, what=what, lane=lane, params=params or {}
        )  # fmt: skip
        return _json(await self._call(call), what)

    async def list_json(
        self,
        resource: ResourceType,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        page: int = 500,
        lane: Lane = Lane.JOBS,
    ) -> list[Json]:
        """All matching objects, `page` of them per request, as of one moment.  For bulk reading use a reflector.

        Items of a list lack `apiVersion` and `kind`; they are filled in.
        """
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        params = {"limit": str(page), **{k: v for k, v in selectors.items() if v}}
        found: list[Json] = []
        while True:
            got = _json(await self.list_page(resource, namespace, params=params, lane=lane), f"list {resource}")
            found += ({"apiVersion": resource.api_version, "kind": resource.kind, **o} for o in got.get("items") or ())
            token = got.get("metadata", {}).get("continue")
            if not token:
                return found
            params["continue"] = token

    async def list_page(
        self,
        resource: ResourceType,
        namespace: str | None = None,
        *,
        params: Mapping[str, str],
        lane: Lane = Lane.WATCH,
    ) -> bytes:
        """The raw answer to one list request.

        Raises:
            GoneError: the continue token has expired; begin anew.
        """
        path, what = resource.path(namespace), _words("list", resource, namespace)
        return await self._call(
            _Call(method="GET", verb="list", resource=resource, path=path, what=what, lane=lane, params=params)
        )

    async def open_watch(
        self, resource: ResourceType, namespace: str | None = None, *, params: Mapping[str, str]
    ) -> Stream:
        """Open a watch and return its stream; the caller closes it.  No retries: the reflector has its own rhythm.

        Raises:
            ServerError: among others, when the answer is not JSON (a proxy's page).
        """
        path, what = resource.path(namespace), _words("watch", resource, namespace)
        params = {"watch": "true", **params}
        call = _Call(
            method="GET", verb="watch", resource=resource, path=path, what=what, lane=Lane.WATCH, params=params
        )
        known = self._link.renewals
        try:
            return await self._open(call)
        except ApiError as e:
            if not _is_about_trust(e):
                raise
            await self._reload_credentials(known)
            return await self._open(call)

    # --- writing

    async def create(
        self,
        resource: ResourceType,
        obj: Any,
        namespace: str | None = None,
        *,
        dry_run: bool = False,
        lane: Lane = Lane.JOBS,
    ) -> Json:
        """Create an object; returns it as stored.  `namespace` None is taken from the object's metadata.

        `dry_run` lets the server check everything and store nothing.

        Raises:
            AlreadyExistsError: one of that name is there.
            UnreachableError: no answer came; the object may exist or not.
        """
        namespace = namespace or _metadata(obj).get("namespace")
        if resource.namespaced and not namespace:
            raise ValueError(f"{resource} is namespaced: the object to create names no namespace")
        what = _words("create", resource, namespace, _metadata(obj).get("name"))
        call = _Call(
            method="POST", verb="create", resource=resource, path=resource.path(namespace), what=what, lane=lane,
            params=_dry(dry_run), body=msgspec.json.encode(obj), repeatable=False,
        )  # fmt: skip
        return _json(await self._call(call), what)

    async def patch(
        self,
        resource: ResourceType,
        name: str,
        patch: Any,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        content_type: PatchType = PatchType.MERGE,
        field_manager: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        lane: Lane = Lane.JOBS,
    ) -> Json:
        """Change the fields that `patch` names; returns the object as stored.

        `force` takes over fields of other managers (server-side apply only).  `dry_run` lets the server check
        everything and store nothing.

        Raises:
            ConflictError: the patch carries a resourceVersion that is no longer current, or, in server-side apply,
                another manager owns a field.  After a retry it may mean that our own first attempt came through.
            NotFoundError: there is no such object.
        """
        what = _words("patch", resource, namespace, name, subresource)
        params = _dry(dry_run)
        if field_manager:
            params["fieldManager"] = field_manager
        if force:
            params["force"] = "true"
        call = _Call(
            method="PATCH",
            verb="patch",
            resource=resource,
            path=resource.path(namespace, name, subresource),
            what=what,
            lane=lane,
            params=params,
            body=msgspec.json.encode(patch),
            content_type=content_type.value,
            subresource=subresource or "",
            repeatable=content_type is not PatchType.JSON,
        )
        return _json(await self._call(call), what)

    async def replace(self, resource: ResourceType, obj: Any, *, lane: Lane = Lane.JOBS) -> Json:
        """Write a whole object that we own wholly (a lease); it must carry the resourceVersion it was read at.

        Raises:
            ConflictError: somebody else wrote first.
        """
        meta = _metadata(obj)
        if not meta.get("resourceVersion"):
            raise ValueError(f"replacing {resource} {meta.get('name')!r} without a resourceVersion would be blind")
        name, namespace = meta["name"], meta.get("namespace")
        what = _words("update", resource, namespace, name)
        call = _Call(
            method="PUT", verb="update", resource=resource, path=resource.path(namespace, name), what=what, lane=lane,
            body=msgspec.json.encode(obj),
        )  # fmt: skip
        return _json(await self._call(call), what)

    async def delete(
        self,
        resource: ResourceType,
        name: str,
        namespace: str | None = None,
        *,
        propagation: Propagation | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
        dry_run: bool = False,
        lane: Lane = Lane.JOBS,
    ) -> None:
        """Ask for deletion.  With finalizers or a grace period the object stays for a while.

        `uid` and `resource_version` are preconditions.  `dry_run` lets the server check everything and delete nothing.

        Raises:
            NotFoundError: there is no such object (after a retry it counts as done instead).
            ConflictError: a precondition does not hold.
        """
        what = _words("delete", resource, namespace, name)
        wishes = {"uid": uid, "resourceVersion": resource_version}
        given = {
            "preconditions": {k: v for k, v in wishes.items() if v} or None,
            "propagationPolicy": propagation.value if propagation else None,
            "gracePeriodSeconds": grace_seconds,
            "dryRun": ["All"] if dry_run else None,  # the API server reads no query beside a body
        }
        options = {"kind": "DeleteOptions", "apiVersion": "v1", **{k: v for k, v in given.items() if v is not None}}
        call = _Call(
            method="DELETE", verb="delete", resource=resource, path=resource.path(namespace, name), what=what,
            lane=lane, body=msgspec.json.encode(options),
        )  # fmt: skip
        await self._call(call)

    # --- underneath

    async def _get(self, resource: ResourceType, name: str, namespace: str | None, lane: Lane) -> bytes:
        path, what = resource.path(namespace, name), _words("get", resource, namespace, name)
        return await self._call(_Call(method="GET", verb="get", resource=resource, path=path, what=what, lane=lane))

    async def _call(self, call: _Call) -> bytes:
        """Send until answered, refused for good, out of attempts or out of time."""
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
                        return b""  # the attempt whose answer was lost has done it
                    raise
                except ApiError as e:
                    if _is_about_trust(e) and not renewed:
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

    def _check_fence(self, call: _Call) -> None:
        if self._may_write is None or call.method == "GET" or call.lane in _UNFENCED or self._may_write():
            return
        raise NotLeadingError(f"{call.what}: not sent, because this process does not lead (any more)")

    def _pause(self, call: _Call, error: ApiError, attempt: int) -> float | None:
        """Seconds until the next attempt; None when there must be none."""
        s = self.settings
        lost = isinstance(error, UnreachableError) or error.status in _PASSING
        refused = isinstance(error, TooManyRequestsError | _NeverSentError)  # the server has not acted
        if attempt >= s.attempts or not (refused or (lost and call.repeatable)):
            return None
        pause = min(s.retry_max, s.retry_base * 2.0 ** (attempt - 1)) * self._chance.uniform(0.5, 1.0)
        if error.retry_after is None:
            return pause
        # Jitter on top of what was asked: all clients of a busy server are told the same number.
        return None if error.retry_after > s.retry_max else error.retry_after + pause

    async def _attempt(self, call: _Call, attempt: int, deadline: float) -> bytes:
        left = max(0.001, deadline - self._clock.monotonic())
        timeout = aiohttp.ClientTimeout(total=left, sock_connect=self.settings.connect_timeout)
        started, status = self._clock.monotonic(), 0
        try:
            async with await self._send(call, timeout) as response:
                body = await response.read()
                status = response.status
                if status >= 300:
                    raise error_from_answer(call.what, status=status, headers=response.headers, body=body)
                return body
        except (aiohttp.ClientError, OSError) as e:  # TimeoutError is an OSError
            raise self._unreachable(call, e) from e
        finally:
            self._report(call, status=status, started=started, attempt=attempt)

    async def _open(self, call: _Call) -> Stream:
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
                body = await response.read()
                raise error_from_answer(call.what, status=status, headers=response.headers, body=body)
        except (aiohttp.ClientError, OSError) as e:
            raise self._unreachable(call, e) from e
        finally:
            self._report(call, status=status, started=started, attempt=1)

    async def _send(self, call: _Call, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
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
            allow_redirects=False,  # a redirect would carry our token to wherever it points
        )

    def _unreachable(self, call: _Call, error: Exception) -> UnreachableError:
        kind = _NeverSentError if isinstance(error, aiohttp.ClientConnectorError) else UnreachableError
        reason = "timed out" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        return kind(f"{call.what}: no answer from {self.server}: {reason}")

    def _report(self, call: _Call, *, status: int, started: float, attempt: int) -> None:
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
        """Read the credentials again, once for all requests that were refused with the `known` ones."""
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
            # A file that is being replaced, perhaps: what failed goes on failing until it is there.
            raise UnauthorizedError(f"credentials cannot be read again: {e}", status=401) from e
        if tls is not None:
            self._link.replace(tls, after=self.settings.call_timeout)
        self._link.renewals += 1


class _Link:
    """The connections of one client, and of those that are fenced."""

    def __init__(self, tls: ssl.SSLContext | None, headers: Sequence[tuple[str, str]]) -> None:
        self._headers = [*_HEADERS, *headers]
        self.session = self._open(tls)
        self.renewals = 0
        """How often the credentials were read again."""
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
        """Make new connections with this.  Calls on the former ones have `after` seconds to end; then, watches end."""
        former, self.session = self.session, self._open(tls)
        self._former[former] = asyncio.get_running_loop().call_later(after, self._close_former, former)

    def _close_former(self, session: aiohttp.ClientSession) -> None:
        self._former.pop(session, None)
        task = asyncio.get_running_loop().create_task(session.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all of them."""
        for session, timer in self._former.items():
            timer.cancel()
            await session.close()
        self._former.clear()
        await asyncio.gather(*self._closing)
        await self.session.close()


def _is_about_trust(error: ApiError) -> bool:
    """Whether one side does not trust the other any more: reading credentials and certificates again may help."""
    return isinstance(error, UnauthorizedError) or isinstance(
        error.__cause__, aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError
    )


async def connect(
    kubeconfig: Path | None = None,
    context: str | None = None,
    settings: ClientSettings | None = None,
    *,
    clock: Clock | None = None,
    on_request: Callable[[RequestRecord], None] | None = None,
) -> Client:
    """A client for the cluster that the surroundings name.  Sends nothing yet.

    The first that applies: `kubeconfig`; the files in the environment's KUBECONFIG; the pod's own service account;
    `~/.kube/config`.  `context` None means the kubeconfig's current context.

    Raises:
        ConfigError: none applies, or the one that does cannot be read; names the path and the remedy.
    """
    cluster = await find_cluster(kubeconfig, context)
    return client_of(cluster, settings, clock=clock, on_request=on_request)


def client_of(
    cluster: Cluster,
    settings: ClientSettings | None = None,
    *,
    clock: Clock | None = None,
    on_request: Callable[[RequestRecord], None] | None = None,
) -> Client:
    """A client for a cluster that was found.  Needs a running event loop; sends nothing yet."""
    return Client(
        cluster.server,
        settings=settings,
        credentials=cluster.credentials,
        tls=cluster.tls,
        tls_server_name=cluster.tls_server_name,
        proxy=cluster.proxy,
        clock=clock,
        on_request=on_request,
        headers=cluster.headers,
    )


_HEADERS = (
    ("Accept-Encoding", "identity"),
    ("Accept", "application/json"),
    ("User-Agent", f"kqueue/{__version__}"),
)
_VERSION = ResourceType("", "v1", "version", "Info", namespaced=False)
_UNFENCED = frozenset({Lane.LEASE, Lane.EVENTS})
_PASSING = frozenset({408, 500, 502, 503, 504})
"""Statuses that may be gone at the next attempt."""


def _dry(dry_run: bool) -> dict[str, str]:
    return {"dryRun": "All"} if dry_run else {}


def _words(verb: str, resource: ResourceType, namespace: str | None, *rest: str | None) -> str:
    name = "/".join(part for part in (namespace, *rest) if part)
    return f"{verb} {resource} {name}".rstrip()


def _metadata(obj: Any) -> Mapping[str, Any]:
    meta: Mapping[str, Any] = obj.get("metadata") or {}
    return meta


def _json(body: bytes, what: str) -> Json:
    try:
        return msgspec.json.decode(body, type=Json)
    except msgspec.DecodeError as e:
        raise ServerError(f"{what}: the answer is not a JSON object: {e}", status=200) from e


def _typed(body: bytes, decode: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(body, type=decode)
    except msgspec.ValidationError as e:
        problem, _, path = str(e).partition(" - at ")
        raise InvalidObjectError(what, [FieldError(path.strip("`") or "$", problem)]) from e
    except msgspec.DecodeError as e:
        raise ServerError(f"{what}: the answer is not JSON: {e}", status=200) from e
