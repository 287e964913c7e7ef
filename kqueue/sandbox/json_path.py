"""The JSON paths of printer columns: `.spec.a`, `.status.conditions[?(@.type=="Ready")].status`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Step = Callable[[list[Any]], list[Any]]

_FIELD = re.compile(r"\.((?:[^.\[\]\\]|\\.)+)")
_QUOTED = re.compile(r"\[(?:'([^']*)'|\"([^\"]*)\")\]")
_INDEX = re.compile(r"\[(-?\d+)\]")
_ALL = re.compile(r"\[\*\]|\.\*")
_FILTER = re.compile(r"""\[\?\(\s*@\.([\w.\-/]+)\s*==\s*(?:"([^"]*)"|'([^']*)'|(\w+))\s*\)\]""")


class JsonPathError(ValueError):
    """The path has an unsupported form."""


def compiled(path: str) -> Callable[[Any], list[Any]]:
    """Return a function from an object to the values at `path`, maybe none.  Raises JsonPathError."""
    text = path.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    if not text.startswith((".", "[")):
        text = "." + text
    steps: list[Step] = []
    at = 0
    while at < len(text):
        step, at = _step(text, at)
        steps.append(step)

    def values(obj: Any) -> list[Any]:
        found = [obj]
        for step in steps:
            found = step(found)
        return [value for value in found if value is not None]

    return values


def _step(text: str, at: int) -> tuple[Step, int]:
    if match := _ALL.match(text, at):
        return _every, match.end()
    if match := _FILTER.match(text, at):
        wanted = next(group for group in match.groups()[1:] if group is not None)
        return _matching(match[1].split("."), wanted), match.end()
    if match := _QUOTED.match(text, at):
        return _member(match[1] if match[1] is not None else match[2]), match.end()
    if match := _INDEX.match(text, at):
        return _item(int(match[1])), match.end()
    if match := _FIELD.match(text, at):
        return _member(match[1].replace("\\", "")), match.end()
    raise JsonPathError(f"{text!r}: {text[at:]!r} is not understood")


def _member(key: str) -> Step:
    return lambda values: [value[key] for value in values if isinstance(value, dict) and key in value]


def _item(index: int) -> Step:
    return lambda values: [
        value[index] for value in values if isinstance(value, list) and -len(value) <= index < len(value)
    ]


def _every(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        found += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return found


def _matching(keys: list[str], wanted: str) -> Step:
    def holds(item: Any) -> bool:
        for key in keys:
            item = item.get(key) if isinstance(item, dict) else None
        text = {True: "true", False: "false"}.get(item, str(item)) if isinstance(item, bool) else str(item)
        return item is not None and text == wanted

    return lambda values: [item for item in _every(values) if holds(item)]
