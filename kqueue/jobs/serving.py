"""Rules that Deployments and StatefulSets share: they never finish, and are queued through their pods.

For both, "suspended" means that none of their pods is ready.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kqueue.api import names
from kqueue.errors import FieldError
from kqueue.jobs import rules, syntax, topology_request
from kqueue.jobs.fields import JSON, annotations_of, labels_of, mapping, whole
from kqueue.jobs.gang import marks
from kqueue.jobs.kind import JobContext
from kqueue.jobs.patch import Patch, apply_merge_patch

TEMPLATE = "spec.template"
_QUEUE = f"metadata.labels[{names.QUEUE_NAME_LABEL}]"
_ELASTIC = f"metadata.annotations[{names.ELASTIC_JOB_ANNOTATION}]"


def serves(obj: Mapping[str, Any]) -> bool:
    """Whether at least one pod of the object is ready."""
    return (whole(obj, "status", "readyReplicas") or 0) > 0


def is_managed(obj: Mapping[str, Any], around: JobContext) -> bool:
    """Whether the object's pods are queued.  In excluded namespaces no reconciler would remove the gate."""
    return around.managed_namespace and rules.managed(obj, around)


def labelled(obj: JSON, around: JobContext) -> JSON:
    """Return the object with default labels; an object with ready pods gets none, because they cannot be added then."""
    if serves(obj) or not around.managed_namespace:
        return obj
    return apply_merge_patch(obj, rules.default_labels(obj, around))


def with_template(obj: JSON, *, labels: Mapping[str, str], annotations: Mapping[str, str]) -> JSON:
    """Return the object with more labels and annotations on its pod template."""
    metadata: Patch = {"labels": dict(labels), "annotations": dict(annotations)}
    return apply_merge_patch(obj, {"spec": {"template": {"metadata": metadata}}})


def problems(new: JSON, old: JSON | None, around: JobContext, *, kind: str, queued: str) -> Iterator[FieldError]:
    """Yield mistakes in labels and annotations of the object itself, and in changes of them.

    `queued` says how pods of the kind are queued, for messages.
    """
    queue = rules.queue_name(new)
    if queue:
        yield from syntax.check(syntax.subdomain, queue, _QUEUE)
    if annotations_of(new).get(names.ELASTIC_JOB_ANNOTATION) == "true":
        yield FieldError(_ELASTIC, "this kind cannot be elastic; remove the annotation, it is scaled as it is", "true")
    if around.switches.admission_gated_by:
        yield from rules.gate_problems(new)
    if is_managed(new, around):
        yield from marks.template_problems(new, around, kind=kind, instead=queued)
    if old is not None:
        yield from _queue_change(new, old)
        yield from rules.priority_change(new, old, suspended=not serves(old))


def _queue_change(new: JSON, old: JSON) -> Iterator[FieldError]:
    before, after = rules.queue_name(old), rules.queue_name(new)
    if before == after:
        return
    if not after:
        yield FieldError(_QUEUE, f"cannot be removed once it is set; name {before!r} or another queue, or delete this")
    elif serves(old):
        ready = whole(old, "status", "readyReplicas")
        yield FieldError(_QUEUE, f"cannot change while pods are ready ({ready} are); scale to 0 first", after)


def topology_problems(new: JSON, old: JSON | None, around: JobContext, *, count: int | None) -> Iterator[FieldError]:
    """Yield mistakes in the template's topology annotations; on update only if these have changed."""
    template = mapping(new, "spec", "template")
    if old is not None and annotations_of(template) == annotations_of(mapping(old, "spec", "template")):
        return
    yield from topology_request.problems(template, {}, path=TEMPLATE, count=count, switches=around.switches)


def warnings(obj: JSON, around: JobContext, *, kind: str, without_effect: tuple[str, ...]) -> list[str]:
    """Return warnings: labels and annotations of the object that no component reads, and those of the template's
    topology.
    """
    found = [
        f"{key} has no effect on a {kind}" for key in without_effect if key in {**labels_of(obj), **annotations_of(obj)}
    ]
    if around.switches.topology:
        found += topology_request.warnings(mapping(obj, "spec", "template"), {}, path=TEMPLATE)
    return found
