"""Evictions of single workloads by the scheduling loop, which no preemptor's claim waits for.

The cache counts the workload as leaving from the decision on; the mark is taken back if the eviction is not written.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import structlog

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.scheduling.writes import Change, Writes
from kqueue.state import status
from kqueue.state.holdings import Holdings

_log = structlog.get_logger(__name__)


class MarkedEvictions:
    """Writes evictions beside the loop."""

    def __init__(self, held: Holdings, writes: Writes) -> None:
        self._held, self._writes = held, writes

    def begin(self, key: str, uid: str, change: Change, *, what: str, written: Callable[[wire.Workload], None]) -> bool:
        """Start the eviction of a workload; return False if it is leaving already.

        Args:
            key: namespace/name.
            uid: another Workload of this name is not evicted.
            change: the patch of the eviction; called only for a workload with quota that is not over.
            what: the eviction, as a part of a sentence for the log.
            written: called with the written object.
        """
        if not self._held.mark_evicted(key, uid):
            return False
        work = self._evict(key, uid, change, what, written)
        self._writes.spawn(work, ended=partial(self._settle, key, uid, what))
        return True

    async def _evict(
        self, key: str, uid: str, change: Change, what: str, written: Callable[[wire.Workload], None]
    ) -> None:
        def change_present(obj: wire.Workload) -> status.Patch | None:
            if obj.metadata.uid != uid or model.is_over(obj) or obj.status.admission is None:
                return None
            return change(obj)

        obj = await self._writes.try_write(key, change_present, what=what)
        if obj is None:
            self._held.mark_evicted(key, uid, evicted=False)
        else:
            written(obj)

    def _settle(self, key: str, uid: str, what: str, error: BaseException | None) -> None:
        if error is not None:
            self._held.mark_evicted(key, uid, evicted=False)
        if isinstance(error, Exception):
            _log.error(f"{what} was not written on a bug", workload=key, exc_info=error)
