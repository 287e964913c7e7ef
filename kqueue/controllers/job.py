"""Keeps a job and its Workload consistent: one Workload per queued job, started when admitted, stopped when evicted.

Every reconcile reads the present objects and takes the next step, so a controller that is killed at any point continues
where it stopped.  Between reconciles it stores only its own writes that the watch has not reported yet, and waits for
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import structlog
from cachetools import TTLCache

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.controllers.elastic_ungater import make_elastic_ungater
from kqueue.controllers.handlers import enqueue_all, enqueue_namespace, if_changed
from kqueue.controllers.job_owner import JobOwner, JobTools
from kqueue.controllers.job_slices import JobSlices
from kqueue.controllers.job_workload import OWNER_INDEX, JobWorkload, is_owner, owner_key, owner_keys
from kqueue.controllers.job_writes import JobWrites, job_key
from kqueue.controllers.manager import Manager
from kqueue.controllers.others import completer, enqueue_readers
from kqueue.controllers.owned_jobs import CHILD_OF
from kqueue.controllers.owner_context import OwnerContext, OwnerReports
from kqueue.controllers.owner_lifecycle import OwnerLifecycle
from kqueue.controllers.owners import Owners, make_owners
from kqueue.controllers.ranks import owner_rank
from kqueue.controllers.workload_steps import as_json
from kqueue.errors import InvalidObjectError
from kqueue.jobs import rules
from kqueue.jobs.ancestry import (
    Ancestor,
    AncestryError,
    MissingOwnerError,
    controller_kind,
    controller_name,
    makes,
)
from kqueue.jobs.infos import infos_at_stop
from kqueue.jobs.job import BatchJob
from kqueue.jobs.kind import ExceptionalKind, JobKind
from kqueue.jobs.switches import JobFeatures
from kqueue.model import PodView
from kqueue.runtime.controller import Controller, Result
from kqueue.runtime.store import Store, split_key
from kqueue.runtime.workqueue import KeyRank

_log = structlog.get_logger(__name__)

JSON = dict[str, Any]
_PREBUILT = "prebuilt"
"""Index of jobs by the name of their prebuilt Workload."""
_UNSEEN_SECONDS = 30.0
"""The seconds between reads of a job that the watch does not report, because it no longer names a queue."""
_MISSING_SECONDS = 60.0
"""The seconds between reads of a missing prebuilt Workload, in addition to its own events."""


class JobReconciler:
    """Reconciles the jobs of one kind."""

    def __init__(
        self,
        context: OwnerContext,
        *,
        kind: JobKind,
        jobs: Sequence[Store[JSON]],
        workload: JobWorkload,
        slices: JobSlices,
        writes: JobWrites,
        owners: Owners,
    ) -> None:
        """Take the context and the parts; `jobs`: the stores of the kind's watches, in the order in which a job is
        looked up.
        """
        policy = context.policy
        self.kind, self._lifecycle = kind, OwnerLifecycle(context)
        self._jobs, self._workload, self._writes, self._steps = tuple(jobs), workload, writes, context.steps
        self._slices = slices
        self._tools = JobTools(
            kind=kind,
            workloads=workload,
            slices=slices,
            writes=writes,
            steps=context.steps,
            releases=context.releases,
        )
        self._owners, self._manages, self._manages_all = owners, context.manages, policy.without_queue
        self._switches, self._echo_timeout = policy.switches, policy.echo_timeout
        self._dispatches = policy.dispatches
        self._told: TTLCache[str, str] = TTLCache(10_000, 3600.0, context.clock.monotonic)
        """The last reported message of admission checks, by job UID."""

    async def reconcile(self, key: str) -> Result:
        """Take the next step for one job."""
        job = next((found for store in self._jobs if (found := store.get(key)) is not None), None)
        if job is not None and not job["metadata"].get("deletionTimestamp"):
            return await self._look(self._writes.complete(job))
        owned = self._workload.owned(key)
        if not owned:
            return Result()
        now = await self._writes.fetch(key)
        alive = now is not None and not now["metadata"].get("deletionTimestamp")
        left = [w for w in owned if now is None or not alive or not is_owner(now, w)]
        await self._end(key, left)
        if now is None or not alive or len(left) == len(owned):
            return Result()
        if job is None and not (rules.queue_name(now) or self._manages_all):
            await self._look(now)  # its label was removed, so the watch no longer has it
        return Result(requeue_after=_UNSEEN_SECONDS)

    async def _look(self, job: JSON) -> Result:
        if self._writes.is_old(job):
            return Result(requeue_after=self._echo_timeout)
        ancestor = await self._ancestor(job)
        if not self._manages(job["metadata"]["namespace"]):
            await self._let_go(job)
        elif ancestor is not None:
            await self._follow_ancestor(job, ancestor)
            await self._let_go(job)
        elif not (rules.queue_name(job) or self._manages_all) or self._is_skipped(job) or self._is_dispatched(job):
            await self._let_go(job)
        else:
            return await self._step(job)
        return Result()

    def _is_skipped(self, job: JSON) -> bool:
        return isinstance(self.kind, ExceptionalKind) and self.kind.is_skipped(job)

    def _is_dispatched(self, job: JSON) -> bool:
        """Whether another cluster must run the job, and no controller here sends it there."""
        if self._dispatches or self.kind.managed_by(job) != names.MULTIKUEUE_CONTROLLER:
            return False
        message = f"{names.MULTIKUEUE_CONTROLLER} is to run the job, and does not run here: name it in "
        message += "admissionChecks.controllers, or clear the job's managedBy"
        self._writes.event(job, reason="Unsupported", message=message, warning=True)
        return True

    # --- ancestors --------------------------------------------------------------------------------------------

    async def _ancestor(self, job: JSON) -> Ancestor | None:
        try:
            lineage = await self._owners.lineage(job, (self.kind.gvk.group, self.kind.gvk.kind))
        except MissingOwnerError as e:
            _log.info("owner not found", job=job_key(job), error=str(e))
            raise
        except AncestryError as e:
            self._writes.event(job, reason=e.reason, message=str(e), warning=True)
            raise
        if lineage.forged:
            message = f"{lineage.forged}, which is said to control this, makes no such object: it is queued for itself"
            self._writes.event(job, reason="OwnerNotBelieved", message=message, warning=True)
        return lineage.ancestor

    async def _follow_ancestor(self, job: JSON, ancestor: Ancestor) -> None:
        """Suspend a child job while its ancestor is not admitted; its parent resumes it."""
        if self.kind.finished(job) is not None or not (patch := self.kind.suspend(job)):
            return
        if self._may_run(job, ancestor):
            return
        await self._writes.patch(job, patch)
        owner = f"{ancestor.gvk.kind} {ancestor.namespace}/{ancestor.name}"
        self._writes.event(job, reason=names.EVENT_SUSPENDED, message=f"{owner}, which it belongs to, is not admitted")

    def _may_run(self, job: JSON, ancestor: Ancestor) -> bool:
        of = owner_key(ancestor.gvk.group, ancestor.gvk.kind, ancestor.namespace, ancestor.name)
        unfinished = [
            w
            for w in self._workload.owned_by(of)
            if not model.condition_true(w, names.CONDITION_FINISHED)
            and any(o.uid == ancestor.uid for o in w.metadata.owner_references)
        ]
        newest = max(unfinished, key=lambda w: (str(w.metadata.creation_timestamp), w.metadata.name), default=None)
        if newest is None:
            return False
        if self._switches.elastic_jobs and (ancestor.elastic or rules.is_elastic(job, self._switches)):
            return not model.condition_true(newest, names.CONDITION_EVICTED)
        return model.condition_true(newest, names.CONDITION_ADMITTED)

    # --- jobs that are no longer queued ---------------------------------------------------------------------------

    async def _let_go(self, job: JSON) -> None:
        """Handle a job that is no longer queued, or is not valid: running Workloads keep their quota to their end, all
        others are deleted.
        """
        for workload in self._workload.owned(job_key(job)):
            if not is_owner(job, workload):
                await self._end(job_key(job), [workload])
            elif model.condition_true(workload, names.CONDITION_FINISHED):
                await self._steps.release(workload)
            elif (end := self.kind.finished(job)) is not None:
                await self._owner(job, (), workload).finish(end)
            elif self._runs(job, workload):
                await self._steps.report(
                    workload, reclaimable=self.kind.reclaimable(job), ready=self.kind.pods_ready(job)
                )
            else:
                await self._take_back(job, workload)

    def _runs(self, job: JSON, workload: wire.Workload) -> bool:
        """Whether kqueue started the job, and its Workload is neither evicted nor being deleted."""
        return (
            not self.kind.is_suspended(job)
            and model.condition_true(workload, names.CONDITION_ADMITTED)
            and not model.condition_true(workload, names.CONDITION_EVICTED)
            and workload.metadata.deletion_timestamp is None
        )

    async def _take_back(self, job: JSON, workload: wire.Workload) -> None:
        """Delete the Workload, after a stop if one was begun.  A job that its user runs without kqueue keeps
        running.
        """
        evicted = model.condition_true(workload, names.CONDITION_EVICTED)
        if evicted or workload.metadata.deletion_timestamp is not None or not self.kind.suspend(job):
            job = await self._writes.stop(job, infos_at_stop(as_json(workload)), "NotQueued", "the job is not queued")
            if self._workload.busy(job, [workload]):
                return
        if workload.metadata.name != rules.prebuilt_name(job, self._switches):
            await self._workload.delete(job, [workload], "because the job is not queued any more")
        elif evicted:
            await self._steps.give_back(workload)
        elif model.condition_true(workload, names.CONDITION_QUOTA_RESERVED):
            await self._steps.unreserve(workload, "The job is not queued")

    # --- one step ----------------------------------------------------------------------------------------------

    async def _step(self, job: JSON) -> Result:
        try:
            pod_sets = self.kind.pod_sets(job, self._switches)
        except InvalidObjectError as e:
            self._writes.event(job, reason="InvalidJob", message=str(e), warning=True)
            await self._let_go(job)
            raise
        if self._slices.concerns(job):
            settled = await self._slices.settle(job, pod_sets)
            if settled.acted:
                return Result()
            workload = settled.workload
        else:
            workload = await self._workload.find(job, pod_sets)
        await self._end_pods_without_quota(job)
        if workload is None:
            return await self._without_workload(job, pod_sets)
        if not self._slices.concerns(job) and await self._workload.follow(job, pod_sets, workload):
            return Result()
        return await self._lifecycle.step(self._owner(job, pod_sets, workload))

    def _owner(self, job: JSON, pod_sets: Sequence[JSON], workload: wire.Workload) -> JobOwner:
        return JobOwner(self._tools, job, pod_sets, workload, told=self._told)

    async def _end_pods_without_quota(self, job: JSON) -> None:
        """End the pods of a job without quota that was started by hand, without their own grace period."""
        if not self.kind.active(job) or self.kind.finished(job) is not None:
            return
        owned = self._workload.owned(job_key(job))
        paid = (names.CONDITION_QUOTA_RESERVED, names.CONDITION_FINISHED)
        if not any(model.condition_true(w, kind) for w in owned for kind in paid):
            await self._writes.end_pods(job)

    async def _without_workload(self, job: JSON, pod_sets: Sequence[JSON]) -> Result:
        prebuilt = rules.prebuilt_name(job, self._switches)
        if self.kind.finished(job) is not None:
            return Result()  # the job finished without kqueue
        owned = self._workload.owned(job_key(job))
        if owned and not prebuilt and not self._slices.concerns(job):
            return Result()  # an old Workload is being deleted: its end requeues the job
        if self._workload.just_made(job):
            return Result(requeue_after=self._echo_timeout)
        if not self.kind.is_suspended(job):
            await self._writes.stop(job, (), "NoMatchingWorkload", "the job has no Workload yet")
            return Result()
        if prebuilt:
            return Result(requeue_after=_MISSING_SECONDS)
        if not self._workload.busy(job, ()):
            await self._workload.make(job, pod_sets)
        return Result()

    # --- the end -----------------------------------------------------------------------------------------------

    async def _end(self, key: str, left_behind: Sequence[wire.Workload]) -> None:
        """End the Workloads of a job that is gone or being deleted, after their pods have ended."""
        if self._workload.busy(None, left_behind):
            return
        name = split_key(key)[1]
        for workload in left_behind:
            if not model.condition_true(workload, names.CONDITION_FINISHED):
                message = f"{self.kind.gvk.kind} {name} is gone"
                await self._steps.finish(workload, names.REASON_OWNER_NOT_FOUND, message)
            await self._steps.release(workload)


def setup(manager: Manager) -> None:
    """Add one reconciler for each enabled job kind."""
    for kind in manager.kinds:
        _setup_kind(manager, kind)


def _setup_kind(manager: Manager, kind: JobKind) -> None:
    watches = manager.watches
    seen = [watches.jobs[kind.framework]]
    if kind.framework == BatchJob.framework:
        seen += watches.child_jobs.values()
    stores = [watch.store for watch in seen]
    reconciler = _make_reconciler(manager, kind, stores)
    controller = manager.controller(
        kind.framework.replace("/", "_"),
        reconciler.reconcile,
        workers=16,
        group_kind=f"{kind.gvk.kind}.{kind.gvk.group}",
        rank_of=partial(_rank, manager.watches.workloads.store, kind, stores),
    )
    for store in stores:
        store.add_index(_PREBUILT, lambda job: _prebuilt_keys(job, manager.switches))
    _subscribe(manager, kind, stores, controller)


def _make_reconciler(manager: Manager, kind: JobKind, stores: Sequence[Store[JSON]]) -> JobReconciler:
    context = manager.owner_context(kind.framework)
    writes = JobWrites(
        kind=kind,
        client=manager.client,
        recorder=context.recorder,
        clock=manager.clock,
        short_stop=manager.short_stop,
        echo_timeout=context.policy.echo_timeout,
        complete=completer(kind, manager.watches.read_by(kind)),
    )
    workload = JobWorkload(
        context,
        kind=kind,
        writes=writes,
        pods_left=manager.pods_left,
        reports=OwnerReports(
            created=lambda seconds: manager.metrics.workload_created(job_kind=kind.gvk.kind, seconds=seconds)
        ),
    )
    slices = JobSlices(
        kind=kind,
        workload=workload,
        steps=context.steps,
        writes=writes,
        standing=manager.shared(make_elastic_ungater).standing,
        switches=manager.switches,
    )
    return JobReconciler(
        context,
        kind=kind,
        jobs=stores,
        workload=workload,
        slices=slices,
        writes=writes,
        owners=manager.shared(make_owners),
    )


def _rank(workloads: Store[wire.Workload], kind: JobKind, stores: Sequence[Store[JSON]], key: str) -> KeyRank:
    """Return the rank of a job in the work queue of the reconciler."""
    job = next((job for job in (store.get(key) for store in stores) if job is not None), None)
    owner = owner_key(kind.gvk.group, kind.gvk.kind, *split_key(key))
    return owner_rank(
        workloads.by_index(OWNER_INDEX, owner),
        ended=job is None or kind.finished(job) is not None,
        held_back=job is not None and kind.is_suspended(job),
    )


def _subscribe(manager: Manager, kind: JobKind, stores: Sequence[Store[JSON]], jobs: Controller) -> None:
    """Enqueue a job at its own events, and at events of all objects on which its next step depends."""
    watches, elastic = manager.watches, manager.shared(make_elastic_ungater)

    def on_job(old: JSON | None, new: JSON | None) -> None:
        meta = (new if new is not None else old or {})["metadata"]
        jobs.enqueue(f"{meta['namespace']}/{meta['name']}")

    def enqueue_owners(workload: wire.Workload) -> None:
        for owner in owner_keys(workload):
            group, owner_kind, namespace, name = owner.split("/")
            if (group, owner_kind) == (kind.gvk.group, kind.gvk.kind):
                jobs.enqueue(f"{namespace}/{name}")

    def on_workload(old: wire.Workload | None, new: wire.Workload | None) -> None:
        for workload in filter(None, (old, new)):
            enqueue_owners(workload)
        seen = new if new is not None else old
        assert seen is not None
        for key in _related(seen, stores):
            jobs.enqueue(key)

    def on_pod(old: PodView | None, new: PodView | None) -> None:
        """Enqueue the job after the last pod of a Workload has ended, so that its quota is released; for an elastic
        job, after each pod.
        """
        held = old.workload if old is not None else ""
        if not held or (new is not None and new.workload == held):
            return
        if old is not None and old.elastic is not None:
            for workload in elastic.slices(held):
                enqueue_owners(workload)
            return
        only = watches.workloads.store.get(held)
        if only is not None and not manager.pods_left(held):
            enqueue_owners(only)

    on_class = enqueue_all(jobs, *stores)
    for child in manager.kinds:
        if isinstance(child, ExceptionalKind) and makes(
            (kind.gvk.group, kind.gvk.kind), (child.gvk.group, child.gvk.kind)
        ):
            watches.jobs[child.framework].subscribe(after_clean_up(kind, child, manager.switches, jobs.enqueue))
    for store in stores:
        store.subscribe(on_job)
        enqueue_readers(kind, store, watches.read_by(kind), jobs.enqueue)
    watches.workloads.subscribe(on_workload)
    watches.pods.subscribe(on_pod)
    watches.workload_priorities.subscribe(on_class)
    watches.priority_classes.subscribe(on_class)
    watches.flavors.subscribe(if_changed(on_class))
    watches.namespaces.subscribe(enqueue_namespace(jobs, *stores))


def after_clean_up(
    kind: JobKind, child: ExceptionalKind, switches: JobFeatures, enqueue: Callable[[str], object]
) -> Callable[[JSON | None, JSON | None], None]:
    """Return a handler that enqueues the job above an object that has cleaned up, so that its quota is released."""

    def on_child(old: JSON | None, new: JSON | None) -> None:
        if old is None or not child.cleans_up(old, switches) or (new is not None and child.cleans_up(new, switches)):
            return
        if controller_kind(old) == (kind.gvk.group, kind.gvk.kind):
            enqueue(f"{old['metadata']['namespace']}/{controller_name(old)}")

    return on_child


def _related(workload: wire.Workload, stores: Sequence[Store[JSON]]) -> Iterator[str]:
    """Return the keys of the jobs that name the Workload as prebuilt, and of the Jobs that its owner has created."""
    meta = workload.metadata
    parents = [owner.uid for owner in meta.owner_references if owner.controller]
    for store in stores:
        yield from store.keys_by_index(_PREBUILT, f"{meta.namespace}/{meta.name}")
        for uid in parents:
            yield from store.keys_by_index(CHILD_OF, uid)


def _prebuilt_keys(job: JSON, switches: JobFeatures) -> list[str]:
    name = rules.prebuilt_name(job, switches)
    return [f"{job['metadata']['namespace']}/{name}"] if name else []
