"""Node classes: which flavors a class request leaves, their order, and the sentences of a refusal."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from kqueue.core.cycle import plan
from kqueue.core.decision import Admit, Wait
from kqueue.core.demand import Demands
from kqueue.core.explain import BlockerKind, WaitReason, brief, message
from kqueue.core.flavors import Assignment, Mode, assign
from kqueue.core.node_classes import NO_CLASS_REQUEST, ClassRequest, NodeClass, joined_types, parse_card_types
from kqueue.core.quota import FlavorResource, rebuild
from kqueue.core.topology import NodeRules, NodeTerm, PodSetRequest, Requirement, TopologyRequest
from kqueue.core.why import OtherCardType, condition_for
from kqueue.core.why.changes import facts
from kqueue.core.workload import Flavor, Head, PodSet, QueueSpec, ResourceGroup, Snapshot
from tests.builders import START, make_snapshot
from tests.unit.core.why_cases import RULES, explain, make_world, what_ifs

CPU, CARD = "cpu", "card"


def card_flavor(name: str, *, scarce: bool = False, private: str = "", typed: bool = True) -> Flavor:
    """A flavor whose card type is its name, unless `typed` is False."""
    node_class = NodeClass(card_type=name if typed else "", scarce=scarce, private_group=private)
    return Flavor(name=name, node_labels={"card": name}, node_class=node_class)


A100, V100, H100 = card_flavor("a100"), card_flavor("v100"), card_flavor("h100", scarce=True)
PLAIN, LAB = card_flavor("plain", typed=False), card_flavor("lab", private="lab", typed=False)


def request(required: str = "", preferred: str = "", private: str = "", *, inherited: bool = False) -> ClassRequest:
    """A request with lists as they stand in annotations."""
    types = [parse_card_types(text) or () if text else () for text in (required, preferred)]
    return ClassRequest(required=types[0], preferred=types[1], private=private, inherited=inherited)


def pod_set(
    node_class: ClassRequest = NO_CLASS_REQUEST,
    *,
    name: str = "main",
    rules: NodeRules | None = None,
    group: str | None = None,
    requests: Mapping[str, int] | None = None,
) -> PodSet:
    """One pod that requests a card, unless `requests` says something else."""
    amounts = dict(requests or {CARD: 1})
    asked = PodSetRequest(
        name=name, count=1, requests=amounts, topology=TopologyRequest(), group=group, rules=rules or NodeRules()
    )
    return PodSet(request=asked, quota_requests=amounts, node_class=node_class)


def head_of(*pod_sets: PodSet, last_tried: Mapping[tuple[str, str], int] | None = None) -> Head:
    return Head(
        key="ns/w", uid="w", queue="team", priority=0, timestamp=START, pod_sets=pod_sets, last_tried=last_tried or {}
    )


def world(*flavors: Flavor, free: Mapping[str, int] | None = None) -> Snapshot:
    """ClusterQueue `team` with ten cards of each flavor, unless `free` says something else."""
    quotas = {flavor.name: 10 for flavor in flavors} | dict(free or {})
    spec = QueueSpec(name="team", groups=(ResourceGroup((CARD,), tuple(f.name for f in flavors)),))
    return make_snapshot({"team": quotas}, specs=[spec], flavors=flavors, topologies={}, resource=CARD)


def two_groups() -> Snapshot:
    """Cpu of flavor `plain`, and cards of a100 and of the private group lab."""
    groups = (ResourceGroup((CPU,), ("plain",)), ResourceGroup((CARD,), ("a100", "lab")))
    flavors = (PLAIN, A100, LAB)
    snapshot = make_snapshot(
        {"team": {f.name: 10 for f in flavors}},
        specs=[QueueSpec(name="team", groups=groups)],
        flavors=flavors,
        topologies={},
        resource=CARD,
    )
    node = snapshot.nodes["team"]
    node.quotas = {**node.quotas, **{FlavorResource(c.flavor, CPU): q for c, q in node.quotas.items()}}
    rebuild(node)
    return snapshot


def taken(found: Assignment, resource: str = CARD) -> list[str]:
    """The flavor of each pod set."""
    return [p.flavors[resource] for p in found.pod_sets if resource in p.flavors]


# --- one flavor ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flavor", "asked", "problem"),
    [
        pytest.param(A100, request("a100"), "", id="G4.9-the-type"),
        pytest.param(A100, request("v100,a100"), "", id="G4.4-one-of-several"),
        pytest.param(A100, request("v100"), "flavor a100 has card type a100, wanted is v100", id="G4.9-another-type"),
        pytest.param(
            A100, request("v100,h100"), "flavor a100 has card type a100, wanted is v100 or h100", id="G4.9-two-wanted"
        ),
        pytest.param(PLAIN, request("v100"), "flavor plain has no card type, wanted is v100", id="G4.9-no-type"),
        pytest.param(A100, NO_CLASS_REQUEST, "", id="G4.14-no-request"),
        pytest.param(A100, request(preferred="v100"), "", id="G4.5-falls-back"),
        pytest.param(
            H100, NO_CLASS_REQUEST, "flavor h100 is kept for pods that name card type h100", id="G4.11-scarce"
        ),
        pytest.param(
            H100,
            request(preferred="v100"),
            "flavor h100 is kept for pods that name card type h100",
            id="G4.5-no-fallback-to-scarce",
        ),
        pytest.param(H100, request("h100"), "", id="G4.11-scarce-required"),
        pytest.param(H100, request(preferred="h100"), "", id="G4.11-scarce-preferred"),
        pytest.param(LAB, NO_CLASS_REQUEST, "flavor lab is private to group lab", id="G4.12-private"),
        pytest.param(LAB, request(private="lab"), "", id="G4.12-of-the-group"),
        pytest.param(
            PLAIN, request(private="lab"), "flavor plain is not of private group lab", id="G4.12-only-of-the-group"
        ),
    ],
)
@pytest.mark.mechanism("3.38")
def test_the_class_of_a_flavor_keeps_pods_out(flavor: Flavor, asked: ClassRequest, problem: str) -> None:
    """The queue has flavors of every class; only the one in question has quota."""
    all_of_them = (A100, V100, H100, PLAIN, LAB)
    snapshot = world(*all_of_them, free={f.name: 0 for f in all_of_them if f is not flavor})
    found = assign(head_of(pod_set(asked)), snapshot)

    assert (found.mode is Mode.FIT) == (not problem)
    own = [b for b in found.blockers if b.flavor == flavor.name]
    assert message(own) == (f"pod set main: {problem}" if problem else "")
    assert {b.kind for b in own} == ({BlockerKind.FLAVOR_CLASS} if problem else set())


@pytest.mark.parametrize(
    ("rules", "open_"),
    [
        (NodeRules(selector=(("card", "h100"),)), True),
        (NodeRules(selector=(("zone", "z"),)), False),
        (NodeRules(required=(NodeTerm((Requirement("card", "In", ("v100", "h100")),)),)), True),
        (NodeRules(required=(NodeTerm((Requirement("card", "Exists"),)),)), False),
        (NodeRules(required=(NodeTerm((Requirement("card", "NotIn", ("v100",)),)),)), False),
    ],
    ids=["selector", "another-label", "affinity", "exists", "not-in"],
)
def test_a_selector_of_the_flavors_label_opens_a_scarce_flavor_g4_11(rules: NodeRules, open_: bool) -> None:
    found = assign(head_of(pod_set(rules=rules)), world(H100))

    assert (found.mode is Mode.FIT) is open_


# --- the whole queue -------------------------------------------------------------------------------------------------


@pytest.mark.mechanism("3.37")
@pytest.mark.parametrize(
    ("flavors", "asked", "sentence"),
    [
        pytest.param(
            (A100, V100, PLAIN),
            request("h100"),
            "ClusterQueue team has no flavor of card type h100; it has a100, v100",
            id="G4.9-other-types",
        ),
        pytest.param(
            (PLAIN,),
            request("h100,a100"),
            "ClusterQueue team has no flavor of card type h100 or a100; none of its flavors has a card type",
            id="G4.9-no-types",
        ),
        pytest.param(
            (A100, LAB),
            request(private="x"),
            "ClusterQueue team has no machines of private group x",
            id="G4.12-no-group",
        ),
    ],
)
def test_a_queue_without_the_class_has_no_matching_flavor(
    flavors: Sequence[Flavor], asked: ClassRequest, sentence: str
) -> None:
    """The refused tenant reads the reason in QuotaReserved (G4.19)."""
    (decision,) = plan(world(*flavors), [head_of(pod_set(asked))], rules=RULES)

    assert isinstance(decision, Wait)
    assert (decision.reason, message(decision.blockers)) == (WaitReason.NO_MATCHING_FLAVOR, f"pod set main: {sentence}")
    assert brief(decision.blockers) == sentence


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (request("a100"), "names card type a100 and requests none of card, which flavors with card types have"),
        (request(private="lab"), "names private group lab and requests none of card, which flavors of the group have"),
    ],
)
def test_a_class_of_resources_that_are_not_requested_is_a_mistake_g4_9(asked: ClassRequest, sentence: str) -> None:
    (decision,) = plan(two_groups(), [head_of(pod_set(asked, requests={CPU: 1}))], rules=RULES)

    assert isinstance(decision, Wait)
    assert (decision.reason, brief(decision.blockers)) == (WaitReason.MISCONFIGURED, sentence[0].upper() + sentence[1:])


def test_a_class_concerns_only_resource_groups_that_have_it_g4_9() -> None:
    """Cpu comes from the flavor without a type, cards from the wanted type or group."""
    for asked, flavor in ((request("a100"), "a100"), (request(private="lab"), "lab")):
        found = assign(head_of(pod_set(asked, requests={CPU: 1, CARD: 1})), two_groups())
        assert (taken(found, CPU), taken(found, CARD)) == (["plain"], [flavor])


def test_a_request_of_the_whole_workload_leaves_pod_sets_without_cards_alone_g4_7() -> None:
    asked = request("a100", inherited=True)
    driver, worker = pod_set(asked, name="driver", requests={CPU: 1}), pod_set(asked, name="worker")

    assert assign(head_of(driver, worker), two_groups()).mode is Mode.FIT
    assert assign(head_of(driver), two_groups()).reason is WaitReason.MISCONFIGURED


# --- order -----------------------------------------------------------------------------------------------------------


@pytest.mark.mechanism("3.35")
@pytest.mark.parametrize(
    ("asked", "free", "expected"),
    [
        pytest.param(request(preferred="v100"), {}, "v100", id="preferred-before-the-queues-order"),
        pytest.param(request(preferred="h100,v100"), {}, "h100", id="in-order-of-preference"),
        pytest.param(request(preferred="h100,v100"), {"h100": 0}, "v100", id="the-second-choice"),
        pytest.param(request(preferred="v100"), {"v100": 0}, "a100", id="3.35-falls-back"),
        pytest.param(request(preferred="v100"), {"v100": 0, "a100": 0}, None, id="3.36-never-the-scarce-one"),
        pytest.param(request("a100,v100", "v100"), {}, "v100", id="preferred-among-the-required"),
        pytest.param(request("a100"), {"a100": 0}, None, id="3.35-required-waits"),
        pytest.param(NO_CLASS_REQUEST, {"a100": 0, "v100": 0}, None, id="3.36-scarce-is-the-only-free-one"),
    ],
)
def test_preferred_types_come_first_g4_10(asked: ClassRequest, free: Mapping[str, int], expected: str | None) -> None:
    found = assign(head_of(pod_set(asked)), world(A100, V100, H100, free=free))

    assert (taken(found) if found.mode is Mode.FIT else [None]) == [expected]


def test_the_scans_memory_goes_on_in_the_order_of_preference_g4_13() -> None:
    """A first scan ended at position 0, which is v100."""
    snapshot = world(A100, V100, H100)
    preferring = pod_set(request(preferred="v100"))

    first = assign(head_of(preferring), snapshot)
    second = assign(head_of(preferring, last_tried=first.last_tried), snapshot)

    assert (taken(first), dict(first.last_tried)) == (["v100"], {("main", CARD): 0})
    assert taken(second) == ["a100"]


def test_pod_sets_of_one_group_follow_the_first_preference() -> None:
    leader, workers = pod_set(name="leader", group="g"), pod_set(request(preferred="v100"), name="workers", group="g")
    found = assign(head_of(leader, workers), world(A100, V100))

    assert taken(found) == ["v100", "v100"]


def test_a_changed_class_of_another_flavor_counts_in_kept_demands() -> None:
    """Only after v100 has a type, a flavor without one is passed over."""
    demands, head = Demands(), head_of(pod_set(request("v100", inherited=True)))
    untyped = replace(V100, node_class=NodeClass())
    before = world(PLAIN, untyped, A100)
    assert assign(head, before, demands=demands).mode is Mode.NO_FIT
    after = assign(head, world(PLAIN, V100, A100), demands=demands)
    again = assign(head, before, demands=demands)

    assert (taken(after), again.mode) == (["v100"], Mode.NO_FIT)


def test_pod_sets_without_a_request_look_at_no_class_g4_14() -> None:
    """Their demands keep no order and no list of flavors."""
    demands, snapshot, pod_sets = Demands(), world(A100, V100), (pod_set(),)
    assign(head_of(*pod_sets), snapshot, demands=demands)
    [demand] = demands.of(pod_sets, snapshot.queues["team"])

    assert demand.choices[0].order == []


# --- texts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("a100", ("a100",)),
        ("a100, v100", ("a100", "v100")),
        ("a100,a100", ("a100",)),
        ("", None),
        ("a b", None),
        ("a100,", None),
        ("-a", None),
        ("a" * 64, None),
    ],
)
def test_lists_of_card_types_g4_4(text: str, types: tuple[str, ...] | None) -> None:
    assert parse_card_types(text) == types


def test_types_are_joined_as_a_sentence_needs_them() -> None:
    assert [joined_types("a"), joined_types("ab"), joined_types("abc")] == ["a", "a or b", "a, b or c"]


# --- explain ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "free", "expected"),
    [
        (request("a100"), {"a100": 0}, "pod set main named card type v100 instead of a100"),
        (NO_CLASS_REQUEST, {"a100": 0, "v100": 0}, "pod set main named card type h100"),
        (request("x100"), {}, "pod set main named card type a100 instead of x100"),
    ],
)
def test_another_card_type_is_one_of_the_changes_g4_13(
    asked: ClassRequest, free: Mapping[str, int], expected: str
) -> None:
    """The planner has verified that the workload would start."""
    state = make_world(world(A100, V100, H100, free=free))
    found = [w.change for w in what_ifs(head_of(pod_set(asked)), state) if isinstance(w.change, OtherCardType)]

    assert [condition_for(change) for change in found] == [expected]
    assert facts(found[0])["kind"] == "OtherCardType"


def test_explain_has_the_reason_of_every_flavor_g4_13() -> None:
    found, _ = explain(head_of(pod_set(request("v100"))), make_world(world(A100, V100, free={"v100": 0})))
    kinds = {(b.flavor, b.kind) for b in found.blockers("team")}

    assert kinds == {("a100", BlockerKind.FLAVOR_CLASS), ("v100", BlockerKind.EXCEEDS_MAX_QUOTA)}


def test_an_admission_names_the_flavor_of_the_class() -> None:
    (decision,) = plan(world(A100, V100), [head_of(pod_set(request("v100")))], rules=RULES)

    assert isinstance(decision, Admit)
    assert decision.admission.pod_sets[0].flavors == {CARD: "v100"}


# --- random worlds ---------------------------------------------------------------------------------------------------

TYPES, GROUPS = ("a100", "v100", "h100"), ("", "", "lab", "bio")


def random_flavors(chance: random.Random) -> list[Flavor]:
    """Two to six flavors of any class."""

    def flavor(number: int) -> Flavor:
        card_type = chance.choice((*TYPES, ""))
        scarce, group = bool(card_type) and chance.random() < 0.4, chance.choice(GROUPS)
        node_class = NodeClass(card_type=card_type, scarce=scarce, private_group=group)
        return Flavor(name=f"f{number}", node_labels={"pool": f"f{number}"}, node_class=node_class)

    return [flavor(number) for number in range(chance.randint(2, 6))]


def may_have(flavor: Flavor, asked: ClassRequest, flavors: Sequence[Flavor]) -> bool:
    """The rules in other words: every flavor here is of one resource group."""
    node_class, types = flavor.node_class, {f.node_class.card_type for f in flavors} - {""}
    typed = not asked.required or not types or node_class.card_type in asked.required
    named = not node_class.scarce or node_class.card_type in {*asked.required, *asked.preferred}
    return typed and named and node_class.private_group == asked.private


@pytest.mark.mechanism("3.36")
@pytest.mark.parametrize("seed", range(50))
def test_flavors_of_random_worlds_are_of_the_requested_class_3_36(seed: int) -> None:
    """The first flavor with quota that the pod set may have, preferred types first; none, if there is none."""
    chance = random.Random(seed)
    for _ in range(20):
        flavors = random_flavors(chance)
        free = {flavor.name: chance.choice((0, 1)) for flavor in flavors}
        lists = [chance.sample(TYPES, chance.choice((0, 0, 1, 2))) for _ in range(2)]
        asked = ClassRequest(required=tuple(lists[0]), preferred=tuple(lists[1]), private=chance.choice(GROUPS))
        found = assign(head_of(pod_set(asked)), world(*flavors, free=free))

        ranks = {card_type: rank for rank, card_type in enumerate(asked.preferred)}
        eligible = [f for f in flavors if may_have(f, asked, flavors)]
        fitting = [f for f in eligible if free[f.name] and _has_required(asked, flavors)]
        expected = min(fitting, key=lambda f: ranks.get(f.node_class.card_type, 99), default=None)
        chosen = taken(found) if found.mode is Mode.FIT else [None]
        assert chosen == [expected.name if expected is not None else None], (asked, flavors, free)
        if expected is None and not eligible:
            assert found.reason is WaitReason.NO_MATCHING_FLAVOR


def _has_required(asked: ClassRequest, flavors: Sequence[Flavor]) -> bool:
    """Without a flavor of a wanted type, or of the group, nothing is chosen at all."""
    types, groups = {f.node_class.card_type for f in flavors}, {f.node_class.private_group for f in flavors}
    return (not asked.required or not types.isdisjoint(asked.required)) and asked.private in {*groups, ""}
