"""Kubernetes events (`events.k8s.io/v1`), off the critical path.

`EventRecorder.record` is a plain call that never waits and never fails: the event joins a bounded queue, a background
task writes it.  Equal events within a window become one object with a count (a series).  What cannot be kept is
counted, by cause.  Every admission is told in two events: what they have in common is made once.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol, TypeVarTuple

import structlog

from kqueue.clock import Clock, utc_text
from kqueue.errors import AlreadyExistsError, ApiError, ForbiddenError, InvalidError, NotFoundError

_log = structlog.get_logger(__name__)

EventType = Literal["Normal", "Warning"]
Post = Callable[[dict[str, Any]], Awaitable[None]]
"""Creates the event; its namespace stands in its metadata.  Reads it only: events share parts of what they say."""
Patch = Callable[[str, str, dict[str, Any]], Awaitable[None]]
"""Merge-patches the event (namespace, name, patch)."""

_NOTE_BYTES_MAX = 1024
"""The API server refuses longer notes, and reasons or actions longer than 128."""
_NAME_LENGTH_MAX = 253
_WORD_LENGTH_MAX = 128
_TRIES = 3


_Write = TypeVarTuple("_Write")
"""What a write is called with."""


class Regarding(Protocol):
    """The object that an event is about."""

    @property
    def api_version(self) -> str:
        """Group and version."""
        ...

    @property
    def kind(self) -> str:
        """As it stands in manifests."""
        ...

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def namespace(self) -> str:
        """Empty for cluster-scoped objects; their events live in namespace `default`."""
        ...

    @property
    def uid(self) -> str:
        """Empty where nobody knows it."""
        ...


_About = tuple[str, str, str, str, str]
"""Kind, namespace, name and UID of an object, and the reason of events about it."""


_What = tuple[str, str, str]
"""Note, type and controller: what makes two events about the same equal."""


@dataclass(slots=True, eq=False)
class _Series:
    """One event object, written or about to be."""

    about: _About
    what: _What
    regarding: dict[str, str]
    """As an ObjectReference."""
    name: str
    began: str
    ends: float
    """An equal event from then on begins another series."""
    count: int = 1
    last: datetime | None = None
    posted: bool = False

    @property
    def namespace(self) -> str:
        """Where the event object lives."""
        return self.about[1] or "default"

    def summary(self) -> dict[str, Any]:
        """The series field.  The API asks for at least 2: a single event has none."""
        assert self.last is not None
        return {"count": self.count, "lastObservedTime": _micro(self.last)}

    def body(self, instance: str, actions: Mapping[str, str]) -> dict[str, Any]:
        """The event object as it is first written."""
        note, type_, controller = self.what
        reason = self.about[-1]
        body: dict[str, Any] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "eventTime": self.began,
            "reportingController": controller,
            "reportingInstance": instance or controller,
            "action": actions.get(reason, reason),
            "reason": reason,
            "regarding": self.regarding,
            "note": note,
            "type": type_,
        }
        if self.count > 1:  # it grew while it waited
            body["series"] = self.summary()
        return body


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
    """Objects and reasons whose series are remembered for aggregation; the least recent is forgotten first."""
    notes_max: int = 10
    """Series of one reason on one object at a time; more are lost.  A note that carries ever
    changing numbers would otherwise make an object per attempt."""


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
        actions: Mapping[str, str] | None = None,
    ) -> None:
        """Write with `post` and `patch`.

        `instance` names this process (the pod's name); `lost` is told the cause of each event that is not written:
        `queue-full`, `too-many-notes`, `refused` or `shutdown`; `actions` are those that differ from the reason.
        """
        self._actions = actions or {}
        self._post, self._patch, self._clock, self._lost = post, patch, clock, lost
        self._instance = instance[:_WORD_LENGTH_MAX]
        self._limits = limits or EventLimits()
        self._recent: OrderedDict[_About, dict[_What, _Series]] = OrderedDict()
        """The least recent first; some of the series may have ended."""
        self._waiting: deque[_Series] = deque()
        self._grown: dict[_Series, None] = {}
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
        told: Iterable[tuple[str, str]],
        *,
        controller: str,
        type: EventType = "Normal",  # noqa: A002  (the API's word)
        once: bool = False,
    ) -> None:
        """Take one event for each (reason, note) about one object.

        `controller` is the reportingController.  `once`: while the cluster keeps an equal event, whichever process
        wrote it, there is no second one: what is so, and stays so, is no news to a process that has just begun.
        """
        kind, namespace, name, uid = regarding.kind, regarding.namespace, regarding.name, regarding.uid
        now, moment = self._clock.monotonic(), self._clock.now()
        shared: tuple[dict[str, str], str] | None = None  # made for the first that needs it
        for reason, note in told:
            about = (kind, namespace, name, uid, reason[:_WORD_LENGTH_MAX])
            what = (_cut(note), type, controller)
            others = self._recent.get(about)
            if others is not None:
                series = others.get(what)
                if series is not None and now < series.ends:
                    self._grow(series, now, moment)
                    continue
                if self._is_full(others, now):
                    self._lost("too-many-notes")
                    continue
            if len(self._waiting) >= self._limits.waiting_max:
                self._lost("queue-full")
                continue
            reference, began = shared = shared or (_reference(regarding), _micro(moment))
            own = self._name(name, _mark(about, what) if once else f"{next(self._numbers):x}")
            series = _Series(about, what, reference, own, began, now + self._limits.window)
            self._remember(series, others)
            self._waiting.append(series)
            self._wake.set()

    def _grow(self, series: _Series, now: float, moment: datetime) -> None:
        series.count += 1
        series.last, series.ends = moment, now + self._limits.window
        self._recent.move_to_end(series.about)
        if series.posted:
            self._grown[series] = None

    def _is_full(self, series: dict[_What, _Series], now: float) -> bool:
        """Whether there may be no more of them; those that have ended are forgotten first."""
        if len(series) < self._limits.notes_max:
            return False
        for what in [what for what, one in series.items() if one.ends <= now]:
            del series[what]
        return len(series) >= self._limits.notes_max

    def _remember(self, series: _Series, others: dict[_What, _Series] | None) -> None:
        """As the most recent; `others` are those remembered of the same object and reason."""
        recent = self._recent
        if others is not None:
            others[series.what] = series
            recent.move_to_end(series.about)
            return
        recent[series.about] = {series.what: series}
        if len(recent) > self._limits.remembered_max:
            recent.popitem(last=False)

    def _forget(self, series: _Series) -> None:
        others = self._recent.get(series.about, {})
        if others.get(series.what) is series:
            del others[series.what]

    def _name(self, of: str, mark: str) -> str:
        """The name of an event about an object of this name; the mark tells it from all others."""
        suffix = f".{mark}"
        if len(of) + len(suffix) <= _NAME_LENGTH_MAX:
            return of + suffix
        return of[: _NAME_LENGTH_MAX - len(suffix)].rstrip("-.") + suffix

    # --- writing

    async def run(self) -> None:
        """Write until cancelled.  No failure of a write ends it."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write_new())
            tasks.create_task(self._write_counts())

    async def drain(self) -> None:
        """Write all that waits, once each."""
        await self._write_waiting()
        await self._flush_counts()

    async def finish(self, seconds: float) -> None:
        """Write what waits when the process ends, and `run` has.  What is not written in time is lost."""
        try:
            async with asyncio.timeout(seconds):
                await self.drain()
        except TimeoutError:
            for _ in range(len(self._waiting)):
                self._lost("shutdown")

    async def _write_new(self) -> None:
        while True:
            await self._write_waiting()
            self._wake.clear()
            await self._wake.wait()

    async def _write_waiting(self) -> None:
        while self._waiting:
            series = self._waiting.popleft()
            try:
                await self._write(series)
            except asyncio.CancelledError:
                self._waiting.appendleft(series)  # nobody knows whether it arrived
                raise

    async def _write_counts(self) -> None:
        while True:
            await self._clock.sleep(self._limits.series_interval)
            await self._flush_counts()

    async def _flush_counts(self) -> None:
        grown, self._grown = self._grown, {}
        for series in grown:
            change = {"series": series.summary()}
            await self._attempt(series, self._patch, series.namespace, series.name, change)

    async def _write(self, series: _Series) -> None:
        counted = series.count
        series.posted = await self._attempt(series, self._post, series.body(self._instance, self._actions))
        if series.posted and series.count > counted:  # it grew while it was written
            self._grown[series] = None

    async def _attempt(self, series: _Series, write: Callable[[*_Write], Awaitable[None]], *arguments: *_Write) -> bool:
        """Whether the write succeeded, after a few tries where trying again can help."""
        self._writing += 1
        try:
            for remaining in reversed(range(_TRIES)):
                try:
                    await write(*arguments)
                    return True
                except AlreadyExistsError:
                    return True  # it had arrived, but its answer had not; or it is told once and was
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
        self._forget(series)  # the next equal event makes a new object
        self._lost("refused")
        _log.debug("event not written", event_reason=series.about[-1], about=series.about[:-1], error=str(error))
        return False


def _reference(regarding: Regarding) -> dict[str, str]:
    """As an ObjectReference, in which nothing is empty."""
    reference = {"apiVersion": regarding.api_version, "kind": regarding.kind, "name": regarding.name}
    if regarding.namespace:
        reference["namespace"] = regarding.namespace
    if regarding.uid:
        reference["uid"] = regarding.uid
    return reference


def _micro(moment: datetime) -> str:
    """Kubernetes' MicroTime."""
    return utc_text(moment, digits=6)


def _mark(about: _About, what: _What) -> str:
    """Equal for equal events, in every process."""
    return hashlib.sha256("\0".join((*about, *what)).encode()).hexdigest()[:16]


def _cut(note: str) -> str:
    """At most as many bytes as the API takes; the cut is marked."""
    if note.isascii() and len(note) <= _NOTE_BYTES_MAX:
        return note
    raw = note.encode("utf-8", "replace")
    if len(raw) <= _NOTE_BYTES_MAX:
        return raw.decode()
    return raw[: _NOTE_BYTES_MAX - 4].decode("utf-8", "ignore") + " …"
