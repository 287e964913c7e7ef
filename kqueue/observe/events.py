"""Kubernetes events (core `v1`), off the critical path.

They are written as `v1`, because the API server takes `firstTimestamp`, `lastTimestamp` and `count`, by which kubectl
sorts and counts, in that version alone (decision 54).  Clients of `events.k8s.io/v1` read the same objects.

`EventRecorder.record` is a plain call that never waits and never fails: the event joins a bounded queue, a few
background tasks write it, decisions first.  Equal events within a window become one object with a count (a series).
While a reason for waiting is queued, a newer note of the same object and reason replaces its note.  Lost events are
counted by cause, and a warning in the log reports their number.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVarTuple

import structlog

from kqueue.clock import Clock, utc_text
from kqueue.errors import AlreadyExistsError, ApiError, ForbiddenError, InvalidError, NotFoundError
from kqueue.isolation import isolated
from kqueue.observe.event_queue import About, EventQueue, EventRank, EventType, Series, rank_of

_log = structlog.get_logger(__name__)

Post = Callable[[dict[str, Any]], Awaitable[None]]
"""Creates the event in the namespace of its metadata.  Must not change the value, because events share parts."""
Patch = Callable[[str, str, dict[str, Any]], Awaitable[None]]
"""Merge-patches the event (namespace, name, patch)."""

_NOTE_BYTES_MAX = 1024
"""The API server refuses longer messages, and reasons or actions longer than 128, of events with an `eventTime`.

Source: Kubernetes, `pkg/apis/core/validation/events.go`.
"""
_WORD_LENGTH_MAX = 128
_TRIES = 3


_Write = TypeVarTuple("_Write")
"""The object that a write gets."""


class Regarding(Protocol):
    """The object that an event is about."""

    @property
    def api_version(self) -> str:
        """Group and version."""
        ...

    @property
    def kind(self) -> str:
        """Kind as in manifests."""
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
        """Empty when unknown."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLimits:
    """Bounds of a recorder, and its times in seconds."""

    window: float = 360.0
    """Equal events closer than this are one series."""
    series_interval: float = 10.0
    """A running series' count is written at most this often."""
    waiting_max: int = 20_000
    """Limit of events that wait to be written, 0.94 kB each.  Beyond it the oldest event of the lowest rank is dropped.
    5,000 workloads in 90 s record some 15,000 to 20,000; a busy API server takes 100 to 150 a second."""
    remembered_max: int = 20_000
    """Objects and reasons whose series are remembered for aggregation until their windows have passed; the least
    recent is forgotten first."""
    writers: int = 4
    """Concurrent writes.  Writes beyond the limit of the events lane would wait in the lane (`kqueue.runtime.lane`)."""
    join_above: int = 100
    """While more events wait, one event reports both the reservation of quota and the admission of a workload, where
    both happened at once."""
    paced_below: int = 5_000
    """While fewer events wait, each write first waits as long as `pace` returns."""
    losses_interval: float = 60.0
    """Least time between two warnings about lost events."""
    notes_max: int = 10
    """Limit of running series of one reason on one object; further events are dropped.  Without the limit a note with
    changing numbers would create an event object per attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventHooks:
    """Callbacks of the recorder.

    Args:
        lost: gets the cause of each event that is not written: `queue-full`, `too-many-notes`, `refused`, `shutdown`.
        joined: called for each event that another event reports too.
        pace: returns the seconds until the next write may begin, so that more urgent requests go first.
    """

    lost: Callable[[str], None]
    joined: Callable[[], None] = lambda: None
    pace: Callable[[], float] = lambda: 0.0


class EventRecorder:
    """Takes events on the event loop, and writes them in background tasks."""

    def __init__(
        self,
        *,
        post: Post,
        patch: Patch,
        clock: Clock,
        instance: str,
        hooks: EventHooks,
        limits: EventLimits | None = None,
        actions: Mapping[str, str] | None = None,
    ) -> None:
        """Write events with `post` and `patch`.

        `instance` names this process (the pod's name); `actions` maps a reason to the action, where they differ.
        """
        self._actions, self._joined, self._pace = actions or {}, hooks.joined, hooks.pace
        self._post, self._patch, self._clock, self._lost = post, patch, clock, hooks.lost
        self._instance = instance[:_WORD_LENGTH_MAX]
        self._limits = limits or EventLimits()
        self._recent: OrderedDict[About, dict[str, Series]] = OrderedDict()
        """Series by note, the least recent objects first; some of the series may have ended."""
        self._waiting = EventQueue()
        self._under_way: dict[Series, None] = {}
        """Series whose first write is under way, in the order in which they were taken."""
        self._grown: dict[Series, None] = {}
        """Series whose counts are due to be written later."""
        self._due: OrderedDict[Series, None] = OrderedDict()
        """Series whose counts are due to be written now."""
        self._wake = asyncio.Event()
        self._writing = 0
        self._losses, self._losses_told = Counter[tuple[str, str]](), -self._limits.losses_interval
        """Lost events by rank and cause that the log has not reported yet, and when it last reported."""
        self._numbers = itertools.count(int(clock.now().timestamp() * 1_000_000))

    @property
    def waiting(self) -> int:
        """Return how many events and series are not written yet."""
        return len(self._waiting) + len(self._grown) + len(self._due) + self._writing

    def depth(self, rank: EventRank) -> int:
        """Return how many events of a rank wait for their first write."""
        return self._waiting.depth(rank)

    def oldest_age(self, rank: EventRank) -> float:
        """Return the seconds since the oldest waiting event of a rank was recorded; 0 when none waits."""
        since = self._waiting.oldest_since(rank)
        return max(0.0, self._clock.monotonic() - since) if since is not None else 0.0

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

        `controller` is the reporting component.  `once`: no second event is
        written while the cluster has an equal one, from whatever process, so a restart does not repeat lasting facts.
        """
        kind, namespace, name, uid = regarding.kind, regarding.namespace, regarding.name, regarding.uid
        now, moment = self._clock.monotonic(), self._clock.now()
        for reason, note in told:
            about: About = (kind, namespace, name, uid, reason[:_WORD_LENGTH_MAX], type, controller)
            series = Series(
                about=about,
                note=(cut := _cut(note)),
                api_version=regarding.api_version,
                mark=_mark(about, cut) if once else "",
                rank=rank_of(reason, type),
                began=moment,
                since=now,
                ends=now + self._limits.window,
                is_lasting=once,
            )
            if not self._joins_another(series):
                self._enqueue(series)

    def _joins_another(self, new: Series) -> bool:
        """Count the event with an existing series, or drop it; whether either was done."""
        others = self._recent.get(new.about, {})
        equal = others.get(new.note)
        if equal is not None and new.since < equal.ends:
            self._grow(equal, new)
            return True
        older = None if new.is_lasting else self._waiting.replaceable(new.about, new.rank)
        is_full = self._is_full(others, new.since)
        if is_full and older is None and not new.is_lasting:  # one note with a count is better than none
            waiting = (one for one in others.values() if not one.is_lasting and self._waiting.waits(one))
            older = next(waiting, None)
        if older is not None:
            self._replace(older, new)
        elif is_full:
            self._lose("too-many-notes", new.rank)
        return is_full or older is not None

    def _enqueue(self, series: Series) -> None:
        if len(self._waiting) >= self._limits.waiting_max:
            oldest = self._waiting.make_room(series.rank)
            lost = oldest or series
            self._forget(lost)  # the next equal event makes a new object
            self._lose("queue-full", lost.rank, lost.count)
            if oldest is None:
                return
        series.mark = series.mark or f"{next(self._numbers):x}"
        self._remember(series)
        self._waiting.put(series)
        self._wake.set()

    def _grow(self, series: Series, by: Series) -> None:
        series.count += 1
        series.last, series.ends = by.began, by.ends
        if series.about in self._recent:
            self._recent.move_to_end(series.about)
        if series.posted:
            self._grown[series] = None

    def _replace(self, older: Series, newer: Series) -> None:
        """Give a waiting series the note of a newer event, and count it."""
        others = self._recent.get(older.about, {})
        if others.get(older.note) is older:
            del others[older.note]
        older.note = newer.note
        self._remember(older)
        self._grow(older, newer)

    def _is_full(self, series: dict[str, Series], now: float) -> bool:
        """Whether the limit of series is reached; ended series are forgotten first."""
        if len(series) < self._limits.notes_max:
            return False
        for note in [note for note, one in series.items() if one.ends <= now]:
            del series[note]
        return len(series) >= self._limits.notes_max

    def _remember(self, series: Series) -> None:
        """Move the object to the end of the order, as the most recent one."""
        recent = self._recent
        if series.about in recent:
            recent[series.about][series.note] = series
            recent.move_to_end(series.about)
            return
        recent[series.about] = {series.note: series}
        if len(recent) > self._limits.remembered_max:
            recent.popitem(last=False)

    def _forget(self, series: Series) -> None:
        others = self._recent.get(series.about, {})
        if others.get(series.note) is series:
            del others[series.note]

    def _forget_ended(self) -> None:
        """Forget the objects whose series have all ended: an idle process keeps no memory of them."""
        now, recent = self._clock.monotonic(), self._recent
        while recent and all(series.ends <= now for series in next(iter(recent.values())).values()):
            recent.popitem(last=False)
        if not recent:
            recent.clear()  # frees the table, because a dict does not shrink by itself

    def _lose(self, cause: str, rank: EventRank, number: int = 1) -> None:
        for _ in range(number):
            self._lost(cause)
        if cause != "refused":  # the API server's answer, for example in a namespace that is being deleted
            self._losses[rank.value, cause] += number

    def _report_losses(self) -> None:
        """Log how many events were lost since the last report."""
        if not self._losses:
            return
        number = {rank.value: sum(n for (of, _), n in self._losses.items() if of == rank.value) for rank in EventRank}
        causes = sorted({cause for _, cause in self._losses})
        _log.warning("events lost", **number, causes=causes)
        self._losses.clear()
        self._losses_told = self._clock.monotonic()

    # --- writing

    async def run(self) -> None:
        """Write events until cancelled, at the rate that `pace` allows.  A failed write does not end the task."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(self._limits.writers):
                    tasks.create_task(self._write_for_ever())
                tasks.create_task(self._keep_up())
        finally:
            self._put_back()

    async def drain(self) -> None:
        """Write all waiting events and counts, once each."""
        await self._write_all()
        self._make_due()
        await self._write_all()

    async def finish(self, seconds: float) -> None:
        """Write waiting events at the end of the process, after `run` has ended; then drop the rest."""
        try:
            async with asyncio.timeout(seconds):
                await self.drain()
        except TimeoutError:
            while (series := self._waiting.take()) is not None:
                self._lose("shutdown", series.rank, series.count)
        self._report_losses()

    async def _keep_up(self) -> None:
        """Do the periodic work: write counts, free memory, report lost events."""
        while True:
            await self._clock.sleep(self._limits.series_interval)
            self._make_due()
            self._forget_ended()
            if self._clock.monotonic() - self._losses_told >= self._limits.losses_interval:
                self._report_losses()

    def _make_due(self) -> None:
        """Queue the counts that have grown, but never two writes of one series at once."""
        ready = [series for series in self._grown if not series.patched_now]
        for series in ready:
            del self._grown[series]
            self._due[series] = None
        self._wake.set()

    async def _write_for_ever(self) -> None:
        while True:
            await self._write_waiting(paced=True)
            self._wake.clear()
            await self._wake.wait()

    async def _write_all(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(self._limits.writers):
                    tasks.create_task(self._write_waiting())
        finally:
            self._put_back()

    def _put_back(self) -> None:
        """Queue the series whose writes were cancelled again, in their order; the writes may not have arrived."""
        for series in reversed(self._under_way):
            self._waiting.put_back(series)
        self._under_way.clear()

    async def _write_waiting(self, *, paced: bool = False) -> None:
        """Write the next event, or else the next count."""
        while True:
            if paced and (self._due or 0 < len(self._waiting) < self._limits.paced_below):
                await self._clock.sleep(self._pace())
            if (series := self._take()) is not None:
                await self._create(series)
            elif self._due:
                series, _ = self._due.popitem(last=False)
                await self._update(series)
            else:
                return

    def _take(self) -> Series | None:
        """Return the next event to write; when many wait it may report another event too, which is then not written."""
        series = self._waiting.take()
        if series is None or len(self._waiting) < self._limits.join_above:
            return series
        both = self._waiting.take_joined(series)
        if both is not series:
            self._forget(series)  # the next equal event makes a new object
            self._joined()
        return both

    async def _create(self, series: Series) -> None:
        counted, body = series.count, self._body(series)
        self._under_way[series] = None  # and stays there if the write is cancelled
        series.posted = await self._attempt(series, self._post, body)
        del self._under_way[series]
        if not series.posted:
            self._lose("refused", series.rank, series.count)
        elif series.count > counted:  # the count grew while it was written
            self._grown[series] = None

    async def _update(self, series: Series) -> None:
        series.patched_now = True
        try:
            if not await self._attempt(series, self._patch, series.namespace, series.name, series.repeats()):
                self._lose("refused", series.rank)
        except asyncio.CancelledError:
            self._grown[series] = None
            raise
        finally:
            series.patched_now = False

    def _body(self, series: Series) -> dict[str, Any]:
        """Return the event object of the first write."""
        *_, reason, type_, controller = series.about
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": series.name, "namespace": series.namespace},
            "eventTime": utc_text(series.began, digits=6),
            "firstTimestamp": utc_text(series.began),
            **series.repeats(),
            "source": {"component": controller},
            "reportingComponent": controller,
            "reportingInstance": self._instance or controller,
            "action": self._actions.get(reason, reason),
            "reason": reason,
            "involvedObject": series.regarding,
            "message": _cut(f"{series.joined}; {series.note}") if series.joined else series.note,
            "type": type_,
        }

    async def _attempt(self, series: Series, write: Callable[[*_Write], Awaitable[None]], *arguments: *_Write) -> bool:
        """Write, with a few retries where a retry can help; whether the write succeeded."""
        self._writing += 1
        try:
            with isolated(partial(self._give_up, series)):
                return await self._written(write, *arguments)
            return False
        finally:
            self._writing -= 1

    async def _written(self, write: Callable[[*_Write], Awaitable[None]], *arguments: *_Write) -> bool:
        """Write, with retries of passing errors; True once the event is written.  Raises the error of the last try."""
        for remaining in reversed(range(_TRIES)):
            try:
                await write(*arguments)
                return True
            except AlreadyExistsError:
                return True  # an earlier attempt arrived without an answer, or the event is written once and exists
            except (ForbiddenError, InvalidError, NotFoundError):
                raise
            except ApiError as e:
                if not remaining:
                    raise
                await self._clock.sleep(e.retry_after or float(_TRIES - remaining))
        return False

    def _give_up(self, series: Series, error: Exception) -> None:
        self._forget(series)  # the next equal event makes a new object
        _log.debug("event not written", event_reason=series.reason, about=series.about[:4], error=str(error))


def _mark(about: About, note: str) -> str:
    """Return a digest that is equal for equal events in every process."""
    *thing, type_, controller = about
    return hashlib.sha256("\0".join((*thing, note, type_, controller)).encode()).hexdigest()[:16]


def _cut(note: str) -> str:
    """Truncate a text to the bytes that the API accepts; a mark shows the truncation."""
    if note.isascii() and len(note) <= _NOTE_BYTES_MAX:
        return note
    raw = note.encode("utf-8", "replace")
    if len(raw) <= _NOTE_BYTES_MAX:
        return raw.decode()
    return raw[: _NOTE_BYTES_MAX - 4].decode("utf-8", "ignore") + " …"
