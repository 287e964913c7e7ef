"""The scheduling loop: pods leave failed hosts, and gangs that cannot be mended leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kqueue.controllers.resources import WORKLOADS
from kqueue.errors import UnreachableError
from kqueue.scheduling.settings import LoopSettings
from tests.readings import free_by_node
from tests.unit.controllers.builders import make_workload, message_of, status_of
from tests.unit.scheduling.scheduled import Scheduled
from tests.unit.scheduling.worlds import HOST, hospital, hosts_of, placed


@pytest.mark.parametrize(
    "unhealthy",
    [
        pytest.param(("h1",), id="listed by its host name"),
        pytest.param(("node-h1",), id="listed by the name of its node"),
    ],
)
async def test_failed_hosts_are_replaced_by_one_patch(make: Callable[..., Scheduled], unhealthy: tuple[str]) -> None:
    """The other pods stay, the list of failed hosts is empty, and nothing else of the status is touched."""
    world = hospital(make, placed(h1=2, h2=2, unhealthy=unhealthy), h2=2, h3=2)
    before = world.workload()

    assert await world.cycle()

    after = world.workload()
    assert hosts_of(world) == {"h2": 2, "h3": 2}
    assert "unhealthyNodes" not in after["status"]
    assert after["status"]["conditions"] == before["status"]["conditions"]
    assert [str(call) for call in world.client.writes()] == ["patch workloads ns/a/status"]
    assert world.second_pass.take() == []
    assert world.pauses == []


def columns(**hosts: int) -> list[Any]:
    """The slices of an assignment."""
    return [
        {"domainCount": 1, "valuesPerLevel": [{"universal": host}], "podCounts": {"universal": pods}}
        for host, pods in hosts.items()
    ]


async def test_only_pods_that_have_not_ended_are_replaced(make: Callable[..., Scheduled]) -> None:
    """One of two pods on the failed host has ended, and one on the other, which therefore has room.  The new domains are
    of what is left, so nothing is given back of them yet.
    """
    gang = placed(h1=2, h2=2)
    gone = {"levels": [HOST], "slices": columns(h1=1, h2=1)}
    gang["status"] |= {
        "reclaimablePods": [{"name": "main", "count": 2}],
        "finishedPods": [{"name": "main", "topologyAssignment": gone}],
    }
    world = hospital(make, gang, h2=2)

    assert await world.cycle()

    assert hosts_of(world) == {"h2": 2}
    assert "finishedPods" not in world.workload()["status"]
    world.sync()
    assert world.cache.audits.audit() == []
    assert free_by_node(world.cache.ledger)["node-h2"]["cpu"] == 0


async def test_a_new_host_is_charged_before_the_write_ends_and_given_back_if_it_fails(
    make: Callable[..., Scheduled],
) -> None:
    """While it is written no head gets the host; when the write fails, the Workload asks for another pass."""
    world = hospital(make, placed(h1=2), h3=2)
    world.client.open.clear()
    world.client.fail(UnreachableError("no answer"))
    assert await world.loop.cycle()
    world.add(make_workload("b", cpus=2, minute=1))

    assert not await world.loop.cycle()
    world.client.open.set()
    await world.loop.drain()

    assert hosts_of(world) == {"h1": 2}
    assert world.pauses == [1.0]
    world.second_pass.ready("ns/a")
    assert await world.cycle()
    assert hosts_of(world) == {"h3": 2}


async def test_an_event_on_the_way_does_not_give_a_new_host_away(make: Callable[..., Scheduled]) -> None:
    """The Workload's old domains come by the watch while the new ones are written: no head gets the host."""
    world = hospital(make, placed(h1=2), h3=2)
    world.client.open.clear()
    assert await world.loop.cycle()
    world.client.change(WORKLOADS, "ns/a", {"metadata": {"labels": {"any": "change"}}})
    world.add(make_workload("b", cpus=2, minute=1))

    assert not await world.loop.cycle()

    world.client.open.set()
    await world.loop.drain()
    assert hosts_of(world) == {"h3": 2}


async def test_what_changed_meanwhile_is_not_overwritten(make: Callable[..., Scheduled]) -> None:
    """Another host failed between the decision and the write: the decision is dropped, the next pass takes both."""
    world = hospital(make, placed(h1=1, h2=1), h2=1, h3=2)
    world.client.open.clear()
    assert await world.loop.cycle()
    world.client.change(WORKLOADS, "ns/a", {"status": {"unhealthyNodes": [{"name": "h1"}, {"name": "h2"}]}})
    world.client.open.set()
    await world.loop.drain()
    assert hosts_of(world) == {"h1": 1, "h2": 1}

    world.sync()
    world.second_pass.ready("ns/a")
    assert await world.cycle()

    assert hosts_of(world) == {"h3": 2}


async def test_a_repair_is_of_the_places_that_are_held_when_it_is_written(make: Callable[..., Scheduled]) -> None:
    """A pod on the failed host ended meanwhile, and its place was given back: one pod is to be replaced, not two."""
    world = hospital(make, placed(h1=2, h2=1), h2=1, h3=2)
    world.client.open.clear()
    assert await world.loop.cycle()
    gone = {"levels": [HOST], "slices": columns(h1=1)}
    ended = {
        "reclaimablePods": [{"name": "main", "count": 1}],
        "finishedPods": [{"name": "main", "topologyAssignment": gone}],
    }
    world.client.change(WORKLOADS, "ns/a", {"status": ended})
    world.client.open.set()
    await world.loop.drain()
    assert hosts_of(world) == {"h1": 2, "h2": 1}

    world.sync()
    world.second_pass.ready("ns/a")
    assert await world.cycle()

    assert hosts_of(world) == {"h2": 1, "h3": 1}


async def test_a_gang_that_cannot_be_mended_is_evicted(make: Callable[..., Scheduled]) -> None:
    """The condition names the nodes and what is short; the list is cleared."""
    world = hospital(make, placed(h1=2, h2=2), h2=2, h3=1)

    assert not await world.cycle()

    after = world.workload()
    assert status_of(after, "Evicted") == ("True", "NodeFailures")
    for fact in ("h1", "2 pods do not fit", "level rack"):
        assert fact in message_of(after, "Evicted")
    assert "unhealthyNodes" not in after["status"]
    assert len(world.observed.not_mended_messages) == 1
    assert world.pauses == []


FAILED_TWICE = {"name": "h1", "count": 2, "lastFailureTime": "2026-01-01T00:00:00Z"}
"""At the moment at which the fake clock starts."""


def failed_twice_on_h1(workload: Any) -> Any:
    """The workload remembers this."""
    workload["status"]["nodeFailures"] = [FAILED_TWICE]
    return workload


async def test_pods_leave_a_node_on_which_they_failed_repeatedly_while_another_has_room(
    make: Callable[..., Scheduled],
) -> None:
    """The node itself is well and has room; what is remembered stays."""
    world = hospital(make, failed_twice_on_h1(placed(h1=2, h2=2)), h1=9, h2=2, h3=2)

    assert await world.cycle()

    assert hosts_of(world) == {"h2": 2, "h3": 2}
    assert world.workload()["status"]["nodeFailures"] == [FAILED_TWICE]
    assert world.observed.not_mended_messages == []


async def test_pods_stay_on_a_node_on_which_they_failed_when_no_other_has_room(make: Callable[..., Scheduled]) -> None:
    """Nobody is evicted: the list is cleared, the user is told, and later changes are followed as ever."""
    world = hospital(make, failed_twice_on_h1(placed(h1=2, h2=2)), h1=2, h2=2)

    assert await world.cycle()

    after = world.workload()
    assert hosts_of(world) == {"h1": 2, "h2": 2}
    assert "unhealthyNodes" not in after["status"]
    assert status_of(after, "Evicted") == ("", "")
    (message,) = world.observed.not_mended_messages
    assert "Pods stay on h1" in message
    assert world.cache.held.holding("ns/a").replaces is None
    assert world.second_pass.take() == []


async def test_a_workload_gets_no_node_on_which_it_failed_repeatedly(make: Callable[..., Scheduled]) -> None:
    """Until a day has passed; h1 would be the tighter fit."""
    world = hospital(make, h1=1, h2=2)
    for name in ("a", "b"):
        workload = make_workload(name, status={"nodeFailures": [FAILED_TWICE]})
        workload["spec"]["podSets"][0]["topologyRequest"] = {"required": HOST}
        world.add(workload)
        assert await world.cycle()
        await world.clock.advance(24 * 3600)

    assert (hosts_of(world, "a"), hosts_of(world, "b")) == ({"h2": 1}, {"h1": 1})


@pytest.mark.parametrize(
    ("hosts", "settings"),
    [
        pytest.param({"h2": 2, "h3": 1}, LoopSettings(fail_fast=False), id="when failing fast is switched off"),
        pytest.param({"h3": 9}, LoopSettings(), id="while another of its hosts is out of use and not listed"),
    ],
)
async def test_a_second_pass_in_vain_is_tried_again_after_growing_pauses(
    make: Callable[..., Scheduled], hosts: dict[str, int], settings: LoopSettings
) -> None:
    """Nothing is written; the pauses double up to half a minute."""
    world = hospital(make, placed(h1=2, h2=2), settings=settings, **hosts)

    for _ in range(7):
        assert not await world.cycle()
        world.second_pass.ready("ns/a")

    assert world.client.writes() == []
    assert world.pauses == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    assert len(world.observed.not_mended_messages) == 7


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"status": {"unhealthyNodes": None}}, id="its node has come back"),
        pytest.param({"status": {"unhealthyNodes": [{"name": "h9"}]}}, id="it does not stand on the failed node"),
        pytest.param({"spec": {"active": False}}, id="it is switched off"),
    ],
)
async def test_a_second_pass_that_is_not_needed_any_more_does_nothing(
    make: Callable[..., Scheduled], change: dict[str, Any]
) -> None:
    """It is forgotten, and may be asked for again."""
    world = hospital(make, placed(h1=2), h3=2)
    world.client.change(WORKLOADS, "ns/a", change)
    world.sync()

    assert not await world.cycle()

    assert world.client.writes() == []
    world.second_pass.ask("ns/a")
    assert world.pauses == [1.0]


async def test_the_damaged_come_before_the_heads(make: Callable[..., Scheduled]) -> None:
    """There is room for one: the gang that holds the rest of its hosts gets it."""
    world = hospital(make, placed(h1=2, h2=2), h2=2, h3=2)
    world.add(make_workload("b", cpus=2, priority=9))

    assert await world.cycle()

    assert hosts_of(world) == {"h2": 2, "h3": 2}
    assert world.observed.reservations == []


async def test_the_hosts_of_a_variant_are_replaced_and_not_those_of_its_parent(make: Callable[..., Scheduled]) -> None:
    """The variant holds the quota; its parent gets the new hosts from it, and is not tried without end."""
    parent, variant = placed(h1=2, h2=2), placed("v", h1=2, h2=2)
    owner = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "name": "a",
        "uid": "uid-of-a",
        "controller": True,
    }
    variant["metadata"]["ownerReferences"] = [owner]
    world = hospital(make, parent, variant, h2=2, h3=2)
    assert free_by_node(world.cache.ledger)["node-h2"]["cpu"] == 0, "both count once"

    assert await world.cycle()

    assert (hosts_of(world), hosts_of(world, "v")) == ({"h1": 2, "h2": 2}, {"h2": 2, "h3": 2})
    assert world.second_pass.take() == []
    assert world.pauses == []
