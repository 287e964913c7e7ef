"""Writes the status of BatchProcesses: changes of state at once, changes of counts at most once in a window."""

from __future__ import annotations

from collections.abc import Callable

from cachetools import TTLCache

from kqueue.clock import Clock
from kqueue.controllers.batch_process_pods import reference
from kqueue.controllers.record import Recorder
from kqueue.controllers.status_pace import LONGEST, StatusPace
from kqueue.jobs.fields import JSON, mapping, text
from kqueue.jobs.gang.batch_status import BatchEvent, changed_state, events_of
from kqueue.jobs.meaning import same
from kqueue.jobs.patch import Patch, merge_patch
from kqueue.runtime.status_writer import StatusWriter

_REMEMBERED = 100_000


class BatchStatusWriter:
    """The statuses that this process writes, with the times of its last writes."""

    def __init__(self, writer: StatusWriter[JSON], recorder: Recorder, clock: Clock, *, window: float) -> None:
        """Take the shortest pause in seconds between two writes of counts alone."""
        self._writer, self._recorder, self._clock, self._window = writer, recorder, clock, window
        remembered = 2 * LONGEST * max(window, 1.0)
        self._paces: TTLCache[str, StatusPace] = TTLCache(_REMEMBERED, remembered, clock.monotonic)

    def newest(self, key: str) -> JSON | None:
        """Return the newest known BatchProcess; None: there is none."""
        return self._writer.newest(key)

    async def write(self, key: str, wanted: Callable[[JSON], JSON]) -> float | None:
        """Write the status that `wanted` computes from the newest object, if it differs.

        Returns:
            Seconds after which it has to be written, because only counts have changed; None: nothing is left to write.
        """
        now = self._writer.newest(key)
        if now is None:
            return None
        before, after = mapping(now, "status"), wanted(now)
        if same(before, after):
            return None
        pace, state = self._paces.get(key) or StatusPace(), changed_state(before, after)
        wait = pace.left(self._clock.monotonic(), self._window)
        if wait > 0 and not state:
            return wait
        events: list[BatchEvent] = []

        def change(current: JSON) -> Patch | None:
            status, then = mapping(current, "status"), wanted(current)
            if text(current, "metadata", "uid") != text(now, "metadata", "uid") or same(status, then):
                return None
            events[:] = events_of(status, then)
            return {"status": merge_patch(status, then)}

        written = await self._writer.write(key, change)
        if written is not None:
            pace.note(self._clock.monotonic(), self._window, state=state)
            self._paces[key] = pace
            for event in events:
                self._recorder.record(reference(now), reason=event.reason, message=event.message, warning=event.warning)
        return None
