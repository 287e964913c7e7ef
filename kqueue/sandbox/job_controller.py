"""The simulated Job controller: creates, counts and deletes the pods of batch/v1 Jobs, and writes the Jobs' status.

Parallelism, completions, both completion modes, suspension, back-off, deadline, clean-up after the end, counting under
finalizers, `managedBy` and both pod replacement policies work as in Kubernetes.  Left out: success policies, pod
failure policies, back-off per index, and adoption of pods by selector.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kqueue.clock import Clock, utc_text
from kqueue.errors import ApiError, NotFoundError
from kqueue.kube.conditions import condition, is_true, with_conditions
from kqueue.kube.names import (
    CONDITION_JOB_COMPLETE,
    CONDITION_JOB_FAILED,
    CONDITION_JOB_SUSPENDED,
    CONTROLLER_UID_LABEL,
    JOB_COMPLETION_INDEX_LABEL,
    JOB_CONTROLLER,
    JOB_NAME_LABEL,
    LEGACY_CONTROLLER_UID_LABEL,
    LEGACY_JOB_NAME_LABEL,
)
from kqueue.sandbox.api import CORE_EVENTS, JOBS, PODS, Api, Object
from kqueue.sandbox.controller_loop import ControllerLoop
from kqueue.sandbox.job_status import (
    TRACKING_FINALIZER,
    JobOutcome,
    JobSettings,
    JobTally,
    changed_fields,
    completion_index,
    deadline_left,
    format_indexes,
    has_succeeded,
    is_active,
    is_ready,
    is_tracked,
    missing_indexes,
    present_outcome,
    surplus,
    tally,
    wanted_active,
    wanted_outcome,
)
from kqueue.sandbox.json_object import (
    controller_of,
    controller_reference,
    is_deleting,
    is_terminal,
    key_of,
    parsed_time,
    split_key,
    stamp,
    uid_of,
)
from kqueue.sandbox.mirror import Mirror

_T = TypeVar("_T")
_FIRST_BACKOFF_SECONDS, _LONGEST_BACKOFF_SECONDS = 10.0, 600.0  # as Kubernetes
_LONGEST_NOTE = 1024  # characters of an event's message, as Kubernetes
_MOST_AT_ONCE = 64  # concurrent writes of pods
_SMALL = 50  # for a Job with more pods, pod events are batched for a while, as Kubernetes does for a second
_LONGEST_GATHERING_SECONDS = 1.0
_PODS_PER_GATHERING_SECOND = 2_000


@dataclass(slots=True)
class _Backoff:
    """Count of consecutive failed pods, monotonic time of the last one, and the UIDs that were counted last."""

    failures: int = 0
    last: float = 0.0
    noted: frozenset[str] = frozenset()

    def note(self, news: Sequence[Object], now: float) -> None:
        """Count ended pods, in their order; the same pods again (after a failed write) change nothing."""
        for pod in news:
            if uid_of(pod) in self.noted:
                continue
            if has_succeeded(pod):
                self.failures = 0
            else:
                self.failures, self.last = self.failures + 1, now
        self.noted = frozenset(map(uid_of, news))

    def left(self, now: float) -> float:
        """Return seconds until the next pod may be created."""
        if not self.failures:
            return 0.0
        pause = _FIRST_BACKOFF_SECONDS * 2 ** min(self.failures - 1, 16)
        return float(self.last + min(pause, _LONGEST_BACKOFF_SECONDS) - now)


class JobController:
    """Runs Jobs.  Pods are found by the UID of the Job that controls them."""

    def __init__(self, api: Api, *, jobs: Mirror, pods: Mirror, clock: Clock) -> None:
        self._api, self._clock = api, clock
        self._jobs, self._pods = jobs, pods
        self._backoff: dict[str, _Backoff] = {}  # by UID of the Job
        self._complaints: dict[str, str] = {}  # by UID of the Job: text of its last event about failed writes
        self.loop = ControllerLoop("job", self._reconcile, clock=clock)
        self.strays = ControllerLoop("pods without job", self._free_stray, clock=clock)
        pods.add_index("job", job_uid)
        jobs.on_change(self._on_job)
        pods.on_change(self._on_pod)

    async def run(self) -> None:
        """Run Jobs until cancelled."""
        await self._pods.synced.wait()
        await self._jobs.synced.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.loop.run())
            group.create_task(self.strays.run())

    def _on_job(self, old: Object | None, new: Object | None) -> None:
        if new is not None:
            self.loop.add(key_of(new))
        if old is not None and (new is None or uid_of(new) != uid_of(old)):
            self._backoff.pop(uid_of(old), None)
            self._complaints.pop(uid_of(old), None)
            for key in self._pods.by("job", uid_of(old)):
                self.strays.add(key)

    def _on_pod(self, old: Object | None, new: Object | None) -> None:
        pod = new or old
        assert pod is not None
        uid = job_uid(pod)
        if new is not None and is_tracked(new) and (uid is None or not self._has_job(new)):
            self.strays.add(key_of(new))
        if uid is None:
            return
        many = len(self._pods.by("job", uid))
        owner = controller_of(pod) or {}
        window = 0.0 if many <= _SMALL else min(_LONGEST_GATHERING_SECONDS, many / _PODS_PER_GATHERING_SECOND)
        self.loop.add_after(f"{pod['metadata']['namespace']}/{owner['name']}", window)

    def _has_job(self, pod: Object) -> bool:
        owner = controller_of(pod) or {}
        job = self._jobs.get(f"{pod['metadata']['namespace']}/{owner.get('name')}")
        return job is not None and uid_of(job) == owner.get("uid")

    async def _free_stray(self, key: str) -> None:
        """Remove the finalizer from a pod that no Job will count."""
        namespace, name = split_key(key)
        try:
            pod = self._api.get(PODS, name, namespace=namespace)
            owner = controller_of(pod)
            if not is_tracked(pod) or (owner is not None and self._counts(owner, namespace)):
                return
            await self._untrack(pod)
        except NotFoundError:
            return

    def _counts(self, owner: Object, namespace: str | None) -> bool:
        if not _is_job(owner):
            return False
        try:
            return uid_of(self._api.get(JOBS, owner["name"], namespace=namespace)) == owner.get("uid")
        except NotFoundError:
            return False

    async def _reconcile(self, key: str) -> float | None:
        namespace, name = split_key(key)
        try:
            job = self._api.get(JOBS, name, namespace=namespace)
        except NotFoundError:
            return None
        if (job["spec"].get("managedBy") or JOB_CONTROLLER) != JOB_CONTROLLER:
            return None
        try:
            if is_deleting(job):
                await self._each([p for p in self._present(job) if is_tracked(p)], self._untrack)
                return None
            if is_true(job, CONDITION_JOB_COMPLETE) or is_true(job, CONDITION_JOB_FAILED):
                return await self._clean_up(job)
            return await self._run_job(job)
        except NotFoundError:  # the Job or one of its pods was deleted meanwhile: reconcile again
            self.loop.add(key)
            return None

    def _present(self, job: Object) -> list[Object]:
        return list(self._pods.by("job", uid_of(job)).values())

    async def _run_job(self, job: Object) -> float | None:
        """Do one round: count ended pods, create or delete pods, write the status, release counted pods."""
        spec, pods = JobSettings.of(job), self._present(job)
        counts = tally(job, pods, spec)
        backoff = self._backoff.setdefault(uid_of(job), _Backoff())
        backoff.note(counts.news, self._clock.monotonic())
        active = [pod for pod in pods if is_active(pod)]
        left = deadline_left(job, spec, self._clock.now())
        late = left is not None and left.total_seconds() <= 0
        outcome = present_outcome(job) or wanted_outcome(counts, spec, active=len(active), deadline_passed=late)
        failure: ApiError | None = None
        try:
            if outcome is not None:
                await self._each(active, self._delete)
            else:
                await self._adjust(job, spec, counts, pods)
        except ApiError as error:
            failure = error
        await self._write_status(job, spec, counts, outcome)
        await self._each(counts.countable, self._untrack)
        if failure is not None:
            await self._complain(job, str(failure))
            raise failure
        waits = [] if left is None or late else [left.total_seconds()]
        if outcome is None and not spec.suspended and backoff.left(self._clock.monotonic()) > 0:
            waits.append(backoff.left(self._clock.monotonic()))
        return min(waits, default=None)

    async def _complain(self, job: Object, why: str) -> None:
        """Write an event about the reason that the Job's pods are missing; once per text."""
        uid, metadata = uid_of(job), job["metadata"]
        if self._complaints.get(uid) == why:
            return
        self._complaints[uid] = why
        now = utc_text(self._clock.now())
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "source": {"component": "job-controller"},
            "reportingComponent": "job-controller",
            "type": "Warning",
            "reason": "FailedCreate",
            "message": f"Error creating: {why}"[:_LONGEST_NOTE],
            "involvedObject": {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": uid,
            },
        }
        await self._api.create(CORE_EVENTS, event, namespace=metadata["namespace"])

    async def _adjust(self, job: Object, spec: JobSettings, counts: JobTally, pods: Sequence[Object]) -> None:
        """Create or delete pods until the wanted number is active."""
        active = [pod for pod in pods if is_active(pod)]
        wanted = wanted_active(counts, spec, active=len(active))
        if len(active) > wanted:
            await self._each(surplus(active, spec, len(active) - wanted), self._give_up)
            return
        held = [*active]
        if spec.only_replace_failed:
            held += [pod for pod in pods if is_deleting(pod) and not is_terminal(pod)]
        lacking = wanted - len(held)
        if lacking <= 0 or self._backoff[uid_of(job)].left(self._clock.monotonic()) > 0:
            return
        indexes: list[int | None] = [None] * lacking
        if spec.indexed:
            indexes = [*missing_indexes(counts, spec, (completion_index(pod) for pod in held), lacking)]
        await self._create(job, indexes)

    async def _create(self, job: Object, indexes: Sequence[int | None]) -> None:
        """Create pods in batches of 1, 2, 4, ..., so that a refusal happens a few times, not a thousand."""

        async def create(index: int | None) -> None:
            pod = new_pod(job, index)
            self._pods.remember(await self._api.create(PODS, pod, namespace=job["metadata"]["namespace"]))

        done, batch = 0, 1
        while done < len(indexes):
            await self._each(indexes[done : done + batch], create)
            done, batch = done + batch, min(batch * 2, _MOST_AT_ONCE)

    async def _give_up(self, pod: Object) -> None:
        """Delete a pod without counting it as failed."""
        if is_tracked(pod):
            pod = await self._untrack(pod)
        await self._delete(pod)

    async def _delete(self, pod: Object) -> None:
        namespace, name = split_key(key_of(pod))
        try:
            await self._api.delete(PODS, name, namespace=namespace)
            self._pods.remember(self._api.get(PODS, name, namespace=namespace))
        except NotFoundError:
            self._pods.forget(pod)

    async def _untrack(self, pod: Object) -> Object:
        namespace, name = split_key(key_of(pod))
        try:
            pod = self._api.get(PODS, name, namespace=namespace)
            kept = [entry for entry in pod["metadata"].get("finalizers") or () if entry != TRACKING_FINALIZER]
            lock = {"resourceVersion": pod["metadata"]["resourceVersion"], "uid": uid_of(pod)}
            patch = {"metadata": {**lock, "finalizers": kept or None}}
            written = await self._api.patch(PODS, name, patch, namespace=namespace)
        except NotFoundError:
            self._pods.forget(pod)
            return pod
        self._pods.remember(written)
        return written

    async def _each(self, items: Sequence[_T], work: Callable[[_T], Awaitable[Any]]) -> None:
        """Do `work` for all items, some at a time; raise the first error when the others of its batch are done."""
        for start in range(0, len(items), _MOST_AT_ONCE):
            results = await asyncio.gather(
                *(work(item) for item in items[start : start + _MOST_AT_ONCE]), return_exceptions=True
            )
            for result in results:
                if isinstance(result, BaseException):
                    raise result

    async def _write_status(self, job: Object, spec: JobSettings, counts: JobTally, outcome: JobOutcome | None) -> None:
        wanted = self._wanted_status(job, spec, counts, outcome)
        changes = changed_fields(job.get("status") or {}, wanted)
        if not changes:
            return
        namespace, name = split_key(key_of(job))
        lock = {"resourceVersion": job["metadata"]["resourceVersion"], "uid": uid_of(job)}
        patch = {"metadata": lock, "status": changes}
        self._jobs.remember(await self._api.patch(JOBS, name, patch, namespace=namespace, subresource="status"))

    def _wanted_status(
        self, job: Object, spec: JobSettings, counts: JobTally, outcome: JobOutcome | None
    ) -> dict[str, Any]:
        status, now = job.get("status") or {}, stamp(self._clock.now())
        pods = self._present(job)
        active = [pod for pod in pods if is_active(pod)]
        terminating = sum(1 for pod in pods if is_deleting(pod) and not is_terminal(pod))
        open_ = bool(counts.uncounted_succeeded or counts.uncounted_failed or active or terminating)
        ended = outcome is not None and not open_ and not any(map(is_tracked, pods))
        changes = _suspension(job, spec) if outcome is None else _ending(outcome, ended=ended)
        resumed = any(c["type"] == CONDITION_JOB_SUSPENDED and c["status"] == "False" for c in changes)
        start = status.get("startTime")
        return {
            "active": len(active) or None,
            "ready": sum(map(is_ready, active)),
            "terminating": terminating,
            "succeeded": counts.succeeded or None,
            "failed": counts.failed or None,
            "completedIndexes": format_indexes(counts.completed) or None if spec.indexed else None,
            "uncountedTerminatedPods": {
                "succeeded": list(counts.uncounted_succeeded) or None,
                "failed": list(counts.uncounted_failed) or None,
            },
            "startTime": now if (start is None and not spec.suspended) or resumed else start,
            "completionTime": now if ended and outcome and outcome.success else status.get("completionTime"),
            "conditions": with_conditions(status.get("conditions") or [], changes, now) or None,
        }

    async def _clean_up(self, job: Object) -> float | None:
        """Remove finalizers from pods of an ended Job; delete the Job when its time to live is over."""
        self._backoff.pop(uid_of(job), None)
        await self._each([pod for pod in self._present(job) if is_tracked(pod)], self._untrack)
        ttl = JobSettings.of(job).ttl_seconds
        if ttl is None:
            return None
        end = condition(job, CONDITION_JOB_COMPLETE) or condition(job, CONDITION_JOB_FAILED) or {}
        ended = parsed_time(end.get("lastTransitionTime")) or self._clock.now()
        left = ttl - (self._clock.now() - ended).total_seconds()
        if left > 0:
            return left
        namespace, name = split_key(key_of(job))
        await self._api.delete(JOBS, name, namespace=namespace)
        return None


def new_pod(job: Object, index: int | None) -> Object:
    """Return a new pod of a Job's template; `index` is its completion index in an Indexed Job."""
    name, uid = job["metadata"]["name"], uid_of(job)
    template = job["spec"]["template"]
    metadata, spec = template.get("metadata") or {}, dict(template.get("spec") or {})
    labels = {
        **(metadata.get("labels") or {}),
        CONTROLLER_UID_LABEL: uid,
        JOB_NAME_LABEL: name,
        LEGACY_CONTROLLER_UID_LABEL: uid,
        LEGACY_JOB_NAME_LABEL: name,
    }
    annotations = dict(metadata.get("annotations") or {})
    prefix = f"{name}-"
    if index is not None:
        prefix = f"{name}-{index}-"
        labels[JOB_COMPLETION_INDEX_LABEL] = annotations[JOB_COMPLETION_INDEX_LABEL] = str(index)
        spec.setdefault("hostname", f"{name}-{index}")
        for kind in ("initContainers", "containers"):
            if spec.get(kind):
                spec[kind] = [_with_index(container) for container in spec[kind]]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": prefix,
            "namespace": job["metadata"]["namespace"],
            "labels": labels,
            **({"annotations": annotations} if annotations else {}),
            "finalizers": [*(metadata.get("finalizers") or ()), TRACKING_FINALIZER],
            "ownerReferences": [controller_reference({"apiVersion": "batch/v1", "kind": "Job", **job})],
        },
        "spec": spec,
    }


def job_uid(pod: Object) -> str | None:
    """Return the UID of the Job that controls the pod, or None."""
    owner = controller_of(pod)
    return str(owner["uid"]) if owner is not None and _is_job(owner) else None


def _is_job(owner: Object) -> bool:
    return owner.get("kind") == "Job" and str(owner.get("apiVersion", "")).partition("/")[0] == "batch"


def _with_index(container: Object) -> Object:
    """Return the container with the index in its environment, unless it sets that variable itself."""
    environment = container.get("env") or []
    if any(entry.get("name") == "JOB_COMPLETION_INDEX" for entry in environment):
        return container
    path = f"metadata.labels['{JOB_COMPLETION_INDEX_LABEL}']"
    entry = {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
    return {**container, "env": [*environment, entry]}


def _suspension(job: Object, spec: JobSettings) -> list[Object]:
    """Return the new Suspended condition, if it changes; a Job that was never suspended has none."""
    present = condition(job, CONDITION_JOB_SUSPENDED)
    if spec.suspended:
        wanted = ("True", "JobSuspended", "Job suspended")
    elif present is not None and present.get("status") == "True":
        wanted = ("False", "JobResumed", "Job resumed")
    else:
        return []
    status, reason, message = wanted
    return [{"type": CONDITION_JOB_SUSPENDED, "status": status, "reason": reason, "message": message}]


def _ending(outcome: JobOutcome, *, ended: bool) -> list[Object]:
    kinds = [outcome.interim, outcome.final] if ended else [outcome.interim]
    return [{"type": kind, "status": "True", "reason": outcome.reason, "message": outcome.message} for kind in kinds]
