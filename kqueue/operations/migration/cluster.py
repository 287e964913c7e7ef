"""Checks a live cluster that Kueue manages for objects that kqueue would not take over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kqueue.api import names
from kqueue.config import Configuration
from kqueue.controllers.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    LOCAL_QUEUES,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
)
from kqueue.errors import ForbiddenError, NotFoundError
from kqueue.jobs import unmanaged
from kqueue.jobs.ancestry import OwnerKind
from kqueue.jobs.fields import condition_status
from kqueue.kinds import CHECK_CONTROLLERS
from kqueue.operations.migration.definitions import judge_definitions
from kqueue.operations.migration.findings import MigrationFinding, note, some, work
from kqueue.runtime.client import Client
from kqueue.runtime.resources import ResourceType

JSON = dict[str, Any]
_CRDS = ResourceType(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
_WRITTEN = (
    *(ADMISSION_CHECKS, CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES, RESOURCE_FLAVORS, TOPOLOGIES),
    WORKLOAD_PRIORITY_CLASSES,
)
"""Kinds that users write as manifests."""


async def look(client: Client, configuration: Configuration) -> list[MigrationFinding]:
    """Return all findings; a kind that the user may not read is a finding, too.

    Raises:
        ApiError: the API server does not answer, or fails.
    """
    parts: list[tuple[str, Callable[[], Awaitable[list[MigrationFinding]]]]] = [
        ("CustomResourceDefinition", lambda: _definitions(client)),
        ("AdmissionCheck", lambda: _checks(client, configuration.check_controllers())),
        *([] if configuration.counts_devices() else [("Workload", lambda: _claims(client))]),
        *((kind.kind, _versions_of(client, kind)) for kind in _WRITTEN),
        *(
            (owner.gvk.kind, _unmanaged_of(client, owner))
            for owner in unmanaged.kinds_not_queued(configuration.integrations)
        ),
    ]
    found: list[MigrationFinding] = []
    for kind, part in parts:
        try:
            found += await part()
        except NotFoundError:
            continue  # the kind is not installed, so there is no object of it
        except ForbiddenError as e:
            remedy = "run the check as a user who may list it: --as, --context or --kubeconfig"
            found.append(work(kind, f"it was not looked at: {e}", remedy))
    return found


async def _definitions(client: Client) -> list[MigrationFinding]:
    return list(judge_definitions(await client.list_json(_CRDS)))


# --- checks and claims


async def _checks(client: Client, running: Sequence[str]) -> list[MigrationFinding]:
    checks = await client.list_json(ADMISSION_CHECKS)
    return list(judge_checks(checks, await client.list_json(CLUSTER_QUEUES) if checks else [], running))


def judge_checks(checks: Iterable[JSON], queues: Iterable[JSON], running: Sequence[str]) -> Iterator[MigrationFinding]:
    """Report AdmissionChecks that no controller would answer.

    Args:
        checks: the AdmissionChecks.
        queues: the ClusterQueues.
        running: names of the controllers that run in kqueue with the new configuration.
    """
    users: dict[str, list[str]] = defaultdict(list)
    for queue in queues:
        for name in _checks_named_by(queue.get("spec") or {}):
            users[name].append(queue["metadata"]["name"])
    for check in checks:
        name, controller = check["metadata"]["name"], str((check.get("spec") or {}).get("controllerName") or "")
        where = f"AdmissionCheck {name} spec.controllerName"
        used = f"; ClusterQueues that name it: {some(users[name])}" if users[name] else "; no ClusterQueue names it"
        if controller in CHECK_CONTROLLERS and controller not in running:
            judge = work if users[name] else note
            why = f"{controller} runs in kqueue only where the configuration names it{used}"
            yield judge(where, why, f"add {controller} to configuration.admissionChecks.controllers")
        elif condition_status(check, names.CONDITION_ACTIVE) != "True":
            judge = work if users[name] else note
            why = f"{controller} has not set the check's condition Active{used}"
            yield judge(where, why, f"start the controller, or: kubectl delete admissioncheck {name}")


def _checks_named_by(spec: Mapping[str, Any]) -> set[str]:
    """Return the checks that a ClusterQueue names in the fields of either version."""
    rules = (spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or ()
    return {rule["name"] for rule in rules} | set(spec.get("admissionChecks") or ())


async def _claims(client: Client) -> list[MigrationFinding]:
    return list(judge_claims(await client.list_json(WORKLOADS)))


def judge_claims(workloads: Iterable[JSON]) -> Iterator[MigrationFinding]:
    """Yield a finding about jobs that request devices by resource claims, which the configuration does not count."""
    asking = [
        f"{workload['metadata']['namespace']}/{workload['metadata']['name']}"
        for workload in workloads
        if condition_status(workload, names.CONDITION_FINISHED) != "True" and _has_claims(workload)
    ]
    if asking:
        why = f"{len(asking)} Workloads request devices by claims, and the configuration counts none: {some(asking)}"
        remedy = "take over resources.deviceClassMappings, with feature gate KueueDRAIntegration on"
        yield work("Workload spec.podSets[].template.spec.resourceClaims", why, remedy)


def _has_claims(workload: JSON) -> bool:
    templates = ((each.get("template") or {}).get("spec") or {} for each in workload["spec"].get("podSets") or ())
    return any(template.get("resourceClaims") for template in templates)


# --- versions in which manifests are written


def _versions_of(client: Client, kind: ResourceType) -> Callable[[], Awaitable[list[MigrationFinding]]]:
    async def part() -> list[MigrationFinding]:
        return list(judge_writers(kind.kind, await client.list_json(kind)))

    return part


def judge_writers(kind: str, found: Iterable[JSON]) -> Iterator[MigrationFinding]:
    """Report objects with fields written in a version that is not kqueue's own; status is ignored."""
    written: dict[tuple[str, str], list[str]] = defaultdict(list)
    for obj in found:
        meta = obj["metadata"]
        shown = "/".join(filter(None, (meta.get("namespace"), meta["name"])))
        for entry in meta.get("managedFields") or ():
            group, _, version = str(entry.get("apiVersion") or "").partition("/")
            if group == names.GROUP and version != names.VERSION and not entry.get("subresource"):
                written[str(entry.get("manager") or "a client"), version].append(shown)
    for (manager, version), objects in sorted(written.items()):
        is_served = version == names.OLDER_VERSION
        judge, problem = (note, "is deprecated") if is_served else (work, "kqueue does not serve")
        why = f"{manager} has written {len(set(objects))} as {version}, which {problem}: {some(set(objects))}"
        remedy = f"write apiVersion {names.GROUP}/{names.VERSION} in the manifests, and apply them again"
        yield judge(f"{kind} apiVersion", why, remedy)


# --- labelled objects of kinds that are not queued


def _unmanaged_of(client: Client, owner: OwnerKind) -> Callable[[], Awaitable[list[MigrationFinding]]]:
    gvk = owner.gvk
    resource = ResourceType(gvk.group, gvk.version, owner.resource, gvk.kind)

    async def part() -> list[MigrationFinding]:
        return list(judge_labelled(owner, await client.list_json(resource, label_selector=names.QUEUE_NAME_LABEL)))

    return part


def judge_labelled(owner: OwnerKind, found: Iterable[JSON]) -> Iterator[MigrationFinding]:
    """Report objects with a queue name that would start without quota, except objects with a controller."""
    gvk, loose = owner.gvk, unmanaged.names_of_loose(found)
    if not loose:
        return
    why = f"{len(loose)} objects name a queue, and would start without quota: {some(loose)}"
    yield work(f"{gvk.kind} metadata.labels[{names.QUEUE_NAME_LABEL}]", why, unmanaged.remedy(gvk))
