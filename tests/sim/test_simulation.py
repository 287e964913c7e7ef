"""What a simulation says of a job is what the controller does with the job, when nothing else changes.

Worlds are drawn from a seed as in `test_promises`.  The manifest is posted as a user writes it, and then submitted
through the webhooks.
"""

from __future__ import annotations

import random

import msgspec
import pytest

from kqueue.manager.simulating import make_simulations
from kqueue.sandbox.api import Object
from kqueue.sandbox.topology_spec import BLOCK_LABEL, RACK_LABEL
from kqueue.visibility.question import AuthorizedQuestion
from tests.sim.chosen import few_seeds
from tests.sim.objects import NAMESPACE, WORKLOADS, job
from tests.sim.test_promises import drawn
from tests.sim.world import World, is_true, simulated

_QUEUES = ("solo", "even", "few", "left", "right", "twice")
_JOBS = 4
"""Jobs that are asked about in one world, one after the other."""
_FOREVER = 1_000_000


async def asked(world: World, manifest: Object) -> Object:
    """The simulation of one manifest, for a user with all rights."""

    async def allowed(*_: str) -> bool:
        return True

    assert world.controller is not None
    view = make_simulations(world.controller.operator, None)
    body = msgspec.json.encode({"spec": {"manifests": [manifest]}})
    found = await view.view(
        AuthorizedQuestion(namespace=NAMESPACE, name="", params={}, body=body, reads=allowed, creates=allowed)
    )
    (one,) = found["workloads"]
    (run,) = one["results"]
    return dict(run)


def evicted(world: World) -> set[str]:
    return {w["metadata"]["name"] for w in world.objects(WORKLOADS) if is_true(w, "Evicted")}


@pytest.mark.parametrize("seed", few_seeds("0", "1,2,3,4,5"))
async def test_a_job_becomes_what_was_said_of_it(seed: int) -> None:
    """Jobs of drawn queues, sizes, priorities and topologies, each in the world that the others before it have left."""
    chance = random.Random(seed)
    async with simulated(f"simulation-{seed}") as world:
        await drawn(world, chance)
        for number in range(_JOBS):
            name, topology = (
                f"asked-{number}",
                chance.choice([None, ("required", RACK_LABEL), ("preferred", BLOCK_LABEL)]),
            )
            manifest = job(
                name,
                topology=topology,
                run_seconds=_FOREVER,
                queue=chance.choice(_QUEUES),
                pods=chance.randint(1, 6),
                gpus=chance.choice([1, 4, 8]),
                priority=chance.choice(["", "high", "low"]),
            )
            before = evicted(world)
            run = await asked(world, manifest)
            await world.submit(manifest)
            await world.pass_time(2)
            found = world.workload_of(name)
            context = f"seed {seed}, {name}: {run}"
            if run["start"] == "AfterPreemption":
                named = {one["name"] for one in run["preempted"]}
                assert named <= evicted(world) or is_true(found, "QuotaReserved"), context
            else:
                assert is_true(found, "QuotaReserved") == (run["start"] == "Now"), context
                assert evicted(world) == before, context
            await world.pass_time(20)
