"""A pod that is queued alone, as the owner of its Workload."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.controllers.owner_lifecycle import CHECK_AGAIN, OwnerStop
from kqueue.controllers.pod_tools import PodTools
from kqueue.jobs import rules
from kqueue.jobs.kind import Finished, Refused
from kqueue.jobs.pod import PlainPod
from kqueue.jobs.pod_view import ManagedPod

_log = structlog.get_logger(__name__)

KIND = PlainPod()


class PodOwner:
    """`OwnerAdapter` for one pod."""

    noun = "The pods"
    deletion_message = "The Workload was deleted"

    def __init__(self, tools: PodTools, pod: ManagedPod, workload: wire.Workload, *, requeues: bool) -> None:
        """Take the pod and its Workload; `requeues`: the Workload of a pod that an eviction deleted is queued again."""
        self.workload = workload
        self._tools, self._pod, self._requeues = tools, pod, requeues

    @property
    def queue(self) -> str:
        """The queue label that all jobs have."""
        return rules.queue_name(self._pod.obj)

    @property
    def waits(self) -> bool:
        """Whether the pod is gated."""
        return self._pod.gated

    @property
    def may_move(self) -> bool:
        """Whether the pod is gated."""
        return self._pod.gated

    @property
    def is_removable(self) -> bool:
        """Whether the pod is gated and has no reservation."""
        return self._pod.gated and not self._is_reserved()

    @property
    def check_again(self) -> float | None:
        """Seconds after which a pod on another cluster is looked at again; None: events tell the end of all pods."""
        return CHECK_AGAIN if self._tools.is_sent(self.workload) else None

    def finished(self) -> Finished | None:
        """Return the result by the phase of the pod; None: it has not ended."""
        return KIND.finished(self._pod.obj)

    def busy(self) -> bool:
        """Whether the pod may still use quota."""
        return self._tools.are_busy([self._pod], self.workload)

    def reclaimable(self) -> Mapping[str, int]:
        """Return nothing: a single pod keeps its quota until its end."""
        return {}

    def ready(self) -> bool | None:
        """Whether the pod is ready, by its condition."""
        return KIND.pods_ready(self._pod.obj)

    async def correct(self) -> bool:
        """Return False: there is nothing to correct, because the pod was matched with its Workload before."""
        return False

    async def closed(self) -> None:
        """Remove the finalizer of the pod."""
        await self._tools.writes.let_go(self._pod)

    async def stop(self, why: OwnerStop) -> None:
        """Delete the pod; within seconds if it runs without a reservation after an eviction."""
        soon = why.reason == names.REASON_WORKLOAD_EVICTED and not self._is_reserved()
        await self._tools.stop([self._pod], why, soon=soon)

    async def finish(self, end: Finished) -> None:
        """Finish the Workload, and remove the finalizer of the pod."""
        reason = names.REASON_SUCCEEDED if end.success else names.REASON_FAILED
        await self._tools.steps.finish(self.workload, reason, end.message)
        await self._tools.writes.let_go(self._pod)

    async def give_back(self) -> None:
        """Release the quota.  A gated pod can be queued again; a deleted pod cannot."""
        held = self._pod.gated and not self._pod.deleting
        await self._tools.steps.give_back(self.workload, requeued=None if self._requeues or held else False)

    async def intercept(self) -> bool:
        """Whether the pod keeps its gate although it is admitted: another cluster runs it, or the quorum of its gang
        has not started yet.
        """
        return self._pod.early or self._tools.is_sent(self.workload)

    async def start(self) -> None:
        """Remove the admission gate, and merge the additions of the admission into the pod."""
        infos = self._tools.steps.infos(self.workload)
        patch = infos if isinstance(infos, Refused) else KIND.start(self._pod.obj, infos)
        if isinstance(patch, Refused):
            await self._tools.steps.finish(self.workload, names.REASON_FAILED_TO_START, str(patch))
            return
        await self._tools.start(self.workload, [(self._pod, patch)], on_start=self._log_start)

    def _log_start(self) -> None:
        admission = self.workload.status.admission
        queue = admission.cluster_queue if admission is not None else ""
        _log.info("pod started", pod=self._pod.key, workload=model.workload_key(self.workload), cluster_queue=queue)

    async def wait(self) -> None:
        """Report pending checks on the pod."""
        self._tools.follow.report_checks([self._pod], self.workload)

    async def guard(self) -> None:
        """Stop a pod that runs without an admission.

        The Workload is read first, because a status that a user has damaged will soon be repaired.
        """
        if model.is_admitted(self.workload):
            return
        now = await self._tools.read(model.workload_key(self.workload))
        if now is None or not (model.is_admitted(now) or model.is_damaged_status(now)):
            message = "The pod runs and its Workload is not admitted"
            await self._tools.stop([self._pod], OwnerStop(reason=names.REASON_NOT_ADMITTED, message=message), soon=True)

    async def remove(self) -> None:
        """Delete the pod."""
        await self._tools.writes.delete(self._pod)
        message = "Deleted the pod: it was deactivated longer ago than such pods are kept"
        self._tools.writes.event(self._pod, reason=names.EVENT_DELETED, message=message)

    def _is_reserved(self) -> bool:
        return model.condition_true(self.workload, names.CONDITION_QUOTA_RESERVED)
