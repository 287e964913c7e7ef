"""Takes marks of extras off that kqueue did not write, before such a pod gets a Workload of its own.

The webhook refuses such a mark; this is for clusters in which a pod was not reviewed.
"""

from __future__ import annotations

from collections.abc import Callable

from kqueue.api import gang_names
from kqueue.api.wire import kueue as wire
from kqueue.controllers.gang_extras import EVENT_RETURNED
from kqueue.controllers.gang_workloads import GangWorkloads
from kqueue.controllers.pod_writes import PodWrites
from kqueue.controllers.workload_steps import as_json
from kqueue.jobs.gang.extras import lets_extras_wait, unmark
from kqueue.jobs.pod_view import ManagedPod


class ExtraMarks:
    """The judgement of one mark: a pod is queued beyond a quorum only while that quorum has been admitted."""

    def __init__(self, writes: PodWrites, gangs: GangWorkloads, newest: Callable[[str], wire.Workload | None]) -> None:
        """Take the parts; `newest(key)` returns the newest version of a Workload."""
        self._writes, self._gangs, self._newest = writes, gangs, newest

    def are_true(self, pod: ManagedPod) -> bool:
        """Whether the extra may be queued alone now."""
        if self._gangs.queues_alone(pod.group):
            return True
        key = self._gangs.key_of(pod.group)
        base = self._newest(key) if key else None
        return base is not None and lets_extras_wait(as_json(base))

    async def take_off(self, pod: ManagedPod) -> None:
        """Make the pod a member of its gang again."""
        if await self._writes.patch(pod, unmark()):
            message = (
                f"Annotation {gang_names.EXTRA_ANNOTATION} is taken off, because the quorum of the gang is not "
                "admitted; the pod waits with its gang"
            )
            self._writes.event(pod, reason=EVENT_RETURNED, message=message, warning=True)
