"""JSON and YAML that users wrote: how deep and how large it may be, judged before objects are made of it.

A text of a few MiB can mean millions of objects, and a parser that calls itself for each bracket overflows its stack.
Every file of a user and every body of a request is judged here first.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import yaml


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentLimits:
    """Limits of one document."""

    depth: int = 200
    """Lists and mappings inside each other.  Schemas of CustomResourceDefinitions, the deepest of all, have 60."""
    values: int = 250_000
    """An object that etcd stores has 1.5 MiB at most; this is one value for each 6 bytes of it."""


LIMITS = DocumentLimits()


class TooMuchError(ValueError):
    """A document is deeper or larger than it may be.  The text says which limit, and what to do."""


def _too_deep(limits: DocumentLimits) -> str:
    return f"it is nested more than {limits.depth} levels deep; flatten it"


def _too_large(limits: DocumentLimits) -> str:
    return f"it has more than {limits.values} values; split it, or make it smaller"


# --- JSON

_OPENING, _CLOSING = b"{[", b"}]"
_STEPS = bytes(1 if code in _OPENING else 255 if code in _CLOSING else 0 for code in range(256))
"""The change of the depth by each byte, as a signed byte."""
_NO_BRACKET = bytes(code for code in range(256) if code not in _OPENING + _CLOSING)


class JsonScan:
    """Counts the values and the depth of one JSON text that arrives in pieces.  It makes no objects.

    Other texts may be counted wrongly behind their first mistake, where a parser stops.
    """

    __slots__ = ("_depth", "_escape", "_inside", "_limits", "_values")

    def __init__(self, limits: DocumentLimits = LIMITS) -> None:
        self._limits = limits
        self._depth = self._values = 0
        self._inside = 0
        """1 within quotes, else 0."""
        self._escape = b""
        """A backslash at the end of the last piece: the byte behind it is still to come."""

    def feed(self, piece: bytes) -> None:
        """Count the values in the next piece.

        Raises:
            TooMuchError: the text is deeper or has more values than it may.
        """
        outside = self._outside(piece)
        self._values += outside.count(b"{") + outside.count(b"[") + outside.count(b",")
        if self._values > self._limits.values:
            raise TooMuchError(_too_large(self._limits))
        steps = memoryview(outside.translate(_STEPS, _NO_BRACKET)).cast("b")
        depths = list(accumulate(steps, initial=self._depth))
        self._depth = depths[-1]
        if max(depths) > self._limits.depth:
            raise TooMuchError(_too_deep(self._limits))

    def _outside(self, piece: bytes) -> bytes:
        """Return the parts of a piece that are outside of quotes."""
        piece = self._escape + piece
        backslashes = len(piece) - len(piece.rstrip(b"\\"))
        self._escape = b"\\" * (backslashes % 2)
        plain = piece[: len(piece) - len(self._escape)].replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = plain.split(b'"')
        outside = b"".join(parts[self._inside :: 2])
        self._inside = (self._inside + len(parts) - 1) % 2
        return outside


_STEP_BYTES = 64 * 1024


def check_json(text: bytes, limits: DocumentLimits = LIMITS) -> None:
    """Judge a whole JSON text.  One that has too few bytes and brackets to break a limit is not looked at closely.

    Raises:
        TooMuchError: it is deeper or has more values than it may.
    """
    if len(text) <= limits.values and text.count(b"{") + text.count(b"[") <= limits.depth:
        return
    scan = JsonScan(limits)
    for start in range(0, len(text), _STEP_BYTES):
        scan.feed(text[start : start + _STEP_BYTES])


# --- YAML


def load_yaml(
    text: str | bytes, loader: Any = None, *, aliases: bool = True, limits: DocumentLimits = LIMITS
) -> list[Any]:
    """Return the documents of a YAML text, empty ones left out; `loader` is a safe one (None: the fastest available).

    Without `aliases` a text that has some is refused.

    Raises:
        yaml.YAMLError: it is no YAML, or deeper or larger than it may be, with its aliases written out; names the line.
        ValueError: a value of it is none, such as the 31st of February.
    """
    import yaml

    fastest = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # without libyaml there is only the slow one
    _check_yaml(text, fastest, aliases, limits)
    return [found for found in yaml.load_all(text, Loader=loader or fastest) if found is not None]


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not come yet."""

    anchor: str | None
    values: int = 1


def _check_yaml(text: str | bytes, loader: Any, aliases: bool, limits: DocumentLimits) -> None:
    """Follow the parser's events, which come one by one and need no stack."""
    import yaml

    opened: list[_Open] = [_Open(None)]
    anchored: dict[str, int] = {}
    """Values below each anchor, aliases written out."""
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.CollectionStartEvent):
            opened.append(_Open(event.anchor))
            if len(opened) - 1 > limits.depth:
                raise _refused(_too_deep(limits), event)
        elif isinstance(event, yaml.CollectionEndEvent):
            _close(opened, anchored)
        elif isinstance(event, yaml.ScalarEvent):
            opened[-1].values += 1
        elif isinstance(event, yaml.AliasEvent):
            if not aliases:
                raise _refused("it has aliases, which are not read here; write the values out", event)
            if any(each.anchor == event.anchor for each in opened):
                raise _refused(f"*{event.anchor} is inside of the value that it names; write it out", event)
            opened[-1].values += anchored.get(event.anchor or "", 1)
        if opened[-1].values > limits.values:
            raise _refused(_too_large(limits), event)


def _close(opened: list[_Open], anchored: dict[str, int]) -> None:
    closed = opened.pop()
    opened[-1].values += closed.values
    if closed.anchor is not None:
        anchored[closed.anchor] = closed.values


def _refused(problem: str, event: yaml.Event) -> yaml.MarkedYAMLError:
    from yaml.constructor import ConstructorError

    mark: Any = event.start_mark
    return ConstructorError(None, None, problem, mark)


def first_document(text: str | bytes) -> Any:
    """Return the only document of a YAML text, None for an empty one.

    Raises:
        yaml.YAMLError: it is no YAML, or too deep or too large, or there is more than one document.
        ValueError: a value of it is none.
    """
    from yaml.composer import ComposerError

    documents = load_yaml(text)
    if len(documents) > 1:
        raise ComposerError(None, None, f"one document is expected, found {len(documents)}", None)
    return documents[0] if documents else None
