"""Reconciles AdmissionChecks: their finalizer, and condition ControllerMissing while no controller has set Active."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers import resources as kinds
from kqueue.controllers.finalizers import FinalizerReconciler, enqueue_after_changes
from kqueue.controllers.manager import Manager
from kqueue.runtime.controller import Result
from kqueue.runtime.status_writer import StatusWriter
from kqueue.state.checks import missing_controller, missing_controller_message
from kqueue.state.conditions import Conditions, Stamp, status_patch


class AdmissionCheckReconciler:
    """Sets and removes condition ControllerMissing.

    Condition Active belongs to the check's controller; kqueue never writes it.
    """

    def __init__(
        self,
        finalizers: FinalizerReconciler[wire.AdmissionCheck],
        writer: StatusWriter[wire.AdmissionCheck],
        clock: Clock,
        *,
        after: float,
    ) -> None:
        """Take the parts; a controller that has not set Active counts as missing `after` seconds after the check was
        created.
        """
        self._finalizers, self._writer, self._clock = finalizers, writer, clock
        self._after = timedelta(seconds=after)
        self._not_before: dict[str, datetime] = {}
        """By check: the earliest time of the next write. Another writer may remove the condition with each of its own
        writes.
        """

    async def reconcile(self, key: str) -> Result:
        """Write finalizer and condition.  A check whose controller may count as missing soon is requeued."""
        result = await self._finalizers.reconcile(key)
        await self._writer.write(key, lambda obj: self._status(key, obj))
        obj = self._writer.newest(key)
        if obj is None:
            self._not_before.pop(key, None)
            return result
        now = self._clock.now()
        left = (self._due(key, obj, now) - now).total_seconds() if _lacks_condition(obj) else 0.0
        return Result(requeue_after=left) if left > 0 and result.requeue_after is None else result

    def _due(self, key: str, obj: wire.AdmissionCheck, now: datetime) -> datetime:
        """Return the time from which the controller counts as missing; a check without creation time is never due."""
        due = (obj.metadata.creation_timestamp or now) + self._after
        return max(due, self._not_before.get(key, due))

    def _status(self, key: str, obj: wire.AdmissionCheck) -> dict[str, Any] | None:
        now = self._clock.now()
        conditions = Conditions(obj.status.conditions, generation=obj.metadata.generation, stamp=Stamp(now))
        controller = missing_controller(obj)
        if controller is None or obj.metadata.deletion_timestamp is not None:
            conditions.remove(names.CONDITION_CONTROLLER_MISSING)
        elif not _lacks_condition(obj) or self._due(key, obj, now) <= now:
            conditions.set(
                names.CONDITION_CONTROLLER_MISSING,
                status=True,
                reason=names.REASON_NOT_ACTIVATED,
                message=missing_controller_message(controller),
            )
        if conditions.changed:
            self._not_before[key] = now + self._after
        return status_patch(conditions)


def _lacks_condition(obj: wire.AdmissionCheck) -> bool:
    """Whether the controller is missing and the condition does not report that yet."""
    said = model.condition(obj.status.conditions, names.CONDITION_CONTROLLER_MISSING)
    return said is None and missing_controller(obj) is not None and obj.metadata.deletion_timestamp is None


def setup(manager: Manager) -> None:
    """Add the reconciler of AdmissionChecks."""
    watch = manager.watches.checks
    writer = manager.writer(kinds.ADMISSION_CHECKS, watch, wire.AdmissionCheck)
    check = AdmissionCheckReconciler(
        FinalizerReconciler(writer, manager.cache.quota.is_check_used),
        writer,
        manager.clock,
        after=manager.timings.check_controller_missing_after,
    )
    checks = manager.controller("admission_check", check.reconcile, group_kind="AdmissionCheck.kueue.x-k8s.io")
    enqueue_after_changes(manager, checks, watch)
