"""Limits on the preemption of running workloads: annotations of ClusterQueues, jobs and Workloads.

All functions take the annotations of an object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta

from kqueue.api import names, run_names
from kqueue.config.duration import whole_seconds
from kqueue.core.lost_work import NO_FACTS, RunFacts, parse_pod_seconds
from kqueue.model.moving import checkpoint_habits, last_checkpoint

Annotations = Mapping[str, str]

_TRAITS = frozenset(run_names.RUN_TRAITS)


def _read(annotations: Annotations, key: str, parse: Callable[[str], int]) -> tuple[int | None, str]:
    """Return the number in an annotation (None: absent or wrong), and its problem (empty: none)."""
    text = annotations.get(key)
    try:
        return None if text is None else parse(text), ""
    except ValueError as e:
        return None, str(e)


def most_lost(annotations: Annotations) -> tuple[int | None, str]:
    """Return the pod-seconds of lost work above which workloads of a ClusterQueue are preempted last (None: there is
    no such limit), and the problem of the annotation (empty: none).
    """
    return _read(annotations, run_names.MOST_LOST_ANNOTATION, parse_pod_seconds)


def minimum_runtime(annotations: Annotations) -> tuple[int, str]:
    """Return the minimum runtime of a ClusterQueue's workloads in seconds, rounded up (0: none), and the problem of the
    annotation (empty: none).
    """
    seconds, problem = _read(annotations, names.MINIMUM_RUNTIME_ANNOTATION, whole_seconds)
    return seconds or 0, problem


def longest_runtime(annotations: Annotations) -> tuple[int | None, str]:
    """Return the longest minimum runtime that a job may ask for in seconds (None: that of the ClusterQueue), and the
    problem of the annotation (empty: none).
    """
    return _read(annotations, run_names.LONGEST_RUNTIME_ANNOTATION, whole_seconds)


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
    asked, _ = _read(annotations, names.MINIMUM_RUNTIME_ANNOTATION, whole_seconds)
    return RunFacts(
        minimum_runtime=None if asked is None else timedelta(seconds=asked),
        last_checkpoint=last_checkpoint(annotations),
        checkpoints=checkpoint_habits(annotations),
    )
