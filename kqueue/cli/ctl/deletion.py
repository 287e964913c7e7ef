"""Deleting Workloads by deleting their owners."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kqueue.cli.ctl.discovery import Discovery
from kqueue.cli.ctl.kinds import WORKLOAD
from kqueue.cli.ctl.objects import DryRun, is_name, listed
from kqueue.cli.ctl.workload_view import owners_of
from kqueue.cli.output import printable
from kqueue.errors import ApiError, ConflictError, NotFoundError

if TYPE_CHECKING:
    from kqueue.runtime.client import Client
    from kqueue.runtime.resources import ResourceType

Object = Mapping[str, Any]


@dataclass(slots=True)
class DeletionTarget:
    """One object to delete."""

    resource: ResourceType
    namespace: str
    name: str
    uid: str
    owner_of: list[str]
    """Names of the Workloads that the object owns; empty for a Workload without an owner."""

    def __str__(self) -> str:
        group = f".{self.resource.group}" if self.resource.group else ""
        return f"{self.resource.kind.lower()}{group}/{printable(self.name)}"


class Deletion:
    """Finds the objects to delete, and deletes them; a failure is reported, counted, and stops no other."""

    def __init__(self, client: Client, dry_run: DryRun, tell: Callable[[str], None]) -> None:
        self._client, self._dry_run, self._tell = client, dry_run, tell
        self._discovery = Discovery(client)
        self.failures = 0

    async def targets(self, namespace: str | None, workloads: Sequence[str]) -> list[DeletionTarget]:
        """Return the objects to delete for these Workloads of a namespace, or without names for all (None: of all
        namespaces).

        An owner of several Workloads is returned once. A Workload whose owner cannot be found is left out.
        """
        found: dict[str, DeletionTarget] = {}
        for workload in await self._workloads(namespace, workloads):
            for target in await self._targets_of(workload):
                found.setdefault(target.uid, target).owner_of.extend(
                    name for name in target.owner_of if name not in found[target.uid].owner_of
                )
        return list(found.values())

    async def _workloads(self, namespace: str | None, names: Sequence[str]) -> list[Object]:
        if not names:
            return list(await listed(self._client, WORKLOAD.resource, namespace))
        found: list[Object] = []
        for name in dict.fromkeys(names):
            try:
                found.append(await self._client.get_json(WORKLOAD.resource, name, namespace))
            except NotFoundError as e:
                self._fail(str(e))
        return found

    async def _targets_of(self, workload: Object) -> list[DeletionTarget]:
        meta = workload["metadata"]
        owners = owners_of(workload)
        if not owners:
            return [DeletionTarget(WORKLOAD.resource, meta["namespace"], meta["name"], meta["uid"], [])]
        found = []
        for owner in owners:
            try:
                resource = await self._discovery.of(owner["apiVersion"], owner["kind"])
            except ApiError as e:
                self._fail(f"{owner['kind']} {owner['name']}, which owns workload {meta['name']}: {e}")
                continue
            if not is_name(owner["name"]):  # as part of a URL it could mean all objects of the kind
                self._fail(
                    f"{owner['kind']} {owner['name']!r}, which owns workload {meta['name']}, has no possible name"
                )
                continue
            found.append(DeletionTarget(resource, meta["namespace"], owner["name"], owner["uid"], [meta["name"]]))
        return found

    async def delete(self, target: DeletionTarget) -> bool:
        """Delete one object if it has the uid that was found; return False on a failure."""
        from kqueue.runtime.client import Propagation

        if self._dry_run is DryRun.CLIENT:
            return True
        try:
            await self._client.delete(
                target.resource,
                target.name,
                target.namespace if target.resource.namespaced else None,
                uid=target.uid,
                propagation=Propagation.BACKGROUND,
                dry_run=self._dry_run is DryRun.SERVER,
            )
        except NotFoundError:
            return True  # it was deleted in the meantime
        except ConflictError:
            self._fail(f"{target} was replaced by an object that does not own the workload: not deleted")
            return False
        except ApiError as e:
            self._fail(str(e))
            return False
        return True

    def _fail(self, text: str) -> None:
        self.failures += 1
        self._tell(text)
