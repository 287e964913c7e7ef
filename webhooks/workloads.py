"""What the schema cannot say about Workloads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kqueue.api import names
from kqueue.core.quantity import parse_quantity
from kqueue.errors import FieldError
from kqueue.jobs import rules, syntax
from kqueue.jobs.fields import condition_status, mapping, objects, text, whole
from kqueue.jobs.switches import Switches

Object = Mapping[str, Any]


def defaults(obj: Object, switches: Switches) -> dict[str, Any]:
    """The merge patch on create: without partial admission no pod set has a minimum count."""
    if switches.partial_admission:
        return {}
    pod_sets = objects(obj, "spec", "podSets")
    if not any("minCount" in p for p in pod_sets):
        return {}
    return {"spec": {"podSets": [{k: v for k, v in p.items() if k != "minCount"} for p in pod_sets]}}


def problems(new: Object, old: Object | None, switches: Switches) -> list[FieldError]:
    """Every mistake in a Workload; `old` is None on create."""
    found = [*_pod_set_problems(new, switches), *_status_problems(new, old)]
    found += rules.gate_problems(new) if switches.admission_gated_by else ()
    if old is not None:
        found += _change_problems(new, old)
    return found


def _pod_set_problems(obj: Object, switches: Switches) -> Iterator[FieldError]:
    pod_sets = objects(obj, "spec", "podSets")
    if sum(1 for p in pod_sets if p.get("minCount") is not None) > 1:
        yield FieldError("spec.podSets", "only one pod set may have minCount; remove it from the others")
    for i, pod_set in enumerate(pod_sets):
        path = f"spec.podSets[{i}]"
        template = mapping(pod_set, "template")
        if switches.pod_set_metadata:
            meta = mapping(template, "metadata")
            yield from syntax.check_labels(mapping(meta, "labels"), f"{path}.template.metadata.labels")
            yield from syntax.check_annotations(mapping(meta, "annotations"), f"{path}.template.metadata.annotations")
        yield from _resource_problems(mapping(template, "spec"), f"{path}.template.spec", switches)
        if switches.slice_size:
            yield from _slice_problems(mapping(pod_set, "topologyRequest"), f"{path}.topologyRequest")


def _resource_problems(spec: Object, path: str, switches: Switches) -> Iterator[FieldError]:
    owners: list[tuple[str, Object]] = []
    for kind in ("initContainers", "containers"):
        owners += [(f"{path}.{kind}[{i}]", container) for i, container in enumerate(objects(spec, kind))]
    for where, owner in [*owners, (path, spec)]:
        for kind in ("requests", "limits"):
            for resource, amount in mapping(owner, "resources", kind).items():
                at = f"{where}.resources.{kind}[{resource}]"
                if resource == names.PODS_RESOURCE:
                    yield FieldError(at, "is counted by kqueue itself; remove it", amount)
                elif switches.non_negative and _negative(amount, resource):
                    yield FieldError(at, "must not be negative; write 0 or more", amount)


def _negative(amount: Any, resource: str) -> bool:
    try:
        return parse_quantity(amount, resource) < 0
    except (ValueError, TypeError):
        return False  # said by the reconciler, which has to live with what is stored anyway


def _slice_problems(request: Object, path: str) -> Iterator[FieldError]:
    level, size = text(request, "podSetSliceRequiredTopology"), whole(request, "podSetSliceSize")
    if level and not size:
        yield FieldError(f"{path}.podSetSliceSize", "must be given together with podSetSliceRequiredTopology")
    if size is not None and not level:
        yield FieldError(f"{path}.podSetSliceRequiredTopology", "must be given together with podSetSliceSize")


def _status_problems(obj: Object, old: Object | None) -> Iterator[FieldError]:
    counts = {text(p, "name") or names.DEFAULT_PODSET: whole(p, "count") for p in objects(obj, "spec", "podSets")}
    admission = mapping(obj, "status", "admission")
    if condition_status(obj, names.CONDITION_QUOTA_RESERVED) == "True":
        broken_before = old is not None and _reserves_nothing(old)
        if not admission and not broken_before:
            yield FieldError("status.admission", "must be set while quota is reserved")
        for i, assigned in enumerate(objects(admission, "podSetAssignments")):
            if (text(assigned, "name") or names.DEFAULT_PODSET) not in counts:
                path = f"status.admission.podSetAssignments[{i}].name"
                yield FieldError(path, "is not one of the pod sets", text(assigned, "name"))
    for i, entry in enumerate(objects(obj, "status", "reclaimablePods")):
        name, count = text(entry, "name"), whole(entry, "count") or 0
        if name not in counts:
            yield FieldError(f"status.reclaimablePods[{i}].name", "is not one of the pod sets", name)
        elif count > (counts[name] or 0):
            problem = f"must not be above the pod set's count of {counts[name]}"
            yield FieldError(f"status.reclaimablePods[{i}].count", problem, count)


def _reserves_nothing(obj: Object) -> bool:
    reserved = condition_status(obj, names.CONDITION_QUOTA_RESERVED) == "True"
    return reserved and not mapping(obj, "status", "admission")


def _change_problems(new: Object, old: Object) -> Iterator[FieldError]:
    yield from rules.gate_change_problems(new, old)
    reserved = condition_status(old, names.CONDITION_QUOTA_RESERVED) == "True"
    if reserved and _shapes(new) != _shapes(old):
        yield FieldError("spec.podSets", "cannot change while quota is reserved; evict the workload first")
    before, after = mapping(old, "status", "admission"), mapping(new, "status", "admission")
    if before and after and _fixed(before) != _fixed(after):
        problem = "cannot change as long as it is set, but for topologyAssignment and delayedTopologyRequest"
        yield FieldError("status.admission", problem)


def _shapes(obj: Object) -> list[Object]:
    return [{k: v for k, v in p.items() if v not in (None, {}, [])} for p in objects(obj, "spec", "podSets")]


def _fixed(admission: Object) -> tuple[str, list[Object]]:
    """The part of an admission that may not change."""
    changing = ("topologyAssignment", "delayedTopologyRequest")
    assigned: list[Object] = [
        {k: v for k, v in a.items() if k not in changing} for a in objects(admission, "podSetAssignments")
    ]
    return text(admission, "clusterQueue"), assigned
