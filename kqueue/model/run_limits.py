"""Limits on the preemption of running workloads: annotations of ClusterQueues, jobs and Workloads.

All functions take the annotations of an object, so that the webhooks use them, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from kqueue.api import names, run_names
from kqueue.config.duration import parse_duration
from kqueue.core.lost_work import NO_FACTS, RunFacts
from kqueue.model.moving import checkpoint_habits, last_checkpoint

Annotations = Mapping[str, str]

_TRAITS = frozenset(run_names.RUN_TRAITS)
_MOST_DIGITS = 18
"""More digits would not fit an int64."""


def whole_seconds(annotations: Annotations, key: str) -> tuple[int | None, str]:
    """Return a duration of an annotation in seconds, rounded up (None: absent or wrong), and its problem (empty:
    none).
    """
    text = annotations.get(key)
    if text is None:
        return None, ""
    try:
        duration = parse_duration(text)
    except ValueError as e:
        return None, f"{text[:60]!r} {e}"
    if duration < timedelta(0):
        return None, f"{text[:60]!r} must not be negative; write 0 or more"
    return -(-duration // timedelta(seconds=1)), ""


def most_lost(annotations: Annotations) -> tuple[int | None, str]:
    """Return the pod-seconds of lost work above which workloads of a ClusterQueue are preempted last (None: there is
    no such limit), and the problem of the annotation (empty: none).
    """
    text = annotations.get(run_names.MOST_LOST_ANNOTATION)
    if text is None:
        return None, ""
    if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS:
        return int(text), ""
    return None, f"{text[:60]!r} must be a whole number of pod-seconds such as 360000"


def minimum_runtime(annotations: Annotations) -> tuple[int, str]:
    """Return the minimum runtime of a ClusterQueue's workloads in seconds, rounded up (0: none), and the problem of the
    annotation (empty: none).
    """
    seconds, problem = whole_seconds(annotations, names.MINIMUM_RUNTIME_ANNOTATION)
    return seconds or 0, problem


def longest_runtime(annotations: Annotations) -> tuple[int | None, str]:
    """Return the longest minimum runtime that a job may ask for in seconds (None: that of the ClusterQueue), and the
    problem of the annotation (empty: none).
    """
    return whole_seconds(annotations, run_names.LONGEST_RUNTIME_ANNOTATION)


def queue_problems(annotations: Annotations) -> list[tuple[str, str]]:
    """Return the wrong annotations of a ClusterQueue, each with its problem."""
    found = {
        names.MINIMUM_RUNTIME_ANNOTATION: minimum_runtime(annotations)[1],
        run_names.LONGEST_RUNTIME_ANNOTATION: longest_runtime(annotations)[1],
        run_names.MOST_LOST_ANNOTATION: most_lost(annotations)[1],
    }
    return [(key, problem) for key, problem in found.items() if problem]


def run_facts(annotations: Annotations) -> RunFacts:
    """Return what the user of a Workload says about its run; wrong values count as absent."""
    if _TRAITS.isdisjoint(annotations):
        return NO_FACTS
    asked, _ = whole_seconds(annotations, names.MINIMUM_RUNTIME_ANNOTATION)
    return RunFacts(
        minimum_runtime=None if asked is None else timedelta(seconds=asked),
        last_checkpoint=last_checkpoint(annotations),
        checkpoints=checkpoint_habits(annotations),
    )
