"""The quota of claimed devices, and the claims that are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from kqueue.core.devices.counting import (
    NO_DEVICES,
    CountedDevices,
    DeviceRules,
    DeviceWorld,
    NamedClaim,
    count_devices,
)
from kqueue.core.devices.matches import Matches
from kqueue.core.devices.pools import DeviceSlice
from kqueue.core.devices.values import (
    AmountSource,
    CapacityPolicy,
    Device,
    DeviceClass,
    DeviceMapping,
    DeviceRequest,
    Selector,
)
from kqueue.core.devices.views import DeviceView
from kqueue.core.quantity import INT64_MAX

DRIVER = "gpu.example.com"
BIG, SMALL = f"device.attributes['{DRIVER}'].model == 'big'", f"device.attributes['{DRIVER}'].model == 'small'"
GPUS = DeviceMapping(resource="gpus", classes=("gpu", "gpu-too"))
NICS = DeviceMapping(resource="nics", classes=("nic",))
MEMORY = AmountSource(name="memory", driver=DRIVER, selector=Selector("true"), is_counter=True)
SHARE = AmountSource(name="bandwidth", driver=DRIVER, selector=Selector("true"), is_counter=False)
TENTHS = CapacityPolicy(default=10, least=10, most=40, step=10)
CLASSES = (
    DeviceClass(name="gpu", selectors=(Selector(f"device.driver == '{DRIVER}'"),), extended_resource="example.com/gpu"),
    DeviceClass(name="gpu-too"),
    DeviceClass(name="slice", extended_resource="example.com/slice"),
    DeviceClass(name="nic"),
    DeviceClass(name="odd", selectors=(Selector("device.driver.matches('a')"),)),
    DeviceClass(name="free", extended_resource="example.com/free"),
)


def device(name: str, *, driver: str = DRIVER, **parts: Any) -> Device:
    model = "big" if name.startswith("big") else "small"
    return Device(driver=driver, pool="n1", name=name, attributes={driver: {"model": model}}, **parts)


DEVICES = (
    device("big-0", counters={"memory": 80}, capacity={"bandwidth": (100, TENTHS)}),
    device("big-1", counters={"memory": 40}, capacity={"bandwidth": (100, CapacityPolicy(valid=(25, 50)))}),
    device("small-0", counters={"memory": 20}, capacity={"bandwidth": (100, TENTHS)}),
    device("other-0", driver="other.example.com", counters={"memory": 500}),
)


def counted(
    *requests: DeviceRequest,
    mappings: Sequence[DeviceMapping] = (GPUS,),
    claims: Sequence[NamedClaim] = (NamedClaim("c", template="t"),),
    pod: Mapping[str, int] | None = None,
    extended: bool = False,
    devices: Sequence[Device] = DEVICES,
    affords: Callable[[DeviceRequest], bool] = lambda _request: True,
) -> CountedDevices:
    """Count a pod whose template `t` has these requests; `pod` are its other requests."""
    classes = {each.name: each for each in CLASSES}
    found = Matches(classes.get)
    found.offer([DeviceSlice(name="s", driver="", pool="", generation=1, slices=1, devices=tuple(devices))])
    world = DeviceWorld(
        template={"t": requests}.get,
        device_class=classes.get,
        matching=found.find,
        affords=affords,
        class_of=lambda resource: next((c for c in CLASSES if c.extended_resource == resource), None),
    )
    rules = DeviceRules(mappings=tuple(mappings), extended=extended)
    return count_devices(rules, world, claims, pod or {})


def gpu(count: int = 1, **parts: Any) -> DeviceRequest:
    return DeviceRequest(**{"device_class": "gpu", "count": count, **parts})


def by(*sources: AmountSource, resource: str = "gpu-memory") -> DeviceMapping:
    return DeviceMapping(resource=resource, classes=("gpu",), sources=sources)


@pytest.mark.parametrize(
    ("requests", "mappings", "want"),
    [
        pytest.param([gpu(2)], [GPUS], {"gpus": 2}, id="life19.1-each-device-adds-one"),
        pytest.param([gpu(2), gpu(3)], [GPUS], {"gpus": 5}, id="life19.1-requests-add-up"),
        pytest.param([gpu(1), gpu(2, device_class="gpu-too")], [GPUS], {"gpus": 3}, id="two-classes-of-a-mapping"),
        pytest.param(
            [gpu(1), gpu(4, device_class="nic")],
            [GPUS, DeviceMapping(resource="nics", classes=("nic",))],
            {"gpus": 1, "nics": 4},
            id="two-mappings",
        ),
        pytest.param([gpu(8, admin=True)], [GPUS], {}, id="life19.1-admin-access-is-ignored"),
        pytest.param([gpu(8, admin=True, mode="All")], [GPUS], {}, id="life19.1-admin-access-to-all"),
        pytest.param([gpu(8, admin=True, device_class="nic")], [GPUS], {}, id="admin-access-without-a-mapping"),
        pytest.param([gpu(2, selectors=(Selector(BIG),))], [GPUS], {"gpus": 2}, id="life19.1-enough-devices-match"),
        pytest.param([gpu(INT64_MAX), gpu(INT64_MAX)], [GPUS], {"gpus": INT64_MAX}, id="counts-saturate"),
        pytest.param([gpu(1)], [by(MEMORY)], {"gpu-memory": 80}, id="life19.3-largest-counter"),
        pytest.param([gpu(3)], [by(MEMORY)], {"gpu-memory": 240}, id="life19.3-counter-for-each-device"),
        pytest.param(
            [gpu(1, selectors=(Selector(SMALL),))], [by(MEMORY)], {"gpu-memory": 20}, id="life19.3-counter-of-a-match"
        ),
        pytest.param(
            [gpu(1)],
            [
                by(MEMORY),
                by(AmountSource(name="memory", driver=DRIVER, selector=Selector(SMALL), is_counter=True), resource="s"),
            ],
            {"gpu-memory": 80, "s": 20},
            id="a-class-in-two-mappings-with-counters",
        ),
        pytest.param([gpu(1)], [by(SHARE)], {"gpu-memory": 10}, id="life19.3-capacity-default"),
        pytest.param([gpu(1, capacity={"bandwidth": 12})], [by(SHARE)], {"gpu-memory": 25}, id="next-valid-amount"),
        pytest.param(
            [gpu(1, capacity={"bandwidth": 12}, selectors=(Selector(SMALL),))],
            [by(SHARE)],
            {"gpu-memory": 20},
            id="next-step",
        ),
    ],
)
def test_devices_count_as_their_mapping_says(
    requests: list[DeviceRequest], mappings: list[DeviceMapping], want: Mapping[str, int]
) -> None:
    found = counted(*requests, mappings=mappings)

    assert found.refused == ()
    assert found.amounts == want


@pytest.mark.parametrize(
    ("request_", "path", "words"),
    [
        pytest.param(gpu(mode="All"), "exactly.allocationMode", "write ExactCount", id="life19.1-all"),
        pytest.param(gpu(mode="Half"), "exactly.allocationMode", "Half is not known", id="unknown-mode"),
        pytest.param(
            DeviceRequest(exact=False, alternatives=True),
            "firstAvailable",
            "write exactly",
            id="life19.1-first-available",
        ),
        pytest.param(DeviceRequest(exact=False), "", "write exactly", id="life19.1-neither"),
        pytest.param(
            gpu(device_class="nic"), "exactly.deviceClassName", "resources.deviceClassMappings", id="life19.1-unmapped"
        ),
        pytest.param(
            gpu(3, selectors=(Selector(BIG),)),
            "exactly.selectors",
            "2 devices of the cluster match, 3 are asked for",
            id="life19.1-too-few-devices-match",
        ),
        pytest.param(
            gpu(selectors=(Selector("device.attributes['x'].y == 'a'"),)),
            "exactly.selectors",
            "has(...)",
            id="life19.1-selector-without-a-value",
        ),
    ],
)
def test_a_request_that_cannot_be_counted_is_refused(request_: DeviceRequest, path: str, words: str) -> None:
    """With the field and a remedy; a pod with one of them is refused as a whole."""
    found = counted(gpu(1), request_)

    assert len(found.refused) == 1
    assert found.refused[0].startswith(f"ResourceClaimTemplate t, devices.requests[1]{'.' if path else ''}{path}: ")
    assert words in found.refused[0]
    assert len(found.refused[0]) < 150  # messages are cut at 200 characters, and end with a command


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        pytest.param(
            NamedClaim("c", claim="mine"),
            "resourceClaims[0].resourceClaimName: ResourceClaim mine exists already",
            id="life19.4-plain-claims",
        ),
        pytest.param(
            NamedClaim("c", template="gone"),
            "resourceClaims[0].resourceClaimTemplateName: ResourceClaimTemplate gone does not exist",
            id="missing-template",
        ),
    ],
)
def test_a_claim_that_cannot_be_read_is_refused(claim: NamedClaim, words: str) -> None:
    assert words in counted(claims=[claim]).refused[0]


def test_a_claim_that_names_nothing_is_left_alone() -> None:
    assert counted(claims=[NamedClaim("c")]) == NO_DEVICES


@pytest.mark.parametrize(
    ("source", "request_", "words"),
    [
        pytest.param(MEMORY, gpu(4), "3 devices match", id="too-few-devices"),
        pytest.param(
            AmountSource(name="none", driver=DRIVER, selector=Selector("true"), is_counter=True),
            gpu(),
            "none of the 3",
            id="counter",
        ),
        pytest.param(
            AmountSource(name="none", driver=DRIVER, selector=Selector("true"), is_counter=False),
            gpu(),
            "none of the 3",
            id="capacity",
        ),
        pytest.param(SHARE, gpu(capacity={"bandwidth": 500}), "gives that much", id="more-than-any-device-gives"),
    ],
)
def test_a_source_that_no_device_has_is_refused(source: AmountSource, request_: DeviceRequest, words: str) -> None:
    assert words in counted(request_, mappings=[by(source)]).refused[0]


def test_a_class_that_is_missing_or_not_understood_is_refused() -> None:
    """Only where its devices have to be looked at."""
    mapping = DeviceMapping(resource="r", classes=("odd", "gone"))
    for name, words in (("odd", "DeviceClass odd spec.selectors[0]"), ("gone", "DeviceClass gone does not exist")):
        assert counted(gpu(device_class=name), mappings=[mapping]).amounts == {"r": 1}
        with_selector = gpu(device_class=name, selectors=(Selector("true"),))
        assert words in counted(with_selector, mappings=[mapping]).refused[0]


@pytest.mark.parametrize("selectors", [(), (Selector("true"),)])
def test_a_source_counts_the_devices_of_its_driver_alone(selectors: tuple[Selector, ...]) -> None:
    """A class may have devices of other drivers; the request gets none of them."""
    mapping = DeviceMapping(resource="m", classes=("gpu-too",), sources=(MEMORY,))

    assert counted(gpu(1, device_class="gpu-too", selectors=selectors), mappings=[mapping]).amounts == {"m": 80}
    too_many = counted(gpu(4, device_class="gpu-too", selectors=selectors), mappings=[mapping])
    assert "3 devices" in too_many.refused[0]


def test_a_request_takes_no_more_devices_than_it_asks_for() -> None:
    one = gpu(1, selectors=(Selector("true"),))
    assert counted(one, one, one).refused == ()
    assert "0 devices of the cluster match" in counted(one, one, one, one).refused[0]


def test_two_requests_do_not_share_a_device() -> None:
    found = counted(gpu(2, selectors=(Selector(BIG),)), gpu(1, selectors=(Selector("true"),)))
    assert found.refused == ()
    found = counted(gpu(2, selectors=(Selector(BIG),)), gpu(1, selectors=(Selector(BIG),)))
    assert "0 devices of the cluster match" in found.refused[0]


def test_long_selectors_on_many_devices_are_refused() -> None:
    """Their evaluation would hold up the scheduling of others."""
    long = Selector("'" + "a" * 10_000 + "' != device.driver")
    many = gpu(1, selectors=(long,) * 400)
    assert "shorten them" in counted(many).refused[0]


@pytest.mark.parametrize(
    ("pod", "extended", "want", "replaced"),
    [
        pytest.param({"example.com/gpu": 2}, True, {"gpus": 2}, {"example.com/gpu"}, id="life19.2-replaced"),
        pytest.param({"example.com/gpu": 2}, False, {}, set(), id="life19.2-gate-off"),
        pytest.param({"example.com/free": 2}, True, {}, set(), id="class-without-a-mapping"),
        pytest.param({"cpu": 2, "example.com/none": 1}, True, {}, set(), id="no-class"),
        pytest.param({"example.com/gpu": 0}, True, {}, set(), id="nothing-is-asked-for"),
    ],
)
def test_extended_resources_of_classes_count_as_devices(
    pod: Mapping[str, int], extended: bool, want: Mapping[str, int], replaced: set[str]
) -> None:
    found = counted(claims=[], pod=pod, extended=extended)

    assert (found.amounts, set(found.replaced), found.refused) == (want, replaced, ())


def test_claims_and_extended_resources_add_up() -> None:
    found = counted(gpu(3), pod={"example.com/gpu": 2}, extended=True)

    assert found.amounts == {"gpus": 5}
    assert found.by_class == {"gpu": 5}


def test_an_extended_resource_of_a_class_with_sources_is_refused() -> None:
    mapping = DeviceMapping(resource="m", classes=("slice",), sources=(MEMORY,))
    found = counted(claims=[], pod={"example.com/slice": 1}, extended=True, mappings=[mapping])

    assert "requests[example.com/slice]" in found.refused[0]


def test_hosts_count_what_requests_may_get() -> None:
    """Devices that match selectors are devices of the class as well; a part of a device is none of them."""
    big, part = gpu(2, selectors=(Selector(BIG),)), gpu(3, capacity={"bandwidth": 12})
    found = counted(gpu(1), gpu(4, device_class="nic"), big, part, mappings=[GPUS, NICS])

    assert found.by_class == {"gpu": 3, "nic": 4}
    assert found.by_view == {
        DeviceView("gpu", (Selector(BIG),)): 2,
        DeviceView("gpu", capacity=(("bandwidth", 12),)): 3,
    }
    assert DeviceRules(mappings=(NICS, by(MEMORY))).classes() == {"nic", "gpu"}


LOOP = Selector("device.attributes.all(d, true)")


def test_a_selector_that_kqueue_cannot_evaluate_is_left_to_kube_scheduler() -> None:
    """The number of devices is known without it; the other selectors hold."""
    found = counted(gpu(2, selectors=(Selector(BIG), LOOP)))

    assert (found.amounts, found.refused) == ({"gpus": 2}, ())
    assert "devices.requests[0].exactly.selectors[1].cel.expression" in found.unjudged[0]
    assert "kube-scheduler alone applies it" in found.unjudged[0]
    assert "2 devices of the cluster match" in counted(gpu(3, selectors=(Selector(BIG), LOOP))).refused[0]


def test_a_selector_that_decides_the_amount_must_be_evaluated() -> None:
    found = counted(gpu(1, selectors=(LOOP,)), mappings=[by(MEMORY)])
    assert found.refused[0].startswith("ResourceClaimTemplate t, devices.requests[0].exactly.selectors[0].cel")
    assert "docs/how-to/claim-devices.md" in found.refused[0]


def test_a_device_without_a_value_keeps_the_devices_beside_it_out() -> None:
    """kube-scheduler fails on such a host; those of other hosts are enough here."""
    asked = f"device.attributes['{DRIVER}'].model == 'big'"
    world = Matches({each.name: each for each in CLASSES}.get)
    parts: dict[str, Any] = {"driver": "", "generation": 1, "slices": 1}
    odd = Device(driver=DRIVER, pool="n2", name="odd")
    world.offer(
        [
            DeviceSlice(name="one", pool="n1", devices=(device("big-0"), device("small-0")), **parts),
            DeviceSlice(name="two", pool="n2", devices=(device("big-1"), odd), **parts),
        ]
    )
    found = world.find("gpu", (Selector(asked),))

    assert [each.name for each in found.devices] == ["big-0"]
    assert "has no 'model'" in found.problem


def test_a_slice_that_stays_is_not_evaluated_again() -> None:
    world, selectors = Matches({each.name: each for each in CLASSES}.get), (Selector(BIG),)
    slices = [
        DeviceSlice(name=n, driver="", pool=n, generation=1, slices=1, devices=(device(f"big-{n}"),)) for n in "ab"
    ]
    world.offer(slices)
    assert world.devices_to_evaluate("gpu", selectors) == 2
    world.find("gpu", selectors)
    assert world.devices_to_evaluate("gpu", selectors) is None
    world.offer([slices[0], DeviceSlice(name="b", driver="", pool="b", generation=2, slices=1, devices=DEVICES[:2])])
    assert world.devices_to_evaluate("gpu", selectors) == 2
    assert [each.name for each in world.find("gpu", selectors).devices] == ["big-a", "big-0", "big-1"]


def test_selectors_that_have_used_their_time_wait() -> None:
    found = counted(gpu(1, selectors=(Selector(BIG),)), gpu(1), affords=lambda _request: False)
    assert "exactly.selectors: the selectors of this namespace have used" in found.refused[0]
    assert len(found.refused) == 1


@pytest.mark.parametrize(
    ("policy", "amount", "want"),
    [
        pytest.param(CapacityPolicy(), 7, 7, id="no-rule"),
        pytest.param(CapacityPolicy(valid=(5, 10)), 7, 10, id="next-valid"),
        pytest.param(CapacityPolicy(valid=(5, 10)), 11, None, id="above-all-valid"),
        pytest.param(CapacityPolicy(least=5, step=4), 6, 9, id="next-step"),
        pytest.param(CapacityPolicy(least=5, step=4), 9, 9, id="on-a-step"),
        pytest.param(CapacityPolicy(least=5), 1, 5, id="at-least"),
        pytest.param(CapacityPolicy(least=5, step=4, most=8), 6, None, id="the-step-is-above-the-most"),
        pytest.param(CapacityPolicy(step=4, most=8), 6, 6, id="steps-need-a-start"),
    ],
)
def test_capacities_are_rounded_by_their_policy(policy: CapacityPolicy, amount: int, want: int | None) -> None:
    assert policy.rounded(amount) == want


def test_a_capacity_without_a_policy_is_taken_whole() -> None:
    alone = (device("big-0", capacity={"bandwidth": (100, CapacityPolicy())}),)
    assert counted(gpu(2), mappings=[by(SHARE)], devices=alone).refused  # two are asked for
    assert counted(gpu(1), mappings=[by(SHARE)], devices=alone).amounts == {"gpu-memory": 100}
