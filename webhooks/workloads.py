"""Check the rules of Workloads that their schema cannot express.

Writes to the status skip the rules of the spec: such writes cannot change the spec, and a stored mistake must not block
the controller's decision.  An object that is being deleted is not checked at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from kqueue.api import names
from kqueue.api.wire.core import PodTemplate
from kqueue.core.quantity import parse_quantity
from kqueue.errors import FieldError
from kqueue.jobs import rules, syntax
from kqueue.jobs.fields import annotations_of, condition_status, int_of, mapping, objects, text, whole
from kqueue.jobs.switches import JobFeatures
from kqueue.kube import names as kube_names
from webhooks import workload_changes
from webhooks.quota import being_deleted, toleration_problems

Object = Mapping[str, Any]
_BOOST = f"metadata.annotations[{names.PRIORITY_BOOST_ANNOTATION}]"


def defaults(obj: Object, switches: JobFeatures) -> dict[str, Any]:
    """Return the merge patch on create, which removes minimum counts if partial admission is off."""
    if switches.partial_admission:
        return {}
    pod_sets = objects(obj, "spec", "podSets")
    if not any("minCount" in p for p in pod_sets):
        return {}
    return {"spec": {"podSets": [{k: v for k, v in p.items() if k != "minCount"} for p in pod_sets]}}


def problems(new: Object, old: Object | None, switches: JobFeatures, *, subresource: str = "") -> list[FieldError]:
    """Return every mistake in a Workload; `old` is None on create, `subresource` is `status` for writes to it."""
    if being_deleted(new):
        return []
    found: list[FieldError] = []
    if subresource != "status":
        found += _pod_set_problems(new, switches)
        found += _annotation_problems(new, switches)
    found += _status_problems(new, old, switches)
    if old is not None:
        found += workload_changes.problems(new, old, switches)
    return found


def _annotation_problems(obj: Object, switches: JobFeatures) -> Iterator[FieldError]:
    if switches.admission_gated_by:
        yield from rules.gate_problems(obj)
    boost = annotations_of(obj).get(names.PRIORITY_BOOST_ANNOTATION)
    if switches.priority_boost and boost is not None and int_of(boost) is None:
        yield FieldError(_BOOST, "must be a whole number of 32 bits; write 0 for no boost", boost)


def _pod_set_problems(obj: Object, switches: JobFeatures) -> Iterator[FieldError]:
    pod_sets = objects(obj, "spec", "podSets")
    partial = [i for i, pod_set in enumerate(pod_sets) if pod_set.get("minCount") is not None]
    elastic = rules.is_elastic(obj, switches)
    for i in partial if elastic else partial[1:]:
        problem = "an elastic workload cannot have it" if elastic else "only one pod set may have it"
        yield FieldError(f"spec.podSets[{i}].minCount", f"{problem}; remove it", pod_sets[i]["minCount"])
    for i, pod_set in enumerate(pod_sets):
        path, template = f"spec.podSets[{i}]", mapping(pod_set, "template")
        if switches.pod_set_metadata:
            meta, at = mapping(template, "metadata"), f"{path}.template.metadata"
            yield from syntax.check_labels(mapping(meta, "labels"), f"{at}.labels")
            yield from syntax.check_annotations(mapping(meta, "annotations"), f"{at}.annotations")
        yield from _template_problems(template, f"{path}.template", switches)
        if switches.slice_size:
            yield from _slice_problems(mapping(pod_set, "topologyRequest"), f"{path}.topologyRequest")


def _template_problems(template: Object, path: str, switches: JobFeatures) -> Iterator[FieldError]:
    """Check the requests, and then whether the template can be parsed, because the schema keeps unknown content."""
    found = list(_resource_problems(mapping(template, "spec"), f"{path}.spec", switches))
    yield from found
    if mapping(template, "spec") and not isinstance(template["spec"].get("containers"), list):
        yield FieldError(f"{path}.spec.containers", "must be a list of containers")
    elif not found:
        try:
            msgspec.convert(template, PodTemplate)
        except msgspec.ValidationError as e:
            said, _, where = str(e).partition(" - at `$")
            yield FieldError(f"{path}{where.rstrip('`')}", f"is not what a pod template has there: {said}")


def _resource_problems(spec: Object, path: str, switches: JobFeatures) -> Iterator[FieldError]:
    owners: list[tuple[str, Object]] = []
    for kind in ("initContainers", "containers"):
        owners += [(f"{path}.{kind}[{i}]", container) for i, container in enumerate(objects(spec, kind))]
    for where, owner in [*owners, (path, spec)]:
        for kind in ("requests", "limits"):
            for resource, amount in mapping(owner, "resources", kind).items():
                at = f"{where}.resources.{kind}[{resource}]"
                if resource == kube_names.PODS_RESOURCE:
                    yield FieldError(at, "is counted by kqueue itself; remove it", amount)
                else:
                    yield from _amount_problems(amount, resource, at, switches)


def _amount_problems(amount: Any, resource: str, path: str, switches: JobFeatures) -> Iterator[FieldError]:
    try:
        negative = parse_quantity(amount, resource) < 0
    except ValueError as e:
        yield FieldError(path, str(e))
        return
    if negative and switches.non_negative:
        yield FieldError(path, "must not be negative; write 0 or more", amount)


def _slice_problems(request: Object, path: str) -> Iterator[FieldError]:
    level, size = text(request, "podSetSliceRequiredTopology"), whole(request, "podSetSliceSize")
    if level and size is None:
        yield FieldError(f"{path}.podSetSliceSize", "must be given together with podSetSliceRequiredTopology")
    if size is not None and not level:
        yield FieldError(f"{path}.podSetSliceRequiredTopology", "must be given together with podSetSliceSize")
    if size is not None and size < 1:
        yield FieldError(f"{path}.podSetSliceSize", "must be 1 or more", size)
    for i, layer in enumerate(objects(request, "podsetSliceRequiredTopologyConstraints")):
        if (whole(layer, "size") or 0) < 1:
            at = f"{path}.podsetSliceRequiredTopologyConstraints[{i}].size"
            yield FieldError(at, "must be 1 or more", layer.get("size"))


# ---- Status ----------------------------------------------------------------------------------------------------------


def _status_problems(obj: Object, old: Object | None, switches: JobFeatures) -> Iterator[FieldError]:
    counts = workload_changes.counts_of(obj)
    yield from _admission_problems(obj, old, counts)
    for i, condition in enumerate(objects(obj, "status", "conditions")):
        yield from syntax.check(syntax.label_key, text(condition, "type"), f"status.conditions[{i}].type")
    yield from _reclaimable_problems(obj, old, counts, switches)
    for c, check in enumerate(objects(obj, "status", "admissionChecks")):
        for u, update in enumerate(objects(check, "podSetUpdates")):
            yield from _update_problems(update, f"status.admissionChecks[{c}].podSetUpdates[{u}]", counts)


def _admission_problems(obj: Object, old: Object | None, counts: Mapping[str, int]) -> Iterator[FieldError]:
    """Check that a Workload with quota has an admission, and that its numbers match the pod sets."""
    if condition_status(obj, names.CONDITION_QUOTA_RESERVED) != "True":
        return
    admission = mapping(obj, "status", "admission")
    if not admission:
        if old is None or not _reserves_nothing(old):  # an update may keep a mistake of the old object
            yield FieldError("status.admission", "must be set while quota is reserved")
        return
    for i, assigned in enumerate(objects(admission, "podSetAssignments")):
        path, name = f"status.admission.podSetAssignments[{i}]", workload_changes.name_of(assigned)
        if name not in counts:
            yield FieldError(f"{path}.name", "is not one of the pod sets", name)
        count = whole(assigned, "count") or 0
        for resource, amount in mapping(assigned, "resourceUsage").items():
            at = f"{path}.resourceUsage[{resource}]"
            try:
                total = parse_quantity(amount, resource)
            except ValueError as e:
                yield FieldError(at, str(e))
                continue
            if count > 0 and total % count:
                yield FieldError(at, f"must be a multiple of the pod set's count of {count}", amount)


def _reserves_nothing(obj: Object) -> bool:
    reserved = condition_status(obj, names.CONDITION_QUOTA_RESERVED) == "True"
    return reserved and not mapping(obj, "status", "admission")


def _reclaimable_problems(
    obj: Object, old: Object | None, counts: Mapping[str, int], switches: JobFeatures
) -> Iterator[FieldError]:
    before = workload_changes.reclaimable_of(old) if old is not None and rules.is_elastic(obj, switches) else {}
    for i, entry in enumerate(objects(obj, "status", "reclaimablePods")):
        path, name, count = f"status.reclaimablePods[{i}]", text(entry, "name"), whole(entry, "count") or 0
        if name not in counts:
            yield FieldError(f"{path}.name", "is not one of the pod sets", name)
        elif count > counts[name] and before.get(name) != count:
            yield FieldError(f"{path}.count", f"must not be above the pod set's count of {counts[name]}", count)


def _update_problems(update: Object, path: str, counts: Mapping[str, int]) -> Iterator[FieldError]:
    """Check that the additions of an admission check are valid in pods."""
    if text(update, "name") not in counts:
        yield FieldError(f"{path}.name", "is not one of the pod sets", text(update, "name"))
    yield from syntax.check_labels(mapping(update, "labels"), f"{path}.labels")
    yield from syntax.check_labels(mapping(update, "nodeSelector"), f"{path}.nodeSelector")
    yield from syntax.check_annotations(mapping(update, "annotations"), f"{path}.annotations")
    yield from toleration_problems(update, path)
