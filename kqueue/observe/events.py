"""Kubernetes events (`events.k8s.io/v1`), off the critical path.

`EventRecorder.record` is a plain call that never waits and never fails: the event joins a bounded queue, a background
task writes it.  Equal events within a window become one object with a count (a series).  What cannot be kept is
counted, by cause.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import structlog

from kqueue.clock import Clock
from kqueue.errors import ApiError, ForbiddenError, InvalidError, NotFoundError

_log = structlog.get_logger(__name__)

EventType = Literal["Normal", "Warning"]
Post = Callable[[dict[str, Any]], Awaitable[None]]
"""Creates the event; its namespace stands in its metadata."""
Patch = Callable[[str, str, dict[str, Any]], Awaitable[None]]
"""Merge-patches the event (namespace, name, patch)."""

_NOTE_BYTES_MAX = 1024
"""The API server refuses longer notes, and reasons or actions longer than 128."""
_NAME_LENGTH_MAX = 253
_WORD_LENGTH_MAX = 128
_TRIES = 3


class Regarding(NamedTuple):
    """The object that an event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    """Empty for cluster-scoped objects; their events live in namespace `default`."""
    uid: str = ""
    resource_version: str = ""

    def reference(self) -> dict[str, str]:
        """As an ObjectReference."""
        return {field: value for field, value in zip(_REFERENCE, self, strict=True) if value}


_REFERENCE = ("apiVersion", "kind", "name", "namespace", "uid", "resourceVersion")
"""The fields of `Regarding` as the API writes them."""


class _Key(NamedTuple):
    """What makes two events equal."""

    object: tuple[str, str, str, str]
    type: str
    reason: str
    action: str
    note: str
    controller: str


@dataclass(slots=True)
class _Series:
    """One event object, written or about to be."""

    key: _Key
    body: dict[str, Any]
    count: int = 1
    last: datetime | None = None
    posted: bool = False

    @property
    def place(self) -> tuple[str, str]:
        """Namespace and name of the event object."""
        return self.body["metadata"]["namespace"], self.body["metadata"]["name"]

    def summary(self) -> dict[str, Any]:
        """The series field.  The API asks for at least 2: a single event has none."""
        assert self.last is not None
        return {"count": self.count, "lastObservedTime": _micro(self.last)}


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLimits:
    """Bounds of a recorder, and its times in seconds."""

    window: float = 360.0
    """Equal events closer than this are one series."""
    series_interval: float = 10.0
    """A running series' count is written at most this often."""
    waiting_max: int = 1000
    """Events that wait to be written; more are lost."""
    remembered_max: int = 4096
    """Series remembered for aggregation; the least recent is forgotten first."""
    notes_max: int = 10
    """Different notes of one reason on one object within the window; more are lost.  A note that carries ever
    changing numbers would otherwise make an object per attempt."""


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Recent(Generic[K, V]):
    """What was put here within the limits' window; of too much, the least recent is forgotten first."""

    def __init__(self, clock: Clock, limits: EventLimits) -> None:
        self._clock, self._window, self._max = clock, limits.window, limits.remembered_max
        self._kept: OrderedDict[K, tuple[V, float]] = OrderedDict()
        """With the time from which it does not count any more, the earliest first."""
        self._sweep_at = 0.0

    def get(self, key: K) -> V | None:
        """What was put last under this key; None when that is too long ago."""
        found = self._kept.get(key)
        return found[0] if found is not None and self._clock.monotonic() < found[1] else None

    def put(self, key: K, value: V) -> None:
        """Keep it, for a whole window from now on."""
        kept, now = self._kept, self._clock.monotonic()
        if key in kept:
            kept.move_to_end(key)
        kept[key] = (value, now + self._window)
        if len(kept) > self._max:
            kept.popitem(last=False)
        if now >= self._sweep_at:
            while next(iter(kept.values()))[1] <= now:
                kept.popitem(last=False)
            self._sweep_at = now + self._window

    def drop(self, key: K) -> None:
        """Forget it."""
        self._kept.pop(key, None)


class EventRecorder:
    """Takes events from anywhere on the event loop, and writes them when there is time."""

    def __init__(
        self,
        *,
        post: Post,
        patch: Patch,
        clock: Clock,
        instance: str,
        lost: Callable[[str], None],
        limits: EventLimits | None = None,
    ) -> None:
        """Write with `post` and `patch`.

        `instance` names this process (the pod's name); `lost` is told the cause of each event that is not written:
        `queue-full`, `too-many-notes` or `refused`.
        """
        self._post, self._patch, self._clock, self._lost = post, patch, clock, lost
        self._instance = instance
        self._limits = limits or EventLimits()
        self._recent = _Recent[_Key, _Series](clock, self._limits)
        self._notes = _Recent[tuple[object, str], int](clock, self._limits)
        self._waiting: deque[_Series] = deque()
        self._grown: dict[_Key, _Series] = {}
        self._wake = asyncio.Event()
        self._writing = 0
        self._numbers = itertools.count(int(clock.now().timestamp() * 1_000_000))

    @property
    def waiting(self) -> int:
        """Events and series that are not written yet."""
        return len(self._waiting) + len(self._grown) + self._writing

    def record(
        self,
        regarding: Regarding,
        *,
        reason: str,
        note: str,
        controller: str,
        type: EventType = "Normal",  # noqa: A002  (the API's word)
        action: str = "",
        related: Regarding | None = None,
    ) -> None:
        """Take one event.  `action` empty: the reason; `controller` is the reportingController."""
        note = _cut(note)
        action = (action or reason)[:_WORD_LENGTH_MAX]
        reason = reason[:_WORD_LENGTH_MAX]
        who = (regarding.kind, regarding.namespace, regarding.name, regarding.uid)
        key = _Key(who, type, reason, action, note, controller)
        known = self._recent.get(key)
        if known is not None:
            self._grow(known)
            return
        notes = self._notes.get((who, reason)) or 0
        if notes >= self._limits.notes_max:
            self._lost("too-many-notes")
            return
        if len(self._waiting) >= self._limits.waiting_max:
            self._lost("queue-full")
            return
        self._notes.put((who, reason), notes + 1)
        series = _Series(key, self._body(regarding, key, related))
        self._recent.put(key, series)
        self._waiting.append(series)
        self._wake.set()

    def _grow(self, series: _Series) -> None:
        series.count += 1
        series.last = self._clock.now()
        self._recent.put(series.key, series)  # the window begins anew
        if series.posted:
            self._grown[series.key] = series

    def _body(self, regarding: Regarding, key: _Key, related: Regarding | None) -> dict[str, Any]:
        suffix = f".{next(self._numbers):x}"
        body: dict[str, Any] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": regarding.name[: _NAME_LENGTH_MAX - len(suffix)].rstrip("-.") + suffix,
                "namespace": regarding.namespace or "default",
            },
            "eventTime": _micro(self._clock.now()),
            "reportingController": key.controller,
            "reportingInstance": self._instance[:_WORD_LENGTH_MAX] or key.controller,
            "action": key.action,
            "reason": key.reason,
            "regarding": regarding.reference(),
            "note": key.note,
            "type": key.type,
        }
        if related is not None:
            body["related"] = related.reference()
        return body

    # --- writing

    async def run(self) -> None:
        """Write until cancelled.  No failure of a write ends it."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write_new())
            tasks.create_task(self._write_counts())

    async def drain(self) -> None:
        """Write all that waits, once each; for the end of a process.  Bound it with a timeout."""
        while self._waiting:
            await self._write(self._waiting.popleft())
        await self._flush_counts()

    async def _write_new(self) -> None:
        while True:
            while self._waiting:
                await self._write(self._waiting.popleft())
            self._wake.clear()
            await self._wake.wait()

    async def _write_counts(self) -> None:
        while True:
            await self._clock.sleep(self._limits.series_interval)
            await self._flush_counts()

    async def _flush_counts(self) -> None:
        grown, self._grown = self._grown, {}
        for series in grown.values():
            await self._attempt(partial(self._patch, *series.place, {"series": series.summary()}), series)

    async def _write(self, series: _Series) -> None:
        if series.count > 1:  # it grew while it waited
            series.body["series"] = series.summary()
        counted = series.count
        series.posted = await self._attempt(partial(self._post, series.body), series)
        if series.posted and series.count > counted:  # it grew while it was written
            self._grown[series.key] = series

    async def _attempt(self, write: Callable[[], Awaitable[None]], series: _Series) -> bool:
        """Whether the write succeeded, after a few tries where trying again can help."""
        self._writing += 1
        try:
            for remaining in reversed(range(_TRIES)):
                try:
                    await write()
                    return True
                except (ForbiddenError, InvalidError, NotFoundError) as e:
                    return self._give_up(series, e)
                except ApiError as e:
                    if not remaining:
                        return self._give_up(series, e)
                    await self._clock.sleep(e.retry_after or float(_TRIES - remaining))
                except Exception as e:  # noqa: BLE001  (whatever the writer raises, the recorder goes on)
                    return self._give_up(series, e)
        finally:
            self._writing -= 1
        return False

    def _give_up(self, series: _Series, error: Exception) -> bool:
        self._recent.drop(series.key)  # the next equal event makes a new object
        self._lost("refused")
        _log.debug("event not written", event_reason=series.key.reason, about=series.key.object, error=str(error))
        return False


def _micro(moment: datetime) -> str:
    """Kubernetes' MicroTime."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def _cut(note: str) -> str:
    """At most as many bytes as the API takes; the cut is marked."""
    if note.isascii() and len(note) <= _NOTE_BYTES_MAX:
        return note
    raw = note.encode("utf-8", "replace")
    if len(raw) <= _NOTE_BYTES_MAX:
        return raw.decode()
    return raw[: _NOTE_BYTES_MAX - 4].decode("utf-8", "ignore") + " …"
