"""Garbage collection: deletes dependents with their owners, and contents with their namespaces and custom kinds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from kqueue.errors import NotFoundError
from kqueue.sandbox.api import NAMESPACES, Object
from kqueue.sandbox.cluster_api import ClusterApi
from kqueue.sandbox.controller_loop import ControllerLoop
from kqueue.sandbox.crd import CRDS
from kqueue.sandbox.crd_rules import CLEANUP
from kqueue.sandbox.deletion import FOREGROUND, ORPHAN, Propagation
from kqueue.sandbox.objects import WriteOptions
from kqueue.sandbox.registry import ServedKind
from kqueue.sandbox.store import StoreChange, copied

Place = tuple[str, str, str]
"""Storage, namespace and name of an object."""
Changer = Callable[[Object], object]
"""Changes metadata in place."""
NAMESPACES_STORAGE = "/namespaces"
CRDS_STORAGE = "apiextensions.k8s.io/customresourcedefinitions"
_SEPARATOR = "\x00"


class Collector:
    """Deletes objects without any remaining owner, and completes deletions that wait for other deletions.

    The collector sees all objects from the start, so an unknown owner does not exist.  Run one per `ClusterApi`; `run`
    works until cancelled.
    """

    def __init__(self, api: ClusterApi) -> None:
        self._api = api
        self._options = WriteOptions(manager="garbage-collector", user="system:garbage-collector")
        self._kinds: dict[str, ServedKind] = {}
        self._dependents: dict[str, set[Place]] = {}
        self._present: dict[str, Place] = {}
        self.loop = ControllerLoop("collector", self._reconcile, clock=api.clock)
        for kind in api.registry:
            for record in api.store(kind).records():
                if record.obj["metadata"]["uid"] not in self._present:
                    self._learn(kind, record.obj, None)
        api.listen(self._on_change)

    @property
    def idle(self) -> bool:
        """Whether nothing is left to collect now."""
        return self.loop.idle

    async def run(self) -> None:
        """Collect until cancelled."""
        await self.loop.run()

    def _on_change(self, kind: ServedKind, change: StoreChange) -> None:
        assert change.record is not None
        old = change.old.obj if change.old is not None else None
        if change.type == "DELETED":
            self._forget(kind, change.record.obj, old)
        else:
            self._learn(kind, change.record.obj, old)

    def _learn(self, kind: ServedKind, obj: Object, old: Object | None) -> None:
        meta = obj["metadata"]
        place = self._place(kind, meta)
        self._present[meta["uid"]] = place
        owners = meta.get("ownerReferences")
        before = old["metadata"].get("ownerReferences") if old is not None else None
        if owners != before:
            for owner in before or ():
                self._dependents.get(owner["uid"], set()).discard(place)
            for owner in owners or ():
                self._dependents.setdefault(owner["uid"], set()).add(place)
            if owners:
                self._look_at(place)
        if meta.get("deletionTimestamp") and _is_held(kind, obj):
            self._look_at(place)

    def _forget(self, kind: ServedKind, obj: Object, old: Object | None) -> None:
        meta = obj["metadata"]
        place = self._place(kind, meta)
        self._present.pop(meta["uid"], None)
        for dependent in sorted(self._dependents.pop(meta["uid"], ())):
            self._look_at(dependent)
        for owner in (old or obj)["metadata"].get("ownerReferences") or ():
            self._dependents.get(owner["uid"], set()).discard(place)
            if (above := self._present.get(owner["uid"])) is not None:
                self._look_at_if_deleting(above)
        if kind.namespaced:
            self._look_at_if_deleting((NAMESPACES_STORAGE, "", meta["namespace"]))
        if kind.custom is not None:
            self._look_at_if_deleting((CRDS_STORAGE, "", f"{kind.resource.plural}.{kind.resource.group}"))

    def _place(self, kind: ServedKind, meta: Object) -> Place:
        others = self._api.forms.other_versions(kind) if kind.api_version != kind.stored else []
        self._kinds[kind.storage] = next((each for each in others if each.api_version == kind.stored), kind)
        return kind.storage, meta.get("namespace", ""), meta["name"]

    def _look_at(self, place: Place) -> None:
        self.loop.add(_SEPARATOR.join(place))

    def _look_at_if_deleting(self, place: Place) -> None:
        obj = self._find(place)
        if obj is not None and obj["metadata"].get("deletionTimestamp"):
            self._look_at(place)

    def _find(self, place: Place) -> Object | None:
        """Return an object in the version in which it is stored: only its metadata matters here."""
        kind = self._kinds.get(place[0])
        if kind is None or self._api.registry.find(kind.resource) is None:
            return None
        record = self._api.store(kind).get(place[1], place[2])
        return None if record is None else record.obj

    async def _reconcile(self, key: str) -> float | None:
        storage, namespace, name = key.split(_SEPARATOR)
        place = (storage, namespace, name)
        obj = self._find(place)
        if obj is None:
            return None
        kind, meta = self._kinds[storage], obj["metadata"]
        finalizers = meta.get("finalizers") or ()
        with contextlib.suppress(NotFoundError):  # deleted meanwhile: its own event continues the work
            if not meta.get("deletionTimestamp"):
                if meta.get("ownerReferences"):
                    await self._check_owners(kind, obj)
            elif kind.resource == NAMESPACES:
                await self._empty_namespace(kind, name)
            elif kind.resource == CRDS and CLEANUP in finalizers:
                await self._empty_kind(kind, obj)
            elif ORPHAN in finalizers:
                await self._orphan(kind, obj)
            elif FOREGROUND in finalizers:
                await self._delete_dependents_first(kind, obj)
        return None

    async def _check_owners(self, kind: ServedKind, obj: Object) -> None:
        """Delete an object without any existing owner; remove references to single missing owners."""
        owners = obj["metadata"]["ownerReferences"]
        alive = [owner for owner in owners if self._owner_is_there(owner, obj)]
        if not alive:
            await self._delete(kind, obj)
        elif len(alive) < len(owners):
            await self._rewrite(kind, obj, lambda meta: meta.update(ownerReferences=alive))

    def _owner_is_there(self, owner: Object, obj: Object) -> bool:
        place = self._present.get(owner["uid"])
        return (
            place is not None and place[2] == owner["name"] and place[1] in ("", obj["metadata"].get("namespace", ""))
        )

    async def _orphan(self, kind: ServedKind, owner: Object) -> None:
        """Remove the owner from its dependents, then release the owner."""
        uid = owner["metadata"]["uid"]
        for place in sorted(self._dependents.get(uid, ())):
            dependent = self._find(place)
            if dependent is not None:
                await self._rewrite(self._kinds[place[0]], dependent, lambda meta: _drop_owner(meta, uid))
        await self._drop_finalizer(kind, owner, ORPHAN)

    async def _delete_dependents_first(self, kind: ServedKind, owner: Object) -> None:
        """Delete dependents; release the owner when no blocking dependent is left."""
        uid = owner["metadata"]["uid"]
        blocked = False
        for place in sorted(self._dependents.get(uid, ())):
            dependent = self._find(place)
            if dependent is None:
                continue
            references = dependent["metadata"].get("ownerReferences") or ()
            blocked = blocked or any(r["uid"] == uid and r.get("blockOwnerDeletion") for r in references)
            if not dependent["metadata"].get("deletionTimestamp"):
                has_dependents = bool(self._dependents.get(dependent["metadata"]["uid"]))
                await self._delete(self._kinds[place[0]], dependent, "Foreground" if has_dependents else "Background")
        if not blocked:
            await self._drop_finalizer(kind, owner, FOREGROUND)

    async def _empty_namespace(self, kind: ServedKind, name: str) -> None:
        left = False
        seen: set[str] = set()
        for each in self._api.registry:
            if not each.namespaced or each.storage in seen:
                continue
            seen.add(each.storage)
            left = await self._delete_all(each, name) or left
        if not left:
            await self._api.rewrite(kind, name, "", _without_kubernetes, "finalize", self._options)

    async def _empty_kind(self, kind: ServedKind, definition: Object) -> None:
        spec = definition["spec"]
        plural, group = spec["names"]["plural"], spec["group"]
        custom = next((k for k in self._api.registry if (k.resource.group, k.resource.plural) == (group, plural)), None)
        if custom is None or not await self._delete_all(custom, None):
            await self._drop_finalizer(kind, definition, CLEANUP)

    async def _delete_all(self, kind: ServedKind, namespace: str | None) -> bool:
        """Delete all objects; return whether any still exists."""
        store = self._api.store(kind)
        for record in list(store.records(namespace)):
            if not record.obj["metadata"].get("deletionTimestamp"):
                await self._delete(kind, record.obj)
        return any(True for _ in store.records(namespace))

    async def _delete(self, kind: ServedKind, obj: Object, propagation: Propagation = "Background") -> None:
        meta = obj["metadata"]
        if meta.get("deletionTimestamp"):
            return
        with contextlib.suppress(NotFoundError):  # deleted meanwhile
            await self._api.delete_owned(
                kind, meta["name"], meta.get("namespace", ""), propagation=propagation, options=self._options
            )

    async def _drop_finalizer(self, kind: ServedKind, obj: Object, finalizer: str) -> None:
        def drop(meta: Object) -> None:
            meta["finalizers"] = [each for each in meta.get("finalizers") or () if each != finalizer]

        await self._rewrite(kind, obj, drop)

    async def _rewrite(self, kind: ServedKind, obj: Object, change: Changer) -> None:
        def make(old: Object) -> Object:
            new = copied(old)
            change(new["metadata"])
            return new

        meta = obj["metadata"]
        await self._api.rewrite(kind, meta["name"], meta.get("namespace", ""), make, "", self._options)


def _is_held(kind: ServedKind, obj: Object) -> bool:
    """Whether a deletion waits for the collector."""
    finalizers = obj["metadata"].get("finalizers") or ()
    return kind.resource == NAMESPACES or any(each in finalizers for each in (FOREGROUND, ORPHAN, CLEANUP))


def _drop_owner(meta: Object, uid: str) -> None:
    meta["ownerReferences"] = [owner for owner in meta.get("ownerReferences") or () if owner["uid"] != uid]
    if not meta["ownerReferences"]:
        del meta["ownerReferences"]


def _without_kubernetes(old: Object) -> Object:
    new = copied(old)
    finalizers = (new.get("spec") or {}).get("finalizers") or ()
    new["spec"] = {"finalizers": [each for each in finalizers if each != "kubernetes"]}
    return new
