"""Compare objects semantically, as Kubernetes does: absent equals empty, and quantities compare by value."""

from __future__ import annotations

from collections.abc import Mapping

from kqueue.core.quantity import parse_quantity
from kqueue.kube import names as kube_names

_AMOUNTS = frozenset({"requests", "limits", "overhead", "resourceUsage"})
"""Fields that map a resource to a quantity."""


def same(one: object, other: object) -> bool:
    """Whether both are semantically equal."""
    return one == other or canonical(one) == canonical(other)  # usually nothing has changed


def canonical(value: object, field: str = "") -> object:
    """Return `value` in a form that `==` compares by meaning: without empty parts, with quantities as integers.

    `field` is the name of the field, which distinguishes quantities from other text.  None means "empty".
    """
    if isinstance(value, Mapping):
        if field in _AMOUNTS:
            return {resource: amount(written, str(resource)) for resource, written in value.items()} or None
        parts = {key: canonical(part, str(key)) for key, part in value.items()}
        return {key: part for key, part in parts.items() if part is not None} or None
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value] or None
    if field == "divisor":
        return amount(value, kube_names.PODS_RESOURCE) or None
    return None if value == "" else value


def amount(written: object, resource: str) -> object:
    """Return a quantity as an integer; other values are returned unchanged."""
    try:
        return parse_quantity(written, resource)  # type: ignore[arg-type]  # other types are refused there
    except ValueError:
        return written
