"""Check changes of a Workload.  Values are compared semantically: absent equals empty, quantities compare by value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kqueue.api import names
from kqueue.errors import FieldError
from kqueue.jobs import rules
from kqueue.jobs.fields import annotations_of, condition_status, mapping, objects, sequence, text, whole
from kqueue.jobs.meaning import same
from kqueue.jobs.switches import JobFeatures

Object = Mapping[str, Any]
_PLACEMENT = ("topologyAssignment", "delayedTopologyRequest")
"""Fields of an assignment that are set later than the others, and again when nodes fail."""


def name_of(pod_set: Object) -> str:
    """Return the name of a pod set or of its assignment."""
    return text(pod_set, "name") or names.DEFAULT_PODSET


def counts_of(workload: Object) -> dict[str, int]:
    """Return pods per pod set; a missing count is the schema's default."""
    counts = ((name_of(p), whole(p, "count")) for p in objects(workload, "spec", "podSets"))
    return {name: 1 if count is None else count for name, count in counts}


def reclaimable_of(workload: Object) -> dict[str, int]:
    """Return reclaimable pods per pod set."""
    return {text(r, "name"): whole(r, "count") or 0 for r in objects(workload, "status", "reclaimablePods")}


def problems(new: Object, old: Object, switches: JobFeatures) -> Iterator[FieldError]:
    """Yield changes that the state of a Workload does not allow."""
    if switches.admission_gated_by:
        yield from rules.gate_change_problems(new, old)
    if _reserved(old):
        yield from _pod_set_changes(new, old, switches)
    if _reserved(old) and _reserved(new):
        yield from _reclaimable_changes(new, old, switches)
    yield from _admission_changes(new, old, switches)
    yield from _check_changes(new, old)
    yield from _cluster_changes(new, old, switches)


def _reserved(workload: Object) -> bool:
    return condition_status(workload, names.CONDITION_QUOTA_RESERVED) == "True"


def _pod_set_changes(new: Object, old: Object, switches: JobFeatures) -> Iterator[FieldError]:
    before, after = objects(old, "spec", "podSets"), objects(new, "spec", "podSets")
    if len(before) != len(after):
        problem = "cannot be added or removed while quota is reserved; evict the workload first"
        yield FieldError("spec.podSets", problem)
        return
    for i, (was, now) in enumerate(zip(before, after, strict=True)):
        path = f"spec.podSets[{i}]"
        fewer, equal = _counts(now) < _counts(was), _counts(now) == _counts(was)
        if not equal and not (fewer and switches.elastic_jobs):
            yield FieldError(f"{path}.count", "cannot change while quota is reserved; evict the workload first")
        if not same({**was, "count": 0}, {**now, "count": 0}):
            yield FieldError(path, "cannot change while quota is reserved; evict the workload first")


def _counts(pod_set: Object) -> int:
    count = whole(pod_set, "count")
    return 1 if count is None else count


def _reclaimable_changes(new: Object, old: Object, switches: JobFeatures) -> Iterator[FieldError]:
    """Refuse to lower reclaimable pods: other workloads may use the released quota."""
    now = reclaimable_of(new)
    admitted = {name_of(a): whole(a, "count") or 0 for a in objects(new, "status", "admission", "podSetAssignments")}
    counts = counts_of(new)
    for name, before in reclaimable_of(old).items():
        shrunk = rules.is_elastic(new, switches) and admitted.get(name, 0) > counts.get(name, 0)
        if now.get(name, -1) < before and not shrunk:
            problem = f"pod set {name} cannot go below {before} while quota is reserved: it was given back"
            yield FieldError("status.reclaimablePods", problem, now.get(name))


def _admission_changes(new: Object, old: Object, switches: JobFeatures) -> Iterator[FieldError]:
    before, after = mapping(old, "status", "admission"), mapping(new, "status", "admission")
    if not before or not after or same(before, after):
        return
    if switches.topology and same(_without_placement(before), _without_placement(after)):
        return
    problem = f"cannot change as long as it is set, except for {' and '.join(_PLACEMENT)}; unset it first"
    yield FieldError("status.admission", problem)


def _without_placement(admission: Object) -> Object:
    """Return the admission without the parts of assignments that may change."""
    assigned = [
        {"name": name_of(a)} | {k: v for k, v in a.items() if k not in _PLACEMENT}
        for a in objects(admission, "podSetAssignments")
    ]
    return {**admission, "podSetAssignments": assigned}


def _check_changes(new: Object, old: Object) -> Iterator[FieldError]:
    before = {text(check, "name"): check for check in objects(old, "status", "admissionChecks")}
    for i, check in enumerate(objects(new, "status", "admissionChecks")):
        was = before.get(text(check, "name"), {})
        stays = text(was, "state") == text(check, "state") == names.CHECK_READY
        if stays and not same(was.get("podSetUpdates"), check.get("podSetUpdates")):
            path = f"status.admissionChecks[{i}].podSetUpdates"
            yield FieldError(path, "cannot change while the check is Ready: pods may run with them")


def _cluster_changes(new: Object, old: Object, switches: JobFeatures) -> Iterator[FieldError]:
    """Refuse a cluster to which the workload was not nominated."""
    cluster = text(new, "status", "clusterName")
    if not cluster or text(old, "status", "clusterName"):
        return
    replaces = names.WORKLOAD_SLICE_REPLACEMENT_FOR_ANNOTATION in annotations_of(new)
    if cluster not in sequence(old, "status", "nominatedClusterNames") and not (switches.elastic_jobs and replaces):
        yield FieldError("status.clusterName", "must be one of the nominatedClusterNames before", cluster)
