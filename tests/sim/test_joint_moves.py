"""Plans that move running gangs: whatever fails, no gang is moved without consent, twice by a plan, or for nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from kqueue.api import names
from kqueue.clock import utc_text
from tests.sim import invariants
from tests.sim.api_client import NONE, ROUGH
from tests.sim.chosen import is_deep, seeds
from tests.sim.joint_actor import losing_the_lease
from tests.sim.joint_moves import PLANS, MovesActor, draw_moves, moving
from tests.sim.joint_planner import Desk
from tests.sim.objects import NAMESPACE, WORKLOADS
from tests.sim.plan import Plan
from tests.sim.test_joint_rounds import one_queue
from tests.sim.world import World, is_true, simulated


async def moved(seed: int, *, steps: int = 36) -> MovesActor:
    """A world whose gangs are moved; every second seed approves plans by itself, every third loses its leaders."""
    an_hour = 1 + seed % 4
    settings = moving(auto=bool(seed % 2), an_hour=an_hour, parallel=1 + seed % 2)
    tenancy = replace(one_queue(racks=(1, 3, 4)), joint=settings)
    desk = Desk(seed, per_thousand=30 if seed % 5 == 4 else 0)
    faults = ROUGH if seed % 4 == 3 else NONE
    async with simulated(seed, faults=faults, tenancy=tenancy, operator=desk.operator()) as world:
        invariants.watch(world)
        actor = MovesActor(world, draw_moves(seed, steps=steps), desk, an_hour=an_hour)
        if seed % 3 == 2:
            losing_the_lease(world, seed, every=300)
        await actor.run()
        return actor


@pytest.mark.parametrize("seed", seeds("0,1"))
@pytest.mark.mechanism("2.10")
async def test_moves_keep_every_promise(seed: int) -> None:
    await moved(seed)


def _start_again(world: World) -> None:
    """Start a controller if the last one was killed."""
    if world.controller is None:
        world.start_controller()


async def half_full(actor: MovesActor, *, run_seconds: int) -> None:
    """Six gangs of two hosts come one after the other, every second one ends soon, and then one comes that needs a
    rack: two gangs share each rack, and one of them stays.
    """
    for each in range(6):
        seconds = 20 if each % 2 else run_seconds
        await actor.submit(f"small-{each}", queue="q", pods=2, consent="Always", run_seconds=seconds)
        await actor.world.pass_time(3)
    await actor.world.pass_time(42)
    await actor.submit("big", queue="q", pods=4, run_seconds=100)


async def _freed(number: int, *, after: bool) -> int:
    """A gang waits for a rack; the leader is killed at a write of the plan that moves another one.  Return the number of
    these writes.
    """
    tenancy = replace(one_queue(racks=(1, 3, 4)), joint=moving(auto=True))
    desk = Desk("moved")
    async with simulated(desk.seed, tenancy=tenancy, operator=desk.operator()) as world:
        invariants.watch(world)
        actor = MovesActor(world, Plan(), desk, an_hour=4)
        await half_full(actor, run_seconds=1500)
        await world.pass_time(540)
        assert world.controller is not None
        client = world.controller.client
        before = len(client.writes)
        if number:
            world.arm_kill(number, after=after)
        while not actor.moves.phases["Done"] and world.clock.monotonic() < 1400:
            await world.pass_time(1)
            _start_again(world)
        writes = len(client.writes) - before
        await world.pass_time(30)
        told = f"killed at write {number}: {dict(actor.moves.phases)}"
        assert actor.moves.moves == actor.moves.phases["Done"] == 1, told
        big = world.workload_of("big")
        assert is_true(big, "Admitted") or is_true(big, "Finished"), told
        assert all(is_true(world.workload_of(f"small-{each}"), "Admitted") for each in (0, 2, 4)), told
        await world.pass_time(200)
        actor.check(invariants.ALWAYS)
        return writes


@pytest.mark.mechanism("2.10")
@pytest.mark.mechanism("2.27")
@pytest.mark.parametrize(
    "after", [pytest.param(False, id="before"), pytest.param(True, id="after", marks=pytest.mark.slow)]
)
async def test_a_leader_that_is_killed_at_any_write_of_a_plan_is_gone_on_from(*, after: bool) -> None:
    """One gang moves once, it runs again, and the gang that waited starts; fewer writes are tried in every run."""
    writes = await _freed(0, after=after)
    assert writes > 10
    every = is_deep()
    for number in range(1, writes, 1 if every else writes // 4):
        await _freed(number, after=after)


async def _evict(world: World, job: str, message: str, *, runs_since: float = 0.0, **annotations: str | None) -> None:
    """Write what a broken controller would: a move of a gang, whose annotations and start are changed before."""
    workload = world.workload_of(job)
    assert workload is not None
    name, now = workload["metadata"]["name"], world.clock.now()
    kept = [dict(c) for c in workload["status"]["conditions"] if c["type"] != names.CONDITION_EVICTED]
    for admitted in (c for c in kept if c["type"] == names.CONDITION_ADMITTED and runs_since):
        admitted["lastTransitionTime"] = utc_text(now - timedelta(seconds=runs_since))
    evicted = {"type": names.CONDITION_EVICTED, "reason": names.REASON_RESCHEDULED, "message": message}
    notes = {f"kqueue.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    await world.api.patch(WORKLOADS, name, {"metadata": {"annotations": notes}}, namespace=NAMESPACE)
    for status in ("False", "True"):
        conditions = [*kept, {**evicted, "status": status, "lastTransitionTime": utc_text(now)}]
        change = {"status": {"conditions": conditions}}
        await world.api.patch(WORKLOADS, name, change, namespace=NAMESPACE, subresource="status")


async def test_each_promise_about_moves_can_be_seen_broken() -> None:
    """A plan that nobody approved, a second move, no consent, no checkpoint, and a gang that has just started."""
    desk = Desk("broken")
    tenancy = replace(one_queue(racks=(1, 3, 4)), joint=moving(auto=False))
    async with simulated(desk.seed, tenancy=tenancy, operator=desk.operator()) as world:
        actor = MovesActor(world, Plan(), desk, an_hour=3)
        await half_full(actor, run_seconds=3000)
        await world.pass_time(640)
        (plan,) = [found for found in world.objects(PLANS) if found["status"]["phase"] == "Proposed"]
        world.kill_controller()

        moved_by = f"Moved by DefragmentationPlan {plan['metadata']['name']} without leave"
        found: list[str] = []

        async def broken(job: str, message: str = moved_by, **planted: Any) -> str:
            await _evict(world, job, message, **planted)
            told = [one.partition(": ")[2] for one in actor.moves.moves_are_allowed(world) if one not in found]
            found.extend(actor.moves.moves_are_allowed(world))
            return "\n".join(told)

        first = await broken("small-0")
        assert "was evicted in the states" in first
        assert "was moved by a plan that is Proposed, approved ''" in first
        assert "twice" not in first
        assert "was moved twice by one plan" in await broken("small-0")
        assert "was moved by no plan" in await broken("small-2", "Moved by nobody")
        assert "its consent is Never" in await broken("small-2", reschedule=None)
        late = await broken("small-2", reschedule="AfterCheckpoint")
        assert "its last checkpoint is None" in late
        assert "is the move number 4 within an hour, 3 are allowed" in late
        old = utc_text(world.clock.now() - timedelta(hours=1))
        assert "its last checkpoint is" in await broken("small-2", last_checkpoint=old)
        saved = await broken("small-2", last_checkpoint=utc_text(world.clock.now()))
        assert "its last checkpoint is" not in saved
        assert "it runs since" not in saved
        assert "it runs since" in await broken("small-4", runs_since=599)
