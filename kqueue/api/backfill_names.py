"""Names of backfill by time."""

from __future__ import annotations

from typing import Final

BACKFILL_ANNOTATION: Final = "kqueue.dev/backfill"
"""On ClusterQueues and Cohorts: the first workload in line that does not fit gets a planned start, and workloads behind
it start only if they do not delay it.  `time`: they fit beside it, or a limit ends them before; `expected`: guessed run
times count like limits; `none`: neither, also below a Cohort with another value."""
