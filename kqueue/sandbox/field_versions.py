"""Owners of fields in another version: what they own is found by converting just that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kqueue.sandbox import fieldset
from kqueue.sandbox.api import Object
from kqueue.sandbox.decoding import shape_of
from kqueue.sandbox.fieldset import SELF, FieldSet
from kqueue.sandbox.registry import ServedKind
from kqueue.sandbox.shape import FieldShape

Convert = Callable[[Object, str], Awaitable[Object]]
"""Converts an object to the version with an `apiVersion`.  Raises ServerError."""


async def translated(kind: ServedKind, others: Mapping[str, ServedKind], obj: Object, convert: Convert) -> Object:
    """Return the object with all its managedFields in the version of `kind`; the object itself if they are already.

    An entry in a version that is not served is dropped, as by the real server.

    Raises:
        ServerError: the webhook failed.
    """
    entries = obj["metadata"].get("managedFields") or []
    if not kind.converts or all(entry["apiVersion"] == kind.api_version for entry in entries):
        return obj
    found = []
    for entry in entries:
        if entry["apiVersion"] == kind.api_version:
            found.append(entry)
        elif (other := others.get(entry["apiVersion"])) is not None:
            there = await convert(obj, other.api_version)
            owned = _identity(there, _part(shape_of(other), there, entry["fieldsV1"]))
            fields = fieldset.of_object(shape_of(kind), await convert(owned, kind.api_version))
            found.append({**entry, "apiVersion": kind.api_version, "fieldsV1": fields})
    return {**obj, "metadata": {**obj["metadata"], "managedFields": found}}


def _identity(obj: Object, part: Object) -> Object:
    """Return a part of an object as an object: with its kind and name."""
    names = {key: obj["metadata"][key] for key in ("name", "namespace", "uid") if key in obj["metadata"]}
    metadata = {**part.get("metadata", {}), **names}
    return {**part, "apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata}


def _part(shape: FieldShape, value: Any, fields: FieldSet) -> Any:
    """Return the part of a value that a set of fields names."""
    if not set(fields) - {SELF}:
        return value
    found = [
        (name, _part(inner, item, fields[name]))
        for name, item, inner in fieldset.members(shape, value)
        if name in fields
    ]
    return {name[2:]: item for name, item in found} if type(value) is dict else [item for _name, item in found]
