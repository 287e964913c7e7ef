"""Pods of admitted gangs are released to their domains: each by one patch, nobody else's, and never to a wrong place."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.clock import FakeClock
from kqueue.controllers.resources import PODS, WORKLOADS
from kqueue.controllers.topology_ungater import TopologyUngater
from kqueue.errors import ApiError, ConflictError, NotFoundError, ServerError
from kqueue.runtime.controller import Result
from kqueue.runtime.lane import Lane
from kqueue.runtime.store import Store
from kqueue.state import from_api
from kqueue.state.from_api import PodView
from tests.unit.controllers.builders import JSON, condition, make_workload
from tests.unit.controllers.fakes import FakeClient
from tests.unit.jobs.builders import prefixed

HOST = "kubernetes.io/hostname"
GATE = "kueue.x-k8s.io/topology"
INDEX = "batch.kubernetes.io/job-completion-index"
RANKED = {"required": "rack", "podIndexLabel": INDEX}
IN = Result()


def placed(**hosts: int) -> JSON:
    """An assignment of so many pods to each host."""
    return {
        "levels": [HOST],
        "slices": [
            {"domainCount": 1, "valuesPerLevel": [{"universal": host}], "podCounts": {"universal": pods}}
            for host, pods in hosts.items()
        ],
    }


def make_gang(
    hosts: Mapping[str, int] | None, *conditions: JSON, name: str = "a", request: JSON | None = None, **status: Any
) -> JSON:
    """An admitted Workload whose one pod set was placed on hosts; None: it was placed nowhere."""
    pods = sum((hosts or {}).values())
    return gang_of_sets({"main": (pods, request, hosts)}, *conditions, name=name, **status)


def gang_of_sets(
    sets: Mapping[str, tuple[int, JSON | None, Mapping[str, int] | None]],
    *conditions: JSON,
    name: str = "a",
    **more: Any,
) -> JSON:
    """An admitted Workload of pod sets, each with its count, its topology request and its hosts."""
    specs = [
        {"name": key, "count": pods, "template": {"spec": {}}, "topologyRequest": request or {"required": "rack"}}
        for key, (pods, request, _) in sets.items()
    ]
    assigned = [
        {"name": key, "count": pods, **({"topologyAssignment": placed(**hosts)} if hosts is not None else {})}
        for key, (pods, _, hosts) in sets.items()
    ]
    status = {
        "conditions": list(conditions) or [condition("QuotaReserved"), condition("Admitted")],
        "admission": {"clusterQueue": "team", "podSetAssignments": assigned},
        **more,
    }
    return make_workload(name, podSets=specs, status=status)


def make_pod(
    name: str,
    *,
    workload: str | None = "a",
    pod_set: str = "main",
    index: int | str | None = None,
    gates: tuple[str, ...] = (GATE,),
    host: str | None = None,
    phase: str = "Pending",
    annotations: JSON | None = None,
) -> JSON:
    """A pod of a gang; without `workload` one of somebody else."""
    marks = prefixed(podset_required_topology="rack", workload=workload) if workload is not None else {}
    labels = prefixed(podset=pod_set) | ({INDEX: str(index)} if index is not None else {})
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-of-{name}",
            "annotations": marks | (annotations or {}),
            "labels": labels,
        },
        "spec": {
            "schedulingGates": [{"name": gate} for gate in gates],
            "nodeSelector": {HOST: host} if host is not None else {},
        },
        "status": {"phase": phase},
    }


class Gate:
    """A server with Workloads and pods, and the ungater."""

    def __init__(self, *objects: JSON) -> None:
        self.clock, self.client = FakeClock(), FakeClient()
        self.workloads: Store[wire.Workload] = Store("workloads")
        self.pods: Store[PodView] = Store("pods")
        self.released: list[int] = []
        self.ungater = TopologyUngater(
            client=self.client,
            workloads=self.workloads,
            pods=self.pods,
            clock=self.clock,
            on_released=lambda _, pods: self.released.append(pods),
        )
        self.keys: list[str | None] = []
        self.pods.subscribe(lambda old, new: self.keys.append(self.ungater.observe_pod(old, new)))
        self.client.watch(WORKLOADS, self.workloads, lambda obj: msgspec.convert(obj, wire.Workload))
        self.client.watch(PODS, self.pods, lambda obj: from_api.pod_view(msgspec.convert(obj, wire_core.Pod)))
        for obj in objects:
            self.client.put(WORKLOADS if "podSets" in obj["spec"] else PODS, obj)

    async def step(self, *, late: bool = False) -> Result:
        """One reconcile, with everything seen or (`late`) with an old picture."""
        if not late:
            self.client.sync()
        return await self.ungater.reconcile("ns/a")

    def pod(self, name: str) -> JSON:
        found = self.client.object(PODS, f"ns/{name}")
        assert found is not None
        return found

    def places(self) -> dict[str, str]:
        """Where released pods go; those that are still gated are left out."""
        out = {}
        for key in self.client.keys(PODS):
            name = key.partition("/")[2]
            spec = self.pod(name)["spec"]
            if not spec.get("schedulingGates"):
                out[name] = spec["nodeSelector"].get(HOST, "")
        return out


async def test_gate_and_place_change_by_one_patch() -> None:
    """Under the pod's version, in the ungater's own lane; other gates stay, and the host is all that is pinned."""
    gate = Gate(make_gang({"h1": 2}), make_pod("p1"), make_pod("p2", gates=("theirs", GATE)))

    assert await gate.step() == IN

    assert [str(call) for call in gate.client.calls] == ["patch pods ns/p1", "patch pods ns/p2"]
    assert {call.lane for call in gate.client.calls} == {Lane.UNGATE}
    assert [call.body for call in gate.client.calls] == [
        {"metadata": {"resourceVersion": "2"}, "spec": {"schedulingGates": None, "nodeSelector": {HOST: "h1"}}},
        {"metadata": {"resourceVersion": "3"}, "spec": {"schedulingGates": [{"name": "theirs"}], "nodeSelector": {HOST: "h1"}}},
    ]  # fmt: skip
    assert gate.released == [2]


# --- which pod goes where --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("indexes", "want"),
    [
        pytest.param((3, 2, 1, 0), {"p0": "h2", "p1": "h2", "p2": "h1", "p3": "h1"}, id="ranks decide"),
        pytest.param((0, 0, 1, 2), {"p0": "h1", "p1": "h1", "p2": "h2", "p3": "h2"}, id="two of one rank: as listed"),
        pytest.param((0, 1, 2, None), {"p0": "h1", "p1": "h1", "p2": "h2", "p3": "h2"}, id="one without rank: as listed"),
        pytest.param((0, 1, 2, 4), {"p0": "h1", "p1": "h1", "p2": "h2", "p3": "h2"}, id="a rank too high: as listed"),
    ],
)  # fmt: skip
async def test_pods_stand_by_rank_where_every_pod_has_one(
    indexes: tuple[int | None, ...], want: dict[str, str]
) -> None:
    """Neighbours by rank are neighbours in the data centre; without usable ranks the numbers per host still hold."""
    gate = Gate(
        make_gang({"h1": 2, "h2": 2}, request=RANKED),
        *(make_pod(f"p{n}", index=index) for n, index in enumerate(indexes)),
    )

    await gate.step()

    assert gate.places() == want


async def test_without_an_index_label_pods_go_as_listed() -> None:
    """A request that names no index label has no ranks, whatever labels the pods carry."""
    gate = Gate(make_gang({"h1": 1, "h2": 1}), make_pod("p0", index=1), make_pod("p1", index=0))

    await gate.step()

    assert gate.places() == {"p0": "h1", "p1": "h2"}


async def test_workers_count_after_their_leader() -> None:
    """In a group of two pod sets the larger one's ranks begin after the smaller one's."""
    group = {**RANKED, "podSetGroupName": "g"}
    gate = Gate(
        gang_of_sets(
            {
                "leader": (1, group, {"h1": 1}),
                "workers": (2, group, {"h1": 1, "h2": 1}),
                "alone": (1, RANKED, {"h3": 1}),
            }
        ),
        make_pod("leader", pod_set="leader", index=0),
        make_pod("w1", pod_set="workers", index=2),
        make_pod("w2", pod_set="workers", index=1),
    )

    await gate.step()

    assert gate.places() == {"leader": "h1", "w1": "h2", "w2": "h1"}


@pytest.mark.parametrize(
    ("offset", "indexes"),
    [pytest.param("1", (2, 1), id="a number"), pytest.param("one", (1, 0), id="no number: as if it were not there")],
)
async def test_an_offset_on_the_pods_is_taken_off(offset: str, indexes: tuple[int, int]) -> None:
    """Indexes that do not begin at 0 say so by an annotation."""
    gate = Gate(
        make_gang({"h1": 1, "h2": 1}, request=RANKED),
        *(
            make_pod(f"p{n}", index=index, annotations=prefixed(pod_index_offset=offset))
            for n, index in enumerate(indexes)
        ),
    )

    await gate.step()

    assert gate.places() == {"p0": "h2", "p1": "h1"}


async def test_an_assignment_without_a_count_is_of_all_pods() -> None:
    """Ranks are judged by the pod set's own count then."""
    gang = make_gang({"h1": 1, "h2": 1}, request=RANKED)
    del gang["status"]["admission"]["podSetAssignments"][0]["count"]
    gate = Gate(gang, make_pod("p0", index=1), make_pod("p1", index=0))

    await gate.step()

    assert gate.places() == {"p0": "h2", "p1": "h1"}


async def test_sub_groups_stand_together() -> None:
    """All ranks of the first sub-group, then all of the second."""
    request = {**RANKED, "subGroupIndexLabel": "job", "subGroupCount": 2}
    pods = []
    for name, group, index in (("a", "1", 0), ("b", "0", 1), ("c", "0", 0), ("d", "1", 1)):
        pod = make_pod(name, index=index)
        pod["metadata"]["labels"]["job"] = group
        pods.append(pod)
    gate = Gate(make_gang({"h1": 2, "h2": 2}, request=request), *pods)

    await gate.step()

    assert gate.places() == {"a": "h2", "b": "h1", "c": "h1", "d": "h2"}


async def test_pods_that_come_late_get_the_places_that_are_left() -> None:
    """Released pods keep theirs, ended ones have given theirs back, surplus pods stay gated."""
    gate = Gate(
        make_gang({"h1": 1, "h2": 2}),
        make_pod("old", gates=(), host="h2"),
        make_pod("ended", gates=(), host="h1", phase="Failed"),
        make_pod("p0"),
        make_pod("p1"),
        make_pod("p2"),
    )

    await gate.step()

    assert gate.places() == {"old": "h2", "ended": "h1", "p0": "h1", "p1": "h2"}


async def test_a_pod_for_a_failed_node_waits_for_its_replacement() -> None:
    """It would be released to where it cannot run."""
    gate = Gate(make_gang({"h1": 1, "h2": 1}, unhealthyNodes=[{"name": "h1"}]), make_pod("p0"), make_pod("p1"))

    await gate.step()

    assert gate.places() == {"p1": "h2"}


# --- whose pods ------------------------------------------------------------------------------------------------------


async def test_pods_of_others_are_not_touched() -> None:
    """Those of another workload, of nobody, of a pod set that was not placed, and what our gate does not hold."""
    gate = Gate(
        gang_of_sets({"main": (9, None, {"h1": 9}), "free": (1, None, None)}),
        make_pod("another's", workload="b"),
        make_pod("nobody's", workload=None),
        make_pod("not-placed", pod_set="free"),
        make_pod("held-by-others", gates=("theirs",)),
        make_pod("ended", phase="Succeeded"),
    )

    assert await gate.step() == IN
    assert (gate.client.calls, gate.released) == ([], [])


@pytest.mark.parametrize(
    "gang",
    [
        pytest.param(make_gang({"h1": 1}, condition("QuotaReserved")), id="it is not admitted yet"),
        pytest.param(make_gang({"h1": 1}, condition("Admitted"), condition("Evicted")), id="it is evicted"),
        pytest.param(make_gang({"h1": 1}, condition("Admitted"), condition("Finished")), id="it has finished"),
        pytest.param({**make_gang({"h1": 1}), "spec": {**make_gang({"h1": 1})["spec"], "active": False}}, id="it is switched off"),
        pytest.param(make_gang(None), id="it was not placed by topology"),
        pytest.param(make_gang({"h1": 1}, name="b"), id="it is gone"),
    ],
)  # fmt: skip
async def test_nobody_is_released_for_a_workload_that_may_not_run(gang: JSON) -> None:
    """Its pods stay gated."""
    gate = Gate(gang, make_pod("p0"))

    assert await gate.step() == IN
    assert gate.client.calls == []


async def test_an_earlier_eviction_does_not_matter() -> None:
    """Evicted turned False when it was admitted again."""
    gate = Gate(make_gang({"h1": 1}, condition("Admitted"), condition("Evicted", "False")), make_pod("p0"))

    await gate.step()

    assert gate.places() == {"p0": "h1"}


# --- patches on their way --------------------------------------------------------------------------------------------


async def test_a_pod_is_patched_once() -> None:
    """Until the watch has told of every release its workload is left alone; then there is nothing to do."""
    gate = Gate(make_gang({"h1": 2}), make_pod("p0"), make_pod("p1"))
    await gate.step()

    assert await gate.step(late=True) == Result(requeue_after=1.0)
    gate.pods.put("ns/p0", from_api.pod_view(msgspec.convert(gate.pod("p0"), wire_core.Pod)))
    assert await gate.step(late=True) == Result(requeue_after=1.0)
    assert await gate.step() == IN

    assert len(gate.client.calls) == 2


async def test_an_old_event_is_not_the_release() -> None:
    """An event from before our patch, with the gate still there, does not have the pod patched again."""
    gate = Gate(make_gang({"h1": 1}), make_pod("p0"))
    gate.client.sync()
    before = gate.pods.get("ns/p0")
    assert before is not None
    await gate.step()

    gate.pods.put("ns/p0", before)

    assert await gate.step(late=True) == Result(requeue_after=1.0)


async def test_all_patches_of_a_gang_are_under_way_at_once() -> None:
    """The client's lane bounds them, not the ungater."""
    gate = Gate(make_gang({"h1": 5}), *(make_pod(f"p{n}") for n in range(5)))
    gate.client.open.clear()
    gate.client.sync()
    work = asyncio.create_task(gate.ungater.reconcile("ns/a"))
    for _ in range(5):
        await asyncio.sleep(0)

    assert len(gate.client.calls) == 5
    gate.client.open.set()
    await work


@pytest.mark.parametrize(
    ("error", "raises"),
    [
        pytest.param(ServerError("down", status=500), True, id="the server fails"),
        pytest.param(ConflictError("newer", status=409), True, id="the pod has changed"),
        pytest.param(NotFoundError("gone", status=404), False, id="the pod is gone"),
    ],
)
async def test_one_patch_that_fails_does_not_stop_the_others(error: ApiError, raises: bool) -> None:
    """The others are released; the one is looked at again at once, and alone."""
    gate = Gate(make_gang({"h1": 3}), *(make_pod(f"p{n}") for n in range(3)))
    gate.client.fail(error, key="ns/p1")

    if raises:
        with pytest.raises(type(error)):
            await gate.step()
    else:
        assert await gate.step() == IN

    assert (gate.places(), gate.released) == ({"p0": "h1", "p2": "h1"}, [2])
    assert await gate.step() == IN
    assert [call.key for call in gate.client.calls] == ["ns/p0", "ns/p1", "ns/p2", "ns/p1"]


async def test_when_every_patch_fails_nothing_was_released() -> None:
    """Nobody counts what did not happen."""
    gate = Gate(make_gang({"h1": 1}), make_pod("p0"))
    gate.client.fail(ServerError("down", status=500))

    with pytest.raises(ServerError):
        await gate.step()

    assert gate.released == []


async def test_a_pod_that_goes_before_its_release_was_seen_is_not_waited_for() -> None:
    """Its deletion is the last that is heard of it."""
    gate = Gate(make_gang({"h1": 1}), make_pod("p0"))
    await gate.step()
    gate.client.drop(PODS, "ns/p0")
    gate.client.put(PODS, make_pod("p1"))

    await gate.step()

    assert gate.places() == {"p1": "h1"}


async def test_a_release_that_is_never_seen_is_given_up() -> None:
    """Its event was lost: after the timeout the pod is looked at as it is known."""
    gate = Gate(make_gang({"h1": 2}), make_pod("p0"))
    await gate.step()
    await gate.clock.advance(59)
    assert await gate.step(late=True) == Result(requeue_after=1.0)

    await gate.clock.advance(1)
    with pytest.raises(ConflictError):
        await gate.step(late=True)

    assert await gate.step() == IN


async def test_which_workload_a_pod_event_concerns() -> None:
    """Every event of a gang's pod names its workload; of others nothing is to be looked at."""
    gate = Gate(make_pod("p0"), make_pod("other", workload=None))
    gate.client.sync()
    gate.client.drop(PODS, "ns/p0")
    gate.client.sync()

    assert gate.keys == ["ns/a", None, "ns/a"]
