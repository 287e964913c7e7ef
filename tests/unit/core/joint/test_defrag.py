"""Defragmentation plans: the cheapest moves of workloads whose users agree, on room that is free before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kqueue.core.demand import Demands
from kqueue.core.joint.covers import cheapest_covers
from kqueue.core.joint.defrag import DefragPlan, DefragSettings, Goal, NoPlan, NoPlanReason, defragment
from kqueue.core.joint.fragmentation import fragmentation, reachable_slots
from kqueue.core.joint.goals import goal_of, goal_of_nodes
from kqueue.core.joint.moving import RunningGang, charge
from kqueue.core.joint.world import World
from kqueue.core.lost_work import lost_seconds
from kqueue.core.planned_state import PlannedState
from kqueue.core.preemption import Rules
from kqueue.core.topology import DomainUsage, PodSetRequest, TopologyRequest
from kqueue.core.topology.request import SliceLayer
from kqueue.core.workload import TopologyView
from tests.builders import GPU, START, make_head
from tests.unit.core.joint.worlds import anywhere, racks, world_of

NEVER = ("kqueue.dev/reschedule: Never",)
ANY = DefragSettings(moves=100, pods=10_000, pod_seconds=10**9)


@pytest.mark.parametrize(
    ("pods", "size", "slots", "thousandths"),
    [
        ((3, 3, 3, 3, 8), 4, 2, 600),
        ((10, 10, 10, 10), 8, 4, 200),
        ((16, 0, 0, 16), 8, 4, 0),
        ((5, 6, 7, 6), 8, 0, 1000),
        ((0, 0), 8, 0, 0),
        ((), 8, 0, 0),
        ((16, 5), 16, 1, 238),
    ],
)
def test_the_part_of_free_room_that_gangs_cannot_use(
    pods: tuple[int, ...], size: int, slots: int, thousandths: int
) -> None:
    """E20, and the last figure of E21."""
    found = fragmentation(np.array(pods, dtype=np.int64), size)
    assert (found.slots, found.thousandths) == (slots, thousandths)


@pytest.mark.parametrize(
    ("emptied", "total", "size", "others", "slots"),
    [
        ((16, 16, 5), 21, 16, (), 1),
        ((16, 16, 16), 31, 16, (), 1),
        ((7, 7), 14, 4, (3, 3), 2),
        ((7, 7), 14, 4, (5, 5), 0),
        ((3, 3), 6, 4, (), 0),
    ],
)
def test_no_arrangement_has_more_slots(
    emptied: tuple[int, ...], total: int, size: int, others: tuple[int, ...], slots: int
) -> None:
    assert reachable_slots(np.array(emptied, dtype=np.int64), total, size, others) == slots


def gang(
    name: str, view: TopologyView, places: dict[str, int], *, level: str | None = "rack", **more: Any
) -> RunningGang:
    """A running gang of whole hosts, charged to the racks; `places` has hosts by rack: the first free ones."""
    leaves: list[int] = []
    for rack, number in places.items():
        row = view.capacity.row(GPU)
        assert row is not None
        free = [i for i, path in enumerate(view.tree.paths) if path[0] == rack and row.item(i) == 8]
        leaves += free[:number]
        assert len(free) >= number
    topology = TopologyRequest(required=level) if level else TopologyRequest(unconstrained=True)
    request = PodSetRequest(name="main", count=len(leaves), requests={GPU: 8}, topology=topology)
    usage = {"gpu": tuple([DomainUsage(view.tree.written(leaf), {GPU: 8}, 1) for leaf in leaves])}
    made = RunningGang(
        key=f"team/{name}",
        queue="team",
        requests={"gpu": (request,)},
        places={"main": [(view.tree.paths[leaf], 1) for leaf in leaves]},
        usage=usage,
        **more,
    )
    charge(usage, {"gpu": view})
    return made


def goal(view: TopologyView, pods: int, worth: int | None = None) -> Goal:
    """Whole hosts in one rack."""
    request = PodSetRequest(name="main", count=pods, requests={GPU: 8}, topology=TopologyRequest(required="rack"))
    return Goal(flavor="gpu", level=view.tree.levels.index("rack"), requests=(request,), worth=worth)


def three_racks(*, u: tuple[str, ...] = (), v2: tuple[str, ...] = ()) -> tuple[TopologyView, list[RunningGang]]:
    """Racks of 16 hosts, of which 10, 6 and 5 are free."""
    view = racks(16, 16, 16)
    running = [
        gang("v1", view, {"r0": 3}, lost=lost_seconds(7200, checkpoint_age=1200)),
        gang("v2", view, {"r0": 3}, lost=lost_seconds(7200, checkpoint_age=300), immovable=v2),
        gang("u", view, {"r1": 10}, lost=lost_seconds(7200, checkpoint_age=0), immovable=u),
        gang("c", view, {"r2": 11}, immovable=NEVER),
    ]
    return view, running


def names(plan: DefragPlan | NoPlan) -> list[str]:
    """The workloads that a plan moves."""
    assert isinstance(plan, DefragPlan), plan
    return [move.gang.key for move in plan.moves]


def test_the_workload_that_has_just_saved_moves() -> None:
    """E21."""
    view, running = three_racks()
    plan = defragment({"gpu": view}, goal(view, 16), running, DefragSettings())
    assert names(plan) == ["team/u"]
    assert isinstance(plan, DefragPlan)
    assert (plan.cost, plan.domain) == (600, ("r1",))
    assert {path[0] for path, _ in plan.moves[0].target.places["main"]} == {"r0"}
    assert (plan.before.slots, plan.before.thousandths) == (0, 1000)
    assert (plan.after.slots, plan.after.thousandths) == (1, 238)


def test_without_its_consent_two_others_move() -> None:
    """E22: 81 pod-minutes."""
    view, running = three_racks(u=NEVER)
    plan = defragment({"gpu": view}, goal(view, 16), running, DefragSettings())
    assert names(plan) == ["team/v1", "team/v2"]
    assert isinstance(plan, DefragPlan)
    assert (plan.cost, plan.domain) == (4860, ("r0",))


def test_without_consent_of_two_the_closest_rack_and_its_workload_are_named() -> None:
    """E22, the last case."""
    view, running = three_racks(u=NEVER, v2=NEVER)
    plan = defragment({"gpu": view}, goal(view, 16), running, DefragSettings())
    assert isinstance(plan, NoPlan)
    assert (plan.reason, plan.domain, plan.missing) == (NoPlanReason.BLOCKED, ("r0",), 3)
    assert [(blocker.key, blocker.pods, blocker.reasons) for blocker in plan.blockers] == [("team/v2", 3, NEVER)]


def test_free_amounts_are_as_before() -> None:
    view, running = three_racks()
    before = [view.capacity.free(leaf) for leaf in range(len(view.tree))]
    defragment({"gpu": view}, goal(view, 16), running, DefragSettings())
    assert [view.capacity.free(leaf) for leaf in range(len(view.tree))] == before


@pytest.mark.parametrize(
    ("worth", "found"),
    [(None, True), (1200, True), (1199, False), (0, False), (5000, True)],
)
def test_moves_cost_at_most_half_of_their_gain(worth: int | None, found: bool) -> None:
    view, running = three_racks()
    plan = defragment({"gpu": view}, goal(view, 16, worth), running, DefragSettings(least_gain=2000))
    assert isinstance(plan, DefragPlan) is found
    if isinstance(plan, NoPlan):
        assert (plan.reason, plan.cheapest) == (NoPlanReason.GAIN, 600)


@pytest.mark.parametrize(
    ("settings", "moved"),
    [
        (DefragSettings(pods=9), ["team/v1", "team/v2"]),
        (DefragSettings(pods=9, moves=1), []),
        (DefragSettings(pods=9, pod_seconds=4859), []),
        (DefragSettings(pods=9, pod_seconds=4860), ["team/v1", "team/v2"]),
        (DefragSettings(moves=0), []),
    ],
)
def test_plans_stay_within_their_limits(settings: DefragSettings, moved: list[str]) -> None:
    view, running = three_racks()
    plan = defragment({"gpu": view}, goal(view, 16), running, settings)
    if moved:
        assert names(plan) == moved
    else:
        assert isinstance(plan, NoPlan)
        assert plan.reason is NoPlanReason.BUDGET


def test_a_gang_that_fits_needs_no_plan() -> None:
    view, running = three_racks()
    plan = defragment({"gpu": view}, goal(view, 10), running, DefragSettings())
    assert isinstance(plan, NoPlan)
    assert plan.reason is NoPlanReason.FITS


def test_a_gang_larger_than_every_rack_has_no_plan() -> None:
    view, running = three_racks()
    plan = defragment({"gpu": view}, goal(view, 17), running, DefragSettings())
    assert isinstance(plan, NoPlan)
    assert (plan.reason, plan.missing) == (NoPlanReason.TOO_LARGE, 1)


def test_there_are_no_swaps() -> None:
    """Two workloads that would only fit in each other's places stay."""
    view = racks(4, 4)
    running = [gang("a", view, {"r0": 2}, lost=60), gang("b", view, {"r1": 3}, lost=60)]
    plan = defragment({"gpu": view}, goal(view, 4), running, ANY)
    assert isinstance(plan, NoPlan)
    assert plan.reason is NoPlanReason.BLOCKED
    assert "no other place" in plan.blockers[0].reasons[0]


def test_a_gang_in_one_rack_stays_in_one_rack() -> None:
    """Its request would allow two racks; each of them has room for a part of it."""
    narrow, wide = racks(5, 3, 3), racks(5, 3, 4)
    for view, found in ((narrow, False), (wide, True)):
        spread = gang("spread", view, {"r0": 4}, level=None, lost=60)
        plan = defragment({"gpu": view}, goal(view, 5), [spread], ANY)
        assert isinstance(plan, DefragPlan) is found


def test_a_gang_in_two_racks_moves_to_two_racks() -> None:
    for sizes, found in (((5, 2, 3, 1), True), ((5, 2, 2, 1, 1), False)):
        view = racks(*sizes)
        spread = gang("spread", view, {"r0": 2, "r1": 2}, level=None, lost=60)
        plan = defragment({"gpu": view}, goal(view, 5), [spread], ANY)
        assert isinstance(plan, DefragPlan) is found


def test_slices_stay_whole() -> None:
    """A gang of two racks in slices of two hosts, of which a rack with three hosts has room for one."""
    for sizes, found in (((5, 2, 3, 1), False), ((5, 2, 2, 2), True)):
        view = racks(*sizes)
        spread = gang("sliced", view, {"r0": 2, "r1": 2}, level=None, lost=60)
        request = replace(spread.requests["gpu"][0], topology=TopologyRequest(slices=(SliceLayer("rack", 2),)))
        sliced = replace(spread, requests={"gpu": (request,)})
        plan = defragment({"gpu": view}, goal(view, 5), [sliced], ANY)
        assert isinstance(plan, DefragPlan) is found


def test_what_only_all_of_them_free_together_is_found() -> None:
    """Each of two workloads has half of the same host: neither alone frees it."""
    view = racks(2, 2)
    halves = []
    for name in ("a", "b"):
        usage = {"gpu": (DomainUsage((view.tree.paths[0][-1],), {GPU: 4}, 1),)}
        request = PodSetRequest(name="main", count=1, requests={GPU: 4}, topology=TopologyRequest(required="rack"))
        charge(usage, {"gpu": view})
        halves.append(
            RunningGang(
                key=f"team/{name}",
                queue="team",
                requests={"gpu": (request,)},
                places={"main": [(view.tree.paths[0], 1)]},
                usage=usage,
                lost=60,
            )
        )
    stays = gang("stays", view, {"r1": 1}, immovable=NEVER)
    assert names(defragment({"gpu": view}, goal(view, 2), [*halves, stays], ANY)) == ["team/a", "team/b"]


@pytest.mark.parametrize("seed", range(200))
def test_the_cheapest_cover_is_found(seed: int) -> None:
    chance = np.random.default_rng(seed)
    number, missing = int(chance.integers(1, 9)), int(chance.integers(1, 12))
    freed = chance.integers(0, 6, number).tolist()
    costs = chance.integers(0, 20, number).tolist()
    best = None
    for bits in range(1 << number):
        some = [i for i in range(number) if bits >> i & 1]
        if sum(freed[i] for i in some) >= missing:
            cost = sum(costs[i] for i in some)
            best = cost if best is None else min(best, cost)
    found = cheapest_covers(freed, costs, missing)
    assert (sum(costs[i] for i in found[0]) if found else None) == best
    for chosen in found:
        assert sum(freed[i] for i in chosen) >= missing
        assert len(set(chosen)) == len(chosen)
    found_costs = [sum(costs[i] for i in chosen) for chosen in found]
    assert found_costs == sorted(found_costs)


# --- goals


def world(view: TopologyView, quota: int = 100_000) -> World:
    """A state of one ClusterQueue."""
    state = PlannedState(snapshot=world_of(view, quota=quota), rules=Rules(now=START))
    return World(state, ["team"], demands=Demands())


def test_the_goal_of_a_waiting_workload() -> None:
    view = racks(4)
    found = goal_of(make_head("w", pods=4), world(view), waited=100)
    assert isinstance(found, Goal)
    assert (found.flavor, found.level, found.pods, found.worth) == ("gpu", 0, 4, 400)
    preferred = goal_of(make_head("w", pods=4, required=None, preferred="rack"), world(view), waited=1)
    assert isinstance(preferred, Goal)
    assert preferred.requests[0].topology.required == "rack"


def test_workloads_that_moves_cannot_help() -> None:
    view = racks(4)
    assert "quota" in str(goal_of(make_head("w", pods=4), world(view, quota=8), waited=1))
    assert "names no level" in str(goal_of(anywhere(make_head("w", pods=4)), world(view), waited=1))


def test_empty_nodes_are_a_goal() -> None:
    view, running = three_racks()
    wanted = goal_of_nodes("gpu", 0, 16, view.capacity)
    assert names(defragment({"gpu": view}, wanted, running, DefragSettings())) == ["team/u"]
