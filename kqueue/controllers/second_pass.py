"""Wakes the scheduling loop for Workloads with quota that need domains or other hosts, each after its pause."""

from __future__ import annotations

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.controllers.manager import Manager
from kqueue.runtime.controller import Result


def setup(manager: Manager) -> None:
    """Add the queue of these Workloads.  `SecondPass` decides when each of them is due."""
    second_pass = manager.second_pass

    async def ready(key: str) -> Result:
        if second_pass.ready(key):
            manager.wake()
        return Result()

    controller = manager.controller("second_pass", ready)
    second_pass.later = controller.enqueue

    def on_workload(_old: wire.Workload | None, new: wire.Workload | None) -> None:
        if new is None:
            return
        if (new.status.unhealthy_nodes and model.is_placed(new)) or model.needs_domains(new):
            second_pass.ask(model.workload_key(new))

    manager.watches.workloads.subscribe(on_workload)
