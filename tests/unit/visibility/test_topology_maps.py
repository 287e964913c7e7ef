"""A Topology in columns: every leaf is in them once, with its amounts, and names only for users who may read them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kqueue.clock import SystemClock
from kqueue.core.topology import PodFacts
from kqueue.errors import ConfigError, NotFoundError
from kqueue.visibility.topology_maps import TopologyMaps
from tests.unit.visibility.worlds import BLOCK, GPU, RACK, Place, asked, hosts, node


async def told(place: Place, **params: Any) -> Any:
    """The only flavor of the map."""
    answer = await TopologyMaps(cache=place.cache, clock=place.clock).view(asked("dc", **params))
    (flavor,) = answer["flavors"]
    return flavor


async def test_each_host_is_one_entry_with_its_amounts() -> None:
    """Columns have equal lengths, and the domain of a host leads to its rack and block."""
    place = Place()
    place.hold("a", "b0-r0-h0", gpus=6)
    place.foreign("b0-r0-h1", 3)

    flavor = await told(place)

    leaves = flavor["leaves"]
    assert flavor["resource"] == GPU
    assert leaves["name"] == hosts()
    assert leaves["total"] == [8] * 8
    assert leaves["held"] == [6, *[0] * 7]
    assert leaves["foreign"] == [0, 3, *[0] * 6]
    assert leaves["free"] == [2, 5, *[8] * 6]
    assert leaves["domain"] == [0, 0, 1, 1, 2, 2, 3, 3]
    block, rack = flavor["domains"]
    assert (block["level"], block["name"], block["inside"]) == (BLOCK, ["b0", "b1"], [])
    assert (rack["level"], rack["name"], rack["inside"]) == (RACK, ["r0", "r1", "r0", "r1"], [0, 0, 1, 1])


async def test_the_workload_with_most_pods_holds_a_host() -> None:
    """Each holder is listed once, whatever number of hosts it has; a host without workloads has none."""
    place = Place()
    place.hold("a", "b0-r0-h0", "b0-r0-h1")
    place.hold("b", "b1-r1-h1")

    flavor = await told(place)

    assert flavor["leaves"]["holder"] == [0, 0, -1, -1, -1, -1, -1, 1]
    assert flavor["holders"] == [
        {"workload": "ns/a", "clusterQueue": "team"},
        {"workload": "ns/b", "clusterQueue": "team"},
    ]


async def test_a_host_waits_for_its_pods_until_one_is_bound() -> None:
    """Pods of other workloads, and pods elsewhere, do not count."""
    place = Place()
    place.hold("a", "b0-r0-h0", "b0-r0-h1")
    for name, host in (("ns/a", "b0-r0-h1"), ("ns/b", "b0-r0-h0")):
        place.cache.held.on_pod(f"{name}-0", PodFacts(node=host, requests=((GPU, 8),), workload=name))

    flavor = await told(place)

    assert flavor["leaves"]["unbound"] == [1, *[0] * 7]


async def test_workloads_of_other_tenants_have_no_name() -> None:
    """Their hosts are held all the same, each by a workload of its own."""
    place = Place()
    place.hold("a", "b0-r0-h0")
    place.hold("secret", "b0-r0-h1", namespace="other")

    maps = TopologyMaps(cache=place.cache, clock=place.clock)
    (flavor,) = (await maps.view(asked("dc", reads=lambda namespace: namespace == "ns")))["flavors"]

    assert flavor["leaves"]["holder"][:3] == [0, 1, -1]
    assert flavor["holders"] == [{"workload": "ns/a", "clusterQueue": "team"}, {}]


async def test_nodes_that_get_no_pods_are_listed_with_their_place() -> None:
    """They are no leaves, but a person looks for them in their rack."""
    place = Place()
    place.cache.on_node("b0-r1-h0", replace(node("b0-r1-h0"), ready=False))

    flavor = await told(place)

    assert "b0-r1-h0" not in flavor["leaves"]["name"]
    assert flavor["leftOut"] == [{"name": "b0-r1-h0", "reason": "notReady", "path": ["b0", "r1"]}]


@pytest.mark.parametrize(("resource", "total"), [("cpu", 64_000), ("example.com/none", 0)])
async def test_another_resource_can_be_named(resource: str, total: int) -> None:
    """Amounts of cpu are in thousandths; a resource that no host has is 0 everywhere."""
    flavor = await told(Place(), resource=resource)

    assert flavor["resource"] == resource
    assert flavor["leaves"]["total"] == [total] * 8


async def test_names_that_do_not_exist_are_refused() -> None:
    """The message lists what there is."""
    maps = TopologyMaps(cache=Place().cache, clock=SystemClock())
    with pytest.raises(NotFoundError, match="there are dc"):
        await maps.view(asked("other"))
    with pytest.raises(NotFoundError, match="there are gpu"):
        await maps.view(asked("dc", flavor="other"))
    with pytest.raises(ConfigError, match="limit"):
        await maps.view(asked("dc", limit="3"))
