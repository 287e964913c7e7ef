"""Groups of pods as Kueue's annotations and labels have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kqueue.api import names
from kqueue.errors import FieldError
from kqueue.jobs import rules, syntax
from kqueue.jobs.fields import JSON, annotation_of, int_of, label_of, labels_of
from kqueue.jobs.gang.dialect import GangRules, GroupProblem, PodSelection, WithoutGroupObject
from kqueue.jobs.gang.key import KUEUE_GROUPS
from kqueue.jobs.gang.members import is_fast, is_serving, other_queue, runnable, shortage
from kqueue.jobs.gang.value import GangMembership, GangRef, GangSpec
from kqueue.jobs.kind import GroupVersionKind, JobContext
from kqueue.jobs.pod_view import ManagedPod, total_count, written_total
from kqueue.jobs.switches import JobFeatures

_ANNOTATIONS = "metadata.annotations"
_GROUP_PATH = f"{_ANNOTATIONS}[{names.POD_GROUP_NAME_ANNOTATION}]"
_TOTAL = f"annotation {names.POD_GROUP_TOTAL_COUNT_ANNOTATION}"
_TOTAL_PATH = f"{_ANNOTATIONS}[{names.POD_GROUP_TOTAL_COUNT_ANNOTATION}]"


class KueueGroups(WithoutGroupObject):
    """The dialect: the quorum is the total that the pods say, and pods beyond it are deleted."""

    framework = KUEUE_GROUPS
    names_workloads: GroupVersionKind | None = None
    has_extras = False
    joined_by = _GROUP_PATH
    marks = frozenset({names.POD_GROUP_NAME_ANNOTATION, names.POD_GROUP_NAME_LABEL})

    def membership(self, pod: Mapping[str, Any], switches: JobFeatures) -> GangMembership | None:
        """Return the group of the annotation if it counts, else of the label."""
        name = ""
        if switches.identifier_annotations:
            name = annotation_of(pod, names.POD_GROUP_NAME_ANNOTATION)
        name = name or label_of(pod, names.POD_GROUP_NAME_LABEL)
        return GangMembership(framework=KUEUE_GROUPS, name=name) if name else None

    def selection(self) -> PodSelection | None:
        """Return None: such pods name a queue."""
        return None

    def pod_problems(self, new: JSON, old: JSON | None, around: JobContext) -> Iterator[FieldError]:
        """Yield mistakes in name and total, which go together."""
        found, total = self.membership(new, around.switches), written_total(new)
        group = found.name if found is not None else ""
        if group:
            yield from syntax.check(syntax.subdomain, group, _GROUP_PATH)
        if group and total is None:
            yield FieldError(_TOTAL_PATH, f"must be set together with the group's name: how many pods {group} has")
        if total is not None and not group:
            yield FieldError(_GROUP_PATH, f"must be set together with {names.POD_GROUP_TOTAL_COUNT_ANNOTATION}")
        if total is not None and total_count(new) is None:
            yield FieldError(_TOTAL_PATH, "must be a whole number of pods, 1 or more", total)
        labelled = labels_of(new).get(names.POD_GROUP_NAME_LABEL, "")
        if labelled and group and labelled != group:
            yield FieldError(
                _GROUP_PATH, f"says another group than the label of that name, {labelled!r}; keep one", group
            )

    def spec(
        self, ref: GangRef, obj: JSON | None, members: Sequence[ManagedPod], rules: GangRules
    ) -> GangSpec | GroupProblem:
        """Return a wish for as many pods as the oldest member says; members of a complete group have to agree."""
        first = members[0]
        total = first.total
        if total is None:
            return GroupProblem(f"{_TOTAL} must say how many pods the group has, a whole number above 0", first)
        trouble = (
            _index_trouble(first, total)
            or shortage(runnable(members), total, fast=is_fast(first))
            or _disagreement([pod for pod in members if pod.phase != "Failed"], total)
        )
        if trouble is not None:
            return trouble
        return GangSpec(quorum=total, desired=total, fast=is_fast(first), serving=is_serving(first))


def _index_trouble(first: ManagedPod, total: int) -> GroupProblem | None:
    index = labels_of(first.obj).get(names.POD_GROUP_POD_INDEX_LABEL)
    number = int_of(index) if index is not None else 0
    if number is not None and 0 <= number < total:
        return None
    label = names.POD_GROUP_POD_INDEX_LABEL
    return GroupProblem(f"label {label} is {index!r} and must be a whole number from 0 to {total - 1}", first)


def _disagreement(members: Sequence[ManagedPod], total: int) -> GroupProblem | None:
    queue = rules.queue_name(members[0].obj) if members else ""
    for pod in members:
        if rules.queue_name(pod.obj) != queue:
            return other_queue(pod, members[0])
        if pod.total != total:
            return GroupProblem(
                f"{_TOTAL} is {written_total(pod.obj)!r}, and {total} on pod "
                f"{members[0].name} of the same group; all pods of a group need the same, correct one of them",
                pod,
            )
    return None
