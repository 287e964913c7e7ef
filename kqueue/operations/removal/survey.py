"""Search for leftovers, page by page, in every kind that kqueue writes to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from kqueue.api.wire.meta import Struct
from kqueue.config.declared import DeclaredKind
from kqueue.controllers import resources as kinds
from kqueue.controllers.leftovers import (
    READ_IN_BULK,
    Left,
    Leftover,
    Seen,
    of_batch_process,
    of_job,
    of_kind,
    of_object,
    of_pod,
    waiting_owners,
)
from kqueue.controllers.resources import resource_of
from kqueue.errors import ForbiddenError, GoneError, NotFoundError, ServerError
from kqueue.jobs.catalog import BY_FRAMEWORK, webhook_path
from kqueue.jobs.declared import Declared
from kqueue.jobs.gang.batch_process import KIND, PLURAL
from kqueue.jobs.gang.registry import dialect_of
from kqueue.jobs.gang.reviewed import REVIEWED_GROUPS
from kqueue.jobs.kind import JobKind
from kqueue.kinds import FRAMEWORKS, GANG_DIALECTS
from kqueue.manager.registration import CONFIGURATIONS
from kqueue.operations.removal.conversion import conversions
from kqueue.runtime.client import Client
from kqueue.runtime.resources import ResourceType
from webhooks.configuration import MANAGED_BY, MUTATING_NAME, OURSELVES, VALIDATING_NAME, is_ours

JSON = dict[str, Any]
_CLUSTER_SCOPED = (
    kinds.CLUSTER_QUEUES, kinds.COHORTS, kinds.RESOURCE_FLAVORS, kinds.TOPOLOGIES, kinds.ADMISSION_CHECKS,
)  # fmt: skip
_NAMESPACED = (kinds.LOCAL_QUEUES,)
_SERVICES = ResourceType("", "v1", "services", "Service")
API_SERVICES = ResourceType("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)
_BATCH_PROCESSES = ResourceType(KIND.group, KIND.version, PLURAL, KIND.kind)
_PAGE = "500"
_ATTEMPTS = 3
"""Attempts to list one kind, if the continue token expires before the last page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The objects to survey. Without `namespace` and `integrations`: all."""

    namespace: str = ""
    integrations: frozenset[str] = frozenset()
    """Frameworks of the objects; empty: all, and objects of no framework."""
    leave_gated: bool = False
    """Whether gates of pods are ignored."""
    declared: tuple[DeclaredKind, ...] = ()
    """Job kinds that the configuration declares."""

    @property
    def whole(self) -> bool:
        """Whether all of kqueue is searched, cluster-wide objects included."""
        return not self.namespace and not self.integrations

    def has(self, leftover: Leftover) -> bool:
        """Whether the object is in the scope."""
        return not self.integrations or leftover.integration in self.integrations


class _ListMeta(Struct, frozen=True, kw_only=True, rename={"token": "continue"}):
    token: str = ""


class _Page(Struct, frozen=True, kw_only=True):
    items: tuple[Seen, ...] = ()
    metadata: _ListMeta = _ListMeta()


async def survey(client: Client, scope: Scope) -> list[Leftover]:
    """Return all leftovers, in the order of their release.

    Raises:
        ApiError: the API server refused a list, or cannot be reached.
    """
    found: list[Leftover] = []
    if scope.whole:
        found += [*await _webhooks(client), *await _api_services(client), *await conversions(client)]
    leave = scope.leave_gated
    found += await _found(client, kinds.PODS, scope, lambda pod: _one(of_pod(kinds.PODS, pod, leave_gated=leave)))
    waiting: set[str] = set()

    def of_workload(workload: Seen) -> Iterable[Leftover]:
        waiting.update(waiting_owners([workload]))
        return _one(of_object(kinds.WORKLOADS, workload))

    found += await _found(client, kinds.WORKLOADS, scope, of_workload)
    for resource in (*_NAMESPACED, *_CLUSTER_SCOPED) if scope.whole else _NAMESPACED:
        found += await _found(client, resource, scope, _judge(resource))
    for kind in (*BY_FRAMEWORK.values(), *map(Declared, scope.declared)):
        if (kind.gvk.group, kind.gvk.kind) in READ_IN_BULK:
            resource = resource_of(kind)
            found += await _found(client, resource, scope, _judge_job(resource, waiting))
        else:
            found += await _of_kind(client, kind, scope, waiting)
    return found + await _found(
        client, _BATCH_PROCESSES, scope, lambda obj: _one(of_batch_process(_BATCH_PROCESSES, obj))
    )


async def _of_kind(client: Client, kind: JobKind, scope: Scope, waiting: set[str]) -> list[Leftover]:
    resource = resource_of(kind)
    try:
        objects = await client.list_json(resource, scope.namespace or None)
    except NotFoundError:
        return []
    found = [
        leftover
        for obj in objects
        for leftover in of_kind(resource, obj, kind, waits_for_us=obj["metadata"]["uid"] in waiting)
    ]
    return [leftover for leftover in found if scope.has(leftover)]


def _one(leftover: Leftover | None) -> tuple[Leftover, ...]:
    return () if leftover is None else (leftover,)


def _judge(resource: ResourceType) -> Callable[[Seen], Iterable[Leftover]]:
    return lambda obj: _one(of_object(resource, obj))


def _judge_job(resource: ResourceType, waiting: set[str]) -> Callable[[Seen], Iterable[Leftover]]:
    return lambda job: of_job(resource, job, waits_for_us=job.metadata.uid in waiting)


async def _found(
    client: Client, resource: ResourceType, scope: Scope, judge: Callable[[Seen], Iterable[Leftover]]
) -> list[Leftover]:
    """Return kqueue's remaining changes to objects of one kind; empty if the cluster does not have the kind."""
    for attempt in range(_ATTEMPTS):
        found: list[Leftover] = []
        try:
            async for obj in _objects(client, resource, scope.namespace if resource.namespaced else ""):
                found += [leftover for leftover in judge(obj) if scope.has(leftover)]
        except NotFoundError:
            return []
        except GoneError:
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return found
    raise AssertionError("the last attempt returns or raises")


async def _objects(client: Client, resource: ResourceType, namespace: str) -> AsyncIterator[Seen]:
    params = {"limit": _PAGE}
    while True:
        raw = await client.list_page(resource, namespace or None, params=params)
        try:
            page = msgspec.json.decode(raw, type=_Page)
        except msgspec.ValidationError as e:
            raise ServerError(f"list {resource}: the answer cannot be read: {e}") from e
        for obj in page.items:
            yield obj
        if not page.metadata.token:
            return
        params["continue"] = page.metadata.token


async def _webhooks(client: Client) -> list[Leftover]:
    """Return webhook configurations that kqueue made, and configurations with its names that others applied.

    Mutating ones come first, so that no new pod is gated from then on.
    """
    found = []
    for resource in CONFIGURATIONS.values():
        for obj in await client.list_json(resource):
            metadata = obj["metadata"]
            ours = is_ours(metadata)
            if not ours and metadata["name"] not in (MUTATING_NAME, VALIDATING_NAME):
                continue
            found.append(
                Leftover(
                    left=Left.WEBHOOKS if ours else Left.OTHERS_WEBHOOKS,
                    resource=resource,
                    namespace="",
                    name=metadata["name"],
                    uid=metadata["uid"],
                    version=metadata["resourceVersion"],
                    ours=(f"{len(obj.get('webhooks') or ())} webhooks", *await _targets(client, obj)),
                )
            )
    return found


async def _api_services(client: Client) -> list[Leftover]:
    """Return APIServices that a controller outside of the cluster made and left behind when it was killed.

    A user without the right to read them has made none: in a cluster the installation adds and removes them.
    """
    selector = f"{MANAGED_BY}={OURSELVES}"
    try:
        listed = await client.list_json(API_SERVICES, label_selector=selector)
    except (ForbiddenError, NotFoundError):
        return []
    return [
        Leftover(
            left=Left.API_SERVICES,
            resource=API_SERVICES,
            namespace="",
            name=obj["metadata"]["name"],
            uid=obj["metadata"]["uid"],
            version=obj["metadata"]["resourceVersion"],
            ours=(),
        )
        for obj in listed
    ]


async def _targets(client: Client, obj: JSON) -> list[str]:
    """Return targets of the entries, with a note if a target is missing: `Service a/b, which does not exist`."""
    targets: set[str] = set()
    for hook in obj.get("webhooks") or ():
        config = hook.get("clientConfig") or {}
        service = config.get("service") or {}
        targets.add(
            f"Service {service['namespace']}/{service['name']}" if service else _base(str(config.get("url", "")))
        )
    return [f"{target}{await _missing(client, target)}" for target in sorted(targets)]


def _base(url: str) -> str:
    return "/".join(url.split("/", 3)[:3])


async def _missing(client: Client, target: str) -> str:
    if not target.startswith("Service "):
        return ""
    namespace, _, name = target.removeprefix("Service ").partition("/")
    try:
        await client.get_json(_SERVICES, name, namespace)
    except NotFoundError:
        return ", which does not exist"
    return ""


def _entries(framework: str) -> list[str]:
    """Return the names of the mutating entries that a dialect of gangs has for itself."""
    selection, group = dialect_of(framework).selection(), REVIEWED_GROUPS.get(framework)
    found = [f"mpod-{selection.word}.kb.io"] if selection is not None else []
    return [*found, f"m{group.word}.kb.io"] if group is not None and group.is_ours else found


async def still_registered(
    client: Client, integrations: frozenset[str], declared: Iterable[DeclaredKind] = ()
) -> list[str]:
    """Return the integrations whose webhooks are registered, because a controller runs with them; `declared` are the
    kinds that the configuration declares.
    """
    paths = {f"/mutate-{FRAMEWORKS[name].webhook_path}": name for name in integrations if name in FRAMEWORKS}
    kinds = [Declared(one) for one in declared if one.framework in integrations]
    paths |= {f"/mutate-{webhook_path(kind)}": kind.framework for kind in kinds}
    entries = {entry: name for name in integrations if name in GANG_DIALECTS for entry in _entries(name)}
    asked: set[str] = set()
    for obj in await client.list_json(CONFIGURATIONS["MutatingWebhookConfiguration"]):
        for hook in obj.get("webhooks") or ():
            config = hook.get("clientConfig") or {}
            path = (config.get("service") or {}).get("path") or str(config.get("url", ""))
            asked.update(name for end, name in paths.items() if path.endswith(end))
            asked.update(name for entry, name in entries.items() if hook["name"] == entry)
    return sorted(asked)
