"""`kqueue place` with `joint.policies`: costs that choose places, and workloads that wait for better ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kqueue.placing.run import Answer, run
from tests.unit.cli.joint_documents import hosts_of, make_joint, make_racks, make_running, statuses_of
from tests.unit.cli.place_documents import HOST, JSON, ask

BANDWIDTH = "kqueue.dev/bandwidth"


def policies(*names: str, **parameters: Any) -> JSON:
    """Settings with these policies, all of the same parameters."""
    return {"policies": [{"name": name, **({"parameters": parameters} if parameters else {})} for name in names]}


def pods(name: str, count: int = 1, /, requests: JSON | None = None, **changes: Any) -> JSON:
    """A workload of pods on any hosts."""
    pod_set = {"count": count, "requests": requests or {"gpu": 1}, "topologyRequest": {"unconstrained": True}}
    return {"name": name, "podSets": [pod_set], **changes}


def pods_on(answer: Answer) -> dict[str, int]:
    """New pods by host."""
    found: dict[str, int] = {}
    for entry in answer.document["workloads"]:
        for pod_set in entry["podSets"]:
            for domain in pod_set.get("assignment", {"domains": []})["domains"]:
                found[domain["values"][-1]] = found.get(domain["values"][-1], 0) + domain["count"]
    return found


def test_workloads_go_to_the_places_that_they_prefer() -> None:
    """E1: P0 prefers N0 and P1 N2, which are not the first hosts of their racks."""
    racks = make_racks(gpu=1, a=2, b=2)
    gangs = [pods("p0", prefers="rack=a, kubernetes.io/hostname=a2"), pods("p1", prefers=f"rack=b,{HOST}=b2")]
    answer = ask(make_joint(racks, *gangs, joint=policies("locality", waitFactor=0)))
    assert hosts_of(answer) == {"p0": ["a2"], "p1": ["b2"]}
    without = ask(make_joint(racks, *gangs))
    assert hosts_of(without) == {"p0": ["a1"], "p1": ["a2"]}


@pytest.mark.parametrize(
    ("waits", "factor", "status"),
    [(299, 1000, "Deferred"), (300, 1000, "Placed"), (599, 500, "Deferred"), (600, 500, "Placed")],
)
def test_a_workload_waits_for_its_place_until_another_is_cheaper(waits: int, factor: int, status: str) -> None:
    """E12."""
    running = [make_running("r", a1=1)]
    gang = pods("w", prefers="rack=a", waitSeconds=waits)
    answer = ask(make_joint(make_racks(a=1, b=1), gang, running=running, joint=policies("locality", waitFactor=factor)))
    assert statuses_of(answer) == {"w": status}
    (entry,) = answer.document["workloads"]
    assert "failure" not in entry
    assert entry.get("opensAfterSeconds") == (1 if status == "Deferred" else None)
    assert answer.code == (1 if status == "Deferred" else 0)


def test_waiting_for_a_place_is_described() -> None:
    gang, running = pods("w", prefers="rack=a"), [make_running("r", a1=1)]
    document = make_joint(make_racks(a=1, b=1), gang, running=running, joint=policies("locality"))
    text = run(json.dumps(document).encode(), explain=True).explanation
    assert (
        "w (1 unit): waits for a place near its data, which has no room now; other places are good enough in 300 s"
        in text
    )


def test_pods_are_spread() -> None:
    """E10."""
    running = [make_running("r", a1=1)]
    running[0]["podSets"][0]["requests"] = {"gpu": 1}
    answer = ask(make_joint(make_racks(a=3), pods("w", 4), running=running, joint=policies("spreading")))
    assert pods_on(answer) == {"a1": 1, "a2": 2, "a3": 1} or pods_on(answer) == {"a1": 1, "a2": 1, "a3": 2}
    assert answer.document["joint"]["cost"] == 60


def test_neighbours_that_disturb_each_other_are_apart() -> None:
    """E13: both wait, and both hosts are empty; and one of them runs."""
    matrix = policies("interference", matrix={"x": {"y": 100}})
    both = [pods("x", interference="x"), pods("y", interference="y")]
    found = hosts_of(ask(make_joint(make_racks(a=2), *both, joint=matrix)))
    assert found["x"] != found["y"]
    running = [{**make_running("r", a1=1), "interference": "x"}]
    running[0]["podSets"][0]["requests"] = {"gpu": 1}
    document = make_joint(make_racks(a=2), both[1], running=running)
    assert hosts_of(ask({**document, "joint": matrix})) == {"y": ["a2"]}
    assert hosts_of(ask(document)) == {"y": ["a1"]}


def test_measured_use_decides_between_hosts() -> None:
    """E15."""
    document = make_joint(make_racks(a=2), pods("w", requests={"cpu": 1}), joint=policies("utilisation"))
    assert hosts_of(ask(document)) == {"w": ["a1"]}
    measured = {"a1": [{"cpu": "58"}], "a2": [{"cpu": 12}]}
    assert hosts_of(ask({**document, "statistics": measured})) == {"w": ["a2"]}
    later = {"a1": [{"cpu": 12}], "a2": [*[{"cpu": 1}] * 8, {"cpu": "58"}, {"cpu": "58"}]}
    assert hosts_of(ask({**document, "statistics": later})) == {"w": ["a1"]}, "nine of ten samples are not above it"


def test_the_least_loaded_network_is_used() -> None:
    """E11, with bandwidth as a resource of hosts."""
    racks = make_racks(a=3)
    for node in racks["nodes"]:
        node["allocatable"][BANDWIDTH] = 10
    measured = {"a1": [{"bandwidth": 6}], "a2": [{"bandwidth": 2}], "a3": [{"bandwidth": 0}]}
    document = make_joint(racks, pods("w", 3, requests={BANDWIDTH: 3}), statistics=measured, joint=policies("network"))
    answer = ask(document)
    assert pods_on(answer) == {"a2": 1, "a3": 2}
    assert answer.document["joint"]["cost"] == 1400


def test_short_workloads_come_first() -> None:
    gangs = [pods("long", 8, expectedRuntime="36h"), pods("short", 8, expectedRuntime="10m")]
    assert list(hosts_of(ask(make_joint(make_racks(a=1), *gangs, joint=policies("shortest"))))) == ["short"]
    assert list(hosts_of(ask(make_joint(make_racks(a=1), *gangs)))) == ["long"]


def test_queues_share_by_weight() -> None:
    """E14: in a full cluster the shares are as the weights."""
    queues = [{"name": name, "weight": weight} for name, weight in (("p", 3), ("q", 2), ("r", 1))]
    gangs = [pods(f"{queue}{i:02}", queue=queue) for i in range(24) for queue in "pqr"]
    answer = ask(make_joint(make_racks(a=3), *gangs, queues=queues, joint=policies("fairness")))
    placed = list(hosts_of(answer))
    assert answer.document["joint"]["order"] == "Priority"
    assert [sum(name[0] == queue for name in placed) for queue in "pqr"] == [12, 8, 4]


def test_a_wish_for_an_unknown_level_is_remarked() -> None:
    answer = ask(make_joint(make_racks(a=1), pods("w", prefers="row=7"), joint=policies("locality")))
    assert answer.code == 0
    assert {remark.path: remark.text for remark in answer.remarks} == {
        "/workloads/0/prefers": (
            f"the topology has no level 'row', so the wish is ignored: the levels are rack, {HOST}"
        )
    }
