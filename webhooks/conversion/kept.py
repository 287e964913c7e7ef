"""The annotation in which a stored object keeps fields that only v1beta1 has.

It is written and removed by the conversion alone.  A user may write any text into it: a text that the conversion would
not have written itself, or that contradicts the object, is an annotation like every other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kqueue.api.names import OLDER_FIELDS_ANNOTATION
from webhooks.conversion.fields import JSON, changed, without

_write = msgspec.json.Encoder(order="deterministic").encode


def with_kept(obj: JSON, fields: JSON) -> JSON:
    """Return the object of v1beta2 with these fields of v1beta1 in its annotation; as it is without fields."""
    if not fields:
        return obj
    metadata = obj.get("metadata") or {}
    notes = {**(metadata.get("annotations") or {}), OLDER_FIELDS_ANNOTATION: _write(fields).decode()}
    return {**obj, "metadata": {**metadata, "annotations": notes}}


def take_kept(obj: JSON, is_right: Callable[[JSON], bool]) -> tuple[JSON, JSON]:
    """Return the object without its annotation, and the fields in it.

    Where `is_right` refuses them, or nothing is kept, the object stays as it is, and there are no fields.
    """
    text = ((obj.get("metadata") or {}).get("annotations") or {}).get(OLDER_FIELDS_ANNOTATION)
    fields = _read(text)
    if not fields or not is_right(fields):
        return obj, {}
    return changed(obj, "metadata", _without_note), fields


def _read(text: Any) -> JSON:
    try:
        fields = msgspec.json.decode(text, type=dict[str, Any]) if isinstance(text, str) else {}
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return fields if _write(fields).decode() == text else {}


def _without_note(metadata: JSON) -> JSON:
    notes = without(metadata["annotations"], OLDER_FIELDS_ANNOTATION)
    return {**metadata, "annotations": notes} if notes else without(metadata, "annotations")
