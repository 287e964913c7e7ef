"""Watches over HTTP: a cursor in the log, and the changes after it written in portions."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass

import msgspec

from kqueue.errors import ApiError
from kqueue.sandbox import failure, listing
from kqueue.sandbox.api import Object
from kqueue.sandbox.cluster_api import ClusterApi
from kqueue.sandbox.registry import ServedKind
from kqueue.sandbox.route import RequestSelection, flag, number
from kqueue.sandbox.store import ObjectStore, StoreChange, StoredObject, event_line

BOOKMARK_SECONDS = 60.0
LONGEST_SECONDS = 3600
PORTION = 500
"""Objects of the initial state in one write, before other tasks get a turn."""
END_OF_INITIAL_EVENTS = "k8s.io/initial-events-end"

Render = Callable[[ServedKind, StoredObject], bytes]
"""Encodes an object for an event: plain JSON, or a Table's row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRequest:
    """The checked parameters of a watch."""

    kind: ServedKind
    chosen: RequestSelection
    version: int | None
    """The watch yields changes after this version; None: after the present one."""
    initial: bool
    """Whether to begin with all present objects as ADDED."""
    marks_initial_end: bool
    bookmarks: bool
    seconds: float
    render: Render

    @property
    def is_plain(self) -> bool:
        """Whether cached event lines of objects that are stored in this version can be sent without changes."""
        return self.chosen.is_all and self.chosen.namespace is None and self.render is listing.encoded


def request(kind: ServedKind, chosen: RequestSelection, query: Mapping[str, str], render: Render) -> WatchRequest:
    """Parse the query of a watch.  Raises InvalidError (400 or 422)."""
    version = number(query, "resourceVersion")
    seconds = number(query, "timeoutSeconds")
    initial, match = query.get("sendInitialEvents"), query.get("resourceVersionMatch")
    why = ""
    if initial is not None and match != "NotOlderThan":
        why = 'sendInitialEvents requires setting resourceVersionMatch to "NotOlderThan"'
    elif initial is None and match:
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
    if why:
        cause = failure.forbidden_field("resourceVersionMatch", why)
        raise failure.invalid_object("meta.k8s.io", "ListOptions", "", [cause])
    streams_list = initial is not None and flag(query, "sendInitialEvents")
    begins = streams_list or (initial is None and not version)
    return WatchRequest(
        kind=kind,
        chosen=chosen,
        version=None if begins or not version else version,
        initial=begins,
        marks_initial_end=streams_list,
        bookmarks=flag(query, "allowWatchBookmarks"),
        seconds=float(min(seconds or LONGEST_SECONDS, LONGEST_SECONDS)),
        render=render,
    )


async def stream(api: ClusterApi, wanted: WatchRequest, stopping: Callable[[], bool]) -> AsyncGenerator[bytes]:
    """Yield lines to write, all available ones together; end at the time limit, or when kind or server ends."""
    store = api.store(wanted.kind)
    try:
        cursor = store.tail if wanted.version is None else store.cursor_at(wanted.version)
    except ApiError as error:
        yield _error_line(error)
        return
    if wanted.initial:
        try:
            async for portion in _initial(api, store, wanted):
                yield portion
        except ApiError as error:  # a conversion webhook failed
            yield _error_line(error)
            return
    clock, begun = api.clock, api.clock.monotonic()
    alarm: asyncio.Task[None] | None = None
    ends, next_mark = begun + wanted.seconds, begun + BOOKMARK_SECONDS if wanted.bookmarks else math.inf
    try:
        while not stopping() and api.is_served(wanted.kind, store):
            try:
                await _prepare(api, wanted, cursor)
            except ApiError as error:
                yield _error_line(error)
                return
            lines, cursor = _since(wanted, cursor)
            if lines:
                yield b"".join(lines)
            if store.behind(cursor) > store.log_length:
                yield _error_line(failure.expired("the watch fell too far behind: list again"))
                return
            now = clock.monotonic()
            if now >= ends:
                if wanted.bookmarks:
                    yield bookmark(wanted.kind, _reached(api, cursor))
                return
            if now >= next_mark:
                next_mark = now + BOOKMARK_SECONDS
                yield bookmark(wanted.kind, _reached(api, cursor))
            if cursor.next is not None:
                continue
            if alarm is None or alarm.done():
                alarm = asyncio.create_task(clock.sleep(min(ends, next_mark) - now))
                alarm.add_done_callback(lambda _: store.wake())
            await _next(store)
    finally:
        if alarm is not None:
            alarm.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await alarm


def _reached(api: ClusterApi, cursor: StoreChange) -> int:
    """Return the version up to which a watcher at `cursor` has all changes; changes may follow `cursor` already."""
    return api.versions.current if cursor.next is None else cursor.version


async def _next(store: ObjectStore) -> None:
    future = store.changed()
    try:
        await future
    finally:
        store.forget_waiting(future)


async def _initial(api: ClusterApi, store: ObjectStore, wanted: WatchRequest) -> AsyncGenerator[bytes]:
    version = api.versions.current
    records = list(store.records(wanted.chosen.namespace))
    for first in range(0, len(records), PORTION):
        portion = records[first : first + PORTION]
        await api.forms.prepare(wanted.kind, portion)
        lines = [
            event_line("ADDED", wanted.render(wanted.kind, record))
            for record in portion
            if wanted.chosen.is_all or wanted.chosen.selects(wanted.kind.shown(record))
        ]
        if lines:
            yield b"".join(lines)
    if wanted.marks_initial_end:
        yield bookmark(wanted.kind, version, initial_end=True)


async def _prepare(api: ClusterApi, wanted: WatchRequest, cursor: StoreChange) -> None:
    """Convert the objects of the next portion of changes, before and after each.

    Raises:
        ServerError: a webhook converts them, and failed.
    """
    if not wanted.kind.converts:
        return
    changes: list[StoreChange] = []
    while cursor.next is not None and len(changes) < PORTION:
        cursor = cursor.next
        changes.append(cursor)
    records = [record for change in changes for record in (change.record, change.old) if record is not None]
    await api.forms.prepare(wanted.kind, records)


def _since(wanted: WatchRequest, cursor: StoreChange) -> tuple[list[bytes], StoreChange]:
    """Return lines for the changes after `cursor`, a portion at most, and the cursor after them."""
    lines: list[bytes] = []
    plain, kind = wanted.is_plain, wanted.kind
    for _ in range(PORTION):
        if cursor.next is None or not _is_prepared(kind, cursor.next):
            break
        cursor = cursor.next
        if plain and cursor.record is not None and kind.is_as_stored(cursor.record):
            lines.append(cursor.line)
        elif line := _line(wanted, cursor):
            lines.append(line)
    return lines, cursor


def _is_prepared(kind: ServedKind, change: StoreChange) -> bool:
    """Whether `kind.shown` has the objects of a change; a change that was stored during a conversion waits."""
    if not kind.converts:
        return True
    records = [record for record in (change.record, change.old) if record is not None]
    return all(kind.is_as_stored(record) or kind.api_version in record.forms for record in records)


def _line(wanted: WatchRequest, change: StoreChange) -> bytes | None:
    """Return the event for a watcher with selectors; None if the change does not concern its objects.

    An object that begins to match is ADDED, and an object that no longer matches is DELETED.
    """
    record, kind = change.record, wanted.kind
    assert record is not None
    if wanted.chosen.namespace is not None and record.namespace != wanted.chosen.namespace:
        return None
    is_in = change.type != "DELETED" and wanted.chosen.selects(kind.shown(record))
    was_in = change.old is not None and wanted.chosen.selects(kind.shown(change.old))
    if is_in:
        return event_line("MODIFIED" if was_in else "ADDED", wanted.render(kind, record))
    if not was_in:
        return None
    if change.type == "DELETED":
        return event_line("DELETED", wanted.render(kind, record))
    assert change.old is not None
    return event_line("DELETED", wanted.render(kind, _at_version(change.old, change.version)))


def _at_version(record: StoredObject, version: int) -> StoredObject:
    """Return a stored object, in all its forms, with another resourceVersion."""

    def moved(obj: Object) -> Object:
        return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}

    found = StoredObject(moved(record.obj), version)
    found.forms.update({name: moved(form) for name, form in record.forms.items()})
    return found


def bookmark(kind: ServedKind, version: int, *, initial_end: bool = False) -> bytes:
    """Return a BOOKMARK event: all changes up to `version` were sent."""
    metadata: Object = {"resourceVersion": str(version), "creationTimestamp": None}
    if initial_end:
        metadata["annotations"] = {END_OF_INITIAL_EVENTS: "true"}
    obj = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
    return event_line("BOOKMARK", msgspec.json.encode(obj))


def _error_line(error: ApiError) -> bytes:
    return event_line("ERROR", msgspec.json.encode(failure.status_object(error)))
