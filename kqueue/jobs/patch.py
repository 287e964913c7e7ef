"""JSON merge patches (RFC 7386): computed from two states, and applied.

A merge patch names only changed fields, so it does not overwrite the fields of other writers. Lists are replaced as a
whole; null removes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, TypeGuard

Patch: TypeAlias = dict[str, Any]
"""A JSON merge patch; empty: there is nothing to write."""


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> Patch:
    """Return the smallest merge patch that turns `old` into `new`.

    A null in either counts as absent, as it does for the API server.
    """
    patch: Patch = {key: None for key, value in old.items() if value is not None and new.get(key) is None}
    for key, value in new.items():
        before = old.get(key)
        if value is None or before is value or _same(before, value):
            continue
        if _is_map(value) and _is_map(before):
            inner = merge_patch(before, value)
            if inner:
                patch[key] = inner
        else:
            patch[key] = value
    return patch


def apply_merge_patch(old: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Apply `patch` to `old` as the API server does.  Neither is changed; unchanged parts are shared."""
    new = dict(old)
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        elif _is_map(value):
            before = new.get(key)
            new[key] = apply_merge_patch(before if _is_map(before) else {}, value)
        else:
            new[key] = value
    return new


def _is_map(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether a value is a mapping: almost always a dictionary or a scalar, and a test for the abstract type is 10
    times slower.
    """
    kind = type(value)
    return kind is dict or (kind is not str and kind is not list and value is not None and isinstance(value, Mapping))


def _same(a: object, b: object) -> bool:
    """Whether two values are equal as JSON: unlike Python, JSON distinguishes `true` from `1`.  Shared parts are not
    compared.
    """
    if a is b:
        return True
    if isinstance(a, bool) or isinstance(b, bool):
        return False
    if _is_map(a) and _is_map(b):
        return a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return a == b
