"""Pods with claims get devices, and run only where these are."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.sandbox.api import (
    DEVICE_CLASSES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Object,
)
from kqueue.sandbox.claims import NO_CLAIM, NO_DEVICES
from kqueue.sandbox.devices import DeviceInventory, TakenDevices
from kqueue.sandbox.expression import ExpressionError, compiled
from tests.unit.sandbox.simulated_world import NAMESPACE, RUN, World, condition_of, make_pod, simulated

DRIVER = "gpu.example.com"
CLASS = {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]}}
LONG = {RUN: "100000"}
BIG = f"device.attributes['{DRIVER}'].size >= 80"


def sliced(node: str, *devices: Object, **spec: Any) -> Object:
    """The devices of a node."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": f"of-{node}"},
        "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": list(devices), **spec},
    }


def device(name: str, size: int = 10, **more: Any) -> Object:
    return {"name": name, "attributes": {"size": {"int": size}}, **more}


def asks(count: int = 1, *, selector: str = "", **exactly: Any) -> Object:
    """The spec of a claim."""
    selectors = [{"cel": {"expression": selector}}] if selector else []
    wanted = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, "selectors": selectors}
    return {"devices": {"requests": [{"name": "r", "exactly": {**wanted, **exactly}}]}}


def template(name: str, spec: Object) -> Object:
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"spec": spec}}


def claiming(name: str, of: str = "one", **annotations: str) -> Object:
    claims = [{"name": "c", "resourceClaimTemplateName": of}]
    return make_pod(name, annotations=annotations or LONG, resourceClaims=claims)


async def begin(world: World, *slices: Object) -> None:
    """A class, these devices, and templates for one device, for two, and for a big one."""
    await world.add(DEVICE_CLASSES, CLASS)
    for each in slices:
        await world.add(RESOURCE_SLICES, each)
    for name, spec in (("one", asks()), ("two", asks(2)), ("big", asks(selector=BIG))):
        await world.add(RESOURCE_CLAIM_TEMPLATES, template(name, spec))


def message_of(pod: Object) -> str:
    [found] = [c["message"] for c in pod["status"]["conditions"] if c["type"] == "PodScheduled"]
    return str(found)


async def test_a_pod_runs_where_its_devices_are() -> None:
    """Its claim is made from the template, allocated and reserved for the pod, and deleted when the pod has ended."""
    async with simulated("1x1x3") as world:
        first, second, _ = (f"b0-r0-h{i}" for i in range(3))
        await begin(world, sliced(first, device("a")), sliced(second, device("a", 80), device("b")))
        await world.add(PODS, claiming("p", "big", **{RUN: "10"}))
        pod = world.pod("p")
        [claim] = world.api.list(RESOURCE_CLAIMS)
        status = pod["status"]["resourceClaimStatuses"]
        await world.pass_time(11)
        ended = world.pod("p")["status"]["phase"], world.api.list(RESOURCE_CLAIMS)

    assert (pod["spec"]["nodeName"], condition_of(pod, "PodScheduled")) == (second, ("True", ""))
    assert status == [{"name": "c", "resourceClaimName": claim["metadata"]["name"]}]
    assert claim["status"]["allocation"]["devices"]["results"] == [
        {"request": "r", "driver": DRIVER, "pool": second, "device": "a"}
    ]
    assert [one["name"] for one in claim["status"]["reservedFor"]] == ["p"]
    assert [(owner["kind"], owner["name"]) for owner in claim["metadata"]["ownerReferences"]] == [("Pod", "p")]
    assert ended == ("Succeeded", [])


async def test_a_device_has_one_pod_at_a_time() -> None:
    """Pods that find none wait with the reason, and take the devices of those that end or are deleted."""
    async with simulated("1x1x2") as world:
        await begin(world, sliced("b0-r0-h0", device("a"), device("b")))
        for i in range(4):
            await world.add(PODS, claiming(f"p{i}", "one", **{RUN: "10" if i == 0 else "100000"}))
        phases, message = world.phases(), message_of(world.pod("p2"))
        await world.pass_time(11)
        after = world.phases()
        await world.api.delete(PODS, "p1", namespace=NAMESPACE)
        await world.pass_time(60)
        at_the_end = world.phases()
        held = [c["status"]["allocation"]["devices"]["results"][0]["device"] for c in world.api.list(RESOURCE_CLAIMS)]

    assert phases == {"Pending": 2, "Running": 2}
    assert NO_DEVICES in message
    assert after == {"Pending": 1, "Running": 2, "Succeeded": 1}
    assert at_the_end == {"Running": 2, "Succeeded": 1}
    assert sorted(held) == ["a", "b"]


async def test_a_pod_waits_for_its_template_and_its_devices() -> None:
    async with simulated("1x1x1") as world:
        await world.add(DEVICE_CLASSES, CLASS)
        await world.add(PODS, claiming("p"))
        first = message_of(world.pod("p"))
        await world.add(RESOURCE_CLAIM_TEMPLATES, template("one", asks()))
        await world.pass_time(2)
        second = message_of(world.pod("p"))
        await world.add(RESOURCE_SLICES, sliced("b0-r0-h0", device("a")))
        running = world.phases()

    assert NO_CLAIM in first
    assert NO_DEVICES in second
    assert running == {"Running": 1}


async def test_pods_that_share_a_claim_run_on_its_node() -> None:
    """The claim keeps its devices until the last of them has ended, and stays."""
    async with simulated("1x1x2") as world:
        await begin(world, sliced("b0-r0-h0", device("a")), sliced("b0-r0-h1", device("a")))
        await world.add(RESOURCE_CLAIMS, {"metadata": {"name": "mine", "namespace": NAMESPACE}, "spec": asks()})
        for i, seconds in enumerate(("10", "20")):
            claims = [{"name": "c", "resourceClaimName": "mine"}]
            await world.add(PODS, make_pod(f"p{i}", annotations={RUN: seconds}, resourceClaims=claims))
        homes = {world.pod(name)["spec"]["nodeName"] for name in ("p0", "p1")}
        [shared] = world.api.list(RESOURCE_CLAIMS)
        await world.pass_time(11)
        [kept] = world.api.list(RESOURCE_CLAIMS)
        await world.pass_time(10)
        [free] = world.api.list(RESOURCE_CLAIMS)

    assert len(homes) == 1
    assert [one["name"] for one in shared["status"]["reservedFor"]] == ["p0", "p1"]
    assert [one["name"] for one in kept["status"]["reservedFor"]] == ["p1"]
    assert kept["status"]["allocation"] == shared["status"]["allocation"]
    assert "allocation" not in free["status"]


# --- allocation -------------------------------------------------------------------------------------------------------

PARTS = [
    device(name, size, consumesCounters=[{"counterSet": "s", "counters": {"memory": {"value": str(size)}}}])
    for name, size in (("whole", 80), *((f"part-{i}", 10) for i in range(8)))
]
COUNTERS: Object = {"sharedCounters": [{"name": "s", "counters": {"memory": {"value": "80"}}}]}
SHARED = device("card", allowMultipleAllocations=True, capacity={"memory": {"value": "80"}})


def allocated(spec: Object, *slices: Object, held: tuple[Object, ...] = ()) -> list[str] | None:
    inventory = DeviceInventory(slices, {"gpu": CLASS})
    results = [{"driver": DRIVER, "pool": "n", **one} for one in held]
    taken = inventory.taken_by([{"status": {"allocation": {"devices": {"results": results}}}}])
    found = inventory.allocate([{"spec": spec}], "n", taken)
    return None if found is None else [result["device"] for results in found for result in results]


@pytest.mark.parametrize(
    ("spec", "devices", "held", "want"),
    [
        pytest.param(asks(2), [device("a"), device("b")], [], ["a", "b"], id="as-many-as-asked"),
        pytest.param(asks(3), [device("a"), device("b")], [], None, id="too-few"),
        pytest.param(asks(1), [device("a"), device("b")], ["a"], ["b"], id="one-is-taken"),
        pytest.param(asks(1, selector=BIG), [device("a"), device("b", 80)], [], ["b"], id="by-selector"),
        pytest.param(asks(1, selector="device.x.y()"), [device("a")], [], None, id="selector-that-is-not-understood"),
        pytest.param(asks(1, deviceClassName="none"), [device("a")], [], None, id="no-such-class"),
        pytest.param(
            asks(1), [device("a", taints=[{"key": "k", "effect": "NoSchedule"}]), device("b")], [], ["b"], id="tainted"
        ),
        pytest.param(asks(0, allocationMode="All"), [device("a"), device("b")], [], ["a", "b"], id="all"),
        pytest.param(asks(0, allocationMode="All"), [device("a"), device("b")], ["b"], None, id="all-with-one-taken"),
        pytest.param(asks(1, adminAccess=True), [device("a")], ["a"], ["a"], id="admin-access"),
        pytest.param(asks(9, selector=f"!({BIG})"), PARTS, [], None, id="more-parts-than-there-are"),
        pytest.param(asks(1, selector=f"!({BIG})"), PARTS, ["whole"], None, id="the-whole-takes-the-parts"),
        pytest.param(asks(1, selector=BIG), PARTS, ["part-0"], None, id="a-part-takes-the-whole"),
        pytest.param(asks(7, selector=f"!({BIG})"), PARTS, ["part-0"], [f"part-{i}" for i in range(1, 8)], id="parts"),
        pytest.param(asks(2, capacity={"requests": {"memory": "40"}}), [SHARED], [], ["card"] * 2, id="two-shares"),
        pytest.param(asks(3, capacity={"requests": {"memory": "40"}}), [SHARED], [], None, id="three-shares"),
        pytest.param(asks(1), [SHARED], [], ["card"], id="all-of-a-shared-one"),
        pytest.param(asks(1, capacity={"requests": {"memory": "81"}}), [SHARED], [], None, id="above-the-capacity"),
    ],
)
def test_devices_for_a_claim(spec: Object, devices: list[Object], held: list[str], want: list[str] | None) -> None:
    found = allocated(spec, sliced("n", *devices, **COUNTERS), held=tuple({"device": name} for name in held))
    assert found == want


def test_the_first_available_alternative_counts() -> None:
    one = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    big = {**one, "name": "big", "selectors": [{"cel": {"expression": BIG}}]}
    spec = {"devices": {"requests": [{"name": "r", "firstAvailable": [big, {**one, "name": "any"}]}]}}
    inventory = DeviceInventory([sliced("n", device("a"))], {"gpu": CLASS})
    assert inventory.allocate([{"spec": spec}], "n", TakenDevices()) == [
        [{"request": "r/any", "driver": DRIVER, "pool": "n", "device": "a"}]
    ]


def test_devices_of_incomplete_pools_are_not_there() -> None:
    lacking = sliced("n", device("a"))
    lacking["spec"]["pool"]["resourceSliceCount"] = 2
    assert allocated(asks(), lacking) is None


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("device.size < 3", True), ("device.size <= 2", True), ("device.size > 2", False), ("device.size >= 2", True),
        ("device.size > 1 && device.name < 'b'", True),
    ],
)  # fmt: skip
def test_selectors_compare_numbers_and_texts(text: str, want: bool) -> None:
    assert compiled(text, roots=frozenset({"device"}))({"device": {"size": 2, "name": "a"}}) is want


def test_what_has_no_order_is_not_compared() -> None:
    program = compiled("device.size < device.name", roots=frozenset({"device"}))
    with pytest.raises(ExpressionError, match="have no order"):
        program({"device": {"size": 2, "name": "a"}})
    with pytest.raises(ExpressionError):
        compiled("object.metadata.name == 'a'", roots=frozenset({"device"}))
