"""Annotations about how long a workload runs undisturbed, and what its preemption costs, which are kqueue's own."""

from __future__ import annotations

from typing import Final

from kqueue.api.move_names import MOVE_TRAITS
from kqueue.api.names import MINIMUM_RUNTIME_ANNOTATION

LONGEST_RUNTIME_ANNOTATION: Final = "kqueue.dev/longest-minimum-runtime"
"""On ClusterQueues: the longest minimum runtime that a job may ask for, a duration such as 1h; without it, that of the
ClusterQueue itself."""
MOST_LOST_ANNOTATION: Final = "kqueue.dev/most-lost-pod-seconds"
"""On ClusterQueues: workloads whose preemption would lose more pod-seconds of work are preempted after all others."""
RUN_TRAITS: Final = (*MOVE_TRAITS, MINIMUM_RUNTIME_ANNOTATION)
"""Annotations that count while a workload runs, and that Workloads get from their jobs."""
