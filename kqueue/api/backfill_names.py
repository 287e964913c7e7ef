"""Names of backfill by time."""

from __future__ import annotations

from typing import Final

BACKFILL_ANNOTATION: Final = "kqueue.dev/backfill"
"""On ClusterQueues and Cohorts: the first workload in line that does not fit gets a planned start, and workloads behind
it start only if they do not delay it.  `time`: they fit beside it, or a limit ends them before; `expected`: guessed run
times count like limits; `enforced`: as `expected`, and a workload that started so and runs longer is evicted when the
planned start is due; `none`: none of these, also below a Cohort with another value."""
REASON_BACKFILL_OVERRUN: Final = "BackfillOverrun"
"""It started in room that is kept for a planned start, because it was expected to end before, and it still ran when the
planned start was due."""
