"""Paths into objects of a kind that a user declares: `spec.suspend`, `spec.groups[*].template`.

Steps are field names, joined by dots.  One step may end in `[*]`: every entry of that list, or of that map.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator

_EACH = "[*]"
_STEP = re.compile(r"[A-Za-z0-9_][-A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """`outer` leads to the entries, `inner` from an entry to the value; without `[*]` all of it is `inner`."""

    inner: tuple[str, ...]
    outer: tuple[str, ...] | None = None

    def __str__(self) -> str:
        steps = ".".join(self.inner)
        if self.outer is None:
            return steps
        entries = ".".join(self.outer) + _EACH
        return f"{entries}.{steps}" if steps else entries

    @property
    def root(self) -> str:
        """The first step, as in `spec`."""
        return (self.outer or self.inner)[0]

    def at(self, obj: object) -> Any:
        """Return the value in `obj`, or in one entry; None where a step is missing."""
        return look(obj, self.inner)

    def entries(self, obj: object) -> Iterator[tuple[str, Any]]:
        """Yield (index or key, entry) of the list or map at `outer`, keys sorted; without it yield `obj` itself."""
        if self.outer is None:
            yield "", obj
            return
        found = look(obj, self.outer)
        if isinstance(found, Mapping):
            yield from ((str(key), found[key]) for key in sorted(found))
        elif isinstance(found, list | tuple):
            yield from ((str(number), entry) for number, entry in enumerate(found))


def look(obj: object, steps: tuple[str, ...]) -> Any:
    """Return the value at the end of the steps; None if a step is missing."""
    for step in steps:
        obj = obj.get(step) if isinstance(obj, Mapping) else None
    return obj


def put(obj: object, steps: tuple[str, ...], value: object) -> Any:
    """Return a copy of `obj` with `value` at the end of the steps; a missing step is made, other parts are shared."""
    if not steps:
        return value
    old = obj if isinstance(obj, Mapping) else {}
    return {**old, steps[0]: put(old.get(steps[0]), steps[1:], value)}


MANAGED_BY = ObjectPath(("spec", "managedBy"))
"""The field that names the controller of an object, in most kinds."""


def parse(written: object) -> ObjectPath:
    """Parse a path.

    Raises:
        ValueError: it is not a path; the message gives the syntax.
    """
    text = written if isinstance(written, str) else str(written) if isinstance(written, ObjectPath) else ""
    before, each, after = text.partition(_EACH)
    parts = [before, *([after.removeprefix(".")] if after else [])]
    if (each and after and not after.startswith(".")) or not all(
        _STEP.fullmatch(step) for part in parts for step in part.split(".")
    ):
        raise ValueError("must be a path such as spec.suspend or spec.groups[*].template, with at most one [*]")
    steps = [tuple(part.split(".")) for part in parts]
    if not each:
        return ObjectPath(steps[0])
    return ObjectPath(steps[1] if after else (), outer=steps[0])


Path = Annotated[ObjectPath, PlainValidator(parse), PlainSerializer(str)]
"""A path as a field of the file."""
