"""Compute the state of a gang, and the members to start or stop.

`kept` are the members that the group's Workload counts (`match.match`), in order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from kqueue.api import names
from kqueue.jobs import pod
from kqueue.jobs.fields import JSON, annotations_of, condition_of, condition_status, text
from kqueue.jobs.gang.compose import difference
from kqueue.jobs.gang.match import Match, counts_of, paid_for, template_of
from kqueue.jobs.gang.members import is_fast, is_serving
from kqueue.jobs.gang.value import NO_MEMBERS, GangCounts, GangPhase, MemberCounts
from kqueue.jobs.kind import Finished, PodSetInfo, Refused
from kqueue.jobs.patch import Patch
from kqueue.jobs.pod_view import ManagedPod
from kqueue.kube import names as kube_names


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementCondition:
    """The condition WaitingForReplacementPods to write."""

    status: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Starts:
    """The members to start, each with its patch, and the refused members, each with the reason as a sentence."""

    patches: tuple[tuple[ManagedPod, Patch], ...] = ()
    held: tuple[tuple[ManagedPod, str], ...] = ()


def is_suspended(kept: Sequence[ManagedPod]) -> bool:
    """Whether any member is gated or terminated, so that a start may be needed."""
    return any(member.gated or member.terminated for member in kept)


def is_active(members: Sequence[ManagedPod], now: datetime, *, fast: bool) -> bool:
    """Whether any member may still use resources.  `fast`: members that are being deleted do not count."""
    return any(member.active(now, fast=fast) for member in members)


def finished(kept: Sequence[ManagedPod], workload: Mapping[str, object], *, takes_more: bool = True) -> Finished | None:
    """Return the result if all members have succeeded, or if no member runs and one is marked as not retriable; else
    None.

    The Workload determines the number of members: a later member cannot change it.  A group that takes no more members
    (`takes_more`), because others have succeeded in their place, is finished once no member runs or waits.
    """
    if not kept or is_serving(kept[0]):
        return None
    total = sum(counts_of(workload).values())
    done = sum(member.succeeded for member in kept)
    over = all(member.terminated for member in kept) and any(
        annotations_of(member.obj).get(names.RETRIABLE_IN_GROUP_ANNOTATION) == "false" for member in kept
    )
    ended = not takes_more and not any(member.runnable and not member.succeeded for member in kept)
    if not over and not ended and done < total:
        return None
    return Finished(f"{done} of {total} pods of the group succeeded", success=True)


def is_ready(kept: Sequence[ManagedPod], workload: Mapping[str, object]) -> bool:
    """Whether the group has all its members, and each is ready or has succeeded."""
    if len(kept) < sum(counts_of(workload).values()):
        return False
    return all(
        member.succeeded or condition_status(member.obj, kube_names.CONDITION_READY) == "True" for member in kept
    )


def reclaimable(kept: Sequence[ManagedPod], workload: Mapping[str, object]) -> dict[str, int]:
    """Return the succeeded members by role, at most the count of the role; none for a group that serves."""
    if not kept or is_serving(kept[0]):
        return {}
    counts = counts_of(workload)
    done = Counter(member.role for member in kept if member.succeeded and member.role in counts)
    return {role: min(number, counts[role]) for role, number in sorted(done.items())}


def waiting(workload: Mapping[str, object], absent: int, *, makes_pods: bool = False) -> ReplacementCondition | None:
    """Return the condition for missing pods; None if it stays unchanged.

    It is not written until pods are missing for the first time.  `makes_pods`: kqueue makes the pods of the gang.  Such
    a gang waits for none after an eviction: its pods are made when it is admitted again.
    """
    now = condition_of(workload, names.CONDITION_WAITING_FOR_REPLACEMENT_PODS)
    evicted = condition_of(workload, names.CONDITION_EVICTED, "True")
    waits = now.get("status") == "True"
    returns = makes_pods and bool(evicted)
    if absent == 0 or returns:
        message = "The pods are created after the next admission" if returns else "All pods of the group are there"
        found = ReplacementCondition(status=False, reason=names.REASON_PODS_READY, message=message)
        return found if waits else None
    if evicted:
        found = ReplacementCondition(status=True, reason=text(evicted, "reason"), message=text(evicted, "message"))
        same = (text(now, "reason"), text(now, "message")) == (found.reason, found.message)
        return None if waits and same else found
    if waits:
        return None
    message = (
        f"{absent} of {sum(counts_of(workload).values())} pods have failed or are gone; create pods to replace them"
    )
    return ReplacementCondition(status=True, reason=names.REASON_PODS_FAILED, message=message)


def starts(found: Match, workload: JSON, infos: Sequence[PodSetInfo], *, prebuilt: bool = False) -> Starts | Refused:
    """Return the gated members to start, of a group whose Workload is admitted.

    The first start is all or nothing: if one member cannot start or is missing, no member starts, unless the group
    allows a start with fewer pods.  Afterwards each new member starts alone.  A role never gets more pods than its
    quota covers, and a member that requests more than the role's template is not started.

    Returns:
        Refused if the admission contradicts the pods' own fields: a retry would not help.
    """
    by_role = {info.name: info for info in infos}
    kept = found.kept
    begun = any(not member.gated for member in kept if not member.terminated or member.succeeded)
    room = _room(kept, by_role, counts_of(workload))
    paid = {role: paid_for(workload, role) for role in by_role}
    patches: list[tuple[ManagedPod, Patch]] = []
    held: list[tuple[ManagedPod, str]] = [
        (member, f"the Workload has no pod set {member.role!r}, which is its role") for member in found.strangers
    ]
    contradictions: list[str] = []
    for member in kept:
        if not member.gated or member.terminated or member.deleting or member.role not in by_role:
            continue
        why = difference(
            member,
            template_of(workload, member.role),
            of=f"pod set {member.role} of its Workload",
            paid=paid[member.role],
        )
        patch = pod.start(member.obj, by_role[member.role])
        if isinstance(patch, Refused):
            contradictions.append(f"pod {member.name}: {patch}")
            why = why or str(patch)
        if not why and room[member.role] <= 0:
            why = f"the {by_role[member.role].count} pods of role {member.role} that were admitted have started already"
        if why or isinstance(patch, Refused):
            held.append((member, why))
        else:
            room[member.role] -= 1
            patches.append((member, patch))
    if begun:
        return Starts(tuple(patches), tuple(held))
    if contradictions:
        return Refused(tuple(contradictions))
    whole = not any(member.role in by_role for member, _ in held) and (found.absent == 0 or prebuilt)
    return Starts(tuple(patches) if whole or _begins_with_fewer(kept) else (), tuple(held))


def _begins_with_fewer(kept: Sequence[ManagedPod]) -> bool:
    return bool(kept) and is_fast(kept[0])


def _room(kept: Sequence[ManagedPod], by_role: Mapping[str, PodSetInfo], counts: Mapping[str, int]) -> Counter[str]:
    """Return the number of pods that each role may still get; succeeded pods need no room, because their quota is
    released.
    """
    done = Counter(member.role for member in kept if member.succeeded)
    room = Counter({role: min(info.count or 0, counts.get(role, 0) - done[role]) for role, info in by_role.items()})
    room.subtract(member.role for member in kept if not member.gated and member.runnable and not member.succeeded)
    return room


def at_large(members: Sequence[ManagedPod]) -> tuple[ManagedPod, ...]:
    """Return the members that run, or may run, without an admission of the group."""
    return tuple(member for member in members if member.at_large)


def to_stop(members: Sequence[ManagedPod], why: str) -> tuple[ManagedPod, ...]:
    """Return the members that a stop deletes."""
    return tuple(member for member in members if pod.to_stop(member.obj, why))


# --- numbers and phase


class MemberStates(NamedTuple):
    """The states of one member, as fields of `MemberCounts`."""

    present: bool
    released: bool
    scheduled: bool
    running: bool
    succeeded: bool
    failed: bool
    unschedulable: bool


def states_of(member: ManagedPod) -> MemberStates:
    """Return the states that a member is in."""
    present = member.runnable
    return MemberStates(
        present=present,
        released=present and not member.gated,
        scheduled=present and member.scheduled,
        running=member.phase == "Running" and not member.deleting,
        succeeded=member.succeeded,
        failed=member.phase == "Failed",
        unschedulable=present and member.unschedulable,
    )


def member_counts(members: Iterable[ManagedPod]) -> MemberCounts:
    """Return the numbers of these members by state."""
    numbers = map(sum, zip(*map(states_of, members), strict=True))
    return MemberCounts(**dict(zip(MemberStates._fields, numbers, strict=False)))


def gang_counts(
    members: Sequence[ManagedPod],
    workload: Mapping[str, object] | None,
    *,
    quorum: int,
    before: GangPhase | None,
    unseen: MemberCounts = NO_MEMBERS,
) -> GangCounts:
    """Return the state of a gang from all its members, extras included.

    Args:
        members: in the newest versions known.
        workload: the Workload that counts the base; None: it does not exist.
        quorum: the number of members that start together.
        before: the phase that was written last; None: no phase was.
        unseen: further members of a huge gang.  The numbers count them, roles do not; for the phase only those count
            that have not ended, because ended ones may be of an earlier gang of the name.
    """
    roles: dict[str, list[ManagedPod]] = defaultdict(list)
    for member in members:
        roles[member.role].append(member)
    total = member_counts(members)
    going = replace(total, present=total.present + unseen.present - unseen.succeeded)
    facts = _phase_facts(members, workload or {}, going, quorum)
    condition = _hindrance(workload or {})
    return GangCounts(
        **{name: number + getattr(unseen, name) for name, number in asdict(total).items()},
        by_role={role: member_counts(pods) for role, pods in sorted(roles.items())},
        phase=next_phase(before, facts),
        reason=text(condition, "reason"),
        message=text(condition, "message"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseFacts:
    """The facts from which the phase of a gang follows."""

    quorum: int
    counts: MemberCounts
    """All members."""
    admitted: bool
    """Whether the Workload is admitted, and not evicted."""
    failed: bool = False
    """Whether a member of the base has failed and no present member has taken its place."""
    hindered: bool = False
    """Whether a member of the base is unschedulable, or gone without a present member in its place."""


def _phase_facts(
    members: Sequence[ManagedPod], workload: Mapping[str, object], total: MemberCounts, quorum: int
) -> PhaseFacts:
    base = [member for member in members if not member.extra]
    present = Counter(member.role for member in base if member.runnable)
    failed = Counter(member.role for member in base if member.phase == "Failed")
    vacant = {role: count - present[role] for role, count in counts_of(workload).items() if count > present[role]}
    admitted = condition_status(workload, names.CONDITION_ADMITTED) == "True"
    return PhaseFacts(
        quorum=quorum,
        counts=total,
        admitted=admitted and condition_status(workload, names.CONDITION_EVICTED) != "True",
        failed=any(failed[role] for role in vacant),
        hindered=any(vacancies > failed[role] for role, vacancies in vacant.items())
        or any(member.unschedulable for member in base),
    )


def wanted_phase(before: GangPhase | None, facts: PhaseFacts) -> GangPhase:
    """Return the phase that the facts call for; the first rule that holds counts."""
    counts, quorum = facts.counts, facts.quorum
    if before is GangPhase.FINISHED or counts.succeeded >= max(quorum, counts.present):
        return GangPhase.FINISHED
    if not facts.admitted:
        return GangPhase.PENDING
    if facts.failed:
        return GangPhase.FAILED
    if counts.running + counts.succeeded >= quorum:
        return GangPhase.RUNNING
    if before in _BEFORE_UNKNOWN and counts.scheduled < quorum and facts.hindered:
        return GangPhase.UNKNOWN
    return GangPhase.SCHEDULING


_BEFORE_UNKNOWN = (GangPhase.SCHEDULING, GangPhase.RUNNING, GangPhase.UNKNOWN)

PHASE_EDGES: Mapping[GangPhase | None, frozenset[GangPhase]] = MappingProxyType(
    {
        None: frozenset({GangPhase.PENDING}),
        GangPhase.PENDING: frozenset({GangPhase.SCHEDULING}),
        GangPhase.SCHEDULING: frozenset(GangPhase) - {GangPhase.SCHEDULING},
        GangPhase.RUNNING: frozenset(GangPhase) - {GangPhase.RUNNING},
        GangPhase.UNKNOWN: frozenset(GangPhase) - {GangPhase.UNKNOWN, GangPhase.FINISHED},
        GangPhase.FAILED: frozenset({GangPhase.SCHEDULING, GangPhase.RUNNING, GangPhase.PENDING}),
        GangPhase.FINISHED: frozenset(),
    }
)
"""Changes of the phase that are written; None: no phase was written yet."""
_WAY: Mapping[GangPhase | None, GangPhase] = MappingProxyType(
    {
        None: GangPhase.PENDING,
        GangPhase.PENDING: GangPhase.SCHEDULING,
        GangPhase.UNKNOWN: GangPhase.RUNNING,
        GangPhase.FAILED: GangPhase.RUNNING,
    }
)
"""The next phase on the way to one that is no neighbour."""


def next_phase(before: GangPhase | None, facts: PhaseFacts) -> GangPhase:
    """Return the phase to write next: the wanted one, or the phase on the way to it that events skipped.

    A gang that was admitted and ran between two looks is written as Scheduling first, so that every change that a
    client sees is one of `PHASE_EDGES`.
    """
    wanted = wanted_phase(before, facts)
    return wanted if wanted == before or wanted in PHASE_EDGES[before] else _WAY[before]


def _hindrance(workload: Mapping[str, object]) -> Mapping[str, object]:
    """Return the condition that says why the Workload was stopped or waits; empty: neither."""
    evicted = condition_of(workload, names.CONDITION_EVICTED, "True")
    return evicted or condition_of(workload, names.CONDITION_QUOTA_RESERVED, "False")
