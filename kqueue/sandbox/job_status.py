"""The status that a Job should have: pure functions of the Job and its pods.

Pods have a finalizer until they are counted, in three steps: (1) the UID of an ended pod is written to
`uncountedTerminatedPods`; (2) the pod's finalizer is removed; (3) when the watch shows that, the UID is removed and
`succeeded` or `failed` grows by 1.  So a controller may stop anywhere, and no pod is lost or counted twice.
Completions of an Indexed Job are a set of indexes and need no such care.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from kqueue.kube.conditions import is_true
from kqueue.kube.names import JOB_COMPLETION_INDEX_LABEL
from kqueue.sandbox.api import Object
from kqueue.sandbox.json_object import annotation, is_deleting, is_terminal, parsed_time, uid_of

TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"
DEFAULT_BACKOFF_LIMIT = 6
_NO_LIMIT = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """The fields of a Job's spec that the controller acts on, with their defaults.

    `completions` None: any success ends the Job once no pod is active.  Seconds are None without a limit.
    """

    parallelism: int
    completions: int | None
    indexed: bool
    suspended: bool
    backoff_limit: int
    deadline_seconds: int | None
    ttl_seconds: int | None
    only_replace_failed: bool

    @classmethod
    def of(cls, job: Object) -> JobSettings:
        """Read from the Job."""
        spec = job["spec"]
        parallelism, completions = spec.get("parallelism"), spec.get("completions")
        if parallelism is None and completions is None:
            completions = 1
        unlimited = spec.get("backoffLimitPerIndex") is not None
        limit = spec.get("backoffLimit")
        return cls(
            parallelism=1 if parallelism is None else int(parallelism),
            completions=completions,
            indexed=spec.get("completionMode") == "Indexed",
            suspended=bool(spec.get("suspend")),
            backoff_limit=(_NO_LIMIT if unlimited else DEFAULT_BACKOFF_LIMIT) if limit is None else int(limit),
            deadline_seconds=spec.get("activeDeadlineSeconds"),
            ttl_seconds=spec.get("ttlSecondsAfterFinished"),
            only_replace_failed=spec.get("podReplacementPolicy") == "Failed" or "podFailurePolicy" in spec,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTally:
    """The counts of a Job's ended pods.

    `succeeded` and `failed` are final counts (of an Indexed Job `succeeded` is the number of `completed` indexes);
    the `uncounted` UIDs are added to them.  `countable` are pods that may lose their finalizer when this is stored.
    `news` are pods that no former tally listed, in the order in which they ended.
    """

    succeeded: int
    failed: int
    uncounted_succeeded: tuple[str, ...]
    uncounted_failed: tuple[str, ...]
    completed: frozenset[int]
    countable: tuple[Object, ...]
    news: tuple[Object, ...]

    @property
    def all_succeeded(self) -> int:
        """Number of succeeded pods, uncounted ones included."""
        return self.succeeded + len(self.uncounted_succeeded)

    @property
    def all_failed(self) -> int:
        """Number of failed pods, uncounted ones included."""
        return self.failed + len(self.uncounted_failed)


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The end of a Job: success or failure, with the reason and message of its conditions."""

    success: bool
    reason: str
    message: str

    @property
    def interim(self) -> str:
        """The condition of a decided end, while pods still stop."""
        return "SuccessCriteriaMet" if self.success else "FailureTarget"

    @property
    def final(self) -> str:
        """The condition of an ended Job."""
        return "Complete" if self.success else "Failed"


def tally(job: Object, pods: Iterable[Object], spec: JobSettings) -> JobTally:
    """Count the Job's ended pods and add them to the counts of its status."""
    status = job.get("status") or {}
    listed = status.get("uncountedTerminatedPods") or {}
    by_uid = {uid_of(pod): pod for pod in pods}
    tracked = {uid: pod for uid, pod in by_uid.items() if is_tracked(pod)}
    succeeded = [uid for uid in listed.get("succeeded") or () if uid in tracked]
    failed = [uid for uid in listed.get("failed") or () if uid in tracked]
    counted_succeeded = int(status.get("succeeded") or 0) + len(listed.get("succeeded") or ()) - len(succeeded)
    counted_failed = int(status.get("failed") or 0) + len(listed.get("failed") or ()) - len(failed)
    completed = set(parse_indexes(status.get("completedIndexes") or ""))
    countable, news = [tracked[uid] for uid in (*succeeded, *failed)], list[Object]()
    known = {*succeeded, *failed}
    for uid, pod in tracked.items():
        if uid in known:
            continue
        if has_succeeded(pod):
            if not spec.indexed:
                succeeded.append(uid)
            elif (index := completion_index(pod)) is not None and index < (spec.completions or 0):
                completed.add(index)
        elif has_failed(pod, spec):
            failed.append(uid)
        else:
            continue
        countable.append(pod)
        news.append(pod)
    return JobTally(
        succeeded=len(completed) if spec.indexed else counted_succeeded,
        failed=counted_failed,
        uncounted_succeeded=tuple(succeeded),
        uncounted_failed=tuple(failed),
        completed=frozenset(completed),
        countable=tuple(countable),
        news=tuple(sorted(news, key=ended_at)),
    )


def is_tracked(pod: Object) -> bool:
    """Whether the pod still has to be counted."""
    return TRACKING_FINALIZER in (pod["metadata"].get("finalizers") or ())


def has_succeeded(pod: Object) -> bool:
    """Whether the pod's phase is Succeeded."""
    return (pod.get("status") or {}).get("phase") == "Succeeded"


def has_failed(pod: Object, spec: JobSettings) -> bool:
    """Whether the pod failed, or is terminating and the Job does not wait for the end of such pods."""
    if (pod.get("status") or {}).get("phase") == "Failed":
        return True
    return is_deleting(pod) and not has_succeeded(pod) and not spec.only_replace_failed


def is_active(pod: Object) -> bool:
    """Whether the pod has not ended and is not being deleted."""
    return not is_terminal(pod) and not is_deleting(pod)


def is_ready(pod: Object) -> bool:
    """Whether the pod's condition Ready has status True."""
    return is_true(pod, "Ready")


def ended_at(pod: Object) -> str:
    """Return the end of the pod's last container, else the time of the deletion request; "" if neither is known."""
    ends = [
        str(((entry.get("state") or {}).get("terminated") or {}).get("finishedAt") or "")
        for entry in (pod.get("status") or {}).get("containerStatuses") or ()
    ]
    return max(ends, default="") or str(pod["metadata"].get("deletionTimestamp") or "")


def completion_index(pod: Object) -> int | None:
    """Return the pod's index in an Indexed Job, or None."""
    written = annotation(pod, JOB_COMPLETION_INDEX_LABEL)
    return int(written) if written is not None and written.isascii() and written.isdigit() else None


def present_outcome(job: Object) -> JobOutcome | None:
    """Return the end in the Job's conditions; None if the end is not decided."""
    for entry in (job.get("status") or {}).get("conditions") or ():
        if entry.get("status") == "True" and entry.get("type") in (
            "FailureTarget",
            "Failed",
            "SuccessCriteriaMet",
            "Complete",
        ):
            success = entry["type"] in ("SuccessCriteriaMet", "Complete")
            return JobOutcome(success, str(entry.get("reason") or ""), str(entry.get("message") or ""))
    return None


def wanted_outcome(counts: JobTally, spec: JobSettings, *, active: int, deadline_passed: bool) -> JobOutcome | None:
    """Return the end that follows from the counts; None if the Job continues."""
    if counts.all_failed > spec.backoff_limit:
        return JobOutcome(False, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    if deadline_passed:
        return JobOutcome(False, "DeadlineExceeded", "Job was active longer than specified deadline")
    if spec.completions is None:
        complete = counts.all_succeeded > 0 and active == 0
    else:
        complete = counts.all_succeeded >= spec.completions
    return JobOutcome(True, "CompletionsReached", "Reached expected number of succeeded pods") if complete else None


def wanted_active(counts: JobTally, spec: JobSettings, *, active: int) -> int:
    """Return the number of pods that should be active now."""
    if spec.suspended:
        return 0
    if spec.completions is None:
        return min(active, spec.parallelism) if counts.all_succeeded > 0 else spec.parallelism
    return max(0, min(spec.parallelism, spec.completions - counts.all_succeeded))


def deadline_left(job: Object, spec: JobSettings, now: datetime) -> timedelta | None:
    """Return the time until the Job's deadline, negative after it; None while no deadline applies."""
    started = parsed_time((job.get("status") or {}).get("startTime"))
    if spec.deadline_seconds is None or started is None or spec.suspended:
        return None
    return started + timedelta(seconds=spec.deadline_seconds) - now


def missing_indexes(counts: JobTally, spec: JobSettings, occupied: Iterable[int | None], wanted: int) -> list[int]:
    """Return the `wanted` lowest indexes, or fewer, that have neither completed nor a pod in `occupied`."""
    taken, found = {*counts.completed, *occupied}, list[int]()
    for index in range(spec.completions or 0):
        if len(found) >= wanted:
            break
        if index not in taken:
            found.append(index)
    return found


def surplus(active: Sequence[Object], spec: JobSettings, count: int) -> list[Object]:
    """Return `count` pods to delete, first out of range, then without node, not running, not ready, high index, new."""

    def worth(pod: Object) -> tuple[bool, bool, bool, bool, int]:
        index = completion_index(pod) if spec.indexed else 0
        in_range = not spec.indexed or (index is not None and index < (spec.completions or 0))
        phase = (pod.get("status") or {}).get("phase")
        return (in_range, bool(pod["spec"].get("nodeName")), phase == "Running", is_ready(pod), -(index or 0))

    newest_first = sorted(active, key=lambda pod: str(pod["metadata"].get("creationTimestamp") or ""), reverse=True)
    return sorted(newest_first, key=worth)[:count]


def format_indexes(indexes: Iterable[int]) -> str:
    """Return `0-2,5` for 0, 1, 2, 5."""
    spans: list[tuple[int, int]] = []
    for index in sorted(indexes):
        if spans and spans[-1][1] == index - 1:
            spans[-1] = (spans[-1][0], index)
        else:
            spans.append((index, index))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def parse_indexes(written: str) -> Iterator[int]:
    """Yield the indexes in a text like `0-2,5`; malformed parts are left out."""
    for part in written.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            yield from range(int(first), int(last or first) + 1)


def changed_fields(status: Object, wanted: dict[str, Any]) -> dict[str, Any]:
    """Return a merge patch with the fields of `wanted` that differ in `status`; a missing field equals None."""
    return {key: value for key, value in wanted.items() if _plain(status.get(key)) != _plain(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return value
