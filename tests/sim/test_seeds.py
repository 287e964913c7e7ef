"""Whole worlds from seeds: whatever is done to them, what is promised holds after every step, and all comes to its end."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from kqueue.sandbox.api import JOBS
from tests.sim import invariants
from tests.sim.actor import Actor
from tests.sim.api_client import NONE, ROUGH
from tests.sim.objects import CLUSTER_QUEUES, NAMESPACE, job
from tests.sim.plan import draw
from tests.sim.world import World, condition, is_true, simulated


def _seeds() -> list[object]:
    """`KQUEUE_SIM_SEEDS=1000-1100` (or 7,9,12) chooses others."""
    chosen = os.environ.get("KQUEUE_SIM_SEEDS", "")
    if not chosen:
        return [pytest.param(n, id=f"seed {n}") for n in range(20)]
    numbers: list[int] = []
    for part in chosen.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return [pytest.param(n, id=f"seed {n}") for n in numbers]


def watch_admissions(world: World) -> None:
    """Let the invariants see every admission as it is written."""
    world.history.witnesses += [partial(invariant, world) for invariant in invariants.ON_ADMISSION]


@pytest.mark.parametrize("seed", _seeds())
async def test_whatever_happens_every_promise_holds(seed: int) -> None:
    """Sixty steps, every third world without faults; at the end each Job has come to the end it must come to."""
    faults = NONE if seed % 3 == 0 else ROUGH
    async with simulated(seed, faults=faults) as world:
        watch_admissions(world)
        await Actor(world, draw(seed)).run()


async def test_equals_that_were_not_tried_say_what_was_said_of_the_one_that_was() -> None:
    """Of equal Jobs one is tried and the others are parked with it, those that come later too; all name the numbers."""
    async with simulated() as world:
        await world.submit(job("running", pods=4, run_seconds=1000))
        await world.pass_time(1)
        for name in ("tried", "parked", "late"):
            await world.submit(job(name, pods=4))
            await world.pass_time(2 if name == "parked" else 0)
        found = [condition(world.workload_of(name), "QuotaReserved") for name in ("tried", "parked", "late")]

    said = [(c["status"], c["reason"], c["message"]) for c in found if c is not None]
    assert len(said) == 3
    assert set(said) == {said[0]}
    assert said[0][:2] == ("False", "WaitingForQuota")
    assert "asks for 32" in said[0][2]


async def _submitted(world: World) -> None:
    await world.submit(job("gang"))


async def _started_by_hand(world: World) -> None:
    await world.api.patch(CLUSTER_QUEUES, "solo", {"spec": {"stopPolicy": "Hold"}})
    await world.submit(job("gang"))
    await world.pass_time(3)
    await world.api.patch(CLUSTER_QUEUES, "solo", {"spec": {"stopPolicy": "None"}})
    await world.api.patch(JOBS, "gang", {"spec": {"suspend": False}}, namespace=NAMESPACE)


async def _drained(world: World) -> None:
    await world.submit(job("gang"))
    await world.pass_time(3)
    await world.api.patch(CLUSTER_QUEUES, "solo", {"spec": {"stopPolicy": "HoldAndDrain"}})
    await world.pass_time(3)
    await world.api.patch(CLUSTER_QUEUES, "solo", {"spec": {"stopPolicy": "None"}})


@pytest.mark.parametrize("after", [pytest.param(False, id="before"), pytest.param(True, id="after")])
@pytest.mark.parametrize(
    ("act", "writes"),
    [
        pytest.param(_submitted, 9, id="a gang that is submitted"),
        pytest.param(_started_by_hand, 14, id="a gang whose user starts it by hand when its turn comes"),
        pytest.param(_drained, 20, id="a gang whose queue is drained and opened again"),
    ],
)
async def test_a_controller_killed_at_any_write_is_gone_on_from(
    act: Callable[[World], Awaitable[None]], writes: int, *, after: bool
) -> None:
    """Killed just before or just after its nth write, for every n: the next controller brings the Job to the same end."""
    for number in range(1, writes + 1):
        async with simulated(f"write {number}") as world:
            watch_admissions(world)
            world.arm_kill(number, after=after)
            await act(world)
            await world.pass_time(20)
            world.kill_controller()
            world.start_controller()
            await world.pass_time(100)

            found = invariants.breaches(world, (*invariants.ALWAYS, *invariants.AT_REST, invariants.nothing_is_held))
            assert (number, found) == (number, [])
            assert is_true(world.find(JOBS, "gang"), "Complete"), f"killed at write {number}"
