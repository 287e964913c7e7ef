"""Build the Workload of a job: its name and content; compare an existing Workload with the job."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec

from kqueue.api import names
from kqueue.api.wire import core as wire_core
from kqueue.jobs import node_classes, rules, run_times, syntax
from kqueue.jobs.copied import COPIES_NONE, CopiedKeys
from kqueue.jobs.fields import (
    JSON,
    annotations_of,
    condition_status,
    mapping,
    objects,
    text,
    whole,
)
from kqueue.jobs.kind import GroupVersionKind, PodSetInfo, ScaledKind
from kqueue.jobs.meaning import canonical
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.template import merged, without_duplicate_environment
from kqueue.kube import names as kube_names
from kqueue.kube.owned_names import LONG_NAME, SHORT_NAME, owned_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Priority:
    """A resolved priority: its value and the class that it comes from; `kind` empty: there is no class."""

    value: int = 0
    kind: str = ""
    name: str = ""

    @property
    def reference(self) -> JSON | None:
        """Return the content of `spec.priorityClassRef`; None: there is no class."""
        if not self.kind:
            return None
        group = names.GROUP if self.kind == names.WORKLOAD_PRIORITY_CLASS_KIND else kube_names.SCHEDULING_GROUP
        return {"group": group, "kind": self.kind, "name": self.name}


@dataclass(frozen=True, slots=True)
class PrioritySource:
    """The class that a job names: `kind` is WorkloadPriorityClass or PriorityClass."""

    kind: str
    name: str


def workload_name(gvk: GroupVersionKind, name: str, uid: str, *, extra: str = "", limit: int = LONG_NAME) -> str:
    """Return `<kind>-<owner name>-<hash>`, at most `limit` characters; equal owners always get the same name.

    The hash is computed from kind, group, name and UID (and `extra` if it is not empty), not from the version. Other
    tools compute the same name, so it must not change.
    """
    parts = [gvk.kind, gvk.group, name, uid, *([extra] if extra else [])]
    return owned_name(f"{gvk.kind.lower()}-{name}", parts, limit=limit)


class WorkloadSource(Protocol):
    """A kind of owners whose Workload follows from the object alone."""

    @property
    def gvk(self) -> GroupVersionKind:
        """Group, version and kind of the objects."""
        ...

    def pod_sets(self, job: JSON, switches: JobFeatures) -> tuple[JSON, ...]:
        """Return the pod sets of the Workload.

        Raises:
            InvalidObjectError: an annotation of the object cannot be read.
        """
        ...


def workload_name_of(kind: WorkloadSource, job: JSON, switches: JobFeatures, *, taken: Collection[str] = ()) -> str:
    """Return the name of the Workload for `job`.

    A generation may come again for an elastic job whose object below was made anew; `taken`: names of its other slices,
    which the name differs from.
    """
    turns = (_workload_name(kind, job, switches, turn) for turn in range(len(taken) + 1))
    return next(name for name in turns if name not in taken)


def _workload_name(kind: WorkloadSource, job: JSON, switches: JobFeatures, turn: int) -> str:
    metadata = mapping(job, "metadata")
    extra = ""
    if rules.is_elastic(job, switches):
        revision = kind.revision(job) if isinstance(kind, ScaledKind) else ""
        extra = "_".join([str(whole(metadata, "generation") or 0), *([revision] if revision else [])])
    return workload_name(
        kind.gvk,
        text(metadata, "name"),
        text(metadata, "uid"),
        extra=f"{extra}_again{turn}" if turn else extra,
        limit=SHORT_NAME if switches.short_names else LONG_NAME,
    )


def priority_source(job: JSON, pod_sets: Sequence[JSON]) -> PrioritySource | None:
    """Return the class that decides a job's priority; None: the cluster's default PriorityClass, or 0 without one.

    The job's own label comes first, then the class of its scheduling policy (a field of training jobs), then the first
    template that names a class.
    """
    if rules.priority_class(job):
        return PrioritySource(names.WORKLOAD_PRIORITY_CLASS_KIND, rules.priority_class(job))
    of_policy = text(job, "spec", "runPolicy", "schedulingPolicy", "priorityClass")
    if of_policy:
        return PrioritySource(kube_names.PRIORITY_CLASS_KIND, of_policy)
    for pod_set in pod_sets:
        named = text(pod_set, "template", "spec", "priorityClassName")
        if named:
            return PrioritySource(kube_names.PRIORITY_CLASS_KIND, named)
    return None


def workload_for(
    kind: WorkloadSource, job: JSON, *, priority: Priority, switches: JobFeatures, copied: CopiedKeys = COPIES_NONE
) -> JSON:
    """Return the complete Workload to create for `job`.

    Args:
        kind: the job's adapter.
        job: the job as the API server has it, with name and UID.
        priority: resolved from `priority_source`.
        switches: feature switches.
        copied: labels and annotations of the job that the Workload gets because the configuration names them.

    Raises:
        InvalidObjectError: an annotation of the job cannot be read.
    """
    metadata: JSON = {
        "name": workload_name_of(kind, job, switches),
        "namespace": text(job, "metadata", "namespace"),
        "finalizers": [names.RESOURCE_IN_USE_FINALIZER],
        "ownerReferences": [controller_reference(kind.gvk, job)],
    }
    _put(metadata, "labels", {**_labels(job, copied), **node_classes.class_labels(job)})
    _put(metadata, "annotations", {**copied.annotations_from(job), **_annotations(kind, job, switches)})
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.WORKLOAD_KIND,
        "metadata": metadata,
        "spec": _spec(job, kind.pod_sets(job, switches), priority),
    }


def spec_for(
    kind: WorkloadSource, job: JSON, *, priority: Priority, switches: JobFeatures, active: bool = True
) -> JSON:
    """Return only the `spec`, to rewrite a Workload without a reservation; `active` is kept from the old one."""
    spec = _spec(job, kind.pod_sets(job, switches), priority)
    return spec if active else {**spec, "active": False}


def _spec(job: JSON, pod_sets: Sequence[JSON], priority: Priority) -> JSON:
    spec: JSON = {"podSets": list(pod_sets), "priority": priority.value, "active": True}
    _put(spec, "queueName", rules.queue_name(job))
    _put(spec, "priorityClassRef", priority.reference)
    _put(spec, "maximumExecutionTimeSeconds", rules.maximum_execution_time(job))
    return spec


def _put(target: JSON, key: str, value: object) -> None:
    if value:
        target[key] = value


def controller_reference(gvk: GroupVersionKind, job: JSON) -> JSON:
    """Return the owner reference by which a Workload belongs to `job`."""
    return {
        "apiVersion": gvk.api_version,
        "kind": gvk.kind,
        "name": text(job, "metadata", "name"),
        "uid": text(job, "metadata", "uid"),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _labels(job: JSON, copied: CopiedKeys) -> dict[str, str]:
    found, uid = copied.labels_from(job), text(job, "metadata", "uid")
    return {**found, names.JOB_UID_LABEL: uid} if uid and syntax.label_value(uid) is None else found


def _annotations(kind: WorkloadSource, job: JSON, switches: JobFeatures) -> dict[str, str]:
    own = annotations_of(job)
    copied = {key: value for key, value in own.items() if key.startswith(names.PROVISIONING_REQUEST_ANNOTATION_PREFIX)}
    copied |= node_classes.class_annotations(job) | rules.joint_traits(job) | run_times.traits(kind, job)
    if rules.placement_profile(job):
        copied[names.PLACEMENT_PROFILE_ANNOTATION] = rules.placement_profile(job)
    gated_by = own.get(names.ADMISSION_GATED_BY_ANNOTATION, "")
    if gated_by and switches.admission_gated_by:
        copied[names.ADMISSION_GATED_BY_ANNOTATION] = gated_by
    if rules.is_elastic(job, switches):
        copied[names.ELASTIC_JOB_ANNOTATION] = "true"
        copied[names.WORKLOAD_SLICE_NAME_ANNOTATION] = workload_name_of(kind, job, switches)
    return copied


# ---- Does an existing Workload still match? --------------------------------------------------------------------------


def belongs(job: JSON, workload: JSON) -> bool:
    """Whether `job` is the Workload's controller (by name and UID) and requests the same execution time."""
    owner = next((o for o in objects(workload, "metadata", "ownerReferences") if o.get("controller") is True), {})
    return (
        text(owner, "name") == text(job, "metadata", "name")
        and text(owner, "uid") == text(job, "metadata", "uid")
        and whole(workload, "spec", "maximumExecutionTimeSeconds") == rules.maximum_execution_time(job)
    )


def equivalent(
    pod_sets: Sequence[JSON],
    workload: JSON,
    *,
    infos: Sequence[PodSetInfo] | None = None,
    suspended: bool = False,
    slim: bool = False,
) -> bool:
    """Whether the Workload's pod sets match the job.

    Compared in order: count, minimum count, containers, init containers and tolerations, by meaning (`1` is `1000m`,
    absent is empty).  Names, selectors, labels and annotations do not matter; tolerations not while it is admitted.

    Args:
        pod_sets: the pod sets of the job, as computed by its kind.
        workload: the Workload as JSON.
        infos: the additions of the admission (`infos_at_start`); None if unknown. With a reservation the job must match
        the Workload with these merged in; without the infos, and for a suspended job, the plain Workload suffices.
        suspended: whether the job is suspended.
        slim: the Workload comes from a watch, which stores only the fields of containers and tolerations in
            `kqueue.api.wire.core`; other fields are then not compared.
    """
    own = [without_environment_duplicates(pod_set) for pod_set in pod_sets]
    theirs = objects(workload, "spec", "podSets")
    tolerations = condition_status(workload, names.CONDITION_ADMITTED) != "True"
    if condition_status(workload, names.CONDITION_QUOTA_RESERVED) == "True" and infos is not None:
        running = _injected(theirs, infos)
        if running is not None:
            if _all_equal(own, running, tolerations=tolerations, slim=slim):
                return True
            rest = _injected(theirs, _of_all_that_is_left(theirs, infos, workload))
            if rest is not None and _all_equal(own, rest, tolerations=tolerations, slim=slim):
                return True
            if not suspended:
                return False
    return _all_equal(own, theirs, tolerations=tolerations, slim=slim)


def same_topology(pod_sets: Sequence[JSON], workload: JSON) -> bool:
    """Whether the Workload's topology requests equal those of the job's pod sets.

    `equivalent` does not compare them: a running job is not stopped for another request.
    """
    theirs = objects(workload, "spec", "podSets")
    return [canonical(mapping(p, "topologyRequest")) for p in pod_sets] == [
        canonical(mapping(p, "topologyRequest")) for p in theirs
    ]


def same_node_classes(pod_sets: Sequence[JSON], workload: JSON) -> bool:
    """Whether the templates of the Workload name the same node classes as those of the job's pod sets.

    As with topology, a running job is not stopped for another request.
    """
    return [node_classes.keys(mapping(p, "template")) for p in pod_sets] == [
        node_classes.keys(mapping(p, "template")) for p in objects(workload, "spec", "podSets")
    ]


def without_environment_duplicates(pod_set: Mapping[str, Any]) -> JSON:
    """Return a pod set whose containers name no environment variable twice."""
    return {**pod_set, "template": without_duplicate_environment(mapping(pod_set, "template"))}


def _injected(pod_sets: Sequence[Mapping[str, Any]], infos: Sequence[PodSetInfo]) -> list[JSON] | None:
    """Return the pod sets of the started job; None: the infos do not match them."""
    if len(pod_sets) != len(infos):
        return None
    running: list[JSON] = []
    for pod_set, info in zip(pod_sets, infos, strict=True):
        template = merged(mapping(pod_set, "template"), info)
        if isinstance(template, tuple):
            return None
        admitted = {"count": info.count} if info.count is not None and pod_set.get("minCount") is not None else {}
        running.append({**pod_set, "template": template, **admitted})
    return running


def _of_all_that_is_left(
    pod_sets: Sequence[Mapping[str, Any]], infos: Sequence[PodSetInfo], workload: JSON
) -> list[PodSetInfo]:
    """Return the infos with the full count if all pods were admitted that had not ended before."""
    ended = {text(r, "name"): whole(r, "count") or 0 for r in objects(workload, "status", "reclaimablePods")}
    return [
        replace(info, count=full)
        if info.count is not None and (full := whole(pod_set, "count") or 0) <= info.count + ended.get(info.name, 0)
        else info
        for pod_set, info in zip(pod_sets, infos, strict=True)
    ]


def _all_equal(
    own: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]], *, tolerations: bool, slim: bool
) -> bool:
    if len(own) != len(theirs):
        return False
    return all(
        _shape(a, tolerations=tolerations, slim=slim) == _shape(b, tolerations=tolerations, slim=slim)
        for a, b in zip(own, theirs, strict=True)
    )


def _shape(pod_set: Mapping[str, Any], *, tolerations: bool, slim: bool) -> tuple[object, ...]:
    """Return the compared fields of a pod set, in a form that `==` compares semantically."""
    spec = mapping(pod_set, "template", "spec")
    count = whole(pod_set, "count")
    compared: list[tuple[Sequence[Mapping[str, Any]], type]]
    compared = [(objects(spec, part), wire_core.Container) for part in ("containers", "initContainers")]
    if tolerations:
        compared.append((objects(spec, "tolerations"), wire_core.Toleration))
    return (
        1 if count is None else count,
        whole(pod_set, "minCount"),
        *(canonical(_as_watched(part, kind) if slim else part) for part, kind in compared),
    )


def _as_watched(part: Sequence[Mapping[str, Any]], kind: type) -> object:
    """Return the fields that a watch keeps.  A part that the watch cannot read stays unchanged."""
    try:
        return msgspec.to_builtins(msgspec.convert(part, tuple[kind, ...], strict=False))  # type: ignore[valid-type]
    except msgspec.ValidationError:
        return part
