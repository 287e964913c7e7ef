"""Jobs as their adapters read them: plain JSON, with just enough structure for the watch."""

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
    """The object as JSON, without managed fields and other metadata that nobody reads."""
    return {"metadata": msgspec.to_builtins(obj.metadata), "spec": obj.spec, "status": obj.status}
