"""Keeps a store equal to the objects of the API server, in spite of failures.

```
  Empty ──► Streaming ── end of initial events ──► Watching ── closed ──► Listed ──► Watching ...
    │           │ refused                              ▲
    └───────► Paging ─┬─ last page ──► Listed ─────────┘
                ▲     │
                └─────┘ next page

  after a failure, by way of Pausing:
    410, or initial events that broke off     Empty: list again
    a page that failed                        the same page again
    404 of a kind that may be missing         Empty, after longer and longer pauses
    anything else                             Checking: is it still the server that we know? then Listed
```

One state is one frozen value and one function, which returns the next state.  Between two syncs the store is only ever
changed by events that are newer than what it holds; at the end of each sync objects that the server did not list
are deleted, so deletions during an interruption are delivered too.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import structlog

from kqueue.clock import Clock
from kqueue.errors import (
    ApiError,
    ConfigError,
    ForbiddenError,
    GoneError,
    InvalidError,
    KqueueError,
    NotFoundError,
    UnauthorizedError,
    UnreachableError,
)
from kqueue.isolation import isolated
from kqueue.runtime.backoff import Backoff
from kqueue.runtime.client import Client
from kqueue.runtime.frame import Bookmark, Change, EventType, FrameDecoder, KubernetesObject, Unreadable
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.store import Handler, ObjectKey, Store, object_key
from kqueue.runtime.stream import Stream

T = TypeVar("T", bound=KubernetesObject)
V = TypeVar("V")

_TOMBSTONES = 4096
"""Limit of remembered deletions; they keep a late, older event from restoring a deleted object."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings:
    """Settings of a reflector; times in seconds."""

    streaming: bool = True
    """Request the initial state as a stream; lists of servers that refuse are read in pages."""
    page_size: int = 500
    server_timeout: tuple[int, int] = (300, 600)
    """Range of the timeout of a watch that is requested from the server, so that watches spread over servers."""
    retry_base: float = 0.5
    """First pause after a failure; doubles, with jitter."""
    retry_max: float = 30.0
    long_lived: float = 10.0
    """The end of a watch that lasted so long is no failure."""
    yield_objects: int = 200
    """Objects handled before the event loop gets a turn ..."""
    yield_seconds: float = 0.010
    """... unless this much time has passed before."""
    optional: bool = False
    """The server may not serve the kind yet: this is no failure, and the kind is requested again later."""
    absent_base: float = 1.0
    """First pause after a request for a kind that is not served; doubles, with jitter."""
    absent_max: float = 120.0


_URGED_PAUSE = 0.5
"""Seconds between attempts while a caller waits for a new watch."""


# --- states


@dataclass(frozen=True, slots=True)
class Empty:
    """No objects are known, or the known objects may be wrong."""


@dataclass(frozen=True, slots=True)
class Streaming:
    """The initial events are arriving; `seen` has their keys."""

    stream: Stream
    seen: set[ObjectKey]


@dataclass(frozen=True, slots=True)
class Paging:
    """A list is being read; `token` requests the next page and is empty for the first."""

    token: str
    seen: set[ObjectKey]


@dataclass(frozen=True, slots=True)
class Listed:
    """All objects are known up to the remembered version; no watch is open."""


@dataclass(frozen=True, slots=True)
class Checking:
    """All objects were known, but the server failed and may have been restored to another state."""


@dataclass(frozen=True, slots=True)
class Watching:
    """Events are arriving; the stream was opened at `since` (monotonic); `fruitful` after its first event."""

    stream: Stream
    since: float
    fruitful: bool = False


@dataclass(frozen=True, slots=True)
class Pausing:
    """A pause of `seconds`; the next state is `then`."""

    seconds: float
    then: State


State = Empty | Streaming | Paging | Listed | Checking | Watching | Pausing


@dataclass(slots=True)
class WatchCounters:
    """Counters of a reflector since its start."""

    syncs: int = 0
    """Syncs begun: the first, and further lists after a 410 or a failed sync."""
    watches: int = 0
    """Watches opened."""
    failures: int = 0
    """Attempts that ended in an error."""
    events: int = 0
    """Changes received."""
    dropped: int = 0
    """Events older than the known object: duplicated or reordered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which objects of a kind are watched.  `namespace` None means all; empty selectors match everything."""

    namespace: str | None = None
    label_selector: str = ""
    field_selector: str = ""


@dataclass(frozen=True, slots=True)
class Projection(Generic[T, V]):
    """The form in which the store keeps an object.

    Args:
        decode: the struct that an object is read as.
        view: turns the struct into the value that the store keeps.
    """

    decode: type[T]
    view: Callable[[T], V]


@dataclass(slots=True)
class _Progress:
    """Work done since the event loop last had a turn."""

    objects: int = 0
    since: float = field(default=-math.inf)


class Reflector(Generic[T, V]):
    """Lists and watches one kind and keeps `store` true to it.

    An object that cannot be read, or whose view raises, stays in the store as it was last readable and is named in
    `unreadable`: one broken object does not stop the watch.

    Handlers belong to the store (`store.subscribe`); they run at once, as each event is read.
    """

    def __init__(
        self,
        client: Client,
        resource: ResourceType,
        projection: Projection[T, V],
        *,
        clock: Clock,
        selection: Selection | None = None,
        settings: WatchSettings | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self.resource = resource
        self.store: Store[V] = Store(str(resource))
        self.synced = asyncio.Event()
        """Set after the first sync; stays set while a later sync runs."""
        self.settled = asyncio.Event()
        """Set with `synced`, and when the server does not serve an optional kind."""
        self.missing = False
        """The kind is optional, and the server does not serve it at present."""
        self.unreadable: dict[ObjectKey, str] = {}
        """Unreadable objects on the server, with the reason."""
        self.counters = WatchCounters()
        self.state: State = Empty()
        self._client, self._view, self._clock = client, projection.view, clock
        self._selection = selection or Selection()
        self._settings = s = settings or WatchSettings()
        self._chance = chance or random.Random()
        self._decoder = FrameDecoder(projection.decode)
        self._backoff = Backoff(base=s.retry_base, cap=s.retry_max, chance=self._chance)
        self._absence = Backoff(base=s.absent_base, cap=s.absent_max, chance=self._chance)
        self._streaming, self._broken_streams = s.streaming, 0
        self._version = ""
        self._versions: dict[ObjectKey, int] = {}
        self._tombstones: OrderedDict[ObjectKey, int] = OrderedDict()
        self._alive_at = -math.inf
        self._progress = _Progress()
        self._urged = asyncio.Event()
        """A caller waits for a new watch: set until one is open."""
        self._what = f"watch {resource}"

    def subscribe(self, handler: Handler[V]) -> None:
        """Call `handler` with (old, new) on every change; the same as `store.subscribe`."""
        self.store.subscribe(handler)

    def age(self) -> float:
        """Return the seconds since the server last sent data on this watch; infinite before the first."""
        return self._clock.monotonic() - self._alive_at

    async def catch_up(self, *, quiet: float = 0.3) -> None:
        """Return when all changes at the server before this call have arrived; `run` must be running.

        An idle watch and a dead connection look alike, so the watch is opened anew, after a read that makes the server
        check the newest state.  All changes have arrived when no event came for `quiet` seconds.  Pauses after failures
        are cut short.  The caller must set a time limit, because this waits without one.
        """
        if self.missing:
            return
        opened = self.counters.watches
        self._urged.set()
        self._close_stream()
        while True:
            alive = self._alive_at
            await self._clock.sleep(quiet)
            is_open = self.counters.watches > opened and isinstance(self.state, Watching)
            if self.missing or (is_open and self._alive_at == alive):
                return

    async def run(self) -> None:
        """Keep the store up to date until cancelled.  Ends for no other reason."""
        try:
            while True:
                await self.step()
        finally:
            self._close_stream()

    async def step(self) -> None:
        """Do the work of the present state and go to the next one."""
        with isolated(self._start_over):
            try:
                self.state = await self._next(self.state)
            except KqueueError as e:
                self.state = self._after_failure(self.state, e)

    def _start_over(self, error: Exception) -> None:
        """Pause, then list again after an error by a bug, so that the store does not stay behind the cluster."""
        _log.error("watch failed on a bug, it starts over", resource=str(self.resource), exc_info=error)
        self.counters.failures += 1
        self._close_stream()
        self.state = Pausing(self._backoff.next(), Empty())

    async def _next(self, state: State) -> State:
        match state:
            case Empty():
                return await self._begin()
            case Streaming():
                return await self._read_initial(state)
            case Paging():
                return await self._read_page(state)
            case Listed():
                return await self._open_watch()
            case Checking():
                return await self._check()
            case Watching():
                return await self._read_watch(state)
            case Pausing():
                await self._rest(state.seconds)
                return state.then

    async def _rest(self, seconds: float) -> None:
        """Pause, unless a caller waits for a new watch."""
        waits = [asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(self._urged.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self._urged.is_set():
            await self._clock.sleep(_URGED_PAUSE)

    # --- one function per state

    async def _begin(self) -> State:
        self.counters.syncs += 1
        self._tombstones.clear()
        if not self._streaming:
            return Paging("", set())
        params = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        try:
            return Streaming(await self._open(params), set())
        except InvalidError as e:
            _log.info("server cannot stream lists, they are paged", resource=str(self.resource), error=str(e))
            self._streaming = False
            return Paging("", set())

    async def _read_initial(self, state: Streaming) -> State:
        lines = await state.stream.lines()
        if not lines:
            raise UnreachableError(f"{self._what}: the stream ended before the initial events did")
        ended = await self._handle(lines, state.seen)
        return Watching(state.stream, self._clock.monotonic()) if ended else state

    async def _read_page(self, state: Paging) -> State:
        params = {"limit": str(self._settings.page_size), **self._selectors()}
        if state.token:
            params["continue"] = state.token
        body = await self._client.list_page(self.resource, self._selection.namespace, params=params)
        page = self._decoder.page(body, f"list {self.resource}")
        self._is_served()
        for item in page.items:
            self._take(Change(EventType.ADDED, item) if not isinstance(item, Unreadable) else item, state.seen)
            await self._breathe()
        if page.continue_token:
            return Paging(page.continue_token, state.seen)
        await self._finish_sync(page.version, state.seen)
        return Listed()

    async def _open_watch(self) -> State:
        stream = await self._open({"resourceVersion": self._version})
        return Watching(stream, self._clock.monotonic())

    async def _check(self) -> State:
        """Compare the server's resource version with ours, and list again when the server's is older.

        A server restored from a backup accepts a watch from a version that it has not reached, and sends no events.
        """
        params = {"limit": "1", **self._selectors()}
        body = await self._client.list_page(self.resource, self._selection.namespace, params=params)
        now = self._decoder.page(body, f"list {self.resource}").version
        if _number(now) >= _number(self._version):
            return Listed()
        _log.error("server has an older resource version than before, it is listed again",
                   resource=str(self.resource), known=self._version, server=now)  # fmt: skip
        self._versions = dict.fromkeys(self._versions, -1)  # equal versions no longer mean equal objects
        return Empty()

    async def _read_watch(self, state: Watching) -> State:
        lines = await state.stream.lines()
        if lines:
            await self._handle(lines, None)
            return state if state.fruitful else replace(state, fruitful=True)
        state.stream.close()
        if self._was_healthy(state):
            self._backoff.reset()
            return Pausing(self._settings.retry_base * self._chance.random(), Listed())
        return Pausing(self._backoff.next(), Listed())

    def _after_failure(self, state: State, error: KqueueError) -> State:
        """Return the state after `error`: start over if the version is lost, else resume."""
        self._close_stream()
        if self._settings.optional and isinstance(error, NotFoundError):
            return self._is_missing()
        if self._urged.is_set() and isinstance(state, Streaming | Watching):  # the watch was closed to be opened anew
            return Checking() if isinstance(state, Watching) else Empty()
        self.counters.failures += 1
        if isinstance(state, Watching) and self._was_healthy(state):
            self._backoff.reset()
        pause = self._backoff.next(error.retry_after if isinstance(error, ApiError) else None)
        self._say(error, pause)
        match state:
            case Paging() if not isinstance(error, GoneError):
                return Pausing(pause, state)
            case Listed() | Checking() | Watching() if not isinstance(error, GoneError):
                return Pausing(pause, Checking())
            case Streaming():
                self._broken_streams += 1
                if (
                    self._broken_streams >= 2
                ):  # a server that ignores unknown parameters never sends the end of the initial events
                    self._streaming = False
        return Pausing(pause, Empty())

    def _is_missing(self) -> State:
        """Return the state after a 404 of an optional kind: only another request can show that the kind is served."""
        if not self.missing:
            _log.info("kind is not served, it is watched as soon as it is", resource=str(self.resource))
        self.missing = True
        self.settled.set()
        self._alive_at = self._clock.monotonic()
        return Pausing(self._absence.next(), Empty())

    def _is_served(self) -> None:
        self._alive_at = self._clock.monotonic()
        self.missing = False
        self._absence.reset()

    # --- underneath

    def _selectors(self) -> Mapping[str, str]:
        s = self._selection
        wanted = {"labelSelector": s.label_selector, "fieldSelector": s.field_selector}
        return {k: v for k, v in wanted.items() if v}

    async def _open(self, params: Mapping[str, str]) -> Stream:
        low, high = self._settings.server_timeout
        seconds = str(self._chance.randint(low, high))
        params = {"allowWatchBookmarks": "true", "timeoutSeconds": seconds, **self._selectors(), **params}
        stream = await self._client.open_watch(self.resource, self._selection.namespace, params=params)
        self.counters.watches += 1
        self._urged.clear()
        self._is_served()
        return stream

    async def _handle(self, lines: Sequence[bytes], seen: set[ObjectKey] | None) -> bool:
        """Apply the events of `lines`; `seen` is None outside of a sync.  Return whether a sync ended with them."""
        self._alive_at = self._clock.monotonic()
        ended = False
        for line in lines:
            event = self._decoder.event(line, self._what)
            if not isinstance(event, Bookmark):
                self._take(event, seen)
            elif event.initial_end and seen is not None:
                await self._finish_sync(event.version, seen)
                seen, ended = None, True
            else:
                self._advance(event.version)
            await self._breathe()
        return ended

    def _take(self, event: Change[T] | Unreadable, seen: set[ObjectKey] | None) -> None:
        """Take in one object."""
        self.counters.events += 1
        if isinstance(event, Unreadable):
            namespace, name, given = event.namespace, event.name, event.version
        else:
            meta = event.object.metadata
            namespace, name, given = meta.namespace, meta.name, meta.resource_version
        key, version = object_key(namespace, name), _number(given)
        if seen is None:
            self._advance(given)
        # A sync counts whatever its versions are: a server restored from a backup has older versions.
        if (seen is None or key in seen) and self._is_old(key, version, event.type):
            self.counters.dropped += 1
            return
        if seen is not None:
            seen.add(key)
        if event.type is EventType.DELETED:
            self._bury(key, version)
        else:
            self._put(key, version, event)

    def _is_old(self, key: ObjectKey, version: int, kind: EventType | None) -> bool:
        """Whether the known object is at least as new.  A deletion may have the version of the last change."""
        held = self._versions.get(key)
        if held is None:
            held = self._tombstones.get(key, -1)
        return version < held or (version == held and kind is not EventType.DELETED)

    def _put(self, key: ObjectKey, version: int, event: Change[T] | Unreadable) -> None:
        if not isinstance(event, Unreadable) and self._versions.get(key) == version and key in self.store:
            return  # a sync with an object that is known already
        self._versions[key] = version
        self._tombstones.pop(key, None)
        with isolated() as reading:
            if isinstance(event, Unreadable):
                raise ValueError(event.problem)
            view = self._view(event.object)
        if reading.error is not None:
            self._cannot_read(key, reading.error)
            return
        self.unreadable.pop(key, None)
        self.store.put(key, view)

    def _cannot_read(self, key: ObjectKey, error: Exception) -> None:
        self.unreadable[key] = str(error) or type(error).__name__
        _log.error("object cannot be read, its last readable state is kept",
                   resource=str(self.resource), key=key, error=self.unreadable[key])  # fmt: skip

    def _bury(self, key: ObjectKey, version: int) -> None:
        self._versions.pop(key, None)
        self.unreadable.pop(key, None)
        self._tombstones[key] = version
        self._tombstones.move_to_end(key)
        if len(self._tombstones) > _TOMBSTONES:
            self._tombstones.popitem(last=False)
        self.store.remove(key)

    async def _finish_sync(self, version: str, seen: set[ObjectKey]) -> None:
        """Delete objects that the server did not list, and remember the version of the list."""
        for key in [key for key in self._versions if key not in seen]:
            del self._versions[key]
            self.unreadable.pop(key, None)
            self.store.remove(key)
            await self._breathe()
        self._version = version
        self._broken_streams = 0
        self._backoff.reset()
        first = not self.synced.is_set()
        self.synced.set()
        self.settled.set()
        _log.info("watch synced", resource=str(self.resource), objects=len(self.store), first=first)

    def _advance(self, version: str) -> None:
        if _number(version) >= _number(self._version):
            self._version = version

    async def _breathe(self) -> None:
        """Give the event loop a turn when enough was done since its last turn."""
        p, now = self._progress, self._clock.monotonic()
        p.objects += 1
        if p.objects >= self._settings.yield_objects or now - p.since >= self._settings.yield_seconds:
            await asyncio.sleep(0)
            p.objects, p.since = 0, self._clock.monotonic()

    def _was_healthy(self, state: Watching) -> bool:
        """Whether the end of this watch is no failure, so that the next watch is opened after a short pause."""
        return state.fruitful or self._clock.monotonic() - state.since >= self._settings.long_lived

    def _close_stream(self) -> None:
        if isinstance(self.state, Streaming | Watching):
            self.state.stream.close()

    def _say(self, error: KqueueError, pause: float) -> None:
        facts = {"resource": str(self.resource), "error": str(error), "retry_in_seconds": round(pause, 3)}
        if isinstance(error, ForbiddenError):
            _log.error("watch is forbidden, grant list and watch on the resource", **facts)
        elif isinstance(error, UnauthorizedError | ConfigError):
            _log.error("watch has no valid credentials", **facts)
        elif isinstance(error, GoneError):
            _log.info("watch fell behind, it lists again", **facts)
        else:
            _log.warning("watch interrupted", **facts)


def _number(version: str) -> int:
    """Return a resource version as an integer (KEP-5504); 0 for any other text, which is then never newer."""
    return int(version) if version.isdecimal() else 0
