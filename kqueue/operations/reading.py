"""Reads objects of the API server for commands; one that cannot be read does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def readable(objects: Sequence[Mapping[str, Any]], form: type[T], remark: Callable[[str], object]) -> Iterator[T]:
    """Yield the objects in a form; `remark` is called with a sentence for each object that does not have it."""
    for obj in objects:
        try:
            yield msgspec.convert(obj, form, strict=False)
        except msgspec.ValidationError as e:
            meta = obj.get("metadata") or {}
            name = "/".join(filter(None, (meta.get("namespace"), meta.get("name"))))
            remark(f"{obj.get('kind')} {name} cannot be read and is left out: {e}")
