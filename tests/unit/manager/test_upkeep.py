"""Nodes that are left out are shown and told of once; audits heal, count causes and let others run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kqueue.api.wire import kueue as wire
from kqueue.clock import FakeClock
from kqueue.controllers.intake import Intake, IntakeState
from kqueue.controllers.record import ObjectReference
from kqueue.core.topology import HOSTNAME, NodeFacts, PodFacts
from kqueue.core.workload import Flavor
from kqueue.manager.upkeep import Auditor, ForeignGauges, NodeGauges, PodGauges, RoomGauges
from kqueue.model import PodView
from kqueue.observe import Metrics
from kqueue.state.cache import Cache
from kqueue.state.cache_audit import Told
from kqueue.state.not_running import NotRunning
from kqueue.state.queue_policy import BEST_EFFORT_FIFO
from kqueue.state.queues import Queues
from tests.readings import free_by_node, page_of


@dataclass(slots=True)
class Noted:
    """Events as (kind, name, reason, warning, message)."""

    events: list[tuple[str, str, str, bool, str]] = field(default_factory=list)

    def record(
        self, regarding: ObjectReference, *, reason: str, message: str, warning: bool = False, once: bool = False
    ) -> None:
        self.events.append((regarding.kind, regarding.name, reason, warning, message))

    def names(self) -> list[str]:
        """Whom they are about, since the last look."""
        names = [name for _, name, *_ in self.events]
        self.events.clear()
        return names


def make_node(name: str, *, host: str | None = None, pool: str = "a", ready: bool = True) -> NodeFacts:
    labels = {"rack": "r1", HOSTNAME: host or name, "pool": pool}
    return NodeFacts(name=name, labels=labels, allocatable={"cpu": 8000, "pods": 110}, ready=ready)


def make_cache() -> Cache:
    """Flavor f of the nodes of pool a, by rack and host."""
    cache = Cache()
    cache.ledger.on_topology("t", ("rack", HOSTNAME))
    cache.ledger.on_flavor("f", Flavor(name="f", topology="t", node_labels={"pool": "a"}))
    return cache


def series(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """The samples of a metric by their labels' values, in the order of the labels' names, without the role."""
    return {
        tuple(value for label, value in sorted(s.labels.items()) if label != "replica_role"): s.value
        for family in text_string_to_metric_families(page_of(metrics).decode())
        for s in family.samples
        if s.name == name
    }


def test_nodes_that_are_left_out_are_counted_by_flavor_and_reason() -> None:
    """Those of other flavors are not; a reason that is gone is 0; a flavor that is gone has no series."""
    cache, metrics = make_cache(), Metrics()
    gauges = NodeGauges(metrics, cache.ledger, Noted())
    for node in (
        make_node("ok"),
        make_node("down", ready=False),
        make_node("down-of-others", ready=False, pool="b"),
        NodeFacts(name="bare", labels={"pool": "a"}, allocatable={}),
        make_node("twin", host="ok"),
    ):
        cache.on_node(node.name, node)
    gauges.refresh()
    shown = {"notReady": 1, "unschedulable": 0, "missingLevel": 1, "duplicateHostname": 1}
    assert series(metrics, "kqueue_ignored_nodes") == {("f", reason): n for reason, n in shown.items()}

    cache.on_node("down", make_node("down"))
    gauges.refresh()
    assert series(metrics, "kqueue_ignored_nodes")["f", "notReady"] == 0

    cache.ledger.on_flavor("f", None)
    gauges.refresh()
    assert series(metrics, "kqueue_ignored_nodes") == {}


async def test_what_foreign_pods_take_is_shown_by_flavor() -> None:
    """In the unit that users write; what is gone has no series, and pods on nodes of others do not count."""
    cache, metrics = make_cache(), Metrics()
    gauges = ForeignGauges(metrics, cache.ledger, FakeClock())
    cache.on_node("one", make_node("one"))
    cache.on_node("two", make_node("two"))
    cache.on_node("other", make_node("other", pool="b"))
    cache.held.on_pod("ns/a", PodFacts(node="one", requests=(("cpu", 1500), ("memory", 64))))
    cache.held.on_pod("ns/b", PodFacts(node="two", requests=(("cpu", 500),)))
    cache.held.on_pod("ns/c", PodFacts(node="other", requests=(("cpu", 9000),)))

    await gauges.refresh()
    assert series(metrics, "kqueue_foreign_pods") == {("f",): 2}
    assert series(metrics, "kqueue_foreign_requests") == {("f", "cpu"): 2, ("f", "memory"): 64}

    cache.held.on_pod("ns/a", None)
    await gauges.refresh()
    assert series(metrics, "kqueue_foreign_pods") == {("f",): 1}
    assert series(metrics, "kqueue_foreign_requests") == {("f", "cpu"): 0.5}

    cache.ledger.on_flavor("f", None)
    await gauges.refresh()
    assert (series(metrics, "kqueue_foreign_pods"), series(metrics, "kqueue_foreign_requests")) == ({}, {})


def test_a_host_name_that_is_taken_is_told_once() -> None:
    """As a warning at the node that is left out; again only when another node has it, or when it comes back."""
    cache, noted = make_cache(), Noted()
    gauges = NodeGauges(Metrics(), cache.ledger, noted)
    cache.on_node("n2", make_node("n2", host="same"))
    gauges.refresh()
    assert noted.names() == []

    cache.on_node("n3", make_node("n3", host="same"))
    gauges.refresh()
    ((kind, name, reason, warning, message),) = noted.events
    assert (kind, name, reason, warning) == ("Node", "n3", "DuplicateHostname", True)
    assert "node n2" in message
    assert f"{HOSTNAME}=same" in message

    noted.events.clear()
    gauges.refresh()
    assert noted.names() == []

    cache.on_node("n1", make_node("n1", host="same"))
    gauges.refresh()
    assert noted.names() == ["n2", "n3"]

    cache.on_node("n3", make_node("n3"))
    gauges.refresh()
    cache.on_node("n3", make_node("n3", host="same"))
    gauges.refresh()
    assert noted.names() == ["n3"]


class Yard:
    """An auditor over a cache that missed what its watches hold."""

    def __init__(self, nodes: int) -> None:
        self.cache, self.metrics, self.clock, self.woken = make_cache(), Metrics(), FakeClock(), 0
        self.queues = Queues(self.clock.now, lambda: None)
        self.queues.set_cluster_queue("team", BEST_EFFORT_FIFO)
        self.nodes = {f"n{i}": make_node(f"n{i}") for i in range(nodes)}
        self.pods = {"ns/p": PodView("ns/p", bound=PodFacts(node="n0", requests=(("cpu", 1000),)))}
        intake = Intake(
            IntakeState(cache=self.cache, queues=self.queues),
            namespace_labels=lambda _: {},
            wake=self.wake,
            clock=self.clock,
        )
        self.intake = intake
        self.auditor = Auditor(
            cache=self.cache,
            told=Told(nodes=self.nodes, pods=self.pods, workloads={}),
            intake=intake,
            metrics=self.metrics,
            clock=self.clock,
        )

    def wake(self) -> None:
        self.woken += 1


async def test_an_audit_counts_causes_heals_and_has_the_waiting_tried_again() -> None:
    """The next one finds nothing, counts nothing and wakes nobody."""
    yard = Yard(nodes=2)
    try:
        assert await yard.auditor.audit() == 3
        assert series(yard.metrics, "kqueue_cache_drift_total") == {("node",): 2, ("foreign-pod",): 1}
        assert free_by_node(yard.cache.ledger)["n0"]["cpu"] == 7000
        await yard.clock.advance(1)
        assert yard.woken == 1

        assert await yard.auditor.audit() == 0
        await yard.clock.advance(1)
        assert yard.woken == 1
    finally:
        await yard.intake.close()


async def test_others_run_while_an_audit_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop has a turn after every step."""
    monkeypatch.setattr("kqueue.state.audit.STEP", 10)
    yard, turns = Yard(nodes=50), 0
    for name, node in yard.nodes.items():
        yard.cache.on_node(name, node)
    yard.cache.held.on_pod("ns/p", yard.pods["ns/p"].bound)

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    assert await yard.auditor.audit() == 0
    task.cancel()
    assert turns >= 10


async def test_room_is_shown_by_flavor_for_resources_in_quotas() -> None:
    """A node on which a stranger holds a device is not empty; one of which a DaemonSet takes CPU is.  A flavor that is
    gone has no series.
    """
    cache, metrics = make_cache(), Metrics()
    amounts = {"name": "example.com/gpu", "nominalQuota": "8"}
    groups = [{"coveredResources": ["example.com/gpu"], "flavors": [{"name": "f", "resources": [amounts]}]}]
    queue = msgspec.convert({"metadata": {"name": "q"}, "spec": {"resourceGroups": groups}}, wire.ClusterQueue)
    cache.quota.on_cluster_queue("q", queue)
    for name in ("one", "two", "three"):
        offered = {"cpu": 8000, "example.com/gpu": 4, "pods": 110}
        cache.on_node(name, NodeFacts(name=name, labels=make_node(name).labels, allocatable=offered))
    cache.held.on_pod("ns/daemon", PodFacts(node="one", requests=(("cpu", 500),)))
    gauges = RoomGauges(metrics, cache, FakeClock())

    await gauges.refresh()
    assert series(metrics, "kqueue_gang_slots") == {
        ("f", HOSTNAME, "1"): 3, ("f", "rack", "1"): 3, ("f", "rack", "2"): 1,
    }  # fmt: skip
    assert series(metrics, "kqueue_fragmentation_ratio") == {
        ("f", HOSTNAME, "example.com/gpu"): 0, ("f", "rack", "example.com/gpu"): 0,
    }  # fmt: skip

    assert series(metrics, "kqueue_gang_fragmentation_ratio") == {
        ("f", HOSTNAME, "1"): 0, ("f", "rack", "1"): 0, ("f", "rack", "2"): 0.333,
    }  # fmt: skip

    cache.held.on_pod("ns/stranger", PodFacts(node="two", requests=(("example.com/gpu", 1),)))
    await gauges.refresh()
    assert series(metrics, "kqueue_gang_slots")["f", "rack", "1"] == 2
    assert series(metrics, "kqueue_fragmentation_ratio")["f", "rack", "example.com/gpu"] == 1

    cache.ledger.on_flavor("f", None)
    await gauges.refresh()
    families = ("kqueue_gang_slots", "kqueue_fragmentation_ratio", "kqueue_gang_fragmentation_ratio")
    assert [series(metrics, family) for family in families] == [{}, {}, {}]


# --- pods that do not run --------------------------------------------------------------------------------------------


async def test_released_pods_that_do_not_run_are_counted_by_cluster_queue() -> None:
    """A ClusterQueue whose pods all run again has no series."""
    metrics = Metrics()
    status = {"admission": {"clusterQueue": "team"}}
    obj = {"metadata": {"name": "w", "namespace": "ns"}, "spec": {"podSets": []}, "status": status}
    workload = msgspec.convert(obj, wire.Workload)
    pods = [NotRunning(key=f"ns/{name}", since=FakeClock().now(), message="refused") for name in "ab"]
    gauges = PodGauges(metrics, FakeClock(), workloads=lambda: [workload, workload], not_running=lambda _: pods)
    await gauges.refresh()
    before = series(metrics, "kqueue_released_pods_not_running")
    pods.clear()
    await gauges.refresh()

    assert before == {("team",): 4}
    assert series(metrics, "kqueue_released_pods_not_running") == {}
