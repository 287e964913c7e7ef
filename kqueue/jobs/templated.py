"""The common part of adapters of kinds that have a flag and several pod templates, one pod set each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kqueue.api import names
from kqueue.api.bounds import INT32_MAX
from kqueue.config.object_path import look, put
from kqueue.errors import FieldError, InvalidObjectError
from kqueue.jobs import pod_set_groups, rules, several, topology_request
from kqueue.jobs.fields import JSON, mapping, text
from kqueue.jobs.kind import GroupVersionKind, JobContext, PodSetInfo, Refused, StopStep
from kqueue.jobs.patch import Patch, apply_merge_patch, merge_patch
from kqueue.jobs.pod_set_groups import GroupMember
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.template import as_pod_set, merged
from kqueue.jobs.topology_request import IndexLabels


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplatePart:
    """One pod template of an object, which becomes a pod set."""

    name: str
    path: str
    """Path of the pod template."""
    template: Mapping[str, Any]
    count: int
    """The number of pods."""
    count_path: str = ""
    """Path of the number; empty: it is fixed."""
    index: IndexLabels = field(default_factory=IndexLabels)
    """The labels that number the pods."""
    counted: Mapping[str, Any] | None = None
    """The template of the pod set, if the kind's controller adds to the pods; None: the same template."""


class TemplatedJob(ABC):
    """An adapter of one kind; subclasses know the templates."""

    defaults_on_update = False
    gvk: GroupVersionKind
    flag: tuple[str, ...] = ("spec", "suspend")
    """The steps to the flag that keeps the object from starting."""
    _labels_checked_on_update: ClassVar[bool] = True
    """Whether the rules for labels and annotations of a new job hold for its updates, too.  Source: Kueue."""
    _elastic: ClassVar[bool] = False
    """Whether jobs of the kind may use workload slices."""

    @abstractmethod
    def parts(self, job: JSON) -> Sequence[TemplatePart]:
        """Return the templates in the order of the pod sets."""

    @abstractmethod
    def started(self, job: JSON, infos: Sequence[PodSetInfo]) -> JSON | Refused:
        """Return the object with each info merged into its template."""

    @abstractmethod
    def restored(self, job: JSON, infos: Sequence[PodSetInfo]) -> JSON:
        """Return the object as its user wrote it; unchanged if there are not as many `infos` as templates."""

    def shape_problems(self, job: JSON) -> Iterator[FieldError]:
        """Yield what keeps the object from becoming a Workload."""
        for part in self.parts(job):
            if not mapping(part.template, "spec"):
                yield FieldError(part.path, "must be a pod template with a spec")
            if not 0 <= part.count <= INT32_MAX:
                yield FieldError(part.count_path, f"must be 0 to {INT32_MAX}", part.count)

    @property
    def held_by(self) -> str:
        """Path of the flag."""
        return ".".join(self.flag)

    def is_suspended(self, job: JSON) -> bool:
        """Whether the flag is true."""
        return look(job, self.flag) is True

    def holds_back(self, job: JSON) -> bool:
        """Whether the flag is true."""
        return self.is_suspended(job)

    def suspend(self, job: JSON) -> Patch:
        """Return a patch of only the flag."""
        return {} if self.is_suspended(job) else dict(put({}, self.flag, True))

    def pod_sets(self, job: JSON, switches: JobFeatures) -> tuple[JSON, ...]:
        """Return one pod set per template."""
        mistakes = [*self.shape_problems(job), *topology_request.job_problems(job, switches)]
        if not mistakes:
            for part in self.parts(job):
                mistakes += topology_request.problems(part.template, job, path=part.path, count=None, switches=switches)
        if mistakes:
            namespace, name = text(job, "metadata", "namespace"), text(job, "metadata", "name")
            raise InvalidObjectError(f"{self.gvk.kind} {namespace}/{name}", mistakes)
        return tuple(_pod_set(part, job, switches) for part in self.parts(job))

    def start(self, job: JSON, infos: Sequence[PodSetInfo]) -> Patch | Refused:
        """Return the patch that unsuspends, with each info merged into its template."""
        new = self.started(job, infos)
        return new if isinstance(new, Refused) else merge_patch(job, put(new, self.flag, False))

    def stop(self, job: JSON, infos: Sequence[PodSetInfo]) -> tuple[StopStep, ...]:
        """Return one step that suspends and restores.

        Templates stay unchanged if there are not as many `infos` as templates.
        """
        patch = merge_patch(job, put(self.restored(job, infos), self.flag, True))
        return (StopStep(patch=patch, suspends=not self.is_suspended(job)),) if patch else ()

    def reclaimable(self, job: JSON) -> Mapping[str, int]:
        """Return nothing: quota is released at the end only."""
        return {}

    def defaults(self, job: JSON, around: JobContext) -> Patch:
        """Return the patch for queue and class named `default`, and the suspension of managed jobs."""
        if mapping(job, "metadata").get("deletionTimestamp"):
            return {}
        new = apply_merge_patch(job, rules.default_labels(job, around))
        return merge_patch(job, apply_merge_patch(new, self.suspend(new) if rules.managed(new, around) else {}))

    def problems(self, new: JSON, old: JSON | None, around: JobContext) -> list[FieldError]:
        """Check the shared rules, whether a Workload can be made, and the topology request of each template.

        An object that is being deleted has no problems, so that its finalizers can be removed.
        """
        if mapping(new, "metadata").get("deletionTimestamp"):
            return []
        found: list[FieldError] = []
        if old is None or self._labels_checked_on_update:
            found += rules.create_problems(new, around, elastic=self._elastic)
        if old is not None:
            found += rules.update_problems(
                new, old, around, new_suspended=self.is_suspended(new), old_suspended=self.is_suspended(old)
            )
        if rules.managed(new, around):
            found += self.shape_problems(new)
        members = [GroupMember(part.path, part.template, part.count) for part in self.parts(new)]
        # what a start has added to the templates of a child is no request of its user
        elastic = self._elastic and not around.managed_ancestor and rules.is_elastic(new, around.switches)
        found += pod_set_groups.topology_problems(members, new, around.switches, counted=old is None, elastic=elastic)
        return found

    def warnings(self, new: JSON, around: JobContext) -> list[str]:
        """Return warnings about topology annotations without effect."""
        if not around.switches.topology:
            return []
        found = [w for part in self.parts(new) for w in topology_request.warnings(part.template, new, path=part.path)]
        return list(dict.fromkeys(found))

    def placed(self, job: JSON) -> list[several.Placed]:
        """Return each template with its path."""
        return [(part.path, part.template) for part in self.parts(job)]


class TemplatesInPlace(TemplatedJob):
    """An adapter of a kind whose templates are pod templates of Kubernetes, and may change at a start."""

    _gated_when_made: ClassVar[bool] = True
    """Whether elastic jobs get the gate of elastic jobs at their creation, and not only at a start."""

    @abstractmethod
    def with_templates(self, job: JSON, templates: Sequence[JSON]) -> JSON:
        """Return the object with these templates, one for each of its parts."""

    def defaults(self, job: JSON, around: JobContext) -> Patch:
        """Return also the gate of elastic jobs, which keeps pods without an admission waiting."""
        patch = super().defaults(job, around)
        if mapping(job, "metadata").get("deletionTimestamp") or around.managed_ancestor:
            return patch  # a child has the gates of its parent's start, which must not be taken from it
        if not (self._elastic and self._gated_when_made and rules.is_elastic(job, around.switches)):
            return patch
        new, gate = apply_merge_patch(job, patch), PodSetInfo(name="", scheduling_gates=(names.ELASTIC_JOB_GATE,))
        gated = [(part.template, merged(part.template, gate)) for part in self.parts(new)]
        templates = [after if isinstance(after, dict) else dict(before) for before, after in gated]
        return merge_patch(job, self.with_templates(new, templates))

    def started(self, job: JSON, infos: Sequence[PodSetInfo]) -> JSON | Refused:
        """Return the object with each info merged into its template."""
        elastic = self._elastic and rules.asks_for_slices(job)
        templates = several.started(self.gvk.kind, self.placed(job), infos, elastic=elastic)
        return templates if isinstance(templates, Refused) else self.with_templates(job, templates)

    def restored(self, job: JSON, infos: Sequence[PodSetInfo]) -> JSON:
        """Return the object as its user wrote it; unchanged if there are not as many `infos` as templates."""
        return self.with_templates(job, several.stopped(self.placed(job), infos))


def _pod_set(part: TemplatePart, job: JSON, switches: JobFeatures) -> JSON:
    counted = part.template if part.counted is None else part.counted
    pod_set: JSON = {"name": part.name, "count": part.count, "template": as_pod_set(counted)}
    request = topology_request.topology_request(part.template, job, index=part.index, switches=switches)
    if request is not None:
        pod_set["topologyRequest"] = request
    return pod_set
