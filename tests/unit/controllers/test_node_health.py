"""Failed nodes: when a workload's host goes on its list, when it comes off, and which pods are ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
import pytest

from kqueue.api.wire import core as wire_core
from kqueue.controllers.host_marks import HostMarks
from kqueue.controllers.hosts import HostIndex
from kqueue.controllers.node_health import FailureSwitches, NodeHealth
from kqueue.controllers.pinned_pods import PinnedPods
from kqueue.controllers.resources import NODES, PODS, RESOURCE_FLAVORS, TOPOLOGIES, WORKLOADS
from kqueue.controllers.taint_tolerance import TaintTolerance
from kqueue.core.topology import NodeFacts
from kqueue.model import PodView, node_facts, pod_view
from kqueue.runtime.store import Store
from tests.unit.controllers.builders import (
    JSON,
    World,
    condition,
    make_flavor,
    make_workload,
    message_of,
    reserved,
    status_of,
)

HOST = "kubernetes.io/hostname"
PREFIX = "kueue.x-k8s.io/"
NOT_READY = {"status": "Unknown", "lastTransitionTime": "2026-01-01T00:00:00Z"}
"""Since the moment at which the fake clock starts."""


class Ward(World):
    """A world with hosts h1 and h2, each on a node named node-h1, node-h2, and the reconciler of their health."""

    def __init__(self, switches: FailureSwitches | None = None) -> None:
        super().__init__(
            (TOPOLOGIES, {"metadata": {"name": "dc"}, "spec": {"levels": [{"nodeLabel": HOST}]}}),
            (RESOURCE_FLAVORS, make_flavor(nodeLabels={"pool": "all"}, topologyName="dc")),
        )
        self.nodes: Store[NodeFacts] = Store("nodes")
        self.client.watch(NODES, self.nodes, lambda obj: node_facts(msgspec.convert(obj, wire_core.Node)))
        self.pods: Store[PodView] = Store("pods")
        self.client.watch(PODS, self.pods, lambda obj: pod_view(msgspec.convert(obj, wire_core.Pod)))
        self.health = NodeHealth(
            hosts=HostIndex(self.nodes, self.pods),
            marks=HostMarks(book=self.writer, recorder=self.recorder, clock=self.clock),
            cache=self.cache,
            taints=TaintTolerance(self.flavors.get),
            pinned=PinnedPods(client=self.client, recorder=self.recorder, clock=self.clock),
            clock=self.clock,
            switches=switches,
        )
        self.looks: list[str] = []
        """Hosts that events have asked to look at."""
        self.nodes.subscribe(lambda old, new: self.looks.extend(sorted(self.health.hosts_of_node_event(old, new))))
        self.pods.subscribe(lambda old, new: self.looks.extend(sorted(self.health.hosts_of_pod_event(old, new))))
        self.workloads.subscribe(lambda old, new: self.looks.extend(sorted(self.health.observe_workload(old, new))))
        for host in ("h1", "h2"):
            self.set_node(host)

    def set_node(self, host: str, ready: JSON | None = None, *, taints: Sequence[JSON] = ()) -> None:
        """A node that is ready unless told otherwise."""
        node = {
            "metadata": {"name": f"node-{host}", "labels": {HOST: host, "pool": "all"}},
            "spec": {"taints": list(taints)},
            "status": {"allocatable": {"cpu": "9", "pods": "9"}, "conditions": [condition("Ready") | (ready or {})]},
        }
        self.client.put(NODES, node)

    def set_pod(self, name: str, *, workload: str = "a", host: str = "h1", bound: bool = True, **more: Any) -> None:
        """A pod of a workload's gang, pinned to a host and running there unless told otherwise."""
        meta = {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-of-{name}",
            "annotations": {f"{PREFIX}podset-required-topology": HOST, f"{PREFIX}workload": workload},
            **more.pop("metadata", {}),
        }
        spec = {"nodeSelector": {HOST: host}, **({"nodeName": f"node-{host}"} if bound else {}), **more}
        phase = more.pop("phase", "Running" if bound else "Pending")
        self.client.put(PODS, {"metadata": meta, "spec": spec, "status": {"phase": phase}})

    def listed(self, name: str = "a") -> list[str]:
        """The workload's failed hosts."""
        return [node["name"] for node in (self.workload(name) or {})["status"].get("unhealthyNodes", [])]

    async def look(self, host: str = "h1") -> float | None:
        """All watches catch up, and the host is looked at; when it is to be looked at again."""
        self.sync()
        return (await self.health.reconcile(host)).requeue_after


def on_hosts(name: str = "a", *hosts: str, tolerations: list[JSON] | None = None, **status: Any) -> JSON:
    """An admitted Workload with one pod on each host (h1 and h2 when none is named)."""
    roots = list(hosts or ("h1", "h2"))
    workload = make_workload(name, pods=len(roots), status=reserved(pods=len(roots), **status))
    workload["spec"]["podSets"][0]["template"]["spec"]["tolerations"] = tolerations or []
    (held,) = workload["status"]["admission"]["podSetAssignments"]
    slices = [
        {
            "domainCount": len(roots),
            "valuesPerLevel": [{"individual": {"roots": roots}}],
            "podCounts": {"universal": 1},
        }
    ]
    held["topologyAssignment"] = {"levels": [HOST], "slices": slices}
    return workload


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Ward]]:
    wards: list[Ward] = []

    def build(switches: FailureSwitches | None = None) -> Ward:
        wards.append(Ward(switches))
        return wards[-1]

    yield build
    for ward in wards:
        await ward.close()


# --- nodes that are gone ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("condition_missing", [False, True], ids=["the node is deleted", "it has no condition Ready"])
async def test_a_node_that_is_gone_has_failed_for_all_on_it(make: Callable[..., Ward], condition_missing: bool) -> None:
    """At once, and only for those who stand on it."""
    ward = make()
    ward.add(on_hosts("a"), on_hosts("b", "h2"), on_hosts("c", "h1"))
    ward.set_pod("p")
    if condition_missing:
        ward.client.change(NODES, "node-h1", {"status": {"conditions": []}})
    else:
        ward.client.drop(NODES, "node-h1")

    await ward.look()

    assert (ward.listed("a"), ward.listed("b"), ward.listed("c")) == (["h1"], [], ["h1"])


@pytest.mark.parametrize(
    "conditions",
    [
        pytest.param([condition("Evicted")], id="it is being evicted"),
        pytest.param([condition("Finished")], id="it has finished"),
    ],
)
async def test_workloads_on_their_way_out_are_left_alone(make: Callable[..., Ward], conditions: list[JSON]) -> None:
    """They need no replacement."""
    ward = make()
    workload = on_hosts()
    workload["status"]["conditions"] += conditions
    ward.add(workload)
    ward.client.drop(NODES, "node-h1")

    await ward.look()

    assert ward.client.writes() == []


async def test_a_node_on_which_all_pods_have_ended_may_fail(make: Callable[..., Ward]) -> None:
    """Its place was given back: nobody needs another one."""
    ward = make()
    gone = on_hosts("a", "h1")["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]
    ward.add(on_hosts("a"))
    ward.client.change(WORKLOADS, "ns/a", {"status": {"finishedPods": [{"name": "main", "topologyAssignment": gone}]}})
    ward.client.drop(NODES, "node-h1")
    ward.client.drop(NODES, "node-h2")

    await ward.look("h1")
    await ward.look("h2")

    assert ward.listed() == ["h2"]
    assert list(ward.health.troubled_hosts()) == ["h2", "h2"]


async def test_too_many_failed_nodes_evict(make: Callable[..., Ward]) -> None:
    """The ninth: an event tells it, and its stuck pods are left to the eviction."""
    ward = make()
    hosts = [f"h{i}" for i in range(1, 10)]
    ward.add(on_hosts("a", *hosts, unhealthyNodes=[{"name": host} for host in hosts[1:]]))
    ward.set_pod("p", bound=False)
    ward.client.drop(NODES, "node-h1")

    await ward.look()

    assert status_of(ward.workload(), "Evicted") == ("True", "NodeFailures")
    assert "h9, h1" in message_of(ward.workload(), "Evicted")
    assert ward.recorder.reasons == ["EvictedDueToNodeFailures"]
    assert [call.resource for call in ward.client.writes()] == [WORKLOADS]


# --- nodes that are not ready ----------------------------------------------------------------------------------------

PATIENT = FailureSwitches()
HASTY = FailureSwitches(on_pod_termination=False)
EITHER = FailureSwitches(after_fixed_time=True)
RUNS: JSON = {}
ENDS: JSON = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["kept"]}}
ENDED: JSON = {"phase": "Failed"}


@pytest.mark.parametrize(
    ("switches", "after", "pod", "failed", "again"),
    [
        pytest.param(PATIENT, 900, RUNS, False, None, id="however long while its pods run"),
        pytest.param(PATIENT, 0, ENDS, True, None, id="at once when its pods are being deleted"),
        pytest.param(PATIENT, 0, ENDED, True, None, id="at once when its pods have ended"),
        pytest.param(PATIENT, 0, None, True, None, id="at once when there are no pods"),
        pytest.param(HASTY, 10, None, False, 20.0, id="not before 30 s where pods do not count"),
        pytest.param(HASTY, 30, RUNS, True, None, id="after 30 s where pods do not count"),
        pytest.param(EITHER, 10, RUNS, False, 20.0, id="not before 30 s with both rules while its pods run"),
        pytest.param(EITHER, 10, None, True, 20.0, id="at once with both rules without pods"),
        pytest.param(EITHER, 30, RUNS, True, None, id="after 30 s with both rules"),
    ],
)
async def test_when_a_node_that_is_not_ready_has_failed(
    make: Callable[..., Ward], switches: FailureSwitches, after: float, pod: JSON | None, failed: bool, again: float
) -> None:
    """Seconds after the node stopped being ready, and what is left to wait."""
    ward = make(switches)
    ward.add(on_hosts())
    ward.set_node("h1", NOT_READY)
    if pod is not None:
        ward.set_pod("p", **pod)
    await ward.clock.advance(after)

    assert await ward.look() == again
    assert ward.listed() == (["h1"] if failed else [])


async def test_a_node_that_blinks_for_a_minute_costs_nothing(make: Callable[..., Ward]) -> None:
    """It is not ready, it gets the taints of such nodes, it comes back, they go: a gang that runs on is left alone."""
    ward = make()
    ward.add(on_hosts())
    ward.set_pod("p")
    gone = [{"key": "node.kubernetes.io/unreachable", "effect": effect} for effect in ("NoSchedule", "NoExecute")]
    steps: list[tuple[JSON | None, list[JSON]]] = [
        (NOT_READY, []), (NOT_READY, gone[:1]), (NOT_READY, gone), (None, gone), (None, gone[1:]), (None, []),
    ]  # fmt: skip

    for ready, taints in steps:
        ward.set_node("h1", ready, taints=taints)
        assert await ward.look() is None
        await ward.clock.advance(10)

    assert ward.client.writes() == []


async def test_a_node_that_comes_back_is_taken_off_the_list(make: Callable[..., Ward]) -> None:
    """Under its host name and under its own; others stay listed."""
    ward = make()
    ward.add(on_hosts(unhealthyNodes=[{"name": name} for name in ("h1", "h2", "node-h1")]))

    await ward.look()

    assert ward.listed() == ["h2"]


async def test_a_node_marked_after_its_time_stays_marked_until_it_is_ready(make: Callable[..., Ward]) -> None:
    """With the fixed-time rule, pods that still run do not take the mark away."""
    ward = make(EITHER)
    ward.add(on_hosts(unhealthyNodes=[{"name": "h1"}]))
    ward.set_node("h1", NOT_READY)
    ward.set_pod("p")
    await ward.clock.advance(10)
    await ward.look()
    assert ward.listed() == ["h1"]

    ward.set_node("h1")
    await ward.look()
    assert ward.listed() == []


# --- taints ----------------------------------------------------------------------------------------------------------

OUT = {"key": "out", "value": "yes", "effect": "NoExecute"}
FOREVER = {"key": "out", "operator": "Exists"}
A_WHILE = {**FOREVER, "effect": "NoExecute", "tolerationSeconds": 60}
MANY = {"key": "out", "operator": "Gt", "value": "1"}


@pytest.mark.parametrize(
    ("switches", "taint", "toleration", "runs", "failed"),
    [
        pytest.param(PATIENT, OUT, None, False, True, id="untolerated and no pod runs"),
        pytest.param(PATIENT, OUT, None, True, False, id="untolerated while a pod runs"),
        pytest.param(HASTY, OUT, None, True, True, id="untolerated where pods do not count"),
        pytest.param(PATIENT, OUT, A_WHILE, False, True, id="tolerated for a time and no pod runs"),
        pytest.param(HASTY, OUT, A_WHILE, True, False, id="tolerated for a time while a pod runs"),
        pytest.param(PATIENT, OUT, FOREVER, False, False, id="tolerated for good"),
        pytest.param(PATIENT, OUT | {"value": "5"}, MANY, False, True, id="comparing tolerations do not count"),
        pytest.param(PATIENT, OUT | {"effect": "NoSchedule"}, None, False, True, id="closed to new pods"),
        pytest.param(PATIENT, OUT | {"effect": "PreferNoSchedule"}, None, False, False, id="only avoided"),
        pytest.param(FailureSwitches(on_taints=False), OUT, None, False, False, id="taints are switched off"),
    ],
)
async def test_when_a_tainted_node_has_failed(
    make: Callable[..., Ward], switches: FailureSwitches, taint: JSON, toleration: JSON | None, runs: bool, failed: bool
) -> None:
    """By what the pods tolerate, and whether they still run."""
    ward = make(switches)
    ward.add(on_hosts(tolerations=[toleration] if toleration is not None else []))
    ward.set_node("h1", taints=[taint])
    if runs:
        ward.set_pod("p")

    await ward.look()

    assert ward.listed() == (["h1"] if failed else [])


async def test_flavors_and_admission_checks_tolerate_for_the_pods(make: Callable[..., Ward]) -> None:
    """What either of them adds is as good as the template's own."""
    ward = make()
    updates = [{"name": "main", "tolerations": [FOREVER]}]
    check = {"name": "c", "state": "Ready", "lastTransitionTime": "2026-01-01T00:00:00Z", "message": ""}
    ward.add(on_hosts("a", admissionChecks=[check | {"podSetUpdates": updates}]), on_hosts("b"))
    ward.set_node("h1", taints=[OUT])
    await ward.look()
    assert (ward.listed("a"), ward.listed("b")) == ([], ["h1"])

    ward.client.change(RESOURCE_FLAVORS, "default", {"spec": {"tolerations": [FOREVER]}})
    await ward.look()

    assert ward.listed("b") == []


# --- nodes that are bad for one workload -----------------------------------------------------------------------------


async def fail_pod(ward: Ward, name: str, *, host: str = "h1") -> None:
    """A new pod fails a minute after it was made; the fake clock goes on by two."""
    made = ward.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    await ward.clock.advance(60)
    ward.set_pod(name, host=host, phase="Failed", metadata={"creationTimestamp": made})
    await ward.look(host)
    await ward.clock.advance(60)


def failures_of(ward: Ward, name: str = "a") -> dict[str, int]:
    """What the workload remembers, by host."""
    return {e["name"]: e["count"] for e in (ward.workload(name) or {})["status"].get("nodeFailures", [])}


async def test_a_node_that_is_lost_is_remembered_with_the_mark(make: Callable[..., Ward]) -> None:
    """In the same patch."""
    ward = make()
    ward.add(on_hosts())
    ward.client.drop(NODES, "node-h1")

    await ward.look()

    assert failures_of(ward) == {"h1": 1}
    assert len(ward.client.writes()) == 1


async def test_a_healthy_node_on_which_pods_fail_repeatedly_has_failed_for_their_workload(
    make: Callable[..., Ward],
) -> None:
    """After the second pod, not after the first, and not for others that stand there."""
    ward = make()
    ward.add(on_hosts("a"), on_hosts("b"))

    await fail_pod(ward, "first")
    assert (failures_of(ward), ward.listed()) == ({"h1": 1}, [])
    assert ward.recorder.reasons == []

    await fail_pod(ward, "second")
    assert ward.recorder.events == [("Workload a", "NodeAvoided")]
    assert (failures_of(ward), ward.listed()) == ({"h1": 2}, ["h1"])
    assert (failures_of(ward, "b"), ward.listed("b")) == ({}, [])
    await ward.look()  # nothing is new, and it stays listed
    assert (failures_of(ward), ward.listed()) == ({"h1": 2}, ["h1"])


async def test_a_failed_pod_is_remembered_once(make: Callable[..., Ward]) -> None:
    """However often the host is looked at, and by whatever process; pods that fell beside it do not count."""
    ward = make()
    ward.add(on_hosts())
    await fail_pod(ward, "first")
    ward.set_pod("beside", phase="Failed", metadata={"creationTimestamp": "2026-01-01T00:00:30Z"})
    ward.set_pod("elsewhere", host="h2", phase="Failed", metadata={"creationTimestamp": "2026-01-01T00:00:30Z"})

    for host in ("h1", "h2", "h1"):
        await ward.look(host)

    assert failures_of(ward) == {"h1": 1}
    assert len(ward.client.writes()) == 1


@pytest.mark.parametrize(
    ("pod", "count", "listed"),
    [
        pytest.param({"phase": "Failed"}, 2, True, id="it failed on the node"),
        pytest.param({"phase": "Succeeded"}, 1, False, id="it came to a good end"),
        pytest.param({"phase": "Failed", "bound": False}, 1, False, id="it never came to a node"),
        pytest.param({"phase": "Failed", **ENDS}, 1, False, id="somebody takes it away"),
    ],
)
async def test_which_pods_are_held_against_their_node(
    make: Callable[..., Ward], pod: JSON, count: int, listed: bool
) -> None:
    """After one that was."""
    ward = make()
    ward.add(on_hosts())
    await fail_pod(ward, "first")
    metadata = {"creationTimestamp": "2026-01-01T00:01:30Z", **pod.get("metadata", {})}

    ward.set_pod("second", **{**pod, "metadata": metadata})
    await ward.look()

    assert (failures_of(ward), ward.listed()) == ({"h1": count}, ["h1"] if listed else [])


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param({"bound": True}, id="another pod of it runs there"),
        pytest.param({"bound": False}, id="its next pod is on the way there"),
    ],
)
async def test_pods_that_can_go_on_hold_their_workload_on_a_healthy_node(make: Callable[..., Ward], pod: JSON) -> None:
    """Their places are not given away under them, and they are not ended."""
    ward = make()
    ward.add(on_hosts())
    ward.set_pod("other", **pod)

    await fail_pod(ward, "first")
    await fail_pod(ward, "second")

    assert (failures_of(ward), ward.listed()) == ({"h1": 2}, [])
    assert {call.resource for call in ward.client.writes()} == {WORKLOADS}


# --- pods that can never run -----------------------------------------------------------------------------------------


async def test_a_pod_that_can_never_be_bound_is_ended(make: Callable[..., Ward]) -> None:
    """Its phase becomes Failed with a reason beside its other conditions, and an event says so."""
    ward = make()
    ward.add(on_hosts())
    ward.set_node("h1", NOT_READY)
    ward.set_pod("p", bound=False)
    ward.client.change(PODS, "ns/p", {"status": {"conditions": [condition("PodScheduled", "False")]}})

    await ward.look()

    status = (ward.client.object(PODS, "ns/p") or {})["status"]
    assert status["phase"] == "Failed"
    assert [(c["type"], c["reason"]) for c in status["conditions"]] == [
        ("PodScheduled", ""),
        ("TerminatedByKueue", "UnschedulableOnAssignedNode"),
    ]
    assert ("Pod p", "PodTerminatedByKueue") in ward.recorder.events


@pytest.mark.parametrize(
    ("pod", "ended"),
    [
        pytest.param({"host": "h1", "bound": False}, True, id="pinned to a host that was replaced"),
        pytest.param({"host": "h1", "bound": True}, False, id="bound"),
        pytest.param({"host": "h2", "bound": False}, False, id="pinned to another host"),
        pytest.param(
            {"host": "h1", "bound": False, "schedulingGates": [{"name": f"{PREFIX}topology"}]}, False, id="still gated"
        ),
        pytest.param({"host": "h1", "bound": False, "phase": "Failed"}, False, id="ended already"),
    ],
)
async def test_strays_of_a_replaced_host_are_ended(make: Callable[..., Ward], pod: JSON, ended: bool) -> None:
    """The workload does not stand on the host any more; the host itself is gone."""
    ward = make()
    ward.add(on_hosts("a", "h2"))
    ward.set_pod("p", **pod)
    ward.client.drop(NODES, "node-h1")

    await ward.look()

    assert [str(call) for call in ward.client.writes()] == (["patch pods ns/p/status"] if ended else [])


@pytest.mark.parametrize(
    ("workload", "pod", "ended"),
    [
        pytest.param({}, {}, True, id="it waits for quota"),
        pytest.param({"conditions": [condition("Evicted", reason="Preempted")]}, {}, True, id="it was evicted"),
        pytest.param({"conditions": [condition("Finished")]}, {}, False, id="it has finished"),
        pytest.param(reserved(condition("Admitted", "False")), {}, False, id="it holds quota, its checks are open"),
        pytest.param(reserved(), {}, False, id="it is admitted without a place"),
        pytest.param({}, {"bound": True}, False, id="the pod is bound"),
        pytest.param({}, {"schedulingGates": [{"name": "example.com/other"}]}, False, id="a gate holds the pod"),
        pytest.param({}, {"slice": "first"}, False, id="another slice of its job may be admitted"),
    ],
)
@pytest.mark.parametrize("healthy", [True, False], ids=["the node is well", "the node is gone"])
async def test_pods_on_their_way_for_a_workload_that_is_not_admitted_are_ended(
    make: Callable[..., Ward], workload: JSON, pod: JSON, ended: bool, healthy: bool
) -> None:
    """They would run without quota, or wait for ever."""
    ward = make()
    ward.add(make_workload("a", status=workload))
    ward.set_pod("p", **{"bound": False, **{key: value for key, value in pod.items() if key != "slice"}})
    if "slice" in pod:
        ward.client.change(PODS, "ns/p", {"metadata": {"annotations": {f"{PREFIX}workload-slice-name": "first"}}})
    if not healthy:
        ward.client.drop(NODES, "node-h1")

    await ward.look()

    assert [str(call) for call in ward.client.writes()] == (["patch pods ns/p/status"] if ended else [])


async def test_a_workload_that_loses_its_admission_asks_for_a_look_at_pods_on_their_way(
    make: Callable[..., Ward],
) -> None:
    """No event of the pod may follow; hosts without such pods need no look."""
    ward = make()
    ward.add(on_hosts())
    ward.set_pod("waits", bound=False)
    ward.set_pod("runs", host="h2")
    ward.sync()
    ward.looks.clear()

    given_back = {"admission": None, "conditions": [condition("QuotaReserved", "False"), condition("Evicted")]}
    ward.client.change(WORKLOADS, "ns/a", {"status": given_back})
    ward.sync()

    assert ward.looks == ["h1"]


async def test_a_wiped_status_ends_no_pods(make: Callable[..., Ward]) -> None:
    """The reservation still counts until it is given back in the open."""
    ward = make()
    ward.add(on_hosts())
    ward.set_pod("waits", bound=False)
    ward.sync()
    ward.client.change(WORKLOADS, "ns/a", {"status": {"admission": None, "conditions": []}})

    await ward.look()

    assert ward.client.writes() == []


# --- pods that do not say that they were placed ----------------------------------------------------------------------


def unpin(ward: Ward, name: str, *, bare: bool) -> None:
    """Take the node selector off a pod, and with `bare` the topology annotation, too."""
    gone = {f"{PREFIX}podset-required-topology": None} if bare else {}
    ward.client.change(PODS, f"ns/{name}", {"metadata": {"annotations": gone}, "spec": {"nodeSelector": None}})


@pytest.mark.parametrize("bare", [False, True], ids=["without a selector", "without selector and annotation"])
@pytest.mark.parametrize(
    ("pod", "listed"),
    [
        pytest.param({}, [], id="it runs on"),
        pytest.param({"metadata": {"deletionTimestamp": "2026-01-01T00:00:09Z"}}, ["h1"], id="it is being deleted"),
        pytest.param({"status": {"phase": "Failed"}}, ["h1"], id="it has failed"),
        pytest.param({"spec": {"nodeName": "node-h2"}}, ["h1"], id="it runs elsewhere"),
        pytest.param({"metadata": {"annotations": {f"{PREFIX}workload": "b"}}}, ["h1"], id="it is of another workload"),
    ],
)
async def test_pods_count_by_the_node_that_runs_them(
    make: Callable[..., Ward], bare: bool, pod: JSON, listed: list[str]
) -> None:
    """A node that is not ready has failed when it runs no pod of the workload any more, whatever the pods carry."""
    ward = make()
    ward.add(on_hosts())
    ward.set_pod("p")
    unpin(ward, "p", bare=bare)
    ward.client.change(PODS, "ns/p", pod)
    ward.set_node("h1", NOT_READY)

    await ward.look()

    assert ward.listed() == listed


@pytest.mark.parametrize("bare", [False, True], ids=["without a selector", "without selector and annotation"])
@pytest.mark.parametrize(
    "end",
    [{"status": {"phase": "Failed"}}, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:09Z"}}, None],
    ids=["it fails", "it is being deleted", "it is gone"],
)
async def test_such_pods_ask_for_a_look_when_they_end_on_a_troubled_node(
    make: Callable[..., Ward], bare: bool, end: JSON | None
) -> None:
    """Nothing else would tell that the node has failed for the workload; on a healthy node nothing is asked."""
    ward = make()
    ward.add(on_hosts())
    for host in ("h1", "h2"):
        ward.set_pod(f"on-{host}", host=host)
        unpin(ward, f"on-{host}", bare=bare)
    ward.set_node("h1", NOT_READY)
    ward.sync()
    ward.looks.clear()

    for host in ("h1", "h2"):
        if end is None:
            ward.client.drop(PODS, f"ns/on-{host}")
        elif not ("status" in end and host == "h2" and not bare):  # a failure of a placed pod is remembered anywhere
            ward.client.change(PODS, f"ns/on-{host}", end)
    ward.sync()

    assert set(ward.looks) == {"h1"}


async def test_a_pod_that_was_bound_meanwhile_is_not_ended(make: Callable[..., Ward]) -> None:
    """The watch was behind."""
    ward = make()
    ward.add(on_hosts())
    ward.set_node("h1", NOT_READY)
    ward.set_pod("p", bound=False)
    ward.sync()
    ward.set_pod("p", bound=True)

    await ward.health.reconcile("h1")

    assert (ward.client.object(PODS, "ns/p") or {})["status"]["phase"] == "Running"


# --- who asks for a look ---------------------------------------------------------------------------------------------


async def test_nodes_ask_for_a_look_when_their_health_changes(make: Callable[..., Ward]) -> None:
    """Readiness, taints, and going away; other changes, and healthy nodes that nobody uses, do not."""
    ward = make()
    ward.add(on_hosts("a", "h1"))
    ward.looks.clear()

    ward.set_node("h1", NOT_READY)
    ward.sync()
    ward.set_node("h1", NOT_READY, taints=[OUT])
    ward.sync()
    ward.client.change(NODES, "node-h1", {"status": {"allocatable": {"cpu": "8"}}})
    ward.sync()
    ward.client.drop(NODES, "node-h1")
    ward.sync()
    ward.client.drop(NODES, "node-h2")
    ward.sync()

    assert ward.looks == ["h1", "h1", "h1"]


async def test_pods_ask_for_a_look_at_troubled_hosts(make: Callable[..., Ward]) -> None:
    """When they end there, or wait to get there; and at others when they fail there."""
    ward = make()
    ward.add(on_hosts())
    for host in ("h1", "h2"):
        ward.set_pod(f"runs-{host}", host=host)
    ward.set_node("h1", NOT_READY)
    ward.sync()
    ward.looks.clear()

    for host in ("h1", "h2"):
        ward.client.change(PODS, f"ns/runs-{host}", {"status": {"phase": "Failed"}})
        ward.set_pod(f"waits-{host}", host=host, bound=False)
    ward.sync()
    ward.client.drop(PODS, "ns/runs-h1")
    ward.client.drop(PODS, "ns/runs-h2")
    ward.sync()

    assert sorted(ward.looks) == ["h1", "h1", "h1", "h2"]


async def test_pods_on_their_way_to_a_host_that_was_replaced_ask_for_a_look(make: Callable[..., Ward]) -> None:
    """However healthy it is; gated ones go where the ungater sends them."""
    ward = make()
    ward.add(on_hosts("a", "h2"))
    ward.sync()
    ward.looks.clear()

    ward.set_pod("waits", bound=False)
    ward.set_pod("gated", bound=False, schedulingGates=[{"name": f"{PREFIX}topology"}])
    ward.set_pod("right", host="h2", bound=False)
    ward.sync()

    assert ward.looks == ["h1"]


async def test_a_new_leader_looks_at_every_host_in_trouble(make: Callable[..., Ward]) -> None:
    """Used hosts that are gone or bad, and what workloads list; a node that failed while nobody led is found."""
    ward = make()
    ward.add(on_hosts("a", "h1", "h2", unhealthyNodes=[{"name": "h7"}]), on_hosts("b", "h9"))
    ward.set_node("h1", NOT_READY)
    ward.set_node("h5", NOT_READY)
    ward.sync()

    assert sorted(ward.health.troubled_hosts()) == ["h1", "h7", "h9"]
