"""Which events bring Workloads to whoever keeps their priority true to its class."""

from __future__ import annotations

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.controllers.workload_priority import (
    PRIORITY_CLASS_INDEX,
    WorkloadPriorityReconciler,
    priority_class_keys,
)
from kqueue.manager.telemetry import WORKLOADS
from kqueue.manager.wiring.shared import AT_ONCE, Wiring
from kqueue.runtime.controller import Result


def make_priorities(wiring: Wiring) -> None:
    """A class that comes or has another value is written into the Workloads that name it; a new Workload is checked."""
    watches = wiring.watches
    workloads = watches.workloads.store
    workloads.add_index(PRIORITY_CLASS_INDEX, priority_class_keys)
    reconciler = WorkloadPriorityReconciler(
        classes=watches.workload_priorities.store, writer=wiring.workload_writer, recorder=wiring.events.by(WORKLOADS)
    )
    priorities = wiring.controller("workload_priority", reconciler.reconcile, workers=4)

    async def look_at_all(name: str) -> Result:
        for number, key in enumerate(list(workloads.keys_by_index(PRIORITY_CLASS_INDEX, name)), start=1):
            workload = workloads.get(key)
            if workload is not None and reconciler.is_stale(workload):
                priorities.enqueue(key)
            if number % AT_ONCE == 0:
                await wiring.clock.sleep(0)
        return Result()

    classes = wiring.controller("workload_priority_class", look_at_all)

    def on_class(old: wire.WorkloadPriorityClass | None, new: wire.WorkloadPriorityClass | None) -> None:
        if new is not None and (old is None or old.value != new.value):
            classes.enqueue(new.metadata.name)

    def on_workload(old: wire.Workload | None, new: wire.Workload | None) -> None:
        """One that was made while its class changed may have the former value."""
        if old is None and new is not None and reconciler.is_stale(new):
            priorities.enqueue(model.workload_key(new))

    watches.workload_priorities.subscribe(on_class)
    watches.workloads.subscribe(on_workload)
