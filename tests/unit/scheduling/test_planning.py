"""What the shell hands to the planner."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
from structlog.testing import capture_logs

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.core.planners import PLANNERS, Wish, register
from kqueue.core.topology.arranged import Hint
from kqueue.core.topology.placers import PLACERS
from kqueue.core.workload import Snapshot
from tests.planning_worker import Question, decide, planning_worker
from tests.unit.controllers.builders import JSON, make_workload
from tests.unit.scheduling.scheduled import Scheduled
from tests.unit.scheduling.test_preemption import by_priority, running
from tests.unit.scheduling.worlds import hospital, hosts_of
from tests.unit.toys import toy_planner

Make = Callable[..., Scheduled]


@pytest.fixture
def registries() -> Iterator[None]:
    """What a test registers is forgotten."""
    before = dict(PLACERS)
    yield
    PLANNERS.clear()
    PLACERS.clear()
    PLACERS.update(before)


def newest(world: Scheduled, name: str) -> wire.Workload:
    """The workload as the loop reads it."""
    obj = world.writer.newest(f"ns/{name}")
    assert obj is not None
    return obj


def question(world: Scheduled, *names: str) -> Question:
    """A snapshot of the cache, and workloads as heads of ClusterQueue `team`."""
    planning, now = world.loop.planning, world.clock.now()
    heads = [planning.heads.make(newest(world, name), None, queue="team", now=now) for name in names]
    return planning.snapshot({"team"}), heads, planning.rules(now, [head.uid for head in heads])


async def test_another_process_decides_the_same_on_a_snapshot_of_the_cache(make: Make) -> None:
    """What the cache hands out can be sent: views of holdings, trees of quota, the rules of preemption."""
    world = make(*by_priority())
    world.add(running("a", cpus=5), running("b", cpus=3), make_workload("high", cpus=8, priority=1))
    world.add(make_workload("low", cpus=2), make_workload("large", cpus=20))
    for name, kind in (("high", "preempt"), ("low", "admit"), ("large", "wait")):
        with planning_worker() as worker:
            elsewhere = worker.decide(question(world, name))
        here = decide(question(world, name))
        assert elsewhere == here
        assert [decision[0] for decision in here] == [kind]


def joint(name: str) -> JSON:
    """A gang of two pods in one rack that asks for the profile of a planner."""
    workload = make_workload(name, pods=2)
    workload["metadata"]["annotations"] = {names.PLACEMENT_PROFILE_ANNOTATION: toy_planner.NAME}
    workload["spec"]["podSets"][0]["topologyRequest"] = {"required": "rack"}
    return workload


@pytest.mark.parametrize("is_broken", [False, True], ids=["works", "raises"])
async def test_a_workload_names_a_planner_and_is_admitted(make: Make, *, is_broken: bool, registries: None) -> None:
    """Where the planner raises, the workload is placed by itself, and the log names the profile."""

    def planner(snapshot: Snapshot, wishes: Sequence[Wish]) -> Sequence[Hint | None]:
        if is_broken:
            raise RuntimeError("a bug of the planner")
        return toy_planner.plan(snapshot, wishes)

    register(toy_planner.NAME, planner)
    world = hospital(make, h1=4, h2=4)
    world.add(joint("a"))
    with capture_logs() as logs:
        assert await world.cycle()
    said = [line["profile"] for line in logs if line["event"].startswith("planner failed")]
    assert said == ([toy_planner.NAME] if is_broken else [])
    assert sum(hosts_of(world, "a").values()) == 2
