"""The interface of job kinds, and the values that pass between jobs and Workloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

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
        """Return the text of an object's `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSetInfo:
    """Additions of an admission to one pod set's template, or the user's original values.

    `count` is the number of pods; None: the job's own number.  Maps and lists are plain JSON and are never changed.
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
    """Different values of two sources for one key; only a user can resolve it."""

    where: str
    """The map that has the key: `label`, `annotation` or `nodeSelector entry`."""
    key: str
    has: str
    wanted: str

    def __str__(self) -> str:
        return f"{self.where} {self.key} is {self.has!r} and would have to be {self.wanted!r}"


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal to start a job that a retry would not change.  `reasons` are sentences, never empty."""

    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return "; ".join(self.reasons)


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of a finished job."""

    message: str
    success: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StopStep:
    """One write of a stop.  The caller writes steps in order; each may be repeated after a crash."""

    patch: Patch
    """A merge patch."""
    subresource: str = ""
    """`status` for a patch of the status; empty: the object itself."""
    suspends: bool = False
    """Whether the step takes the job from running to suspended; the caller then emits Stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """Facts beyond the job object that its defaults and checks depend on."""

    switches: JobFeatures = field(default_factory=JobFeatures)
    default_queue: bool = False
    """Whether a LocalQueue named `default` exists in the job's namespace."""
    gang_queue: str = ""
    """The LocalQueue that a pod of a gang, or a group object, gets if it names none itself; empty: there is none."""
    holds_quota: bool = False
    """Whether quota is reserved for the gang of a group object."""
    default_priority_class: bool = False
    """Whether a WorkloadPriorityClass named `default` exists."""
    managed_ancestor: bool = False
    """Whether an owner above the job is queued itself, so that this job is not."""
    ancestor: str = ""
    """Kind and name of that owner, for messages; empty: they are not known."""
    manage_without_queue: bool = False
    """Whether jobs of this namespace are managed even if they name no queue."""
    managed_namespace: bool = True
    """Whether the namespace matches `managedJobsNamespaceSelector`; in other namespaces no reconciler manages jobs."""
    false_parent: bool = False
    """Whether the pod names a parent that suspends it, and its owners do not include that parent."""
    false_mark: bool = False
    """Whether a client other than kqueue marks a pod as one beyond the quorum of its gang."""
    not_admitted: bool = False
    """Whether a client other than kqueue requests to start the job, and no Workload of the job is admitted."""


class NamedKind(Protocol):
    """The names of one kind."""

    @property
    def framework(self) -> str:
        """The name in `integrations.frameworks`, as in `batch/job`."""
        ...

    @property
    def gvk(self) -> GroupVersionKind:
        """Group, version and kind of the objects."""
        ...

    @property
    def resource(self) -> str:
        """Plural name in URLs, as in `jobs`."""
        ...


class ReviewedKind(NamedKind, Protocol):
    """One kind whose objects the webhooks review.  Pure: takes JSON, returns values and merge patches."""

    @property
    def defaults_on_update(self) -> bool:
        """Whether the webhook calls `defaults` at each update, too, and not only at creation."""
        ...

    @property
    def held_by(self) -> str:
        """Path of the field that prevents a job's pods from running; empty for kinds without such a field."""
        ...

    def holds_back(self, job: JSON) -> bool:
        """Whether the field `held_by` prevents the job's pods from running; False for kinds without such a field."""
        ...

    def defaults(self, job: JSON, around: JobContext) -> Patch:
        """Return the changes of the mutating webhook; empty for an object that kqueue does not manage."""
        ...

    def problems(self, new: JSON, old: JSON | None, around: JobContext) -> list[FieldError]:
        """Return every mistake in `new`, each with its path; `old` is None on create."""
        ...

    def warnings(self, new: JSON, around: JobContext) -> list[str]:
        """Return warnings about fields that are allowed and probably unintended; kubectl prints them."""
        ...


class SentKind(NamedKind, Protocol):
    """One kind of objects of which other clusters may run copies."""

    def holds_back(self, job: JSON) -> bool:
        """Whether the field that prevents the job's pods from running does so; False for kinds without such a field."""
        ...

    def is_suspended(self, job: JSON) -> bool:
        """Whether no pod may run, and no stop is unfinished."""
        ...

    def active(self, job: JSON) -> bool:
        """Whether pods of the job may still use resources."""
        ...

    def managed_by(self, job: JSON) -> str:
        """Return the name of the controller that runs the job; the kind's own one when the job names none."""
        ...

    def stop(self, job: JSON, infos: Sequence[PodSetInfo]) -> tuple[StopStep, ...]:
        """Return the steps that suspend the job and restore the user's templates.

        `infos` come from the Workload (`infos_at_stop`); without any the templates stay as they are.
        The result has only the remaining steps: none when the job is stopped completely.
        """
        ...

    def finished(self, job: JSON) -> Finished | None:
        """Return the result of the job; None: it has not finished."""
        ...


class JobKind(ReviewedKind, SentKind, Protocol):
    """One kind of job: converts jobs to Workloads, and admissions to patches of jobs.

    Merge patches carry no resource version; the caller adds the precondition.  A kind whose pods follow from other
    objects, too, has the method of `ReadsOthers` (`kqueue/jobs/others.py`); it is then given completed jobs.
    """

    @property
    def own_controller(self) -> str:
        """The value of the kind's managed-by field for the kind's own controller; kqueue ignores jobs of other
        controllers.
        """
        ...

    def suspend(self, job: JSON) -> Patch:
        """Return the patch that only suspends; empty when the job is suspended already."""
        ...

    def pod_selector(self, job: JSON) -> Mapping[str, str]:
        """Return the labels that select the job's pods."""
        ...

    def pod_sets(self, job: JSON, switches: JobFeatures) -> tuple[JSON, ...]:
        """Return the pod sets for `Workload.spec.podSets`.

        Raises:
            InvalidObjectError: an annotation cannot be read (the webhook refuses such jobs, but it may be off).
        """
        ...

    def start(self, job: JSON, infos: Sequence[PodSetInfo]) -> Patch | Refused:
        """Return the patch that unsuspends the job with the infos merged into its templates.

        A kind that needs two writes returns a patch after which the job is still suspended.  The caller writes it and
        calls again with the written job.
        """
        ...

    def pods_ready(self, job: JSON) -> bool:
        """Whether as many pods as the job requests are ready or have succeeded."""
        ...

    def reclaimable(self, job: JSON) -> Mapping[str, int]:
        """Return the number of pods per pod set that no longer need quota; empty: there are none."""
        ...


@runtime_checkable
class ExceptionalKind(JobKind, Protocol):
    """A kind of job some of whose jobs kqueue treats in another way; other kinds do not have these methods."""

    def is_skipped(self, job: JSON) -> bool:
        """Whether the job is not queued, although it names a queue."""
        ...

    def on_hold(self, job: JSON) -> str:
        """Return why the kind's own controller runs no pods until a user changes the job; empty: it may run them."""
        ...

    def cleans_up(self, job: JSON, switches: JobFeatures) -> bool:
        """Whether the job is being deleted, and its controller may still run a pod that needs its quota."""
        ...


@runtime_checkable
class ScaledKind(JobKind, Protocol):
    """A kind of job whose pods another object scales, while the job itself stays as it is."""

    def revision(self, job: JSON) -> str:
        """Return the written revision of that object, a part of the names of Workloads; empty: none is written."""
        ...

    def revise(self, job: JSON) -> Patch:
        """Return the patch of the job that writes the present revision of that object; empty: it is written."""
        ...


@runtime_checkable
class CompletedKind(JobKind, Protocol):
    """A kind of job to whose objects the API server adds fields that only fit that one object."""

    def as_written(self, job: JSON) -> JSON:
        """Return the job without these fields, so that a copy of it can be created elsewhere."""
        ...


@runtime_checkable
class ResizedKind(JobKind, Protocol):
    """A kind of job whose number of pods may change while it runs."""

    def resized(self, job: JSON, counts: Mapping[str, int]) -> JSON:
        """Return the job with these numbers of pods, by pod set."""
        ...


@runtime_checkable
class EditedKind(JobKind, Protocol):
    """A kind of job whose users may change a part of its spec while it runs."""

    def edited(self, job: JSON) -> JSON:
        """Return that part of the spec: its fields say nothing about pods, and no start changes them."""
        ...
