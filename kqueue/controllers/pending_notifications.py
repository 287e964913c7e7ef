"""The waiting Workloads whose status does not yet have the result of a try.

The result of one try is valid for all equal Workloads, so it is written to the status of each.  A refusal may park
thousands of Workloads, and most of them already have the reason.  This module finds the others without reading every
Workload.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire

UNTRIED = (names.REASON_DEACTIVATED, names.REASON_PENDING_EVALUATION, names.REASON_SUSPENDED, names.REASON_PENDING)
"""Reasons that are not the result of a try.  The result of an equal workload's try replaces them."""


class PendingNotifications:
    """Workloads whose status must be written as soon as the result of an equal Workload is known."""

    def __init__(self) -> None:
        self._first: dict[str, None] = {}

    def observe(self, old: wire.Workload | None, new: wire.Workload | None) -> None:
        """Follow a watch event of a Workload."""
        if new is not None and _has_no_outcome(new):
            self._first[model.workload_key(new)] = None
            return
        seen = new if new is not None else old
        if seen is not None:
            self._first.pop(model.workload_key(seen), None)

    def is_first(self, key: str) -> bool:
        """Whether the status of a Workload does not yet have the result of a try."""
        return key in self._first

    def among(self, keys: Collection[str]) -> Iterator[str]:
        """Yield the Workloads of `keys` whose status has no result of a try, each once.

        The cost grows with the smaller of the two sets.  No Workload may be added or removed during the iteration.
        """
        fewer, more = (self._first, keys) if len(self._first) <= len(keys) else (keys, self._first)
        return (key for key in fewer if key in more)


def _has_no_outcome(workload: wire.Workload) -> bool:
    told = model.condition(workload.status.conditions, names.CONDITION_QUOTA_RESERVED)
    return told is None or told.reason in UNTRIED
