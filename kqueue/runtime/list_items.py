"""Decodes the items of a list of any length, with turns of the event loop between pieces.

A body is cut into pieces of some hundred items without reading it first: in valid JSON the text that ends one item and
begins the next cannot be a part of a string, because a quotation mark inside of a string is escaped.  A body in another
form is decoded item by item.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from types import GenericAlias
from typing import Generic, TypeVar, cast

import msgspec

from kqueue.clock import Clock
from kqueue.errors import ServerError

T = TypeVar("T")

_PIECE = 64 * 1024
"""Bytes of a piece, which takes a few milliseconds at most."""
_ITEMS = 200
"""Items of a piece of a body that cannot be cut."""
_BEGIN, _END, _TAIL = b'"items":[', b"]}", 64
"""The texts around the items, and the bytes in which the second one and white space after it are looked for."""


class _Loose(msgspec.Struct, frozen=True, gc=False):
    items: list[msgspec.Raw] | None = None


class ListItems(Generic[T]):
    """Decodes the items of lists of one kind."""

    def __init__(self, kind: type[T], *, first_field: str, clock: Clock) -> None:
        """Take the struct of an item, and the field that servers write first; no list inside of an item may have
        objects that begin with this field.
        """
        self._many = msgspec.json.Decoder(cast("type[list[T]]", GenericAlias(list, (kind,))))
        self._one: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)
        self._loose = msgspec.json.Decoder(_Loose)
        self._raws = msgspec.json.Decoder(list[msgspec.Raw])
        self._cut = b'},{"' + first_field.encode() + b'":'
        self._clock = clock

    async def of(self, body: bytes, what: str) -> AsyncIterator[Sequence[T | None]]:
        """Yield the items in pieces; None for an item of another form.  The event loop has a turn after each piece.

        Raises:
            ServerError: the body is no list.
        """
        try:
            for piece in self._pieces(body):
                yield self._decoded(piece)
                await self._clock.sleep(0)
        except msgspec.DecodeError as e:
            begins = " ".join(body[:120].decode("utf-8", "replace").split())
            raise ServerError(f"{what}: the answer is no list, it begins: {begins!r}", status=200) from e

    def _pieces(self, body: bytes) -> Iterator[bytes | list[msgspec.Raw]]:
        tail = body[-_TAIL:]
        begin, end = body.find(_BEGIN), len(body) - len(tail) + len(tail.rstrip()) - len(_END)
        if begin < 0 or end <= begin or body[end : end + len(_END)] != _END or body.find(self._cut, begin) < 0:
            raws = self._loose.decode(body).items or []
            yield from (raws[first : first + _ITEMS] for first in range(0, len(raws), _ITEMS))
            return
        first = begin + len(_BEGIN)
        while True:
            last = body.find(self._cut, first + _PIECE, end)
            yield b"[" + (body[first : last + 1] if last >= 0 else body[first:end]) + b"]"
            if last < 0:
                return
            first = last + 2

    def _decoded(self, piece: bytes | list[msgspec.Raw]) -> Sequence[T | None]:
        if isinstance(piece, bytes):
            try:
                return self._many.decode(piece)
            except msgspec.ValidationError:
                piece = self._raws.decode(piece)
        return [self._read(raw) for raw in piece]

    def _read(self, raw: msgspec.Raw) -> T | None:
        try:
            return self._one.decode(raw)
        except msgspec.ValidationError:
            return None
