"""Names of promised, expected and learned run times, and of start times, which are kqueue's own."""

from __future__ import annotations

from typing import Final

EXPECTED_SECONDS_ANNOTATION: Final = "kqueue.dev/expected-seconds"
"""On jobs, pods, group objects and Workloads: how many seconds the user expects the workload to run, from 1 to
31536000; a guess, which ends nothing."""
DEADLINE_SECONDS_ANNOTATION: Final = "kqueue.dev/deadline-seconds"
"""On Workloads, written by kqueue: the seconds after which a field of the job itself ends each of its runs."""
RUN_TIME_TRAITS: Final = (EXPECTED_SECONDS_ANNOTATION, DEADLINE_SECONDS_ANNOTATION)
"""Annotations about run times, which Workloads get from their owners."""
RUN_TIMES_CONFIG_MAP: Final = "kqueue-run-times"
"""The ConfigMap of kqueue's namespace with what is learned about run times."""
RUN_TIMES_FIELD_MANAGER: Final = "kqueue-run-times"
"""Field manager of that ConfigMap's data."""
RUN_TIMES_KEY: Final = "summary.json"
"""Key of that ConfigMap's data."""
START_TIME_ANNOTATION: Final = "kqueue.dev/start-time"
"""On waiting Workloads, written by kqueue for people: when the workload starts, as JSON; nothing reads it as truth."""
