"""Objects of job kinds as plain JSON, with the structure that the watch needs."""

from __future__ import annotations

from typing import Any

import msgspec

from kqueue.api.wire.meta import ObjectMeta, Struct

JSON = dict[str, Any]


class RawObject(Struct, frozen=True, kw_only=True):
    """Any object with metadata, spec and status."""

    metadata: ObjectMeta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)


def as_json(obj: RawObject) -> JSON:
    """Return the object as JSON, without managed fields and other unused metadata."""
    return {"metadata": msgspec.to_builtins(obj.metadata), "spec": obj.spec, "status": obj.status}
