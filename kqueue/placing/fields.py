"""Reads one JSON object: every access checks a type, and records each problem with its JSON pointer.

Reading goes on with a harmless value in place of a bad one, so that one run finds all problems.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final

from kqueue.placing.document import Number, Repeating, pointer

COUNT_MAX: Final = 2**31 - 1
"""The largest number of pods, and of other counts."""
_LONGEST_QUOTE = 60


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """A problem, or a probable mistake, at a place of the document, and the remedy."""

    path: str
    text: str


@dataclass(slots=True)
class Problems:
    """All problems of one document in reading order, and beside them remarks on valid but improbable input."""

    found: list[FieldProblem] = field(default_factory=list)
    remarks: list[FieldProblem] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.found)

    def add(self, path: str, text: str) -> None:
        """Note a problem."""
        self.found.append(FieldProblem(path, text))

    def remark(self, path: str, text: str) -> None:
        """Note a valid input whose effect the author probably does not expect."""
        self.remarks.append(FieldProblem(path, text))

    def fields(self, value: Any, path: str, known: Collection[str]) -> Fields:
        """Return the object at `path`, which may have these keys and keys that start with `x-`."""
        return Fields(self, value, path, known)

    def text(self, value: Any, path: str) -> str:
        """Return a text; empty if the value has another type."""
        if isinstance(value, str):
            return value
        self.add(path, f"expected a text, found {quoted(value)}")
        return ""

    def integer(self, value: Any, path: str, *, least: int, most: int = COUNT_MAX) -> int:
        """Return a whole number from `least` to `most`; `least` if the value is something else."""
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        self.add(path, f"expected a whole number from {least} to {most}, found {quoted(value)}")
        return least

    def items(self, value: Any, path: str) -> Iterator[tuple[str, Any]]:
        """Yield the members of a list with their pointers; nothing if the value is no list."""
        if isinstance(value, list):
            yield from ((pointer(path, i), item) for i, item in enumerate(value))
        else:
            self.add(path, f"expected a list, found {quoted(value)}")

    def texts(self, value: Any, path: str) -> tuple[str, ...]:
        """Return a list of texts."""
        return tuple([self.text(item, where) for where, item in self.items(value, path)])

    def members(self, value: Any, path: str) -> Iterator[tuple[str, str, Any]]:
        """Yield (key, pointer, value) of an object with free keys, in key order, without keys that start with `x-`."""
        if not isinstance(value, dict):
            self.add(path, f"expected an object, found {quoted(value)}")
            return
        self.repeated(value, path)
        for key in sorted(value):
            if not key.startswith("x-"):
                yield key, pointer(path, key), value[key]

    def labels(self, value: Any, path: str) -> dict[str, str]:
        """Return an object of texts."""
        return {key: self.text(item, where) for key, where, item in self.members(value, path)}

    def repeated(self, value: dict[str, Any], path: str) -> None:
        """Note the keys that an object has more than once."""
        if isinstance(value, Repeating):
            for key in value.repeated:
                if not key.startswith("x-"):
                    self.add(pointer(path, key), "this key occurs more than once: keep one of them")


class Fields:
    """A JSON object with a fixed set of keys. The methods take a key and, if the key is optional, a default."""

    __slots__ = ("_is_object", "_path", "_problems", "_value")

    def __init__(self, problems: Problems, value: Any, path: str, known: Collection[str]) -> None:
        self._problems, self._path = problems, path
        self._is_object = isinstance(value, dict)
        self._value: dict[str, Any] = value if self._is_object else {}
        if not self._is_object:
            problems.add(path, f"expected an object, found {quoted(value)}")
        elif not self._value.keys() <= frozenset(known):
            for key in sorted(self._value.keys() - known):
                if not key.startswith("x-"):
                    meant = similar(key, known)
                    problems.add(
                        pointer(path, key),
                        f"unknown key: the keys here are {', '.join(sorted(known))} (x- begins a note of yours)"
                        + (f"; perhaps {meant} is meant" if meant else ""),
                    )
        problems.repeated(self._value, path)

    def path(self, key: str) -> str:
        """Return the pointer of a key."""
        return pointer(self._path, key)

    def has(self, key: str) -> bool:
        """Whether the key is present with a value other than null."""
        return self._value.get(key) is not None

    def given(self, key: str) -> bool:
        """Whether the key is present, with any value."""
        return key in self._value

    def require(self, key: str, what: str) -> bool:
        """Whether the key is present; its absence is a problem."""
        if key in self._value:
            return True
        if self._is_object:
            self._problems.add(self.path(key), f"missing: {what} is needed here")
        return False

    def value(self, key: str, default: Any = None) -> Any:
        """Return the value unchecked."""
        return self._value.get(key, default)

    def text(self, key: str, default: str = "") -> str:
        """Return a text."""
        return self._problems.text(self._value[key], self.path(key)) if key in self._value else default

    def optional_text(self, key: str) -> str | None:
        """Return a text; None if the key is absent or null."""
        return self._problems.text(self._value[key], self.path(key)) if self.has(key) else None

    def choice(self, key: str, choices: Collection[str], default: str) -> str:
        """Return a text that must be one of `choices`."""
        value = self._value.get(key, default)
        if isinstance(value, str) and value in choices:
            return value
        allowed = ", ".join(choice or repr(choice) for choice in choices)
        self._problems.add(self.path(key), f"expected one of {allowed}; found {quoted(value)}")
        return default

    def flag(self, key: str, default: bool = False) -> bool:
        """Return a boolean."""
        value = self._value.get(key, default)
        if isinstance(value, bool):
            return value
        self._problems.add(self.path(key), f"expected true or false, found {quoted(value)}")
        return default

    def integer(self, key: str, default: int, *, least: int, most: int = COUNT_MAX) -> int:
        """Return a whole number."""
        if key not in self._value:
            return default
        return self._problems.integer(self._value[key], self.path(key), least=least, most=most)

    def items(self, key: str) -> Iterator[tuple[str, Any]]:
        """Yield the members of a list with their pointers; nothing if the key is absent."""
        return self._problems.items(self._value[key], self.path(key)) if key in self._value else iter(())

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts."""
        return self._problems.texts(self._value[key], self.path(key)) if key in self._value else ()

    def labels(self, key: str) -> dict[str, str]:
        """Return an object of texts."""
        return self._problems.labels(self._value[key], self.path(key)) if key in self._value else {}

    def members(self, key: str) -> Iterator[tuple[str, str, Any]]:
        """Yield (key, pointer, value) of an object with free keys; nothing if the key is absent."""
        return self._problems.members(self._value[key], self.path(key)) if key in self._value else iter(())


def similar(word: str, words: Iterable[str]) -> str | None:
    """Return the most similar one of `words`, or None if none is similar."""
    return _similar(word, tuple(sorted(words))) if len(word) <= _LONGEST_QUOTE else None


@lru_cache(maxsize=1024)  # a list often has the same mistake in every entry
def _similar(word: str, words: tuple[str, ...]) -> str | None:
    folded = {other.lower(): other for other in words}
    found = get_close_matches(word.lower(), folded, n=1)
    return folded[found[0]] if found else None


def printable(text: str, *, keep: str = "") -> str:
    """Return text for a terminal: characters that do not print become escapes, except the characters in `keep`."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode() for char in text
    )


def quoted(value: Any) -> str:
    """Return a JSON value for the text of a problem."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | Number():
            return _short(str(value))
        case str():
            return _short(repr(value))
        case list():
            return "a list"
        case _:
            return "an object"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}... ({len(text)} characters)"
