"""Counts of pods that the slices of one elastic job allow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire


def may_run(workload: wire.Workload) -> bool:
    """Whether pods of the Workload may run: it is admitted, neither evicted nor over, active, and not being deleted."""
    return (
        workload.status.admission is not None
        and model.condition_true(workload, names.CONDITION_QUOTA_RESERVED)
        and model.condition_true(workload, names.CONDITION_ADMITTED)
        and not model.condition_true(workload, names.CONDITION_EVICTED)
        and not model.is_over(workload)
        and workload.spec.active
        and workload.metadata.deletion_timestamp is None
    )


def is_elastic(workload: wire.Workload) -> bool:
    """Whether the Workload is a slice of an elastic job."""
    annotations = workload.metadata.annotations
    return bool(annotations.get(names.WORKLOAD_SLICE_NAME_ANNOTATION) or annotations.get(names.ELASTIC_JOB_ANNOTATION))


def newest_running(slices: Iterable[wire.Workload]) -> wire.Workload | None:
    """Return the newest slice whose pods may run, which replaces all older ones; None: no slice's pods may run."""
    running = [w for w in slices if may_run(w)]
    replaced = {model.replaced_key(w) for w in running}
    last = [w for w in running if model.workload_key(w) not in replaced] or running
    return max(last, key=lambda w: (str(w.metadata.creation_timestamp), w.metadata.uid), default=None)


def most_wanted(slices: Iterable[wire.Workload]) -> Mapping[str, int]:
    """Return, per pod set, the largest count that an unfinished slice requests, admitted or not."""
    found: dict[str, int] = {}
    for workload in slices:
        if not model.is_over(workload):
            for pod_set in workload.spec.pod_sets:
                found[pod_set.name] = max(found.get(pod_set.name, 0), pod_set.count)
    return found


def room(workload: wire.Workload) -> dict[str, int]:
    """Return, per pod set, the number of pods that may run: the admitted pods without the pods that have ended for
    good.
    """
    ended = dict(model.ended_pods(workload))
    counts = {p.name: p.count for p in workload.spec.pod_sets}
    return {name: min(counts[name] - ended.get(name, 0), most) for name, most in admitted(workload).items()}


def admitted(workload: wire.Workload) -> Mapping[str, int]:
    """Return, per pod set, the pods that the Workload requests now, at most the admitted ones."""
    assert workload.status.admission is not None
    most = {a.name: a.count for a in workload.status.admission.pod_set_assignments}
    return {
        p.name: p.count if (count := most[p.name]) is None else min(p.count, count)
        for p in workload.spec.pod_sets
        if p.name in most
    }
