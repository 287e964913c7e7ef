"""Annotations about moves of running workloads, which are kqueue's own."""

from __future__ import annotations

from typing import Final

RESCHEDULE_ANNOTATION: Final = "kqueue.dev/reschedule"
"""On jobs, Workloads and ClusterQueues (the former win): whether plans may move a running workload: `Never` (the
default), `AfterCheckpoint` or `Always`."""
LAST_CHECKPOINT_ANNOTATION: Final = "kqueue.dev/last-checkpoint"
"""On jobs and Workloads: when the workload wrote its last checkpoint, as in 2026-01-02T15:04:05Z."""
CHECKPOINT_INTERVAL_ANNOTATION: Final = "kqueue.dev/checkpoint-interval"
"""On jobs and Workloads: how often the workload writes a checkpoint, a duration such as 30m; for workloads that do not
write when they did."""
RESTART_SECONDS_ANNOTATION: Final = "kqueue.dev/restart-seconds"
"""On jobs and Workloads: how many seconds a restart takes until the workload goes on; 60 without it."""
MOVE_TRAITS: Final = (
    RESCHEDULE_ANNOTATION,
    LAST_CHECKPOINT_ANNOTATION,
    CHECKPOINT_INTERVAL_ANNOTATION,
    RESTART_SECONDS_ANNOTATION,
)
"""Annotations about moves, which Workloads get from their jobs."""
