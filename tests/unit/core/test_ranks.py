"""Which pod goes to which domain."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kqueue.core.ranks import Member, RankRules, RankTrouble, left_over, releases
from kqueue.core.topology import HOSTNAME, Domain, TopologyAssignment

INDEX = "batch.kubernetes.io/job-completion-index"
JOB = "jobset.sigs.k8s.io/job-index"
POD_INDEX = "apps.kubernetes.io/pod-index"
LEVELS = ("block", "rack")
RANKED = RankRules(index_label=INDEX, limit=3)
GAPS = RankRules(index_label=INDEX, limit=3, gaps=True)
UNRANKED = RankRules(index_label=None, limit=3)
GROUPED = RankRules(index_label=INDEX, group_label=JOB, groups=2, limit=4)


def placed(*counts: int) -> TopologyAssignment:
    """So many pods on hosts h1, h2, ..."""
    return TopologyAssignment((HOSTNAME,), tuple(Domain((f"h{n}",), pods) for n, pods in enumerate(counts, start=1)))


TWO_HOSTS = placed(2, 1)


def member(
    name: str,
    index: str | None = None,
    *,
    on: str | None = None,
    leaving: bool = False,
    label: str = INDEX,
    job: str | None = None,
) -> Member:
    """A gated pod, or one that was released to a host."""
    labels = {key: value for key, value in ((label, index), (JOB, job)) if value is not None}
    selector = {} if on is None else {HOSTNAME: on}
    return Member(key=name, gated=on is None, labels=labels, selector=selector, leaving=leaving)


@pytest.mark.parametrize(
    ("members", "rules", "wanted"),
    [
        pytest.param(
            [member("c", "2"), member("a", "0"), member("b", "1")],
            RANKED,
            {"a": "h1", "b": "h1", "c": "h2"},
            id="the completion index of a Job decides, whatever the listing order",
        ),
        pytest.param(
            [member("a", "2", label=POD_INDEX), member("b", "0", label=POD_INDEX)],
            RankRules(index_label=POD_INDEX, limit=3),
            {"a": "h2", "b": "h1"},
            id="so does any other label that the request names",
        ),
        pytest.param(
            [member("a", "0", on="h1"), member("c", "2")], RANKED, {"c": "h2"}, id="released pods keep their place"
        ),
        pytest.param([member("c", "2")], RANKED, {"c": "h2"}, id="a pod that comes before its neighbours leaves them room"),
        pytest.param(
            [member("a", "1"), member("b", "3")],
            RankRules(index_label=INDEX, offset=1, limit=4),
            {"a": "h1", "b": "h2"},
            id="an offset is taken off",
        ),
        pytest.param(
            [member("old", "2", on="h2", leaving=True), member("a", "0"), member("new", "2")],
            RANKED,
            {"a": "h1"},
            id="the successor of a pod that is leaving waits for its place, the others do not",
        ),
        pytest.param(
            [member("new", "2"), member("old", "2", on="h2", leaving=True)],
            RANKED,
            {},
            id="also when it is listed first",
        ),
        pytest.param(
            [member("old", "2", on="gone", leaving=True), member("new", "2")],
            RANKED,
            {"new": "h2"},
            id="a pod that is leaving a domain of an earlier assignment holds no place",
        ),
        pytest.param(
            [member("old", "0", on="h2", leaving=True), member("a", "0"), member("c", "2")],
            RANKED,
            {"a": "h1"},
            id="whose place another one is leaving waits for it",
        ),
        pytest.param(
            [member("old", "0", leaving=True), member("new", "0")],
            RANKED,
            {"new": "h1"},
            id="a gated pod that is leaving is not released and holds no place",
        ),
        pytest.param(
            [member("c", "11"), member("a", "9"), member("b", "4")],
            GAPS,
            {"b": "h1", "a": "h1", "c": "h2"},
            id="some of the numbered pods have places in the order of their numbers",
        ),
        pytest.param(
            [member("a", "2"), member("b", "0"), member("c", "1")],
            GAPS,
            {"b": "h1", "c": "h1", "a": "h2"},
            id="numbers without a gap are places",
        ),
        pytest.param(
            [member("a", "0", on="h1"), member("b", "2", on="h2"), member("c", "7")],
            GAPS,
            {"c": "h1"},
            id="a pod that fills a vacancy takes the place that is left",
        ),
        pytest.param(
            [member("a"), member("b"), member("c"), member("d")],
            UNRANKED,
            {"a": "h1", "b": "h1", "c": "h2"},
            id="greedy, and the surplus stays gated",
        ),
        pytest.param(
            [member("a", on="h1"), member("b"), member("c")],
            UNRANKED,
            {"b": "h1", "c": "h2"},
            id="greedy counts who is there",
        ),
        pytest.param(
            [member("a", on="h2"), member("b", on="h2"), member("c"), member("d"), member("e")],
            UNRANKED,
            {"c": "h1", "d": "h1"},
            id="greedy adds nobody to a domain that holds too many",
        ),
        pytest.param(
            [member("a", on="h1", leaving=True), member("b", leaving=True), member("c"), member("d")],
            UNRANKED,
            {"c": "h1", "d": "h2"},
            id="greedy counts who is leaving and does not release him",
        ),
    ],
)  # fmt: skip
def test_pods_get_their_domains(members: list[Member], rules: RankRules, wanted: dict[str, str]) -> None:
    """By rank where ranks exist, else in listing order; no domain gets more than it was assigned."""
    found = releases(TWO_HOSTS, members, rules, count=3)

    assert ({r.key: r.values[0] for r in found.pods}, found.order_lost) == (wanted, None)


def test_sub_groups_follow_one_another() -> None:
    """All ranks of job 0, then all of job 1: consecutive ranks share hosts, and jobs line up with slices."""
    members = [member(f"{job}-{index}", index, job=job) for job in "10" for index in "10"]

    found = releases(placed(2, 2), members, GROUPED, count=4)

    assert {r.key: r.values[0] for r in found.pods} == {"0-0": "h1", "0-1": "h1", "1-0": "h2", "1-1": "h2"}


def test_pods_are_pinned_on_every_written_level() -> None:
    """A topology without host names writes all its levels, and released pods are recognised by all of them."""
    racks = TopologyAssignment(LEVELS, (Domain(("b1", "r1"), 1), Domain(("b2", "r1"), 1)))
    there = Member(key="a", gated=False, labels={}, selector={"block": "b2", "rack": "r1"})

    found = releases(racks, [there, member("b"), member("c")], UNRANKED, count=2)

    assert [(r.key, r.values) for r in found.pods] == [("b", ("b1", "r1"))]


ELSEWHERE = [member("a", "0", on="h2"), member("b", "1")]


@pytest.mark.parametrize(
    ("members", "rules", "trouble", "names"),
    [
        pytest.param([member("a")], RANKED, RankTrouble.NO_INDEX, "pod a", id="a pod has no index"),
        pytest.param([member("a", "0"), member("b", "x")], RANKED, RankTrouble.NO_INDEX, "pod b", id="an index is a word"),
        pytest.param([member("a", "-1")], RANKED, RankTrouble.NO_INDEX, "pod a", id="an index has a sign"),
        pytest.param([member("a", "²")], RANKED, RankTrouble.NO_INDEX, "pod a", id="an index is a digit that is no number"),
        pytest.param([member("a", "3")], RANKED, RankTrouble.INDEX_TOO_HIGH, "not below 3", id="an index is too high"),
        pytest.param(
            [member("a", "0"), member("b", "0")], RANKED, RankTrouble.DUPLICATE_RANK, "pods a and b", id="a rank twice"
        ),
        pytest.param(
            [member("a", "0", on="h1"), member("b", "0")],
            RANKED,
            RankTrouble.DUPLICATE_RANK,
            "pods a and b",
            id="a rank twice, one of them released",
        ),
        pytest.param(ELSEWHERE, RANKED, RankTrouble.PLACED_ELSEWHERE, "pod a", id="somebody sits elsewhere"),
        pytest.param(
            [member("a", "0")],
            RankRules(index_label=INDEX, offset=1, limit=4),
            RankTrouble.RANK_OUT_OF_RANGE,
            "rank -1",
            id="an index below the offset",
        ),
        pytest.param(
            [member("a", "3")],
            RankRules(index_label=INDEX, limit=9),
            RankTrouble.RANK_OUT_OF_RANGE,
            "rank 3",
            id="a rank beyond the pod set",
        ),
        pytest.param([member("a", "0", job="2")], GROUPED, RankTrouble.BAD_GROUP, "below 2", id="a group too high"),
        pytest.param([member("a", "0")], GROUPED, RankTrouble.BAD_GROUP, "pod a", id="a pod has no group"),
        pytest.param([member("a", "1", job="1")], GROUPED, RankTrouble.BAD_GROUP, "below 1", id="an index beyond its group"),
        pytest.param(
            [member("a", "0", job="0")],
            RankRules(index_label=INDEX, group_label=JOB, groups=0, limit=4),
            RankTrouble.BAD_GROUP,
            "pod a",
            id="no number of groups",
        ),
    ],
)  # fmt: skip
def test_unusable_ranks_are_said_and_all_pods_still_go(
    members: list[Member], rules: RankRules, trouble: RankTrouble, names: str
) -> None:
    """The whole pod set goes greedily, and what stands in the way is named."""
    found = releases(TWO_HOSTS, members, rules, count=3)

    assert found.order_lost is not None
    assert (found.order_lost.trouble, names in found.order_lost.message) == (trouble, True)
    assert {r.key for r in found.pods} == {m.key for m in members if m.gated}


def test_an_assignment_shorter_than_the_pod_set_has_no_place_for_the_last_ranks() -> None:
    """The others would be by rank, so the loss is told."""
    found = releases(placed(1, 1), [member("a", "2")], RANKED, count=3)

    assert found.order_lost is not None
    assert found.order_lost.trouble is RankTrouble.BEYOND_ASSIGNMENT
    assert [r.values for r in found.pods] == [("h1",)]


@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    ranked=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_pods_that_come_and_go_never_overfill_a_domain(counts: list[int], ranked: bool, seed: int) -> None:
    """Pods are created, deleted and replaced between looks: no domain ever holds more than it was given, and a pod
    set whose ranks are all good ends up in their order.
    """
    chance = random.Random(seed)
    assignment, size = placed(*counts), sum(counts)
    rules = RankRules(index_label=INDEX if ranked else None, limit=size)
    table = [domain.values[0] for domain in assignment.domains for _ in range(domain.count)]
    pods: dict[str, Member] = {}
    for turn in range(20):
        for rank in range(size):
            mine = [m for m in pods.values() if m.labels[INDEX] == str(rank)]
            if not [m for m in mine if not m.leaving] and (turn == 19 or chance.random() < 0.4):
                pods[f"p{turn}-{rank}"] = member(f"p{turn}-{rank}", str(rank))
        for name, pod in list(pods.items()):
            if pod.leaving and (turn == 19 or chance.random() < 0.5):
                del pods[name]
            elif turn < 18 and chance.random() < 0.2:
                pods[name] = Member(key=name, gated=pod.gated, labels=pod.labels, selector=pod.selector, leaving=True)
        found = releases(assignment, sorted(pods.values(), key=lambda m: m.key), rules, count=size)
        assert found.order_lost is None
        for release in found.pods:
            pods[release.key] = member(release.key, pods[release.key].labels[INDEX], on=release.values[0])
        held = Counter(m.selector[HOSTNAME] for m in pods.values() if not m.gated)
        assert all(held[f"h{n}"] <= count for n, count in enumerate(counts, start=1))

    assert all(not m.gated for m in pods.values())
    if ranked:
        assert {int(m.labels[INDEX]): m.selector[HOSTNAME] for m in pods.values()} == dict(enumerate(table))


@given(data=st.data(), size=st.integers(2, 8))
def test_of_a_gang_of_which_pods_have_ended_every_pod_that_is_left_gets_a_place(data: st.DataObject, size: int) -> None:
    """The places are as many as the pods that are left, whose ranks may be any: they come one by one, and all go."""
    left = data.draw(st.lists(st.integers(0, size - 1), min_size=1, unique=True))
    cuts = data.draw(st.sets(st.integers(1, len(left)), max_size=3)) - {len(left)}
    edges = [0, *sorted(cuts), len(left)]
    assignment = placed(*(b - a for a, b in pairwise(edges)))
    rules = RankRules(index_label=INDEX, limit=len(left))
    pods: dict[str, Member] = {}
    for rank in left:
        pods[f"p{rank}"] = member(f"p{rank}", str(rank))
        for release in releases(assignment, list(pods.values()), rules, count=len(left)).pods:
            pods[release.key] = member(release.key, release.key[1:], on=release.values[0])
        assert not any(pod.gated for pod in pods.values())

    held = Counter(pod.selector[HOSTNAME] for pod in pods.values())
    assert held == {domain.values[0]: domain.count for domain in assignment.domains}


# --- places that are given back ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "needed", "want"),
    [
        pytest.param([member("a", on="h1"), member("b", on="h1")], 2, {"h2": 1}, id="the place of the one that has ended"),
        pytest.param([member("a", on="h2")], 1, {"h1": 2}, id="a whole host"),
        pytest.param([member("a", on="h1"), member("b", on="h2")], 2, {"h1": 1}, id="one of two on a host"),
        pytest.param([], 0, {"h1": 2, "h2": 1}, id="all, when all have ended"),
        pytest.param([member("a", on="h1"), member("b", on="h1"), member("c", on="h2")], 3, {}, id="none has ended"),
        pytest.param([member("a", on="h1")], 2, None, id="one is to come, and may take any place that is free"),
        pytest.param([member("a", on="h1"), member("b")], 2, None, id="one is not released yet"),
        pytest.param(
            [member("a", on="h1"), member("b", on="h2", leaving=True)], 2, None, id="one is leaving, and its successor comes"
        ),
        pytest.param(
            [member("a", on="h1"), member("b", on="h1"), member("c", on="h2")], 2, None, id="one runs that is said to have ended"
        ),
        pytest.param([member("a", on="h9"), member("b", on="h1")], 2, None, id="one stands outside of the assignment"),
        pytest.param([member("a", on="h2"), member("b", on="h2")], 2, None, id="more stand on a host than it was given"),
    ],
)  # fmt: skip
def test_places_are_left_over_once_all_pods_that_still_run_are_in_place(
    members: list[Member], needed: int, want: dict[str, int] | None
) -> None:
    """Host h1 was given two pods, h2 one."""
    found = left_over(TWO_HOSTS, members, needed=needed)

    assert (None if found is None else {d.values[0]: d.count for d in found.domains}) == want


GIVEN_BACK = TopologyAssignment((HOSTNAME,), (Domain(("h1",), 1),))


@pytest.mark.parametrize(
    ("members", "rules", "want", "trouble"),
    [
        pytest.param([member("a", "1")], RANKED, {"a": "h1"}, None, id="by rank, while the host keeps a place"),
        pytest.param(
            [member("a", "0", on="h1"), member("b", "1")], RANKED, {"b": "h2"}, RankTrouble.PLACE_GIVEN_BACK,
            id="elsewhere, when the place of the rank was given back",
        ),
        pytest.param([member("a"), member("b")], UNRANKED, {"a": "h1", "b": "h2"}, None, id="without ranks, what is left"),
        pytest.param([member("a", on="h1"), member("b"), member("c")], UNRANKED, {"b": "h2"}, None, id="and no more"),
    ],
)  # fmt: skip
def test_nobody_is_released_to_a_place_that_was_given_back(
    members: list[Member], rules: RankRules, want: dict[str, str], trouble: RankTrouble | None
) -> None:
    """Host h1 has given back one of its two places."""
    found = releases(TWO_HOSTS, members, rules, count=3, given_back=GIVEN_BACK)

    assert {r.key: r.values[0] for r in found.pods} == want
    assert (found.order_lost.trouble if found.order_lost else None) == trouble


@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    ranked=st.booleans(),
    shuffled=st.booleans(),
    seed=st.integers(0, 2**32),
)
@example(counts=[1, 2, 4], ranked=True, shuffled=True, seed=865)
def test_what_was_given_back_is_never_needed_again(counts: list[int], ranked: bool, shuffled: bool, seed: int) -> None:
    """Ranks end for good, pods fail and are made anew, in any order: as many places are given back as pods have ended,
    and no host ever has more pods than places left.
    """
    chance = random.Random(seed)
    assignment, size = placed(*counts), sum(counts)
    limit = size if not shuffled else size - 1  # with one index too high nobody is placed by rank while it is there
    rules = RankRules(index_label=INDEX if ranked else None, limit=limit)
    left = set(range(size))
    pods: dict[str, Member] = {}
    back = TopologyAssignment((HOSTNAME,), ())
    for turn in range(60):
        for name, pod in list(pods.items()):
            if pod.leaving or pod.gated or chance.random() > 0.3:
                continue
            if chance.random() < 0.5:  # completed
                left.discard(int(pod.labels[INDEX]))
                del pods[name]
            else:
                pods[name] = Member(key=name, gated=False, labels=pod.labels, selector=pod.selector, leaving=True)
        for name, pod in list(pods.items()):
            if pod.leaving and chance.random() < 0.7:
                del pods[name]
        here = {int(m.labels[INDEX]) for m in pods.values() if not m.leaving}
        for rank in sorted(left - here):
            if chance.random() < 0.7:
                pods[f"p{turn}-{rank}"] = member(f"p{turn}-{rank}", str(rank))
        for release in releases(assignment, list(pods.values()), rules, count=size, given_back=back).pods:
            pods[release.key] = member(release.key, pods[release.key].labels[INDEX], on=release.values[0])
        found = left_over(assignment, list(pods.values()), needed=len(left))
        if found is not None:
            assert back.count <= found.count == size - len(left)
            back = found
        held = Counter(m.selector[HOSTNAME] for m in pods.values() if not m.gated)
        places = {d.values[0]: d.count for d in assignment.without(back).domains}
        assert all(held[host] <= places.get(host, 0) for host in held)
