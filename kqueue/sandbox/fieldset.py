"""Sets of fields as `managedFields` writes them (`f:spec`, `k:{"name":"a"}`, `v:"x"`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from kqueue.sandbox.shape import ANY, FieldShape

FieldSet = dict[str, Any]
"""Nested: maps a name to the set below it.  An empty set below a name means the field as a whole."""

SELF = "."
SERVER_METADATA = frozenset(
    (
        "name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields", "resourceVersion",
        "deletionTimestamp", "deletionGracePeriodSeconds",
    )
)  # fmt: skip


def of_object(shape: FieldShape, obj: dict[str, Any]) -> FieldSet:
    """Return all fields of an object that a manager can own."""
    out: FieldSet = {}
    for key, value in obj.items():
        if key in ("apiVersion", "kind"):
            continue
        if key == "metadata":
            inner = {k: v for k, v in value.items() if k not in SERVER_METADATA}
            if inner:
                out["f:metadata"] = of_value(shape.child(key) or ANY, inner)
        else:
            out[f"f:{key}"] = of_value(shape.child(key) or ANY, value)
    return out


def of_value(shape: FieldShape, value: Any) -> FieldSet:
    """Return the fields inside a value; empty if the value is owned as a whole."""
    return {
        name: ({SELF: {}} if name[0] == "k" else {}) | of_value(inner, item)
        for name, item, inner in members(shape, value)
    }


def members(shape: FieldShape, value: Any) -> Iterator[tuple[str, Any, FieldShape]]:
    """Yield the separately owned members of a value: name, value, shape.  Nothing if it is owned as a whole."""
    if shape.apply.atomic:
        return
    if type(value) is dict:
        for key, item in value.items():
            yield f"f:{key}", item, shape.child(key) or ANY
    elif type(value) is list and shape.type == "list":
        if shape.apply.keys:
            for item in value:
                if type(item) is dict:
                    yield item_name(shape.apply.keys, item), item, shape.element or ANY
        elif shape.apply.is_set:
            for item in value:
                yield "v:" + _json(item), item, ANY


def item_name(keys: tuple[str, ...], item: dict[str, Any]) -> str:
    """Return the name of a list item: `k:{"name":"a"}`."""
    return "k:" + _json({key: item.get(key, _DEFAULT_KEYS.get(key)) for key in sorted(keys)})


_DEFAULT_KEYS = {"protocol": "TCP"}


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def union(one: FieldSet, other: FieldSet) -> FieldSet:
    """Return fields of either set."""
    out = dict(one)
    for name, inner in other.items():
        out[name] = union(out[name], inner) if name in out else inner
    return out


def minus(one: FieldSet, other: FieldSet) -> FieldSet:
    """Return fields of `one` that are not in `other`; a whole field in `other` removes all fields below it."""
    out: FieldSet = {}
    for name, inner in one.items():
        if name not in other:
            out[name] = inner
        elif other[name]:
            left = minus(inner, other[name])
            if left:
                out[name] = left
    return out


def covers(owned: FieldSet, name: str) -> bool:
    """Whether `owned` has the member, in whole or in part."""
    return name in owned
