"""The clock of gangs: a gang whose quorum does not get nodes in time is evicted, and is queued again after a pause.

All times are those of conditions and objects, so that a restart changes no deadline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog

from kqueue import model
from kqueue.api import gang_names, names
from kqueue.api.wire import kueue as wire
from kqueue.clock import moment_after, utc_text
from kqueue.config import Configuration
from kqueue.controllers.gang_records import make_gang_records
from kqueue.controllers.manager import Manager
from kqueue.controllers.owner_context import OwnerContext
from kqueue.controllers.record import workload_reference
from kqueue.controllers.workload_steps import as_json
from kqueue.core.workload import Promise
from kqueue.jobs.fields import JSON
from kqueue.jobs.gang.dialect import GangRules, GroupProblem
from kqueue.jobs.gang.key import is_of_kueue
from kqueue.jobs.gang.match import Match, represented
from kqueue.jobs.gang.members import in_order, parted
from kqueue.jobs.gang.naming import gang_of_workload
from kqueue.jobs.gang.progress import StartProgress, progress_of
from kqueue.jobs.gang.record import least_annotation
from kqueue.jobs.gang.registry import dialect_of
from kqueue.jobs.gang.value import GangDeadline, GangRef, GangSpec
from kqueue.jobs.pod_view import ManagedPod
from kqueue.runtime.controller import Result
from kqueue.state import pauses, requeueing, status
from kqueue.state.gangs import Gangs, StartingGang
from kqueue.state.requeueing import DEFAULT_GANG_BACKOFF, RequeueBackoff

_log = structlog.get_logger(__name__)

_ANOTHER_FIRST = 1.0
"""Seconds after which a gang looks again while another gang is to be rejected before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangClockRules:
    """The times of gangs, read once from the configuration."""

    backoff: RequeueBackoff = DEFAULT_GANG_BACKOFF
    """The pauses of gangs that were evicted by their clock."""
    reject_percentage: int = 10
    """The share of the quorum that may be without nodes."""
    reject_after: timedelta = timedelta(seconds=10)
    """The time without a further scheduled member before a gang with a larger share is rejected."""


def gang_clock_rules(config: Configuration) -> GangClockRules:
    """Return the times of gangs from the configuration."""
    settings = config.gangs
    backoff = settings.backoff
    return GangClockRules(
        backoff=RequeueBackoff(int(backoff.base.total_seconds()), int(backoff.maximum.total_seconds()), backoff.limit),
        reject_percentage=settings.reject_percentage,
        reject_after=settings.reject_after,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GangStart:
    """The start of an admitted gang, until its quorum is scheduled."""

    admitted: datetime
    progress: StartProgress
    deadline: GangDeadline | None = None

    @property
    def due(self) -> datetime | None:
        """Return the time at which the gang is evicted; None: the clock of gangs sets no time."""
        if self.deadline is None or self.deadline.since != "admission" or self.deadline.then != "retry":
            return None
        return moment_after(self.admitted, timedelta(seconds=self.deadline.seconds))

    def rejectable(self, rules: GangClockRules, not_before: datetime | None) -> datetime | None:
        """Return the time from which the gang may be rejected; None: enough members are scheduled, or may still be.

        `not_before`: the last event that gave all gangs new time; None: there was none.
        """
        lacking, quorum = self.progress.quorum - self.progress.scheduled, self.progress.quorum
        if not self.progress.unschedulable or lacking * 100 <= rules.reject_percentage * quorum:
            return None
        times = (self.admitted, self.progress.last, not_before)
        return moment_after(max(at for at in times if at is not None), rules.reject_after)


def admission_with_quorum(workload: wire.Workload) -> bool:
    """Whether the quorum has been scheduled since the present admission: the clock of the gang has stopped."""
    admitted = model.since(workload, names.CONDITION_ADMITTED)
    written = workload.metadata.annotations.get(gang_names.QUORUM_SCHEDULED_ANNOTATION, "")
    return admitted is not None and written == utc_text(admitted)


def starts_now(workload: wire.Workload) -> bool:
    """Whether the Workload is admitted and goes on, and its quorum has not been scheduled yet."""
    if not model.is_admitted(workload) or model.since(workload, names.CONDITION_ADMITTED) is None:
        return False
    ended = model.condition_true(workload, names.CONDITION_EVICTED) or model.is_over(workload)
    return not ended and not admission_with_quorum(workload)


def too_late(start: GangStart) -> pauses.PausedLeave:
    """Return the eviction of a gang whose deadline is over."""
    assert start.deadline is not None
    progress, seconds = start.progress, start.deadline.seconds
    problem = f"{progress.scheduled} of {progress.quorum} pods were scheduled within {seconds:g} s of the admission"
    return pauses.PausedLeave(
        reason=gang_names.REASON_GANG_SCHEDULE_TIMEOUT,
        problem=problem,
        limit_field="gangs.backoff.limit",
        message=lambda at, times: f"{problem}; all are stopped; queued again at {at} (time {times})",
    )


def too_few(start: GangStart, rules: GangClockRules) -> pauses.PausedLeave:
    """Return the eviction of a gang of which too many members find no node."""
    progress = start.progress
    lacking = progress.quorum - progress.scheduled
    problem = (
        f"{lacking} of {progress.quorum} pods cannot be scheduled ({round(100 * lacking / progress.quorum, 1):g} %, "
        f"more than {rules.reject_percentage} %): {progress.words.rstrip('.') or 'the scheduler gives no reason'}"
    )
    return pauses.PausedLeave(
        reason=gang_names.REASON_GANG_REJECTED,
        problem=problem,
        limit_field="gangs.backoff.limit",
        message=lambda at, _times: f"{problem}; queued again at {at}",
    )


class GangLook(NamedTuple):
    """The result of a look at the clock."""

    wrote: bool = False
    """Whether the Workload was written, so that the reconcile ends."""
    again: float | None = None
    """Seconds until the next look; None: an event comes first."""

    def with_result(self, result: Result) -> Result:
        """Return the result of a reconcile that looked at the clock."""
        times = [seconds for seconds in (result.requeue_after, self.again) if seconds is not None]
        return Result(requeue_after=min(times, default=None))


class GangClock:
    """Looks at the clock of one gang at a time."""

    def __init__(
        self,
        context: OwnerContext,
        *,
        gangs: Gangs,
        rules: GangClockRules | None = None,
        has_topology: Callable[[str], bool] = lambda _flavor: False,
        promise_of: Callable[[wire.Workload], Promise | None] = lambda _workload: None,
    ) -> None:
        """Take the parts; `has_topology` returns whether a flavor has places that an admission reserves.

        `promise_of` is as in `Cache`.
        """
        self._book, self._steps, self._recorder = context.book, context.steps, context.recorder
        self._clock, self._gangs, self._rules = context.clock, gangs, rules or GangClockRules()
        self._gang_rules = GangRules(switches=context.policy.switches, timeouts=context.policy.timeouts)
        self._has_topology, self._promise_of = has_topology, promise_of
        self._began: datetime | None = None
        self._unseen: list[tuple[datetime, str]] = []
        """Promises of gangs that are never looked at: their end, and the key of their Workload."""

    def begin(self, workloads: Iterable[wire.Workload] = ()) -> None:
        """Give all gangs new time before a rejection, because this process does not know the other gangs yet.

        Promises of the process before are noted before the first cycle, which would give them to others.  The first
        look at a gang ends a promise that is over; gangs of a dialect that is off are never looked at.
        """
        self._began = self._clock.now()
        for workload in workloads:
            if model.least_text(workload) and model.is_admitted(workload):
                self._gangs.promise(self._promise_of(workload))
                if GangRef.of_key(gang_key_of(workload)).framework not in self._gang_rules.switches.gangs:
                    self._unseen.append((self._default_end(workload), model.workload_key(workload)))

    def _default_end(self, workload: wire.Workload) -> datetime:
        """Return the end of the default deadline of an admitted Workload."""
        admitted = model.since(workload, names.CONDITION_ADMITTED) or self._clock.now()
        quorum = sum(pod_set.count for pod_set in workload.spec.pod_sets)
        return moment_after(admitted, timedelta(seconds=self._gang_rules.timeouts.seconds(quorum)))

    async def end_unseen_promises(self) -> None:
        """End the promises of gangs that are never looked at, each with its deadline."""
        for end, key in sorted(self._unseen):
            left = (end - self._clock.now()).total_seconds()
            if left > 0:
                await self._clock.sleep(left)
            self._gangs.end_promise(key)

    def note_start(
        self, members: Sequence[ManagedPod], workload: wire.Workload, *, group_object: JSON | None = None
    ) -> None:
        """Note a gang that starts now before the first look at it, because the first cycle could give a flavor away
        that is kept for it.

        `members`: all members in order, without extras, at least one.
        """
        admitted = model.since(workload, names.CONDITION_ADMITTED)
        found = represented(members, as_json(workload), self._clock.now())
        if admitted is None or found is None:
            return
        start = self._start(members, found, workload, admitted, group_object)
        if not start.progress.has_quorum:
            self._note(members[0].group, workload, start, self._clock.now())

    async def look(
        self, members: Sequence[ManagedPod], found: Match, workload: wire.Workload, *, group_object: JSON | None = None
    ) -> GangLook:
        """Stop the clock of a gang with a quorum, and evict a gang that is late or cannot start.

        `members`: all members in order, at least one.  Gangs of Kueue's own dialect have no clock.
        """
        if is_of_kueue(members[0].group):
            return GangLook()
        if not starts_now(workload):
            self._gangs.drop(model.workload_key(workload))
            if await self._clear(found, workload) or await self._follow_least(members, workload, group_object):
                return GangLook(wrote=True)
            return GangLook(again=self._promised_for(members, workload, group_object))
        admitted = model.since(workload, names.CONDITION_ADMITTED)
        assert admitted is not None
        now = self._clock.now()
        start = self._start(members, found, workload, admitted, group_object)
        if start.progress.has_quorum:
            self._gangs.drop(model.workload_key(workload))
            mark = {gang_names.QUORUM_SCHEDULED_ANNOTATION: utc_text(admitted)}
            await self._steps.amend(workload, {"metadata": {"annotations": mark}})
            return GangLook(wrote=True)
        if start.due is not None and start.due <= now:
            return GangLook(wrote=await self._leave(workload, too_late(start)))
        look = await self._reject_or_wait(workload, start, self._note(members[0].group, workload, start, now), now)
        promised = self._promised_for(members, workload, group_object)
        return look if promised is None else look._replace(again=min(promised, look.again or promised))

    def _start(
        self,
        members: Sequence[ManagedPod],
        found: Match,
        workload: wire.Workload,
        admitted: datetime,
        group_object: JSON | None,
    ) -> GangStart:
        quorum = sum(pod_set.count for pod_set in workload.spec.pod_sets)
        return GangStart(
            admitted=min(admitted, self._clock.now()),
            progress=progress_of(found.kept, quorum),
            deadline=self._deadline(members, quorum, group_object),
        )

    async def _follow_least(
        self, members: Sequence[ManagedPod], workload: wire.Workload, group_object: JSON | None
    ) -> bool:
        """Write other least resources of the group object to a Workload without quota; return whether that was done."""
        if group_object is None or model.condition_true(workload, names.CONDITION_QUOTA_RESERVED):
            return False
        wish = self._wish(members, group_object)
        wanted = least_annotation(wish).get(gang_names.MIN_RESOURCES_ANNOTATION) if wish is not None else None
        if wish is None or (wanted or "") == model.least_text(workload):
            return False
        change = {"metadata": {"annotations": {gang_names.MIN_RESOURCES_ANNOTATION: wanted}}}
        return await self._steps.amend(workload, change)

    def _promised_for(
        self, members: Sequence[ManagedPod], workload: wire.Workload, group_object: JSON | None
    ) -> float | None:
        """Note what is promised to an admitted gang until its deadline, and end it then.

        Returns the seconds until then; None: nothing is promised.
        """
        key, admitted = model.workload_key(workload), model.since(workload, names.CONDITION_ADMITTED)
        if not model.least_text(workload) or admitted is None or not model.is_admitted(workload):
            return None
        quorum = sum(pod_set.count for pod_set in workload.spec.pod_sets)
        deadline = self._deadline(members, quorum, group_object)
        of_dialect = deadline is not None and deadline.since == "admission"
        seconds = deadline.seconds if deadline is not None and of_dialect else self._gang_rules.timeouts.seconds(quorum)
        left = (moment_after(admitted, timedelta(seconds=seconds)) - self._clock.now()).total_seconds()
        if left <= 0:
            self._gangs.end_promise(key)
            return None
        if key not in self._gangs.promises:
            self._gangs.promise(self._promise_of(workload))
        return left

    def _wish(self, members: Sequence[ManagedPod], group_object: JSON | None) -> GangSpec | None:
        """Return the wish of the dialect; None: the members or the object contradict each other."""
        ref = GangRef.of_key(members[0].group)
        found = dialect_of(ref.framework).spec(ref, group_object, members, self._gang_rules)
        return None if isinstance(found, GroupProblem) else found

    def _deadline(self, members: Sequence[ManagedPod], quorum: int, group_object: JSON | None) -> GangDeadline | None:
        """Return the deadline of the dialect; members that contradict each other get that of the configuration."""
        wish = self._wish(members, group_object)
        if wish is None:
            return GangDeadline(seconds=self._gang_rules.timeouts.seconds(quorum))
        return wish.deadline

    def _note(self, key: str, workload: wire.Workload, start: GangStart, now: datetime) -> StartingGang:
        flavors = _flavors_by_role(workload)
        of_gang = frozenset(flavor for some in flavors.values() for flavor in some)
        lost = (flavor for pod in start.progress.unschedulable for flavor in flavors.get(pod.role, ()))
        stuck = Counter(flavor for flavor in lost if not self._has_topology(flavor))
        renewed = [at for at in (self._began, self._gangs.last_rejection(of_gang)) if at is not None]
        rejectable = start.rejectable(self._rules, max(renewed, default=None))
        until = self._kept_until(start, rejectable)
        gang = StartingGang(
            key=key,
            uid=workload.metadata.uid,
            workload=model.workload_key(workload),
            since=model.gang_since(workload),
            scheduled=start.progress.scheduled,
            quorum=start.progress.quorum,
            flavors=of_gang,
            keeps=min(stuck, key=lambda flavor: (-stuck[flavor], flavor), default="") if until > now else "",
            until=until,
            rejectable=rejectable,
        )
        self._gangs.note(gang)
        return gang

    async def _reject_or_wait(
        self, workload: wire.Workload, start: GangStart, gang: StartingGang, now: datetime
    ) -> GangLook:
        """Reject the gang, if its time has come and no other gang goes before."""
        if gang.rejectable is not None and gang.rejectable <= now:
            another = self._gangs.rejected_before(gang)
            if another is not None:
                return GangLook(again=max(_ANOTHER_FIRST, (another - now).total_seconds()))
            self._gangs.give_time(gang, now)  # first, because the event of the write may come before its answer
            wrote = await self._leave(workload, too_few(start, self._rules))
            if wrote:
                self._gangs.drop(gang.workload)
            return GangLook(wrote=wrote)
        times = [(at - now).total_seconds() for at in (start.due, gang.until, gang.rejectable) if at is not None]
        return GangLook(again=min((seconds for seconds in times if seconds > 0), default=None))

    def _kept_until(self, start: GangStart, rejectable: datetime | None) -> datetime:
        """Return when a flavor is free again at the latest: never later than one deadline after the admission."""
        seconds = self._gang_rules.timeouts.seconds(start.progress.quorum)
        until = start.due or moment_after(start.admitted, timedelta(seconds=seconds))
        return until if self._rules.reject_percentage or rejectable is None else min(until, rejectable)

    async def _leave(self, workload: wire.Workload, why: pauses.PausedLeave) -> bool:
        """Evict the gang as it is in the newest Workload; return whether that was written."""
        admitted = model.since(workload, names.CONDITION_ADMITTED)

        def change(now: wire.Workload) -> status.Patch | None:
            if model.since(now, names.CONDITION_ADMITTED) != admitted or not starts_now(now):
                return None
            return pauses.leave(now, why, self._rules.backoff, stamp=status.Stamp(self._clock.now()))

        key = model.workload_key(workload)
        written = await self._book.write(key, change)
        if written is None:
            return False
        evicted = model.condition(written.status.conditions, names.CONDITION_EVICTED)
        if evicted is not None and evicted.status == "True":
            event = f"{names.EVENT_EVICTED_DUE_TO_PREFIX}{why.reason}"
            self._recorder.record(workload_reference(written), reason=event, message=evicted.message)
        _log.info("gang stopped", workload=key, reason=why.reason, problem=why.problem)
        return True

    async def _clear(self, found: Match, workload: wire.Workload) -> bool:
        """Forget the pauses of a gang whose quorum runs; return whether that was written."""
        if self._without_pauses(workload) is None:
            return False
        if not progress_of(found.kept, sum(pod_set.count for pod_set in workload.spec.pod_sets)).runs:
            return False
        written = await self._book.write(model.workload_key(workload), self._without_pauses)
        return written is not None

    def _without_pauses(self, workload: wire.Workload) -> status.Patch | None:
        """Return a patch that clears the pauses of the past; None: there is none, or one lasts."""
        if not requeueing.times_requeued(workload) or not admission_with_quorum(workload):
            return None
        return None if requeueing.waits_until(workload, self._clock.now()) else {"status": {"requeueState": None}}


def _flavors_by_role(workload: wire.Workload) -> Mapping[str, frozenset[str]]:
    admission = workload.status.admission
    assigned = admission.pod_set_assignments if admission is not None else ()
    return {pod_set.name: frozenset(pod_set.flavors.values()) for pod_set in assigned}


def gang_key_of(workload: wire.Workload) -> str:
    """Return the key of the gang that a Workload counts, if it counts one."""
    metadata = workload.metadata
    return gang_of_workload(metadata.namespace, metadata.name, metadata.annotations)


def make_gang_clock(manager: Manager, context: OwnerContext) -> GangClock:
    """Return the clock of a process; it follows the Workloads that end or lose their admission."""
    gangs, quota = manager.cache.gangs, manager.cache.quota
    clock = GangClock(
        context,
        gangs=gangs,
        rules=gang_clock_rules(manager.config),
        has_topology=lambda flavor: flavor in quota.with_topology,
        promise_of=manager.cache.promise_of,
    )
    workloads = manager.watches.workloads
    records = manager.shared(make_gang_records)
    assert records is not None, "the clock is of a process that queues pods"

    def begin() -> None:
        clock.begin(workloads.store.values())
        for workload in workloads.store.values():
            key = gang_key_of(workload)
            is_on = not is_of_kueue(key) and GangRef.of_key(key).framework in manager.switches.gangs
            if is_on and starts_now(workload):
                members, _ = parted(in_order(records.members(key)))
                if members:
                    clock.note_start(members, workload, group_object=records.gangs.object_of(key))

    manager.on_lead.append(begin)
    manager.background.append(clock.end_unseen_promises)

    def on_workload(old: wire.Workload | None, new: wire.Workload | None) -> None:
        seen = new if new is not None else old
        if seen is not None and (new is None or not starts_now(new)):
            gangs.drop(model.workload_key(seen))

    workloads.subscribe(on_workload)
    return clock
