"""Plans that move running gangs: whatever fails, no gang is moved without consent, twice by a plan, or for nothing."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.sim import invariants
from tests.sim.api_client import NONE, ROUGH
from tests.sim.joint_actor import losing_the_lease
from tests.sim.joint_moves import MovesActor, draw_moves, moving
from tests.sim.joint_planner import Desk
from tests.sim.plan import Plan
from tests.sim.test_joint_rounds import one_queue
from tests.sim.test_seeds import _seeds
from tests.sim.world import World, is_true, simulated


async def moved(seed: int, *, steps: int = 36) -> MovesActor:
    """A world whose gangs are moved; every second seed approves plans by itself, every third loses its leaders."""
    an_hour = 1 + seed % 4
    settings = moving(auto=bool(seed % 2), an_hour=an_hour, parallel=1 + seed % 2)
    tenancy = replace(one_queue(racks=(1, 3, 4)), joint=settings)
    desk = Desk(seed, per_thousand=30 if seed % 5 == 4 else 0)
    faults = ROUGH if seed % 4 == 3 else NONE
    async with simulated(seed, faults=faults, tenancy=tenancy, operator=desk.operator()) as world:
        invariants.watch(world)
        actor = MovesActor(world, draw_moves(seed, steps=steps), desk, an_hour=an_hour)
        if seed % 3 == 2:
            losing_the_lease(world, seed, every=300)
        await actor.run()
        return actor


@pytest.mark.parametrize("seed", _seeds("0,1"))
@pytest.mark.mechanism("2.10")
async def test_moves_keep_every_promise(seed: int) -> None:
    await moved(seed)


def _start_again(world: World) -> None:
    """Start a controller if the last one was killed."""
    if world.controller is None:
        world.start_controller()


async def _freed(number: int, *, after: bool) -> int:
    """Six gangs of two hosts come, three end, and one that needs a rack waits; the leader is killed at a write of the plan
    that moves one of them.  Return the number of these writes.
    """
    tenancy = replace(one_queue(racks=(1, 3, 4)), joint=moving(auto=True))
    desk = Desk("moved")
    async with simulated(desk.seed, tenancy=tenancy, operator=desk.operator()) as world:
        invariants.watch(world)
        actor = MovesActor(world, Plan(), desk, an_hour=4)
        for each in range(6):
            await actor.submit(f"small-{each}", queue="q", pods=2, consent="Always", run_seconds=1500 - each % 2 * 1480)
        await world.pass_time(60)
        await actor.submit("big", queue="q", pods=4, run_seconds=100)
        await world.pass_time(540)
        assert world.controller is not None
        client = world.controller.client
        before = len(client.writes)
        if number:
            world.arm_kill(number, after=after)
        while not actor.moves.phases["Done"] and world.clock.monotonic() < 1400:
            await world.pass_time(1)
            _start_again(world)
        writes = len(client.writes) - before
        await world.pass_time(30)
        told = f"killed at write {number}: {dict(actor.moves.phases)}"
        assert actor.moves.moves == actor.moves.phases["Done"] == 1, told
        big = world.workload_of("big")
        assert is_true(big, "Admitted") or is_true(big, "Finished"), told
        assert all(is_true(world.workload_of(f"small-{each}"), "Admitted") for each in (0, 2, 4)), told
        await world.pass_time(200)
        actor.check(invariants.ALWAYS)
        return writes


@pytest.mark.mechanism("2.10")
@pytest.mark.mechanism("2.27")
@pytest.mark.parametrize(
    "after", [pytest.param(False, id="before"), pytest.param(True, id="after", marks=pytest.mark.slow)]
)
async def test_a_leader_that_is_killed_at_any_write_of_a_plan_is_gone_on_from(*, after: bool) -> None:
    """One gang moves once, it runs again, and the gang that waited starts; fewer writes are tried in every run."""
    writes = await _freed(0, after=after)
    assert writes > 10
    every = os.environ.get("KQUEUE_SIM_TURNS") == "all"
    for number in range(1, writes, 1 if every else writes // 4):
        await _freed(number, after=after)
