"""Reads the gangs of a namespace, or of all, from pods, group objects and Workloads, with the rights of the user."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kqueue.api import gang_names, names
from kqueue.controllers.resources import PODS, WORKLOADS, group_object_resources
from kqueue.errors import ForbiddenError, NotFoundError
from kqueue.jobs import rules
from kqueue.jobs.fields import annotations_of, objects, text
from kqueue.jobs.gang.dialect import DEFAULT_TIMEOUTS, GangRules, ScheduleTimeouts
from kqueue.jobs.gang.key import gang_key
from kqueue.jobs.gang.naming import gang_of_workload
from kqueue.jobs.gang.overview import newest, overview
from kqueue.jobs.gang.pods import managed_pod
from kqueue.jobs.gang.record import gang_of, object_uid
from kqueue.jobs.gang.registry import dialect_of, dialects, frameworks
from kqueue.jobs.gang.value import GangRef
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.switches import JobFeatures

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


_OTHER_TIMES = ScheduleTimeouts(base=DEFAULT_TIMEOUTS.base + 1)
"""Another default of deadlines: a deadline that differs with it was given by no object."""


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
    gang = gang_of(ref, obj, members, workload, GangRules(switches=_FEATURES), now=now)
    place = f"{ref.namespace}/{text(workload, 'metadata', 'name')}"
    shown = overview(gang, obj, workload, extras.get(place, ()))
    if "deadline" in shown:
        other = gang_of(ref, obj, members, workload, GangRules(switches=_FEATURES, timeouts=_OTHER_TIMES), now=now)
        is_default = gang.wish is not None and other.wish is not None and gang.wish.deadline != other.wish.deadline
        shown["deadline"] |= {"isDefault": True} if is_default else {}
    return [shown]


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
