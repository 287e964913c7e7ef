"""Crowds for the scheduler in memory: cohorts of ClusterQueues, workloads that run, and cycles that can be repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from kqueue.api.wire import kueue as wire
from kqueue.core.topology import TopologyAssignment
from kqueue.core.workload import Admission, PodSetAssignment
from kqueue.model import workload_key
from kqueue.scheduling.settings import LoopSettings
from kqueue.state.preemptions import Preemptions
from kqueue.state.status import admission_json
from tests.bench._scheduler import EPOCH, World

PREEMPTING = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}


class Stage:
    """A world on an event loop of its own, whose cycles are called as plain functions and can be undone."""

    def __init__(self, fill: Callable[[World], None], settings: LoopSettings | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._preemptions = Preemptions()
        self.world = self._loop.run_until_complete(_made(fill, settings, self._preemptions))
        self._before = dict(self.world.writer.objects)

    def cycle(self) -> bool:
        """One cycle and the end of its writes; whether something was admitted."""
        return self._loop.run_until_complete(self.world.cycle())

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._loop.run_until_complete(self.world.clock.advance(seconds))

    def undo(self) -> None:
        """Whatever was written about is deleted, and made once more as it was."""
        self._loop.run_until_complete(_undone(self.world, self._preemptions, self._before))

    def admitted(self) -> list[str]:
        """Keys of the workloads that got quota, in the order of their writes."""
        return [key for key, patches in self.world.writer.patches.items() if "admission" in patches[-1]["status"]]

    def close(self) -> None:
        """Stop what waits, and the event loop."""
        self._loop.run_until_complete(self.world.close())
        self._loop.close()


async def _made(fill: Callable[[World], None], settings: LoopSettings | None, preemptions: Preemptions) -> World:
    world = World(settings=settings, preemptions=preemptions)
    fill(world)
    return world


async def _undone(world: World, preemptions: Preemptions, before: Mapping[str, wire.Workload]) -> None:
    changed = [before[key] for key in world.writer.patches]
    world.writer.patches.clear()
    for obj in changed:
        world.intake.on_workload(obj, None)
        preemptions.admitted(obj.metadata.uid)  # neither its claim nor whom it has evicted is remembered
    world.queues.flush(world.queues.names())
    for obj in sorted(changed, key=lambda obj: obj.metadata.creation_timestamp or EPOCH):
        world.writer.objects[workload_key(obj)] = obj
        world.intake.on_workload(None, obj)


def cohorts(world: World) -> list[str]:
    """A tree of cohorts, 1, 5, 25 and 125 in a level; the names of the lowest ones."""
    level = ["cohort"]
    world.cohort(level[0])
    for _ in range(3):
        below = [(f"{parent}-{i}", parent) for parent in level for i in range(5)]
        for name, parent in below:
            world.cohort(name, parent=parent)
        level = [name for name, _ in below]
    return level


def running(
    queue: str,
    usage: Mapping[str, str],
    *,
    pods: int = 1,
    since: datetime = EPOCH,
    where: TopologyAssignment | None = None,
    flavor: str = "flavor",
) -> dict[str, Any]:
    """The status of a workload that has run in a ClusterQueue since then; `usage` is the whole workload's."""
    at = since.strftime("%Y-%m-%dT%H:%M:%SZ")
    held = PodSetAssignment(name="main", flavors=dict.fromkeys(usage, flavor), usage={}, count=pods, topology=where)
    admission = admission_json(Admission(queue=queue, pod_sets=(held,)))
    admission["podSetAssignments"][0]["resourceUsage"] = dict(usage)
    return {
        "admission": admission,
        "conditions": [
            {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": at}
            for kind in ("QuotaReserved", "Admitted")
        ],
    }
