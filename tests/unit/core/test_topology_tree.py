"""The tree of domains: order, runs of leaves, membership, edits."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kqueue.core.topology import HOSTNAME, Leaf, NodeFacts, NodeRules, Taint, Tree, membership
from kqueue.core.topology.tree import make_leaf
from tests.unit.core.topology_cases import BLOCK, LEVELS, RACK, make_node, make_tree


def test_leaves_are_ordered_by_their_full_path() -> None:
    """Block before rack before host, bytewise; every domain is one run of leaves."""
    nodes = [
        make_node("h1", 1, block="b2", rack="r1"),
        make_node("h2", 1, block="b10", rack="r2"),
        make_node("h3", 1, block="b10", rack="r1"),
        make_node("H4", 1, block="b10", rack="r1"),
    ]
    tree = make_tree(nodes)
    assert [path[-1] for path in tree.paths] == ["H4", "h3", "h2", "h1"]
    assert [starts.tolist() for starts in tree.first_leaf] == [[0, 3], [0, 2, 3], [0, 1, 2, 3]]
    assert [starts.tolist() for starts in tree.first_child] == [[0, 2], [0, 2, 3]]
    assert [tree.domain_of(level).tolist() for level in range(3)] == [[0, 0, 0, 1], [0, 0, 1, 2], [0, 1, 2, 3]]
    assert tree.path_of(1, 2) == ("b2", "r1")
    assert tree.leaves_of(0, 0) == slice(0, 3)


def test_a_leaf_is_found_by_the_name_that_assignments_write() -> None:
    """By host name alone in a hostname topology, else by the full path; early and after many questions."""
    nodes = [make_node(f"h{i:03}", 1, rack=f"r{i % 7}") for i in range(100)]
    by_host, by_rack = make_tree(nodes), make_tree(nodes, LEVELS[:2])
    for _ in range(3):
        for i in range(100):
            leaf = by_host.leaf_of((f"h{i:03}",))
            assert leaf is not None
            assert by_host.paths[leaf] == ("b1", f"r{i % 7}", f"h{i:03}")
        assert by_host.leaf_of(("gone",)) is None
        assert by_rack.leaf_of(("b1", "r3")) == 3
        assert by_rack.leaf_of(("b1", "r9")) is None
        assert by_rack.leaf_of(("r3",)) is None


def test_nodes_are_left_out_for_the_first_reason_that_applies() -> None:
    """Readiness, then scheduling, then flavor labels, then level labels; an empty level value is a value."""
    nodes = [
        make_node("ok", 1, labels={"pool": "a"}),
        make_node("blank", 1, rack="", labels={"pool": "a"}),
        make_node("down", 1, ready=False, unschedulable=True),
        make_node("cordoned", 1, unschedulable=True),
        make_node("other", 1, labels={"pool": "b"}),
    ]
    nodes.append(NodeFacts(name="bare", labels={"pool": "a", BLOCK: "b1"}, allocatable={}))
    found = membership(nodes, levels=LEVELS, node_labels={"pool": "a"})
    assert sorted(leaf.path[-1] for leaf in found.leaves) == ["blank", "ok"]
    assert found.ignored == {"notReady": 1, "unschedulable": 1, "flavorLabels": 1, "missingLevel": 1}
    assert found.missing_levels == {"bare": (RACK, HOSTNAME)}


hosts = st.integers(0, 25)
RULES = (NodeRules(), NodeRules(selector=(("disk", "ssd"),)))


@settings(max_examples=200, deadline=None)
@given(before=st.sets(hosts), after=st.sets(hosts), moved=st.sets(hosts), levels=st.integers(1, 3), ask=st.booleans())
def test_an_edited_tree_equals_one_made_anew(
    before: set[int], after: set[int], moved: set[int], levels: int, ask: bool
) -> None:
    """Leaves may go, come, change in place and move; every table and every filter follows."""

    def leaves(names: set[int], change: set[int]) -> dict[int, Leaf]:
        return {
            i: make_leaf(
                [
                    make_node(
                        f"h{i:02}",
                        1,
                        block=f"b{(i + (i in change)) // 9}",
                        rack=f"r{i // 3 % 4}",
                        labels={"disk": "ssd" if (i in change) ^ (i % 2 == 0) else "hdd"},
                        taints=(Taint("burning"),) if i in change else (),
                    )
                ],
                LEVELS[-levels:],
                merge_duplicate_hostnames=False,
            )
            for i in names
        }

    old, new = leaves(before, set()), leaves(after, moved)
    tree = Tree(topology="t", levels=LEVELS[-levels:], leaves=old.values())
    if ask:
        assert all(tree.leaf_of((f"h{i:02}",)) is not None for i in before)
        assert [tree.eligible(rules) for rules in RULES]
    changed = {i for i in before | after if old.get(i) != new.get(i)}
    edited, _ = tree.edited(
        [leaf for leaf in (tree.leaf_of((f"h{i:02}",)) for i in changed) if leaf is not None],
        [new[i] for i in changed & after],
    )
    fresh = Tree(topology="t", levels=LEVELS[-levels:], leaves=new.values())
    assert edited.leaves == fresh.leaves
    assert edited.paths == fresh.paths
    assert [a.tolist() for a in edited.first_leaf] == [a.tolist() for a in fresh.first_leaf]
    assert [a.tolist() for a in edited.first_child] == [a.tolist() for a in fresh.first_child]
    assert [edited.leaf_of((f"h{i:02}",)) for i in range(26)] == [fresh.leaf_of((f"h{i:02}",)) for i in range(26)]
    for rules in RULES:
        mine, theirs = edited.eligible(rules), fresh.eligible(rules)
        assert mine.excluded == theirs.excluded
        assert (mine.mask is None) == (theirs.mask is None)
        if mine.mask is not None and theirs.mask is not None:
            assert mine.mask.tolist() == theirs.mask.tolist()
