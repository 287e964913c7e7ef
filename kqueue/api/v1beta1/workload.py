"""Workload in v1beta1: the priority class as two texts, and topology assignments domain by domain."""

from __future__ import annotations

from kqueue.api.fields import DNS_SUBDOMAIN_PATTERN
from kqueue.api.v1beta1.editing import (
    TEXT,
    OlderKind,
    Schema,
    at,
    described,
    listed,
    loosen,
    plain_list,
    record,
    rename,
    require,
    unlimited_conditions,
)
from kqueue.api.v1beta1.names import SOURCE_POD_CLASS, SOURCE_WORKLOAD_CLASS
from kqueue.api.workload import quota_is_reserved


def _edit(schema: Schema) -> None:
    unlimited_conditions(schema)
    _edit_spec(schema)
    _edit_status(schema)
    _replace_rules(schema)


def _edit_spec(schema: Schema) -> None:
    spec = at(schema, "spec")
    fields: Schema = {}
    for name, field in spec["properties"].items():
        if name == "priorityClassRef":
            fields["priorityClassName"] = {
                "description": "Name of the class that the priority comes from.",
                "type": "string",
                "pattern": DNS_SUBDOMAIN_PATTERN,
                "maxLength": 253,
            }
            fields["priorityClassSource"] = {
                "description": "Kind of that class.  Empty: of no class.",
                "type": "string",
                "enum": [SOURCE_WORKLOAD_CLASS, SOURCE_POD_CLASS, ""],
                "default": "",
            }
        else:
            fields[name] = field
    spec["properties"] = fields
    spec["x-kubernetes-validations"] = [
        {
            "rule": "!has(self.priorityClassName) || has(self.priority)",
            "message": "priority must be set together with priorityClassName",
        }
    ]
    require(schema, "spec", "podSets")
    require(schema, "spec.podSets[]", "count")
    request = "spec.podSets[].topologyRequest"
    for name in ("required", "preferred", "podIndexLabel", "subGroupIndexLabel", "podSetGroupName"):
        loosen(schema, f"{request}.{name}", "maxLength")
    loosen(schema, f"{request}.podSetSliceRequiredTopology", "maxLength")
    loosen(schema, f"{request}.subGroupCount", "minimum")


def _edit_status(schema: Schema) -> None:
    rename(schema, "status", "accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds")
    require(schema, "status.admission", "podSetAssignments")
    require(schema, "status.admission.podSetAssignments[]", "name")
    assignment = "status.admission.podSetAssignments[]"
    loosen(schema, f"{assignment}.delayedTopologyRequest", "enum")
    _add_domains(at(schema, f"{assignment}.topologyAssignment"))
    checks = "status.admissionChecks[]"
    loosen(schema, f"{checks}.name", "minLength")
    tolerations = at(schema, f"{checks}.podSetUpdates[].tolerations")
    tolerations.pop("x-kubernetes-list-type")
    loosen(schema, "status.schedulingStats.evictions", "maxItems")
    loosen(schema, "status.nominatedClusterNames[]", "maxLength")
    loosen(schema, "status.clusterName", "maxLength")
    plain_list(schema, "status.unhealthyNodes")
    loosen(schema, "status.unhealthyNodes[].name", "maxLength")


def _add_domains(assignment: Schema) -> None:
    """Describe domains one by one; the compressed form stays beside them."""
    fields = assignment["properties"]
    fields["levels"]["items"].pop("maxLength")
    domain = record(
        "One domain and its pods.",
        ("values", "count"),
        values=listed(
            "Value of each level.",
            TEXT,
            minItems=1,
            maxItems=16,
            **{"x-kubernetes-list-type": "atomic"},
        ),
        count={"description": "Pods in the domain.", "type": "integer", "format": "int32", "minimum": 1},
    )
    fields["domains"] = listed("Domains with their pods.", domain)
    fields["slices"] = described(
        {key: value for key, value in fields["slices"].items() if key != "description"},
        "The same domains in the compressed form of v1beta2.  Ignored where it says something else than domains.",
    )
    assignment["required"] = ["levels", "domains"]
    assignment["description"] = "Which domains hold the pods."
    assignment.pop("x-kubernetes-validations")


def _replace_rules(schema: Schema) -> None:
    """Put rules of priorityClassSource and priorityClassName in the place of those of priorityClassRef."""
    kept = [rule for rule in schema["x-kubernetes-validations"] if "priorityClassRef" not in rule["rule"]]
    reserved = quota_is_reserved("oldSelf")
    old, new = (
        f"(has({which}.spec.priorityClassSource) ? {which}.spec.priorityClassSource : '')"
        for which in ("oldSelf", "self")
    )
    schema["x-kubernetes-validations"] = [
        *kept,
        {
            "rule": f"!({reserved}) || !has(oldSelf.spec) || !has(self.spec) || {old} == {new}",
            "message": "priorityClassSource cannot change while quota is reserved",
        },
        {
            "rule": f"!({reserved}) || !has(oldSelf.spec) || !has(self.spec) || "
            f"!has(oldSelf.spec.priorityClassName) || !has(self.spec.priorityClassName) || "
            f"{new} == '{SOURCE_WORKLOAD_CLASS}' || oldSelf.spec.priorityClassName == self.spec.priorityClassName",
            "message": "while quota is reserved only the name of a WorkloadPriorityClass may change",
        },
    ]


WORKLOAD = OlderKind(kind="Workload", edit=_edit, converts=True)
