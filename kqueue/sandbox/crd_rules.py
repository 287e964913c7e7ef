"""CustomResourceDefinitions: defaults, status and validation."""

from __future__ import annotations

import re
from typing import Any

from kqueue.sandbox import failure, json_path
from kqueue.sandbox.api import Object
from kqueue.sandbox.failure import Cause
from kqueue.sandbox.metadata import is_label, is_subdomain
from kqueue.sandbox.strategy import ClusterView, WriteStrategy
from kqueue.sandbox.webhook_rules import HTTPS_PORT, client_causes

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
STRATEGIES = ["None", "Webhook"]
COLUMN_TYPES = ["boolean", "date", "integer", "number", "string"]


def default(definition: Object) -> None:
    """Fill names that follow from the kind, the conversion strategy None, and the port of a webhook's Service."""
    spec = definition.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind", "")
    if kind:
        names.setdefault("singular", kind.lower())
        names.setdefault("listKind", kind + "List")
    conversion = spec.setdefault("conversion", {})
    conversion.setdefault("strategy", "None")
    if service := ((conversion.get("webhook") or {}).get("clientConfig") or {}).get("service"):
        service.setdefault("port", HTTPS_PORT)


def prepare_create(definition: Object, around: ClusterView) -> None:
    """Set the status of a definition that is served at once: names accepted, established."""
    now = around.now_text()
    definition["status"] = {
        "acceptedNames": definition["spec"]["names"],
        "conditions": [
            _condition("NamesAccepted", "NoConflicts", "no conflicts found", now),
            _condition("Established", "InitialNamesAccepted", "the initial names have been accepted", now),
        ],
        "storedVersions": [v["name"] for v in definition["spec"].get("versions") or () if v.get("storage")],
    }


def _condition(kind: str, reason: str, message: str, now: str) -> Object:
    return {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}


def prepare_update(new: Object, old: Object) -> None:
    """Update names and stored versions in the status from the spec."""
    status = dict(old.get("status") or {})
    status["acceptedNames"] = new["spec"]["names"]
    stored = list(status.get("storedVersions") or ())
    stored += [v["name"] for v in new["spec"].get("versions") or () if v.get("storage") and v["name"] not in stored]
    status["storedVersions"] = stored
    new["status"] = status


def causes(definition: Object) -> list[Cause]:
    """Return all mistakes in a definition."""
    spec, found = definition["spec"], []
    names, group = spec["names"], spec.get("group", "")
    for key in ("plural", "kind"):
        if not names.get(key):
            found.append(failure.required(f"spec.names.{key}"))
    if not is_subdomain(group) or "." not in group:
        found.append(failure.invalid("spec.group", group, "should be a domain with at least one dot"))
    if names.get("plural") and not is_label(names["plural"]):
        found.append(failure.invalid("spec.names.plural", names["plural"], "must be a lowercase RFC 1123 label"))
    wanted = f"{names.get('plural', '')}.{group}"
    if definition["metadata"].get("name") != wanted:
        found.append(
            failure.invalid(
                "metadata.name", definition["metadata"].get("name"), 'must be spec.names.plural+"."+spec.group'
            )
        )
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        found.append(failure.unsupported("spec.scope", spec.get("scope", ""), ["Cluster", "Namespaced"]))
    return found + _conversion_causes(spec["conversion"]) + _version_causes(spec.get("versions") or [])


def _conversion_causes(conversion: Object) -> list[Cause]:
    path, strategy, webhook = "spec.conversion", conversion["strategy"], conversion.get("webhook")
    if strategy not in STRATEGIES:
        return [failure.unsupported(f"{path}.strategy", strategy, STRATEGIES)]
    if strategy == "None":
        text = "should not be set when strategy is not set to Webhook"
        return [] if webhook is None else [failure.forbidden_field(f"{path}.webhook", text)]
    if webhook is None:
        return [failure.required(f"{path}.webhook", "required when strategy is set to Webhook")]
    found = client_causes(webhook.get("clientConfig") or {}, f"{path}.webhook.clientConfig")
    if "v1" not in (webhook.get("conversionReviewVersions") or ()):
        text = "must include at least one of v1"
        found.append(failure.invalid(f"{path}.webhook.conversionReviewVersions", webhook, text))
    return found


def _version_causes(versions: list[Object]) -> list[Cause]:
    found: list[Cause] = []
    if sum(bool(version.get("storage")) for version in versions) != 1:
        found.append(
            failure.invalid("spec.versions", versions, "must have exactly one version marked as storage version")
        )
    seen: set[str] = set()
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        name = version.get("name", "")
        if not is_label(name):
            found.append(failure.invalid(f"{path}.name", name, "must be a lowercase RFC 1123 label"))
        if name in seen:
            found.append(failure.duplicate(f"{path}.name", name))
        seen.add(name)
        version.setdefault("served", False)
        version.setdefault("storage", False)
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            found.append(failure.required(f"{path}.schema.openAPIV3Schema", "schemas are required"))
        else:
            found += _schema_causes(schema, f"{path}.schema.openAPIV3Schema", root=True)
        found += _column_causes(version, path)
    return found


def _column_causes(version: Object, path: str) -> list[Cause]:
    found = []
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        where = f"{path}.additionalPrinterColumns[{index}]"
        if column.get("type") not in COLUMN_TYPES:
            found.append(failure.unsupported(f"{where}.type", column.get("type", ""), COLUMN_TYPES))
        if not column.get("name"):
            found.append(failure.required(f"{where}.name"))
        try:
            json_path.compiled(column.get("jsonPath", ""))
        except json_path.JsonPathError as error:
            found.append(failure.invalid(f"{where}.jsonPath", column.get("jsonPath"), str(error)))
    return found


def _schema_causes(schema: Any, path: str, *, root: bool = False) -> list[Cause]:
    """Return the reasons that a schema is not structural, or has an invalid pattern."""
    if not isinstance(schema, dict):
        return [failure.wrong_type(path, schema, "must be an object")]
    found = []
    open_type = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if root and schema.get("type") != "object":
        found.append(failure.invalid(f"{path}.type", schema.get("type", ""), "must be object at the root"))
    elif not schema.get("type") and not open_type:
        found.append(failure.required(f"{path}.type", "must not be empty for specified object fields"))
    if schema.get("type") == "array" and not schema.get("items"):
        found.append(failure.required(f"{path}.items", "must be specified"))
    if (pattern := schema.get("pattern")) is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            found.append(
                failure.invalid(f"{path}.pattern", pattern, f"must be a valid regular expression, but isn't: {error}")
            )
    for key, inner in (schema.get("properties") or {}).items():
        if not (root and key == "metadata"):
            found += _schema_causes(inner, f"{path}.properties[{key}]")
    if isinstance(items := schema.get("items"), dict):
        found += _schema_causes(items, f"{path}.items")
    if isinstance(extra := schema.get("additionalProperties"), dict):
        found += _schema_causes(extra, f"{path}.additionalProperties")
    return found


CRD = WriteStrategy(default=default, prepare_create=prepare_create, prepare_update=prepare_update, validate=causes)
