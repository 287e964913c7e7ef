"""Hands another queue on a group object on to the waiting members; then the Workload moves as that of any owner."""

from __future__ import annotations

from collections.abc import Sequence

from kqueue.api import gang_names
from kqueue.api.wire import kueue as wire
from kqueue.controllers.gang_workloads import GangWorkloads
from kqueue.controllers.group_events import GroupEvents
from kqueue.controllers.pod_tools import PodTools
from kqueue.controllers.workload_steps import JSON, as_json
from kqueue.jobs.fields import text
from kqueue.jobs.gang.queue_change import QueueChange, gathering_change, queue_change
from kqueue.jobs.pod_view import ManagedPod

EVENT_QUEUE_CHANGE_IGNORED = "QueueChangeIgnored"


class GangQueue:
    """The steps of one reconcile for a changed queue; gangs without a group object have none."""

    def __init__(self, tools: PodTools, events: GroupEvents, gangs: GangWorkloads) -> None:
        self._tools, self._events, self._gangs = tools, events, gangs

    def annotation(self, key: str) -> dict[str, str]:
        """Return the annotation by which a Workload keeps the queue that the group object names, also an empty one."""
        if self._gangs.object_of(key) is None:
            return {}
        return {gang_names.OBJECT_QUEUE_ANNOTATION: self._gangs.queue_of(key)}

    async def hand_on_early(self, key: str, members: Sequence[ManagedPod]) -> bool:
        """Label members of a gang without a Workload; return whether there were any to label."""
        found = gathering_change(self._gangs.queue_of(key), members)
        if found is not None:
            await self._label(found)
        return found is not None

    async def hand_on(self, key: str, members: Sequence[ManagedPod], workload: wire.Workload) -> bool:
        """Label the members while none is released, and note the queue on the Workload once all are labelled; return
        whether anything was written.
        """
        obj = self._gangs.object_of(key)
        if obj is None:
            return False
        told = as_json(workload)
        found = queue_change(self._gangs.queue_of(key), members, told)
        if found is None:
            return False
        if found.ignored:
            self._report_ignored(obj, found.wanted, text(told, "spec", "queueName"))
            return False
        if not found.to_label:
            return await self._tools.steps.amend(workload, {"metadata": {"annotations": self.annotation(key)}})
        await self._label(found)
        return True

    async def _label(self, found: QueueChange) -> None:
        writes = self._tools.writes
        await writes.each(found.to_label, lambda pod: writes.patch(pod, found.label(pod)))

    def _report_ignored(self, obj: JSON, wanted: str, present: str) -> None:
        if wanted != present:
            message = f"The group stays in LocalQueue {present} and does not move to {wanted}: its pods were released"
            self._events.tell(obj, reason=EVENT_QUEUE_CHANGE_IGNORED, message=message)
