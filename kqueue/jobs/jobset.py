"""The adapter of JobSet (jobset.x-k8s.io/v1alpha2): one pod set per replicated job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kqueue.api import names
from kqueue.api.bounds import INT32_MAX
from kqueue.errors import FieldError, InvalidObjectError
from kqueue.jobs import pod_set_groups, rules, run_times, several, syntax, topology_request
from kqueue.jobs.fields import (
    JSON,
    annotations_of,
    condition_status,
    flag,
    mapping,
    objects,
    sequence,
    text,
    whole,
)
from kqueue.jobs.kind import Finished, GroupVersionKind, JobContext, PodSetInfo, Refused, StopStep
from kqueue.jobs.patch import Patch, merge_patch
from kqueue.jobs.pod_set_groups import GroupMember
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.template import as_pod_set
from kqueue.kube import names as kube_names

_EXCLUSIVE = kube_names.JOBSET_EXCLUSIVE_TOPOLOGY_ANNOTATION
_ALWAYS_RESTARTS = "RestartJobSetAndIgnoreMaxRestarts"
"""Action of a failure policy rule."""
_LIMITED = ("FailJobSet", "RestartJobSet")
"""Actions of failure policy rules after which a JobSet ends, or has one restart less."""


class JobSet:
    """The adapter of JobSet; it has no state."""

    framework = "jobset.x-k8s.io/jobset"
    gvk = GroupVersionKind("jobset.x-k8s.io", "v1alpha2", "JobSet")
    resource = "jobsets"
    defaults_on_update = False
    held_by = "spec.suspend"
    own_controller = kube_names.JOBSET_CONTROLLER

    def is_suspended(self, job: JSON) -> bool:
        """Whether `spec.suspend` is true."""
        return flag(job, "spec", "suspend")

    def holds_back(self, job: JSON) -> bool:
        """Whether `spec.suspend` is true."""
        return flag(job, "spec", "suspend")

    def suspend(self, job: JSON) -> Patch:
        """Return a patch of only `spec.suspend`."""
        return {} if self.is_suspended(job) else {"spec": {"suspend": True}}

    def active(self, job: JSON) -> bool:
        """Whether a child Job has active pods, or the JobSet controller has not seen yet that the JobSet is
        suspended.
        """
        if self.is_suspended(job) and condition_status(job, "Suspended") == "False":
            return True  # its counts may be older than pods that the controller still creates
        return any(whole(status, "active") for status in _statuses(job))

    def pod_selector(self, job: JSON) -> Mapping[str, str]:
        """Return the label with the JobSet's name, which the JobSet controller puts on all pods."""
        return {kube_names.JOBSET_NAME_LABEL: text(job, "metadata", "name")}

    def managed_by(self, job: JSON) -> str:
        """Return `spec.managedBy`, or the JobSet project's own controller."""
        return text(job, "spec", "managedBy") or self.own_controller

    def pod_sets(self, job: JSON, switches: JobFeatures) -> tuple[JSON, ...]:
        """Return one pod set per replicated job, in their order."""
        mistakes = [
            *_shape_problems(job),
            *topology_request.job_problems(job, switches),
            *(
                problem
                for path, replicated in _replicated(job)
                for problem in topology_request.problems(
                    _template(replicated), job, path=path, count=None, switches=switches
                )
            ),
        ]
        if mistakes:
            raise InvalidObjectError(
                f"JobSet {text(job, 'metadata', 'namespace')}/{text(job, 'metadata', 'name')}", mistakes
            )
        return tuple(_pod_set(replicated, job, switches) for _, replicated in _replicated(job))

    def start(self, job: JSON, infos: Sequence[PodSetInfo]) -> Patch | Refused:
        """Return the patch that unsuspends, with each info merged into the template of its replicated job."""
        templates = several.started("JobSet", _templates(job), infos)
        if isinstance(templates, Refused):
            return templates
        clashes = tuple(_exclusive_clashes(job, infos))
        if clashes:
            return Refused(clashes)
        return merge_patch(job, _with_templates(job, templates, suspend=False))

    def stop(self, job: JSON, infos: Sequence[PodSetInfo]) -> tuple[StopStep, ...]:
        """Return one step that suspends and restores: a JobSet's templates may change with the suspension.

        Templates stay unchanged if there are not as many `infos` as replicated jobs.
        """
        templates = several.stopped(_templates(job), infos)
        patch = merge_patch(job, _with_templates(job, templates, suspend=True))
        return (StopStep(patch=patch, suspends=not self.is_suspended(job)),) if patch else ()

    def finished(self, job: JSON) -> Finished | None:
        """Return the result if condition Completed or Failed is true; else None."""
        for condition in objects(job, "status", "conditions"):
            if condition.get("type") in ("Completed", "Failed") and condition.get("status") == "True":
                return Finished(text(condition, "message"), success=condition["type"] == "Completed")
        return None

    def deadline(self, job: JSON) -> int | None:
        """Return the longest deadline of a child Job, the sum where one waits for another, times the restarts.

        None: a child Job has no deadline, or a rule restarts Jobs without a limit.
        """
        limits = [run_times.seconds_at(one, "template", "spec", "activeDeadlineSeconds") for _, one in _replicated(job)]
        policy = mapping(job, "spec", "failurePolicy")
        known = [limit for limit in limits if limit is not None]
        if not known or len(known) < len(limits) or not _limits_restarts(policy):
            return None
        once = sum(known) if _starts_in_order(job) else max(known)
        return once * (1 + max(0, whole(policy, "maxRestarts") or 0))

    def pods_ready(self, job: JSON) -> bool:
        """Whether the ready and succeeded child Jobs are all that the JobSet requests."""
        wanted = sum(_replicas(replicated) for _, replicated in _replicated(job))
        return wanted <= sum(
            (whole(status, "ready") or 0) + (whole(status, "succeeded") or 0) for status in _statuses(job)
        )

    def reclaimable(self, job: JSON) -> Mapping[str, int]:
        """Return the pods of succeeded child Jobs; none while a failure could restart the whole JobSet.

        A restart creates all child Jobs again, also succeeded ones, which then need their quota and places.
        """
        if _may_restart(job):
            return {}
        succeeded = {text(status, "name"): whole(status, "succeeded") or 0 for status in _statuses(job)}
        found: dict[str, int] = {}
        for _, replicated in _replicated(job):
            done = succeeded.get(text(replicated, "name"), 0)
            if 0 < done <= _replicas(replicated):
                found[_pod_set_name(replicated)] = done * _pods_of_each(replicated)
        return {name: pods for name, pods in found.items() if pods}

    def defaults(self, job: JSON, around: JobContext) -> Patch:
        """Return the patch for queue and class named `default`, and the suspension of managed JobSets."""
        if mapping(job, "metadata").get("deletionTimestamp"):
            return {}
        return merge_patch(job, rules.defaulted(job, around))

    def problems(self, new: JSON, old: JSON | None, around: JobContext) -> list[FieldError]:
        """Check the shared rules, topology per replicated job and per group, and whether a Workload can be created at
        all.

        An object that is being deleted has no problems, so that its finalizers can be removed.
        """
        if mapping(new, "metadata").get("deletionTimestamp"):
            return []
        return [
            *rules.create_problems(new, around, elastic=False),
            *([] if old is None else self._change_problems(new, old, around)),
            *self.template_problems(new, old, around),
        ]

    def template_problems(self, new: JSON, old: JSON | None, around: JobContext) -> Iterator[FieldError]:
        """Yield the mistakes in the replicated jobs: what cannot become a pod set, and their topology requests."""
        switches = around.switches
        known = [] if old is None else _exclusive_problems(old, switches)
        yield from _shape_problems(new) if rules.managed(new, around) else ()
        yield from self._topology_problems(new, old, switches)
        yield from (problem for problem in _exclusive_problems(new, switches) if problem not in known)

    def warnings(self, new: JSON, around: JobContext) -> list[str]:
        """Return warnings about annotations that have no effect, or another effect than expected."""
        found: list[str] = []
        if names.JOB_MIN_PARALLELISM_ANNOTATION in annotations_of(new):
            path = syntax.entry_path("metadata.annotations", names.JOB_MIN_PARALLELISM_ANNOTATION)
            found.append(f"{path} is ignored: a JobSet starts with all of its pods or not at all")
        return list(dict.fromkeys([*found, *self.template_warnings(new, around)]))

    def template_warnings(self, new: JSON, around: JobContext) -> Iterator[str]:
        """Yield warnings about the topology requests of the replicated jobs."""
        if not around.switches.topology:
            return
        for path, replicated in _replicated(new):
            yield from topology_request.warnings(_template(replicated), new, path=path)
        if any(True for _ in _exclusive_paths(new)) and not _exclusive_problems(new, around.switches):
            controller = f"{_EXCLUSIVE} is left to the JobSet controller"
            yield f"{controller}; on a flavor with a topology the JobSet will not start"

    def _change_problems(self, new: JSON, old: JSON, around: JobContext) -> Iterator[FieldError]:
        yield from rules.update_problems(
            new, old, around, new_suspended=self.is_suspended(new), old_suspended=self.is_suspended(old)
        )

    def _topology_problems(self, new: JSON, old: JSON | None, switches: JobFeatures) -> Iterator[FieldError]:
        """Check the syntax always; check sizes against pod counts only when a user changes one of them on a stopped
        JobSet.
        """
        stays_suspended = old is None or (self.is_suspended(old) and self.is_suspended(new))
        before = {text(replicated, "name"): replicated for _, replicated in _replicated(old or {})}
        yield from topology_request.job_problems(new, switches)
        for path, replicated in _replicated(new):
            changed = _request_changed(replicated, before.get(text(replicated, "name")))
            yield from topology_request.problems(
                _template(replicated),
                new,
                path=path,
                count=_count(replicated) if changed and stays_suspended else None,
                switches=switches,
            )
        members = [
            GroupMember(path, _template(replicated), _count(replicated)) for path, replicated in _replicated(new)
        ]
        yield from pod_set_groups.problems(members, new, switches)


def _replicated(job: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (path of the pod template, replicated job), in order."""
    for number, replicated in enumerate(objects(job, "spec", "replicatedJobs")):
        yield f"spec.replicatedJobs[{number}].template.spec.template", replicated


def _templates(job: Mapping[str, Any]) -> list[several.Placed]:
    return [(path, _template(replicated)) for path, replicated in _replicated(job)]


def _template(replicated: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(replicated, "template", "spec", "template")


def _statuses(job: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return objects(job, "status", "replicatedJobsStatus")


def _pod_set_name(replicated: Mapping[str, Any]) -> str:
    return text(replicated, "name").lower()


def _replicas(replicated: Mapping[str, Any]) -> int:
    replicas = whole(replicated, "replicas")
    return 1 if replicas is None else replicas


def _pods_of_each(replicated: Mapping[str, Any]) -> int:
    """Return the number of pods that one child Job runs at the same time."""
    spec = mapping(replicated, "template", "spec")
    parallelism, completions = whole(spec, "parallelism"), whole(spec, "completions")
    parallelism = 1 if parallelism is None else parallelism
    return parallelism if completions is None else min(parallelism, completions)


def _count(replicated: Mapping[str, Any]) -> int:
    return _replicas(replicated) * _pods_of_each(replicated)


def _pod_set(replicated: Mapping[str, Any], job: JSON, switches: JobFeatures) -> JSON:
    template = _template(replicated)
    pod_set: JSON = {
        "name": _pod_set_name(replicated),
        "count": _count(replicated),
        "template": as_pod_set(template),
    }
    index = topology_request.IndexLabels(
        pod=kube_names.JOB_COMPLETION_INDEX_LABEL,
        sub_group=kube_names.JOBSET_JOB_INDEX_LABEL,
        sub_groups=_replicas(replicated),
    )
    request = topology_request.topology_request(template, job, index=index, switches=switches)
    if request is not None:
        pod_set["topologyRequest"] = request
    return pod_set


def _with_templates(job: JSON, templates: Sequence[JSON], *, suspend: bool) -> JSON:
    replicated: list[JSON] = []
    for one, template in zip(objects(job, "spec", "replicatedJobs"), templates, strict=True):
        child = mapping(one, "template")
        written = {**child, "spec": {**mapping(child, "spec"), "template": template}}
        replicated.append({**one, "template": written} if template or _template(one) else dict(one))
    return {**job, "spec": {**mapping(job, "spec"), "suspend": suspend, "replicatedJobs": replicated}}


def _may_restart(job: Mapping[str, Any]) -> bool:
    policy = mapping(job, "spec", "failurePolicy")
    if any(rule.get("action") == _ALWAYS_RESTARTS for rule in objects(policy, "rules")):
        return True
    used = whole(job, "status", "restartsCountTowardsMax")
    used = whole(job, "status", "restarts") if used is None else used
    return (whole(policy, "maxRestarts") or 0) > (used or 0)


def _limits_restarts(policy: Mapping[str, Any]) -> bool:
    """Whether every rule of the failure policy ends the JobSet, or restarts it at most `maxRestarts` times."""
    return all(rule.get("action") in _LIMITED for rule in objects(policy, "rules"))


def _starts_in_order(job: Mapping[str, Any]) -> bool:
    """Whether a child Job may wait for another one."""
    in_order = text(job, "spec", "startupPolicy", "startupPolicyOrder") == "InOrder"
    return in_order or any(sequence(one, "dependsOn") for _, one in _replicated(job))


def _request_changed(replicated: Mapping[str, Any], before: Mapping[str, Any] | None) -> bool:
    return (
        before is None
        or annotations_of(_template(replicated)) != annotations_of(_template(before))
        or _count(replicated) != _count(before)
    )


# ---- Jobs without a Workload -----------------------------------------------------------------------------------------


def _shape_problems(job: Mapping[str, Any]) -> Iterator[FieldError]:
    """Check for replicated jobs that cannot become pod sets: too many, none, without a valid name, with impossible
    numbers.
    """
    replicated = objects(job, "spec", "replicatedJobs")
    if not 0 < len(replicated) <= names.MAX_PODSETS:
        problem = f"a queued JobSet has 1 to {names.MAX_PODSETS} replicated jobs, this one has {len(replicated)}"
        yield FieldError("spec.replicatedJobs", problem)
    called = ((f"spec.replicatedJobs[{number}].name", _pod_set_name(one)) for number, one in enumerate(replicated))
    yield from several.name_problems(called)
    for number, one in enumerate(replicated):
        yield from _size_problems(one, f"spec.replicatedJobs[{number}]")


def _size_problems(replicated: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    numbers = {"replicas": _replicas(replicated)}
    for key in ("parallelism", "completions"):
        numbers[f"template.spec.{key}"] = whole(replicated, "template", "spec", key) or 0
    negative = [key for key, number in numbers.items() if number < 0]
    for key in negative:
        yield FieldError(f"{path}.{key}", "must be 0 or more", numbers[key])
    if not negative and _count(replicated) > INT32_MAX:
        yield FieldError(f"{path}.replicas", f"times parallelism makes more than {INT32_MAX} pods", numbers["replicas"])


# ---- Exclusive placement ---------------------------------------------------------------------------------------------


def _exclusive_paths(job: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (path of the annotation, path of the pod template that it concerns; empty: it concerns all)."""
    if _EXCLUSIVE in annotations_of(job):
        yield syntax.entry_path("metadata.annotations", _EXCLUSIVE), ""
    for number, (path, replicated) in enumerate(_replicated(job)):
        outer = f"spec.replicatedJobs[{number}].template"
        for at, owner in ((outer, mapping(replicated, "template")), (path, _template(replicated))):
            if _EXCLUSIVE in annotations_of(owner):
                yield syntax.entry_path(f"{at}.metadata.annotations", _EXCLUSIVE), path


def _exclusive_problems(job: Mapping[str, Any], switches: JobFeatures) -> list[FieldError]:
    """Return the mistakes of exclusive placement together with a topology request of kqueue.

    The JobSet controller assigns existing pods to domains, and kqueue chooses domains before the pods exist.  If both
    placed a gang, it would stay half-started.
    """
    if not switches.topology:
        return []
    asking = {path for path, replicated in _replicated(job) if topology_request.asks(_template(replicated), job)}
    return [
        FieldError(
            path,
            "places pods on its own and cannot be used together with a topology request of kueue.x-k8s.io; remove it, "
            f"or ask for {topology_request.SLICE_LEVEL} with {topology_request.SLICE_SIZE} (the pods of one child Job)",
        )
        for path, concerned in _exclusive_paths(job)
        if (concerned in asking if concerned else asking)
    ]


def _exclusive_clashes(job: Mapping[str, Any], infos: Sequence[PodSetInfo]) -> Iterator[str]:
    """Return why a JobSet with exclusive placement cannot start on the chosen hosts."""
    placed = {
        path for (path, _), info in zip(_replicated(job), infos, strict=True)
        if names.TOPOLOGY_GATE in info.scheduling_gates
    }  # fmt: skip
    for path, concerned in _exclusive_paths(job):
        if concerned in placed if concerned else placed:
            yield f"{path} places pods on its own, and the flavor has a topology: use a flavor without, or remove it"
