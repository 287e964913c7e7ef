"""The interface of job kinds, and the values that pass between jobs and Workloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kqueue.errors import FieldError
from kqueue.jobs.fields import JSON
from kqueue.jobs.patch import Patch
from kqueue.jobs.switches import JobFeatures


@dataclass(frozen=True, slots=True, order=True)
class GroupVersionKind:
    """One kind in one version.  `group` is empty for the core group."""

    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        """As it stands in an object's `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSetInfo:
    """What an admission adds to one pod set's template, or what the user's template held before.

    `count` is the number of pods; None: as the job says.  Maps and lists are plain JSON and are never changed.
    """

    name: str
    count: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    scheduling_gates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two sources want different values for one key; nothing but a change by a user can settle it."""

    where: str
    """What the key belongs to: `label`, `annotation` or `nodeSelector entry`."""
    key: str
    has: str
    wanted: str

    def __str__(self) -> str:
        return f"{self.where} {self.key} is {self.has!r} and would have to be {self.wanted!r}"


@dataclass(frozen=True, slots=True)
class Refused:
    """A job cannot be started as asked, and trying again would not help.  `reasons` are sentences, never empty."""

    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return "; ".join(self.reasons)


@dataclass(frozen=True, slots=True)
class Finished:
    """A job has come to its end."""

    message: str
    success: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StopStep:
    """One write of a stop.  Steps go out in order; each may be repeated after a crash."""

    patch: Patch
    """A merge patch."""
    subresource: str = ""
    """`status` where the patch belongs there; empty: the object itself."""
    suspends: bool = False
    """True for the step that takes the job from running to suspended; the caller then emits Stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """What has to be known beyond a job object to default and check it."""

    switches: JobFeatures = field(default_factory=JobFeatures)
    default_queue: bool = False
    """A LocalQueue named `default` exists in the job's namespace."""
    default_priority_class: bool = False
    """A WorkloadPriorityClass named `default` exists."""
    managed_ancestor: bool = False
    """An owner above the job is queued itself, so this job is not."""
    manage_without_queue: bool = False
    """Jobs of this namespace are managed even if they name no queue."""
    managed_namespace: bool = True
    """The job's namespace matches `managedJobsNamespaceSelector`; in others no reconciler looks at jobs."""
    false_parent: bool = False
    """The pod says that a parent suspends it, and its owners do not show that parent."""
    not_admitted: bool = False
    """Somebody else than kqueue asks to start the job, and no Workload of it is admitted."""


class ReviewedKind(Protocol):
    """One kind whose objects pass through our webhooks.  Pure: JSON in, values and merge patches out."""

    @property
    def framework(self) -> str:
        """The name used in `integrations.frameworks`, as in `batch/job`."""
        ...

    @property
    def gvk(self) -> GroupVersionKind:
        """Group, version and kind of the objects."""
        ...

    @property
    def resource(self) -> str:
        """Plural name in URLs, as in `jobs`."""
        ...

    @property
    def defaults_on_update(self) -> bool:
        """Whether `defaults` are asked for at each update, too, and not only at creation."""
        ...

    @property
    def held_by(self) -> str:
        """Path of the field that keeps a job's pods from running; empty for kinds without one."""
        ...

    def holds_back(self, job: JSON) -> bool:
        """Whether that field does so; False for kinds without one."""
        ...

    def defaults(self, job: JSON, around: JobContext) -> Patch:
        """What the mutating webhook changes in an object; empty for one that is not ours."""
        ...

    def problems(self, new: JSON, old: JSON | None, around: JobContext) -> list[FieldError]:
        """Every mistake in `new`, each with its path; `old` is None on create."""
        ...

    def warnings(self, new: JSON, around: JobContext) -> list[str]:
        """What is allowed and probably not meant; shown to the user by kubectl."""
        ...


class JobKind(ReviewedKind, Protocol):
    """One kind of job: to a Workload and back.

    Merge patches carry no resource version; the caller adds the precondition.
    """

    @property
    def own_controller(self) -> str:
        """What the kind's managed-by field says where the kind's own controller runs the job; others are left alone."""
        ...

    def is_suspended(self, job: JSON) -> bool:
        """True when nothing may run, and no stop is half done."""
        ...

    def suspend(self, job: JSON) -> Patch:
        """Suspend and do nothing else; empty when it is suspended already."""
        ...

    def active(self, job: JSON) -> bool:
        """True while pods of the job may still hold resources."""
        ...

    def pod_selector(self, job: JSON) -> Mapping[str, str]:
        """Labels by which the job's pods are found."""
        ...

    def managed_by(self, job: JSON) -> str:
        """Name of the controller that runs the job; the kind's own one when the job does not say."""
        ...

    def pod_sets(self, job: JSON, switches: JobFeatures) -> tuple[JSON, ...]:
        """The pod sets as they stand in `Workload.spec.podSets`.

        Raises:
            InvalidObjectError: an annotation cannot be read (the webhook refuses such jobs, but it may be off).
        """
        ...

    def start(self, job: JSON, infos: Sequence[PodSetInfo]) -> Patch | Refused:
        """Un-suspend with the infos merged into the templates; the answer is one patch."""
        ...

    def stop(self, job: JSON, infos: Sequence[PodSetInfo]) -> tuple[StopStep, ...]:
        """Suspend and give back what the user wrote.

        `infos` come from the Workload (`infos_at_stop`); without any the templates stay as they are.
        The answer holds the steps that are still to be done: none when the job is stopped completely.
        """
        ...

    def finished(self, job: JSON) -> Finished | None:
        """How the job ended; None while it has not."""
        ...

    def pods_ready(self, job: JSON) -> bool:
        """True when as many pods as the job asks for are ready or have succeeded."""
        ...

    def reclaimable(self, job: JSON) -> Mapping[str, int]:
        """Pods per pod set whose quota is not needed any more; empty when there are none."""
        ...
