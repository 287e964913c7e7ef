"""Steps of owners with their Workloads: create, report, release quota, finish, and remove the finalizer.

Each step reads the newest known Workload and writes at most once; a repeated step changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers.record import Recorder, workload_reference
from kqueue.controllers.recreations import MOST, Recreations
from kqueue.controllers.resources import WORKLOADS
from kqueue.controllers.workload_book import WorkloadBook
from kqueue.errors import AlreadyExistsError, NotFoundError, TerminalError
from kqueue.jobs import rules, run_times, slices, syntax
from kqueue.jobs.fields import annotations_of
from kqueue.jobs.infos import flavors_of, infos_at_start
from kqueue.jobs.kind import PodSetInfo, Refused
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import Priority, PrioritySource, priority_source
from kqueue.kube import names as kube_names
from kqueue.kube.owned_names import LONG_NAME, SHORT_NAME
from kqueue.model.variants import admitted_variant_key, is_parent, variant_fault
from kqueue.runtime.client import Client, Propagation
from kqueue.runtime.store import Store
from kqueue.state import requeueing, status

_log = structlog.get_logger(__name__)

JSON = dict[str, Any]
_OPTIONAL = ("queueName", "priorityClassRef", "maximumExecutionTimeSeconds")
"""Fields of a Workload's spec that a job may remove: a merge patch must remove them by name."""
"""Evictions after which a workload is to be tried again without waiting for anything."""


class MissingPriorityClassError(TerminalError):
    """A job names a priority class that does not exist; the job is read again when classes change."""

    def __init__(self, source: PrioritySource) -> None:
        super().__init__(f"{source.kind} {source.name} does not exist; create it or correct the job")
        self.reason = f"{source.kind}NotFound"
        """The reason of the event on the job."""


def as_json(workload: wire.Workload) -> JSON:
    """Return the Workload as JSON, the form that the functions of the jobs take."""
    return dict(msgspec.to_builtins(workload))


@dataclass(frozen=True, slots=True, kw_only=True)
class Referred:
    """Objects that Workloads and their owners refer to by name."""

    flavors: Callable[[str], wire.ResourceFlavor | None]
    workload_priorities: Store[wire.WorkloadPriorityClass]
    pod_priorities: Store[wire_core.PriorityClass]


class WorkloadSteps:
    """Steps for all owners of a process; the only state is the number of times that Workloads were created again."""

    def __init__(
        self,
        *,
        client: Client,
        writer: WorkloadBook,
        referred: Referred,
        recorder: Recorder,
        switches: JobFeatures,
        clock: Clock,
    ) -> None:
        self._client, self._writer, self._recorder, self._clock = client, writer, recorder, clock
        self._flavors, self._switches = referred.flavors, switches
        self._workload_priorities, self._pod_priorities = referred.workload_priorities, referred.pod_priorities
        self._recreations = Recreations(clock)
        self.finished: Callable[[wire.Workload, Mapping[str, int]], status.Patch] = lambda _workload, _ended: {}
        """`finished(workload, ended)` returns status fields to write when `ended` pods per pod set have ended
        for good.
        """
        self.on_given_up: Callable[[], None] = lambda: None
        """Called when a Workload is deactivated because it was created again too often."""

    # --- the objects of a Workload ------------------------------------------------------------------------------

    def priority_of(self, job: JSON, pod_sets: Sequence[JSON]) -> Priority:
        """Return the priority of a job's Workload, and the class that it comes from.

        Raises:
            MissingPriorityClassError: the job names a class that does not exist.
        """
        source = priority_source(job, pod_sets)
        if source is None:
            defaults = [c for c in self._pod_priorities.values() if c.global_default]
            lowest = min(defaults, key=lambda c: c.value, default=None)
            if lowest is None:
                return Priority()
            return Priority(value=lowest.value, kind=kube_names.PRIORITY_CLASS_KIND, name=lowest.metadata.name)
        found: wire.WorkloadPriorityClass | wire_core.PriorityClass | None
        if source.kind == names.WORKLOAD_PRIORITY_CLASS_KIND:
            found = self._workload_priorities.get(source.name)
        else:
            found = self._pod_priorities.get(source.name)
        if found is None:
            raise MissingPriorityClassError(source)
        return Priority(value=found.value, kind=source.kind, name=source.name)

    def infos(self, workload: wire.Workload) -> tuple[PodSetInfo, ...] | Refused:
        """Return the additions of the admission to each pod set; Refused if sources contradict each other.

        A parent has the admission of its variant, and the additions of the checks that let the variant in.

        Raises:
            NotFoundError: a flavor of the admission does not exist (yet, or any more); a retry may help.
        """
        found, variant = as_json(workload), self._admitted_variant(workload)
        if variant is not None:
            found["status"]["admissionChecks"] = as_json(variant)["status"].get("admissionChecks", [])
        flavors: dict[str, JSON] = {}
        for name in sorted(flavors_of(found)):
            flavor = self._flavors(name)
            if flavor is None:
                raise NotFoundError(
                    f"Workload {model.workload_key(workload)} cannot start: ResourceFlavor {name} not found"
                )
            flavors[name] = msgspec.to_builtins(flavor)
        return infos_at_start(found, flavors, switches=self._switches)

    def _admitted_variant(self, workload: wire.Workload) -> wire.Workload | None:
        """Return the variant whose admission a parent has; None: the Workload is no parent, or has no admission."""
        if not self._switches.concurrent_admission or not is_parent(workload):
            return None
        limit = SHORT_NAME if self._switches.short_names else LONG_NAME
        key = admitted_variant_key(workload, limit=limit)
        variant = self._writer.newest(key) if key is not None else None
        is_one = variant is not None and not variant_fault(variant, workload, limit=limit)
        return variant if is_one else None

    # --- the object --------------------------------------------------------------------------------------------

    async def create(self, workload: JSON) -> bool:
        """Create the Workload; return False if a Workload of its name exists already."""
        try:
            await self._client.create(WORKLOADS, workload)
        except AlreadyExistsError:
            return False
        meta = workload["metadata"]
        _log.info("workload created", workload=f"{meta['namespace']}/{meta['name']}")
        return True

    async def rewrite(
        self, workload: wire.Workload, spec: Mapping[str, Any], *, annotations: Mapping[str, str | None] | None = None
    ) -> bool:
        """Write another spec to a Workload without quota; name, age, status and `active` stay.  Returns whether it was
        written.

        `annotations`: those to write with it; None as the value of one takes it off.
        """

        def change(w: wire.Workload) -> JSON | None:
            if model.condition_true(w, names.CONDITION_QUOTA_RESERVED):
                return None  # reserved since: the spec of the decision must not change
            more = {"metadata": {"annotations": dict(annotations)}} if annotations else {}
            return {"spec": {**dict.fromkeys(_OPTIONAL), **spec, "active": w.spec.active}, **more}

        return await self._change(workload, change)

    async def read(self, workload: wire.Workload) -> JSON | None:
        """Return the complete Workload from the API server; None: it is gone. The watch stores only parts."""
        meta = workload.metadata
        try:
            now = await self._client.get_json(WORKLOADS, meta.name, meta.namespace)
        except NotFoundError:
            return None
        return now if now["metadata"]["uid"] == meta.uid else None

    async def resize(self, workload: wire.Workload, counts: slices.Counts) -> bool:
        """Write other pod counts without a change of quota and admission; return whether they were written.

        Nothing is written if the counts exceed the reservation, because the Workload has changed.
        """
        now = await self.read(workload)
        if now is None:
            return False
        held = dict(slices.counts_of(now["spec"]["podSets"]))
        more = any(count > held.get(name, 0) for name, count in counts)
        version = now["metadata"].get("generation")

        def change(w: wire.Workload) -> JSON | None:
            reserved = model.condition_true(w, names.CONDITION_QUOTA_RESERVED)
            if w.metadata.generation != version or (more and reserved):
                return None
            return {"spec": {"podSets": slices.with_counts(now["spec"]["podSets"], counts)}}

        return await self._change(workload, change)

    async def amend(self, workload: wire.Workload, change: Mapping[str, Any]) -> bool:
        """Write a part of the metadata or spec; return whether the Workload still exists."""
        return await self._change(workload, lambda _: dict(change))

    async def adopt(self, workload: wire.Workload, owner: Mapping[str, Any]) -> bool:
        """Make `owner` (a reference with `controller`) the controller of a Workload without one; return whether it was
        written.

        kqueue adds its finalizer, as to a Workload of its own: the quota must not be released before the pods end.
        """
        meta = workload.metadata
        others: list[JSON] = []
        if meta.owner_references:  # the watch stores only a part of each reference
            now = await self._client.get_json(WORKLOADS, meta.name, meta.namespace)
            others = now["metadata"].get("ownerReferences", [])
        known = {o["uid"] for o in others}

        def change(w: wire.Workload) -> JSON | None:
            held = w.metadata.owner_references
            if any(o.controller for o in held) or {o.uid for o in held} != known or w.metadata.deletion_timestamp:
                return None  # another client was faster
            finalizers = list(dict.fromkeys((*w.metadata.finalizers, names.RESOURCE_IN_USE_FINALIZER)))
            labels = {names.JOB_UID_LABEL: owner["uid"]} if syntax.label_value(owner["uid"]) is None else {}
            return {"metadata": {"ownerReferences": [*others, dict(owner)], "finalizers": finalizers, "labels": labels}}

        return await self._change(workload, change)

    async def follow(
        self,
        owner: JSON,
        workload: wire.Workload,
        *,
        priority: Callable[[], Priority],
        run_time: Mapping[str, str] | None = None,
    ) -> str:
        """Apply changes of the owner to the Workload, also while it runs: admission gates, its run time, then another
        priority class.

        Args:
            owner: the owner.
            workload: the newest known version.
            priority: resolves the class that the owner names, and reports a class that does not exist.
            run_time: the annotations about run times that the Workload is to have; None: it keeps its own.

        Returns:
            The change as text; empty without a change.
        """
        return (
            await self._follow_gates(owner, workload)
            or (await self.follow_run_time(workload, run_time) if run_time is not None else "")
            or await self._follow_priority(owner, workload, priority)
        )

    async def follow_run_time(self, workload: wire.Workload, wanted: Mapping[str, str]) -> str:
        """Write what the owner tells about its run time to the Workload; return the change as text, or empty text."""
        change = run_times.changes(wanted, workload.metadata.annotations)
        if not change or not await self.amend(workload, {"metadata": {"annotations": change}}):
            return ""
        return ", ".join(f"to {key} {value or 'none'}" for key, value in change.items())

    async def _follow_gates(self, owner: JSON, workload: wire.Workload) -> str:
        key = names.ADMISSION_GATED_BY_ANNOTATION
        wanted = annotations_of(owner).get(key, "")
        if not self._switches.admission_gated_by or wanted == workload.metadata.annotations.get(key, ""):
            return ""
        await self.amend(workload, {"metadata": {"annotations": {key: wanted or None}}})
        return f"to admission gates {wanted or 'none'}"

    async def _follow_priority(self, owner: JSON, workload: wire.Workload, resolve: Callable[[], Priority]) -> str:
        wanted, held = rules.priority_class(owner), workload.spec.priority_class_ref
        by_label = held is not None and held.kind == names.WORKLOAD_PRIORITY_CLASS_KIND
        if wanted == (held.name if held is not None and by_label else ""):
            return ""
        reserved = model.condition_true(workload, names.CONDITION_QUOTA_RESERVED)
        if (held is not None and not by_label) or (reserved and (held is None or not wanted)):
            return ""  # the API server would refuse it
        try:
            found = resolve()
        except MissingPriorityClassError:
            return ""  # reported; the Workload keeps its priority, and its other steps continue
        await self.amend(workload, {"spec": {"priorityClassRef": found.reference, "priority": found.value}})
        return f"to priority {found.value} of {found.name or 'no class'}"

    async def delete(self, workload: wire.Workload) -> bool:
        """Remove the finalizer and delete the Workload; False if it is gone or being deleted."""
        await self.release(workload)
        meta = workload.metadata
        if meta.deletion_timestamp is not None:
            return False
        try:
            await self._client.delete(
                WORKLOADS, meta.name, meta.namespace, uid=meta.uid, propagation=Propagation.BACKGROUND
            )
        except NotFoundError:
            return False
        return True

    async def delete_unlike(self, workload: wire.Workload, owner: Mapping[str, Any]) -> bool:
        """Delete a Workload that does not match its owner, whose metadata is given; return whether it was deleted.

        After five times without a change of the owner the Workload is deactivated instead, because it would be created
        and deleted without end.
        """
        uid, generation = owner["uid"], owner.get("generation", 1)
        if not self._recreations.allows(uid, generation):
            await self._give_up(workload)
            return False
        if not await self.delete(workload):
            return False
        self._recreations.deleted(uid, generation)
        return True

    async def _give_up(self, workload: wire.Workload) -> None:
        """Request the deactivation of the Workload, and record one event on it."""
        if not workload.spec.active:
            return
        reason = names.REASON_RECREATED_TOO_OFTEN
        message = (
            f"The Workload was deleted and made anew {MOST} times, because it never says what its job says; another "
            "controller may change one of the two. A change of the job makes it anew once more"
        )
        stamp = status.Stamp(self._clock.now())
        written = await self._writer.write(
            model.workload_key(workload),
            lambda w: status.request_deactivation(w, reason=reason, message=message, stamp=stamp),
        )
        if written is not None:
            self.on_given_up()
            event = names.EVENT_RECREATED_TOO_OFTEN
            self._recorder.record(workload_reference(workload), reason=event, message=message, warning=True)
            _log.warning("workload is no longer created again", workload=model.workload_key(workload))

    async def release(self, workload: wire.Workload) -> None:
        """Remove kqueue's finalizer from a Workload that no longer needs kqueue."""

        def change(w: wire.Workload) -> JSON | None:
            if names.RESOURCE_IN_USE_FINALIZER not in w.metadata.finalizers:
                return None
            kept = [f for f in w.metadata.finalizers if f != names.RESOURCE_IN_USE_FINALIZER]
            return {"metadata": {"finalizers": kept or None}}

        await self._change(workload, change)

    async def _change(self, workload: wire.Workload, change: Callable[[wire.Workload], JSON | None]) -> bool:
        written = await self._writer.write(model.workload_key(workload), change, subresource=None)
        return written is not None

    # --- its status --------------------------------------------------------------------------------------------

    async def report(
        self, workload: wire.Workload, *, reclaimable: Mapping[str, int], ready: bool | None = None
    ) -> bool:
        """Write the state of the owner's pods to the Workload, one change at a time; return whether a change was
        written.

        Args:
            workload: the newest known version.
            reclaimable: pods that will not run again, by pod set. Released pods stay released while quota is reserved:
            the API accepts no smaller number, and a job that was evicted and now runs with fewer pods counts from
            these.
            ready: whether all pods are ready or have succeeded; None: unknown.
        """
        return await self._report_reclaimable(workload, reclaimable) or await self._report_ready(workload, ready)

    async def _report_reclaimable(self, workload: wire.Workload, found: Mapping[str, int]) -> bool:
        """Write the number of pods of each pod set that no longer need quota, of the present number of pods.

        While quota is reserved, the API refuses smaller counts, except for pod sets that were scaled down.
        """
        told = {r.name: r.count for r in workload.status.reclaimable_pods}
        sizes = {p.name: p.count for p in workload.spec.pod_sets}
        wanted = {name: min(count, sizes[name]) for name, count in found.items() if name in sizes}
        if not self._switches.reclaimable_pods:
            wanted = {}
        if model.condition_true(workload, names.CONDITION_QUOTA_RESERVED):
            kept = {name: count for name, count in told.items() if not _scaled_down(workload, name, sizes)}
            wanted.update({name: max(count, wanted.get(name, 0)) for name, count in kept.items()})
        if wanted == told:
            return False
        entries = [{"name": name, "count": count} for name, count in sorted(wanted.items())]
        await self._writer.write(
            model.workload_key(workload),
            lambda w: {"status": {"reclaimablePods": entries or None, **self.finished(w, wanted)}},
        )
        return True

    async def _report_ready(self, workload: wire.Workload, ready: bool | None) -> bool:
        """Write PodsReady, if `ready` is known.

        A missing condition is written when the workload is admitted and its pods are ready; with `waitForPodsReady` the
        admission has written it as False already.
        """
        written = model.condition(workload.status.conditions, names.CONDITION_PODS_READY)
        admitted = model.condition_true(workload, names.CONDITION_ADMITTED)
        if ready is None or (written is None and not (admitted and ready)):
            return False
        stamp = status.Stamp(self._clock.now())
        told = await self._writer.write(
            model.workload_key(workload), lambda w: status.pods_ready(w, ready=ready, stamp=stamp)
        )
        return told is not None

    async def unreserve(self, workload: wire.Workload, message: str) -> None:
        """Release the quota of a Workload that has no pods yet, so that it is decided again."""
        stamp = status.Stamp(self._clock.now())
        await self._writer.write(
            model.workload_key(workload),
            lambda w: status.unreserve(
                w, reason=names.REASON_PENDING_EVALUATION, message=message, stamp=stamp, requeued=None
            ),
        )

    async def hold(self, workload: wire.Workload, message: str) -> bool:
        """Put a Workload on hold without a place in a queue, and release its quota; return whether it was written."""
        stamp, reason = status.Stamp(self._clock.now()), names.REASON_ON_HOLD

        def change(now: wire.Workload) -> status.Patch | None:
            if model.condition_true(now, names.CONDITION_FINISHED):
                return None
            if model.condition_true(now, names.CONDITION_QUOTA_RESERVED) or now.status.admission is not None:
                return status.unreserve(now, reason=reason, message=message, stamp=stamp, requeued=None)
            return status.wait(now, reason=reason, message=message, stamp=stamp)

        written = await self._writer.write(model.workload_key(workload), change) is not None
        if written:
            _log.info("workload on hold", workload=model.workload_key(workload))
        return written

    async def resume(self, workload: wire.Workload, message: str) -> bool:
        """Queue a Workload that was on hold; return whether it was written."""
        stamp, reason = status.Stamp(self._clock.now()), names.REASON_PENDING_EVALUATION
        written = await self._writer.write(
            model.workload_key(workload), lambda now: status.wait(now, reason=reason, message=message, stamp=stamp)
        )
        return written is not None

    async def follow_queue(self, workload: wire.Workload, wanted: str, *, noun: str) -> bool:
        """Move a waiting Workload to the LocalQueue that its owner names now; return whether it was moved.

        Its quota in the old queue is released first.  `noun`: the owner in the message, as in `The job`.
        """
        if wanted == (workload.spec.queue_name or ""):
            return False
        if model.condition_true(workload, names.CONDITION_QUOTA_RESERVED):
            verb = "have" if noun.endswith("s") else "has"
            await self.unreserve(workload, f"{noun} {verb} moved to LocalQueue {wanted}")
        else:
            await self.amend(workload, {"spec": {"queueName": wanted}})
        return True

    async def give_back(self, workload: wire.Workload, *, requeued: bool | None = None) -> None:
        """Release the quota of an evicted Workload after its last pod has ended; no effect if it has none.

        `requeued`: whether it is tried again at once; None: the reason of its eviction decides.
        """
        evicted = model.condition(workload.status.conditions, names.CONDITION_EVICTED)
        if evicted is None or not model.condition_true(workload, names.CONDITION_QUOTA_RESERVED):
            return
        again = requeueing.returns_at_once(evicted.reason) if requeued is None else requeued
        stamp = status.Stamp(self._clock.now())
        await self._writer.write(
            model.workload_key(workload),
            lambda w: status.unreserve(
                w, reason=names.REASON_PENDING_EVALUATION, message=evicted.message, stamp=stamp, requeued=again
            ),
        )

    async def replace(self, workload: wire.Workload, *, by: wire.Workload) -> None:
        """Finish a slice of an elastic job that a newer one replaces, and record one event on it."""
        reason = names.REASON_WORKLOAD_SLICE_REPLACED
        message = f"Replaced by {model.workload_key(by)} (UID {by.metadata.uid})"
        if await self.finish(workload, reason, message):
            event = names.EVENT_WORKLOAD_SLICE_REPLACED
            self._recorder.record(workload_reference(workload), reason=event, message=message)

    async def finish(self, workload: wire.Workload, reason: str, message: str) -> bool:
        """Finish the Workload, and record one event on it; return whether it was not finished before."""
        stamp = status.Stamp(self._clock.now())
        key = model.workload_key(workload)
        written = await self._writer.write(
            key, lambda w: status.finish(w, reason=reason, message=message or reason, stamp=stamp)
        )
        if written is not None:
            self._recorder.record(
                workload_reference(workload), reason="FinishedWorkload", message=f"Workload {key} finished: {message}"
            )
            _log.info("workload finished", workload=key, reason=reason)
        return written is not None


def is_given_up(workload: wire.Workload) -> bool:
    """Whether the Workload was deactivated because it was created again too often."""
    evicted = model.condition(workload.status.conditions, names.CONDITION_EVICTED)
    reason = names.REASON_DEACTIVATED_DUE_TO_RECREATED_TOO_OFTEN
    return not workload.spec.active and evicted is not None and evicted.reason == reason


def _scaled_down(workload: wire.Workload, name: str, sizes: Mapping[str, int]) -> bool:
    """Whether the pod set of an elastic workload has fewer pods now than were admitted."""
    if workload.metadata.annotations.get(names.ELASTIC_JOB_ANNOTATION) != "true":
        return False
    admission = workload.status.admission
    assigned = admission.pod_set_assignments if admission is not None else ()
    return any(a.name == name and (a.count or 0) > sizes.get(name, 0) for a in assigned)
