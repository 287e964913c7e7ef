"""Rules that Deployments, StatefulSets and LeaderWorkerSets share: they never finish, and are queued through their
pods.

For all of them, "suspended" means that none of their pods is ready.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kqueue.api import names, run_time_names
from kqueue.errors import FieldError
from kqueue.jobs import rules, syntax, topology_request
from kqueue.jobs.fields import JSON, annotations_of, labels_of, mapping, whole
from kqueue.jobs.gang import marks
from kqueue.jobs.kind import JobContext
from kqueue.jobs.patch import Patch, apply_merge_patch
from kqueue.jobs.pod_shape import shape
from kqueue.jobs.several import Placed

TEMPLATE = "spec.template"
WITHOUT_EFFECT = (
    names.PREBUILT_WORKLOAD_NAME_ANNOTATION,
    names.MAX_EXEC_TIME_SECONDS_LABEL,
    run_time_names.EXPECTED_SECONDS_ANNOTATION,
)
"""Labels and annotations that no component reads on an owner of groups of pods."""
_QUEUE = f"metadata.labels[{names.QUEUE_NAME_LABEL}]"
_ELASTIC = f"metadata.annotations[{names.ELASTIC_JOB_ANNOTATION}]"


def only_template(obj: Mapping[str, Any]) -> tuple[Placed, ...]:
    """Return the pod template of a kind that has one, with its path."""
    return ((TEMPLATE, mapping(obj, "spec", "template")),)


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


def with_template(
    obj: JSON, *, labels: Mapping[str, str], annotations: Mapping[str, str], path: str = TEMPLATE
) -> JSON:
    """Return the object with more labels and annotations on the pod template at `path`."""
    metadata: Patch = {"labels": dict(labels), "annotations": dict(annotations)}
    patch: Patch = {"metadata": metadata}
    for step in reversed(path.split(".")):
        patch = {step: patch}
    return apply_merge_patch(obj, patch)


def queue_labels(obj: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels for a template whose pods name the queue and the priority class of the object themselves."""
    labels = {names.MANAGED_LABEL: "true"}
    if rules.queue_name(obj):
        labels[names.QUEUE_NAME_LABEL] = rules.queue_name(obj)
    if rules.priority_class(obj):
        labels[names.PRIORITY_CLASS_LABEL] = rules.priority_class(obj)
    return labels


def problems(
    new: JSON, old: JSON | None, around: JobContext, *, templates: Sequence[Placed], kind: str, queued: str
) -> Iterator[FieldError]:
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
        for path, template in templates:
            yield from marks.template_problems(template, around, path=path, kind=kind, instead=queued)
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


def shape_problems(new: Placed, old: Mapping[str, Any], *, kind: str) -> Iterator[FieldError]:
    """Yield each field of a template by which its pods would request or run elsewhere than those of `old` do."""
    path, template = new
    before, after = shape(mapping(old, "spec")), shape(mapping(template, "spec"))
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            yield FieldError(
                f"{path}.spec.{key}",
                f"what pods request and where they may run cannot change while the {kind} is queued; make another",
            )


def warnings(
    obj: JSON, around: JobContext, *, templates: Sequence[Placed], kind: str, without_effect: tuple[str, ...]
) -> list[str]:
    """Return warnings: labels and annotations of the object that no component reads, and those of the templates'
    topology.
    """
    found = [
        f"{key} has no effect on a {kind}" for key in without_effect if key in {**labels_of(obj), **annotations_of(obj)}
    ]
    if around.switches.topology:
        for path, template in templates:
            found += topology_request.warnings(template, {}, path=path)
    return found
