"""Which flavors a workload gets: eligibility, quota, order, memory, and the words of a refusal."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kqueue.core import quota
from kqueue.core.explain import BlockerKind, WaitReason, message
from kqueue.core.flavors import Assignment, Mode, Oracle, assign
from kqueue.core.quota import FlavorResource, Quota, QuotaNode
from kqueue.core.topology import (
    NodeRules,
    NodeTerm,
    PodSetRequest,
    Requirement,
    SliceLayer,
    Taint,
    Toleration,
    TopologyRequest,
)
from kqueue.core.workload import Flavor, Head, PodSet, Preempts, QueueSpec, ResourceGroup, Snapshot
from tests.builders import START, make_snapshot, make_view

CPU = "cpu"


def make_pod_set(
    name: str = "main",
    *,
    pods: int = 1,
    rules: NodeRules | None = None,
    topology: TopologyRequest | None = None,
    group: str | None = None,
    **requests: int,
) -> PodSet:
    """A pod set; each pod asks for `requests`."""
    request = PodSetRequest(
        name=name,
        count=pods,
        requests=requests,
        topology=topology or TopologyRequest(),
        group=group,
        rules=rules or NodeRules(),
    )
    asks = topology is not None and not topology.implied
    return PodSet(request=request, quota_requests=requests, asks_topology=asks)


def make_head(*pod_sets: PodSet, last_tried: Mapping[tuple[str, str], int] | None = None) -> Head:
    """A workload of ClusterQueue `team`."""
    return Head(
        key="ns/w",
        uid="w",
        queue="team",
        priority=0,
        timestamp=START,
        pod_sets=pod_sets,
        last_tried=last_tried or {},
    )


def make_world(
    free: Mapping[str, int],
    *,
    others: Mapping[str, int] | None = None,
    flavors: Sequence[Flavor] = (),
    used: Mapping[str, int] | None = None,
    taken: Mapping[str, int] | None = None,
    groups: Sequence[ResourceGroup] | None = None,
    **settings: Any,
) -> Snapshot:
    """ClusterQueue `team` with nominal cpu per flavor; with `others` in a cohort beside one that has these.

    `used` is what team holds already, `taken` what the other one does; `settings` are team's policies.
    """
    spec = QueueSpec(name="team", groups=tuple(groups or [ResourceGroup((CPU,), tuple(free))]), **settings)
    snapshot = make_snapshot(
        {"team": free, **({"other": others} if others is not None else {})},
        cohort="company" if others is not None else None,
        specs=[spec],
        flavors=flavors or [Flavor(name=name) for name in free],
        topologies={"placed": make_view()},
        resource=CPU,
    )
    for queue, held in (("team", used), ("other", taken)):
        for flavor, amount in (held or {}).items():
            quota.add_usage(snapshot.nodes[queue], FlavorResource(flavor, CPU), amount)
    return snapshot


def chosen(assignment: Assignment) -> dict[str, dict[str, str]]:
    """Flavor per resource, by pod set."""
    return {p.name: dict(p.flavors) for p in assignment.pod_sets}


# --- eligibility -----------------------------------------------------------------------------------------------------


def affinity(*terms: Sequence[Requirement]) -> NodeRules:
    return NodeRules(required=tuple(NodeTerm(tuple(term)) for term in terms))


LABELLED = Flavor(name="f", node_labels={"pool": "gpu", "gen": "3"})
ONE_NODE = Requirement("metadata.name", "In", ("n1",))
TAINTED = Flavor(name="f", taints=(Taint("spot", "true"),))


@pytest.mark.parametrize(
    ("flavor", "rules", "kind"),
    [
        pytest.param(TAINTED, NodeRules(), BlockerKind.FLAVOR_TAINT, id="untolerated-taint"),
        pytest.param(
            TAINTED, NodeRules(tolerations=(Toleration("spot", "Exists"),)), None, id="the-pod-tolerates-the-taint"
        ),
        pytest.param(
            dataclasses.replace(TAINTED, tolerations=(Toleration("spot", "Equal", "true"),)),
            NodeRules(),
            None,
            id="the-flavor-brings-the-toleration",
        ),
        pytest.param(
            Flavor(name="f", taints=(Taint("spot", "", "PreferNoSchedule"),)), NodeRules(), None, id="a-mild-taint"
        ),
        pytest.param(
            Flavor(name="f", taints=(Taint("down", "", "NoExecute"),)),
            NodeRules(),
            BlockerKind.FLAVOR_TAINT,
            id="a-taint-that-drives-out",
        ),
        pytest.param(LABELLED, NodeRules(selector=(("pool", "gpu"),)), None, id="selector-matches"),
        pytest.param(
            LABELLED, NodeRules(selector=(("pool", "cpu"),)), BlockerKind.FLAVOR_LABELS, id="selector-does-not-match"
        ),
        pytest.param(LABELLED, NodeRules(selector=(("zone", "a"),)), None, id="other-keys-are-left-to-the-nodes"),
        pytest.param(LABELLED, affinity([Requirement("gen", "Gt", ("2",))]), None, id="affinity-matches"),
        pytest.param(
            LABELLED,
            affinity([Requirement("gen", "Gt", ("3",))], [Requirement("pool", "NotIn", ("gpu",))]),
            BlockerKind.FLAVOR_LABELS,
            id="no-term-matches",
        ),
        pytest.param(
            LABELLED,
            affinity([Requirement("pool", "In", ("cpu",))], [Requirement("zone", "In", ("a",))]),
            None,
            id="a-term-about-other-keys-only-matches",
        ),
        pytest.param(
            LABELLED,
            affinity([Requirement("pool", "In", ("gpu",)), Requirement("zone", "DoesNotExist")]),
            None,
            id="of-a-term-only-the-flavors-keys-count",
        ),
        pytest.param(
            LABELLED,
            dataclasses.replace(affinity([Requirement("zone", "In", ("a",))]), selector=(("pool", "cpu"),)),
            BlockerKind.FLAVOR_LABELS,
            id="the-selector-still-applies",
        ),
        pytest.param(
            LABELLED, NodeRules(required=(NodeTerm(fields=(ONE_NODE,)),)), None, id="fields-of-nodes-do-not-count"
        ),
        pytest.param(
            LABELLED,
            NodeRules(required=(NodeTerm((Requirement("pool", "In", ("cpu",)),), fields=(ONE_NODE,)),)),
            BlockerKind.FLAVOR_LABELS,
            id="beside-them-labels-do",
        ),
        pytest.param(Flavor(name="other"), NodeRules(), BlockerKind.FLAVOR_MISSING, id="the-flavor-is-gone"),
    ],
)
def test_a_flavor_must_be_open_to_the_pods(flavor: Flavor, rules: NodeRules, kind: BlockerKind | None) -> None:
    """Taints and labels of the flavor against tolerations, selector and required affinity of the pods."""
    result = assign(make_head(make_pod_set(cpu=1, rules=rules)), make_world({"f": 9}, flavors=[flavor]))

    assert result.mode is (Mode.FIT if kind is None else Mode.NO_FIT)
    assert [b.kind for b in result.blockers] == ([] if kind is None else [kind])
    assert kind is None or result.reason is WaitReason.NO_MATCHING_FLAVOR


PLACED = Flavor(name="placed", topology="dc")
PLAIN = Flavor(name="plain")


@pytest.mark.parametrize(
    ("flavor", "topology", "fact"),
    [
        pytest.param(PLACED, TopologyRequest(required="rack"), None, id="a-level-it-has"),
        pytest.param(PLACED, TopologyRequest(implied=True), None, id="implied-by-the-queue"),
        pytest.param(PLAIN, None, None, id="neither-has-a-topology"),
        pytest.param(
            PLACED, TopologyRequest(required="aisle"), "has no level aisle; it has block, rack", id="no-level"
        ),
        pytest.param(PLACED, TopologyRequest(preferred="aisle"), "has no level aisle", id="no-preferred-level"),
        pytest.param(
            PLACED,
            TopologyRequest(required="block", slices=(SliceLayer("shelf", 2),)),
            "has no level shelf",
            id="no-slice-level",
        ),
        pytest.param(PLACED, None, "this pod set asks for none", id="nodes-kept-for-placed-pods"),
        pytest.param(PLAIN, TopologyRequest(required="rack"), "it names no topology", id="nodes-without-a-topology"),
        pytest.param(
            Flavor(name="new", topology="dc"), TopologyRequest(required="rack"), "dc is not known", id="not-known-yet"
        ),
    ],
)
def test_a_place_is_had_only_where_the_flavor_has_the_level(
    flavor: Flavor, topology: TopologyRequest | None, fact: str | None
) -> None:
    """Before any capacity is looked at; the refusal names what is missing."""
    head = make_head(make_pod_set(cpu=1, topology=topology))
    result = assign(head, make_world({flavor.name: 9}, flavors=[flavor]))

    assert result.mode is (Mode.FIT if fact is None else Mode.NO_FIT)
    assert (fact or "") in message(result.blockers)


@pytest.mark.parametrize(
    ("groups", "fits"),
    [
        pytest.param(
            [ResourceGroup(("gpu",), ("placed",)), ResourceGroup(("credits",), ("plain",))], True, id="it-only-counts"
        ),
        pytest.param(
            [ResourceGroup(("gpu",), ("placed",)), ResourceGroup(("credits", "cpu"), ("plain",))],
            False,
            id="it-is-about-what-pods-ask-for-too",
        ),
        pytest.param([ResourceGroup(("credits",), ("plain",))], False, id="nothing-else-says-where-pods-go"),
    ],
)
def test_a_flavor_for_what_is_only_counted_needs_no_topology(groups: list[ResourceGroup], fits: bool) -> None:
    """Nodes do not have what a transformation makes of requests."""
    pod_set = make_pod_set(cpu=1, gpu=1, topology=TopologyRequest(required="rack"))
    covered = {resource for group in groups for resource in group.resources}
    costs: dict[str, int] = {resource: 1 for resource in ("cpu", "gpu", "credits") if resource in covered}
    head = make_head(dataclasses.replace(pod_set, quota_requests=costs))
    world = make_world({}, flavors=[PLACED, PLAIN], groups=groups)
    columns = [FlavorResource(flavor, r) for group in groups for flavor in group.flavors for r in group.resources]
    world.nodes["team"].quotas = dict.fromkeys(columns, Quota(nominal=9))
    quota.rebuild(world.nodes["team"])
    result = assign(head, world)

    assert result.mode is (Mode.FIT if fits else Mode.NO_FIT)
    assert fits or "it names no topology" in message(result.blockers)


def test_one_pod_set_of_a_group_that_cannot_run_there_is_enough() -> None:
    """A group gets one flavor, so every member must be able to use it."""
    tolerant = NodeRules(tolerations=(Toleration("spot", "Exists"),))
    leader, workers = make_pod_set("a", cpu=1, group="g", rules=tolerant), make_pod_set("b", cpu=1, group="g")
    result = assign(make_head(leader, workers), make_world({"f": 9, "g": 9}, flavors=[TAINTED, Flavor(name="g")]))

    assert chosen(result) == {"a": {CPU: "g"}, "b": {CPU: "g"}}


# --- quota -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("world", "mode", "level", "reason"),
    [
        pytest.param(make_world({"f": 5}), Mode.FIT, 0, None, id="fits-exactly"),
        pytest.param(make_world({"f": 4}), Mode.NO_FIT, 0, WaitReason.EXCEEDS_MAX_QUOTA, id="can-never-fit"),
        pytest.param(
            make_world({"f": 5}, used={"f": 1}), Mode.NO_CANDIDATES, 0, WaitReason.WAITING_FOR_QUOTA, id="has-to-wait"
        ),
        pytest.param(make_world({"f": 3}, others={"f": 2}), Mode.FIT, 1, None, id="borrows"),
        pytest.param(
            make_world({"f": 3}, others={"f": 2}, used={"f": 1}),
            Mode.NO_FIT,
            1,
            WaitReason.WAITING_FOR_QUOTA,
            id="would-have-to-borrow-what-is-not-there",
        ),
        pytest.param(
            make_world({"f": 3}, others={"f": 2}, used={"f": 1}, borrow_preempts=True),
            Mode.NO_CANDIDATES,
            1,
            WaitReason.WAITING_FOR_QUOTA,
            id="may-preempt-while-borrowing",
        ),
        pytest.param(
            make_world({"f": 3}, others={"f": 1}), Mode.NO_FIT, 1, WaitReason.EXCEEDS_MAX_QUOTA, id="not-even-together"
        ),
    ],
)
def test_quota_decides_how_well_a_flavor_serves(
    world: Snapshot, mode: Mode, level: int, reason: WaitReason | None
) -> None:
    """Five cpu against what is free now, what the queue may take back, and what there could ever be."""
    result = assign(make_head(make_pod_set(pods=5, cpu=1)), world)

    assert result.mode is mode
    assert result.level == (level if mode is not Mode.NO_FIT else 0)
    assert reason is None or result.reason is reason
    assert (message(result.blockers) == "") is (mode is Mode.FIT)


def make_tree(*, borrowed: int) -> Snapshot:
    """root ─ left ─ team (nothing of its own), rich (10); root ─ right, which has taken `borrowed` of left's quota."""
    column = FlavorResource("f", CPU)
    root, left = QuotaNode("root", is_cohort=True), QuotaNode("left", is_cohort=True)
    team = QuotaNode("team", quotas={column: Quota(0)}, parent=left)
    rich = QuotaNode("rich", quotas={column: Quota(10)}, parent=left)
    right = QuotaNode("right", quotas={column: Quota(0)}, parent=root)
    left.parent, root.children, left.children = root, [left, right], [team, rich]
    quota.rebuild(root)
    quota.add_usage(right, column, borrowed)
    return Snapshot(
        queues={"team": QueueSpec(name="team", groups=(ResourceGroup((CPU,), ("f",)),))},
        nodes={node.name: node for node in (team, rich, right)},
        flavors={"f": Flavor(name="f")},
        topologies={},
    )


@pytest.mark.parametrize(
    ("borrowed", "mode", "level"),
    [
        pytest.param(0, Mode.FIT, 1, id="the-cohort-has-it"),
        pytest.param(6, Mode.NO_CANDIDATES, 1, id="the-cohort-lent-it-and-may-take-it-back"),
    ],
)
def test_what_the_own_cohort_lent_away_may_be_waited_for(borrowed: int, mode: Mode, level: int) -> None:
    """The quota of the nearest cohort suffices, so the flavor is worth waiting for although others use it now."""
    result = assign(make_head(make_pod_set(cpu=5)), make_tree(borrowed=borrowed))

    assert (result.mode, result.level) == (mode, level)


def test_the_numbers_of_a_refusal_are_those_of_the_column() -> None:
    """Asked, free and never are what the sentence is made of; free is never negative."""
    (short,) = assign(make_head(make_pod_set(pods=5, cpu=1)), make_world({"f": 5}, used={"f": 7})).blockers
    (never,) = assign(make_head(make_pod_set(pods=9, cpu=1)), make_world({"f": 5})).blockers

    assert (short.kind, short.flavor, short.resource, short.asked, short.free) == (BlockerKind.QUOTA, "f", CPU, 5, 0)
    assert not short.never
    assert (never.kind, never.asked, never.free, never.never) == (BlockerKind.EXCEEDS_MAX_QUOTA, 9, 5, True)


def test_earlier_pod_sets_count_against_later_ones() -> None:
    """Three and three do not fit into five: the second pod set goes to the next flavor."""
    head = make_head(make_pod_set("a", cpu=3), make_pod_set("b", cpu=3))
    result = assign(head, make_world({"f": 5, "g": 5}))

    assert chosen(result) == {"a": {CPU: "f"}, "b": {CPU: "g"}}
    assert result.usage == {FlavorResource("f", CPU): 3, FlavorResource("g", CPU): 3}


def test_a_group_is_counted_as_one() -> None:
    """Its members' requests are summed, and both go where the sum fits."""
    head = make_head(make_pod_set("a", cpu=3, group="g"), make_pod_set("b", cpu=3, pods=2, group="g"))
    result = assign(head, make_world({"f": 8, "g": 9}))

    assert chosen(result) == {"a": {CPU: "g"}, "b": {CPU: "g"}}
    assert [(p.count, dict(p.usage)) for p in result.pod_sets] == [(1, {CPU: 3}), (2, {CPU: 6})]


def test_after_a_pod_set_without_a_flavor_the_search_ends() -> None:
    """Later pod sets are not looked at; what earlier ones got stays."""
    head = make_head(make_pod_set("a", cpu=1), make_pod_set("b", cpu=99), make_pod_set("c", cpu=1))
    result = assign(head, make_world({"f": 9}))

    assert result.mode is Mode.NO_FIT
    assert chosen(result) == {"a": {CPU: "f"}}
    assert [b.pod_set for b in result.blockers] == ["b"]


# --- resources -------------------------------------------------------------------------------------------------------


def test_resource_groups_choose_on_their_own() -> None:
    """Resources of one group get the same flavor, those of another may get another."""
    groups = [ResourceGroup((CPU, "memory"), ("f", "g")), ResourceGroup(("gpu",), ("h",))]
    world = make_world({"f": 1, "g": 9, "h": 0}, groups=groups)
    world.nodes["team"].subtree |= {FlavorResource(f, "memory"): 9 for f in "fg"} | {FlavorResource("h", "gpu"): 9}
    result = assign(make_head(make_pod_set(cpu=2, memory=1, gpu=1)), world)

    assert result.mode is Mode.FIT
    assert chosen(result) == {"main": {CPU: "g", "memory": "g", "gpu": "h"}}


def test_one_resource_that_does_not_fit_makes_the_flavor_unfit_and_all_are_named() -> None:
    """The worst resource decides, the most severe reason stands, and each problem is told."""
    world = make_world({"f": 2}, groups=[ResourceGroup((CPU, "memory"), ("f",))], used={"f": 1})
    result = assign(make_head(make_pod_set(cpu=2, memory=1)), world)

    assert (result.mode, result.reason) == (Mode.NO_FIT, WaitReason.EXCEEDS_MAX_QUOTA)
    assert [(b.resource, b.kind) for b in result.blockers] == [
        (CPU, BlockerKind.QUOTA),
        ("memory", BlockerKind.EXCEEDS_MAX_QUOTA),
    ]


def test_a_resource_that_no_group_covers_is_named() -> None:
    """All of them at once; one of which nothing is asked does not matter."""
    result = assign(make_head(make_pod_set(pods=2, cpu=1, zinc=1, gold=2, lead=0)), make_world({"f": 9}))

    assert (result.mode, result.reason) == (Mode.NO_FIT, WaitReason.NO_MATCHING_FLAVOR)
    assert [(b.resource, b.asked) for b in result.blockers] == [("gold", 4), ("zinc", 2)]


def test_pods_are_counted_only_where_the_queue_counts_them() -> None:
    """The count is the request for `pods`, whatever the template says."""
    head = make_head(make_pod_set(pods=3, cpu=1))
    counting = make_world({"f": 9}, groups=[ResourceGroup((CPU, "pods"), ("f",))])
    counting.nodes["team"].subtree[FlavorResource("f", "pods")] = 2
    (blocker,) = assign(head, counting).blockers

    assert assign(head, make_world({"f": 9})).mode is Mode.FIT
    assert (blocker.resource, blocker.asked, blocker.free) == ("pods", 3, 2)


def test_a_pod_set_that_asks_for_nothing_gets_what_its_group_gets() -> None:
    """So that it has a place; where there are none to be had, or alone, it has no flavor and is no obstacle."""
    rack = TopologyRequest(required="rack")
    placed = make_head(make_pod_set("a", cpu=1, group="g", topology=rack), make_pod_set("b", group="g", topology=rack))
    grouped = make_head(make_pod_set("a", cpu=1, group="g"), make_pod_set("b", group="g"))
    alone = make_head(make_pod_set("a"), make_pod_set("b", cpu=1))

    result = assign(placed, make_world({"placed": 9}, flavors=[PLACED]))
    assert chosen(result) == {"a": {CPU: "placed"}, "b": {CPU: "placed"}}
    assert dict(result.pod_sets[1].usage) == {CPU: 0}
    assert chosen(assign(grouped, make_world({"f": 9}))) == {"a": {CPU: "f"}, "b": {}}
    assert chosen(assign(alone, make_world({"f": 9}))) == {"a": {}, "b": {CPU: "f"}}
    assert assign(alone, make_world({"f": 9})).mode is Mode.FIT


# --- order and memory ------------------------------------------------------------------------------------------------

LENT = {"free": {"f": 3, "g": 1}, "others": {"f": 0, "g": 9}, "taken": {"f": 1}}
"""Three cpu: f would do without borrowing if the other queue gave one back; g has it now, borrowed."""


@pytest.mark.parametrize(
    ("settings", "world", "flavor", "mode", "more"),
    [
        pytest.param({}, {"free": {"f": 9, "g": 9}}, "f", Mode.FIT, True, id="the-first-that-fits"),
        pytest.param({}, {"free": {"f": 2, "g": 9}}, "g", Mode.FIT, False, id="the-next-when-the-first-cannot"),
        pytest.param({}, {"free": {"f": 1, "g": 9}, "others": {"f": 9}}, "f", Mode.FIT, True, id="borrowing-stops"),
        pytest.param(
            {"borrow_before_next_flavor": False},
            {"free": {"f": 1, "g": 9}, "others": {"f": 9}},
            "g",
            Mode.FIT,
            False,
            id="rather-the-next-flavor-than-borrow",
        ),
        pytest.param(
            {"borrow_before_next_flavor": False},
            {"free": {"f": 1, "g": 1}, "others": {"f": 9, "g": 9}},
            "f",
            Mode.FIT,
            False,
            id="of-two-that-borrow-alike-the-first",
        ),
        pytest.param({}, LENT, "g", Mode.FIT, False, id="rather-borrow-than-wait"),
        pytest.param(
            {"borrow_before_next_flavor": False, "prefers_preemption": True},
            LENT,
            "g",
            Mode.FIT,
            False,
            id="waiting-without-anyone-to-preempt-is-never-preferred",
        ),
        pytest.param(
            {},
            {"free": {"f": 3, "g": 3}, "used": {"f": 1, "g": 1}},
            "f",
            Mode.NO_CANDIDATES,
            False,
            id="of-two-that-are-full-the-first",
        ),
        pytest.param(
            {"borrow_preempts": True},
            {"free": {"f": 1, "g": 3}, "others": {"f": 2, "g": 0}, "taken": {"f": 1, "g": 1}},
            "g",
            Mode.NO_CANDIDATES,
            False,
            id="of-two-that-are-full-the-one-that-borrows-less",
        ),
    ],
)
def test_flavors_are_tried_in_order(
    settings: dict[str, Any], world: dict[str, Any], flavor: str, mode: Mode, more: bool
) -> None:
    """The first that stops the search is taken, else the best; what was not reached may be tried next time."""
    result = assign(make_head(make_pod_set(cpu=3)), make_world(**world, **settings))

    assert (chosen(result)["main"][CPU], result.mode) == (flavor, mode)
    assert result.has_more_flavors is more


def test_a_flavor_that_fits_says_nothing_about_those_before_it() -> None:
    """Why other flavors did not do matters only to who waits."""
    result = assign(make_head(make_pod_set(cpu=3)), make_world({"f": 2, "g": 9}))

    assert (result.mode, result.blockers) == (Mode.FIT, ())


def test_all_flavors_that_were_tried_are_named() -> None:
    """The mildest reason stands: one flavor could do it some day."""
    flavors = [TAINTED, Flavor(name="g"), Flavor(name="h")]
    result = assign(make_head(make_pod_set(cpu=3)), make_world({"f": 9, "g": 2, "h": 1}, flavors=flavors))

    assert result.reason is WaitReason.EXCEEDS_MAX_QUOTA
    assert [(b.flavor, b.kind) for b in result.blockers] == [
        ("f", BlockerKind.FLAVOR_TAINT),
        ("g", BlockerKind.EXCEEDS_MAX_QUOTA),
        ("h", BlockerKind.EXCEEDS_MAX_QUOTA),
    ]


@pytest.mark.parametrize(
    ("remembered", "flavor", "memory"),
    [
        pytest.param({}, "f", 0, id="nothing-remembered"),
        pytest.param({("main", CPU): 0}, "g", 1, id="goes-on-after-the-last"),
        pytest.param({("main", CPU): 1}, "h", -1, id="the-last-one-is-remembered-as-all-seen"),
        pytest.param({("main", CPU): -1}, "f", 0, id="all-were-seen"),
        pytest.param({("other", CPU): 1}, "f", 0, id="of-another-pod-set"),
    ],
)
def test_the_search_goes_on_where_it_ended(remembered: dict[tuple[str, str], int], flavor: str, memory: int) -> None:
    """A workload that was not admitted with one flavor gets to the next, and around to the first."""
    head = make_head(make_pod_set(cpu=3), last_tried=remembered)
    result = assign(head, make_world({"f": 9, "g": 9, "h": 9}))

    assert chosen(result)["main"] == {CPU: flavor}
    assert result.last_tried == {("main", CPU): memory}


def test_a_failed_search_leaves_no_memory() -> None:
    """The next one starts at the first flavor, which this one did not look at."""
    result = assign(make_head(make_pod_set(cpu=3), last_tried={("main", CPU): 0}), make_world({"f": 9, "g": 1}))

    assert result.mode is Mode.NO_FIT
    assert result.last_tried == {}
    assert not result.has_more_flavors
    assert [b.flavor for b in result.blockers] == ["g"]


def test_a_second_look_keeps_to_the_flavors_of_the_first() -> None:
    """Pinned flavors are the only ones considered, wherever the last search ended."""
    head = make_head(make_pod_set(cpu=3), last_tried={("main", CPU): 1})
    world = make_world({"f": 9, "g": 9, "h": 9})
    kept = assign(head, world, pinned={"main": {CPU: "g"}})
    world.nodes["team"].usage[FlavorResource("g", CPU)] = 9
    gone = assign(head, world, pinned={"main": {CPU: "g"}})

    assert chosen(kept) == {"main": {CPU: "g"}}
    assert gone.mode is Mode.NO_CANDIDATES
    assert [b.flavor for b in gone.blockers] == ["g"]


def by_flavor(**modes: Mode) -> Oracle:
    """What preemption would come to, by flavor."""

    def ask(column: FlavorResource, amount: int, level: int) -> tuple[Mode, int]:
        del amount
        return modes[column.flavor], level

    return ask


@pytest.mark.parametrize(
    ("used", "oracle", "flavor", "mode"),
    [
        pytest.param({"f": 4}, by_flavor(f=Mode.PREEMPT), "g", Mode.FIT, id="what fits goes before what must be freed"),
        pytest.param(
            {"f": 4, "g": 4, "h": 4},
            by_flavor(f=Mode.PREEMPT, g=Mode.RECLAIM, h=Mode.RECLAIM),
            "g",
            Mode.RECLAIM,
            id="the best mode is taken, and the first flavor of those",
        ),
        pytest.param(
            {"f": 4, "g": 4, "h": 4},
            by_flavor(f=Mode.NO_CANDIDATES, g=Mode.NO_CANDIDATES, h=Mode.PREEMPT),
            "h",
            Mode.PREEMPT,
            id="the last one, if it is the best",
        ),
        pytest.param({"f": 2}, by_flavor(), "f", Mode.FIT, id="borrowing does not count"),
    ],
)
def test_without_fungibility_the_best_mode_is_taken(
    used: Mapping[str, int], oracle: Oracle, flavor: str, mode: Mode
) -> None:
    """Whatever the queue's policies say, and wherever the last scan ended; who got a flavor is tried again at once."""
    world = make_world(
        {"f": 4, "g": 4, "h": 4},
        others={"f": 9, "g": 9, "h": 9},
        used=used,
        taken={name: 9 for name, held in used.items() if held == 4},
        fungible=False,
        preempt_before_next_flavor=True,
        borrow_before_next_flavor=False,
        prefers_preemption=True,
    )
    result = assign(make_head(make_pod_set(cpu=3), last_tried={("main", CPU): 1}), world, oracle=oracle)

    assert (chosen(result), result.mode) == ({"main": {CPU: flavor}}, mode)
    assert result.has_more_flavors


def test_who_finds_no_flavor_to_try_is_told_which_resources_have_none() -> None:
    """Nobody waits without a word."""
    result = assign(make_head(make_pod_set(cpu=1)), make_world({}, groups=[ResourceGroup((CPU,), ())]))

    assert (result.mode, result.reason) == (Mode.NO_FIT, WaitReason.NO_MATCHING_FLAVOR)
    assert message(result.blockers) == (
        "pod set main: ClusterQueue team lists no flavor for cpu; add one to the resource group"
    )


# --- several resources, several groups, several pod sets -------------------------------------------------------------

MEMORY = "memory"


def two_resources(
    *, flavors: Sequence[str] = ("f", "g"), apart: bool = False, used: Mapping[tuple[str, str], int], **settings: Any
) -> Snapshot:
    """Team has 4 of cpu and 4 of memory in each flavor, in one resource group or one each; its cohort has 4 more."""
    quotas = {FlavorResource(flavor, resource): Quota(4) for flavor in flavors for resource in (CPU, MEMORY)}
    root = QuotaNode("company", is_cohort=True)
    nodes = [QuotaNode(name, quotas=quotas, parent=root) for name in ("team", "other")]
    root.children = nodes
    quota.rebuild(root)
    for (flavor, resource), amount in used.items():
        quota.add_usage(nodes[0], FlavorResource(flavor, resource), amount)
    kinds = [(CPU,), (MEMORY,)] if apart else [(CPU, MEMORY)]
    groups = tuple(ResourceGroup(resources, tuple(flavors)) for resources in kinds)
    return Snapshot(
        queues={"team": QueueSpec(name="team", groups=groups, **settings)},
        nodes={node.name: node for node in nodes},
        flavors={name: Flavor(name=name) for name in flavors},
        topologies={},
    )


def gives_back(column: FlavorResource, amount: int, level: int) -> tuple[Mode, int]:
    """Somebody of the own queue can always be preempted, and then nothing is borrowed."""
    del column, amount, level
    return Mode.PREEMPT, 0


@pytest.mark.parametrize(
    ("settings", "more"),
    [
        pytest.param(
            {"preempt_before_next_flavor": True, "borrow_before_next_flavor": False},
            True,
            id="preempting for one resource is worse than borrowing for the other, and may stop the search",
        ),
        pytest.param(
            {
                "preempt_before_next_flavor": True,
                "borrow_before_next_flavor": False,
                "prefers_preemption": True,
            },
            False,
            id="where preempting is preferred borrowing is worse, and may not",
        ),
        pytest.param({"preempt_before_next_flavor": False}, False, id="preempting is worse, and may not stop it"),
        pytest.param(
            {"preempt_before_next_flavor": False, "prefers_preemption": True},
            True,
            id="where preempting is preferred borrowing is worse, and may stop it",
        ),
    ],
)
def test_a_flavor_is_judged_by_the_resource_that_it_serves_worst(settings: dict[str, Any], more: bool) -> None:
    """Of f, cpu has to be taken back and memory borrowed: which of the two counts depends on what is preferred."""
    full = {("f", CPU): 8, ("f", MEMORY): 3, ("g", CPU): 8, ("g", MEMORY): 3}
    world = two_resources(used=full, **settings)
    result = assign(make_head(make_pod_set(cpu=2, memory=2)), world, oracle=gives_back)

    assert chosen(result) == {"main": {CPU: "f", MEMORY: "f"}}
    assert result.has_more_flavors is more
    assert (result.mode, result.level) == (Mode.PREEMPT, 1)
    assert result.lacking == {FlavorResource("f", CPU)}


def test_who_waits_hears_of_all_flavors_of_the_resources_that_it_waits_for() -> None:
    """Memory was had in the second flavor: why not in the first does not matter.  Cpu has to be waited for."""
    full = {("f", CPU): 8, ("g", CPU): 8, ("f", MEMORY): 8}
    result = assign(make_head(make_pod_set(cpu=2, memory=2)), two_resources(apart=True, used=full))

    assert result.mode is Mode.NO_CANDIDATES
    assert chosen(result)["main"] == {CPU: "f", MEMORY: "g"}
    assert [(b.flavor, b.resource) for b in result.blockers] == [("f", CPU), ("g", CPU)]


def test_who_fails_hears_of_the_resources_that_it_failed_for_and_no_others() -> None:
    """Cpu would have to be waited for, memory is more than there ever is: only that is told, and decides the reason."""
    full = {("f", CPU): 8, ("g", CPU): 8}
    result = assign(make_head(make_pod_set(cpu=2, memory=9)), two_resources(apart=True, used=full))

    assert (result.mode, result.reason) == (Mode.NO_FIT, WaitReason.EXCEEDS_MAX_QUOTA)
    assert [(b.flavor, b.resource) for b in result.blockers] == [("f", MEMORY), ("g", MEMORY)]
    assert chosen(result) == {}


def test_pod_sets_that_share_a_column_ask_for_the_sum() -> None:
    """The second one needs what the first one takes besides, and preemption is asked for both."""
    asked: list[tuple[FlavorResource, int]] = []

    def listens(column: FlavorResource, amount: int, level: int) -> tuple[Mode, int]:
        asked.append((column, amount))
        return Mode.RECLAIM, level

    head = make_head(make_pod_set("a", cpu=3), make_pod_set("b", cpu=2))
    result = assign(head, make_world({"f": 5}, used={"f": 1}), oracle=listens)

    assert asked == [(FlavorResource("f", CPU), 5)]
    assert result.mode is Mode.RECLAIM
    assert [(b.pod_set, b.asked, b.free) for b in result.blockers] == [("b", 5, 4)]
    assert result.usage == {FlavorResource("f", CPU): 5}


@pytest.mark.parametrize(
    ("fair", "reclaims", "asks"),
    [
        pytest.param(False, Preempts.ANY, False, id="by quota nobody is asked to give back what would be borrowed"),
        pytest.param(True, Preempts.ANY, True, id="by shares they are"),
        pytest.param(True, Preempts.NEVER, False, id="unless nothing is reclaimed at all"),
    ],
)
def test_preemption_is_considered_where_the_queue_may_take_something_back(
    fair: bool, reclaims: Preempts, asks: bool
) -> None:
    """More than nominal is asked for, and the cohort has none left."""
    world = make_world({"f": 2}, others={"f": 4}, taken={"f": 4}, reclaims=reclaims)
    result = assign(make_head(make_pod_set(cpu=3)), world, oracle=gives_back, fair=fair)

    assert result.mode is (Mode.PREEMPT if asks else Mode.NO_FIT)


def test_resources_that_a_queue_ignores_are_not_counted_and_not_in_the_way() -> None:
    """A pod set that asks for nothing else has no flavor, and those after it are served all the same."""
    head = make_head(make_pod_set("a", zinc=1), make_pod_set("b", cpu=1, zinc=2))
    result = assign(head, make_world({"f": 9}, ignores_undeclared=True))

    assert (result.mode, chosen(result)) == (Mode.FIT, {"a": {}, "b": {CPU: "f"}})
    assert result.usage == {FlavorResource("f", CPU): 1}


@pytest.mark.parametrize(
    ("remembered", "flavor"),
    [
        pytest.param({("a", CPU): 0, ("b", CPU): 1}, "g", id="the first pod set's memory counts"),
        pytest.param({("b", CPU): 1}, "h", id="the next one's where the first has none"),
    ],
)
def test_a_group_goes_on_where_it_ended(remembered: dict[tuple[str, str], int], flavor: str) -> None:
    """Its pod sets get one flavor, so there is one place to go on from."""
    head = make_head(make_pod_set("a", cpu=1, group="g"), make_pod_set("b", cpu=1, group="g"), last_tried=remembered)
    result = assign(head, make_world({"f": 9, "g": 9, "h": 9}))

    assert chosen(result) == {"a": {CPU: flavor}, "b": {CPU: flavor}}


def test_flavors_passed_over_for_a_pinned_one_count_as_seen() -> None:
    """Where the search ends is remembered as if all had been tried."""
    world = make_world({"f": 9, "g": 1, "h": 9}, others={"g": 9}, borrow_before_next_flavor=False)
    result = assign(make_head(make_pod_set(cpu=3)), world, pinned={"main": {CPU: "g"}})

    assert chosen(result) == {"main": {CPU: "g"}}
    assert result.last_tried == {("main", CPU): -1}
