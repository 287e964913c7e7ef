"""Keeps BatchProcesses, their Workloads, pods and Services consistent.

The Workload is made from the object, before any pod.  Once it is admitted the pods are made, gated; the reconciler of
gangs starts them together, and stops them when the Workload is evicted.  Each reconcile decides from the objects, and
ends with the status.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.controllers.batch_process_pods import BatchPods, PodRefusedError, reference
from kqueue.controllers.batch_process_status import BatchStatusWriter
from kqueue.controllers.gathering import Gathering
from kqueue.controllers.group_objects import GroupObjects, watch_group_objects
from kqueue.controllers.handlers import enqueue_all, enqueue_namespace
from kqueue.controllers.job_workload import OWNER_INDEX, owner_key
from kqueue.controllers.manager import Manager
from kqueue.controllers.namespace_queue import NamespaceQueue, namespace_queue
from kqueue.controllers.owner_context import NO_REPORTS, OwnerContext, OwnerReports
from kqueue.controllers.owner_lifecycle import OwnerStop
from kqueue.controllers.pod_tools import PodTools
from kqueue.controllers.pod_writes import PodWrites, make_pod_writes, watch_pods
from kqueue.controllers.raw import status_writer
from kqueue.controllers.resources import BATCH_PROCESSES
from kqueue.controllers.workload_steps import MissingPriorityClassError, as_json
from kqueue.errors import ApiError, NotFoundError
from kqueue.jobs import run_times
from kqueue.jobs.ancestry import controller_uid
from kqueue.jobs.fields import JSON, flag, mapping, text, whole
from kqueue.jobs.gang.batch_end import BatchEnd, end_of
from kqueue.jobs.gang.batch_life import BatchFacts, BatchSteps, next_steps
from kqueue.jobs.gang.batch_process import FRAMEWORK, KIND, BatchPlan, plan_of, problems
from kqueue.jobs.gang.batch_slots import BatchPlaces, of_batch_process, places_of
from kqueue.jobs.gang.batch_status import (
    NO_QUEUE,
    REASON_INVALID,
    BatchView,
    QueueHindrance,
    invalid_status,
    status_of,
)
from kqueue.jobs.gang.batch_workload import as_job, is_same, pod_sets_of, queue_of, spec_of, workload_name, workload_of
from kqueue.jobs.gang.key import gang_key
from kqueue.jobs.gang.value import GangRef
from kqueue.jobs.pod_view import ManagedPod, creation_of
from kqueue.jobs.workload import Priority
from kqueue.runtime.client import Propagation
from kqueue.runtime.controller import Controller, Result
from kqueue.runtime.store import Store, object_key, split_key

_log = structlog.get_logger(__name__)

_LOOK_AGAIN = 5.0
"""Seconds after which ending pods are read again: a pod on a node that is gone ends without an event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchNow:
    """A valid BatchProcess with its Workload and pods, as one reconcile sees them."""

    key: str
    obj: JSON
    plan: BatchPlan
    queue: str
    workload: wire.Workload | None
    places: BatchPlaces
    foreign: bool
    """Whether pods of an earlier object of the same name are left."""

    @property
    def told(self) -> JSON | None:
        """The Workload as JSON."""
        return as_json(self.workload) if self.workload is not None else None


class BatchProcessReconciler:
    """The reconciler of BatchProcesses.  Keys are namespace/name."""

    def __init__(
        self,
        context: OwnerContext,
        *,
        writes: PodWrites,
        pods: BatchPods,
        statuses: BatchStatusWriter,
        default_queue: Callable[[str], NamespaceQueue],
        objects: GroupObjects,
        reports: OwnerReports = NO_REPORTS,
    ) -> None:
        """`default_queue` returns the queue that a namespace gives."""
        self._objects = objects
        policy = context.policy
        self._client, self._writes, self._pods, self._statuses = context.client, writes, pods, statuses
        self._book, self._steps, self._workloads = context.book, context.steps, context.workloads
        self._manages, self._recorder, self._clock = context.manages, context.recorder, context.clock
        self._switches, self._copied, self._fast = policy.switches, policy.copied, policy.fast_release
        self._default_queue, self._reports = default_queue, reports
        self._tools = PodTools(context, writes=writes, reports=reports)

    async def reconcile(self, key: str) -> Result:
        """Take the next steps for one BatchProcess."""
        obj = self._statuses.newest(key)
        if obj is None:
            return await self._leave(key)
        if not self._manages(split_key(key)[0]):
            return Result()
        mistakes = problems(obj)
        if mistakes:
            hindrance = QueueHindrance(REASON_INVALID, "; ".join(str(mistake) for mistake in mistakes))
            await self._statuses.write(key, lambda now: invalid_status(now, hindrance, self._clock.now()))
            return Result()
        return await self._follow(self._look(key, obj))

    def _look(self, key: str, obj: JSON) -> BatchNow:
        namespace, name = split_key(key)
        plan = plan_of(obj)
        members = self._writes.members(gang_key(FRAMEWORK, namespace, name))
        mine = of_batch_process(members, obj)
        of_namespace, has_default = self._default_queue(namespace)
        workload = self._book.newest(f"{namespace}/{workload_name(obj, self._switches)}")
        return BatchNow(
            key=key,
            obj=obj,
            plan=plan,
            queue=queue_of(obj, of_namespace=of_namespace, has_default=has_default),
            workload=workload if workload is not None and _is_controlled(workload, obj) else None,
            places=places_of(mine, plan),
            foreign=len(mine) < len(members),
        )

    async def _follow(self, now: BatchNow) -> Result:
        end = self._end(now)
        if end is not None and not end.written:
            await self._write_status(now, end)
            return Result()  # its event comes back, and pods are removed for the end that is written
        hindrance = await self._hindrance(now)
        same = now.told is None or is_same(now.obj, now.told, queue=now.queue, switches=self._switches)
        steps = next_steps(
            BatchFacts(
                obj=now.obj,
                plan=now.plan,
                workload=now.told,
                places=now.places,
                now=self._clock.now(),
                pending=self._pods.pending(text(now.obj, "metadata", "uid")),
                ready=hindrance is None and not now.foreign,
                same=same or not now.queue,
                end=end,
                fast=self._fast,
            )
        )
        try:
            hindrance = await self._take(now, steps) or hindrance
        except PodRefusedError as e:
            await self._write_status(now, self._end(now, refusal=str(e)))
            return Result()
        wait = await self._write_status(now, end, hindrance)
        return self._result(steps, wait)

    def _end(self, now: BatchNow, *, refusal: str = "") -> BatchEnd | None:
        return end_of(now.obj, now.plan, now.told, now.places, self._clock.now(), refusal=refusal)

    def _result(self, steps: BatchSteps, wait: float | None) -> Result:
        waits = [wait] if wait is not None else []
        if steps.again is not None:
            waits.append(max(0.0, (steps.again - self._clock.now()).total_seconds()))
        if steps.stop or steps.drop:
            waits.append(_LOOK_AGAIN)
        return Result(requeue_after=min(waits, default=None))

    # --- why there is no Workload

    async def _hindrance(self, now: BatchNow) -> QueueHindrance | None:
        """Return why no Workload can be created; None: it exists, or can be."""
        if now.workload is not None or flag(now.obj, "spec", "suspend") or _is_deleting(now.obj):
            return None
        if not now.queue:
            return NO_QUEUE
        refusal = await self._pods.refusal(now.obj, now.plan, queue=now.queue)
        return QueueHindrance(REASON_INVALID, refusal) if refusal else None

    # --- steps

    async def _take(self, now: BatchNow, steps: BatchSteps) -> QueueHindrance | None:
        """Take the steps; return why the Workload could not be created."""
        await self._tools.stop(steps.stop, OwnerStop(reason=steps.cause, message=steps.why))
        await self._tools.delete(steps.drop, "its BatchProcess has no admission", names.EVENT_DELETED)
        await self._writes.let_go_all(steps.release)
        if now.workload is not None:
            await self._take_with_workload(now, now.workload, steps)
        elif steps.create and await self._may_create(now):
            return await self._create(now)
        if steps.delete:
            await self._delete(now)
        return None

    async def _take_with_workload(self, now: BatchNow, workload: wire.Workload, steps: BatchSteps) -> None:
        if workload.metadata.deletion_timestamp is not None and not now.places.pods:
            await self._steps.release(workload)  # the reconciler of gangs sees no member
            return
        if steps.finish is not None:
            reason = names.REASON_SUCCEEDED if steps.finish.success else names.REASON_FAILED
            await self._steps.finish(workload, reason, steps.finish.message)
        if steps.active is not None:
            await self._steps.amend(workload, {"spec": {"active": steps.active}})
        if steps.limit:
            seconds = whole(now.obj, "spec", "activeDeadlineSeconds")
            await self._steps.amend(workload, {"spec": {"maximumExecutionTimeSeconds": seconds}})
        if not model.condition_true(workload, names.CONDITION_FINISHED):
            await self._steps.follow_run_time(workload, run_times.expected_trait(now.obj))
        if steps.give_back:
            await self._steps.give_back(workload)
        if steps.follow:
            await self._rewrite(now, workload)
        if steps.service:
            await self._pods.ensure_service(now.obj, expected=bool(now.places.pods))
        if steps.make:
            queue = workload.spec.queue_name or now.queue
            await self._pods.create(now.obj, now.plan, steps.make, queue=queue)

    async def _may_create(self, now: BatchNow) -> bool:
        namespace, name = split_key(now.key)
        ref = GangRef(framework=FRAMEWORK, namespace=namespace, name=name)
        return await self._objects.may_own(ref, text(now.obj, "metadata", "uid"))

    async def _create(self, now: BatchNow) -> QueueHindrance | None:
        try:
            priority = self._priority(now)
        except MissingPriorityClassError as e:
            return QueueHindrance(REASON_INVALID, str(e))
        made = workload_of(now.obj, queue=now.queue, priority=priority, switches=self._switches, copied=self._copied)
        try:
            created = await self._steps.create(made)
        except ApiError as e:
            message = f"The API server does not take the Workload: {e}"
            self._event(now.obj, names.EVENT_ERR_WORKLOAD_COMPOSE, message, warning=True)
            raise
        if created:
            self._reports.created(max(0.0, (self._clock.now() - creation_of(now.obj)).total_seconds()))
            message = f"Created Workload {object_key(split_key(now.key)[0], made['metadata']['name'])}"
            self._event(now.obj, names.EVENT_CREATED_WORKLOAD, f"{message}; it waits for admission")
        return None

    def _priority(self, now: BatchNow) -> Priority:
        """Return the priority of the Workload.

        Raises:
            MissingPriorityClassError: the object names a class that does not exist; an event reports it.
        """
        try:
            return self._steps.priority_of(as_job(now.obj, now.queue), pod_sets_of(now.obj, self._switches))
        except MissingPriorityClassError as e:
            self._event(now.obj, e.reason, str(e), warning=True)
            raise

    async def _rewrite(self, now: BatchNow, workload: wire.Workload) -> None:
        """Make the Workload like the object; with a reservation only its queue may differ."""
        if model.condition_true(workload, names.CONDITION_QUOTA_RESERVED):
            await self._steps.follow_queue(workload, now.queue, noun="The BatchProcess")
            return
        spec = spec_of(now.obj, queue=now.queue, priority=self._priority(now), switches=self._switches)
        if await self._steps.rewrite(workload, spec):
            message = f"Updated Workload {model.workload_key(workload)}"
            self._event(now.obj, names.EVENT_UPDATED_WORKLOAD, message)

    async def _delete(self, now: BatchNow) -> None:
        namespace, name = split_key(now.key)
        uid = text(now.obj, "metadata", "uid")
        try:
            await self._client.delete(BATCH_PROCESSES, name, namespace, uid=uid, propagation=Propagation.BACKGROUND)
        except NotFoundError:
            return
        _log.info("batch process deleted after its time", batch_process=now.key)

    async def _leave(self, key: str) -> Result:
        """Let go of the pods of a BatchProcess that is gone; the garbage collector deletes them."""
        namespace, name = split_key(key)
        members = self._writes.members(gang_key(FRAMEWORK, namespace, name))
        gated = [pod for pod in members if pod.gated]
        message = f"BatchProcess {name} is gone"
        await self._tools.delete([pod for pod in gated if not pod.deleting], message, names.EVENT_DELETED)
        now = self._clock.now()
        ended = [pod for pod in members if pod.terminated or (pod.deleting and not pod.active(now, fast=self._fast))]
        await self._writes.let_go_all(ended)
        index = owner_key(KIND.group, KIND.kind, namespace, name)
        for workload in self._workloads.by_index(OWNER_INDEX, index) if len(ended) == len(members) else ():
            if workload.metadata.deletion_timestamp is not None:
                await self._steps.release(workload)
        return Result(requeue_after=_LOOK_AGAIN) if len(ended) < len(members) else Result()

    # --- reports

    async def _write_status(
        self, now: BatchNow, end: BatchEnd | None, hindrance: QueueHindrance | None = None
    ) -> float | None:
        def wanted(obj: JSON) -> JSON:
            view = BatchView(
                obj=obj,
                plan=now.plan,
                workload=now.told,
                places=now.places,
                now=self._clock.now(),
                hindrance=hindrance,
                end=end,
                service=self._pods.service_of(obj),
            )
            return status_of(view)

        return await self._statuses.write(now.key, wanted)

    def _event(self, obj: JSON, reason: str, message: str, *, warning: bool = False) -> None:
        self._recorder.record(reference(obj), reason=reason, message=message, warning=warning)


def _is_controlled(workload: wire.Workload, obj: JSON) -> bool:
    uid = text(obj, "metadata", "uid")
    return any(owner.controller and owner.uid == uid for owner in workload.metadata.owner_references)


def _is_deleting(obj: JSON) -> bool:
    return bool(mapping(obj, "metadata").get("deletionTimestamp"))


# --- the watches ------------------------------------------------------------------------------------------------------


def setup(manager: Manager) -> None:
    """Add the reconciler of BatchProcesses, where their dialect is on."""
    watch, writes = manager.shared(watch_pods), manager.shared(make_pod_writes)
    if watch is None or writes is None or FRAMEWORK not in manager.switches.gangs:
        return
    store = manager.shared(watch_group_objects).store(BATCH_PROCESSES)
    if store is None:
        return
    context = manager.owner_context(FRAMEWORK)
    pods = BatchPods(context, writes)
    reconciler = BatchProcessReconciler(
        context,
        writes=writes,
        pods=pods,
        statuses=BatchStatusWriter(
            status_writer(manager.client, BATCH_PROCESSES, store),
            context.recorder,
            manager.clock,
            window=manager.timings.status_refresh_window,
        ),
        default_queue=lambda namespace: namespace_queue(manager, namespace),
        objects=manager.shared(watch_group_objects),
        reports=OwnerReports(
            created=lambda seconds: manager.metrics.workload_created(job_kind=KIND.kind, seconds=seconds),
            started=manager.counter.on_started,
        ),
    )
    _subscribe(manager, store, manager.controller("batch_process", reconciler.reconcile, workers=8), pods)


def _subscribe(manager: Manager, store: Store[JSON], controller: Controller, pods: BatchPods) -> None:
    """Enqueue a BatchProcess at its own events, and at those of its Workload and pods and of what they refer to."""
    watch, watches = manager.shared(watch_pods), manager.watches
    gathering = Gathering(controller.enqueue, manager.clock)

    def on_object(old: JSON | None, new: JSON | None) -> None:
        metadata = mapping(new if new is not None else old, "metadata")
        controller.enqueue(object_key(text(metadata, "namespace"), text(metadata, "name")))

    def on_pod(old: ManagedPod | None, new: ManagedPod | None) -> None:
        for pod in filter(None, (old, new)):
            ref = GangRef.of_key(pod.group) if pod.group else None
            if ref is not None and ref.framework == FRAMEWORK:
                pods.seen(controller_uid(pod.obj), pod.name)
                gathering.add(object_key(ref.namespace, ref.name))

    def on_workload(old: wire.Workload | None, new: wire.Workload | None) -> None:
        for seen in filter(None, (old, new)):
            for owner in seen.metadata.owner_references:
                if owner.controller and owner.kind == KIND.kind:
                    controller.enqueue(object_key(seen.metadata.namespace, owner.name))

    def on_queue(old: wire.LocalQueue | None, new: wire.LocalQueue | None) -> None:
        if (old is None or new is None) and (seen := new if new is not None else old) is not None:
            for key in list(store):
                if split_key(key)[0] == seen.metadata.namespace:
                    controller.enqueue(key)

    store.subscribe(on_object)
    if watch is not None:
        watch.subscribe(on_pod)
    watches.workloads.subscribe(on_workload)
    watches.local_queues.subscribe(on_queue)
    watches.namespaces.subscribe(enqueue_namespace(controller, store))
    watches.workload_priorities.subscribe(enqueue_all(controller, store))
    watches.priority_classes.subscribe(enqueue_all(controller, store))
