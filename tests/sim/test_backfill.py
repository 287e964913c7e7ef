"""Backfill by time: a large gang starts at its planned start or before, whatever small jobs arrive meanwhile."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from kqueue.api import names
from kqueue.api.backfill_names import BACKFILL_ANNOTATION
from kqueue.api.run_time_names import EXPECTED_SECONDS_ANNOTATION
from kqueue.config.policy import FairSharingSettings
from kqueue.core.backfill.plans import LaterStart, MoveCause, StartPlans
from kqueue.core.workload import Claim
from kqueue.sandbox.topology_spec import RACK_LABEL
from tests.sim.chosen import few_seeds
from tests.sim.objects import CLUSTER_QUEUES, COHORTS, WORKLOADS, job, ours
from tests.sim.tenancy import PEACEFUL
from tests.sim.test_start_times import told
from tests.sim.world import World, condition, simulated

FAIR = FairSharingSettings(preemption_strategies=("LessThanOrEqualToFinalShare",))
_SPARE = 5
"""Seconds by which a job ends before its limit, so that the limit does not end it."""
_LATE = 5.0
"""Seconds after a planned start within which the gang has quota: its room must be seen to be free."""


def plans_of(world: World) -> StartPlans:
    """The planned starts of the controller of a world."""
    assert world.controller is not None
    return world.controller.operator.manager.start_plans


async def with_backfill(world: World, queue: str, mode: str = "time") -> None:
    """Give a ClusterQueue the annotation."""
    await world.api.patch(CLUSTER_QUEUES, queue, {"metadata": {"annotations": {BACKFILL_ANNOTATION: mode}}})


def limited(name: str, seconds: int, **settings: Any) -> Any:
    """A job that runs so long, with a limit."""
    made = job(name, run_seconds=seconds, **settings)
    made["metadata"]["labels"][names.MAX_EXEC_TIME_SECONDS_LABEL] = str(seconds + _SPARE)
    return made


def started(world: World, name: str) -> datetime | None:
    """When the Workload of a job, or a Workload (namespace/name), got quota; None: it has none."""
    workload = world.find(WORKLOADS, name.partition("/")[2]) if "/" in name else world.workload_of(name)
    reserved = condition(workload, "QuotaReserved") if workload is not None else None
    if reserved is None or reserved["status"] != "True":
        return None
    return datetime.fromisoformat(reserved["lastTransitionTime"])


async def crowd(world: World, *, with_limits: bool, seconds: int) -> tuple[datetime | None, datetime | None]:
    """Small jobs arrive all the time beside a gang of a rack; return its first planned start, and its start."""
    for number in range(5):
        await world.submit(limited(f"early-{number}", 30 + 4 * number, pods=1, topology=None))
        await world.pass_time(1)
    await world.submit(limited("gang", 60, pods=4, topology=("required", RACK_LABEL)))
    planned = None
    for number in range(seconds // 5):
        await world.pass_time(5)
        for line in plans_of(world).all().values():
            planned = planned or line.at
        if started(world, "gang") is not None:
            break
        make = limited if with_limits else _unlimited
        await world.submit(make(f"late-{number}", 40, pods=1, topology=None))
    return planned, started(world, "gang")


async def test_without_backfill_a_gang_starves() -> None:
    """The load of the next test."""
    async with simulated("starves") as world:
        assert await crowd(world, with_limits=True, seconds=300) == (None, None)


@pytest.mark.parametrize("with_limits", [pytest.param(True, id="limits"), pytest.param(False, id="no limits")])
async def test_a_gang_starts_as_planned(with_limits: bool) -> None:
    """Small jobs with limits use the room until then, and jobs without limits do not."""
    async with simulated(f"planned-{with_limits}") as world:
        await with_backfill(world, "solo")
        planned, start = await crowd(world, with_limits=with_limits, seconds=300)
        assert planned is not None
        assert start is not None
        assert (start - planned).total_seconds() <= _LATE


async def test_start_times_follow_backfill() -> None:
    """The start time of the gang comes true, and so does the start time of a job behind it."""
    async with simulated("told") as world:
        await with_backfill(world, "solo")
        for number in range(5):
            await world.submit(limited(f"early-{number}", 30 + 4 * number, pods=1, topology=None))
        await world.submit(limited("gang", 60, pods=4, topology=("required", RACK_LABEL)))
        await world.submit(limited("late", 90, pods=2, topology=None))
        await world.pass_time(5)
        answer = await told(world)
        at = datetime.fromisoformat(answer["generatedAt"])
        items = {one["metadata"]["name"]: one["startTime"] for one in answer["items"]}
        await world.pass_time(200)
        for name in ("gang", "late"):
            workload, begun = world.workload_of(name), started(world, name)
            assert workload is not None
            assert begun is not None
            late = (begun - at).total_seconds() - items[workload["metadata"]["name"]]["p90Seconds"]
            assert -30 <= late <= _LATE, f"{name}: {items}"


async def overrun(world: World) -> Claim:
    """A job of which its user expects twenty seconds starts in room that is kept for a gang, and runs ten times as long;
    return the planned start of the gang.
    """
    await world.submit(limited("half", 40, pods=3, topology=None))
    await world.pass_time(2)
    await world.submit(limited("gang", 30, pods=4, topology=None))
    await world.pass_time(2)
    (claim,) = plans_of(world).all().values()
    expected = {EXPECTED_SECONDS_ANNOTATION: "20"}
    await world.submit(job("late", run_seconds=200, pods=3, topology=None, notes=expected))
    await world.pass_time(2)
    assert started(world, "late") is not None
    return claim


async def test_a_workload_that_runs_longer_than_expected_is_named() -> None:
    """In a line with `expected` the planned start becomes later because of it."""
    async with simulated("overrun") as world:
        await with_backfill(world, "solo", "expected")
        await overrun(world)
        await world.pass_time(60)
        (claim,) = plans_of(world).all().values()
        found = plans_of(world).of_workload(claim.uid)
        assert found is not None
        assert found[1].last is not None
        assert found[1].last.cause is MoveCause.OVERRUN
        late = world.workload_of("late")
        assert late is not None
        assert found[1].last.workloads == (f"{late['metadata']['namespace']}/{late['metadata']['name']}",)
        await world.pass_time(200)
        assert started(world, "gang") is not None


async def test_a_workload_that_runs_longer_than_expected_is_evicted() -> None:
    """The same load in an enforced line: the gang starts at most a minute late, and the job starts on no guess again."""
    async with simulated("enforced") as world:
        await with_backfill(world, "solo", "enforced")
        claim = await overrun(world)
        assert claim.at is not None
        while started(world, "gang") is None:
            assert world.clock.now() < claim.at + timedelta(seconds=60)
            await world.pass_time(1)
        assert stats(world, "late") == [("BackfillOverrun", 1)]
        assert started(world, "late") is None
        await world.pass_time(40)  # the gang has ended
        assert started(world, "late") is not None
        await world.submit(limited("wide", 30, pods=4, topology=None))
        await world.pass_time(60)
        assert stats(world, "late") == [("BackfillOverrun", 1)], "it has not started on a guess again"
        assert started(world, "late") is not None


def stats(world: World, name: str) -> list[tuple[str, int]]:
    """The evictions of a job's Workload, by reason."""
    workload = world.workload_of(name)
    assert workload is not None
    found = workload["status"].get("schedulingStats", {}).get("evictions", [])
    return [(one["reason"], one["count"]) for one in found]


@pytest.mark.parametrize("seed", few_seeds("0,1", "2,3,4,5,6,7,8,9,10,11"))
async def test_planned_starts_hold(seed: int) -> None:
    """Jobs of all queues keep their limits, and nothing is taken away: a planned start becomes later only if an owner
    of lent quota takes it back.  Every second world has fair sharing.
    """
    chance = random.Random(seed)
    tenancy = replace(PEACEFUL, fair_sharing=FAIR) if seed % 2 else PEACEFUL
    async with simulated(f"backfill-{seed}", tenancy=tenancy) as world:
        for queue in ("solo", "twice", "few"):
            if chance.random() < 0.7:
                await with_backfill(world, queue)
        both = ours("Cohort", "both", spec={})
        both["metadata"]["annotations"] = {BACKFILL_ANNOTATION: "time"}
        await world.api.create(COHORTS, both)
        seen = Seen(world)
        for number in range(60):
            for _ in range(chance.randint(0, 2)):
                await submit(world, chance, f"job-{number}-{_}")
            await world.pass_time(chance.randint(1, 12))
            seen.look(f"seed {seed}")
        for _ in range(180):
            await world.pass_time(5)
            seen.look(f"seed {seed}")
        for key, at in seen.held.items():
            begun = started(world, key)
            late = (begun - at).total_seconds() if begun is not None else 0.0
            assert late <= _LATE, f"seed {seed}: {key} started {late} s after its planned start"


class Seen:
    """Follows the planned starts of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.held: dict[str, datetime] = {}
        """Planned starts that no other workload has passed or ended, by workload."""
        self._moved: set[str] = set()
        self._last: dict[str, datetime] = {}
        plans = plans_of(world)
        self._put, self._pass_by = plans.put, plans.pass_by
        plans.put, plans.pass_by = self._follow_put, self._follow_pass  # type: ignore[method-assign]

    def _follow_put(self, line: str, claim: Claim, move: LaterStart | None = None) -> LaterStart | None:
        former = plans_of(self.world).of(line)
        if former is not None and former.uid != claim.uid:
            assert former.rank is not None
            assert claim.rank is not None
            assert (-claim.rank[0], claim.rank[1]) < (-former.rank[0], former.rank[1]), f"{claim.key} is not ahead"
            self._moved.add(former.key)
        later = self._put(line, claim, move)
        if later is not None:
            self._moved.add(claim.key)
        return later

    def _follow_pass(self, uid: str, key: str) -> None:
        found = plans_of(self.world).of_workload(uid)
        if found is not None:
            self._moved.add(found[0].key)
        self._pass_by(uid, key)

    def look(self, when: str) -> None:
        """Compare with the last look: a planned start becomes later only because of a workload that passed it."""
        plans = plans_of(self.world)
        for line, claim in plans.all().items():
            found = plans.of_workload(claim.uid)
            assert found is not None
            assert claim.at is not None
            if claim.at > self._last.get(claim.key, claim.at):
                assert claim.key in self._moved, f"{when}: {line} {claim.key}"
                last = found[1].last
                assert last is not None
                assert last.cause is MoveCause.PASSED, f"{when}: {line} {claim.key}: {last}"
            self._last[claim.key] = self.held[claim.key] = claim.at
        for key in self._moved:
            self.held.pop(key, None)


async def submit(world: World, chance: random.Random, name: str) -> None:
    """A job of any queue that keeps its limit; some are large, and some have no limit."""
    queue = chance.choice(["solo", "twice", "few", "left", "right", "solo", "left"])
    large = chance.random() < 0.2
    pods, gpus = (4, 8) if large else (chance.randint(1, 2), chance.choice([2, 4, 8]))
    topology = ("required", RACK_LABEL) if large or chance.random() < 0.3 else None
    make = limited if large or chance.random() < 0.8 else _unlimited
    await world.submit(make(name, chance.randint(10, 120), queue=queue, pods=pods, gpus=gpus, topology=topology))


def _unlimited(name: str, seconds: int, **settings: Any) -> Any:
    return job(name, run_seconds=seconds, **settings)
