"""Which devices a process watches, and what their events change."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.clock import FakeClock
from kqueue.config import Timings, parse
from kqueue.core.devices.views import HOST_PREFIX
from kqueue.core.topology.node import NodeFacts, PodFacts
from kqueue.errors import ConfigError
from kqueue.manager.operator import PARTS, Operator
from kqueue.model import PodView
from kqueue.observe import Checks, Metrics
from kqueue.runtime.client import Client
from tests.unit.state.test_devices import CLAIMS, claim, device_class, resource_slice, template
from tests.unit.state.test_requests import make_workload

MAPPED = "resources: {deviceClassMappings: [{name: gpus, deviceClassNames: [gpu]}]}\n"
OFF = """featureGates:
  KueueDRAIntegration: false
  KueueDRAIntegrationExtendedResource: false
  KueueDRAIntegrationPartitionableDevices: false
"""
KINDS = {
    f"{kind}.resource.k8s.io"
    for kind in ("resourceclaimtemplates", "resourceclaims", "deviceclasses", "resourceslices")
}
ROW = f"{HOST_PREFIX}gpu"
Make = Callable[..., Operator]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    """Operators that do not run."""
    async with contextlib.AsyncExitStack() as stack:

        def operator(text: str = MAPPED, parts: Any = PARTS) -> Operator:
            clock = FakeClock()
            client = Client("http://127.0.0.1:9", clock=clock)
            stack.push_async_callback(client.close)
            head = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
            return Operator(
                client=client,
                config=parse(head + text, source="test"),
                timings=Timings(node_event_window=0.0),
                clock=clock,
                metrics=Metrics(clock=clock),
                checks=Checks(),
                parts=parts,
            )

        yield operator


@pytest.mark.parametrize(
    ("text", "watched"),
    [
        pytest.param(MAPPED, True, id="gate-and-mapping"),
        pytest.param("", False, id="no-mapping"),
        pytest.param(MAPPED + OFF, False, id="gate-off"),
    ],
)
async def test_devices_are_watched_if_they_count(make: Make, text: str, watched: bool) -> None:
    """Without them a process needs no right to read them; a cluster that does not serve them yet is asked again."""
    operator = make(text)
    found = {str(watch.resource): watch for watch in operator.watches.all() if str(watch.resource) in KINDS}

    assert set(found) == (KINDS if watched else set())
    assert all(watch._settings.optional for watch in found.values())


async def test_a_source_that_cannot_be_evaluated_stops_the_start(make: Make) -> None:
    source = (
        "{counter: {name: memory, driver: d.io, deviceSelector: {cel: {expression: \"device.driver.matches('a')\"}}}}"
    )
    text = f"resources: {{deviceClassMappings: [{{name: m, deviceClassNames: [gpu], sources: [{source}]}}]}}\n"
    with pytest.raises(ConfigError, match=r"sources\[0\].counter.deviceSelector.cel.expression: method 'matches'"):
        make(text)


def watch_of(operator: Operator, kind: str) -> Any:
    return next(watch for watch in operator.watches.all() if watch.resource.kind == kind).store


def begin_to_lead(operator: Operator) -> None:
    for begin in operator.manager.on_lead:
        begin()


def queued(operator: Operator, name: str) -> int:
    (found,) = [c for c in operator.manager.controllers if c.name == name]
    return len(found.queue)


def with_devices() -> wire.Workload:
    return make_workload(pod=CLAIMS)


async def test_workloads_are_read_again_when_their_template_comes(make: Make) -> None:
    """Those that name it, and no others."""
    operator = make()
    operator.watches.workloads.store.put("ns/w", with_devices())
    operator.watches.workloads.store.put("ns/plain", make_workload())
    before = queued(operator, "requests")

    watch_of(operator, "ResourceClaimTemplate").put("ns/other", template(name="other"))
    assert queued(operator, "requests") == before
    watch_of(operator, "ResourceClaimTemplate").put("ns/two", template())
    assert queued(operator, "requests") == before + 1


async def test_slices_and_classes_are_counted_once_for_many_events(make: Make) -> None:
    operator = make()
    watch_of(operator, "DeviceClass").put("gpu", device_class())
    for node in ("n1", "n2"):
        watch_of(operator, "ResourceSlice").put(f"of-{node}", resource_slice(node, "a", "b"))

    assert queued(operator, "devices") == 1


async def test_slices_have_workloads_with_devices_read_again_and_classes_all_that_may_have_some(make: Make) -> None:
    operator = make()
    operator.watches.workloads.store.put("ns/w", with_devices())
    operator.watches.workloads.store.put("ns/extended", make_workload(requests={"nvidia.com/gpu": "1"}))
    operator.watches.workloads.store.put("ns/plain", make_workload(requests={"cpu": "1"}))

    async def read_again() -> int:
        begin_to_lead(operator)
        (requests,) = [c for c in operator.manager.controllers if c.name == "requests"]
        number = len(requests.queue)
        for _ in range(number):
            key = await requests.queue.get()
            assert key is not None
            requests.queue.done(key)
        return number

    assert await read_again() == 2  # at the start, whatever has come by then
    watch_of(operator, "ResourceSlice").put("of-n1", resource_slice("n1", "a"))
    assert await read_again() == 1
    watch_of(operator, "DeviceClass").put("gpu", device_class())
    assert await read_again() == 2
    assert await read_again() == 1


async def test_hosts_have_devices_less_those_of_foreign_claims(make: Make) -> None:
    """In a process that begins to lead, and after each event."""
    operator = make()
    node = NodeFacts(name="n1", labels={}, allocatable={"cpu": 8})
    operator.watches.nodes.store.put("n1", node)
    watch_of(operator, "DeviceClass").put("gpu", device_class())
    watch_of(operator, "ResourceSlice").put("of-n1", resource_slice("n1", "a", "b"))
    begin_to_lead(operator)
    ledger = operator.cache.ledger
    assert ledger.nodes["n1"].allocatable == {"cpu": 8, ROW: 2}

    pod = PodView("ns/p", bound=PodFacts(node="n1", requests=(("cpu", 1),)))
    watch_of(operator, "ResourceClaim").put("ns/c", claim("a"))
    assert ledger.nodes["n1"].allocatable[ROW] == 1
    operator.watches.pods.store.put("ns/p", pod)
    assert ledger.nodes["n1"].allocatable[ROW] == 2
    assert ledger.foreign_on("n1") == {"cpu": 1, ROW: 1, "pods": 1}

    told = operator._auditor._told
    assert [d for drifts in operator.cache.audits.audit_steps(told) for d in drifts] == []
    operator.watches.pods.store.put("ns/p", replace(pod, bound=None))
    watch_of(operator, "ResourceClaim").remove("ns/c")
    assert ledger.nodes["n1"].allocatable[ROW] == 2
    assert ledger.foreign_on("n1") == {}
    await operator._intake.close()


async def test_a_pod_of_a_workload_leaves_its_host_alone_until_it_runs(make: Make) -> None:
    operator = make()
    operator.watches.nodes.store.put("n1", NodeFacts(name="n1", labels={}, allocatable={"cpu": 8}))
    watch_of(operator, "DeviceClass").put("gpu", device_class())
    watch_of(operator, "ResourceSlice").put("of-n1", resource_slice("n1", "a", "b"))
    begin_to_lead(operator)
    operator.watches.pods.store.put("ns/p", PodView("ns/p", workload="ns/w"))
    watch_of(operator, "ResourceClaim").put("ns/c", claim("a"))

    assert operator.cache.ledger.nodes["n1"].allocatable[ROW] == 2
    await operator._intake.close()


async def test_selectors_that_have_used_their_time_are_tried_a_second_later(make: Make) -> None:
    """Of the workloads, those of the namespace that had to wait."""
    operator = make()
    clock = operator.manager.clock
    assert isinstance(clock, FakeClock)
    watch_of(operator, "DeviceClass").put("gpu", device_class())
    names = [f"d{i}" for i in range(100)]
    watch_of(operator, "ResourceSlice").put("of-n1", resource_slice("n1", *names))
    long = [{"cel": {"expression": f"'{i:0>9000}' != device.driver"}} for i in range(2)]
    for i, selector in enumerate(long):
        watch_of(operator, "ResourceClaimTemplate").put(f"ns/t{i}", template(name=f"t{i}", selectors=[selector]))
    operator.watches.workloads.store.put("ns/plain", make_workload())
    for i in range(2):
        claims = [{"name": "c", "resourceClaimTemplateName": f"t{i}"}]
        operator.watches.workloads.store.put(f"ns/w{i}", make_workload(pod={"resourceClaims": claims}))
    problems = [operator.cache.requests.problem(one) for one in operator.watches.workloads.store.values()]
    (work,) = [c for c in operator.manager.controllers if c.name == "devices"]
    (requests,) = [c for c in operator.manager.controllers if c.name == "requests"]
    while len(requests.queue):
        key = await requests.queue.get()
        assert key is not None
        requests.queue.done(key)
    await clock.advance(1.0)
    due = [await work.queue.get() for _ in range(len(work.queue))]
    await work._reconcile("refill")

    assert [("used the time" in problem) for problem in problems] == [False, False, True]
    assert "refill" in due
    assert queued(operator, "requests") == 2
