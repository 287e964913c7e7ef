"""`kqueue place` with `joint.exact`: the optimum, and the size up to which it is computed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest

from kqueue.core.joint.exact import ExactInput
from kqueue.placing import joint_case, joint_solving
from kqueue.placing.run import NO_OPTIMUM
from tests.unit.cli.joint_documents import make_gang, make_joint, make_racks, make_running
from tests.unit.cli.place_documents import HOST, JSON, ask, problems

EXACT: JSON = {"exact": True}


def units(document: JSON) -> tuple[int, int]:
    """The units of the plan, and those of the optimum."""
    answer = ask({**document, "joint": {**document.get("joint", {}), **EXACT}})
    joint = answer.document["joint"]
    assert not answer.remarks
    return joint["units"], joint["exactUnits"]


def best(racks: Sequence[int], gangs: Sequence[int], worth: Callable[[Sequence[bool]], Any]) -> int:
    """The hosts of the best of all ways to give each gang a rack or none."""
    found: tuple[Any, int] | None = None
    for choice in product(range(len(racks) + 1), repeat=len(gangs)):
        used = [sum(gang for gang, rack in zip(gangs, choice, strict=True) if rack == n) for n in range(len(racks))]
        if all(hosts <= size for hosts, size in zip(used, racks, strict=True)):
            is_in = [rack < len(racks) for rack in choice]
            hosts = sum(gang for gang, one in zip(gangs, is_in, strict=True) if one)
            found = max(found or (worth(is_in), hosts), (worth(is_in), hosts))
    assert found is not None
    return found[1]


@pytest.mark.parametrize("order", ["Strict", "Priority"])
@pytest.mark.parametrize("seed", range(8))
def test_the_optimum_is_the_best_of_all_ways(seed: int, order: str) -> None:
    """By rank with `Strict`; by units, where all have waited equally long, with `Priority`."""
    chance = random.Random(seed)
    sizes = [chance.randint(4, 9) for _ in range(3)]
    gangs = [chance.randint(1, 6) for _ in range(6)]
    document = make_joint(
        make_racks(**dict(zip("abc", sizes, strict=True))),
        *(make_gang(f"g{i}", gang) for i, gang in enumerate(gangs)),
        joint={"order": order},
    )
    plan, optimum = units(document)
    if order == "Strict":
        assert optimum == best(sizes, gangs, list)
    else:
        assert (
            plan
            <= optimum
            == best(sizes, gangs, lambda is_in: sum(g for g, one in zip(gangs, is_in, strict=True) if one))
        )


@pytest.mark.slow
def test_plans_are_mostly_optimal() -> None:
    """Where about as much is asked for as is free: of small random inputs, at least nine in ten."""
    equal = 0
    for seed in range(20):
        chance = random.Random(seed)
        sizes = {rack: chance.randint(4, 12) for rack in "abcdef"}
        gangs: list[JSON] = []
        while sum(gang["podSets"][0]["count"] for gang in gangs) < sum(sizes.values()):
            gangs.append(make_gang(f"g{len(gangs)}", chance.randint(2, 10)))
        plan, optimum = units(make_joint(make_racks(**sizes), *gangs))
        equal += plan == optimum
    assert equal >= 18, equal


def test_the_first_gang_is_kept_although_others_use_more() -> None:
    """E3."""
    gangs = [make_gang("w1", 5), make_gang("w2", 4), make_gang("w3", 4)]
    assert units(make_joint(make_racks(a=8), *gangs)) == (5, 5)
    assert units(make_joint(make_racks(a=8), *gangs, joint={"order": "Priority"})) == (8, 8)


def test_the_optimum_counts_all_resources_of_each_host() -> None:
    """E6: in units of 4 cpu, y has one and x0 eight."""
    pods = [("y", {"gpu": 4, "cpu": 4}), *((f"x{i}", {"gpu": 1, "cpu": 32}) for i in range(4))]
    gangs = [
        {"name": name, "podSets": [{"count": 1, "requests": requests, "topologyRequest": {"unconstrained": True}}]}
        for name, requests in pods
    ]
    assert units(make_joint(make_racks(a=1), *gangs)) == (9, 9)


def test_the_optimum_keeps_slices_whole() -> None:
    """Two racks of three hosts have one slice of two each."""
    gang = make_gang("w", 4, "preferred")
    gang["podSets"][0]["topologyRequest"] |= {"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2}
    gang["podSets"][0]["topologyRequest"]["preferred"] = "block"
    levels = ["block", "rack", HOST]
    later = make_gang("x", 1)
    assert units(make_joint(make_racks(levels, a=3, b=3), gang, later)) == (5, 5)
    gang["podSets"][0]["count"] = 6
    assert units(make_joint(make_racks(levels, a=3, b=3), gang, later)) == (1, 1)


def test_the_optimum_keeps_quota_and_running_workloads() -> None:
    """E4: 9 of 20 pods, of which running ones have taken 7 of the quota."""
    gangs = [make_gang(f"{q}{i}", 1, queue=q) for i in range(10) for q in "ab"]
    queues = [
        {"name": "a", "cohort": "c", "quota": {"gpu": {"nominal": 64, "borrowingLimit": 16}}},
        {"name": "b", "cohort": "c", "quota": {"gpu": {"nominal": 64, "lendingLimit": 32}}},
    ]
    runs = [make_running("r", "a", **{f"a{i}": 1 for i in range(1, 7)}), make_running("s", "b", a7=1)]
    assert units(make_joint(make_racks(a=40), *gangs, queues=queues, running=runs)) == (9, 9)


def test_the_optimum_lets_nobody_pass_in_a_strict_queue() -> None:
    gangs = [make_gang("w1", 5), make_gang("w2", 5), make_gang("w3", 3)]
    strict = [{"name": "q", "strategy": "StrictFIFO"}]
    assert units(make_joint(make_racks(a=8), *gangs, queues=strict)) == (5, 5)
    assert units(make_joint(make_racks(a=8), *gangs)) == (8, 8)


# --- the limits ------------------------------------------------------------------------------------------------------

TWO_POD_SETS = make_gang("w1", 1)
TWO_POD_SETS["podSets"].append({"name": "more", "count": 1})
LARGE = [
    pytest.param({}, [make_gang(f"w{i}", 1) for i in range(25)], "at most 24 workloads, found 25", id="workloads"),
    pytest.param({}, [TWO_POD_SETS], "of one pod set, and w1 has 2", id="pod sets"),
    pytest.param({f"r{chr(97 + i // 26)}{chr(97 + i % 26)}": 1 for i in range(33)}, [make_gang("w1", 1)], "at most 32 domains of the level of each workload, and w1 has 33", id="domains"),
]  # fmt: skip


@pytest.mark.parametrize(("racks", "gangs", "said"), LARGE)
def test_a_document_that_is_too_large_is_refused(racks: dict[str, int], gangs: list[JSON], said: str) -> None:
    document = make_joint(make_racks(**(racks or {"a": 2})), *gangs)
    assert ask(document).code != 2
    answer = ask({**document, "joint": EXACT})
    assert answer.code == 2
    assert said in problems(answer)["/joint/exact"]


def test_without_a_solver_the_optimum_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint_case, "exact_solver", lambda: None)
    document = make_joint(make_racks(a=2), make_gang("w", 1))
    assert ask(document).code == 0
    assert problems(ask({**document, "joint": EXACT})) == {
        "/joint/exact": "OR-tools is not installed: install kqueue[flow], or leave exact out"
    }


def test_a_search_that_ends_at_its_limit_is_a_remark(monkeypatch: pytest.MonkeyPatch) -> None:
    def gives_up(given: ExactInput) -> None:
        assert given.workloads

    monkeypatch.setattr(joint_solving, "exact_solver", lambda: gives_up)
    answer = ask(make_joint(make_racks(a=2), make_gang("w", 1), joint=EXACT))
    assert answer.code == 0
    assert "exactUnits" not in answer.document["joint"]
    assert answer.remarks == (NO_OPTIMUM,)
