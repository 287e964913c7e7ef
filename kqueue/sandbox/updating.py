"""The object that an update stores: each subresource changes its own part and keeps the rest."""

from __future__ import annotations

from kqueue.sandbox import metadata
from kqueue.sandbox.api import Object
from kqueue.sandbox.registry import ServedKind


def settled(kind: ServedKind, new: Object, old: Object, subresource: str) -> Object:
    """Return `new` with all fields that this write must not change from `old`, and with its generation."""
    meta, kept = new["metadata"], old["metadata"]
    metadata.carry_over(meta, kept)
    meta["resourceVersion"] = kept["resourceVersion"]
    if not kind.namespaced:
        meta.pop("namespace", None)
    if subresource == "status":
        return _only_status(kind, new, old)
    if subresource == "finalize":
        return {**old, "metadata": {**kept}, "spec": new.get("spec") or {}}
    if subresource == "binding":
        return new  # a binding sets the node and keeps the generation
    if kind.status:
        _keep(new, old, "status")
    kind.strategy.admit_update(new)
    kind.strategy.prepare_update(new, old)
    return _counted(kind, new, old)


def _keep(new: Object, old: Object, key: str) -> None:
    if key in old:
        new[key] = old[key]
    else:
        new.pop(key, None)


def _only_status(kind: ServedKind, new: Object, old: Object) -> Object:
    """Return the old object with the new status.

    A write to the status of a built-in kind changes labels, annotations and finalizers as well, as in the real server.
    """
    out = dict(old)
    meta = dict(old["metadata"])
    if kind.custom is None:
        for key in ("labels", "annotations", "finalizers"):
            _keep(meta, new["metadata"], key)
    _keep(meta, new["metadata"], "managedFields")
    out["metadata"] = meta
    _keep(out, new, "status")
    return out


def _asked_for(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}


def _counted(kind: ServedKind, new: Object, old: Object) -> Object:
    """Return `new`, with its generation raised if it differs from `old` outside of metadata and status."""
    if kind.generation and _asked_for(new) != _asked_for(old):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    return new
