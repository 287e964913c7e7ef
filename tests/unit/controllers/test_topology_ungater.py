"""Pods of admitted gangs are released to their domains: each by one patch, nobody else's, and never to a wrong place."""

from __future__ import annotations

import pytest

from kqueue.controllers.resources import PODS, WORKLOADS
from kqueue.errors import InvalidObjectError
from kqueue.runtime.lane import Lane
from tests.unit.controllers.builders import JSON, condition
from tests.unit.controllers.gang_world import GATE, HOST, IN, RANKED, Gate, gang_of_sets, make_gang, make_pod
from tests.unit.jobs.builders import prefixed


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


async def test_the_quorum_of_a_gang_stands_in_the_order_of_its_ranks() -> None:
    """Its pods are some of the numbered ones: numbers beyond the quorum are no mistake (G3.61)."""
    gang = make_gang({"h1": 2, "h2": 2}, request=RANKED)
    gang["metadata"]["annotations"] = {"kqueue.dev/gang": "scheduling.x-k8s.io/podgroup:g"}
    gate = Gate(gang, *(make_pod(f"p{n}", index=index) for n, index in enumerate((9, 3, 7, 1))))

    await gate.step()

    assert gate.places() == {"p3": "h1", "p1": "h1", "p2": "h2", "p0": "h2"}
    assert gate.recorder.events == []


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
