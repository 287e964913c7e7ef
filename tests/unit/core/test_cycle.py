"""One cycle: who is admitted, where, who waits and why."""

from __future__ import annotations

import dataclasses

import pytest

from kqueue.core.decision import Admit, Decision, Outcome, Phase, SecondLooks, Wait
from kqueue.core.explain import WaitReason
from kqueue.core.host_replacement import HostsNotReplaced, HostsReplaced, replace_hosts
from kqueue.core.quota import FlavorResource, available
from kqueue.core.topology import Algorithm, Capacity, Profile, Taint, Tree
from kqueue.core.topology.result import DomainUsage
from kqueue.core.workload import Damaged, Flavor, Head, PodSet, Snapshot, TopologyView
from tests.builders import GPU, make_head, make_queue, make_snapshot, make_view, plan

COLUMN = FlavorResource("gpu", GPU)


def racks(decision: Admit) -> set[str]:
    """The racks of an admitted workload, from its host names."""
    assert decision.admission.pod_sets[0].topology is not None
    return {domain.values[-1].rpartition("-")[0] for domain in decision.admission.pod_sets[0].topology.domains}


def test_a_gang_gets_one_rack_and_is_charged() -> None:
    """Four whole nodes in one rack; the snapshot then has four nodes' quota less."""
    snapshot = make_snapshot({"team": {"gpu": 64}})
    (decision,) = plan(snapshot, [make_head("gang")])

    assert isinstance(decision, Admit)
    assert len(racks(decision)) == 1
    assert available(snapshot.nodes["team"], COLUMN) == 32


def test_two_heads_of_one_cycle_do_not_get_the_same_rack() -> None:
    """The second is placed again in what the first has left."""
    snapshot = make_snapshot({"a": {"gpu": 64}, "b": {"gpu": 64}})
    first, second = plan(snapshot, [make_head("one", queue="a"), make_head("two", queue="b")])

    assert isinstance(first, Admit)
    assert isinstance(second, Admit)
    assert racks(first) != racks(second)


def test_without_a_second_look_the_next_cycle_finds_another_rack() -> None:
    """Only one of two heads that were nominated for the same rack gets it."""
    snapshot = make_snapshot({"a": {"gpu": 64}, "b": {"gpu": 64}})
    heads = [make_head("one", queue="a", age=1), make_head("two", queue="b")]
    first, second = plan(snapshot, heads, looks=SecondLooks(for_domains=False))
    (again,) = plan(snapshot, heads[1:], looks=SecondLooks(for_domains=False))

    assert isinstance(first, Admit)
    assert isinstance(second, Wait)
    assert second.outcome is Outcome.SKIPPED
    assert isinstance(again, Admit)
    assert racks(again) != racks(first)


def test_the_one_that_comes_too_late_in_a_cycle_says_so() -> None:
    """There is one rack: the older head gets it, the other is skipped and names what is short."""
    snapshot = make_snapshot({"a": {"gpu": 64}, "b": {"gpu": 64}}, topologies={"gpu": make_view((1, 1, 4))})
    decisions = list(plan(snapshot, [make_head("young", queue="a"), make_head("old", queue="b", age=9)]))

    assert [type(d) for d in decisions] == [Admit, Wait]
    assert decisions[0].head.uid == "old"
    assert isinstance(decisions[1], Wait)
    assert decisions[1].outcome is Outcome.SKIPPED
    assert "same cycle" in decisions[1].message


def test_a_gang_that_can_never_fit_says_the_level_and_the_numbers() -> None:
    """Five whole nodes in a rack of four: TopologyPlacementFailed, with asked and free."""
    (decision,) = plan(make_snapshot({"team": {"gpu": 640}}), [make_head("large", pods=5)])

    assert isinstance(decision, Wait)
    assert decision.reason is WaitReason.TOPOLOGY_PLACEMENT_FAILED
    for fact in ("5 pods", "level rack", "room for 4", "asked 40", "free 32", "no workload running"):
        assert fact in decision.details


def test_a_gang_that_waits_for_others_is_told_apart_from_one_that_never_fits() -> None:
    """The racks are taken: it waits for quota or room, and the message does not say never."""
    snapshot = make_snapshot({"a": {"gpu": 64}, "b": {"gpu": 64}})
    taken = list(plan(snapshot, [make_head("one", queue="a"), make_head("two", queue="b")]))
    (decision,) = plan(snapshot, [make_head("late", queue="a")])

    assert all(isinstance(d, Admit) for d in taken)
    assert isinstance(decision, Wait)
    assert (decision.outcome, decision.reason) == (Outcome.NO_CANDIDATES, WaitReason.WAITING_FOR_QUOTA)
    assert decision.message.startswith("Quota is there; no room in the topology: one pod asks for 8 ")


@pytest.mark.parametrize(
    ("asked", "outcome", "reason", "fact"),
    [
        pytest.param(
            5, Outcome.NO_CANDIDATES, WaitReason.WAITING_FOR_QUOTA, "16 nvidia.com/gpu more needed", id="others-hold-it"
        ),
        pytest.param(
            9, Outcome.NO_FIT, WaitReason.EXCEEDS_MAX_QUOTA, "can never get more than 64", id="more-than-there-ever-is"
        ),
    ],
)
def test_quota_that_is_short_is_named(asked: int, outcome: Outcome, reason: WaitReason, fact: str) -> None:
    """What is free and what is missing, or that it never will be."""
    snapshot = make_snapshot({"team": {"gpu": 64}}, topologies={"gpu": make_view((1, 8, 4))})
    first = list(
        plan(
            snapshot,
            [
                make_head("first", pods=4),
            ],
        )
    )
    second = list(
        plan(
            snapshot,
            [
                make_head("second", pods=1),
            ],
        )
    )
    (decision,) = plan(snapshot, [make_head("late", pods=asked, required=None, preferred="rack")])

    assert isinstance(first[0], Admit)
    assert isinstance(second[0], Admit)
    assert isinstance(decision, Wait)
    assert (decision.outcome, decision.reason) == (outcome, reason)
    assert fact in decision.details


def test_a_queue_borrows_what_its_cohort_does_not_use() -> None:
    """Without own quota, from the cohort; and the one that does not borrow goes first."""
    snapshot = make_snapshot({"rich": {"gpu": 64}, "poor": {"gpu": 0}}, cohort="company")
    heads = [make_head("borrower", queue="poor", priority=100, age=99), make_head("owner", queue="rich")]
    decisions = list(plan(snapshot, heads))

    assert [d.head.uid for d in decisions] == ["owner", "borrower"]
    assert all(isinstance(d, Admit) for d in decisions)


@pytest.mark.parametrize(
    ("heads", "order"),
    [
        pytest.param(
            [make_head("low", queue="a"), make_head("high", queue="b", priority=1)], ["high", "low"], id="priority"
        ),
        pytest.param([make_head("new", queue="a"), make_head("old", queue="b", age=1)], ["old", "new"], id="age"),
        pytest.param([make_head("y", queue="a"), make_head("x", queue="b")], ["x", "y"], id="uid-last"),
    ],
)
def test_entries_are_processed_in_order(heads: list[Head], order: list[str]) -> None:
    """Higher priority first, then older, then the smaller uid."""
    snapshot = make_snapshot({"a": {"gpu": 64}, "b": {"gpu": 64}})

    assert [d.head.uid for d in plan(snapshot, heads)] == order


def test_what_a_head_waits_for_is_not_taken_by_a_lesser_one() -> None:
    """A high-priority gang that waits for a rack keeps its quota free from a small job of another queue."""
    snapshot = make_snapshot({"a": {"gpu": 40}, "b": {"gpu": 0}}, cohort="company")
    list(plan(snapshot, [make_head("running", queue="a", pods=1)]))
    waiting, lesser = plan(
        snapshot,
        [make_head("waiting", queue="a", pods=5, required="block", priority=9), make_head("small", queue="b", pods=1)],
    )

    assert isinstance(waiting, Wait)
    assert waiting.outcome is Outcome.NO_CANDIDATES
    assert isinstance(lesser, Wait)


def test_the_next_flavor_is_tried_when_the_first_does_not_tolerate() -> None:
    """A tainted flavor is passed over, and the message of a refusal names the taint."""
    tainted = Flavor(name="spot", taints=(Taint("spot", "true", "NoSchedule"),))
    plain = Flavor(name="gpu")
    both = make_snapshot({"team": {"spot": 64, "gpu": 64}}, flavors=(tainted, plain), topologies={})
    (decision,) = plan(both, [make_head("job", required=None)])
    alone = make_snapshot({"team": {"spot": 64}}, flavors=(tainted,), topologies={})
    (refused,) = plan(alone, [make_head("job", required=None)])

    assert isinstance(decision, Admit)
    assert decision.admission.pod_sets[0].flavors == {GPU: "gpu"}
    assert isinstance(refused, Wait)
    assert refused.reason is WaitReason.NO_MATCHING_FLAVOR
    assert "spot=true:NoSchedule" in refused.message


@pytest.mark.parametrize(
    ("head", "fact"),
    [
        pytest.param(make_head("x", required="aisle"), "no level aisle; it has block, rack", id="unknown-level"),
        pytest.param(
            make_head("x", requests={"example.com/fpga": 1}), "example.com/fpga is not covered", id="uncovered-resource"
        ),
        pytest.param(make_head("x", queue="nowhere"), "ClusterQueue nowhere does not exist", id="missing-queue"),
    ],
)
def test_mistakes_are_named(head: Head, fact: str) -> None:
    """A request that no capacity could satisfy says which part of it is wrong."""
    (decision,) = plan(make_snapshot({"team": {"gpu": 64}}), [head])

    assert isinstance(decision, Wait)
    assert fact in decision.details


def test_one_broken_workload_does_not_stop_the_others() -> None:
    """A head that makes planning raise is answered as broken; the other one is admitted."""
    sound = make_head("sound", queue="a")
    broken = dataclasses.replace(make_head("broken", queue="b"), pod_sets=(None,))  # type: ignore[arg-type]
    decisions = {d.head.uid: d for d in plan(make_snapshot({"a": {"gpu": 64}, "b": {"gpu": 64}}), [broken, sound])}

    assert isinstance(decisions["sound"], Admit)
    assert isinstance(decisions["broken"], Wait)
    assert decisions["broken"].outcome is Outcome.BROKEN
    assert isinstance(decisions["broken"].error, AttributeError)


def test_a_pod_set_that_asks_for_no_place_is_not_put_on_topology_nodes() -> None:
    """A flavor with a topology serves only requests for a place (asked, or implied by a queue that has no other)."""
    (decision,) = plan(make_snapshot({"team": {"gpu": 64}}), [make_head("plain", required=None)])

    assert isinstance(decision, Wait)
    assert decision.reason is WaitReason.NO_MATCHING_FLAVOR
    assert "places pods by topology" in decision.message


# --- how good placements are -----------------------------------------------------------------------------------------


def used_and_fewest(decision: Decision) -> list[list[tuple[str, int, int]]]:
    assert isinstance(decision, Admit), decision
    return [[(level.level, level.used, level.lower_bound) for level in found.levels] for found in decision.quality]


def test_an_admission_says_how_many_domains_it_uses_and_how_few_would_do() -> None:
    """Six hosts lie in two racks of four, and no fewer hold them; one rack is enough for the next two."""
    first, second = (
        next(iter(plan(snapshot, [make_head("gang", pods=pods, required=None, preferred="rack")])))
        for snapshot in [make_snapshot({"team": {"gpu": 64}})]
        for pods in (6, 2)
    )

    assert used_and_fewest(first) == [[("block", 1, 1), ("rack", 2, 2), ("kubernetes.io/hostname", 6, 6)]]
    assert used_and_fewest(second) == [[("block", 1, 1), ("rack", 1, 1), ("kubernetes.io/hostname", 2, 2)]]


@pytest.mark.parametrize(
    ("profile", "asks", "algorithm", "proven"),
    [
        pytest.param(Profile(), {}, Algorithm.BEST_FIT, None, id="nobody proves best fit"),
        pytest.param(
            Profile(constrained=Algorithm.OPTIMAL), {}, Algorithm.OPTIMAL, True, id="optimal is proven within its limit"
        ),
        pytest.param(
            Profile(constrained=Algorithm.BALANCED),
            {"required": None, "preferred": "rack"},
            Algorithm.BALANCED,
            None,
            id="balanced serves preferred requests",
        ),
        pytest.param(Profile(constrained=Algorithm.BALANCED), {}, Algorithm.BEST_FIT, None, id="and no required ones"),
        pytest.param(
            Profile(constrained=Algorithm.LEAST_FREE_CAPACITY), {}, Algorithm.LEAST_FREE_CAPACITY, None, id="least free"
        ),
    ],
)
def test_an_admission_says_who_placed_it_and_whether_it_is_the_best(
    profile: Profile, asks: dict[str, str | None], algorithm: Algorithm, proven: bool | None
) -> None:
    """The algorithm that served the request, not the one that the queue names."""
    spec = make_queue("team", profile=profile)
    (decision,) = plan(make_snapshot({"team": {"gpu": 64}}, specs=[spec]), [make_head("gang", **asks)])  # type: ignore[arg-type]

    assert isinstance(decision, Admit)
    assert [(found.algorithm, found.proven) for found in decision.quality] == [(algorithm, proven)]


@pytest.mark.parametrize(
    ("own", "served"),
    [
        pytest.param(None, Algorithm.BALANCED, id="its queue chooses"),
        pytest.param(Algorithm.OPTIMAL, Algorithm.OPTIMAL, id="it chooses itself"),
        pytest.param(Algorithm.BEST_FIT, Algorithm.BEST_FIT, id="it goes back to what queues do as they come"),
    ],
)
def test_a_workloads_own_profile_beats_that_of_its_queue(own: Algorithm | None, served: Algorithm) -> None:
    """For its requests that name a level; a choice of none leaves it to the queue."""
    spec = make_queue("team", profile=Profile(constrained=Algorithm.BALANCED))
    head = dataclasses.replace(make_head("gang", required=None, preferred="rack"), algorithm=own)
    (decision,) = plan(make_snapshot({"team": {"gpu": 64}}, specs=[spec]), [head])

    assert isinstance(decision, Admit)
    assert [found.algorithm for found in decision.quality] == [served]


def test_a_workload_with_a_mistake_is_not_tried_and_says_which() -> None:
    """The others of the cycle are."""
    mistaken = dataclasses.replace(make_head("mistaken", queue="a"), problem="'tight' is no profile")
    snapshot = make_snapshot({"a": {"gpu": 64}, "b": {"gpu": 64}})
    decisions = {d.head.uid: d for d in plan(snapshot, [mistaken, make_head("sound", queue="b")])}
    refused = decisions["mistaken"]

    assert isinstance(refused, Wait)
    assert (refused.outcome, refused.reason) == (Outcome.NO_FIT, WaitReason.MISCONFIGURED)
    assert refused.message == "'tight' is no profile"
    assert isinstance(decisions["sound"], Admit)


def make_pair(name: str) -> Head:
    """A leader and four workers that share a rack, and three pods that stand alone."""
    head = make_head(name)
    (pod_set,) = head.pod_sets

    def part(of: str, count: int, group: str | None) -> PodSet:
        return dataclasses.replace(
            pod_set, request=dataclasses.replace(pod_set.request, name=of, count=count, group=group)
        )

    return dataclasses.replace(head, pod_sets=(part("leader", 1, "g"), part("workers", 4, "g"), part("alone", 3, None)))


def test_a_leader_and_its_workers_are_one_placement() -> None:
    """What was searched together is counted once; others count beside it."""
    view = make_view((1, 2, 8))
    (decision,) = plan(make_snapshot({"team": {"gpu": 128}}, topologies={"gpu": view}), [make_pair("pair")])

    assert [levels[-1][1] for levels in used_and_fewest(decision)] == [5, 3]


# --- hosts on which it failed ----------------------------------------------------------------------------------------


def test_hosts_on_which_it_failed_repeatedly_are_avoided_by_it_alone() -> None:
    """It goes to the other rack, and all others take the first one."""
    shy = dataclasses.replace(make_head("shy"), avoided=frozenset({"b0-r0-h1"}))

    for head, rack in ((shy, "b0-r1"), (make_head("bold"), "b0-r0")):
        (decision,) = plan(make_snapshot({"team": {"gpu": 64}}), [head])
        assert isinstance(decision, Admit)
        assert racks(decision) == {rack}


def test_hosts_on_which_it_failed_are_used_again_where_it_fits_nowhere_else() -> None:
    """There is one rack of four, and it asks for four."""
    shy = dataclasses.replace(make_head("shy"), avoided=frozenset({"b0-r0-h1", "b0-r0-h2"}))

    (decision,) = plan(make_snapshot({"team": {"gpu": 64}}, topologies={"gpu": make_view((1, 1, 4))}), [shy])

    assert isinstance(decision, Admit)
    assert racks(decision) == {"b0-r0"}


def test_what_fits_nowhere_says_so_as_if_nothing_were_avoided() -> None:
    """A rack has four hosts, and five are asked for: hosts that it avoids do not make the answer worse."""
    shy = dataclasses.replace(make_head("shy", pods=5), avoided=frozenset({"b0-r0-h1", "b0-r1-h1"}))

    (decision,) = plan(make_snapshot({"team": {"gpu": 640}}), [shy])

    assert isinstance(decision, Wait)
    assert "room for 4" in decision.details


# --- mending ---------------------------------------------------------------------------------------------------------


def without(view: TopologyView, *hosts: str, usage: list[DomainUsage]) -> TopologyView:
    """The view when these hosts are gone, with so much taken."""
    leaves = [leaf for leaf in view.tree.leaves if leaf.path[-1] not in hosts]
    tree = Tree(topology="dc", levels=view.tree.levels, leaves=leaves)
    return TopologyView("dc", tree, Capacity.of(tree, usage=usage))


def damage(pods: int, *failed: str) -> tuple[Damaged, Snapshot]:
    """A gang in one rack of 4 of two, and a snapshot of the time after these hosts failed."""
    head = make_head("gang", pods=pods)
    (admit,) = plan(make_snapshot({"team": {"gpu": 64}}), [head])
    assert isinstance(admit, Admit)
    (held,) = admit.admission.pod_sets
    assert held.topology is not None
    usage = [DomainUsage(d.values, head.pod_sets[0].request.requests, d.count) for d in held.topology.domains]
    damaged = Damaged(
        key=head.key, uid=head.uid, admission=admit.admission, pod_sets=head.pod_sets, failed=frozenset(failed)
    )
    view = without(make_view(), *failed, usage=usage)
    return damaged, make_snapshot({"team": {"gpu": 64}}, topologies={"gpu": view})


def hosts_of(mended: HostsReplaced | HostsNotReplaced) -> list[str]:
    assert isinstance(mended, HostsReplaced), mended
    return [domain.values[-1] for domain in mended.assignments["main"].domains]


def test_a_damaged_gang_keeps_its_other_hosts_and_the_new_one_is_charged() -> None:
    """One of three hosts failed; the fourth of the rack takes its place, and the next head does not get it."""
    damaged, snapshot = damage(3, "b0-r0-h1")

    assert hosts_of(replace_hosts(snapshot, damaged)) == ["b0-r0-h0", "b0-r0-h2", "b0-r0-h3"]
    (decision,) = plan(snapshot, [make_head("next", pods=1)])
    assert isinstance(decision, Admit)
    assert racks(decision) == {"b0-r1"}


def test_a_gang_that_cannot_be_mended_says_why_and_nothing_is_charged() -> None:
    """The required rack has no host left; the sentence names rack, flavor and numbers."""
    damaged, snapshot = damage(4, "b0-r0-h1")
    before = [snapshot.topologies["gpu"].capacity.free(leaf) for leaf in range(7)]

    found = replace_hosts(snapshot, damaged)

    assert isinstance(found, HostsNotReplaced)
    for fact in ("pod set main", "flavor gpu", "level rack", "4 by lying outside of its gang's domain"):
        assert fact in found.message
    assert [snapshot.topologies["gpu"].capacity.free(leaf) for leaf in range(7)] == before


def test_a_gang_whose_flavor_lost_its_topology_cannot_be_mended() -> None:
    """There is no tree to search."""
    damaged, snapshot = damage(3, "b0-r0-h1")
    bare = dataclasses.replace(snapshot, topologies={})

    found = replace_hosts(bare, damaged)

    assert isinstance(found, HostsNotReplaced)
    assert "Topology is gone" in found.message


def test_pod_sets_of_two_flavors_do_not_get_the_same_host() -> None:
    """Both flavors stand on the same hosts, and there is one free: only one of two failed pods finds a place."""
    damaged, snapshot = damage(2, "b0-r0-h0", "b0-r0-h1")
    (held,), (pod_set,) = damaged.admission.pod_sets, damaged.pod_sets
    assert held.topology is not None
    split = [dataclasses.replace(held.topology, domains=(domain,)) for domain in held.topology.domains]
    admission = dataclasses.replace(
        damaged.admission,
        pod_sets=tuple(
            dataclasses.replace(held, name=name, flavors=dict.fromkeys(held.flavors, name), topology=part)
            for name, part in zip(("one", "two"), split, strict=True)
        ),
    )
    requests = tuple(
        dataclasses.replace(pod_set, request=dataclasses.replace(pod_set.request, name=name, count=1))
        for name in ("one", "two")
    )
    taken = [DomainUsage((f"b0-r1-h{i}",), pod_set.request.requests, 1) for i in range(4)]
    taken.append(DomainUsage(("b0-r0-h2",), pod_set.request.requests, 1))
    view = without(make_view(), "b0-r0-h0", "b0-r0-h1", usage=taken)
    twins = {"one": view, "two": dataclasses.replace(view, capacity=view.capacity.fork())}
    both = dataclasses.replace(damaged, admission=admission, pod_sets=requests)

    found = replace_hosts(dataclasses.replace(snapshot, topologies=twins), both)

    assert isinstance(found, HostsNotReplaced)
    assert [blocker.flavor for blocker in found.blockers] == ["two"]


def stays_on(found: HostsReplaced | HostsNotReplaced) -> str:
    assert isinstance(found, HostsReplaced), found
    assert found.assignments == {}
    return found.stays


def test_pods_leave_a_healthy_host_on_which_they_failed_repeatedly() -> None:
    """The rack has a spare host: it takes them, and no other host on which they failed is asked."""
    damaged, snapshot = damage(2)
    bad = frozenset({"b0-r0-h1", "b0-r0-h2"})

    found = replace_hosts(snapshot, dataclasses.replace(damaged, failed=frozenset({"b0-r0-h1"}), avoided=bad))

    assert hosts_of(found) == ["b0-r0-h0", "b0-r0-h3"]
    assert isinstance(found, HostsReplaced)
    assert found.stays == ""


def test_pods_stay_on_a_healthy_host_on_which_they_failed_when_no_other_has_room() -> None:
    """Nobody is evicted for it; the sentence names the host and what is short."""
    damaged, snapshot = damage(4)
    bad = frozenset({"b0-r0-h1"})

    stays = stays_on(replace_hosts(snapshot, dataclasses.replace(damaged, failed=bad, avoided=bad)))

    for fact in ("stay on b0-r0-h1", "level rack"):
        assert fact in stays


def test_a_lost_host_is_replaced_even_by_one_on_which_pods_failed() -> None:
    """The only spare host is one to be avoided: better that than an eviction."""
    damaged, snapshot = damage(3, "b0-r0-h1")

    found = replace_hosts(snapshot, dataclasses.replace(damaged, avoided=frozenset({"b0-r0-h3"})))

    assert hosts_of(found) == ["b0-r0-h0", "b0-r0-h2", "b0-r0-h3"]


def test_of_a_lost_host_and_one_on_which_pods_failed_the_lost_one_comes_first() -> None:
    """There is one spare host: it is for the pods that have no host at all."""
    damaged, snapshot = damage(3, "b0-r0-h1")
    bad = frozenset({"b0-r0-h2"})

    found = replace_hosts(
        snapshot, dataclasses.replace(damaged, failed=damaged.failed | bad, avoided=bad | damaged.failed)
    )

    assert hosts_of(found) == ["b0-r0-h0", "b0-r0-h2", "b0-r0-h3"]
    assert isinstance(found, HostsReplaced)
    assert "stay on b0-r0-h2" in found.stays


def test_pods_do_not_stay_on_a_host_that_they_may_not_use() -> None:
    """It was tainted, too: without another host the workload cannot be mended."""
    damaged, snapshot = damage(4)
    bad, view = frozenset({"b0-r0-h1"}), snapshot.topologies["gpu"]
    leaves = [
        dataclasses.replace(leaf, nodes=(dataclasses.replace(leaf.nodes[0], taints=(Taint("out"),)),))
        if leaf.path[-1] in bad
        else leaf
        for leaf in view.tree.leaves
    ]
    tree = Tree(topology="dc", levels=view.tree.levels, leaves=leaves)
    usage = [DomainUsage((f"b0-r0-h{i}",), damaged.pod_sets[0].request.requests, 1) for i in range(4)]
    full = TopologyView("dc", tree, Capacity.of(tree, usage=usage))
    tainted = dataclasses.replace(snapshot, topologies={"gpu": full})

    assert isinstance(replace_hosts(tainted, dataclasses.replace(damaged, failed=bad, avoided=bad)), HostsNotReplaced)


def test_a_plan_says_what_it_is_busy_with() -> None:
    """All heads are nominated, then each gets its turn; what its caller does with a decision is never the plan's."""
    entered: list[Phase] = []
    heads = [make_head("one", queue="a"), make_head("lost", queue="gone"), make_head("two", queue="b")]
    for _ in plan(make_snapshot({"a": {"gpu": 64}, "b": {"gpu": 64}}), heads, enter=entered.append):
        entered.append(Phase.APPLY)

    nominate, order, process, apply = Phase.NOMINATE, Phase.ORDER, Phase.PROCESS, Phase.APPLY
    assert entered == [nominate, apply, nominate, order, *[process, apply, order] * 2]
