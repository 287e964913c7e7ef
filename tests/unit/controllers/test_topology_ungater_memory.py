"""What the ungater learns of releases before its time, and which places are given back."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.controllers.released_pods import PAGE_SIZE, FirstLook
from kqueue.controllers.resources import PODS, WORKLOADS
from kqueue.errors import ServerError, UnreachableError
from kqueue.model import PodView
from kqueue.runtime.controller import Result
from kqueue.runtime.store import Store
from tests.unit.controllers.builders import JSON, condition
from tests.unit.controllers.gang_world import HOST, IN, Gate, gang_of_sets, make_gang, make_pod
from tests.unit.jobs.builders import prefixed

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


async def test_a_first_look_that_fails_is_taken_again_by_those_who_waited_for_it() -> None:
    """The next one looks itself, and the others share its look."""
    gate = Gate(make_gang({"h1": 1}), make_pod("p0"))
    gate.client.sync()
    listed, calls = gate.client.list_page, list[int]()

    async def failing_once(*args: Any, **more: Any) -> bytes:
        calls.append(len(calls))
        await asyncio.sleep(0)
        if len(calls) == 1:
            raise ServerError("no answer", status=503)
        return await listed(*args, **more)

    gate.client.list_page = failing_once  # type: ignore[method-assign]
    look = FirstLook(gate.client, Store[PodView](), of=lambda view: view.gang, on_behind=lambda pod: None)
    ends = await asyncio.gather(*(look.take("ns") for _ in range(3)), return_exceptions=True)

    assert [type(end) for end in ends] == [ServerError, type(None), type(None)]
    assert (len(calls), look.due("ns")) == (2, False)


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


# --- giving back -----------------------------------------------------------------------------------------------------


def ended(count: int, pod_set: str = "main") -> JSON:
    """So many of its pods have ended for good."""
    return {"reclaimablePods": [{"name": pod_set, "count": count}]}


def given_back(gate: Gate) -> dict[str, dict[str, int]]:
    """Pod set -> host -> places, as the server has it."""
    obj = gate.client.object(WORKLOADS, "ns/a")
    assert obj is not None
    found = model.finished_places(msgspec.convert(obj, wire.Workload))
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
