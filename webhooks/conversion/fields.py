"""Copies of JSON objects with single fields changed.  Objects that are given are never changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

JSON = dict[str, Any]
Change = Callable[[JSON], JSON]


def changed(obj: JSON, field: str, change: Change) -> JSON:
    """Return the object with `change` applied to the object in a field; as it is where that is no object."""
    inner = obj.get(field)
    return {**obj, field: change(inner)} if isinstance(inner, dict) else obj


def each_changed(obj: JSON, field: str, change: Change) -> JSON:
    """Return the object with `change` applied to every object in a list."""
    items = obj.get(field)
    if not isinstance(items, list):
        return obj
    return {**obj, field: [change(item) if isinstance(item, dict) else item for item in items]}


def without(obj: JSON, *names: str) -> JSON:
    """Return the object without some fields."""
    return {key: value for key, value in obj.items() if key not in names}


def renamed(obj: JSON, old: str, new: str) -> JSON:
    """Return the object with a field under another name."""
    return {**without(obj, old, new), new: obj[old]} if old in obj else obj


def reworded(obj: JSON, words: Mapping[str, Mapping[str, str]]) -> JSON:
    """Return the object with other words in some fields: field to old word to new word."""
    found = {name: words[name][obj[name]] for name in words if name in obj and obj[name] in words[name]}
    return {**obj, **found}
