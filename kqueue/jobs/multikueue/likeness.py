"""Compare the spec of a copy with the workload's."""

from __future__ import annotations

from enum import Enum

import msgspec

from kqueue.api.wire import kueue as wire
from kqueue.jobs.fields import JSON
from kqueue.jobs.meaning import same

_OWN_OF_EACH_CLUSTER = ("preemptionGates", "active")
"""Fields that manager and worker set for themselves: gates, and the deactivation that follows an eviction."""
_PRIORITY = ("priority", "priorityClassRef")


class Likeness(Enum):
    """How a copy differs from the workload."""

    SAME = "same"
    BEHIND = "behind"
    """The copy gets the priority and the counts of the workload; it need not start anew."""
    OTHER = "other"
    """The copy is of another workload, or of an earlier state, and must go."""


def likeness(workload: wire.Workload, copy: wire.Workload, *, is_elastic: bool) -> Likeness:
    """Return how a copy differs, by meaning: `1` cpu is `1000m`."""
    ours, theirs = _compared(workload), _compared(copy)
    if same(ours, theirs):
        return Likeness.SAME
    for key in _PRIORITY:
        theirs.pop(key, None)
        if key in ours:
            theirs[key] = ours[key]
    if is_elastic and _only_shrinks(workload, copy):
        theirs["podSets"] = [
            {**pods, "count": own.count} for pods, own in zip(theirs["podSets"], workload.spec.pod_sets, strict=True)
        ]
    return Likeness.BEHIND if same(ours, theirs) else Likeness.OTHER


def _compared(workload: wire.Workload) -> JSON:
    spec: JSON = msgspec.to_builtins(workload.spec)
    return {key: value for key, value in spec.items() if key not in _OWN_OF_EACH_CLUSTER}


def _only_shrinks(workload: wire.Workload, copy: wire.Workload) -> bool:
    ours = [(pods.name, pods.count) for pods in workload.spec.pod_sets]
    theirs = [(pods.name, pods.count) for pods in copy.spec.pod_sets]
    return [name for name, _ in ours] == [name for name, _ in theirs] and all(
        mine <= count for (_, mine), (_, count) in zip(ours, theirs, strict=True)
    )
