"""Finds, adopts, creates, updates and deletes the Workload of a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from cachetools import TTLCache

from kqueue import model
from kqueue.api import import_names, names
from kqueue.api.wire import kueue as wire
from kqueue.clock import utc_text
from kqueue.controllers.job_writes import JobWrites, job_key
from kqueue.controllers.owner_context import NO_REPORTS, OwnerContext, OwnerReports
from kqueue.controllers.workload_steps import MissingPriorityClassError, as_json, is_given_up
from kqueue.errors import NotFoundError
from kqueue.jobs import rules, run_times, slices
from kqueue.jobs.fields import annotations_of, mapping, text
from kqueue.jobs.infos import infos_at_stop
from kqueue.jobs.kind import JobKind, PodSetInfo, Refused
from kqueue.jobs.managed_by import Way, way_of
from kqueue.jobs.workload import (
    Priority,
    belongs,
    controller_reference,
    equivalent,
    same_node_classes,
    same_topology,
    spec_for,
    workload_for,
)
from kqueue.runtime.own_writes import OwnWrites
from kqueue.runtime.store import object_key, split_key

JSON = dict[str, Any]
OWNER_INDEX = "owner"
_REMEMBERED = 100_000
"""The largest number of jobs whose created or deleted Workload the watch has not reported yet."""


def owner_keys(workload: wire.Workload) -> list[str]:
    """Return the index values of a Workload: its controller as `group/kind/namespace/name`."""
    return [
        owner_key(owner.api_version.rpartition("/")[0], owner.kind, workload.metadata.namespace, owner.name)
        for owner in workload.metadata.owner_references
        if owner.controller
    ]


def owner_key(group: str, kind: str, namespace: str, name: str) -> str:
    """Return the index value of one owner."""
    return f"{group}/{kind}/{namespace}/{name}"


def is_owner(job: JSON, workload: wire.Workload) -> bool:
    """Whether the job is the Workload's controller, by UID."""
    return any(o.uid == job["metadata"]["uid"] for o in workload.metadata.owner_references if o.controller)


class JobWorkload:
    """The Workloads of jobs of one kind."""

    def __init__(
        self,
        context: OwnerContext,
        *,
        kind: JobKind,
        writes: JobWrites,
        pods_left: Callable[[str], bool],
        reports: OwnerReports = NO_REPORTS,
    ) -> None:
        """Take the parts; `pods_left` returns for a `siblings_key` whether any pod of the job has not ended."""
        policy, workloads = context.policy, context.workloads
        self._kind, self._workloads, self._newest = kind, workloads, context.book.newest
        self._steps, self._writes, self._pods_left = context.steps, writes, pods_left
        self._runs_elsewhere, self._is_sent = context.runs_elsewhere, context.is_sent
        self._switches, self._clock, self._copied = policy.switches, context.clock, policy.copied
        self._on_created = reports.created
        self._created: OwnWrites[str, bool] = OwnWrites(context.clock, policy.echo_timeout)
        """UIDs of jobs whose Workload this process has created, until the watch has reported it."""
        self._bereft: TTLCache[str, None] = TTLCache(_REMEMBERED, policy.echo_timeout, context.clock.monotonic)
        """UIDs of jobs whose Workload was deleted."""
        workloads.subscribe(self._on_workload)

    def _on_workload(self, old: wire.Workload | None, new: wire.Workload | None) -> None:
        seen = new if new is not None else old
        for owner in seen.metadata.owner_references if seen is not None else ():
            self._created.forget(owner.uid)
            if new is None:
                self._bereft[owner.uid] = None

    # --- reads -------------------------------------------------------------------------------------------------

    def owned(self, key: str) -> list[wire.Workload]:
        """Return the Workloads of the job of this name, whatever its UID, in the order of their names."""
        gvk = self._kind.gvk
        return self.owned_by(owner_key(gvk.group, gvk.kind, *split_key(key)))

    def owned_by(self, owner: str) -> list[wire.Workload]:
        """Return the Workloads of any owner, given as in the index, in the order of their names."""
        found = [self._newest(key) for key in self._workloads.keys_by_index(OWNER_INDEX, owner)]
        return sorted((w for w in found if w is not None), key=model.workload_key)

    def busy(self, job: JSON | None, workloads: Sequence[wire.Workload]) -> bool:
        """Whether pods of the job or of one of its Workloads may still use resources; `job` None: the job is gone.

        A job that has finished does not begin again, even where its status says that its controller has begun with it.
        """
        dispatched = job is not None and self.is_dispatched(job)
        begun = job is not None and self._kind.active(job) and self._kind.finished(job) is None
        active = begun and not dispatched
        if dispatched or (job is not None and way_of(self._kind) is Way.FLAG):
            active = active or any(self._runs_elsewhere(w) for w in workloads)
        return active or any(self._pods_left(model.siblings_key(w)) for w in workloads)

    def is_dispatched(self, job: JSON) -> bool:
        """Whether another cluster runs the job: the status of this one is what that cluster has told last."""
        return self._kind.managed_by(job) == names.MULTIKUEUE_CONTROLLER

    def is_held(self, workload: wire.Workload) -> bool:
        """Whether only the flag keeps a job from running here, too, while another cluster runs its copy."""
        return way_of(self._kind) is Way.FLAG and self._is_sent(workload)

    def just_made(self, job: JSON) -> bool:
        """Whether the job's Workload was created and the watch has not reported it yet."""
        return job["metadata"]["uid"] in self._created

    # --- finding -----------------------------------------------------------------------------------------------

    async def find(self, job: JSON, pod_sets: Sequence[JSON]) -> wire.Workload | None:
        """Return the Workload that describes the job; None: there is none now.

        Other Workloads of the job are rewritten if they have no quota, else deleted when no pods are left.  A running
        job that no Workload describes is stopped.
        """
        prebuilt = rules.prebuilt_name(job, self._switches)
        owned = self.owned(job_key(job))
        if prebuilt:
            return await self._prebuilt(job, pod_sets, owned, prebuilt)
        suspended = self._kind.is_suspended(job)
        matching = [w for w in owned if self.matches(job, pod_sets, w, suspended=suspended)]
        if matching:
            await self.delete(job, [w for w in owned if w is not matching[0]])
            if suspended and _is_pending(matching[0]) and not _same_request(pod_sets, as_json(matching[0])):
                await self._rewrite(job, pod_sets, matching[0])
                return None
            return matching[0]
        if owned:
            await self.replace_all(job, pod_sets, owned)
        return None

    async def replace_all(self, job: JSON, pod_sets: Sequence[JSON], owned: Sequence[wire.Workload]) -> None:
        """Replace Workloads that do not describe the job: rewrite the first if it has no quota, else delete all."""
        suspended = self._kind.is_suspended(job)
        first, mine = owned[0], [w for w in owned if is_owner(job, w)]
        reserved = model.condition_true(first, names.CONDITION_QUOTA_RESERVED)
        kept = first in mine and first.metadata.deletion_timestamp is None and not is_given_up(first)
        if suspended and not reserved and kept:
            await self._rewrite(job, pod_sets, first)
            await self.delete(job, owned[1:])
            return
        if not suspended and self._kind.finished(job) is None:
            infos = infos_at_stop(as_json(mine[0])) if len(mine) == 1 else ()
            job = await self._writes.stop(job, infos, "NoMatchingWorkload", "no Workload matches the job")
        if not self.busy(job, owned):
            await self._writes.stop(job, (), "NoMatchingWorkload", "no Workload matches the job")  # in several writes
            for workload in owned:
                if await self._steps.delete_unlike(workload, job["metadata"]):
                    self._deleted(job, workload, "which no longer matches")

    async def _prebuilt(
        self, job: JSON, pod_sets: Sequence[JSON], owned: Sequence[wire.Workload], name: str
    ) -> wire.Workload | None:
        key = object_key(job["metadata"]["namespace"], name)
        others = [w for w in owned if model.workload_key(w) != key]
        if others and not self.busy(job, others):
            await self.delete(job, others)
        workload = self._newest(key)
        if workload is None or any(o.controller for o in workload.metadata.owner_references if not _is(job, o)):
            if self._kind.finished(job) is None:
                message = f"Workload {name}, which is to be made beforehand, is not there or belongs to another job"
                self._writes.event(job, reason="WorkloadNotFound", message=message, warning=True)
            return None
        if not is_owner(job, workload):
            if workload.metadata.deletion_timestamp is not None:
                return None
            await self._steps.adopt(workload, controller_reference(self._kind.gvk, job))
            workload = self._newest(key)
            if workload is None or not is_owner(job, workload):
                return None
        if _out_of_sync(workload):
            return None
        elastic = rules.is_elastic(job, self._switches)
        if elastic:  # its size follows in another write, and pods beyond the Workload have a gate
            pod_sets = slices.with_counts(pod_sets, slices.counts_of(as_json(workload)["spec"]["podSets"]))
        if self.matches(job, pod_sets, workload, suspended=self._kind.is_suspended(job)):
            await self._end_replaced(workload, others if elastic else ())
            return workload
        message = f"Workload {key}, which was made beforehand, does not describe the job"
        await self._steps.finish(workload, names.REASON_OUT_OF_SYNC, message)
        self._writes.event(job, reason=names.REASON_OUT_OF_SYNC, message=message, warning=True)
        return None

    async def _end_replaced(self, workload: wire.Workload, others: Sequence[wire.Workload]) -> None:
        """Finish older slices of a job whose maker names a new one, once the new one has quota for all their pods."""
        if not model.condition_true(workload, names.CONDITION_QUOTA_RESERVED):
            return
        for other in others:
            siblings = model.siblings_key(other) == model.siblings_key(workload)
            if siblings and not model.condition_true(other, names.CONDITION_FINISHED):
                await self._steps.replace(other, by=workload)

    def matches(self, job: JSON, pod_sets: Sequence[JSON], workload: wire.Workload, *, suspended: bool) -> bool:
        """Whether a Workload describes the job; a finished Workload need not."""
        said = as_json(workload)
        if not belongs(job, said):
            return False
        if model.condition_true(workload, names.CONDITION_FINISHED):
            return True
        infos: tuple[PodSetInfo, ...] | None = None
        if model.condition_true(workload, names.CONDITION_QUOTA_RESERVED):
            infos = self._infos(workload)
        return equivalent(pod_sets, said, infos=infos, suspended=suspended, slim=True)

    def _infos(self, workload: wire.Workload) -> tuple[PodSetInfo, ...] | None:
        """Return the additions of the admission; None: a flavor is unknown, or sources contradict each other."""
        try:
            found = self._steps.infos(workload)
        except NotFoundError:
            return None
        return None if isinstance(found, Refused) else found

    # --- making ------------------------------------------------------------------------------------------------

    async def make(
        self, job: JSON, pod_sets: Sequence[JSON], *, change: Callable[[JSON], JSON] = lambda workload: workload
    ) -> None:
        """Create a Workload for the job, after a last `change` of its body."""
        workload = workload_for(
            self._kind,
            job,
            priority=self._priority(job, pod_sets),
            switches=self._switches,
            copied=self._copied,
        )
        workload = change(workload)
        if await self._is_gone(job):
            return
        self._created.remember(job["metadata"]["uid"], True)
        try:
            if not await self._steps.create(workload):
                return  # created before; the watch will report it
        except BaseException:  # cancellation, too: the interrupted request may have been accepted
            self._created.forget(job["metadata"]["uid"])
            raise
        if job["metadata"].get("generation", 1) == 1:  # a job that was changed since may have been queued late
            created = datetime.fromisoformat(job["metadata"]["creationTimestamp"])
            self._on_created(max(0.0, (self._clock.now() - created).total_seconds()))
        message = f"Created Workload {job_key(workload)}; it waits for admission"
        self._writes.event(job, reason="CreatedWorkload", message=message)

    async def _is_gone(self, job: JSON) -> bool:
        """Whether the job was deleted although the watch still has it; reads the API server only if that is likely.

        The API server deletes a Workload with its job.  If the watch reports the Workload's end first, each new
        Workload would be deleted again at once.
        """
        uid = job["metadata"]["uid"]
        if uid not in self._bereft:
            return False
        now = await self._writes.fetch(job_key(job))
        if now is None or now["metadata"]["uid"] != uid or now["metadata"].get("deletionTimestamp"):
            return True
        self._bereft.pop(uid, None)
        return False

    def _priority(self, job: JSON, pod_sets: Sequence[JSON]) -> Priority:
        try:
            return self._steps.priority_of(job, pod_sets)
        except MissingPriorityClassError as e:
            self._writes.event(job, reason=e.reason, message=str(e), warning=True)
            raise

    # --- updates -----------------------------------------------------------------------------------------------

    async def _rewrite(self, job: JSON, pod_sets: Sequence[JSON], workload: wire.Workload) -> None:
        """Write the job's new description to a pending Workload; it keeps its name and its place in the queue."""
        spec = spec_for(self._kind, job, priority=self._priority(job, pod_sets), switches=self._switches)
        if await self._steps.rewrite(workload, spec):
            self.updated(job, workload, "to what the job says now")

    async def follow(self, job: JSON, pod_sets: Sequence[JSON], workload: wire.Workload) -> bool:
        """Copy admission gates, the run time and another priority class to a matching Workload; return whether anything
        was written.

        A prebuilt Workload keeps its own, except a deadline: only a field of the job ends it.
        """
        if model.condition_true(workload, names.CONDITION_FINISHED) or workload.metadata.deletion_timestamp:
            return False
        run_time = run_times.traits(self._kind, job)
        if rules.prebuilt_name(job, self._switches):
            how = await self._steps.follow_run_time(
                workload, run_times.prebuilt(run_time, workload.metadata.annotations)
            )
        else:
            how = await self._steps.follow(
                job, workload, priority=lambda: self._priority(job, pod_sets), run_time=run_time
            )
        if how:
            self.updated(job, workload, how)
        return bool(how)

    def updated(self, job: JSON, workload: wire.Workload, how: str) -> None:
        """Record an event for a change of the Workload."""
        message = f"Updated Workload {model.workload_key(workload)} {how}"
        self._writes.event(job, reason="UpdatedWorkload", message=message)

    async def delete(self, job: JSON, workloads: Sequence[wire.Workload], why: str = "which no longer matches") -> None:
        """Remove kqueue's finalizer from Workloads and delete them."""
        for workload in workloads:
            if await self._steps.delete(workload):
                self._deleted(job, workload, why)

    def _deleted(self, job: JSON, workload: wire.Workload, why: str) -> None:
        message = f"Deleted Workload {model.workload_key(workload)}, {why}"
        self._writes.event(job, reason="DeletedWorkload", message=message)


def _is_pending(workload: wire.Workload) -> bool:
    """Whether the Workload has no quota and may still be admitted."""
    ended = model.condition_true(workload, names.CONDITION_FINISHED) or is_given_up(workload)
    reserved = model.condition_true(workload, names.CONDITION_QUOTA_RESERVED)
    return not ended and not reserved and workload.metadata.deletion_timestamp is None


def was_started(pod_sets: Sequence[JSON], workload: wire.Workload) -> bool:
    """Whether the job's templates still have the additions of a start, so that another client has suspended the job.

    A job that was imported with the present reservation ran without them.
    Additions that the Workload's own templates have, too, are older: a job that was stopped without its Workload keeps
    the additions of an earlier start.
    """
    if _was_imported(workload):
        return True
    said = {p.name: mapping(msgspec.to_builtins(p.template)) for p in workload.spec.pod_sets}
    for pod_set in pod_sets:
        now, before = mapping(pod_set, "template"), said.get(text(pod_set, "name"), {})
        if _was_sliced(now, before, workload):
            return True
        written = annotations_of(now).get(names.WORKLOAD_ANNOTATION)
        if written is not None:
            if written == workload.metadata.name and names.WORKLOAD_ANNOTATION not in annotations_of(before):
                return True
        elif _podset_label(now) and not _podset_label(before):  # without topology a start adds only this label
            return True
    return False


def _was_imported(workload: wire.Workload) -> bool:
    """Whether the Workload has the reservation with which it was imported; after an eviction it has another."""
    reserved = model.condition(workload.status.conditions, names.CONDITION_QUOTA_RESERVED)
    if reserved is None or reserved.status != "True" or reserved.last_transition_time is None:
        return False
    return workload.metadata.annotations.get(import_names.IMPORTED_ANNOTATION) == utc_text(
        reserved.last_transition_time
    )


def _was_sliced(now: Mapping[str, Any], before: Mapping[str, Any], workload: wire.Workload) -> bool:
    """Whether the template names the slice with which an elastic job was started; all slices share this name."""
    key = names.WORKLOAD_SLICE_NAME_ANNOTATION
    shared = workload.metadata.annotations.get(key)
    return shared is not None and annotations_of(now).get(key) == shared and key not in annotations_of(before)


def _same_request(pod_sets: Sequence[JSON], workload: JSON) -> bool:
    """Whether a Workload without a reservation requests the same domains and node classes as the job."""
    return same_topology(pod_sets, workload) and same_node_classes(pod_sets, workload)


def _podset_label(template: Mapping[str, Any]) -> bool:
    return names.PODSET_LABEL in mapping(template, "metadata", "labels")


def _is(job: JSON, owner: Any) -> bool:
    return bool(owner.uid == job["metadata"]["uid"])


def _out_of_sync(workload: wire.Workload) -> bool:
    finished = model.condition(workload.status.conditions, names.CONDITION_FINISHED)
    return finished is not None and finished.status == "True" and finished.reason == names.REASON_OUT_OF_SYNC
