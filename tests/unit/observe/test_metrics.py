"""Metrics: names, values, removal, roles, cached pages."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from prometheus_client import Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kqueue.clock import FakeClock
from kqueue.core.topology import LevelQuality
from kqueue.observe import LoopProbe, Metrics, ResourceFigures
from kqueue.observe.metric_groups import MetricGroups
from tests.readings import page_of

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def series(metrics: Metrics) -> Series:
    """Every sample of the page: (name, labels) to value."""
    page = page_of(metrics).decode()
    return {
        (s.name, frozenset(s.labels.items())): s.value
        for family in text_string_to_metric_families(page)
        for s in family.samples
    }


def value(metrics: Metrics, name: str, /, **labels: str) -> float | None:
    """One sample under the standalone role; None when it is not there."""
    return series(metrics).get((name, frozenset({**labels, "replica_role": "standalone"}.items())))


def names_with(metrics: Metrics, label: str, text: str) -> set[str]:
    """Names of all series that carry this label value."""
    return {name for name, labels in series(metrics) if (label, text) in labels}


def report(metrics: Metrics, queue: str) -> None:
    """Everything that a ClusterQueue can report."""
    q = metrics.cluster_queue(queue)
    q.pending(active=3, inadmissible=2)
    q.holding(reserving=5, admitted=4)
    q.finished_kept(7)
    q.status("active")
    q.unadmitted({("NoReservation", "WaitingForQuota"): 2})
    q.place(["c", "r"])
    q.resources("c", {("f", "cpu"): ResourceFigures(nominal=10, reservation=6, usage=4, lending_limit=2)})
    q.quota_reserved(priority_class="high", waited=1.5, admitted=False)
    q.quota_reserved(priority_class="high", waited=2, admitted=True)
    q.ready(priority_class="high", waited=9, since_admitted=7)
    q.finished(priority_class="high", ran=60)
    q.evicted(reason="Preempted", underlying_cause="", priority_class="high", first=True)
    q.dispatched("west")
    q.admitted_elsewhere("west")
    q.eviction_ended(reason="Preempted", took=3)
    q.gate_removed(gate="kueue.x-k8s.io/topology", is_group=False, since_admitted=-1)
    q.ungated(8)
    q.placed(algorithm="optimal", proven=True, levels=[LevelQuality("rack", 1, 1), LevelQuality("host", 5, 4)])
    q.placed(algorithm="optimal", proven=False, levels=[LevelQuality("rack", 2, 1), LevelQuality("host", 6, 6)])
    q.placed(algorithm="BestFit", proven=None, levels=[LevelQuality("rack", 3, 3)])


@pytest.mark.parametrize(
    ("name", "labels", "want"),
    [
        ("kueue_pending_workloads", {"status": "active"}, 3),
        ("kueue_pending_workloads", {"status": "inadmissible"}, 2),
        ("kueue_reserving_active_workloads", {}, 5),
        ("kueue_admitted_active_workloads", {}, 4),
        ("kueue_finished_workloads", {}, 7),
        ("kueue_cluster_queue_status", {"status": "active"}, 1),
        ("kueue_cluster_queue_status", {"status": "pending"}, 0),
        ("kueue_unadmitted_workloads", {"reason": "NoReservation", "underlying_cause": "WaitingForQuota"}, 2),
        ("kueue_cluster_queue_info", {"parent_cohort": "c", "root_cohort": "r"}, 1),
        ("kueue_cluster_queue_nominal_quota", {"cohort": "c", "flavor": "f", "resource": "cpu"}, 10),
        ("kueue_cluster_queue_borrowing_limit", {"cohort": "c", "flavor": "f", "resource": "cpu"}, float("inf")),
        ("kueue_cluster_queue_lending_limit", {"cohort": "c", "flavor": "f", "resource": "cpu"}, 2),
        ("kueue_cluster_queue_resource_usage", {"cohort": "c", "flavor": "f", "resource": "cpu"}, 4),
        ("kueue_quota_reserved_workloads_total", {"priority_class": "high"}, 2),
        ("kueue_quota_reserved_wait_time_seconds_sum", {"priority_class": "high"}, 3.5),
        ("kueue_quota_reserved_wait_time_seconds_bucket", {"priority_class": "high", "le": "20480.0"}, None),
        ("kueue_quota_reserved_wait_time_seconds_bucket", {"priority_class": "high", "le": "10240.0"}, 2),
        ("kueue_admission_wait_time_seconds_sum", {"priority_class": "high"}, 2),
        ("kueue_admission_wait_time_seconds_bucket", {"priority_class": "high", "le": "40960.0"}, 1),
        ("kueue_admitted_workloads_total", {"priority_class": "high"}, 1),
        ("kueue_ready_wait_time_seconds_count", {"priority_class": "high"}, 1),
        ("kueue_admitted_until_ready_wait_time_seconds_sum", {"priority_class": "high"}, 7),
        ("kueue_finished_workloads_total", {"priority_class": "high"}, 1),
        ("kueue_execution_time_seconds_sum", {"priority_class": "high"}, 60),
        (
            "kueue_evicted_workloads_once_total",
            {"reason": "Preempted", "underlying_cause": "", "priority_class": "high"},
            1,
        ),
        ("kueue_workload_eviction_latency_seconds_sum", {"reason": "Preempted"}, 3),
        (
            "kueue_pod_scheduling_gate_removal_seconds_sum",
            {"name": "kueue.x-k8s.io/topology", "is_group": "false"},
            0,
        ),
        ("kqueue_ungated_pods_total", {}, 8),
        ("kqueue_placements_total", {"algorithm": "optimal", "proven": "true"}, 1),
        ("kqueue_placements_total", {"algorithm": "optimal", "proven": "false"}, 1),
        ("kqueue_placements_total", {"algorithm": "BestFit", "proven": "unknown"}, 1),
        ("kqueue_placement_domains_total", {"algorithm": "optimal", "level": "rack"}, 3),
        ("kqueue_placement_domains_total", {"algorithm": "optimal", "level": "host"}, 11),
        ("kqueue_placement_fewest_domains_total", {"algorithm": "optimal", "level": "host"}, 10),
    ],
)
def test_a_cluster_queue_is_reported(name: str, labels: dict[str, str], want: float | None) -> None:
    """Names, labels and buckets are those that Kueue's dashboards ask for; negative times count as 0."""
    metrics = Metrics(groups=MetricGroups(cluster_queue_resources=True))
    report(metrics, "q")
    assert value(metrics, name, cluster_queue="q", **labels) == want


def test_a_forgotten_cluster_queue_leaves_no_series() -> None:
    """Deleting a queue removes all of its series and none of another's; late reports do not bring them back."""
    metrics = Metrics(groups=MetricGroups(cluster_queue_resources=True))
    report(metrics, "q")
    report(metrics, "other")
    before = names_with(metrics, "cluster_queue", "other")
    late = metrics.cluster_queue("q")
    metrics.forget_cluster_queue("q")
    late.pending(active=1, inadmissible=1)
    for _ in range(1000):
        late.quota_reserved(priority_class="new", waited=1, admitted=True)
    late.place(["x"])
    assert names_with(metrics, "cluster_queue", "q") == set()
    assert names_with(metrics, "cluster_queue", "other") == before


def test_a_queue_that_comes_back_starts_anew() -> None:
    """A queue re-created under its old name is reported again, from zero."""
    metrics = Metrics()
    report(metrics, "q")
    metrics.forget_cluster_queue("q")
    metrics.cluster_queue("q").quota_reserved(priority_class="high", waited=1, admitted=True)
    assert value(metrics, "kueue_admitted_workloads_total", cluster_queue="q", priority_class="high") == 1
    assert value(metrics, "kueue_pending_workloads", cluster_queue="q", status="active") is None


def test_preemptors_that_got_nothing_are_those_of_the_last_cycle() -> None:
    """A queue without a head keeps its number; one that comes back has it again, though it is the old one."""
    metrics = Metrics()
    shown = []
    for skips in ({"q": 2, "r": 1}, {"q": 0}, {"q": 0, "r": 3}):
        metrics.preemption_skips(skips)
        shown.append([value(metrics, "kueue_admission_cycle_preemption_skips", cluster_queue=name) for name in "qr"])
    assert shown == [[2, 1], [0, 1], [0, 3]]
    metrics.forget_cluster_queue("r")
    assert value(metrics, "kueue_admission_cycle_preemption_skips", cluster_queue="r") is None
    metrics.preemption_skips({"r": 3})
    assert value(metrics, "kueue_admission_cycle_preemption_skips", cluster_queue="r") == 3


def test_what_a_queue_no_longer_has_disappears() -> None:
    """A flavor that was removed, a reason that ceased and a former cohort leave no stale series."""
    metrics = Metrics(groups=MetricGroups(cluster_queue_resources=True))
    report(metrics, "q")
    q = metrics.cluster_queue("q")
    q.resources("d", {("g", "cpu"): ResourceFigures(nominal=1, reservation=0, usage=0)})
    q.unadmitted({})
    q.place([])
    page = series(metrics)
    quotas = [dict(labels) for name, labels in page if name == "kueue_cluster_queue_nominal_quota"]
    assert [(labels["cohort"], labels["flavor"]) for labels in quotas] == [("d", "g")]
    assert not [1 for name, _ in page if name == "kueue_unadmitted_workloads"]
    assert [dict(labels)["root_cohort"] for name, labels in page if name == "kueue_cluster_queue_info"] == [""]


async def test_every_page_has_all_that_was_reported_before_it() -> None:
    """Each report is on the next page, once, whoever asks for it; admissions are reservations too."""
    metrics = Metrics(cache_seconds=0.0)
    q = metrics.cluster_queue("q")
    for priority_class, admitted in (("high", True), ("high", False), ("low", True), ("high", True)):
        q.quota_reserved(priority_class=priority_class, waited=4.0, admitted=admitted)
        q.placed(algorithm="BestFit", proven=None, levels=[LevelQuality("rack", 2, 1)])
    want = {
        'kueue_quota_reserved_wait_time_seconds_bucket{cluster_queue="q",priority_class="high",le="2.5"': 0,
        'kueue_quota_reserved_wait_time_seconds_bucket{cluster_queue="q",priority_class="high",le="5.0"': 3,
        'kueue_quota_reserved_wait_time_seconds_sum{cluster_queue="q",priority_class="high"': 12,
        'kueue_quota_reserved_workloads_total{cluster_queue="q",priority_class="high"': 3,
        'kueue_admitted_workloads_total{cluster_queue="q",priority_class="high"': 2,
        'kueue_admission_wait_time_seconds_count{cluster_queue="q",priority_class="high"': 2,
        'kueue_admission_wait_time_seconds_count{cluster_queue="q",priority_class="low"': 1,
        'kqueue_placements_total{cluster_queue="q",algorithm="BestFit",proven="unknown"': 4,
        'kqueue_placement_domains_total{cluster_queue="q",algorithm="BestFit",level="rack"': 8,
        'kqueue_placement_fewest_domains_total{cluster_queue="q",algorithm="BestFit",level="rack"': 4,
    }
    pages = (await metrics.render(), page_of(metrics), await metrics.render())
    for line in (f'{name},replica_role="standalone"}} {float(number)}' for name, number in want.items()):
        assert [page.decode().splitlines().count(line) for page in pages] == [1, 1, 1], line


@pytest.mark.parametrize(
    ("waited", "reserved", "admitted"),
    [
        pytest.param(-1.0, "1.0", "1.0", id="a clock that disagrees counts as no wait"),
        pytest.param(1.0, "1.0", "1.0", id="a bound is in its bucket"),
        pytest.param(1.1, "2.5", "2.5", id="above it begins the next"),
        pytest.param(10_240.0, "10240.0", "10240.0", id="the longest that both tell apart"),
        pytest.param(10_241.0, "+Inf", "20480.0", id="admissions are told apart for longer"),
        pytest.param(40_961.0, "+Inf", "+Inf", id="longer than all buckets"),
    ],
)
def test_a_wait_is_in_the_bucket_of_each_of_its_families(waited: float, reserved: str, admitted: str) -> None:
    """What is taken in once is shown in the buckets of reservations and in those of admissions."""
    metrics = Metrics()
    metrics.cluster_queue("q").quota_reserved(priority_class="", waited=waited, admitted=True)
    for family, want in (("quota_reserved_wait", reserved), ("admission_wait", admitted)):
        name = f"kueue_{family}_time_seconds_bucket"
        filled = [dict(at)["le"] for (found, at), number in series(metrics).items() if (found, number) == (name, 1)]
        assert min(filled, key=float) == want


def test_a_local_queue_is_reported_and_forgotten() -> None:
    """LocalQueues are told apart by name and namespace."""
    metrics = Metrics()
    for namespace in ("a", "b"):
        q = metrics.local_queue(namespace=namespace, name="lq")
        q.pending(active=1, inadmissible=0)
        q.holding(reserving=2, admitted=1)
        q.finished_kept(1)
        q.status("Unknown")
        q.resources({("f", "cpu"): (4, 2)})
        q.quota_reserved(priority_class="", waited=1, admitted=True)
        q.ready(priority_class="", waited=1, since_admitted=1)
        q.finished(priority_class="", ran=None)
        q.evicted(reason="Preempted", underlying_cause="", priority_class="")
    where = {"name": "lq", "namespace": "a"}
    assert value(metrics, "kueue_local_queue_status", **where, active="Unknown") == 1
    assert value(metrics, "kueue_local_queue_resource_usage", **where, flavor="f", resource="cpu") == 2
    assert value(metrics, "kueue_local_queue_execution_time_seconds_count", **where, priority_class="") is None
    metrics.forget_local_queue(namespace="a", name="lq")
    assert names_with(metrics, "namespace", "a") == set()
    assert names_with(metrics, "namespace", "b") != set()


def test_groups_can_be_switched_off() -> None:
    """LocalQueue and quota series exist only where the configuration asks for them."""
    metrics = Metrics(groups=MetricGroups(local_queues=False, cluster_queue_resources=False))
    report(metrics, "q")
    metrics.local_queue(namespace="a", name="lq").pending(active=1, inadmissible=0)
    page = page_of(metrics).decode()
    assert "kueue_local_queue" not in page
    assert "kueue_cluster_queue_nominal_quota" not in page
    assert "kueue_pending_workloads" in page


def test_the_role_is_on_all_of_ours_but_build_info() -> None:
    """A promotion moves every series to the new role with its value; nothing stays under the old one."""
    metrics = Metrics(role="follower")
    report(metrics, "q")
    metrics.leading("lease", leads=True)
    page = series(metrics)
    roles = {dict(labels).get("replica_role") for name, labels in page if name.startswith(("kueue_", "kqueue_"))}
    labels = frozenset({"cluster_queue": "q", "status": "active", "replica_role": "leader"}.items())
    assert page["kueue_pending_workloads", labels] == 3
    assert roles == {"leader", None}
    assert {name for name, at in page if name.startswith("kueue_") and "replica_role" not in dict(at)} == {
        "kueue_build_info"
    }


def test_the_process_is_reported() -> None:
    """Calls, reconciles, watches, queues, webhooks and trouble are counted under the names they are asked for."""
    metrics = Metrics()
    metrics.attempt(success=False, seconds=0.2)
    metrics.workload_created(job_kind="Job", seconds=0.5)
    metrics.drift("missing-pod", 2)
    for _ in range(3):  # the first makes the series, the others find it
        metrics.api_request(verb="patch", resource="pods", subresource="", lane="ungate", code=409, seconds=0.5)
    metrics.api_request(verb="patch", resource="pods", subresource="", lane="ungate", code=200, seconds=0.5)
    metrics.api_request(verb="watch", resource="pods", subresource="", lane="watch", code=200, seconds=300)
    metrics.reconcile(controller="job", result="success", seconds=0.1)
    metrics.webhook_certificate(datetime(2026, 1, 1, tzinfo=UTC))
    metrics.webhook(path="/mutate--v1-pod", operation="CREATE", result="patched", seconds=0.001)
    metrics.watch_age("pods", lambda: 12.5)
    metrics.work_queue("job", lambda: 3)
    metrics.work_rank("job", "free", depth=lambda: 2, oldest_age=lambda: 1.5)
    metrics.request_lane("words", in_flight=lambda: 8, waiting=lambda: 90, oldest_age=lambda: 2.5)
    metrics.event_lost("queue-full")
    metrics.event_joined()
    metrics.event_joined()
    metrics.rank_fallback("no_index")
    metrics.leaked_gates({"workload_gone": 3, "workload_finished": 1})
    metrics.leaked_gates({"workload_gone": 0})
    request = {"verb": "patch", "resource": "pods", "subresource": "", "lane": "ungate", "code": "409"}
    assert value(metrics, "kueue_admission_attempts_total", result="inadmissible") == 1
    assert value(metrics, "kueue_workload_creation_latency_seconds_sum", job_kind="Job") == 0.5
    assert value(metrics, "kqueue_api_requests_total", **request) == 3
    assert value(metrics, "kqueue_api_requests_total", **(request | {"code": "200"})) == 1
    assert value(metrics, "kqueue_api_request_seconds_sum", verb="patch", lane="ungate") == 2
    assert value(metrics, "kqueue_api_request_seconds_count", verb="watch", lane="watch") is None
    assert value(metrics, "kqueue_watch_age_seconds", kind="pods") == 12.5
    assert value(metrics, "kqueue_cache_drift_total", cause="missing-pod") == 2
    assert value(metrics, "kqueue_events_lost_total", cause="queue-full") == 1
    assert value(metrics, "kqueue_events_joined_total") == 2
    assert value(metrics, "kqueue_rank_fallbacks_total", reason="no_index") == 1
    assert value(metrics, "kqueue_leaked_gates", reason="workload_gone") == 0
    assert value(metrics, "kqueue_leaked_gates", reason="workload_finished") == 1
    assert value(metrics, "kqueue_certificate_not_after_seconds", server="webhook") == 1767225600
    assert value(metrics, "kqueue_work_queue_depth", controller="job", rank="free") == 2
    assert value(metrics, "kqueue_work_queue_oldest_seconds", controller="job", rank="free") == 1.5
    assert value(metrics, "kqueue_api_requests_in_flight", lane="words") == 8
    assert value(metrics, "kqueue_api_requests_waiting", lane="words") == 90
    assert value(metrics, "kqueue_api_requests_oldest_seconds", lane="words") == 2.5
    page = series(metrics)
    assert page["workqueue_depth", frozenset({("name", "job")})] == 3
    result = frozenset({("controller", "job"), ("result", "success")})
    assert page["controller_runtime_reconcile_total", result] == 1


def test_no_name_is_used_twice() -> None:
    """Every family and every sample name is declared once."""
    metrics = Metrics(groups=MetricGroups(cluster_queue_resources=True))
    declared = [line.split()[2] for line in page_of(metrics).decode().splitlines() if line.startswith("# TYPE")]
    assert len(declared) == len(set(declared)) > 60


def test_pages_have_no_created_series() -> None:
    """The client library's `_created` twins, which double the page, are left out."""
    metrics = Metrics()
    report(metrics, "q")
    assert b"_created" not in page_of(metrics)


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "a}b", "ä", ""])
def test_label_values_are_escaped(name: str) -> None:
    """Whatever a label's value is, the page reads back."""
    metrics = Metrics()
    metrics.cluster_queue(name).holding(reserving=3, admitted=0)
    assert value(metrics, "kueue_reserving_active_workloads", cluster_queue=name) == 3


def test_pages_say_what_the_client_library_says() -> None:
    """Our writer and the library's agree on every sample, type and help text, but for the role and `_created`."""
    metrics = Metrics(groups=MetricGroups(cluster_queue_resources=True))
    report(metrics, "q")
    theirs = {
        line.replace(",}", "}")
        for line in b"".join(generate_latest(registry) for registry, _ in metrics._groups).decode().splitlines()
        if "_created" not in line and "process_" not in line
    }
    ours = {
        line.replace(',replica_role="standalone"', "").replace('{replica_role="standalone"}', "")
        for line in page_of(metrics).decode().splitlines()
        if "process_" not in line
    }
    assert {_sorted_labels(line) for line in ours} == {_sorted_labels(line) for line in theirs}


def _sorted_labels(line: str) -> str:
    head, brace, rest = line.partition("{")
    if not brace or line.startswith("#"):
        return line
    labels, _, number = rest.rpartition("} ")
    return f"{head}{sorted(labels.split(','))} {float(number)}"


async def test_a_page_is_kept_for_a_while() -> None:
    """Scrapers that come together cost one rendering; after the time, or a change of role, it is made anew."""
    clock = FakeClock()
    metrics = Metrics(clock=clock, cache_seconds=5.0)
    first, second = await asyncio.gather(metrics.render(), metrics.render())
    assert first is second
    metrics.drift("quota")
    assert await metrics.render() is first
    await clock.advance(5.1)
    third = await metrics.render()
    assert b'kqueue_cache_drift_total{cause="quota",replica_role="standalone"} 1.0' in third
    metrics.set_role("leader")
    assert b'kqueue_cache_drift_total{cause="quota",replica_role="leader"} 1.0' in await metrics.render()


def test_collector_pauses_are_measured_inside_the_block_only() -> None:
    """The callback is removed at the end."""
    metrics = Metrics()
    before = list(gc.callbacks)
    with metrics.collector_pauses():
        gc.collect()
    assert gc.callbacks == before
    count = value(metrics, "kqueue_gc_pause_seconds_count", generation="2")
    assert count is not None
    assert count >= 1


async def test_a_held_loop_is_measured() -> None:
    """The probe reports how late it woke."""
    clock = FakeClock()
    metrics = Metrics(clock=clock)
    probe = LoopProbe(clock=clock, metrics=metrics, interval=1.0, limit=0.05)
    task = asyncio.create_task(probe.run())
    await asyncio.sleep(0)
    await clock.advance(1.0)
    assert probe.worst == 0.0
    clock._elapsed += 3.5  # the loop did not turn for so long
    await clock.advance(0.0)
    task.cancel()
    assert probe.worst == pytest.approx(2.5)
    assert value(metrics, "kqueue_loop_lag_seconds_count") == 2


def test_groups_that_gates_switch_off_are_not_shown() -> None:
    """The places of cohorts, and the time from a job to its Workload: counted by nobody, and no error."""
    shown, hidden = Metrics(), Metrics(groups=MetricGroups(cohorts=False, creation_latency=False))
    for metrics in (shown, hidden):
        metrics.cohort("all").place([], root="all")
        metrics.workload_created(job_kind="Job", seconds=1.0)
        metrics.forget_cohort("other")

    pages = [page_of(metrics).decode() for metrics in (shown, hidden)]
    assert ['kueue_cohort_info{cohort="all"' in page for page in pages] == [True, False]
    assert ['job_kind="Job"' in page for page in pages] == [True, False]


def test_admissions_are_counted_for_the_cohorts_that_were_above_the_queue_then() -> None:
    """A queue that moves takes nothing along; those with checks count when they are admitted."""
    metrics = Metrics()
    metrics.cohorts_above = lambda _queue: ("team", "root")
    queue = metrics.cluster_queue("q")
    queue.quota_reserved(priority_class="p", waited=1, admitted=True)
    queue.quota_reserved(priority_class="p", waited=1, admitted=False)
    queue.admitted(priority_class="p", waited=1, since_reserved=1)
    queue.place(["other", "root"])
    queue.quota_reserved(priority_class="p", waited=1, admitted=True)
    name = "kueue_cohort_subtree_admitted_workloads_total"

    shown = {cohort: value(metrics, name, cohort=cohort, priority_class="p") for cohort in ("team", "other", "root")}
    assert shown == {"team": 2, "other": 1, "root": 3}
    assert value(metrics, "kueue_admitted_workloads_total", cluster_queue="q", priority_class="p") == 3


def test_what_is_not_above_nothing_has_no_series_of_a_cohort() -> None:
    """Quota and reservations of columns that are empty disappear, and all of a cohort that is gone."""
    metrics = Metrics()
    for quota in ({("f", "cpu"): 4.0, ("f", "gpu"): 8.0}, {("f", "cpu"): 0.0, ("f", "gpu"): 8.0}):
        metrics.cohort("c").subtree(quota=quota, reserved={}, admitted={(): 1})
    metrics.cohort("c").share(float("inf"))
    shown = {dict(labels)["resource"] for name, labels in series(metrics) if name == "kueue_cohort_subtree_quota"}
    assert shown == {"gpu"}
    assert value(metrics, "kueue_cohort_weighted_share", cohort="c") == float("inf")

    late = metrics.cohort("c")
    metrics.forget_cohort("c")
    late.share(1)
    assert names_with(metrics, "cohort", "c") == set()


def test_room_that_is_not_named_any_more_has_no_series() -> None:
    """Sizes and levels come and go with the cluster; a flavor that is gone leaves none."""
    metrics = Metrics()
    lost = {("rack", 1): 0.0, ("rack", 2): 0.5}
    metrics.room("f", slots={("rack", 1): 4, ("rack", 2): 2}, broken={("rack", "gpu"): 0.25}, lost=lost)
    assert value(metrics, "kqueue_gang_fragmentation_ratio", flavor="f", level="rack", nodes="2") == 0.5
    metrics.room("f", slots={("rack", 1): 3}, broken={("rack", "gpu"): 0.5}, lost={("rack", 1): 0.0})
    assert value(metrics, "kqueue_gang_fragmentation_ratio", flavor="f", level="rack", nodes="2") is None
    assert value(metrics, "kqueue_gang_slots", flavor="f", level="rack", nodes="1") == 3
    assert value(metrics, "kqueue_gang_slots", flavor="f", level="rack", nodes="2") is None
    assert value(metrics, "kqueue_fragmentation_ratio", flavor="f", level="rack", resource="gpu") == 0.5

    metrics.forget_flavor("f")
    assert names_with(metrics, "flavor", "f") == set()


def test_a_watch_of_a_kind_that_is_not_served_has_no_age() -> None:
    """It comes when the kind does, and goes with it."""
    metrics, ages = Metrics(), iter([None, 3.0, None])
    metrics.watch_age("jobsets", lambda: next(ages))

    assert [value(metrics, "kqueue_watch_age_seconds", kind="jobsets") for _ in range(3)] == [None, 3, None]


async def test_rendering_leaves_threads_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """It hands the interpreter on sooner while it lasts, and no longer, also when it fails."""
    metrics, before, during = Metrics(cache_seconds=0.0), sys.getswitchinterval(), []
    monkeypatch.setattr(time, "sleep", lambda _seconds: during.append(sys.getswitchinterval()))
    await metrics.render()
    assert sys.getswitchinterval() == before
    assert max(during) < before

    class Fails:
        def collect(self) -> Iterator[Metric]:
            raise RuntimeError("a bug of a collector")

    metrics._groups[0][0].register(Fails())
    with pytest.raises(RuntimeError, match="a bug"):
        await metrics.render()
    assert sys.getswitchinterval() == before
