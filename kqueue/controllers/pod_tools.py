"""Steps for single pods and groups: stop and start pods, and read pods that the watch may not have yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.controllers.owner_context import OwnerContext, OwnerReports
from kqueue.controllers.owner_lifecycle import OwnerStop, start_message
from kqueue.controllers.pod_follow import PodFollow
from kqueue.controllers.pod_writes import PodWrites, addressed
from kqueue.controllers.resources import WORKLOADS
from kqueue.core.plugins import PodRef
from kqueue.errors import NotFoundError
from kqueue.jobs.gang import counts
from kqueue.jobs.patch import Patch
from kqueue.jobs.pod import stop_reason
from kqueue.jobs.pod_view import ManagedPod
from kqueue.runtime.store import split_key


class PodTools:
    """The objects that owners of pods share."""

    def __init__(self, context: OwnerContext, *, writes: PodWrites, reports: OwnerReports) -> None:
        policy = context.policy
        self.writes, self.steps = writes, context.steps
        self.follow = PodFollow(writes=writes, steps=context.steps, switches=policy.switches)
        self._client, self._newest, self._clock = context.client, context.book.newest, context.clock
        self._fast_release, self._on_started = policy.fast_release, reports.started
        self._releases, self._runs_elsewhere, self.is_sent = context.releases, context.runs_elsewhere, context.is_sent

    def are_active(self, pods: Sequence[ManagedPod]) -> bool:
        """Whether any pod may still use quota, which is released only after its end."""
        return counts.is_active(pods, self._clock.now(), fast=self._fast_release)

    def are_busy(self, pods: Sequence[ManagedPod], workload: wire.Workload) -> bool:
        """Whether any pod, or its copy on another cluster, may still use the Workload's quota."""
        return self.are_active(pods) or self._runs_elsewhere(workload)

    async def stop(self, pods: Sequence[ManagedPod], why: OwnerStop, *, soon: bool = False) -> None:
        """Delete the pods that a stop ends.  `soon`: they run without quota, so they end within seconds."""
        reason = stop_reason(why.reason, why.eviction)
        targets = [pod for pod in counts.to_stop(pods, why.reason) if not pod.deleting]
        await self.writes.each(
            targets, lambda pod: self.writes.stop(pod, reason=reason, message=why.message, soon=soon)
        )

    async def delete(self, pods: Sequence[ManagedPod], why: str, reason: str = names.EVENT_EXCESS_POD_DELETED) -> None:
        """Remove kqueue's finalizer from pods and delete them, with an event of this `reason` on each."""

        async def one(pod: ManagedPod) -> None:
            await self.writes.let_go(pod)
            await self.writes.delete(pod)
            self.writes.event(pod, reason=reason, message=f"Deleted: {why}")

        await self.writes.each(pods, one)

    async def read(self, key: str) -> wire.Workload | None:
        """Return the Workload from the API server, for decisions that delete pods, because the watch may be behind.

        None: it does not exist.
        """
        namespace, name = split_key(key)
        try:
            return await self._client.get(WORKLOADS, name, namespace, decode=wire.Workload)
        except NotFoundError:
            return None

    async def start(
        self, workload: wire.Workload, patches: Sequence[tuple[ManagedPod, Patch]], *, on_start: Callable[[], None]
    ) -> None:
        """Start pods by these patches, while the Workload's admission is unchanged; report each pod."""
        by_key: Mapping[str, Patch] = {pod.key: patch for pod, patch in patches}
        key, started = model.workload_key(workload), 0

        async def one(pod: ManagedPod) -> None:
            nonlocal started
            if not self._still_admitted(key, workload):
                return  # the event of the change requeues the owner
            if await self._start_one(workload, pod, by_key[pod.key]):
                started += 1
                on_start()
                self.writes.event(pod, reason=names.EVENT_STARTED, message=start_message(workload))
                self._on_started(workload, 1)

        try:
            await self.writes.each([pod for pod, _ in patches], one)
        finally:
            self._releases.tell_released(workload, started)

    async def _start_one(self, workload: wire.Workload, pod: ManagedPod, change: Patch) -> bool:
        """Let a plugin release the pod, or write its patch; return whether the pod starts by this call."""
        if not change:
            return False
        patch, ref = addressed(pod, change), PodRef(*split_key(pod.key), pod.uid)
        if self._releases.is_sent(ref, patch["metadata"]["resourceVersion"]):
            return False
        return await self._releases.is_released(workload, ref, patch) or await self.writes.patch(pod, change)

    def _still_admitted(self, key: str, workload: wire.Workload) -> bool:
        """Whether the admission on which the start was decided is still valid, before one more write."""
        now = self._newest(key)
        return now is workload or (
            now is not None
            and now.metadata.uid == workload.metadata.uid
            and now.status.admission == workload.status.admission
            and model.is_admitted(now)
            and not model.condition_true(now, names.CONDITION_EVICTED)
            and not model.is_over(now)
        )
