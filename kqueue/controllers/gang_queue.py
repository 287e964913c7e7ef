"""Hands another queue on a group object on to the waiting members; then the Workload moves as that of any owner."""

from __future__ import annotations

from collections.abc import Sequence

from kqueue.api.wire import kueue as wire
from kqueue.controllers.group_events import GroupEvents
from kqueue.controllers.pod_tools import PodTools
from kqueue.controllers.workload_steps import JSON, as_json
from kqueue.jobs.fields import text
from kqueue.jobs.gang.queue_change import object_queue_annotation, queue_change
from kqueue.jobs.pod_view import ManagedPod

EVENT_QUEUE_CHANGE_IGNORED = "QueueChangeIgnored"


class GangQueue:
    """The steps of one reconcile for a changed queue; gangs without a group object have none."""

    def __init__(self, tools: PodTools, events: GroupEvents) -> None:
        self._tools, self._events = tools, events

    async def hand_on(self, obj: JSON | None, members: Sequence[ManagedPod], workload: wire.Workload) -> bool:
        """Label the members while none is released, and note the queue on the Workload once all are labelled; return
        whether anything was written.
        """
        if obj is None:
            return False
        told = as_json(workload)
        found = queue_change(obj, members, told)
        if found is None:
            return False
        if found.ignored:
            self._report_ignored(obj, found.wanted, text(told, "spec", "queueName"))
            return False
        if not found.to_label:
            change = {"metadata": {"annotations": object_queue_annotation(obj)}}
            return await self._tools.steps.amend(workload, change)
        label = found.label
        await self._tools.writes.each(found.to_label, lambda pod: self._tools.writes.patch(pod, label))
        return True

    def _report_ignored(self, obj: JSON, wanted: str, present: str) -> None:
        if wanted != present:
            message = f"The group stays in LocalQueue {present} and does not move to {wanted}: its pods were released"
            self._events.tell(obj, reason=EVENT_QUEUE_CHANGE_IGNORED, message=message)
