"""Topologies at a glance: sums are those of the nodes, answers are bounded, and nobody's turn is taken away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.clock import SystemClock
from kqueue.core.devices.values import Selector
from kqueue.core.devices.views import DeviceView
from kqueue.core.topology import HOSTNAME, PodFacts
from kqueue.errors import ConfigError, NotFoundError
from kqueue.visibility.topology_summaries import TopologySummaries
from tests.unit.visibility.worlds import BLOCK, GPU, RACK, Place, asked, by_path, hosts, node, read


async def told(place: Place, name: str = "dc", **params: Any) -> Any:
    """The only flavor of one Topology."""
    answer = await TopologySummaries(cache=place.cache, clock=place.clock).view(asked(name, **params))
    (flavor,) = answer["flavors"]
    return flavor


async def test_a_domain_tells_what_is_free_held_and_foreign_below_it() -> None:
    """Sums of a rack are those of its nodes, and those of a block of its racks."""
    place = Place()
    place.hold("a", "b0-r0-h0", "b0-r1-h0")
    place.hold("b", "b0-r0-h1", gpus=4)
    place.foreign("b0-r0-h1", 1)

    domains = by_path(await told(place))

    assert list(domains) == ["b0", "b0/r0", "b0/r1", "b1", "b1/r0", "b1/r1"]
    assert domains["b0/r0"]["resources"][GPU] == {"total": "16", "foreign": "1", "held": "12", "free": "3"}
    assert domains["b0"]["resources"][GPU] == {"total": "32", "foreign": "1", "held": "20", "free": "11"}
    assert domains["b1"]["resources"]["cpu"] == {"total": "256", "foreign": "0", "held": "0", "free": "256"}
    assert [(d["nodes"], d["idleNodes"]) for d in domains.values()] == [(4, 1), (2, 0), (2, 1), (4, 4), (2, 2), (2, 2)]


async def test_what_is_overdrawn_on_one_node_hides_nothing_that_is_free_on_another() -> None:
    """A foreign pod that came late leaves less than nothing on its node, and the other node is free all the same."""
    place = Place()
    place.hold("a", "b0-r0-h0")
    place.foreign("b0-r0-h0", 8)

    assert by_path(await told(place))["b0/r0"]["resources"][GPU]["free"] == "8"


async def test_a_node_where_a_foreign_pod_holds_a_device_is_not_idle() -> None:
    """One on which it takes cpu alone is."""
    place = Place()
    place.foreign("b0-r0-h0", 1)
    place.cache.held.on_pod("kube-system/proxy", PodFacts(node="b0-r0-h1", requests=(("cpu", 100),)))

    flavor = await told(place)

    assert by_path(flavor)["b0/r0"]["idleNodes"] == 1
    assert flavor["gangs"][1]["slots"] == {"1": 7, "2": 3}


async def test_devices_of_single_requests_are_left_out() -> None:
    """Hosts count them for the planner; a page would list one for each selector of a tenant."""
    place = Place()
    rows = [DeviceView("gpu").row, DeviceView("gpu", (Selector("device.driver == 'a'"),)).row]
    facts = place.cache.ledger.nodes["b0-r0-h0"]
    place.cache.on_node(facts.name, replace(facts, allocatable={**facts.allocatable, **dict.fromkeys(rows, 2)}))

    found = by_path(await told(place))["b0/r0"]["resources"]

    assert found[rows[0]]["total"] == "2"
    assert rows[1] not in found


async def test_gangs_are_counted_inside_domains() -> None:
    """Three idle nodes in a rack and one in another: of gangs of two there is room for one in racks, two in a block."""
    place = Place([*hosts(1, 1, 3), "b0-r1-h0"])

    gangs = (await told(place))["gangs"]

    assert gangs == [
        {"level": BLOCK, "slots": {"1": 4, "2": 2, "4": 1}},
        {"level": RACK, "slots": {"1": 4, "2": 1}},
    ]


@pytest.mark.parametrize(
    ("domain", "reads", "named", "others"),
    [
        pytest.param("b0", lambda _: True, [("ns/a", 3), ("other/b", 1)], (0, 0), id="all that stand in a block"),
        pytest.param("b0,r0", lambda _: True, [("ns/a", 2)], (0, 0), id="in a rack"),
        pytest.param("b1,r1", lambda _: True, [], (0, 0), id="nobody"),
        pytest.param("b0", lambda ns: ns == "ns", [("ns/a", 3)], (1, 1), id="those of others are counted"),
        pytest.param("b0", lambda _: False, [], (2, 4), id="without any rights"),
    ],
)
async def test_who_holds_a_domain(
    domain: str, reads: Callable[[str], bool], named: list[tuple[str, int]], others: tuple[int, int]
) -> None:
    """Those with most pods first; names only to those who may read them."""
    place = Place()
    place.hold("a", "b0-r0-h0", "b0-r0-h1", "b0-r1-h0", "b1-r0-h0")
    place.hold("b", "b0-r1-h1", namespace="other")
    place.hold("quota-only")

    answer = await TopologySummaries(cache=place.cache, clock=place.clock).view(asked("dc", reads=reads, domain=domain))

    holders = answer["flavors"][0]["holders"]
    assert [(one["workload"], one["pods"]) for one in holders["named"]] == named
    assert (holders["others"]["workloads"], holders["others"]["pods"]) == others


@pytest.mark.parametrize("domain", ["b1,r0", "b1/r0", "b1/r0/b1-r0-h1", "b1-r0-h1"])
async def test_a_domain_is_named_as_messages_print_it(domain: str) -> None:
    """By its path in either form, or by its last value where only one domain has it."""
    place = Place()
    place.hold("a", "b1-r0-h1")
    place.hold("b", "b0-r0-h0")
    holders = (await told(place, domain=domain))["holders"]

    assert sum(one["pods"] for one in holders["named"]) + holders["others"]["pods"] == 1


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        ("r0", "domain r0 is ambiguous: b0/r0, b1/r0"),
        ("b1-r0-h9x", "no domain b1-r0-h9x in this topology; did you mean b1-r0-h1?"),
        ("zz", "no domain zz in this topology: write it as conditions do, as in block-1/rack-7"),
    ],
)
async def test_a_domain_that_is_not_clear_is_refused_with_what_to_write(domain: str, message: str) -> None:
    with pytest.raises(NotFoundError) as refused:
        await told(Place(), domain=domain)

    assert str(refused.value) == message


async def test_holders_are_looked_for_in_one_domain_only() -> None:
    """All of a large cluster would be no answer."""
    assert "holders" not in await told(Place())


@pytest.mark.parametrize(
    ("change", "reason", "message", "domain"),
    [
        pytest.param({"ready": False}, "notReady", "its condition Ready is not True", ["b0", "r0"], id="broken"),
        pytest.param({"unschedulable": True}, "unschedulable", "it is cordoned", ["b0", "r0"], id="cordoned"),
        pytest.param({"labels": {RACK: None}}, "missingLevel", f"it lacks the label {RACK}", ["b0"], id="no rack label"),
        pytest.param(
            {"labels": {HOSTNAME: "b0-r0-h0"}}, "duplicateHostname",
            "node b0-r0-h0 has the same host name label", ["b0", "r0"], id="somebody else's host name",
        ),
    ],
)  # fmt: skip
async def test_nodes_that_are_left_out_are_named_with_their_cause(
    change: dict[str, Any], reason: str, message: str, domain: list[str]
) -> None:
    place = Place()
    place.cache.on_node("b0-r0-h1", node("b0-r0-h1", **change))

    flavor = await told(place)

    assert flavor["leftOut"] == {reason: 1}
    assert flavor["leftOutNodes"] == [{"node": "b0-r0-h1", "reason": reason, "message": message, "domain": domain}]
    domains = by_path(flavor)
    assert (domains["b0"]["leftOutNodes"], domains["b1"]["leftOutNodes"]) == (1, 0)
    assert domains["b0/r0"]["leftOutNodes"] == (len(domain) == 2)


@pytest.mark.parametrize(
    ("params", "level", "paths", "cut"),
    [
        pytest.param({"level": BLOCK}, BLOCK, ["b0", "b1"], "", id="a level by its label"),
        pytest.param({"level": "block"}, BLOCK, ["b0", "b1"], "", id="by the last word of it"),
        pytest.param({"level": "1"}, BLOCK, ["b0", "b1"], "", id="by its number"),
        pytest.param(
            {"domain": "b1,r0"}, HOSTNAME, ["b1", "b1/r0", "b1/r0/b1-r0-h0", "b1/r0/b1-r0-h1"], "", id="below one rack"
        ),
        pytest.param({"domain": "b1", "level": "rack"}, RACK, ["b1", "b1/r0", "b1/r1"], "", id="the racks of a block"),
        pytest.param({"limit": "2"}, BLOCK, ["b0", "b1"], f"{RACK} has 4 domains here; ask for one domain, or a higher limit", id="too many racks"),
        pytest.param({"limit": "1"}, BLOCK, ["b0"], f"{RACK} has 4 domains here; ask for one domain, or a higher limit", id="too many blocks"),
        pytest.param({"limit": "1", "level": "1"}, BLOCK, ["b0"], "the first 1 of 2 domains", id="too many on the widest level"),
    ],
)  # fmt: skip
async def test_how_deep_the_tree_goes(params: dict[str, Any], level: str, paths: list[str], cut: str) -> None:
    flavor = await told(Place(), **params)
    shown = [path for path in by_path(flavor) if not path.startswith("b0") or "domain" not in params]
    assert (flavor["level"], shown, flavor.get("cut", "")) == (level, paths, cut)


@pytest.mark.parametrize(
    ("name", "params", "error"),
    [
        pytest.param("other", {}, NotFoundError, id="no such Topology"),
        pytest.param("dc", {"flavor": "cpu"}, NotFoundError, id="no such flavor"),
        pytest.param("dc", {"domain": "b7"}, NotFoundError, id="no such domain"),
        pytest.param("dc", {"domain": "b0,r0,b0-r0-h0,x"}, NotFoundError, id="below a host there is nothing"),
        pytest.param("dc", {"level": "room"}, ConfigError, id="no such level"),
        pytest.param("dc", {"level": "9"}, ConfigError, id="a number beyond the lowest level"),
        pytest.param("dc", {"limit": "0"}, ConfigError, id="a limit of nothing"),
        pytest.param("dc", {"limit": "9" * 5000}, ConfigError, id="a limit without end"),
        pytest.param("dc", {"lvel": "rack"}, ConfigError, id="a slip of the finger"),
    ],
)
async def test_questions_that_make_no_sense_are_refused(name: str, params: dict[str, Any], error: type) -> None:
    with pytest.raises(error):
        await TopologySummaries(cache=Place().cache, clock=SystemClock()).view(asked(name, **params))


async def test_the_list_has_every_topology_down_to_the_widest_level() -> None:
    """Also one that no flavor uses, and one of whose nodes there is none."""
    place = Place()
    place.cache.quota.on_topology(
        "unused", read(wire.Topology, metadata={"name": "u"}, spec={"levels": [{"nodeLabel": "x"}]})
    )
    spec = {"nodeLabels": {"pool": "none"}, "topologyName": "dc"}
    place.cache.on_flavor("empty", read(wire.ResourceFlavor, metadata={"name": "empty"}, spec=spec))

    answer = await TopologySummaries(cache=place.cache, clock=place.clock).view(asked())

    assert answer["kind"] == "TopologySummaryList"
    first, second = answer["items"]
    assert [(f["name"], list(by_path(f))) for f in first["flavors"]] == [("empty", []), ("gpu", ["b0", "b1"])]
    assert (second["metadata"]["name"], second["flavors"]) == ("unused", [])


async def test_a_flavor_that_lists_its_levels_itself_is_told_under_a_name_of_its_own() -> None:
    """With its flavor others are left out."""
    place = Place()
    spec = {"nodeLabels": {"pool": "gpu"}, "topology": {"levels": [{"nodeLabel": RACK}]}}
    place.cache.on_flavor("own", read(wire.ResourceFlavor, metadata={"name": "own"}, spec=spec))

    answer = await TopologySummaries(cache=place.cache, clock=place.clock).view(asked(flavor="own"))

    (item,) = answer["items"]
    assert (item["metadata"]["name"], item["levels"]) == ("own (inline)", [RACK])
    assert list(by_path(item["flavors"][0])) == ["r0", "r1"]


async def test_amounts_beyond_64_bits_are_summed_exactly() -> None:
    place = Place()
    for name in hosts(1, 1, 2):
        place.cache.on_node(name, node(name, allocatable={"memory": 2**62, "pods": 1}))

    memory = by_path(await told(place))["b0/r0"]["resources"]["memory"]

    assert (memory["total"], memory["free"]) == ("8Ei", "8Ei")


async def test_others_get_their_turn_while_a_large_topology_is_told() -> None:
    """12,500 nodes with a foreign pod each: no stretch takes more than 20 ms of the processor."""
    place = Place(hosts(25, 25, 20))
    for name in hosts(25, 25, 20):
        place.foreign(name, 1)
    place.cache.ledger.capacity("gpu")
    summaries, longest, done = TopologySummaries(cache=place.cache, clock=SystemClock()), 0.0, False

    async def watch() -> None:
        nonlocal longest
        last = time.thread_time()
        while not done:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, last = max(longest, now - last), now

    watcher = asyncio.create_task(watch())
    await asyncio.sleep(0)
    answer = await summaries.view(asked("dc", limit="2000", level="rack"))
    done = True
    await watcher

    assert len(answer["flavors"][0]["tree"]) == 25 + 625
    assert longest < 0.040, f"it took {longest * 1000:.0f} ms"  # twice the promise: machines differ
