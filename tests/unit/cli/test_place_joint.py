"""`kqueue place` with several workloads: the plan of a round, its bound, and why workloads are left out."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from kqueue.placing import joint_solving
from kqueue.placing.run import NO_SOLVER, run
from tests.unit.cli.joint_documents import (
    failure_of,
    hosts_of,
    make_gang,
    make_joint,
    make_racks,
    make_running,
    racks_of,
    statuses_of,
)
from tests.unit.cli.place_documents import HOST, JSON, ask

TWO_RACKS = make_joint(
    make_racks(a=10, b=9), make_gang("w1", 5), make_gang("w2", 5), make_gang("w3", 9), name="two-racks"
)
ONE_RACK = make_joint(make_racks(a=8), make_gang("w1", 5), make_gang("w2", 4), make_gang("w3", 4))


def facts(document: JSON, *names: str) -> Any:
    """Facts about the plan, by their names."""
    joint = ask(document).document["joint"]
    return [joint[name] for name in names]


def test_two_gangs_share_a_rack_so_that_the_third_has_one() -> None:
    """E2."""
    answer = ask(TWO_RACKS)
    assert answer.code == 0
    assert racks_of(answer) == {"w1": "a", "w2": "a", "w3": "b"}
    document = answer.document
    assert list(document) == ["name", "placed", "tree", "joint", "workloads"]
    assert (document["name"], document["placed"]) == ("two-racks", True)
    assert document["tree"] == {"leaves": 19, "ignoredNodes": {}}
    joint = document["joint"]
    assert joint.pop("chosen") in ("Packed", "Guided")
    assert all(joint.pop(fact) > 0 for fact in ("steps", "classes", "arcs"))
    assert joint == {
        "status": "Optimal",
        "order": "Strict",
        "unit": {"resource": "gpu", "amount": 8},
        "bound": 19,
        "units": 19,
        "greedyUnits": 10,
        "gap": "0.000",
        "cost": 0,
        "greedyCost": 0,
    }
    first = document["workloads"][0]
    assert list(first) == ["name", "rank", "status", "relaxedUnits", "units", "provenLeft", "podSets"]
    assert [first[key] for key in list(first)[:-1]] == ["w1", 1, "Placed", 5, 5, False]
    assert first["podSets"][0]["status"] == "Placed"


def test_the_first_gang_is_not_left_out_for_two_others() -> None:
    """E3."""
    answer = ask(ONE_RACK)
    assert answer.code == 1
    assert statuses_of(answer) == {"w1": "Placed", "w2": "Left", "w3": "Left"}
    joint = answer.document["joint"]
    assert [joint[fact] for fact in ("bound", "units", "gap", "status")] == [8, 5, "0.375", "Feasible"]
    failure = failure_of(answer, "w2")
    assert [failure[fact] for fact in ("code", "level", "fit", "total")] == ["NoFit", "rack", 3, 4]


@pytest.mark.parametrize(
    ("waits", "placed"), [((10, 10), ["w2", "w3"]), ((158, 99), ["w2", "w3"]), ((160, 99), ["w1"])]
)
def test_with_priority_the_first_gang_waits_until_it_is_worth_more(waits: tuple[int, int], placed: list[str]) -> None:
    """E3: the workload that waits longest comes first, and two others use more."""
    first, others = waits
    gangs = [make_gang("w1", 5, waitSeconds=first), *(make_gang(f"w{i}", 4, waitSeconds=others) for i in (2, 3))]
    answer = ask(make_joint(make_racks(a=8), *gangs, joint={"order": "Priority"}))
    assert [name for name, status in statuses_of(answer).items() if status == "Placed"] == placed


@pytest.mark.parametrize(
    ("asking", "placed"), [("ab", {"a": 4, "b": 5}), ("a", {"a": 4, "b": 0}), ("b", {"a": 0, "b": 9})]
)
def test_quota_of_a_cohort_is_shared(asking: str, placed: dict[str, int]) -> None:
    """E4: within what is lent and borrowed; queues take turns."""
    gangs = [make_gang(f"{q}{i}", 1, queue=q) for i in range(10) for q in asking]
    queues = [
        {"name": "a", "cohort": "c", "quota": {"gpu": {"nominal": 8, "borrowingLimit": 2}}},
        {"name": "b", "cohort": "c", "quota": {"gpu": {"nominal": 8, "lendingLimit": 4}}},
    ]
    runs = [make_running("used-a", "a", a1=6), make_running("used-b", "b", a1=1)]
    for one in [*gangs, *runs]:
        one["podSets"][0]["requests"] = {"gpu": 1}
    answer = ask(make_joint(make_racks(gpu=40, a=1), *gangs, queues=queues, running=runs))
    assert {q: sum(name.startswith(q) for name in hosts_of(answer)) for q in "ab"} == placed
    assert [answer.document["joint"][fact] for fact in ("bound", "gap")] == [sum(placed.values()), "0.000"]
    for q in asking:
        failure = {"code": "NoQuota", "queue": q, "resource": "gpu", "asked": 1, "available": 0}
        assert failure_of(answer, f"{q}9") == failure


def test_preferred_racks_are_not_split() -> None:
    """E5."""
    racks = make_racks(["block", "rack", HOST], a=6, b=5, c=5)
    gangs = [make_gang(f"g{i}", count, "preferred") for i, count in enumerate([3, 5, 5, 3])]
    answer = ask(make_joint(racks, *gangs))
    assert sorted(racks_of(answer).values()) == ["a", "a", "b", "c"]
    assert [answer.document["joint"][fact] for fact in ("greedyCost", "cost")] == [180, 0]


def test_two_resources_are_relaxed_between_classes() -> None:
    """E6: cpu is the scarcer resource, of which 60 are left beside y."""
    anywhere = {"unconstrained": True}
    pods = [("y", {"gpu": 4, "cpu": 4}), *((f"x{i}", {"gpu": 1, "cpu": 32}) for i in range(4))]
    gangs = [
        {"name": name, "podSets": [{"count": 1, "requests": requests, "topologyRequest": anywhere}]}
        for name, requests in pods
    ]
    answer = ask(make_joint(make_racks(a=1), *gangs))
    assert list(hosts_of(answer)) == ["y", "x0"]
    assert [answer.document["joint"][fact] for fact in ("bound", "units", "gap")] == [16, 9, "0.438"]


def test_a_rack_that_gangs_cannot_fill_leaves_no_gap() -> None:
    """E7."""
    gangs = [make_gang(f"g{i}", 3) for i in range(3)]
    assert facts(make_joint(make_racks(a=7), *gangs), "bound", "units", "gap", "status") == [6, 6, "0.000", "Optimal"]


def led(name: str) -> JSON:
    """A leader and six workers in slices of two, of whole hosts in one rack."""
    slices = {"required": "rack", "podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2}
    whole = {"requests": {"gpu": 8}, "groupName": "all"}
    return {
        "name": name,
        "podSets": [
            {"name": "leader", "count": 1, "topologyRequest": {"required": "rack"}, **whole},
            {"name": "workers", "count": 6, "topologyRequest": slices, **whole},
        ],
    }


@pytest.mark.parametrize(("hosts", "placed", "bound"), [(8, {"one"}, 7), (7, {"one"}, 7), (6, set[str](), 0)])
def test_a_leader_and_slices_are_one_gang(hosts: int, placed: set[str], bound: int) -> None:
    """E8."""
    answer = ask(make_joint(make_racks(a=hosts), led("one"), led("two")))
    assert set(hosts_of(answer)) == placed
    assert answer.document["joint"]["bound"] == bound
    assert statuses_of(answer)["two"] == ("Left" if placed else "Failed")


# --- running workloads -----------------------------------------------------------------------------------------------


def test_running_workloads_take_room() -> None:
    document = make_joint(make_racks(a=4, b=4), make_gang("w", 3), running=[make_running("r", a1=1, a2=1)])
    assert racks_of(ask(document)) == {"w": "b"}
    document["running"].append({**make_running("s", b1=1, b4=1)})
    answer = ask(document)
    assert statuses_of(answer) == {"w": "Failed"}
    assert answer.document["joint"]["bound"] == 0
    remaining = ask({**document, "output": {"remaining": True}}).document["remaining"]
    assert {leaf["values"][0] for leaf in remaining if not leaf["resources"]["gpu"]} == {"a1", "a2", "b1", "b4"}


def test_running_workloads_do_not_count_in_an_empty_cluster() -> None:
    limited = [{"name": "q", "quota": {"gpu": {"nominal": 16}}}]
    document = make_joint(make_racks(a=2), make_gang("w", 2), running=[make_running("r", a1=1)], queues=limited)
    assert failure_of(ask(document), "w")["code"] == "NoQuota"
    assert ask({**document, "algorithm": {"simulateEmpty": True}}).code == 0


def test_a_running_workload_on_a_cordoned_node_counts_in_quota_only() -> None:
    racks = make_racks(a=3)
    racks["nodes"][0]["unschedulable"] = True
    queues = [{"name": "q", "quota": {"gpu": {"nominal": 24}}}]
    document = make_joint(racks, make_gang("w", 2), running=[make_running("r", a1=1)], queues=queues)
    assert hosts_of(ask(document)) == {"w": ["a2", "a3"]}
    document["queues"][0]["quota"]["gpu"]["nominal"] = 23
    assert failure_of(ask(document), "w") == {
        "code": "NoQuota", "queue": "q", "resource": "gpu", "asked": 16, "available": 15
    }  # fmt: skip


def test_running_pods_of_several_pod_sets_have_an_assignment_each() -> None:
    pod_sets = [
        {
            **make_running("r", None, **hosts)["podSets"][0],
            "name": name,
            "assignment": make_running("r", None, **hosts)["assignment"],
        }
        for name, hosts in (("one", {"a1": 1}), ("two", {"a2": 1, "b1": 1}))
    ]
    document = make_joint(make_racks(a=3, b=3), make_gang("w", 2), running=[{"name": "r", "podSets": pod_sets}])
    assert hosts_of(ask(document)) == {"w": ["b2", "b3"]}


# --- queues ----------------------------------------------------------------------------------------------------------


def test_a_strict_queue_does_not_let_others_pass() -> None:
    """The small gang would fit beside the first one."""
    gangs = [make_gang("w1", 5), make_gang("w2", 5), make_gang("w3", 3)]
    for strategy, placed in (("StrictFIFO", ["w1"]), ("BestEffortFIFO", ["w1", "w3"])):
        answer = ask(make_joint(make_racks(a=8), *gangs, queues=[{"name": "q", "strategy": strategy}]))
        assert list(hosts_of(answer)) == placed
        last = answer.document["workloads"][2]
        assert (last["status"], "failure" in last) == (
            ("Left", False) if strategy == "StrictFIFO" else ("Placed", False)
        )


def test_the_order_is_priority_then_waiting_then_the_document() -> None:
    gangs = [make_gang("w1", 1), make_gang("w2", 1, waitSeconds=5), make_gang("w3", 1, priority=1), make_gang("w4", 1)]
    workloads = ask(make_joint(make_racks(a=4), *gangs)).document["workloads"]
    assert {entry["name"]: entry["rank"] for entry in workloads} == {"w1": 3, "w2": 2, "w3": 1, "w4": 4}
    assert [entry["name"] for entry in workloads] == ["w1", "w2", "w3", "w4"]


def test_a_queue_lends_nothing_of_a_resource_that_it_does_not_limit() -> None:
    queues = [
        {"name": "limited", "cohort": "c", "quota": {"gpu": {"nominal": 8}}},
        {"name": "other", "cohort": "c", "quota": {"cpu": {"nominal": 1}}},
    ]
    gangs = [make_gang("w1", 2, queue="limited"), make_gang("w2", 3, queue="other")]
    assert list(hosts_of(ask(make_joint(make_racks(a=5), *gangs, queues=queues)))) == ["w2"]


# --- the same answer every time --------------------------------------------------------------------------------------


def crowded(seed: int) -> JSON:
    """A document in which not all fit."""
    chance = random.Random(seed)
    gangs = [
        make_gang(f"g{i}", chance.randint(1, 6), chance.choice(["required", "preferred"]), queue=chance.choice("pq"))
        for i in range(12)
    ]
    queues = [{"name": name, "cohort": "c", "quota": {"gpu": {"nominal": 120}}} for name in "pq"]
    return make_joint(make_racks(a=9, b=8, c=10), *gangs, queues=queues, output={"remaining": True, "paths": True})


@pytest.mark.parametrize("seed", range(6))
def test_equal_documents_have_equal_answers(seed: int) -> None:
    """Byte for byte; the order of nodes and keys does not matter."""
    document, chance = crowded(seed), random.Random(seed)
    assert ask(document).code == 1
    other = {key: document[key] for key in sorted(document, reverse=True)}
    other["nodes"] = chance.sample(document["nodes"], len(document["nodes"]))
    first, again, shuffled = (run(json.dumps(d).encode(), explain=True) for d in (document, document, other))
    assert first.text(compact=False) == again.text(compact=False) == shuffled.text(compact=False)
    assert first.explanation == again.explanation == shuffled.explanation


def test_without_a_solver_there_is_a_plan_and_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint_solving, "solver", lambda: None)
    for document, code in ((TWO_RACKS, 0), (ONE_RACK, 1)):
        answer = ask(document)
        assert answer.code == code
        assert answer.remarks == (NO_SOLVER,)
        assert answer.document["joint"]["status"] == "NoBound"
        assert not {"bound", "gap"} & set(answer.document["joint"])
        assert all(entry["relaxedUnits"] == 0 for entry in answer.document["workloads"])


def test_many_inputs_at_once_may_be_joint_ones() -> None:
    single = {**make_racks(a=1), "podSets": [{"count": 1, "requests": {"gpu": 1}}]}
    answer = ask({"cases": [TWO_RACKS, ONE_RACK, single]})
    assert answer.code == 0
    first, second, third = answer.document["results"]
    assert (first["placed"], second["placed"], third["placed"]) == (True, False, True)
    bad = ask({"cases": [TWO_RACKS, {**ONE_RACK, "workloads": []}]})
    assert bad.code == 2
    assert bad.document["results"][1]["error"]["problems"][0]["path"] == "/workloads"
