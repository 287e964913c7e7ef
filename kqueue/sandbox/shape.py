"""What the fields of a kind are: their types, and by which keys their lists merge.

One description serves four readers: the decoder (types, unknown fields), strategic merge patches, server-side apply and
the published schema.  Built-in kinds come from `builtin_types.txt`; custom kinds from their schema.
"""

from __future__ import annotations

from collections.abc import Iterator
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


class Shape:
    """One field's, or one whole object's, type.

    `fields` are the members of an object; `element` what a map or list holds.  `keys`, `is_set` and `atomic` rule
    server-side apply; `merge_key`, `merge` and `retain` strategic merge patches.  `open` objects may hold fields that
    are not known.
    """

    __slots__ = ("atomic", "element", "fields", "is_set", "keys", "merge", "merge_key", "message", "open", "retain",
                 "type")  # fmt: skip

    def __init__(
        self,
        type_: Type,
        *,
        fields: dict[str, Shape] | None = None,
        element: Shape | None = None,
        keys: tuple[str, ...] = (),
        is_set: bool = False,
        atomic: bool = False,
        open_: bool = False,
        message: str = "",
    ) -> None:
        self.type, self.fields, self.element = type_, fields, element
        self.keys, self.is_set, self.atomic, self.open = keys, is_set, atomic, open_
        self.merge_key = ""
        self.merge = False
        self.retain = False
        self.message = message

    def child(self, name: str) -> Shape | None:
        """The shape of a member; None when it is not known."""
        if self.type == "object":
            return self.fields.get(name) if self.fields is not None else None
        return self.element if self.type == "map" else None


ANY = Shape("any", open_=True)


class WireField:
    """How one field of a built-in message travels as protobuf."""

    __slots__ = ("inline", "name", "shape")

    def __init__(self, name: str, shape: Shape, inline: bool) -> None:
        self.name, self.shape, self.inline = name, shape, inline


class _Table:
    """The parsed data file; messages become shapes when first asked for."""

    def __init__(self, text: str) -> None:
        self._lines: dict[str, str] = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                name, _, rest = line.partition(" ")
                self._lines[name] = rest
        self._shapes: dict[str, Shape] = {}
        self._wires: dict[str, dict[int, WireField]] = {}

    def __contains__(self, message: str) -> bool:
        return message in self._lines

    def shape(self, message: str) -> Shape:
        found = self._shapes.get(message)
        if found is None:
            fields: dict[str, Shape] = {}
            found = self._shapes[message] = Shape("object", fields=fields, message=message)
            found.atomic = self._lines[message].startswith("!")
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

    def _field(self, kind: str, flags: list[str]) -> Shape:
        if kind.startswith("[]"):
            shape = Shape("list", element=self._plain(kind[2:]))
        elif kind.startswith("{}"):
            shape = Shape("map", element=self._plain(kind[2:]))
        else:
            plain = self._plain(kind)
            if "atomic" not in flags and "retain" not in flags:
                return plain
            shape = Shape(plain.type, fields=plain.fields, message=plain.message, atomic=plain.atomic)
        for flag in flags:
            word, _, value = flag.partition("=")
            match word:
                case "map":
                    shape.keys = tuple(value.split(","))
                case "set":
                    shape.is_set = True
                case "atomic":
                    shape.atomic = True
                case "key":
                    shape.merge_key, shape.merge = value, True
                case "merge":
                    shape.merge = True
                case "retain":
                    shape.retain = True
                case _:
                    pass
        return shape

    def _plain(self, kind: str) -> Shape:
        scalar = _SCALARS.get(kind)
        return Shape(scalar) if scalar is not None else self.shape(kind)


@cache
def _table() -> _Table:
    return _Table(resources.files("kqueue.sandbox").joinpath("builtin_types.txt").read_text())


def builtin(message: str) -> Shape:
    """The shape of a built-in message such as `core.Pod`."""
    return _with_type(message)


@cache
def _with_type(message: str) -> Shape:
    shape = _table().shape(message)
    fields = {"apiVersion": Shape("string"), "kind": Shape("string"), **(shape.fields or {})}
    return Shape("object", fields=fields, message=message)


def wire_fields(message: str) -> dict[int, WireField]:
    """The fields of a built-in message by their numbers on the wire."""
    return _table().wire(message)
