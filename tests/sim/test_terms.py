"""A process that loses its lease and wins it again forgets no job and keeps no charge without an owner."""

from __future__ import annotations

import pytest

from tests.sim import invariants
from tests.sim.actor import Actor
from tests.sim.api_client import NONE, ROUGH
from tests.sim.plan import draw
from tests.sim.rivalry import draw_rivalry
from tests.sim.tenancy import PEACEFUL, rivals
from tests.sim.terms import Deposer, TermedOperator
from tests.sim.test_seeds import _seeds
from tests.sim.world import simulated

TURNS_OF_A_TERM = 150
"""In the mean: a step of a plan takes some hundred turns where something happens."""


@pytest.mark.parametrize("seed", _seeds("0-5,20-23"))
async def test_every_promise_holds_where_the_lease_is_lost_and_won_again(seed: int) -> None:
    """Terms end at drawn turns of the event loop, between any two steps of any task.

    Jobs come to the same ends, quota holds throughout, and the audits of every term find nothing.
    """
    tenancy = rivals(seed) if seed % 2 else PEACEFUL
    plan = draw_rivalry(seed, tenancy) if seed % 2 else draw(seed)
    faults = NONE if seed % 3 == 0 else ROUGH
    async with simulated(seed, faults=faults, tenancy=tenancy, operator=TermedOperator) as world:
        invariants.watch(world)
        world.on_turn = deposer = Deposer(world, seed, every=TURNS_OF_A_TERM)
        actor = _Deposed(world, plan)
        await actor.run()
        assert deposer.losses >= 5


class _Deposed(Actor):
    named = "lease_is_lost"

    async def end(self) -> None:
        """Terms last from now on."""
        self.world.on_turn = lambda: None
        await super().end()
