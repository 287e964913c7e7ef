"""The sequence of steps that every owner of a Workload takes, shown with an owner of a kind that kqueue does not have."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.controllers.owner_context import OwnerContext, OwnerPolicy
from kqueue.controllers.owner_lifecycle import OwnerLifecycle
from kqueue.controllers.resources import WORKLOADS
from kqueue.controllers.workload_steps import Referred, WorkloadSteps
from kqueue.jobs.switches import JobFeatures
from kqueue.runtime.controller import Result
from kqueue.runtime.store import Store
from tests.unit.controllers.builders import DAY, JSON, World, condition, make_workload
from tests.unit.toys.toy_owner import Lamp, LampOwner

IN_USE = "kueue.x-k8s.io/resource-in-use"
ADMISSION = {
    "clusterQueue": "team",
    "podSetAssignments": [{"name": "main", "count": 1, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1"}}],
}
RESERVED = {"admission": ADMISSION, "conditions": [condition("QuotaReserved")]}
ADMITTED = {"admission": ADMISSION, "conditions": [condition("QuotaReserved"), condition("Admitted")]}


def evicted(*more: JSON, reason: str = "Preempted") -> JSON:
    """The status of an evicted Workload."""
    return {"conditions": [{**condition("Evicted"), "reason": reason, "message": "made room"}, *more]}


class Lamps(World):
    """A world with Workload `a` of a lamp."""

    def __init__(self, status: JSON | None, metadata: JSON | None = None, **spec: Any) -> None:
        super().__init__((WORKLOADS, make_workload(status=status, metadata=metadata, **spec)))
        self.steps = WorkloadSteps(
            client=self.client,
            writer=self.writer,
            referred=Referred(
                flavors=self.flavors.get,
                workload_priorities=Store[wire.WorkloadPriorityClass]("classes"),
                pod_priorities=Store[wire_core.PriorityClass]("priorities"),
            ),
            recorder=self.recorder,
            switches=JobFeatures(),
            clock=self.clock,
        )
        self.life_cycle = OwnerLifecycle(
            OwnerContext(
                client=self.client,
                book=self.writer,
                workloads=self.workloads,
                steps=self.steps,
                recorder=self.recorder,
                clock=self.clock,
                manages=lambda _namespace: True,
                policy=OwnerPolicy(keep_deactivated=timedelta(days=1, seconds=100)),
            )
        )
        self.sync()

    async def step(self, lamp: Lamp) -> Result:
        """One reconcile of the lamp."""
        self.sync()
        workload = self.workloads.get("ns/a")
        assert workload is not None
        return await self.life_cycle.step(LampOwner(lamp, workload, self.steps))


def row(
    name: str, status: JSON | None, lamp: Lamp, *, done: list[str], writes: int = 0, again: float | None = None
) -> Any:
    """What one step does to the lamp, how many requests write, and when it is read again."""
    return pytest.param(status, lamp, done, writes, again, id=name)


@pytest.mark.parametrize(
    ("status", "lamp", "done", "writes", "again"),
    [
        row(
            "finished: closed and released", {"conditions": [condition("Finished")]}, Lamp(), done=["closed"], writes=1
        ),
        row("without an admission it waits", None, Lamp(), done=["waits"]),
        row("with a reservation alone it waits", RESERVED, Lamp(), done=["waits"]),
        row("admitted: started", ADMITTED, Lamp(), done=["started"]),
        row("started: guarded", ADMITTED, Lamp(shines=True), done=["guarded"]),
        row("burnt out: finished", ADMITTED, Lamp(shines=True, burnt_out=True), done=[], writes=1),
        row("another queue comes before a start", ADMITTED, Lamp(queue="other"), done=[], writes=1),
        row("evicted: stopped", evicted(), Lamp(shines=True), done=["stopped: made room"]),
        row(
            "evicted, pods end: quota is kept",
            {**RESERVED, **evicted(condition("QuotaReserved"))},
            Lamp(shines=True, glows=True),
            done=["stopped: made room"],
            again=3.0,
        ),
        row(
            "evicted, pods have ended: quota is released",
            {**RESERVED, **evicted(condition("QuotaReserved"))},
            Lamp(),
            done=["stopped: made room"],
            writes=1,
        ),
    ],
)
async def test_one_step(status: JSON | None, lamp: Lamp, done: list[str], writes: int, again: float | None) -> None:
    """The first step that applies, and no other."""
    world = Lamps(status, {"finalizers": [IN_USE]})
    before = len(world.client.writes())

    result = await world.step(lamp)

    assert (lamp.done, len(world.client.writes()) - before, result.requeue_after) == (done, writes, again)


@pytest.mark.parametrize(("glows", "writes", "again"), [(True, 0, 3.0), (False, 1, None)])
async def test_a_deleted_workload_goes_after_the_last_pod(glows: bool, writes: int, again: float | None) -> None:
    """The finalizer holds the Workload, and with it the quota, until no pod uses it."""
    deleted = {"finalizers": [IN_USE], "deletionTimestamp": f"{DAY}T00:00:00Z"}
    world, lamp = Lamps(ADMITTED, deleted), Lamp(shines=True, glows=glows)

    result = await world.step(lamp)

    assert lamp.done == ["stopped: The Workload of the lamp was deleted"]
    assert (len(world.client.writes()), result.requeue_after) == (writes, again)


async def test_a_deactivated_owner_is_removed_in_time() -> None:
    """Not before its time, and not while it shines."""
    world, lamp = Lamps(evicted(reason="DeactivatedDueToRequeuingLimitExceeded"), active=False), Lamp()

    first = await world.step(lamp)
    early = list(lamp.done)
    await world.clock.advance(first.requeue_after or 0.0)
    await world.step(lamp)

    assert (first.requeue_after, "removed" in early, lamp.done[-1]) == (100.0, False, "removed")
