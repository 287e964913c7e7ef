"""One head: whether it fits, whom it would preempt, what it waits for, and that it keeps to what is made free for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kqueue.core import nomination
from kqueue.core.claims import Claims
from kqueue.core.explain import WaitReason
from kqueue.core.nomination import NominatedHead, NominationResult, Nominator
from kqueue.core.preemption import Findings, find_targets
from kqueue.core.quota import FlavorResource
from kqueue.core.topology import DEFAULT_PROFILE, Taint
from kqueue.core.topology.placement import place_workload
from kqueue.core.topology.result import DomainUsage
from kqueue.core.workload import Admitted, Flavor, Head, Preempts, ResourceGroup, Snapshot
from tests.builders import GPU, make_head, make_queue, make_view
from tests.unit.core.preemption_cases import ANY, GPUS, LOWER, RULES, cohort, leaf, runs, state, world

PLACED = {"gpu": Flavor(name="gpu", node_labels={"pool": "gpu"}, topology="dc")}


def nominate(snapshot: Snapshot, head: Head) -> NominatedHead:
    """The head against a snapshot and its claims; what was looked at stays as it was."""
    nominator = Nominator(snapshot, Claims(snapshot, snapshot.claims), Findings(RULES))
    before = state(snapshot)
    entry = nominator.nominate(head, DEFAULT_PROFILE)
    assert state(snapshot) == before
    return entry


def victims(entry: NominatedHead) -> list[str]:
    return sorted(target.admitted.uid for target in entry.targets)


def flavor_of(entry: NominatedHead) -> str:
    (pod_set,) = entry.assignment.pod_sets
    return pod_set.flavors[GPU]


# --- flavors and preemption ------------------------------------------------------------------------------------------


def f(number: int) -> FlavorResource:
    return FlavorResource(f"f{number}", GPU)


def three_flavors(nominal: Mapping[int, int], *running: Admitted, lent: int | None = None, **settings: Any) -> Snapshot:
    """Queue `a` with three flavors, of which its cohort lends it some of the second one, if any."""
    own = leaf("a", nominal={f(i): amount for i, amount in nominal.items()})
    root = own if lent is None else cohort("team", own, leaf("b", nominal={f(2): lent}))
    spec = make_queue("a", flavors=("f1", "f2", "f3"), preempts_own=LOWER, **settings)
    snapshot = world([root], running, [spec])
    return replace(snapshot, flavors={f"f{i}": Flavor(name=f"f{i}") for i in (1, 2, 3)})


def wants_three(**more: Any) -> Head:
    return replace(make_head("p", queue="a", pods=1, gpus=3, required=None, priority=5), **more)


@pytest.mark.parametrize(
    ("borrow", "preempt", "prefers_preemption", "flavor", "stand", "level", "memory"),
    [
        pytest.param(True, True, False, "f1", NominationResult.PREEMPTS, 0, 0, id="preempting may stop the search"),
        pytest.param(False, True, True, "f1", NominationResult.PREEMPTS, 0, 0, id="whatever else is preferred"),
        pytest.param(True, False, False, "f2", NominationResult.FITS, 1, 1, id="borrowing may stop the search"),
        pytest.param(True, False, True, "f2", NominationResult.FITS, 1, 1, id="even where preempting is preferred"),
        pytest.param(
            False, False, False, "f2", NominationResult.FITS, 1, -1, id="nothing stops it, and what fits is preferred"
        ),
        pytest.param(
            False,
            False,
            True,
            "f1",
            NominationResult.PREEMPTS,
            0,
            -1,
            id="nothing stops it, and not borrowing is preferred",
        ),
    ],
)
def test_policies_choose_between_a_flavor_to_preempt_in_and_one_to_borrow_in(
    borrow: bool, preempt: bool, prefers_preemption: bool, flavor: str, stand: NominationResult, level: int, memory: int
) -> None:
    """f1: a lesser workload would have to go; f2: borrows; f3: nobody can be preempted, and too much is asked."""
    snapshot = three_flavors(
        {1: 4, 2: 2, 3: 4},
        runs("lesser", "a", {f(1): 4}),
        runs("greater", "a", {f(3): 4}, priority=9),
        lent=4,
        borrow_before_next_flavor=borrow,
        preempt_before_next_flavor=preempt,
        prefers_preemption=prefers_preemption,
    )
    entry = nominate(snapshot, wants_three())

    assert (flavor_of(entry), entry.result, entry.level) == (flavor, stand, level)
    assert entry.assignment.last_tried == {("main", GPU): memory}
    assert victims(entry) == (["lesser"] if stand is NominationResult.PREEMPTS else [])


@pytest.mark.parametrize(
    ("remembered", "flavor", "stand", "memory"),
    [
        pytest.param(None, "f1", NominationResult.PREEMPTS, 0, id="from the front"),
        pytest.param(-1, "f1", NominationResult.PREEMPTS, 0, id="all were seen, so from the front"),
        pytest.param(
            0, "f3", NominationResult.FITS, -1, id="after the first, and past the second where nobody may be preempted"
        ),
        pytest.param(9, "f1", NominationResult.PREEMPTS, 0, id="flavors that are gone, so from the front"),
    ],
)
def test_the_scan_of_flavors_goes_on_past_one_to_preempt_in(
    remembered: int | None, flavor: str, stand: NominationResult, memory: int
) -> None:
    """The first is full of lesser workloads, the second has too little left beside a greater one, the third is free."""
    running = runs("lesser", "a", {f(1): 4}), runs("greater", "a", {f(2): 2}, priority=9)
    snapshot = three_flavors({1: 4, 2: 4, 3: 4}, *running, preempt_before_next_flavor=True)
    last_tried = {("main", GPU): remembered} if remembered is not None else {}
    entry = nominate(snapshot, wants_three(last_tried=last_tried))

    assert (flavor_of(entry), entry.result) == (flavor, stand)
    assert entry.assignment.last_tried == {("main", GPU): memory}


def test_a_flavor_in_which_others_are_preempted_is_better_than_one_in_which_its_own_would_be() -> None:
    """Reclaiming is the better mode of two that preempt."""
    own = leaf("a", nominal={f(1): 4, f(2): 4})
    root = cohort("team", own, leaf("b", nominal={f(1): 0, f(2): 0}))
    spec = make_queue("a", flavors=("f1", "f2"), preempts_own=LOWER, reclaims=ANY)
    snapshot = world([root], [runs("own", "a", {f(1): 4}), runs("other", "b", {f(2): 4})], [spec])
    entry = nominate(replace(snapshot, flavors={f"f{i}": Flavor(name=f"f{i}") for i in (1, 2)}), wants_three())

    assert (flavor_of(entry), victims(entry)) == ("f2", ["other"])


# --- hosts -----------------------------------------------------------------------------------------------------------


def on(host: str, pods: int, gpus: int = 8) -> Mapping[str, tuple[DomainUsage, ...]]:
    return {"gpu": (DomainUsage((host,), {GPU: gpus}, pods),)}


def racks_of_two(*running: Admitted, nominal: int = 99, **settings: Any) -> Snapshot:
    """Two racks of two hosts with 8 devices each."""
    view = make_view((1, 2, 2))
    view.capacity.charge([u for workload in running for u in workload.domains.get("gpu", ())])
    spec = make_queue("team", **{"preempts_own": LOWER, **settings})
    snapshot = world([leaf("team", nominal=nominal)], running, [spec], topologies={"gpu": view})
    return replace(snapshot, flavors=PLACED)


def holds(name: str, host: str, priority: int = 0, **more: Any) -> Admitted:
    """A workload that fills a host."""
    return runs(name, "team", 8, priority=priority, domains=on(host, 1), **more)


def test_who_stands_on_the_hosts_that_it_needs_has_to_go() -> None:
    """There is quota; of two racks one is held by a greater workload, and only the other's lesser ones go."""
    snapshot = racks_of_two(
        holds("greater", "b0-r0-h0", 9), holds("one", "b0-r0-h1"), holds("two", "b0-r1-h0"), holds("three", "b0-r1-h1")
    )
    entry = nominate(snapshot, make_head("p", pods=2, priority=5))

    assert (entry.result, victims(entry)) == (NominationResult.PREEMPTS, ["three", "two"])
    claim = entry.claim()
    assert sorted(u.values for u in claim.domains["gpu"]) == [("b0-r1-h0",), ("b0-r1-h1",)]
    assert claim.usage == {GPUS: 16}


@pytest.mark.mechanism("4.20")
def test_a_gang_that_fits_on_no_empty_cluster_preempts_nobody() -> None:
    """Three hosts of one rack, which has two."""
    entry = nominate(racks_of_two(holds("lesser", "b0-r0-h0")), make_head("p", pods=3, priority=5))

    assert (entry.result, victims(entry)) == (NominationResult.NEVER, [])
    assert entry.assignment.reason is WaitReason.TOPOLOGY_PLACEMENT_FAILED


@pytest.mark.mechanism("3.24")
@pytest.mark.parametrize(
    ("head", "searches"),
    [
        pytest.param(make_head("p", pods=2, priority=5), True, id="others stand in a rack that is large enough"),
        pytest.param(make_head("p", pods=3, priority=5), False, id="no rack is large enough, not even an empty one"),
        pytest.param(make_head("p", pods=5, priority=5, required=None), False, id="the flavor has less quota"),
        pytest.param(make_head("p", pods=1, gpus=9, priority=5), False, id="no node is large enough"),
    ],
)
def test_no_victims_are_searched_where_an_empty_cluster_would_be_too_small(
    head: Head, searches: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 3.24: all hosts are taken by lower priorities, so only the size of flavor and domains decides."""
    searched: list[str] = []

    def counted(*args: Any, **how: Any) -> Any:
        searched.append(head.uid)
        return find_targets(*args, **how)

    monkeypatch.setattr(nomination, "find_targets", counted)
    hosts = [f"b0-r{rack}-h{host}" for rack in range(2) for host in range(2)]
    entry = nominate(racks_of_two(*(holds(host, host) for host in hosts)), head)

    assert (bool(searched), entry.result is NominationResult.PREEMPTS) == (searches, searches)


@pytest.mark.mechanism("4.12")
@pytest.mark.parametrize(("quota", "places"), [(16, True), (15, False)], ids=["all that it asks for", "one less"])
def test_a_lone_gang_without_quota_is_refused_before_places_are_searched(
    quota: int, places: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 4.12: two pods ask for 16 GPUs, and no other workload is there."""
    searched: list[str] = []

    def counted(*args: Any, **how: Any) -> Any:
        searched.append("p")
        return place_workload(*args, **how)

    monkeypatch.setattr(nomination, "place_workload", counted)
    entry = nominate(racks_of_two(nominal=quota), make_head("p", pods=2))

    assert (bool(searched), entry.result is NominationResult.FITS) == (places, places)


def test_one_that_nobody_makes_room_for_knows_where_it_would_stand() -> None:
    """On the empty cluster; that is what it keeps free while lesser ones have their turns."""
    full = [holds(f"greater-{h}", f"b0-r{h // 2}-h{h % 2}", 9) for h in range(4)]
    entry = nominate(racks_of_two(*full), make_head("p", pods=2, priority=5))

    assert (entry.result, victims(entry)) == (NominationResult.WAITS, [])
    assert sum(d.count for d in entry.placement["gpu"]["main"].assignment.domains) == 2


def test_quota_of_one_and_hosts_of_another_are_both_asked_for() -> None:
    """Who holds the short quota stands elsewhere; who stands on the host holds none of the short column."""
    cpu, gpu = FlavorResource("gpu", "cpu"), GPUS
    on_host = runs("on-host", "team", {gpu: 8}, domains=on("b0-r0-h0", 1))
    in_quota = runs("in-quota", "team", {cpu: 4})
    view = make_view((1, 1, 1))
    view.capacity.charge(on_host.domains["gpu"])
    spec = replace(make_queue("team", preempts_own=LOWER), groups=(ResourceGroup((GPU, "cpu"), ("gpu",)),))
    snapshot = world([leaf("team", nominal={cpu: 4, gpu: 99})], [on_host, in_quota], [spec], topologies={"gpu": view})
    head = make_head("p", pods=1, priority=5, requests={GPU: 8, "cpu": 2})

    entry = nominate(replace(snapshot, flavors=PLACED), head)

    assert (entry.result, victims(entry)) == (NominationResult.PREEMPTS, ["in-quota", "on-host"])


@pytest.mark.parametrize(
    ("avoided", "hosts"),
    [
        pytest.param({"b0-r0-h0"}, ["b0-r1-h0", "b0-r1-h1"], id="where others can be made free"),
        pytest.param({"b0-r0-h0", "b0-r1-h0"}, ["b0-r0-h0", "b0-r0-h1"], id="and not where they cannot"),
    ],
)
def test_room_is_made_away_from_hosts_on_which_it_failed(avoided: set[str], hosts: list[str]) -> None:
    """Quota is short, too, so that the hosts are not looked at before somebody is to go."""
    snapshot = racks_of_two(*(holds(f"w{h}", f"b0-r{h // 2}-h{h % 2}") for h in range(4)), nominal=32)
    entry = nominate(snapshot, replace(make_head("p", pods=2, priority=5), avoided=frozenset(avoided)))

    assert entry.result is NominationResult.PREEMPTS
    assert [u.values[0] for u in entry.claim().domains["gpu"]] == hosts


def test_a_taint_is_no_reason_to_preempt() -> None:
    """Nobody's leaving opens a flavor that is closed to the pods."""
    closed = {"gpu": Flavor(name="gpu", topology="dc", taints=(Taint("spot"),))}
    entry = nominate(replace(racks_of_two(holds("lesser", "b0-r0-h0")), flavors=closed), make_head("p", priority=5))

    assert (entry.result, victims(entry)) == (NominationResult.NEVER, [])


# --- what is made free for it ----------------------------------------------------------------------------------------


def claimed_in_f2(*running: Admitted, **settings: Any) -> Snapshot:
    """f1 is held by a workload as great as the head, and the lesser one of f2 has to leave for it."""
    before = three_flavors(
        {1: 4, 2: 4, 3: 0}, runs("equal", "a", {f(1): 4}, priority=5), runs("lesser", "a", {f(2): 4}), **settings
    )
    entry = nominate(before, wants_three())
    assert (flavor_of(entry), victims(entry)) == ("f2", ["lesser"])
    after = three_flavors({1: 4, 2: 4, 3: 0}, *running, **settings)
    return replace(after, claims=(entry.claim(),))


@pytest.mark.parametrize(
    ("running", "stand", "flavor"),
    [
        pytest.param(
            [runs("equal", "a", {f(1): 4}, priority=5), runs("lesser", "a", {f(2): 4}, evicted=True)],
            NominationResult.FITS_LATER,
            "f2",
            id="it waits while its victim leaves",
        ),
        pytest.param(
            [runs("new", "a", {f(1): 4}), runs("lesser", "a", {f(2): 4}, evicted=True)],
            NominationResult.FITS_LATER,
            "f2",
            id="and makes nobody else leave in the meantime",
        ),
        pytest.param(
            [runs("new", "a", {f(1): 4})], NominationResult.FITS, "f2", id="it takes what has come free for it"
        ),
        pytest.param(
            [runs("lesser", "a", {f(2): 4}, evicted=True)],
            NominationResult.FITS,
            "f1",
            id="unless it fits elsewhere before",
        ),
        pytest.param(
            [runs("equal", "a", {f(1): 4}, priority=5), runs("lesser", "a", {f(2): 4})],
            NominationResult.PREEMPTS,
            "f2",
            id="a victim that was not told after all is told again",
        ),
        pytest.param(
            [runs("new", "a", {f(1): 4}), runs("greater", "a", {f(2): 4}, priority=9)],
            NominationResult.PREEMPTS,
            "f1",
            id="where its room is lost it looks elsewhere",
        ),
    ],
)
def test_a_preemptor_keeps_to_what_is_made_free_for_it(
    running: list[Admitted], stand: NominationResult, flavor: str
) -> None:
    """The search would stop at f1 as soon as somebody lesser is there."""
    snapshot = claimed_in_f2(*running, preempt_before_next_flavor=True)
    entry = nominate(snapshot, wants_three())

    assert (entry.result, flavor_of(entry)) == (stand, flavor)


def test_others_wait_for_what_is_left_when_all_is_done() -> None:
    """Of 8 that a victim frees, 3 are kept for its preemptor: 4 more will fit, and 6 will not."""
    victim = runs("victim", "a", 8, evicted=True)
    queues = [leaf("a", nominal=8), leaf("b", nominal=0)]
    snapshot = world([cohort("team", *queues)], [victim], [make_queue("a", preempts_own=Preempts.LOWER_PRIORITY)])
    preemptor = replace(make_head("p", queue="a", pods=1, gpus=3, required=None), priority=5)
    claim = nominate(replace(snapshot, flavors={"gpu": Flavor(name="gpu")}), preemptor).claim()
    waiting = replace(snapshot, flavors={"gpu": Flavor(name="gpu")}, claims=(claim,))

    stands = [nominate(waiting, make_head("x", queue="b", pods=1, gpus=n, required=None)).result for n in (4, 6)]

    assert stands == [NominationResult.FITS_LATER, NominationResult.NEVER]
