"""LeaderWorkerSets live through faults, kills and whatever users do: each replica starts whole, and alone."""

from __future__ import annotations

import pytest

from kqueue.sandbox.api import CRDS
from tests.integration.doubles import definition
from tests.integration.lws_double import ROW, LeaderWorkerSetDouble
from tests.sim import invariants
from tests.sim.api_client import NONE, ROUGH
from tests.sim.chosen import few_seeds
from tests.sim.custom import InProcess, doubles_run
from tests.sim.kinds_plan import kinds_tenancy
from tests.sim.leader_sets import SetsActor, draw_sets
from tests.sim.world import simulated


@pytest.mark.parametrize("seed", few_seeds("1", "0,2,3,4"))
@pytest.mark.proves("LeaderWorkerSet", "eviction and requeue")
@pytest.mark.proves("LeaderWorkerSet", "scale")
async def test_leader_worker_sets_live_beside_jobs(seed: int) -> None:
    """Forty steps with kills and faults: sets are scaled, lose pods, are evicted and deleted."""
    faults = NONE if seed % 3 == 0 else ROUGH
    async with simulated(seed, faults=faults, tenancy=kinds_tenancy(seed), kinds=(ROW.framework,)) as world:
        await world.api.create(CRDS, definition(ROW))
        async with doubles_run(world.clock, [LeaderWorkerSetDouble(InProcess(world.api), [ROW])]):
            invariants.watch(world)
            await SetsActor(world, draw_sets(seed)).run()
