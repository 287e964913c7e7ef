"""Keeps a job and its Workload in step: one Workload per queued job, started when admitted, stopped when evicted.

Every reconcile reads the world and takes the next step, so a controller that is killed anywhere goes on where it
stopped.  All that is remembered in between is which of our own writes the watch still owes us: until then we wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import structlog
from cachetools import TTLCache

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers.record import ObjectReference, Recorder
from kqueue.controllers.workload_steps import MissingPriorityClassError, WorkloadSteps, as_json
from kqueue.errors import InvalidObjectError, KqueueError, NotFoundError
from kqueue.jobs import rules
from kqueue.jobs.infos import infos_at_stop
from kqueue.jobs.kind import JobKind, PodSetInfo, Refused
from kqueue.jobs.switches import Switches
from kqueue.jobs.workload import Priority, belongs, equivalent, spec_for, workload_for
from kqueue.runtime.client import Client
from kqueue.runtime.controller import Result
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.store import Store, split_key
from kqueue.state import from_api

_log = structlog.get_logger(__name__)

JSON = dict[str, Any]
OWNER_INDEX = "owner"
_REMEMBERED = 100_000
"""Own writes that are waited for at most; those beyond cost a request that changes nothing."""


def owner_keys(workload: wire.Workload) -> list[str]:
    """Index of Workloads by controller: `group/kind/namespace/name`."""
    return [
        owner_key(owner.api_version.rpartition("/")[0], owner.kind, workload.metadata.namespace, owner.name)
        for owner in workload.metadata.owner_references
        if owner.controller
    ]


def owner_key(group: str, kind: str, namespace: str, name: str) -> str:
    """The index value of one owner."""
    return f"{group}/{kind}/{namespace}/{name}"


class JobReconciler:
    """One kind of job."""

    def __init__(
        self,
        *,
        kind: JobKind,
        client: Client,
        jobs: Store[JSON],
        workloads: Store[wire.Workload],
        newest: Callable[[str], wire.Workload | None],
        steps: WorkloadSteps,
        manages: Callable[[str], bool],
        recorder: Recorder,
        switches: Switches,
        clock: Clock,
        label_keys_to_copy: Sequence[str] = (),
        on_created: Callable[[float], None] = lambda _seconds: None,
        echo_timeout: float = 60.0,
    ) -> None:
        """`newest` has the newest Workload of a key that is known; `manages` says whether jobs of a namespace are
        managed at all.

        `on_created` is told how many seconds after a new job its Workload was created.  `echo_timeout`: seconds
        after which a write of ours that the watch has not brought is not waited for any longer.
        """
        self.kind = kind
        self.resource = ResourceType(kind.gvk.group, kind.gvk.version, kind.resource, kind.gvk.kind)
        self._client, self._jobs, self._workloads, self._newest = client, jobs, workloads, newest
        self._steps, self._manages, self._recorder = steps, manages, recorder
        self._switches, self._clock, self._label_keys = switches, clock, tuple(label_keys_to_copy)
        self._on_created, self._echo_timeout = on_created, echo_timeout
        self._written: TTLCache[str, int] = TTLCache(_REMEMBERED, echo_timeout, clock.monotonic)
        """Job key to the resource version of our newest write, until the watch has brought it."""
        self._created: TTLCache[str, None] = TTLCache(_REMEMBERED, echo_timeout, clock.monotonic)
        """UIDs of jobs whose Workload we have created, until the watch has brought it."""
        self._bereft: TTLCache[str, None] = TTLCache(_REMEMBERED, echo_timeout, clock.monotonic)
        """UIDs of jobs whose Workload was deleted."""
        workloads.subscribe(self._on_workload)

    def _on_workload(self, old: wire.Workload | None, new: wire.Workload | None) -> None:
        seen = new if new is not None else old
        for owner in seen.metadata.owner_references if seen is not None else ():
            self._created.pop(owner.uid, None)
            if new is None:
                self._bereft[owner.uid] = None

    def _is_old(self, key: str, job: JSON) -> bool:
        """Whether the watch still owes us what we wrote ourselves: deciding on less would write it twice."""
        written = self._written.get(key)
        if written is None:
            return False
        if int(job["metadata"]["resourceVersion"]) < written:
            return True
        self._written.pop(key, None)
        return False

    async def reconcile(self, key: str) -> Result:
        """Take the next step for one job."""
        namespace = split_key(key)[0]
        job = self._jobs.get(key)
        if job is None or job["metadata"].get("deletionTimestamp"):
            await self._finalize(key)
            return Result()
        if not self._manages(namespace) or not rules.queue_name(job):
            return Result()
        if self.kind.managed_by(job) != self.kind.own_controller:
            return Result()
        if self._is_old(key, job):
            return Result(requeue_after=self._echo_timeout)
        return await self._step(job)

    async def _step(self, job: JSON) -> Result:
        try:
            pod_sets = self.kind.pod_sets(job, self._switches)
        except InvalidObjectError as e:
            self._event(job, reason="InvalidJob", message=str(e), warning=True)
            raise
        workload = await self._find(job, pod_sets)
        if workload is None:
            return await self._without_workload(job, pod_sets)
        await self._with_workload(job, workload)
        return Result()

    # --- finding -----------------------------------------------------------------------------------------------

    def _owned(self, key: str) -> list[wire.Workload]:
        namespace, name = split_key(key)
        gvk = self.kind.gvk
        keys = self._workloads.keys_by_index(OWNER_INDEX, owner_key(gvk.group, gvk.kind, namespace, name))
        found = [self._newest(k) for k in keys]
        return [w for w in found if w is not None]

    async def _find(self, job: JSON, pod_sets: Sequence[JSON]) -> wire.Workload | None:
        """The Workload that says what the job says; others of the job are rewritten or deleted."""
        owned = sorted(self._owned(_key(job)), key=from_api.workload_key)
        suspended = self.kind.is_suspended(job)
        matching = [w for w in owned if self._matches(job, pod_sets, w, suspended=suspended)]
        if matching:
            await self._delete([w for w in owned if w is not matching[0]], job)
            return matching[0]
        if not owned:
            return None
        first = owned[0]
        reserved = from_api.condition_true(first, names.CONDITION_QUOTA_RESERVED)
        same_job = belongs(job, as_json(first)) or self._is_owner(job, first)
        if suspended and not reserved and same_job and first.metadata.deletion_timestamp is None:
            await self._rewrite(job, first)
            await self._delete(owned[1:], job)
            return None
        if not suspended and self.kind.finished(job) is None and same_job:
            await self._stop(job, infos_at_stop(as_json(first)), "NoMatchingWorkload", "no Workload matches the job")
        await self._delete(owned, job)
        return None

    @staticmethod
    def _is_owner(job: JSON, workload: wire.Workload) -> bool:
        return any(o.uid == job["metadata"]["uid"] for o in workload.metadata.owner_references if o.controller)

    def _matches(self, job: JSON, pod_sets: Sequence[JSON], workload: wire.Workload, *, suspended: bool) -> bool:
        text = as_json(workload)
        if not belongs(job, text):
            return False
        if from_api.condition_true(workload, names.CONDITION_FINISHED):
            return True
        infos: tuple[PodSetInfo, ...] | None = None
        if from_api.condition_true(workload, names.CONDITION_QUOTA_RESERVED):
            infos = self._infos(workload)
        return equivalent(pod_sets, text, infos=infos, suspended=suspended, slim=True)

    def _infos(self, workload: wire.Workload) -> tuple[PodSetInfo, ...] | None:
        """What the admission injects; None when a flavor is unknown or sources contradict each other."""
        try:
            found = self._steps.infos(workload)
        except NotFoundError:
            return None
        return None if isinstance(found, Refused) else found

    # --- without a Workload ------------------------------------------------------------------------------------

    async def _without_workload(self, job: JSON, pod_sets: Sequence[JSON]) -> Result:
        if self.kind.finished(job) is not None or self._owned(_key(job)):
            return Result()  # finished without us, or an old Workload is on its way out: its end brings us back
        if job["metadata"]["uid"] in self._created:
            return Result(requeue_after=self._echo_timeout)
        if not self.kind.is_suspended(job):
            await self._stop(job, (), "NoMatchingWorkload", "the job has no Workload yet")
            return Result()
        if self.kind.active(job):
            return Result()
        workload = workload_for(
            self.kind,
            job,
            priority=self._priority(job, pod_sets),
            switches=self._switches,
            label_keys_to_copy=self._label_keys,
        )
        if await self._is_gone(job):
            return Result()
        self._created[job["metadata"]["uid"]] = None
        try:
            if not await self._steps.create(workload):
                return Result()  # made by us before; the watch brings it
        except KqueueError:
            self._created.pop(job["metadata"]["uid"], None)
            raise
        if job["metadata"].get("generation", 1) == 1:  # a job that was changed since may have become ours late
            created = datetime.fromisoformat(job["metadata"]["creationTimestamp"])
            self._on_created(max(0.0, (self._clock.now() - created).total_seconds()))
        self._event(job, reason="CreatedWorkload", message=f"Created Workload {_key(workload)}; it waits for admission")
        return Result()

    async def _is_gone(self, job: JSON) -> bool:
        """Whether the watch has yet to tell that a job was deleted; asked only where that is likely.

        A job's end takes its Workload along.  Where that is seen first, a new one would be collected at once, for ever.
        """
        meta = job["metadata"]
        if meta["uid"] not in self._bereft:
            return False
        try:
            now = await self._client.get_json(self.resource, meta["name"], meta["namespace"])
        except NotFoundError:
            return True
        if now["metadata"]["uid"] != meta["uid"] or now["metadata"].get("deletionTimestamp"):
            return True
        self._bereft.pop(meta["uid"], None)
        return False

    def _priority(self, job: JSON, pod_sets: Sequence[JSON]) -> Priority:
        try:
            return self._steps.priority_of(job, pod_sets)
        except MissingPriorityClassError as e:
            self._event(job, reason=e.reason, message=str(e), warning=True)
            raise

    async def _rewrite(self, job: JSON, workload: wire.Workload) -> None:
        """Give a pending Workload the job's new text; it keeps its name and its place in time."""
        pod_sets = self.kind.pod_sets(job, self._switches)
        spec = spec_for(self.kind, job, priority=self._priority(job, pod_sets), switches=self._switches)
        if await self._steps.rewrite(workload, spec):
            message = f"Updated Workload {from_api.workload_key(workload)}"
            self._event(job, reason="UpdatedWorkload", message=message)

    async def _delete(self, workloads: Sequence[wire.Workload], job: JSON) -> None:
        for workload in workloads:
            if await self._steps.delete(workload):
                key = from_api.workload_key(workload)
                self._event(job, reason="DeletedWorkload", message=f"Deleted Workload {key}, which no longer matches")

    # --- with a Workload ---------------------------------------------------------------------------------------

    async def _with_workload(self, job: JSON, workload: wire.Workload) -> None:
        """The steps in the order of the compatible system; each reconcile ends at the first that acts."""
        if from_api.condition_true(workload, names.CONDITION_FINISHED):
            await self._steps.release(workload)
        elif workload.metadata.deletion_timestamp is not None:
            await self._stop(job, infos_at_stop(as_json(workload)), "WorkloadDeleted", "the Workload was deleted")
            await self._steps.release(workload)
        elif (end := self.kind.finished(job)) is not None:
            reason = names.REASON_SUCCEEDED if end.success else names.REASON_FAILED
            await self._steps.finish(workload, reason, end.message)
        elif await self._report(job, workload):
            return
        elif from_api.condition_true(workload, names.CONDITION_EVICTED):
            await self._leave(job, workload)
        elif self.kind.is_suspended(job):
            await self._start_or_follow(job, workload)
        elif not from_api.condition_true(workload, names.CONDITION_ADMITTED):
            await self._stop(job, infos_at_stop(as_json(workload)), "NotAdmitted", "the Workload is not admitted")
        elif not self.kind.suspend(job):  # neither suspended nor running: a stop was cut off before the admission came
            await self._stop(job, infos_at_stop(as_json(workload)), "NotAdmitted", "")

    async def _report(self, job: JSON, workload: wire.Workload) -> bool:
        """Write what the job tells of its pods; True when something was written."""
        return await self._steps.report(
            workload, reclaimable=self.kind.reclaimable(job), ready=self.kind.pods_ready(job)
        )

    async def _leave(self, job: JSON, workload: wire.Workload) -> None:
        """Evicted: stop the job, and when its pods are gone give the quota back."""
        evicted = from_api.condition(workload.status.conditions, names.CONDITION_EVICTED)
        assert evicted is not None
        job = await self._stop(job, infos_at_stop(as_json(workload)), "WorkloadEvicted", evicted.message)
        if not self.kind.active(job):
            await self._steps.give_back(workload)

    async def _start_or_follow(self, job: JSON, workload: wire.Workload) -> None:
        if from_api.condition_true(workload, names.CONDITION_ADMITTED):
            if self._was_started(job, workload):
                await self._deactivate(job, workload)
            else:
                await self._start(job, workload)
            return
        wanted = rules.queue_name(job)
        if wanted != (workload.spec.queue_name or ""):
            await self._steps.amend(workload, {"spec": {"queueName": wanted}})
        elif (profile := rules.placement_profile(job)) not in ("", from_api.profile_name(workload.metadata)):
            change = {"metadata": {"annotations": {names.PLACEMENT_PROFILE_ANNOTATION: profile}}}
            await self._steps.amend(workload, change)

    @staticmethod
    def _was_started(job: JSON, workload: wire.Workload) -> bool:
        """Whether the template still carries what our start put there: then somebody else has suspended the job."""
        metadata = job["spec"].get("template", {}).get("metadata", {})
        written = (metadata.get("annotations") or {}).get(names.WORKLOAD_ANNOTATION)
        if written is not None:
            return bool(written == workload.metadata.name)
        return names.PODSET_LABEL in (metadata.get("labels") or {})  # without topology there is only this

    async def _deactivate(self, job: JSON, workload: wire.Workload) -> None:
        """A user has suspended a running job: it stays stopped, and its quota goes back, until its Workload is made
        active again.  Starting it once more would undo what the user asked for.
        """
        key = from_api.workload_key(workload)
        await self._steps.amend(workload, {"spec": {"active": False}})
        message = f"The job was suspended by its user; set spec.active of Workload {key} to true to queue it again"
        self._event(job, reason="Suspended", message=message)
        _log.info("job suspended by its user", job=_key(job), workload=key)

    async def _start(self, job: JSON, workload: wire.Workload) -> None:
        infos = self._steps.infos(workload)
        # a stop that was cut off half-way is finished first: templates are restored before they are changed again
        job = await self._stop(job, infos_at_stop(as_json(workload)), "WorkloadEvicted", "")
        patch = infos if isinstance(infos, Refused) else self.kind.start(job, infos)
        if isinstance(patch, Refused):
            await self._steps.finish(workload, names.REASON_FAILED_TO_START, str(patch))
            return
        await self._patch(job, patch)
        queue = workload.status.admission.cluster_queue if workload.status.admission is not None else ""
        self._event(job, reason="Started", message=f"Admitted by ClusterQueue {queue}")
        _log.info("job started", job=_key(job), workload=from_api.workload_key(workload), cluster_queue=queue)

    # --- writes ------------------------------------------------------------------------------------------------

    async def _patch(self, job: JSON, patch: Mapping[str, Any], *, subresource: str = "") -> JSON:
        """One merge patch under the resource version that the decision was made on; returns the job as written."""
        metadata = {**patch.get("metadata", {}), "resourceVersion": job["metadata"]["resourceVersion"]}
        written = await self._client.patch(
            self.resource,
            job["metadata"]["name"],
            {**patch, "metadata": metadata},
            job["metadata"]["namespace"],
            subresource=subresource or None,
        )
        self._written[_key(job)] = int(written["metadata"]["resourceVersion"])
        return written

    async def _stop(self, job: JSON, infos: Sequence[PodSetInfo], why: str, message: str) -> JSON:
        """Do all steps that are left of a stop; returns the job as it is then.  Nothing is done for a stopped job."""
        for _ in range(4):
            steps = self.kind.stop(job, infos)
            if not steps:
                return job
            step = steps[0]
            written = await self._patch(job, step.patch, subresource=step.subresource)
            if step.suspends:
                self._event(job, reason="Stopped", message=message or why)
                _log.info("job stopped", job=_key(job), reason=why)
            job = written
        return job

    async def _finalize(self, key: str) -> None:
        """The job is gone, on its way out, or no longer queued: end the Workloads that it left behind."""
        owned = self._owned(key)
        if not owned:
            return
        namespace, name = split_key(key)
        try:
            job = await self._client.get_json(self.resource, name, namespace)
        except NotFoundError:
            job = None
        for workload in owned:
            alive = job is not None and not job["metadata"].get("deletionTimestamp") and self._is_owner(job, workload)
            if not alive:
                if not from_api.condition_true(workload, names.CONDITION_FINISHED):
                    await self._steps.finish(
                        workload, names.REASON_OWNER_NOT_FOUND, f"{self.kind.gvk.kind} {key} is gone"
                    )
                await self._steps.release(workload)

    def _event(self, job: JSON, *, reason: str, message: str, warning: bool = False) -> None:
        gvk, meta = self.kind.gvk, job["metadata"]
        reference = ObjectReference(
            api_version=gvk.api_version,
            kind=gvk.kind,
            namespace=meta["namespace"],
            name=meta["name"],
            uid=meta["uid"],
        )
        self._recorder.record(reference, reason=reason, message=message, warning=warning)


def _key(obj: Mapping[str, Any]) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
