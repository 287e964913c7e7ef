"""The webhooks' adapters of group objects: rules for each kind, and for the labels that all kinds share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kqueue.api import names
from kqueue.errors import FieldError
from kqueue.jobs import rules, run_times, topology_request
from kqueue.jobs.fields import JSON, labels_of, mapping, text
from kqueue.jobs.gang import batch_process, podgroup_k8s, podgroup_volcano, podgroup_x_k8s
from kqueue.jobs.kind import GroupVersionKind, JobContext
from kqueue.jobs.patch import Patch

_QUEUE = f"metadata.labels[{names.QUEUE_NAME_LABEL}]"
_FIELD = "spec.queue"
_HELD = "while quota is reserved; first set spec.active of the Workload to false"


def _no_sentences(_obj: JSON, _around: JobContext) -> Iterable[str]:
    return ()


def _no_changes(_new: JSON, _old: JSON, _holds_quota: bool) -> Iterable[FieldError]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewedGroup:
    """The adapter of one kind of group objects, a `ReviewedKind`.

    Args:
        framework: the dialect.
        versions: group, version and kind in all versions, the newest first.
        resource: the plural name.
        word: the kind in names of webhook entries.
        judge: returns the mistakes of an object.
        tell: returns sentences about fields without effect, or with another effect than the user may expect.
        level: returns the topology level that a field of the kind names, and the sentence in case no Topology has it.
        changes: returns the changes between two states that are not possible, with or without quota.
        proposed: returns the queue that a field of the kind names, where the label names none.
        is_ours: whether the kind is kqueue's own, so that its objects get default labels and a creation without review
            is refused.
    """

    framework: str
    versions: tuple[GroupVersionKind, ...]
    resource: str
    word: str
    judge: Callable[[JSON], Iterable[FieldError]]
    tell: Callable[[JSON, JobContext], Iterable[str]] = _no_sentences
    level: Callable[[JSON], tuple[str, str] | None] = lambda _obj: None
    changes: Callable[[JSON, JSON, bool], Iterable[FieldError]] = _no_changes
    proposed: Callable[[JSON], str] = lambda _obj: ""
    is_ours: bool = False
    defaults_on_update = False
    held_by = ""

    @property
    def gvk(self) -> GroupVersionKind:
        """Group, newest version and kind."""
        return self.versions[0]

    def holds_back(self, job: JSON) -> bool:
        """Return False: no field of a group object holds its pods back for kqueue."""
        return False

    def defaults(self, job: JSON, around: JobContext) -> Patch:
        """Return the labels of queue and priority class that a new object of kqueue's own kind lacks."""
        return rules.default_labels(job, around) if self.is_ours and around.managed_namespace else {}

    def problems(self, new: JSON, old: JSON | None, around: JobContext) -> list[FieldError]:
        """Return mistakes in the object, in its shared labels and annotations, and in their changes."""
        found = [*self.judge(new), *topology_request.problems(new, {}, path="", count=None, switches=around.switches)]
        if old is None:
            found += rules.create_problems(new, around, prebuilt=False, elastic=False)
        else:
            found += self._change_problems(new, old, around)
        return [FieldError(each.path.removeprefix("."), each.problem, each.value) for each in found]

    def _change_problems(self, new: JSON, old: JSON, around: JobContext) -> Iterator[FieldError]:
        before, after = rules.queue_name(old), rules.queue_name(new)
        if before != after and around.holds_quota:
            yield FieldError(_QUEUE, f"cannot change from {before!r} {_HELD}", after)
        elif not after and around.holds_quota and self.proposed(new) != self.proposed(old):
            yield FieldError(_FIELD, f"cannot change from {self.proposed(old)!r} {_HELD}", self.proposed(new))
        yield from rules.priority_change(new, old, suspended=not around.holds_quota)
        yield from run_times.problems(new) if run_times.is_changed(new, old) else ()
        yield from run_times.change_problems(new, old, waits=not around.holds_quota)
        if around.switches.admission_gated_by:
            yield from rules.gate_change_problems(new, old)
        yield from self.changes(new, old, around.holds_quota)

    def warnings(self, new: JSON, around: JobContext) -> list[str]:
        """Return sentences about fields without effect."""
        return list(self.tell(new, around))

    def may_need_quota(self, new: JSON, old: JSON) -> bool:
        """Whether it depends on the quota of the gang if this change is possible."""
        if (
            labels_of(new) != labels_of(old)
            or self.proposed(new) != self.proposed(old)
            or run_times.is_changed(new, old)
        ):
            return True
        return self.is_ours and mapping(new, "spec") != mapping(old, "spec")


def _batch_changes(new: JSON, old: JSON, holds_quota: bool) -> Iterable[FieldError]:
    return batch_process.change_problems(new, old, has_quota=holds_quota)


_ROWS = (
    ReviewedGroup(
        framework=podgroup_k8s.FRAMEWORK,
        versions=podgroup_k8s.KINDS,
        resource="podgroups",
        word="podgroup-k8s-io",
        judge=podgroup_k8s.object_problems,
        tell=lambda obj, _around: podgroup_k8s.object_warnings(obj),
        level=podgroup_k8s.named_level,
    ),
    ReviewedGroup(
        framework=podgroup_x_k8s.FRAMEWORK,
        versions=(podgroup_x_k8s.KIND,),
        resource="podgroups",
        word="podgroup-x-k8s-io",
        judge=podgroup_x_k8s.object_problems,
        tell=podgroup_x_k8s.object_warnings,
    ),
    ReviewedGroup(
        framework=batch_process.FRAMEWORK,
        versions=(batch_process.KIND,),
        resource=batch_process.PLURAL,
        word="batchprocess",
        judge=batch_process.problems,
        tell=lambda obj, _around: batch_process.warnings(obj),
        changes=_batch_changes,
        is_ours=True,
    ),
    ReviewedGroup(
        framework=podgroup_volcano.FRAMEWORK,
        versions=(podgroup_volcano.KIND,),
        resource="podgroups",
        word="podgroup-volcano-sh",
        judge=podgroup_volcano.object_problems,
        tell=lambda obj, _around: podgroup_volcano.object_warnings(obj),
        level=podgroup_volcano.named_level,
        proposed=lambda obj: text(obj, "spec", "queue"),
    ),
)

REVIEWED_GROUPS: Mapping[str, ReviewedGroup] = MappingProxyType({row.framework: row for row in _ROWS})
"""Group objects that have webhooks, by framework."""
