"""Gangs live on nodes that are made on request, whatever the autoscaler and users do to the requests."""

from __future__ import annotations

import pytest

from tests.sim import invariants
from tests.sim.api_client import NONE, ROUGH
from tests.sim.chosen import few_seeds
from tests.sim.provisioning import autoscaled, provisioned_tenancy
from tests.sim.provisioning_actor import ProvisioningActor, draw_provisioning
from tests.sim.world import simulated


@pytest.mark.parametrize("seed", few_seeds("1", "0,2,3,5,8"))
async def test_gangs_of_provisioning_start_whole_and_leave_nothing(seed: int) -> None:
    """Fifty steps with kills and faults: requests are granted, failed, revoked, edited and deleted."""
    faults = NONE if seed % 3 == 0 else ROUGH
    async with (
        simulated(seed, faults=faults, tenancy=provisioned_tenancy()) as world,
        autoscaled(world) as autoscaler,
    ):
        invariants.watch(world)
        await ProvisioningActor(world, draw_provisioning(seed), autoscaler).run()
