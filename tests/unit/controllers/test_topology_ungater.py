"""Pods of admitted gangs are released to their domains: each by one patch, nobody else's, and never to a wrong place."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.clock import FakeClock
from kqueue.controllers.first_look import PAGE_SIZE
from kqueue.controllers.resources import PODS, WORKLOADS
from kqueue.controllers.topology_ungater import TopologyUngater
from kqueue.errors import (
    ApiError,
    ConflictError,
    InvalidObjectError,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
    UnreachableError,
)
from kqueue.runtime.controller import Result
from kqueue.runtime.lane import Lane
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.store import Store
from kqueue.state import from_api
from kqueue.state.from_api import PodView
from tests.unit.controllers.builders import EARLIER, JSON, condition, make_workload
from tests.unit.controllers.fakes import Call, FakeClient, FakeRecorder
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
    deleted: bool = False,
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
            **({"deletionTimestamp": EARLIER, "finalizers": ["held"]} if deleted else {}),
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
        self.writer: StatusWriter[wire.Workload] = StatusWriter(
            self.client,
            WORKLOADS,
            store=self.workloads,
            decode=wire.Workload,
            key_of=from_api.workload_key,
            version_of=lambda workload: workload.metadata.resource_version,
        )
        self.released = 0
        self.in_order = Counter[bool | None]()
        self.recorder, self.fallbacks = FakeRecorder(), Counter[str]()
        self.hosts: dict[str, str] = {}
        self.ungater = TopologyUngater(
            client=self.client,
            newest=self.writer.newest,
            write=self.writer.write,
            pods=self.pods,
            host_of=self.hosts.get,
            recorder=self.recorder,
            clock=self.clock,
            on_released=self._count,
            on_fallback=lambda reason: self.fallbacks.update([reason]),
        )
        self.keys: list[str | None] = []
        self.pods.subscribe(lambda old, new: self.keys.append(self.ungater.observe_pod(old, new)))
        self.client.watch(WORKLOADS, self.workloads, lambda obj: msgspec.convert(obj, wire.Workload))
        self.client.watch(PODS, self.pods, lambda obj: from_api.pod_view(msgspec.convert(obj, wire_core.Pod)))
        for obj in objects:
            self.client.put(WORKLOADS if "podSets" in obj["spec"] else PODS, obj)

    def _count(self, _workload: wire.Workload, in_order: bool | None) -> None:
        self.released += 1
        self.in_order.update([in_order])

    @property
    def patches(self) -> list[Call]:
        """What was sent for pods so far."""
        return self.client.writes()

    async def look_first(self) -> None:
        """What a leader before us has done is known."""
        self.client.put(WORKLOADS, make_gang({"h1": 1}, name="first"))
        self.client.put(PODS, make_pod("first", workload="first"))
        self.client.sync()
        await self.ungater.reconcile("ns/first")
        self.client.drop(PODS, "ns/first")
        self.client.sync()
        self.client.calls.clear()
        self.released = 0

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

    assert [str(call) for call in gate.patches] == ["patch pods ns/p1", "patch pods ns/p2"]
    assert {call.lane for call in gate.patches} == {Lane.UNGATE}
    assert [call.body for call in gate.patches] == [
        {"metadata": {"resourceVersion": "2"}, "spec": {"schedulingGates": None, "nodeSelector": {HOST: "h1"}}},
        {"metadata": {"resourceVersion": "3"}, "spec": {"schedulingGates": [{"name": "theirs"}], "nodeSelector": {HOST: "h1"}}},
    ]  # fmt: skip
    assert gate.released == 2


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
    ("counts", "begins"),
    [
        pytest.param((1, 2), "leader", id="the smaller one begins"),
        pytest.param((3, 2), "workers", id="also when it is listed second"),
        pytest.param((2, 2), "leader", id="of equal ones the first begins"),
    ],
)
async def test_ranks_of_a_pair_go_on_from_one_pod_set_to_the_other(counts: tuple[int, int], begins: str) -> None:
    """What counts is how many pods were admitted, not how many were asked for."""
    group = {**RANKED, "podSetGroupName": "g"}
    sets = dict(zip(("leader", "workers"), counts, strict=True))
    gang = gang_of_sets(
        {name: (count, group, {f"{name}-{n}": 1 for n in range(count)}) for name, count in sets.items()}
    )
    for spec in gang["spec"]["podSets"]:
        spec["count"] = 7
    first = {name: 0 if name == begins else sets[begins] for name in sets}
    gate = Gate(
        gang,
        *(
            make_pod(f"{name}-{n}", pod_set=name, index=first[name] + n)
            for name, count in sets.items()
            for n in range(count)
        ),
    )

    await gate.step()

    assert gate.places() == {f"{name}-{n}": f"{name}-{n}" for name, count in sets.items() for n in range(count)}
    assert gate.fallbacks == {}


@pytest.mark.parametrize(
    ("group", "index"),
    [
        pytest.param({}, 0, id="without a group"),
        pytest.param({"podSetGroupName": "other"}, 0, id="in a group of its own"),
        pytest.param({"podSetGroupName": "g"}, 0, id="in a group of three, which has no order"),
    ],
)
async def test_other_pod_sets_count_from_zero(group: JSON, index: int) -> None:
    """Only a pair shares its ranks."""
    pair = {**RANKED, "podSetGroupName": "g"}
    gate = Gate(
        gang_of_sets(
            {"a": (1, pair, {"h1": 1}), "b": (1, pair, {"h2": 1}), "c": (2, RANKED | group, {"h3": 1, "h4": 1})}
        ),
        make_pod("c0", pod_set="c", index=index + 1),
        make_pod("c1", pod_set="c", index=index),
    )

    await gate.step()

    assert gate.places() == {"c0": "h4", "c1": "h3"}


async def test_an_offset_on_the_pods_is_taken_off() -> None:
    """Indexes that do not begin at 0 say so by an annotation."""
    gate = Gate(
        make_gang({"h1": 1, "h2": 1}, request=RANKED),
        *(make_pod(f"p{n}", index=2 - n, annotations=prefixed(pod_index_offset="1")) for n in range(2)),
    )

    await gate.step()

    assert (gate.places(), gate.fallbacks) == ({"p0": "h2", "p1": "h1"}, {})
    assert gate.in_order == {True: 2}


@pytest.mark.parametrize(
    "offset", [pytest.param("one", id="a word"), pytest.param("", id="nothing"), pytest.param("1.0", id="a fraction")]
)
async def test_an_offset_that_is_no_integer_holds_the_pods(offset: str) -> None:
    """Any place may be wrong, so nobody is released; the pod is named to the user, once."""
    gate = Gate(
        make_gang({"h1": 1}, request=RANKED), make_pod("p", index=0, annotations=prefixed(pod_index_offset=offset))
    )

    for _ in range(2):
        with pytest.raises(InvalidObjectError, match=r"pod ns/p is not valid: .*pod-index-offset.*must be an integer"):
            await gate.step()

    assert gate.patches == []
    assert (gate.recorder.events, gate.recorder.warnings) == (
        [("Workload a", "InvalidPodIndexOffset")],
        ["InvalidPodIndexOffset"],
    )


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


TWICE = [make_pod("p0", index=0), make_pod("p1", index=0)]


@pytest.mark.parametrize(
    ("pods", "reason", "why"),
    [
        pytest.param([make_pod("p0")], "no_index", "pod ns/p0: label", id="a pod without an index"),
        pytest.param([make_pod("p0", index=4)], "index_too_high", "is 4, not below 4", id="an index too high"),
        pytest.param(TWICE, "duplicate_rank", "pods ns/p0 and ns/p1", id="a rank twice"),
    ],
)
async def test_a_lost_order_is_told_once(pods: list[JSON], reason: str, why: str) -> None:
    """A Warning on the Workload that names pod set and pod, and a count by reason; not again at every look."""
    gate = Gate(make_gang({"h1": 2, "h2": 2}, request=RANKED), *pods)
    await gate.step()
    gate.client.put(PODS, {**pods[0], "metadata": {**pods[0]["metadata"], "name": "p9", "uid": "9"}})
    await gate.step()

    assert len(gate.places()) == len(pods) + 1
    assert (gate.recorder.events, gate.recorder.warnings) == ([("Workload a", "RankFallback")], ["RankFallback"])
    assert gate.recorder.messages[0].startswith("Pods of pod set main are placed in listing order, not by rank: ")
    assert why in gate.recorder.messages[0]
    assert gate.fallbacks == {reason: 1}
    assert gate.in_order == {False: len(pods) + 1}


async def test_another_loss_is_told_by_itself() -> None:
    """Once per reason; and again for a Workload that has only the name in common."""
    gate = Gate(make_gang({"h1": 9}, request=RANKED), make_pod("p0", index=9))
    await gate.step()
    gate.client.put(PODS, make_pod("p1", index="x"))
    gate.client.drop(PODS, "ns/p0")
    await gate.step()
    again = make_gang({"h1": 9}, request=RANKED)
    gate.client.put(WORKLOADS, {**again, "metadata": {**again["metadata"], "uid": "other"}})
    gate.client.put(PODS, make_pod("p2", index="x"))
    await gate.step()
    gate.ungater.forget("ns/a")
    gate.client.put(PODS, make_pod("p3", index="x"))
    await gate.step()

    assert gate.fallbacks == {"index_too_high": 1, "no_index": 3}


async def test_an_order_that_was_lost_long_ago_is_not_told() -> None:
    """While nobody is to be released nothing is lost."""
    gate = Gate(make_gang({"h1": 1, "h2": 1}, request=RANKED), make_pod("p0", index=0, gates=(), host="h2"))

    await gate.step()

    assert gate.recorder.events == []


async def test_an_order_is_not_lost_by_pods_that_have_no_place() -> None:
    """A surplus pod stays gated, whatever its rank, while those of another pod set are released."""
    gate = Gate(
        gang_of_sets({"main": (1, RANKED, {"h1": 1}), "other": (1, None, {"h2": 1})}),
        make_pod("p0", index=0, gates=(), host="h1"),
        make_pod("p1", index=7),
        make_pod("p2", pod_set="other"),
    )

    await gate.step()

    assert gate.places() == {"p0": "h1", "p2": "h2"}
    assert (gate.recorder.events, gate.fallbacks) == ([], {})


async def test_a_replaced_pod_costs_no_order() -> None:
    """While the old pod is leaving, its successor waits for the same place; the others are placed by rank."""
    gate = Gate(
        make_gang({"h1": 1, "h2": 1}, request=RANKED),
        make_pod("old", index=1, gates=(), host="h2", deleted=True),
        make_pod("new", index=1),
        make_pod("p0", index=0),
    )
    await gate.step()
    before = gate.places()
    gate.client.drop(PODS, "ns/old")
    await gate.step()

    assert (before, gate.places()) == ({"old": "h2", "p0": "h1"}, {"p0": "h1", "new": "h2"})
    assert gate.recorder.events == []


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


async def test_a_failed_node_is_known_by_its_label_too() -> None:
    """Its name need not be its host name."""
    gate = Gate(make_gang({"h1": 1, "h2": 1}, unhealthyNodes=[{"name": "node-1"}]), make_pod("p0"), make_pod("p1"))
    gate.hosts["node-1"] = "h1"

    await gate.step()

    assert gate.places() == {"p1": "h2"}


async def test_a_rack_that_is_named_like_a_failed_node_is_none() -> None:
    """Nodes fail, not racks: where the assignment names no hosts nobody waits."""
    gang = make_gang({"r1": 1}, unhealthyNodes=[{"name": "r1"}])
    gang["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]["levels"] = ["rack"]
    gate = Gate(gang, make_pod("p0"))

    await gate.step()

    assert gate.pod("p0")["spec"]["nodeSelector"] == {"rack": "r1"}


async def test_a_waiting_pod_goes_where_its_node_was_replaced() -> None:
    """The new assignment decides, once the failed node is not listed any more."""
    gate = Gate(make_gang({"h1": 1}, unhealthyNodes=[{"name": "h1"}]), make_pod("p0"))
    await gate.step()
    before = gate.places()
    gate.client.put(WORKLOADS, make_gang({"h2": 1}))
    await gate.step()

    assert (before, gate.places()) == ({}, {"p0": "h2"})


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
    assert (gate.client.calls, gate.released) == ([], 0)


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

    assert len(gate.patches) == 2


async def test_an_old_event_is_not_the_release() -> None:
    """An event from before our patch, with the gate still there, does not have the pod patched again."""
    gate = Gate(make_gang({"h1": 1}), make_pod("p0"))
    gate.client.sync()
    before = gate.pods.get("ns/p0")
    assert before is not None
    await gate.step()

    gate.pods.put("ns/p0", before)

    assert await gate.step(late=True) == Result(requeue_after=1.0)


@asynccontextmanager
async def patches_under_way(gate: Gate) -> AsyncIterator[None]:
    """In the block the first patches are on the wire; after it all have been answered."""
    await gate.look_first()
    gate.client.open.clear()
    gate.client.sync()
    work = asyncio.create_task(gate.ungater.reconcile("ns/a"))
    for _ in range(5):
        await asyncio.sleep(0)
    yield
    gate.client.open.set()
    await work


async def test_eight_patches_of_a_gang_are_under_way_at_once() -> None:
    """One huge gang does not take the whole lane; the next goes when one is answered."""
    gate = Gate(make_gang({"h1": 20}), *(make_pod(f"p{n}") for n in range(20)))

    async with patches_under_way(gate):
        assert len(gate.patches) == 8

    assert len(gate.patches) == 20
    assert gate.released == 20


def _evicted(gate: Gate) -> None:
    gate.client.put(WORKLOADS, make_gang({"h1": 9}, condition("Admitted"), condition("Evicted")))


def _replaced(gate: Gate) -> None:
    gate.client.put(WORKLOADS, make_gang({"h2": 9}))


def _failed(gate: Gate) -> None:
    gate.client.put(WORKLOADS, make_gang({"h1": 9}, unhealthyNodes=[{"name": "h1"}]))


def _gone(gate: Gate) -> None:
    gate.client.drop(WORKLOADS, "ns/a")


def _another(gate: Gate) -> None:
    gang = make_gang({"h1": 9})
    gate.client.put(WORKLOADS, {**gang, "metadata": {**gang["metadata"], "uid": "other"}})


def _touched(gate: Gate) -> None:
    gang = make_gang({"h1": 9})
    gate.client.put(WORKLOADS, {**gang, "metadata": {**gang["metadata"], "labels": {"x": "y"}}})


def _pod_gone(gate: Gate) -> None:
    gate.client.drop(PODS, "ns/p8")


def _pod_changed(gate: Gate) -> None:
    gate.client.change(PODS, "ns/p8", {"metadata": {"labels": {"x": "y"}}})


@pytest.mark.parametrize(
    ("change", "patched"),
    [
        pytest.param(_evicted, 8, id="it is evicted"),
        pytest.param(_replaced, 8, id="it is placed anew"),
        pytest.param(_failed, 8, id="its node fails"),
        pytest.param(_gone, 8, id="it is gone"),
        pytest.param(_another, 8, id="it is another one of that name"),
        pytest.param(_touched, 9, id="it changes in nothing that matters"),
        pytest.param(_pod_gone, 8, id="the pod is gone"),
        pytest.param(_pod_changed, 8, id="the pod changes"),
    ],
)
async def test_a_pod_whose_turn_comes_late_is_released_by_what_holds_then(
    change: Callable[[Gate], None], patched: int
) -> None:
    """The Workload is read again just before each patch: nobody is released to a domain that it has lost meanwhile."""
    gate = Gate(make_gang({"h1": 9}), *(make_pod(f"p{n}") for n in range(9)))

    async with patches_under_way(gate):
        change(gate)
        gate.client.sync()

    assert len(gate.patches) == patched


async def test_what_was_not_sent_is_not_waited_for() -> None:
    """After an early end the rest is released by the new assignment, as soon as the sent ones were seen."""
    gate = Gate(make_gang({"h1": 9}), *(make_pod(f"p{n}") for n in range(9)))
    async with patches_under_way(gate):
        gate.client.put(WORKLOADS, make_gang({"h1": 8, "h2": 1}))
        gate.client.sync()

    assert await gate.step() == IN
    assert gate.places() == {f"p{n}": "h1" for n in range(8)} | {"p8": "h2"}


@pytest.mark.parametrize(
    ("error", "raises"),
    [
        pytest.param(ServerError("down", status=500), True, id="the server fails"),
        pytest.param(UnreachableError("cut"), True, id="nobody answers"),
        pytest.param(TooManyRequestsError("slowly", status=429), True, id="the server is busy"),
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

    assert (gate.places(), gate.released) == ({"p0": "h1", "p2": "h1"}, 2)
    assert await gate.step() == IN
    assert [call.key for call in gate.patches] == ["ns/p0", "ns/p1", "ns/p2", "ns/p1"]


async def test_a_pod_that_has_changed_is_looked_at_once_its_change_is_seen() -> None:
    """Somebody else wrote first: our patch is refused, and the next is made from what he wrote."""
    gate = Gate(make_gang({"h1": 1}), make_pod("p0"))
    gate.client.sync()
    gate.client.change(PODS, "ns/p0", {"metadata": {"labels": {"x": "y"}}})
    with pytest.raises(ConflictError):
        await gate.step(late=True)

    assert await gate.step(late=True) == Result(requeue_after=1.0)
    assert await gate.step() == IN
    assert gate.places() == {"p0": "h1"}


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ConflictError("our own first attempt", status=409), id="a conflict with our own first attempt"),
        pytest.param(ServerError("down", status=500), id="the server fails after the deed"),
        pytest.param(UnreachableError("cut"), id="the answer is lost"),
    ],
)
async def test_a_release_without_an_answer_is_not_taken_for_none(error: ApiError) -> None:
    """The pod was released although the patch failed: nobody else is put into its place."""
    gate = Gate(make_gang({"h1": 1, "h2": 1}), make_pod("p1"))
    gate.client.fail(error, key="ns/p1", done=True)
    with pytest.raises(type(error)):
        await gate.step()
    gate.pods.put("ns/p0", from_api.pod_view(msgspec.convert(make_pod("p0"), wire_core.Pod)))

    assert await gate.step(late=True) == Result(requeue_after=1.0)
    gate.client.put(PODS, make_pod("p0"))
    assert await gate.step() == IN
    assert gate.places() == {"p1": "h1", "p0": "h2"}


async def test_when_nothing_is_known_of_a_release_its_event_is_awaited() -> None:
    """The server does not answer at all; it is taken for released until the wait runs out."""
    gate = Gate(make_gang({"h1": 1}), make_pod("p0"))
    for verb in ("patch", "get"):
        gate.client.fail(UnreachableError("cut"), verb=verb)
    with pytest.raises(UnreachableError):
        await gate.step()

    assert await gate.step() == Result(requeue_after=1.0)
    await gate.clock.advance(60)
    assert await gate.step() == IN
    assert gate.places() == {"p0": "h1"}


async def test_when_every_patch_fails_nothing_was_released() -> None:
    """Nobody counts what did not happen."""
    gate = Gate(make_gang({"h1": 1}), make_pod("p0"))
    gate.client.fail(ServerError("down", status=500))

    with pytest.raises(ServerError):
        await gate.step()

    assert gate.released == 0


async def test_a_pod_that_goes_before_its_release_was_seen_is_not_waited_for() -> None:
    """Its deletion is the last that is heard of it."""
    gate = Gate(make_gang({"h1": 1}), make_pod("p0"))
    await gate.step()
    gate.client.drop(PODS, "ns/p0")
    gate.client.put(PODS, make_pod("p1"))

    await gate.step()

    assert gate.places() == {"p1": "h1"}


async def test_a_pod_that_is_replaced_by_one_of_its_name_is_not_waited_for() -> None:
    """As in a StatefulSet: the watch may tell of both in one."""
    gate = Gate(make_gang({"h1": 1}), make_pod("p0"))
    await gate.step()
    successor = make_pod("p0")
    successor["metadata"]["uid"] = "another"
    gate.client.put(PODS, successor)

    assert await gate.step() == IN
    assert gate.places() == {"p0": "h1"}


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


# --- the first look --------------------------------------------------------------------------------------------------


def _released_by_another(gate: Gate, *names: str, host: str = "h1") -> None:
    """A leader before us releases pods; our watch does not know yet."""
    for name in names:
        gate.client.change(PODS, f"ns/{name}", {"spec": {"schedulingGates": None, "nodeSelector": {HOST: host}}})


async def test_pods_that_another_leader_has_released_keep_their_places() -> None:
    """By the watch alone p0 would be released to where p1 is."""
    gate = Gate(make_gang({"h1": 1, "h2": 1}), make_pod("p0"), make_pod("p1"))
    gate.client.sync()
    _released_by_another(gate, "p1")

    assert await gate.step(late=True) == Result(requeue_after=1.0)
    assert gate.patches == []
    assert await gate.step() == IN
    assert gate.places() == {"p1": "h1", "p0": "h2"}


async def test_a_released_pod_that_the_watch_has_not_brought_at_all_keeps_its_place() -> None:
    """It was created and released since."""
    gate = Gate(make_gang({"h1": 1, "h2": 1}), make_pod("p0"))
    gate.client.sync()
    gate.client.put(PODS, make_pod("p1"))
    _released_by_another(gate, "p1")

    assert await gate.step(late=True) == Result(requeue_after=1.0)
    assert await gate.step() == IN
    assert gate.places() == {"p1": "h1", "p0": "h2"}


async def test_only_living_released_pods_of_gangs_are_awaited() -> None:
    """Of others, and of those that have ended, no event needs to come."""
    gate = Gate(make_gang({"h1": 1}), make_pod("p0"))
    gate.client.sync()
    gate.client.put(PODS, make_pod("ended", gates=(), host="h1", phase="Failed"))
    gate.client.put(PODS, make_pod("other", workload=None, gates=()))
    gate.client.put(PODS, make_pod("gated"))

    assert await gate.step(late=True) == IN
    assert gate.places().keys() >= {"p0"}


async def test_each_namespace_is_looked_at_once() -> None:
    """In pages and by all who ask at the same time together; then the watch is trusted, until another may have led."""
    gate = Gate(make_gang({"h1": 1}), make_gang({"h1": 1}, name="b"), make_pod("p0"), make_pod("q0", workload="b"))
    for n in range(PAGE_SIZE):
        gate.client.put(PODS, make_pod(f"x{n}", workload=None))
    gate.client.sync()

    await asyncio.gather(gate.ungater.reconcile("ns/a"), gate.ungater.reconcile("ns/b"))
    once = [str(call) for call in gate.client.calls if call.verb == "list"]
    gate.client.put(PODS, make_pod("p0"))
    await gate.step()
    again = [str(call) for call in gate.client.calls if call.verb == "list"]
    gate.ungater.begin()
    gate.client.put(PODS, make_pod("p0"))
    await gate.step()

    assert once == again == ["list pods ns"] * 2
    assert len([call for call in gate.client.calls if call.verb == "list"]) == 4


async def test_where_nobody_is_to_be_released_nobody_looks() -> None:
    """A start costs no list for gangs that run."""
    gate = Gate(make_gang({"h1": 1}), make_pod("p0", gates=(), host="h1"))

    await gate.step()

    assert gate.client.calls == []


async def test_a_look_that_fails_is_still_due() -> None:
    """Nobody is released by half the truth."""
    gate = Gate(make_gang({"h1": 1}), make_pod("p0"))
    gate.client.fail(ServerError("down", status=500), verb="list")

    with pytest.raises(ServerError):
        await gate.step()
    assert gate.patches == []
    assert await gate.step() == IN
    assert gate.places() == {"p0": "h1"}


async def test_a_released_pod_is_not_taken_for_an_earlier_one_of_its_name() -> None:
    """The watch still shows the earlier one, which had no place of this assignment."""
    gate = Gate(make_gang({"h1": 1}), make_pod("p0", gates=(), host="elsewhere"), make_pod("p1"))
    gate.client.sync()
    successor = make_pod("p0", gates=(), host="h1")
    successor["metadata"]["uid"] = "another"
    gate.client.put(PODS, successor)

    assert await gate.step(late=True) == Result(requeue_after=1.0)
    assert await gate.step() == IN
    assert gate.places() == {"p0": "h1"}


@pytest.mark.parametrize("replaced", [pytest.param(False, id="for good"), pytest.param(True, id="for one of its name")])
async def test_a_pod_that_goes_while_the_list_is_under_way_is_not_awaited(replaced: bool) -> None:
    """The list still has it; of its end the watch has told already."""
    gate = Gate(make_gang({"h1": 2}), make_pod("p0"), make_pod("p1", gates=(), host="h1"))
    gate.client.sync()
    listed = gate.client.list_page
    successor = make_pod("p1")
    successor["metadata"]["uid"] = "another"

    async def slowly(*args: Any, **kwargs: Any) -> bytes:
        page = await listed(*args, **kwargs)
        gate.client.drop(PODS, "ns/p1")
        if replaced:
            gate.client.put(PODS, successor)
        gate.client.sync()
        return page

    gate.client.list_page = slowly  # type: ignore[method-assign]

    assert await gate.step(late=True) == IN
    assert gate.places() == {"p0": "h1"} | ({"p1": "h1"} if replaced else {})


async def test_a_new_leader_waits_for_nobody_of_the_old_one() -> None:
    """What this process sent when it led before is in the list, if it came through."""
    gate = Gate(make_gang({"h1": 1}), make_pod("p0"))
    for verb in ("patch", "get"):
        gate.client.fail(UnreachableError("cut"), verb=verb)
    with pytest.raises(UnreachableError):
        await gate.step()

    gate.ungater.begin()

    assert await gate.step() == IN
    assert gate.places() == {"p0": "h1"}


async def test_slices_of_an_elastic_job_share_their_pods() -> None:
    """A pod is found by what all slices share, and its events wake the Workload that it names."""
    mark = prefixed(workload_slice_name="first")
    gang = make_gang({"h1": 1})
    gang["metadata"]["annotations"] = mark
    gate = Gate(gang, make_pod("p0", workload="earlier", annotations=mark), make_pod("p1", workload="first"))

    await gate.step()

    assert (gate.places(), gate.keys[:2]) == ({"p0": "h1"}, ["ns/earlier", "ns/first"])


# --- giving back ------------------------------------------------------------------------------------------------------


def ended(count: int, pod_set: str = "main") -> JSON:
    """So many of its pods have ended for good."""
    return {"reclaimablePods": [{"name": pod_set, "count": count}]}


def given_back(gate: Gate) -> dict[str, dict[str, int]]:
    """Pod set -> host -> places, as the server has it."""
    obj = gate.client.object(WORKLOADS, "ns/a")
    assert obj is not None
    found = from_api.finished_places(msgspec.convert(obj, wire.Workload))
    return {name: {d.values[0]: d.count for d in places.domains} for name, places in found.items()}


def runs(name: str, host: str, **more: Any) -> JSON:
    return make_pod(name, host=host, gates=(), phase="Running", **more)


@pytest.mark.parametrize(
    ("count", "pods", "want"),
    [
        pytest.param(1, [runs("p1", "h2"), make_pod("p0", host="h1", gates=(), phase="Succeeded")], {"h1": 1}, id="the place of the pod that has ended"),
        pytest.param(1, [runs("p1", "h2")], {"h1": 1}, id="whether or not that pod is still there"),
        pytest.param(1, [runs("p1", "h1"), make_pod("p0", host="h2", gates=(), phase="Succeeded")], {"h2": 1}, id="wherever it stood"),
        pytest.param(2, [], {"h1": 1, "h2": 1}, id="all, when all have ended"),
        pytest.param(1, [runs("p0", "h1"), runs("p1", "h2")], None, id="nothing while more pods run than are left"),
        pytest.param(1, [], None, id="nothing while the one that is left is to come"),
        pytest.param(1, [runs("p1", "h2", deleted=True)], None, id="nothing while the one that is left is being replaced"),
        pytest.param(1, [make_pod("p1", host="h2", gates=(), phase="Failed")], None, id="nor when it has failed"),
        pytest.param(0, [runs("p1", "h2")], None, id="nothing while none has ended for good"),
    ],
)  # fmt: skip
async def test_places_are_given_back_once_all_pods_that_are_left_stand(
    count: int, pods: list[JSON], want: dict[str, int] | None
) -> None:
    """Two pods on two hosts, of which some have ended; a second look writes nothing."""
    gate = Gate(make_gang({"h1": 1, "h2": 1}, **ended(count)), *pods)

    await gate.step()

    assert given_back(gate) == ({} if want is None else {"main": want})
    assert len(gate.patches) == (want is not None)
    await gate.step()
    assert len(gate.patches) == (want is not None)


async def test_who_asks_for_fewer_pods_gives_back_their_places() -> None:
    """An elastic job that was scaled down: the place of the pod that is gone."""
    gang = make_gang({"h1": 1, "h2": 1})
    gang["spec"]["podSets"][0]["count"] = 1
    gate = Gate(gang, runs("p0", "h1"), runs("p1", "h2", deleted=True))
    await gate.step()
    assert given_back(gate) == {}

    gate.client.drop(PODS, "ns/p1")
    await gate.step()

    assert given_back(gate) == {"main": {"h2": 1}}
    before = len(gate.patches)
    await gate.step()
    assert len(gate.patches) == before


async def test_each_pod_set_gives_back_its_own() -> None:
    """A leader that has ended, and one of its workers: each entry is of its pod set, and earlier ones stay."""
    sets: dict[str, Any] = {"leader": (1, None, {"h1": 1}), "workers": (2, None, {"h1": 1, "h2": 1})}
    gang = gang_of_sets(sets, **ended(1, "leader"))
    gate = Gate(gang, runs("w0", "h1", pod_set="workers"), runs("w1", "h2", pod_set="workers"))
    await gate.step()
    assert given_back(gate) == {"leader": {"h1": 1}}

    gate.client.drop(PODS, "ns/w0")
    both = [{"name": name, "count": 1} for name in ("leader", "workers")]
    gate.client.change(WORKLOADS, "ns/a", {"status": {"reclaimablePods": both}})
    await gate.step()

    assert given_back(gate) == {"leader": {"h1": 1}, "workers": {"h1": 1}}


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"conditions": [condition("QuotaReserved"), condition("Admitted"), condition("Evicted")]}, id="it is on its way out"),
        pytest.param({"conditions": [condition("QuotaReserved"), condition("Admitted"), condition("Finished")]}, id="it is over"),
    ],
)  # fmt: skip
async def test_who_is_not_admitted_any_more_gives_back_all_at_once(status: JSON) -> None:
    """When its reservation ends, and nothing before."""
    gate = Gate(make_gang({"h1": 1, "h2": 1}, **ended(1)), runs("p1", "h2"))
    gate.client.change(WORKLOADS, "ns/a", {"status": status})

    await gate.step()

    assert gate.patches == []


async def test_nobody_is_released_to_a_place_from_the_moment_it_is_given_up() -> None:
    """Also while the Workload does not say so yet: the successor of the pod on h2 goes to h2, though h1 comes first."""
    gate = Gate(make_gang({"h1": 1, "h2": 1}), runs("p1", "h2"))
    await gate.look_first()
    workload = gate.workloads.get("ns/a")
    assert workload is not None

    fields = gate.ungater.finished(workload, {"main": 1})
    gate.client.drop(PODS, "ns/p1")
    gate.client.put(PODS, make_pod("p2"))
    await gate.step()

    assert [entry["name"] for entry in fields["finishedPods"]] == ["main"]
    assert given_back(gate) == {}
    assert gate.places() == {"p2": "h2"}


async def test_a_place_stays_given_back_after_a_restart() -> None:
    """The Workload alone says so."""
    gate = Gate(make_gang({"h1": 1, "h2": 1}, **ended(1)), runs("p1", "h2"))
    await gate.step()
    gate.ungater.begin()

    gate.client.drop(PODS, "ns/p1")
    gate.client.put(PODS, make_pod("p2"))
    await gate.step()

    assert gate.places() == {"p2": "h2"}


async def test_what_was_given_up_of_another_admission_does_not_count() -> None:
    """The next one has other places, and all of them."""
    gate = Gate(make_gang({"h1": 1, "h2": 1}, **ended(1)), runs("p1", "h2"))
    await gate.step()
    gate.client.drop(PODS, "ns/p1")
    again = make_gang({"h1": 1})["status"]["admission"]
    gate.client.change(WORKLOADS, "ns/a", {"status": {"admission": again, "finishedPods": None}})
    gate.client.put(PODS, make_pod("p2"))

    await gate.step()

    assert gate.places() == {"p2": "h1"}


async def test_nothing_is_given_back_while_a_release_is_on_its_way() -> None:
    """By the watch two of three pods stand, which is all that are left; the third was released by a leader before us."""
    gate = Gate(make_gang({"h1": 1, "h2": 1, "h3": 1}, **ended(1)), runs("p1", "h2"), runs("p2", "h3"))
    gate.client.sync()
    gate.client.put(PODS, runs("p0", "h1"))

    workload = gate.workloads.get("ns/a")
    assert workload is not None

    assert gate.ungater.finished(workload, {"main": 1}) == {}
    assert (await gate.step(late=True)).requeue_after is not None
    assert gate.ungater.finished(workload, {"main": 1}) == {}
    assert gate.patches == []


async def test_a_schema_without_the_field_is_written_to_once() -> None:
    """The API server drops what it does not know: places are held until all pods have ended, and nothing is repeated."""
    gate = Gate(make_gang({"h1": 1, "h2": 1}, **ended(1)), runs("p1", "h2"))
    gate.client.pruned.add("finishedPods")

    await gate.step()
    await gate.step()

    assert len(gate.patches) == 1
    assert given_back(gate) == {}
