"""The recorder of a controller: takes cycles from the scheduling loop, and writes them on a thread of its own.

The loop is never held: a disk that is full or slow costs entries of the record, which are counted, and no cycle.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Protocol

import structlog

from kqueue.core.decision import Decision
from kqueue.core.plan_question import PlanQuestion
from kqueue.core.share_order import NextHead
from kqueue.core.workload import Head
from kqueue.isolation import isolated
from kqueue.record.capture import CapturedCycle, Captures, Lines
from kqueue.record.plugin_answers import note_answers
from kqueue.record.ring import Ring, RingSettings
from kqueue.record.told import ToldIntervals
from kqueue.record.uploader import RecordUploader

_log = structlog.get_logger(__name__)

_MOST_WAITING = 64
"""Cycles that wait for the thread.  Each keeps the free amounts of its moment, half a MiB at 12,500 nodes."""
_REST = 10.0
"""Seconds without another try after a failed write."""


class RecordCounter(Protocol):
    """Counts cycles by what became of their entries.  Called from the thread."""

    def recorded(self, result: str, stored: int) -> None:
        """Count a cycle: `written`, with its bytes on disk, `dropped` (the thread is behind) or `failed`."""
        ...


class DecisionRecorder:
    """Records plans.  Its methods return at once and do not raise; they are called on one event loop."""

    def __init__(
        self,
        settings: RingSettings,
        *,
        count: RecordCounter,
        now: Callable[[], datetime],
        uploader: RecordUploader | None = None,
    ) -> None:
        """`uploader` runs from the first cycle to the end of the last file, so only in a process that records."""
        self._settings, self._count, self._now, self._uploader = settings, count, now, uploader
        self._captures = Captures()
        self._told = ToldIntervals()
        self._cycles = 0
        self._waiting: queue.Queue[CapturedCycle | None] = queue.Queue(_MOST_WAITING)
        self._thread: threading.Thread | None = None

    def begin(self, question: PlanQuestion, lines: Lines | None = None) -> Recording:
        """Capture a question before it is answered; `lines` are those behind the heads of StrictFIFO ClusterQueues."""
        self._cycles += 1
        captured = self._captures.take(self._cycles, question, lines)
        hooks, captured.plugin_answers = note_answers(question.hooks, question.snapshot.topologies)
        return Recording(replace(question, hooks=hooks) if hooks else question, captured, self._end)

    def note_start_times(self, at: datetime, told: Iterable[tuple[str, int, int | None]]) -> None:
        """Record start times that were told at a time, as UID, p50 and p90 in seconds from then (None: unknown).

        They are written with the next cycle: for each workload the first one since it is in line, and the last one
        before its start.  So a process that plans nothing, because it does not lead, writes none.
        """
        self._told.note(at, told)

    def _end(self, captured: CapturedCycle) -> None:
        captured.told = self._told.taken(captured.decisions)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="decision record", daemon=True)
            self._thread.start()
            if self._uploader is not None:
                self._uploader.start()
        try:
            self._waiting.put_nowait(captured)
        except queue.Full:
            self._count.recorded("dropped", 0)

    def stop(self, timeout: float = 5.0) -> None:
        """Write what waits, end the file and upload it, and wait for each of these, at most so many seconds."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            self._waiting.put(None, timeout=timeout)
            thread.join(timeout)
        except queue.Full:
            pass  # the disk hangs; the file is ended at the next start
        if self._uploader is not None:
            self._uploader.stop(timeout)

    # --- on the thread

    def _run(self) -> None:
        ring, rests_until, is_failing = Ring(self._settings), 0.0, False
        while (captured := self._waiting.get()) is not None:
            stored = None
            if time.monotonic() >= rests_until:
                with isolated() as write:
                    stored = ring.write(captured, self._now())
                if write.error is not None:
                    rests_until = time.monotonic() + _REST
                    if not is_failing:
                        self._log_failure(write.error)
                is_failing = write.error is not None
            self._count.recorded("failed" if stored is None else "written", stored or 0)
            for remark in ring.remarks:
                _log.warning("decision record", remark=remark)
            ring.remarks.clear()
        ring.close()

    def _log_failure(self, error: Exception) -> None:
        trace = None if isinstance(error, OSError) else error  # what the disk says needs no traceback
        where = str(self._settings.path)
        _log.error("decisions are not recorded", path=where, error=f"{error}", exc_info=trace)


class Recording:
    """One plan while it is answered."""

    def __init__(self, question: PlanQuestion, captured: CapturedCycle, end: Callable[[CapturedCycle], None]) -> None:
        """`question` is put in place of the caller's: it notes the answers of plugins."""
        self.question = question
        self._captured, self._end = captured, end

    def asking(self, next_head: NextHead) -> NextHead:
        """Return the function with its answers recorded."""

        def recorded(name: str, without: Collection[str]) -> Head | None:
            head = next_head(name, without)
            self._captured.asked.append((name, tuple(without), head))
            return head

        return recorded

    def decided(self, decision: Decision) -> None:
        """Record a decision."""
        self._captured.decisions.append(decision)

    def ended(self, error: BaseException | None = None) -> None:
        """Record the end of the plan; `error`: it ended early."""
        if error is not None:
            self._captured.error = f"{type(error).__name__}: {error}"
        self._end(self._captured)
