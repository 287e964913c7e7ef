"""Objects of job kinds as plain JSON, with the structure that the watch needs."""

from __future__ import annotations

from typing import Any

import msgspec

from kqueue.api.wire.meta import ObjectMeta, Struct
from kqueue.jobs.fields import text
from kqueue.runtime.client import Client
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.store import Store, object_key

JSON = dict[str, Any]


class RawObject(Struct, frozen=True, kw_only=True):
    """Any object with metadata, spec and status."""

    metadata: ObjectMeta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)


def as_json(obj: RawObject) -> JSON:
    """Return the object as JSON, without managed fields and other unused metadata."""
    return {"metadata": msgspec.to_builtins(obj.metadata), "spec": obj.spec, "status": obj.status}


def key_of(obj: JSON) -> str:
    """Return namespace/name of an object."""
    return object_key(text(obj, "metadata", "namespace"), text(obj, "metadata", "name"))


def status_writer(client: Client, resource: ResourceType, store: Store[JSON]) -> StatusWriter[JSON]:
    """Return a writer of statuses of objects that are kept as JSON."""
    return StatusWriter(
        client,
        resource,
        store=store,
        decode=dict,
        key_of=key_of,
        version_of=lambda obj: text(obj, "metadata", "resourceVersion"),
    )
