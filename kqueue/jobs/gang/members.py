"""The members of a gang: their order, which of them count, and how many are missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from kqueue.api import names
from kqueue.jobs import rules
from kqueue.jobs.fields import annotation_of, whole
from kqueue.jobs.gang.dialect import GroupProblem
from kqueue.jobs.gang.key import is_of_kueue
from kqueue.jobs.gang.value import GangNotice, GangRole
from kqueue.jobs.pod_view import ManagedPod


def in_order(members: Iterable[ManagedPod]) -> tuple[ManagedPod, ...]:
    """Return the members sorted by age, then name.  The first member defines the group, so that later members cannot
    change it.
    """
    return tuple(sorted(members, key=lambda pod: (pod.created, pod.key)))


def is_fast(pod: ManagedPod) -> bool:
    """Whether the group is queued before all of its pods exist."""
    return annotation_of(pod.obj, names.POD_GROUP_FAST_ADMISSION_ANNOTATION) == "true"


def is_serving(pod: ManagedPod) -> bool:
    """Whether the group never finishes."""
    return annotation_of(pod.obj, names.POD_GROUP_SERVING_ANNOTATION) == "true"


def runnable(members: Iterable[ManagedPod]) -> tuple[ManagedPod, ...]:
    """Return the members that need no replacement."""
    return tuple(pod for pod in members if pod.runnable)


def parted(members: Sequence[ManagedPod]) -> tuple[Sequence[ManagedPod], tuple[ManagedPod, ...]]:
    """Return the members that are queued together, and those that are marked as extras; `members` of one gang."""
    if not members or is_of_kueue(members[0].group):
        return members, ()
    extras = tuple(pod for pod in members if pod.extra)
    return without(members, extras) if extras else members, extras


def queue_of(members: Sequence[ManagedPod]) -> str:
    """Return the LocalQueue of the oldest member, or in other dialects than Kueue's of the oldest that names one."""
    if is_of_kueue(members[0].group):
        return rules.queue_name(members[0].obj)
    return next((queue for pod in members if (queue := rules.queue_name(pod.obj))), "")


def gang_queue(members: Sequence[ManagedPod], of_object: str) -> str:
    """Return the LocalQueue of a gang: that of its oldest member, of its group object, or of the oldest that has one.

    `members` in order, at least one; `of_object`: the queue of the group object, empty without one.
    """
    return rules.queue_name(members[0].obj) or of_object or queue_of(members)


def lowest_member(members: Sequence[ManagedPod]) -> tuple[ManagedPod, int] | None:
    """Return the oldest present member with the lowest `spec.priority`, and that priority; None: no member has one."""
    found = [(pod, whole(pod.obj, "spec", "priority")) for pod in runnable(members)]
    known = [(pod, priority) for pod, priority in found if priority is not None]
    return min(known, key=lambda entry: entry[1], default=None)


def mixed_priorities(members: Sequence[ManagedPod]) -> tuple[GangNotice, ...]:
    """Return each present member whose priority is not the lowest of its gang, which counts."""
    lowest = lowest_member(members)
    if lowest is None:
        return ()
    first, least = lowest
    found: list[GangNotice] = []
    for pod in runnable(members):
        priority = whole(pod.obj, "spec", "priority")
        if priority is not None and priority != least:
            message = f"priority {priority} differs from {least} of pod {first.name}"
            more = f"the group counts with {least}, the lowest"
            found.append(GangNotice(f"{message}; {more}", pod, "MixedPriorities"))
    return tuple(found)


def shortage(
    alive: Sequence[ManagedPod], quorum: int, *, roles: Sequence[GangRole] = (), fast: bool = False
) -> GroupProblem | None:
    """Return what the runnable members lack of the quorum, and then of a role's minimum; None: they are complete.

    `fast`: one member is enough.
    """
    missing = (1 if fast else quorum) - len(alive)
    if missing > 0:
        message = f"the group has {len(alive)} of {quorum} pods; it waits for {missing} more"
        return GroupProblem(message, incomplete=True)
    played = Counter(pod.role for pod in alive) if roles else Counter()
    for role in sorted(roles, key=lambda role: role.name):
        missing = role.minimum - played[role.name]
        if missing > 0:
            message = (
                f"the group has {len(alive)} pods, and of role {role.name} {played[role.name]} of {role.minimum}; "
                f"it waits for {missing} more"
            )
            return GroupProblem(message, incomplete=True)
    return None


def queue_disagreement(members: Iterable[ManagedPod]) -> GroupProblem | None:
    """Return the member whose queue differs from that of an older member; one without a queue agrees with all."""
    first: ManagedPod | None = None
    for pod in members:
        queue = rules.queue_name(pod.obj)
        if first is None and queue:
            first = pod
        elif first is not None and queue and queue != rules.queue_name(first.obj):
            return other_queue(pod, first)
    return None


def other_queue(pod: ManagedPod, first: ManagedPod) -> GroupProblem:
    """Return the problem that the pod has another queue than an older member."""
    return GroupProblem(
        f"label {names.QUEUE_NAME_LABEL} is {rules.queue_name(pod.obj)!r}, and {rules.queue_name(first.obj)!r} on pod "
        f"{first.name} of the same group; all pods of a group need the same, correct one of them",
        pod,
    )


def base_of(alive: Sequence[ManagedPod], quorum: int, roles: Sequence[GangRole] = ()) -> tuple[ManagedPod, ...]:
    """Return the members that start first, `quorum` in number, in order: the minimum of each role, each by its oldest
    members, then the oldest of all others.  `alive` in order, complete by `shortage`.
    """
    if len(alive) <= quorum:
        return tuple(alive)
    left = {role.name: role.minimum for role in roles}
    chosen: list[ManagedPod] = []
    for pod in alive:
        if left.get(pod.role, 0) > 0:
            left[pod.role] -= 1
            chosen.append(pod)
    return in_order([*chosen, *without(alive, chosen)[: quorum - len(chosen)]])


def surplus(alive: Sequence[ManagedPod], count: int) -> list[ManagedPod]:
    """Return the excess members: first those without resources, then those started last."""
    if len(alive) <= count:
        return []
    order = sorted(alive, key=lambda pod: (not pod.finalizer, pod.gated, pod.created, pod.key))
    return order[count:]


def without(members: Iterable[ManagedPod], others: Iterable[ManagedPod]) -> tuple[ManagedPod, ...]:
    """Return the members that are not among `others`, in order."""
    out = set(others)
    return tuple(pod for pod in members if pod not in out)
