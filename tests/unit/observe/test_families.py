"""Every family that there is, with its type and its labels: dashboards and alerts go by them."""

from __future__ import annotations

import pytest

from kqueue.observe import Metrics
from kqueue.observe.metric_groups import MetricGroups
from tests.readings import page_of

KUEUE = """
kueue_admission_attempts_total                            counter   result
kueue_admission_attempt_duration_seconds                  histogram result
kueue_admission_cycle_preemption_skips                    gauge     cluster_queue
kueue_preemption_target_recomputations_total              counter   cluster_queue result
kueue_build_info                                          gauge     git_version git_commit build_date go_version compiler platform
kueue_pending_workloads                                   gauge     cluster_queue status
kueue_pending_scheduling_hashes                           gauge     cluster_queue status
kueue_finished_workloads                                  gauge     cluster_queue
kueue_quota_reserved_workloads_total                      counter   cluster_queue priority_class
kueue_quota_reserved_wait_time_seconds                    histogram cluster_queue priority_class
kueue_admitted_workloads_total                            counter   cluster_queue priority_class
kueue_admission_wait_time_seconds                         histogram cluster_queue priority_class
kueue_admission_checks_wait_time_seconds                  histogram cluster_queue priority_class
kueue_ready_wait_time_seconds                             histogram cluster_queue priority_class
kueue_admitted_until_ready_wait_time_seconds              histogram cluster_queue priority_class
kueue_pods_ready_to_evicted_time_seconds                  histogram cluster_queue reason underlying_cause
kueue_finished_workloads_total                            counter   cluster_queue priority_class
kueue_execution_time_seconds                              histogram cluster_queue priority_class
kueue_evicted_workloads_total                             counter   cluster_queue reason underlying_cause priority_class
kueue_evicted_workloads_once_total                        counter   cluster_queue reason underlying_cause priority_class
kueue_preempted_workloads_total                           counter   preempting_cluster_queue reason
kueue_workload_eviction_latency_seconds                   histogram cluster_queue reason
kueue_reserving_active_workloads                          gauge     cluster_queue
kueue_admitted_active_workloads                           gauge     cluster_queue
kueue_cluster_queue_status                                gauge     cluster_queue status
kueue_unadmitted_workloads                                gauge     cluster_queue reason underlying_cause
kueue_workload_creation_latency_seconds                   histogram job_kind
kueue_pod_scheduling_gate_removal_seconds                 histogram cluster_queue name is_group
kueue_cluster_queue_resource_reservation                  gauge     cluster_queue cohort flavor resource
kueue_cluster_queue_resource_usage                        gauge     cluster_queue cohort flavor resource
kueue_cluster_queue_nominal_quota                         gauge     cluster_queue cohort flavor resource
kueue_cluster_queue_borrowing_limit                       gauge     cluster_queue cohort flavor resource
kueue_cluster_queue_lending_limit                         gauge     cluster_queue cohort flavor resource
kueue_cluster_queue_resource_pending                      gauge     cluster_queue resource
kueue_cluster_queue_weighted_share                        gauge     cluster_queue cohort
kueue_cluster_queue_info                                  gauge     cluster_queue parent_cohort root_cohort
kueue_cohort_weighted_share                               gauge     cohort
kueue_cohort_info                                         gauge     cohort parent_cohort root_cohort
kueue_cohort_subtree_quota                                gauge     cohort flavor resource
kueue_cohort_subtree_resource_reservations                gauge     cohort flavor resource
kueue_cohort_subtree_admitted_workloads_total             counter   cohort priority_class
kueue_cohort_subtree_admitted_active_workloads            gauge     cohort
kueue_local_queue_pending_workloads                       gauge     name namespace status
kueue_local_queue_status                                  gauge     name namespace active
kueue_local_queue_unadmitted_workloads                    gauge     name namespace cluster_queue reason underlying_cause
kueue_local_queue_finished_workloads                      gauge     name namespace
kueue_local_queue_reserving_active_workloads              gauge     name namespace
kueue_local_queue_admitted_active_workloads               gauge     name namespace
multikueue_workloads_dispatched_total                     counter   cluster_queue cluster
multikueue_workloads_admitted_total                       counter   cluster_queue cluster
kueue_local_queue_resource_reservation                    gauge     name namespace flavor resource
kueue_local_queue_resource_usage                          gauge     name namespace flavor resource
kueue_local_queue_admission_fair_sharing_usage            gauge     name namespace cluster_queue
kueue_local_queue_quota_reserved_workloads_total          counter   name namespace priority_class
kueue_local_queue_finished_workloads_total                counter   name namespace priority_class
kueue_local_queue_admitted_workloads_total                counter   name namespace priority_class
kueue_local_queue_evicted_workloads_total                 counter   name namespace reason underlying_cause priority_class
kueue_local_queue_quota_reserved_wait_time_seconds        histogram name namespace priority_class
kueue_local_queue_admission_checks_wait_time_seconds      histogram name namespace priority_class
kueue_local_queue_ready_wait_time_seconds                 histogram name namespace priority_class
kueue_local_queue_admitted_until_ready_wait_time_seconds  histogram name namespace priority_class
kueue_local_queue_admission_wait_time_seconds             histogram name namespace priority_class
kueue_local_queue_execution_time_seconds                  histogram name namespace priority_class
"""
"""What dashboards of the compatible system ask for."""

ABSENT = {
    "kueue_replaced_workload_slices_total": "counted there without being shown",
}
"""Names that are known there and mean nothing here, with the reason."""

B14 = ["1.0", *(str(2.5 * 2**k) for k in range(13)), "+Inf"]
B16 = ["1.0", *(str(2.5 * 2**k) for k in range(15)), "+Inf"]
DEFAULT = [".005", ".01", ".025", ".05", ".075", ".1", ".25", ".5", ".75", "1", "2.5", "5", "7.5", "10", "+Inf"]


THEIRS = ("kueue_", "multikueue_")
"""How names of the compatible system begin."""


def everything() -> Metrics:
    return Metrics(groups=MetricGroups(cluster_queue_resources=True, dashboard=True))


def rows(text: str) -> dict[str, tuple[str, frozenset[str]]]:
    return {line.split()[0]: (line.split()[1], frozenset(line.split()[2:])) for line in text.strip().splitlines()}


def test_what_is_named_as_in_the_compatible_system_is_the_same() -> None:
    """Names, types and labels, none less and none more."""
    found = {name: (kind, frozenset(labels)) for name, kind, labels in everything().described()}

    assert {name: row for name, row in found.items() if name.startswith(THEIRS)} == rows(KUEUE)
    assert not found.keys() & ABSENT.keys()


def test_names_of_ours_have_a_prefix_of_ours() -> None:
    """Others are those of libraries that everybody's dashboards know."""
    others = {name for name, *_ in everything().described() if not name.startswith((*THEIRS, "kqueue_"))}

    assert others == {
        "leader_election_master_status",
        "workqueue_depth",
        "controller_runtime_reconcile_total",
        "controller_runtime_reconcile_time_seconds",
    }


@pytest.mark.parametrize(
    ("name", "want"),
    [
        pytest.param("kueue_quota_reserved_wait_time_seconds", B14, id="reserved"),
        pytest.param("kueue_admission_wait_time_seconds", B16, id="admitted"),
        pytest.param("kueue_execution_time_seconds", B16, id="ran"),
        pytest.param("kueue_local_queue_execution_time_seconds", B16, id="ran-of-a-local-queue"),
        pytest.param("kueue_local_queue_admission_wait_time_seconds", B14, id="admitted-of-a-local-queue"),
        pytest.param("kueue_workload_eviction_latency_seconds", B14, id="gave-back"),
        pytest.param("kueue_pods_ready_to_evicted_time_seconds", B14, id="ready"),
        pytest.param("kueue_admission_attempt_duration_seconds", DEFAULT, id="cycles"),
        pytest.param("kueue_pod_scheduling_gate_removal_seconds", DEFAULT, id="gates"),
        pytest.param("kueue_workload_creation_latency_seconds", [str(0.01 * 2**k) for k in range(11)] + ["+Inf"],
                     id="creation"),
    ],
)  # fmt: skip
def test_buckets_are_those_of_the_compatible_system(name: str, want: list[str]) -> None:
    """Quantiles of both can be laid side by side."""
    metrics = everything()
    for queue in (metrics.cluster_queue("q"), metrics.local_queue(namespace="ns", name="q")):
        queue.quota_reserved(priority_class="", waited=1, admitted=True)
        queue.finished(priority_class="", ran=1)
    queue = metrics.cluster_queue("q")
    queue.eviction_ended(reason="r", took=1)
    queue.evicted(reason="r", underlying_cause="", priority_class="", first=True, since_ready=1)
    queue.gate_removed(gate="g", is_group=False, since_admitted=1)
    metrics.attempt(success=True, seconds=1)
    metrics.workload_created(job_kind="Job", seconds=1)
    bounds = [
        line.partition('le="')[2].partition('"')[0]
        for line in page_of(metrics).decode().splitlines()
        if line.startswith(f"{name}_bucket")
    ]

    assert [float(bound) for bound in bounds] == [float(bound) for bound in want]
