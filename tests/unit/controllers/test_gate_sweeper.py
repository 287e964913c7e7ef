"""Gated pods that nobody will release are found, told once, counted while they last, and left as they are."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.clock import FakeClock
from kqueue.controllers.gate_sweeper import SIBLINGS_INDEX, GateSweeper
from kqueue.controllers.held_pods import Sweep
from kqueue.model import PodView
from kqueue.runtime.store import Store
from tests.unit.controllers.builders import EARLIER, JSON, condition
from tests.unit.controllers.fakes import FakeRecorder
from tests.unit.jobs.builders import prefixed

GATE = "kueue.x-k8s.io/topology"
AFTER, INTERVAL = 300.0, 60.0
NONE = {"workload_gone": 0, "workload_finished": 0, "not_owned": 0}
PLACE = {"levels": ["rack"], "slices": []}


def owner(uid: str = "j1", kind: str = "Job") -> JSON:
    return {"apiVersion": "batch/v1", "kind": kind, "name": "j", "uid": uid, "controller": True}


def make_pod(
    name: str = "p",
    *,
    uid: str = "u",
    gates: tuple[str, ...] = (GATE,),
    controller: JSON | None = None,
    phase: str = "Pending",
    deleted: bool = False,
    **marks: str,
) -> PodView:
    """A pod of Workload `a` that is gated."""
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": uid,
        "labels": prefixed(podset="main"),
        "annotations": prefixed(podset_required_topology="rack", **{"workload": "a", **marks}),
        "ownerReferences": [controller or owner()],
        **({"deletionTimestamp": EARLIER} if deleted else {}),
    }
    spec = {"schedulingGates": [{"name": gate} for gate in gates]}
    return model.pod_view(
        msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": phase}}, wire_core.Pod)
    )


def make_workload(
    *conditions: JSON,
    name: str = "a",
    job: JSON | None = None,
    pod_set: str = "main",
    assigned: JSON | None = None,
    annotations: JSON | None = None,
) -> wire.Workload:
    """A Workload of one pod set; `assigned` is what that got."""
    metadata = {
        "name": name, "namespace": "ns", "uid": name, "annotations": annotations or {},
        "ownerReferences": [job or owner()],
    }  # fmt: skip
    status: JSON = {"conditions": list(conditions)}
    if assigned is not None:
        status["admission"] = {"clusterQueue": "team", "podSetAssignments": [{"name": pod_set, **assigned}]}
    spec = {"podSets": [{"name": pod_set, "count": 1, "template": {"spec": {}}}]}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, wire.Workload)


class Floor:
    """Pods and Workloads, and who sweeps."""

    def __init__(self, *objects: Any) -> None:
        self.clock, self.recorder = FakeClock(), FakeRecorder()
        self.pods: Store[PodView] = Store("pods")
        self.workloads: Store[wire.Workload] = Store("workloads")
        self.workloads.add_index(SIBLINGS_INDEX, lambda workload: [model.siblings_key(workload)])
        self.leaked: dict[str, int] = {}
        self.sweeper = GateSweeper(
            pods=self.pods,
            workloads=self.workloads,
            recorder=self.recorder,
            sweep=Sweep(clock=self.clock, after=AFTER, interval=INTERVAL, report=self.leaked.update),
        )
        for obj in objects:
            self.put(obj)

    def put(self, obj: PodView | wire.Workload) -> None:
        if isinstance(obj, wire.Workload):
            self.workloads.put(model.workload_key(obj), obj)
        else:
            self.pods.put(obj.key, obj)

    async def sweep(self, seconds: float = 0.0) -> None:
        """One look, so much later."""
        await self.clock.advance(seconds)
        await self.sweeper.sweep()

    async def sweep_past_the_limit(self) -> None:
        await self.sweep()
        await self.sweep(AFTER)


FINISHED = condition("Finished")
ADMITTED = condition("Admitted")
PLACED = {"topologyAssignment": PLACE}


@pytest.mark.parametrize(
    ("workloads", "reason", "words"),
    [
        pytest.param([], "workload_gone", "Workload a does not exist", id="its Workload is gone"),
        pytest.param([make_workload(name="b")], "workload_gone", "Workload a does not exist", id="only another's is there"),
        pytest.param([make_workload(FINISHED)], "workload_finished", "Workload a has finished", id="its Workload has finished"),
        pytest.param([make_workload(job=owner("j2"))], "not_owned", "Workload a does not place it", id="the Workload is another Job's now"),
        pytest.param([make_workload(pod_set="other")], "not_owned", "Workload a does not place it", id="the Workload has no such pod set"),
        pytest.param([make_workload(ADMITTED, assigned={})], "not_owned", "Workload a does not place it", id="the Workload is admitted without a place for it"),
    ],
)  # fmt: skip
async def test_a_pod_that_nobody_will_release_is_told(workloads: list[wire.Workload], reason: str, words: str) -> None:
    """By a Warning on the pod that says why, and in the count of its reason, once it has lasted for the limit."""
    floor = Floor(make_pod(), *workloads)
    await floor.sweep()
    await floor.sweep(AFTER - 1)
    before = dict(floor.leaked), list(floor.recorder.events)
    await floor.sweep(1)

    assert before == (NONE, [])
    assert floor.leaked == NONE | {reason: 1}
    assert (floor.recorder.events, floor.recorder.warnings) == (
        [("Pod p", "TopologyGateLeaked")],
        ["TopologyGateLeaked"],
    )
    assert f"{words}, for 300 s" in floor.recorder.messages[0]


@pytest.mark.parametrize(
    ("pod", "workload"),
    [
        pytest.param(make_pod(), make_workload(), id="its Workload waits in its queue"),
        pytest.param(make_pod(), make_workload(ADMITTED, assigned=PLACED), id="its Workload is admitted with a place for it"),
        pytest.param(make_pod(), make_workload(condition("Admitted", "False"), assigned={}), id="its place is still to come"),
        pytest.param(make_pod(controller=owner("x")), make_workload(job=owner("y", kind="JobSet")), id="its Job is one of many in a job"),
        pytest.param(make_pod(gates=("theirs",)), None, id="the gate is not ours"),
        pytest.param(make_pod(gates=()), None, id="it is released"),
        pytest.param(make_pod(deleted=True), None, id="it is being deleted"),
        pytest.param(make_pod(phase="Failed"), None, id="it has ended"),
        pytest.param(make_pod(workload=""), None, id="it was never given to a Workload"),
    ],
)  # fmt: skip
async def test_a_pod_that_may_yet_be_released_or_need_not_be_is_not_told(
    pod: PodView, workload: wire.Workload | None
) -> None:
    """However long it stands there."""
    floor = Floor(pod, *([workload] if workload is not None else []))

    await floor.sweep_past_the_limit()

    assert (floor.leaked, floor.recorder.events) == (NONE, [])


async def test_a_pod_of_an_elastic_job_belongs_to_all_its_slices() -> None:
    """The slice that it names has finished, the next one may release it."""
    mark = prefixed(workload_slice_name="first")
    floor = Floor(
        make_pod(workload_slice_name="first"),
        make_workload(FINISHED, annotations=mark),
        make_workload(name="next", annotations=mark),
    )
    await floor.sweep_past_the_limit()
    kept = dict(floor.leaked)
    floor.workloads.remove("ns/next")
    await floor.sweep_past_the_limit()

    assert (kept, floor.leaked) == (NONE, NONE | {"workload_finished": 1})


async def test_a_leak_is_told_once_and_counted_while_it_lasts() -> None:
    """When the pod is deleted, or somebody takes the gate away, it is over."""
    floor = Floor(make_pod("p", uid="1"), make_pod("q", uid="2"))
    await floor.sweep_past_the_limit()
    await floor.sweep(INTERVAL)
    both = dict(floor.leaked)
    floor.pods.remove("ns/p")
    await floor.sweep(INTERVAL)
    one = dict(floor.leaked)
    floor.put(make_pod("q", uid="2", gates=()))
    await floor.sweep(INTERVAL)

    assert [counts["workload_gone"] for counts in (both, one, floor.leaked)] == [2, 1, 0]
    assert floor.recorder.events == [("Pod p", "TopologyGateLeaked"), ("Pod q", "TopologyGateLeaked")]


@pytest.mark.parametrize(
    "meanwhile",
    [
        pytest.param(lambda floor: floor.put(make_workload()), id="its Workload comes back"),
        pytest.param(lambda floor: floor.put(make_pod(uid="other")), id="it is another pod of that name"),
    ],
)
async def test_the_time_counts_anew(meanwhile: Callable[[Floor], None]) -> None:
    """Only a pod that was leaked at every look is told."""
    floor = Floor(make_pod())
    await floor.sweep()
    meanwhile(floor)
    await floor.sweep(AFTER - 1)
    floor.workloads.remove("ns/a")
    await floor.sweep(1)

    assert (floor.leaked, floor.recorder.events) == (NONE, [])


async def test_looks_are_taken_at_intervals_until_leadership_ends() -> None:
    """Then the next leader counts, and this process no more."""
    floor = Floor(make_pod())
    work = asyncio.create_task(floor.sweeper.run())
    await floor.clock.advance(INTERVAL)
    for _ in range(int(AFTER / INTERVAL)):
        await floor.clock.advance(INTERVAL)
    leading = dict(floor.leaked)
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work

    assert (leading, floor.leaked) == (NONE | {"workload_gone": 1}, NONE)


async def test_many_pods_are_looked_at_in_turns() -> None:
    """The event loop is not held, and a pod that goes meanwhile does no harm."""
    floor = Floor(*(make_pod(f"p{n}", uid=str(n)) for n in range(2500)))
    work = asyncio.create_task(floor.sweeper.sweep())
    await asyncio.sleep(0)
    under_way = not work.done()
    floor.pods.remove("ns/p2499")
    await floor.clock.advance(1)
    await work
    await floor.sweep(AFTER)

    assert (under_way, floor.leaked) == (True, NONE | {"workload_gone": 2499})
