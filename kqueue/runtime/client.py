"""The API server's verbs, with time limits, retries and priority lanes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kqueue.clock import Clock
from kqueue.errors import (
    ApiError,
    FieldError,
    InvalidObjectError,
    ServerError,
)
from kqueue.runtime.kubeconfig import ClusterAccess, find_cluster
from kqueue.runtime.lane import Lane
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.stream import Stream
from kqueue.runtime.transport import Call, ClientSettings, RequestRecord, Transport, is_about_trust

T = TypeVar("T")

Json = dict[str, Any]
"""A JSON object in wire format."""


class PatchType(StrEnum):
    """Kinds of patches; the value is the content type."""

    MERGE = "application/merge-patch+json"
    """RFC 7386: maps are merged, lists replaced.  A patch with `metadata.resourceVersion` is an optimistic lock."""
    STRATEGIC = "application/strategic-merge-patch+json"
    """Lists are merged by key; built-in kinds only."""
    JSON = "application/json-patch+json"
    """RFC 6902: a list of operations."""
    APPLY = "application/apply-patch+yaml"
    """Server-side apply; needs a field manager."""


class Propagation(StrEnum):
    """How the dependents of a deleted object are deleted."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


class Client(Transport):
    """The verbs of one API server over one pool of kept-alive connections.

    `Transport` says how requests are sent.  Whole objects are never written, except the lease: use patches of the
    fields we own.

    Objects go in as JSON-ready values and come out as dictionaries, or as the struct that `decode` names.
    """

    # --- reading

    async def version(self) -> Json:
        """Return the version of the server: the quickest proof that the server answers and accepts our credentials."""
        call = Call(method="GET", verb="get", resource=_VERSION, path="/version", what="get /version", lane=Lane.JOBS)
        return _json(await self.send(call), call.what)

    async def get(
        self,
        resource: ResourceType,
        name: str,
        namespace: str | None = None,
        *,
        decode: type[T],
        lane: Lane = Lane.JOBS,
    ) -> T:
        """Return one object as a `decode`.

        Raises:
            NotFoundError: the object does not exist.
            InvalidObjectError: the object does not have the shape of `decode`.
        """
        what = _described("get", resource, namespace, name)
        return _typed(await self._get(resource, name, namespace, lane), decode, what)

    async def get_json(
        self, resource: ResourceType, name: str, namespace: str | None = None, *, lane: Lane = Lane.JOBS
    ) -> Json:
        """Return one object as a dictionary.

        Raises:
            NotFoundError: the object does not exist.
        """
        return _json(await self._get(resource, name, namespace, lane), _described("get", resource, namespace, name))

    async def get_path(
        self, path: str, params: Mapping[str, str] | None = None, *, resource: ResourceType, lane: Lane = Lane.JOBS
    ) -> Json:
        """Return the JSON at a path of no object: an aggregated API, discovery.  `resource` names it in metrics.

        Raises:
            NotFoundError: the path does not exist.
        """
        return _json(await self.get_bytes(path, params, resource=resource, lane=lane), f"get {path}")

    async def get_bytes(
        self, path: str, params: Mapping[str, str] | None = None, *, resource: ResourceType, lane: Lane = Lane.JOBS
    ) -> bytes:
        """Return the raw answer at a path of no object; otherwise as `get_path`."""
        what = f"get {path}"
        call = Call(
            method="GET", verb="get", resource=resource, path=path, what=what, lane=lane, params=params or {}
        )  # fmt: skip
        return await self.send(call)

    async def list_json(
        self,
        resource: ResourceType,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        page: int = 500,
        lane: Lane = Lane.JOBS,
    ) -> list[Json]:
        """Return all matching objects of one moment, `page` objects per request.  For bulk reading use a reflector.

        Items of a list lack `apiVersion` and `kind`; they are filled in.
        """
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        params = {"limit": str(page), **{k: v for k, v in selectors.items() if v}}
        found: list[Json] = []
        while True:
            got = _json(await self.list_page(resource, namespace, params=params, lane=lane), f"list {resource}")
            found += ({"apiVersion": resource.api_version, "kind": resource.kind, **o} for o in got.get("items") or ())
            token = got.get("metadata", {}).get("continue")
            if not token:
                return found
            params["continue"] = token

    async def list_page(
        self,
        resource: ResourceType,
        namespace: str | None = None,
        *,
        params: Mapping[str, str],
        lane: Lane = Lane.WATCH,
    ) -> bytes:
        """Return the raw answer to one list request.

        Raises:
            GoneError: the continue token has expired; begin anew.
        """
        path, what = resource.path(namespace), _described("list", resource, namespace)
        return await self.send(
            Call(method="GET", verb="list", resource=resource, path=path, what=what, lane=lane, params=params)
        )

    async def open_watch(
        self, resource: ResourceType, namespace: str | None = None, *, params: Mapping[str, str]
    ) -> Stream:
        """Open a watch and return its stream; the caller closes it.  No retries: the reflector retries itself.

        Raises:
            ServerError: among others, when the answer is not JSON (a proxy's page).
        """
        path, what = resource.path(namespace), _described("watch", resource, namespace)
        params = {"watch": "true", **params}
        call = Call(method="GET", verb="watch", resource=resource, path=path, what=what, lane=Lane.WATCH, params=params)
        known = self._link.renewals
        try:
            return await self.open_stream(call)
        except ApiError as e:
            if not is_about_trust(e):
                raise
            await self._reload_credentials(known)
            return await self.open_stream(call)

    # --- writing

    async def create(
        self,
        resource: ResourceType,
        obj: Any,
        namespace: str | None = None,
        *,
        dry_run: bool = False,
        lane: Lane = Lane.JOBS,
    ) -> Json:
        """Create an object and return it as stored.  `namespace` None: the namespace in the object's metadata.

        `dry_run` lets the server check everything and store nothing.

        Raises:
            AlreadyExistsError: an object of that name exists.
            UnreachableError: no answer came; the object may exist or not.
        """
        namespace = namespace or _metadata(obj).get("namespace")
        if resource.namespaced and not namespace:
            raise ValueError(f"{resource} is namespaced: the object to create names no namespace")
        what = _described("create", resource, namespace, _metadata(obj).get("name"))
        call = Call(
            method="POST", verb="create", resource=resource, path=resource.path(namespace), what=what, lane=lane,
            params=_dry(dry_run), body=msgspec.json.encode(obj), repeatable=False,
        )  # fmt: skip
        return _json(await self.send(call), what)

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
        """Change the fields that `patch` names; return the object as stored.

        `force` takes over fields of other managers (server-side apply only).  `dry_run` lets the server check
        everything and store nothing.

        Raises:
            ConflictError: the patch carries a resourceVersion that is no longer current, or, in server-side apply,
                another manager owns a field.  After a retry it may mean that our own first attempt succeeded.
            NotFoundError: there is no such object.
        """
        what = _described("patch", resource, namespace, name, subresource)
        params = _dry(dry_run)
        if field_manager:
            params["fieldManager"] = field_manager
        if force:
            params["force"] = "true"
        call = Call(
            method="PATCH",
            verb="patch",
            resource=resource,
            path=resource.path(namespace, name, subresource),
            what=what,
            lane=lane,
            params=params,
            body=msgspec.json.encode(patch),
            content_type=content_type.value,
            subresource=subresource or "",
            repeatable=content_type is not PatchType.JSON,
        )
        return _json(await self.send(call), what)

    async def replace(self, resource: ResourceType, obj: Any, *, lane: Lane = Lane.JOBS) -> Json:
        """Write a whole object that no other component writes (a lease), at the resourceVersion that it carries.

        Raises:
            ConflictError: another writer was faster.
        """
        meta = _metadata(obj)
        if not meta.get("resourceVersion"):
            raise ValueError(f"replacing {resource} {meta.get('name')!r} without a resourceVersion would be blind")
        name, namespace = meta["name"], meta.get("namespace")
        what = _described("update", resource, namespace, name)
        call = Call(
            method="PUT", verb="update", resource=resource, path=resource.path(namespace, name), what=what, lane=lane,
            body=msgspec.json.encode(obj),
        )  # fmt: skip
        return _json(await self.send(call), what)

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
        """Delete an object.  An object with finalizers or a grace period stays for a while.

        `uid` and `resource_version` are preconditions.  `dry_run` lets the server check everything and delete nothing.

        Raises:
            NotFoundError: there is no such object (after a retry this counts as success).
            ConflictError: a precondition does not hold.
        """
        what = _described("delete", resource, namespace, name)
        wishes = {"uid": uid, "resourceVersion": resource_version}
        given = {
            "preconditions": {k: v for k, v in wishes.items() if v} or None,
            "propagationPolicy": propagation.value if propagation else None,
            "gracePeriodSeconds": grace_seconds,
            "dryRun": ["All"] if dry_run else None,  # the API server ignores the query when there is a body
        }
        options = {"kind": "DeleteOptions", "apiVersion": "v1", **{k: v for k, v in given.items() if v is not None}}
        call = Call(
            method="DELETE", verb="delete", resource=resource, path=resource.path(namespace, name), what=what,
            lane=lane, body=msgspec.json.encode(options),
        )  # fmt: skip
        await self.send(call)

    # --- underneath

    async def _get(self, resource: ResourceType, name: str, namespace: str | None, lane: Lane) -> bytes:
        path, what = resource.path(namespace, name), _described("get", resource, namespace, name)
        return await self.send(Call(method="GET", verb="get", resource=resource, path=path, what=what, lane=lane))


async def connect(
    kubeconfig: Path | None = None,
    context: str | None = None,
    settings: ClientSettings | None = None,
    *,
    clock: Clock | None = None,
    on_request: Callable[[RequestRecord], None] | None = None,
) -> Client:
    """Return a client for the cluster that flags or environment name.  Sends no request.

    The first that applies: `kubeconfig`; the files in the environment's KUBECONFIG; the pod's own service account;
    `~/.kube/config`.  `context` None means the kubeconfig's current context.

    Raises:
        ConfigError: no source applies, or the source cannot be read; names the path and the remedy.
    """
    cluster = await find_cluster(kubeconfig, context)
    return client_of(cluster, settings, clock=clock, on_request=on_request)


def client_of(
    cluster: ClusterAccess,
    settings: ClientSettings | None = None,
    *,
    clock: Clock | None = None,
    on_request: Callable[[RequestRecord], None] | None = None,
) -> Client:
    """Return a client for a cluster.  Needs a running event loop; sends no request."""
    return Client(cluster, settings=settings, clock=clock, on_request=on_request)


_VERSION = ResourceType("", "v1", "version", "Info", namespaced=False)


def _dry(dry_run: bool) -> dict[str, str]:
    return {"dryRun": "All"} if dry_run else {}


def _described(verb: str, resource: ResourceType, namespace: str | None, *rest: str | None) -> str:
    name = "/".join(part for part in (namespace, *rest) if part)
    return f"{verb} {resource} {name}".rstrip()


def _metadata(obj: Any) -> Mapping[str, Any]:
    meta: Mapping[str, Any] = obj.get("metadata") or {}
    return meta


def _json(body: bytes, what: str) -> Json:
    try:
        return msgspec.json.decode(body, type=Json)
    except msgspec.DecodeError as e:
        raise ServerError(f"{what}: the answer is not a JSON object: {e}", status=200) from e


def _typed(body: bytes, decode: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(body, type=decode)
    except msgspec.ValidationError as e:
        problem, _, path = str(e).partition(" - at ")
        raise InvalidObjectError(what, [FieldError(path.strip("`") or "$", problem)]) from e
    except msgspec.DecodeError as e:
        raise ServerError(f"{what}: the answer is not JSON: {e}", status=200) from e
