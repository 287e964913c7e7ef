"""Claimed devices in the requests of workloads, and the devices of hosts."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import msgspec
import pytest

from kqueue import model
from kqueue.api.wire import devices as wire
from kqueue.api.wire import kueue as wire_kueue
from kqueue.core.devices.counting import DeviceRules
from kqueue.core.devices.pools import DeviceSlice
from kqueue.core.devices.values import AmountSource, DeviceMapping, Selector
from kqueue.core.devices.views import HOST_PREFIX
from kqueue.core.quota_requests import Counting, Transformation
from kqueue.core.topology.node import NodeFacts, PodFacts
from kqueue.model import ClaimView
from kqueue.state.cache import Cache
from kqueue.state.device_hosts import Touched
from kqueue.state.devices import DeviceObjects
from kqueue.state.holdings import pod_key
from kqueue.state.requests import Requests
from tests.unit.controllers.builders import read
from tests.unit.state.test_requests import head_of, make_workload

JSON = dict[str, Any]
DRIVER = "gpu.example.com"
RULES = DeviceRules(mappings=(DeviceMapping(resource="gpus", classes=("gpu",)),), extended=True)
CLAIMS = {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "two"}]}
ROW = f"{HOST_PREFIX}gpu"


def template(count: int = 2, *, name: str = "two", namespace: str = "ns", **exactly: Any) -> wire.ResourceClaimTemplate:
    request = {
        "name": "r",
        "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, **exactly},
    }
    spec = {"spec": {"devices": {"requests": [request]}}}
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": namespace}, "spec": spec}, wire.ResourceClaimTemplate
    )


def device_class(name: str = "gpu", *, extended: str = "", created: str = "2026-01-01T00:00:00Z") -> wire.DeviceClass:
    spec: JSON = {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]}
    spec |= {"extendedResourceName": extended} if extended else {}
    obj = {"metadata": {"name": name, "creationTimestamp": created}, "spec": spec}
    return msgspec.convert(obj, wire.DeviceClass, strict=False)


def resource_slice(
    node: str | None,
    *names: str,
    generation: int = 1,
    slices: int = 1,
    name: str = "",
    driver: str = DRIVER,
    counters: JSON | None = None,
    **parts: Any,
) -> DeviceSlice:
    """A slice of a node; `counters`: the amounts of its counter set `s`."""
    pool = {"name": node or "net", "generation": generation, "resourceSliceCount": slices}
    spec: JSON = {"driver": driver, "pool": pool, "nodeName": node, "devices": [{"name": n, **parts} for n in names]}
    if counters is not None:
        spec["sharedCounters"] = [{"name": "s", "counters": {key: {"value": v} for key, v in counters.items()}}]
    obj = {"metadata": {"name": name or f"of-{node}"}, "spec": spec}
    return model.device_slice(msgspec.convert(obj, wire.ResourceSlice))


def claim(
    *devices: str, node: str = "n1", pods: tuple[str, ...] = ("p",), name: str = "c", admin: bool = False
) -> ClaimView:
    results = [{"driver": DRIVER, "pool": node, "device": d, "request": "r", "adminAccess": admin} for d in devices]
    users = [{"resource": "pods", "name": pod, "uid": pod} for pod in pods]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": users} if devices else {}
    obj = {"metadata": {"name": name, "namespace": "ns"}, "status": status}
    return model.claim_view(msgspec.convert(obj, wire.ResourceClaim))


def make_requests(rules: DeviceRules | None = RULES, **options: Any) -> Requests:
    requests = Requests(devices=rules, refuses_claims=True, **options)
    requests.devices.on_class(None, device_class())
    return requests


# --- requests ---------------------------------------------------------------------------------------------------------


def test_devices_are_part_of_the_quota_and_of_the_node() -> None:
    """The name for the node is that of Kubernetes for devices of a class, so it does not meet a device plugin's."""
    requests, obj = make_requests(), make_workload(requests={"cpu": "1"}, pod=CLAIMS)
    requests.devices.on_template(None, template())
    [pod_set] = head_of(requests, obj).pod_sets

    assert pod_set.quota_requests == {"cpu": 1000, "gpus": 2}
    assert pod_set.request.requests == {"cpu": 1000, ROW: 2}
    assert requests.total(obj) == {"cpu": 4000, "gpus": 8}
    assert requests.problem(obj) == ""


def test_without_a_mapping_claims_are_refused() -> None:
    requests = make_requests(None)
    requests.devices.on_template(None, template())
    assert "claims devices, which are not counted" in requests.problem(make_workload(pod=CLAIMS))


def test_a_template_that_comes_changes_the_workload_that_waits_for_it() -> None:
    """A new version takes it out of the parked ones; other workloads keep theirs."""
    requests, obj, plain = make_requests(), make_workload(pod=CLAIMS), make_workload()
    others = requests.pending(plain)
    missing = requests.pending(obj)
    assert "ResourceClaimTemplate two does not exist" in requests.problem(obj)

    assert requests.devices.on_template(None, template()) == "ns/two"
    assert requests.problem(obj) == ""
    there = requests.pending(obj)
    assert requests.devices.on_template(template(), template(3)) == "ns/two"

    assert len({missing.version, there.version, requests.pending(obj).version}) == 3
    assert len({missing.shape, there.shape, requests.pending(obj).shape}) == 3
    assert requests.pending(plain) == others
    assert requests.devices.on_template(template(3), None) == "ns/two"
    assert requests.pending(obj).version == missing.version


def test_what_leaves_the_cost_alone_leaves_the_version_alone() -> None:
    requests, obj = make_requests(), make_workload(pod=CLAIMS)
    requests.devices.on_template(None, template())
    before = requests.pending(obj)

    assert requests.devices.on_template(template(), template()) is None
    assert not requests.devices.on_class(None, device_class())
    requests.devices.on_template(None, template(name="other"))
    requests.devices.on_template(None, template(namespace="elsewhere"))
    requests.devices.on_slice(None, resource_slice("n1", "a"))

    assert requests.pending(obj) == before


def test_a_template_of_another_namespace_is_none() -> None:
    requests, obj = make_requests(), make_workload(pod=CLAIMS)
    requests.devices.on_template(None, template(namespace="elsewhere"))
    assert "does not exist" in requests.problem(obj)


def test_equal_pods_of_two_namespaces_have_their_own_templates() -> None:
    requests = make_requests()
    requests.devices.on_template(None, template())
    requests.devices.on_template(None, template(5, namespace="elsewhere"))
    there = make_workload(pod=CLAIMS, metadata={"namespace": "elsewhere"})

    assert requests.total(make_workload(pod=CLAIMS)) == {"gpus": 8}
    assert requests.total(there) == {"gpus": 20}


def test_devices_come_after_transformations() -> None:
    """Sentence life6.4.4: a rule for the resource of a mapping sees what the pod asks for, not what it claims."""
    rule = Transformation(input="gpus", outputs={"credits": Fraction(3)}, keeps_input=False)
    requests = make_requests(counting=Counting(excluded_prefixes=("cpu",), transformations={"gpus": rule}))
    requests.devices.on_template(None, template())

    assert requests.total(make_workload(requests={"cpu": "1"}, pod=CLAIMS)) == {"gpus": 8}


def test_an_extended_resource_of_a_class_counts_as_its_devices() -> None:
    requests, obj = make_requests(), make_workload(requests={"example.com/gpu": "3", "cpu": "1"})
    before = requests.pending(obj)
    requests.devices.on_class(device_class(), device_class(extended="example.com/gpu"))

    assert requests.pending(obj).version != before.version
    assert requests.total(obj) == {"cpu": 4000, "gpus": 12}
    assert requests.per_pod(obj)["a"] == {"cpu": 1000, ROW: 3}


def test_the_implicit_extended_resource_of_a_class_counts_as_its_devices() -> None:
    """Kubernetes gives each class a resource of this name."""
    assert make_requests().total(make_workload(requests={ROW: "1"})) == {"gpus": 4}


@pytest.mark.parametrize(
    ("classes", "want"),
    [
        pytest.param([("a", "2026-01-01T00:00:00Z"), ("gpu", "2026-01-02T00:00:00Z")], "gpus", id="the-later-one"),
        pytest.param([("gpu", "2026-01-01T00:00:00Z"), ("z", "2026-01-01T00:00:00Z")], "gpus", id="the-first-by-name"),
        pytest.param([("gpu", "2026-01-01T00:00:00Z"), ("a", "2026-01-02T00:00:00Z")], "x.io/y", id="not-the-earlier"),
    ],
)
def test_of_two_classes_of_an_extended_resource_kubernetes_takes_one(classes: list[tuple[str, str]], want: str) -> None:
    """A class without a mapping leaves the resource as it is."""
    requests = make_requests()
    for name, created in classes:
        requests.devices.on_class(None, device_class(name, extended="x.io/y", created=created))
    assert requests.total(make_workload(requests={"x.io/y": "1"})) == {want: 4}


@pytest.mark.parametrize(
    ("slices", "enough"),
    [
        pytest.param([resource_slice("n1", "a", "b")], True, id="enough"),
        pytest.param([resource_slice("n1", "a")], False, id="too-few"),
        pytest.param([resource_slice("n1", "a", "b", driver="other")], False, id="of-another-class"),
        pytest.param([resource_slice("n1", "a", "b", slices=2)], False, id="a-pool-that-is-not-complete"),
        pytest.param(
            [resource_slice("n1", "a", slices=2), resource_slice("n1", "b", slices=2, name="second")],
            True,
            id="complete",
        ),
        pytest.param(
            [resource_slice("n1", "a", "b"), resource_slice("n1", "c", generation=2, name="new")], False, id="newest"
        ),
        pytest.param(
            [resource_slice("n1", "a", "b", generation=2, name="new"), resource_slice("n1", "c")], True, id="not-older"
        ),
    ],
)
def test_selectors_are_tried_on_the_devices_of_complete_pools(slices: list[DeviceSlice], enough: bool) -> None:
    requests, obj = make_requests(), make_workload(pod=CLAIMS)
    requests.devices.on_template(None, template(selectors=[{"cel": {"expression": "true"}}]))
    for each in slices:
        requests.devices.on_slice(None, each)

    assert (requests.problem(obj) == "") is enough


def test_devices_of_drivers_are_read_as_selectors_need_them() -> None:
    attributes = {"model": {"string": "a"}, "x.io/ok": {"bool": True}, "n": {"int": 3}, "v": {"version": "1.2.3"}}
    odd = {"odd": {"version": "1"}, "new": {"strings": ["a"]}}
    capacity = {"memory": {"value": "80Gi"}}
    text = (
        f"device.attributes['{DRIVER}'].model == 'a' && device.attributes['x.io'].ok && "
        f"device.attributes['{DRIVER}'].n == 3 && device.attributes['{DRIVER}'].v.isLessThan(semver('2.0.0')) && "
        f"!has(device.attributes['{DRIVER}'].odd) && !has(device.attributes['{DRIVER}'].new) && "
        f"device.capacity['{DRIVER}'].memory.compareTo(quantity('81920Mi')) == 0"
    )
    requests, obj = make_requests(), make_workload(pod=CLAIMS)
    requests.devices.on_template(None, template(selectors=[{"cel": {"expression": text}}]))
    requests.devices.on_slice(None, resource_slice("n1", "a", "b", attributes=attributes | odd, capacity=capacity))

    assert requests.problem(obj) == ""


def test_amounts_of_counters_and_capacities_are_those_of_the_driver() -> None:
    always = Selector("true")
    memory = AmountSource(name="memory", driver=DRIVER, selector=always, is_counter=True)
    band = AmountSource(name="x.io/band", driver=DRIVER, selector=always, is_counter=False)
    policy = {"default": "10", "validRange": {"min": "10", "max": "100", "step": "10"}}
    parts: JSON = {
        "consumesCounters": [{"counterSet": "s", "counters": {"memory": {"value": "1Ki"}}}],
        "capacity": {"x.io/band": {"value": "100", "requestPolicy": policy}},
    }
    for source, asked, want in ((memory, {}, 2048), (band, {}, 20), (band, {"x.io/band": "11"}, 40)):
        rules = DeviceRules(mappings=(DeviceMapping(resource="r", classes=("gpu",), sources=(source,)),))
        requests = make_requests(rules)
        requests.devices.on_template(None, template(capacity={"requests": asked}))
        requests.devices.on_slice(None, resource_slice("n1", "a", "b", **parts))

        assert requests.total(make_workload(pod=CLAIMS)) == {"r": 4 * want}


# --- hosts ------------------------------------------------------------------------------------------------------------


class Hosts:
    """A cache with nodes `n1` and `n2`, two devices each, and the pods that the watch has told."""

    def __init__(self, *slices: DeviceSlice) -> None:
        self.cache = Cache(requests=make_requests())
        self.pods: dict[str, PodFacts] = {}
        for each in slices or (resource_slice("n1", "a", "b"), resource_slice("n2", "a", "b")):
            self.cache.requests.devices.on_slice(None, each)
        for name in ("n1", "n2"):
            self._node(name)
        self.tell(self.cache.devices.refresh())

    def _node(self, name: str) -> None:
        self.cache.on_node(name, NodeFacts(name=name, labels={}, allocatable={"cpu": 8000}))

    def tell(self, touched: Touched) -> None:
        for name in touched.nodes:
            self._node(name)
        for key in touched.pods & self.pods.keys():
            self.cache.on_pod(key, self.pods[key])

    def bind(self, key: str, node: str = "n1", workload: str = "") -> None:
        self.pods[key] = PodFacts(node=node, requests=(("cpu", 1000),), workload=workload)
        self.cache.on_pod(key, self.pods[key])
        self.tell(self.cache.devices.on_pod(key, expected=False))

    def end(self, key: str) -> None:
        self.cache.on_pod(key, None)
        del self.pods[key]
        self.tell(self.cache.devices.on_pod(key, expected=False))

    def free(self, node: str = "n1") -> int:
        """Devices that the node has and that nothing foreign uses."""
        has = self.cache.ledger.nodes[node].allocatable.get(ROW, 0)
        return has - self.cache.ledger.foreign_on(node).get(ROW, 0)

    def drifts(self) -> list[object]:
        found = (d for drifts in self.cache.ledger.audit_steps() for d in drifts)
        return list(found)


def test_hosts_have_the_devices_of_their_slices() -> None:
    hosts = Hosts(resource_slice("n1", "a", "b", "c"), resource_slice("n2", "a", driver="other"))
    assert (hosts.free("n1"), hosts.free("n2")) == (3, 0)


@pytest.mark.parametrize("claim_first", [True, False])
def test_devices_of_a_foreign_pod_are_taken_until_it_ends(claim_first: bool) -> None:
    """In whatever order the watches tell it."""
    hosts = Hosts()
    if not claim_first:
        hosts.bind("ns/p")
    hosts.tell(hosts.cache.devices.on_claim(None, claim("a")))
    if claim_first:
        hosts.bind("ns/p")
    assert (hosts.free("n1"), hosts.free("n2")) == (1, 2)

    hosts.tell(hosts.cache.devices.on_claim(claim("a"), claim("a", "b")))
    assert hosts.free() == 0
    hosts.end("ns/p")
    assert hosts.free() == 0  # the claim still has them
    hosts.tell(hosts.cache.devices.on_claim(claim("a", "b"), None))
    assert hosts.free() == 2
    assert hosts.drifts() == []


def test_a_claim_without_a_pod_keeps_its_devices() -> None:
    hosts = Hosts()
    hosts.tell(hosts.cache.devices.on_claim(None, claim("a", pods=())))
    assert hosts.free() == 1
    hosts.tell(hosts.cache.devices.on_claim(claim("a", pods=()), claim()))
    assert hosts.free() == 2


def test_a_device_of_another_node_than_that_of_its_pod_is_taken_there() -> None:
    hosts = Hosts()
    hosts.bind("ns/p", node="n2")
    hosts.tell(hosts.cache.devices.on_claim(None, claim("a")))
    assert (hosts.free("n1"), hosts.free("n2")) == (1, 2)


def test_admin_access_takes_no_device() -> None:
    hosts = Hosts()
    hosts.tell(hosts.cache.devices.on_claim(None, claim("a", admin=True)))
    assert hosts.free() == 2


def test_a_shared_claim_counts_once() -> None:
    """With the pod that runs; with the next one when the first has ended."""
    hosts = Hosts()
    hosts.tell(hosts.cache.devices.on_claim(None, claim("a", pods=("p", "q"))))
    hosts.bind("ns/q")
    hosts.bind("ns/p")
    assert hosts.free() == 1
    hosts.end("ns/p")
    assert hosts.free() == 1
    hosts.end("ns/q")
    assert hosts.free() == 1
    assert hosts.drifts() == []


def test_devices_of_pods_that_are_expected_are_not_taken_twice() -> None:
    """The usage of their Workload covers them before a node runs them, and the node is not touched for each pod."""
    hosts = Hosts()
    hosts.cache.devices.on_pod("ns/p", expected=True)
    assert hosts.cache.devices.on_claim(None, claim("a")).nodes == frozenset()
    assert hosts.free() == 2


def test_a_pod_that_only_names_a_workload_is_charged_for_its_devices() -> None:
    """Any user may write the name of a Workload onto a pod."""
    hosts = Hosts()
    hosts.tell(hosts.cache.devices.on_claim(None, claim("a")))
    hosts.bind("ns/p", workload="ns/none")
    assert hosts.free() == 1


def test_devices_of_a_pod_that_runs_without_quota_are_charged_to_its_queue() -> None:
    """Once its claim has them, and until it ends."""
    hosts = Hosts()
    hosts.cache.on_flavor("f", read(wire_kueue.ResourceFlavor, {"metadata": {"name": "f"}}))
    amounts = [{"name": name, "nominalQuota": "9"} for name in ("cpu", "gpus")]
    groups = [{"coveredResources": ["cpu", "gpus"], "flavors": [{"name": "f", "resources": amounts}]}]
    spec = {"resourceGroups": groups, "namespaceSelector": {}}
    queue = read(wire_kueue.ClusterQueue, {"metadata": {"name": "team"}, "spec": spec})
    hosts.cache.quota.on_cluster_queue("team", queue)
    hosts.bind("ns/p")
    assert hosts.cache.held.charge_pod("ns/p", "ns/main", "team")
    hosts.tell(hosts.cache.devices.on_claim(None, claim("a", "b")))

    charged = hosts.cache.held.unpaid[pod_key("ns/p")].usage
    assert {column.resource: amount for column, amount in charged.items()} == {"cpu": 1000, "gpus": 2}
    hosts.end("ns/p")
    assert hosts.cache.held.unpaid == {}


@pytest.mark.parametrize(
    ("slices", "want"),
    [
        pytest.param([resource_slice("n1", "a", taints=[{"key": "k", "effect": "NoSchedule"}])], 0, id="tainted"),
        pytest.param([resource_slice("n1", "a", taints=[{"key": "k", "effect": "None"}])], 1, id="only-reported"),
        pytest.param([resource_slice("n1", "a", allowMultipleAllocations=True)], 0, id="shared-by-claims"),
        pytest.param([resource_slice("n1", "a"), resource_slice(None, "net-0")], 0, id="some-belong-to-no-node"),
    ],
)
def test_devices_that_no_host_can_count_are_left_out(slices: list[DeviceSlice], want: int) -> None:
    assert Hosts(*slices).free() == want


@pytest.mark.parametrize(
    "devices",
    [
        pytest.param(resource_slice(None, "net-0"), id="outside-of-nodes"),
        pytest.param(resource_slice("n1", "a", allowMultipleAllocations=True), id="for-many-claims"),
    ],
)
def test_a_class_with_devices_that_hosts_cannot_count_is_not_asked_of_them(devices: DeviceSlice) -> None:
    """A pod with such a claim may run wherever its other requests fit; its quota counts."""
    requests, obj = make_requests(), make_workload(pod=CLAIMS)
    requests.devices.on_template(None, template())
    requests.devices.on_slice(None, devices)

    assert requests.per_pod(obj) == {"a": {}}
    assert requests.total(obj) == {"gpus": 8}


def test_slices_that_change_change_their_hosts_alone() -> None:
    hosts = Hosts()
    hosts.cache.requests.devices.on_slice(resource_slice("n1", "a", "b"), resource_slice("n1", "a"))
    assert hosts.cache.devices.refresh().nodes == {"n1"}
    hosts.cache.requests.devices.on_slice(resource_slice("n1", "a"), None)
    assert hosts.cache.devices.refresh().nodes == {"n1"}
    assert hosts.cache.devices.refresh().nodes == frozenset()


def test_without_rules_nothing_is_counted() -> None:
    objects = DeviceObjects()
    workload: wire_kueue.Workload = make_workload(pod=CLAIMS)
    assert objects.version("ns", workload.spec.pod_sets[0].template.spec) is None
    assert objects.host_classes() == frozenset()


@pytest.mark.parametrize(
    ("users", "owners", "want"),
    [
        pytest.param([{"resource": "pods", "name": "p"}], [], ("ns/p",), id="reserved-for-a-pod"),
        pytest.param(
            [], [{"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "u"}], ("ns/q",), id="made-for-a-pod"
        ),
        pytest.param(
            [{"resource": "pods", "name": "p"}],
            [{"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "u"}],
            ("ns/p",),
            id="reserved-for-another",
        ),
        pytest.param([{"apiGroup": "x.io", "resource": "pods", "name": "p"}], [], (), id="reserved-for-no-pod"),
        pytest.param([], [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}], (), id="made-for-a-job"),
    ],
)
def test_a_claim_is_used_by_pods(users: list[JSON], owners: list[JSON], want: tuple[str, ...]) -> None:
    results = [{"driver": DRIVER, "pool": "n1", "device": "a", "request": "r"}]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": users}
    obj = {"metadata": {"name": "c", "namespace": "ns", "ownerReferences": owners}, "status": status}
    found = model.claim_view(msgspec.convert(obj, wire.ResourceClaim))

    assert found == ClaimView("ns/c", devices=((DRIVER, "n1", "a"),), pods=want)
