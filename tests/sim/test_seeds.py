"""Whole worlds from seeds: whatever is done to them, what is promised holds after every step, and all comes to its end."""

from __future__ import annotations

import os
from functools import partial

import pytest

from tests.sim import invariants
from tests.sim.actor import Actor
from tests.sim.api_client import NONE, ROUGH
from tests.sim.objects import job
from tests.sim.plan import draw
from tests.sim.world import World, condition, simulated


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
        await world.submit(job("running", pods=4, run_seconds=None))
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
