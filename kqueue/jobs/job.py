"""The adapter of batch/v1 Job."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kqueue.api import names
from kqueue.config.object_path import put
from kqueue.errors import FieldError, InvalidObjectError
from kqueue.jobs import rules, run_times, topology_request
from kqueue.jobs.fields import (
    JSON,
    annotations_of,
    bool_of,
    flag,
    int_of,
    labels_of,
    mapping,
    objects,
    sequence,
    text,
    whole,
)
from kqueue.jobs.kind import Finished, GroupVersionKind, JobContext, PodSetInfo, Refused, StopStep
from kqueue.jobs.patch import Patch, merge_patch
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.template import as_pod_set, merged, restored
from kqueue.kube import names as kube_names

INDEX = topology_request.IndexLabels(pod=kube_names.JOB_COMPLETION_INDEX_LABEL)
_CONTROLLER_LABELS = (
    kube_names.LEGACY_JOB_NAME_LABEL,
    kube_names.LEGACY_CONTROLLER_UID_LABEL,
    kube_names.JOB_NAME_LABEL,
    kube_names.CONTROLLER_UID_LABEL,
)
"""Labels that the API server writes into the template; they stay when a template is restored."""
_DROPPED_LABELS = frozenset(_CONTROLLER_LABELS) - {kube_names.JOB_NAME_LABEL}
_INTERVAL = re.compile(r"(\d{1,10})(?:-(\d{1,10}))?", re.ASCII)
_MIN = names.JOB_MIN_PARALLELISM_ANNOTATION
_SYNC = names.JOB_COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION
_TEMPLATE = "spec.template"


class BatchJob:
    """The adapter of batch/v1 Job; it has no state."""

    framework = "batch/job"
    gvk = GroupVersionKind("batch", "v1", "Job")
    resource = "jobs"
    defaults_on_update = False
    held_by = "spec.suspend"
    own_controller = kube_names.JOB_CONTROLLER

    def is_suspended(self, job: JSON) -> bool:
        """Whether `spec.suspend` is true and no stop is unfinished."""
        return flag(job, "spec", "suspend") and annotations_of(job).get(names.STOPPING_ANNOTATION) != "true"

    def holds_back(self, job: JSON) -> bool:
        """Whether `spec.suspend` is true, even if a stop is unfinished."""
        return flag(job, "spec", "suspend")

    def suspend(self, job: JSON) -> Patch:
        """Return a patch of only `spec.suspend`, without the stopping annotation."""
        return {} if flag(job, "spec", "suspend") else {"spec": {"suspend": True}}

    def active(self, job: JSON) -> bool:
        """Whether `status.active` or `status.terminating` is not 0: a terminating pod uses its resources until it has
        ended.
        """
        return bool(whole(job, "status", "active") or whole(job, "status", "terminating"))

    def pod_selector(self, job: JSON) -> Mapping[str, str]:
        """Return the job-name label."""
        return {kube_names.JOB_NAME_LABEL: text(job, "metadata", "name")}

    def managed_by(self, job: JSON) -> str:
        """Return `spec.managedBy`, or Kubernetes' own controller."""
        return text(job, "spec", "managedBy") or self.own_controller

    def as_written(self, job: JSON) -> JSON:
        """Return the job without the selector and labels that the API server has made of its UID."""
        spec = {key: value for key, value in mapping(job, "spec").items() if key != "selector"}
        if flag(job, "spec", "manualSelector"):
            return job
        labels = {k: v for k, v in labels_of(mapping(spec, "template")).items() if k not in _CONTROLLER_LABELS}
        return {**job, "spec": put(spec, ("template", "metadata", "labels"), labels)}

    def pod_sets(self, job: JSON, switches: JobFeatures) -> tuple[JSON, ...]:
        """Return one pod set, `main`, with min(parallelism, completions) pods."""
        template = mapping(job, "spec", "template")
        mistakes = [
            *topology_request.job_problems(job, switches),
            *topology_request.problems(template, job, path=_TEMPLATE, count=None, switches=switches),
        ]
        if mistakes:
            raise InvalidObjectError(
                f"Job {text(job, 'metadata', 'namespace')}/{text(job, 'metadata', 'name')}", mistakes
            )
        pod_set: JSON = {
            "name": names.DEFAULT_PODSET,
            "count": _count(job),
            "template": as_pod_set(template, without=_DROPPED_LABELS),
        }
        minimum = _minimum(job)
        if switches.partial_admission and minimum is not None and 0 < minimum <= pod_set["count"]:
            pod_set["minCount"] = minimum
        request = topology_request.topology_request(template, job, index=INDEX, switches=switches)
        if request is not None:
            pod_set["topologyRequest"] = request
        return (pod_set,)

    def start(self, job: JSON, infos: Sequence[PodSetInfo]) -> Patch | Refused:
        """Return a patch that unsuspends, merges the info into the template, and with partial admission sets the
        admitted count.

        A job that ran before, and whose remaining pods were all admitted, keeps its own numbers.
        """
        if len(infos) != 1:
            return Refused((f"the Job has 1 pod set and the admission has {len(infos)}",))
        template = merged(mapping(job, "spec", "template"), infos[0], elastic=rules.asks_for_slices(job))
        if isinstance(template, tuple):
            return Refused(tuple(f"{_TEMPLATE}: {conflict}; remove it there" for conflict in template))
        sizes = {} if _starts_all_that_is_left(job, infos[0]) else _sizes(job, infos[0].count)
        spec = {**mapping(job, "spec"), "suspend": False, "template": template, **sizes}
        patch = merge_patch(job, {**job, "spec": spec})
        if sizes and _parallelism(job) != _count(job):
            written = {names.JOB_PARALLELISM_ANNOTATION: str(_parallelism(job))}
            patch["metadata"] = {"annotations": written}
        return patch

    def stop(self, job: JSON, infos: Sequence[PodSetInfo]) -> tuple[StopStep, ...]:
        """Return the steps: suspend and mark; remove the start time; restore the template and remove the mark.

        Kubernetes lets a template change only while the Job is suspended, has no start time and no active pod, hence
        the order. With the mark, an interrupted stop continues at the same step.
        """
        steps: list[StopStep] = []
        running = not flag(job, "spec", "suspend")
        if running:
            mark = {"metadata": {"annotations": {names.STOPPING_ANNOTATION: "true"}}, "spec": {"suspend": True}}
            steps.append(StopStep(patch=mark, suspends=True))
        marked = running or names.STOPPING_ANNOTATION in annotations_of(job)
        cleared = _cleared_status(self.managed_by(job) if marked else "")
        if any(mapping(job, "status").get(field) for field in cleared):
            steps.append(StopStep(patch={"status": cleared}, subresource="status"))
        restore = merge_patch(job, _restored(job, infos))
        marks = [names.STOPPING_ANNOTATION] if marked else []
        if infos and names.JOB_PARALLELISM_ANNOTATION in annotations_of(job):
            marks.append(names.JOB_PARALLELISM_ANNOTATION)
        if marks:
            restore = {**restore, "metadata": {"annotations": dict.fromkeys(marks)}}
        if restore:
            steps.append(StopStep(patch=restore))
        return tuple(steps)

    def finished(self, job: JSON) -> Finished | None:
        """Return the result if condition Complete or Failed is true; else None."""
        for condition in objects(job, "status", "conditions"):
            if condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True":
                return Finished(text(condition, "message"), success=condition["type"] == "Complete")
        return None

    def deadline(self, job: JSON) -> int | None:
        """Return `spec.activeDeadlineSeconds`, which counts from each start of the Job."""
        return run_times.seconds_at(job, "spec", "activeDeadlineSeconds")

    def pods_ready(self, job: JSON) -> bool:
        """Whether the ready and succeeded pods, also pods not yet counted as succeeded, reach the job's count."""
        status = mapping(job, "status")
        uncounted = len(sequence(status, "uncountedTerminatedPods", "succeeded"))
        return (whole(status, "succeeded") or 0) + (whole(status, "ready") or 0) + uncounted >= _count(job)

    def reclaimable(self, job: JSON) -> Mapping[str, int]:
        """Return the pods that will never be created, because fewer completions remain than pods may run."""
        parallelism = _parallelism(job)
        completions = whole(job, "spec", "completions")
        completions = parallelism if completions is None else completions
        done = _terminal(job, completions)
        remaining = max(completions - done, 0)
        if parallelism <= 1 or done == 0 or remaining >= parallelism:
            return {}
        return {names.DEFAULT_PODSET: parallelism - remaining}

    def defaults(self, job: JSON, around: JobContext) -> Patch:
        """Return the patch for queue and class named `default`, the suspension of managed jobs, and the gate of elastic
        jobs.

        It has no topology gate, labels and annotations: `start` adds them, and `stop` removes them.
        """
        if mapping(job, "metadata").get("deletionTimestamp"):
            return {}
        new = rules.defaulted(job, around)
        if rules.is_elastic(job, around.switches):
            gate = PodSetInfo(name=names.DEFAULT_PODSET, scheduling_gates=(names.ELASTIC_JOB_GATE,))
            template = merged(mapping(job, "spec", "template"), gate)
            if isinstance(template, dict):
                new["spec"] = {**new["spec"], "template": template}
        return merge_patch(job, new)

    def problems(self, new: JSON, old: JSON | None, around: JobContext) -> list[FieldError]:
        """Check the shared rules, partial admission and topology.

        An object that is being deleted has no mistakes, so that its finalizers can always be removed.
        """
        if mapping(new, "metadata").get("deletionTimestamp"):
            return []
        return [
            *rules.create_problems(new, around),
            *([] if old is None else self._change_problems(new, old, around)),
            *_partial_problems(new, old, around.switches),
            *_topology_problems(new, old, around.switches, suspended=self._stays_suspended(new, old)),
        ]

    def resized(self, job: JSON, counts: Mapping[str, int]) -> JSON:
        """Return the Job with another parallelism; an indexed Job with as many completions keeps both equal, as the API
        server demands.
        """
        count, spec = counts[names.DEFAULT_PODSET], mapping(job, "spec")
        both = text(spec, "completionMode") == "Indexed" and whole(spec, "completions") == _parallelism(job)
        return {**job, "spec": {**spec, "parallelism": count, **({"completions": count} if both else {})}}

    def warnings(self, new: JSON, around: JobContext) -> list[str]:
        """Return warnings about topology annotations without effect."""
        if not around.switches.topology:
            return []
        return list(topology_request.warnings(mapping(new, "spec", "template"), new, path=_TEMPLATE))

    def _stays_suspended(self, new: JSON, old: JSON | None) -> bool:
        return old is None or (flag(old, "spec", "suspend") and flag(new, "spec", "suspend"))

    def _change_problems(self, new: JSON, old: JSON, around: JobContext) -> Iterator[FieldError]:
        new_suspended, old_suspended = self.is_suspended(new), self.is_suspended(old)
        yield from rules.update_problems(new, old, around, new_suspended=new_suspended, old_suspended=old_suspended)
        if _MIN in annotations_of(old) and not flag(old, "spec", "suspend") and _parallelism(new) != _parallelism(old):
            problem = f"cannot change while a partially admissible Job runs (it has {_MIN}); suspend it first"
            yield FieldError("spec.parallelism", problem, _parallelism(new))
        if not new_suspended and not old_suspended and annotations_of(new).get(_SYNC) != annotations_of(old).get(_SYNC):
            yield FieldError(f"metadata.annotations[{_SYNC}]", "cannot change while the Job runs; suspend it first")


def _parallelism(job: Mapping[str, Any]) -> int:
    parallelism = whole(job, "spec", "parallelism")
    return 1 if parallelism is None else parallelism


def _count(job: Mapping[str, Any]) -> int:
    completions = whole(job, "spec", "completions")
    return _parallelism(job) if completions is None else min(_parallelism(job), completions)


def _minimum(job: Mapping[str, Any]) -> int | None:
    return int_of(annotations_of(job).get(_MIN, ""))


def _starts_all_that_is_left(job: Mapping[str, Any], info: PodSetInfo) -> bool:
    completions = whole(job, "spec", "completions")
    return (
        info.count is not None and completions is not None and info.count >= completions - _terminal(job, completions)
    )


def _sizes(job: Mapping[str, Any], count: int | None) -> JSON:
    """Return parallelism and completions for `count` pods; empty if the job's own numbers apply."""
    if _minimum(job) is None or count is None or count == _count(job):
        return {}
    sizes: JSON = {"parallelism": count}
    if bool_of(annotations_of(job).get(_SYNC, "")):
        sizes["completions"] = count
    return sizes


def _written_parallelism(job: Mapping[str, Any]) -> int | None:
    """Return the user's parallelism if fewer pods were started and the full count does not determine it; else None."""
    return int_of(annotations_of(job).get(names.JOB_PARALLELISM_ANNOTATION, ""))


def _cleared_status(controller: str) -> JSON:
    """Return the fields that a stop removes from the status.

    The counters of a job on another cluster are what that cluster told last, and it may be lost.  Later it may tell of
    pods that are still ending.
    """
    counters = ("active", "ready", "terminating") if controller == names.MULTIKUEUE_CONTROLLER else ()
    return dict.fromkeys(("startTime", *counters))


def _restored(job: JSON, infos: Sequence[PodSetInfo]) -> JSON:
    if len(infos) != 1:
        return job
    template = restored(mapping(job, "spec", "template"), infos[0], keep_labels=_CONTROLLER_LABELS)
    sizes, written = _sizes(job, infos[0].count), _written_parallelism(job)
    if written is not None:
        sizes["parallelism"] = written
    return {**job, "spec": {**mapping(job, "spec"), "template": template, **sizes}}


def _terminal(job: Mapping[str, Any], completions: int) -> int:
    """Return the number of completions that need no pod any more."""
    status = mapping(job, "status")
    if text(job, "spec", "completionMode") != "Indexed":
        return whole(status, "succeeded") or 0
    spans = [*_spans(text(status, "completedIndexes")), *_spans(text(status, "failedIndexes"))]
    done, upto = 0, 0
    for first, last in sorted(spans):
        first, last = max(first, upto), min(last, completions - 1)
        done += max(last - first + 1, 0)
        upto = max(upto, last + 1)
    return done


def _spans(written: str) -> Iterator[tuple[int, int]]:
    """Yield closed intervals of a text like `0-2,5`; malformed and descending intervals are left out."""
    for part in written.split(","):
        match = _INTERVAL.fullmatch(part)
        if match is not None:
            first, last = int(match[1]), int(match[2] or match[1])
            if first <= last:
                yield first, last


def _partial_problems(new: JSON, old: JSON | None, switches: JobFeatures) -> Iterator[FieldError]:
    wanted = annotations_of(new)
    if _MIN in wanted and (old is None or annotations_of(old).get(_MIN) != wanted[_MIN]):
        path = f"metadata.annotations[{_MIN}]"
        minimum = _minimum(new)
        if minimum is None or not 0 < minimum < _count(new):
            yield FieldError(
                path, f"must be a whole number above 0 and below the Job's {_count(new)} pods", wanted[_MIN]
            )
        if rules.is_elastic(new, switches):
            yield FieldError(path, f"cannot be used together with {names.ELASTIC_JOB_ANNOTATION}; remove one")
    if _SYNC in wanted:
        yield from _sync_problems(new, wanted[_SYNC])


def _sync_problems(job: JSON, written: str) -> Iterator[FieldError]:
    path = f"metadata.annotations[{_SYNC}]"
    synchronous = bool_of(written)
    if synchronous is None:
        yield FieldError(path, 'must be "true" or "false"', written)
    if not synchronous:
        return
    if text(job, "spec", "completionMode") != "Indexed":
        yield FieldError(path, "needs spec.completionMode Indexed")
    completions = whole(job, "spec", "completions")
    if (1 if completions is None else completions) != _parallelism(job):
        yield FieldError(path, "needs spec.completions equal to spec.parallelism")


def _topology_problems(new: JSON, old: JSON | None, switches: JobFeatures, *, suspended: bool) -> Iterator[FieldError]:
    """Check the syntax always; check sizes against the pod count only when a user changes one of them.

    A start with fewer pods, and every write to a job that runs with fewer pods, must pass.
    """
    template = mapping(new, "spec", "template")
    changed = old is None or (
        annotations_of(template) != annotations_of(mapping(old, "spec", "template")) or _count(new) != _count(old)
    )
    yield from topology_request.job_problems(new, switches)
    yield from topology_request.problems(
        template,
        new,
        path=_TEMPLATE,
        count=_count(new) if changed and suspended else None,
        switches=switches,
        elastic=rules.is_elastic(new, switches),
    )
