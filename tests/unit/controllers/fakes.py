"""An API server in a dictionary: it records requests, and fails on demand.

It has the properties that controllers depend on: resource versions as preconditions, the status subresource, and
finalizers that delay deletion.  Watch events are delivered only by `sync`, so a test decides how old the controllers'
state is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import msgspec

from kqueue.controllers.record import ObjectReference
from kqueue.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from kqueue.jobs.patch import apply_merge_patch
from kqueue.runtime.client import Client, Json, PatchType, Propagation
from kqueue.runtime.lane import Lane
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.store import Store, object_key

T = TypeVar("T")
_BIRTH = "2026-01-01T00:00:00Z"
"""When the fake clock starts."""
_READS = ("get", "list", "dry-run")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request; `subresource` is empty for the object itself, `body` what was sent."""

    verb: str
    resource: ResourceType
    key: str
    subresource: str = ""
    body: Json = field(default_factory=dict)
    lane: Lane | None = None

    def __str__(self) -> str:
        where = f"{self.resource.plural} {self.key}"
        return f"{self.verb} {where}/{self.subresource}" if self.subresource else f"{self.verb} {where}"


@dataclass(slots=True)
class _Failure:
    """A failure to come: for calls that match, `times` of them."""

    error: ApiError
    verb: str
    key: str | None
    times: int
    done: bool

    def matches(self, call: Call) -> bool:
        return self.times > 0 and call.verb == self.verb and self.key in (None, call.key)


class FakeClient(Client):
    """A client of the server above.  `calls` are all requests so far, failed ones included."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.open = asyncio.Event()
        """Writes wait for it: clear it to hold them up."""
        self.open.set()
        self.words_open = asyncio.Event()
        """Requests of lane `words` get a place while it is set."""
        self.words_open.set()
        self.pruned: set[str] = set()
        """Status fields that the server's schemas lack."""
        self._objects: dict[tuple[ResourceType, str], Json] = {}
        self._failures: list[_Failure] = []
        self._watches: list[Callable[[], None]] = []
        self._version = 0

    @asynccontextmanager
    async def placed(self, lane: Lane) -> AsyncIterator[Self]:
        """Places are not counted, but words wait while `words_open` is clear."""
        if lane is Lane.WORDS:
            await self.words_open.wait()
        yield self

    # --- the test's side

    def put(self, resource: ResourceType, obj: Mapping[str, Any]) -> str:
        """Somebody else writes a whole object; returns its key."""
        meta = obj["metadata"]
        key = object_key(meta.get("namespace", ""), meta["name"])
        old = self._objects.get((resource, key))
        self._store(resource, key, old, deepcopy(dict(obj)))
        return key

    def change(self, resource: ResourceType, key: str, patch: Mapping[str, Any]) -> None:
        """Somebody else writes a part of an object, status included."""
        old = self._objects[resource, key]
        self._store(resource, key, old, apply_merge_patch(old, patch))

    def drop(self, resource: ResourceType, key: str) -> None:
        """The object is gone, whatever finalizers it had."""
        del self._objects[resource, key]

    def object(self, resource: ResourceType, key: str) -> Json | None:
        """The object as it is now; None when there is none."""
        return self._objects.get((resource, key))

    def keys(self, resource: ResourceType) -> list[str]:
        """All objects of a kind."""
        return [key for kind, key in self._objects if kind == resource]

    def writes(self, *, subresource: str | None = None) -> list[Call]:
        """The calls that were to change something; of one subresource only, when given (empty: the objects')."""
        return [c for c in self.calls if c.verb not in _READS and subresource in (None, c.subresource)]

    def fail(
        self, error: ApiError, *, verb: str = "patch", key: str | None = None, times: int = 1, done: bool = False
    ) -> None:
        """Answer the next `times` matching calls with the error.  `done`: they have their effect all the same."""
        self._failures.append(_Failure(error, verb, key, times, done))

    def watch(self, resource: ResourceType, store: Store[Any], view: Callable[[Json], Any]) -> None:
        """Keep a store of this kind, from each `sync` to the next."""
        seen: dict[str, str] = {}

        def bring() -> None:
            now = {key: obj for (kind, key), obj in self._objects.items() if kind == resource}
            for key in [key for key in seen if key not in now]:
                del seen[key]
                store.remove(key)
            for key, obj in now.items():
                if seen.get(key) != obj["metadata"]["resourceVersion"]:
                    seen[key] = obj["metadata"]["resourceVersion"]
                    store.put(key, view(deepcopy(obj)))

        self._watches.append(bring)

    def sync(self) -> None:
        """All watches catch up."""
        for bring in self._watches:
            bring()

    # --- the controllers' side

    async def close(self) -> None:
        """Nothing is open."""

    async def get(
        self,
        resource: ResourceType,
        name: str,
        namespace: str | None = None,
        *,
        decode: type[T],
        lane: Lane = Lane.JOBS,
    ) -> T:
        """The object as a struct."""
        return msgspec.convert(await self.get_json(resource, name, namespace, lane=lane), decode)

    async def get_json(
        self, resource: ResourceType, name: str, namespace: str | None = None, *, lane: Lane = Lane.JOBS
    ) -> Json:
        """The object."""
        call = Call(verb="get", resource=resource, key=object_key(namespace or "", name), lane=lane)
        return await self._answer(call, lambda: self._existing(call))

    async def list_page(
        self,
        resource: ResourceType,
        namespace: str | None = None,
        *,
        params: Mapping[str, str],
        lane: Lane = Lane.WATCH,
    ) -> bytes:
        """One page of the objects of a namespace, as they are when it is asked for."""
        assert params.keys() <= {"limit", "continue", "labelSelector"}
        chosen = dict(part.split("=") for part in params.get("labelSelector", "").split(",") if part)
        call = Call(verb="list", resource=resource, key=namespace or "", lane=lane)

        def act() -> Json:
            keys = [key for key in self.keys(resource) if namespace in (None, key.partition("/")[0])]
            keys = [
                k for k in keys if chosen.items() <= self._objects[resource, k]["metadata"].get("labels", {}).items()
            ]
            start = int(params.get("continue", 0))
            end = start + int(params.get("limit", len(keys)))
            token = {"continue": str(end)} if end < len(keys) else {}
            return {"metadata": token, "items": [self._objects[resource, key] for key in keys[start:end]]}

        return msgspec.json.encode(await self._answer(call, act))

    async def create(
        self,
        resource: ResourceType,
        obj: Any,
        namespace: str | None = None,
        *,
        dry_run: bool = False,
        lane: Lane = Lane.JOBS,
    ) -> Json:
        """Add the object with a UID of its own; a dry run, whose verb is `dry-run`, only answers."""
        body = deepcopy(dict(obj))
        key = object_key(namespace or body["metadata"].get("namespace", ""), body["metadata"]["name"])
        call = Call(verb="dry-run" if dry_run else "create", resource=resource, key=key, body=body, lane=lane)

        def act() -> Json:
            if (resource, key) in self._objects:
                raise AlreadyExistsError(f"{call}: it exists", status=409, reason="AlreadyExists")
            if dry_run:
                return body
            meta = {**body["metadata"], "uid": f"uid-{self._version + 1}"}
            return self._store(resource, key, None, {**body, "metadata": meta})

        return await self._answer(call, act)

    async def patch(
        self,
        resource: ResourceType,
        name: str,
        patch: Any,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        content_type: PatchType = PatchType.MERGE,
        field_manager: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        lane: Lane = Lane.JOBS,
    ) -> Json:
        """Merge the patch; of a status patch only the status counts, of any other all but the status.

        Of server-side apply it knows conditions, which are merged by their type, and objects without lists.
        """
        applies = content_type is PatchType.APPLY
        assert not dry_run
        assert applies or content_type is PatchType.MERGE
        assert (field_manager is not None) is applies
        assert force is applies
        key, body = object_key(namespace or "", name), deepcopy(dict(patch))
        call = Call(verb="patch", resource=resource, key=key, subresource=subresource or "", body=body, lane=lane)
        return await self._answer(call, lambda: self._applied(call) if applies else self._patched(call))

    async def delete(
        self,
        resource: ResourceType,
        name: str,
        namespace: str | None = None,
        *,
        propagation: Propagation | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
        dry_run: bool = False,
        lane: Lane = Lane.JOBS,
    ) -> None:
        """Remove the object, or mark it while finalizers hold it."""
        assert not dry_run
        del propagation, resource_version
        grace = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        call = Call(verb="delete", resource=resource, key=object_key(namespace or "", name), lane=lane, body=grace)

        def act() -> Json:
            old = self._existing(call)
            if uid is not None and uid != old["metadata"].get("uid"):
                raise ConflictError(f"{call}: the UID is another one", status=409)
            marked = {**old["metadata"], "deletionTimestamp": _BIRTH}
            return self._store(resource, call.key, old, {**old, "metadata": marked})

        await self._answer(call, act)

    # --- underneath

    async def _answer(self, call: Call, act: Callable[[], Json]) -> Json:
        self.calls.append(call)
        if call.verb not in _READS:
            await self.open.wait()
        failure = next((f for f in self._failures if f.matches(call)), None)
        if failure is None:
            return deepcopy(act())
        failure.times -= 1
        if failure.done:
            act()
        raise failure.error

    def _existing(self, call: Call) -> Json:
        obj = self._objects.get((call.resource, call.key))
        if obj is None:
            raise NotFoundError(f"{call}: not found", status=404)
        return obj

    def _applied(self, call: Call) -> Json:
        if not call.subresource:
            found = self._objects.get((call.resource, call.key))
            return self._store(call.resource, call.key, found, apply_merge_patch(found or {}, call.body))
        old = self._existing(call)
        assert call.body["status"].keys() == {"conditions"}
        if call.body["metadata"].get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            raise ConflictError(f"{call}: the UID is another one", status=409)
        conditions = {c["type"]: c for c in old.get("status", {}).get("conditions", ())}
        conditions |= {c["type"]: c for c in call.body["status"]["conditions"]}
        new = {**old, "status": {**old.get("status", {}), "conditions": list(conditions.values())}}
        return self._store(call.resource, call.key, old, new)

    def _patched(self, call: Call) -> Json:
        old = self._existing(call)
        version = call.body.get("metadata", {}).get("resourceVersion")
        if version is not None and version != old["metadata"]["resourceVersion"]:
            raise ConflictError(f"{call}: the object has been modified", status=409)
        new = apply_merge_patch(old, call.body)
        if call.subresource == "status":
            known = {field: value for field, value in new.get("status", {}).items() if field not in self.pruned}
            new = {**old, "status": known}
        else:
            new = {**new, "status": old.get("status", {})}
        return self._store(call.resource, call.key, old, new)

    def _store(self, resource: ResourceType, key: str, old: Json | None, new: Json) -> Json:
        """Keep the object under a new version, unless nothing changed or its last finalizer is gone."""
        if old is not None and new == old:
            return old
        self._version += 1
        same_spec = old is not None and old.get("spec") == new.get("spec")
        generation = (old or {}).get("metadata", {}).get("generation", 0) + (not same_spec)
        meta = {"creationTimestamp": _BIRTH, **new["metadata"]}
        meta |= {"resourceVersion": str(self._version), "generation": generation}
        stored = {**new, "metadata": meta}
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            self._objects.pop((resource, key), None)
        else:
            self._objects[resource, key] = stored
        return stored


class FakeRecorder:
    """Keeps events as (kind and name, reason); `warnings` the reasons of those that warn."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.messages: list[str] = []
        self.warnings: list[str] = []

    def record(
        self, regarding: ObjectReference, *, reason: str, message: str, warning: bool = False, once: bool = False
    ) -> None:
        """One thing that happened to an object."""
        self.events.append((f"{regarding.kind} {regarding.name}", reason))
        self.messages.append(message)
        if warning:
            self.warnings.append(reason)

    @property
    def reasons(self) -> list[str]:
        """Why events were written, in order."""
        return [reason for _, reason in self.events]
