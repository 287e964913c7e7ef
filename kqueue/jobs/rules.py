"""Rules of all job kinds for labels and annotations, and for their changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from kqueue.api import move_names, names, run_names
from kqueue.clock import api_time
from kqueue.config.duration import parse_duration
from kqueue.core.joint.traits import pairs_of
from kqueue.errors import FieldError
from kqueue.jobs import profiles, run_times, syntax
from kqueue.jobs.fields import JSON, annotation_of, annotations_of, int_of, label_of, labels_of
from kqueue.jobs.kind import JobContext
from kqueue.jobs.patch import Patch, apply_merge_patch
from kqueue.jobs.switches import JobFeatures

_QUEUE = f"metadata.labels[{names.QUEUE_NAME_LABEL}]"
_PRIORITY = f"metadata.labels[{names.PRIORITY_CLASS_LABEL}]"
_MAX_TIME = f"metadata.labels[{names.MAX_EXEC_TIME_SECONDS_LABEL}]"
_PREBUILT = f"metadata.annotations[{names.PREBUILT_WORKLOAD_NAME_ANNOTATION}]"
_ELASTIC = f"metadata.annotations[{names.ELASTIC_JOB_ANNOTATION}]"
_GATED_BY = f"metadata.annotations[{names.ADMISSION_GATED_BY_ANNOTATION}]"
_PROFILE = f"metadata.annotations[{names.PLACEMENT_PROFILE_ANNOTATION}]"
_PREFERS = f"metadata.annotations[{names.PREFERS_ANNOTATION}]"
_RUNTIME = f"metadata.annotations[{names.EXPECTED_RUNTIME_ANNOTATION}]"
_MINIMUM = f"metadata.annotations[{names.MINIMUM_RUNTIME_ANNOTATION}]"
GATE_MAX = 63
"""The largest length of an admission gate."""
_CHECKPOINT_STEP = timedelta(seconds=30)
"""The least time between two checkpoints of a job that its Workload gets."""


def queue_name(job: Mapping[str, Any]) -> str:
    """Return the LocalQueue that the job names; empty: it names none."""
    return label_of(job, names.QUEUE_NAME_LABEL)


def priority_class(job: Mapping[str, Any]) -> str:
    """Return the WorkloadPriorityClass that the job names; empty: it names none."""
    return label_of(job, names.PRIORITY_CLASS_LABEL)


def prebuilt_name(job: Mapping[str, Any], switches: JobFeatures) -> str:
    """Return the name of the job's prebuilt Workload; empty when it has none."""
    annotated = annotation_of(job, names.PREBUILT_WORKLOAD_NAME_ANNOTATION)
    labelled = label_of(job, names.PREBUILT_WORKLOAD_NAME_LABEL)
    if switches.identifier_annotations:
        return annotated or labelled
    return labelled or (annotated if len(annotated) > 63 else "")


def maximum_execution_time(job: Mapping[str, Any]) -> int | None:
    """Return the maximum execution time in seconds; None without a positive 32-bit number."""
    seconds = int_of(labels_of(job).get(names.MAX_EXEC_TIME_SECONDS_LABEL, ""))
    return seconds if seconds is not None and seconds > 0 else None


def placement_profile(job: Mapping[str, Any]) -> str:
    """Return the placement profile of the job, valid or not; empty: the profile of its ClusterQueue applies."""
    return annotations_of(job).get(names.PLACEMENT_PROFILE_ANNOTATION, "")


def joint_traits(owner: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotations of the owner for the policies of joint placement and about its run, valid or not."""
    own = annotations_of(owner)
    return {key: own[key] for key in (*names.JOINT_TRAITS, *run_names.RUN_TRAITS) if own.get(key)}


def newer_run_traits(owner: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations of the owner about its run that its Workload, which has `known`, does not have like that.

    A job writes the time of each checkpoint while it runs; a time that is less than half a minute later than the known
    one is no news, so that a job cannot make kqueue write at the job's pace.  Annotations that the job lacks stay.
    """
    own = annotations_of(owner)
    newer = {key: own[key] for key in run_names.RUN_TRAITS if own.get(key) and own[key] != known.get(key)}
    key = move_names.LAST_CHECKPOINT_ANNOTATION
    if key in newer:
        told, before = api_time(newer[key]), api_time(known.get(key, ""))
        if told is not None and before is not None and timedelta(0) <= told - before < _CHECKPOINT_STEP:
            del newer[key]
    return newer


def admission_gates(owner: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the admission gates of the owner's workload, as written; empty when there are none."""
    written = annotations_of(owner).get(names.ADMISSION_GATED_BY_ANNOTATION, "")
    return tuple(gate.strip() for gate in written.split(",")) if written else ()


def asks_for_slices(owner: Mapping[str, Any]) -> bool:
    """Whether the owner asks for workload slices, even if the feature is disabled."""
    return annotation_of(owner, names.ELASTIC_JOB_ANNOTATION) == "true"


def is_elastic(owner: Mapping[str, Any], switches: JobFeatures) -> bool:
    """Whether the owner uses workload slices, and the feature is enabled."""
    return switches.elastic_jobs and asks_for_slices(owner)


def managed(job: Mapping[str, Any], around: JobContext) -> bool:
    """Whether the job itself (not an owner above it) is queued."""
    return not around.managed_ancestor and (bool(queue_name(job)) or around.manage_without_queue)


def default_labels(job: Mapping[str, Any], around: JobContext) -> Patch:
    """Return the labels that a new job without labels gets: the queue of its gang, else the queue named `default` if
    it exists, and the class named `default`.
    """
    if around.managed_ancestor:
        return {}
    wanted: dict[str, str] = {}
    queue = around.gang_queue or (names.DEFAULT_LOCAL_QUEUE if around.default_queue else "")
    if queue and not queue_name(job):
        wanted[names.QUEUE_NAME_LABEL] = queue
    if around.default_priority_class and around.switches.default_priority_class and not priority_class(job):
        wanted[names.PRIORITY_CLASS_LABEL] = names.DEFAULT_WORKLOAD_PRIORITY_CLASS
    return {"metadata": {"labels": wanted}} if wanted else {}


def defaulted(job: JSON, around: JobContext) -> JSON:
    """Return the job with the labels of `default_labels`, and suspended by `spec.suspend` if it is queued."""
    labelled = apply_merge_patch(job, default_labels(job, around))
    return apply_merge_patch(labelled, {"spec": {"suspend": True}}) if managed(labelled, around) else labelled


def create_problems(
    job: Mapping[str, Any], around: JobContext, *, prebuilt: bool = True, elastic: bool = True
) -> Iterator[FieldError]:
    """Yield mistakes in the shared labels and annotations.

    `prebuilt`, `elastic`: whether the kind supports prebuilt workloads and workload slices.
    """
    switches = around.switches
    if queue_name(job):
        yield from syntax.check(syntax.subdomain, queue_name(job), _QUEUE)
    name = prebuilt_name(job, switches)
    if name and not prebuilt:
        yield FieldError(_PREBUILT, "this kind cannot use a prebuilt workload; remove it", name)
    elif name:
        yield from syntax.check(syntax.subdomain, name, _PREBUILT)
    seconds = labels_of(job).get(names.MAX_EXEC_TIME_SECONDS_LABEL)
    if seconds is not None and maximum_execution_time(job) is None:
        yield FieldError(_MAX_TIME, "must be a whole number of seconds, 1 or more", seconds)
    if is_elastic(job, switches) and not elastic:
        yield FieldError(_ELASTIC, "this kind cannot be elastic; remove the annotation", "true")
    yield from _profile_problems(job)
    yield from _trait_problems(job)
    yield from run_times.problems(job)
    if switches.admission_gated_by:
        yield from gate_problems(job)


def update_problems(
    new: Mapping[str, Any], old: Mapping[str, Any], around: JobContext, *, new_suspended: bool, old_suspended: bool
) -> Iterator[FieldError]:
    """Yield changes that the state of the job forbids."""
    yield from _queue_change(new, old, around, suspended=new_suspended)
    yield from priority_change(new, old, suspended=new_suspended)
    switches = around.switches
    if (
        not new_suspended
        and not is_elastic(old, switches)
        and prebuilt_name(new, switches) != prebuilt_name(old, switches)
    ):
        yield FieldError(_PREBUILT, "cannot change while the job runs; suspend it first", prebuilt_name(new, switches))
    key = names.MAX_EXEC_TIME_SECONDS_LABEL
    if not (new_suspended and old_suspended) and labels_of(new).get(key) != labels_of(old).get(key):
        yield FieldError(_MAX_TIME, "can change only while the job is suspended", labels_of(new).get(key))
    yield from run_times.change_problems(new, old, waits=new_suspended and old_suspended)
    if is_elastic(new, switches) != is_elastic(old, switches):
        yield FieldError(_ELASTIC, "cannot change after creation; create a new job")
    if switches.admission_gated_by:
        yield from gate_change_problems(new, old)


def priority_change(new: Mapping[str, Any], old: Mapping[str, Any], *, suspended: bool) -> Iterator[FieldError]:
    """Yield forbidden changes: the priority class may be replaced at any time, added only while suspended, never
    removed.
    """
    before, after = priority_class(old), priority_class(new)
    if before and not after:
        yield FieldError(_PRIORITY, f"cannot be removed; set it to {before!r} or another class")
    if after and not before and not suspended:
        yield FieldError(_PRIORITY, "cannot be added while the job runs; suspend it first", after)


def gate_problems(owner: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield mistakes in the list of admission gates."""
    gates = admission_gates(owner)
    if len(set(gates)) < len(gates):
        yield FieldError(_GATED_BY, "names a gate twice; keep each once", ",".join(gates))
    for gate in gates:
        domain, slash, path = gate.partition("/")
        if not gate or not slash or not path or syntax.subdomain(domain) or not _is_url_path(path):
            yield FieldError(_GATED_BY, "every gate must look like example.com/name; separate them by commas", gate)
        elif len(gate) > GATE_MAX:
            yield FieldError(_GATED_BY, f"a gate has at most {GATE_MAX} characters", gate)


def gate_change_problems(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield added gates: gates may be removed after creation, never added."""
    added = [gate for gate in admission_gates(new) if gate not in admission_gates(old)]
    if added:
        yield FieldError(_GATED_BY, "gates cannot be added after creation, only removed", ",".join(added))


def _profile_problems(job: Mapping[str, Any]) -> Iterator[FieldError]:
    name = placement_profile(job)
    if name and name not in profiles.known():
        yield FieldError(_PROFILE, f"there is no such profile; use one of {', '.join(profiles.known())}", name)


def _trait_problems(job: Mapping[str, Any]) -> Iterator[FieldError]:
    traits = joint_traits(job)
    prefers, runtime = traits.get(names.PREFERS_ANNOTATION), traits.get(names.EXPECTED_RUNTIME_ANNOTATION)
    if prefers is not None and not pairs_of(prefers):
        said = "must be a topology level and its value, as example.com/rack=r1; further pairs follow a comma"
        yield FieldError(_PREFERS, said, prefers)
    if runtime is not None and not _is_duration(runtime):
        yield FieldError(_RUNTIME, "must be a duration such as 90m or 2h, and not negative", runtime)
    asked = traits.get(names.MINIMUM_RUNTIME_ANNOTATION)
    if asked is not None and not _is_duration(asked):
        yield FieldError(_MINIMUM, "must be a duration such as 10m or 1h, and not negative", asked)


def _is_duration(text: str) -> bool:
    try:
        return parse_duration(text) >= timedelta(0)
    except ValueError:
        return False


def _queue_change(
    new: Mapping[str, Any], old: Mapping[str, Any], around: JobContext, *, suspended: bool
) -> Iterator[FieldError]:
    before, after = queue_name(old), queue_name(new)
    if before == after:
        return
    if not suspended:
        yield FieldError(_QUEUE, f"cannot change from {before!r} while the job runs; suspend it first", after)
    elif not after and around.default_queue:
        yield FieldError(_QUEUE, "cannot be emptied in a namespace with a default queue; name the queue that you want")


def _is_url_path(path: str) -> bool:
    return all(char.isascii() and (char.isalnum() or char in "-._~!$&'()*+,;=:@/%") for char in path)
