"""`minResources`: what must be free before a gang starts, beyond what it requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kqueue import model
from kqueue.controllers.resources import CLUSTER_QUEUES, RESOURCE_FLAVORS, WORKLOADS
from kqueue.core.least import has_room
from kqueue.core.quota import FlavorResource
from tests.unit.controllers.builders import (
    JSON,
    make_cluster_queue,
    make_flavor,
    make_workload,
    message_of,
    reserved,
    status_of,
)
from tests.unit.scheduling.scheduled import Scheduled
from tests.unit.state.wire_objects import make_workload as make_wire

Make = Callable[..., Scheduled]
CPU = FlavorResource("default", "cpu")
WAITS = ("False", "WaitingForQuota")


def driver(name: str, *, cpus: int = 1, **more: Any) -> JSON:
    """A gang that requests little and needs 10 cpu free before it starts."""
    least = more.pop("least", {"cpu": "10"})
    marks = {"kqueue.dev/gang": f"f:{name}", "kueue.x-k8s.io/is-group-workload": "true"}
    marks["kqueue.dev/min-resources"] = json.dumps(least)
    return make_workload(name, cpus=cpus, metadata={"annotations": marks}, **more)


def reservation(world: Scheduled, name: str) -> tuple[str, str]:
    return status_of(world.client.object(WORKLOADS, f"ns/{name}"), "QuotaReserved")


def says(world: Scheduled, name: str) -> str:
    return message_of(world.client.object(WORKLOADS, f"ns/{name}"), "QuotaReserved")


@pytest.mark.mechanism("4.2")
async def test_a_gang_waits_until_its_least_resources_are_free(make: Make) -> None:
    """Row 4.2, G3.55, G3.57: 9 of 10 cpu are free; one more, and it starts; only its requests are charged."""
    world = make((WORKLOADS, make_workload("holder", status=reserved())))
    world.add(driver("d"))
    world.start()
    await world.until_quiet()
    before, message = reservation(world, "d"), says(world, "d")
    world.client.drop(WORKLOADS, "ns/holder")
    world.sync()
    await world.until_quiet()
    node = world.cache.quota.node_of("team")

    assert before == WAITS
    assert message == (
        "MinResources asks for 10 cpu, 9 cpu is free of flavor default in ClusterQueue team, 1 cpu more needed"
    )
    assert reservation(world, "d")[0] == "True"
    assert node is not None
    assert node.usage[CPU] == 1000


@pytest.mark.mechanism("4.2")
async def test_of_two_drivers_on_room_for_one_one_starts(make: Make) -> None:
    """Row 4.2, G3.56: in one cycle or in two; a workload without least resources takes what is promised."""
    world = make((CLUSTER_QUEUES, make_cluster_queue(cpus=12)))
    world.add(driver("first"), driver("second", minute=1), make_workload("plain", minute=2))
    world.start()
    await world.until_quiet()
    waits = says(world, "second")
    world.cache.gangs.end_promise("ns/first")
    await world.until_quiet()

    assert reservation(world, "first")[0] == reservation(world, "plain")[0] == "True"
    assert waits == (
        "MinResources asks for 10 cpu, 2 cpu is free of flavor default in ClusterQueue team, 8 cpu more needed"
    )
    assert reservation(world, "second")[0] == "True"


@pytest.mark.mechanism("4.11")
async def test_a_single_pod_passes_gangs_that_wait(make: Make) -> None:
    """Row 4.11: an older gang waits for quota, and another one for its least resources."""
    large = make_workload("large", pods=11, metadata={"annotations": {"kqueue.dev/gang": "f:large"}})
    world = make()
    world.add(large, driver("d", least={"cpu": "11"}, minute=1), make_workload("single", minute=2))
    world.start()
    await world.until_quiet()

    assert reservation(world, "large")[0] == "False"
    assert reservation(world, "d") == WAITS
    assert reservation(world, "single")[0] == "True"


async def test_further_pods_of_a_gang_use_what_is_promised(make: Make) -> None:
    """G3.56: used by base and extras."""
    world = make((CLUSTER_QUEUES, make_cluster_queue(cpus=30)))
    extra = make_workload("x", cpus=4, metadata={"annotations": {"kqueue.dev/extra-of": "first"}}, minute=1)
    world.add(driver("first"), extra)
    world.start()
    await world.until_quiet()
    (promise,) = world.cache.snapshot(["team"]).promises
    assert promise.amounts == {CPU: 5000}


async def test_a_promise_ends_with_the_quota_of_its_gang(make: Make) -> None:
    world = make()
    world.add(driver("first"))
    await world.cycle()
    promised = len(world.cache.snapshot(["team"]).promises)
    world.client.drop(WORKLOADS, "ns/first")
    world.sync()
    assert (promised, world.cache.snapshot(["team"]).promises) == (1, ())


async def test_nobody_is_preempted_for_least_resources_beyond_the_requests(make: Make) -> None:
    """G3.57: the requests would fit after a preemption, the least resources would not."""
    queue = make_cluster_queue(preemption={"withinClusterQueue": "LowerPriority"})
    small = make_workload("small", cpus=4, priority=-1, status=reserved(cpus=4))
    large = make_workload("large", cpus=6, priority=9, status=reserved(cpus=6))
    world = make((CLUSTER_QUEUES, queue), (WORKLOADS, small), (WORKLOADS, large))
    world.add(driver("d", cpus=2))
    await world.cycle()
    assert reservation(world, "d") == WAITS
    assert status_of(world.client.object(WORKLOADS, "ns/small"), "Evicted") == ("", "")


async def test_a_resource_that_the_queue_does_not_count_is_a_mistake(make: Make) -> None:
    """G3.58."""
    world = make()
    world.add(driver("d", least={"cpu": "1", "example.com/gpu": "1"}))
    await world.cycle()
    assert reservation(world, "d") == ("False", "Misconfigured")
    assert says(world, "d") == (
        "MinResources names example.com/gpu, which ClusterQueue team does not count; take it out or add it to the queue"
    )


async def test_a_resource_that_no_pod_requests_has_the_flavor_of_its_group(make: Make) -> None:
    """Memory is in the group of cpu, and flavor `other` has no room for the pods."""
    quota = [{"name": "cpu", "nominalQuota": "10"}, {"name": "memory", "nominalQuota": "8Gi"}]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "default", "resources": quota}]}
    queue = make_cluster_queue()
    queue["spec"]["resourceGroups"] = [group]
    world = make((CLUSTER_QUEUES, queue), (RESOURCE_FLAVORS, make_flavor("other")))
    world.add(driver("large", least={"memory": "9Gi"}), driver("small", least={"memory": "8Gi"}, minute=1))
    await world.cycle()
    await world.cycle()
    assert says(world, "large").startswith("MinResources asks for 9Gi memory, 8Gi memory is free of flavor default")
    assert reservation(world, "small")[0] == "True"


@pytest.mark.parametrize(
    ("written", "want"),
    [
        ('{"cpu": "1500m", "memory": "1Ki"}', {"cpu": 1500, "memory": 1024}),
        ('{"cpu": "x", "memory": "1"}', {"memory": 1}),
        ('{"cpu": "-1", "memory": "0"}', {}),
        ('{"cpu": 1}', {}),
        ("[]", {}),
        ("", {}),
    ],
)
def test_amounts_that_cannot_be_read_do_not_count(written: str, want: dict[str, int]) -> None:
    found = make_wire(metadata={"annotations": {"kqueue.dev/min-resources": written}})
    assert model.least_of(found) == want


@pytest.mark.parametrize(
    ("least", "fits"),
    [
        ({"cpu": 9_000}, True),
        ({"cpu": 9_001}, False),
        ({"cpu": 1_000, "example.com/gpu": 1}, False),
        ({}, True),
    ],
)
async def test_room_for_a_gang_without_pods(make: Make, least: dict[str, int], fits: bool) -> None:
    """G3.V12: 9 of 10 cpu are free; a resource that the ClusterQueue does not count is not there."""
    world = make((WORKLOADS, make_workload("holder", status=reserved())))
    world.sync()
    assert has_room(world.cache.snapshot(["team"]), "team", least) == fits
    assert not has_room(world.cache.snapshot(["missing"]), "missing", least)


async def test_what_is_promised_to_a_gang_is_no_room_for_another(make: Make) -> None:
    world = make((CLUSTER_QUEUES, make_cluster_queue(cpus=12)))
    world.add(driver("first"))
    await world.cycle()
    snapshot = world.cache.snapshot(["team"])
    assert [has_room(snapshot, "team", {"cpu": cpus * 1000}) for cpus in (2, 3)] == [True, False]
