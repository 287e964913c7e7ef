"""The common base of doubles of controllers that the real control plane does not have."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import yaml

from kqueue.kinds import Kind, ReadKind
from tests.integration.controlplane.access import MERGE_PATCH, RequestError
from tests.integration.controlplane.cluster import Cluster

Object = dict[str, Any]
LOOK_SECONDS = 0.1
ENDED = ("Succeeded", "Failed")
_APPROVAL = {"api-approved.kubernetes.io": "unapproved, in tests only"}
"""The API server asks for it where a group ends in `k8s.io`."""
_LOOSE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@asynccontextmanager
async def playing(double: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """The double acts while the block runs."""
    task = asyncio.create_task(double)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def definition(row: Kind | ReadKind) -> Object:
    """The definition of a kind, with any fields."""
    scope = "Cluster" if isinstance(row, ReadKind) and not row.namespaced else "Namespaced"
    names = {"kind": row.kind, "plural": row.plural, "singular": row.kind.lower(), "listKind": f"{row.kind}List"}
    version = {"name": row.version, "served": True, "storage": True, "subresources": {"status": {}}}
    version["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"spec": _LOOSE, "status": _LOOSE}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{row.plural}.{row.group}", "annotations": _APPROVAL},
        "spec": {"group": row.group, "scope": scope, "names": names, "versions": [version]},
    }


async def define(cluster: Cluster, folder: Path, rows: Iterable[Kind | ReadKind]) -> None:
    """The API server serves these kinds from here on."""
    for row in rows:
        (folder / f"{row.kind.lower()}.yaml").write_text(yaml.safe_dump(definition(row)))
    await cluster.apply_crds(folder)


def collection(row: Kind, namespace: str = "") -> str:
    """The path of all objects of a kind, or of those in a namespace."""
    inside = f"namespaces/{namespace}/" if namespace else ""
    return f"/apis/{row.group}/{row.version}/{inside}{row.plural}"


def owned_by(obj: Object, *, controller: bool = True) -> Object:
    """The metadata of an object that this one owns."""
    meta = obj["metadata"]
    owner = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": meta["name"], "uid": meta["uid"]}
    return {"namespace": meta["namespace"], "ownerReferences": [{**owner, "controller": controller}]}


class Front(Protocol):
    """Requests to an API server."""

    def session(self) -> AbstractAsyncContextManager[Any]:
        """Connections for many requests."""
        ...

    async def request(
        self, method: str, path: str, body: Any = None, *, content_type: str = ..., session: Any = None
    ) -> Object:
        """One request; raises RequestError."""
        ...


async def _moment() -> None:
    await asyncio.sleep(LOOK_SECONDS)


class CustomDouble(ABC):
    """Looks at all objects of some kinds again and again.  What meets a newer object is done by the next look."""

    def __init__(self, front: Front, rows: Sequence[Kind]) -> None:
        self._front, self._rows = front, rows
        self._session: Any = None

    async def run(self, pause: Callable[[], Awaitable[None]] = _moment) -> None:
        """Look until cancelled, with pauses between the looks."""
        async with self._front.session() as self._session:
            while True:
                for row in self._rows:
                    try:
                        for obj in (await self.ask("GET", collection(row)))["items"]:
                            await self.look(row, {"apiVersion": f"{row.group}/{row.version}", "kind": row.kind, **obj})
                    except RequestError as error:
                        if error.status not in (403, 404, 409, 429):  # 403: its namespace ends; 429: the kind is new
                            raise
                await pause()

    @abstractmethod
    async def look(self, row: Kind, obj: Object) -> None:
        """Do what the controller of this kind would do now."""

    async def found(self, path: str, label: str) -> list[Object]:
        """The objects with a label."""
        found: list[Object] = (await self.ask("GET", f"{path}?labelSelector={label}"))["items"]
        return found

    async def one(self, path: str) -> Object | None:
        """The object at a path; None: there is none."""
        try:
            return await self.ask("GET", path)
        except RequestError as error:
            if error.status != 404:
                raise
            return None

    async def delete(self, path: str, objects: Iterable[Object]) -> None:
        """Delete objects that are not being deleted, and what they own."""
        for obj in objects:
            if not obj["metadata"].get("deletionTimestamp"):
                await self.ask("DELETE", f"{path}/{obj['metadata']['name']}?propagationPolicy=Background")

    async def tell(self, row: Kind, obj: Object, status: Object) -> None:
        """Write parts of a status that differ."""
        if any(obj.get("status", {}).get(key) != value for key, value in status.items()):
            await self.patch(row, obj, {"status": status}, "/status")

    async def patch(self, row: Kind, obj: Object, patch: Object, below: str = "") -> None:
        """Merge a patch into an object, or into a subresource."""
        path = f"{collection(row, obj['metadata']['namespace'])}/{obj['metadata']['name']}{below}"
        await self.ask("PATCH", path, patch, content_type=MERGE_PATCH)

    async def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Object:
        """One request."""
        return await self._front.request(method, path, body, session=self._session, **more)
