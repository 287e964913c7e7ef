"""Hosts by the devices that requests may get: selectors, shared counters, capacities; and the limits of tenants."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kqueue import model
from kqueue.api.wire import devices as wire
from kqueue.core.devices.counting import DeviceRules
from kqueue.core.devices.pools import DeviceSlice
from kqueue.core.devices.values import AmountSource, DeviceMapping, Selector
from kqueue.core.devices.views import DeviceView
from kqueue.core.topology.node import NodeFacts
from kqueue.model import ClaimView
from kqueue.state.cache import Cache
from kqueue.state.devices import DeviceObjects
from tests.unit.state.test_devices import (
    CLAIMS,
    DRIVER,
    ROW,
    RULES,
    Hosts,
    claim,
    device_class,
    make_requests,
    resource_slice,
    template,
)
from tests.unit.state.test_requests import make_workload

JSON = dict[str, Any]
BIG = f"device.attributes['{DRIVER}'].model == 'big'"
BIG_ROW = DeviceView("gpu", (Selector(BIG),)).row
PART = f"device.attributes['{DRIVER}'].size == 10"
PART_ROW = DeviceView("gpu", (Selector(PART),)).row
MEMORY = AmountSource(name="memory", driver=DRIVER, selector=Selector("true"), is_counter=True)
BY_MEMORY = DeviceRules(mappings=(DeviceMapping(resource="memory", classes=("gpu",), sources=(MEMORY,)),))


def selecting(text: str, count: int = 1, **parts: Any) -> Any:
    return template(count, selectors=[{"cel": {"expression": text}}], **parts)


def models(node: str, *names: str) -> DeviceSlice:
    """A node with devices whose model is the part of the name before the dash."""
    return sliced(node, [{"name": n, "attributes": {"model": {"string": n.split("-")[0]}}} for n in names])


def sliced(node: str, devices: list[JSON], **spec: Any) -> DeviceSlice:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    obj = {
        "metadata": {"name": f"of-{node}"},
        "spec": {"driver": DRIVER, "pool": pool, "nodeName": node, "devices": devices, **spec},
    }
    return model.device_slice(msgspec.convert(obj, wire.ResourceSlice))


def divided(node: str) -> DeviceSlice:
    """A node with one device of 80, whole or in parts of 10."""
    devices = [("whole", 80), *((f"part-{i}", 10) for i in range(8))]
    return sliced(
        node,
        [
            {
                "name": name,
                "attributes": {"size": {"int": size}},
                "consumesCounters": [{"counterSet": "gpu-0", "counters": {"memory": {"value": str(size)}}}],
            }
            for name, size in devices
        ],
        sharedCounters=[{"name": "gpu-0", "counters": {"memory": {"value": "80"}}}],
    )


def hosts_with(*slices: DeviceSlice, ask: tuple[Any, ...] = ()) -> Hosts:
    hosts = Hosts(*slices)
    for each in ask:
        hosts.cache.requests.devices.on_template(None, each)
    hosts.tell(hosts.cache.devices.refresh())
    return hosts


def free(hosts: Hosts, row: str, node: str = "n1") -> int:
    has = hosts.cache.ledger.nodes[node].allocatable.get(row, 0)
    return has - hosts.cache.ledger.foreign_on(node).get(row, 0)


def test_pods_ask_hosts_for_devices_that_match() -> None:
    requests = make_requests()
    requests.devices.on_template(None, selecting(BIG, 2))
    requests.devices.on_slice(None, models("n1", "big-0", "big-1", "small-0"))

    assert requests.per_pod(make_workload(pod=CLAIMS)) == {"a": {ROW: 2, BIG_ROW: 2}}


def test_hosts_have_the_devices_that_match() -> None:
    """Until a template asks for such devices no host counts them, and after the last one none does."""
    hosts = hosts_with(models("n1", "big-0", "big-1"), models("n2", "big-0", "small-0"))
    assert free(hosts, BIG_ROW) == 0
    hosts.cache.requests.devices.on_template(None, selecting(BIG))
    hosts.tell(hosts.cache.devices.refresh())
    assert (free(hosts, BIG_ROW), free(hosts, BIG_ROW, "n2"), hosts.free("n2")) == (2, 1, 2)

    hosts.cache.requests.devices.on_template(selecting(BIG), None)
    hosts.tell(hosts.cache.devices.refresh())
    assert free(hosts, BIG_ROW) == 0


def test_a_pod_that_asks_for_any_device_takes_one_that_others_select() -> None:
    hosts = hosts_with(models("n1", "big-0", "small-0"), models("n2", "big-0"), ask=(selecting(BIG),))
    hosts.bind("ns/p")
    hosts.tell(hosts.cache.devices.on_claim(None, claim("big-0")))
    assert (free(hosts, BIG_ROW), hosts.free()) == (0, 1)
    hosts.end("ns/p")
    hosts.tell(hosts.cache.devices.on_claim(claim("big-0"), None))
    assert (free(hosts, BIG_ROW), hosts.free()) == (1, 2)
    assert hosts.drifts() == []


def test_a_part_takes_the_whole_device_and_the_whole_takes_all_parts() -> None:
    whole = f"device.attributes['{DRIVER}'].size == 80"
    whole_row = DeviceView("gpu", (Selector(whole),)).row
    hosts = hosts_with(divided("n1"), divided("n2"), ask=(selecting(PART), selecting(whole, name="whole")))
    assert (free(hosts, PART_ROW), free(hosts, whole_row), hosts.free()) == (8, 1, 8)

    hosts.tell(hosts.cache.devices.on_claim(None, claim("part-3", pods=())))
    assert (free(hosts, PART_ROW), free(hosts, whole_row)) == (7, 0)
    hosts.bind("ns/p", node="n2")
    hosts.tell(hosts.cache.devices.on_claim(None, claim("whole", node="n2", name="w")))
    assert (free(hosts, PART_ROW, "n2"), free(hosts, whole_row, "n2"), hosts.free("n2")) == (0, 0, 0)
    assert hosts.drifts() == []


def test_quota_of_a_pod_counts_its_devices_and_not_the_parts_that_they_take() -> None:
    hosts = hosts_with(divided("n1"), ask=(selecting(PART),))
    hosts.bind("ns/p")
    hosts.tell(hosts.cache.devices.on_claim(None, claim("whole")))
    taken = hosts.cache.devices.pod_facts("ns/p", hosts.pods["ns/p"])

    assert taken is not None
    assert dict(taken.requests)[ROW] == 8
    assert hosts.cache.requests.devices.as_quota(dict(taken.requests))["gpus"] == 1


def test_a_class_that_counts_by_a_source_is_asked_of_hosts() -> None:
    requests = make_requests(BY_MEMORY)
    requests.devices.on_template(None, selecting(PART, 3))
    requests.devices.on_slice(None, divided("n1"))
    obj = make_workload(pod=CLAIMS)

    assert requests.total(obj) == {"memory": 4 * 30}
    assert requests.per_pod(obj) == {"a": {ROW: 3, PART_ROW: 3}}


def test_parts_of_capacities_are_counted_on_hosts() -> None:
    card = {"name": "card", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "80"}}}
    row = DeviceView("gpu", capacity=(("memory", 20),)).row
    hosts = hosts_with(sliced("n1", [card]), ask=(template(1, capacity={"requests": {"memory": "20"}}),))
    assert free(hosts, row) == 4
    held = ClaimView("ns/c", ((DRIVER, "n1", "card"),), ("ns/p",), (((DRIVER, "n1", "card"), "memory", 50),))
    hosts.bind("ns/p")
    hosts.tell(hosts.cache.devices.on_claim(None, held))

    assert free(hosts, row) == 1
    assert hosts.drifts() == []


@pytest.mark.parametrize(
    ("devices", "asked"),
    [
        pytest.param(models("n1", "big-0"), True, id="on-nodes"),
        pytest.param(sliced("", [{"name": "big-0", "attributes": {"model": {"string": "big"}}}]), False, id="on-none"),
    ],
)
def test_devices_that_match_may_be_countable_where_the_class_is_not(devices: DeviceSlice, asked: bool) -> None:
    """A request may select the devices of nodes, of a class that has devices outside of nodes, too."""
    requests = make_requests()
    requests.devices.on_template(None, selecting(BIG))
    requests.devices.on_slice(None, devices)
    net = sliced("", [{"name": "net-0", "attributes": {"model": {"string": "net"}}}])
    requests.devices.on_slice(
        None, DeviceSlice(name="net", driver=DRIVER, pool="net", generation=1, slices=1, devices=net.devices)
    )

    assert requests.per_pod(make_workload(pod=CLAIMS)) == {"a": {BIG_ROW: 1} if asked else {}}


# --- tenants ----------------------------------------------------------------------------------------------------------


def test_a_selector_outside_of_the_part_of_cel_is_told() -> None:
    requests, obj = make_requests(), make_workload(pod=CLAIMS)
    requests.devices.on_template(None, selecting("device.driver.matches('a')"))
    requests.devices.on_slice(None, models("n1", "big-0"))

    assert requests.problem(obj) == ""
    assert "selectors[0].cel.expression: method 'matches'" in requests.unjudged(obj)[0]
    assert requests.unjudged(make_workload()) == ()


def test_hosts_count_a_limited_number_of_requests() -> None:
    """Eight of a namespace, so that one tenant leaves room for others, and 48 in all; others go by their class."""
    objects = DeviceObjects(RULES)
    for namespace in "abcdefgh":
        for i in range(10):
            objects.on_template(None, selecting(f"'{namespace}' != '{i}'", namespace=namespace, name=f"t{i}"))
    assert len(objects.views()) == 48
    shared = selecting("'a' != '0'", namespace="h", name="as-a")
    objects.on_template(None, shared)
    objects.on_template(selecting("'a' != '0'", namespace="a", name="t0"), None)
    assert DeviceView("gpu", (Selector("'a' != '0'"),)) in objects.views()
    objects.on_template(shared, None)
    assert len(objects.views()) == 47
    objects.on_template(None, selecting("true", namespace="a", name="next"))
    assert DeviceView("gpu", (Selector("true"),)) in objects.views()


def expensive(i: int) -> str:
    return f"'{i:0>9000}' != device.driver"


def test_a_tenant_with_expensive_selectors_waits_and_others_do_not() -> None:
    """Until a second has passed; then its workloads have another version, and are tried again."""
    requests, calls = make_requests(), list[str]()
    requests.devices.on_work = lambda: calls.append("work")
    requests.devices.on_slice(None, resource_slice("n1", *(f"d{i}" for i in range(100))))
    mine = make_workload(pod=CLAIMS)
    for i in range(4):
        requests.devices.on_template(None, selecting(expensive(i), name=f"t{i}"))
    requests.devices.on_template(None, selecting("true", namespace="other"))
    named = [
        make_workload(pod={"resourceClaims": [{"name": "c", "resourceClaimTemplateName": f"t{i}"}]}) for i in range(4)
    ]
    problems = [requests.problem(each) for each in named]
    assert [("have used the time" in each) for each in problems] == [False, True, True, True]
    assert "does not exist" in requests.problem(mine)
    assert calls

    before = requests.pending(named[1]).version
    rounds = 0
    while waiting := [each for each in named if requests.problem(each)]:
        requests.devices.refill()
        rounds += 1
        assert rounds < 100, waiting
    assert rounds > 8  # four times a million, an eighth of a million a second
    assert requests.pending(named[1]).version != before


def test_the_selectors_of_other_namespaces_have_their_own_time() -> None:
    objects = DeviceObjects(RULES)
    objects.on_class(None, device_class())
    objects.on_slice(None, resource_slice("n1", *(f"d{i}" for i in range(20))))
    cache = Cache(requests=make_requests())
    cache.on_node("n1", NodeFacts(name="n1", labels={}, allocatable={}))
    for i in range(3):
        objects.on_template(None, selecting(expensive(i), name=f"t{i}", namespace="greedy"))
    objects.on_template(None, selecting("'a' != ''", namespace="modest"))
    found = dict(objects.host_views())
    later = [view.selectors[0].text[1:10] for view, devices in found.items() if devices is None]

    assert len(later) == 2
    assert found[DeviceView("gpu", (Selector("'a' != ''"),))]


def test_selectors_that_are_too_long_are_not_evaluated_for_hosts() -> None:
    """Their job is refused; a template alone must not hold up the controller, either."""
    objects = DeviceObjects(RULES)
    objects.on_class(None, device_class())
    objects.on_slice(None, resource_slice("n1", *(f"d{i}" for i in range(100))))
    long = [{"cel": {"expression": expensive(i)}} for i in range(9)]
    objects.on_template(None, template(selectors=long))

    assert [view.selectors for view, _ in objects.host_views()] == [()]


def test_hosts_keep_what_they_counted_while_selectors_wait() -> None:
    """A tenant that uses up the time takes no devices off the hosts of others."""
    hosts = hosts_with(models("n1", "big-0"), models("n2", "big-0"), ask=(selecting(BIG, namespace="modest"),))
    devices = hosts.cache.requests.devices
    for i in range(8):
        devices.on_template(None, selecting(expensive(i), name=f"t{i}", namespace=f"greedy{i}"))
    devices.on_slice(models("n2", "big-0"), models("n2", "big-0", "big-1", *(f"small-{i}" for i in range(60))))
    hosts.tell(hosts.cache.devices.refresh())
    assert (free(hosts, BIG_ROW), free(hosts, BIG_ROW, "n2")) in ((1, 1), (1, 2))
    for _ in range(100):
        devices.refill()
        hosts.tell(hosts.cache.devices.refresh())
    assert (free(hosts, BIG_ROW), free(hosts, BIG_ROW, "n2")) == (1, 2)
