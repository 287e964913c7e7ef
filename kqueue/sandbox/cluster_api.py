"""The API server without its wire: every verb, with locking, defaults, admission and rules.

The HTTP front and the simulated controllers call the same methods, so they pass the same checks.
"""

from __future__ import annotations

import builtins
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from kqueue.clock import Clock, SystemClock
from kqueue.errors import NotFoundError
from kqueue.sandbox import (
    applying,
    crd,
    decoding,
    deletion,
    failure,
    metadata,
    patching,
    subresources,
    updating,
)
from kqueue.sandbox.admission import AdmissionCall, AdmissionWebhooks, Operation
from kqueue.sandbox.api import (
    APPLY_PATCH,
    MERGE_PATCH,
    NAMESPACES,
    EventType,
    GroupVersionResource,
    Object,
)
from kqueue.sandbox.builtin import BUILTIN_KINDS
from kqueue.sandbox.conversion import Converter
from kqueue.sandbox.crd import CRDS
from kqueue.sandbox.deletion import Deleted, Preconditions, Propagation
from kqueue.sandbox.failure import Cause
from kqueue.sandbox.forms import ObjectForms
from kqueue.sandbox.objects import WriteOptions
from kqueue.sandbox.registry import KindRegistry, ServedKind
from kqueue.sandbox.store import ObjectStore, StoreChange, StoredObject, Versions, copied

ATTEMPTS = 8
"""Attempts of a write without a resourceVersion when others write in between; and names that generateName tries."""


class ClusterApi:
    """An in-memory cluster's objects behind the verbs of `api.Api`.

    Args:
        clock: gives creation and deletion times.
        chance: the source of uids and generated names; seed it for runs that repeat.
        log_length: changes per kind that are kept for watchers that reconnect.
    """

    def __init__(
        self, clock: Clock | None = None, *, chance: random.Random | None = None, log_length: int | None = None
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.chance = chance or random.Random()
        self.registry = KindRegistry(BUILTIN_KINDS)
        self.versions = Versions()
        self.stopped = False
        self._log_length = log_length
        self._stores: dict[str, ObjectStore] = {}
        self._listeners: list[Callable[[ServedKind, StoreChange], None]] = []
        self.admission = AdmissionWebhooks(self)
        self.forms = ObjectForms(self.registry, Converter(self.admission.client, lambda: metadata.new_uid(self.chance)))
        self.listen(self._on_definition)
        self._plant()

    def _on_definition(self, kind: ServedKind, change: StoreChange) -> None:
        """Serve the kinds of a CustomResourceDefinition, from its creation to its deletion."""
        if kind.resource != CRDS or change.record is None:
            return
        before = crd.kinds_of(change.old.obj) if change.old is not None else []
        after = [] if change.type == "DELETED" else crd.kinds_of(change.record.obj)
        for each in before:
            self.registry.remove(each.resource)
        for each in after:
            self.registry.add(each)
        for each in before[:1] or after[:1]:
            self.forms.learn(each.storage, change.record.obj if after else None)
        if change.type == "DELETED" and before:
            self.drop_store(before[0].storage)

    def _plant(self) -> None:
        """Create the objects that every new cluster has."""
        for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
            self._put(self.kind(NAMESPACES), subresources.born_namespace(name, self))
        for resource, obj in subresources.born_objects(self):
            self._put(self.kind(resource), obj)

    # --- what rules may read ----------------------------------------------------------------------------------------

    def now_text(self) -> str:
        """Return the present second in the format of objects."""
        return metadata.timestamp(self.clock.now())

    def find(self, resource: GroupVersionResource, name: str, namespace: str = "") -> Object | None:
        """Return a stored object; None: there is none."""
        kind = self.registry.find(resource)
        record = None if kind is None else self.store(kind).get(namespace, name)
        return None if record is None or kind is None else kind.shown(record)

    def every(self, resource: GroupVersionResource, namespace: str | None = None) -> list[Object]:
        """Return all objects of a kind; empty if the kind is not served."""
        kind = self.registry.find(resource)
        return [] if kind is None else [kind.shown(r) for r in self.store(kind).records(namespace)]

    def kind(self, resource: GroupVersionResource) -> ServedKind:
        """Return the kind served at `resource`.  Raises NotFoundError."""
        kind = self.registry.find(resource)
        if kind is None:
            raise failure.unknown_path()
        return kind

    def store(self, kind: ServedKind) -> ObjectStore:
        """Return the store of the objects of `kind`."""
        store = self._stores.get(kind.storage)
        if store is None:
            store = (
                ObjectStore(self.versions)
                if self._log_length is None
                else ObjectStore(self.versions, log_length=self._log_length)
            )
            self._stores[kind.storage] = store
        return store

    def drop_store(self, storage: str) -> None:
        """Forget all objects of a kind that is no longer served."""
        if (store := self._stores.pop(storage, None)) is not None:
            store.wake()

    def listen(self, listener: Callable[[ServedKind, StoreChange], None]) -> None:
        """Call `listener` synchronously after every stored change, in order.  It must not write in the call."""
        self._listeners.append(listener)

    def is_served(self, kind: ServedKind, store: ObjectStore) -> bool:
        """Whether `store` still has the objects of `kind`."""
        return self._stores.get(kind.storage) is store

    def stop(self) -> None:
        """End all watches.  Objects stay readable."""
        self.stopped = True
        self.wake()

    def wake(self) -> None:
        """Wake all watchers, so that they check whether to end."""
        for store in self._stores.values():
            store.wake()

    # --- reading ----------------------------------------------------------------------------------------------------

    def record(self, kind: ServedKind, name: str, namespace: str | None) -> StoredObject:
        """Return the stored record.  Raises NotFoundError."""
        found = self.store(kind).get((namespace or "") if kind.namespaced else "", name)
        if found is None:
            raise failure.not_found(kind.resource, name)
        return found

    def get(self, resource: GroupVersionResource, name: str, *, namespace: str | None = None) -> Object:
        """Return the stored object.  Raises NotFoundError."""
        kind = self.kind(resource)
        return kind.shown(self.record(kind, name, namespace))

    def list(
        self, resource: GroupVersionResource, *, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        """Return all objects, or the objects of a namespace, or with all of `labels`; in key order."""
        kind = self.kind(resource)
        records = self.store(kind).records(namespace)
        wanted = (labels or {}).items()
        return [
            kind.shown(record)
            for record in records
            if not wanted or wanted <= (record.obj["metadata"].get("labels") or {}).items()
        ]

    async def watch(self, resource: GroupVersionResource) -> AsyncIterator[tuple[EventType, Object]]:
        """Yield all present objects as ADDED, then every change in order.  Never skips; ends when the server stops."""
        kind = self.kind(resource)
        store = self.store(kind)
        cursor = store.tail
        present = list(store.records())
        await self.forms.prepare(kind, present)
        for record in present:
            yield "ADDED", kind.shown(record)
        while not self.stopped:
            while cursor.next is not None:
                cursor = cursor.next
                assert cursor.record is not None
                await self.forms.prepare(kind, [cursor.record])
                yield cursor.type, kind.shown(cursor.record)
            if self.stopped or not self.is_served(kind, store):
                return
            future = store.changed()
            try:
                await future
            finally:
                store.forget_waiting(future)

    # --- writing ----------------------------------------------------------------------------------------------------

    async def create(
        self,
        resource: GroupVersionResource,
        obj: Object,
        *,
        namespace: str | None = None,
        options: WriteOptions | None = None,
    ) -> Object:
        """Run admission, defaulting and validation, then store.

        For instance, `GroupVersionResource("", "v1", "pods/binding")` creates through that subresource.

        Raises:
            AlreadyExistsError, InvalidError, ForbiddenError, and NotFoundError for an unknown kind or namespace.
        """
        options = options or WriteOptions()
        if "/" in resource.plural:
            plural, _, name = resource.plural.partition("/")
            main = self.kind(GroupVersionResource(resource.group, resource.version, plural))
            target = str((obj.get("metadata") or {}).get("name", ""))
            return await subresources.create(self, main, target, namespace, name, copied(obj), options)
        return await self.create_owned(self.kind(resource), copied(obj), namespace, options)

    async def create_owned(
        self,
        kind: ServedKind,
        obj: Object,
        namespace: str | None,
        options: WriteOptions,
        *,
        managed: Sequence[Object] = (),
    ) -> Object:
        """Run `create` with an object that no other code has a reference to."""
        new = self._decode(kind, obj, options)
        space = metadata.settle_namespace(kind, new["metadata"], namespace)
        self._check_namespace(kind, new, space)
        metadata.begin(kind, new["metadata"], now=self.now_text(), chance=self.chance)
        if managed:
            new["metadata"]["managedFields"] = list(managed)
        kind.strategy.admit(new, self)
        call = self.admission.calls(kind, Operation.CREATE, "", new, None, options)
        if call is not None:
            new = await self._mutated(kind, call, new, options)
        if not managed and (first := applying.first_update(kind, new, options.manager, self.now_text())):
            new["metadata"]["managedFields"] = first  # without fields that the server itself adds later
        self._name(kind, new, space)
        kind.strategy.prepare_create(new, self)
        self._reject(kind, new, self._causes(kind, new) + kind.strategy.validate_create(new))
        if call is not None:
            await call.validate(new)
        name, stored = new["metadata"]["name"], await self.forms.to_store(kind, new)
        if self.store(kind).get(space, name) is not None:
            raise failure.already_exists(kind.resource, name)
        self._check_namespace(kind, new, space)
        if options.dry_run:
            return new
        return await self.forms.shown(kind, self._put(kind, stored))

    async def update(
        self,
        resource: GroupVersionResource,
        obj: Object,
        *,
        subresource: str | None = None,
        namespace: str | None = None,
        options: WriteOptions | None = None,
    ) -> Object:
        """Replace, if `obj`'s resourceVersion is the present one.

        Raises:
            ConflictError, NotFoundError, InvalidError, ForbiddenError.
        """
        found = copied(obj)
        name = str((found.get("metadata") or {}).get("name", ""))
        return await self.update_owned(
            self.kind(resource), found, name, namespace, subresource or "", options or WriteOptions()
        )

    async def update_owned(
        self, kind: ServedKind, obj: Object, name: str, namespace: str | None, subresource: str, options: WriteOptions
    ) -> Object:
        """Run `update` of the object `name` with an object that no other code has a reference to."""
        sent = self._decode(kind, obj, options)
        metadata.settle_name(sent["metadata"], name)
        space = metadata.settle_namespace(kind, sent["metadata"], namespace or None)
        if not kind.unconditional_update and not sent["metadata"].get("resourceVersion"):
            problem = failure.invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise failure.invalid_object(kind.resource.group, kind.kind, name, [problem])
        return await self.rewrite(kind, name, space, lambda _: copied(sent), subresource, options)

    async def patch(
        self,
        resource: GroupVersionResource,
        name: str,
        patch: Any,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        content_type: str = MERGE_PATCH,
        options: WriteOptions | None = None,
    ) -> Object:
        """Patch in the given format; a resourceVersion inside the patch must be the present one.

        Server-side apply (`APPLY_PATCH`) creates a missing object.
        """
        options = options or WriteOptions()
        kind = self.kind(resource)
        if content_type == APPLY_PATCH:
            return await self._apply(kind, name, namespace, patch, subresource or "", options)
        change = patching.patcher(kind, patch, content_type)

        def make(old: Object) -> Object:
            try:
                return self._decode(kind, change(old), options)
            except failure.UndecodableError as error:
                raise failure.bad_patch(patch, error) from error

        return await self.rewrite(kind, name, namespace or "", make, subresource or "", options)

    async def _apply(
        self, kind: ServedKind, name: str, namespace: str | None, wanted: Any, subresource: str, options: WriteOptions
    ) -> Object:
        if not isinstance(wanted, dict):
            raise failure.bad_request("an apply patch must be an object")
        wanted = copied(wanted)
        metadata.settle_kind(kind, wanted)
        metadata.settle_name(wanted["metadata"], name)
        space = metadata.settle_namespace(kind, wanted["metadata"], namespace)
        decoding.check(kind, wanted, options.validation, options.warnings)
        request = applying.Apply(wanted, options.manager, options.force, subresource, self.now_text)
        for _ in range(ATTEMPTS):
            if self.store(kind).get(space, name) is not None:
                return await self.rewrite(
                    kind, name, space, lambda old: self._decode(kind, request.onto(kind, old), options), subresource,
                    options, applied=True,
                )  # fmt: skip
            if subresource:
                raise failure.not_found(kind.resource, name)
            if wanted["metadata"].get("uid") or wanted["metadata"].get("resourceVersion"):
                raise failure.conflict(
                    kind.resource,
                    name,
                    "uid mismatch: the provided object specified uid or version, and no existing object was found",
                )
            try:
                return await self._apply_new(kind, request, space, options)
            except failure.ObjectExistsError:
                continue  # created meanwhile: apply onto it
        raise failure.conflict(kind.resource, name)

    async def _apply_new(self, kind: ServedKind, request: applying.Apply, space: str, options: WriteOptions) -> Object:
        managed = request.first_entry(kind)
        return await self.create_owned(kind, copied(request.wanted), space or None, options, managed=managed)

    async def rewrite(
        self,
        kind: ServedKind,
        name: str,
        namespace: str,
        make: Callable[[Object], Object],
        subresource: str,
        options: WriteOptions,
        *,
        applied: bool = False,
    ) -> Object:
        """Store the result of `make` on the present object (in the served version), which `make` must not change.

        The write starts again if the object changed while webhooks were called; a write with a resourceVersion is then
        a conflict.
        """
        store = self.store(kind)
        for _ in range(ATTEMPTS):
            record = self.record(kind, name, namespace)
            old = await self.forms.to_change(kind, record)
            new = make(old)
            metadata.settle_name(new["metadata"], name)
            self._check_lock(kind, new, old)
            new = updating.settled(kind, new, old, subresource)
            if not applied:
                applying.track_update(kind, new, old, options.manager, subresource, self.now_text)
            call = self.admission.calls(kind, Operation.UPDATE, subresource, new, old, options)
            if call is not None:
                new = updating.settled(kind, await self._mutated(kind, call, new, options), old, subresource)
            self._reject(kind, new, self._update_causes(kind, new, old, subresource))
            if call is not None:
                await call.validate(new)
            is_same = applying.same(new, old) and kind.stored in ("", record.obj["apiVersion"])
            stored = record.obj if is_same else await self.forms.to_store(kind, new)
            if store.get(namespace if kind.namespaced else "", name) is not record:
                continue
            if is_same:
                return old
            if options.dry_run:
                return new
            change = self._remove if deletion.may_go(kind, new) else self._put
            return await self.forms.shown(kind, change(kind, stored))
        raise failure.conflict(kind.resource, name)

    async def delete(
        self,
        resource: GroupVersionResource,
        name: str,
        *,
        namespace: str | None = None,
        propagation: Propagation | None = "Background",
        grace_period_seconds: int | None = None,
    ) -> Object:
        """Delete, or mark for deletion while finalizers or a grace period hold it."""
        kind = self.kind(resource)
        done = await self.delete_owned(
            kind, name, namespace or "", propagation=propagation, grace_period_seconds=grace_period_seconds
        )
        return done.obj

    async def delete_owned(
        self,
        kind: ServedKind,
        name: str,
        namespace: str,
        *,
        propagation: Propagation | None = None,
        grace_period_seconds: int | None = None,
        preconditions: Preconditions | None = None,
        options: WriteOptions | None = None,
    ) -> Deleted:
        """Run `delete` with all options of a client; propagation None means the default of the kind."""
        options = options or WriteOptions()
        for _ in range(ATTEMPTS):
            record = self.record(kind, name, namespace)
            old = await self.forms.shown(kind, record)
            deletion.check_preconditions(kind, old, preconditions)
            subresources.check_deletable(kind, old)
            call = self.admission.calls(kind, Operation.DELETE, "", None, old, options)
            if call is not None:
                await call.mutate(old)
                await call.validate(old)
            new = self._marked(kind, old, propagation, grace_period_seconds, options)
            stored = await self.forms.to_store(kind, new)
            if self.store(kind).get(record.namespace, name) is record:
                return await self._delete_now(kind, old, new, stored, options)
        raise failure.conflict(kind.resource, name)

    async def delete_each(self, kind: ServedKind, record: StoredObject, **how: Any) -> Deleted | None:
        """Run `delete_owned` for one of many objects; return None if it was deleted already."""
        try:
            return await self.delete_owned(kind, record.name, record.namespace, **how)
        except NotFoundError:
            return None

    def _marked(
        self, kind: ServedKind, old: Object, propagation: Propagation | None, grace: int | None, options: WriteOptions
    ) -> Object:
        """Return the object with the marks of its deletion."""
        seconds = self._grace(kind, old, grace)
        if propagation is None and kind.orphans_by_default:
            propagation = "Orphan"
            if deletion.ORPHANED not in options.warnings:
                options.warnings.append(deletion.ORPHANED)
        return deletion.marked(kind, old, propagation, seconds, self.clock.now() + timedelta(seconds=seconds))

    async def _delete_now(
        self, kind: ServedKind, old: Object, new: Object, stored: Object, options: WriteOptions
    ) -> Deleted:
        """Store the marked object, or remove it; `stored` is `new` in the stored form."""
        is_gone = deletion.may_go(kind, new)
        if options.dry_run or (not is_gone and applying.same(new, old)):
            return Deleted(new, gone=is_gone)
        change = self._remove if is_gone else self._put
        return Deleted(await self.forms.shown(kind, change(kind, stored)), gone=is_gone)

    def _grace(self, kind: ServedKind, old: Object, asked: int | None) -> int:
        allowed = kind.strategy.grace_period(old)
        if allowed <= 0:
            return 0
        return allowed if asked is None else max(0, asked)

    # --- the steps --------------------------------------------------------------------------------------------------

    def _decode(self, kind: ServedKind, obj: Object, options: WriteOptions) -> Object:
        """Check types, drop or refuse unknown fields, and fill defaults."""
        metadata.settle_kind(kind, obj)
        decoding.check(kind, obj, options.validation, options.warnings)
        if kind.custom is not None:
            kind.custom.default(obj)
        kind.strategy.default(obj)
        return obj

    async def _mutated(self, kind: ServedKind, call: AdmissionCall, new: Object, options: WriteOptions) -> Object:
        """Return `new` after the mutating webhooks, decoded again if they changed it."""
        after = await call.mutate(new)
        return new if after is new else self._decode(kind, after, options)

    def _name(self, kind: ServedKind, new: Object, space: str) -> None:
        meta = new["metadata"]
        if meta.get("name") or not meta.get("generateName"):
            return
        store = self.store(kind)
        for _ in range(ATTEMPTS):
            meta["name"] = metadata.generated_name(str(meta["generateName"]), self.chance)
            if store.get(space, meta["name"]) is None:
                return

    def _check_namespace(self, kind: ServedKind, new: Object, space: str) -> None:
        if not kind.namespaced:
            return
        namespace = self.find(NAMESPACES, space)
        if namespace is None:
            raise failure.not_found(NAMESPACES, space)
        if namespace["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {space} because it is being terminated"
            cause = Cause("NamespaceTerminating", "metadata.namespace", f"namespace {space} is being terminated")
            raise failure.forbidden(kind.resource, str(new["metadata"].get("name", "")), why, (cause,))

    def _causes(self, kind: ServedKind, new: Object) -> builtins.list[Cause]:
        found = metadata.causes(kind, new["metadata"])
        if kind.custom is not None:
            found += kind.custom.causes(new)
        return found + kind.strategy.validate(new)

    def _update_causes(self, kind: ServedKind, new: Object, old: Object, subresource: str) -> builtins.list[Cause]:
        found = metadata.update_causes(new["metadata"], old["metadata"])
        if new["metadata"] != old["metadata"]:
            found += metadata.causes(kind, new["metadata"])
        if kind.custom is not None:
            found += kind.custom.causes(new)
        if subresource == "status":
            return found + kind.strategy.validate_status(new, old)
        if subresource:
            return found
        step = kind.strategy.validate_update(new, old)
        return found + step + [each for each in kind.strategy.validate(new) if each not in step]

    def _reject(self, kind: ServedKind, new: Object, causes: builtins.list[Cause]) -> None:
        if causes:
            name = str(new["metadata"].get("name") or new["metadata"].get("generateName") or "")
            raise failure.invalid_object(kind.resource.group, kind.kind, name, causes)

    def _check_lock(self, kind: ServedKind, new: Object, old: Object) -> None:
        """Raise ConflictError if the write's uid or resourceVersion is not the present one."""
        sent, kept = new["metadata"], old["metadata"]
        if sent.get("uid") and sent["uid"] != kept["uid"]:
            why = f"Precondition failed: UID in precondition: {sent['uid']}, UID in object meta: {kept['uid']}"
            raise failure.conflict(kind.resource, kept["name"], why)
        version = sent.get("resourceVersion")
        if version and version not in ("0", kept["resourceVersion"]):
            raise failure.conflict(kind.resource, kept["name"])

    # --- the only places that change a store ------------------------------------------------------------------------

    def _put(self, kind: ServedKind, obj: Object) -> StoredObject:
        store = self.store(kind)
        record = store.put(obj)
        self._tell(kind, store.tail)
        return record

    def _remove(self, kind: ServedKind, obj: Object) -> StoredObject:
        store = self.store(kind)
        record = store.remove(obj)
        self._tell(kind, store.tail)
        return record

    def _tell(self, kind: ServedKind, change: StoreChange) -> None:
        for listener in self._listeners:
            listener(kind, change)
