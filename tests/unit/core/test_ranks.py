"""Which pod goes to which domain."""

from __future__ import annotations

import pytest

from kqueue.core.ranks import Member, RankRules, releases
from kqueue.core.topology import HOSTNAME, Domain, TopologyAssignment

INDEX = "batch.kubernetes.io/job-completion-index"
TWO_HOSTS = TopologyAssignment((HOSTNAME,), (Domain(("h1",), 2), Domain(("h2",), 1)))
RANKED = RankRules(index_label=INDEX, limit=3)


def member(name: str, index: str | None = None, *, on: str | None = None) -> Member:
    labels = {} if index is None else {INDEX: index}
    return Member(key=name, gated=on is None, labels=labels, selector={} if on is None else {HOSTNAME: on})


@pytest.mark.parametrize(
    ("members", "rules", "wanted"),
    [
        pytest.param(
            [member("c", "2"), member("a", "0"), member("b", "1")],
            RANKED,
            {"a": "h1", "b": "h1", "c": "h2"},
            id="by-rank-whatever-the-listing-order",
        ),
        pytest.param(
            [member("a", "0", on="h1"), member("c", "2")], RANKED, {"c": "h2"}, id="released-pods-keep-their-place"
        ),
        pytest.param(
            [member("a"), member("b"), member("c"), member("d")],
            RankRules(index_label=None, limit=3),
            {"a": "h1", "b": "h1", "c": "h2"},
            id="greedy-and-the-surplus-stays-gated",
        ),
        pytest.param(
            [member("a", on="h1"), member("b"), member("c")],
            RankRules(index_label=None, limit=3),
            {"b": "h1", "c": "h2"},
            id="greedy-counts-who-is-there",
        ),
    ],
)
def test_pods_get_their_domains(members: list[Member], rules: RankRules, wanted: dict[str, str]) -> None:
    """By rank where ranks exist, else in listing order; no domain gets more than it was assigned."""
    found = releases(TWO_HOSTS, members, rules, count=3)

    assert ({r.key: r.values[0] for r in found.pods}, found.order_lost) == (wanted, "")


@pytest.mark.parametrize(
    ("members", "why"),
    [
        pytest.param([member("a", "0"), member("b", "0")], "same rank 0", id="a-rank-twice"),
        pytest.param([member("a", "7")], "not a number below 3", id="out-of-range"),
        pytest.param([member("a", "x")], "not a number below 3", id="not-a-number"),
        pytest.param([member("a")], "not a number below 3", id="without-a-label"),
        pytest.param(
            [member("a", "0", on="h2"), member("b", "1")], "released to another domain", id="somebody-sits-elsewhere"
        ),
    ],
)
def test_unusable_ranks_are_said_and_all_pods_still_go(members: list[Member], why: str) -> None:
    """The whole pod set goes greedily, and the reason is told."""
    found = releases(TWO_HOSTS, members, RANKED, count=3)

    assert why in found.order_lost
    assert {r.key for r in found.pods} == {m.key for m in members if m.gated}
