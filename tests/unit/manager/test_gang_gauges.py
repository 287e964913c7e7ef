"""The metrics of gangs follow their objects, and only changed gangs are read again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from kqueue.controllers.resources import PODS, WORKLOADS
from kqueue.jobs.gang.key import KUEUE_GROUPS
from kqueue.jobs.gang.podgroup_x_k8s import FRAMEWORK
from kqueue.jobs.gang.value import Gang, GangPhase
from kqueue.manager.gang_census import GangCensus
from kqueue.manager.gang_gauges import GangGauges
from kqueue.observe import Metrics
from tests.unit.controllers.test_gang_status import Status
from tests.unit.controllers.test_group_objects import GROUPS, KEY, ON, name_of, of_group, pod_group
from tests.unit.jobs.builders import JSON

FRAMEWORKS = (KUEUE_GROUPS, FRAMEWORK)


class Gauges:
    """A world with one PodGroup, and its metrics."""

    def __init__(self, *pods: JSON) -> None:
        self.world = Status(*pods, switches=ON)
        self.world.client.put(GROUPS, pod_group())
        self.metrics = Metrics(clock=self.world.clock)
        self.gauges = self.made()

    def made(self) -> GangGauges:
        """The gauges as a process makes them."""
        world = self.world
        census = GangCensus(world.records, world.clock, pods=world.pods, frameworks=FRAMEWORKS)
        return GangGauges(self.metrics, census)

    async def shown(self) -> dict[str, float]:
        """All series of gangs that are not 0, without buckets."""
        self.world.sync()
        await self.gauges.refresh()
        await self.world.clock.advance(10)  # a page is kept for some seconds
        lines = [line for line in (await self.metrics.render()).decode().splitlines() if line.startswith("kqueue_gang")]
        found = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}
        self.series = {name for name in found if name.startswith(("kqueue_gangs{", "kqueue_gang_extras{"))}
        return {
            name: value for name, value in found.items() if value and "_bucket" not in name and "created" not in name
        }


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Gauges]]:
    found: list[Gauges] = []

    def build(*pods: JSON) -> Gauges:
        found.append(Gauges(*pods))
        return found[-1]

    yield build
    for each in found:
        await each.world.close()


def gangs(phase: str, number: float = 1.0) -> dict[str, float]:
    return {f'kqueue_gangs{{framework="{FRAMEWORK}",phase="{phase}",replica_role="standalone"}}': number}


async def test_a_gang_counts_in_its_phase_only(make: Callable[..., Gauges]) -> None:
    """g3_68: from the first member to its end; a gang that is gone counts no more."""
    metrics = make(of_group("a"), of_group("b"))
    world = metrics.world
    await world.settle()
    assert await metrics.shown() == gangs("Pending")
    world.admit(name_of())
    await world.settle()
    assert (await metrics.shown()).items() >= gangs("Scheduling").items()
    world.runs("a", "b")
    await world.settle()
    running = await metrics.shown()
    for name in ("a", "b"):
        world.client.drop(PODS, f"team/{name}")
    world.client.drop(GROUPS, "team/g")
    world.client.drop(WORKLOADS, f"team/{name_of()}")
    gone = await metrics.shown()

    assert {key: value for key, value in running.items() if "kqueue_gangs" in key} == gangs("Running")
    assert not any("kqueue_gangs" in key for key in gone)


async def test_series_have_fixed_labels(make: Callable[..., Gauges]) -> None:
    """g3_68: as many series as forms that are on times phases and states, whatever the gangs are called."""
    metrics = make(of_group("a"), of_group("b"))
    await metrics.world.settle()
    await metrics.shown()
    assert len(metrics.series) == len(FRAMEWORKS) * (len(GangPhase) + 2)


async def test_only_changed_gangs_are_read(make: Callable[..., Gauges], monkeypatch: pytest.MonkeyPatch) -> None:
    """A refresh without changes costs nothing per gang."""
    metrics = make(of_group("a"), of_group("b"))
    await metrics.world.settle()
    await metrics.shown()
    read: list[str] = []
    of = metrics.world.records.of

    def noted(key: str) -> Gang | None:
        read.append(key)
        return of(key)

    monkeypatch.setattr(metrics.world.records, "of", noted)
    await metrics.shown()
    quiet = list(read)
    metrics.world.add(of_group("c"))
    await metrics.shown()
    assert quiet == []
    assert read == [KEY]


async def test_the_time_to_the_quorum_is_observed_once(make: Callable[..., Gauges]) -> None:
    """g3_68: and not by a process that finds the quorum scheduled."""
    metrics = make(of_group("a"), of_group("b"))
    world = metrics.world
    await world.settle()
    await metrics.shown()
    world.admit(name_of())
    await world.settle()
    await metrics.shown()
    world.runs("a", "b")
    for name in ("a", "b"):
        bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2036-01-01T00:00:00Z"}
        world.client.change(PODS, f"team/{name}", {"status": {"conditions": [bound]}})
    count = f'kqueue_gang_time_to_quorum_seconds_count{{framework="{FRAMEWORK}",replica_role="standalone"}}'
    assert (await metrics.shown())[count] == 1
    metrics.gauges = metrics.made()
    assert (await metrics.shown())[count] == 1


@pytest.mark.parametrize(
    ("reason", "counted"), [("GangRejected", 1.0), ("GangScheduleTimeout", 1.0), ("Preempted", None)]
)
async def test_rejections_count_once_by_reason(make: Callable[..., Gauges], reason: str, counted: float | None) -> None:
    """g3_68: other evictions are no rejections, so that the reasons are a fixed set."""
    metrics = make(of_group("a"), of_group("b"))
    world = metrics.world
    await world.settle()
    world.admit(name_of())
    world.sync()
    world.evict(name_of(), reason)
    world.sync()
    world.client.change(WORKLOADS, f"team/{name_of()}", {"metadata": {"labels": {"changed": "later"}}})
    shown = await metrics.shown()

    labels = f'framework="{FRAMEWORK}",reason="{reason}",replica_role="standalone"'
    assert shown.get(f"kqueue_gang_rejections_total{{{labels}}}") == counted
    assert sum("rejections" in name for name in shown) == (1 if counted else 0)
