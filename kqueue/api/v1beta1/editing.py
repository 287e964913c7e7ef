"""Changes to a structural schema, in place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kqueue.api.model import Column

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
"""Any text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OlderKind:
    """One kind in v1beta1.

    `converts`: fields have other names or values than in v1beta2, so the API server asks the conversion webhook; else
    it changes `apiVersion` by itself.  `columns` None: those of v1beta2.
    """

    kind: str
    edit: Callable[[Schema], None]
    converts: bool = False
    columns: tuple[Column, ...] | None = None
    deprecated: bool = True


def at(schema: Schema, path: str) -> Schema:
    """Return the schema of a field, as `spec.podSets[].count`; the empty path is the schema itself."""
    for step in path.split(".") if path else ():
        schema = schema["properties"][step.removesuffix("[]")]
        if step.endswith("[]"):
            schema = schema["items"]
    return schema


def loosen(schema: Schema, path: str, *keywords: str) -> None:
    """Remove limits of a field.  Raises KeyError when it does not have one of them."""
    found = at(schema, path)
    for keyword in keywords:
        del found[keyword]


def plain_list(schema: Schema, path: str) -> None:
    """Make a list one that the API server neither merges by item nor limits in length."""
    found = at(schema, path)
    for keyword in ("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "minItems", "maxItems"):
        found.pop(keyword, None)


def rename(schema: Schema, path: str, old: str, new: str) -> None:
    """Give a field of the object at `path` another name, in the same place."""
    found = at(schema, path)
    found["properties"] = {new if name == old else name: field for name, field in found["properties"].items()}
    if old in found.get("required", ()):
        found["required"] = [new if name == old else name for name in found["required"]]


def require(schema: Schema, path: str, *names: str) -> None:
    """Demand more fields of the object at `path`."""
    found = at(schema, path)
    found["required"] = sorted({*found.get("required", ()), *names})


def unlimited_conditions(schema: Schema) -> None:
    """Take away the largest number of conditions."""
    loosen(schema, "status.conditions", "maxItems")


def described(schema: Schema, description: str) -> Schema:
    """Return the schema with a description."""
    return {"description": description, **schema}


def record(description: str, required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    """Return the schema of an object."""
    out: Schema = {"description": description, "type": "object", "properties": properties}
    return out | ({"required": list(required)} if required else {})


def listed(description: str, items: Schema, **keywords: Any) -> Schema:
    """Return the schema of a list."""
    return {"description": description, "type": "array", "items": items, **keywords}
