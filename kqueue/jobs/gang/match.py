"""Match the members of a gang with an existing Workload: the members that it represents, and the quota of each."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kqueue.api import gang_names, names
from kqueue.core.quantity import parse_quantity
from kqueue.jobs import rules
from kqueue.jobs.fields import JSON, annotations_of, condition_of, condition_status, mapping, objects, text, whole
from kqueue.jobs.gang.compose import Composition, pod_sets_of
from kqueue.jobs.gang.dialect import GroupProblem
from kqueue.jobs.gang.group_object import limit_of
from kqueue.jobs.gang.key import is_of_kueue
from kqueue.jobs.gang.members import in_order, is_fast, runnable, surplus, without
from kqueue.jobs.gang.registry import dialect_of
from kqueue.jobs.gang.value import GangRef
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.switches import JobFeatures


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The match between members and their Workload."""

    kept: tuple[ManagedPod, ...]
    """The members that form the group."""
    excess: tuple[ManagedPod, ...] = ()
    """Runnable members beyond the count of their role, whose finalizer is removed and which are deleted."""
    replaced: tuple[ManagedPod, ...] = ()
    """Ended members with a replacement, whose finalizer is removed."""
    strangers: tuple[ManagedPod, ...] = ()
    """Members of a role that the Workload does not have, of a gang without extras."""
    extras: tuple[ManagedPod, ...] = ()
    """Members beyond the count of their role, or of a role that the Workload does not have, of a gang with extras."""
    absent: int = 0
    """The number of missing pods."""


def is_group_workload(workload: Mapping[str, Any]) -> bool:
    """Whether the Workload is marked as the Workload of a pod group."""
    return annotations_of(workload).get(names.IS_GROUP_WORKLOAD_ANNOTATION) == "true"


def counts_gang(workload: Mapping[str, Any], key: str, *, group_object: JSON | None = None) -> bool:
    """Whether the Workload is marked as the Workload of the gang with this key; for Kueue's groups its name decides.

    A group object must be the Workload's controller.
    """
    if not is_group_workload(workload):
        return False
    if is_of_kueue(key):
        return True
    named = annotations_of(workload).get(gang_names.GANG_ANNOTATION, "")
    owners = objects(workload, "metadata", "ownerReferences")
    uid = next((text(owner, "uid") for owner in owners if owner.get("controller") is True), "")
    return named == key.partition("/")[2] and uid == text(mapping(group_object, "metadata"), "uid")


def on_hold(workload: Mapping[str, Any]) -> bool:
    """Whether the Workload is on hold: its owner has not the pods that it counts, so it is in no queue."""
    return condition_of(workload, names.CONDITION_QUOTA_RESERVED, "False").get("reason") == names.REASON_ON_HOLD


def of_present_run(members: Sequence[ManagedPod], workload: Mapping[str, Any] | None) -> Sequence[ManagedPod]:
    """Return the members without pods that have succeeded for an earlier Workload of the gang, which has finished.

    kqueue removes the finalizer of a succeeded pod only when its Workload ends, and a Workload that is deleted before
    its end takes its pods along.  In Kueue's own groups, and where a reconciler makes the pods, every pod that has
    succeeded counts.

    Args:
        members: of one gang, at least one if any, without extras.
        workload: the Workload of the gang; None: it does not exist.
    """
    if not members or is_of_kueue(members[0].group):
        return members
    if dialect_of(GangRef.of_key(members[0].group).framework).makes_workloads:
        return members
    if workload is not None and condition_status(workload, names.CONDITION_FINISHED) == "True":
        return members
    return tuple(pod for pod in members if pod.finalizer or not pod.succeeded)


def counts_of(workload: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of pods by pod set."""
    counts = (
        (text(p, "name") or names.DEFAULT_PODSET, whole(p, "count")) for p in objects(workload, "spec", "podSets")
    )
    return {name: 1 if count is None else count for name, count in counts}


def is_outdated(made: Composition, workload: Mapping[str, Any]) -> bool:
    """Whether a Workload without quota differs from what its gang wishes now: in the numbers of its roles, or in a
    topology that the group object names for a role with gated members.
    """
    if {pod_set["name"]: pod_set["count"] for pod_set in made.pod_sets} != counts_of(workload):
        return True
    if made.group_object is None:
        return False
    held = {pod.role for pod in made.kept if pod.gated}  # a started pod has topology annotations of kqueue's own
    known = {text(pod_set, "name"): _topology(pod_set) for pod_set in objects(workload, "spec", "podSets")}
    return any(_topology(one) != known[one["name"]] for one in made.pod_sets if one["name"] in held)


def _topology(pod_set: Mapping[str, Any]) -> tuple[object, ...]:
    request = mapping(pod_set, "topologyRequest")
    return tuple(request.get(key) or None for key in ("required", "preferred", "unconstrained"))


def match(
    members: Sequence[ManagedPod], workload: JSON, now: datetime, *, group_object: JSON | None = None
) -> Match | None:
    """Match the members with a Workload that kqueue created for the group; None: they do not match.

    Args:
        members: in order.
        workload: the Workload.
        now: the time until which members may have ended.
        group_object: the object of the group, whose maximum execution time counts before that of the oldest member.
    """
    seconds = whole(workload, "spec", "maximumExecutionTimeSeconds")
    if not members or seconds != (limit_of(group_object) or rules.maximum_execution_time(members[0].obj)):
        return None
    return represented(members, workload, now)


def represented(members: Sequence[ManagedPod], workload: JSON, now: datetime) -> Match | None:
    """Match the members with the Workload by their roles alone, as `match` does; `members` at least one, in order."""
    fast, has_extras = is_fast(members[0]), dialect_of(GangRef.of_key(members[0].group).framework).has_extras
    counts = counts_of(workload)
    kept: list[ManagedPod] = []
    beyond: list[ManagedPod] = []
    replaced: list[ManagedPod] = []
    absent = 0
    for role, count in counts.items():
        alive = [pod for pod in members if pod.role == role and pod.runnable]
        gone = [pod for pod in members if pod.role == role and not pod.runnable]
        excess = surplus(alive, count)
        superfluous = _superfluous(gone, len(gone) + len(alive) - count, now)
        absent += int(not alive and count > 0) if fast else max(0, count - len(alive))
        beyond += excess
        replaced += superfluous
        kept += without([*alive, *gone], [*excess, *superfluous])
    if not kept:
        return None
    strangers = tuple(pod for pod in members if pod.role not in counts)
    return Match(
        kept=in_order(kept),
        excess=() if has_extras else tuple(beyond),
        replaced=tuple(replaced),
        strangers=() if has_extras else strangers,
        extras=in_order([*beyond, *strangers]) if has_extras else (),
        absent=absent,
    )


def match_prebuilt(members: Sequence[ManagedPod], workload: JSON, switches: JobFeatures) -> Match | None:
    """Match the members with a Workload of another creator: pods that differ from it do not belong to it."""
    alive = runnable(members)
    counts = counts_of(workload)
    if alive:
        total = members[0].total or len(alive)
        made = pod_sets_of(alive, total, switches, fast=is_fast(members[0]))
        if isinstance(made, GroupProblem):
            return None
        own = {text(p, "name"): whole(p, "count") or 0 for p in made}
        if any(count > counts.get(role, 0) for role, count in own.items()):
            return None
    return Match(kept=tuple(members), strangers=tuple(pod for pod in members if pod.role not in counts))


def _superfluous(gone: Sequence[ManagedPod], number: int, now: datetime) -> list[ManagedPod]:
    """Return `number` of the ended members, the longest ended first; the others wait for their replacements."""
    number = min(number, len(gone))
    if number <= 0:
        return []
    order = sorted(gone, key=lambda pod: (not pod.finalizer, _idle(pod, now), pod.created, pod.key))
    return order[len(order) - number :]


def _idle(pod: ManagedPod, now: datetime) -> float:
    return (now - (pod.last_active or now)).total_seconds()


def strays(members: Sequence[ManagedPod], workload: Mapping[str, Any]) -> tuple[ManagedPod, ...]:
    """Return the members that the Workload has not started: those that do not own it, or, where a group object owns it,
    those without its mark.
    """
    owners = objects(workload, "metadata", "ownerReferences")
    if not any(owner.get("controller") is True for owner in owners):
        return newcomers(members, workload)
    name = text(workload, "metadata", "name")
    return tuple(pod for pod in members if annotations_of(pod.obj).get(names.WORKLOAD_ANNOTATION) != name)


def newcomers(kept: Sequence[ManagedPod], workload: Mapping[str, Any]) -> tuple[ManagedPod, ...]:
    """Return the members that do not own the Workload yet."""
    owners = {text(owner, "uid") for owner in objects(workload, "metadata", "ownerReferences")}
    return tuple(pod for pod in kept if pod.uid not in owners)


def template_of(workload: Mapping[str, Any], role: str) -> Mapping[str, Any]:
    """Return the spec of a pod set's template; empty: there is no such pod set."""
    for entry in objects(workload, "spec", "podSets"):
        if (text(entry, "name") or names.DEFAULT_PODSET) == role:
            return mapping(entry, "template", "spec")
    return {}


def paid_for(workload: Mapping[str, Any], role: str) -> dict[str, int]:
    """Return the admitted quota per pod of a role; empty without an admission. Invalid quantities are left out."""
    found: dict[str, int] = {}
    for entry in objects(workload, "status", "admission", "podSetAssignments"):
        count = whole(entry, "count") or 0
        if (text(entry, "name") or names.DEFAULT_PODSET) != role or count <= 0:
            continue
        for resource, written in mapping(entry, "resourceUsage").items():
            with contextlib.suppress(ValueError):
                found[resource] = parse_quantity(written, resource) // count
    return found
