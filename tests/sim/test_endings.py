"""Gangs whose pods end one by one: what was given back is used by others, and never by two."""

from __future__ import annotations

import random
from functools import partial

import pytest

from kqueue.sandbox.api import JOBS, PODS
from tests.sim import invariants
from tests.sim.actor import Actor
from tests.sim.api_client import NONE, ROUGH
from tests.sim.chosen import SELDOM
from tests.sim.objects import NAMESPACE, WORKLOADS
from tests.sim.plan import End, Plan, Step, draw
from tests.sim.world import World, simulated


class Ender(Actor):
    """Beside what the plan says, lets single pods of gangs complete before their time."""

    def __init__(self, world: World, plan: Plan, seed: int) -> None:
        super().__init__(world, plan)
        self._chance = random.Random(f"{seed}/endings")
        self.gave_back: set[str] = set()
        """Workloads that gave back places."""

    async def _do(self, step: Step) -> None:
        await super()._do(step)
        for _ in range(self._chance.randrange(3)):
            await self._end_one()
            await self.world.pass_time(self._chance.choice((0, 1, 3)))
        self.gave_back |= {
            w["metadata"]["name"] for w in self.world.objects(WORKLOADS) if (w.get("status") or {}).get("finishedPods")
        }

    async def _end_one(self) -> None:
        running = [
            pod["metadata"]["name"]
            for job in self.world.objects(JOBS)
            if self.plan.ends.get(job["metadata"]["name"]) is End.COMPLETE
            for pod in self.world.pods_of(job["metadata"]["name"])
            if pod["status"].get("phase") == "Running" and invariants.is_gang(pod)
        ]
        if running:
            name = self._chance.choice(sorted(running))
            self.world.log.append(f"    t={self.world.clock.monotonic():.1f} pod {name} completes")
            done = {"status": {"phase": "Succeeded"}}
            await self.world.api.patch(PODS, name, done, namespace=NAMESPACE, subresource="status")


@pytest.mark.parametrize(
    "seed", [1, 2, *(pytest.param(n, marks=pytest.mark.slow if n < 6 else SELDOM) for n in (4, 5, 6, 7, 8, 9))]
)
@pytest.mark.proves("Job", "reclaimable pods")
async def test_pods_that_end_one_by_one_give_back_what_nobody_needs(seed: int) -> None:
    """With preemption, failed nodes, kills and (but for every third) faults; each Job comes to its end all the same."""
    plan = draw(seed)
    async with simulated(seed, faults=NONE if seed % 3 == 0 else ROUGH) as world:
        world.history.witnesses += [partial(invariant, world) for invariant in invariants.ON_ADMISSION]
        actor = Ender(world, plan, seed)
        await actor.run()

    assert actor.gave_back
