"""Which nodes accept a pod."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kqueue.core.topology import Capacity, NodeFacts, NodeRules, NodeTerm, Requirement, Taint, Toleration, WeightedTerm
from kqueue.core.topology.counting import pods_per_domain
from kqueue.core.topology.matching import NodeFilter, matches_labels, rules_problem
from kqueue.kube.taints import tolerates, untolerated_taint
from tests.unit.core.topology_cases import BLOCK, RACK, make_node, make_pod_set, make_tree

BURNING = Taint("fire", "hot", "NoSchedule")


def term_matches(term: NodeTerm, node: NodeFacts) -> bool:
    return NodeFilter.of(lambda: [node]).check(NodeRules(required=(term,)), ()).mask is None


@pytest.mark.parametrize(
    ("toleration", "taint", "want"),
    [
        pytest.param(Toleration("fire", "Equal", "hot", "NoSchedule"), BURNING, True, id="everything-equal"),
        pytest.param(Toleration("fire", "", "hot"), BURNING, True, id="no-operator-means-equal-no-effect-means-every"),
        pytest.param(Toleration("fire", "Equal", "cold"), BURNING, False, id="another-value"),
        pytest.param(Toleration("fire", "Exists", "ignored"), BURNING, True, id="exists-ignores-the-value"),
        pytest.param(Toleration("", "Exists"), BURNING, True, id="exists-without-key-tolerates-all"),
        pytest.param(Toleration("", "Equal", "hot"), BURNING, False, id="equal-without-key-tolerates-nothing"),
        pytest.param(Toleration("fire", "Exists", "", "NoExecute"), BURNING, False, id="another-effect"),
        pytest.param(Toleration("fire", "Gt", "5"), Taint("fire", "7"), True, id="taint-value-above"),
        pytest.param(Toleration("fire", "Gt", "7"), Taint("fire", "7"), False, id="taint-value-not-above"),
        pytest.param(Toleration("fire", "Lt", "9"), Taint("fire", "7"), True, id="taint-value-below"),
        pytest.param(Toleration("fire", "Lt", "many"), Taint("fire", "7"), False, id="comparing-needs-integers"),
        pytest.param(Toleration("fire", "Almost", "hot"), BURNING, False, id="unknown-operator"),
    ],
)
def test_a_toleration_covers_a_taint(toleration: Toleration, taint: Taint, want: bool) -> None:
    """Key, value and effect as Kubernetes matches them."""
    assert tolerates(toleration, taint) is want


def test_the_first_repelling_taint_is_named_and_soft_ones_are_not() -> None:
    """PreferNoSchedule keeps nobody away."""
    soft, drain = Taint("a", effect="PreferNoSchedule"), Taint("b", effect="NoExecute")
    assert untolerated_taint([soft, drain, BURNING], []) == drain
    assert untolerated_taint([soft, drain, BURNING], [Toleration("b", "Exists")]) == BURNING
    assert untolerated_taint([soft], []) is None


@pytest.mark.parametrize(
    ("requirement", "want"),
    [
        pytest.param(Requirement("disk", "In", ("ssd", "nvme")), True, id="in"),
        pytest.param(Requirement("disk", "In", ("hdd",)), False, id="in-others"),
        pytest.param(Requirement("none", "In", ("x",)), False, id="in-needs-the-label"),
        pytest.param(Requirement("disk", "NotIn", ("hdd",)), True, id="not-in"),
        pytest.param(Requirement("none", "NotIn", ("x",)), True, id="not-in-holds-without-the-label"),
        pytest.param(Requirement("disk", "Exists"), True, id="exists"),
        pytest.param(Requirement("none", "DoesNotExist"), True, id="does-not-exist"),
        pytest.param(Requirement("slots", "Gt", ("3",)), True, id="greater"),
        pytest.param(Requirement("slots", "Lt", ("4",)), False, id="not-less"),
        pytest.param(Requirement("disk", "Gt", ("3",)), False, id="comparing-needs-an-integer-label"),
    ],
)
def test_an_expression_holds_on_a_node(requirement: Requirement, want: bool) -> None:
    """Node affinity operators on labels disk=ssd and slots=4."""
    node = make_node("a", 1, labels={"disk": "ssd", "slots": "4"})
    assert term_matches(NodeTerm(expressions=(requirement,)), node) is want


def test_terms_are_all_of_their_parts_and_empty_ones_match_nothing() -> None:
    """Fields know the node's name; an empty term is no wildcard."""
    node = make_node("a", 1)
    named = Requirement("metadata.name", "In", ("node-a",))
    assert term_matches(NodeTerm(fields=(named,)), node)
    assert not term_matches(NodeTerm(expressions=(Requirement("none", "Exists"),), fields=(named,)), node)
    assert not term_matches(NodeTerm(), node)


def test_the_first_cause_counts_taint_before_selector_before_affinity() -> None:
    """Every excluded leaf is counted once."""
    nodes = [
        make_node("a", 1, taints=(BURNING,)),
        make_node("b", 1, labels={"disk": "hdd"}, taints=(Taint("soft", effect="PreferNoSchedule"),)),
        make_node("c", 1, labels={"disk": "ssd"}),
        make_node("d", 1, labels={"disk": "ssd", "zone": "z"}),
    ]
    in_zone = NodeTerm(expressions=(Requirement("zone", "Exists"),))
    found = make_tree(nodes).eligible(NodeRules(selector=(("disk", "ssd"),), required=(in_zone,)))
    assert found.mask is not None
    assert found.mask.tolist() == [False, False, False, True]
    assert dict(found.excluded.taints) == {"fire=hot:NoSchedule": 1}
    assert (found.excluded.node_selector, found.excluded.affinity) == (1, 1)


def test_tolerations_of_the_flavor_are_added() -> None:
    """A flavor can open its tainted nodes to every pod."""
    nodes = [make_node("a", 1, taints=(BURNING,))]
    assert make_tree(nodes).eligible(NodeRules()).mask is not None
    assert make_tree(nodes, tolerations=[Toleration("fire", "Exists")]).eligible(NodeRules()).mask is None


def test_no_required_terms_and_an_empty_list_of_them_differ() -> None:
    """None asks nothing, an empty list matches nothing."""
    tree = make_tree([make_node("a", 1)])
    assert tree.eligible(NodeRules(required=None)).mask is None
    assert tree.eligible(NodeRules(required=())).excluded.affinity == 1


@pytest.mark.parametrize(
    ("requirement", "problem"),
    [
        pytest.param(Requirement("disk", "Near", ("x",)), "unknown operator", id="unknown-operator"),
        pytest.param(Requirement("disk", "Exists", ("x",)), "takes no values", id="exists-with-values"),
        pytest.param(Requirement("disk", "Gt", ("x",)), "exactly one integer", id="comparing-with-a-word"),
        pytest.param(Requirement("disk", "Lt", ("1", "2")), "exactly one integer", id="comparing-with-two"),
        pytest.param(Requirement("-disk", "Exists"), "not a valid label key", id="bad-key"),
        pytest.param(Requirement("Ex.com/disk", "Exists"), "not a valid label key", id="bad-prefix"),
        pytest.param(Requirement("disk", "In", ("a b",)), "not a valid label value", id="bad-value"),
    ],
)
def test_an_unusable_expression_is_explained(requirement: Requirement, problem: str) -> None:
    """What is wrong, in words, with the key."""
    rules = NodeRules(required=(NodeTerm(expressions=(requirement,)),))
    found = rules_problem(rules, is_hostname=True, preferred=False)
    assert found is not None
    assert problem in found[1]


def test_a_field_takes_in_or_not_in_with_one_value() -> None:
    """Fields are narrower than labels."""
    for requirement in (
        Requirement("metadata.name", "Exists"),
        Requirement("metadata.name", "In", ("a", "b")),
    ):
        rules = NodeRules(required=(NodeTerm(fields=(requirement,)),))
        assert rules_problem(rules, is_hostname=True, preferred=False) is not None


def test_selectors_do_not_matter_where_leaves_are_no_hosts() -> None:
    """A bad selector is a failure only in a hostname topology."""
    rules = NodeRules(selector=(("bad key", "x"),))
    assert rules_problem(rules, is_hostname=True, preferred=False) is not None
    assert rules_problem(rules, is_hostname=False, preferred=False) is None


@pytest.mark.parametrize(
    ("rules", "want"),
    [
        pytest.param(NodeRules(), True, id="no-demands"),
        pytest.param(NodeRules(selector=(("pool", "a"),)), True, id="same-pool"),
        pytest.param(NodeRules(selector=(("pool", "b"),)), False, id="another-pool"),
        pytest.param(NodeRules(selector=(("disk", "ssd"),)), True, id="demands-on-other-keys-stay-open"),
        pytest.param(
            NodeRules(required=(NodeTerm(expressions=(Requirement("pool", "In", ("b",)),)),)), False, id="affinity-to-b"
        ),
        pytest.param(
            NodeRules(required=(NodeTerm(expressions=(Requirement("disk", "Exists"),)),)), True, id="affinity-elsewhere"
        ),
    ],
)
def test_a_flavor_is_judged_by_its_own_labels_only(rules: NodeRules, want: bool) -> None:
    """The labels of flavor pool=a against a pod's rules."""
    assert matches_labels(rules, {"pool": "a"}, only_keys=frozenset({"pool"})) is want


# --- hosts to be avoided ---------------------------------------------------------------------------------------------


def test_avoided_hosts_hold_nothing_for_those_who_avoid_them_and_all_for_the_others() -> None:
    """Counts of equal pods are not shared between them, whoever asks first, and unknown hosts do not matter."""
    capacity = Capacity.of(make_tree([make_node("a", 4), make_node("b", 2, taints=(BURNING,)), make_node("c", 1)]))
    free = make_pod_set(1)
    shy = replace(free, rules=free.rules.avoiding({"gone", "c", "a"}))
    bold = replace(free, rules=replace(free.rules, tolerations=(Toleration("fire", "Exists"),)))
    shy_and_bold = replace(bold, rules=bold.rules.avoiding({"c"}))

    for _ in range(2):
        assert pods_per_domain(capacity, free.shape)[-1].tolist() == [4, 0, 1]
        assert pods_per_domain(capacity, shy.shape)[-1].tolist() == [0, 0, 0]
        assert pods_per_domain(capacity, shy_and_bold.shape)[-1].tolist() == [4, 2, 0]
        assert pods_per_domain(capacity, bold.shape)[-1].tolist() == [4, 2, 1]
        capacity.add(2, {"cpu": 0})  # the counts are repaired


def test_a_liked_host_that_is_avoided_counts_for_nothing() -> None:
    """Preferred affinity sums up per domain; the avoided host must not pull pods into its rack."""
    tree = make_tree([make_node("a", 1, labels={"disk": "ssd"}), make_node("b", 1, labels={"disk": "ssd"})])
    liked = WeightedTerm(5, NodeTerm(expressions=(Requirement("disk", "In", ("ssd",)),)))
    rules = NodeRules(preferred=(liked,))

    for asked, scores in ((rules.avoiding({"a"}), [0, 5]), (rules, [5, 5])):
        affinity = tree.eligible(asked).affinity
        assert affinity is not None
        assert affinity.tolist() == scores


def test_where_leaves_are_no_hosts_nothing_is_avoided() -> None:
    """A rack may have the name of a host."""
    tree = make_tree([make_node("a", 1, rack="r1")], levels=(BLOCK, RACK))

    assert tree.eligible(NodeRules().avoiding({"a", "r1"})).mask is None
