"""How long a workload runs from its start: what is promised, and what is known of such workloads."""

from __future__ import annotations

from enum import StrEnum

from kqueue.core.value import value


class RunTimeSource(StrEnum):
    """The origin of a run time."""

    PROMISED = "Promised"
    """A limit that ends the workload: its maximum execution time, or the active deadline of its job."""
    EXPECTED = "Expected"
    """The annotation `kqueue.dev/expected-seconds`: a guess of its user, which ends nothing."""
    LEARNED = "Learned"
    """Runs of workloads of the same LocalQueue, owner and shape."""
    UNKNOWN = "Unknown"


@value(kw_only=True)
class RunTime:
    """The run time of one workload, in whole seconds from its admission.

    Args:
        p50, p90: the seconds within which half, and nine of ten, of such workloads end; None: not known.  Neither is
            above `promised`.
        promised: the seconds after which a limit ends the workload; None: there is no limit.
        source: the origin of p50 and p90.
        samples: the number of runs behind a learned run time, else 0.
    """

    p50: int | None = None
    p90: int | None = None
    promised: int | None = None
    source: RunTimeSource = RunTimeSource.UNKNOWN
    samples: int = 0


NOT_KNOWN = RunTime()
"""Nothing is known."""
