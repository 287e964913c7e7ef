"""Whole worlds from seeds, and directed stories in them."""

from __future__ import annotations

from kqueue.sandbox.api import JOBS
from tests.sim.objects import job
from tests.sim.world import is_true, simulated


async def test_a_gang_is_admitted_released_runs_and_ends() -> None:
    """One Job walks the whole road without a socket."""
    async with simulated() as world:
        await world.submit(job("gang", run_seconds=5))
        await world.pass_time(3)
        pods = world.pods_of("gang")
        await world.pass_time(30)

        done = world.find(JOBS, "gang")
        workload = world.workload_of("gang")

    assert [p["spec"].get("schedulingGates") for p in pods] == [None] * 4
    assert done is not None
    assert is_true(done, "Complete")
    assert workload is not None
    assert is_true(workload, "Finished")
