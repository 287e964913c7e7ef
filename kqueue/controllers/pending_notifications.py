"""Waiting Workloads whose status does not yet say why they wait.

The outcome of one try holds for all equal Workloads, so their statuses are to say it, too.  Thousands are set aside at
each refusal, and most of them say it already: this finds the others without a look at each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire

UNTRIED = (names.REASON_DEACTIVATED, names.REASON_PENDING_EVALUATION, names.REASON_SUSPENDED, names.REASON_PENDING)
"""Reasons that say nothing of a try; what a try has said of an equal workload says more."""


class PendingNotifications:
    """Workloads whose status must be written when the next outcome of an equal Workload is known."""

    def __init__(self) -> None:
        self._first: dict[str, None] = {}

    def observe(self, old: wire.Workload | None, new: wire.Workload | None) -> None:
        """Follow the watch event of a Workload."""
        if new is not None and _says_nothing_of_a_try(new):
            self._first[model.workload_key(new)] = None
            return
        seen = new if new is not None else old
        if seen is not None:
            self._first.pop(model.workload_key(seen), None)

    def is_first(self, key: str) -> bool:
        """Whether the status of a Workload does not say yet why it waits."""
        return key in self._first

    def among(self, keys: Collection[str]) -> Iterator[str]:
        """Those of these that say nothing of a try, each once; costs by the fewer of either.

        Nothing may change until it has been gone through.
        """
        fewer, more = (self._first, keys) if len(self._first) <= len(keys) else (keys, self._first)
        return (key for key in fewer if key in more)


def _says_nothing_of_a_try(workload: wire.Workload) -> bool:
    told = model.condition(workload.status.conditions, names.CONDITION_QUOTA_RESERVED)
    return told is None or told.reason in UNTRIED
