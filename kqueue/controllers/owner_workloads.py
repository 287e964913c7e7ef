"""Finds the Workloads of one owner, in the watch and in the API server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.controllers.job_workload import OWNER_INDEX, owner_key
from kqueue.controllers.resources import WORKLOADS
from kqueue.errors import NotFoundError
from kqueue.jobs.ancestry import Ancestor
from kqueue.runtime.client import Client
from kqueue.runtime.store import Store


async def read_workloads(client: Client, namespace: str, *, owner_uid: str) -> list[wire.Workload]:
    """Read the Workloads that carry the label of an owner from the API server.

    Raises:
        ApiError: the list failed.
    """
    return [_decoded(obj) for obj in await _listed(client, namespace, owner_uid)]


async def _listed(client: Client, namespace: str, owner_uid: str) -> list[dict[str, Any]]:
    return await client.list_json(WORKLOADS, namespace, label_selector=f"{names.JOB_UID_LABEL}={owner_uid}")


class OwnerWorkloads:
    """The Workloads whose controller is a given object, by UID."""

    def __init__(self, client: Client, workloads: Store[wire.Workload]) -> None:
        """Take the client and the watch of Workloads, which must have OWNER_INDEX."""
        self._client, self._workloads = client, workloads

    def known(self, owner: Ancestor) -> list[wire.Workload]:
        """Return the owner's Workloads from the watch."""
        index = owner_key(owner.gvk.group, owner.gvk.kind, owner.namespace, owner.name)
        return [w for w in self._workloads.by_index(OWNER_INDEX, index) if _is_of(w, owner)]

    async def read(self, owner: Ancestor, known: Iterable[wire.Workload]) -> list[wire.Workload]:
        """Return the owner's Workloads from the API server, because the watch may be behind an admission.

        Workloads of `known` that lack the label of their owner are read one by one.

        Raises:
            ApiError: a read failed.
        """
        found = {obj["metadata"]["name"]: obj for obj in await _listed(self._client, owner.namespace, owner.uid)}
        for name in {w.metadata.name for w in known} - found.keys():
            try:
                found[name] = await self._client.get_json(WORKLOADS, name, owner.namespace)
            except NotFoundError:
                continue
        return [w for w in map(_decoded, found.values()) if _is_of(w, owner)]


def _decoded(obj: dict[str, Any]) -> wire.Workload:
    return msgspec.convert(obj, wire.Workload)


def _is_of(workload: wire.Workload, owner: Ancestor) -> bool:
    return any(o.controller and o.uid == owner.uid for o in workload.metadata.owner_references)
