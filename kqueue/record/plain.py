"""Values of the core as plain JSON values, and back: by the type hints of their dataclasses, and nothing else.

Reading makes only the dataclasses that the expected type names, so a file chooses no code.  Every value is checked:
unknown fields, missing fields and other types are refused with their path.  The order of mappings is kept, because a
plan walks them; in canonical form mappings are sorted, so that equal values have equal texts.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from kqueue.errors import KqueueError

Plain = Any
"""A JSON value: None, bool, int, float, str, a list, or a dict with text keys."""
Write = Callable[[Any], Plain]
Read = Callable[[Plain], Any]

_MICROSECOND = timedelta(microseconds=1)
_LONGEST_SPAN = 1 << 60
"""Microseconds of the longest span of time: far beyond every setting, and within what `timedelta` holds."""
_INT64 = 1 << 63


class UnreadableValueError(KqueueError):
    """A plain value is not of the expected form.  `path` is where, innermost part first."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path: list[str] = []

    def __str__(self) -> str:
        path = "".join(part if part.startswith("[") else f".{part}" for part in reversed(self.path)).lstrip(".")
        return f"{path}: {self.problem}" if path else self.problem


class Writers:
    """Makes plain values.

    Args:
        canonical: mappings are sorted by their keys.
        omit_defaults: fields that have their default are left out, as readers allow.
        instead: by class, the function that writes its values in place of the fields.
    """

    def __init__(
        self, *, canonical: bool = False, omit_defaults: bool = False, instead: Mapping[type, Write] | None = None
    ) -> None:
        self._canonical, self._omit_defaults, self._instead = canonical, omit_defaults, instead or {}
        self._known: dict[Any, Write] = {}

    def of(self, kind: Any) -> Write:
        """Return the function that writes values of a type.  Raises TypeError: the type has no plain form."""
        known = self._known.get(kind)
        if known is None:
            known = self._known[kind] = self._made(kind)
        return known

    def _made(self, kind: Any) -> Write:
        if kind in self._instead:
            return self._instead[kind]
        if kind in (int, str, bool, float):
            return _same
        if kind is datetime:
            return datetime.isoformat
        if kind is timedelta:
            return _microseconds
        if isinstance(kind, type) and issubclass(kind, Enum):
            return _value_of
        if isinstance(kind, type) and is_dataclass(kind):
            return self._dataclass(kind)
        if _is_named_tuple(kind):
            return _each_of([self.of(hint) for hint in get_type_hints(kind).values()])
        return self._generic(kind, get_origin(kind), get_args(kind))

    def _generic(self, kind: Any, origin: Any, args: tuple[Any, ...]) -> Write:
        if origin in (Union, types.UnionType):
            write = self.of(_without_none(kind, args))
            return lambda value: None if value is None else write(value)
        if origin in (tuple, list, Sequence):
            if origin is tuple and args[-1] is not Ellipsis:
                return _each_of([self.of(arg) for arg in args])
            item = self.of(args[0])
            return lambda value: [item(each) for each in value]
        if origin in (frozenset, set, Collection):
            item = self.of(args[0])
            return lambda value: [item(each) for each in (sorted(value) if _is_unordered(value) else value)]
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return self._mapping(*args)
        raise TypeError(f"{kind} has no plain form")

    def _mapping(self, key: Any, item: Any) -> Write:
        write_key, write, canonical = self.of(key), self.of(item), self._canonical

        def written(value: Mapping[Any, Any]) -> Plain:
            pairs = sorted(value.items(), key=_first) if canonical else value.items()
            if key is str:
                return {name: write(each) for name, each in pairs}
            return [[write_key(name), write(each)] for name, each in pairs]

        return written

    def _dataclass(self, kind: type) -> Write:
        writers: dict[str, Write] = {}
        hints = get_type_hints(kind)

        def written(value: Any) -> Plain:
            return {name: write(getattr(value, name)) for name, write in writers.items()}

        def without_defaults(value: Any) -> Plain:
            given = ((name, write, getattr(value, name)) for name, write in writers.items())
            return {name: write(each) for name, write, each in given if name not in defaults or each != defaults[name]}

        defaults = _defaults(kind) if self._omit_defaults else {}
        if defaults:
            written = without_defaults
        self._known[kind] = written  # before its fields: a class may contain itself
        writers.update((f.name, self.of(hints[f.name])) for f in fields(kind) if f.init)
        return written


@cache
def reader(kind: Any) -> Read:
    """Return the function that reads values of a type; it raises UnreadableValueError.

    Raises TypeError: the type has no plain form.
    """
    if kind in _PLAIN_READERS:
        return _PLAIN_READERS[kind]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _member(kind)
    if isinstance(kind, type) and is_dataclass(kind):
        return _dataclass_reader(kind)
    if _is_named_tuple(kind):
        return _read_each([reader(hint) for hint in get_type_hints(kind).values()], kind._make)
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        read = reader(_without_none(kind, args))
        return lambda value: None if value is None else read(value)
    if origin in (tuple, list, Sequence, Collection, frozenset, set):
        if origin is tuple and args[-1] is not Ellipsis:
            return _read_each([reader(arg) for arg in args], tuple)
        return _read_all(reader(args[0]), frozenset if origin in (frozenset, set) else tuple)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _read_mapping(*args)
    raise TypeError(f"{kind} has no plain form")


def at(part: str, read: Read, value: Plain) -> Any:
    """Read a value; an error names `part` in its path."""
    try:
        return read(value)
    except UnreadableValueError as e:
        e.path.append(part)
        raise


def _dataclass_reader(kind: type) -> Read:
    readers: dict[str, Read] = {}
    required: list[str] = []

    def read(value: Plain) -> Any:
        if not readers:  # at the first use: a class may contain itself
            hints = get_type_hints(kind)
            those = [f for f in fields(kind) if f.init]
            required.extend(f.name for f in those if f.default is MISSING and f.default_factory is MISSING)
            readers.update((f.name, reader(hints[f.name])) for f in those)
        if type(value) is not dict:
            raise UnreadableValueError(f"an object with the fields of {kind.__name__} is needed")
        given: dict[str, Any] = {}
        name = ""
        try:
            for name, each in value.items():
                given[name] = readers[name](each)
        except KeyError:
            raise UnreadableValueError(f"{kind.__name__} has no field {name!r:.80} in this version") from None
        except UnreadableValueError as e:
            e.path.append(name)
            raise
        if len(given) < len(readers):
            for name in required:
                if name not in given:
                    raise UnreadableValueError(f"the field {name} of {kind.__name__} is missing")
        return kind(**given)

    return read


def _read_mapping(key: Any, item: Any) -> Read:
    read_key, read = reader(key), reader(item)

    def from_object(value: Plain) -> Any:
        if type(value) is not dict:
            raise UnreadableValueError("an object is needed")
        made: dict[str, Any] = {}
        name = ""
        try:
            for name, each in value.items():
                made[name] = read(each)
        except UnreadableValueError as e:
            e.path.append(f"[{name:.80}]")
            raise
        return made

    def from_pairs(value: Plain) -> Any:
        pairs = _as_list(value)
        if any(type(pair) is not list or len(pair) != 2 for pair in pairs):
            raise UnreadableValueError("a list of pairs is needed")
        return {read_key(name): at(f"[{i}]", read, each) for i, (name, each) in enumerate(pairs)}

    return from_object if key is str else from_pairs


def _read_all(read: Read, make: Callable[[list[Any]], Any]) -> Read:
    def read_all(value: Plain) -> Any:
        made: list[Any] = []
        try:
            for each in _as_list(value):
                made.append(read(each))
        except UnreadableValueError as e:
            e.path.append(f"[{len(made)}]")
            raise
        return make(made)

    return read_all


def _read_each(readers: Sequence[Read], make: Callable[[list[Any]], Any]) -> Read:
    def read_each(value: Plain) -> Any:
        items = _as_list(value)
        if len(items) != len(readers):
            raise UnreadableValueError(f"{len(readers)} items are needed, found {len(items)}")
        made: list[Any] = []
        try:
            for read, each in zip(readers, items, strict=True):
                made.append(read(each))
        except UnreadableValueError as e:
            e.path.append(f"[{len(made)}]")
            raise
        return make(made)

    return read_each


def _as_list(value: Plain) -> list[Plain]:
    if type(value) is not list:
        raise UnreadableValueError("a list is needed")
    return value


def _read_int(value: Plain) -> int:
    if type(value) is not int or not -_INT64 <= value < _INT64:
        raise UnreadableValueError("a whole number of 64 bits is needed")
    return value


def _read_float(value: Plain) -> float:
    if type(value) not in (int, float):
        raise UnreadableValueError("a number is needed")
    return float(value)


def _read_text(value: Plain) -> str:
    if type(value) is not str:
        raise UnreadableValueError("a text is needed")
    return value


def _read_bool(value: Plain) -> bool:
    if type(value) is not bool:
        raise UnreadableValueError("true or false is needed")
    return value


def _read_time(value: Plain) -> datetime:
    try:
        time = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise UnreadableValueError("a time with a time zone is needed") from None
    if time.tzinfo is None:
        raise UnreadableValueError("a time with a time zone is needed")
    return time


def _read_span(value: Plain) -> timedelta:
    if type(value) is not int or not -_LONGEST_SPAN <= value <= _LONGEST_SPAN:
        raise UnreadableValueError("a number of microseconds is needed")
    return timedelta(microseconds=value)


def _member(kind: type[Enum]) -> Read:
    members = {member.value: member for member in kind}

    def read(value: Plain) -> Enum:
        found = members.get(value) if isinstance(value, str | int) else None
        if found is None:
            raise UnreadableValueError(f"no {kind.__name__} of this version: {value!r:.80}")
        return found

    return read


_PLAIN_READERS: dict[Any, Read] = {
    int: _read_int,
    float: _read_float,
    str: _read_text,
    bool: _read_bool,
    datetime: _read_time,
    timedelta: _read_span,
}


def _defaults(kind: type) -> dict[str, Any]:
    return {
        f.name: f.default_factory() if f.default_factory is not MISSING else f.default
        for f in fields(kind)
        if f.default is not MISSING or f.default_factory is not MISSING
    }


def _same(value: Any) -> Plain:
    return value


def _value_of(value: Enum) -> Plain:
    return value.value


def _microseconds(value: timedelta) -> int:
    return value // _MICROSECOND


def _each_of(writers: Sequence[Write]) -> Write:
    return lambda value: [write(each) for write, each in zip(writers, value, strict=True)]


def _is_unordered(value: object) -> bool:
    return isinstance(value, set | frozenset)


def _is_named_tuple(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def _without_none(kind: Any, args: tuple[Any, ...]) -> Any:
    others = [arg for arg in args if arg is not type(None)]
    if len(others) != 1:
        raise TypeError(f"{kind} has no plain form")
    return others[0]


def _first(pair: tuple[Any, Any]) -> Any:
    return pair[0]
