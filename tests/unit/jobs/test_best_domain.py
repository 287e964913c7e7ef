"""The dispatcher of the best domain: its ranking of clusters, its rounds, and its ledger of workloads on their way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kqueue.config.dispatchers import DISPATCHER_BEST_DOMAIN
from kqueue.jobs.multikueue.answers import ClusterAnswer, InFlight, Start, read_answer, unknown
from kqueue.jobs.multikueue.decision import RemoteStep, decide
from kqueue.jobs.multikueue.facts import DispatchPolicy, MultiKueueFacts, Remote
from kqueue.jobs.multikueue.ranking import asked_clusters, rank, ranked
from tests.unit.controllers.builders import condition
from tests.unit.jobs.test_multikueue import NOW, empty, lost, remote
from tests.unit.jobs.test_multikueue import facts as make_facts

PATIENCE, WITHIN = timedelta(seconds=30), timedelta(seconds=2)


def answer(start: Start = Start.NOW, **more: Any) -> ClusterAnswer:
    """An answer of one domain, which is the fewest, with room for one."""
    return ClusterAnswer(start=start, **{"domains": 1, "fewest": 1, "room": 1, **more})


NOW_ONE, SILENT = answer(), unknown("no answer")
NEVER, LATER, AFTER = answer(Start.NEVER), answer(Start.LATER), answer(Start.AFTER_PREEMPTION, preempts=1)


# --- ranking ----------------------------------------------------------------------------------------------------------

BEST_FIRST = [
    pytest.param(answer(left=0, ahead=9), id="now, in the fewest domains, which are full then"),
    pytest.param(answer(left=2), id="two more pods fit there"),
    pytest.param(NOW_ONE, id="how many more fit is not known"),
    pytest.param(answer(ahead=3), id="others wait there"),
    pytest.param(answer(borrows=True), id="with quota of others"),
    pytest.param(answer(domains=2, fewest=2), id="no placement uses fewer, but two"),
    pytest.param(answer(domains=2), id="one domain more than the fewest"),
    pytest.param(answer(domains=9), id="many more"),
    pytest.param(AFTER, id="one is preempted"),
    pytest.param(answer(Start.AFTER_PREEMPTION, preempts=4), id="four are preempted"),
    pytest.param(SILENT, id="silent"),
    pytest.param(answer(Start.LATER, at=NOW, ahead=7), id="at a known time"),
    pytest.param(answer(Start.LATER, at=NOW + PATIENCE), id="at a later one"),
    pytest.param(LATER, id="at an unknown time"),
    pytest.param(NEVER, id="never"),
]


@pytest.mark.parametrize(("better", "worse"), [pytest.param(*p, id=str(n)) for n, p in enumerate(pairwise([
    each.values[0] for each in BEST_FIRST
]))])  # fmt: skip
def test_each_answer_is_better_than_the_next_of_the_table(better: ClusterAnswer, worse: ClusterAnswer) -> None:
    assert rank(better) < rank(worse)
    assert ranked(["w", "b"], {"w": worse, "b": better}) == ["b", "w"]


def test_equal_clusters_keep_the_order_of_the_config() -> None:
    assert ranked(["z", "a"], {"z": NOW_ONE, "a": NOW_ONE}) == ["z", "a"]


# --- rounds -----------------------------------------------------------------------------------------------------------


def facts(*remotes: Remote, seconds: int = 0, **more: Any) -> MultiKueueFacts:
    """A workload that has waited for so many seconds since it got quota."""
    since = f"{NOW - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"
    return make_facts(*remotes, since=since, policy=DispatchPolicy(dispatcher=DISPATCHER_BEST_DOMAIN, step=2), **more)


@pytest.mark.parametrize(
    ("asked", "nominated", "again"),
    [
        pytest.param(facts(empty("a"), empty("b")), None, WITHIN, id="nothing is sent before the answers"),
        pytest.param(
            facts(empty("a"), empty("b"), answers={"a": NOW_ONE}), None, WITHIN, id="nor before the last answer"
        ),
        pytest.param(
            facts(empty("a"), empty("b"), answers={"a": answer(domains=2), "b": NOW_ONE}), "b", PATIENCE, id="the best"
        ),
        pytest.param(
            facts(empty("a"), empty("b"), answers={"a": SILENT, "b": NOW_ONE}), "b", PATIENCE, id="silent, and now"
        ),
        pytest.param(
            facts(empty("a"), empty("b"), answers={"a": AFTER, "b": LATER}), "a", PATIENCE, id="all have answered"
        ),
        pytest.param(
            facts(*map(empty, "abc"), answers={"a": LATER, "b": SILENT, "c": AFTER}),
            "cb",
            timedelta(minutes=5),
            id="one is silent and none says now: incremental, the best first",
        ),
        pytest.param(
            facts(*map(empty, "abc"), answers=dict.fromkeys("abc", SILENT)),
            "ab",
            timedelta(minutes=5),
            id="all are silent: incremental",
        ),
        pytest.param(
            facts(*map(empty, "abc"), answers=dict.fromkeys("abc", NEVER)),
            "ab",
            timedelta(minutes=5),
            id="never anywhere: incremental, because answers age",
        ),
        pytest.param(facts(empty("a"), answers={"a": NOW_ONE}), "a", None, id="there is one cluster only"),
        pytest.param(
            facts(empty("a"), empty("b"), nominated="b", seconds=10), None, PATIENCE - timedelta(seconds=10), id="waits"
        ),
        pytest.param(
            facts(empty("a"), empty("b"), nominated="b", seconds=40, sent_at=NOW - timedelta(seconds=5)),
            None,
            PATIENCE - timedelta(seconds=5),
            id="waits since it was sent",
        ),
        pytest.param(
            facts(empty("a"), empty("b"), nominated="b", seconds=30), None, WITHIN, id="asks again after the patience"
        ),
        pytest.param(
            facts(*map(empty, "abc"), nominated="b", seconds=30, answers={"a": LATER, "c": NOW_ONE}),
            "bc",
            PATIENCE,
            id="adds the best of the others",
        ),
        pytest.param(
            facts(empty("a"), empty("b"), nominated="b", seconds=90, answers={"a": NEVER}),
            None,
            PATIENCE,
            id="adds none that never can",
        ),
        pytest.param(
            facts(empty("a"), lost("b", 1), nominated="b", answers={"a": LATER}), "ba", None, id="does not wait for a lost one"
        ),
        pytest.param(
            facts(empty("a"), empty("b", is_taken=True), nominated="b", answers={"a": LATER}), "a", None, id="nor where its name is taken"
        ),
        pytest.param(facts(empty("a"), nominated="a", seconds=900), None, None, id="there is no other"),
    ],
)  # fmt: skip
def test_a_gang_is_sent_to_the_best_cluster_alone(
    asked: MultiKueueFacts, nominated: str | None, again: timedelta | None
) -> None:
    """`nominated` None: what is written stays."""
    found = decide(asked)
    assert (found.nominated, found.again) == (tuple(nominated) if nominated is not None else None, again)


@pytest.mark.parametrize(
    ("asked", "clusters"),
    [
        pytest.param(facts(empty("a"), lost("b", 1)), "a", id="those that can be reached"),
        pytest.param(facts(empty("a"), empty("b"), nominated="b", seconds=30), "a", id="those that do not have it"),
        pytest.param(facts(empty("a"), empty("b"), nominated="b"), "", id="none while it waits"),
        pytest.param(facts(empty("a"), state="Ready"), "", id="none for one that runs"),
        pytest.param(facts(empty("a"), cluster="a"), "", id="nor for one with a cluster"),
        pytest.param(facts(empty("a"), holds=False), "", id="nor without quota"),
        pytest.param(facts(empty("a"), evicted=True), "", id="nor on its way out"),
        pytest.param(facts(empty("a"), finished="Succeeded"), "", id="nor in the end"),
        pytest.param(facts(empty("a"), others={"other": "Pending"}), "", id="nor before other checks"),
        pytest.param(make_facts(empty("a")), "", id="nor for another dispatcher"),
    ],
)
def test_only_clusters_that_matter_are_asked(asked: MultiKueueFacts, clusters: str) -> None:
    assert "".join(asked_clusters(asked)) == clusters


def test_what_was_sent_stays_where_it_is() -> None:
    """A better answer of another cluster withdraws no copy."""
    asked = facts(remote("a", condition("QuotaReserved", "False")), empty("b"), nominated="a", seconds=40)
    found = decide(MultiKueueFacts(**{**_fields(asked), "answers": {"b": NOW_ONE}}))
    assert found.nominated == ("a", "b")
    assert RemoteStep.DELETE not in found.steps.values()


def _fields(of: MultiKueueFacts) -> dict[str, Any]:
    return {name: getattr(of, name) for name in MultiKueueFacts.__dataclass_fields__}


# --- answers of others ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(None, id="nothing"),
        pytest.param([], id="a list"),
        pytest.param({}, id="no start"),
        pytest.param({"start": "Yesterday"}, id="another start"),
        pytest.param({"start": "Now", "domains": "many"}, id="no number"),
        pytest.param({"start": "Now", "domains": 1e30}, id="no whole number"),
        pytest.param({"start": "Now", "preempted": [[]]}, id="no workload"),
        pytest.param({"start": "Later", "at": "soon"}, id="no time"),
    ],
)
def test_an_answer_that_cannot_be_read_is_none(said: Any) -> None:
    found = read_answer(said, NOW)
    assert (found.start, found.asked_at) == (Start.UNKNOWN, NOW)
    assert found.message


def test_a_lie_is_clamped() -> None:
    """Numbers have limits, texts cannot drive a terminal, and a time is one that can be meant."""
    said = {
        "start": "Now",
        "message": "\x1b[2J" + "x" * 9000,
        "level": "l" * 9000,
        "domains": -5,
        "fewestDomains": 7,
        "room": 2**62,
        "preempts": 9,
        "waitingAhead": -1,
        "at": "9999-01-01T00:00:00Z",
    }
    found = read_answer(said, NOW)
    assert (found.domains, found.fewest, found.room, found.preempts, found.ahead) == (7, 7, 1_000_000, 0, 0)
    assert found.at is None
    assert found.message.isprintable()
    assert len(found.message) < 510
    assert len(found.level) == 253


def test_a_whole_answer_is_read() -> None:
    said = {
        "kind": "Placement",
        "start": "AfterPreemption",
        "message": "m",
        "preempts": 7,
        "preempted": [{"namespace": "ns", "name": f"w{n}", "priority": 0} for n in range(7)] + [{"priority": 1}],
        "waitingAhead": 2,
        "at": "2026-01-01T00:01:00Z",
        "borrows": True,
    }
    found = read_answer(said, NOW)
    assert (found.start, found.preempts, found.ahead, found.borrows) == (Start.AFTER_PREEMPTION, 7, 2, True)
    assert found.preempted == ("ns/w0", "ns/w1", "ns/w2", "ns/w3", "ns/w4")
    assert found.at == NOW + timedelta(minutes=1)


# --- workloads on their way -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "on_their_way", "want"),
    [
        (answer(room=3), 0, (Start.NOW, 3, 0)),
        (answer(room=3), 2, (Start.NOW, 1, 2)),
        (answer(room=3, ahead=1), 3, (Start.LATER, 0, 4)),
        (AFTER, 2, (Start.AFTER_PREEMPTION, 0, 2)),
        (SILENT, 2, (Start.UNKNOWN, 0, 2)),
    ],
)
def test_the_room_of_an_answer_is_used_up(
    before: ClusterAnswer, on_their_way: int, want: tuple[Start, int, int]
) -> None:
    found = before.charged(on_their_way)
    assert (found.start, found.room, found.ahead) == want


ENTRY = st.tuples(st.sampled_from("uvw"), st.sets(st.sampled_from("ab")), st.integers(1, 9))
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("sent"), ENTRY),
        st.tuples(st.just("settled"), st.tuples(st.sampled_from("uvw"), st.sampled_from("ab"))),
        st.tuples(st.just("later"), st.integers(1, 20)),
    ),
    max_size=30,
)


@given(events=EVENTS, asked=st.integers(0, 60))
def test_the_ledger_counts_each_workload_once_where_it_was_sent(events: list[Any], asked: int) -> None:
    """A plain list of what happened gives the same numbers: nothing is lost, and nothing is counted twice."""
    ledger, now, pods = InFlight(PATIENCE), NOW, {"u": 2, "v": 3, "w": 8}
    model: dict[tuple[str, str], list[datetime | None]] = {}  # (cluster, uid) -> sent, settled
    for kind, what in events:
        model = {key: entry for key, entry in model.items() if (entry[0] or now) + PATIENCE > now}
        if kind == "later":
            now += timedelta(seconds=what)
        elif kind == "settled":
            uid, cluster = what
            ledger.settled(uid, cluster, now)
            entry = model.get((cluster, uid))
            if entry is not None and entry[1] is None:
                entry[1] = now
        else:
            uid, clusters, _ = what
            ledger.sent(uid, sorted(clusters), pods[uid], now)
            gone = [key for key, entry in model.items() if key[1] == uid and key[0] not in clusters and not entry[1]]
            for key in gone:
                del model[key]
            for cluster in clusters:
                model.setdefault((cluster, uid), [now, None])
    at = NOW + timedelta(seconds=asked)
    live = {key: entry for key, entry in model.items() if (entry[0] or now) + PATIENCE > now}
    for cluster in "ab":
        counted = [uid for (where, uid), e in live.items() if where == cluster and (e[1] is None or e[1] >= at)]
        assert ledger.ahead(cluster, "nobody", 1, at, now) == sum(pods[uid] for uid in counted)
        assert ledger.ahead(cluster, "u", 3, at, now) == sum(-(-pods[uid] // 3) for uid in counted if uid != "u")
    for uid in "uvw":
        assert ledger.last(uid, now) == max((e[0] for (_, who), e in live.items() if who == uid and e[0]), default=None)


def test_time_is_of_the_managers_clock() -> None:
    """A workload whose quota came after the question counts; one whose quota the answer saw does not."""
    ledger = InFlight(PATIENCE)
    ledger.sent("u", ["a"], 4, NOW)
    second = timedelta(seconds=1)
    ledger.settled("u", "a", NOW + 2 * second)
    assert ledger.ahead("a", "v", 4, NOW + second, NOW + 3 * second) == 1
    assert ledger.ahead("a", "v", 4, NOW + 3 * second, NOW + 3 * second) == 0
    assert NOW.tzinfo is UTC
