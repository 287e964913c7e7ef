"""Rules for the marks of gangs on pods: combinations that are refused, and marks without effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kqueue.api import gang_names, names
from kqueue.errors import FieldError
from kqueue.jobs import pod_view, rules
from kqueue.jobs.fields import JSON, annotations_of, text
from kqueue.jobs.gang.key import KUEUE_GROUPS, gang_key
from kqueue.jobs.gang.registry import dialect_of, dialects, membership
from kqueue.jobs.gang.value import GangMembership
from kqueue.jobs.kind import JobContext
from kqueue.jobs.switches import JobFeatures

_GATES = "spec.schedulingGates"
_EXTRA = f"metadata.annotations[{gang_names.EXTRA_ANNOTATION}]"
_PREBUILT = f"metadata.annotations[{names.PREBUILT_WORKLOAD_NAME_ANNOTATION}]"
_ELASTIC = f"metadata.annotations[{names.ELASTIC_JOB_ANNOTATION}]"


def gang_of(pod: Mapping[str, Any], switches: JobFeatures) -> GangMembership | None:
    """Return the gang of the pod in another dialect than Kueue's; None: it is in none, or in a group of Kueue."""
    found = membership(pod, switches)
    return None if found is None or found.framework == KUEUE_GROUPS else found


def is_stranger(pod: Mapping[str, Any], around: JobContext) -> bool:
    """Whether the pod is in a gang and kqueue does not queue it: it has no queue, or its owner is queued."""
    if gang_of(pod, around.switches) is None:
        return False
    return around.managed_ancestor or not (pod_view.is_managed(pod) or rules.managed(pod, around))


def stranger_problems(pod: Mapping[str, Any], around: JobContext) -> Iterator[FieldError]:
    """Yield the one mistake of a stranger: the gate of kqueue, which no controller would remove.

    Its marks are not judged, because another scheduler may read them.
    """
    if around.managed_ancestor or pod_view.suspending_parent(pod) is not None:
        return
    if names.ADMISSION_GATE in pod_view.gates_of(pod):
        said = f"is never removed without label {names.MANAGED_LABEL}: keep the labels of kqueue, or leave the gate out"
        yield FieldError(_GATES, said, names.ADMISSION_GATE)


def problems(pod: JSON, old: JSON | None, around: JobContext) -> Iterator[FieldError]:
    """Yield each mistake in the marks of all dialects that are on, and each contradiction between them."""
    switches = around.switches
    for dialect in dialects(switches):
        yield from dialect.pod_problems(pod, old, around)
    if old is None and len(switches.gangs) > 1:
        yield from _two_groups(pod, switches)
    mark = annotations_of(pod).get(gang_names.EXTRA_ANNOTATION)
    if mark is not None and (around.false_mark or (old is None and len(switches.gangs) > 1)):
        yield FieldError(_EXTRA, "is written by kqueue alone; take it out", mark)
    gang, prebuilt = membership(pod, switches), rules.prebuilt_name(pod, switches)
    if prebuilt and gang is not None and gang.framework != KUEUE_GROUPS:
        yield FieldError(_PREBUILT, "cannot use a prebuilt Workload; remove it", prebuilt)
    elif prebuilt and gang is not None and prebuilt != gang.name:
        yield FieldError(_PREBUILT, f"must be the group's name, {gang.name!r}, or be removed", prebuilt)


def _two_groups(pod: JSON, switches: JobFeatures) -> Iterator[FieldError]:
    namespace = text(pod, "metadata", "namespace")
    found = [gang for dialect in dialects(switches) if (gang := dialect.membership(pod, switches)) is not None]
    keys = [gang_key(gang.framework, namespace, gang.name) for gang in found]
    if len(keys) > 1:
        path = dialect_of(found[1].framework).joined_by
        yield FieldError(path, f"names two groups: {keys[0]} and {keys[1]}; keep one", found[1].name)


def warnings(pod: JSON, around: JobContext) -> Iterator[str]:
    """Yield a sentence for each mark without the effect that the user may expect."""
    gang = gang_of(pod, around.switches)
    if gang is None:
        return
    if around.managed_ancestor:
        owner = around.ancestor or "the owner of the pod"
        which = f"{owner}, which owns the pod," if around.ancestor else owner
        yield f"{dialect_of(gang.framework).joined_by} has no effect: {which} is queued itself"
    elif not is_stranger(pod, around):
        for dialect in dialects(around.switches):
            yield from dialect.pod_warnings(pod, around)
        if rules.is_elastic(pod, around.switches):
            yield f"{_ELASTIC} has no effect on a pod of a gang"


def template_problems(
    template: Mapping[str, Any], around: JobContext, *, path: str, kind: str, instead: str
) -> Iterator[FieldError]:
    """Yield the mark of a gang on a pod template of a queued object whose pods are queued in another way.

    `path` is that of the template; `instead` says the way, as in "its pods are queued one by one".
    """
    gang = gang_of(template, around.switches)
    if gang is not None:
        at = f"{path}.{dialect_of(gang.framework).joined_by}"
        yield FieldError(at, f"cannot be on a queued {kind}: {instead}", gang.name)
