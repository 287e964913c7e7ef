"""Merge patches, JSON patches and strategic merge patches.  All return a new object and do not change the old one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jsonpatch

from kqueue.errors import ApiError, InvalidError
from kqueue.sandbox import failure
from kqueue.sandbox.api import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Object
from kqueue.sandbox.decoding import shape_of
from kqueue.sandbox.registry import ServedKind
from kqueue.sandbox.shape import ANY, FieldShape
from kqueue.sandbox.store import copied

ORDER = "$setElementOrder/"
DELETE_VALUES = "$deleteFromPrimitiveList/"
RETAIN = "$retainKeys"
DIRECTIVE = "$patch"
LONGEST_JSON_PATCH = 10_000


def patcher(kind: ServedKind, wanted: Any, content_type: str) -> Callable[[Object], Object]:
    """Return a function from the present object to a patched copy.

    Raises:
        InvalidError: the kind has no patches of this type (415).
    """
    if content_type == STRATEGIC_PATCH and kind.custom is not None:
        raise failure.unsupported_media(
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        )
    return lambda old: copied(patched(old, wanted, content_type, kind))


def patched(old: Object, wanted: Any, content_type: str, kind: ServedKind) -> Object:
    """Return `old` after the patch; unchanged parts are shared with `old`.

    Raises:
        InvalidError: the patch has an unknown type (415), is malformed (400) or cannot be applied (422).
    """
    match content_type:
        case "application/merge-patch+json":
            new = merged(old, _object(wanted))
        case "application/strategic-merge-patch+json":
            new = strategic(old, _object(wanted), shape_of(kind))
        case "application/json-patch+json":
            new = json_patched(old, wanted)
        case _:
            raise failure.unsupported_media(
                "the body of the request was in an unknown format - accepted media types include: "
                f"{JSON_PATCH}, {MERGE_PATCH}, {STRATEGIC_PATCH}, application/apply-patch+yaml"
            )
    if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
        raise failure.bad_request("the patch leaves no object")
    return new


def _object(wanted: Any) -> Object:
    if not isinstance(wanted, dict):
        raise failure.bad_request("the patch must be a JSON object")
    return wanted


def merged(old: Any, wanted: Any) -> Any:
    """Apply a merge patch of RFC 7386: null removes, objects merge, all else replaces."""
    if type(wanted) is not dict:
        return wanted
    out = dict(old) if type(old) is dict else {}
    for key, value in wanted.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merged(out.get(key), value)
    return out


def json_patched(old: Object, wanted: Any) -> Object:
    """Apply a JSON patch of RFC 6902."""
    if not isinstance(wanted, list):
        raise failure.bad_request("a JSON patch must be a list of operations")
    if len(wanted) > LONGEST_JSON_PATCH:
        raise failure.bad_request(f"a JSON patch may have at most {LONGEST_JSON_PATCH} operations")
    try:
        new: Object = jsonpatch.JsonPatch(wanted).apply(copied(old), in_place=True)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError, KeyError, ValueError) as error:
        raise _unprocessable(f"the JSON patch cannot be applied: {error}") from error
    return new


def _unprocessable(message: str) -> ApiError:
    return InvalidError(message, status=422, reason="Invalid")


def strategic(old: Any, wanted: Object, shape: FieldShape) -> Any:
    """Apply a strategic merge patch: lists with a merge key merge by that key, and `$`-directives apply."""
    directive = wanted.get(DIRECTIVE)
    if directive == "replace":
        return _without_directives(wanted)
    if directive == "delete":
        return {}
    out: Object = dict(old) if type(old) is dict else {}
    if (kept := wanted.get(RETAIN)) is not None:
        out = {key: value for key, value in out.items() if key in kept}
    for key, value in wanted.items():
        if key.startswith(DELETE_VALUES):
            name = key.removeprefix(DELETE_VALUES)
            out[name] = [item for item in out.get(name) or [] if item not in value]
    for key, value in wanted.items():
        if key.startswith("$"):
            continue
        field = shape.child(key) or ANY
        if value is None:
            out.pop(key, None)
        elif type(value) is dict:
            out[key] = strategic(out.get(key), value, field)
        elif type(value) is list and field.patch.merge:
            before = out.get(key) or []
            order = wanted.get(ORDER + key, value)
            out[key] = _ordered(_merged_list(before, value, field), order, field.patch.merge_key, before)
        else:
            out[key] = _without_directives(value)
    for key, order in wanted.items():
        name = key.removeprefix(ORDER)
        if key.startswith(ORDER) and name not in wanted and out.get(name):
            out[name] = _ordered(out[name], order, (shape.child(name) or ANY).patch.merge_key, out[name])
    return out


def _merged_list(old: list[Any], wanted: list[Any], shape: FieldShape) -> list[Any]:
    key = shape.patch.merge_key
    if not key:
        return old + [item for item in wanted if item not in old]
    if any(type(item) is not dict for item in wanted):
        raise failure.bad_request("the patch has a list of plain values where objects merge by a key")
    if any(item.get(DIRECTIVE) == "replace" for item in wanted):
        return [_without_directives(item) for item in wanted if set(item) != {DIRECTIVE}]
    out = list(old)
    for item in wanted:
        if key not in item:
            raise failure.bad_request(f"the patch has a list item without its merge key {key}: {item}")
        where = next((i for i, present in enumerate(out) if present.get(key) == item[key]), None)
        if item.get(DIRECTIVE) == "delete":
            out = [present for present in out if present.get(key) != item[key]]
        elif where is None:
            out.append(strategic({}, item, shape.element or ANY))
        else:
            out[where] = strategic(out[where], item, shape.element or ANY)
    return out


def _ordered(items: list[Any], order: list[Any], key: str, before: list[Any]) -> list[Any]:
    """Return items of `order` in that order, and the others in the order of `before`.

    Two items that both were in `before` keep their order; new items come first.
    """

    def identity(item: Any) -> str:
        return repr(item.get(key) if key and type(item) is dict else item)

    rank = {identity(item): position for position, item in enumerate(order)}
    place = {identity(item): position for position, item in enumerate(before)}
    named = sorted((item for item in items if identity(item) in rank), key=lambda item: rank[identity(item)])
    others = [item for item in items if identity(item) not in rank]
    out: list[Any] = []
    while named and others:
        mine, theirs = place.get(identity(named[0])), place.get(identity(others[0]))
        earlier = mine is not None and theirs is not None and theirs < mine
        out.append((others if earlier else named).pop(0))
    return out + named + others


def _without_directives(value: Any) -> Any:
    if type(value) is dict:
        return {
            key: _without_directives(item)
            for key, item in value.items()
            if not key.startswith("$") and item is not None
        }
    if type(value) is list:
        return [_without_directives(item) for item in value]
    return value
