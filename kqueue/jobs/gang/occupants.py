"""Which object occupies a group: pods of one owner at a time are in it.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kqueue.jobs.fields import objects, text
from kqueue.jobs.gang.value import GangNotice
from kqueue.jobs.pod_view import ManagedPod

EVENT_OCCUPIED = "PodGroupOccupied"


@dataclass(frozen=True, slots=True)
class Occupant:
    """The topmost owner of a pod."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupation:
    """The occupant of a group, and the members that belong to another one."""

    holder: Occupant | None = None
    """None: no member has an owner."""
    refused: tuple[ManagedPod, ...] = ()
    """Gated members of other owners, and gated members without an owner that came later than the occupant's."""


def controller_of(obj: Mapping[str, Any]) -> Occupant | None:
    """Return the controller that an object names; None: it names none."""
    owner = next((o for o in objects(obj, "metadata", "ownerReferences") if o.get("controller") is True), None)
    return Occupant(text(owner, "kind"), text(owner, "name"), text(owner, "uid")) if owner is not None else None


def occupation(members: Sequence[ManagedPod], occupied_by: str, topmost: Callable[[Occupant], Occupant]) -> Occupation:
    """Return the occupant of a group.

    The occupant stays while it has members; the next one is the owner of the oldest member that has one.

    Args:
        members: all members in order.
        occupied_by: the UID in the status of the group object; text that is no owner's UID counts as empty.
        topmost: returns the topmost owner above a controller.
    """
    by_uid = {pod.uid: pod for pod in members}
    owners = {pod.uid: _owner(pod, by_uid, topmost) for pod in members}
    found = [owner for owner in owners.values() if owner is not None]
    if not found:
        return Occupation()
    holder = next((owner for owner in found if owner.uid == occupied_by), found[0])
    since = next(pod.created for pod in members if owners[pod.uid] == holder)
    refused = []
    for pod in members:
        owner = owners[pod.uid]
        if pod.gated and owner != holder and (owner is not None or pod.created > since):
            refused.append(pod)
    return Occupation(holder=holder, refused=tuple(refused))


_DEEPEST = 10
"""Members that own members, one above the other, at most."""


def _owner(
    pod: ManagedPod, members: Mapping[str, ManagedPod], topmost: Callable[[Occupant], Occupant]
) -> Occupant | None:
    """Return the topmost owner of a pod; of a pod that another member owns, that member's."""
    for _ in range(_DEEPEST):
        controller = controller_of(pod.obj)
        if controller is None:
            return None
        if controller.uid not in members:
            return topmost(controller)
        pod = members[controller.uid]
    return None


def refusals(name: str, found: Occupation, topmost: Callable[[Occupant], Occupant]) -> list[GangNotice]:
    """Return the sentence for each refused member of the group with this name."""
    holder = found.holder
    if holder is None:
        return []
    notices = []
    for pod in found.refused:
        owner = _owner(pod, {}, topmost)
        mine = f"{owner.kind} {owner.name}" if owner is not None else "no object"
        message = (
            f"PodGroup {name} is occupied by {holder.kind} {holder.name} ({holder.uid}); this pod belongs to {mine}"
        )
        notices.append(GangNotice(f"{message}; use another PodGroup", pod, EVENT_OCCUPIED))
    return notices
