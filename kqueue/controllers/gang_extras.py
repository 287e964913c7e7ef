"""Marks members of a gang beyond its quorum as extras, and takes marks back; the reconciler of single pods queues
extras.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kqueue import model
from kqueue.api import gang_names, names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers.job_workload import OWNER_INDEX, owner_key
from kqueue.controllers.owner_lifecycle import OwnerStop
from kqueue.controllers.pod_tools import PodTools
from kqueue.controllers.workload_steps import as_json
from kqueue.jobs.gang import counts
from kqueue.jobs.gang.extras import (
    has_started,
    lose_their_base,
    mark,
    to_mark,
    to_return,
    unmark,
    waits_since_before_the_end,
)
from kqueue.jobs.gang.match import Match, represented
from kqueue.jobs.gang.members import without
from kqueue.jobs.pod_view import ManagedPod
from kqueue.runtime.store import Store, split_key

EVENT_MARKED = "QueuedBeyondQuorum"
EVENT_RETURNED = "BackInQuorum"

KeepsRuns = Callable[[str], bool]
"""Whether a ClusterQueue tries extras right after their base (`order_keys.keeps_runs`)."""


def never_early(_cluster_queue: str) -> bool:
    """Return False: no ClusterQueue tries extras before their base has started."""
    return False


class ExtraPods:
    """The steps of one reconcile for extras; gangs of Kueue's own dialect have none."""

    def __init__(
        self, tools: PodTools, workloads: Store[wire.Workload], clock: Clock, *, keeps_runs: KeepsRuns = never_early
    ) -> None:
        self._tools, self._workloads, self._clock, self._keeps_runs = tools, workloads, clock, keeps_runs

    async def follow_base(
        self,
        extras: Sequence[ManagedPod],
        base: Sequence[ManagedPod],
        workload: wire.Workload | None,
        *,
        stops: bool = True,
    ) -> None:
        """Stop extras whose base has lost its admission; those that wait become members again.

        `stops`: False lets extras run on, because their group object was deleted.
        """
        told = as_json(workload) if workload is not None and extras else None
        waiting = [pod for pod in extras if pod.gated and not pod.deleting]
        if not lose_their_base(extras, base, told):
            if workload is None:  # no base will start, so nothing would release those that wait for its start
                await self._return([pod for pod in waiting if pod.early], "the quorum of the gang is gone")
            return
        message = "The pod runs beyond the quorum of its gang, and the gang was stopped"
        await self._return(waiting, "the gang waits for its quorum")
        why = OwnerStop(reason=names.REASON_WORKLOAD_EVICTED, message=message)
        if stops:
            await self._tools.stop(counts.at_large(extras), why)

    async def queue_alone(self, members: Sequence[ManagedPod]) -> None:
        """Mark gated members of a group whose pods do not start together, so that each is queued alone; `members` may
        have early extras.
        """

        async def one(pod: ManagedPod) -> None:
            if await self._tools.writes.patch(pod, mark(pod, {})):
                self._tools.writes.event(
                    pod, reason=EVENT_MARKED, message="The pods of the group are queued one by one"
                )

        await self._tools.writes.each([pod for pod in members if pod.gated and pod.runnable], one)

    def of_base(self, extras: Sequence[ManagedPod], workload: wire.Workload) -> Sequence[ManagedPod]:
        """Return the extras without those that run beyond the base of an earlier group object of the same name."""
        name = workload.metadata.name
        return [pod for pod in extras if pod.gated or self._base_name(pod) in (name, "")]

    def _base_name(self, pod: ManagedPod) -> str:
        owned = self._workloads.by_index(OWNER_INDEX, owner_key("", "Pod", *split_key(pod.key)))
        return next((w.metadata.annotations.get(gang_names.EXTRA_OF_ANNOTATION, "") for w in owned), "")

    async def mark_after_end(
        self, extras: Sequence[ManagedPod], members: Sequence[ManagedPod], workload: wire.Workload
    ) -> Sequence[ManagedPod]:
        """Mark members that waited when the Workload finished; returns the members without those that still wait."""
        if not model.condition_true(workload, names.CONDITION_FINISHED):
            return members
        told = as_json(workload)
        await self._mark([pod for pod in extras if pod.early and pod.gated], workload)
        found = represented(members, told, self._clock.now())
        if found is None or not found.extras:
            return members
        waiting = [pod for pod in found.extras if waits_since_before_the_end(pod, told)]
        await self._mark(to_mark(found, extras, told), workload)
        return without(members, waiting)

    async def manage(self, found: Match, extras: Sequence[ManagedPod], workload: wire.Workload) -> None:
        """Fill places of lost members with waiting extras, and mark further members once the quorum has started."""
        if not extras and not found.extras:
            return
        told, held = as_json(workload), workload.status.admission
        back = to_return(found, extras, told, reserved=self._is_reserved)
        await self._return(back, "a member of the quorum is lost")
        left, started = without(extras, back), has_started(found, told)
        if started:
            await self._mark([pod for pod in left if pod.early and pod.gated], workload)
        early = not started and held is not None and self._keeps_runs(held.cluster_queue)
        await self._mark(to_mark(found, left, told, early=early), workload, early=early)

    def _is_reserved(self, pod: ManagedPod) -> bool:
        owned = self._workloads.by_index(OWNER_INDEX, owner_key("", "Pod", *split_key(pod.key)))
        return any(model.condition_true(workload, names.CONDITION_QUOTA_RESERVED) for workload in owned)

    async def _mark(self, pods: Sequence[ManagedPod], workload: wire.Workload, *, early: bool = False) -> None:
        told, key = as_json(workload), model.workload_key(workload)
        message = f"The quorum of Workload {key} has started; the pod is queued alone"
        if early:
            message = f"The quorum of Workload {key} is admitted; the pod is queued alone, and starts after the quorum"

        async def one(pod: ManagedPod) -> None:
            if await self._tools.writes.patch(pod, mark(pod, told, early=early)):
                self._tools.writes.event(pod, reason=EVENT_MARKED, message=message)

        await self._tools.writes.each(pods, one)

    async def _return(self, pods: Sequence[ManagedPod], why: str) -> None:
        async def one(pod: ManagedPod) -> None:
            if await self._tools.writes.patch(pod, unmark()):
                self._tools.writes.event(pod, reason=EVENT_RETURNED, message=f"The pod waits with its gang: {why}")

        await self._tools.writes.each(pods, one)
