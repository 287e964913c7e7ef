"""Why a workload waits: everything that is in the way, who holds it, and what would let it start."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kqueue.core.decision import Admit
from kqueue.core.explain import BlockerKind, sentence
from kqueue.core.quota import FlavorResource, Quota, rebuild
from kqueue.core.topology import PodSetRequest, SliceLayer, Taint, TopologyRequest
from kqueue.core.why import (
    Alternative,
    FlavorLook,
    MoreQuota,
    PlannedState,
    WhatIf,
    WorkloadsEnd,
    condition_for,
    search,
)
from kqueue.core.why.changes import facts
from kqueue.core.workload import Flavor, Head, PodSet, ResourceGroup, Snapshot
from tests.builders import GPU, START, make_head, make_snapshot, make_view
from tests.unit.core.why_cases import explain, in_queue, make_spare, make_world, what_ifs

PLENTY = {"team": {"gpu": 640}}


def conditions(found: list[WhatIf]) -> list[str]:
    """As people read them."""
    return [condition_for(what_if.change) for what_if in found]


# --- all blockers ----------------------------------------------------------------------------------------------------


def test_quota_and_domains_are_both_named_where_a_cycle_stops_at_quota() -> None:
    """Of two racks of four hosts one and two are left; the queue has quota for one host more only."""
    world = make_world(make_snapshot({"team": {"gpu": 48}}), make_head("one", pods=3), make_head("two", pods=2))
    found, _ = explain(make_head("late", pods=4), world)

    kinds = [blocker.kind for blocker in found.blockers("team")]
    assert kinds == [BlockerKind.QUOTA, BlockerKind.NO_CANDIDATES, BlockerKind.TOPOLOGY]


def test_each_level_up_to_the_asked_one_names_its_best_domains_what_is_short_and_who_holds_it() -> None:
    """Rack r0 is full; in r1 one host is left."""
    world = make_world(make_snapshot(PLENTY), make_head("full", pods=4), make_head("most", pods=3))
    found, _ = explain(make_head("late", pods=3), world)

    (flavor,) = found.flavors
    block, rack = flavor.levels
    assert (block.level, block.asked, block.domains, block.fit, block.total) == ("block", False, 1, 1, 3)
    assert (rack.level, rack.asked, rack.domains) == ("rack", True, 2)
    best, other = rack.best
    assert (best.path, best.fit, best.total) == (("b0", "b0-r1"), 1, 3)
    assert best.short is not None
    assert (best.short.resource, best.short.asked, best.short.free) == (GPU, 24, 8)
    assert best.held is not None
    assert [(h.workload.key, h.amount, h.pods) for h in best.held.first] == [("default/most", 24, 3)]
    assert other.held is not None
    assert [h.workload.key for h in other.held.first] == ["default/full"]
    assert (best.held.others, best.held.foreign) == (0, 0)


def test_what_strangers_hold_in_the_best_domain_is_told_apart() -> None:
    """A pod that is not ours takes five of the GPUs of every host."""
    view = make_view((1, 1, 2))
    for leaf in range(2):
        view.capacity.add(leaf, {GPU: -5})
        view.capacity.empty().add(leaf, {GPU: -5})
    found, _ = explain(make_head("late", pods=2), make_world(make_snapshot(PLENTY, topologies={"gpu": view})))

    (best,) = found.flavors[0].levels[-1].best
    assert best.held is not None
    assert (best.held.foreign, best.held.first) == (10, ())


def test_every_flavor_is_looked_at_and_says_what_is_wrong_with_it() -> None:
    """One flavor is tainted, one is too small for ever, one is missing, one lacks quota now."""
    flavors = [
        Flavor(name="tainted", taints=(Taint("spot", "true"),)),
        Flavor(name="small"),
        Flavor(name="taken"),
    ]
    quotas = {"team": {"tainted": 64, "small": 8, "missing": 64, "taken": 40}}
    world = make_world(make_snapshot(quotas, flavors=flavors, topologies={}), make_head("first", pods=2, required=None))
    found, _ = explain(make_head("late", pods=4, required=None), world)

    said = {(b.flavor, b.kind) for b in found.blockers("team") if b.kind is not BlockerKind.NO_CANDIDATES}
    assert said == {
        ("tainted", BlockerKind.FLAVOR_TAINT),
        ("small", BlockerKind.EXCEEDS_MAX_QUOTA),
        ("missing", BlockerKind.FLAVOR_MISSING),
        ("taken", BlockerKind.QUOTA),
    }
    (taken,) = [f for f in found.flavors if f.flavor == "taken"]
    (column,) = taken.columns
    assert (column.asked, column.free, column.most, column.used) == (32, 24, 40, 16)
    assert column.held is not None
    assert [(h.workload.key, h.amount) for h in column.held.first] == [("default/first", 16)]


def test_quota_that_the_cohort_holds_names_who_holds_it_there() -> None:
    """What another queue of the cohort borrows is held by its workload."""
    snapshot = make_snapshot({"team": {"gpu": 16}, "other": {"gpu": 16}}, cohort="all")
    world = make_world(snapshot, make_head("borrower", queue="other", pods=3))
    found, _ = explain(make_head("late", pods=2), world)

    (column,) = found.flavors[0].columns
    assert column.held is not None
    assert [h.workload.key for h in column.held.first] == ["default/borrower"]


def test_a_resource_that_no_flavor_lists_is_a_blocker() -> None:
    """The queue covers GPUs only; and no node has the other resource either."""
    head = make_head("odd", requests={GPU: 1, "vendor.example/nic": 1})
    found, search = explain(head, make_world(make_snapshot(PLENTY)))

    assert [b.kind for b in found.blockers("team")] == [BlockerKind.RESOURCE_NOT_COVERED, BlockerKind.TOPOLOGY]
    assert not search.found


def test_more_holders_than_are_named_are_counted() -> None:
    """Eight workloads of a host each fill both racks."""
    world = make_world(make_snapshot(PLENTY), *(make_head(f"w{i}", pods=1) for i in range(8)))
    found, _ = explain(make_head("late", pods=4), world)

    best = found.flavors[0].levels[0].best[0]
    assert best.held is not None
    assert (len(best.held.first), best.held.others) == (3, 5)


def test_slices_are_counted_as_slices() -> None:
    """Two slices of two hosts in a rack each; a rack has three hosts free."""
    head = _sliced("late", pods=8)
    world = make_world(make_snapshot(PLENTY), make_head("a", pods=1), make_head("b", pods=4))
    found, _ = explain(head, world)

    levels = {level.level: level for level in found.flavors[0].levels}
    assert (levels["rack"].unit, levels["rack"].fit, levels["rack"].total) == ("slice", 1, 4)


def _sliced(name: str, *, pods: int) -> Head:
    topology = TopologyRequest(required="block", slices=(SliceLayer("rack", 2),))
    request = PodSetRequest(name="main", count=pods, requests={GPU: 8}, topology=topology)
    pod_set = PodSet(request=request, quota_requests={GPU: 8}, asks_topology=True)
    return Head(key=f"default/{name}", uid=name, queue="team", priority=0, timestamp=START, pod_sets=(pod_set,))


def test_a_workload_that_fits_is_said_to_fit() -> None:
    """Nothing is in the way; the planner would admit it."""
    found, search = explain(make_head("next"), make_world(make_snapshot(PLENTY)))

    assert isinstance(found.decision, Admit)
    assert found.blockers("team") == ()
    assert all(flavor.fits for flavor in found.flavors)
    assert search.unfinished == []


def test_a_queue_that_is_not_active_is_the_blocker() -> None:
    """Nothing else can be looked at then."""
    snapshot = make_snapshot({})
    snapshot.inactive = {"team": "its stopPolicy is Hold"}
    found, search = explain(make_head("late"), make_world(snapshot))

    (blocker,) = found.blockers("team")
    assert "stopPolicy is Hold" in sentence(blocker)
    assert search.found == []


# --- what would let it start -----------------------------------------------------------------------------------------


def taken(**late: Any) -> tuple[Any, Head]:
    """Rack r0 is full by `full`, r1 has one host left beside `most`."""
    return make_world(make_snapshot(PLENTY), make_head("full"), make_head("most", pods=3)), make_head("late", **late)


def test_the_end_of_one_workload_that_is_enough() -> None:
    """Three hosts in a rack: whoever of the two ends makes room."""
    world, late = taken(pods=3)
    found = conditions(what_ifs(late, world))

    assert "workload default/full ended" in found
    assert "workload default/most ended" in found


def test_the_smallest_set_of_workloads_where_none_alone_is_enough() -> None:
    """Each rack holds four workloads of one host, and one needs three hosts."""
    world = make_world(make_snapshot(PLENTY), *(make_head(f"w{i}", pods=1) for i in range(8)))
    (*_, last) = conditions(what_ifs(make_head("late", pods=3), world))

    assert last.startswith("3 workloads (default/w")
    assert last.endswith(" ended")


def test_a_set_has_nobody_in_it_who_could_stay() -> None:
    """Whoever holds most stands where a stranger's pod keeps the gang out anyway; two others share the other host."""
    view = make_view((1, 1, 2))
    for capacity in (view.capacity, view.capacity.empty()):
        capacity.add(0, {GPU: -1})
    running = [make_head("largest", pods=1, gpus=7), make_head("c", pods=1, gpus=4), make_head("d", pods=1, gpus=4)]
    world = make_world(make_snapshot(PLENTY, topologies={"gpu": view}), *running)
    (*_, last) = conditions(what_ifs(make_head("late", pods=1), world))

    assert last == "2 workloads (default/c, default/d) ended"


def test_quota_and_hosts_may_be_held_by_different_workloads() -> None:
    """The end of either empties a rack; only that of both gives enough quota back."""
    world = make_world(make_snapshot({"team": {"gpu": 40}}), make_head("a", pods=3), make_head("b", pods=2))
    (*_, last) = conditions(what_ifs(make_head("late", pods=4), world))

    assert last == "2 workloads (default/a, default/b) ended"


def test_those_who_are_leaving_already_come_first() -> None:
    """It starts when they have left: nobody has to give anything up."""
    snapshot = make_snapshot(PLENTY)
    world = make_world(snapshot, make_head("full"), make_head("most", pods=3), evicted=["most"])
    first, *_ = conditions(what_ifs(make_head("late", pods=4), world))

    assert first == "workload default/most that is leaving had left"


def test_a_node_that_is_uncordoned_is_enough() -> None:
    """Rack r1 has one host free and a cordoned one; r0 is full."""
    snapshot = make_snapshot(PLENTY, topologies={"gpu": make_view((1, 2, 2))})
    spares = [make_spare("spare", rack="b0-r1"), make_spare("elsewhere", rack="b0-r9")]
    world = make_world(snapshot, make_head("a", pods=2), make_head("b", pods=1), spares=spares)
    first, *_ = conditions(what_ifs(make_head("late", pods=2), world))

    assert first == "node spare was uncordoned"


def test_two_nodes_that_come_back_where_one_is_not_enough() -> None:
    """Two broken nodes of one rack, and one of another rack that is of no use."""
    snapshot = make_snapshot(PLENTY, topologies={"gpu": make_view((1, 2, 2))})
    spares = [
        make_spare("n1", rack="b0-r1", reason="notReady"),
        make_spare("n2", rack="b0-r1"),
        make_spare("n3", rack="b0-r9"),
    ]
    world = make_world(snapshot, make_head("a", pods=2), make_head("b", pods=1), spares=spares)
    first, *_ = conditions(what_ifs(make_head("late", pods=3), world))

    assert first == "node n1 became ready and node n2 was uncordoned"


def test_a_level_that_is_only_preferred_is_enough() -> None:
    """One host is free in each rack."""
    late = make_head("late", pods=2)
    world = make_world(make_snapshot(PLENTY), make_head("a", pods=3), make_head("b", pods=3))
    first, second, *_ = conditions(what_ifs(late, world))
    assert first == "pod set main only preferred level rack instead of requiring it"
    assert second == "pod set main required one domain of level block instead of rack"


def test_fewer_pods_are_the_most_that_fit() -> None:
    """Three hosts are left in the best rack."""
    world = make_world(make_snapshot(PLENTY), make_head("a", pods=1), make_head("b", pods=4))
    found = conditions(what_ifs(make_head("late", pods=4), world))

    assert "pod set main had 3 pods instead of 4" in found


def test_fewer_pods_are_whole_slices() -> None:
    """Seven hosts in two racks hold three slices of two hosts, so six pods."""
    world = make_world(make_snapshot(PLENTY), make_head("a", pods=1))
    found = conditions(what_ifs(_sliced("late", pods=8), world))

    assert "pod set main had 6 pods instead of 8" in found


def test_another_queue_that_has_the_quota() -> None:
    """The hosts are free; only the own queue has no quota left."""
    snapshot = make_snapshot({"team": {"gpu": 16}, "other": {"gpu": 64}, "full": {"gpu": 8}})
    late = make_head("late", pods=4)
    others = [Alternative(local_queue=f"{q}-line", head=in_queue(late, q)) for q in ("full", "other")]
    found = conditions(what_ifs(late, make_world(snapshot), others))

    assert found[0] == "it waited in LocalQueue other-line (ClusterQueue other)"
    assert not [c for c in found if "full-line" in c]


@pytest.mark.parametrize(
    ("own", "limit", "of_cohort", "grant"),
    [
        pytest.param(16, None, 0, "a nominalQuota of 32 instead of 16", id="alone"),
        pytest.param(16, 8, 64, "a borrowingLimit of 16 instead of 8", id="the cohort has more than may be borrowed"),
        pytest.param(16, 8, 8, "a nominalQuota of 24 instead of 16", id="the cohort has no more"),
        pytest.param(16, 4, 8, "a nominalQuota of 28 instead of 16", id="neither may it borrow nor is there more"),
        pytest.param(0, None, 24, "a nominalQuota of 8 instead of 0", id="nothing of its own"),
    ],
)
def test_more_quota_is_what_is_missing(own: int, limit: int | None, of_cohort: int, grant: str) -> None:
    """Four pods of eight GPUs; the hosts are free.  A higher limit costs less than more quota of its own."""
    snapshot = make_snapshot({"team": {"gpu": own}, "other": {"gpu": of_cohort}}, cohort="all")
    column, node = FlavorResource("gpu", GPU), snapshot.nodes["team"]
    node.quotas = {column: Quota(own, borrowing_limit=limit)}
    rebuild(node.root)
    found = [w for w in what_ifs(make_head("late", pods=4), make_world(snapshot)) if isinstance(w.change, MoreQuota)]

    assert conditions(found) == [f"ClusterQueue team had {grant} for nvidia.com/gpu in flavor gpu"]


def _with_groups(snapshot: Snapshot, groups: tuple[ResourceGroup, ...]) -> None:
    queues: Any = snapshot.queues
    queues["team"] = replace(queues["team"], groups=groups)


def test_more_quota_of_several_resources_in_one_go() -> None:
    """Amounts are written as in the queue's manifest."""
    columns = {
        FlavorResource("gpu", resource): amount for resource, amount in ((GPU, 16), ("cpu", 4000), ("memory", 0))
    }
    snapshot = make_snapshot({"team": {}}, flavors=[Flavor(name="gpu")], topologies={})
    _with_groups(snapshot, (ResourceGroup((GPU, "cpu", "memory"), ("gpu",)),))
    node = snapshot.nodes["team"]
    node.quotas = {column: Quota(amount) for column, amount in columns.items()}
    rebuild(node)
    late = make_head("late", pods=1, requests={GPU: 8, "cpu": 4500, "memory": 2**30}, required=None)
    (found,) = what_ifs(late, make_world(snapshot))

    assert facts(found.change) == {
        "kind": "MoreQuota",
        "clusterQueue": "team",
        "quotas": [
            {"flavor": "gpu", "resource": "cpu", "nominalQuota": "4500m", "insteadOf": "4"},
            {"flavor": "gpu", "resource": "memory", "nominalQuota": "1Gi", "insteadOf": "0"},
        ],
    }


def test_of_many_flavors_few_choices_are_looked_at_for_more_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen resources with quota in four flavors each, and one whose only flavor is tainted: four billion choices."""
    drawn = 0

    def counted(*groups: Sequence[FlavorLook]) -> Iterator[tuple[FlavorLook, ...]]:
        nonlocal drawn
        for choice in itertools.product(*groups):
            drawn += 1
            assert drawn <= 8
            yield choice

    monkeypatch.setattr(search, "product", counted)
    names = {f"vendor.example/r{n}": tuple(f"f{n}-{i}" for i in range(4)) for n in range(16)} | {GPU: ("tainted",)}
    flavors = [
        Flavor(name=f, taints=(Taint("spot", "true"),) if f == "tainted" else ()) for r in names for f in names[r]
    ]
    snapshot = make_snapshot({"team": {}}, flavors=flavors, topologies={})
    groups = tuple(ResourceGroup((r,), names[r]) for r in names)
    _with_groups(snapshot, groups)
    node = snapshot.nodes["team"]
    node.quotas = {FlavorResource(f, r): Quota(9) for r in names for f in names[r]}
    rebuild(node)
    late = make_head("late", pods=1, requests=dict.fromkeys(names, 1), required=None)

    assert not what_ifs(late, make_world(snapshot))
    assert drawn


def test_more_quota_does_not_stand_in_for_hosts() -> None:
    """Quota for three hosts in a rack that has one; and a resource that no flavor lists."""
    world, _ = taken()
    odd = make_head("odd", requests={GPU: 1, "vendor.example/nic": 1}, required=None)
    late = replace(make_head("late", pods=3), queue="team")

    assert not [w for head in (late, odd) for w in what_ifs(head, world) if isinstance(w.change, MoreQuota)]


def test_what_nobody_can_give_is_not_promised() -> None:
    """Five hosts in a rack of four: not even the end of all others helps, a wider level does."""
    world, late = taken(pods=5)
    found = conditions(what_ifs(late, world))

    assert not [c for c in found if "ended" in c]
    assert "pod set main had 4 pods instead of 5" not in found  # no rack has four hosts free now
    assert "pod set main had 1 pods instead of 5" in found


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        pytest.param(["ns/a"], "workload ns/a ended", id="one"),
        pytest.param(["ns/a", "ns/b"], "2 workloads (ns/a, ns/b) ended", id="two"),
        pytest.param(["x/a"], "a workload of another namespace ended", id="a hidden one"),
        pytest.param(["x/a", "y/b"], "2 workloads of other namespaces ended", id="hidden ones"),
        pytest.param(["x/a", "ns/b"], "2 workloads (ns/b and 1 of other namespaces) ended", id="some are hidden"),
        pytest.param(
            ["x/a", *(f"ns/{n}" for n in range(6))],
            "7 workloads (ns/0, ns/1, ns/2, ns/3, 2 more and 1 of other namespaces) ended",
            id="many, some hidden",
        ),
    ],
)
def test_those_who_may_not_be_named_are_counted(keys: list[str], told: str) -> None:
    """Of the namespace ns only."""
    world = make_world(make_snapshot(PLENTY), make_head("one", pods=1))
    (running,) = world.holders
    change = WorkloadsEnd(workloads=tuple(replace(running, key=key) for key in keys))
    leaving = WorkloadsEnd(workloads=tuple(replace(running, key=key, evicted=True) for key in keys))

    assert condition_for(change, lambda workload: workload.key.startswith("ns/")) == told
    verb = "that is leaving had left" if len(keys) == 1 else "that are leaving had left"
    assert condition_for(leaving, lambda workload: workload.key.startswith("ns/")) == told.replace("ended", verb)


def test_the_cheapest_change_comes_first() -> None:
    """What nobody loses by, then what the workload gives up itself, then what others do."""
    snapshot = make_snapshot({"team": {"gpu": 640}, "other": {"gpu": 640}})
    snapshot.topologies = {"gpu": make_view((1, 2, 4))}
    world = make_world(snapshot, make_head("a", pods=3), make_head("b", pods=3), spares=[make_spare("s", rack="b0-r1")])
    costs = [what_if.cost for what_if in what_ifs(make_head("late", pods=2), world)]

    assert costs == sorted(costs)
    assert [cost[0] for cost in costs][:1] == [0]
    assert {cost[0] for cost in costs} == {0, 1, 3, 4}


def test_a_search_that_is_stopped_says_what_it_has_not_looked_at() -> None:
    """Whoever runs it may stop it between pieces."""
    world, late = taken(pods=3)
    _, search = explain(late, world, steps=1)

    assert search.unfinished[-1] == "the workloads that come first"


def test_a_search_changes_neither_quota_nor_domains_of_its_world() -> None:
    """The search tries ends of workloads and the return of a node; the snapshot keeps every amount."""
    snapshot = make_snapshot({"team": {"gpu": 72}})
    spares = [make_spare("spare", rack="b0-r1")]
    world = make_world(snapshot, make_head("full", pods=4), make_head("most", pods=3), spares=spares)
    before = amounts(world)
    found = what_ifs(make_head("late", pods=3), world)

    assert {type(what_if.change) for what_if in found} >= {WorkloadsEnd}
    assert amounts(world) == before


def amounts(world: PlannedState) -> tuple[Any, ...]:
    """Used and allowed quota of each ClusterQueue, what each host has free, and the holders."""
    now = world.snapshot
    used = {name: (dict(node.usage), dict(node.quotas)) for name, node in now.nodes.items()}
    views = [(v.capacity, v.capacity.empty()) for v in now.topologies.values()]
    free = [[c.free(leaf) for leaf in range(len(c.tree.leaves))] for pair in views for c in pair]
    holders = {name: sorted(queue) for name, queue in now.admitted.items()}
    return used, free, holders


@pytest.mark.parametrize("pods", [1, 2, 3])
def test_a_leader_and_its_workers_are_looked_at_together(pods: int) -> None:
    """One leader beside the workers: they share a rack, so they need a host more."""
    world = make_world(make_snapshot(PLENTY), make_head("a", pods=3), make_head("b", pods=3))
    late = _led("late", workers=pods)
    found, search = explain(late, world)

    assert found.flavors[0].pod_sets == ("leader", "workers")
    assert [b.kind for b in found.blockers("team")] == [BlockerKind.TOPOLOGY, BlockerKind.NO_CANDIDATES]
    wishes = [condition_for(w.change) for w in search.found if "preferred" in condition_for(w.change)]
    expected = ["pod sets leader and workers only preferred level rack instead of requiring it"] if pods == 1 else []
    assert wishes == expected


def _led(name: str, *, workers: int) -> Head:
    topology = TopologyRequest(required="rack")
    pod_sets = tuple(
        PodSet(
            request=PodSetRequest(name=pod_set, count=count, requests={GPU: 8}, topology=topology, group="g"),
            quota_requests={GPU: 8},
            asks_topology=True,
        )
        for pod_set, count in (("leader", 1), ("workers", workers))
    )
    return Head(key=f"default/{name}", uid=name, queue="team", priority=0, timestamp=START, pod_sets=pod_sets)


# --- roles together --------------------------------------------------------------------------------------------------


def test_roles_that_find_no_common_rack_are_told_so_with_changes_that_help() -> None:
    """Each rack has a free host, which is enough for each role alone."""
    world = make_world(make_snapshot(PLENTY), make_head("one", pods=3), make_head("two", pods=3))
    head = make_head("late", pods=1)
    (main,) = head.pod_sets
    both = [replace(main, request=replace(main.request, name=name, together=True)) for name in ("servers", "workers")]
    found, changes = explain(replace(head, pod_sets=tuple(both)), world)

    told = [sentence(b) for b in found.blockers("team") if b.kind is BlockerKind.TOPOLOGY]
    assert told == [
        "no rack has room for all roles together (topology dc, flavor gpu): the best, b0/b0-r0, has room for 1 of 2 "
        "pods; short of nvidia.com/gpu: asked 16, free 8"
    ]
    assert conditions(changes.found) == [
        "pod sets servers and workers only preferred level rack instead of requiring it",
        "pod sets servers and workers required one domain of level block instead of rack",
    ]
