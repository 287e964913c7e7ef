"""Lookups of the webhooks at the API server: single objects by name, kept for seconds, never watched.

An answer that an object exists is kept for longer than an answer that it does not, so that a queue counts soon after
its creation.  Equal questions at the same time share one request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from cachetools import TTLCache

from kqueue.api import names
from kqueue.clock import Clock
from kqueue.controllers.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    NAMESPACES,
    TOPOLOGIES,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    group_object_resources,
    read_resource,
)
from kqueue.errors import ApiError, NotFoundError
from kqueue.jobs.ancestry import Lineage, OwnerKind, has_known_owner, lineage_of
from kqueue.jobs.fields import JSON, condition_status, mapping, objects, strings, text
from kqueue.jobs.gang.registry import dialect_of
from kqueue.jobs.gang.value import GangRef
from kqueue.jobs.others import Reference
from kqueue.jobs.variants import without_variants
from kqueue.kinds import GroupKind
from kqueue.runtime.client import Client
from kqueue.runtime.resources import ResourceType
from webhooks.surroundings import LookupFailedError

FOUND_SECONDS, MISSING_SECONDS = 5.0, 1.0
"""Seconds for which an answer is kept: of an object that exists, and of one that does not."""
VERSION_SECONDS = 60.0
"""Seconds for which the served version of a kind is kept."""
LOOKUP_SECONDS = 2.0
"""Seconds for one question, and half of the seconds for following owners.  A review that asks every question and waits
each time is still answered in the ten seconds that the API server allows."""
WARNING_SECONDS = 0.5
"""Seconds for a question that only a warning depends on."""
REMEMBERED = 20_000
"""Most answers that are kept; a dropped answer costs a request."""

_ALL = ""
"""The name in the key of all objects of the kind."""

Key = tuple[str, str, str, str, str]
"""Group, version, plural, namespace (empty for cluster-wide kinds), name (empty for all objects).  A tuple of strings,
because strings cache their hash and dataclasses do not."""


class ApiLookups:
    """`webhooks.surroundings.Lookups` through the API server."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        owners: Mapping[GroupKind, OwnerKind] | None = None,
        manages_all: bool = False,
        seconds: float = LOOKUP_SECONDS,
    ) -> None:
        """`owners` and `manages_all` are as in `jobs.ancestry`; `seconds` bounds one request."""
        self._client, self._seconds = client, seconds
        self._owners, self._manages_all = owners or {}, manages_all
        self._found: TTLCache[Key, JSON] = TTLCache(REMEMBERED, FOUND_SECONDS, clock.monotonic)
        self._missing: TTLCache[Key, None] = TTLCache(REMEMBERED, MISSING_SECONDS, clock.monotonic)
        self._fresh: TTLCache[Key, None] = TTLCache(REMEMBERED, MISSING_SECONDS, clock.monotonic)
        """Lists that were read less than MISSING_SECONDS ago."""
        self._versions: TTLCache[str, ResourceType] = TTLCache(REMEMBERED, VERSION_SECONDS, clock.monotonic)
        """The served version of group objects, by framework."""
        self._asked: dict[Key, asyncio.Task[JSON | None]] = {}

    async def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace; empty when it does not exist."""
        return strings(await self.get(NAMESPACES, "", namespace), "metadata", "labels")

    async def has_local_queue(self, namespace: str, name: str) -> bool:
        """Whether there is such a LocalQueue."""
        return await self.get(LOCAL_QUEUES, namespace, name) is not None

    async def sends_away(self, namespace: str, queue: str) -> bool:
        """Whether the ClusterQueue behind a LocalQueue has a check of MultiKueue."""
        local = await self.get(LOCAL_QUEUES, namespace, queue)
        cluster_queue = text(local, "spec", "clusterQueue")
        found = await self.get(CLUSTER_QUEUES, "", cluster_queue) if cluster_queue else None
        for rule in objects(found, "spec", "admissionChecksStrategy", "admissionChecks"):
            check = await self.get(ADMISSION_CHECKS, "", text(rule, "name"))
            if text(check, "spec", "controllerName") == names.MULTIKUEUE_CONTROLLER:
                return True
        return False

    async def has_priority_class(self, name: str) -> bool:
        """Whether there is such a WorkloadPriorityClass."""
        return await self.get(WORKLOAD_PRIORITY_CLASSES, "", name) is not None

    async def lineage(self, obj: Mapping[str, Any], kind: GroupKind, namespace: str) -> Lineage:
        """Return the owners above the object, and the owner that is queued."""
        if not has_known_owner(dict(obj), self._owners):
            return Lineage()
        references = objects(obj, "metadata", "ownerReferences")

        async def fetch(kind: OwnerKind, namespace: str, name: str) -> JSON | None:
            uid = next((text(r, "uid") for r in references if r.get("controller") is True), "")
            gvk = kind.gvk
            resource = ResourceType(gvk.group, gvk.version, kind.resource, gvk.kind)
            owner = await self.get(resource, namespace, name, uid=uid)
            references[:] = objects(owner, "metadata", "ownerReferences")
            return owner

        placed = {**obj, "metadata": {**mapping(obj, "metadata"), "namespace": namespace}}
        try:
            async with asyncio.timeout(2 * self._seconds):
                return await lineage_of(
                    placed, child=kind, known=self._owners, manages_all=self._manages_all, fetch=fetch
                )
        except TimeoutError:
            raise LookupFailedError(f"owners could not be followed within {2 * self._seconds:g} s") from None

    async def is_admitted(self, uid: str, group: str, namespace: str) -> bool:
        """Whether a Workload of the job with this UID, or of this group of pods, is admitted.  Answers are not kept."""
        return any(_may_run(workload) for workload in await self._in_time(uid, group, namespace))

    async def holds_quota(self, workload: str, namespace: str) -> bool:
        """Whether quota is reserved for the Workload of this name.  Answers are not kept."""
        found = await self._in_time("", workload, namespace)
        return any(condition_status(each, names.CONDITION_QUOTA_RESERVED) == "True" for each in found)

    async def group_object(self, ref: GangRef) -> JSON | None:
        """Return the group object of a gang; None: it does not exist, or the API server does not serve its kind.

        The version that had an object last is the served one; until one is known, every version is asked.
        """
        known = self._versions.get(ref.framework)
        for resource in [known] if known is not None else group_object_resources(dialect_of(ref.framework)):
            found = await self.get(resource, ref.namespace, ref.name)
            if found is not None:
                self._versions[ref.framework] = resource
                return found
        return None

    async def other(self, reference: Reference) -> JSON | None:
        """Return an object that a job refers to; None: it does not exist, or its kind is not served."""
        return await self.get(read_resource(reference.kind), reference.namespace, reference.name)

    async def topology_levels(self, wanted: Collection[str]) -> frozenset[str] | None:
        """Return the levels of all Topologies; at most MISSING_SECONDS old where a level of `wanted` is missing."""
        key = _key(TOPOLOGIES, "", _ALL)
        known = self._found.get(key)
        if known is not None and key not in self._fresh and not _levels(known).issuperset(wanted):
            self._found.pop(key, None)
        try:
            async with asyncio.timeout(WARNING_SECONDS):
                found = await self.get(TOPOLOGIES, "", _ALL)
        except TimeoutError:
            raise LookupFailedError(f"Topologies were not listed within {WARNING_SECONDS:g} s") from None
        return _levels(found) if found is not None else None

    async def _in_time(self, uid: str, group: str, namespace: str) -> list[JSON]:
        try:
            async with asyncio.timeout(self._seconds):
                return await self._workloads(uid, group, namespace)
        except TimeoutError:
            raise LookupFailedError(f"Workloads were not listed within {self._seconds:g} s") from None
        except ApiError as e:
            raise LookupFailedError(f"Workloads could not be listed: {e}") from e

    async def _workloads(self, uid: str, group: str, namespace: str) -> list[JSON]:
        if not group:
            chosen = f"{names.JOB_UID_LABEL}={uid}"
            return without_variants(await self._client.list_json(WORKLOADS, namespace, label_selector=chosen))
        try:
            return [await self._client.get_json(WORKLOADS, group, namespace)]
        except NotFoundError:
            return []

    async def get(self, resource: ResourceType, namespace: str, name: str, *, uid: str = "") -> JSON | None:
        """Return the object, at most FOUND_SECONDS old; None when it does not exist.

        `uid`: a kept object of this name with another UID is read again.

        Raises:
            LookupFailedError: the API server did not answer in time, or answered with an error.
        """
        key = _key(resource, namespace, name)
        known = self._found.get(key)
        if known is not None and (not uid or known["metadata"].get("uid") == uid):
            return known
        if known is None and key in self._missing:
            return None
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = asyncio.create_task(self._ask(resource, key), name=f"look up {name}")
            asked.add_done_callback(lambda done: self._answered(key, done))
        # Shielded: a caller that gives up does not cancel the question of other callers.
        return await asyncio.shield(asked)

    def _answered(self, key: Key, asked: asyncio.Task[JSON | None]) -> None:
        self._asked.pop(key, None)
        if not asked.cancelled():
            asked.exception()  # retrieved, in case no caller waits any more

    async def _ask(self, resource: ResourceType, key: Key) -> JSON | None:
        *_, namespace, name = key
        what = f"{resource.kind} {namespace + '/' if namespace else ''}{name}"
        try:
            async with asyncio.timeout(self._seconds):
                found = await self._read(resource, namespace, name)
        except NotFoundError:
            self._found.pop(key, None)
            self._missing[key] = None
            return None
        except TimeoutError:
            raise LookupFailedError(f"the API server did not answer about {what} within {self._seconds:g} s") from None
        except ApiError as e:
            raise LookupFailedError(f"the API server could not be asked about {what}: {e}") from e
        self._missing.pop(key, None)
        self._found[key] = found
        return found

    async def _read(self, resource: ResourceType, namespace: str, name: str) -> JSON:
        if name == _ALL:
            items = await self._client.list_json(resource)
            self._fresh[_key(resource, namespace, name)] = None
            return {"metadata": {}, "items": items}
        return await self._client.get_json(resource, name, namespace or None)


def _key(resource: ResourceType, namespace: str, name: str) -> Key:
    return resource.group, resource.version, resource.plural, namespace, name


def _levels(topologies: JSON) -> frozenset[str]:
    return frozenset(
        text(level, "nodeLabel") for item in objects(topologies, "items") for level in objects(item, "spec", "levels")
    )


def _may_run(workload: JSON) -> bool:
    """Whether a Workload is admitted, and neither evicted nor finished."""
    ended = (names.CONDITION_EVICTED, names.CONDITION_FINISHED)
    return condition_status(workload, names.CONDITION_ADMITTED) == "True" and not any(
        condition_status(workload, kind) == "True" for kind in ended
    )
