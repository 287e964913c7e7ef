"""Jobs of the batch group, as far as we read them."""

from __future__ import annotations

from datetime import datetime

from kqueue.api.wire.core import PodTemplate
from kqueue.api.wire.meta import Condition, ObjectMeta, Struct


class UncountedTerminatedPods(Struct, frozen=True, kw_only=True):
    """UIDs of ended pods that the counters do not include yet."""

    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class JobSpec(Struct, frozen=True, kw_only=True):
    """How many pods of which kind.  The API server fills in parallelism, completionMode and backoffLimit."""

    template: PodTemplate
    suspend: bool = False
    parallelism: int | None = None
    """Pods at a time; absent means 1."""
    completions: int | None = None
    """Pods that must succeed; None means that any success ends the job."""
    completion_mode: str | None = None
    """NonIndexed or Indexed; absent means NonIndexed."""
    backoff_limit: int | None = None
    managed_by: str | None = None
    """Controller that runs the job; absent means Kubernetes itself."""


class JobStatus(Struct, frozen=True, kw_only=True):
    """Pods by state.  `ready` and `terminating` are None while the job's controller does not count them."""

    active: int = 0
    ready: int | None = None
    terminating: int | None = None
    succeeded: int = 0
    failed: int = 0
    completed_indexes: str = ""
    uncounted_terminated_pods: UncountedTerminatedPods = UncountedTerminatedPods()
    conditions: tuple[Condition, ...] = ()
    start_time: datetime | None = None
    completion_time: datetime | None = None


class Job(Struct, frozen=True, kw_only=True):
    """A batch/v1 Job."""

    metadata: ObjectMeta
    spec: JobSpec
    status: JobStatus = JobStatus()
