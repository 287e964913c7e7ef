"""Objects come back from the other version as they were, whatever the schema allows."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kqueue.api.v1beta1.catalog import OLDER_KINDS
from tests.unit.webhooks.conversion.objects import objects, unknown_fields
from webhooks.conversion.catalog import KINDS, converted

JSON = dict[str, Any]
OLD, NEW = "kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"
EACH_KIND = pytest.mark.parametrize("kind", KINDS)


def test_each_kind_whose_fields_differ_has_a_conversion() -> None:
    """The definitions name the webhook for exactly these kinds."""
    assert set(KINDS) == {kind for kind, older in OLDER_KINDS.items() if older.converts}


@EACH_KIND
@settings(max_examples=50)
@given(data=st.data())
def test_an_object_of_v1beta2_comes_back_equal(kind: str, data: st.DataObject) -> None:
    """Every field, and v1beta1 has a place for each, so the API server drops none on the way."""
    obj = data.draw(objects(kind, "v1beta2").map(valid))
    before = copy.deepcopy(obj)

    old = converted(obj, OLD)

    assert unknown_fields(copy.deepcopy(old)) == []
    assert converted(old, NEW) == obj == before


@EACH_KIND
@settings(max_examples=50)
@given(data=st.data())
def test_an_object_of_v1beta1_comes_back_in_present_words(kind: str, data: st.DataObject) -> None:
    """Every field that v1beta2 has a word for, and what its user wrote besides; v1beta2 has a place for each."""
    obj = data.draw(objects(kind, "v1beta1").map(valid))
    before = copy.deepcopy(obj)

    new = converted(obj, NEW)
    back = converted(new, OLD)

    assert unknown_fields(copy.deepcopy(new)) == []
    assert obj == before
    assert without_notes(without_slices(back)) == without_notes(in_present_words(obj))
    assert converted(back, NEW) == new


def valid(obj: JSON) -> JSON:
    """The object, with what rules between fields demand."""
    out = copy.deepcopy(obj)
    spec = out.get("spec", {})
    if "priorityClassName" in spec or "priorityClassRef" in spec:
        spec.setdefault("priority", 1)
    if reference := spec.get("priorityClassRef"):
        is_ours = reference["kind"] == "WorkloadPriorityClass"
        reference["group"] = "kueue.x-k8s.io" if is_ours else "scheduling.k8s.io"
    if "kubeConfig" in (source := spec.get("clusterSource", {})):
        source.pop("clusterProfileRef", None)
    return out


def without_slices(obj: JSON) -> JSON:
    """The object without the compressed form beside domains, which v1beta1 shows in addition."""
    out = copy.deepcopy(obj)
    for each in out.get("status", {}).get("admission", {}).get("podSetAssignments", []):
        each.get("topologyAssignment", {}).pop("slices", None)
    return out


def without_notes(obj: JSON) -> JSON:
    """The object without our annotation, which belongs to the conversion."""
    out = copy.deepcopy(obj)
    notes = out["metadata"].pop("annotations", {})
    notes.pop("kqueue.dev/v1beta1", None)
    return out | {"notes": notes}


def in_present_words(obj: JSON) -> JSON:
    """What the product promises to return of an object of v1beta1."""
    out = copy.deepcopy(obj)
    spec, status = out.get("spec", {}), out.get("status", {})
    fungibility = spec.get("flavorFungibility", {})
    for field, word in (("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")):
        if fungibility.get(field) == word:
            fungibility[field] = "MayStopSearch"
    if obj["kind"] == "ClusterQueue":
        if names := spec.pop("admissionChecks", []):
            spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": name} for name in dict.fromkeys(names)]}
        if not spec.get("admissionChecksStrategy", {}).get("admissionChecks"):
            spec.pop("admissionChecksStrategy", None)
    if obj["kind"] in ("ClusterQueue", "Cohort"):
        status.get("fairSharing", {}).pop("admissionFairSharingStatus", None)
    if "priorityClassName" not in spec or not spec.get("priorityClassSource"):
        spec.pop("priorityClassSource", None)
    for removed in ("pendingWorkloadsStatus", "flavors"):
        status.pop(removed, None)
    return out
