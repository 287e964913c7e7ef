"""The next writes of a JobSet controller: a pure function of the JobSet and its child Jobs.

Creation, suspension and resumption of child Jobs, start order and dependencies, success and failure policies, restarts,
status and the time to live after the end work as in the JobSet project.  Left out: the headless service, exclusive
placement, the coordinator, and restarts in place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kqueue.kube.conditions import condition, is_true, with_conditions
from kqueue.kube.names import (
    CONDITION_JOB_COMPLETE,
    CONDITION_JOB_FAILED,
    JOBSET_CONTROLLER,
    JOBSET_JOB_INDEX_LABEL,
    JOBSET_NAME_LABEL,
)
from kqueue.sandbox.api import Object
from kqueue.sandbox.job_status import changed_fields
from kqueue.sandbox.json_object import controller_of, controller_reference, is_deleting, parsed_time, stamp, uid_of

_PREFIX = "jobset.sigs.k8s.io/"
REPLICATED_JOB_LABEL = f"{_PREFIX}replicatedjob-name"
REPLICAS_LABEL = f"{_PREFIX}replicatedjob-replicas"
GLOBAL_INDEX_LABEL = f"{_PREFIX}job-global-index"
GLOBAL_REPLICAS_LABEL = f"{_PREFIX}global-replicas"
GROUP_LABEL = f"{_PREFIX}group-name"
RESTART_LABEL = f"{_PREFIX}restart-attempt"
KEY_LABEL = f"{_PREFIX}job-key"
UID_LABEL = f"{_PREFIX}jobset-uid"
COMPLETED, FAILED, SUSPENDED = "Completed", "Failed", "Suspended"
_RESUMED_PARTS = ("nodeSelector", "tolerations", "schedulingGates")
"""Parts of a pod template's spec that may have changed while a JobSet was suspended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSetPlan:
    """Writes in their order; all of them may be repeated."""

    delete: tuple[Object, ...] = ()
    """Child Jobs to delete, their pods first."""
    unstart: tuple[Object, ...] = ()
    """Child Jobs whose status to write, without the start time, so that the template may change."""
    replace: tuple[Object, ...] = ()
    """Child Jobs to replace."""
    create: tuple[Object, ...] = ()
    """Child Jobs to create."""
    status: Object | None = None
    """Fields to merge into the JobSet's status; None if nothing changes."""
    expired: bool = False
    """Whether to delete the JobSet, because its time to live after the end is over."""
    look_again: float | None = None
    """Seconds until the JobSet expires; None if it does not."""


def child_of(job: Object) -> str | None:
    """Return the UID of the JobSet that controls a Job, or None."""
    owner = controller_of(job)
    return str(owner["uid"]) if owner is not None and owner.get("kind") == "JobSet" else None


def plan(job_set: Object, children: Sequence[Object], now: datetime) -> JobSetPlan:
    """Return the next writes for `job_set`.  `children` are all Jobs that it controls, terminating ones included."""
    if is_deleting(job_set) or (job_set["spec"].get("managedBy") or JOBSET_CONTROLLER) != JOBSET_CONTROLLER:
        return JobSetPlan()
    return _Round(job_set, children, now).plan()


class _Round:
    """The planning of one JobSet at one time."""

    def __init__(self, job_set: Object, children: Sequence[Object], now: datetime) -> None:
        self.job_set, self.now = job_set, now
        self.spec, self.status = job_set["spec"], job_set.get("status") or {}
        self.replicated: list[Object] = self.spec.get("replicatedJobs") or []
        self.restarts = int(self.status.get("restarts") or 0)
        present = [job for job in children if not is_deleting(job)]
        self.names = {job["metadata"]["name"] for job in children}
        self.old = [job for job in present if _attempt(job) < self.restarts]
        self.jobs = [job for job in present if _attempt(job) >= self.restarts]
        self.suspended = bool(self.spec.get("suspend"))

    def plan(self) -> JobSetPlan:
        if self._has(COMPLETED) or self._has(FAILED):
            return self._after_the_end()
        counted = self._status(self._counts())
        failed = [job for job in self.jobs if is_true(job, CONDITION_JOB_FAILED)]
        if failed:
            return JobSetPlan(status=self._status({**self._counts(), **self._on_failure(failed)}))
        if self._succeeded():
            return JobSetPlan(
                status=self._status(
                    {**self._counts(), **self._end(COMPLETED, "AllJobsCompleted", "completed successfully")}
                )
            )
        if self.old:
            return JobSetPlan(delete=tuple(self.old), status=counted)
        unstart, replace = self._adjusted()
        return JobSetPlan(
            unstart=unstart,
            replace=replace,
            create=tuple(self._missing()),
            status=self._status({**self._counts(), **self._suspension()}),
        )

    # --- status

    def _has(self, kind: str) -> bool:
        return is_true(self.job_set, kind)

    def _status(self, wanted: Object) -> Object | None:
        return changed_fields(self.status, wanted) or None

    def _conditions(self, kind: str, status: str, reason: str, message: str) -> Object:
        change = {"type": kind, "status": status, "reason": reason, "message": message}
        return {"conditions": with_conditions(self.status.get("conditions") or [], [change], stamp(self.now))}

    def _counts(self) -> Object:
        counts = [self._count(replicated["name"]) for replicated in self.replicated]
        return {"restarts": self.restarts, "replicatedJobsStatus": counts}

    def _of(self, name: str) -> list[Object]:
        return [job for job in self.jobs if _labels(job).get(REPLICATED_JOB_LABEL) == name]

    def _count(self, name: str) -> Object:
        jobs = self._of(name)
        running = [job for job in jobs if not _has_ended(job)]
        return {
            "name": name,
            "ready": sum(map(_is_ready, running)),
            "succeeded": sum(is_true(job, CONDITION_JOB_COMPLETE) for job in jobs),
            "failed": sum(is_true(job, CONDITION_JOB_FAILED) for job in jobs),
            "active": sum(bool((job.get("status") or {}).get("active")) for job in running),
            "suspended": sum(bool(job["spec"].get("suspend")) for job in running),
        }

    def _suspension(self) -> Object:
        present = condition(self.job_set, SUSPENDED)
        if self.suspended:
            return self._conditions(SUSPENDED, "True", "SuspendedJobs", "jobset is suspended")
        if present is not None and present["status"] == "True":
            return self._conditions(SUSPENDED, "False", "ResumedJobs", "jobset is resumed")
        return {}

    def _end(self, kind: str, reason: str, text: str) -> Object:
        return {**self._conditions(kind, "True", reason, f"jobset {text}"), "terminalState": kind}

    # --- ends

    def _after_the_end(self) -> JobSetPlan:
        """Return the plan of an ended JobSet: delete active children; expire after the time to live."""
        running = tuple(job for job in self.jobs if not _has_ended(job))
        ttl = self.spec.get("ttlSecondsAfterFinished")
        left = None
        if ttl is not None:
            end = condition(self.job_set, COMPLETED) or condition(self.job_set, FAILED) or {}
            ended = parsed_time(end.get("lastTransitionTime")) or self.now
            left = float(ttl) - (self.now - ended).total_seconds()
        expired = left is not None and left <= 0
        return JobSetPlan(
            delete=running,
            status=self._status(self._counts()),
            expired=expired,
            look_again=None if expired else left,
        )

    def _succeeded(self) -> bool:
        policy = self.spec.get("successPolicy") or {}
        targets = policy.get("targetReplicatedJobs") or [replicated["name"] for replicated in self.replicated]
        wanted = sum(_replicas(replicated) for replicated in self.replicated if replicated["name"] in targets)
        done = sum(is_true(job, CONDITION_JOB_COMPLETE) for name in targets for job in self._of(name))
        if policy.get("operator") == "Any":
            return done > 0
        return done >= wanted and not self.suspended

    def _on_failure(self, failed: Sequence[Object]) -> Object:
        """Return a status that fails the JobSet or restarts it."""
        policy = self.spec.get("failurePolicy")
        first = min(failed, key=lambda job: (_failed_since(job), job["metadata"]["name"]))
        which = f"(first failed job: {first['metadata']['name']})"
        if policy is None:
            return self._end(FAILED, "FailedJobs", f"failed due to one or more job failures {which}")
        action = _action(policy, first)
        if action == "FailJobSet":
            return self._end(FAILED, "FailJobSetFailurePolicyAction", f"failed by a failure policy rule {which}")
        counted = int(self.status.get("restartsCountTowardsMax") or 0)
        if action == "RestartJobSetAndIgnoreMaxRestarts":
            return {"restarts": self.restarts + 1}
        if counted >= int(policy.get("maxRestarts") or 0):
            return self._end(FAILED, "ReachedMaxRestarts", f"failed due to reaching max number of restarts {which}")
        return {"restarts": self.restarts + 1, "restartsCountTowardsMax": counted + 1}

    # --- child Jobs

    def _may_run(self) -> Iterator[Object]:
        """Yield the replicated jobs that start order and dependencies allow to run, in order."""
        in_order = (self.spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"
        for replicated in self.replicated:
            if all(self._has_come(each["name"], each["status"]) for each in replicated.get("dependsOn") or ()):
                yield replicated
            if in_order and not self._has_come(replicated["name"], "Ready"):
                return

    def _has_come(self, name: str, to: str) -> bool:
        wanted = next((_replicas(each) for each in self.replicated if each["name"] == name), 0)
        count = self._count(name)
        return bool(count["succeeded"] + (count["ready"] if to == "Ready" else 0) >= wanted)

    def _adjusted(self) -> tuple[tuple[Object, ...], tuple[Object, ...]]:
        """Return (unstart, replace) for children to suspend or resume; a child that ran before loses its start time."""
        running = [job for job in self.jobs if not _has_ended(job)]
        if self.suspended:
            return (), tuple(_with_spec(job, suspend=True) for job in running if not job["spec"].get("suspend"))
        templates = {each["name"]: each["template"]["spec"].get("template") or {} for each in self._may_run()}
        held = [
            job
            for job in running
            if job["spec"].get("suspend") and _labels(job).get(REPLICATED_JOB_LABEL, "") in templates
        ]
        started = [job for job in held if (job.get("status") or {}).get("startTime")]
        if started:
            return tuple(_without_start(job) for job in started), ()
        return (), tuple(_resumed(job, templates[_labels(job)[REPLICATED_JOB_LABEL]]) for job in held)

    def _missing(self) -> Iterator[Object]:
        begin, begins = 0, {}
        for replicated in self.replicated:
            begins[replicated["name"]] = begin
            begin += _replicas(replicated)
        for replicated in self.replicated if self.suspended else self._may_run():
            for index in range(_replicas(replicated)):
                name = f"{self.job_set['metadata']['name']}-{replicated['name']}-{index}"
                if name not in self.names:
                    yield self._job(name, replicated, index, begins[replicated["name"]] + index, begin)

    def _job(self, name: str, replicated: Object, index: int, number: int, of_all: int) -> Object:
        owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", **self.job_set}
        metadata, spec = replicated["template"].get("metadata") or {}, replicated["template"]["spec"]
        namespace = self.job_set["metadata"]["namespace"]
        marks = {
            JOBSET_NAME_LABEL: self.job_set["metadata"]["name"],
            UID_LABEL: uid_of(self.job_set),
            REPLICATED_JOB_LABEL: replicated["name"],
            REPLICAS_LABEL: str(_replicas(replicated)),
            GROUP_LABEL: replicated.get("groupName") or "default",
            GLOBAL_REPLICAS_LABEL: str(of_all),
            JOBSET_JOB_INDEX_LABEL: str(index),
            GLOBAL_INDEX_LABEL: str(number),
            RESTART_LABEL: str(self.restarts),
            KEY_LABEL: hashlib.sha1(f"{namespace}/{name}".encode(), usedforsecurity=False).hexdigest(),
        }
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "namespace": namespace,
                **_marked(metadata, marks),
                "ownerReferences": [controller_reference(owner)],
            },
            "spec": {
                "completionMode": "Indexed",
                **spec,
                "suspend": self.suspended,
                "template": self._template(spec.get("template") or {}, marks),
            },
        }

    def _template(self, template: Object, marks: Mapping[str, str]) -> Object:
        network = self.spec.get("network") or {}
        own: Object = {"restartPolicy": "OnFailure"}
        if network.get("enableDNSHostnames", True):
            own["subdomain"] = network.get("subdomain") or self.job_set["metadata"]["name"]
        metadata = template.get("metadata") or {}
        return {"metadata": {**metadata, **_marked(metadata, marks)}, "spec": {**own, **(template.get("spec") or {})}}


def _marked(metadata: Mapping[str, Any], marks: Mapping[str, str]) -> Object:
    """Return labels and annotations of a child: the user's, and marks of its JobSet."""
    return {key: {**(metadata.get(key) or {}), **marks} for key in ("labels", "annotations")}


def _labels(job: Object) -> Mapping[str, str]:
    found: Mapping[str, str] = job["metadata"].get("labels") or {}
    return found


def _attempt(job: Object) -> int:
    written = _labels(job).get(RESTART_LABEL, "")
    return int(written) if written.isdecimal() else 0


def _replicas(replicated: Object) -> int:
    return max(0, int(replicated.get("replicas", 1)))


def _has_ended(job: Object) -> bool:
    return is_true(job, CONDITION_JOB_COMPLETE) or is_true(job, CONDITION_JOB_FAILED)


def _is_ready(job: Object) -> bool:
    """Whether the Job's parallelism of pods is ready or has succeeded."""
    status, spec = job.get("status") or {}, job["spec"]
    parallelism = int(spec.get("parallelism", 1))
    wanted = min(parallelism, int(spec.get("completions") or parallelism))
    return bool(not spec.get("suspend") and (status.get("ready") or 0) + (status.get("succeeded") or 0) >= wanted)


def _failed_since(job: Object) -> str:
    return str((condition(job, CONDITION_JOB_FAILED) or {}).get("lastTransitionTime", ""))


def _action(policy: Object, failed: Object) -> str:
    """Return the action of the first rule that matches the failed Job; by default a restart that counts."""
    reason = (condition(failed, CONDITION_JOB_FAILED) or {}).get("reason")
    name = _labels(failed).get(REPLICATED_JOB_LABEL)
    for rule in policy.get("rules") or ():
        reasons, targets = rule.get("onJobFailureReasons"), rule.get("targetReplicatedJobs")
        if (not reasons or reason in reasons) and (not targets or name in targets):
            return str(rule["action"])
    return "RestartJobSet"


def _with_spec(job: Object, **spec: Any) -> Object:
    return {**job, "spec": {**job["spec"], **spec}}


def _without_start(job: Object) -> Object:
    status = {key: value for key, value in job["status"].items() if key != "startTime"}
    return {**job, "status": status}


def _resumed(job: Object, template: Object) -> Object:
    """Return the child Job resumed, with the template's changes since the suspension."""
    old, own, theirs = job["spec"]["template"], template.get("spec") or {}, template.get("metadata") or {}
    metadata = old.get("metadata") or {}
    spec = {key: value for key, value in old["spec"].items() if key not in _RESUMED_PARTS}
    spec |= {key: own[key] for key in _RESUMED_PARTS if own.get(key)}
    merged = {key: {**(metadata.get(key) or {}), **(theirs.get(key) or {})} for key in ("labels", "annotations")}
    return _with_spec(job, suspend=False, template={**old, "metadata": {**metadata, **merged}, "spec": spec})
