"""Kinds whose fields have the same names and values in both versions: the API server needs no help to convert them."""

from __future__ import annotations

from kqueue.api.v1beta1.editing import OlderKind, Schema, at, loosen, plain_list, unlimited_conditions


def _admission_check(schema: Schema) -> None:
    unlimited_conditions(schema)
    loosen(schema, "spec.controllerName", "minLength", "maxLength")
    for name in ("apiGroup", "kind", "name"):
        loosen(schema, f"spec.parameters.{name}", "minLength")
    at(schema, "spec")["properties"]["retryDelayMinutes"] = {
        "description": "Without effect, and gone in v1beta2.",
        "type": "integer",
        "format": "int64",
        "default": 15,
    }


def _multikueue_config(schema: Schema) -> None:
    clusters = at(schema, "spec.clusters")
    clusters["x-kubernetes-list-type"] = "set"
    clusters.pop("x-kubernetes-validations")
    loosen(schema, "spec.clusters[]", "maxLength")


def _provisioning_request_config(schema: Schema) -> None:
    loosen(schema, "spec.provisioningClassName", "minLength")
    longest = at(schema, "spec.podSetUpdates.nodeSelector")["maxItems"]
    plain_list(schema, "spec.podSetUpdates.nodeSelector")
    at(schema, "spec.podSetUpdates.nodeSelector")["maxItems"] = longest


def _priority_class(schema: Schema) -> None:
    loosen(schema, "description", "maxLength")


def _topology(schema: Schema) -> None:
    for rule in at(schema, "spec.levels")["x-kubernetes-validations"]:
        if "oldSelf" in rule["rule"]:
            rule.update(rule="self == oldSelf", message="levels cannot be changed; create another Topology instead")


def _same(_schema: Schema) -> None:
    """Change nothing."""


ALIKE = (
    OlderKind(kind="AdmissionCheck", edit=_admission_check),
    OlderKind(kind="MultiKueueConfig", edit=_multikueue_config, deprecated=False),
    OlderKind(kind="ProvisioningRequestConfig", edit=_provisioning_request_config),
    OlderKind(kind="ResourceFlavor", edit=_same),
    OlderKind(kind="Topology", edit=_topology),
    OlderKind(kind="WorkloadPriorityClass", edit=_priority_class),
)
