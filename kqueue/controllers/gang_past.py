"""Ends what group objects leave behind that are deleted while members run.

The Workload of such a group object is deleted with it.  Members that run go on to their end and keep the quota; no
further member is started.  A new group object of the name has another UID, and so another Workload.
"""

from __future__ import annotations

from collections.abc import Sequence

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.controllers.gang_workloads import GangWorkloads, controller_uid, started_by
from kqueue.controllers.owner_lifecycle import OwnerStop
from kqueue.controllers.pod_tools import PodTools
from kqueue.controllers.resources import WORKLOADS
from kqueue.errors import NotFoundError
from kqueue.jobs.gang.members import without
from kqueue.jobs.gang.value import GangRef
from kqueue.jobs.pod_view import ManagedPod
from kqueue.runtime.client import Client, Propagation

EVENT_GONE = "GangGone"


class PastGangs:
    """The steps of one reconcile for Workloads of group objects that are gone."""

    def __init__(self, tools: PodTools, gangs: GangWorkloads, client: Client) -> None:
        self._tools, self._gangs, self._client = tools, gangs, client

    async def end(self, key: str, members: Sequence[ManagedPod]) -> tuple[Sequence[ManagedPod], bool]:
        """Release each Workload of an earlier group object whose pods have ended.

        Returns:
            The members of the present gang, and whether pods of an earlier one are being deleted.
        """
        ends = False
        for workload in self._gangs.earlier(key):
            started = started_by(workload, members)
            members = without(members, started)
            await self._end(key, workload, started)
            ends = ends or any(pod.deleting and not pod.terminated for pod in started)
        left = self._gangs.left_over(key, members)
        await self._tools.writes.let_go_all(pod for pod in left if pod.terminated and not pod.extra)
        return without(members, left), ends

    async def loses_its_object(self, key: str, workload: wire.Workload) -> bool:
        """Whether the Workload is deleted because its group object is, which the watch has not reported yet."""
        owner = controller_uid(workload)
        if workload.metadata.deletion_timestamp is None or not owner:
            return False
        return not await self._gangs.objects.lives(GangRef.of_key(key), owner)

    async def _end(self, key: str, workload: wire.Workload, pods: Sequence[ManagedPod]) -> None:
        meta, owner = workload.metadata, controller_uid(workload)
        if meta.deletion_timestamp is None:
            if owner and await self._gangs.objects.lives(GangRef.of_key(key), owner):
                return  # the watch of group objects is behind
            await self._delete(workload)
        evicted = model.condition(workload.status.conditions, names.CONDITION_EVICTED)
        if evicted is not None and evicted.status == "True":
            why = OwnerStop(reason=names.REASON_WORKLOAD_EVICTED, message=evicted.message, eviction=evicted.reason)
            await self._tools.stop(pods, why)
        ended = [pod for pod in pods if not self._may_run(pod)]
        await self._tools.writes.let_go_all(ended)
        if len(ended) == len(pods):
            await self._tools.steps.release(workload)

    async def _delete(self, workload: wire.Workload) -> None:
        """Delete the Workload as the garbage collector does; the finalizer keeps it while its pods run."""
        meta = workload.metadata
        try:
            await self._client.delete(
                WORKLOADS, meta.name, meta.namespace, uid=meta.uid, propagation=Propagation.BACKGROUND
            )
        except NotFoundError:
            return

    def _may_run(self, pod: ManagedPod) -> bool:
        return not pod.terminated and (not pod.deleting or self._tools.are_active([pod]))

    def report_gone(self, key: str, members: Sequence[ManagedPod]) -> bool:
        """Tell gated members that their group object was deleted while others run; return whether it was."""
        if self._gangs.object_of(key) is not None or not self._gangs.earlier(key):
            return False
        ref = GangRef.of_key(key)
        message = f"PodGroup {ref.name} was deleted; make it anew, or delete this pod"
        for pod in members:
            if pod.gated and pod.runnable:
                self._tools.writes.event(pod, reason=EVENT_GONE, message=message, warning=True)
        return True
