"""Condition Active of AdmissionChecks, as every controller of checks keeps it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.runtime.controller import Result
from kqueue.runtime.status_writer import StatusWriter
from kqueue.state.conditions import Conditions, Stamp, status_patch


class Activity(NamedTuple):
    """Whether a check can be used, and why."""

    active: bool
    reason: str
    message: str
    again: float | None = None
    """Seconds after which that may be different without an event."""


class CheckActivity:
    """Keeps condition Active of the AdmissionChecks of one controller."""

    def __init__(
        self,
        writer: StatusWriter[wire.AdmissionCheck],
        judge: Callable[[wire.AdmissionCheck], Activity | None],
        clock: Clock,
    ) -> None:
        """`judge` returns whether a check can be used; None: another controller answers it."""
        self._writer, self._judge, self._clock = writer, judge, clock

    async def reconcile(self, key: str) -> Result:
        """Write the condition."""
        await self._writer.write(key, self._patch)
        check = self._writer.newest(key)
        found = self._judge(check) if check is not None else None
        return Result(requeue_after=found.again if found is not None else None)

    def _patch(self, check: wire.AdmissionCheck) -> dict[str, Any] | None:
        found = self._judge(check)
        if found is None:
            return None  # one that is being deleted is judged: queues use it until they do not name it any more
        stamp = Stamp(self._clock.now())
        conditions = Conditions(check.status.conditions, generation=check.metadata.generation, stamp=stamp)
        conditions.set(names.CONDITION_ACTIVE, status=found.active, reason=found.reason, message=found.message)
        return status_patch(conditions)


def is_of(check: wire.AdmissionCheck | None, controller: str) -> bool:
    """Whether the controller of this name answers a check."""
    return check is not None and check.spec is not None and check.spec.controller_name == controller
