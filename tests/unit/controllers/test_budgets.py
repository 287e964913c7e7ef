"""Budgets from the annotation to the workload that waits: exact to the second, over restarts and jumps of the clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.clock import FakeClock, utc_text
from kqueue.controllers.blockers import Blockers
from kqueue.controllers.budgets import BudgetKeeper
from kqueue.controllers.resources import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS
from tests.unit.controllers.builders import (
    JSON,
    condition,
    make_cluster_queue,
    make_local_queue,
    make_workload,
    message_of,
    reserved,
    status_of,
)
from tests.unit.scheduling.scheduled import Scheduled

KIND, USED = "kqueue.dev/BudgetLeft", "kqueue.dev/budgets-used"


def queue_with(budgets: str, **spec: Any) -> JSON:
    queue = make_cluster_queue(cpus=100, **spec)
    queue["metadata"]["annotations"] = {"kqueue.dev/budgets": budgets}
    return queue


class Office(Scheduled):
    """A world with a scheduling loop and a keeper of budgets."""

    def __init__(self, budgets: str, *queues: str, **spec: Any) -> None:
        others = [(LOCAL_QUEUES, make_local_queue(name)) for name in queues]
        super().__init__((CLUSTER_QUEUES, queue_with(budgets, **spec)), *others)
        self.cache.budgets.on_renewed = self.intake.on_budget
        self.keeper = self.lead()

    def lead(self) -> BudgetKeeper:
        """The keeper of a new leader."""
        self.sync()
        keeper = BudgetKeeper(
            cluster_queues=self.cluster_queues,
            local_queues=self.local_queues,
            queue_writer=self.writer_of(CLUSTER_QUEUES, self.cluster_queues, wire.ClusterQueue),
            local_writer=self.writer_of(LOCAL_QUEUES, self.local_queues, wire.LocalQueue),
            cache=self.cache,
            clock=self.clock,
        )
        keeper.begin()
        if not hasattr(self, "keeper"):
            self.workloads.subscribe(lambda old, new: self.keeper.on_workload(old, new))
        return keeper

    def runs(self, name: str, cpus: int = 1, **more: Any) -> None:
        """A Workload is admitted now."""
        admitted = condition("Admitted", reason="Admitted")
        admitted["lastTransitionTime"] = utc_text(self.clock.now())
        self.add(make_workload(name, cpus=cpus, status=reserved(admitted, cpus=cpus), **more))

    def ends(self, name: str) -> None:
        """A Workload is deleted."""
        self.client.drop(WORKLOADS, f"ns/{name}")
        self.sync()

    async def look(self, seconds: float = 0) -> None:
        """Time passes, and the keeper looks."""
        await self.clock.advance(seconds)
        self.sync()
        await self.keeper.reconcile("all")
        self.sync()

    def used(self, local_queue: str = "ns/main") -> int:
        """The use of the first budget of a LocalQueue, in seconds of one cpu."""
        account = self.cache.budgets.accounts("team", local_queue)[0]
        return account.used // 1_000_000


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Office]]:
    worlds: list[Office] = []

    def build(budgets: str, *queues: str, **more: Any) -> Office:
        worlds.append(Office(budgets, *queues, **more))
        return worlds[-1]

    yield build
    for world in worlds:
        await world.close()


async def test_use_is_counted_to_the_second_without_a_look(make: Callable[..., Office]) -> None:
    """Jobs that are shorter than the interval of looks count."""
    world = make("cpu=1h/day")
    world.runs("a", 3)
    await world.clock.advance(7)
    world.runs("b", 2)
    await world.clock.advance(4)
    world.ends("a")
    await world.clock.advance(10)
    world.ends("b")
    await world.clock.advance(60)
    assert world.used() == 3 * 11 + 2 * 14


async def test_at_the_end_of_a_budget_new_workloads_wait_and_running_ones_go_on(make: Callable[..., Office]) -> None:
    world = make("cpu=1h/day")
    world.runs("a", 2)
    await world.clock.advance(1799)
    world.add(make_workload("early"))
    assert await world.cycle()
    world.add(make_workload("late"))
    await world.clock.advance(1)

    assert not await world.cycle()

    late = world.client.object(WORKLOADS, "ns/late")
    assert status_of(late, "QuotaReserved") == ("False", "BudgetExhausted")
    assert message_of(late, "QuotaReserved") == (
        "The budget of namespace ns in ClusterQueue team is used up: 1 h of cpu per day; "
        f"it renews at {utc_text(tomorrow(world))}"
    )
    assert world.observed.preemptions == []
    assert world.cache.held.holding("ns/a") is not None
    workload = world.workloads.get("ns/late")
    assert workload is not None
    blockers = Blockers(local_queues=world.local_queues, cache=world.cache, namespace_labels=world.namespaces.get)
    assert [blocked.reason for blocked in blockers.all(workload)] == ["BudgetExhausted"]


def tomorrow(world: Office) -> Any:
    return world.clock.now().replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)


async def test_waiting_workloads_are_tried_when_the_budget_renews(make: Callable[..., Office]) -> None:
    world = make("cpu=0h/month, ns:cpu=1h/3600s")
    world.start()
    world.runs("a", 100)
    await world.look(60)
    world.ends("a")
    world.add(make_workload("late"))
    await world.look()
    await world.until_quiet()
    assert status_of(world.client.object(WORKLOADS, "ns/late"), "QuotaReserved") == ("False", "BudgetExhausted")
    assert status_of(world.client.object(LOCAL_QUEUES, "ns/main"), KIND) == ("False", "BudgetExhausted")

    await world.look(3600)
    await world.until_quiet()

    assert status_of(world.client.object(WORKLOADS, "ns/late"), "QuotaReserved")[0] == "True"
    assert status_of(world.client.object(LOCAL_QUEUES, "ns/main"), KIND) == ("True", "BudgetLeft")


async def test_a_budget_that_ends_and_renews_between_two_looks_wakes_its_workloads(make: Callable[..., Office]) -> None:
    world = make("cpu=1500mh/60s")
    world.start()
    world.runs("a", 100)
    await world.look(38)
    world.ends("a")
    world.runs("c", 100)
    await world.clock.advance(20)
    world.ends("c")
    world.add(make_workload("late"))
    await world.clock.advance(1)
    assert status_of(world.client.object(WORKLOADS, "ns/late"), "QuotaReserved") == ("False", "BudgetExhausted")

    await world.look(5)
    await world.until_quiet()

    assert status_of(world.client.object(WORKLOADS, "ns/late"), "QuotaReserved")[0] == "True"


async def test_further_local_queues_are_no_further_budget(make: Callable[..., Office]) -> None:
    """Neither beside the first one, nor in its place."""
    world = make("cpu=1h/day", "second", "third")
    world.runs("a", 2)
    world.runs("b", 2, queue="second")
    await world.look(600)
    world.ends("b")
    world.client.drop(LOCAL_QUEUES, "ns/second")
    await world.look(600)
    for name in ("ns/main", "ns/second", "ns/third"):
        assert world.used(name) == 2 * 1200 + 2 * 600
    assert world.cache.budgets.metered("team") == ["ns/main"]


async def test_a_local_queue_has_its_own_budget_beside_that_of_its_namespace(make: Callable[..., Office]) -> None:
    world = make("ns/second:cpu=1h/day, ns:cpu=10h/day, cpu=0h/day", "second")
    world.runs("a", 2)
    world.runs("b", 1, queue="second")
    await world.look(3600)
    budgets = world.cache.budgets
    second = [(account.who, account.used // 1_000_000) for account in budgets.accounts("team", "ns/second")]
    assert second == [("ns/second", 3600), ("ns", 3 * 3600)]
    over = budgets.exhausted("team", "ns/second")
    assert over is not None
    assert over.sentence("team").startswith("The budget of LocalQueue ns/second in ClusterQueue team is used up: 1 h")
    assert budgets.exhausted("team", "ns/main") is None
    assert budgets.exhausted("team", "other/main") is not None


async def test_a_new_leader_counts_on_without_counting_twice(make: Callable[..., Office]) -> None:
    """What ran on is counted, from the last write or from its admission."""
    world = make("cpu=10h/day")
    world.runs("a", 2)
    await world.look(100)
    await world.clock.advance(30)
    world.runs("b", 1)
    await world.clock.advance(20)
    before = world.used()

    world.keeper = world.lead()

    assert before == 2 * 150 + 20
    assert world.used() == before
    await world.look(10)
    assert world.used() == before + 30
    world.keeper = world.lead()
    world.keeper = world.lead()
    assert world.used() == before + 30


async def test_a_new_leader_in_a_new_period_counts_from_its_beginning(make: Callable[..., Office]) -> None:
    """Two workloads ran over the end of a period without a leader."""
    world = make("cpu=10h/3600s")
    world.runs("a", 2)
    world.runs("b", 3)
    await world.look(3500)
    await world.clock.advance(130)

    world.keeper = world.lead()

    assert world.used() == (2 + 3) * 30


class SetClock:
    """A clock whose wall time is set by `by`."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock, self.by = clock, timedelta(0)

    def now(self) -> datetime:
        return self._clock.now() + self.by

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)


async def test_jumps_of_the_clock_bring_and_take_nothing(make: Callable[..., Office]) -> None:
    """Time is measured by another clock than the calendar's; the month has begun two minutes before."""
    world = make("cpu=10h/month")
    world.runs("a", 2)
    await world.look(100)
    world.cache.budgets.clock = clock = SetClock(world.clock)
    clock.by = timedelta(hours=5)
    await world.look(10)
    clock.by = timedelta(hours=-9)
    await world.look(10)
    assert world.used() == 2 * 120


async def test_a_tenant_cannot_reset_its_budget(make: Callable[..., Office]) -> None:
    """All that users of the namespace can write is the LocalQueue, and what they write there is for reading only."""
    world = make("cpu=1h/day")
    world.runs("a", 2)
    await world.look(1800)
    told = {"metadata": {"annotations": {USED: "{}", "kqueue.dev/budgets": "cpu=99h/day"}}}
    world.client.change(LOCAL_QUEUES, "ns/main", told)
    world.client.change(LOCAL_QUEUES, "ns/main", {"status": {"conditions": [condition(KIND, reason="BudgetLeft")]}})
    world.keeper = world.lead()
    await world.look()
    assert world.used() == 3600
    assert status_of(world.client.object(LOCAL_QUEUES, "ns/main"), KIND) == ("False", "BudgetExhausted")


async def test_another_namespace_does_not_wait_in_a_strict_queue(make: Callable[..., Office]) -> None:
    world = make("ns/second:cpu=0h/day", "second", queueingStrategy="StrictFIFO")
    world.add(make_workload("a", queue="second"), make_workload("b", minute=1))
    await world.cycle()
    await world.cycle()
    assert world.observed.reservations == ["b"]


async def test_what_is_left_is_told_in_hundredths(make: Callable[..., Office]) -> None:
    """An idle budget writes nothing, a busy one some times an hour."""
    world = make("cpu=10h/day")
    await world.look()
    before = len(world.client.writes())
    for _ in range(10):
        await world.look(60)
    assert len(world.client.writes()) == before
    world.runs("a", 2)
    await world.look(3 * 3600)
    message = message_of(world.client.object(LOCAL_QUEUES, "ns/main"), KIND)
    assert message == f"ns: 4 of 10 h of cpu are left until {utc_text(tomorrow(world))}"


async def test_without_budgets_all_traces_are_removed(make: Callable[..., Office]) -> None:
    world = make("cpu=10h/day")
    world.runs("a", 2)
    await world.look(100)
    queue = world.client.object(CLUSTER_QUEUES, "team")
    assert queue is not None
    assert USED in queue["metadata"]["annotations"]
    world.client.change(CLUSTER_QUEUES, "team", {"metadata": {"annotations": {"kqueue.dev/budgets": None}}})
    await world.look()
    queue = world.client.object(CLUSTER_QUEUES, "team")
    assert queue is not None
    assert USED not in queue["metadata"]["annotations"]
    assert status_of(world.client.object(LOCAL_QUEUES, "ns/main"), KIND) == ("", "")
    assert world.cache.budgets.accounts("team", "ns/main") == []
