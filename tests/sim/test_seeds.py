"""Whole worlds from seeds: whatever is done to them, what is promised holds after every step, and all comes to its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from kqueue.sandbox.api import JOB_SETS, JOBS, PODS, GroupVersionResource
from kqueue.state.waiting import cause_of
from tests.readings import failing
from tests.sim import invariants
from tests.sim.actor import REST_SECONDS, Actor
from tests.sim.api_client import NONE, ROUGH, Faults
from tests.sim.chosen import SELDOM, SLOW, is_deep, seeds
from tests.sim.kinds_actor import KindsActor
from tests.sim.kinds_plan import draw_kinds, kinds_tenancy
from tests.sim.objects import CLUSTER_QUEUES, NAMESPACE, WORKLOADS, job
from tests.sim.plan import End, Plan, draw
from tests.sim.rivalry import draw_rivalry
from tests.sim.tenancy import PEACEFUL, Tenancy, rivals
from tests.sim.test_jobset import low
from tests.sim.test_pod_group import PODS_OF_GROUP, member
from tests.sim.world import World, condition, is_true, simulated


async def lived(seed: int, plan: Plan, faults: Faults, tenancy: Tenancy = PEACEFUL) -> tuple[World, dict[str, End]]:
    """A world that a plan was carried out on, and what became of its Jobs."""
    async with simulated(seed, faults=faults, tenancy=tenancy) as world:
        invariants.watch(world)
        actor = Actor(world, plan)
        await actor.run()
        return world, actor.ends()


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.mechanism("3.15")
async def test_whatever_happens_every_promise_holds(seed: int) -> None:
    """Sixty steps, every third world without faults; at the end each Job has come to the end it must come to."""
    await lived(seed, draw(seed), NONE if seed % 3 == 0 else ROUGH)


@pytest.mark.parametrize("seed", seeds())
async def test_rivals_get_what_is_theirs(seed: int) -> None:
    """Sixty steps of tenants who preempt each other, every third world without faults; whoever can run has run."""
    tenancy = rivals(seed)
    await lived(seed, draw_rivalry(seed, tenancy), NONE if seed % 3 == 0 else ROUGH, tenancy)


@pytest.mark.parametrize("seed", seeds("0-3,10,17,18"))
async def test_all_kinds_live_together(seed: int) -> None:
    """Sixty steps of JobSets, pods, groups and what serves beside Jobs; every third world without faults.

    In 10 a group and its Workload are deleted at once while its pods take time to end; in 17 a pod is gone and its watch
    does not say so; in 18 one is let out of a group that has ended.
    """
    await lived_together(seed, draw_kinds(seed), NONE if seed % 3 == 0 else ROUGH)


async def lived_together(seed: int, plan: Plan, faults: Faults) -> tuple[World, dict[str, End]]:
    """A world of all kinds that a plan was carried out on, and what became of everything."""
    tenancy = kinds_tenancy(seed)
    async with simulated(seed, faults=faults, tenancy=tenancy, job_sets=True, pods=True, serving=True) as world:
        invariants.watch(world)
        actor = KindsActor(world, plan)
        await actor.run()
        return world, actor.ends()


async def test_a_seed_is_a_world_of_all_kinds() -> None:
    """The same seed does the same, and every object has the same bytes in the same order."""
    first, _ = await lived_together(5, draw_kinds(5, steps=20), ROUGH)
    second, _ = await lived_together(5, draw_kinds(5, steps=20), ROUGH)

    assert first.history.fingerprint() == second.history.fingerprint()


@pytest.mark.parametrize("seed", [pytest.param(4, marks=SELDOM), pytest.param(13, marks=SLOW)])
@pytest.mark.proves("JobSet", "eviction and requeue")
@pytest.mark.proves("Pod group", "eviction and requeue")
async def test_kills_and_faults_change_no_end_of_any_kind(seed: int) -> None:
    """With kills and faults, and in peace: the same complete, fail, wait and are gone."""
    plan = draw_kinds(seed)
    _, battered = await lived_together(seed, plan, ROUGH)
    _, peaceful = await lived_together(seed, plan.without("kill"), NONE)

    assert battered == peaceful
    assert any(step.action == "kill" for step in plan.steps)


async def test_a_seed_is_a_world() -> None:
    """The same seed does the same, and every object has the same bytes in the same order."""
    first, _ = await lived(5, draw(5, steps=30), ROUGH)
    second, _ = await lived(5, draw(5, steps=30), ROUGH)
    other, _ = await lived(8, draw(8, steps=30), ROUGH)

    assert first.log == second.log
    assert first.history.fingerprint() == second.history.fingerprint()
    assert first.history.fingerprint() != other.history.fingerprint()


@pytest.mark.parametrize("seed", [7, pytest.param(25, marks=SELDOM)])
@pytest.mark.proves("Job", "eviction and requeue")
async def test_kills_and_faults_change_no_end(seed: int) -> None:
    """With kills and faults, with kills alone, and in peace: the same Jobs complete, fail, wait and are gone."""
    plan = draw(seed)
    _, battered = await lived(seed, plan, ROUGH)
    _, killed = await lived(seed, plan, NONE)
    _, peaceful = await lived(seed, plan.without("kill"), NONE)

    assert battered == killed == peaceful
    assert any(step.action == "kill" for step in plan.steps)


async def test_equal_jobs_start_in_the_order_of_their_age() -> None:
    """Of one queue, one at a time; those of one second by uid."""
    async with simulated() as world:
        await world.api.patch(CLUSTER_QUEUES, "solo", {"spec": {"stopPolicy": "Hold"}})
        for number in range(6):
            await world.submit(job(f"equal-{number}", pods=4))
            await world.pass_time(number % 2)  # two in each second
        await world.api.patch(CLUSTER_QUEUES, "solo", {"spec": {"stopPolicy": "None"}})
        await world.pass_time(120)
        admitted = [a.uid for a in world.history.admissions]
        workloads = world.objects(WORKLOADS)

    by_age = sorted(workloads, key=lambda w: (w["metadata"]["creationTimestamp"], w["metadata"]["uid"]))
    assert len(admitted) == 6
    assert admitted == [w["metadata"]["uid"] for w in by_age]


async def test_a_quiet_world_makes_no_writes() -> None:
    """One Job runs, one waits for room, one can never fit, one is malformed: ten minutes pass without a change."""
    async with simulated() as world:
        await world.submit(job("runs", run_seconds=10_000))
        await world.submit(job("waits"))
        await world.submit(job("large", pods=5))
        await world.submit(job("malformed", queue="nowhere"))
        await world.api.patch(CLUSTER_QUEUES, "even", {"spec": {"stopPolicy": "Hold"}})
        await world.submit(job("held", queue="even"))
        await world.pass_time(60)
        before = world.history.changes
        await world.pass_time(600)

        assert world.history.changes == before
        assert invariants.breaches(world, invariants.ALWAYS + invariants.AT_REST) == []


async def test_a_controller_that_starts_anew_writes_nothing_when_nothing_has_changed() -> None:
    """Jobs, a JobSet and groups of pods have ended, run, wait for room, can never fit, are on hold, are malformed."""
    async with simulated(job_sets=True, pods=True) as world:
        ours_too = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": world.configured.namespace}}
        await world.api.create(GroupVersionResource("", "v1", "namespaces"), ours_too)
        await world.api.create(JOB_SETS, low(), namespace=NAMESPACE)
        groups = [
            [member(f"{name}-{rank}", rank=rank, group=name) for rank in range(PODS_OF_GROUP)]
            for name in ("ended", "waits")
        ]
        for pod in groups[0]:
            await world.api.create(PODS, pod, namespace=NAMESPACE)
        await world.pass_time(60)
        await world.submit(job("runs", pods=3, run_seconds=10_000, topology=None))
        await world.pass_time(1)
        for pod in groups[1]:
            await world.api.create(PODS, pod, namespace=NAMESPACE)
        for number in range(30):
            await world.submit(job(f"waits-{number}", pods=4))
        await world.submit(job("large", queue="left", pods=50))
        await world.submit(job("malformed", queue="nowhere"))
        await world.api.patch(CLUSTER_QUEUES, "even", {"spec": {"stopPolicy": "Hold"}})
        await world.submit(job("held", queue="even"))
        await world.pass_time(60 + world.configured.run_times.interval.total_seconds())
        before = world.history.changes
        world.kill_controller()
        fresh = world.start_controller()
        await world.pass_time(600)

        assert fresh.client.writes == []
        assert world.history.changes == before


async def test_a_world_is_at_rest_when_what_has_just_happened_is_written() -> None:
    """A Job that ends in the last second of the wait is in nobody's status any more when that is looked at."""
    async with simulated() as world:
        await world.submit(job("ends-late", run_seconds=REST_SECONDS - 1))
        actor = Actor(world, Plan())
        await actor.rest()

        assert is_true(world.find(JOBS, "ends-late"), "Complete")


async def test_what_cannot_start_keeps_nobody_from_starting() -> None:
    """Malformed, impossible and failing Jobs are older, and the good one starts at once."""
    async with simulated() as world:
        bad = [
            job("bad-level", topology=("required", "no.such/level")),
            job("too-large", pods=5),
            job("bad-class", priority="no-such-class"),
            job("bad-size", gpus=9),
        ]
        for obj in bad:
            await world.submit(obj)
        await world.submit(job("good"))
        await world.pass_time(1)

        assert is_true(world.workload_of("good"), "Admitted")


async def test_a_controller_that_hears_nothing_says_that_it_is_not_ready() -> None:
    """Ready once all is known; not ready when watches are silent for longer than three minutes; ready when they speak."""
    async with simulated() as world:
        assert world.controller is not None
        checks, client = world.controller.checks, world.controller.client
        await world.pass_time(10)
        ready = failing(checks)
        client.partitioned = True
        await world.pass_time(100)
        still_ready = failing(checks)
        await world.pass_time(150)
        silent = failing(checks)
        client.partitioned = False
        await world.pass_time(200)
        again = failing(checks)

    assert (ready, still_ready, again) == ({}, {}, {})
    assert "watch-pods" in silent
    assert "silent for" in silent["watch-pods"]


async def test_a_controller_that_has_not_seen_everything_is_not_ready() -> None:
    """Before the first state of every kind is there, no decision is made."""
    async with simulated() as world:
        world.kill_controller()
        fresh = world.start_controller()
        fresh.client.partitioned = True
        await world.submit(job("waits"))
        await world.pass_time(30)

        assert "has not brought its initial state yet" in failing(fresh.checks)["watch-workloads.kueue.x-k8s.io"]
        assert world.objects(WORKLOADS) == []


async def test_equals_that_were_not_tried_say_what_was_said_of_the_one_that_was() -> None:
    """Of equal Jobs one is tried and the others are parked with it, those that come later too; all name the numbers."""
    async with simulated() as world:
        await world.submit(job("running", pods=4, run_seconds=1000))
        await world.pass_time(1)
        for name in ("tried", "parked", "late"):
            await world.submit(job(name, pods=4))
            await world.pass_time(2 if name == "parked" else 0)
        found = [condition(world.workload_of(name), "QuotaReserved") for name in ("tried", "parked", "late")]

    said = [(c["status"], c["reason"], cause_of(c["message"])) for c in found if c is not None]
    assert len(said) == 3
    assert set(said) == {said[0]}
    assert said[0][:2] == ("False", "WaitingForQuota")
    assert said[0][2] == "32 nvidia.com/gpu of flavor gpu asked, ClusterQueue solo has 16 free"


async def _submitted(world: World) -> None:
    await world.submit(job("gang"))


async def _started_by_hand(world: World) -> None:
    await world.api.patch(CLUSTER_QUEUES, "solo", {"spec": {"stopPolicy": "Hold"}})
    await world.submit(job("gang"))
    await world.pass_time(3)
    await world.api.patch(CLUSTER_QUEUES, "solo", {"spec": {"stopPolicy": "None"}})
    await world.api.patch(JOBS, "gang", {"spec": {"suspend": False}}, namespace=NAMESPACE)


async def _drained(world: World) -> None:
    await world.submit(job("gang"))
    await world.pass_time(3)
    await world.api.patch(CLUSTER_QUEUES, "solo", {"spec": {"stopPolicy": "HoldAndDrain"}})
    await world.pass_time(3)
    await world.api.patch(CLUSTER_QUEUES, "solo", {"spec": {"stopPolicy": "None"}})


@pytest.mark.parametrize("after", [pytest.param(False, id="before"), pytest.param(True, id="after")])
@pytest.mark.parametrize(
    ("act", "writes"),
    [
        pytest.param(_submitted, 9, id="a gang that is submitted"),
        pytest.param(_started_by_hand, 14, id="a gang whose user starts it by hand when its turn comes", marks=SLOW),
        pytest.param(_drained, 20, id="a gang whose queue is drained and opened again", marks=SLOW),
    ],
)
@pytest.mark.proves("Job", "stop and restore")
async def test_a_controller_killed_at_any_write_is_gone_on_from(
    act: Callable[[World], Awaitable[None]], writes: int, *, after: bool
) -> None:
    """Killed just before or just after its nth write: the next controller brings the Job to the same end.

    A kill after one write is like a kill before the next, so every second n is enough; `make test-deep` takes every n.
    """
    for number in range(1, writes + 1, 1 if is_deep() else 2):
        async with simulated(f"write {number}") as world:
            invariants.watch(world)
            world.arm_kill(number, after=after)
            await act(world)
            await world.pass_time(20)
            world.kill_controller()
            world.start_controller()
            await world.pass_time(100)

            found = invariants.breaches(world, (*invariants.ALWAYS, *invariants.AT_REST, invariants.nothing_is_held))
            assert (number, found) == (number, [])
            assert is_true(world.find(JOBS, "gang"), "Complete"), f"killed at write {number}"
