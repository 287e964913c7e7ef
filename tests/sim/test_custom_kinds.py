"""Training jobs, AppWrappers and SparkApplications live through faults, kills and whatever users do."""

from __future__ import annotations

import pytest

from tests.sim import invariants
from tests.sim.api_client import NONE, ROUGH
from tests.sim.chosen import seeds
from tests.sim.custom import KINDS, custom_kinds_run, custom_tenancy
from tests.sim.custom_actor import CustomActor, draw_custom
from tests.sim.world import simulated

FRAMEWORKS = tuple(kind.framework for kind in KINDS.values())


@pytest.mark.parametrize("seed", seeds("1,4"))
@pytest.mark.proves("Training job", "eviction and requeue")
@pytest.mark.proves("AppWrapper", "eviction and requeue")
@pytest.mark.proves("SparkApplication", "eviction and requeue")
async def test_custom_kinds_live_together(seed: int) -> None:
    """Forty steps with kills and faults: nothing runs without quota, and all comes to its end."""
    faults = NONE if seed % 3 == 0 else ROUGH
    async with (
        simulated(seed, faults=faults, tenancy=custom_tenancy(), kinds=FRAMEWORKS) as world,
        custom_kinds_run(world.api, world.clock),
    ):
        invariants.watch(world)
        await CustomActor(world, draw_custom(seed)).run()
