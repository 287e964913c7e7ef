"""The checks of a gang before the steps of its owner: whether it has members that kqueue may start together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.controllers.gang_extras import ExtraPods
from kqueue.controllers.gang_owner import STILL_THERE
from kqueue.controllers.gang_past import PastGangs
from kqueue.controllers.gang_records import GangRecords
from kqueue.controllers.owner_context import OwnerContext
from kqueue.controllers.pod_tools import PodTools
from kqueue.controllers.workload_steps import JSON, as_json
from kqueue.jobs import pod_view
from kqueue.jobs.gang import counts
from kqueue.jobs.gang.key import is_of_kueue
from kqueue.jobs.gang.match import counts_gang, is_group_workload
from kqueue.jobs.patch import Patch
from kqueue.jobs.pod_view import ManagedPod
from kqueue.runtime.controller import Result
from kqueue.runtime.store import split_key
from kqueue.state import status


@dataclass(frozen=True, slots=True, kw_only=True)
class GangNow:
    """The objects of one gang, as one reconcile sees them."""

    key: str
    obj: JSON | None
    """The group object; None: the gang has none."""
    workload: wire.Workload | None
    members: Sequence[ManagedPod]
    """Members of the present run that are queued together, in order."""
    extras: Sequence[ManagedPod]
    prebuilt: bool
    """Whether a user created the Workload."""


class GangChecks:
    """The checks of one reconcile.  Each returns the result that ends the reconcile; None: the next one follows."""

    def __init__(
        self, context: OwnerContext, tools: PodTools, *, records: GangRecords, past: PastGangs, extras: ExtraPods
    ) -> None:
        self._manages, self._steps, self._writes = context.manages, context.steps, tools.writes
        self._writer, self._clock = context.book, context.clock
        self._explicit, self._checks_owner = context.policy.explicit, context.policy.checks_owner
        self._records, self._gangs, self._past, self._extras = records, records.gangs, past, extras

    async def first_end(self, gang: GangNow) -> Result | None:
        """Return the result of the first check that ends the reconcile, whether or not there is a Workload."""
        for check in (self._wait_for_object, self._leave_empty, self._let_go_of_others, self._hand_over):
            if (ended := await check(gang)) is not None:
                return ended
        return None

    async def _wait_for_object(self, gang: GangNow) -> Result | None:
        """Wait while the Workload goes with its group object, which the watch has not reported yet."""
        loses = gang.workload is not None and await self._past.loses_its_object(gang.key, gang.workload)
        return Result(requeue_after=STILL_THERE) if loses else None

    async def _leave_empty(self, gang: GangNow) -> Result | None:
        """Leave a gang without members behind."""
        if gang.members:
            return None
        await self._extras.follow_base(gang.extras, gang.members, gang.workload)
        await self._leave_behind(gang.key, gang.workload)
        return Result()

    async def _let_go_of_others(self, gang: GangNow) -> Result | None:
        """Let go of pods that kqueue does not queue."""
        if self._is_ours(gang.members[0]):
            return None
        await self._writes.let_go_all(pod for pod in gang.members if pod.deleting or pod.terminated)
        return Result()

    async def _hand_over(self, gang: GangNow) -> Result | None:
        """Hand pods that do not start together to the reconciler of single pods."""
        if not self._gangs.queues_alone(gang.key):
            return None
        await self._extras.queue_alone([*gang.members, *(pod for pod in gang.extras if pod.early)])
        await self._writes.let_go_all(pod for pod in gang.members if pod.deleting or pod.terminated)
        return Result()

    async def conflict(self, gang: GangNow, workload: wire.Workload) -> Result | None:
        """Report a Workload with the gang's name that is another owner's."""
        is_judged = not gang.prebuilt and self._checks_owner
        if not is_judged or counts_gang(as_json(workload), gang.key, group_object=gang.obj):
            return None
        await self.report_conflict(model.workload_key(workload), gang.members)
        return Result()

    async def _leave_behind(self, key: str, workload: wire.Workload | None) -> None:
        """Release the Workload of a gang without members; the end of its owners deletes the Workload.

        A group object goes on without members, and its Workload holds nothing: it is put on hold.
        """
        if workload is None or not is_group_workload(as_json(workload)):
            return
        if self._gangs.has_maker(key):
            await self.report_waiting(key, workload, 0)
            return
        if workload.metadata.deletion_timestamp is None and model.controller_of(workload.metadata) is not None:
            await self._steps.give_back(workload)
            await self._steps.hold(workload, self._records.shortage(key))
            return
        had_members = any(owner.kind == "Pod" for owner in workload.metadata.owner_references)
        if had_members or workload.metadata.deletion_timestamp is not None:  # otherwise its pods do not exist yet
            await self._steps.release(workload)

    async def report_waiting(self, key: str, workload: wire.Workload, absent: int) -> bool:
        """Write WaitingForReplacementPods for `absent` members; return whether something was written."""
        has_maker = self._gangs.has_maker(key)
        if counts.waiting(as_json(workload), absent, makes_pods=has_maker) is None:
            return False
        stamp = status.Stamp(self._clock.now())

        def change(now: wire.Workload) -> Patch | None:
            wanted = counts.waiting(as_json(now), absent, makes_pods=has_maker)
            if wanted is None or model.condition_true(now, names.CONDITION_FINISHED):
                return None
            conditions = status.Conditions(now.status.conditions, generation=now.metadata.generation, stamp=stamp)
            kind = names.CONDITION_WAITING_FOR_REPLACEMENT_PODS
            conditions.set(kind, status=wanted.status, reason=wanted.reason, message=wanted.message)
            return {"status": {"conditions": conditions.list()}} if conditions.changed else None

        return await self._writer.write(model.workload_key(workload), change) is not None

    def _is_ours(self, first: ManagedPod) -> bool:
        if is_of_kueue(first.group) and not self._explicit and pod_view.suspending_parent(first.obj) is None:
            return False
        return self._manages(split_key(first.key)[0])

    async def report_conflict(self, workload: str, members: Sequence[ManagedPod]) -> None:
        """Tell the oldest member that the Workload, namespace/name, is another owner's."""
        self._writes.event(
            members[0],
            reason=names.EVENT_WORKLOAD_NAME_CONFLICT,
            message=f"Workload {workload} exists and is no pod group's: name the group otherwise, "
            "or delete that Workload",
            warning=True,
        )
        await self._writes.let_go_all(pod for pod in members if not pod.runnable)
