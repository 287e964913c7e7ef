"""Failed hosts that have no replacement: nobody else has to leave for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.scheduling.settings import LoopSettings
from tests.unit.controllers.builders import make_cluster_queue, make_workload, read, status_of
from tests.unit.scheduling.scheduled import Scheduled
from tests.unit.scheduling.worlds import hospital, hosts_of, placed

PRIORITY = 10


def by_priority(world: Scheduled) -> None:
    """From now on the queue's higher workloads preempt lesser ones."""
    queue = read(wire.ClusterQueue, make_cluster_queue(preemption={"withinClusterQueue": "LowerPriority"}))
    world.intake.on_cluster_queue(world.cache.quota.queue_object("team"), queue)


@pytest.mark.parametrize("fail_fast", [True, False], ids=["it is evicted", "it goes on and is tried again"])
async def test_a_replacement_never_preempts(make: Callable[..., Scheduled], fail_fast: bool) -> None:
    """A lesser workload stands on the only other host.  It goes for a workload that waits, and not for a replacement."""
    gang = placed(h1=2, h2=2)
    gang["spec"]["priority"] = PRIORITY
    lesser = placed("lesser", h3=2, unhealthy=())
    world = hospital(make, gang, lesser, settings=LoopSettings(fail_fast=fail_fast), h2=2, h3=2)
    by_priority(world)

    assert not await world.cycle()

    assert hosts_of(world) == {"h1": 2, "h2": 2}
    assert status_of(world.workload(), "Evicted") == (("True", "NodeFailures") if fail_fast else ("", ""))
    assert status_of(world.workload("lesser"), "Evicted") == ("", "")
    assert world.observed.preemptions == []

    waits = make_workload("waits", pods=2, priority=PRIORITY)
    waits["spec"]["podSets"][0]["topologyRequest"] = {"required": "rack"}
    world.add(waits)
    await world.cycle()
    assert status_of(world.workload("lesser"), "Evicted") == ("True", "Preempted")


@pytest.mark.parametrize(
    ("owners", "group", "settings", "kept"),
    [
        (1, False, LoopSettings(), True),
        (1, False, LoopSettings(skips_pod_owned=False), False),
        (1, True, LoopSettings(), False),
        (2, False, LoopSettings(), False),
    ],
    ids=["one pod", "one pod, switched off", "a group of one", "two owners"],
)
async def test_the_workload_of_one_pod_keeps_its_place(
    make: Callable[..., Scheduled], owners: int, group: bool, settings: LoopSettings, kept: bool
) -> None:
    """It ends with that pod, so nothing could use another place; it is not evicted for it either."""
    alone = placed(h1=1)
    references = [{"apiVersion": "v1", "kind": "Pod", "name": f"p{i}", "uid": f"u{i}"} for i in range(owners)]
    alone["metadata"]["ownerReferences"] = references
    if group:
        alone["metadata"]["annotations"] = {"kueue.x-k8s.io/is-group-workload": "true"}
    world = hospital(make, alone, settings=settings, h1=1, h2=1)

    await world.cycle()

    found = world.workload()
    assert found is not None
    assert "unhealthyNodes" not in found["status"]
    assert hosts_of(world) == ({"h1": 1} if kept else {"h2": 1})
    assert status_of(found, "Evicted") == ("", "")
