"""Writes the priority of Workloads when the value of their WorkloadPriorityClass changes, whether they wait or run."""

from __future__ import annotations

from typing import Any

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.controllers.manager import KEYS_PER_TURN, Manager
from kqueue.controllers.record import Recorder, Reporter, workload_reference
from kqueue.runtime.controller import Result
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.store import Store

PRIORITY_CLASS_INDEX = "workload-priority-class"
"""Index of Workloads by the name of their class."""


def priority_class_keys(workload: wire.Workload) -> list[str]:
    """Return the name of the WorkloadPriorityClass of a Workload's priority; empty: it has no such class."""
    named = workload.spec.priority_class_ref
    if named is None or (named.group, named.kind) != (names.GROUP, names.WORKLOAD_PRIORITY_CLASS_KIND):
        return []
    return [named.name]


class WorkloadPriorityReconciler:
    """Sets a Workload's priority to the value of its class.  A deleted class changes nothing."""

    def __init__(
        self,
        *,
        classes: Store[wire.WorkloadPriorityClass],
        writer: StatusWriter[wire.Workload],
        recorder: Recorder,
    ) -> None:
        self._classes, self._writer, self._recorder = classes, writer, recorder

    def is_stale(self, workload: wire.Workload) -> bool:
        """Whether the Workload's priority differs from the value of its class and still has an effect."""
        return self._change(workload) is not None

    async def reconcile(self, key: str) -> Result:
        """Write the value of the class if the Workload has another one."""
        written = await self._writer.write(key, self._change, subresource=None)
        if written is not None:
            [name] = priority_class_keys(written)
            message = f"WorkloadPriorityClass {name} has another value: the priority is {written.spec.priority} now"
            self._recorder.record(workload_reference(written), reason=names.EVENT_UPDATED_WORKLOAD, message=message)
        return Result()

    def _change(self, workload: wire.Workload) -> dict[str, Any] | None:
        if model.condition_true(workload, names.CONDITION_FINISHED):
            return None
        for name in priority_class_keys(workload):
            found = self._classes.get(name)
            if found is not None and found.value != workload.spec.priority:
                return {"spec": {"priority": found.value}}
        return None


def setup(manager: Manager) -> None:
    """Add the reconciler.  A class with a new value enqueues the Workloads of the class."""
    workloads, classes = manager.watches.workloads, manager.watches.workload_priorities
    workloads.store.add_index(PRIORITY_CLASS_INDEX, priority_class_keys)
    reconciler = WorkloadPriorityReconciler(
        classes=classes.store, writer=manager.workload_writer, recorder=manager.recorder(Reporter.WORKLOADS)
    )
    priorities = manager.controller("workload_priority", reconciler.reconcile, workers=4)

    async def enqueue_workloads(name: str) -> Result:
        for number, key in enumerate(list(workloads.store.keys_by_index(PRIORITY_CLASS_INDEX, name)), start=1):
            workload = workloads.store.get(key)
            if workload is not None and reconciler.is_stale(workload):
                priorities.enqueue(key)
            if number % KEYS_PER_TURN == 0:
                await manager.clock.sleep(0)
        return Result()

    changed = manager.controller("workload_priority_class", enqueue_workloads)

    def on_class(old: wire.WorkloadPriorityClass | None, new: wire.WorkloadPriorityClass | None) -> None:
        if new is not None and (old is None or old.value != new.value):
            changed.enqueue(new.metadata.name)

    def on_workload(old: wire.Workload | None, new: wire.Workload | None) -> None:
        """Enqueue a Workload with an old value: its class may have changed while the Workload was created."""
        if old is None and new is not None and reconciler.is_stale(new):
            priorities.enqueue(model.workload_key(new))

    classes.subscribe(on_class)
    workloads.subscribe(on_workload)
