"""Watch events, cache and queues: which event has whom tried again, and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import structlog

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.clock import FakeClock
from kqueue.controllers.intake import Intake, IntakeSettings, IntakeState, Window
from kqueue.controllers.resources import CLUSTER_QUEUES, LOCAL_QUEUES, RESOURCE_FLAVORS, TOPOLOGIES, WORKLOADS
from kqueue.core.topology import NodeFacts, PodFacts
from kqueue.core.workload import Claim
from kqueue.model import PodView
from kqueue.model.pending import RequeueReason
from kqueue.state.holding import Holding
from kqueue.state.queue_policy import BEST_EFFORT_FIFO
from kqueue.state.wake_up import QueueLookup, WakeUp, WakeUpSource
from tests.readings import free_by_node
from tests.unit.controllers.builders import (
    JSON,
    World,
    condition,
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    make_workload,
    read,
    reserved,
)

HOST = "kubernetes.io/hostname"
LEFT = make_cluster_queue("left", cpus={"racks": 9}, cohortName="all")
RIGHT = make_cluster_queue("right", cpus={"plain": 9}, cohortName="all")
OTHER = make_cluster_queue("other", cpus={"racks": 9})
LONE = make_cluster_queue("lone", cpus={"plain": 9})
QUEUES = ("left", "right", "other", "lone")
ALL = {*QUEUES, "team"}
GATED = {"annotations": {"kueue.x-k8s.io/admission-gated-by": "example.com/x"}}


def make_facts(name: str = "h1", *, cpus: int = 8, pool: str = "gpu", ready: bool = True) -> NodeFacts:
    """A node; those of pool `gpu` belong to flavor `racks`."""
    node = {
        "metadata": {"name": name, "labels": {HOST: name, "pool": pool}},
        "status": {
            "allocatable": {"cpu": str(cpus), "pods": "110"},
            "conditions": [condition("Ready", "True" if ready else "False")],
        },
    }
    return model.node_facts(read(wire_core.Node, node))


def make_view(node: str | None = "h1", *, cpus: int = 1, gang: bool = False) -> PodView:
    """A pod on a node, of nobody we know unless it is of a `gang`."""
    marks = {"kueue.x-k8s.io/podset-required-topology": "rack", "kueue.x-k8s.io/workload": "a"} if gang else {}
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": str(cpus)}}}]}
    pod = {"metadata": {"namespace": "ns", "name": "p", "annotations": marks}, "spec": spec}
    return model.pod_view(read(wire_core.Pod, {**pod, "spec": {**spec, "nodeName": node}}))


class Yard(World):
    """Queues `left` and `right` in a cohort, `other` and `lone` without; `left` and `other` have a flavor of racks.

    In every queue a workload of its name is parked, and `holder` has a reservation in `left`.
    """

    def __init__(self) -> None:
        super().__init__(
            (TOPOLOGIES, {"metadata": {"name": "dc"}, "spec": {"levels": [{"nodeLabel": HOST}]}}),
            (RESOURCE_FLAVORS, make_flavor("racks", nodeLabels={"pool": "gpu"}, topologyName="dc")),
            (RESOURCE_FLAVORS, make_flavor("plain")),
            *((CLUSTER_QUEUES, queue) for queue in (LEFT, RIGHT, OTHER, LONE)),
            *((LOCAL_QUEUES, make_local_queue(name, cluster_queue=name)) for name in QUEUES),
        )

    async def prepare(self, *, placed: bool = False) -> None:
        """`placed`: the holder has its place by topology."""
        status = reserved(cpus=1, pods=4, queue="left")
        entry = status["admission"]["podSetAssignments"][0]
        entry["flavors"] = {"cpu": "racks"}
        if placed:
            columns = {"domainCount": 1, "valuesPerLevel": [{"universal": "h1"}], "podCounts": {"universal": 4}}
            entry["topologyAssignment"] = {"levels": [HOST], "slices": [columns]}
        self.sync()
        self.intake.on_node(None, make_facts())
        await self.clock.advance(11)
        self.add(
            make_workload("holder", queue="left", pods=4, status=status),
            *(make_workload(name, queue=name, cpus=20) for name in QUEUES),
            make_workload("team", cpus=20),
        )
        await self.clock.advance(1)
        self.park()

    def park(self) -> None:
        """Everybody who waits was tried in vain."""
        while heads := self.queues.pop_heads(lambda _: True):
            for _, item in heads:
                self.queues.requeue(item.key, RequeueReason.NO_FIT)
        self.wakes = 0

    def tried_again(self) -> set[str]:
        """The queues in which somebody has been moved back to the heap."""
        return {name for name in self.queues.names() if self.queues.counts(name)[0]}

    def change(self, name: str, patch: JSON) -> None:
        """A Workload changes, and the watch tells."""
        self.client.change(WORKLOADS, f"ns/{name}", patch)
        self.sync()

    def put(self, resource: Any, obj: JSON) -> None:
        """An object appears or is replaced, and the watch tells."""
        self.client.put(resource, obj)
        self.sync()

    def drop(self, resource: Any, key: str) -> None:
        """An object goes, and the watch tells."""
        self.client.drop(resource, key)
        self.sync()

    def cohort(self, old: JSON | None, new: JSON | None) -> None:
        """Cohort `all` changes from one spec to another; None: there is no object."""
        seen = [None if s is None else read(wire.Cohort, {"metadata": {"name": "all"}, "spec": s}) for s in (old, new)]
        self.intake.on_cohort(*seen)

    def check(self) -> None:
        """An AdmissionCheck appears."""
        obj = {"metadata": {"name": "budget"}, "spec": {"controllerName": "x"}}
        self.intake.on_check(None, read(wire.AdmissionCheck, obj))

    def namespace(self, old: dict[str, str] | None, new: dict[str, str] | None) -> None:
        """Namespace `ns` changes its labels; None: it is not there."""
        seen = [
            None if labels is None else read(wire_core.Namespace, {"metadata": {"name": "ns", "labels": labels}})
            for labels in (old, new)
        ]
        self.intake.on_namespace(*seen)


@pytest.fixture
async def yard() -> AsyncIterator[Yard]:
    world = Yard()
    yield world
    await world.close()


def finished(status: JSON) -> JSON:
    return {"status": {**status, "conditions": [*status.get("conditions", []), condition("Finished")]}}


UNRESERVED: JSON = {
    "status": {
        "admission": None,
        "conditions": [
            condition("QuotaReserved", "False", "PendingEvaluation"),
            condition("Admitted", "False", "NoReservation"),
        ],
    }
}
"""As a reservation is taken out of a status."""
HELD = reserved(queue="left")

Event = Callable[[Yard], object]

GIVEN_BACK = {
    "levels": [HOST],
    "slices": [{"domainCount": 1, "valuesPerLevel": [{"universal": "h1"}], "podCounts": {"universal": 1}}],
}


async def test_places_that_are_given_back_help_all_who_may_use_the_nodes(yard: Yard) -> None:
    """Also when the quota of the pods that stood there was given back before."""
    await yard.prepare(placed=True)
    yard.change("holder", {"status": {"reclaimablePods": [{"name": "main", "count": 1}]}})
    await yard.clock.advance(1)
    yard.park()

    yard.change("holder", {"status": {"finishedPods": [{"name": "main", "topologyAssignment": GIVEN_BACK}]}})
    await yard.clock.advance(1)

    assert yard.tried_again() == {"left", "right", "other"}


@pytest.mark.parametrize(
    ("event", "helped"),
    [
        pytest.param(lambda y: y.change("holder", finished(HELD)), {"left", "right"}, id="who held quota has finished"),
        pytest.param(lambda y: y.change("holder", {"spec": {"active": False}}), set(), id="who holds quota is switched off and has not given it back"),
        pytest.param(lambda y: y.change("holder", UNRESERVED), {"left", "right"}, id="who held quota has lost it"),
        pytest.param(lambda y: y.drop(WORKLOADS, "ns/holder"), {"left", "right"}, id="who held quota is gone"),
        pytest.param(lambda y: y.change("holder", {"status": {"reclaimablePods": [{"name": "main", "count": 2}]}}), {"left", "right"}, id="some pods of who holds quota have ended"),
        pytest.param(lambda y: y.change("holder", {"metadata": {"labels": {"a": "b"}}}), set(), id="who holds quota has changed somehow"),
        pytest.param(lambda y: y.drop(WORKLOADS, "ns/lone"), set(), id="who waited is gone, and nobody else waits there"),
        pytest.param(lambda y: y.change("left", finished({})), {"right"}, id="who waited has finished"),
        pytest.param(lambda y: y.change("left", {"spec": {"priority": 3}}), {"left"}, id="who waited wants something else"),
        pytest.param(lambda y: y.change("left", {"metadata": {"labels": {"a": "b"}}}), set(), id="who waited has changed somehow"),
        pytest.param(lambda y: y.put(CLUSTER_QUEUES, {**LEFT, "spec": {**LEFT["spec"], "stopPolicy": "Hold"}}), {"left", "right"}, id="a queue of a cohort has changed"),
        pytest.param(lambda y: y.put(CLUSTER_QUEUES, {**LEFT, "spec": {**LEFT["spec"], "cohortName": "new"}}), {"left", "right"}, id="a queue has left its cohort"),
        pytest.param(lambda y: y.put(CLUSTER_QUEUES, {**LEFT, "status": {"pendingWorkloads": 7}}), set(), id="a queue has other counts"),
        pytest.param(lambda y: y.put(CLUSTER_QUEUES, make_cluster_queue("new", cohortName="all")), {"left", "right"}, id="a queue joins a cohort"),
        pytest.param(lambda y: y.drop(CLUSTER_QUEUES, "left"), {"right"}, id="a queue of a cohort is gone"),
        pytest.param(lambda y: y.cohort(None, {}), {"left", "right"}, id="a cohort gets an object"),
        pytest.param(lambda y: y.cohort({}, {}), set(), id="a cohort has another share"),
        pytest.param(lambda y: y.change("holder", {"spec": {"priority": 5}}), {"left", "right"}, id="a workload that holds quota has another priority"),
        pytest.param(lambda y: (y.cohort(None, {"parentName": "root"}), y.cohort({"parentName": "root"}, None)), {"left", "right"}, id="a cohort loses its object"),
        pytest.param(lambda y: y.put(RESOURCE_FLAVORS, make_flavor("plain", nodeLabels={"a": "b"})), {"right", "lone"}, id="a flavor has changed"),
        pytest.param(lambda y: y.put(RESOURCE_FLAVORS, {**make_flavor("plain"), "metadata": {"name": "plain", "finalizers": ["f"]}}), set(), id="a flavor has got a finalizer"),
        pytest.param(lambda y: y.drop(RESOURCE_FLAVORS, "plain"), {"right", "lone"}, id="a flavor is gone"),
        pytest.param(lambda y: y.put(TOPOLOGIES, {"metadata": {"name": "dc"}, "spec": {"levels": [{"nodeLabel": "rack"}]}}), {"left", "other"}, id="a topology has changed"),
        pytest.param(lambda y: y.check(), ALL, id="an admission check has come"),
        pytest.param(lambda y: y.namespace({}, {"a": "b"}), ALL, id="a namespace has other labels"),
        pytest.param(lambda y: y.namespace({"a": "b"}, {"a": "b"}), set(), id="a namespace has changed somehow"),
        pytest.param(lambda y: y.namespace({}, None), set(), id="a namespace is gone"),
        pytest.param(lambda y: y.intake.on_node(None, make_facts("h2")), {"left", "other"}, id="a node has come"),
        pytest.param(lambda y: y.intake.on_node(make_facts(), make_facts(cpus=16)), {"left", "other"}, id="a node has grown"),
        pytest.param(lambda y: y.intake.on_node(make_facts(), make_facts(pool="cpu")), {"left", "other"}, id="a node has changed its pool"),
        pytest.param(lambda y: y.intake.on_node(make_facts(), make_facts()), set(), id="a node has told that it lives"),
        pytest.param(lambda y: y.intake.on_node(None, make_facts("h2", pool="cpu")), set(), id="a node of no flavor has come"),
        pytest.param(lambda y: y.put(LOCAL_QUEUES, make_local_queue("left", cluster_queue="right")), {"right"}, id="a LocalQueue points elsewhere"),
    ],
)  # fmt: skip
async def test_whom_an_event_may_help_is_tried_again(yard: Yard, event: Event, helped: set[str]) -> None:
    """Everybody whom what happened can help, and nobody else."""
    await yard.prepare()

    event(yard)
    await yard.clock.advance(1)

    assert yard.tried_again() == helped
    assert bool(yard.wakes) or not helped


RACKS, PLAIN = frozenset({"racks"}), frozenset({"plain"})
LEFT_TREE = frozenset({"left"})
CLAIM = Claim(key="ns/p", uid="p", queue="lone", usage={}, domains={"racks": ()}, victims={"v": ("right", "ns/v")})


def charged_and_released(yard: Yard) -> None:
    """A pod runs without quota, is charged, and is charged no longer."""
    yard.intake.on_pod(None, make_view("elsewhere"))
    yard.intake.charge_pod("ns/p", "ns/left")
    yard.intake.release_pod("ns/p")


@pytest.mark.parametrize(
    ("event", "after", "published"),
    [
        pytest.param(lambda y: y.change("holder", finished(HELD)), 0.0, WakeUp(source=WakeUpSource.WORKLOAD, trees_of=LEFT_TREE, nodes_of=RACKS), id="a workload has finished"),
        pytest.param(lambda y: y.change("left", {"metadata": GATED}), 0.0, WakeUp(source=WakeUpSource.WORKLOAD), id="a workload waits no longer"),
        pytest.param(lambda y: y.intake.on_claim_ended(CLAIM), 0.0, WakeUp(source=WakeUpSource.CLAIM, trees_of=frozenset({"lone", "right"}), nodes_of=RACKS), id="a claim has ended"),
        pytest.param(lambda y: y.drop(CLUSTER_QUEUES, "left"), 1.0, WakeUp(source=WakeUpSource.CLUSTER_QUEUE, cluster_queues=LEFT_TREE, trees_of=LEFT_TREE, cohorts=frozenset({"all"})), id="a ClusterQueue is gone"),
        pytest.param(lambda y: y.cohort(None, {}), 1.0, WakeUp(source=WakeUpSource.COHORT, cohorts=frozenset({"all"})), id="a Cohort has come"),
        pytest.param(lambda y: y.drop(RESOURCE_FLAVORS, "plain"), 0.0, WakeUp(source=WakeUpSource.FLAVOR, flavors=PLAIN), id="a ResourceFlavor is gone"),
        pytest.param(lambda y: y.put(RESOURCE_FLAVORS, {"metadata": {"name": "plain", "annotations": {"kqueue.dev/card-type": "x"}}}), 0.0, WakeUp(source=WakeUpSource.FLAVOR, flavors=PLAIN), id="a ResourceFlavor has another class"),
        pytest.param(lambda y: y.put(TOPOLOGIES, {"metadata": {"name": "dc"}, "spec": {"levels": [{"nodeLabel": "rack"}]}}), 0.0, WakeUp(source=WakeUpSource.TOPOLOGY, flavors=RACKS), id="a Topology has changed"),
        pytest.param(lambda y: y.check(), 0.0, WakeUp(source=WakeUpSource.CHECK, everywhere=True), id="an AdmissionCheck has come"),
        pytest.param(lambda y: y.namespace({}, {"a": "b"}), 0.0, WakeUp(source=WakeUpSource.NAMESPACE, everywhere=True), id="a Namespace has other labels"),
        pytest.param(lambda y: y.intake.on_node(None, make_facts("h2")), 0.0, WakeUp(source=WakeUpSource.NODE, flavors=RACKS), id="a Node has come"),
        pytest.param(lambda y: (y.intake.on_pod(None, make_view()), y.intake.on_pod(make_view(), None)), 10.0, WakeUp(source=WakeUpSource.FOREIGN_POD, flavors=RACKS), id="a foreign pod has left"),
        pytest.param(charged_and_released, 1.0, WakeUp(source=WakeUpSource.CHARGED_POD, trees_of=LEFT_TREE), id="a pod is charged no longer"),
        pytest.param(lambda y: y.intake.retry_all(), 0.0, WakeUp(source=WakeUpSource.AUDIT, everywhere=True), id="an audit has corrected the state"),
    ],
)  # fmt: skip
async def test_each_source_publishes_its_wake_up(
    yard: Yard, event: Event, after: float, published: WakeUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All sources but the end of a pause, which the alarm of the scheduling loop publishes."""
    await yard.prepare(placed=True)
    seen: list[WakeUp] = []
    interpret = yard.queues.helped_by

    def helped_by(wake_up: WakeUp, lookup: QueueLookup) -> frozenset[str]:
        seen.append(wake_up)
        return interpret(wake_up, lookup)

    monkeypatch.setattr(yard.queues, "helped_by", helped_by)
    event(yard)
    await yard.clock.advance(after)

    assert set(seen) == {published}


async def test_freed_nodes_help_every_queue_that_uses_them(yard: Yard) -> None:
    """A gang that had its place by topology gives it back to other cohorts too."""
    await yard.prepare(placed=True)

    yard.change("holder", finished({}))
    await yard.clock.advance(1)

    assert yard.tried_again() == {"left", "right", "other"}


async def test_freed_nodes_help_queues_of_other_flavors_with_the_same_nodes(yard: Yard) -> None:
    """A second flavor has the same hosts by another Topology; what leaves one of them leaves room in both."""
    yard.put(TOPOLOGIES, {"metadata": {"name": "twin"}, "spec": {"levels": [{"nodeLabel": HOST}]}})
    yard.put(RESOURCE_FLAVORS, make_flavor("twin", nodeLabels={"pool": "gpu"}, topologyName="twin"))
    yard.put(CLUSTER_QUEUES, make_cluster_queue("lone", cpus={"twin": 10}))
    await yard.prepare(placed=True)

    yard.change("holder", finished({}))
    await yard.clock.advance(1)

    assert yard.tried_again() == {"left", "right", "other", "lone"}


async def test_what_happens_in_one_window_is_one_flush(yard: Yard) -> None:
    """Nobody is moved before its end; then all together, with one wake."""
    await yard.prepare()
    yard.change("holder", finished({}))
    await yard.clock.advance(0.5)
    yard.client.put(RESOURCE_FLAVORS, make_flavor("plain", nodeLabels={"a": "b"}))
    yard.sync()
    assert yard.tried_again() == set()
    yard.wakes = 0

    await yard.clock.advance(0.5)

    assert yard.tried_again() == {"left", "right", "lone"}
    assert yard.wakes <= 2  # the queues tell, and so does the flush


async def test_whose_namespace_may_not_use_the_queue_stays_parked(yard: Yard) -> None:
    """A flush asks again whether the namespace is there and matches."""
    await yard.prepare()
    yard.namespaces.clear()

    yard.change("holder", finished({}))
    await yard.clock.advance(1)

    assert yard.tried_again() == set()


# --- workloads -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "workload",
    [
        pytest.param(make_workload("new", metadata=GATED), id="another controller holds it back"),
        pytest.param(make_workload("new", active=False), id="it is switched off"),
        pytest.param(make_workload("new", status={"conditions": [condition("QuotaReserved", "False", "OnHold")]}), id="its job has put it on hold"),
        pytest.param(make_workload("new", status={"conditions": [condition("Finished")]}), id="it has finished"),
        pytest.param(make_workload("new", status=reserved()), id="it is reserved"),
        pytest.param(make_workload("new", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["f"]}), id="it is going"),
    ],
)  # fmt: skip
async def test_only_what_waits_is_queued(yard: Yard, workload: JSON) -> None:
    """Whatever need not be tried stands in no queue, from the first or from the moment that it is so."""
    yard.add(workload)
    assert not yard.queues.is_known("ns/new")
    yard.drop(WORKLOADS, "ns/new")
    yard.add(make_workload("new"))
    assert yard.queues.is_known("ns/new")

    yard.add(workload)

    assert not yard.queues.is_known("ns/new")


async def test_a_reservation_that_is_seen_is_charged_until_its_end(yard: Yard) -> None:
    """Also one that another replica has written; it is counted once."""
    yard.add(make_workload("a", pods=4, status=reserved(pods=4)))
    yard.change("a", {"metadata": {"labels": {"a": "b"}}})
    assert yard.free() == 6

    yard.change("a", finished({}))

    assert (yard.free(), yard.queues.is_known("ns/a")) == (10, False)


async def test_who_lost_its_reservation_is_queued_at_once(yard: Yard) -> None:
    """It need not wait for a flush."""
    yard.add(make_workload("a", status=reserved()))

    yard.change("a", UNRESERVED)

    assert (yard.free(), yard.queues.counts("team")) == (10, (1, 0))


async def test_an_old_event_of_one_that_is_being_admitted_is_passed_over(yard: Yard) -> None:
    """Pending in the watch's picture, charged in ours: it stays charged, and in no queue."""
    yard.add(make_workload("a"))
    obj: wire.Workload = read(wire.Workload, make_workload("a", status=reserved()))
    with yard.cache.held.assumed(_assumed(obj)):
        yard.queues.settle("ns/a")
        yard.change("a", {"metadata": {"labels": {"a": "b"}}})

        assert (yard.free(), yard.queues.is_known("ns/a")) == (9, False)


def _assumed(obj: wire.Workload) -> Holding:
    admission = model.admission(obj)
    assert admission is not None
    return Holding(
        key=model.workload_key(obj),
        uid=obj.metadata.uid,
        local_queue=model.local_queue_key(obj),
        admission=admission,
        requests={},
        admitted=False,
        assumed=True,
    )


def make_local_queue_that_goes() -> JSON:
    queue = make_local_queue()
    return {**queue, "metadata": {**queue["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}


@pytest.mark.parametrize(
    "closed", [make_local_queue(stopPolicy="Hold"), make_local_queue_that_goes()], ids=["stopped", "being-deleted"]
)
async def test_a_closed_local_queue_withdraws_its_workloads(yard: Yard, closed: JSON) -> None:
    """They are known and offered again when it is open again, without a flush."""
    yard.add(make_workload("a"))
    yard.put(LOCAL_QUEUES, closed)
    assert (yard.queues.counts("team"), yard.queues.is_known("ns/a")) == ((0, 0), True)
    yard.wakes = 0

    yard.put(LOCAL_QUEUES, make_local_queue())

    assert yard.queues.counts("team") == (1, 0)
    assert yard.wakes > 0


# --- nodes and foreign pods ------------------------------------------------------------------------------------------


def free_cpus(yard: Yard) -> int:
    return free_by_node(yard.cache.ledger)["h1"]["cpu"] // 1000


@pytest.mark.mechanism("3.9")
async def test_foreign_pods_take_room_and_what_they_free_is_looked_at_later(yard: Yard) -> None:
    """The ledger follows at once; the queues that use the node hear of it after the drain, because such pods come and go."""
    await yard.prepare()
    yard.intake.on_pod(None, make_view(cpus=3))
    assert (free_cpus(yard), yard.cache.ledger.flavors_of("h1")) == (5, ["racks"])

    yard.intake.on_pod(make_view(cpus=3), None)
    await yard.clock.advance(10)

    assert (free_cpus(yard), yard.tried_again()) == (8, set())
    await yard.clock.advance(1)
    assert yard.tried_again() == {"left", "other"}


@pytest.mark.parametrize(
    ("old", "new", "left"),
    [
        pytest.param(None, make_view(cpus=3), 5, id="a pod has come"),
        pytest.param(make_view(cpus=3), make_view(cpus=3), 5, id="a pod has changed somehow"),
        pytest.param(None, make_view(None), 8, id="a pod has no node yet"),
        pytest.param(None, make_view(gang=True), 7, id="a pod that names a Workload which holds nothing"),
        pytest.param(make_view(node="elsewhere"), None, 8, id="a pod has left a node that nobody uses"),
    ],
)
async def test_what_frees_nothing_wakes_nobody(yard: Yard, old: PodView | None, new: PodView | None, left: int) -> None:
    """The ledger is right, and nobody is tried again."""
    await yard.prepare()
    if old is not None:
        yard.intake.on_pod(None, old)
    yard.intake.on_pod(old, new)
    await yard.clock.advance(20)

    assert (free_cpus(yard), yard.tried_again()) == (left, set())


async def test_a_pod_that_shrinks_frees_something(yard: Yard) -> None:
    """Its requests may change while it runs."""
    await yard.prepare()
    yard.intake.on_pod(None, make_view(cpus=3))

    yard.intake.on_pod(make_view(cpus=3), make_view(cpus=1))
    await yard.clock.advance(11)

    assert (free_cpus(yard), yard.tried_again()) == (7, {"left", "other"})


def test_a_pod_is_taken_in_with_the_workload_that_it_names() -> None:
    """The intake gets a pod's node, its requests, and the Workload that may account for them."""
    assert make_view(cpus=3).bound == PodFacts(node="h1", requests=(("cpu", 3000),))
    assert make_view(gang=True).bound == PodFacts(node="h1", requests=(("cpu", 1000),), workload="ns/a")


# --- windows ---------------------------------------------------------------------------------------------------------


async def test_a_window_hands_over_what_it_collected_and_opens_anew() -> None:
    """Its time runs from the first name; a later name waits for a window of its own."""
    clock = FakeClock()
    seen: list[frozenset[str]] = []
    window = Window(clock, lambda: 1.0, seen.append)
    window.add([])
    await clock.advance(0)
    assert clock.next_wake() is None
    window.add(["a"])
    await clock.advance(0.9)
    window.add(["b", "a"])
    await clock.advance(0.1)
    assert seen == [{"a", "b"}]

    window.add(["c"])
    await clock.advance(0.9)
    assert seen == [{"a", "b"}]
    await clock.advance(0.1)
    assert seen == [{"a", "b"}, {"c"}]


async def test_a_closed_window_acts_no_more() -> None:
    """What it holds is dropped."""
    clock = FakeClock()
    seen: list[frozenset[str]] = []
    window = Window(clock, lambda: 1.0, seen.append)
    window.add(["a"])
    await asyncio.sleep(0)

    await window.close()
    await clock.advance(2)

    assert seen == []


async def test_a_bug_in_one_window_does_not_close_the_next() -> None:
    """It is told, and what comes later has its turn."""
    clock = FakeClock()
    seen: list[frozenset[str]] = []

    def act(names: frozenset[str]) -> None:
        if "bad" in names:
            raise ZeroDivisionError
        seen.append(names)

    window = Window(clock, lambda: 1.0, act)
    window.add(["bad"])
    with structlog.testing.capture_logs() as told:
        await clock.advance(1)
    window.add(["good"])
    await clock.advance(1)

    assert seen == [{"good"}]
    assert [line["log_level"] for line in told] == ["error"]


@pytest.mark.parametrize(
    ("claim", "helped"),
    [
        pytest.param(Claim(key="ns/p", uid="p", queue="lone", usage={}, victims={}), {"lone"}, id="its-own-tree"),
        pytest.param(
            Claim(key="ns/p", uid="p", queue="lone", usage={}, victims={"v": ("right", "ns/v")}),
            {"lone", "left", "right"},
            id="the-trees-of-its-victims",
        ),
        pytest.param(
            Claim(key="ns/p", uid="p", queue="lone", usage={}, domains={"racks": ()}, victims={}),
            {"lone", "left", "other"},
            id="who-shares-its-hosts",
        ),
    ],
)
async def test_the_end_of_a_claim_helps_whoever_may_want_what_it_kept(
    yard: Yard, claim: Claim, helped: set[str]
) -> None:
    """Quota goes to its tree, hosts to all who have their flavor, and its victims may come back."""
    await yard.prepare()

    yard.intake.on_claim_ended(claim)
    await yard.clock.advance(1)

    assert yard.tried_again() == helped
    assert yard.wakes > 0


@pytest.mark.parametrize(
    ("took", "window", "want"),
    [
        pytest.param(None, 1.0, 1.0, id="nobody knows what tries cost: the whole window"),
        pytest.param(0.0, 1.0, 0.02, id="tries cost nothing: what ends together is collected"),
        pytest.param(0.1, 1.0, 0.2, id="tries cost something: twice that"),
        pytest.param(0.6, 1.0, 1.0, id="tries cost much: the whole window"),
        pytest.param(0.0, 0.01, 0.01, id="a shorter window is kept"),
    ],
)
async def test_flushes_come_as_often_as_tries_are_cheap(took: float | None, window: float, want: float) -> None:
    """What tries took since the last flush began to be collected decides when the next one comes; then it counts anew."""
    world, spent = World(), [0.0]
    tries = None if took is None else lambda: spent[0]
    flushed: list[float] = []
    world.queues.flush = lambda *_: len(flushed.append(world.clock.monotonic()) or ())  # type: ignore[method-assign, func-returns-value]
    intake = Intake(
        IntakeState(cache=world.cache, queues=world.queues),
        namespace_labels=world.namespaces.get,
        wake=lambda: None,
        clock=world.clock,
        settings=IntakeSettings(flush_window=window),
        tries=tries,
    )
    world.queues.set_cluster_queue("team", BEST_EFFORT_FIFO)
    check = read(wire.AdmissionCheck, {"metadata": {"name": "budget"}})
    for pause in (want, want if took is None else min(window, 0.02)):
        begun = world.clock.monotonic()
        intake.on_check(None, check)
        spent[0] = spent[0] or took or 0.0
        await world.clock.advance(2)
        assert flushed.pop() - begun == pytest.approx(pause)
        assert flushed == []
    await intake.close()
    await world.close()
