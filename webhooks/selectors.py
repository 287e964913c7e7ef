"""Build the parts of webhook entries that select objects."""

from __future__ import annotations

from typing import Any

JSON = dict[str, Any]


def selector(*expressions: JSON) -> JSON:
    """Return a label selector of which every expression has to hold."""
    return {"matchExpressions": list(expressions)}


def exists(key: str) -> JSON:
    """Return the expression for objects with a label."""
    return {"key": key, "operator": "Exists"}


def absent(key: str) -> JSON:
    """Return the expression for objects without a label."""
    return {"key": key, "operator": "DoesNotExist"}


def condition(name: str, expression: str) -> JSON:
    """Return a CEL condition of an entry; the API server evaluates it."""
    return {"name": name, "expression": expression}
