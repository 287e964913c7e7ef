"""The record of a gang: what its dialect wishes, what its members and its Workload are, and what they count to.

Status, deadlines, views and metrics read the same record, so that their numbers agree.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from kqueue.api import gang_names, names
from kqueue.jobs.fields import JSON, annotations_of, condition_status, mapping, text
from kqueue.jobs.gang.compose import hindrance, object_reference
from kqueue.jobs.gang.counts import gang_counts
from kqueue.jobs.gang.dialect import GangRules
from kqueue.jobs.gang.match import counts_of, of_present_run, represented
from kqueue.jobs.gang.members import base_of, in_order, lowest_member, parted, runnable, without
from kqueue.jobs.gang.registry import dialect_of
from kqueue.jobs.gang.value import (
    NO_MEMBERS,
    Gang,
    GangCounts,
    GangPhase,
    GangRef,
    GangSpec,
    GroupProblem,
    MemberCounts,
)
from kqueue.jobs.pod_view import ManagedPod, creation_of


def gang_of(
    ref: GangRef,
    obj: JSON | None,
    members: Sequence[ManagedPod],
    workload: JSON | None,
    rules: GangRules,
    *,
    now: datetime,
    first: tuple[str, datetime] | None = None,
    unseen: MemberCounts = NO_MEMBERS,
) -> Gang:
    """Return the record of a gang that has a group object, a member or a Workload.

    Args:
        ref: the gang.
        obj: its group object; None: the dialect has none, or it does not exist.
        members: all members in their newest known versions, in any order, extras included.
        workload: the Workload that counts the base; None: it does not exist.
        rules: the configuration.
        now: the time of the members' versions.
        first: UID and creation of the first member that was seen, where the caller knows it.
        unseen: numbers of members that are not among `members`, because the gang is huge.
    """
    members, dialect = in_order(members), dialect_of(ref.framework)
    base, marked = parted(members)
    base = of_present_run(base, workload) or base
    wish = dialect.spec(ref, obj, base or members, rules) if obj is not None or members else _NOBODY
    problem = wish if isinstance(wish, GroupProblem) else hindrance(wish, base, has_extras=dialect.has_extras)
    held = workload if workload is not None and is_reserved(workload) else None
    asked = wish.quorum if isinstance(wish, GangSpec) else 0
    quorum = sum(counts_of(held).values()) if held is not None else asked
    kept, beyond = _split(base, held, wish, now, has_extras=dialect.has_extras)
    uid, since = _identity(obj, members, workload, first or _oldest(members))
    return Gang(
        ref=ref,
        uid=uid,
        since=since,
        wish=wish if isinstance(wish, GangSpec) else None,
        quorum=quorum,
        is_admitted=held is not None,
        problem=problem if held is None else None,
        members=members,
        base=kept,
        extras=in_order([*marked, *beyond]),
        absent=_absent(kept, held, wish),
        owner=object_reference(obj) if obj is not None else None,
        priority=lowest[1] if (lowest := lowest_member(members)) is not None else None,
        unseen=unseen,
    )


_NOBODY = GroupProblem("the group has no pods", incomplete=True)


def counts_of_gang(gang: Gang, workload: JSON | None, *, before: GangPhase | None) -> GangCounts:
    """Return the numbers and the phase of a gang; `before` is the phase that was written last, None: no phase was."""
    return gang_counts(gang.members, workload, quorum=max(1, gang.quorum), before=before, unseen=gang.unseen)


def is_reserved(workload: Mapping[str, Any]) -> bool:
    """Whether the Workload holds quota, so that its counts are those of the gang's base."""
    return condition_status(workload, names.CONDITION_QUOTA_RESERVED) == "True"


def first_member(pods: Sequence[ManagedPod]) -> ManagedPod | None:
    """Return the member that identifies a gang without a group object; None: there is no member."""
    return min(pods, key=lambda pod: (pod.created, pod.key), default=None)


def record_annotations(obj: JSON | None, first: tuple[str, datetime] | None) -> dict[str, str]:
    """Return the annotations by which a Workload keeps UID and time of its gang: of the group object, else of the first
    member (None: it is not known).
    """
    found = (object_uid(obj), creation_of(obj)) if obj is not None else first
    if found is None:
        return {}
    uid, since = found
    return {
        gang_names.GANG_UID_ANNOTATION: uid,
        gang_names.GANG_SINCE_ANNOTATION: since.isoformat().replace("+00:00", "Z"),
    }


def least_annotation(wish: GangSpec) -> dict[str, str]:
    """Return the annotation by which a Workload says what must be free before its gang starts; empty: nothing."""
    if not wish.least:
        return {}
    return {gang_names.MIN_RESOURCES_ANNOTATION: json.dumps(dict(sorted(wish.least.items())))}


def _split(
    base: Sequence[ManagedPod],
    held: JSON | None,
    wish: GangSpec | GroupProblem,
    now: datetime,
    *,
    has_extras: bool,
) -> tuple[tuple[ManagedPod, ...], tuple[ManagedPod, ...]]:
    """Return the members that the Workload counts, or would count, and the members beyond them."""
    if held is not None:
        found = represented(base, held, now) if base else None
        return (found.kept, found.extras) if found is not None else ((), ())
    if isinstance(wish, GroupProblem) or not has_extras:
        return runnable(base), ()
    alive = runnable(base)
    kept = base_of(alive, wish.quorum, wish.roles)
    return kept, without(alive, kept)


def _absent(kept: Sequence[ManagedPod], held: JSON | None, wish: GangSpec | GroupProblem) -> dict[str, int]:
    """Return the members that the base lacks by role; before a reservation by the minima of roles, and under the empty
    name those of any role.
    """
    present = Counter(pod.role for pod in kept if pod.runnable)
    if held is not None:
        wanted: Mapping[str, int] = counts_of(held)
    elif isinstance(wish, GangSpec):
        wanted = {role.name: role.minimum for role in wish.roles}
    else:
        return {}
    missing = {role: count - present[role] for role, count in wanted.items() if count > present[role]}
    if held is None and isinstance(wish, GangSpec):
        left = wish.quorum - present.total() - sum(missing.values())
        if left > 0:
            missing[""] = left
    return missing


def _oldest(members: Sequence[ManagedPod]) -> tuple[str, datetime] | None:
    oldest = first_member(members)
    return (oldest.uid, oldest.created) if oldest is not None else None


def _identity(
    obj: JSON | None, members: Sequence[ManagedPod], workload: JSON | None, first: tuple[str, datetime] | None
) -> tuple[str, datetime]:
    if obj is not None:
        return text(obj, "metadata", "uid"), creation_of(obj)
    noted = annotations_of(workload) if workload is not None else {}
    since = _time(noted.get(gang_names.GANG_SINCE_ANNOTATION, ""))
    uid = noted.get(gang_names.GANG_UID_ANNOTATION, "")
    found = first or (text(workload or {}, "metadata", "uid"), creation_of(workload or {}))
    return uid or found[0], since or found[1]


def _time(written: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(written) if written else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None


def object_uid(obj: JSON | None) -> str:
    """Return the UID of a group object; empty without one."""
    return text(mapping(obj, "metadata"), "uid")
