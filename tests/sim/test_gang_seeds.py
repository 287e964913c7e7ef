"""Whole worlds of gangs from seeds: whatever is done to them, no gang runs in part, and all come to their ends."""

from __future__ import annotations

from functools import partial

import pytest

from tests.sim import gang_invariants, invariants
from tests.sim.api_client import NONE, ROUGH, Faults
from tests.sim.chosen import SELDOM, seeds
from tests.sim.gang_actor import GangActor
from tests.sim.gang_forms import DIALECTS
from tests.sim.gang_plan import draw_gangs
from tests.sim.kinds_plan import kinds_tenancy
from tests.sim.plan import End, Plan
from tests.sim.world import World, simulated


async def lived(seed: int, plan: Plan, faults: Faults) -> tuple[World, dict[str, End]]:
    """A world of gangs that a plan was carried out on, and what became of everything."""
    tenancy = kinds_tenancy(seed)
    async with simulated(f"{seed}", faults=faults, tenancy=tenancy, job_sets=True, pods=True, gangs=DIALECTS) as world:
        invariants.watch(world)
        world.history.witnesses += [partial(witness, world) for witness in gang_invariants.ON_ADMISSION]
        actor = GangActor(world, plan)
        await actor.run()
        return world, actor.ends()


@pytest.mark.parametrize("seed", seeds("0-2,5"))
async def test_gangs_of_all_sizes_live_together(seed: int) -> None:
    """Sixty steps of gangs, groups, pods and Jobs; every third world without faults."""
    await lived(seed, draw_gangs(seed), NONE if seed % 3 == 0 else ROUGH)


@pytest.mark.parametrize("seed", [4, pytest.param(13, marks=SELDOM)])
async def test_kills_and_faults_change_no_end_of_a_gang(seed: int) -> None:
    """With kills and faults, and in peace: the same gangs complete, wait and are gone."""
    plan = draw_gangs(seed)
    _, battered = await lived(seed, plan, ROUGH)
    _, peaceful = await lived(seed, plan.without("kill"), NONE)

    assert battered == peaceful
    assert any(step.action == "kill" for step in plan.steps)
