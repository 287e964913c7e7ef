"""The scheduling loop: pods beyond a quorum go to the domain of their gang."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kqueue.controllers.resources import WORKLOADS
from kqueue.scheduling.settings import LoopSettings
from tests.unit.controllers.builders import make_workload, message_of, status_of
from tests.unit.scheduling.scheduled import Scheduled
from tests.unit.scheduling.worlds import HOST, hospital, hosts_of, placed

RACK = {"required": "rack"}


def extra(name: str = "x", *, of: str = "a", minute: int = 1, request: dict[str, str]) -> Any:
    """The Workload of a pod beyond the quorum of gang `of`."""
    metadata = {"annotations": {"kqueue.dev/extra-of": of}}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-of-pod-{name}", "controller": True}
    workload = make_workload(name, minute=minute, metadata={**metadata, "name": name, "ownerReferences": [owner]})
    workload["metadata"] |= {"namespace": "ns", "uid": f"uid-of-{name}"}
    workload["spec"]["podSets"][0]["topologyRequest"] = request
    return workload


@pytest.mark.parametrize(
    ("request_", "expected"),
    [({"required": "rack"}, {}), ({"preferred": "rack"}, {"h7": 1}), ({"preferred": HOST}, {"h7": 1})],
    ids=["required", "preferred", "preferred host"],
)
async def test_an_extra_waits_for_the_rack_of_its_gang(
    make: Callable[..., Scheduled], request_: dict[str, str], expected: dict[str, int]
) -> None:
    """A free host in another rack is none for a required level (G3.24); a preferred level falls back on it."""
    world = hospital(make, placed(h1=2, h2=2, unhealthy=()), extra(request=request_), h1=2, h2=2, h7=2)

    await world.cycle()

    assert (hosts_of(world, "x") if expected else {}) == expected
    if not expected:
        assert status_of(world.workload("x"), "QuotaReserved")[0] == "False"
        assert message_of(world.workload("x"), "QuotaReserved") == (
            "Quota is there; no room in the topology: the best rack of its gang, r1, has room for 0 of 1 pods"
        )


@pytest.mark.parametrize("request_", [{"required": "rack"}, {"preferred": "rack"}], ids=["required", "preferred"])
async def test_an_extra_goes_to_the_rack_of_its_gang(make: Callable[..., Scheduled], request_: dict[str, str]) -> None:
    """Although the host in the other rack is the tighter one."""
    world = hospital(make, placed(h1=2, unhealthy=()), extra(request=request_), h1=2, h2=4, h7=1)

    assert await world.cycle()

    assert hosts_of(world, "x") == {"h2": 1}


@pytest.mark.parametrize(
    ("level", "expected"), [("required", {}), ("preferred", {"h7": 1})], ids=["required", "preferred"]
)
async def test_an_extra_has_the_level_of_its_group_object(
    make: Callable[..., Scheduled], level: str, expected: dict[str, int]
) -> None:
    """Its own pod names none; the Workload of the quorum says that its level is the group's."""
    gang = placed(h1=2, unhealthy=())
    gang["spec"]["podSets"][0]["topologyRequest"] = {level: "rack"}
    gang["metadata"]["annotations"] = {"kqueue.dev/gang-topology": "together"}
    near, far = extra("near", request={}), extra("far", minute=2, request={})
    for one in (near, far):
        del one["spec"]["podSets"][0]["topologyRequest"]
    world = hospital(make, gang, near, far, h1=2, h2=1, h7=1)

    await world.cycle()
    await world.cycle()

    assert hosts_of(world, "near") == {"h2": 1}
    assert (hosts_of(world, "far") if expected else {}) == expected
    assert status_of(world.workload("far"), "QuotaReserved")[0] == ("True" if expected else "False")


async def test_a_waiting_extra_starts_when_its_rack_has_room(make: Callable[..., Scheduled]) -> None:
    """The end of another workload there is enough; extras of two gangs with equal pods wait each for their own rack."""
    world = hospital(
        make,
        placed(h1=1, unhealthy=()),
        placed("b", h7=1, unhealthy=()),
        placed("other", h2=1, unhealthy=()),
        extra(request=RACK),
        extra("y", of="b", minute=2, request=RACK),
        h1=1,
        h2=1,
        h7=2,
    )
    world.start()
    await world.until_quiet()
    assert hosts_of(world, "y") == {"h7": 1}
    assert status_of(world.workload("x"), "QuotaReserved")[0] == "False"

    world.client.drop(WORKLOADS, "ns/other")
    world.sync()
    await world.until_quiet()

    assert hosts_of(world, "x") == {"h2": 1}


@pytest.mark.parametrize(
    ("base", "starts"),
    [
        pytest.param("finished", True, id="extras of a finished gang may still start"),
        pytest.param("evicted", False, id="a gang that lost its reservation has no rack"),
        pytest.param("gone", True, id="without the Workload there is nothing to be near"),
    ],
)
async def test_the_base_may_have_ended(make: Callable[..., Scheduled], base: str, starts: bool) -> None:
    """G3.26: the places of a finished base still say where."""
    gang = placed(h1=1, unhealthy=())
    if base == "finished":
        finished = {
            "type": "Finished",
            "status": "True",
            "reason": "Succeeded",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        gang["status"]["conditions"].append(finished)
    elif base == "evicted":
        gang["status"] = {}
        gang["spec"]["active"] = False
    workloads = [*([gang] if base != "gone" else []), extra(request=RACK)]
    world = hospital(make, *workloads, h1=1, h7=1)

    await world.cycle()

    assert status_of(world.workload("x"), "QuotaReserved")[0] == ("True" if starts else "False")
    if base == "finished":
        assert hosts_of(world, "x") == {"h1": 1}


async def test_a_failed_host_of_an_extra_is_replaced_in_the_rack_of_its_gang(make: Callable[..., Scheduled]) -> None:
    """The extra has no other pod that would tell the rack."""
    moved = placed("x", h2=1, unhealthy=("h2",))
    moved["metadata"] |= extra(request=RACK)["metadata"]
    world = hospital(
        make,
        placed(h1=1, unhealthy=()),
        moved,
        settings=LoopSettings(skips_pod_owned=False),
        h1=1,
        h7=1,
        h4=4,
    )

    await world.cycle()

    assert hosts_of(world, "x") == {"h4": 1}
