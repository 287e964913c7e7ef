"""Parts of the status of group objects that several dialects write, and the comparison before a write.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from kqueue.api import names
from kqueue.clock import utc_text
from kqueue.jobs import meaning
from kqueue.jobs.fields import JSON, condition_of, condition_status, mapping, objects, text
from kqueue.jobs.gang.value import GangState
from kqueue.kube import names as kube_names


def group_condition(state: GangState, kind: str, *, holds: bool, yes: tuple[str, str], no: tuple[str, str]) -> JSON:
    """Return a condition of a group object, with reason and message `yes` or `no`; its time changes with its status
    only.
    """
    status = "True" if holds else "False"
    reason, message = yes if holds else no
    since = text(condition_of({"status": state.status}, kind, status), "lastTransitionTime")
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since or utc_text(state.now),
    }


def with_others(state: GangState, conditions: Sequence[JSON]) -> list[JSON]:
    """Return the conditions after those of other writers, which stay as they are."""
    ours = {condition["type"] for condition in conditions}
    return [*(dict(c) for c in objects(state.status, "conditions") if c.get("type") not in ours), *conditions]


def hindrance_of(state: GangState) -> tuple[str, str]:
    """Return reason and message for which the gang waits or was stopped last; both empty: neither."""
    counts, problem = state.counts, state.gang.problem
    if counts.message or counts.reason:
        return counts.reason, counts.message
    if problem is None:
        return "", ""
    if not problem.incomplete:
        return "InvalidGroup", problem.message
    return ("NotEnoughPodsOfTask" if "" not in state.gang.absent else "NotEnoughTasks"), problem.message


def admitted_at(workload: Mapping[str, Any] | None) -> str:
    """Return the time of the Workload's last admission; empty: it is not admitted."""
    return text(condition_of(workload, names.CONDITION_ADMITTED, "True"), "lastTransitionTime")


def is_quorum_ready(state: GangState) -> bool:
    """Whether as many members as the quorum are ready or have succeeded."""
    ready = sum(
        pod.succeeded or condition_status(pod.obj, kube_names.CONDITION_READY) == "True" for pod in state.gang.members
    )
    return 0 < state.gang.quorum <= ready


def is_quorum_scheduled(state: GangState) -> bool:
    """Whether as many members as the quorum have a node."""
    return 0 < state.gang.quorum <= state.counts.scheduled


def status_patch(wanted: JSON, status: Mapping[str, Any], *, dropped: Collection[str]) -> JSON:
    """Return the fields of a status that differ by meaning from the wanted ones; empty: nothing is to be written.

    `dropped`: fields that the API server does not keep.
    """
    found: JSON = {}
    for field, value in wanted.items():
        if field not in dropped and not meaning.same(value, status.get(field)):
            found[field] = value if value not in ("", [], {}) else None
    return found


def dropped_fields(patch: Mapping[str, Any], answer: JSON) -> set[str]:
    """Return the fields of a written patch that the answer of the API server lacks, because its definition does."""
    status = mapping(answer, "status")
    return {field for field, value in patch.items() if value is not None and field not in status}


def is_changed_by_others(written: Mapping[str, Any], status: Mapping[str, Any], *, ignored: Iterable[str]) -> bool:
    """Whether fields that kqueue wrote have other values now."""
    skipped = set(ignored)
    return any(field not in skipped and not meaning.same(value, status.get(field)) for field, value in written.items())
