"""How many of its devices a host can still give to requests, and the budget of selectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kqueue.core.devices.budget import WorkBudget
from kqueue.core.devices.values import NO_POLICY, CapacityPolicy, Device, Selector
from kqueue.core.devices.views import DeviceView, Taken, is_countable, room

TOTALS = {("d", "n1", "gpu-0", "memory"): 80, ("d", "n1", "gpu-1", "memory"): 80, ("d", "n1", "gpu-0", "cores"): 7}


def device(name: str, **parts: Any) -> Device:
    return Device(driver="d", pool="n1", name=name, node="n1", **parts)


def part(name: str, memory: int, *, of: str = "gpu-0", **counters: int) -> Device:
    return device(name, consumes={(of, "memory"): memory, **{(of, each): n for each, n in counters.items()}})


def shared(name: str, policy: CapacityPolicy = NO_POLICY, **capacity: int) -> Device:
    return device(name, shared=True, capacity={key: (amount, policy) for key, amount in capacity.items()})


WHOLE = part("whole", 80)
SLICES = tuple(part(f"slice-{i}", 10) for i in range(9))
OTHER = part("other", 80, of="gpu-1")


def left(
    devices: Sequence[Device],
    requested: Mapping[str, int] | None = None,
    *,
    taken: Sequence[tuple[Device, Mapping[str, int]]] = (),
) -> int:
    state = Taken(TOTALS)
    for each, consumed in taken:
        state.take(each, consumed)
    return room(devices, requested or {}, state)


@pytest.mark.parametrize(
    ("devices", "taken", "want"),
    [
        pytest.param([device("a"), device("b")], [], 2, id="whole-devices"),
        pytest.param([device("a"), device("b")], [device("a")], 1, id="one-is-taken"),
        pytest.param([device("a", tainted=True)], [], 0, id="tainted"),
        pytest.param(SLICES, [], 8, id="as-many-parts-as-the-counter-allows"),
        pytest.param([WHOLE, *SLICES], [], 8, id="the-smallest-parts-first"),
        pytest.param(SLICES, [WHOLE], 0, id="the-whole-device-takes-all-parts"),
        pytest.param([WHOLE], [SLICES[0]], 0, id="a-part-takes-the-whole-device"),
        pytest.param(SLICES, [SLICES[0], SLICES[1]], 6, id="parts-that-are-left"),
        pytest.param([WHOLE, OTHER], [SLICES[0]], 1, id="sets-are-counted-apart"),
        pytest.param([part("p", 10, cores=4), part("q", 10, cores=4)], [], 1, id="every-counter-must-suffice"),
        pytest.param([part("p", 10, of="none")], [], 0, id="a-set-that-no-slice-has"),
    ],
)
def test_devices_that_are_left(devices: Sequence[Device], taken: Sequence[Device], want: int) -> None:
    assert left(devices, taken=[(each, {}) for each in taken]) == want


TENTHS = CapacityPolicy(default=20, least=10, most=60, step=10)


@pytest.mark.parametrize(
    ("devices", "requested", "consumed", "want"),
    [
        pytest.param([shared("a", memory=100)], {}, {}, 1, id="all-of-it-without-a-policy"),
        pytest.param([shared("a", TENTHS, memory=100)], {}, {}, 5, id="the-default"),
        pytest.param([shared("a", TENTHS, memory=100)], {"memory": 21}, {}, 3, id="rounded-up"),
        pytest.param([shared("a", TENTHS, memory=100)], {"memory": 61}, {}, 0, id="above-the-policy"),
        pytest.param([shared("a", memory=100)], {"memory": 101}, {}, 0, id="above-the-whole"),
        pytest.param([shared("a", memory=100)], {"memory": 30}, {"memory": 50}, 1, id="what-others-have"),
        pytest.param([shared("a", memory=100), shared("b", memory=90)], {"memory": 45}, {}, 4, id="two-devices"),
        pytest.param([shared("a", memory=100, cores=3)], {"memory": 10, "cores": 1}, {}, 3, id="the-scarcest"),
        pytest.param([shared("a", memory=100)], {"cores": 1}, {}, 0, id="a-capacity-that-it-lacks"),
        pytest.param([device("a", capacity={"memory": (80, NO_POLICY)})], {"memory": 40}, {}, 1, id="one-claim"),
        pytest.param(
            [device("a", capacity={"memory": (80, NO_POLICY)})], {"memory": 81}, {}, 0, id="one-claim-too-large"
        ),
    ],
)
def test_capacities_that_are_left(
    devices: Sequence[Device], requested: Mapping[str, int], consumed: Mapping[str, int], want: int
) -> None:
    taken = [(devices[0], consumed)] if consumed else []
    assert left(devices, requested, taken=taken) == want


@pytest.mark.parametrize(
    ("found", "want"),
    [
        (device("a"), True),
        (Device(driver="d", pool="net", name="a"), False),
        (shared("a", memory=1), True),
        (shared("a"), False),
    ],
)
def test_devices_that_hosts_can_count(found: Device, want: bool) -> None:
    """A device without a node has no host; one that claims share without a capacity has no end."""
    assert is_countable(found) is want


def test_the_resource_of_a_request_is_told_apart_and_short() -> None:
    plain, one = DeviceView("gpu"), DeviceView("gpu", (Selector("device.driver == 'a'"),))
    long = [DeviceView("gpu", (Selector("device.driver == '" + "a" * 200 + end + "'"),)) for end in "xy"]
    assert plain.row == "deviceclass.resource.kubernetes.io/gpu"
    assert one.row == "deviceclass.resource.kubernetes.io/gpu where device.driver == 'a'"
    assert DeviceView("gpu", capacity=(("memory", 10),)).row.endswith("gpu where memory >= 10")
    assert len({each.row for each in long}) == 2
    assert max(len(each.row) for each in long) < 160


def test_a_namespace_cannot_use_the_work_of_others() -> None:
    budget = WorkBudget(100)
    assert budget.spend("greedy", 20)
    assert budget.spend("greedy", 20)  # begun within its part
    assert not budget.spend("greedy", 1)
    assert budget.spend("other", 10)
    assert budget.refill() == {"greedy"}
    assert budget.spend("greedy", 1)


def test_a_debt_is_paid_by_the_seconds_that_follow() -> None:
    budget = WorkBudget(100)
    assert budget.spend("a", 250)
    assert not budget.spend("b", 1)  # all of it is used
    assert budget.refill() == {"b"}
    assert not budget.spend("b", 1)
    assert budget.refill() == {"b"}
    assert budget.spend("b", 1)
    assert not budget.spend("a", 1)  # its own debt lasts longer
    for _ in range(10):
        budget.refill()
    assert budget.spend("a", 1)


def test_a_budget_says_whether_it_is_whole() -> None:
    budget = WorkBudget(100)
    found = [budget.is_used]
    budget.spend("a", 150)
    for _ in range(2):
        budget.refill()
        found.append(budget.is_used)
    assert found == [False, True, False]
