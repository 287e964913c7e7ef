"""Whole worlds with joint placement: whatever happens to rounds and to planners, what is promised holds."""

from __future__ import annotations

import pytest

from tests.sim import invariants
from tests.sim.api_client import NONE, ROUGH, Faults
from tests.sim.chosen import seeds
from tests.sim.joint_actor import JointActor, losing_the_lease
from tests.sim.joint_plan import draw_joint
from tests.sim.joint_planner import Desk
from tests.sim.joint_tenancy import joint_tenancy
from tests.sim.world import World, simulated

TURNS_OF_A_TERM = 150


async def lived_jointly(
    seed: int, faults: Faults, *, steps: int = 30, per_thousand: int = 0, every: int = 0
) -> tuple[World, JointActor]:
    """A world that a plan was carried out on; `per_thousand` rounds have a fault, and after `every` turns the lease is
    lost (0: it is not).
    """
    tenancy = joint_tenancy(seed)
    desk = Desk(seed, per_thousand=per_thousand, slow=bool(per_thousand))
    async with simulated(seed, faults=faults, tenancy=tenancy, operator=desk.operator()) as world:
        invariants.watch(world)
        actor = JointActor(world, draw_joint(seed, tenancy, steps=steps), desk)
        if every:
            losing_the_lease(world, seed, every=every)
        await actor.run()
        return world, actor


@pytest.mark.parametrize("seed", seeds("0,1"))
@pytest.mark.mechanism("2.6")
@pytest.mark.mechanism("2.8")
@pytest.mark.mechanism("2.23")
async def test_joint_placement_keeps_every_promise(seed: int) -> None:
    """Thirty steps; every third world without faults of the API server, every second one with faults of the planner."""
    _world, actor = await lived_jointly(seed, NONE if seed % 3 == 0 else ROUGH, per_thousand=60 if seed % 2 else 0)
    assert actor.desk.rounds


@pytest.mark.parametrize("seed", seeds("5"))
@pytest.mark.mechanism("2.27")
async def test_joint_placement_lives_on_where_the_lease_is_lost(seed: int) -> None:
    """Terms end at drawn turns of the event loop; no leader carries out the plan of an earlier one."""
    faults = NONE if seed % 3 == 0 else ROUGH
    _world, actor = await lived_jointly(seed, faults, per_thousand=60 if seed % 2 else 0, every=TURNS_OF_A_TERM)
    assert actor.desk.rounds


async def test_a_seed_is_a_world_with_joint_placement() -> None:
    """The same seed does the same, and every object has the same bytes in the same order."""
    first, one = await lived_jointly(11, ROUGH, steps=8, per_thousand=60)
    second, other = await lived_jointly(11, ROUGH, steps=8, per_thousand=60)

    assert first.history.fingerprint() == second.history.fingerprint()
    assert [asked.world for asked in one.desk.rounds] == [asked.world for asked in other.desk.rounds]
