"""The seam of nomination: a planner that places many workloads together replaces one step, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from kqueue.core.decision import Admit, Decision, Wait
from kqueue.core.planners import PLANNERS, Wish, register
from kqueue.core.topology.arranged import Hint
from kqueue.core.topology.placers import PLACERS
from kqueue.core.topology.result import DomainUsage
from kqueue.core.workload import Head, Snapshot
from kqueue.errors import ConfigError
from kqueue.jobs import profiles
from kqueue.manager.extensions import PLANNERS_GROUP, load_profiles
from tests.builders import GPU, make_head, make_snapshot, make_view, plan
from tests.unit.toys import toy_planner


@pytest.fixture(autouse=True)
def _registries() -> Iterator[None]:
    """What a test registers is forgotten."""
    before, known = dict(PLACERS), dict(profiles._known)
    yield
    profiles._known.clear()
    profiles._known.update(known)
    PLANNERS.clear()
    PLACERS.clear()
    PLACERS.update(before)


SIZES = {"old": 2, "middle": 3, "young": 3}


def five_and_three(sizes: dict[str, int] = SIZES, **more: Any) -> tuple[Snapshot, list[Head]]:
    """One rack with five free hosts and one with three, and gangs that each want one rack, oldest first."""
    view = make_view((1, 2, 5))
    view.capacity.charge([DomainUsage(("b0-r1-h3",), {GPU: 8}, 1), DomainUsage(("b0-r1-h4",), {GPU: 8}, 1)])
    snapshot = make_snapshot({name: {"gpu": 80} for name in sizes}, topologies={"gpu": view})
    ages = range(len(sizes), 0, -1)
    heads = [
        make_head(name, queue=name, pods=pods, age=age, **more)
        for (name, pods), age in zip(sizes.items(), ages, strict=True)
    ]
    return snapshot, [replace(head, algorithm=toy_planner.NAME) for head in heads]


def admitted(decisions: list[Decision]) -> list[str]:
    return [decision.head.uid for decision in decisions if isinstance(decision, Admit)]


def test_a_planner_of_one_file_places_what_one_by_one_does_not_fit() -> None:
    """One line registers it; workloads name it as their profile."""
    snapshot, heads = five_and_three()
    assert admitted(list(plan(snapshot, [replace(head, algorithm=None) for head in heads]))) == ["old", "middle"]

    register(toy_planner.NAME, toy_planner.plan)
    snapshot, heads = five_and_three()
    assert admitted(list(plan(snapshot, heads))) == ["old", "middle", "young"]


def test_only_workloads_that_name_a_planner_are_its_own() -> None:
    """The others are placed one by one, as ever."""
    asked: list[str] = []

    def planner(snapshot: Snapshot, wishes: Sequence[Wish]) -> Sequence[Hint | None]:
        asked.extend(wish.head.uid for wish in wishes)
        return [None] * len(wishes)

    register(toy_planner.NAME, planner)
    snapshot, heads = five_and_three()
    decisions = list(plan(snapshot, [heads[0], replace(heads[1], algorithm=None)]))
    assert (asked, admitted(decisions)) == (["old"], ["old", "middle"])


def hint(*paths: str, pods: int = 1) -> Hint:
    return {"main": [(("b0", path[:5], path), pods) for path in paths]}


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(hint("b0-r0-h0", "b0-r1-h0"), id="two-racks-where-one-must-hold-all"),
        pytest.param(hint("b0-r0-h0"), id="too-few-pods"),
        pytest.param(hint("b0-r1-h2", "b0-r1-h3"), id="a-host-without-room"),
        pytest.param(hint("b0-r0-h0", "b0-r0-h9"), id="a-host-that-does-not-exist"),
        pytest.param(hint("b0-r0-h0", "b0-r0-h0"), id="a-host-twice"),
        pytest.param(hint("b0-r0-h0", pods=2), id="more-pods-than-the-host-has-room-for"),
        pytest.param({"other": hint("b0-r0-h0")["main"]}, id="another-pod-set"),
        pytest.param({"main": [("b0", "x", "y")]}, id="another-form"),
        pytest.param({}, id="nothing"),
    ],
)
def test_a_hint_that_is_no_placement_is_dropped(wrong: Any) -> None:
    """The workload is placed by itself, as without the planner."""
    snapshot, heads = five_and_three({"old": 2})
    (usual,) = plan(snapshot, [replace(heads[0], algorithm=None)])

    register(toy_planner.NAME, lambda _snapshot, wishes: [wrong] * len(wishes))
    snapshot, heads = five_and_three({"old": 2})
    (decision,) = plan(snapshot, heads)

    assert isinstance(usual, Admit)
    assert isinstance(decision, Admit)
    assert decision.admission == usual.admission


def test_a_hint_that_is_a_placement_is_followed() -> None:
    register(toy_planner.NAME, lambda _snapshot, wishes: [hint("b0-r0-h1", "b0-r0-h4")] * len(wishes))
    snapshot, heads = five_and_three({"old": 2})
    (decision,) = plan(snapshot, heads)

    assert isinstance(decision, Admit)
    placed = decision.admission.pod_sets[0].topology
    assert placed is not None
    assert {domain.values[-1]: domain.count for domain in placed.domains} == {"b0-r0-h1": 1, "b0-r0-h4": 1}


def test_two_hints_for_the_same_hosts_do_not_give_them_twice() -> None:
    """What an earlier workload of the plan takes is charged; the later one is placed by itself."""
    register(toy_planner.NAME, lambda _snapshot, wishes: [hint("b0-r0-h1", "b0-r0-h4")] * len(wishes))
    snapshot, heads = five_and_three({"old": 2, "young": 2})
    first, second = plan(snapshot, heads)

    assert isinstance(first, Admit)
    assert isinstance(second, Admit)
    hosts = [
        {d.values for d in p.topology.domains} for x in (first, second) for p in x.admission.pod_sets if p.topology
    ]
    assert hosts[0].isdisjoint(hosts[1])


def raises(_snapshot: Snapshot, _wishes: Sequence[Wish]) -> Sequence[Hint | None]:
    raise RuntimeError("a bug of the planner")


@pytest.mark.parametrize("planner", [raises, lambda _snapshot, _wishes: []], ids=["raises", "answers-too-few"])
def test_a_planner_that_fails_stops_nobody(planner: Any) -> None:
    """All are placed one by one, and the failure is told."""
    register(toy_planner.NAME, planner)
    snapshot, heads = five_and_three()
    failed: list[str] = []
    decisions = list(plan(snapshot, heads, planner_failed=lambda name, _error: failed.append(name)))

    assert (admitted(decisions), failed) == (["old", "middle"], [toy_planner.NAME])
    assert [type(decision) for decision in decisions][-1] is Wait


def test_packages_bring_planners() -> None:
    """Loaded by their entry points, beside placers."""
    entry = EntryPoint(toy_planner.NAME, "tests.unit.toys.toy_planner:plan", PLANNERS_GROUP)
    assert load_profiles([entry]) == [toy_planner.NAME]
    assert {toy_planner.NAME: toy_planner.plan} == PLANNERS
    assert profiles.known()[-1] == toy_planner.NAME


def test_a_package_whose_planner_cannot_be_used_stops_the_start() -> None:
    with pytest.raises(ConfigError, match="planner Broken of an installed package"):
        load_profiles([EntryPoint("Broken", "no.such.module:plan", PLANNERS_GROUP)])


def test_the_planner_of_the_page_places_the_largest_first() -> None:
    """The code of the how-to page runs as it is written there."""
    page = (Path(__file__).parents[3] / "docs/how-to/write-a-planner.md").read_text()
    code = re.search(r"<!-- planner: run by a test -->\n```python\n(.*?)```", page, re.DOTALL)
    assert code is not None
    found: dict[str, Any] = {}
    exec(code[1], found)
    register(toy_planner.NAME, found["largest_first"])

    snapshot, heads = five_and_three()
    assert admitted(list(plan(snapshot, heads))) == ["old", "middle", "young"]


def test_a_name_that_is_taken_is_an_error() -> None:
    with pytest.raises(ValueError, match="registered already"):
        register("optimal", toy_planner.plan)
    assert PLANNERS == {}
