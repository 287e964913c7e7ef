"""Training jobs, AppWrappers, SparkApplications, Ray's kinds and TrainJobs live through faults, kills and whatever users do."""

from __future__ import annotations

import pytest

from tests.sim import invariants
from tests.sim.api_client import NONE, ROUGH
from tests.sim.chosen import few_seeds, seeds
from tests.sim.custom import FIRST, KINDS, SECOND, custom_kinds_run, custom_tenancy
from tests.sim.custom_actor import CustomActor, draw_custom
from tests.sim.world import simulated


def _frameworks(which: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(KINDS[prefix].framework for prefix in which)


@pytest.mark.parametrize("seed", seeds("1,4"))
@pytest.mark.proves("Training job", "eviction and requeue")
@pytest.mark.proves("AppWrapper", "eviction and requeue")
@pytest.mark.proves("SparkApplication", "eviction and requeue")
async def test_custom_kinds_live_together(seed: int) -> None:
    """Forty steps with kills and faults: nothing runs without quota, and all comes to its end."""
    faults = NONE if seed % 3 == 0 else ROUGH
    async with (
        simulated(seed, faults=faults, tenancy=custom_tenancy(), kinds=_frameworks(FIRST)) as world,
        custom_kinds_run(world.api, world.clock),
    ):
        invariants.watch(world)
        await CustomActor(world, draw_custom(seed)).run()


@pytest.mark.parametrize("seed", few_seeds("1", "0,2,3,4"))
@pytest.mark.proves("Ray", "eviction and requeue")
@pytest.mark.proves("TrainJob", "eviction and requeue")
async def test_custom_kinds_with_objects_below_them_live_together(seed: int) -> None:
    """So for RayJobs, RayServices and TrainJobs, which have objects below them that are queued themselves elsewhere."""
    faults, frameworks = NONE if seed % 3 == 0 else ROUGH, _frameworks(SECOND)
    async with (
        simulated(seed, faults=faults, tenancy=custom_tenancy(), kinds=frameworks, job_sets=True) as world,
        custom_kinds_run(world.api, world.clock, SECOND),
    ):
        invariants.watch(world)
        await CustomActor(world, draw_custom(seed, SECOND)).run()
