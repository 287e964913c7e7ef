"""Gated pods of elastic jobs that nobody will release are found, told once, and counted while they last."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from kqueue.controllers.elastic_gates import ElasticGates
from kqueue.controllers.held_pods import Sweep
from kqueue.controllers.resources import WORKLOADS
from tests.unit.controllers.builders import EARLIER, JSON, condition
from tests.unit.controllers.fakes import FakeRecorder
from tests.unit.controllers.test_elastic_ungater import ADMITTED, World, pod, slice_of

AFTER, INTERVAL = 300.0, 60.0
NONE = {"elastic_job_not_queued": 0, "elastic_job_beyond_workload": 0}


class Floor(World):
    """Pods and slices, who releases the ones by the others, and who sweeps."""

    def __init__(self, *objects: JSON) -> None:
        super().__init__(*objects)
        self.recorder, self.counted = FakeRecorder(), dict[str, int]()
        self.gates = ElasticGates(
            pods=self.pods,
            slices=self.ungater.slices,
            standing=self.ungater.standing,
            recorder=self.recorder,
            sweep=Sweep(clock=self.clock, after=AFTER, interval=INTERVAL, report=self.counted.update),
        )

    async def sweep(self, seconds: float = 0.0) -> dict[str, int]:
        """One look, so much later; the reasons that count any pod."""
        await self.clock.advance(seconds)
        await self.gates.sweep()
        return {reason: number for reason, number in self.counted.items() if number}


@pytest.fixture
async def floors() -> AsyncIterator[list[Floor]]:
    made: list[Floor] = []
    yield made
    for floor in made:
        await floor.client.close()


RUNS = [pod("p0", gates=(), phase="Running"), pod("p1", gates=(), phase="Running")]


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        pytest.param([slice_of("a", 2), *RUNS], "elastic_job_beyond_workload", id="it has grown and asks for no more"),
        pytest.param([slice_of("a", 2), slice_of("b", 3, condition("QuotaReserved", "False"), replaces="a"), *RUNS], "", id="a newer slice waits"),
        pytest.param([slice_of("a", 3), *RUNS], "", id="it is about to be released"),
        pytest.param([slice_of("a", 2, *ADMITTED, condition("Finished")), *RUNS], "elastic_job_not_queued", id="its last slice has finished"),
        pytest.param([slice_of("a", 3, metadata={"deletionTimestamp": EARLIER, "finalizers": ["x"]})], "elastic_job_not_queued", id="its slice is on its way out"),
        pytest.param(RUNS, "elastic_job_not_queued", id="it has no Workload"),
    ],
)  # fmt: skip
async def test_a_pod_that_nobody_will_release_is_told(floors: list[Floor], objects: list[JSON], reason: str) -> None:
    """By a Warning on the pod, once, and in the count of its reason, once it has lasted for the limit."""
    floors.append(floor := Floor(pod("p9"), *objects))
    early = [await floor.sweep(), await floor.sweep(AFTER - 1)]
    late = [await floor.sweep(1), await floor.sweep(INTERVAL)]

    assert early == [{}, {}]
    assert late == [{reason: 1} if reason else {}] * 2
    assert floor.recorder.events == ([("Pod p9", "ElasticGateHeld")] if reason else [])
    assert floor.recorder.warnings == (["ElasticGateHeld"] if reason else [])


@pytest.mark.parametrize(
    ("held", "told"),
    [
        pytest.param(pod("p9", marks={}), True, id="started without ever having been queued"),
        pytest.param(pod("p9", marks={}, gates=("example.com/mine",)), False, id="held by somebody else"),
        pytest.param(pod("p9", deleted=True), False, id="on its way out"),
        pytest.param(pod("p9", phase="Failed"), False, id="ended"),
    ],
)
async def test_whom_the_gate_holds(floors: list[Floor], held: JSON, told: bool) -> None:
    """Ours, and none that will not run anyway."""
    floors.append(floor := Floor(held))
    await floor.sweep()

    assert await floor.sweep(AFTER) == ({"elastic_job_not_queued": 1} if told else {})


async def test_who_is_free_in_between_is_counted_anew(floors: list[Floor]) -> None:
    """A job that is queued again after a while."""
    floors.append(floor := Floor(pod("p9")))
    await floor.sweep()
    floor.client.put(WORKLOADS, slice_of("a", 1))
    floor.client.sync()
    await floor.sweep(AFTER - 1)
    floor.client.drop(WORKLOADS, "ns/a")
    floor.client.sync()

    assert await floor.sweep(1) == {}
    assert await floor.sweep(AFTER) == {"elastic_job_not_queued": 1}


async def test_one_that_does_not_lead_any_more_counts_nothing(floors: list[Floor]) -> None:
    """Its last word is zero."""
    floors.append(floor := Floor(pod("p9")))
    task = asyncio.create_task(floor.gates.run())
    for _ in range(int(AFTER / INTERVAL) + 1):
        await floor.clock.advance(INTERVAL)
    counted = dict(floor.counted)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task

    assert (counted["elastic_job_not_queued"], floor.counted) == (1, NONE)
