"""Keeps a gang and its Workload consistent: queued when complete, started and stopped as a whole.

A gang is one unit per namespace, dialect and name of the group; its dialect says what it wishes.  Problems are reported
by events on the pod that has the problem.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial

import structlog

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.core import Namespace
from kqueue.controllers.gang_checks import GangChecks, GangNow
from kqueue.controllers.gang_clock import GangClock, make_gang_clock
from kqueue.controllers.gang_crowd import Unseen
from kqueue.controllers.gang_extras import ExtraPods, KeepsRuns, never_early
from kqueue.controllers.gang_owner import STILL_THERE, GangOwner
from kqueue.controllers.gang_past import PastGangs
from kqueue.controllers.gang_queue import GangQueue
from kqueue.controllers.gang_records import GangRecords, make_gang_records
from kqueue.controllers.gathering import Gathering
from kqueue.controllers.group_events import GroupEvents, make_group_events
from kqueue.controllers.handlers import if_changed
from kqueue.controllers.manager import Manager
from kqueue.controllers.owner_context import NO_REPORTS, OwnerContext, OwnerReports
from kqueue.controllers.owner_lifecycle import OwnerLifecycle, OwnerStop
from kqueue.controllers.pod_tools import PodTools
from kqueue.controllers.pod_writes import GROUP_INDEX, PodWrites, make_pod_writes, pod_reports, watch_pods
from kqueue.controllers.ranks import owner_rank
from kqueue.controllers.record import workload_reference
from kqueue.controllers.workload_steps import JSON, MissingPriorityClassError, as_json
from kqueue.core.order_keys import keeps_runs
from kqueue.errors import ApiError
from kqueue.jobs import rules
from kqueue.jobs.gang import counts
from kqueue.jobs.gang.compose import Composition, compose, owner_reference, spec_of, topology_mark, workload_of
from kqueue.jobs.gang.dialect import GroupProblem
from kqueue.jobs.gang.key import is_of_kueue
from kqueue.jobs.gang.match import (
    Match,
    is_outdated,
    match,
    match_prebuilt,
    newcomers,
    of_present_run,
    on_hold,
    represented,
)
from kqueue.jobs.gang.members import in_order, parted, queue_of, without
from kqueue.jobs.gang.naming import gang_of_workload
from kqueue.jobs.gang.occupants import refusals
from kqueue.jobs.gang.record import is_reserved, least_annotation, object_uid, record_annotations
from kqueue.jobs.gang.registry import dialect_of
from kqueue.jobs.gang.value import GangPhase, GangRef
from kqueue.jobs.pod import FRAMEWORK
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.workload import Priority
from kqueue.runtime.controller import Controller, Result
from kqueue.runtime.own_writes import OwnWrites
from kqueue.runtime.store import Store, split_key
from kqueue.runtime.workqueue import KeyRank
from kqueue.state.gangs import Gangs

_log = structlog.get_logger(__name__)

_QUIET = 2.0
"""Seconds without a new member after which an incomplete group is reported as incomplete."""
_PREBUILT_RETRY = 5.0
EVENT_GROUP_FINISHED = "GroupFinished"
EVENT_MANY_MEMBERS = "ManyMembersWait"


class GangReconciler:
    """The reconciler of all gangs, of all dialects.  Keys are the keys of `gang_key`."""

    def __init__(
        self,
        context: OwnerContext,
        *,
        writes: PodWrites,
        records: GangRecords,
        events: GroupEvents,
        reports: OwnerReports = NO_REPORTS,
        gang_clock: GangClock | None = None,
        keeps_runs: KeepsRuns = never_early,
    ) -> None:
        policy = context.policy
        self._gang_clock = gang_clock or GangClock(context, gangs=Gangs())
        self._client, self._writes, self._writer, self._steps = context.client, writes, context.book, context.steps
        self._manages, self._recorder = context.manages, context.recorder
        self._switches, self._clock = policy.switches, context.clock
        self._copied, self._explicit, self._without_queue = policy.copied, policy.explicit, policy.without_queue
        self._checks_owner, self._echo_timeout = policy.checks_owner, policy.echo_timeout
        self._timeouts = policy.timeouts
        self._lifecycle, self._tools = OwnerLifecycle(context), PodTools(context, writes=writes, reports=reports)
        self._follow, self._on_created = self._tools.follow, reports.created
        self._gangs, self._records, self._events = records.gangs, records, events
        self._extras = ExtraPods(self._tools, context.workloads, context.clock, keeps_runs=keeps_runs)
        self._queue = GangQueue(self._tools, events, records.gangs)
        self._past = PastGangs(self._tools, records.gangs, context.client)
        self._checks = GangChecks(context, self._tools, records=records, past=self._past, extras=self._extras)
        self._created: OwnWrites[str, bool] = OwnWrites(context.clock, policy.echo_timeout)
        """Groups whose Workload this process has created, until the watch has reported it."""

    def forget(self, key: str) -> None:
        """Follow the watch event of the group's Workload."""
        self._created.forget(key)

    async def reconcile(self, key: str) -> Result:
        """Take the next step for one group."""
        look = self._records.look(key)
        members, ends = await self._past.end(key, in_order(look.members))
        self._tell_unseen(key, members, look.unseen)
        result = await self._reconcile(key, await self._without_strangers(key, members))
        return Result(requeue_after=STILL_THERE) if ends and result.requeue_after is None else result

    def _tell_unseen(self, key: str, members: Sequence[ManagedPod], unseen: Unseen) -> None:
        """Tell that so many members wait that not all of them are looked at."""
        waiting = [pod for pod in members if pod.gated and not pod.extra] if unseen.waiting else []
        if waiting:
            message = (
                f"The group has more than {len(waiting)} pods that wait; kqueue looks at the oldest of them, and at "
                "others when these have started or are deleted"
            )
            self._writes.event(waiting[0], reason=EVENT_MANY_MEMBERS, message=message, warning=True)
            self._events.tell(self._gangs.object_of(key), reason=EVENT_MANY_MEMBERS, message=message)

    async def _without_strangers(self, key: str, members: Sequence[ManagedPod]) -> Sequence[ManagedPod]:
        """Return the members without pods of another owner than the group's occupant; record an event on such pods."""
        await self._records.occupants.learn(key, members)
        found, obj = self._records.occupation(key, members), self._gangs.object_of(key)
        for notice in refusals(GangRef.of_key(key).name, found, self._records.occupants.topmost):
            self._writes.event(notice.pod, reason=notice.reason, message=notice.message, warning=True)
            self._events.tell(obj, reason=notice.reason, message=notice.message)
        await self._writes.let_go_all(pod for pod in found.refused if pod.deleting)
        return without(members, found.refused)

    async def _reconcile(self, key: str, present: Sequence[ManagedPod]) -> Result:
        """Take the next step for the members that no earlier group object has started."""
        gang = self._read(key, present)
        if (ended := await self._checks.first_end(gang)) is not None:
            return ended
        if gang.workload is None:
            await self._extras.follow_base(gang.extras, gang.members, None, stops=bool(self._gangs.key_of(key)))
            return await self._without_workload(key, gang.members, prebuilt=gang.prebuilt)
        self._created.forget(key)
        if (ended := await self._checks.conflict(gang, gang.workload)) is not None:
            return ended
        return await self._with_workload(await self._followed(gang, gang.workload), gang.workload)

    def _read(self, key: str, present: Sequence[ManagedPod]) -> GangNow:
        workload_key = self._gangs.key_of(key)
        workload = self._writer.newest(workload_key) if workload_key else None
        members, extras = parted(present)
        members = of_present_run(members, as_json(workload) if workload is not None else None)
        prebuilt = is_of_kueue(key) and bool(members) and rules.prebuilt_name(members[0].obj, self._switches)
        obj = self._gangs.object_of(key)
        return GangNow(key=key, obj=obj, workload=workload, members=members, extras=extras, prebuilt=bool(prebuilt))

    async def _followed(self, gang: GangNow, workload: wire.Workload) -> GangNow:
        """Let the extras follow their base; return the gang without members that wait beyond an ended quorum."""
        if is_of_kueue(gang.key):
            return gang
        extras = tuple(self._extras.of_base(gang.extras, workload))
        await self._extras.follow_base(extras, gang.members, workload)
        members = await self._extras.mark_after_end(extras, gang.members, workload)
        return replace(gang, members=members, extras=extras)

    # --- with a Workload

    async def _with_workload(self, gang: GangNow, workload: wire.Workload) -> Result:
        """Take the next step for a gang with a Workload of its own."""
        key, obj, members, prebuilt = gang.key, gang.obj, gang.members, gang.prebuilt
        has_maker = self._gangs.has_maker(key)
        if obj is not None or self._is_given_up(key, members, workload):
            # the object keeps the Workload, or nothing does: ended pods, and pods that never had a node, need not stay
            # until they are replaced
            await self._writes.let_go_all(_ended(members))
        owner = GangOwner(self._tools, members, workload, prebuilt=prebuilt, group_object=obj)
        closed = await self._lifecycle.close(owner)
        if closed is not None:
            self._tell_finished(key, members, workload)
            return closed
        if not has_maker and await self._queue.hand_on(key, members, workload):
            return Result()  # the watch event of the write causes the next reconcile
        waits = not is_of_kueue(key) and not has_maker and not counts.at_large(members)
        if waits and (result := await self._keep_waiting(key, members, workload)) is not None:
            return result
        found = await self._find(members, workload, prebuilt=prebuilt)
        if found is None:
            return Result(requeue_after=_PREBUILT_RETRY) if prebuilt else Result()
        gathers = has_maker and all(pod.gated for pod in found.kept)  # its maker makes the others
        if not prebuilt and await self._checks.report_waiting(key, workload, 0 if gathers else found.absent):
            return Result()
        look = await self._gang_clock.look(members, found, workload, group_object=obj)
        if look.wrote:
            return Result()
        await self._extras.manage(found, gang.extras, workload)
        return look.with_result(await self._lifecycle.advance(owner.matched(found)))

    def _is_given_up(self, key: str, members: Sequence[ManagedPod], workload: wire.Workload) -> bool:
        """Whether users have deleted all members of a gang without a group object, so that it ends with the last one,
        or its namespace, in which pods are not replaced: it is not gone before its pods are.  A manager of several
        clusters makes a deleted copy again under its name, which the deleted one has until it is gone.

        After an eviction the members are deleted by kqueue, and the Workload keeps its pause for their replacements.
        """
        if self._gangs.is_ending(key):
            return True
        if model.condition_true(workload, names.CONDITION_EVICTED):
            return False
        is_copy = names.MULTIKUEUE_ORIGIN_LABEL in workload.metadata.labels
        return is_copy or (not is_of_kueue(key) and all(pod.deleting for pod in members))

    # --- without a Workload

    async def _without_workload(self, key: str, members: Sequence[ManagedPod], *, prebuilt: bool) -> Result:
        first, workload_key = members[0], self._gangs.key_of(key)
        if key in self._created:
            return Result(requeue_after=self._echo_timeout)
        if not (queue_of(members) or self._gangs.queue_of(key)) and not self._without_queue and not prebuilt:
            await self._writes.let_go_all(pod for pod in members if pod.deleting or pod.terminated)
            return Result()
        loose = counts.at_large(members)
        if loose:
            if not workload_key or await self._tools.read(workload_key) is None:
                message = "The pod runs and its group has no Workload"
                await self._tools.stop(loose, _no_match(message), soon=True)
            return Result(requeue_after=1.0)
        if prebuilt:
            await self._writes.let_go_all(_ended(members))  # its maker may have deleted the Workload together with them
            message = f"Workload {split_key(key)[1]} does not exist yet; the group waits for it"
            self._writes.event(first, reason=names.EVENT_ERR_WORKLOAD_COMPOSE, message=message, warning=True)
            return Result(requeue_after=_PREBUILT_RETRY)
        await self._writes.let_go_all(pod for pod in members if not pod.runnable)
        if self._gangs.has_maker(key):
            return Result()
        if self._tell_finished(key, members, None) or await self._queue.hand_on_early(key, members):
            return Result()
        made = self._compose(key, members)
        if isinstance(made, GroupProblem):
            gone = self._past.report_gone(key, members)
            return Result() if gone else self._report_problem(made, members)
        if all(pod.succeeded for pod in members):  # the Workload has ended and was deleted: nothing is left to queue
            await self._writes.let_go_all(members)
            return Result()
        self._report_notices(made)
        if self._tools.are_active(members):
            return Result()
        await self._tools.delete(made.excess, "the group has as many pods as it said already")
        return await self._create(key, made)

    def _compose(self, key: str, members: Sequence[ManagedPod]) -> Composition | GroupProblem:
        obj = self._gangs.object_of(key)
        levels = self._records.rules().levels
        return compose(members, self._switches, group_object=obj, timeouts=self._timeouts, levels=levels)

    async def _create(self, key: str, made: Composition) -> Result:
        first, workload_key = made.kept[0], self._gangs.key_of(key)
        workload = workload_of(
            made,
            name=split_key(workload_key)[1],
            priority=self._priority(made),
            copied=self._copied,
            switches=self._switches,
        )
        if isinstance(workload, GroupProblem):
            return self._report_problem(workload, made.kept)
        if made.group_object is not None and not await self._gangs.objects.may_own(
            GangRef.of_key(key), object_uid(made.group_object)
        ):
            return Result(requeue_after=1.0)  # the watch will report the end of the object
        kept = record_annotations(made.group_object, self._records.first(key)) | least_annotation(made.wish)
        kept |= self._queue.annotation(key)
        workload["metadata"]["annotations"] |= kept
        self._created.remember(key, True)
        try:
            if not await self._steps.create(workload):
                self._created.forget(key)
                return Result(requeue_after=1.0)  # the Workload exists, and the watch will report it
        except BaseException as e:  # cancellation, too: the interrupted request may have succeeded
            self._created.forget(key)
            if isinstance(e, ApiError):
                message = f"The API server does not take the group's Workload: {e}"
                self._writes.event(first, reason=names.EVENT_ERR_WORKLOAD_COMPOSE, message=message, warning=True)
            raise
        self._on_created(max(0.0, (self._clock.now() - made.kept[-1].created).total_seconds()))
        message = f"Created Workload {workload_key} for {len(made.kept)} pods; it waits for admission"
        self._events.record(made.group_object, reason=names.EVENT_CREATED_WORKLOAD, message=message)
        for pod in made.kept:  # each pod has kqueue's gate, so its user needs the reason
            self._writes.event(pod, reason=names.EVENT_CREATED_WORKLOAD, message=message)
        return Result()

    def _report_problem(self, trouble: GroupProblem, members: Sequence[ManagedPod]) -> Result:
        """Report a problem on the pod that has it; wait for a moment if more pods of the group may arrive."""
        if trouble.incomplete:
            newest = max(pod.created for pod in members)
            left = _QUIET - (self._clock.now() - newest).total_seconds()
            if left > 0:
                return Result(requeue_after=left)
        group = members[0].group
        oldest = min(members, key=lambda pod: pod.created)
        message = f"Pod group {group} makes no Workload: {trouble.message}"
        if trouble.incomplete:
            message += f", since {oldest.created:%Y-%m-%dT%H:%M:%SZ}"
        self._events.tell(self._gangs.object_of(group), reason=names.EVENT_ERR_WORKLOAD_COMPOSE, message=message)
        for pod in {trouble.pod or members[0], members[0]}:
            self._writes.event(pod, reason=names.EVENT_ERR_WORKLOAD_COMPOSE, message=message, warning=True)
        return Result()

    def _report_notices(self, made: Composition) -> None:
        for notice in made.notices:
            self._writes.event(notice.pod, reason=notice.reason, message=notice.message, warning=True)
            self._events.tell(made.group_object, reason=notice.reason, message=notice.message)

    def _priority(self, made: Composition) -> Priority:
        try:
            return self._follow.priority(made.kept[0], made.priority_sets, speaker=made.speaker)
        except MissingPriorityClassError as e:
            self._events.tell(made.group_object, reason=e.reason, message=str(e))
            raise

    def _tell_finished(self, key: str, members: Sequence[ManagedPod], workload: wire.Workload | None) -> bool:
        """Tell gated members that their group has finished and takes no more; return whether it has."""
        obj = self._gangs.object_of(key)
        if obj is None:
            return False
        ended = workload is not None and model.condition_true(workload, names.CONDITION_FINISHED)
        if not ended and dialect_of(GangRef.of_key(key).framework).phase(obj) is not GangPhase.FINISHED:
            return False
        message = f"PodGroup {obj['metadata']['name']} has finished; make another"
        for pod in members:
            if pod.gated and pod.runnable:
                self._writes.event(pod, reason=EVENT_GROUP_FINISHED, message=message, warning=True)
        return True

    async def _keep_waiting(self, key: str, members: Sequence[ManagedPod], workload: wire.Workload) -> Result | None:
        """Keep a Workload without quota equal to the wish of its gang: on hold while members are missing, and rewritten
        when the quorum, the roles or their topology have changed.  Returns None when there is nothing to do.
        """
        told = as_json(workload)
        if is_reserved(told) or workload.status.admission is not None:
            return None
        made = self._compose(key, members)
        if isinstance(made, GroupProblem):
            await self._steps.hold(workload, self._records.shortage(key) if made.incomplete else made.message)
            if not model.condition_true(workload, names.CONDITION_EVICTED):  # else its pause needs them as owners
                await self._writes.let_go_all(pod for pod in members if not pod.runnable)
            return self._report_problem(made, members)
        if is_outdated(made, told):
            await self._rewrite(workload, made)
            return Result()
        if on_hold(told) and await self._steps.resume(
            workload, f"The gang has the {made.wish.quorum} pods that it needs"
        ):
            return Result()
        return None

    async def _rewrite(self, workload: wire.Workload, made: Composition) -> None:
        key = made.kept[0].group
        spec, marks = spec_of(made, self._priority(made)), {} if is_of_kueue(key) else topology_mark(made.wish)
        if await self._steps.rewrite(workload, spec, annotations=marks):
            message = f"Updated Workload {model.workload_key(workload)}"
            self._events.record(made.group_object, reason=names.EVENT_UPDATED_WORKLOAD, message=message)
            self._writes.event(made.kept[0], reason=names.EVENT_UPDATED_WORKLOAD, message=message)

    # --- finding

    async def _find(self, members: Sequence[ManagedPod], workload: wire.Workload, *, prebuilt: bool) -> Match | None:
        """Return the members that the Workload counts; release ended members, and delete excess members."""
        told = as_json(workload)
        if prebuilt:
            return await self._find_prebuilt(members, workload, told)
        obj, now = self._gangs.object_of(members[0].group), self._clock.now()
        made_elsewhere = self._gangs.has_maker(members[0].group)
        found = represented(members, told, now) if made_elsewhere else match(members, told, now, group_object=obj)
        if found is None:
            if not made_elsewhere:
                await self._replace(members, workload)
            return None
        if obj is None:
            await self._own(workload, found.kept, told)
        await self._tools.delete(found.excess, "its role has as many pods as the group's Workload says already")
        await self._writes.let_go_all([*found.replaced, *(pod for pod in found.strangers if pod.deleting)])
        return found

    async def _find_prebuilt(self, members: Sequence[ManagedPod], workload: wire.Workload, told: JSON) -> Match | None:
        controller = model.controller_of(workload.metadata)
        if controller is not None:
            await self._checks.report_conflict(members[0].group, members)
            return None
        found = match_prebuilt(members, told, self._switches)
        if found is None:
            message = f"The pods of group {members[0].group} are not what the Workload says"
            await self._steps.finish(workload, names.REASON_OUT_OF_SYNC, message)
            await self._tools.stop(counts.at_large(members), _no_match(message))
            return None
        await self._own(workload, found.kept, told)
        return found

    async def _own(self, workload: wire.Workload, kept: Sequence[ManagedPod], told: JSON) -> None:
        joined = newcomers(kept, told)
        if not joined:
            return
        owners = [*told["metadata"].get("ownerReferences", ()), *map(owner_reference, joined)]
        if await self._steps.amend(workload, {"metadata": {"ownerReferences": owners}}):
            self._recorder.record(
                workload_reference(workload),
                reason=names.EVENT_OWNER_REFERENCES_ADDED,
                message=f"{len(joined)} pods joined the group and own the Workload",
            )

    async def _replace(self, members: Sequence[ManagedPod], workload: wire.Workload) -> None:
        """Rewrite a Workload that does not match the pods while it has no quota; otherwise delete it, to create it
        again.
        """
        first = members[0]
        loose = counts.at_large(members)
        if loose:
            now = await self._tools.read(model.workload_key(workload))
            if now is not None and now.metadata.resource_version != workload.metadata.resource_version:
                return  # the watch is behind; its event requeues the group
            await self._tools.stop(loose, _no_match("No Workload matches the group"))
        elif not model.condition_true(workload, names.CONDITION_QUOTA_RESERVED):
            made = self._compose(first.group, members)
            if isinstance(made, GroupProblem):
                self._report_problem(made, members)
                return
            await self._rewrite(workload, made)
            return
        if await self._steps.delete_unlike(workload, first.obj["metadata"]):
            message = f"Deleted Workload {model.workload_key(workload)}, which no longer matches"
            self._writes.event(first, reason=names.EVENT_DELETED_WORKLOAD, message=message)


def _no_match(message: str) -> OwnerStop:
    return OwnerStop(reason=names.REASON_NO_MATCHING_WORKLOAD, message=message)


def setup(manager: Manager) -> None:
    """Add the reconciler of gangs, where pods are queued."""
    watch, writes = manager.shared(watch_pods), manager.shared(make_pod_writes)
    records = manager.shared(make_gang_records)
    if watch is None or writes is None or records is None:
        return
    watches, store, context = manager.watches, watch.store, manager.owner_context(FRAMEWORK)
    reconciler = GangReconciler(
        context,
        writes=writes,
        records=records,
        events=manager.shared(make_group_events),
        reports=pod_reports(manager),
        gang_clock=make_gang_clock(manager, context),
        keeps_runs=lambda queue: keeps_runs(manager.cache.quota.plugin_profile(queue)),
    )
    gangs = records.gangs
    groups = manager.controller(
        "pod_group",
        reconciler.reconcile,
        workers=8,
        group_kind="Pod",
        rank_of=lambda key: _rank(watches.workloads.store.get(gangs.key_of(key)), records.look(key).members),
    )
    gathering = Gathering(groups.enqueue, manager.clock)

    def on_pod(old: ManagedPod | None, new: ManagedPod | None) -> None:
        for pod in filter(None, (old, new)):
            if pod.group:
                gathering.add(pod.group)

    def on_workload(old: wire.Workload | None, new: wire.Workload | None) -> None:
        seen = new if new is not None else old
        if seen is None:
            return
        metadata = seen.metadata
        key = gang_of_workload(metadata.namespace, metadata.name, metadata.annotations)
        if store.count_by_index(GROUP_INDEX, key) or (
            metadata.annotations.get(names.IS_GROUP_WORKLOAD_ANNOTATION) == "true"
        ):
            reconciler.forget(key)
            groups.enqueue(key)

    def on_class(_old: object, _new: object) -> None:
        for key in store.values_of_index(GROUP_INDEX):
            groups.enqueue(str(key))

    watch.subscribe(on_pod)
    watches.namespaces.subscribe(partial(_on_namespace, store, groups))
    gangs.objects.subscribe(gathering.add)
    watches.workloads.subscribe(on_workload)
    watches.workload_priorities.subscribe(on_class)
    watches.priority_classes.subscribe(on_class)
    watches.flavors.subscribe(if_changed(on_class))
    watches.topologies.subscribe(if_changed(on_class))


def _on_namespace(pods: Store[ManagedPod], groups: Controller, _old: object, new: Namespace | None) -> None:
    """Enqueue the gangs of a namespace that is being deleted."""
    if new is not None and new.metadata.deletion_timestamp is not None:
        for key in map(str, pods.values_of_index(GROUP_INDEX)):
            if GangRef.of_key(key).namespace == new.metadata.name:
                groups.enqueue(key)


def _rank(workload: wire.Workload | None, members: Collection[ManagedPod]) -> KeyRank:
    """Return the rank of a group of pods in the work queue, by its Workload, which has the group's name."""
    return owner_rank(
        [workload] if workload is not None else [],
        ended=all(pod.terminated for pod in members),
        held_back=any(pod.gated and not pod.deleting for pod in members),
    )


def _ended(members: Sequence[ManagedPod]) -> Iterator[ManagedPod]:
    """Yield members that are being deleted and run no more, or never had a node."""
    return (pod for pod in members if pod.deleting and (pod.terminated or not pod.runnable))
