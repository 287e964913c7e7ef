"""Policies in the scheduling loop: a gang that waits for its data, and the ClusterQueue that names its policies."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from kqueue.core.joint.registry import PolicySpec
from kqueue.scheduling.joint.rounds import RoundResult
from tests.unit.controllers.builders import make_cluster_queue
from tests.unit.scheduling.joint.planners import Here
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
