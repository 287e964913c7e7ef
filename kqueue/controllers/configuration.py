"""Checks all workloads again after queues, cohorts, flavors, topologies, checks or namespaces changed.

Each of these may block or unblock any waiting workload.  All changes share one key, so that many changes at once, as at
the start of the process, cost one pass.
"""

from __future__ import annotations

from typing import Any

from kqueue.controllers.handlers import if_changed
from kqueue.controllers.manager import Manager
from kqueue.runtime.controller import Result
from kqueue.runtime.reflector import Reflector

_KEY = "all"


def setup(manager: Manager) -> None:
    """Add the controller, which calls every handler of `manager.on_configuration` in order."""
    watches = manager.watches

    async def reconcile(_key: str) -> Result:
        for handler in manager.on_configuration:
            await handler()
        return Result()

    controller = manager.controller("configuration", reconcile)

    def on_change(_old: object, _new: object) -> None:
        controller.enqueue(_KEY)

    watched: list[Reflector[Any, Any]] = [
        watches.local_queues,
        watches.cluster_queues,
        watches.cohorts,
        watches.flavors,
        watches.topologies,
        watches.checks,
        watches.namespaces,
    ]
    for watch in watched:
        watch.subscribe(if_changed(on_change))
