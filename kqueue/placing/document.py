"""Parses JSON text to plain values, with exact numbers and repeated keys, which `json` drops and checks need."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_LONGEST_INTEGER = 1000  # digits; Python refuses to convert texts of several thousand
_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89abAB]")


class NotJsonError(Exception):
    """The text is no JSON; the message has the position and the reason."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number that is not written as an integer (`1.5`, `1e3`), or that JSON does not have (`NaN`)."""

    text: str

    def __str__(self) -> str:
        return self.text


class Repeating(dict[str, Any]):
    """A JSON object in which some keys occur more than once; the last value of each is kept."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        seen: set[str] = set()
        again: set[str] = set()
        for key, _ in pairs:
            (again if key in seen else seen).add(key)
        self.repeated = sorted(again)


def parse(data: bytes) -> Any:
    """Return the document: integers as int, other numbers as Number, objects with repeated keys as Repeating.

    Raises:
        NotJsonError: the bytes are no UTF-8, or the text is no JSON.
    """
    try:
        text = data.decode("utf-8-sig")
        if not text.strip():
            raise NotJsonError("the input is empty: write one JSON object, as kqueue place --help shows it")
    except UnicodeDecodeError as e:
        raise NotJsonError(f"not UTF-8: byte {data[e.start]:#04x} at offset {e.start}; save the file as UTF-8") from e
    try:
        document = json.loads(
            text, object_pairs_hook=_object, parse_int=_integer, parse_float=Number, parse_constant=Number
        )
        broken = list(_broken_texts(document)) if _SURROGATE_ESCAPE.search(text) else []
    except json.JSONDecodeError as e:
        raise NotJsonError(f"not JSON: {_reason(e)} at line {e.lineno}, column {e.colno}") from e
    except RecursionError as e:
        raise NotJsonError("lists and objects are nested too deeply to be read") from e
    if broken:
        raise NotJsonError(f"the escapes at {', '.join(broken)} are half a character: write the character itself")
    return document


def _reason(error: json.JSONDecodeError) -> str:
    if error.pos == len(error.doc):
        return "the text ends too early,"
    return error.msg[:1].lower() + error.msg[1:]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    return values if len(values) == len(pairs) else Repeating(pairs)


def _integer(text: str) -> int | Number:
    return int(text) if len(text) <= _LONGEST_INTEGER else Number(text)


def pointer(path: str, key: str | int) -> str:
    """Return the JSON pointer of a member of the value at `path`."""
    return f"{path}/{key}" if isinstance(key, int) else f"{path}/{key.replace('~', '~0').replace('/', '~1')}"


def _broken_texts(value: Any, path: str = "") -> Iterator[str]:
    """Yield pointers of texts and keys with half a character (a lone surrogate), which no output can repeat."""
    if isinstance(value, str):
        if _SURROGATE.search(value):
            yield path
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _broken_texts(item, pointer(path, i))
    elif isinstance(value, dict):
        for key in sorted(value):
            if _SURROGATE.search(key):
                yield path
            elif not key.startswith("x-"):
                yield from _broken_texts(value[key], pointer(path, key))
