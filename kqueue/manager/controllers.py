"""The controllers of a process: one `setup` each, in the order in which they subscribe to the watches."""

from __future__ import annotations

from collections.abc import Mapping

from kqueue.controllers import (
    admission_check,
    admission_gates,
    batch_process,
    batch_process_copies,
    budgets,
    check_kinds,
    composed,
    concurrent_admission,
    configuration,
    defrag_proposals,
    defragmentation,
    disruption_budgets,
    elastic_gates,
    elastic_ungater,
    finalizers,
    forged_pods,
    gang,
    gang_status,
    gate_sweeper,
    job,
    node_classes,
    node_health,
    plugin_checks,
    pod,
    queue_status,
    quota_from_capacity,
    run_times,
    second_pass,
    switched_off,
    topology_ungater,
    unmanaged,
    workload,
    workload_priority,
)
from kqueue.controllers.manager import Setup

SETUPS: Mapping[str, tuple[Setup, ...]] = {
    "core": (
        queue_status.setup,
        finalizers.setup,
        admission_check.setup,
        plugin_checks.setup,
        check_kinds.setup,
        workload.setup,
        unmanaged.setup,
        configuration.setup,
        workload_priority.setup,
        concurrent_admission.setup,
        node_classes.setup,
        quota_from_capacity.setup,
        budgets.setup,
        run_times.setup,
    ),
    "topology": (topology_ungater.setup, gate_sweeper.setup, node_health.setup),
    "jobs": (
        forged_pods.setup,
        elastic_ungater.setup,
        elastic_gates.setup,
        job.setup,
        pod.setup,
        batch_process.setup,
        batch_process_copies.setup,
        gang.setup,
        gang_status.setup,
        admission_gates.setup,
        switched_off.setup,
        composed.setup,
    ),
    "scheduler": (second_pass.setup, disruption_budgets.setup, defrag_proposals.setup, defragmentation.setup),
}
"""By the part of kqueue that they belong to; `webhooks` has none."""
