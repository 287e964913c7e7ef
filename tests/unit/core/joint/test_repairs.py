"""Repairs on random loads of gangs: one that fails leaves everything as it was."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from kqueue.core.joint import exchange, repairs, search
from kqueue.core.joint.batch import RankedWorkload
from kqueue.core.joint.candidate import Candidate
from kqueue.core.joint.score import Scorer
from kqueue.core.joint.settings import JointOrder
from kqueue.core.joint.units import Unit
from kqueue.core.joint.world import PlannedAdmission, World
from kqueue.core.topology.request import GangDomains, PodSetRequest
from kqueue.core.workload import Head
from tests.builders import GPU, make_head
from tests.unit.core.joint.test_never_worse import state_of
from tests.unit.core.joint.worlds import racks, round_of, world_of

WORLDS = 60

Repair = Callable[[World, Candidate, RankedWorkload, Mapping[str, Unit]], bool]


def plan(seed: int, order: JointOrder) -> None:
    """Plan for more gangs than the racks hold."""
    chance = random.Random(seed)
    view = racks(*(chance.randint(3, 10) for _ in range(chance.randint(2, 5))))
    heads = [
        make_head(f"g{n:02}", pods=chance.randint(1, 6), requests={GPU: chance.choice([4, 8])}, age=90 - n)
        for n in range(chance.randint(6, 14))
    ]
    waited = {head.uid: chance.randint(0, 100) for head in heads}
    round_of(world_of(view), heads, order=order, waited=waited, solved=False, steps=500)


def whole(world: World, candidate: Candidate) -> object:
    """The state of a world and of a candidate."""
    return state_of(world.snapshot), list(world.claims.all()), dict(candidate.admitted)


@pytest.mark.parametrize("name", ["repack", "eject", "pack"])
def test_a_repair_that_fails_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """J2.35: quota, hosts and the candidate are as before."""
    tried: Counter[bool] = Counter()
    repair: Repair = getattr(repairs, name)

    def watch(world: World, candidate: Candidate, one: RankedWorkload, unit_of: Mapping[str, Unit]) -> bool:
        before = whole(world, candidate)
        succeeds = repair(world, candidate, one, unit_of)
        tried[succeeds] += 1
        assert (whole(world, candidate) == before) is not succeeds
        return succeeds

    for other in ("repack", "eject", "pack"):  # otherwise they leave little to each other
        monkeypatch.setattr(search, other, lambda *_: False)
    monkeypatch.setattr(search, name, watch)
    for seed in range(WORLDS):
        plan(seed, JointOrder.STRICT)
    assert min(tried[True], tried[False]) > 5, tried


def test_a_search_leaves_out_only_gangs_without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gang of a form that had no room is not looked for again, and none that has room is passed over."""
    tried: Counter[str] = Counter()
    find = repairs.find

    def watch(world: World, candidate: Candidate, head: Head) -> PlannedAdmission | None:
        before = world.steps_made
        found = find(world, candidate, head)
        looked = world.steps_made > before
        tried["placed" if found else "looked for" if looked else "left out"] += 1
        assert world.find(head) == found
        return found

    monkeypatch.setattr(search, "find", watch)
    for seed in range(WORLDS):
        plan(seed, JointOrder.STRICT)
    assert len(tried) == 3, tried
    assert min(tried.values()) > 10, tried


def test_an_exchange_that_is_not_worth_it_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: Counter[bool] = Counter()
    trial = exchange._try

    def watch(
        world: World, candidate: Candidate, scorer: Scorer, out: RankedWorkload, others: Sequence[RankedWorkload]
    ) -> None:
        before = whole(world, candidate)
        trial(world, candidate, scorer, out, others)
        is_kept = out.head.uid not in candidate.admitted
        kept[is_kept] += 1
        assert (whole(world, candidate) == before) is not is_kept

    monkeypatch.setattr(exchange, "_try", watch)
    for seed in range(WORLDS):
        plan(seed, JointOrder.PRIORITY)
    assert min(kept[True], kept[False]) > 5, kept


RACK_LEVELS = ("rack", "host")


@pytest.mark.parametrize(
    ("own", "other", "common"),
    [
        pytest.param([("a",)], [("a",)], [("a",)], id="the same"),
        pytest.param([("a",)], [("b",)], None, id="others"),
        pytest.param([("a",), ("b", "1")], [("b",)], [("b", "1")], id="a part of a domain"),
        pytest.param([("a",)], [("a", "1")], [("a", "1")], id="a narrower domain"),
        pytest.param([("a", "1"), ("a", "2")], [("a",)], [("a", "1"), ("a", "2")], id="two parts"),
    ],
)
def test_a_repair_keeps_to_the_domains_of_a_request(
    own: list[tuple[str, ...]], other: list[tuple[str, ...]], common: list[tuple[str, ...]] | None
) -> None:
    """A workload that waits for its data may not be moved where it would rather wait."""
    mine = GangDomains(levels=RACK_LEVELS, paths=tuple(own))
    wanted = GangDomains(levels=RACK_LEVELS, paths=tuple(other))
    request = PodSetRequest(name="main", count=1, requests={}, within=mine)
    limited = request.limited_to(wanted)
    assert (limited.within.paths if limited is not None and limited.within is not None else None) == (
        tuple(common) if common is not None else None
    )
    assert replace(request, within=replace(mine, required=False)).limited_to(wanted) == replace(request, within=wanted)
    assert mine.common(replace(wanted, levels=("zone", "host"))) is None
