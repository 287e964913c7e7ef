"""From the models to structural schemas as the API server wants them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kqueue.api.bounds import INT32_MAX, INT64_MAX
from kqueue.api.model import RULES_KEY, Resource

_WHOLE = ("apiVersion", "kind", "metadata")


def schema(kind: type[Resource]) -> dict[str, Any]:
    """Return the structural schema of a kind: no references, no nulls, every field described."""
    found = kind.model_json_schema(by_alias=True, mode="validation")
    out = _structural(found, found.get("$defs", {}))
    properties = out["properties"]
    for field in _WHOLE:
        described = properties.get(field, {}).get("description", "")
        # the API server describes metadata itself, and refuses any word of ours about it
        properties[field] = {"type": "object"} if field == "metadata" else {"type": "string", "description": described}
    required = [name for name in out.get("required", []) if name not in _WHOLE]
    out.pop("required", None)
    if required:
        out["required"] = required
    return out


def _structural(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return one node with its references put in place; the keys of the referring field win."""
    node = _resolved(node, definitions)
    if node.get("x-kubernetes-int-or-string"):
        return _kept(node)
    out = _kept(node)
    if "const" in node:
        out["enum"] = [node["const"]]
    if "properties" in node:
        out["properties"] = {name: _structural(child, definitions) for name, child in node["properties"].items()}
    elif isinstance(node.get("additionalProperties"), Mapping):
        out["additionalProperties"] = _structural(node["additionalProperties"], definitions)
    if "items" in node:
        out["items"] = _structural(node["items"], definitions)
    if out.get("type") == "integer":
        _bound(out)
    return out


def _resolved(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the node itself: behind a reference, or the one alternative that is not null."""
    here = dict(node)
    while True:
        if "$ref" in here:
            target = definitions[here.pop("$ref").rpartition("/")[2]]
            rules = [*target.get(RULES_KEY, []), *here.pop(RULES_KEY, [])]
            here = {**target, **here}
            if rules:
                here[RULES_KEY] = rules
        elif "anyOf" in here and any(choice.get("type") == "null" for choice in here["anyOf"]):
            choices = [choice for choice in here.pop("anyOf") if choice.get("type") != "null"]
            here = {**choices[0], **here} if len(choices) == 1 else {**here, "anyOf": choices}
        elif len(here.get("allOf", ())) == 1:
            here = {**here.pop("allOf")[0], **here}
        else:
            return here


_PLAIN = (
    "type",
    "format",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "maxProperties",
    "required",
    "anyOf",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
    RULES_KEY,
)


def _kept(node: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if node.get("description"):
        out["description"] = " ".join(node["description"].split())
    out.update({key: node[key] for key in _PLAIN if key in node})
    default = node.get("default")
    if isinstance(default, str | int | bool) or (default == {} and "properties" in node):
        out["default"] = default
    return out


def _bound(node: dict[str, Any]) -> None:
    """Set the format of an integer to its width, and leave out the bounds that the width implies."""
    low, high = node.get("minimum"), node.get("maximum")
    wide = high is None or high > INT32_MAX or (low is not None and low < -INT32_MAX - 1)
    node["format"] = "int64" if wide else "int32"
    if high in (INT32_MAX, INT64_MAX):
        del node["maximum"]
    if low in (-INT32_MAX - 1, -INT64_MAX - 1):
        del node["minimum"]
