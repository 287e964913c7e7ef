"""A gang as the owner of its Workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.controllers.owner_lifecycle import OwnerStop
from kqueue.controllers.pod_tools import PodTools
from kqueue.controllers.workload_steps import JSON, as_json
from kqueue.jobs import pod_view, run_times
from kqueue.jobs.gang import counts
from kqueue.jobs.gang.group_object import queue_of as object_queue
from kqueue.jobs.gang.group_object import speaker_of
from kqueue.jobs.gang.match import Match, strays
from kqueue.jobs.gang.members import gang_queue, is_serving
from kqueue.jobs.gang.registry import dialect_of
from kqueue.jobs.gang.value import GangPhase, GangRef
from kqueue.jobs.kind import Finished, Refused
from kqueue.jobs.pod_view import ManagedPod

_log = structlog.get_logger(__name__)

EVENT_NOT_STARTED = "PodNotStarted"
STILL_THERE = 5.0
"""Seconds after which ending pods are read again: a pod on a node that is gone ends without an event."""


class GangOwner:
    """`OwnerAdapter` for one group.  Before `matched` it acts for all members, afterwards for the matched members."""

    noun = "The pods"
    deletion_message = "The Workload of the group was deleted"
    check_again = STILL_THERE

    def __init__(
        self,
        tools: PodTools,
        members: Sequence[ManagedPod],
        workload: wire.Workload,
        *,
        prebuilt: bool,
        group_object: JSON | None = None,
    ) -> None:
        """Take the members in order, at least one; `prebuilt`: a user created the Workload."""
        self.workload, self._tools, self._prebuilt = workload, tools, prebuilt
        self._group_object = group_object
        dialect = dialect_of(GangRef.of_key(members[0].group).framework)
        self._object_ended = group_object is not None and dialect.phase(group_object) is GangPhase.FINISHED
        """Whether the group object has finished, so that it takes no more members."""
        self._has_maker = dialect.makes_workloads
        """Whether the reconciler of the group object makes the Workload, keeps it like the object, and finishes it."""
        self._members = list(members)
        self._found = Match(kept=tuple(members))

    def matched(self, found: Match) -> GangOwner:
        """Continue with the members that the Workload counts, and with the members of roles that it does not have."""
        self._found, self._members = found, [*found.kept, *found.strangers, *found.extras]
        return self

    @property
    def _kept(self) -> tuple[ManagedPod, ...]:
        return self._found.kept

    @property
    def _serves(self) -> bool:
        return is_serving(self._members[0])

    @property
    def queue(self) -> str:
        """The queue of the oldest member, else that of the group object."""
        return gang_queue(self._members, object_queue(self._group_object))

    @property
    def waits(self) -> bool:
        """Whether any member is gated, or has ended and may be replaced."""
        return counts.is_suspended(self._kept)

    @property
    def may_move(self) -> bool:
        """Whether the group may move to another queue: before it begins and after an eviction; never a group that
        serves.
        """
        evicted = model.condition_true(self.workload, names.CONDITION_EVICTED)
        return not self._serves and (evicted or not _began(self._kept))

    @property
    def is_removable(self) -> bool:
        """Whether the Workload of the group is open and has no quota."""
        reserved = model.condition_true(self.workload, names.CONDITION_QUOTA_RESERVED)
        return not reserved and not model.is_over(self.workload)

    def finished(self) -> Finished | None:
        """Return the result by the ends of the members; None: the group has not finished."""
        told = as_json(self.workload)
        return None if self._has_maker else counts.finished(self._kept, told, takes_more=not self._object_ended)

    def busy(self) -> bool:
        """Whether any member may still use quota."""
        return self._tools.are_busy(self._members, self.workload)

    def reclaimable(self) -> Mapping[str, int]:
        """Return the number of succeeded members, by role."""
        return counts.reclaimable(self._kept, as_json(self.workload))

    def ready(self) -> bool | None:
        """Whether every member that the Workload counts is ready or has succeeded; None: another cluster runs the group
        with its owner, whose pods here have no status.
        """
        if self._tools.is_sent(self.workload) and pod_view.suspending_parent(self._members[0].obj) is not None:
            return None
        return counts.is_ready(self._kept, as_json(self.workload))

    async def correct(self) -> bool:
        """Apply changes of the oldest member to the Workload, and stop members that run without an admission."""
        podsets = as_json(self.workload)["spec"]["podSets"]
        first = self._kept[0]
        speaker = speaker_of(first.obj, self._group_object)
        kept_alike = self._prebuilt or self._has_maker
        run_time = run_times.expected_trait(speaker)
        if self._prebuilt:
            run_time = run_times.prebuilt(run_time, self.workload.metadata.annotations)
            await self._tools.steps.follow_run_time(self.workload, run_time)
        if not kept_alike and await self._tools.follow.follow(
            first, podsets, self.workload, run_time=run_time, speaker=speaker
        ):
            return True
        evicted = model.condition_true(self.workload, names.CONDITION_EVICTED)
        return not evicted and await self._stop_loose()

    async def _stop_loose(self) -> bool:
        """Stop members that run without an admission; return whether there were any.

        These are all members while the Workload is not admitted, else members of a role that it does not have.
        """
        admitted = model.is_admitted(self.workload)
        loose = counts.at_large([*self._found.strangers, *self._found.extras] if admitted else self._members)
        if not loose:
            return False
        now = await self._tools.read(model.workload_key(self.workload))
        if now is not None and not admitted and (model.is_admitted(now) or model.is_damaged_status(now)):
            return True  # the watch is behind, or a status that a user has damaged will soon be repaired
        message = "The pod runs and the Workload of its group is not admitted"
        await self._tools.stop(loose, OwnerStop(reason=names.REASON_NOT_ADMITTED, message=message), soon=True)
        return True

    async def closed(self) -> None:
        """Remove the finalizers of all members, and stop members that were created after the end."""
        await self._tools.writes.let_go_all(self._members)
        late = counts.at_large(strays(self._members, as_json(self.workload)))
        message = "The pod runs and its group has finished without it"
        await self._tools.stop(late, OwnerStop(reason=names.REASON_NOT_ADMITTED, message=message), soon=True)

    async def stop(self, why: OwnerStop) -> None:
        """Delete the members that run; if the Workload was deleted, all members, and remove kqueue's finalizer."""
        if why.reason == names.REASON_WORKLOAD_DELETED:
            await self._tools.writes.let_go_all(self._members)
        await self._tools.stop(self._members, why)

    async def finish(self, end: Finished) -> None:
        """Finish the Workload."""
        await self._tools.steps.finish(self.workload, names.REASON_SUCCEEDED, end.message)

    async def give_back(self) -> None:
        """Release the quota; the reason of the eviction decides whether the group is tried again at once."""
        await self._tools.steps.give_back(self.workload)

    async def intercept(self) -> bool:
        """Whether the members keep their gates although they are admitted: another cluster runs them.  Users cannot
        suspend a group.
        """
        return self._tools.is_sent(self.workload)

    async def start(self) -> None:
        """Start all members, or none; afterwards each new member alone.  Report each member that is not started."""
        infos = self._tools.steps.infos(self.workload)
        starts = (
            infos
            if isinstance(infos, Refused)
            else counts.starts(self._found, as_json(self.workload), infos, prebuilt=self._prebuilt)
        )
        if isinstance(starts, Refused):
            await self._tools.steps.finish(self.workload, names.REASON_FAILED_TO_START, str(starts))
            return
        for pod, why in starts.held:
            self._report_held(pod, why, alone=bool(starts.patches))
        started: list[None] = []
        try:
            await self._tools.start(self.workload, starts.patches, on_start=lambda: started.append(None))
        finally:
            if started:
                self._log_start(len(started))

    def _report_held(self, pod: ManagedPod, why: str, *, alone: bool) -> None:
        """Report why a member is not started; also on the oldest member if none is started."""
        message = f"Pod {pod.name} is not started: {why}"
        for on in (pod,) if alone else (pod, self._kept[0]):
            self._tools.writes.event(on, reason=EVENT_NOT_STARTED, message=message, warning=True)

    def _log_start(self, pods: int) -> None:
        admission = self.workload.status.admission
        queue = admission.cluster_queue if admission is not None else ""
        key = model.workload_key(self.workload)
        _log.info("pods of a group started", workload=key, pods=pods, cluster_queue=queue)

    async def wait(self) -> None:
        """Report pending checks on each member."""
        self._tools.follow.report_checks(self._kept, self.workload)

    async def guard(self) -> None:
        """Do nothing: `correct` has stopped members that run without an admission."""

    async def remove(self) -> None:
        """Delete the members."""
        message = "it was deactivated longer ago than such pods are kept"
        await self._tools.delete(self._members, message, names.EVENT_DELETED)


def _began(kept: Sequence[ManagedPod]) -> bool:
    """Whether any member runs, so that the group cannot move to another queue."""
    return any(not pod.gated and not pod.terminated for pod in kept)
