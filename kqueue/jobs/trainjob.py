"""The adapter of TrainJob (trainer.kubeflow.org/v1alpha1): one pod set per replicated job of the JobSet it is run as.

A TrainJob names a runtime and fills in its JobSet template.  So the adapter reads the runtime, renders the JobSet, and
leaves the rest to the adapter of JobSets.  An admission is written to kqueue's entry of `spec.runtimePatches`, and not
to the runtime, which other TrainJobs share.  Trainer does not change a running JobSet after its runtime: of a running
job the adapter reads the JobSet, too, so that another runtime stops no job, and that pods which nobody admitted are
seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kqueue.api import kind_names
from kqueue.errors import FieldError, InvalidObjectError
from kqueue.jobs import rules, run_times
from kqueue.jobs.ancestry import controller_uid
from kqueue.jobs.fields import JSON, annotations_of, flag, mapping, objects, text
from kqueue.jobs.jobset import JobSet
from kqueue.jobs.kind import Finished, GroupVersionKind, JobContext, PodSetInfo, Refused, StopStep
from kqueue.jobs.others import Reference, other
from kqueue.jobs.patch import Patch, apply_merge_patch, merge_patch
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.template import info_of
from kqueue.jobs.training_runtime import PATCHES, as_it_runs, patched, replicated_jobs
from kqueue.kinds import JOB_SETS, TRAINING_RUNTIMES, ReadKind
from kqueue.kube import names as kube_names

_GROUP = "trainer.kubeflow.org"
_REFERENCE = "spec.runtimeRef"
_MANAGER = kind_names.RUNTIME_PATCH_MANAGER
_RUNTIMES = {kind.kind: kind for kind in TRAINING_RUNTIMES}
_JOB_SET = JobSet()


class TrainJob:
    """The adapter of TrainJob; it has no state."""

    framework = "trainer.kubeflow.org/trainjob"
    gvk = GroupVersionKind(_GROUP, "v1alpha1", "TrainJob")
    resource = "trainjobs"
    defaults_on_update = False
    held_by = "spec.suspend"
    own_controller = kube_names.TRAINJOB_CONTROLLER

    def reads(self, job: JSON) -> tuple[Reference, ...]:
        """Return the runtime that the job names, if it is one, and the JobSet of a job that is not suspended."""
        runtime = _runtime_of(job)
        return tuple(read for read in (runtime, None if self.is_suspended(job) else _job_set_of(job)) if read)

    def is_suspended(self, job: JSON) -> bool:
        """Whether `spec.suspend` is true."""
        return flag(job, "spec", "suspend")

    def holds_back(self, job: JSON) -> bool:
        """Whether `spec.suspend` is true."""
        return self.is_suspended(job)

    def suspend(self, job: JSON) -> Patch:
        """Return a patch of only `spec.suspend`."""
        return {} if self.is_suspended(job) else {"spec": {"suspend": True}}

    def active(self, job: JSON) -> bool:
        """Whether a child Job has active pods, or Trainer has not seen yet that the job is suspended."""
        return _JOB_SET.active(_as_job_set(job, ()))

    def pod_selector(self, job: JSON) -> Mapping[str, str]:
        """Return the label with the name of the JobSet, which is that of the TrainJob."""
        return {kube_names.JOBSET_NAME_LABEL: text(job, "metadata", "name")}

    def managed_by(self, job: JSON) -> str:
        """Return `spec.managedBy`, or Trainer's own controller."""
        return text(job, "spec", "managedBy") or self.own_controller

    def pod_sets(self, job: JSON, switches: JobFeatures) -> tuple[JSON, ...]:
        """Return one pod set per replicated job of the rendered JobSet.

        Between the two writes of a start the patches count as not written: the job was not started with them yet.
        """
        try:
            return _JOB_SET.pod_sets(self._rendered(job, without=_MANAGER if _is_starting(job) else ""), switches)
        except InvalidObjectError as e:
            raise _invalid(job, [self._moved(job, problem) for problem in e.errors]) from e

    def start(self, job: JSON, infos: Sequence[PodSetInfo]) -> Patch | Refused:
        """Return the patch that writes the infos to kqueue's entry; after that, the patch that unsuspends.

        Trainer accepts other patches only while the job is suspended.
        """
        plain = self._rendered(job, without=_MANAGER)
        unsuspended = _JOB_SET.start(plain, infos)
        if isinstance(unsuspended, Refused):
            return unsuspended
        started = apply_merge_patch(plain, unsuspended)
        patches: list[JSON] = []
        reasons: list[str] = []
        for before, after, info in zip(_replicated(plain), _replicated(started), infos, strict=True):
            template = _patch(_template(after), info)
            patches.append({"name": before["name"], "template": {"spec": {"template": template}}})
            reasons += _left_over(text(before, "name"), patched(_template(before), template), _template(after))
        if reasons:
            return Refused(tuple(f"{_runtime_of(job)}: {reason}" for reason in reasons))
        if not _is_starting(job):
            return merge_patch(job, _marked(_with_entry(job, patches), "true"))
        return merge_patch(job, apply_merge_patch(_marked(job, None), {"spec": {"suspend": False}}))

    def stop(self, job: JSON, infos: Sequence[PodSetInfo]) -> tuple[StopStep, ...]:
        """Return the step that suspends; after the last child Job, the one that empties kqueue's entry.

        While child Jobs are active there is no step: Trainer would refuse other patches.  `infos` are not needed.
        """
        if not self.is_suspended(job):
            return (StopStep(patch=self.suspend(job), suspends=True),)
        if self.active(job):
            return ()
        emptied = _with_entry(job, ()) if _entry(job) is not None else job
        patch = merge_patch(job, _marked(emptied, None))
        return (StopStep(patch=patch),) if patch else ()

    def finished(self, job: JSON) -> Finished | None:
        """Return the result if condition Complete or Failed is true; else None."""
        for condition in objects(job, "status", "conditions"):
            if condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True":
                return Finished(text(condition, "message"), success=condition["type"] == "Complete")
        return None

    def deadline(self, job: JSON) -> int | None:
        """Return `spec.activeDeadlineSeconds`."""
        return run_times.seconds_at(job, "spec", "activeDeadlineSeconds")

    def pods_ready(self, job: JSON) -> bool:
        """Whether the ready and succeeded child Jobs are all of the rendered JobSet's; without the runtime, as many as
        its status lists.
        """
        if not _is_known(job):
            listed = [{"replicas": 1}] * len(_statuses(job))
            return bool(listed) and _JOB_SET.pods_ready(_as_job_set(job, listed))
        return _JOB_SET.pods_ready(self._rendered(job))

    def reclaimable(self, job: JSON) -> Mapping[str, int]:
        """Return the pods of succeeded child Jobs, as for a JobSet; nothing without the runtime."""
        return _JOB_SET.reclaimable(self._rendered(job)) if _is_known(job) else {}

    def defaults(self, job: JSON, around: JobContext) -> Patch:
        """Return the patch for queue and class named `default`, the suspension of managed jobs, and kqueue's entry,
        empty, in every job.
        """
        if mapping(job, "metadata").get("deletionTimestamp"):
            return {}
        return merge_patch(job, _with_entry(rules.defaulted(job, around), ()))

    def problems(self, new: JSON, old: JSON | None, around: JobContext) -> list[FieldError]:
        """Check the shared rules, whether there is a runtime, and the topology requests of the rendered JobSet.

        An object that is being deleted has no problems, so that its finalizers can be removed.
        """
        if mapping(new, "metadata").get("deletionTimestamp"):
            return []
        found = [*rules.create_problems(new, around, elastic=False)]
        if old is not None:
            found += rules.update_problems(
                new, old, around, new_suspended=self.is_suspended(new), old_suspended=self.is_suspended(old)
            )
        if not (around.switches.topology or rules.managed(new, around)):
            return found
        if not _is_known(new):
            return [*found, self._missing(new)]
        before = self._rendered(old) if old is not None and _is_known(old) else None
        rendered = _JOB_SET.template_problems(self._rendered(new), before, around)
        return [*found, *(self._moved(new, problem) for problem in rendered)]

    def warnings(self, new: JSON, around: JobContext) -> list[str]:
        """Return warnings about topology annotations of the rendered JobSet without effect."""
        if not _is_known(new):
            return []
        found = _JOB_SET.template_warnings(self._rendered(new), around)
        return list(dict.fromkeys(f"{_runtime_of(new)}, spec.template: {warning}" for warning in found))

    # --- the JobSet --------------------------------------------------------------------------------------------

    def _rendered(self, job: JSON, *, without: str = "") -> JSON:
        """Return the JobSet that Trainer makes of the job, or has made of a running one.

        Raises:
            InvalidObjectError: there is no runtime, and no JobSet runs.
        """
        runtime, runs = _runtime(job), _running_job_set(job)
        if runtime is None and runs is None:
            raise _invalid(job, [self._missing(job)])
        replicated = replicated_jobs(job, runtime, without=without) if runtime is not None else []
        if runs is not None:
            replicated = as_it_runs(replicated, objects(runs, "spec", "replicatedJobs"))
        template = mapping(runs, "spec") if runs is not None else mapping(runtime, "spec", "template", "spec")
        return _as_job_set(job, replicated, template)

    def _missing(self, job: JSON) -> FieldError:
        named = _runtime_of(job)
        if named is not None:
            return FieldError(f"{_REFERENCE}.name", f"there is no {named}: create it, or name another", named.name)
        if _runtime_kind(job) is not None:
            return FieldError(f"{_REFERENCE}.name", "must name a runtime")
        kinds = " or ".join(_RUNTIMES)
        return FieldError(_REFERENCE, f"must be a {kinds} of {_GROUP}", dict(mapping(job, "spec", "runtimeRef")))

    def _moved(self, job: JSON, problem: FieldError) -> FieldError:
        """Return a mistake in the rendered JobSet as one of the job's runtime; others stay as they are."""
        if not problem.path.startswith("spec.replicatedJobs"):
            return problem
        where = f"{_runtime_of(job)}, spec.template.{problem.path}"
        remedy = f"correct it there or in spec.{PATCHES}"
        return replace(problem, path=_REFERENCE, problem=f"{where}: {problem.problem}; {remedy}")


def _runtime_kind(job: JSON) -> ReadKind | None:
    """Return the kind of the runtime that a job names; None: it is no kind of runtimes."""
    named = mapping(job, "spec", "runtimeRef")
    kind = _RUNTIMES.get(text(named, "kind") or "ClusterTrainingRuntime")
    return kind if text(named, "apiGroup") in ("", _GROUP) else None


def _runtime_of(job: JSON) -> Reference | None:
    """Return the runtime that a job names; None: it names none, or another kind of object."""
    kind, name = _runtime_kind(job), text(job, "spec", "runtimeRef", "name")
    if kind is None or not name:
        return None
    return Reference(kind, text(job, "metadata", "namespace") if kind.namespaced else "", name)


def _runtime(job: JSON) -> JSON | None:
    named = _runtime_of(job)
    return other(job, named) if named is not None else None


def _job_set_of(job: JSON) -> Reference:
    return Reference(JOB_SETS, text(job, "metadata", "namespace"), text(job, "metadata", "name"))


def _running_job_set(job: JSON) -> JSON | None:
    """Return the JobSet of a running job; None: it is suspended, or none belongs to the job."""
    if flag(job, "spec", "suspend"):
        return None
    found = other(job, _job_set_of(job))
    if found is None or flag(found, "spec", "suspend"):
        return None
    return found if controller_uid(found) == text(job, "metadata", "uid") else None


def _is_known(job: JSON) -> bool:
    """Whether the JobSet of a job can be rendered, or runs."""
    return _runtime(job) is not None or _running_job_set(job) is not None


def _invalid(job: JSON, problems: list[FieldError]) -> InvalidObjectError:
    return InvalidObjectError(
        f"TrainJob {text(job, 'metadata', 'namespace')}/{text(job, 'metadata', 'name')}", problems
    )


def _as_job_set(job: JSON, replicated: Sequence[Mapping[str, Any]], template: Mapping[str, Any] | None = None) -> JSON:
    """Return the JobSet of a job with its state."""
    spec = {**(template or {}), "suspend": flag(job, "spec", "suspend"), "replicatedJobs": list(replicated)}
    status = {**mapping(job, "status"), "replicatedJobsStatus": _statuses(job)}
    return {"metadata": dict(mapping(job, "metadata")), "spec": spec, "status": status}


def _statuses(job: JSON) -> list[Mapping[str, Any]]:
    return objects(job, "status", "jobsStatus")


def _replicated(job_set: JSON) -> list[Mapping[str, Any]]:
    return objects(job_set, "spec", "replicatedJobs")


def _template(replicated: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(replicated, "template", "spec", "template")


# ---- kqueue's entry --------------------------------------------------------------------------------------------------


def _is_starting(job: JSON) -> bool:
    """Whether kqueue has made the first of the two writes of a start, and the second did not follow yet."""
    return flag(job, "spec", "suspend") and kind_names.STARTING_ANNOTATION in annotations_of(job)


def _marked(job: JSON, value: str | None) -> JSON:
    if value is None and kind_names.STARTING_ANNOTATION not in annotations_of(job):
        return job
    return apply_merge_patch(job, {"metadata": {"annotations": {kind_names.STARTING_ANNOTATION: value}}})


def _entry(job: JSON) -> Mapping[str, Any] | None:
    return next((one for one in objects(job, "spec", PATCHES) if text(one, "manager") == _MANAGER), None)


def _with_entry(job: JSON, patches: Sequence[JSON]) -> JSON:
    """Return the job with these patches in kqueue's entry, which is added if it is not there."""
    entry = _entry(job) or {"manager": _MANAGER}
    spec = {key: value for key, value in _entry_spec(entry).items() if key != "replicatedJobs"}
    if patches:
        spec["replicatedJobs"] = list(patches)
    changed = apply_merge_patch(entry, {"trainingRuntimeSpec": {"template": {"spec": None}}})
    changed["trainingRuntimeSpec"]["template"]["spec"] = spec
    entries = [changed if text(one, "manager") == _MANAGER else one for one in objects(job, "spec", PATCHES)]
    if _entry(job) is None:
        entries.append(changed)
    return {**job, "spec": {**mapping(job, "spec"), PATCHES: entries}}


def _entry_spec(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(entry, "trainingRuntimeSpec", "template", "spec")


def _patch(started: Mapping[str, Any], info: PodSetInfo) -> JSON:
    """Return the patch of a pod template that adds the info.  Tolerations are replaced as a whole, so all are in it."""
    metadata: JSON = {"labels": dict(info.labels), "annotations": dict(info.annotations)}
    spec: JSON = {
        "nodeSelector": dict(info.node_selector),
        "tolerations": objects(started, "spec", "tolerations") if info.tolerations else [],
        "schedulingGates": [{"name": gate} for gate in info.scheduling_gates],
    }
    parts = {"metadata": metadata, "spec": spec}
    kept = {name: {key: value for key, value in part.items() if value} for name, part in parts.items()}
    return {name: part for name, part in kept.items() if part}


def _left_over(name: str, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names reserved for kqueue that a runtime's template has: a patch cannot take them away."""
    has, may = info_of(found, name=name), info_of(wanted, name=name)
    for what, ours, theirs in (
        ("label", has.labels, may.labels),
        ("annotation", has.annotations, may.annotations),
        ("scheduling gate", has.scheduling_gates, may.scheduling_gates),
    ):
        for key in ours:
            if key not in theirs:
                yield f"the template of replicated job {name!r} has {what} {key}, which only kqueue may set: remove it"
