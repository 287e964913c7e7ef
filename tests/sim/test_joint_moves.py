"""Plans that move running gangs: whoever is lost or in the way, nobody is moved unasked, twice or in vain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sim import invariants
from tests.sim.api_client import NONE, ROUGH
from tests.sim.joint_actor import losing_the_lease
from tests.sim.joint_moves import MovesActor, draw_moves, moving
from tests.sim.joint_planner import Desk
from tests.sim.test_joint_rounds import one_queue
from tests.sim.test_seeds import _seeds
from tests.sim.world import simulated


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
