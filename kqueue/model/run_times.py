"""Run times of Workloads: what is promised, what is expected, and how long the last run of a finished one took."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from kqueue.api import import_names, move_names, names, run_time_names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.meta import ObjectMeta
from kqueue.config.duration import parse_duration
from kqueue.core.future.seconds import expected_seconds, positive_seconds
from kqueue.model.conditions import condition
from kqueue.model.variants import parent_key

_LONGEST_DURATION = 100
"""The number of characters of a duration that are read."""


def expected_run_time(meta: ObjectMeta) -> int | None:
    """Return the seconds that the user expects: `kqueue.dev/expected-seconds`, else `kqueue.dev/expected-runtime`.

    None: neither is there and valid.
    """
    seconds = expected_seconds(meta.annotations.get(run_time_names.EXPECTED_SECONDS_ANNOTATION, ""))
    if seconds is not None:
        return seconds
    written = meta.annotations.get(names.EXPECTED_RUNTIME_ANNOTATION, "")
    if not written or len(written) > _LONGEST_DURATION:
        return None
    try:
        duration = parse_duration(written)
    except ValueError:
        return None
    return -(-duration // timedelta(seconds=1)) if duration >= timedelta(0) else None


def promised_run_time(obj: wire.Workload) -> int | None:
    """Return the seconds from an admission after which a limit ends the run; None: there is no limit.

    Earlier runs count towards the maximum execution time, and not towards the deadline of the job.  0: no time is left.
    """
    limits: list[int] = []
    if (most := obj.spec.maximum_execution_time_seconds) is not None:
        limits.append(max(0, most - max(0, obj.status.accumulated_past_execution_time_seconds or 0)))
    deadline = positive_seconds(obj.metadata.annotations.get(run_time_names.DEADLINE_SECONDS_ANNOTATION, ""))
    if deadline is not None:
        limits.append(deadline)
    return min(limits, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessfulRun:
    """A run that ended in success.

    Args:
        seconds: from its admission to its end; negative where a clock was set back.
        ended: the time of its end.
    """

    seconds: int
    ended: datetime


def successful_run(obj: wire.Workload) -> SuccessfulRun | None:
    """Return the last run of a Workload that finished in success, without evicted runs.

    None: it did not succeed, was never admitted, or its run is a part of its work only: it was imported while it ran,
    it is a variant or a slice of an elastic job, or it went on from a checkpoint after an eviction.
    """
    finished = condition(obj.status.conditions, names.CONDITION_FINISHED)
    admitted = condition(obj.status.conditions, names.CONDITION_ADMITTED)
    if finished is None or (finished.status, finished.reason) != ("True", names.REASON_SUCCEEDED):
        return None
    if admitted is None or admitted.status != "True" or _is_part(obj):
        return None
    began, ended = admitted.last_transition_time, finished.last_transition_time
    if began is None or ended is None:
        return None
    return SuccessfulRun(seconds=(ended - began) // timedelta(seconds=1), ended=ended)


def _is_part(obj: wire.Workload) -> bool:
    own = obj.metadata.annotations
    resumed = (obj.status.accumulated_past_execution_time_seconds or 0) > 0
    checkpoints = move_names.LAST_CHECKPOINT_ANNOTATION in own or move_names.CHECKPOINT_INTERVAL_ANNOTATION in own
    parts = (import_names.IMPORTED_ANNOTATION, names.ELASTIC_JOB_ANNOTATION)
    return any(key in own for key in parts) or parent_key(obj) is not None or (resumed and checkpoints)
