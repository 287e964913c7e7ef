"""Workloads by their objects: a job, a pod, a group of pods, or an object whose pods are queued alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kqueue.api import names
from kqueue.cli.ctl.discovery import Discovery, parse_target
from kqueue.cli.ctl.kinds import CLUSTER_QUEUE, LOCAL_QUEUE, OURS, WORKLOAD, kind_called
from kqueue.cli.ctl.objects import is_name
from kqueue.cli.ctl.workload_view import owners_of
from kqueue.errors import ApiError, ConfigError, ForbiddenError, NotFoundError
from kqueue.kube.conditions import is_true
from kqueue.runtime.resources import ResourceType

if TYPE_CHECKING:
    from kqueue.cli.reaching import Session

JSON = dict[str, Any]
USAGE = "write workload NAME, or the object it was made for: job/NAME, pod/NAME, deployment/NAME, group/NAME"
GROUPS = ("group", "groups", "podgroup", "podgroups", "pod-group")
"""Names for a group of pods, whose Workload has the name of the group."""
_PODS = ResourceType("", "v1", "pods", "Pod", namespaced=True)
_LEVELS = 5
"""Limit of the chain of controllers that is followed upwards."""


def is_workload(kind: str) -> bool:
    """Whether the kind is Workload or a group of pods, whose Workload has the group's name."""
    return kind_called(kind) is WORKLOAD or kind.lower() in GROUPS


async def workloads_of(session: Session, kind: str, name: str) -> list[JSON]:
    """Return the Workloads of an object: unfinished ones first, then the newest first.

    They are its own Workloads, else the Workloads of its controller, else of its pods.

    Raises:
        ConfigError: the API server knows no such kind, or no object of the kind has Workloads.
        NotFoundError: there is no such object, or it has no Workload.
    """
    resource = await _resource_of(session, kind, name)
    obj = await session.client.get_json(resource, name, session.namespace)
    found = await _labelled(session, obj) or await _owned(session, obj)
    if not found:
        raise NotFoundError(f"{kind}/{name} has no Workload: {await _why_none(session, resource, obj)}", status=404)
    newest = sorted(found, key=lambda w: str(w["metadata"].get("creationTimestamp", "")), reverse=True)
    return sorted(newest, key=lambda w: is_true(w, names.CONDITION_FINISHED))


async def _resource_of(session: Session, kind: str, name: str) -> ResourceType:
    called = kind_called(kind)
    if called in (CLUSTER_QUEUE, LOCAL_QUEUE):
        raise ConfigError(
            f"{kind}/{name} is a queue: try kqueue list workloads --{called.name} {name}, or kqueue describe "
            f"{called.name} {name}; here {USAGE}"
        )
    if called in OURS:
        raise ConfigError(f"{kind}/{name} has no Workloads: try kqueue describe {kind} {name}; here {USAGE}")
    if not is_name(name):
        raise ConfigError(f"{name!r} is no name of an object; {USAGE}")
    try:
        resource = await Discovery(session.client).called(parse_target(f"{kind}/{name}"))
    except ConfigError:
        raise ConfigError(f"{kind}/{name}: the API server knows no kind {kind}; {USAGE}") from None
    if not resource.namespaced:
        raise ConfigError(f"{kind}/{name} belongs to no namespace, so it has no Workload; {USAGE}")
    return resource


async def _labelled(session: Session, obj: JSON) -> list[JSON]:
    from kqueue.jobs.variants import without_variants

    label = f"{names.JOB_UID_LABEL}={obj['metadata']['uid']}"
    found = await session.client.list_json(WORKLOAD.resource, session.namespace, label_selector=label)
    return without_variants(found)


async def _owned(session: Session, obj: JSON) -> list[JSON]:
    every = list(await session.client.list_json(WORKLOAD.resource, session.namespace))
    uids = {obj["metadata"]["uid"]}
    found = _owned_by(every, uids)
    async for above in _above(session, obj):
        if found:
            return found
        found = _owned_by(every, {above["metadata"]["uid"]})
    return found or _owned_by(every, await _pods_below(session, obj))


def _owned_by(workloads: Iterable[JSON], uids: set[str]) -> list[JSON]:
    return [each for each in workloads if any(owner.get("uid") in uids for owner in owners_of(each))]


async def _above(session: Session, obj: JSON) -> Any:
    """Yield the controllers of an object, the nearest first."""
    discovery = Discovery(session.client)
    for _ in range(_LEVELS):
        owner = next((o for o in owners_of(obj) if o.get("controller")), None)
        if owner is None or not is_name(owner["name"]):
            return
        try:
            resource = await discovery.of(owner["apiVersion"], owner["kind"])
            obj = await session.client.get_json(resource, owner["name"], session.namespace)
        except ApiError:
            return  # it is gone, or the user may not read it
        yield obj


async def _pods_below(session: Session, obj: JSON) -> set[str]:
    """Return UIDs of the pods that the object's selector selects; empty without a selector."""
    wanted = ((obj.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
    if not wanted:
        return set()
    selector = ",".join(f"{key}={value}" for key, value in wanted.items())
    pods = await session.client.list_json(_PODS, session.namespace, label_selector=selector)
    return {pod["metadata"]["uid"] for pod in pods}


async def _why_none(session: Session, resource: ResourceType, obj: JSON) -> str:
    queue = (obj["metadata"].get("labels") or {}).get(names.QUEUE_NAME_LABEL)
    if not queue:
        return f"it has no label {names.QUEUE_NAME_LABEL}, so no queue knows it"
    from kqueue.jobs.kind import GroupVersionKind
    from kqueue.jobs.unmanaged import remedy
    from kqueue.operations.checkup.hooks import has_rule, registered

    switched_on = f"{remedy(GroupVersionKind(resource.group, resource.version, resource.kind))} to have it queued"
    try:
        hooks, _ = await registered(session.client)
    except ForbiddenError:
        either = f"either kind {resource.kind} is switched off ({switched_on}), or no kqueue controller runs"
        return f"it names LocalQueue {queue}; {either}"
    if hooks and not has_rule(hooks, resource.group, resource.plural):
        return f"kind {resource.kind} is switched off, so it started without quota; {switched_on}"
    return f"it names LocalQueue {queue}; is a kqueue controller running?"


async def workload_names(session: Session, texts: Sequence[str]) -> list[str]:
    """Return names of Workloads, each once: NAME is a Workload, KIND/NAME means the Workloads of that object.

    Raises:
        ConfigError, NotFoundError: as `workloads_of`.
    """
    found: dict[str, None] = {}
    for text in texts:
        kind, slash, name = text.partition("/")
        if not slash or is_workload(kind):
            found[name if slash else text] = None
        else:
            found |= dict.fromkeys(str(w["metadata"]["name"]) for w in await workloads_of(session, kind, name))
    return list(found)
