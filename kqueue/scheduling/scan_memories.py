"""The ends of scans of flavors, by workload, so that the next try continues there."""

from __future__ import annotations

from collections import OrderedDict

from kqueue.core.decision import Wait
from kqueue.core.scan import Attempt, ScanMemory, ScanRules, remembered
from kqueue.core.workload import LastTried

_MOST = 100_000
"""Limit of remembered workloads; beyond it the oldest entry is dropped."""

_FROM_THE_FRONT: LastTried = {}


class ScanMemories:
    """Memories of scans, bounded."""

    def __init__(self, rules: ScanRules) -> None:
        self._rules = rules
        self._of: OrderedDict[str, ScanMemory] = OrderedDict()

    def known(self, key: str) -> LastTried:
        """Return where the last scan of a workload (namespace/name) ended, even if outdated; empty when nothing is
        remembered.
        """
        memory = self._of.get(key)
        return memory.last_tried if memory is not None else _FROM_THE_FRONT

    def last_tried(self, key: str, attempt: Attempt) -> LastTried:
        """Return where this try begins its scan; forget a memory that is outdated for it."""
        memory = self._of.get(key)
        if memory is None:
            return _FROM_THE_FRONT
        if memory.is_outdated(attempt, self._rules):
            del self._of[key]
            return _FROM_THE_FRONT
        return memory.last_tried

    def forget(self, key: str) -> None:
        """Make the next scan begin at the first flavor."""
        self._of.pop(key, None)

    def note(self, decision: Wait, attempt: Attempt) -> ScanMemory | None:
        """Remember where the scan of a try ended; return the memory that it replaces."""
        key = decision.head.key
        before = self._of.pop(key, None)
        if before is not None or decision.has_more_flavors:
            memory = remembered(decision, attempt, before, self._rules)
            if memory is not None:
                if len(self._of) >= _MOST:
                    self._of.popitem(last=False)
                self._of[key] = memory
        return before
