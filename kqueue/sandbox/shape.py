"""The fields of a kind: their types, and the merge keys of lists.

One description serves four readers: the decoder (types, unknown fields), strategic merge patches, server-side apply and
the published schema.  Built-in kinds come from `builtin_types.txt`; custom kinds from their schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Literal

Type = Literal[
    "object", "map", "list", "string", "bool", "integer", "number", "bytes", "quantity", "time", "micro_time",
    "int_or_string", "any",
]  # fmt: skip
_SCALARS: dict[str, Type] = {
    "s": "string",
    "b": "bool",
    "i": "integer",
    "d": "number",
    "y": "bytes",
    "Q": "quantity",
    "T": "time",
    "M": "micro_time",
    "X": "int_or_string",
    "R": "any",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRules:
    """How server-side apply merges a field.

    Args:
        keys: fields that identify an item of a list; empty if items have no identity.
        is_set: a list whose items are values, each at most once.
        atomic: the field has one owner as a whole.
    """

    keys: tuple[str, ...] = ()
    is_set: bool = False
    atomic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchRules:
    """How a strategic merge patch changes a field.

    Args:
        merge_key: the field that identifies an item of a list; empty: items are values.
        merge: a list is merged; else it is replaced.
        retain: a patch may list the keys to keep.
    """

    merge_key: str = ""
    merge: bool = False
    retain: bool = False


_BY_MEMBER = ApplyRules()
_ATOMIC = ApplyRules(atomic=True)
_REPLACED = PatchRules()


class FieldShape:
    """The type of a field, or of a whole object.

    `fields` are the members of an object, `element` is the type of a map's values or of a list's items.  `apply` is for
    server-side apply, `patch` for strategic merge patches.  `open` objects may have unknown fields.
    """

    __slots__ = ("apply", "element", "fields", "message", "open", "patch", "type")

    def __init__(
        self,
        type_: Type,
        *,
        fields: dict[str, FieldShape] | None = None,
        element: FieldShape | None = None,
        apply: ApplyRules = _BY_MEMBER,
        patch: PatchRules = _REPLACED,
        open_: bool = False,
        message: str = "",
    ) -> None:
        self.type, self.fields, self.element = type_, fields, element
        self.apply, self.patch, self.open, self.message = apply, patch, open_, message

    def child(self, name: str) -> FieldShape | None:
        """Return the shape of a member; None if it is unknown."""
        if self.type == "object":
            return self.fields.get(name) if self.fields is not None else None
        return self.element if self.type == "map" else None


ANY = FieldShape("any", open_=True)


class WireField:
    """The protobuf encoding of one field of a built-in message."""

    __slots__ = ("inline", "name", "shape")

    def __init__(self, name: str, shape: FieldShape, inline: bool) -> None:
        self.name, self.shape, self.inline = name, shape, inline


class _Table:
    """The parsed data file; messages become shapes at first use."""

    def __init__(self, text: str) -> None:
        self._lines: dict[str, str] = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                name, _, rest = line.partition(" ")
                self._lines[name] = rest
        self._shapes: dict[str, FieldShape] = {}
        self._wires: dict[str, dict[int, WireField]] = {}

    def __contains__(self, message: str) -> bool:
        return message in self._lines

    def shape(self, message: str) -> FieldShape:
        found = self._shapes.get(message)
        if found is None:
            fields: dict[str, FieldShape] = {}
            apply = _ATOMIC if self._lines[message].startswith("!") else _BY_MEMBER
            found = self._shapes[message] = FieldShape("object", fields=fields, apply=apply, message=message)
            for wire in self.wire(message).values():
                if wire.inline:
                    fields.update(wire.shape.fields or {})
                else:
                    fields[wire.name] = wire.shape
        return found

    def wire(self, message: str) -> dict[int, WireField]:
        found = self._wires.get(message)
        if found is None:
            found = self._wires[message] = {}
            found.update(self._parsed(message))
        return found

    def _parsed(self, message: str) -> Iterator[tuple[int, WireField]]:
        for word in self._lines[message].split():
            if word == "!":
                continue
            name, _, rest = word.partition("=")
            number, _, rest = rest.partition("/")
            kind, *flags = rest.split(":")
            yield int(number), WireField(name, self._field(kind, flags), "inline" in flags)

    def _field(self, kind: str, flags: list[str]) -> FieldShape:
        apply, patch = _apply_rules(flags), _patch_rules(flags)
        if kind.startswith("[]"):
            return FieldShape("list", element=self._plain(kind[2:]), apply=apply, patch=patch)
        if kind.startswith("{}"):
            return FieldShape("map", element=self._plain(kind[2:]), apply=apply, patch=patch)
        plain = self._plain(kind)
        if "atomic" not in flags and "retain" not in flags:
            return plain
        apply = replace(apply, atomic=apply.atomic or plain.apply.atomic)
        return FieldShape(plain.type, fields=plain.fields, message=plain.message, apply=apply, patch=patch)

    def _plain(self, kind: str) -> FieldShape:
        scalar = _SCALARS.get(kind)
        return FieldShape(scalar) if scalar is not None else self.shape(kind)


def _apply_rules(flags: Sequence[str]) -> ApplyRules:
    keys = next((tuple(flag[4:].split(",")) for flag in flags if flag.startswith("map=")), ())
    return ApplyRules(keys=keys, is_set="set" in flags, atomic="atomic" in flags)


def _patch_rules(flags: Sequence[str]) -> PatchRules:
    key = next((flag[4:] for flag in flags if flag.startswith("key=")), None)
    return PatchRules(merge_key=key or "", merge=key is not None or "merge" in flags, retain="retain" in flags)


@cache
def _table() -> _Table:
    return _Table(resources.files("kqueue.sandbox").joinpath("builtin_types.txt").read_text())


def builtin(message: str) -> FieldShape:
    """Return the shape of a built-in message such as `core.Pod`."""
    return _with_type(message)


@cache
def _with_type(message: str) -> FieldShape:
    shape = _table().shape(message)
    fields = {"apiVersion": FieldShape("string"), "kind": FieldShape("string"), **(shape.fields or {})}
    return FieldShape("object", fields=fields, message=message)


def wire_fields(message: str) -> dict[int, WireField]:
    """Return the fields of a built-in message by their protobuf numbers."""
    return _table().wire(message)
