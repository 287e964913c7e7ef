"""Reads the gangs of a namespace, or of all: from the controller, else from pods, group objects and Workloads, with the
rights of the user.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kqueue.api import gang_names, names
from kqueue.controllers.resources import PODS, WORKLOADS, group_object_resources
from kqueue.errors import ApiError, ForbiddenError, NotFoundError, NotServedError
from kqueue.jobs import rules
from kqueue.jobs.fields import annotations_of, objects, text
from kqueue.jobs.gang.dialect import GangRules
from kqueue.jobs.gang.key import gang_key
from kqueue.jobs.gang.naming import gang_of_workload
from kqueue.jobs.gang.overview import newest, overview
from kqueue.jobs.gang.pods import managed_pod
from kqueue.jobs.gang.record import gang_of, object_uid
from kqueue.jobs.gang.registry import dialect_of, dialects, frameworks
from kqueue.jobs.gang.value import GangRef
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.switches import JobFeatures
from kqueue.operations.questions import ask, path

if TYPE_CHECKING:
    from kqueue.runtime.client import Client

JSON = dict[str, Any]
_FEATURES = JobFeatures(gangs=frameworks())


@dataclass(frozen=True, slots=True)
class GangObjects:
    """The objects from which gangs are read."""

    pods: Sequence[JSON] = ()
    """Pods with the label by which kqueue manages them."""
    workloads: Sequence[JSON] = ()
    group_objects: Mapping[str, Sequence[JSON]] = field(default_factory=dict)
    """With `apiVersion` and `kind`, by framework."""
    notes: Sequence[str] = ()
    """A sentence for each kind that the user may not read."""


@dataclass(frozen=True, slots=True)
class ReadGangs:
    """Overviews of gangs, and a sentence for each part that is not among them."""

    gangs: Sequence[JSON]
    notes: Sequence[str] = ()


_MOST_SERVED = 5000


async def served_gangs(client: Client, namespace: str | None, name: str = "") -> ReadGangs | None:
    """Return the gangs of a namespace (None: of all) as the controller shows them, with a name only those of the name.

    None: no controller answers, or the user has no right to the answer, so that the objects have to be read.
    """
    where = ("namespaces", namespace) if namespace is not None else ()
    params = {"limit": str(_MOST_SERVED), **({"name": name} if name else {})}
    try:
        answer = await ask(client, path(names.KQUEUE_VISIBILITY_GROUP, "v1alpha1", *where, "gangs"), params)
    except (ApiError, NotServedError):
        return None
    left, hidden = int(answer.get("left", 0)), int(answer.get("hidden", 0))
    notes = [f"{left} more gangs are not shown; name a namespace"] if left else []
    notes += [f"{hidden} more gangs are in namespaces whose Workloads you may not read"] if hidden else []
    return ReadGangs(answer["items"], notes)


async def find_gangs(client: Client, namespace: str | None) -> ReadGangs:
    """Return the gangs of a namespace (None: of all) that kqueue queues, from the controller, else from objects.

    Raises:
        ForbiddenError: no controller answers, and the user may not read pods and Workloads.
    """
    served = await served_gangs(client, namespace)
    if served is not None:
        return served
    found = await read_gang_objects(client, namespace)
    return ReadGangs(gangs_in(found, now=datetime.now(UTC)), found.notes)


async def read_gang_objects(client: Client, namespace: str | None) -> GangObjects:
    """Return the objects of a namespace; None: of all namespaces.

    Raises:
        ForbiddenError: the user may not read pods and Workloads.
    """
    pods = await client.list_json(PODS, namespace, label_selector=f"{names.MANAGED_LABEL}=true")
    workloads = await client.list_json(WORKLOADS, namespace)
    found: dict[str, list[JSON]] = {}
    notes: list[str] = []
    for dialect in dialects(_FEATURES):
        for resource in group_object_resources(dialect):
            try:
                found[dialect.framework] = list(await client.list_json(resource, namespace))
            except NotFoundError:
                continue  # the API server does not serve this version
            except ForbiddenError:
                notes.append(
                    f"you may not list {resource.plural}.{resource.group}; their gangs are shown by their pods"
                )
            break
    return GangObjects(pods, workloads, found, tuple(notes))


def gangs_in(found: GangObjects, *, now: datetime, strangers: bool = False) -> list[JSON]:
    """Return the overviews of all gangs, by namespace and name.

    Args:
        found: the objects.
        now: the present time.
        strangers: whether group objects are shown that name no queue and have neither members nor a Workload; other
            schedulers may own them.
    """
    members: dict[str, list[ManagedPod]] = defaultdict(list)
    for pod in found.pods:
        view = managed_pod(pod, _FEATURES)
        if view.group:
            members[view.group].append(view)
    group_objects = {
        gang_key(framework, text(obj, "metadata", "namespace"), text(obj, "metadata", "name")): obj
        for framework, every in found.group_objects.items()
        for obj in every
    }
    bases, extras = _workloads_by_gang(found.workloads)
    keys = {*members, *bases, *group_objects}
    every: list[JSON] = []
    for key in keys:
        obj, pods, own = group_objects.get(key), members.get(key, ()), bases.get(key, ())
        is_queued = pods or own or (obj is not None and rules.queue_name(obj))
        if is_queued or strangers:
            every += _overview(GangRef.of_key(key), obj, pods, own, extras, now)
    return sorted(every, key=lambda one: (one["metadata"]["namespace"], one["metadata"]["name"], one["framework"]))


def _overview(
    ref: GangRef,
    obj: JSON | None,
    members: Sequence[ManagedPod],
    workloads: Sequence[JSON],
    extras: Mapping[str, Sequence[JSON]],
    now: datetime,
) -> list[JSON]:
    """Return the overview of a gang; empty if all its pods and Workloads are of an earlier object of its name."""
    current = [w for w in workloads if _is_current(w, obj)] if dialect_of(ref.framework).kinds else workloads
    workload = newest(current)
    others = {text(w, "metadata", "name") for w in workloads if w is not workload}
    members = [p for p in members if p.gated or annotations_of(p.obj).get(names.WORKLOAD_ANNOTATION) not in others]
    if obj is None and workload is None and not members:
        return []
    rules_assumed = GangRules(switches=_FEATURES)
    gang = gang_of(ref, obj, members, workload, rules_assumed, now=now)
    place = f"{ref.namespace}/{text(workload, 'metadata', 'name')}"
    return [overview(gang, obj, workload, extras.get(place, ()), rules=rules_assumed, assumed=True)]


def _is_current(workload: JSON, obj: JSON | None) -> bool:
    """Whether the Workload belongs to this group object, and not to an earlier one of its name."""
    owners = objects(workload, "metadata", "ownerReferences")
    return obj is not None and any(o.get("controller") and o.get("uid") == object_uid(obj) for o in owners)


def _workloads_by_gang(workloads: Sequence[JSON]) -> tuple[dict[str, list[JSON]], dict[str, list[JSON]]]:
    """Return the Workloads of quorums by the key of their gang, and those of further members by the Workload of the
    quorum, as namespace/name.
    """
    bases: dict[str, list[JSON]] = defaultdict(list)
    extras: dict[str, list[JSON]] = defaultdict(list)
    for workload in workloads:
        annotations = annotations_of(workload)
        namespace, name = text(workload, "metadata", "namespace"), text(workload, "metadata", "name")
        base = annotations.get(gang_names.EXTRA_OF_ANNOTATION)
        if base:
            extras[f"{namespace}/{base}"].append(workload)
        elif annotations.get(names.IS_GROUP_WORKLOAD_ANNOTATION) == "true":
            key = gang_of_workload(namespace, name, annotations)
            if GangRef.of_key(key).framework in frameworks():
                bases[key].append(workload)
    return bases, extras
