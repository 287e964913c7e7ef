"""A gang as commands show it: phase, counts, missing members, Workload, deadline, and the pods beyond its quorum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from kqueue.api import names
from kqueue.clock import api_time, utc_text
from kqueue.core.assignment import decode
from kqueue.errors import InvalidObjectError
from kqueue.jobs.fields import JSON, annotations_of, condition_of, condition_status, mapping, objects, text
from kqueue.jobs.gang.dialect import GangRules
from kqueue.jobs.gang.members import gang_queue
from kqueue.jobs.gang.record import counts_of_gang
from kqueue.jobs.gang.registry import dialect_of
from kqueue.jobs.gang.status import admitted_at
from kqueue.jobs.gang.value import Gang, GangCounts, GangPhase, GangSpec
from kqueue.jobs.pod_view import ManagedPod, creation_of

API_VERSION = f"{names.KQUEUE_VISIBILITY_GROUP}/v1alpha1"
KIND = "Gang"
ANY_ROLE = "(any)"
"""The role of missing members that may have any role."""


def overview(
    gang: Gang,
    obj: JSON | None,
    workload: JSON | None,
    extra_workloads: Sequence[JSON] = (),
    *,
    rules: GangRules,
    assumed: bool = False,
) -> JSON:
    """Return the overview of a gang; keys without a value are left out.

    Args:
        gang: the record of the gang.
        obj: its group object; None: it has none.
        workload: the Workload that counts the quorum; None: it does not exist.
        extra_workloads: the Workloads of members beyond the quorum.
        rules: the configuration with which the record was made.
        assumed: whether these rules are defaults, because the configuration of the cluster is not known.
    """
    counts = settled_counts(gang, obj, workload)
    reason, message = _why(gang, counts, workload)
    found = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": gang.ref.name,
            "namespace": gang.ref.namespace,
            "uid": gang.uid,
            "creationTimestamp": utc_text(gang.since),
        },
        "framework": gang.ref.framework,
        "groupKind": text(obj, "kind"),
        "phase": counts.phase.value,
        "quorum": gang.quorum,
        "members": {name: getattr(counts, name) for name in _COUNTS},
        "missing": {role or ANY_ROLE: number for role, number in sorted(gang.absent.items())},
        "queue": queue_name(gang, workload),
        "topology": _topology(gang, workload),
        "workload": _workload(workload),
        "reason": reason,
        "message": message,
        "deadline": _deadline(gang, counts, workload) | _source_of_deadline(gang, obj, rules, assumed=assumed),
        "extras": [_extra(pod, extra_workloads) for pod in gang.extras if pod.runnable],
    }
    return {key: value for key, value in found.items() if value or key in _ALWAYS}


_COUNTS = ("present", "released", "scheduled", "running", "succeeded", "failed", "unschedulable")
_ALWAYS = ("quorum", "queue")


def settled_counts(gang: Gang, obj: JSON | None, workload: JSON | None) -> GangCounts:
    """Return the numbers of a gang with the phase that its status reaches when no more objects change."""
    before = dialect_of(gang.ref.framework).phase(obj) if obj is not None else None
    for _ in GangPhase:
        counts = counts_of_gang(gang, workload, before=before)
        if counts.phase is before:
            break
        before = counts.phase
    return counts


def queue_name(gang: Gang, workload: JSON | None) -> str:
    """Return the LocalQueue of the Workload, else the one that the Workload will name; empty: none is known."""
    written = text(workload, "spec", "queueName")
    wished = gang.wish.queue if gang.wish is not None else ""
    return written or (gang_queue(gang.members, wished) if gang.members else wished)


def _why(gang: Gang, counts: GangCounts, workload: JSON | None) -> tuple[str, str]:
    """Return reason and sentence of a gang that waits or was stopped; empty for a gang that does neither."""
    if workload is not None and condition_status(workload, names.CONDITION_FINISHED) == "True":
        return "", ""
    if workload is not None and (counts.message or gang.problem is None):
        return counts.reason, counts.message
    if gang.problem is None:
        return "WorkloadMissing", "all members are there, and the Workload does not exist yet"
    return "Incomplete" if gang.problem.incomplete else "Invalid", gang.problem.message


def _workload(workload: JSON | None) -> JSON:
    if workload is None:
        return {}
    assignments = objects(workload, "status", "admission", "podSetAssignments")
    flavors = {str(name) for one in assignments for name in (one.get("flavors") or {}).values()}
    found = {
        "name": text(workload, "metadata", "name"),
        "clusterQueue": text(workload, "status", "admission", "clusterQueue"),
        "admittedAt": admitted_at(workload),
        "flavors": sorted(flavors),
        "domains": assigned_domains(workload)[:_MOST_DOMAINS],
        "finished": condition_status(workload, names.CONDITION_FINISHED) == "True",
    }
    return {key: value for key, value in found.items() if value}


_MOST_DOMAINS = 16


def assigned_domains(workload: JSON | None) -> list[JSON]:
    """Return the assigned domains with their numbers of pods; none of an assignment that is not valid."""
    found: list[JSON] = []
    for one in objects(workload, "status", "admission", "podSetAssignments"):
        try:
            assignment = decode(mapping(one, "topologyAssignment")) if one.get("topologyAssignment") else None
        except InvalidObjectError:
            continue
        for domain in assignment.domains if assignment is not None else ():
            found.append({"domain": "/".join(domain.values), "pods": domain.count})
    return found


def _deadline(gang: Gang, counts: GangCounts, workload: JSON | None) -> JSON:
    """Return the deadline of a gang that is admitted, or whose time counts from its creation; empty: it has none."""
    wish = gang.wish.deadline if gang.wish is not None else None
    if wish is None:
        return {}
    begin: datetime | None = gang.since if wish.since == "creation" else api_time(admitted_at(workload))
    found: JSON = {"seconds": wish.seconds, "since": wish.since}
    if begin is not None:
        found["time"] = utc_text(begin + timedelta(seconds=wish.seconds))
        found["reached"] = counts.scheduled >= gang.quorum
    return found


def _source_of_deadline(gang: Gang, obj: JSON | None, rules: GangRules, *, assumed: bool) -> JSON:
    """Return marks of a deadline that `gangs.scheduleTimeout` gives or cuts; empty for one that the gang names.

    With other timeouts the dialect reads the same deadline only if the gang names it.
    """
    if gang.wish is None or gang.wish.deadline is None:
        return {}
    times = rules.timeouts
    others = replace(rules, timeouts=replace(times, base=times.base + 1, maximum=times.maximum + 1))
    again = dialect_of(gang.ref.framework).spec(gang.ref, obj, gang.base or gang.members, others)
    if isinstance(again, GangSpec) and again.deadline == gang.wish.deadline:
        return {}
    return {"isDefault": True} | ({"isAssumed": True} if assumed else {})


_LEVELS = {
    "required": ("required", names.REQUIRED_TOPOLOGY_ANNOTATION),
    "preferred": ("preferred", names.PREFERRED_TOPOLOGY_ANNOTATION),
}


def _topology(gang: Gang, workload: JSON | None) -> JSON:
    """Return the levels that the pod sets of the Workload require and prefer; without one, those of the group object,
    else of the oldest member.  Empty: no level is named.
    """
    if workload is not None:
        named = [mapping(one, "topologyRequest") for one in objects(workload, "spec", "podSets")]
        levels = {kind: {text(one, field) for one in named} for kind, (field, _) in _LEVELS.items()}
    else:
        marks = gang.wish.topology if gang.wish is not None else {}
        if not marks and gang.base:
            marks = annotations_of(gang.base[0].obj)
        levels = {kind: {marks.get(annotation, "")} for kind, (_, annotation) in _LEVELS.items()}
    return {kind: sorted(found - {""}) for kind, found in levels.items() if found - {""}}


def _extra(pod: ManagedPod, workloads: Sequence[JSON]) -> JSON:
    """Return a member beyond the quorum: its state, its Workload, and why it waits."""
    own = next((w for w in workloads if _is_of(w, pod)), None)
    state = "waiting" if pod.gated else "succeeded" if pod.succeeded else "starting"
    if pod.phase == "Running":
        state = "running"
    waits = "the quorum comes first" if own is None else _message(own, names.CONDITION_QUOTA_RESERVED)
    found = {
        "pod": pod.name,
        "state": state,
        "workload": text(own, "metadata", "name"),
        "message": waits if state == "waiting" else "",
    }
    return {key: value for key, value in found.items() if value}


def _is_of(workload: JSON, pod: ManagedPod) -> bool:
    return any(owner.get("uid") == pod.uid for owner in objects(workload, "metadata", "ownerReferences"))


def _message(workload: JSON, kind: str) -> str:
    """Return the sentence of a condition that does not hold; empty: it holds, or is not there."""
    return text(condition_of(workload, kind, "False"), "message")


def newest(workloads: Sequence[JSON]) -> JSON | None:
    """Return the newest Workload; None: there is none."""
    return max(workloads, key=creation_of, default=None)
