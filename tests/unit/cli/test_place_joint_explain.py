"""`kqueue place --explain` with several workloads: the plan, each workload by rank, the room before and after."""

from __future__ import annotations

import json

import pytest

from kqueue.placing import joint_solving
from kqueue.placing.run import run
from tests.unit.cli.joint_documents import make_gang, make_joint, make_racks
from tests.unit.cli.place_documents import HOST, JSON


def explain(document: JSON) -> str:
    """The description of a document."""
    return run(json.dumps(document).encode(), explain=True).explanation


def test_a_plan_is_described() -> None:
    """E2."""
    gangs = [make_gang("w1", 5), make_gang("w2", 5), make_gang("w3", 9)]
    text = explain(make_joint(make_racks(a=10, b=9, c=2), *gangs, name="two-racks"))
    assert (
        text
        == f"""\
two-racks: 3 of 3 workloads are placed
topology default: 3 x rack, 21 x {HOST}
nodes: 21, of which 21 leaves

plan: Packed, order Strict
placed: 19 of at most 19 units (each 8 gpu); one by one it would be 10
no plan places more without leaving out an earlier workload

by rank:
  1. w1 (5 units): placed, 5 in a
  2. w2 (5 units): placed, 5 in a
  3. w3 (9 units): placed, 9 in b

free before and after, and the new pods:
    a: gpu 80 -> 0   <- w1 5, w2 5
    b: gpu 72 -> 0   <- w3 9
    c: gpu 16
"""
    )
    assert run(json.dumps(make_joint(make_racks(a=1), make_gang("w", 1))).encode()).explanation == ""


QUEUES = [
    {"name": "limited", "quota": {"gpu": {"nominal": 16}}},
    {"name": "strict", "strategy": "StrictFIFO"},
    {"name": "free"},
]
GANGS = [
    make_gang("first", 2, queue="free"),
    make_gang("third", 3, queue="limited"),
    make_gang("long", 9, queue="strict"),
    make_gang("behind", 1, queue="strict"),
    make_gang("late", 3, queue="free"),
    make_gang("level", 1, queue="limited"),
    make_gang("empty", 0, queue="free"),
]
GANGS[-2]["podSets"][0]["topologyRequest"] = {"required": "row"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("first", "(2 units): placed, 2 in a"),
        ("third", "(3 units): cannot be placed: needs 24 gpu of queue limited, which has 16"),
        ("long", "(9 units): cannot be placed: 9 pods do not fit in one domain of level rack"),
        ("behind", "(1 unit): left out: a workload before it waits, which no other passes in a strict queue"),
        ("level", "(1 unit): cannot be placed: flavor default, topology default: the topology has no level 'row'"),
        ("empty", "(0 units): placed, without pods"),
        ("late", "(3 units): left out: 3 pods do not fit in one domain of level rack"),
    ],
)
def test_the_reason_for_no_place_is_described(name: str, said: str) -> None:
    text = explain(make_joint(make_racks(a=4), *GANGS, queues=QUEUES))
    (line,) = (line for line in text.splitlines() if f". {name} (" in line)
    assert said in line, line


def test_a_proof_is_described() -> None:
    """E3."""
    text = explain(make_joint(make_racks(a=8), make_gang("w1", 5), make_gang("w2", 4)))
    assert "\na better plan may exist: the limit counts gangs that are split, and no plan splits any\n" in text
    assert text.count("; proven: no plan with the same earlier workloads has room for it\n") == 1


def test_a_full_cluster_is_described() -> None:
    """The small gang gets the last host, and the bound allows the earlier one to be split."""
    gangs = [make_gang("w1", 3), make_gang("w2", 2), make_gang("w3", 1)]
    text = explain(make_joint(make_racks(a=4), *gangs))
    assert "\nplaced: 4 of at most 4 units (each 8 gpu); one by one it would be 4\n" in text
    assert "\nno plan places more; whether one places an earlier workload in place of later ones is not known\n" in text


def test_an_optimum_is_described() -> None:
    text = explain(make_joint(make_racks(a=8), make_gang("w1", 5), make_gang("w2", 4), joint={"exact": True}))
    assert "\noptimum: 5 units\n" in text
    assert "may exist" not in text


def test_a_plan_without_bound_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint_solving, "solver", lambda: None)
    text = explain(make_joint(make_racks(a=8), make_gang("w1", 5)))
    assert (
        "\nplaced: 5 units (each 8 gpu); one by one it would be 5\nwhether a better plan exists is not known\n" in text
    )


def test_many_racks_and_workloads_are_counted() -> None:
    names = [f"r{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(40)]
    gangs = [make_gang(f"g{i:03}", 1) for i in range(241)]
    for gang in gangs:
        gang["podSets"][0]["requests"] = {"gpu": 1}
    lines = explain(make_joint(make_racks(**dict.fromkeys(names, 1)), *gangs)).splitlines()
    assert "  and 41 more, 41 of them placed" in lines
    assert sum(" in r" in line for line in lines) == 200
    drawn = [line for line in lines if line.startswith("    r")]
    assert len(drawn) == 32
    assert drawn[0] == "    raa: gpu 8 -> 0   <- g000 1, g001 1, g002 1, g003 1, g004 1, g005 1, g006 1, g007 1"
    assert lines[-1] == "    and 8 more"


def test_levels_above_racks_are_drawn_and_hosts_only_without_racks() -> None:
    levels = ["block", "rack", HOST]
    lines = explain(make_joint(make_racks(levels, a=2, b=1), make_gang("w", 2))).splitlines()
    assert lines[-3:] == ["    all: gpu 24 -> 8", "      a: gpu 16 -> 0   <- w 2", "      b: gpu 8"]
    hosts = {**make_racks(a=2), "topology": {"levels": [HOST]}}
    gang = {"name": "w", "podSets": [{"count": 1, "requests": {"gpu": 8}}]}
    assert explain(make_joint(hosts, gang)).splitlines()[-2:] == ["    a1: gpu 8 -> 0   <- w 1", "    a2: gpu 8"]


def test_a_cluster_without_nodes_is_described() -> None:
    text = explain(make_joint(make_racks(), make_gang("w", 1)))
    assert text.startswith("placement: 0 of 1 workloads is placed\n")
    assert text.endswith("free before and after, and the new pods:\n")
