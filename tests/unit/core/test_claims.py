"""What is kept for preemptors: how much, where, and that it is given back to the last unit."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from kqueue.core import quota
from kqueue.core.charging import same_hosts
from kqueue.core.claims import Claims
from kqueue.core.preemption.simulation import Simulation, simulate
from kqueue.core.quota import QuotaNode, available
from kqueue.core.topology.result import DomainUsage
from kqueue.core.workload import Admitted, Claim, Snapshot
from tests.builders import GPU, make_head, make_view
from tests.unit.core.cycle_worlds import Model
from tests.unit.core.preemption_cases import GPUS, cohort, leaf, runs, world

HOST = "b0-r0-h0"


def on(count: int, host: str = HOST, gpus: int = 1) -> Mapping[str, tuple[DomainUsage, ...]]:
    """So many pods on a host of the flavor `gpu`."""
    return {"gpu": (DomainUsage((host,), {GPU: gpus}, count),)}


def claims(
    wants: int,
    *victims: Admitted,
    queue: str = "a",
    uid: str = "p",
    domains: Mapping[str, tuple[DomainUsage, ...]] | None = None,
) -> Claim:
    """What a preemptor is to get when its victims have left."""
    left = {victim.uid: (victim.queue, victim.key) for victim in victims}
    return Claim(key=f"default/{uid}", uid=uid, queue=queue, usage={GPUS: wants}, domains=domains or {}, victims=left)


def used(snapshot: Snapshot, *path: str) -> list[int]:
    """What each node holds, from the queue up."""
    return [node.usage.get(GPUS, 0) for node in snapshot.nodes[path[0]].path_to_root()]


IN_A, IN_B = runs("in-a", "a", 4), runs("in-b", "b", 6)


def company(*running: Admitted, a: QuotaNode | None = None, b: QuotaNode | None = None) -> Snapshot:
    """Queues `a` and `b` with 8 each in one cohort."""
    return world([cohort("company", a or leaf("a", nominal=8), b or leaf("b", nominal=8))], running)


@pytest.mark.mechanism("3.10")
@pytest.mark.parametrize(
    ("snapshot", "claim", "kept"),
    [
        pytest.param(company(), claims(5), [5, 5], id="all of it where nobody has to leave"),
        pytest.param(company(IN_A), claims(5, IN_A), [1, 1], id="what a victim holds is not kept twice"),
        pytest.param(company(IN_A), claims(3, IN_A), [0, 0], id="nothing where victims hold more"),
        pytest.param(
            company(IN_B), claims(7, IN_B), [7, 1], id="a victim of another queue makes room in the cohort only"
        ),
        pytest.param(company(), claims(5, IN_A), [5, 5], id="a victim that has left holds nothing"),
        pytest.param(
            company(runs("in-a", "b", 4)), claims(5, IN_A), [5, 5], id="a victim that came back elsewhere is another"
        ),
        pytest.param(
            company(IN_A, IN_B), claims(9, IN_A, IN_B), [5, 0], id="victims of both are counted where they hold it"
        ),
        pytest.param(
            company(IN_B, b=leaf("b", nominal=8, lends=4)),
            claims(7, IN_B),
            [7, 5],
            id="of what a lending limit hides nothing comes free",
        ),
        pytest.param(
            company(a=leaf("a", nominal=8, lends=2)),
            claims(7),
            [7, 1],
            id="what is hidden for the preemptor is its own",
        ),
        pytest.param(company(), claims(5, queue="elsewhere"), [0, 0], id="not in a queue that is not there"),
    ],
)
def test_what_is_kept_is_what_victims_do_not_hold(snapshot: Snapshot, claim: Claim, kept: list[int]) -> None:
    """At the preemptor's queue and in its cohort, beyond what is used there."""
    before = used(snapshot, "a")
    Claims(snapshot, [claim])

    assert [now - then for now, then in zip(used(snapshot, "a"), before, strict=True)] == kept


def hosts_of(*running: Admitted) -> Snapshot:
    """Queue `a` on hosts of 8 devices, with these in place."""
    view = make_view((1, 1, 2))
    view.capacity.charge([u for workload in running for u in workload.domains.get("gpu", ())])
    return world([leaf("a", nominal=99)], running, topologies={"gpu": view})


@pytest.mark.parametrize(
    ("snapshot", "claim", "free"),
    [
        pytest.param(hosts_of(), claims(5, domains=on(5)), [3, 8], id="all of it"),
        pytest.param(
            hosts_of(runs("v", "a", 4, domains=on(4))),
            claims(6, runs("v", "a", 4), domains=on(6)),
            [2, 8],
            id="but not what victims hold there",
        ),
        pytest.param(
            hosts_of(runs("v", "a", 6, domains=on(6))),
            claims(2, runs("v", "a", 6), domains=on(2)),
            [2, 8],
            id="nothing where victims hold more",
        ),
        pytest.param(
            hosts_of(runs("v", "a", 4, domains=on(4, "b0-r0-h1"))),
            claims(4, runs("v", "a", 4), domains=on(4)),
            [4, 4],
            id="a victim on another host makes no room on this one",
        ),
        pytest.param(
            hosts_of(), claims(4, domains=on(4, "gone")), [8, 8], id="nothing on a host that is not there any more"
        ),
    ],
)
def test_hosts_are_kept_one_by_one(snapshot: Snapshot, claim: Claim, free: list[int]) -> None:
    """Free devices per host."""
    Claims(snapshot, [claim])
    capacity = snapshot.topologies["gpu"].capacity

    assert [capacity.free(host)[GPU] for host in range(2)] == free


def test_when_all_is_done_claimants_are_in_and_victims_gone() -> None:
    """And nobody can count on the victims any more."""
    snapshot = company(IN_A, IN_B)
    kept = Claims(snapshot, [claims(7, IN_A)])

    with kept.fulfilled(besides="x"):
        assert used(snapshot, "a") == [7, 13]
        assert snapshot.admitted["a"] == {}
        assert snapshot.admitted["b"] == {IN_B.key: IN_B}
    assert used(snapshot, "a") == [7, 13]
    assert snapshot.admitted["a"] == {IN_A.key: IN_A}


def test_a_claimant_that_is_asked_counts_on_victims_that_were_told_and_on_no_others() -> None:
    """One that was told leaves, whatever is said; one that was not may have to be told again."""
    told, untold = runs("told", "a", 2, evicted=True), runs("untold", "a", 3)
    snapshot = company(told, untold)
    kept = Claims(snapshot, [claims(8, told, untold)])

    with kept.without("p"), kept.fulfilled(besides="p"):
        assert used(snapshot, "a") == [3, 3]
        assert list(snapshot.admitted["a"]) == [untold.key]
    assert kept.waits_for_its_own("p")


def test_a_victim_goes_on_leaving_when_the_claim_that_it_left_for_is_over() -> None:
    """A later claim counts on it; one that came back, or was not told after all, leaves for nobody."""
    told, untold = runs("told", "b", 2, evicted=True), runs("untold", "b", 3)
    first = claims(2, told, untold, uid="first")
    earlier = Claims(company(told, untold), [first])
    later = replace(claims(5, uid="later"), counts_on=earlier.counted_on(besides="later"))
    kept = Claims(company(told, untold), [later])

    assert later.counts_on.keys() == {"told", "untold"}
    assert kept.leaving(besides="later").keys() == {"told"}
    assert kept.leaving().keys() == {"told"}
    assert kept.because_of(make_head("told", queue="b")) is None


def test_a_new_claim_takes_the_place_of_the_old_one() -> None:
    """They do not add up."""
    snapshot = company()
    kept = Claims(snapshot, [claims(5)])
    kept.keep(claims(2))

    assert used(snapshot, "a") == [2, 2]


def test_two_who_want_what_is_hidden_for_their_queue_do_not_both_get_it() -> None:
    """Of 8, 2 are lent and 6 hidden: 4 and 4 fit, but the second takes 2 from what the cohort has."""
    snapshot = company(a=leaf("a", nominal=8, lends=2))
    Claims(snapshot, [claims(4, uid="p"), claims(4, uid="q")])

    assert used(snapshot, "a") == [8, 2]


def test_an_earlier_claimant_finds_its_quota_whatever_later_ones_keep() -> None:
    """Inside the block the later claim does not count; hosts of later claims stay theirs."""
    snapshot = hosts_of()
    kept = Claims(snapshot, [claims(50, uid="early"), claims(40, uid="late", domains=on(3))])
    capacity = snapshot.topologies["gpu"].capacity

    with kept.without("early"), kept.first_in_line("early"):
        assert available(snapshot.nodes["a"], GPUS) == 99
        assert capacity.free(0)[GPU] == 5
    with kept.without("late"), kept.first_in_line("late"):
        assert available(snapshot.nodes["a"], GPUS) == 49
    assert available(snapshot.nodes["a"], GPUS) == 9


def test_who_left_is_told_for_whom() -> None:
    """Somebody else did not leave; neither did the preemptor itself."""
    kept = Claims(company(IN_A), [claims(5, IN_A)])
    because = kept.because_of(make_head("in-a", queue="a"))

    assert because is not None
    assert because.uid == "p"
    assert kept.because_of(make_head("x", queue="a")) is None
    assert kept.because_of(make_head("p", queue="a")) is None


@pytest.mark.parametrize("start", range(0, 60, 20))
def test_whatever_is_tried_the_snapshot_is_as_before(start: int) -> None:
    """Random claims in random worlds: kept, left out, fulfilled in any nesting, and given up, with charges between."""
    for seed in range(start, start + 20):
        chance, snapshot = random.Random(seed), lived_in(Model(seed))
        before = held(snapshot)
        some = [random_claim(f"p{i}", snapshot, chance) for i in range(3)]
        kept = Claims(snapshot, some)
        charged = held(snapshot)
        for claim in some:
            with kept.without(claim.uid), kept.first_in_line(claim.uid), kept.fulfilled(besides=claim.uid):
                pass
            with kept.fulfilled(besides="nobody"), kept.fulfilled(besides=claim.uid):
                pass
            assert held(snapshot) == charged, f"seed {seed}"
        queue = chance.choice(list(snapshot.queues))
        node = snapshot.nodes[queue]
        open_columns = [c for c in node.subtree if not any(quota.local_quota(n, c) for n in node.path_to_root())]
        for column in open_columns:
            quota.add_usage(node, column, 3)
        for claim in chance.sample(some, len(some)):
            kept.give_up(claim.uid)
            kept.give_up(claim.uid)
        for column in open_columns:
            quota.remove_usage(node, column, 3)
        assert not kept
        assert held(snapshot) == before, f"seed {seed}"


@pytest.mark.parametrize("start", range(0, 80, 20))
def test_the_outlook_is_what_comes_of_one_after_the_other(start: int) -> None:
    """Random claims that share victims, of whom some know, under lending limits; kept anew and given up between."""
    for seed in range(start, start + 20):
        chance, snapshot = random.Random(seed), lived_in(Model(seed))
        snapshot.admitted = {
            queue: {key: replace(w, evicted=chance.random() < 0.4) for key, w in of_queue.items()}
            for queue, of_queue in snapshot.admitted.items()
        }
        kept, uids = Claims(snapshot), [f"p{i}" for i in range(4)]
        for step in range(8):
            for uid in chance.sample(uids, chance.randint(1, 3)) * 2:
                if chance.random() < 0.7:
                    counted_on = kept.counted_on(besides=uid) if chance.random() < 0.5 else {}
                    kept.keep(replace(random_claim(uid, snapshot, chance), counts_on=counted_on))
                else:
                    kept.give_up(uid)
            for besides in ("nobody", *uids):
                with kept.without(besides):
                    with kept.fulfilled(besides=besides):
                        summed_up = held(snapshot), admitted_in(snapshot)
                    with simulate(snapshot) as simulation:
                        leaving = one_after_the_other(kept, besides, simulation)
                        assert summed_up[0] == held(snapshot), f"seed {seed}, step {step}, besides {besides}"
                assert summed_up[1] == [
                    (queue, [key for key, w in some.items() if w.uid not in leaving])
                    for queue, some in snapshot.admitted.items()
                ]


def lived_in(model: Model) -> Snapshot:
    """After some cycles."""
    for _ in range(6):
        model.arrive()
        model.cycle()
    return model.snapshot()


def one_after_the_other(kept: Claims, besides: str, simulation: Simulation) -> set[str]:
    """Let claims come true step by step, but for the claim of one preemptor; uids of those who left."""
    others = [one for uid, one in kept._kept.items() if uid != besides]
    for one in others:
        for node, column, amount in one.usage:
            simulation.shift(node, column, -amount)
    leaving = {
        victim.uid: victim
        for uid, one in kept._kept.items()
        for victim in (*one.victims, *one.counted_on)
        if uid != besides or victim.evicted
    }
    for victim in leaving.values():
        simulation.dismiss(victim)
    topologies = simulation.snapshot.topologies
    for one in others:
        simulation.charge(one.claim.queue, one.claim.usage, one.claim.domains)
        for flavor, missing in one.domains.items():
            for name in same_hosts(flavor, topologies):
                tree, capacity = topologies[name].tree, topologies[name].capacity
                for values, amounts in missing.items():
                    leaf_there = tree.leaf_of(values)
                    if leaf_there is not None:
                        capacity.add(leaf_there, amounts)
    return set(leaving)


def admitted_in(snapshot: Snapshot) -> list[tuple[str, list[str]]]:
    """Queue by queue, who is admitted, in order."""
    return [(queue, list(snapshot.admitted[queue])) for queue in snapshot.nodes]


def random_claim(uid: str, snapshot: Snapshot, chance: random.Random) -> Claim:
    """Of some queue, at the cost of some of those who run."""
    running = [w for q in snapshot.admitted.values() for w in q.values()]
    victims = chance.sample(running, min(len(running), chance.randint(0, 3)))
    queue = chance.choice(list(snapshot.nodes))
    usage = {column: chance.randint(1, 9) for column in snapshot.nodes[queue].subtree}
    taken = (DomainUsage(("h0",), {"cpu": 1}, chance.randint(1, 3)),)
    return Claim(
        key=f"ns/{uid}",
        uid=uid,
        queue=queue,
        usage=usage,
        domains={"racks": taken},
        victims={w.uid: (w.queue, w.key) for w in victims},
    )


def held(snapshot: Snapshot) -> object:
    """All that is used of quota, by node, and all that is free on hosts."""
    nodes = {id(n): n for node in snapshot.nodes.values() for n in node.path_to_root()}
    used = {(i, column): amount for i, node in nodes.items() for column, amount in node.usage.items() if amount}
    return used, [[v.capacity.free(i) for i in range(len(v.tree))] for v in snapshot.topologies.values()]
