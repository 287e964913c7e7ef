"""Reading and building the JSON of Kubernetes objects: keys, times, owners."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from kqueue.sandbox.api import Object


def key_of(obj: Object) -> str:
    """Return `namespace/name`, or the name of a cluster-wide object."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def split_key(key: str) -> tuple[str | None, str]:
    """Return namespace (None if there is none) and name of a key."""
    namespace, slash, name = key.rpartition("/")
    return (namespace if slash else None), name


def uid_of(obj: Object) -> str:
    """Return the UID; empty if there is none."""
    return str(obj["metadata"].get("uid", ""))


def version_of(obj: Object) -> int:
    """Return the resourceVersion, a number in the sandbox; 0 for an object that was never stored."""
    return int(obj["metadata"].get("resourceVersion") or 0)


def is_deleting(obj: Object) -> bool:
    """Whether the object is marked for deletion."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def annotation(obj: Object, key: str) -> str | None:
    """Return one annotation, or None."""
    value = (obj["metadata"].get("annotations") or {}).get(key)
    return None if value is None else str(value)


def stamp(when: datetime) -> str:
    """Write a time as Kubernetes does: RFC 3339 in UTC with whole seconds."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parsed_time(written: Any) -> datetime | None:
    """Return the time in a field; None if the field is missing or no time."""
    if not isinstance(written, str) or not written:
        return None
    try:
        when = datetime.fromisoformat(written)
    except ValueError:
        return None
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def controller_of(obj: Object) -> Object | None:
    """Return the owner reference that is marked as controller, or None."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return dict(owner)
    return None


def controller_reference(owner: Object) -> Object:
    """Return the controller reference to `owner` for its dependents."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def is_terminal(pod: Object) -> bool:
    """Whether the pod has succeeded or failed."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
