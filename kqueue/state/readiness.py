"""Whether the pods of an admitted Workload are ready in time.  Pure.

A start is measured from the admission: PodsReady may be False since an earlier one.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import moment_after

_ZERO = timedelta(0)


class ReadyRules(NamedTuple):
    """How long pods may be unready: after the admission, and after a ready pod became unready."""

    start: timedelta
    recovery: timedelta
    """Zero: no workload is evicted because a ready pod became unready."""


class Late(NamedTuple):
    """The deadline by which the pods must be ready, or the workload is evicted."""

    due: datetime
    limit: timedelta
    cause: str
    """The cause that metrics count: WaitForStart or WaitForRecovery."""

    def message(self) -> str:
        """Return the message of the eviction."""
        seconds = f"{self.limit.total_seconds():g} s"
        if self.cause == names.REASON_WAIT_FOR_START:
            return f"Not all pods were ready within {seconds} of the admission"
        return f"Pods that were ready were not so again within {seconds}"


def ready_by(obj: wire.Workload, rules: ReadyRules) -> Late | None:
    """Return when the workload is evicted unless its pods become ready; None: the workload has no deadline now.

    Only workloads that are admitted, active, not evicted and not finished have a deadline.
    """
    if not obj.spec.active or any(model.condition_true(obj, kind) for kind in _ENDED):
        return None
    admitted = model.since(obj, names.CONDITION_ADMITTED)
    ready = model.condition(obj.status.conditions, names.CONDITION_PODS_READY)
    if admitted is None or (ready is not None and ready.status == "True"):
        return None
    if ready is None or ready.reason != names.REASON_WAIT_FOR_RECOVERY:
        return Late(moment_after(admitted, rules.start), rules.start, names.REASON_WAIT_FOR_START)
    if rules.recovery <= _ZERO:
        return None
    # a transition before the admission concerns earlier pods
    failed = max(admitted, ready.last_transition_time or admitted)
    return Late(moment_after(failed, rules.recovery), rules.recovery, names.REASON_WAIT_FOR_RECOVERY)


_ENDED = (names.CONDITION_EVICTED, names.CONDITION_FINISHED)
