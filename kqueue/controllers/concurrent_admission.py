"""Carries out concurrent admission: the writes that `state.variant_steps` decides for a parent and its variants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from kqueue import model
from kqueue.api import names, variant_names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers.manager import KEYS_PER_TURN, Manager
from kqueue.controllers.record import Recorder, Reporter, workload_reference
from kqueue.controllers.recreations import Recreations
from kqueue.controllers.resources import WORKLOADS
from kqueue.controllers.workload_steps import WorkloadSteps
from kqueue.errors import NotFoundError
from kqueue.isolation import isolated
from kqueue.kube.owned_names import LONG_NAME, SHORT_NAME
from kqueue.model.variants import is_parent, may_be_parent, variant_policy, waits_for_label
from kqueue.runtime.client import Client
from kqueue.runtime.controller import Result
from kqueue.runtime.lane import Lane
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.store import Store
from kqueue.state import status, variant_patches
from kqueue.state.cache import Cache
from kqueue.state.variant_steps import (
    StepKind,
    VariantFamily,
    VariantStep,
    family_of,
    gate_to_open,
    reason_to_wait,
    steps,
)

_log = structlog.get_logger(__name__)

VARIANTS_INDEX = "variants"
"""Index of Workloads by the Workload that controls them."""
_GATE = "ConcurrentAdmission"
_EVENTS = {
    StepKind.ACTIVATE: variant_names.EVENT_ACTIVATED_VARIANT,
    StepKind.DEACTIVATE: variant_names.EVENT_DEACTIVATED_VARIANT,
    StepKind.OPEN_GATE: variant_names.EVENT_PREEMPTION_UNGATED_VARIANT,
}
"""The events on variants."""


def variant_keys(obj: wire.Workload) -> list[str]:
    """Return the Workload that controls this one; empty: none does."""
    key = model.parent_key(obj)
    return [key] if key is not None else []


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrentContext:
    """The clients, state and watches of the reconciler; `workloads` has VARIANTS_INDEX."""

    workloads: Store[wire.Workload]
    local_queues: Store[wire.LocalQueue]
    cache: Cache
    client: Client
    writer: StatusWriter[wire.Workload]
    steps: WorkloadSteps
    recorder: Recorder
    clock: Clock


class ConcurrentAdmissionReconciler:
    """The reconciler of parents.  Keys are those of parents, and of Workloads that may become one."""

    def __init__(self, context: ConcurrentContext, *, limit: int = LONG_NAME) -> None:
        """Take the context; `limit` is the largest number of characters of a variant's name."""
        self._workloads, self._local_queues, self._cache = context.workloads, context.local_queues, context.cache
        self._client, self._writer, self._steps = context.client, context.writer, context.steps
        self._recorder, self._clock, self._limit = context.recorder, context.clock, limit
        self._recreations = Recreations(context.clock)

    async def reconcile(self, key: str) -> Result:
        """Take the next steps of one parent; a step that fails does not stop the others."""
        parent = self._writer.newest(key)
        if parent is None or parent.metadata.deletion_timestamp is not None:
            return Result()
        owned = self._owned(key, parent.metadata.uid)
        queue = self._queue(parent, owned)
        if queue is None:
            return Result()  # it does not exist yet, or no longer
        policy = variant_policy(queue)
        was_parent = policy is not None and bool(owned) and may_be_parent(parent) and not is_parent(parent)
        if was_parent or waits_for_label(parent, policy):  # without its mark it would not follow its variants
            await self._writer.write(key, lambda w: variant_patches.label(w, on=True), subresource=None)
            return Result()
        if not is_parent(parent):
            return Result()
        if policy is None or not may_be_parent(parent):
            await self._end(key, owned)
            return Result()
        family, errors = family_of(parent, owned, policy, limit=self._limit), list[Exception]()
        for step in steps(family, self._clock.now()):
            with isolated(errors.append):
                await self._take(step, family)
        await self._explain(family)
        if errors:
            raise errors[0]
        return Result(requeue_after=self._until_gate(family))

    async def _explain(self, family: VariantFamily) -> None:
        """Write why the parent waits."""
        now, key = self._clock.now(), model.workload_key(family.parent)
        found = reason_to_wait(family, now)
        if found is not None:
            (reason, message), stamp = found, status.Stamp(now)
            await self._writer.write(
                key, lambda w: status.wait(w, reason=reason, message=message, stamp=stamp), lane=Lane.WORDS
            )

    def _owned(self, key: str, uid: str) -> list[wire.Workload]:
        """Return the Workloads that a Workload controls, in the order of their names."""
        newest = (self._writer.newest(owned) for owned in self._workloads.keys_by_index(VARIANTS_INDEX, key))
        found = [w for w in newest if w is not None and w.metadata.deletion_timestamp is None]
        return sorted((w for w in found if (model.controller_of(w.metadata) or ("", ""))[1] == uid), key=_name)

    def _queue(self, parent: wire.Workload, owned: Sequence[wire.Workload]) -> wire.ClusterQueue | None:
        """Return the ClusterQueue of a parent: that of its admission or its variants', else of its LocalQueue."""
        held = next((w.status.admission for w in (parent, *owned) if w.status.admission is not None), None)
        local = self._local_queues.get(model.local_queue_key(parent))
        name = held.cluster_queue if held is not None else local.spec.cluster_queue if local is not None else None
        return self._cache.quota.queue_object(name) if name else None

    def _until_gate(self, family: VariantFamily) -> float | None:
        """Return the seconds until another preemption gate may be opened; None: an event will say."""
        gate = gate_to_open(family)
        left = (gate.due - self._clock.now()).total_seconds() if gate is not None else 0
        return left if left > 0 else None

    async def _end(self, key: str, owned: Sequence[wire.Workload]) -> None:
        """Delete the variants of a Workload that must not have any, and remove its mark after the last of them."""
        for obj in owned:
            await self._steps.delete(obj)
        if not owned:
            await self._writer.write(key, lambda w: variant_patches.label(w, on=False), subresource=None)

    # --- one step each

    async def _take(self, step: VariantStep, family: VariantFamily) -> None:
        if step.kind is StepKind.CREATE:
            await self._create(step, family.parent)
        elif step.kind is StepKind.DELETE:
            await self._delete(step, family)
        elif step.kind in (StepKind.EVICT_PARENT, StepKind.ADMIT_PARENT):
            await self._write_parent(step, family)
        else:
            await self._write_variant(step, family)

    async def _create(self, step: VariantStep, parent: wire.Workload) -> None:
        """Create a variant from the parent as the API server has it: the watch has only parts of it."""
        meta = parent.metadata
        try:
            now = await self._client.get_json(WORKLOADS, meta.name, meta.namespace)
        except NotFoundError:
            return
        if now["metadata"]["uid"] != meta.uid or now["metadata"].get("deletionTimestamp"):
            return
        variant = variant_patches.variant_of(now, step.flavor, active=step.active, limit=self._limit)
        if await self._steps.create(variant):
            message = f"Created variant {variant['metadata']['name']} for flavor {step.flavor}"
            self._event(parent, variant_names.EVENT_CREATED_VARIANT, message)

    async def _delete(self, step: VariantStep, family: VariantFamily) -> None:
        """Delete a Workload that is no variant.

        One that never is like its parent, because another client changes it, is left alone after some times: otherwise
        it would be created and deleted without end.
        """
        meta = family.parent.metadata
        for obj, _ in family.others:
            uid = f"{meta.uid}/{obj.metadata.name}"
            is_meant = model.workload_key(obj) == step.key and self._recreations.allows(uid, meta.generation)
            if is_meant and await self._steps.delete(obj):
                self._recreations.deleted(uid, meta.generation)
                message = f"Deleted variant {obj.metadata.name}: {step.message}"
                self._event(family.parent, variant_names.EVENT_DELETED_VARIANT, message)

    async def _write_parent(self, step: VariantStep, family: VariantFamily) -> None:
        stamp = status.Stamp(self._clock.now())

        def change(parent: wire.Workload) -> status.Patch | None:
            if parent.metadata.uid != family.parent.metadata.uid:
                return None
            if step.kind is StepKind.EVICT_PARENT:
                return variant_patches.evict_parent(parent, reason=step.reason, message=step.message, stamp=stamp)
            variant = self._writer.newest(step.key)  # its admission may have ended since
            return variant_patches.admit_parent(parent, variant, stamp=stamp) if variant is not None else None

        written = await self._writer.write(model.workload_key(family.parent), change)
        if written is None:
            return
        if step.kind is StepKind.EVICT_PARENT:
            self._event(written, f"{names.EVENT_EVICTED_DUE_TO_PREFIX}{step.reason}", step.message)
        else:
            self._event(written, names.REASON_ADMITTED, f"Admitted in flavor {step.flavor} through its variant")
        _log.info("parent follows its variants", workload=model.workload_key(written), step=step.kind.value)

    async def _write_variant(self, step: VariantStep, family: VariantFamily) -> None:
        change = self._change_of(step, family)
        of_object = step.kind in (StepKind.ACTIVATE, StepKind.DEACTIVATE, StepKind.AMEND)
        uid = family.variants[step.flavor].metadata.uid
        written = await self._writer.write(
            step.key,
            lambda variant: change(variant) if variant.metadata.uid == uid else None,
            subresource=None if of_object else "status",
        )
        if written is not None and step.kind in _EVENTS:
            message = step.message or "It may preempt other workloads now"
            self._event(written, _EVENTS[step.kind], message)

    def _change_of(self, step: VariantStep, family: VariantFamily) -> Callable[[wire.Workload], status.Patch | None]:
        """Return the change of a variant."""
        stamp, parent = status.Stamp(self._clock.now()), family.parent
        match step.kind:
            case StepKind.EVICT_VARIANT:
                return lambda w: variant_patches.evict_variant(w, reason=step.reason, message=step.message, stamp=stamp)
            case StepKind.RELEASE:
                return lambda w: variant_patches.release_variant(w, stamp=stamp)
            case StepKind.COPY_PODS:
                return lambda w: variant_patches.copy_pods(w, parent, stamp=stamp)
            case StepKind.FINISH:
                return lambda w: status.finish(w, reason=step.reason, message=step.message, stamp=stamp)
            case StepKind.AMEND:
                return lambda w: variant_patches.priority_of_parent(w, parent)
            case StepKind.OPEN_GATE:
                return lambda w: variant_patches.open_gate(w, stamp=stamp)
        return lambda w: variant_patches.switch(w, active=step.kind is StepKind.ACTIVATE)

    def _event(self, workload: wire.Workload, reason: str, message: str) -> None:
        self._recorder.record(workload_reference(workload), reason=reason, message=message)


def _name(obj: wire.Workload) -> str:
    return obj.metadata.name


def setup(manager: Manager) -> None:
    """Add the reconciler, if the gate is on.  A variant enqueues its parent, a change of queues all Workloads."""
    if not manager.config.enabled(_GATE):
        return
    watches = manager.watches
    watches.workloads.store.add_index(VARIANTS_INDEX, variant_keys)
    reconciler = ConcurrentAdmissionReconciler(
        ConcurrentContext(
            workloads=watches.workloads.store,
            local_queues=watches.local_queues.store,
            cache=manager.cache,
            client=manager.client,
            writer=manager.workload_writer,
            steps=manager.steps,
            recorder=manager.recorder(Reporter.VARIANTS),
            clock=manager.clock,
        ),
        limit=SHORT_NAME if manager.config.enabled("ShortWorkloadNames") else LONG_NAME,
    )
    parents = manager.controller("concurrent_admission", reconciler.reconcile, workers=4)

    def on_workload(old: wire.Workload | None, new: wire.Workload | None) -> None:
        seen = new if new is not None else old
        if seen is not None:
            parents.enqueue(model.parent_key(seen) or model.workload_key(seen))

    async def enqueue_all() -> None:
        for number, obj in enumerate(list(watches.workloads.store.values()), start=1):
            parents.enqueue(model.parent_key(obj) or model.workload_key(obj))
            if number % KEYS_PER_TURN == 0:
                await manager.clock.sleep(0)

    watches.workloads.subscribe(on_workload)
    manager.on_configuration.append(enqueue_all)
