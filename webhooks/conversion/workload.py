"""Workload: priority class, a misspelt field, topology assignments."""

from __future__ import annotations

from kqueue.api.names import GROUP
from kqueue.api.v1beta1.names import SOURCE_POD_CLASS, SOURCE_WORKLOAD_CLASS
from webhooks.conversion import topology
from webhooks.conversion.fields import JSON, Change, changed, each_changed, renamed, without
from webhooks.conversion.kept import take_kept, with_kept

_KINDS = {
    SOURCE_WORKLOAD_CLASS: {"group": GROUP, "kind": "WorkloadPriorityClass"},
    SOURCE_POD_CLASS: {"group": "scheduling.k8s.io", "kind": "PriorityClass"},
}
_SOURCES = {(kind["group"], kind["kind"]): source for source, kind in _KINDS.items()}
_MISSPELT, _SPELT = "accumulatedPastExexcutionTimeSeconds", "accumulatedPastExecutionTimeSeconds"
_NAME, _SOURCE, _REFERENCE = "priorityClassName", "priorityClassSource", "priorityClassRef"


def to_v1beta1(workload: JSON) -> JSON:
    """Return a Workload of v1beta2 in v1beta1."""
    workload, kept = take_kept(workload, lambda fields: _is_class_without_source(workload, fields))
    workload = changed(workload, "spec", lambda spec: {**_with_source(spec), **kept})
    return changed(workload, "status", lambda status: _status(renamed(status, _SPELT, _MISSPELT), topology.to_v1beta1))


def to_v1beta2(workload: JSON) -> JSON:
    """Return a Workload of v1beta1 in v1beta2."""
    spec = workload.get("spec") or {}
    kept = {_NAME: spec[_NAME]} if _NAME in spec and spec.get(_SOURCE) not in _KINDS else {}
    workload = changed(with_kept(workload, kept), "spec", _with_reference)
    return changed(workload, "status", lambda status: _status(renamed(status, _MISSPELT, _SPELT), topology.to_v1beta2))


def _is_class_without_source(workload: JSON, fields: JSON) -> bool:
    """Whether a name may be shown without a source: v1beta1 demands a priority with it."""
    spec = workload.get("spec") or {}
    is_name = fields.keys() == {_NAME} and isinstance(fields[_NAME], str)
    return is_name and "priority" in spec and _REFERENCE not in spec


def _with_source(spec: JSON) -> JSON:
    reference = spec.get(_REFERENCE)
    if not isinstance(reference, dict):
        return spec
    source = _SOURCES.get((reference["group"], reference["kind"]))
    if source is None:
        return spec
    return {**without(spec, _REFERENCE), _NAME: reference["name"], _SOURCE: source}


def _with_reference(spec: JSON) -> JSON:
    bare = without(spec, _NAME, _SOURCE)
    kind = _KINDS.get(spec.get(_SOURCE, ""))
    return bare if kind is None or _NAME not in spec else {**bare, _REFERENCE: {**kind, "name": spec[_NAME]}}


def _status(status: JSON, convert: Change) -> JSON:
    def of_pod_set(assignment: JSON) -> JSON:
        return changed(assignment, "topologyAssignment", convert)

    return changed(status, "admission", lambda admission: each_changed(admission, "podSetAssignments", of_pod_set))
