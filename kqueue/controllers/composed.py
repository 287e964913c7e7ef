"""Keeps the Workloads and pods of owners of pod groups consistent with them: each group has a prebuilt Workload.

A Workload is on hold while its group is to have no pods, and is deleted with its group.  The reconciler of pod groups
starts and stops the pods, which are a group with its own Workload.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec
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
from kqueue.errors import KqueueError, NotFoundError
from kqueue.jobs import rules
from kqueue.jobs.catalog import COMPOSED
from kqueue.jobs.composed import (
    ComposedGroup,
    ComposedKind,
    GroupPlan,
    Next,
    is_marked,
    origin_uid,
    outdated,
    vanished_group,
)
from kqueue.jobs.fields import labels_of, mapping, objects, text
from kqueue.jobs.gang import counts
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.workload import Priority
from kqueue.runtime.controller import Result
from kqueue.runtime.reflector import Reflector
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.store import Store, split_key

_log = structlog.get_logger(__name__)

STATEFUL_SETS = ResourceType("apps", "v1", "statefulsets", "StatefulSet")
EVENT_REPLICAS_DIFFER = "ReplicasDiffer"
EVENT_WORKLOAD_OVER = "WorkloadOver"
_LOOK_AGAIN = 5.0
"""Seconds until ending pods are read again: a pod on a node that is gone stops counting without an event."""
_QUIET = 600.0
_AT_ONCE = 100
"""The number of groups after which other work has its turn, and a change of their owner counts."""


def _is_open(workload: wire.Workload) -> bool:
    """Whether the Workload is neither finished nor being deleted."""
    return workload.metadata.deletion_timestamp is None and not model.condition_true(workload, names.CONDITION_FINISHED)


class ComposedReconciler:
    """The reconciler of all queued owners of one kind."""

    def __init__(
        self,
        context: OwnerContext,
        *,
        kind: ComposedKind,
        objects: Store[JSON],
        pods: Store[ManagedPod],
        pod_writes: PodWrites,
        reports: OwnerReports = NO_REPORTS,
    ) -> None:
        policy = context.policy
        self._client, self._workloads, self._kind = context.client, context.workloads, kind
        self._objects, self._pods, self._pod_writes = objects, pods, pod_writes
        self._writer, self._steps = context.book, context.steps
        self._manages, self._recorder = context.manages, context.recorder
        self._switches, self._clock, self._copied = policy.switches, context.clock, policy.copied
        self._without_queue, self._fast_release = policy.without_queue, policy.fast_release
        self._on_created = reports.created
        self._told: TTLCache[tuple[str, str, int | None], str] = TTLCache(10_000, _QUIET, context.clock.monotonic)
        self._index = f"owner of kind {kind.gvk.kind}"
        """Name of the indexes of pods and of Workloads by namespace/name of their owner."""
        pods.add_index(self._index, self.owners_of_pod)
        context.workloads.add_index(self._index, self.owners_of_workload)

    def owners_of_pod(self, pod: ManagedPod) -> list[str]:
        """Return the key of the owner that a pod names: one, or none."""
        name = self._kind.owner_name(pod.obj)
        return [f"{split_key(pod.key)[0]}/{name}"] if name else []

    def owners_of_workload(self, workload: wire.Workload) -> list[str]:
        """Return the keys of the owners for which a Workload was created."""
        gvk = self._kind.gvk
        return [
            f"{workload.metadata.namespace}/{owner.name}"
            for owner in workload.metadata.owner_references
            if owner.kind == gvk.kind and owner.api_version.partition("/")[0] == gvk.group
        ]

    async def reconcile(self, key: str) -> Result:
        """Take the next step for each group of one owner."""
        found = self._objects.get(key)
        if found is None or not self._is_ours(key, found):
            return await self._let_go(key)
        if mapping(found, "metadata").get("deletionTimestamp"):
            return Result()  # the garbage collector deletes pods and Workloads
        if not is_marked(self._kind, found):
            return Result()  # an ancestor is queued, or no webhook has reviewed it: kqueue gates none of its pods
        pods = self._members(key, found)
        await self._pod_writes.each(await self._outdated(found, pods), self._pod_writes.delete)
        waits = await self._delete_vanished(key, found, pods)
        result = await self._step_each(key, found, pods)
        return result if result.requeue_after is not None or not waits else Result(requeue_after=_LOOK_AGAIN)

    def _is_ours(self, key: str, found: JSON) -> bool:
        named = bool(rules.queue_name(found)) or self._without_queue
        return named and self._kind.is_ours(found) and self._manages(split_key(key)[0])

    async def _outdated(self, found: JSON, pods: Sequence[ManagedPod]) -> Sequence[ManagedPod]:
        """Return the gated pods that must be replaced before they start."""
        name = self._kind.rolled_by(found, pods)
        if name is None:
            return outdated(found, pods)
        if not name:
            return ()
        try:
            rolled = await self._client.get_json(STATEFUL_SETS, name, text(found, "metadata", "namespace"))
        except NotFoundError:
            return ()
        return outdated(rolled, pods)

    # --- owners that are gone, or not queued any more

    async def _let_go(self, key: str) -> Result:
        """Handle an owner that is gone or no longer queued: its usage stays charged until its last pod has ended."""
        held, named = self._held(key), self._named(key)
        if not any(map(_is_open, held)) and not any(pod.gated for pod in named):
            return Result()
        namespace, name = split_key(key)
        try:
            found = await self._client.get_json(resource_of(self._kind), name, namespace)
        except NotFoundError:
            await self._release(named)
            return Result()  # the garbage collector deletes pods and Workloads
        if self._is_ours(key, found) or not any(map(_is_open, held)):
            return Result()  # the watch will report it soon, or there is nothing to give back
        if self._runs(pod for pod in named if self._kind.is_member(pod.obj, found)):
            return Result(requeue_after=_LOOK_AGAIN)
        for workload in held:
            await self._delete(found, workload, f"the {self._kind.gvk.kind} is not queued any more")
        return Result()

    async def _release(self, pods: Sequence[ManagedPod]) -> None:
        """Delete gated pods that no Workload will start: their owner is gone, and they would wait for ever."""
        stuck = (
            p for p in pods if p.gated and not p.deleting and (not p.group or self._writer.newest(p.group) is None)
        )
        await self._pod_writes.each(stuck, self._pod_writes.delete)

    async def _delete_vanished(self, key: str, found: JSON, pods: Sequence[ManagedPod]) -> bool:
        """Delete the Workloads of groups that their owner does not have any more; return whether some pods of one run.

        Its usage stays charged until its last pod has ended.
        """
        running = {index for index, members in self._by_group(pods).items() if self._runs(members)}
        waits = False
        for workload in self._held(key):
            index = vanished_group(self._kind, found, {"metadata": msgspec.to_builtins(workload.metadata)})
            if origin_uid(found) or index is None or not _is_open(workload):
                continue
            if index in running:
                waits = True
            else:
                await self._delete(found, workload, "its group is not wanted any more")
        return waits

    def _by_group(self, pods: Iterable[ManagedPod]) -> dict[int | None, list[ManagedPod]]:
        found: dict[int | None, list[ManagedPod]] = defaultdict(list)
        for pod in pods:
            found[self._kind.group_of(pod.obj)].append(pod)
        return found

    async def _delete(self, found: JSON, workload: wire.Workload, why: str) -> None:
        if await self._steps.delete(workload):
            what = f"Deleted Workload {model.workload_key(workload)}: {why}"
            self._report(found, names.EVENT_DELETED_WORKLOAD, what)

    def _held(self, key: str) -> list[wire.Workload]:
        keys = self._workloads.keys_by_index(self._index, key)
        return [workload for k in sorted(keys) if (workload := self._writer.newest(k)) is not None]

    def _named(self, key: str) -> list[ManagedPod]:
        newest = [self._pod_writes.newest(k) for k in sorted(self._pods.keys_by_index(self._index, key))]
        return [pod for pod in newest if pod is not None]

    def _members(self, key: str, found: JSON) -> list[ManagedPod]:
        return [pod for pod in self._named(key) if self._kind.is_member(pod.obj, found)]

    def _runs(self, pods: Iterable[ManagedPod]) -> bool:
        now, found = self._clock.now(), list(pods)
        return bool(counts.at_large(found)) or counts.is_active(found, now, fast=self._fast_release)

    # --- groups

    async def _step_each(self, key: str, found: JSON, pods: Sequence[ManagedPod]) -> Result:
        """Take the next step for each group; the first error is raised after all groups were tried."""
        by_group = self._by_group(pods)
        again: list[float] = []
        failed: list[KqueueError] = []

        async def act(group: ComposedGroup) -> None:
            plan = GroupPlan(self._kind, found, group, self._switches)
            result = await self._step_group(plan, by_group.get(group.index, ()))
            again.extend([result.requeue_after] if result.requeue_after is not None else ())

        todo = self._kind.groups(found, self._switches)
        while groups := list(islice(todo, _AT_ONCE)):
            if self._objects.get(key) is not found:
                return Result()  # it has changed, and its event causes the next reconcile
            try:
                await self._pod_writes.each(groups, act)
            except KqueueError as e:
                failed.append(e)
        if failed:
            raise failed[0]
        return Result(requeue_after=min(again, default=None))

    async def _step_group(self, plan: GroupPlan, pods: Sequence[ManagedPod]) -> Result:
        workload = self._workload(plan)
        if workload is not None and _is_open(workload) and plan.group.count > 0:
            told = as_json(workload)

            async def stamp(pod: ManagedPod) -> None:
                await self._pod_writes.patch(pod, plan.stamp(pod, told))

            await self._pod_writes.each(pods, stamp)
        return await self._step(plan, workload, runs=self._runs(pods))

    def _workload(self, plan: GroupPlan) -> wire.Workload | None:
        """Return the Workload with the group's name; else the Workload that a user created for it before its owner had
        a UID.
        """
        namespace = text(plan.owner, "metadata", "namespace")
        for name in plan.names:
            workload = self._writer.newest(f"{namespace}/{name}")
            if workload is not None and plan.is_of_copy(workload.metadata.labels):
                return workload
        return None

    async def _step(self, plan: GroupPlan, workload: wire.Workload | None, *, runs: bool) -> Result:
        step = plan.next_step(as_json(workload) if workload is not None else None, runs=runs)
        if step in (Next.CREATE, Next.ADOPT) and not await self._is_there(plan.owner):
            return Result()  # the watch will report it soon
        if step is Next.CREATE:
            await self._create(plan)
        if workload is None:
            return Result()
        wanted, what = plan.group.count, plan.what
        match step:
            case Next.ADOPT:
                await self._adopt(plan, workload)
            case Next.HOLD:
                await self._steps.hold(workload, f"{what} is scaled to 0 and has no pods")
            case Next.GIVE_BACK:
                await self._steps.unreserve(workload, f"{what} is to have {wanted} pods now")
            case Next.REWRITE:
                if await self._steps.rewrite(workload, plan.spec(self._priority(plan))):
                    updated = f"Updated Workload {model.workload_key(workload)} to {wanted} pods"
                    self._report(plan.owner, names.EVENT_UPDATED_WORKLOAD, updated)
            case Next.RESUME:
                await self._steps.resume(workload, f"{what} is scaled to {wanted}")
            case Next.MISFIT:
                self._report_misfit(plan, workload)
            case Next.OVER:
                self._report_end(plan, workload)
            case Next.NOTHING if _is_open(workload) and wanted > 0 and not plan.is_copy:
                await self._follow(plan, workload, runs=runs)
        return Result(requeue_after=_LOOK_AGAIN) if step is Next.WAIT else Result()

    async def _is_there(self, found: JSON) -> bool:
        """Whether the API server has the owner; checked before it becomes the owner of a Workload.

        The garbage collector removes a missing owner as fast as a process with an old watch would add it.
        """
        metadata, resource = mapping(found, "metadata"), resource_of(self._kind)
        try:
            now = await self._client.get_json(resource, text(metadata, "name"), text(metadata, "namespace"))
        except NotFoundError:
            return False
        return text(now, "metadata", "uid") == text(metadata, "uid")

    # --- one step each

    async def _create(self, plan: GroupPlan) -> None:
        workload, found = plan.workload(self._priority(plan), self._copied), plan.owner
        if not await self._steps.create(workload):
            return  # the watch will report it soon
        if found["metadata"].get("generation", 1) == 1:  # one that was changed since may have been on hold for long
            created = datetime.fromisoformat(text(found, "metadata", "creationTimestamp"))
            self._on_created(max(0.0, (self._clock.now() - created).total_seconds()))
        name = f"{workload['metadata']['namespace']}/{workload['metadata']['name']}"
        message = f"Created Workload {name} for {plan.group.count} pods; it waits for admission"
        self._report(found, names.EVENT_CREATED_WORKLOAD, message, group=plan.group.index)

    def _priority(self, plan: GroupPlan) -> Priority:
        try:
            return self._steps.priority_of(plan.owner, plan.group.pod_sets)
        except MissingPriorityClassError as e:
            self._report(plan.owner, e.reason, str(e), warning=True)
            raise

    async def _adopt(self, plan: GroupPlan, workload: wire.Workload) -> None:
        told, owner = as_json(workload), plan.owner_reference()
        others = [o for o in objects(told, "metadata", "ownerReferences") if o.get("uid") != owner["uid"]]
        marks: Mapping[str, str | None] = {names.ADMISSION_GATED_BY_ANNOTATION: None, **plan.marks()}
        labels = labels_of(told) | {names.JOB_UID_LABEL: owner["uid"]}
        metadata = {"ownerReferences": [*others, owner], "annotations": marks, "labels": labels}
        if await self._steps.amend(workload, {"metadata": metadata}):
            self._report(plan.owner, names.EVENT_UPDATED_WORKLOAD, f"Updated Workload {model.workload_key(workload)}")

    async def _follow(self, plan: GroupPlan, workload: wire.Workload, *, runs: bool) -> None:
        """Hand on another priority class at any time, and another queue while no pod of the group has begun: the quota
        of the old queue is released first.
        """
        if self._kind.follows_priority:
            change = await self._steps.follow(plan.owner, workload, priority=lambda: self._priority(plan), run_time={})
            if change:
                what = f"Updated Workload {model.workload_key(workload)} {change}"
                self._report(plan.owner, names.EVENT_UPDATED_WORKLOAD, what, group=plan.group.index)
                return
        wanted = rules.queue_name(plan.owner)
        if wanted and not runs:
            await self._steps.follow_queue(workload, wanted, noun=plan.what)

    # --- reports

    def _report_misfit(self, plan: GroupPlan, workload: wire.Workload) -> None:
        has = sum(pod_set.count for pod_set in workload.spec.pod_sets)
        message = self._kind.misfit(plan.group, has)
        self._report(plan.owner, EVENT_REPLICAS_DIFFER, message, group=plan.group.index, warning=True)

    def _report_end(self, plan: GroupPlan, workload: wire.Workload) -> None:
        end = model.condition(workload.status.conditions, names.CONDITION_FINISHED)
        why = f"{end.reason}: {end.message}" if end is not None else ""
        message = f"Workload {model.workload_key(workload)} has finished ({why}); delete it to try again"
        self._report(plan.owner, EVENT_WORKLOAD_OVER, message, group=plan.group.index, warning=True)

    def _report(
        self, found: JSON, reason: str, message: str, *, group: int | None = None, warning: bool = False
    ) -> None:
        """Record an event on the owner; the same event of the same group is not repeated within some minutes."""
        metadata = mapping(found, "metadata")
        uid = text(metadata, "uid")
        if self._told.get((uid, reason, group)) == message:
            return
        self._told[uid, reason, group] = message
        reference = ObjectReference(
            api_version=self._kind.gvk.api_version,
            kind=self._kind.gvk.kind,
            namespace=text(metadata, "namespace"),
            name=text(metadata, "name"),
            uid=uid,
        )
        self._recorder.record(reference, reason=reason, message=message, warning=warning)


_WINDOW = 0.05
"""Seconds in which events of the pods of one owner are collected."""


def setup(manager: Manager) -> None:
    """Add the reconcilers of the enabled kinds; pods of their objects are queued themselves."""
    for kind in COMPOSED:
        if kind.framework in manager.config.integrations.frameworks:
            _add(manager, kind)


def watch_composed(manager: Manager) -> dict[str, Reflector[Any, JSON]]:
    """Return the watches of the owners of the enabled kinds, by framework; empty: no pods are queued."""
    selector = queued(manages_all=manager.config.manage_jobs_without_queue_name)
    on = manager.config.integrations.frameworks if manager.shared(watch_pods) is not None else ()
    return {
        kind.framework: manager.watches.watch_owners(resource_of(kind), selector=selector)
        for kind in COMPOSED
        if kind.framework in on
    }


def _add(manager: Manager, kind: ComposedKind) -> None:
    pods, writes = manager.shared(watch_pods), manager.shared(make_pod_writes)
    if pods is None or writes is None:
        return
    watches, watch = manager.watches, manager.shared(watch_composed)[kind.framework]
    reconciler = ComposedReconciler(
        manager.owner_context(kind.framework),
        kind=kind,
        objects=watch.store,
        pods=pods.store,
        pod_writes=writes,
        reports=OwnerReports(
            created=lambda seconds: manager.metrics.workload_created(job_kind=kind.gvk.kind, seconds=seconds)
        ),
    )
    controller = manager.controller(kind.gvk.kind.lower(), reconciler.reconcile, workers=8)

    def on_object(old: JSON | None, new: JSON | None) -> None:
        meta = (new if new is not None else old or {})["metadata"]
        controller.enqueue(f"{meta['namespace']}/{meta['name']}")

    def on_pod(old: ManagedPod | None, new: ManagedPod | None) -> None:
        for pod in filter(None, (old, new)):
            for key in reconciler.owners_of_pod(pod):
                controller.enqueue(key, after=_WINDOW)

    def on_workload(old: wire.Workload | None, new: wire.Workload | None) -> None:
        for workload in filter(None, (old, new)):
            for key in reconciler.owners_of_workload(workload):
                controller.enqueue(key)

    on_class = enqueue_all(controller, watch.store)
    watch.subscribe(on_object)
    pods.subscribe(on_pod)
    watches.workloads.subscribe(on_workload)
    watches.workload_priorities.subscribe(on_class)
    watches.priority_classes.subscribe(on_class)
    watches.namespaces.subscribe(enqueue_namespace(controller, watch.store))
