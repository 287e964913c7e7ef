"""Writes the start times of waiting Workloads to their annotation, in the leader, at a bounded rate.

    start times ──► changes worth a write, the nearest start first ──► one write at a time ──► next interval
    a Workload that starts, ends or left its queue ──► its annotation is removed, before other writes

The annotation is for people.  kqueue reads it only to save a write that would say the same, so a forged one is
replaced, and changes no decision.  All writes are merge patches of this one annotation by the writer of Workloads, in
the lane that waits for decisions.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any

import structlog

from kqueue import model
from kqueue.api import names
from kqueue.api.run_time_names import START_TIME_ANNOTATION
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.config.start_times import StartTimeSettings
from kqueue.core.future.told import ToldStart
from kqueue.errors import ApiError, ForbiddenError, NotLeadingError
from kqueue.isolation import isolated
from kqueue.model.start_notes import says_nearly, start_note
from kqueue.runtime.deadline import within
from kqueue.runtime.lane import Lane
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.store import ObjectKey, Store

_log = structlog.get_logger(__name__)

_INDEX = "start-note"
_PER_TURN = 200
"""Workloads that are compared between two turns of the event loop."""
_MOST_LOGGED = 3
"""Failed writes of one interval that are logged; the others are counted."""

Told = Callable[[], Awaitable[Mapping[ObjectKey, ToldStart] | None]]
"""Returns the start times of all waiting workloads; None: they are not known now."""


async def nothing_told() -> None:
    """Return None: start times are not known, in a process that writes none."""
    return


def has_note(workload: wire.Workload) -> bool:
    """Whether a Workload has the annotation."""
    return START_TIME_ANNOTATION in workload.metadata.annotations


class StartNotes:
    """Keeps the annotations of all Workloads."""

    def __init__(
        self,
        *,
        workloads: Store[wire.Workload],
        writer: StatusWriter[wire.Workload],
        told: Told,
        clock: Clock,
        settings: StartTimeSettings,
    ) -> None:
        self._workloads, self._writer, self._told = workloads, writer, told
        self._clock, self._settings = clock, settings
        self._wanted: Mapping[ObjectKey, ToldStart] = {}
        """The last start times."""
        self._leaving: dict[ObjectKey, None] = {}
        """Workloads that do not wait any more, and have the annotation."""
        self._due: dict[ObjectKey, None] = {}
        """Workloads whose annotation is to change, the nearest start first."""
        self._changed = asyncio.Event()
        self._failed = 0
        workloads.add_index(_INDEX, lambda workload: ("",) if has_note(workload) else ())

    def on_workload(self, old: wire.Workload | None, new: wire.Workload | None) -> None:
        """Note a Workload with the annotation that does not wait any more."""
        if new is not None and has_note(new) and not _waits(new):
            self._leaving[model.workload_key(new)] = None
            self._changed.set()
        elif self._leaving:
            seen = new if new is not None else old
            assert seen is not None
            self._leaving.pop(model.workload_key(seen), None)

    async def run(self) -> None:
        """Write until cancelled; where annotations are switched off, remove those that exist, and end."""
        self._due = {}
        if not self._settings.annotate:
            self._leaving = dict.fromkeys(self._workloads.keys_by_index(_INDEX, ""))
            while self._leaving:
                await self._write_next()
            return
        renewed = self._clock.monotonic()
        while True:
            left = renewed - self._clock.monotonic()
            if left <= 0:
                renewed = self._clock.monotonic() + self._settings.interval.total_seconds()
                await self._renew()
            elif self._leaving or self._due:
                await self._write_next()
            else:
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    await within(self._clock, left, self._changed.wait())

    async def _renew(self) -> None:
        """Ask for start times, and find the annotations that are to change."""
        if self._failed > _MOST_LOGGED:
            _log.warning("start times of further workloads could not be written", workloads=self._failed - _MOST_LOGGED)
        self._failed = 0
        with isolated() as asking:
            told = await self._told()
        if asking.error is not None:
            _log.error("start times could not be asked for, annotations stay", exc_info=asking.error)
            return
        if told is None:
            return
        self._wanted = told
        changes = [key for key in self._workloads.keys_by_index(_INDEX, "") if key not in told]
        self._due = dict.fromkeys(changes)
        near: list[tuple[datetime, ObjectKey]] = []
        without: list[ObjectKey] = []
        for number, (key, one) in enumerate(told.items(), 1):
            if number % _PER_TURN == 0:
                await self._clock.sleep(0)
            workload = self._workloads.get(key)
            if workload is None or self._change(workload) is None:
                continue
            if one.p50 is not None:
                near.append((one.p50, key))
            else:
                without.append(key)
        self._due |= dict.fromkeys([*(key for _, key in sorted(near)), *without])

    async def _write_next(self) -> None:
        """Write the next annotation that is to change, and pause."""
        line = self._leaving or self._due
        key = next(iter(line))
        del line[key]
        workload = self._workloads.get(key)
        if workload is None or self._change(workload) is None:
            return
        with isolated() as writing:
            await self._writer.write(key, self._change, lane=Lane.WORDS, subresource=None)
        if writing.error is not None:
            self._fail(key, writing.error)
        await self._clock.sleep(1.0 / self._settings.writes_per_second)

    def _fail(self, key: ObjectKey, error: Exception) -> None:
        """Log an error of a write; the Workload has its turn again in the next interval."""
        self._failed += 1
        if self._failed > _MOST_LOGGED:
            return
        known = isinstance(error, (ApiError, NotLeadingError))
        _log.warning(
            "the start time of a workload could not be written, tried again after an interval",
            workload=key,
            error=str(error),
            remedy="allow patch of workloads, or set startTimes.annotate to false"
            if isinstance(error, ForbiddenError)
            else None,
            exc_info=None if known else error,
        )

    def _change(self, workload: wire.Workload) -> dict[str, Any] | None:
        """Return the patch of a Workload's annotation; None: it is as it should be."""
        text = workload.metadata.annotations.get(START_TIME_ANNOTATION)
        told = self._wanted.get(model.workload_key(workload))
        if told is None or told.uid != workload.metadata.uid or not _waits(workload):
            return _patch(None) if text is not None else None
        if text is not None and says_nearly(text, told, self._settings.smallest_change):
            return None
        return _patch(start_note(told))


def _patch(text: str | None) -> dict[str, Any]:
    return {"metadata": {"annotations": {START_TIME_ANNOTATION: text}}}


def _waits(workload: wire.Workload) -> bool:
    """Whether a Workload has no quota and is not over."""
    return not model.condition_true(workload, names.CONDITION_QUOTA_RESERVED) and not model.is_over(workload)
