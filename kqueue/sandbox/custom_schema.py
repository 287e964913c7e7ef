"""The structural schema of a custom kind: pruning, defaulting and validation.

CEL rules (`x-kubernetes-validations`) are not run here; only the real API server enforces them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from typing import Any

from kqueue.sandbox import failure, fieldset
from kqueue.sandbox.api import Object
from kqueue.sandbox.decoding import METADATA, Path, dotted
from kqueue.sandbox.failure import Cause
from kqueue.sandbox.shape import ANY, ApplyRules, FieldShape, builtin
from kqueue.sandbox.store import copied

Schema = dict[str, Any]
PRESERVE = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
INT_OR_STRING = "x-kubernetes-int-or-string"
LIST_TYPE = "x-kubernetes-list-type"
LIST_KEYS = "x-kubernetes-list-map-keys"
MAP_TYPE = "x-kubernetes-map-type"
ALWAYS_KNOWN = ("apiVersion", "kind", "metadata")
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}
_INT_RANGES = {"int32": 2**31, "int64": 2**63}
_COMBINING = frozenset({"allOf", "anyOf", "oneOf", "not"})


@lru_cache(maxsize=4096)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


class CustomSchema:
    """One version's schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.shape = _root_shape(schema)

    def prune(self, obj: Object, unknown: list[str]) -> None:
        """Remove fields that the schema does not name, and append their paths to `unknown`."""
        _prune(self.schema, obj, (), unknown, root=True)

    def default(self, obj: Object) -> None:
        """Fill missing fields with defaults of the schema."""
        _default(self.schema, obj)

    def causes(self, obj: Object) -> list[Cause]:
        """Return all mistakes outside metadata."""
        found: list[Cause] = []
        properties = self.schema.get("properties") or {}
        for key, value in obj.items():
            if key not in ALWAYS_KNOWN and key in properties:
                found += _check(properties[key], value, ((), key))
        return found + _required(self.schema, obj, ())


def _root_shape(schema: Schema) -> FieldShape:
    shape = _shape(schema)
    fields = dict(shape.fields or {})
    fields["metadata"] = builtin(METADATA)
    return FieldShape("object", fields=fields, open_=True)


def _shape(schema: Schema) -> FieldShape:
    match schema.get("type"):
        case "object":
            apply = ApplyRules(atomic=schema.get(MAP_TYPE) == "atomic")
            if isinstance(extra := schema.get("additionalProperties"), dict):
                return FieldShape("map", element=_shape(extra), apply=apply)
            fields = {name: _shape(inner) for name, inner in (schema.get("properties") or {}).items()}
            return FieldShape("object", fields=fields, apply=apply, open_=bool(schema.get(PRESERVE)))
        case "array":
            kind = schema.get(LIST_TYPE, "atomic")
            keys = tuple(schema.get(LIST_KEYS) or ()) if kind == "map" else ()
            apply = ApplyRules(keys=keys, is_set=kind == "set")
            return FieldShape("list", element=_shape(schema.get("items") or {}), apply=apply)
        case _:
            return ANY


def _prune(schema: Schema, value: Any, path: Path, unknown: list[str], *, root: bool = False) -> None:
    if type(value) is list:
        items = schema.get("items")
        if isinstance(items, dict):
            for index, item in enumerate(value):
                _prune(items, item, (path, index), unknown)
        return
    if type(value) is not dict:
        return
    properties = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    keep = bool(schema.get(PRESERVE)) or extra is True
    known = ALWAYS_KNOWN if root or schema.get(EMBEDDED) else ()
    for key in list(value):
        if root and key in ALWAYS_KNOWN:
            continue
        inner = properties.get(key) or (extra if isinstance(extra, dict) else None)
        if inner is not None:
            if value[key] is None and not inner.get("nullable"):
                del value[key]
            else:
                _prune(inner, value[key], (path, key), unknown)
        elif not keep and key not in known:
            del value[key]
            unknown.append(dotted((path, key)))


def _default(schema: Schema, value: Any) -> None:
    if type(value) is dict:
        for key, inner in (schema.get("properties") or {}).items():
            if "default" in inner and key not in value:
                value[key] = copied(inner["default"])
            if key in value:
                _default(inner, value[key])
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict):
            for key in value.keys() - (schema.get("properties") or {}).keys():
                _default(extra, value[key])
    elif type(value) is list and isinstance(items := schema.get("items"), dict):
        for item in value:
            _default(items, item)


def _check(schema: Schema, value: Any, path: Path) -> list[Cause]:
    """Return all mistakes in a value and below it."""
    if value is None:
        return [] if schema.get("nullable") else [_wrong_type(schema.get("type", "object"), value, path)]
    if schema.get(INT_OR_STRING):
        if type(value) is not int and type(value) is not str:
            return [_wrong_type("integer,string", value, path)]
    elif (wanted := schema.get("type")) and not _is(value, wanted):
        return [_wrong_type(wanted, value, path)]
    found: list[Cause] = []
    if (allowed := schema.get("enum")) is not None and value not in allowed:
        found.append(failure.unsupported(dotted(path), value, [str(each) for each in allowed]))
    match value:
        case str():
            found += _string_causes(schema, value, path)
        case bool():
            pass
        case int() | float():
            found += _number_causes(schema, value, path)
        case list():
            found += _list_causes(schema, value, path)
        case dict():
            found += _object_causes(schema, value, path)
        case _:
            pass
    if not _COMBINING.isdisjoint(schema):
        found += _combined(schema, value, path)
    return found


def _is(value: Any, wanted: str) -> bool:
    if type(value) is bool:
        return wanted == "boolean"
    if wanted == "integer" and type(value) is float:
        return value.is_integer()
    return isinstance(value, _TYPES.get(wanted, (object,)))


def _wrong_type(wanted: str, value: Any, path: Path) -> Cause:
    where = dotted(path)
    found = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}.get(
        type(value), "null"
    )
    return failure.wrong_type(
        where, found if found != "null" else None, f'{where} in body must be of type {wanted}: "{found}"'
    )


def _invalid(path: Path, value: object, problem: str) -> Cause:
    """Return a mistake whose message names the path, which is written out here only: most values have none."""
    where = dotted(path)
    return failure.invalid(where, value, f"{where} in {problem}")


def _string_causes(schema: Schema, value: str, path: Path) -> Iterator[Cause]:
    """Yield the mistakes in a text: the first one of length and form, and one of its format."""
    if (most := schema.get("maxLength")) is not None and len(value) > most:
        yield Cause("FieldValueTooLong", dotted(path), f"Too long: may not be more than {most} bytes")
    elif (least := schema.get("minLength")) is not None and len(value) < least:
        yield _invalid(path, value, f"body should be at least {least} chars long")
    elif (pattern := schema.get("pattern")) is not None and not _pattern(pattern).search(value):
        yield _invalid(path, value, f"body should match '{pattern}'")
    if schema.get("format") == "date-time":
        try:
            datetime.fromisoformat(value)
        except ValueError:
            yield _invalid(path, value, f'body must be of type date-time: "{value}"')


def _number_causes(schema: Schema, value: float, path: Path) -> Iterator[Cause]:
    limit = _INT_RANGES.get(schema.get("format", ""))
    if limit is not None and not -limit <= value < limit:
        yield _invalid(path, value, f'body must be of type {schema["format"]}: "{value}"')
    least, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    if least is not None and (value < least or (above and value == least)):
        word = "greater than" if above else "greater than or equal to"
        yield _invalid(path, value, f"body should be {word} {least}")
    most, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    if most is not None and (value > most or (below and value == most)):
        word = "less than" if below else "less than or equal to"
        yield _invalid(path, value, f"body should be {word} {most}")
    if (step := schema.get("multipleOf")) and value % step:
        yield _invalid(path, value, f"body should be a multiple of {step}")


def _list_causes(schema: Schema, value: list[Any], path: Path) -> Iterator[Cause]:
    if (least := schema.get("minItems")) is not None and len(value) < least:
        yield _invalid(path, len(value), f"body should have at least {least} items")
    if (most := schema.get("maxItems")) is not None and len(value) > most:
        yield Cause("FieldValueTooMany", dotted(path), f"Too many: {len(value)}: must have at most {most} items")
        return
    yield from _repeated(schema, value, path)
    items = schema.get("items")
    if isinstance(items, dict):
        for index, item in enumerate(value):
            yield from _check(items, item, (path, index))


def _repeated(schema: Schema, value: list[Any], path: Path) -> Iterator[Cause]:
    """Yield duplicate items of a set or map list."""
    kind = schema.get(LIST_TYPE)
    if kind not in ("set", "map"):
        return
    seen: set[str] = set()
    for index, item in enumerate(value):
        if kind == "map" and type(item) is not dict:
            continue
        keys = schema.get(LIST_KEYS) or ()
        shown = {key: item.get(key) for key in keys} if kind == "map" else item
        identity = fieldset.item_name(tuple(keys), item) if kind == "map" else repr(item)
        if identity in seen:
            text = (
                "{" + ", ".join(f'"{k}":{failure.shown(v)}' for k, v in shown.items()) + "}"
                if kind == "map"
                else failure.shown(item)
            )
            yield Cause("FieldValueDuplicate", dotted((path, index)), f"Duplicate value: {text}")
        seen.add(identity)


def _object_causes(schema: Schema, value: Object, path: Path) -> Iterator[Cause]:
    if (least := schema.get("minProperties")) is not None and len(value) < least:
        yield _invalid(path, len(value), f"body should have at least {least} properties")
    if (most := schema.get("maxProperties")) is not None and len(value) > most:
        yield Cause("FieldValueTooMany", dotted(path), f"Too many: {len(value)}: must have at most {most} items")
    yield from _required(schema, value, path)
    properties = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    for key, item in value.items():
        inner = properties.get(key) or (extra if isinstance(extra, dict) else None)
        if inner is not None:
            yield from _check(inner, item, (path, key))


def _required(schema: Schema, value: Object, path: Path) -> list[Cause]:
    return [failure.required(dotted((path, key))) for key in schema.get("required") or () if key not in value]


def _combined(schema: Schema, value: Any, path: Path) -> Iterator[Cause]:
    """Yield mistakes by allOf, anyOf, oneOf and not."""
    for each in schema.get("allOf") or ():
        yield from _check(each, value, path)
    for word, text in (("anyOf", "at least one"), ("oneOf", "one and only one")):
        if choices := schema.get(word):
            passing = sum(not _check(each, value, path) for each in choices)
            if passing == 0 or (word == "oneOf" and passing > 1):
                yield _invalid(path, value, f"body must validate {text} schema ({word})")
    if (banned := schema.get("not")) is not None and not _check(banned, value, path):
        yield _invalid(path, value, "body must not validate the schema (not)")
