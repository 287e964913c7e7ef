"""Keeps a pod that is queued alone and its Workload consistent: ungated when admitted, deleted when evicted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from kqueue import model
from kqueue.api import gang_names, names
from kqueue.api.wire import kueue as wire
from kqueue.controllers.extra_marks import ExtraMarks
from kqueue.controllers.gang_workloads import GangWorkloads, make_gang_workloads
from kqueue.controllers.handlers import if_changed
from kqueue.controllers.job_workload import OWNER_INDEX, owner_key, owner_keys
from kqueue.controllers.manager import Manager
from kqueue.controllers.owner_context import NO_REPORTS, OwnerContext, OwnerReports
from kqueue.controllers.owner_lifecycle import OwnerLifecycle, OwnerStop
from kqueue.controllers.pod_owner import KIND, PodOwner
from kqueue.controllers.pod_tools import PodTools
from kqueue.controllers.pod_writes import PREBUILT_INDEX, PodWrites, make_pod_writes, pod_reports, watch_pods
from kqueue.controllers.ranks import owner_rank
from kqueue.controllers.resources import PODS
from kqueue.controllers.workload_steps import JSON, as_json
from kqueue.errors import InvalidObjectError, NotFoundError
from kqueue.jobs import pod_view, rules, run_times
from kqueue.jobs.gang.extras import priority_of_gang
from kqueue.jobs.gang.pods import managed_pod
from kqueue.jobs.kind import Refused
from kqueue.jobs.pod import FRAMEWORK
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.workload import Priority, belongs, equivalent, spec_for, workload_for, workload_name_of
from kqueue.runtime.controller import Result
from kqueue.runtime.own_writes import OwnWrites
from kqueue.runtime.store import Store, split_key
from kqueue.runtime.workqueue import KeyRank

_log = structlog.get_logger(__name__)

EVENT_LABEL_RESTORED = "ManagedLabelRestored"
EVENT_INVALID = "InvalidPod"
_PREBUILT_RETRY = 5.0
"""Seconds after which a missing prebuilt Workload is read again; its creation also requeues the pod."""
_STILL_THERE = 5.0
"""Seconds between reads of a pod that is being deleted: a pod on a node that is gone stops counting without an
event.
"""


class PodReconciler:
    """The reconciler of pods that are in no group."""

    def __init__(
        self,
        context: OwnerContext,
        *,
        writes: PodWrites,
        gangs: GangWorkloads,
        exists: Callable[[str], bool],
        reports: OwnerReports = NO_REPORTS,
    ) -> None:
        """Take the context and the parts; `exists(key)` returns whether a pod of that name exists, managed or not."""
        policy = context.policy
        self._client, self._writes, self._workloads = context.client, writes, context.workloads
        self._newest, self._steps = context.book.newest, context.steps
        self._manages, self._exists, self._gangs = context.manages, exists, gangs
        self._switches, self._clock, self._copied = policy.switches, context.clock, policy.copied
        self._explicit, self._without_queue, self._requeues = policy.explicit, policy.without_queue, policy.requeues
        self._finishes_orphans, self._echo_timeout = policy.finishes_orphans, policy.echo_timeout
        self._lifecycle, self._tools = OwnerLifecycle(context), PodTools(context, writes=writes, reports=reports)
        self._follow, self._on_created = self._tools.follow, reports.created
        self._marks = ExtraMarks(writes, gangs, self._newest)
        self._created: OwnWrites[str, bool] = OwnWrites(context.clock, policy.echo_timeout)
        """UIDs of pods whose Workload this process has created, until the watch has reported it."""
        context.workloads.subscribe(self._on_workload)

    def _on_workload(self, old: wire.Workload | None, new: wire.Workload | None) -> None:
        seen = new if new is not None else old
        for owner in seen.metadata.owner_references if seen is not None else ():
            self._created.forget(owner.uid)

    async def reconcile(self, key: str) -> Result:
        """Take the next step for one pod."""
        pod = self._writes.newest(key)
        if pod is None:
            return await self._look_after(key)
        if not pod.alone:
            return await self._join(pod)
        if pod.deleting:
            return await self._finalize(key, pod)
        if not self._is_ours(pod):
            return Result()
        return await self._step(pod)

    def _is_ours(self, pod: ManagedPod) -> bool:
        parent = pod_view.suspending_parent(pod.obj)
        if pod_view.waits_for_its_parent(pod) or (parent is None and not self._explicit and not pod.extra):
            return False
        return self._manages(split_key(pod.key)[0])

    # --- pods that are gone, or in a group

    async def _look_after(self, key: str) -> Result:
        """Handle a pod that the watch no longer has. It may still run without kqueue's label: then the label is
        restored, because the pod would use capacity without being counted.
        """
        namespace, name = split_key(key)
        if self._exists(key):
            try:
                found = managed_pod(await self._client.get_json(PODS, name, namespace), self._switches)
            except NotFoundError:
                found = None
            if found is not None and (found.gated or found.finalizer or self._owned(key)):
                if not found.deleting and not found.terminated and not pod_view.is_managed(found.obj):
                    await self._put_back(found)
                    return Result()
                if found.deleting or found.terminated:
                    return await self._finalize(key, found)
        return await self._finalize(key, None)

    async def _put_back(self, pod: ManagedPod) -> None:
        label = {"metadata": {"labels": {names.MANAGED_LABEL: "true"}}}
        if await self._writes.patch(pod, label):
            self._writes.event(
                pod,
                reason=EVENT_LABEL_RESTORED,
                message=f"Label {names.MANAGED_LABEL} was removed and is restored, because it makes the pod count; "
                "delete the pod to end it",
                warning=True,
            )

    async def _join(self, pod: ManagedPod) -> Result:
        """Delete the Workload of a single pod that is now in a group."""
        for workload in self._owned(pod.key):
            if await self._steps.delete(workload):
                self._report_deleted(pod, workload)
        return Result()

    async def _finalize(self, key: str, pod: ManagedPod | None) -> Result:
        """Handle a pod that is gone or being deleted: remove the finalizer, and end its Workloads when it is gone."""
        if pod is not None:
            await self._writes.let_go(pod)
        if pod is not None and self._tools.are_active([pod]):
            if self._is_ours(pod) and not any(map(_is_reserved, self._owned(key))):
                await self._writes.shorten(pod)
            return Result(requeue_after=_STILL_THERE)
        for workload in self._owned(key):
            if pod is not None and not _controls(pod, workload):
                continue
            await self._give_back(workload, pod)
            if not model.condition_true(workload, names.CONDITION_FINISHED):
                end = KIND.finished(pod.obj) if pod is not None and not pod.stopped else None
                if end is not None:
                    reason = names.REASON_SUCCEEDED if end.success else names.REASON_FAILED
                    await self._steps.finish(workload, reason, end.message)
                elif self._finishes_orphans:
                    await self._steps.finish(workload, names.REASON_OWNER_NOT_FOUND, f"Pod {key} is gone")
            await self._steps.release(workload)
        return Result()

    async def _give_back(self, workload: wire.Workload, pod: ManagedPod | None) -> None:
        """Release the quota of an evicted Workload.  Without a gated pod it is not queued again."""
        if not model.condition_true(workload, names.CONDITION_EVICTED):
            return
        if pod is not None:
            await PodOwner(self._tools, pod, workload, requeues=self._requeues).give_back()
        else:
            await self._steps.give_back(workload, requeued=None if self._requeues else False)

    # --- finding the Workload

    def _owned(self, key: str) -> list[wire.Workload]:
        namespace, name = split_key(key)
        keys = self._workloads.keys_by_index(OWNER_INDEX, owner_key("", "Pod", namespace, name))
        found = [self._newest(k) for k in sorted(keys)]
        return [workload for workload in found if workload is not None]

    async def _step(self, pod: ManagedPod) -> Result:
        try:
            pod_sets = KIND.pod_sets(pod.obj, self._switches)
        except InvalidObjectError as e:
            self._writes.event(pod, reason=EVENT_INVALID, message=str(e), warning=True)
            raise
        for other in self._owned(pod.key):
            if not _controls(pod, other):  # a Workload of an earlier pod of the same name
                await self._finalize_of_another(pod, other)
        prebuilt = rules.prebuilt_name(pod.obj, self._switches)
        workload = await (self._prebuilt(pod, pod_sets, prebuilt) if prebuilt else self._find(pod, pod_sets))
        if workload is not None:
            speaker, decisive = self._speaker(pod, pod_sets)
            run_time = run_times.traits(KIND, pod.obj)
            if prebuilt and not _is_over(workload):
                run_time = run_times.prebuilt(run_time, workload.metadata.annotations)
                await self._steps.follow_run_time(workload, run_time)
            follows = not prebuilt and not _is_over(workload)
            if follows and await self._follow.follow(pod, decisive, workload, run_time=run_time, speaker=speaker):
                return Result()
            return await self._lifecycle.step(PodOwner(self._tools, pod, workload, requeues=self._requeues))
        if not rules.queue_name(pod.obj) and not self._without_queue:
            return Result()
        return await self._without_workload(pod, pod_sets, prebuilt)

    async def _finalize_of_another(self, pod: ManagedPod, workload: wire.Workload) -> None:
        if not model.condition_true(workload, names.CONDITION_FINISHED) and self._finishes_orphans:
            await self._steps.finish(workload, names.REASON_OWNER_NOT_FOUND, f"Pod {pod.key} is another one now")
        await self._steps.release(workload)

    async def _find(self, pod: ManagedPod, pod_sets: Sequence[JSON]) -> wire.Workload | None:
        """Return the Workload that matches the pod; other Workloads of the pod are rewritten or deleted."""
        owned = [workload for workload in self._owned(pod.key) if _controls(pod, workload)]
        matching = [workload for workload in owned if self._matches(pod, pod_sets, workload)]
        if matching:
            await self._delete(pod, [workload for workload in owned if workload is not matching[0]])
            return matching[0]
        if not owned:
            return None
        first = owned[0]
        reserved = model.condition_true(first, names.CONDITION_QUOTA_RESERVED)
        if pod.gated and not reserved and first.metadata.deletion_timestamp is None:
            spec = spec_for(KIND, pod.obj, priority=self._priority(pod, pod_sets), switches=self._switches)
            if await self._steps.rewrite(first, spec):
                message = f"Updated Workload {model.workload_key(first)}"
                self._writes.event(pod, reason=names.EVENT_UPDATED_WORKLOAD, message=message)
            await self._delete(pod, owned[1:])
            return None
        await self._tools.stop(
            [pod], OwnerStop(reason=names.REASON_NO_MATCHING_WORKLOAD, message="No Workload matches the pod")
        )
        await self._delete(pod, owned)
        return None

    def _matches(self, pod: ManagedPod, pod_sets: Sequence[JSON], workload: wire.Workload) -> bool:
        told = as_json(workload)
        if not belongs(pod.obj, told):
            return False
        if model.condition_true(workload, names.CONDITION_FINISHED):
            return True
        infos = None
        if model.condition_true(workload, names.CONDITION_QUOTA_RESERVED):
            try:
                found = self._steps.infos(workload)
                infos = None if isinstance(found, Refused) else found
            except NotFoundError:
                infos = None
        suspended = pod_view.is_suspended(pod.obj)
        return equivalent(pod_sets, told, infos=infos, suspended=suspended, slim=True)

    async def _prebuilt(self, pod: ManagedPod, pod_sets: Sequence[JSON], name: str) -> wire.Workload | None:
        """Return the prebuilt Workload that the pod names and controls; None: there is none for the pod."""
        workload = self._newest(f"{split_key(pod.key)[0]}/{name}")
        if workload is None:
            return None
        controller = model.controller_of(workload.metadata)
        if controller is not None and not _controls(pod, workload):
            return None
        if controller is None:
            meta = workload.metadata
            mine = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
            others = [o for o in as_json(workload)["metadata"].get("ownerReferences", ()) if o["uid"] != pod.uid]
            labels = {**meta.labels, names.JOB_UID_LABEL: pod.uid}
            await self._steps.amend(workload, {"metadata": {"ownerReferences": [*others, mine], "labels": labels}})
            return None  # the watch event of the write causes the next reconcile
        if self._matches(pod, pod_sets, workload):
            return workload
        await self._steps.finish(workload, names.REASON_OUT_OF_SYNC, f"Pod {pod.key} is not what the Workload says")
        return None

    async def _delete(self, pod: ManagedPod, workloads: Sequence[wire.Workload]) -> None:
        for workload in workloads:
            if await self._steps.delete_unlike(workload, pod.obj["metadata"]):
                self._report_deleted(pod, workload)

    def _report_deleted(self, pod: ManagedPod, workload: wire.Workload) -> None:
        message = f"Deleted Workload {model.workload_key(workload)}, which no longer matches"
        self._writes.event(pod, reason=names.EVENT_DELETED_WORKLOAD, message=message)

    # --- without a Workload

    async def _without_workload(self, pod: ManagedPod, pod_sets: Sequence[JSON], prebuilt: str) -> Result:
        if KIND.finished(pod.obj) is not None:
            await self._writes.let_go(pod)
            return Result()
        if any(_controls(pod, workload) for workload in self._owned(pod.key)):
            return Result()  # the Workload is being deleted, or was just rewritten: its event requeues the pod
        if pod.uid in self._created:
            return Result(requeue_after=self._echo_timeout)
        if not pod.gated:
            name = prebuilt or workload_name_of(KIND, pod.obj, self._switches)
            if await self._tools.read(f"{split_key(pod.key)[0]}/{name}") is None or prebuilt:
                why = OwnerStop(reason=names.REASON_NO_MATCHING_WORKLOAD, message="The pod runs and has no Workload")
                await self._tools.stop([pod], why, soon=True)
            return Result()
        if prebuilt:
            message = f"Workload {prebuilt} does not exist, or is another's; the pod waits for it"
            self._writes.event(pod, reason=names.EVENT_ERR_WORKLOAD_COMPOSE, message=message, warning=True)
            return Result(requeue_after=_PREBUILT_RETRY)
        if pod.extra and not self._marks.are_true(pod):
            await self._marks.take_off(pod)
            return Result()
        await self._create(pod, pod_sets)
        return Result()

    def _priority(self, pod: ManagedPod, pod_sets: Sequence[JSON]) -> Priority:
        speaker, decisive = self._speaker(pod, pod_sets)
        return self._follow.priority(pod, decisive, speaker=speaker)

    def _speaker(self, pod: ManagedPod, pod_sets: Sequence[JSON]) -> tuple[JSON, Sequence[JSON]]:
        """Return the object whose label names the priority class, and the pod sets that decide without one."""
        if not pod.extra:
            return pod.obj, pod_sets
        known = None if self._gangs.queues_alone(pod.group) else self._workloads.get(self._gangs.key_of(pod.group))
        base = as_json(known) if known is not None else None
        return priority_of_gang(pod.obj, pod_sets, base, self._gangs.object_of(pod.group))

    def _marks_of_extra(self, base: str) -> dict[str, str]:
        """Return the annotations of the Workload of a pod beyond a quorum.

        They name the Workload of the quorum, and the gang's time and UID, by which it stands behind that Workload.
        """
        found = self._workloads.get(base)
        known = found.metadata.annotations if found is not None else {}
        kept = (gang_names.GANG_SINCE_ANNOTATION, gang_names.GANG_UID_ANNOTATION)
        marks = {key: known[key] for key in kept if key in known}
        return {gang_names.EXTRA_OF_ANNOTATION: split_key(base)[1], **marks}

    async def _create(self, pod: ManagedPod, pod_sets: Sequence[JSON]) -> None:
        base = self._gangs.key_of(pod.group) if pod.extra else ""
        workload = workload_for(
            KIND,
            pod.obj,
            priority=self._priority(pod, pod_sets),
            switches=self._switches,
            copied=self._copied,
        )
        if pod.extra and not self._gangs.queues_alone(pod.group):
            workload["metadata"].setdefault("annotations", {}).update(self._marks_of_extra(base))
        self._created.remember(pod.uid, True)
        try:
            if not await self._steps.create(workload):
                return  # created before; the watch will report it
        except BaseException:  # cancellation, too: the interrupted request may have been accepted
            self._created.forget(pod.uid)
            raise
        self._on_created(max(0.0, (self._clock.now() - pod.created).total_seconds()))
        name = workload["metadata"]["name"]
        message = f"Created Workload {split_key(pod.key)[0]}/{name}; it waits for admission"
        self._writes.event(pod, reason=names.EVENT_CREATED_WORKLOAD, message=message)


def _is_reserved(workload: wire.Workload) -> bool:
    return model.condition_true(workload, names.CONDITION_QUOTA_RESERVED)


def _is_over(workload: wire.Workload) -> bool:
    finished = model.condition_true(workload, names.CONDITION_FINISHED)
    return finished or workload.metadata.deletion_timestamp is not None


def _controls(pod: ManagedPod, workload: wire.Workload) -> bool:
    return any(owner.controller and owner.uid == pod.uid for owner in workload.metadata.owner_references)


_LABEL_LOST_AFTER = 1.0
"""Seconds after which a pod that its watch no longer has, but that still exists, is assumed to have lost its label."""


def setup(manager: Manager) -> None:
    """Add the reconciler of pods that are queued alone, if pods are queued."""
    watch, writes = manager.shared(watch_pods), manager.shared(make_pod_writes)
    if watch is None or writes is None:
        return
    watches, store = manager.watches, watch.store
    reconciler = PodReconciler(
        manager.owner_context(FRAMEWORK),
        writes=writes,
        gangs=manager.shared(make_gang_workloads),
        exists=lambda key: key in watches.pods.store,
        reports=pod_reports(manager),
    )
    pods = manager.controller(
        "pod",
        reconciler.reconcile,
        workers=16,
        group_kind="Pod",
        rank_of=lambda key: _rank(watches.workloads.store, store.get(key), key),
    )

    def on_pod(old: ManagedPod | None, new: ManagedPod | None) -> None:
        if new is not None and (new.alone or (old is not None and old.alone)):
            pods.enqueue(new.key)
        if new is None and old is not None:
            pods.enqueue(old.key, after=0.0 if old.alone else _LABEL_LOST_AFTER)

    def on_workload(old: wire.Workload | None, new: wire.Workload | None) -> None:
        for workload in filter(None, (old, new)):
            for pod in store.keys_by_index(PREBUILT_INDEX, model.workload_key(workload)):
                pods.enqueue(pod)
            for owner in owner_keys(workload):
                api_group, kind, namespace, name = owner.split("/")
                if (api_group, kind) == ("", "Pod"):
                    pods.enqueue(f"{namespace}/{name}")

    def on_class(_old: object, _new: object) -> None:
        for pod in store.values():
            if pod.alone:
                pods.enqueue(pod.key)

    watch.subscribe(on_pod)
    watches.workloads.subscribe(on_workload)
    watches.workload_priorities.subscribe(on_class)
    watches.priority_classes.subscribe(on_class)
    watches.flavors.subscribe(if_changed(on_class))


def _rank(workloads: Store[wire.Workload], pod: ManagedPod | None, key: str) -> KeyRank:
    """Return the rank of a pod that is queued alone, in the work queue; None: the pod is gone."""
    return owner_rank(
        workloads.by_index(OWNER_INDEX, owner_key("", "Pod", *split_key(key))),
        ended=pod is None or pod.terminated or pod.deleting,
        held_back=pod is not None and pod.gated,
    )
