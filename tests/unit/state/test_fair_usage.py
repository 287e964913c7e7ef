"""What LocalQueues used lately: averages, penalties, and what is made of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kqueue.api.wire import kueue as wire
from kqueue.core.quota import FlavorResource
from kqueue.core.workload import Admission, PodSetAssignment
from kqueue.state.fair_usage import FairRules, FairUsage, UsageRecord, as_texts, penalty, sampled, weighted
from kqueue.state.holding import Holding

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR, WEEK = timedelta(hours=1), timedelta(hours=168)
RULES = FairRules(half_life=WEEK.total_seconds(), interval=300.0)
MINE, OTHER = "ns/mine", "ns/other"
TEN = {FlavorResource("a", "cpu"): 4000, FlavorResource("b", "cpu"): 6000}
"""What one workload uses: 10 cpu, in two flavors."""


def read(kind: type[Any], name: str, **obj: Any) -> Any:
    return msgspec.convert({"metadata": {"name": name, "namespace": "ns", "uid": name}, **obj}, kind)


def cluster_queue(mode: str | None = "UsageBasedAdmissionFairSharing") -> wire.ClusterQueue:
    spec = {"admissionScope": {"admissionMode": mode}} if mode else {}
    found: wire.ClusterQueue = read(wire.ClusterQueue, "team", spec=spec)
    return found


def local_queue(
    key: str = MINE, *, weight: str | int | None = None, consumed: Mapping[str, str] | None = None
) -> wire.LocalQueue:
    stored = {"consumedResources": consumed, "lastUpdate": "2025-06-01T00:00:00Z"}
    sharing = {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": stored}} if consumed else {}
    spec = {"fairSharing": {"weight": weight}} if weight is not None else {}
    found: wire.LocalQueue = read(wire.LocalQueue, key.partition("/")[2], spec=spec, status=sharing)
    return found


def workload(*, queue: str = "mine", finished: bool = False) -> wire.Workload:
    conditions = [{"type": "Finished", "status": "True", "reason": "", "message": ""}] if finished else []
    found: wire.Workload = read(wire.Workload, "w", spec={"queueName": queue}, status={"conditions": conditions})
    return found


def holding(key: str = "ns/w", *, cpus: int = 10, queue: str = MINE, admitted: bool = False) -> Holding:
    """A workload that holds so many cpus, in two pod sets of different flavors."""
    halves = (cpus * 1000 // 2, cpus * 1000 - cpus * 1000 // 2)
    pod_sets = tuple(
        PodSetAssignment(name=flavor, count=1, flavors={"cpu": flavor}, usage={"cpu": half}, topology=None)
        for flavor, half in zip(("a", "b"), halves, strict=True)
    )
    return Holding(
        key=key,
        uid=key,
        local_queue=queue,
        admission=Admission(queue="team", pod_sets=pod_sets),
        requests={},
        admitted=admitted,
        assumed=False,
    )


def make(rules: FairRules = RULES, *, by_usage: bool = True) -> FairUsage:
    """ClusterQueue `team` with LocalQueues `mine` and `other`."""
    fair = FairUsage(rules)
    fair.on_cluster_queue("team", cluster_queue() if by_usage else cluster_queue("NoAdmissionFairSharing"))
    fair.on_local_queue(MINE, local_queue(), START)
    fair.on_local_queue(OTHER, local_queue(OTHER), START)
    return fair


def consumed(fair: FairUsage, key: str = MINE) -> float:
    record = fair.record(key)
    assert record is not None
    return record.consumed.get("cpu", 0.0)


# --- averages --------------------------------------------------------------------------------------------------------


def test_the_example_of_a_week() -> None:
    """10 cpu, half-life a week, interval 5 min: what a workload counts at once, after a week, and a week after it."""
    assert RULES.alpha(300) == pytest.approx(0.000344, rel=1e-2)
    fair = make()
    fair.enter(holding())
    assert fair.usage(MINE) == pytest.approx(0.00344, rel=1e-2)
    fair.follow("ns/w", workload(), admitted=True, used=TEN, now=START)
    assert consumed(fair) == pytest.approx(0.00344, rel=1e-2)

    for minutes in range(5, 7 * 24 * 60 + 1, 5):
        fair.sample(MINE, TEN, START + timedelta(minutes=minutes))
    assert consumed(fair) == pytest.approx(5, rel=1e-3)

    fair.follow("ns/w", workload(finished=True), admitted=False, used={}, now=START + WEEK)
    fair.sample(MINE, {}, START + 2 * WEEK)
    assert consumed(fair) == pytest.approx(2.5, rel=1e-3)


@given(st.lists(st.floats(0, 1e6), max_size=8), st.floats(0, 1e9), st.floats(0, 1e9))
def test_how_often_an_average_is_taken_changes_nothing(pauses: list[float], before: float, in_use: float) -> None:
    """With the same use all the time, many small steps lead where one large step does."""
    record, now = UsageRecord({"cpu": before}, START), START
    for pause in pauses:
        now += timedelta(seconds=pause)
        record = sampled(record, {"cpu": in_use}, now, RULES)
    at_once = sampled(UsageRecord({"cpu": before}, START), {"cpu": in_use}, now, RULES)

    assert record.consumed["cpu"] == pytest.approx(at_once.consumed["cpu"], rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("record", "later", "rules", "want"),
    [
        pytest.param(None, 300, RULES, UsageRecord({}, START + timedelta(seconds=300)), id="it begins at nothing"),
        pytest.param(UsageRecord({"cpu": 4.0}, START), -60, RULES, UsageRecord({"cpu": 4.0, "gpu": 0.0}, START), id="a clock that goes back changes nothing"),
        pytest.param(UsageRecord({"cpu": 4.0}, START), 60, FairRules(), UsageRecord({}, START + timedelta(seconds=60)), id="without half-life nothing is remembered"),
        pytest.param(UsageRecord({"cpu": 4.0}, START), 60, FairRules(half_life=60.0), UsageRecord({"cpu": 2.0, "gpu": 4.0}, START + timedelta(seconds=60)), id="after a half-life it is half the old and half the new"),
    ],
)  # fmt: skip
def test_averages_begin_and_end(record: UsageRecord | None, later: int, rules: FairRules, want: UsageRecord) -> None:
    """At the first sample, at a clock that is wrong, and where the past does not count."""
    found = sampled(record, {"gpu": 8.0}, START + timedelta(seconds=later), rules)

    assert found.updated == want.updated
    assert dict(found.consumed) == pytest.approx(dict(want.consumed))


@pytest.mark.parametrize(
    ("weight", "rules", "want"),
    [
        pytest.param(1.0, FairRules(), 3 + 2**30, id="bytes outweigh cores"),
        pytest.param(2.0, FairRules(weights={"memory": 0.0}), 1.5, id="a heavy queue counts for less"),
        pytest.param(1.0, FairRules(weights={"memory": 2**-30, "cpu": 2.0}), 7, id="resources count by their weights"),
        pytest.param(0.0, FairRules(), math.inf, id="without weight it has used more than anybody"),
        pytest.param(-1.0, FairRules(), math.inf, id="so it has below zero"),
        pytest.param(1.0, FairRules(weights={"cpu": math.inf}), math.inf, id="a resource outweighs all others"),
    ],
)
def test_one_number_of_many_resources(weight: float, rules: FairRules, want: float) -> None:
    """The sum over resources and parts, each by its weight, divided by the queue's."""
    assert weighted(({"cpu": 2.0, "memory": 2.0**30}, {"cpu": 1.0}, {"cpu": 0.0}), weight, rules) == want


def test_without_half_life_there_is_no_penalty() -> None:
    """The order does not follow usage then, not even for a moment."""
    assert penalty({"cpu": 4000}, FairRules()) == {}
    assert penalty({"cpu": 4000}, FairRules(half_life=300.0)) == pytest.approx({"cpu": 2.0})


# --- penalties -------------------------------------------------------------------------------------------------------


def test_a_write_that_fails_takes_the_penalty_back() -> None:
    """As if it had never been."""
    fair = make()
    fair.enter(holding())
    fair.withdraw("ns/w")

    assert fair.usage(MINE) == 0
    fair.follow("ns/w", workload(), admitted=True, used=TEN, now=START)
    assert consumed(fair) == 0


def test_a_penalty_is_settled_once() -> None:
    """Reserved, it stays; at the first event that tells of the admission it moves; others add nothing."""
    fair = make()
    fair.enter(holding())
    fair.follow("ns/w", workload(), admitted=False, used={}, now=START + HOUR)
    ahead = fair.usage(MINE)
    assert (ahead > 0, consumed(fair)) == (True, 0)

    fair.follow("ns/w", workload(), admitted=True, used=TEN, now=START + HOUR)
    at_admission = consumed(fair)
    fair.follow("ns/w", workload(), admitted=True, used=TEN, now=START + HOUR)

    assert at_admission == consumed(fair) == fair.usage(MINE)
    assert at_admission > ahead  # the hour before counts as if it had run: the same step as every sample


@pytest.mark.parametrize(
    ("event", "pending"),
    [
        pytest.param(None, False, id="it is deleted"),
        pytest.param(workload(finished=True), False, id="it is finished"),
        pytest.param(workload(queue="other"), False, id="it moves to another LocalQueue"),
        pytest.param(workload(), True, id="it changes somehow"),
    ],
)
def test_a_penalty_ends_with_what_it_was_for(event: wire.Workload | None, pending: bool) -> None:
    """A workload that goes another way leaves nothing behind."""
    fair = make()
    fair.enter(holding())

    fair.follow("ns/w", event, admitted=False, used={}, now=START)

    assert (fair.usage(MINE) > 0) == pending
    assert fair.usage(OTHER) == 0


def test_a_workload_that_is_tried_again_counts_once() -> None:
    """One that lost its reservation before it was admitted has one penalty, not two."""
    fair = make()
    fair.enter(holding())
    once = fair.usage(MINE)
    fair.enter(holding())

    assert fair.usage(MINE) == once


def test_where_nobody_goes_by_usage_nobody_is_penalized() -> None:
    """What is used is remembered all the same, for the day when somebody does."""
    fair = make(by_usage=False)
    fair.enter(holding())
    assert fair.usage(MINE) == 0
    fair.follow("ns/w", workload(), admitted=True, used=TEN, now=START)
    fair.sample(MINE, TEN, START + WEEK)

    assert consumed(fair) == pytest.approx(5)
    assert fair.usages() is None
    fair.on_cluster_queue("team", cluster_queue())
    usages = fair.usages()
    assert usages is not None
    assert usages.of(holding(admitted=True).view(frozenset())) == pytest.approx(5)


# --- memory ----------------------------------------------------------------------------------------------------------


def test_a_new_process_remembers_what_is_written() -> None:
    """To a millionth; the time in which nobody looked does not count."""
    fair = FairUsage(RULES)
    texts = as_texts({"cpu": 5.25, "gpu": 0.002, "memory": 3.0 * 2**30})
    assert texts == {"cpu": "5250m", "gpu": "2m", "memory": "3221225472"}
    fair.on_local_queue(MINE, local_queue(consumed=texts), START)

    assert fair.record(MINE) == UsageRecord({"cpu": 5.25, "gpu": 0.002, "memory": 3.0 * 2**30}, START)
    fair.on_local_queue(MINE, local_queue(consumed={"cpu": "99"}), START + HOUR)
    assert consumed(fair) == 5.25


def test_what_was_settled_before_the_queue_was_seen_is_added() -> None:
    """A LocalQueue that is seen late brings its own, too."""
    fair = FairUsage(RULES)
    fair.on_cluster_queue("team", cluster_queue())
    fair.enter(holding())
    fair.follow("ns/w", workload(), admitted=True, used=TEN, now=START)
    ahead = consumed(fair)

    fair.on_local_queue(MINE, local_queue(consumed={"cpu": "2"}), START)

    assert consumed(fair) == 2 + ahead


def test_a_new_leader_believes_the_statuses() -> None:
    """What it saw as a follower is older than what the leader before it has written."""
    fair = make()
    fair.enter(holding())

    fair.begin([local_queue(consumed={"cpu": "7"})], START + HOUR)

    assert (fair.usage(MINE), fair.record(MINE)) == (7, UsageRecord({"cpu": 7.0}, START + HOUR))


def test_a_deleted_queue_is_forgotten() -> None:
    """With those on the way in; the next LocalQueue of its name begins at nothing."""
    fair = make()
    fair.enter(holding())
    fair.sample(MINE, TEN, START + WEEK)

    fair.on_local_queue(MINE, None, START + WEEK)
    assert (fair.usage(MINE), fair.record(MINE), fair.is_entering("ns/w")) == (0, None, False)
    fair.on_local_queue(MINE, local_queue(), START + WEEK)

    assert fair.record(MINE) == UsageRecord({}, START + WEEK)


@pytest.mark.parametrize(
    ("queue", "want"),
    [
        pytest.param(local_queue(weight="500m", consumed={"cpu": "3"}), 6, id="a weight in thousandths"),
        pytest.param(local_queue(weight=0, consumed={"cpu": "3"}), math.inf, id="no weight"),
        pytest.param(local_queue(weight="-1", consumed={"cpu": "3"}), math.inf, id="below zero, which no webhook refuses"),
        pytest.param(local_queue(weight="much", consumed={"cpu": "3", "gpu": "some"}), 3, id="what is no number counts as if not there"),
    ],
)  # fmt: skip
def test_weights_come_from_the_queue(queue: wire.LocalQueue, want: float) -> None:
    """Also when they change."""
    fair = make()
    fair.begin([queue], START)
    fair.on_local_queue(MINE, queue, START)

    assert fair.usage(MINE) == want
    assert fair.usage("ns/nobody") == 0


def test_averages_are_due_every_interval_and_at_once_for_those_on_the_way_in() -> None:
    """Seconds to wait; the time of the last update starts the next interval."""
    fair = make()
    assert fair.due("ns/nobody", START) == 0
    assert fair.due(MINE, START + timedelta(seconds=100)) == 200
    fair.enter(holding())
    assert fair.due(MINE, START) == 0
    fair.follow("ns/w", workload(), admitted=True, used=TEN, now=START + timedelta(seconds=100))

    assert fair.due(MINE, START + timedelta(seconds=100)) == 300
