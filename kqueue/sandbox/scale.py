"""The `scale` subresource: the number of replicas, in the same form for every kind that has replicas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kqueue.sandbox import columns, failure, patching
from kqueue.sandbox.api import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, GroupVersionResource, Object
from kqueue.sandbox.objects import Objects, WriteOptions
from kqueue.sandbox.registry import ServedKind
from kqueue.sandbox.store import copied

NAME = "scale"
SCALES = GroupVersionResource("autoscaling", "v1", "scales")


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Paths of the numbers in an object; `selector` is empty if the kind has a label selector at the usual path."""

    wanted: tuple[str, ...] = ("spec", "replicas")
    present: tuple[str, ...] = ("status", "replicas")
    selector: tuple[str, ...] = ()


def of_definition(described: Object | None) -> ScalePaths | None:
    """Return the paths of a CustomResourceDefinition; None if it has no scale subresource."""
    if described is None:
        return None
    wanted, present, selector = (
        tuple(key for key in str(described.get(name, "")).split(".") if key)
        for name in ("specReplicasPath", "statusReplicasPath", "labelSelectorPath")
    )
    return ScalePaths(wanted, present, selector)


def shown(kind: ServedKind, obj: Object) -> Object:
    """Return the Scale of an object."""
    paths, meta = _paths(kind), obj["metadata"]
    status: Object = {"replicas": _at(obj, paths.present) or 0}
    if selector := _selector(kind, obj, paths):
        status["selector"] = selector
    keys = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta[key] for key in keys if key in meta},
        "spec": {"replicas": wanted} if (wanted := _at(obj, paths.wanted)) else {},
        "status": status,
    }


async def replace(
    api: Objects, kind: ServedKind, name: str, namespace: str, sent: Object, options: WriteOptions
) -> Object:
    """Write the replicas of the Scale `sent`.  Raises InvalidError, ConflictError, NotFoundError."""
    new = await api.rewrite(kind, name, namespace, lambda old: _scaled(kind, old, sent), NAME, options)
    return shown(kind, new)


async def patch(
    api: Objects, kind: ServedKind, name: str, namespace: str, wanted: Any, content_type: str, options: WriteOptions
) -> Object:
    """Patch the object's Scale.  Raises InvalidError, ConflictError, NotFoundError."""
    if content_type not in (MERGE_PATCH, STRATEGIC_PATCH, JSON_PATCH):
        raise failure.unsupported_media(
            "the body of the request was in an unknown format - accepted media types include: "
            f"{JSON_PATCH}, {MERGE_PATCH}, {STRATEGIC_PATCH}"
        )
    form = JSON_PATCH if content_type == JSON_PATCH else MERGE_PATCH  # without lists, a strategic merge is a plain one

    def make(old: Object) -> Object:
        try:
            return _scaled(kind, old, patching.patched(shown(kind, old), wanted, form, kind))
        except failure.UndecodableError as error:
            raise failure.bad_patch(wanted, error) from error

    return shown(kind, await api.rewrite(kind, name, namespace, make, NAME, options))


def _scaled(kind: ServedKind, old: Object, sent: Object) -> Object:
    """Return `old` with the replicas of a Scale, and with the Scale's resourceVersion."""
    replicas = (sent.get("spec") or {}).get("replicas", 0)
    meta = sent.get("metadata") or {}
    if type(replicas) is not int:
        problem = f"spec.replicas must be an integer, found {failure.shown(replicas)}"
        raise failure.undecodable(SCALES, "Scale", problem)
    if replicas < 0:
        mistake = failure.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise failure.invalid_object("autoscaling", "Scale", old["metadata"]["name"], [mistake])
    new = copied(old)
    for key in ("uid", "resourceVersion"):
        if meta.get(key):
            new["metadata"][key] = meta[key]
    holder = new
    *way, last = _paths(kind).wanted
    for key in way:
        holder = holder.setdefault(key, {})
    holder[last] = replicas
    return new


def _paths(kind: ServedKind) -> ScalePaths:
    paths: ScalePaths = kind.scale
    return paths


def _at(obj: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        obj = obj.get(key) if isinstance(obj, dict) else None
    return obj


def _selector(kind: ServedKind, obj: Object, paths: ScalePaths) -> str:
    if kind.custom is not None:
        return str(_at(obj, paths.selector) or "") if paths.selector else ""
    selector = (obj.get("spec") or {}).get("selector") or {}
    if "matchLabels" not in selector and "matchExpressions" not in selector:
        selector = {"matchLabels": selector}  # a ReplicationController's
    return columns.selector_text(selector).replace(columns.NONE, "")
