"""The scheduling loop: a gang whose nodes are made by a check gets quota first, and domains when the check is ready."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.clock import FakeClock
from kqueue.controllers.resources import CLUSTER_QUEUES, WORKLOADS
from kqueue.state import status
from tests.unit.controllers.builders import condition, make_cluster_queue, make_workload, message_of, read, status_of
from tests.unit.scheduling.scheduled import Scheduled
from tests.unit.scheduling.worlds import HOST, hospital, hosts_of

PROVISIONING = "kueue.x-k8s.io/provisioning-request"
BUDGET = "example.com/budget"
READY = {"name": "nodes", "state": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}


def gang(name: str = "a", *, pods: int = 2, **more: Any) -> Any:
    """A gang that asks for one rack, of pods of one cpu."""
    workload = make_workload(name, pods=pods, **more)
    workload["spec"]["podSets"][0]["topologyRequest"] = {"required": "rack"}
    return workload


def with_check(
    make: Callable[..., Scheduled],
    *workloads: Any,
    controller: str = PROVISIONING,
    on_flavors: tuple[str, ...] = (),
    **cpus: Any,
) -> Any:
    """A world of hosts with these cpus, whose queue has check `nodes`, and Workloads that wait."""
    world = hospital(make, **cpus)
    rule = {"name": "nodes", "onFlavors": [*on_flavors]}
    queue = make_cluster_queue(admissionChecksStrategy={"admissionChecks": [rule]})
    world.client.put(CLUSTER_QUEUES, {**queue, "metadata": {**queue["metadata"], "generation": 2}})
    check = {
        "metadata": {"name": "nodes"},
        "spec": {"controllerName": controller},
        "status": {"conditions": [condition("Active")]},
    }
    world.intake.on_check(None, read(wire.AdmissionCheck, check))
    world.add(*workloads)
    return world


def is_ready(world: Any, name: str = "a", **more: Any) -> None:
    """The check's controller answers, and the pause before the second pass is over."""
    world.client.change(WORKLOADS, f"ns/{name}", {"status": {"admissionChecks": [{**READY, **more}]}})
    world.sync()
    world.second_pass.ask(f"ns/{name}")
    world.second_pass.ready(f"ns/{name}")


def held(world: Any, name: str = "a") -> Any:
    return (world.workload(name) or {})["status"]["admission"]["podSetAssignments"][0]


@pytest.mark.parametrize(
    ("controller", "on_flavors", "delayed"),
    [
        pytest.param(PROVISIONING, (), True, id="topology.md 8.2 a provisioning check of all flavors"),
        pytest.param(PROVISIONING, ("default",), True, id="topology.md 8.2 of the chosen flavor"),
        pytest.param(PROVISIONING, ("other",), False, id="topology.md 8.2 of another flavor"),
        pytest.param(BUDGET, (), False, id="topology.md 8.2 other checks do not delay"),
    ],
)
async def test_only_a_provisioning_check_of_the_flavor_delays_domains(
    make: Callable[..., Scheduled], controller: str, on_flavors: tuple[str, ...], delayed: bool
) -> None:
    world = with_check(make, gang(), controller=controller, on_flavors=on_flavors, h1=2)

    assert await world.cycle()

    assert ("topologyAssignment" in held(world)) is not delayed
    assert held(world).get("delayedTopologyRequest") == ("Pending" if delayed else None)
    assert status_of(world.workload(), "QuotaReserved")[0] == "True"
    assert world.free() == 8


async def test_a_gang_reserves_quota_without_nodes_and_gets_domains_when_they_are_there(
    make: Callable[..., Scheduled],
) -> None:
    """One patch with the domains and state Ready; the flavor, the quota and the conditions stay."""
    world = with_check(make, gang())
    assert await world.cycle()
    before = held(world)
    world.sync()
    add_host(world, "h1", 2)
    is_ready(world)

    assert await world.cycle()

    assert hosts_of(world) == {"h1": 2}
    now = held(world)
    assert now["delayedTopologyRequest"] == "Ready"
    assert (now["flavors"], now["resourceUsage"], now["count"]) == (
        before["flavors"],
        before["resourceUsage"],
        before["count"],
    )
    assert world.free() == 8
    assert [str(call) for call in world.client.writes()][-1] == "patch workloads ns/a/status"
    world.sync()
    assert world.cache.audits.audit() == []
    assert world.second_pass.take() == []


async def test_nodes_in_two_racks_are_no_place_for_a_gang_of_one(make: Callable[..., Scheduled]) -> None:
    """It keeps its quota and is tried again after growing pauses (topology.md 8.2, 5.3); the reason is told."""
    world = with_check(make, gang(), h1=1, h7=1)
    assert await world.cycle()
    is_ready(world)
    world.pauses.clear()
    for _ in range(3):
        assert not await world.cycle()
        world.second_pass.ready("ns/a")

    assert world.pauses == [2.0, 4.0, 8.0]
    assert len(world.observed.not_mended_messages) == 3
    assert "rack" in world.observed.not_mended_messages[0]
    assert held(world)["delayedTopologyRequest"] == "Pending"
    assert world.free() == 8


async def test_additions_of_the_check_select_nodes(make: Callable[..., Scheduled]) -> None:
    """Node selectors in podSetUpdates count (topology.md 8.2): no node has this label."""
    world = with_check(make, gang(), h1=2)
    assert await world.cycle()
    is_ready(world, podSetUpdates=[{"name": "main", "nodeSelector": {"made-for": "a"}}])

    assert not await world.cycle()

    assert "made-for" in world.observed.not_mended_messages[0]


async def test_delayed_domains_are_charged(make: Callable[..., Scheduled]) -> None:
    """The gang that comes after finds them taken."""
    world = with_check(make, gang(), h1=2)
    assert await world.cycle()
    is_ready(world)
    world.add(gang("b", minute=1))
    assert await world.cycle()
    is_ready(world, "b")

    await world.cycle()

    assert hosts_of(world) == {"h1": 2}
    assert "topologyAssignment" not in held(world, "b")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"conditions": [condition("QuotaReserved"), condition("Evicted")]}, id="it is evicted"),
        pytest.param({"conditions": [condition("QuotaReserved"), condition("Finished")]}, id="it is finished"),
        pytest.param({"admissionChecks": [{**READY, "state": "Pending"}]}, id="the check is pending again"),
    ],
)
async def test_domains_are_not_chosen_for_a_workload_that_changed(
    make: Callable[..., Scheduled], change: dict[str, Any]
) -> None:
    world = with_check(make, gang(), h1=2)
    assert await world.cycle()
    is_ready(world)
    world.client.change(WORKLOADS, "ns/a", {"status": change})
    world.sync()

    await world.cycle()

    assert "topologyAssignment" not in held(world)
    assert world.second_pass.take() == []


async def test_a_change_during_the_write_withdraws_the_domains(make: Callable[..., Scheduled]) -> None:
    """The check is pending again when the domains are written: nothing is written, and the host is free."""
    world = with_check(make, gang(), h1=2)
    assert await world.cycle()
    is_ready(world)
    world.client.open.clear()
    assert await world.loop.cycle()
    world.client.change(WORKLOADS, "ns/a", {"status": {"admissionChecks": [{**READY, "state": "Pending"}]}})
    world.client.open.set()
    await world.loop.drain()

    assert "topologyAssignment" not in held(world)
    world.sync()
    assert world.cache.audits.audit() == []


def test_admitted_waits_for_domains() -> None:
    """Reservation, ready checks and no domains: Admitted is False with a reason of its own (workload-lifecycle 2)."""
    obj = make_workload(
        status={
            "conditions": [condition("QuotaReserved")],
            "admissionChecks": [READY],
            "admission": {
                "clusterQueue": "team",
                "podSetAssignments": [{"name": "main", "count": 1, "delayedTopologyRequest": "Pending"}],
            },
        }
    )
    patch = status.sync_admitted(read(wire.Workload, obj), stamp=status.Stamp(FakeClock().now()))

    assert patch is not None
    assert status_of(patch, "Admitted") == ("False", "PendingDelayedTopologyRequests")
    assert "domains" in message_of(patch, "Admitted")


def add_host(world: Any, host: str, cpus: int) -> None:
    """A node of rack r1 appears."""
    node = {
        "metadata": {"name": f"node-{host}", "labels": {"rack": "r1", HOST: host, "pool": "all"}},
        "status": {"allocatable": {"cpu": str(cpus), "pods": "9"}, "conditions": [condition("Ready")]},
    }
    world.intake.on_node(None, model.node_facts(read(wire_core.Node, node)))
