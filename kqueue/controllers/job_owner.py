"""A job as the owner of its Workload."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.controllers.elastic_counts import is_elastic
from kqueue.controllers.job_slices import JobSlices
from kqueue.controllers.job_workload import JobWorkload, was_started
from kqueue.controllers.job_writes import JobWrites, job_key
from kqueue.controllers.owner_lifecycle import CHECK_AGAIN, OwnerStop, pending_checks, start_message
from kqueue.controllers.release_hooks import NO_RELEASE_HOOKS, ReleaseHooks
from kqueue.controllers.workload_steps import WorkloadSteps, as_json
from kqueue.jobs import node_classes, rules
from kqueue.jobs.infos import infos_at_stop
from kqueue.jobs.kind import ExceptionalKind, Finished, JobKind, Refused

_log = structlog.get_logger(__name__)

JSON = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTools:
    """The objects that the owners of one kind of job share."""

    kind: JobKind
    workloads: JobWorkload
    slices: JobSlices
    writes: JobWrites
    steps: WorkloadSteps
    releases: ReleaseHooks = NO_RELEASE_HOOKS


class JobOwner:
    """`OwnerAdapter` for a job.  A stop replaces `job` by the job as it was written."""

    noun = "The job"
    deletion_message = "the Workload was deleted"

    def __init__(
        self,
        tools: JobTools,
        job: JSON,
        pod_sets: Sequence[JSON],
        workload: wire.Workload,
        *,
        told: MutableMapping[str, str],
    ) -> None:
        """Take the job and its Workload; `told`: the last reported message of admission checks, by job UID."""
        self.workload = workload
        self._kind, self._workloads, self._slices = tools.kind, tools.workloads, tools.slices
        self._writes, self._steps, self._releases = tools.writes, tools.steps, tools.releases
        self._job, self._pod_sets, self._told = job, pod_sets, told

    @property
    def queue(self) -> str:
        """The queue label that all jobs have."""
        return rules.queue_name(self._job)

    @property
    def waits(self) -> bool:
        """Whether the job is suspended."""
        return self._kind.is_suspended(self._job)

    @property
    def may_move(self) -> bool:
        """Return True: the life cycle reads it only for suspended jobs, which have no pods."""
        return True

    @property
    def is_removable(self) -> bool:
        """Whether the job is suspended and has no pods."""
        return self._kind.is_suspended(self._job) and not self.busy()

    @property
    def check_again(self) -> float | None:
        """Seconds after which a job on another cluster is looked at again; None: events tell the end of all pods."""
        away = self._workloads.is_dispatched(self._job) or self._workloads.is_held(self.workload)
        return CHECK_AGAIN if away else None

    def finished(self) -> Finished | None:
        """Return the result of the job; None: it has not finished."""
        return self._kind.finished(self._job)

    def busy(self) -> bool:
        """Whether pods of the job, or of its Workload, have not ended."""
        return self._workloads.busy(self._job, [self.workload])

    def reclaimable(self) -> Mapping[str, int]:
        """Return the pods that will not run again, counted by the kind; for an elastic job, by its slices."""
        return self._slices.reclaimable(self._job, self._pod_sets, self.workload)

    def ready(self) -> bool | None:
        """Whether all pods are ready, decided by the kind; for an elastic job, by its slices; None: the job is held
        here while another cluster runs its copy, and tells nothing.
        """
        if self._workloads.is_held(self.workload):
            return None
        return self._slices.ready(self._job, self._pod_sets, self.workload)

    async def correct(self) -> bool:
        """Keep the Workload of a job on hold, and the job stopped, while the kind's own controller runs none of its
        pods.

        Pods that run nevertheless keep their quota.
        """
        if not isinstance(self._kind, ExceptionalKind):
            return False
        why, held = self._kind.on_hold(self._job), _is_on_hold(self.workload)
        if not why:
            return held and await self._steps.resume(self.workload, "The job may run again")
        if self._workloads.busy(None, [self.workload]):
            return False
        await self.stop(OwnerStop(reason=names.REASON_ON_HOLD, message=why))
        if not held:
            await self._steps.hold(self.workload, why)
        return True

    async def closed(self) -> None:
        """Stop a job that was never started, because it contradicts its admission."""
        finished = model.condition(self.workload.status.conditions, names.CONDITION_FINISHED)
        if finished is not None and finished.reason == names.REASON_FAILED_TO_START:
            message = "the job could not be started as it was admitted"
            await self._writes.stop(self._job, (), names.REASON_NOT_ADMITTED, message)

    async def stop(self, why: OwnerStop) -> None:
        """Suspend the job and restore its templates."""
        infos = infos_at_stop(as_json(self.workload))
        self._job = await self._writes.stop(self._job, infos, why.reason, why.message)

    async def finish(self, end: Finished) -> None:
        """Finish the Workload after the last pod: a kind may report an end while pods still run."""
        if self._workloads.busy(None, [self.workload]):
            return
        reason = names.REASON_SUCCEEDED if end.success else names.REASON_FAILED
        if await self._steps.finish(self.workload, reason, end.message):
            message = f"Workload {model.workload_key(self.workload)} is finished: {end.message or reason}"
            self._writes.event(self._job, reason="FinishedWorkload", message=message)

    async def give_back(self) -> None:
        """Release the quota; the reason of the eviction decides whether the job is tried again at once."""
        await self._steps.give_back(self.workload)

    async def intercept(self) -> bool:
        """Deactivate the Workload of a running job that its user has suspended.

        The job stays stopped and its quota is released until its Workload is made active again. Starting it again would
        undo the user's request.  A job that is held here while another cluster runs its copy stays suspended, too.
        """
        if self._workloads.is_held(self.workload):
            return True
        if not was_started(self._pod_sets, self.workload):
            return False
        key = model.workload_key(self.workload)
        await self._steps.amend(self.workload, {"spec": {"active": False}})
        message = f"The job was suspended by its user; set spec.active of Workload {key} to true to queue it again"
        self._writes.event(self._job, reason=names.EVENT_SUSPENDED, message=message)
        _log.info("job suspended by its user", job=job_key(self._job), workload=key)
        return True

    async def start(self) -> None:
        """Merge the additions of the admission into the templates, and resume the job."""
        infos = self._steps.infos(self.workload)
        # An interrupted stop is finished first: templates are restored before they are changed again.
        await self.stop(OwnerStop(reason=names.REASON_WORKLOAD_EVICTED, message=""))
        refused = infos if isinstance(infos, Refused) else await self._writes.start(self._job, infos)
        if refused is not None:
            await self._steps.finish(self.workload, names.REASON_FAILED_TO_START, str(refused))
            message = f"The job contradicts what it was admitted with: {refused}"
            self._writes.event(self._job, reason=names.REASON_FAILED_TO_START, message=message, warning=True)
            return
        self._releases.tell_released(self.workload, _released_with_job(self.workload))
        self._writes.event(self._job, reason=names.EVENT_STARTED, message=start_message(self.workload))
        admission = self.workload.status.admission
        queue = admission.cluster_queue if admission is not None else ""
        key = model.workload_key(self.workload)
        _log.info("job started", job=job_key(self._job), workload=key, cluster_queue=queue)

    async def wait(self) -> None:
        """Report pending checks when they change; without a reservation, hand on another profile or node class."""
        if model.condition_true(self.workload, names.CONDITION_QUOTA_RESERVED):
            message, uid = pending_checks(self.workload), self._job["metadata"]["uid"]
            if message and self._told.get(uid) != message:
                self._told[uid] = message
                self._writes.event(self._job, reason=names.EVENT_UPDATED_ADMISSION_CHECK, message=message)
        elif (profile := rules.placement_profile(self._job)) not in ("", model.profile_name(self.workload.metadata)):
            change = {"metadata": {"annotations": {names.PLACEMENT_PROFILE_ANNOTATION: profile}}}
            await self._steps.amend(self.workload, change)
        elif change := node_classes.handed_on(self._job, self.workload.metadata):
            await self._steps.amend(self.workload, change)

    async def guard(self) -> None:
        """Stop a job that runs without an admission; finish a stop that was interrupted by the admission; hand on
        what a running job says about its run.
        """
        if not model.is_admitted(self.workload):
            if not self._slices.goes_on(self._job, self._pod_sets, self.workload):
                await self.stop(OwnerStop(reason=names.REASON_NOT_ADMITTED, message="the Workload is not admitted"))
        elif self._workloads.is_held(self.workload):
            await self.stop(OwnerStop(reason=names.REASON_NOT_ADMITTED, message="another cluster runs the job"))
        elif not self._kind.suspend(self._job):  # neither suspended nor running: a stop was interrupted
            await self.stop(OwnerStop(reason=names.REASON_NOT_ADMITTED, message=""))
        elif traits := rules.newer_run_traits(self._job, self.workload.metadata.annotations):
            await self._steps.amend(self.workload, {"metadata": {"annotations": traits}})

    async def remove(self) -> None:
        """Delete the job."""
        await self._writes.delete(self._job)
        message = "Deleted the job: it was deactivated longer ago than such jobs are kept"
        self._writes.event(self._job, reason=names.EVENT_DELETED, message=message)


def _is_on_hold(workload: wire.Workload) -> bool:
    found = model.condition(workload.status.conditions, names.CONDITION_QUOTA_RESERVED)
    return found is not None and found.status == "False" and found.reason == names.REASON_ON_HOLD


def _released_with_job(workload: wire.Workload) -> int:
    """Return the number of pods that start with their job; an ungater releases pods with a place and elastic ones."""
    admission = workload.status.admission
    if admission is None or is_elastic(workload):
        return 0
    free = {a.name: a.count for a in admission.pod_set_assignments if a.topology_assignment is None}
    counts = {p.name: p.count for p in workload.spec.pod_sets}
    return sum(counts.get(name, 0) if count is None else count for name, count in free.items())
