"""Pods of an elastic job are released up to what its newest admitted slice has, and no further."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.clock import FakeClock
from kqueue.controllers.elastic_excess import ElasticExcess
from kqueue.controllers.elastic_ungater import ElasticUngater, elastic_releases
from kqueue.controllers.resources import PODS, WORKLOADS
from kqueue.controllers.short_stop import PodStop
from kqueue.errors import ApiError, ConflictError, ServerError, UnreachableError
from kqueue.model import PodView, pod_view
from kqueue.runtime.controller import Result
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.store import Store
from tests.unit.controllers.builders import EARLIER, JSON, condition, make_workload
from tests.unit.controllers.fakes import FakeClient, FakeRecorder
from tests.unit.jobs.builders import prefixed

GATE = "kueue.x-k8s.io/elastic-job"
CONSUMES = "autoscaling.x-k8s.io/consume-provisioning-request"
ADMITTED = (condition("QuotaReserved"), condition("Admitted"))


def slice_of(
    name: str,
    count: int,
    *conditions: JSON,
    origin: str = "a",
    replaces: str = "",
    minute: int = 0,
    admitted_pods: int | None = None,
    metadata: JSON | None = None,
    **status: Any,
) -> JSON:
    """A slice of one pod set, admitted unless said otherwise."""
    annotations = prefixed(elastic_job="true", workload_slice_name=origin)
    if replaces:
        annotations |= prefixed(workload_slice_replacement_for=f"ns/{replaces}")
    assigned = {"name": "main", "count": count if admitted_pods is None else admitted_pods}
    return make_workload(
        name,
        pods=count,
        minute=minute,
        metadata={"annotations": annotations, **(metadata or {})},
        status={
            "conditions": list(conditions or ADMITTED),
            "admission": {"clusterQueue": "team", "podSetAssignments": [assigned]},
            **status,
        },
    )


def pod(
    name: str,
    *,
    gates: tuple[str, ...] = (GATE,),
    phase: str = "Pending",
    marks: JSON | None = None,
    annotations: JSON | None = None,
    pod_set: str = "main",
    deleted: bool = False,
    owner: str = "",
    **spec: Any,
) -> JSON:
    """A pod of the job of slice `a`; released without `gates`."""
    marks = prefixed(workload="a", workload_slice_name="a") if marks is None else marks
    metadata: JSON = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-of-{name}",
        "labels": prefixed(podset=pod_set),
        "annotations": marks | (annotations or {}),
    }
    if deleted:
        metadata |= {"deletionTimestamp": EARLIER, "finalizers": ["held"]}
    if owner:
        metadata["ownerReferences"] = [owned_by(owner)]
    held = {"schedulingGates": [{"name": gate} for gate in gates]} if gates else {}
    return {"metadata": metadata, "spec": {"containers": [], **held, **spec}, "status": {"phase": phase}}


def owned_by(uid: str) -> JSON:
    return {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": uid, "controller": True}


class World:
    """Pods and Workloads of one namespace, and who releases them."""

    def __init__(self, *objects: JSON) -> None:
        self.clock, self.client = FakeClock(), FakeClient()
        self.pods: Store[PodView] = Store("pods")
        self.workloads: Store[wire.Workload] = Store("workloads")
        self.told = 0
        self.on_told: Callable[[int], None] = lambda _pods: None
        self.recorder = FakeRecorder()
        book: StatusWriter[wire.Workload] = StatusWriter(
            self.client,
            WORKLOADS,
            store=self.workloads,
            decode=wire.Workload,
            key_of=model.workload_key,
            version_of=lambda workload: workload.metadata.resource_version,
        )
        stop = PodStop(self.client, self.recorder)
        self.ungater = ElasticUngater(
            workloads=self.workloads,
            book=book,
            pods=self.pods,
            releases=elastic_releases(self.client, self.pods, self.clock),
            excess=ElasticExcess(client=self.client, stop=stop, clock=self.clock),
            on_released=lambda _workload, pods: self._tell(pods),
        )
        self.pods.subscribe(lambda old, new: self._see(old, new))
        self.client.watch(PODS, self.pods, lambda obj: pod_view(msgspec.convert(obj, wire_core.Pod)))
        self.client.watch(WORKLOADS, self.workloads, lambda obj: msgspec.convert(obj, wire.Workload))
        for obj in objects:
            self.client.put(WORKLOADS if "podSets" in obj["spec"] else PODS, obj)
        self.client.sync()

    def _tell(self, pods: int) -> None:
        self.told += pods
        self.on_told(pods)

    def _see(self, old: PodView | None, new: PodView | None) -> None:
        self.ungater.observe_pod(old, new)

    async def step(self, *, late: bool = False) -> list[str]:
        """One reconcile; names of the pods that it released.  `late`: the watch does not bring them."""
        before = len(self.client.writes())
        self.result = await self.ungater.reconcile("ns/a")
        released = [str(call).removeprefix("patch pods ns/") for call in self.client.writes()[before:]]
        if not late:
            self.client.sync()
        return sorted(released)

    def pod(self, name: str) -> JSON:
        found = self.client.object(PODS, f"ns/{name}")
        assert found is not None
        return found


@pytest.fixture
async def worlds() -> AsyncIterator[list[World]]:
    made: list[World] = []
    yield made
    for world in made:
        await world.client.close()


GATED = [pod(f"p{i}") for i in range(5)]


@pytest.mark.parametrize(
    ("objects", "released"),
    [
        pytest.param([slice_of("a", 3)], ["p0", "p1", "p2"], id="lowest-names-first"),
        pytest.param([], [], id="1-no-slice"),
        pytest.param([slice_of("a", 3, condition("QuotaReserved"))], [], id="1-a-reservation-is-not-enough"),
        pytest.param([slice_of("a", 3, *ADMITTED, condition("Evicted"))], [], id="1-evicted"),
        pytest.param([slice_of("a", 3, *ADMITTED, condition("Finished"))], [], id="1-finished"),
        pytest.param(
            [slice_of("a", 3, metadata={"deletionTimestamp": EARLIER, "finalizers": ["x"]})], [], id="1-being-deleted"
        ),
        pytest.param(
            [slice_of("a", 2), slice_of("b", 4, replaces="a", minute=1)], ["p0", "p1", "p2", "p3"], id="1-the-newest"
        ),
        pytest.param(
            [slice_of("z", 2), slice_of("b", 4, replaces="z")], ["p0", "p1", "p2", "p3"], id="1-newest-of-one-second"
        ),
        pytest.param(
            [slice_of("a", 2), slice_of("b", 4, condition("QuotaReserved"), replaces="a", minute=1)],
            ["p0", "p1"],
            id="1-the-newest-waits-for-checks",
        ),
        pytest.param([slice_of("c", 2)], ["p0", "p1"], id="2-the-origin-is-gone"),
        pytest.param([slice_of("a", 2, origin="x")], [], id="2-another-chain"),
        pytest.param([slice_of("a", 4, admitted_pods=2)], ["p0", "p1"], id="3-never-more-than-admitted"),
        pytest.param([slice_of("a", 2, admitted_pods=4)], ["p0", "p1"], id="3-scaled-down-since"),
        pytest.param(
            [slice_of("a", 4, reclaimablePods=[{"name": "main", "count": 1}])],
            ["p0", "p1", "p2"],
            id="3-what-was-given-back-is-not-there",
        ),
    ],
)
async def test_how_many(worlds: list[World], objects: list[JSON], released: list[str]) -> None:
    """Five gated pods; each rule of which slice counts, and how much of it."""
    worlds.append(world := World(*objects, *GATED))
    assert await world.step() == released
    assert (await world.step(), world.told) == ([], len(released))


@pytest.mark.parametrize(
    ("pods", "released"),
    [
        pytest.param([pod("p0", gates=()), pod("p1"), pod("p2"), pod("p3")], ["p1", "p2"], id="a-released-one-counts"),
        pytest.param(
            [pod("p0", gates=(), phase="Failed"), pod("p1", gates=(), phase="Succeeded"), pod("p2")],
            ["p2"],
            id="ended-ones-do-not-count",
        ),
        pytest.param([pod(f"p{i}", gates=()) for i in range(4)] + [pod("p9")], [], id="too-many-already"),
        pytest.param(
            [pod(f"p{i}", gates=(), deleted=True) for i in range(3)] + [pod("p9")], [], id="until-it-is-gone-it-counts"
        ),
        pytest.param([pod("p0", deleted=True), pod("p1")], ["p1"], id="one-on-its-way-out-is-left-alone"),
        pytest.param([pod("p0", marks=prefixed(workload="a"))], ["p0"], id="found-by-its-workload"),
        pytest.param([pod("p0", marks=prefixed(workload="b"))], [], id="of-another-workload"),
        pytest.param([pod("p0", marks={})], [], id="of-nobody"),
        pytest.param([pod("p0", pod_set="other")], [], id="of-another-pod-set"),
        pytest.param(
            [pod("p0", gates=(GATE, "kueue.x-k8s.io/topology")), pod("p1")], ["p1"], id="placed-first-then-released"
        ),
        pytest.param([pod("p0", gates=(GATE, "example.com/mine"))], ["p0"], id="a-gate-of-somebody-else"),
    ],
)
async def test_which_pods(worlds: list[World], pods: list[JSON], released: list[str]) -> None:
    """A slice of three, and pods in every state."""
    worlds.append(world := World(slice_of("a", 3), *pods))
    assert await world.step() == released
    for name in released:
        assert GATE not in [g["name"] for g in world.pod(name)["spec"].get("schedulingGates", [])]


async def test_gates_of_others_stay(worlds: list[World]) -> None:
    """Only ours is taken off."""
    worlds.append(world := World(slice_of("a", 1), pod("p0", gates=("example.com/mine", GATE))))
    await world.step()
    assert world.pod("p0")["spec"]["schedulingGates"] == [{"name": "example.com/mine"}]


async def test_a_stranger_who_borrows_the_name_takes_no_place(worlds: list[World]) -> None:
    """Pods of another Job are neither released nor counted."""
    owner = {"ownerReferences": [owned_by("mine")]}
    strangers = [pod("p0", owner="other"), pod("p1", owner="other", gates=())]
    worlds.append(world := World(slice_of("a", 1, metadata=owner), *strangers, pod("p2", owner="mine")))
    assert await world.step() == ["p2"]


async def test_what_checks_ask_for_comes_with_the_release(worlds: list[World]) -> None:
    """Two annotations and node selectors; a pod that says otherwise stays gated, and the next one goes in its place."""
    update = {"name": "main", "annotations": {CONSUMES: "r", "other": "x"}, "nodeSelector": {"pool": "new"}}
    checks = [
        {"name": "prov", "state": "Ready", "lastTransitionTime": EARLIER, "message": "", "podSetUpdates": [update]}
    ]
    pods = [
        pod("p0", annotations={CONSUMES: "old"}),
        pod("p1", nodeSelector={"pool": "old"}),
        pod("p2", annotations={CONSUMES: "r"}, nodeSelector={"arch": "x"}),
        pod("p3"),
    ]
    worlds.append(world := World(slice_of("a", 2, admissionChecks=checks), *pods))

    assert await world.step() == ["p2", "p3"]
    assert world.pod("p2")["spec"]["nodeSelector"] == {"arch": "x", "pool": "new"}
    assert world.pod("p3")["metadata"]["annotations"] == prefixed(workload="a", workload_slice_name="a") | {
        CONSUMES: "r"
    }


async def test_nothing_more_is_released_before_the_last_was_seen(worlds: list[World]) -> None:
    """A new pod waits until the watch has brought what was released, or the wait for it has run out."""
    worlds.append(world := World(slice_of("a", 2), pod("p5")))
    assert await world.step(late=True) == ["p5"]
    world.workloads.put("ns/a", msgspec.convert(slice_of("a", 3), wire.Workload))

    assert await world.step(late=True) == []
    assert world.result == Result(requeue_after=1.0)
    world.client.sync()
    assert await world.step() == []
    assert world.result == Result()


@pytest.mark.parametrize("error", [ConflictError("changed", status=409), ServerError("down", status=500)])
async def test_a_release_that_fails_is_tried_again(worlds: list[World], error: ApiError) -> None:
    """The error is the reconcile's; no other pod is released while the patch may have been accepted."""
    worlds.append(world := World(slice_of("a", 1), *GATED))
    world.client.fail(error)
    world.client.fail(UnreachableError("cut"), verb="get")

    with pytest.raises(type(error)):
        await world.step(late=True)
    assert await world.step(late=True) == []
    await world.clock.advance(61)
    assert await world.step() == ["p0"]


async def test_a_release_that_a_failing_server_did_not_store_is_tried_again_at_once(worlds: list[World]) -> None:
    """The pod's version in the API server shows that no event will come."""
    worlds.append(world := World(slice_of("a", 1), *GATED))
    world.client.fail(ServerError("down", status=500))

    with pytest.raises(ServerError):
        await world.step(late=True)

    assert await world.step(late=True) == ["p0"]


async def test_a_pod_that_changes_while_others_are_released_waits_for_its_own_event(worlds: list[World]) -> None:
    """A patch for the version that was read would only make a conflict."""
    worlds.append(world := World(slice_of("a", 9), *(pod(f"p{n}") for n in range(9))))

    def change_last(_pods: int) -> None:
        if "seen" not in world.pod("p8")["metadata"]["annotations"]:
            world.client.change(PODS, "ns/p8", {"metadata": {"annotations": {"seen": "later"}}})
            world.client.sync()

    world.on_told = change_last

    assert await world.step() == [f"p{n}" for n in range(8)]
    assert await world.step() == ["p8"]


@pytest.mark.parametrize("known", [pytest.param(True, id="gated for our watch"), pytest.param(False, id="unheard of")])
async def test_pods_that_another_leader_has_released_are_counted(worlds: list[World], known: bool) -> None:
    """By the watch alone there would be room for one more than the slice has; it is looked at once."""
    worlds.append(world := World(slice_of("a", 2), pod("p0"), pod("p1"), *([pod("p9")] if known else [])))
    world.client.put(PODS, pod("p9", gates=()))

    assert await world.step(late=True) == []
    assert world.result == Result(requeue_after=1.0)
    world.client.sync()
    assert await world.step() == ["p0"]
    world.client.put(PODS, pod("p8", gates=()))
    world.ungater.begin()
    world.workloads.put("ns/a", msgspec.convert(slice_of("a", 4), wire.Workload))
    assert await world.step(late=True) == []
    world.client.sync()
    assert await world.step() == ["p1"]
    assert [str(call) for call in world.client.calls if call.verb == "list"] == ["list pods ns"] * 2


async def test_who_stands(worlds: list[World]) -> None:
    """Released pods that have not ended, by pod set."""
    pods = [pod("p0", gates=()), pod("p1"), pod("p2", gates=(), phase="Failed"), pod("p3", gates=(), pod_set="w")]
    worlds.append(world := World(*pods))
    assert world.ungater.standing("ns/a") == {"main": 1, "w": 1}


# --- pods whose gates somebody else has removed

OWNER = {"labels": prefixed(job_uid="job"), "ownerReferences": [owned_by("job")]}
FREE = [pod(f"p{i}", gates=()) for i in range(5)]
BY_TOPOLOGY = [pod("p3", gates=("kueue.x-k8s.io/topology",)), pod("p4", gates=("other",))]


def waits(name: str, count: int, **more: Any) -> JSON:
    """A slice that waits for quota."""
    return slice_of(name, count, condition("QuotaReserved", "False"), minute=1, metadata=OWNER, **more)


@pytest.mark.parametrize(
    ("objects", "pods", "stopped"),
    [
        pytest.param([waits("b", 5, replaces="a")], FREE, ["p3", "p4"], id="the-last-by-name-beyond-what-was-admitted"),
        pytest.param([waits("b", 5, replaces="a")], FREE[:3] + BY_TOPOLOGY, [], id="held-by-another-gate"),
        pytest.param([waits("b", 5, replaces="a")], [*FREE[:3], pod("p3"), pod("p4")], [], id="held-by-ours"),
        pytest.param([], FREE, [], id="it-shrinks-and-its-controller-chooses"),
        pytest.param(
            [waits("b", 5, replaces="a")],
            [*FREE[:3], pod("p3", gates=(), deleted=True), pod("p4", gates=(), deleted=True)],
            [],
            id="they-are-on-their-way-out",
        ),
        pytest.param(
            [slice_of("b", 5, replaces="a", minute=1, metadata=OWNER)], FREE, [], id="the-new-slice-was-admitted"
        ),
    ],
)
async def test_pods_beyond_what_was_admitted_are_stopped(
    worlds: list[World], objects: list[JSON], pods: list[JSON], stopped: list[str]
) -> None:
    """Whoever may write pods may take their gates away; the third pod is the last that was paid for."""
    worlds.append(world := World(slice_of("a", 3, metadata=OWNER), *objects, *pods))
    await world.step()
    await world.clock.advance(1)
    await world.step()
    deleted = [call for call in world.client.writes() if call.verb == "delete"]

    assert [call.key for call in deleted] == [f"ns/{name}" for name in stopped]
    assert all(call.body == {"gracePeriodSeconds": 5} for call in deleted)
    assert world.recorder.events == [(f"Pod {name}", "Stopped") for name in stopped]


async def test_an_admission_that_the_watch_has_not_brought_stops_nobody(worlds: list[World]) -> None:
    """Another leader has admitted the new slice and released its pods: the Workloads are read before a stop."""
    worlds.append(world := World(slice_of("a", 3, metadata=OWNER), waits("b", 5, replaces="a"), *FREE))
    world.client.put(WORKLOADS, slice_of("b", 5, replaces="a", minute=1, metadata=OWNER))
    await world.step(late=True)
    await world.clock.advance(1)
    await world.step(late=True)

    assert [call for call in world.client.writes() if call.verb == "delete"] == []
