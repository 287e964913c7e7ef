"""Policies in the scheduling loop: a gang that waits for its data, and the ClusterQueue that names its policies."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from kqueue.core.joint.registry import PolicySpec
from kqueue.core.joint.round_policies import NO_POLICIES
from kqueue.core.joint.statistics import NO_SAMPLE, NO_STATISTICS, measured_kind
from kqueue.scheduling.joint.process import PlanningProcess
from kqueue.scheduling.joint.rounds import JointRounds, RoundResult
from kqueue.state.statistics import StatisticsStore
from tests.unit.controllers.builders import make_cluster_queue, make_workload
from tests.unit.scheduling.joint.planners import Here, until
from tests.unit.scheduling.joint.test_rounds import gang, join, racks
from tests.unit.scheduling.scheduled import Scheduled

OPENS = 90_000
"""Seconds of waiting that another rack is worth: an hour more than the day that workloads have waited at the start."""
LOCALITY = PolicySpec(name="locality", parameters={"perLevel": [OPENS, 60, 1]})
POLICIES = "kqueue.dev/joint-policies"


def at_data(name: str, pods: int, *, minute: int) -> Any:
    """A gang with its data in rack r1."""
    made = gang(name, pods, minute=minute)
    made["metadata"]["annotations"]["kqueue.dev/prefers"] = "rack=r1"
    return made


@pytest.mark.mechanism("2.14")
async def test_a_gang_waits_for_its_data_to_the_second(make: Callable[..., Scheduled]) -> None:
    """E12: the alarm wakes the loop when the other rack is worth it, and no cycle places the gang there before."""
    first, second = at_data("a", 9, minute=1), at_data("b", 9, minute=2)
    world = racks(make, first, second)
    rounds, results = join(world, Here(), policies=(LOCALITY,))
    world.start()
    await world.clock.advance(1)
    assert world.observed.reservations == ["a"]
    assert world.observed.waiting == [("b", "WaitingForLocality")]
    created = datetime.fromisoformat(second["metadata"]["creationTimestamp"])
    left = OPENS - int((world.clock.now() - created).total_seconds())
    assert 0 < left < 7200
    await world.clock.advance(left - 2)
    world.loop.wake()
    await world.clock.advance(1)
    assert world.observed.reservations == ["a"]
    await world.clock.advance(2)
    assert world.observed.reservations == ["a", "b"]
    assert rounds.last is not None
    assert set(results) == {RoundResult.GREEDY}
    assert len(results) <= 3, "a gang that waits must not begin rounds"


async def test_one_workload_is_a_round_if_a_policy_has_a_say(make: Callable[..., Scheduled]) -> None:
    for specs, number in (((LOCALITY,), 1), ((), 0)):
        world = racks(make, at_data("a", 9, minute=1))
        rounds, _ = join(world, Here(), **({"policies": specs} if specs else {}))
        world.start()
        await world.until_quiet()
        assert world.observed.reservations == ["a"]
        assert rounds.number == number
        await world.close()


async def test_a_cluster_queue_names_its_policies(make: Callable[..., Scheduled]) -> None:
    queue = make_cluster_queue(cpus=100)
    queue["metadata"]["annotations"] = {POLICIES: "[{name: packing}, {name: spreading, weight: 10}]"}
    planner = Here()
    world = racks(make, gang("a", 2, minute=1), gang("b", 2, minute=2), queues=[queue])
    join(world, planner)
    world.start()
    await world.until_quiet()
    (given,) = planner.rounds
    assert given.policies.of_queue == {
        "team": (PolicySpec(name="packing"), PolicySpec(name="spreading", weight=10)),
    }


# --- measured use

UTILISATION = PolicySpec(name="utilisation")
HALF = {"node-h1": 2_500, "node-h2": 2_500, "node-h7": 1_500, "node-h8": 1_500, "node-h9": 1_500}


def anywhere(name: str, *, minute: int, cpus: int = 1) -> Any:
    """A workload of one pod that may be on any host."""
    made = make_workload(name, cpus=cpus, minute=minute)
    made["metadata"]["annotations"] = {"kqueue.dev/placement-profile": "joint"}
    return made


def measuring(world: Scheduled, planner: Any, *specs: PolicySpec) -> tuple[JointRounds, StatisticsStore]:
    """Rounds with these policies, and the store of measured use that they look at."""
    rounds, _ = join(world, planner, policies=specs or (UTILISATION,), time_limit=60.0)
    store = StatisticsStore(interval=15, samples=10, clock=world.clock.monotonic)
    rounds.look_at_use(store.statistics, lambda: None)
    return rounds, store


def measure(store: StatisticsStore, **cpus: int) -> None:
    """One sample of each node, of half of its cpus unless named."""
    nodes = {**HALF, **{f"node-{host}": cpu for host, cpu in cpus.items()}}
    store.add_nodes({node: (cpu, 0, NO_SAMPLE) for node, cpu in nodes.items()})


def host_of(rounds: JointRounds, name: str) -> str:
    """The host of a workload of one pod in the last plan."""
    assert rounds.last is not None
    (entry,) = [entry for entry in rounds.last.entries if entry.key == f"ns/{name}"]
    assert entry.hint is not None
    ((path, count),) = entry.hint.places["main"]
    assert count == 1
    return path[-1]


@pytest.mark.mechanism("2.16")
async def test_the_host_that_is_used_least_is_chosen_and_without_samples_the_one_with_least_reserved(
    make: Callable[..., Scheduled],
) -> None:
    """E15: measured use decides while there are samples; an interval after they were withdrawn, reservations do."""
    world = racks(make, anywhere("a", minute=1))
    rounds, store = measuring(world, Here())
    measure(store, h1=4_500, h2=1_000)
    world.start()
    await world.until_quiet()
    assert host_of(rounds, "a") == "h2"
    assert rounds.last is not None
    assert rounds.last.static_nodes == 0

    measure(store, h1=100)
    measure(store, h1=100)
    world.add(anywhere("b", minute=2))
    await world.until_quiet()
    assert host_of(rounds, "b") == "h1", "nine of ten samples count: the largest of three does not"

    store.clear()
    world.add(anywhere("c", minute=3))
    await world.until_quiet()
    assert host_of(rounds, "c") == "h7", "1 of 3 cpus would be reserved there, 2 of 5 on the hosts with a and b"
    assert rounds.last.static_nodes == len(HALF)
    assert world.observed.reservations == ["a", "b", "c"]


@pytest.mark.mechanism("2.16")
async def test_old_samples_do_not_count(make: Callable[..., Scheduled]) -> None:
    world = racks(make)
    rounds, store = measuring(world, Here())
    measure(store, h1=5_000)
    world.start()
    await world.clock.advance(151)
    world.add(anywhere("a", minute=1))
    await world.until_quiet()
    assert host_of(rounds, "a") == "h1"


@pytest.mark.mechanism("2.16")
async def test_one_node_without_samples_counts_by_its_reservations(make: Callable[..., Scheduled]) -> None:
    world = racks(make, anywhere("a", minute=1))
    rounds, store = measuring(world, Here())
    measure(store)
    store.nodes.forget("node-h9")
    world.start()
    await world.until_quiet()
    assert host_of(rounds, "a") == "h9"
    assert rounds.last is not None
    assert rounds.last.static_nodes == 1


async def test_pods_count_by_what_their_kind_uses(make: Callable[..., Scheduled]) -> None:
    """A pod of 3 cpus that uses a tenth of one: the small host, 3 of 10 used, is cheaper than the large, 4 of 10."""
    for mean, host in ((None, "h1"), (100, "h7")):
        world = racks(make, anywhere("a", minute=1, cpus=3))
        rounds, store = measuring(world, Here())
        measure(store, h1=2_000, h2=5_000, h7=900, h8=3_000, h9=3_000)
        if mean is not None:
            store.add_kinds({measured_kind("team", {"cpu": 3_000}): (mean, 0, NO_SAMPLE)})
        world.start()
        await world.until_quiet()
        assert host_of(rounds, "a") == host
        await world.close()


async def test_measured_use_is_sent_only_to_policies_that_look_at_it(make: Callable[..., Scheduled]) -> None:
    for spec, looks in ((UTILISATION, True), (PolicySpec(name="network"), True), (PolicySpec(name="packing"), False)):
        planner = Here()
        world = racks(make, anywhere("a", minute=1))
        _, store = measuring(world, planner, spec)
        measure(store)
        store.add_kinds({measured_kind("team", {"cpu": 3_000}): (7, 8, NO_SAMPLE)})
        world.start()
        await world.until_quiet()
        (given,) = planner.rounds
        found, sent = given.policies.statistics, store.statistics() if looks else NO_STATISTICS
        assert (found.nodes, found.means) == (sent.nodes, sent.means)
        assert found.samples.tolist() == sent.samples.tolist()
        await world.close()
    assert NO_POLICIES.statistics is NO_STATISTICS


async def test_the_planning_process_gets_measured_use(make: Callable[..., Scheduled]) -> None:
    world, planner = racks(make, anywhere("a", minute=1)), PlanningProcess()
    rounds, store = measuring(world, planner)
    measure(store, h1=4_500, h2=1_000)
    world.start()
    await until(world, lambda: world.observed.reservations == ["a"])
    assert host_of(rounds, "a") == "h2"
    await planner.stop()


@pytest.mark.mechanism("2.30")
async def test_samples_that_are_lost_at_any_moment_leave_plans_that_can_be_carried_out(
    make: Callable[..., Scheduled],
) -> None:
    """Before, between and during rounds; cycles place each workload where its plan says, and none is lost."""
    for lost in range(6):
        planner, stale = Here(), Counted()
        world = racks(make, *(anywhere(f"w{n}", minute=n) for n in range(3)))
        rounds, store = measuring(world, planner)
        rounds.on_stale = stale.count
        world.start()
        for moment in range(6):
            measure(store, h1=4_000 - 500 * moment)
            planner.open.clear()
            world.add(anywhere(f"later-{moment}", minute=10 + moment))
            world.loop.wake()
            await world.clock.advance(0.05)
            if moment == lost:
                store.clear()
            planner.open.set()
            await world.until_quiet()
            assert rounds.last is not None
            assert rounds.last.faults == ()
        assert len(world.observed.reservations) == 9
        assert stale.number == 0
        await world.close()


class Counted:
    """Counts calls."""

    number = 0

    def count(self) -> None:
        self.number += 1
