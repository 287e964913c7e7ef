"""Keeps a StatefulSet's Workload and pods consistent with it: the Workload is prebuilt, and on hold at 0 replicas.

The reconciler of pod groups starts and stops the pods, which are a group with its own Workload.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import structlog
from cachetools import TTLCache

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.controllers.handlers import enqueue_all, enqueue_namespace
from kqueue.controllers.manager import Manager
from kqueue.controllers.owner_context import NO_REPORTS, OwnerContext, OwnerReports
from kqueue.controllers.pod_writes import PodWrites, make_pod_writes, watch_pods
from kqueue.controllers.record import ObjectReference
from kqueue.controllers.resources import resource_of
from kqueue.controllers.watches import queued
from kqueue.controllers.workload_steps import JSON, MissingPriorityClassError, as_json
from kqueue.errors import NotFoundError
from kqueue.jobs import composed as plan
from kqueue.jobs import rules
from kqueue.jobs.catalog import REVIEWED
from kqueue.jobs.composed import Next
from kqueue.jobs.fields import labels_of, mapping, objects, text
from kqueue.jobs.gang import counts
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.stateful_set import FRAMEWORK, GVK, is_ours, replicas
from kqueue.jobs.workload import Priority
from kqueue.runtime.controller import Result
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.store import Store, split_key

_log = structlog.get_logger(__name__)

OWNER_UID_INDEX, OWNER_NAME_INDEX = "stateful set", "stateful set"
"""Indexes: of pods, by the UID of their controller; of Workloads, by namespace/name of their StatefulSet."""
STATEFUL_SETS = ResourceType(GVK.group, GVK.version, "statefulsets", GVK.kind)
EVENT_REPLICAS_DIFFER = "ReplicasDiffer"
EVENT_WORKLOAD_OVER = "WorkloadOver"
_LOOK_AGAIN = 5.0
"""Seconds until ending pods are read again: a pod on a node that is gone stops counting without an event."""
_QUIET = 600.0


def owner_uids(pod: ManagedPod) -> list[str]:
    """Return the index values of a pod: the UID of the StatefulSet that controls it."""
    return [text(owner, "uid") for owner in _stateful_sets(pod.obj) if owner.get("controller") is True]


def owner_names(pod: ManagedPod) -> list[str]:
    """Return the names of the StatefulSet that controls a pod: one, or none."""
    return [text(owner, "name") for owner in _stateful_sets(pod.obj) if owner.get("controller") is True]


def owner_keys(workload: wire.Workload) -> list[str]:
    """Return the index values of a Workload: namespace/name of the StatefulSets for which it was created."""
    return [
        f"{workload.metadata.namespace}/{owner.name}"
        for owner in workload.metadata.owner_references
        if owner.kind == GVK.kind and owner.api_version.partition("/")[0] == GVK.group
    ]


def _stateful_sets(obj: JSON) -> list[JSON]:
    owners = objects(obj, "metadata", "ownerReferences")
    return [dict(o) for o in owners if o.get("kind") == GVK.kind and text(o, "apiVersion").startswith(f"{GVK.group}/")]


def _is_open(workload: wire.Workload) -> bool:
    """Whether the Workload is neither finished nor being deleted."""
    return workload.metadata.deletion_timestamp is None and not model.condition_true(workload, names.CONDITION_FINISHED)


class StatefulSetReconciler:
    """The reconciler of all StatefulSets that are queued."""

    def __init__(
        self,
        context: OwnerContext,
        *,
        stateful_sets: Store[JSON],
        pods: Store[ManagedPod],
        pod_writes: PodWrites,
        reports: OwnerReports = NO_REPORTS,
    ) -> None:
        policy = context.policy
        self._client, self._workloads = context.client, context.workloads
        self._stateful_sets, self._pods, self._pod_writes = stateful_sets, pods, pod_writes
        self._writer, self._steps = context.book, context.steps
        self._manages, self._recorder = context.manages, context.recorder
        self._switches, self._clock, self._copied = policy.switches, context.clock, policy.copied
        self._without_queue, self._fast_release = policy.without_queue, policy.fast_release
        self._on_created = reports.created
        self._told: TTLCache[tuple[str, str], str] = TTLCache(10_000, _QUIET, context.clock.monotonic)
        pods.add_index(OWNER_UID_INDEX, owner_uids)
        context.workloads.add_index(OWNER_NAME_INDEX, owner_keys)

    async def reconcile(self, key: str) -> Result:
        """Take the next step for one StatefulSet."""
        found = self._stateful_sets.get(key)
        if found is None or not self._is_ours(key, found):
            return await self._let_go(key)
        if mapping(found, "metadata").get("deletionTimestamp"):
            return Result()  # the garbage collector deletes pods and Workload
        if not plan.is_marked(found):
            return Result()  # an ancestor is queued, or no webhook has reviewed it: kqueue gates none of its pods
        pods = self._members(found)
        workload = self._workload(key, found)
        await self._pod_writes.each(plan.outdated(found, pods), self._pod_writes.delete)
        if workload is not None and _is_open(workload) and replicas(found) > 0:
            told = as_json(workload)

            async def stamp(pod: ManagedPod) -> None:
                await self._pod_writes.patch(pod, plan.stamp(pod, found, told, self._switches))

            await self._pod_writes.each(pods, stamp)
        return await self._step(found, workload, runs=self._runs(pods))

    def _is_ours(self, key: str, found: JSON) -> bool:
        named = bool(rules.queue_name(found)) or self._without_queue
        return named and is_ours(found) and self._manages(split_key(key)[0])

    async def _let_go(self, key: str) -> Result:
        """Handle a StatefulSet that is gone or no longer queued: its usage stays charged until its last pod has
        ended.
        """
        keys = self._workloads.keys_by_index(OWNER_NAME_INDEX, key)
        held = [workload for k in sorted(keys) if (workload := self._writer.newest(k)) is not None]
        if not any(map(_is_open, held)):
            return Result()
        namespace, name = split_key(key)
        try:
            found = await self._client.get_json(STATEFUL_SETS, name, namespace)
        except NotFoundError:
            return Result()  # as above
        if self._is_ours(key, found):
            return Result()  # the watch will report it soon
        if self._runs(self._members(found)):
            return Result(requeue_after=_LOOK_AGAIN)
        for workload in held:
            if await self._steps.delete(workload):
                what = f"Deleted Workload {model.workload_key(workload)}: the StatefulSet is not queued any more"
                self._report(found, names.EVENT_DELETED_WORKLOAD, what)
        return Result()

    def _members(self, found: JSON) -> list[ManagedPod]:
        keys = self._pods.keys_by_index(OWNER_UID_INDEX, text(found, "metadata", "uid"))
        newest = [self._pod_writes.newest(key) for key in sorted(keys)]
        return [pod for pod in newest if pod is not None]

    def _runs(self, pods: Sequence[ManagedPod]) -> bool:
        now = self._clock.now()
        return bool(counts.at_large(pods)) or counts.is_active(pods, now, fast=self._fast_release)

    def _workload(self, key: str, found: JSON) -> wire.Workload | None:
        """Return the Workload with the StatefulSet's name; else the Workload that a user created for it before it had a
        UID.
        """
        namespace = split_key(key)[0]
        for name in plan.names_of(found, self._switches):
            workload = self._writer.newest(f"{namespace}/{name}")
            if workload is not None:
                return workload
        return None

    async def _step(self, found: JSON, workload: wire.Workload | None, *, runs: bool) -> Result:
        step = plan.next_step(found, as_json(workload) if workload is not None else None, self._switches, runs=runs)
        if step in (Next.CREATE, Next.ADOPT) and not await self._is_there(found):
            return Result()  # the watch will report it soon
        if step is Next.CREATE:
            await self._create(found)
        if workload is None:
            return Result()
        wanted = replicas(found)
        match step:
            case Next.ADOPT:
                await self._adopt(found, workload)
            case Next.HOLD:
                await self._steps.hold(workload, "The StatefulSet is scaled to 0 and has no pods")
            case Next.GIVE_BACK:
                await self._steps.unreserve(workload, f"The StatefulSet is to have {wanted} pods now")
            case Next.REWRITE:
                if await self._steps.rewrite(workload, plan.spec_of(found, self._priority(found), self._switches)):
                    what = f"Updated Workload {model.workload_key(workload)} to {wanted} pods"
                    self._report(found, names.EVENT_UPDATED_WORKLOAD, what)
            case Next.RESUME:
                await self._steps.resume(workload, f"The StatefulSet is scaled to {wanted}")
            case Next.MISFIT:
                self._report_misfit(found, workload, wanted)
            case Next.OVER:
                self._report_end(found, workload)
            case Next.NOTHING:
                await self._follow_queue(found, workload, runs=runs)
        return Result(requeue_after=_LOOK_AGAIN) if step is Next.WAIT else Result()

    async def _is_there(self, found: JSON) -> bool:
        """Whether the API server has the StatefulSet; checked before it becomes an owner.

        The garbage collector removes a missing owner as fast as a process with an old watch would add it.
        """
        metadata = mapping(found, "metadata")
        try:
            now = await self._client.get_json(STATEFUL_SETS, text(metadata, "name"), text(metadata, "namespace"))
        except NotFoundError:
            return False
        return text(now, "metadata", "uid") == text(metadata, "uid")

    # --- one step each

    async def _create(self, found: JSON) -> None:
        workload = plan.workload_of(found, self._priority(found), self._switches, self._copied)
        if not await self._steps.create(workload):
            return  # the watch will report it soon
        if (
            found["metadata"].get("generation", 1) == 1
        ):  # a StatefulSet that was changed since may have been on hold for long
            created = datetime.fromisoformat(text(found, "metadata", "creationTimestamp"))
            self._on_created(max(0.0, (self._clock.now() - created).total_seconds()))
        name = f"{workload['metadata']['namespace']}/{workload['metadata']['name']}"
        message = f"Created Workload {name} for {replicas(found)} pods; it waits for admission"
        self._report(found, names.EVENT_CREATED_WORKLOAD, message)

    def _priority(self, found: JSON) -> Priority:
        try:
            return self._steps.priority_of(found, plan.pod_sets(found, self._switches))
        except MissingPriorityClassError as e:
            self._report(found, e.reason, str(e), warning=True)
            raise

    async def _adopt(self, found: JSON, workload: wire.Workload) -> None:
        told, owner = as_json(workload), plan.owner_reference(found)
        others = [o for o in objects(told, "metadata", "ownerReferences") if o.get("uid") != owner["uid"]]
        gates = names.ADMISSION_GATED_BY_ANNOTATION
        marks = {gates: None, **plan.marks_of(found, self._switches)}
        labels = labels_of(told) | {names.JOB_UID_LABEL: owner["uid"]}
        metadata = {"ownerReferences": [*others, owner], "annotations": marks, "labels": labels}
        if await self._steps.amend(workload, {"metadata": metadata}):
            self._report(found, names.EVENT_UPDATED_WORKLOAD, f"Updated Workload {model.workload_key(workload)}")

    async def _follow_queue(self, found: JSON, workload: wire.Workload, *, runs: bool) -> None:
        """Move the Workload to another queue while no pod has begun: the quota of the old queue is released first."""
        wanted = rules.queue_name(found)
        if not wanted or runs or replicas(found) == 0 or not _is_open(workload):
            return
        await self._steps.follow_queue(workload, wanted, noun="The StatefulSet")

    # --- reports

    def _report_misfit(self, found: JSON, workload: wire.Workload, wanted: int) -> None:
        has = sum(pod_set.count for pod_set in workload.spec.pod_sets)
        self._report(
            found,
            EVENT_REPLICAS_DIFFER,
            f"spec.replicas is {wanted}, and quota was given for {has}: a StatefulSet is admitted as a whole, so no "
            f"more than {has} pods are started, and no quota is given back; scale to 0, then, when all pods are gone, "
            f"to {wanted}",
            warning=True,
        )

    def _report_end(self, found: JSON, workload: wire.Workload) -> None:
        end = model.condition(workload.status.conditions, names.CONDITION_FINISHED)
        why = f"{end.reason}: {end.message}" if end is not None else ""
        key = model.workload_key(workload)
        self._report(
            found, EVENT_WORKLOAD_OVER, f"Workload {key} has finished ({why}); delete it to try again", warning=True
        )

    def _report(self, found: JSON, reason: str, message: str, *, warning: bool = False) -> None:
        """Record an event on the StatefulSet; the same event is not repeated within some minutes."""
        metadata = mapping(found, "metadata")
        uid = text(metadata, "uid")
        if self._told.get((uid, reason)) == message:
            return
        self._told[uid, reason] = message
        reference = ObjectReference(
            api_version=GVK.api_version,
            kind=GVK.kind,
            namespace=text(metadata, "namespace"),
            name=text(metadata, "name"),
            uid=uid,
        )
        self._recorder.record(reference, reason=reason, message=message, warning=warning)


_WINDOW = 0.05
"""Seconds in which events of one StatefulSet's pods are collected."""


def setup(manager: Manager) -> None:
    """Add the reconciler of StatefulSets, if they are enabled; their pods are queued themselves."""
    pods, writes, config = manager.shared(watch_pods), manager.shared(make_pod_writes), manager.config
    if FRAMEWORK not in config.integrations.frameworks or pods is None or writes is None:
        return
    watches = manager.watches
    watch = watches.watch_owners(
        resource_of(REVIEWED[FRAMEWORK]), selector=queued(manages_all=config.manage_jobs_without_queue_name)
    )
    reconciler = StatefulSetReconciler(
        manager.owner_context(FRAMEWORK),
        stateful_sets=watch.store,
        pods=pods.store,
        pod_writes=writes,
        reports=OwnerReports(
            created=lambda seconds: manager.metrics.workload_created(job_kind=GVK.kind, seconds=seconds)
        ),
    )
    controller = manager.controller("statefulset", reconciler.reconcile, workers=8)

    def on_stateful_set(old: JSON | None, new: JSON | None) -> None:
        meta = (new if new is not None else old or {})["metadata"]
        controller.enqueue(f"{meta['namespace']}/{meta['name']}")

    def on_pod(old: ManagedPod | None, new: ManagedPod | None) -> None:
        for pod in filter(None, (old, new)):
            for name in owner_names(pod):
                controller.enqueue(f"{split_key(pod.key)[0]}/{name}", after=_WINDOW)

    def on_workload(old: wire.Workload | None, new: wire.Workload | None) -> None:
        for workload in filter(None, (old, new)):
            for key in owner_keys(workload):
                controller.enqueue(key)

    on_class = enqueue_all(controller, watch.store)
    watch.subscribe(on_stateful_set)
    pods.subscribe(on_pod)
    watches.workloads.subscribe(on_workload)
    watches.workload_priorities.subscribe(on_class)
    watches.priority_classes.subscribe(on_class)
    watches.namespaces.subscribe(enqueue_namespace(controller, watch.store))
