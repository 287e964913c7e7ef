"""The time that a workload still runs, by its run time and the time that it has run."""

from __future__ import annotations

from enum import Enum, auto

from kqueue.core.future.run_time import RunTime


class Quantile(Enum):
    """Which of the two run times of a workload a drain takes."""

    P50 = auto()
    P90 = auto()


def remaining(run_time: RunTime, elapsed: int, quantile: Quantile) -> int | None:
    """Return the seconds after which a workload ends that has run for `elapsed` seconds, at least 1; None: not known.

    A workload that has run for longer than half of its kind is taken to end with the slowest tenth; beyond that, with
    the limit that ends it.
    """
    candidates = [run_time.p90, run_time.promised]
    if quantile is Quantile.P50:
        candidates.insert(0, run_time.p50)
    return next((total - elapsed for total in candidates if total is not None and total > elapsed), None)
