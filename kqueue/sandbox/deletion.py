"""Deletion of objects: at once, or marked until finalizers are removed and the grace period is over."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from kqueue.sandbox import failure, metadata, subresources
from kqueue.sandbox.api import Object
from kqueue.sandbox.registry import ServedKind
from kqueue.sandbox.store import copied

Propagation = Literal["Background", "Foreground", "Orphan"]
FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
ORPHANED = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preconditions:
    """Preconditions of a deletion; None means no condition."""

    uid: str | None = None
    resource_version: str | None = None


@dataclass(frozen=True, slots=True)
class Deleted:
    """The result of a deletion: the last state, and whether the object is deleted or only marked."""

    obj: Object
    gone: bool


def may_go(kind: ServedKind, obj: Object) -> bool:
    """Whether an object marked for deletion has nothing left to wait for."""
    meta = obj["metadata"]
    if not meta.get("deletionTimestamp") or meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"):
        return False
    return kind.strategy.ready_to_go(obj)


def marked(kind: ServedKind, old: Object, propagation: Propagation | None, seconds: int, when: datetime) -> Object:
    """Return `old` marked for deletion in `seconds`; a second mark can only shorten the time."""
    new = copied(old)
    meta = new["metadata"]
    finalizers = [f for f in meta.get("finalizers") or () if f not in (FOREGROUND, ORPHAN)]
    if propagation is None:
        finalizers = list(meta.get("finalizers") or ())
    elif propagation != "Background":
        finalizers.append(FOREGROUND if propagation == "Foreground" else ORPHAN)
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)
    if not meta.get("deletionTimestamp"):
        if "generation" in meta:
            meta["generation"] += 1
    elif seconds >= meta.get("deletionGracePeriodSeconds", 0):
        return new
    meta["deletionTimestamp"] = metadata.timestamp(when)
    meta["deletionGracePeriodSeconds"] = seconds
    subresources.on_marked(kind, new)
    return new


def check_preconditions(kind: ServedKind, old: Object, wanted: Preconditions | None) -> None:
    """Raise ConflictError if a precondition is not met."""
    if wanted is None:
        return
    meta = old["metadata"]
    if wanted.uid is not None and wanted.uid != meta["uid"]:
        raise failure.conflict(
            kind.resource, meta["name"],
            f"Precondition failed: UID in precondition: {wanted.uid}, UID in object meta: {meta['uid']}",
        )  # fmt: skip
    if wanted.resource_version is not None and wanted.resource_version != meta["resourceVersion"]:
        raise failure.conflict(
            kind.resource, meta["name"],
            f"Precondition failed: ResourceVersion in precondition: {wanted.resource_version}, "
            f"ResourceVersion in object meta: {meta['resourceVersion']}",
        )  # fmt: skip
