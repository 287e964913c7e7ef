"""The scheduling loop: all roles of a gang in one domain of the level that its group object names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.controllers.resources import WORKLOADS
from tests.unit.controllers.builders import make_cluster_queue, make_workload, message_of, read, reserved, status_of
from tests.unit.scheduling.scheduled import Scheduled
from tests.unit.scheduling.worlds import HOST, hospital, placed

TOGETHER = {"annotations": {"kqueue.dev/gang-topology": "together"}}


def gang(name: str = "g", *, minute: int = 0, level: dict[str, str] | None = None, **pods: int) -> Any:
    """A gang of pods of one cpu in these roles, whose group object requires a rack."""
    workload = make_workload(name, minute=minute)
    workload["metadata"] |= TOGETHER
    (template,) = [p["template"] for p in workload["spec"]["podSets"]]
    request = level or {"required": "rack"}
    workload["spec"]["podSets"] = [
        {"name": role, "count": count, "template": template, "topologyRequest": request} for role, count in pods.items()
    ]
    return workload


def on(gang_: Any, **hosts: tuple[str, ...]) -> Any:
    """The gang, admitted with one pod on each of these hosts, by role."""
    status = reserved()
    assignments = []
    for role, names in hosts.items():
        roots = {"individual": {"roots": list(names)}} if len(names) > 1 else {"universal": names[0]}
        one = {"domainCount": len(names), "valuesPerLevel": [roots], "podCounts": {"universal": 1}}
        assignments.append(
            {
                "name": role,
                "flavors": {"cpu": "default"},
                "resourceUsage": {"cpu": str(len(names))},
                "count": len(names),
                "topologyAssignment": {"levels": [HOST], "slices": [one]},
            }
        )
    status["admission"]["podSetAssignments"] = assignments
    gang_["status"] = status
    return gang_


def places(world: Scheduled, name: str = "g") -> dict[str, dict[str, int]]:
    """Role -> host -> pods, as the server has it."""
    stored = read(wire.Workload, world.workload(name) or {}).status.admission
    assert stored is not None, message_of(world.workload(name), "QuotaReserved")
    return {
        held.name: {d.values[-1]: d.count for d in model.assignment(held.topology_assignment).domains}
        for held in stored.pod_set_assignments
        if held.topology_assignment is not None
    }


async def test_all_roles_go_to_one_rack(make: Callable[..., Scheduled]) -> None:
    """Each role alone would take the smaller rack; together they need the other one (G3.59)."""
    world = hospital(make, gang(servers=1, workers=3), h1=3, h7=2, h8=3)

    assert await world.cycle()

    assert places(world) == {"servers": {"h7": 1}, "workers": {"h8": 3}}


@pytest.mark.parametrize(
    ("mark", "expected"),
    [(True, "No rack has room for all roles together: the best, r1, has room for 3 of 4 pods"), (False, "")],
)
async def test_without_a_rack_for_all_the_gang_waits(make: Callable[..., Scheduled], mark: bool, expected: str) -> None:
    """The message says how much is missing; the same pod sets without the mark need one rack each."""
    waits = gang(servers=1, workers=3)
    if not mark:
        waits["metadata"].pop("annotations")
    world = hospital(make, placed("other", h2=1, unhealthy=()), waits, h1=3, h2=1, h7=1)

    assert await world.cycle() is not mark

    told = message_of(world.workload("g"), "QuotaReserved")
    assert expected.lower() in told.lower() if mark else places(world) == {"servers": {"h7": 1}, "workers": {"h1": 3}}


async def test_a_gang_preempts_in_one_rack_only(make: Callable[..., Scheduled]) -> None:
    """The search for victims looks for room for all roles: the lesser workload in the rack with a free host goes."""
    needs = gang(servers=1, workers=1)
    needs["spec"]["priority"] = 10
    here, there = placed("here", h1=1, unhealthy=()), placed("there", h7=2, unhealthy=())
    world = hospital(make, here, there, needs, h1=1, h2=1, h7=2)
    queue = read(wire.ClusterQueue, make_cluster_queue(preemption={"withinClusterQueue": "LowerPriority"}))
    world.intake.on_cluster_queue(world.cache.quota.queue_object("team"), queue)

    await world.cycle()

    assert status_of(world.workload("here"), "Evicted") == ("True", "Preempted")
    assert status_of(world.workload("there"), "Evicted") == ("", "")
    world.client.drop(WORKLOADS, "ns/here")
    world.sync()
    assert await world.cycle()
    assert {host for role in places(world).values() for host in role} == {"h1", "h2"}


@pytest.mark.parametrize("level", ["required", "preferred"])
async def test_a_role_that_lost_its_only_host_returns_to_the_rack_of_the_others(
    make: Callable[..., Scheduled], level: str
) -> None:
    """The tightest free host is in another rack."""
    lost = on(gang(servers=1, workers=1, level={level: "rack"}), servers=("h1",), workers=("h2",))
    lost["status"]["unhealthyNodes"] = [{"name": "h1"}]
    world = hospital(make, lost, h2=1, h3=4, h7=1)

    assert await world.cycle()

    assert places(world) == {"servers": {"h3": 1}, "workers": {"h2": 1}}


@pytest.mark.parametrize(("level", "moves"), [("required", False), ("preferred", True)])
async def test_roles_that_lost_all_hosts_are_not_parted_for_a_required_level(
    make: Callable[..., Scheduled], level: str, moves: bool
) -> None:
    """Each rack has room for one of them: the gang is evicted, or each role has a rack of its own."""
    lost = on(gang(servers=1, workers=1, level={level: "rack"}), servers=("h1",), workers=("h2",))
    lost["status"]["unhealthyNodes"] = [{"name": "h1"}, {"name": "h2"}]
    world = hospital(make, lost, h3=1, h7=1)

    assert await world.cycle() is moves

    assert status_of(world.workload("g"), "Evicted") == (("", "") if moves else ("True", "NodeFailures"))


async def test_roles_that_lost_all_hosts_return_to_one_rack(make: Callable[..., Scheduled]) -> None:
    """The tightest rack with room for the first role has none for the other."""
    lost = on(gang(servers=1, workers=1), servers=("h1",), workers=("h2",))
    lost["status"]["unhealthyNodes"] = [{"name": "h1"}, {"name": "h2"}]
    world = hospital(make, lost, h3=2, h7=1)

    assert await world.cycle()

    assert places(world) == {"servers": {"h3": 1}, "workers": {"h3": 1}}
