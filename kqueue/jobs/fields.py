"""Read parts of JSON objects with types, whatever the objects contain.

Objects come from the API server, which has validated them, or from an unvalidated webhook body.  A part that is
missing, null or of the wrong type reads as empty, so that callers need no type checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

JSON: TypeAlias = dict[str, Any]
"""One Kubernetes object, or a part of it, as plain JSON.  This package never changes it in place."""


def mapping(value: object, *path: str) -> Mapping[str, Any]:
    """Return the object at `path`; empty if a step is missing, null or no object."""
    for step in path:
        value = value.get(step) if type(value) is dict or isinstance(value, Mapping) else None
    # Almost always a dictionary or None: a test for the abstract type takes ten times as long.
    return value if type(value) is dict or (value is not None and isinstance(value, Mapping)) else {}


def sequence(value: object, *path: str) -> list[Any]:
    """Return the list at `path`; empty if a step is missing, null or no list (or tuple of a struct)."""
    if path:
        value = mapping(value, *path[:-1]).get(path[-1])
    return list(value) if isinstance(value, (list, tuple)) else []


def objects(value: object, *path: str) -> list[Mapping[str, Any]]:
    """Return the objects in the list at `path`; entries of another type are left out."""
    return [item for item in sequence(value, *path) if type(item) is dict or isinstance(item, Mapping)]


def text(value: object, *path: str) -> str:
    """Return the string at `path`; empty if it is missing, null or no string."""
    if path:
        value = mapping(value, *path[:-1]).get(path[-1])
    return value if isinstance(value, str) else ""


def whole(value: object, *path: str) -> int | None:
    """Return the integer at `path`; None if it is missing, null or no integer."""
    if path:
        value = mapping(value, *path[:-1]).get(path[-1])
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def flag(value: object, *path: str) -> bool:
    """Whether the value at `path` is `true`."""
    return mapping(value, *path[:-1]).get(path[-1]) is True


def strings(value: object, *path: str) -> dict[str, str]:
    """Return the string-to-string entries of the object at `path` (labels, annotations, a node selector)."""
    return {k: v for k, v in mapping(value, *path).items() if isinstance(k, str) and isinstance(v, str)}


def labels_of(meta_owner: object) -> dict[str, str]:
    """Return the labels of an object or a template."""
    return strings(meta_owner, "metadata", "labels")


def annotations_of(meta_owner: object) -> dict[str, str]:
    """Return the annotations of an object or a template."""
    return strings(meta_owner, "metadata", "annotations")


def label_of(meta_owner: object, key: str) -> str:
    """Return one label of an object or a template; empty without it.  Costs less than a look into `labels_of`."""
    return text(meta_owner, "metadata", "labels", key)


def annotation_of(meta_owner: object, key: str) -> str:
    """Return one annotation of an object or a template; empty without it."""
    return text(meta_owner, "metadata", "annotations", key)


def condition_of(owner: object, kind: str, status: str = "") -> Mapping[str, Any]:
    """Return condition `kind` of an object of any shape; empty when there is none, or it has not the given `status`."""
    found = next((c for c in objects(owner, "status", "conditions") if c.get("type") == kind), {})
    return found if status in ("", found.get("status")) else {}


def condition_status(owner: object, kind: str) -> str:
    """Return the status (`True`, `False` or `Unknown`) of condition `kind`; empty when there is no such condition."""
    return text(condition_of(owner, kind), "status")


def int_of(written: str, *, bits: int = 32) -> int | None:
    """Parse a decimal signed integer of `bits` bits as Go's strconv does; None when the text is not one."""
    digits = written[1:] if written[:1] in ("+", "-") else written
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 64:
        return None
    number = int(written)
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def bool_of(written: str) -> bool | None:
    """Parse a boolean as Go's strconv does; None when the text is not one."""
    if written in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    return False if written in ("0", "f", "F", "FALSE", "false", "False") else None
