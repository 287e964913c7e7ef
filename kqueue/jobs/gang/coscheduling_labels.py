"""Gangs by two labels, as early coscheduling plugins have them: the group's name, and how many pods start together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kqueue.api import gang_names
from kqueue.errors import FieldError
from kqueue.jobs.fields import JSON, annotations_of, int_of, label_of, labels_of
from kqueue.jobs.gang.dialect import LARGEST_QUORUM, GangRules, GroupProblem, PodSelection, WithoutGroupObject
from kqueue.jobs.gang.group_object import cut
from kqueue.jobs.gang.members import is_fast, is_serving, queue_of
from kqueue.jobs.gang.podgroup_x_k8s import FRAMEWORK as PODGROUPS
from kqueue.jobs.gang.value import GangDeadline, GangMembership, GangNotice, GangRef, GangSpec
from kqueue.jobs.kind import GroupVersionKind, JobContext
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.switches import JobFeatures

FRAMEWORK = "kqueue.dev/coscheduling-labels"
_NAME, _QUORUM = gang_names.COSCHEDULING_NAME_LABEL, gang_names.COSCHEDULING_MIN_AVAILABLE_LABEL
_NAME_PATH, _QUORUM_PATH = f"metadata.labels[{_NAME}]", f"metadata.labels[{_QUORUM}]"
_TIMEOUT_PATH = f"metadata.annotations[{gang_names.SCHEDULE_TIMEOUT_ANNOTATION}]"


class CoschedulingLabels(WithoutGroupObject):
    """The dialect: the oldest member says the quorum, and all present members beyond it are extras."""

    framework = FRAMEWORK
    names_workloads = GroupVersionKind("pod-group.scheduling.x-k8s.io", "v1", "PodGroup")
    has_extras = True
    joined_by = _NAME_PATH
    marks = frozenset({_NAME})

    def membership(self, pod: Mapping[str, Any], switches: JobFeatures) -> GangMembership | None:
        """Return the group of the name label, unless the pod is in a PodGroup of the same name, which then counts."""
        name = label_of(pod, _NAME)
        if not name or _is_podgroup(pod, name, switches):
            return None
        return GangMembership(framework=FRAMEWORK, name=name)

    def selection(self) -> PodSelection:
        """Return pods with the name label."""
        return PodSelection(word="coscheduling", label=_NAME)

    def pod_problems(self, new: JSON, old: JSON | None, around: JobContext) -> Iterator[FieldError]:
        """Yield mistakes in name and number, which go together, and in the deadline."""
        labels = labels_of(new)
        name = labels.get(_NAME)
        if name and _is_podgroup(new, name, around.switches):
            return
        if name == "":
            yield FieldError(_NAME_PATH, "must not be empty")
        if name is None and _QUORUM in labels:
            yield FieldError(_NAME_PATH, f"must be set together with {_QUORUM}")
        if name:
            yield from _quorum_problems(new)
        written = annotations_of(new).get(gang_names.SCHEDULE_TIMEOUT_ANNOTATION)
        if name and written is not None and _positive(written) is None:
            yield FieldError(_TIMEOUT_PATH, "must be a whole number of seconds, 1 or more", written)

    def pod_warnings(self, pod: JSON, around: JobContext) -> Iterator[str]:
        """Yield a quorum that a PodGroup overrides, and a deadline that is cut."""
        name = labels_of(pod).get(_NAME, "")
        if name and _is_podgroup(pod, name, around.switches):
            if _QUORUM in labels_of(pod):
                yield f"{_QUORUM_PATH} has no effect: PodGroup {name} has the quorum"
        elif name:
            written = _positive(annotations_of(pod).get(gang_names.SCHEDULE_TIMEOUT_ANNOTATION, ""))
            yield from cut(_TIMEOUT_PATH, written, around)

    def spec(
        self, ref: GangRef, obj: JSON | None, members: Sequence[ManagedPod], rules: GangRules
    ) -> GangSpec | GroupProblem:
        """Return a wish for the quorum of the oldest member.

        A member without a readable number holds its own group up; one with another number does not.
        """
        alive = [pod for pod in members if pod.phase != "Failed"] or list(members)
        for pod in alive:
            for mistake in _quorum_problems(pod.obj):
                return GroupProblem(str(mistake), pod)
        first = alive[0]
        quorum = _quorum_of(first)
        return GangSpec(
            quorum=quorum,
            queue=queue_of(alive),
            deadline=GangDeadline(seconds=_timeout(first, quorum, rules)),
            fast=is_fast(first),
            serving=is_serving(first),
            quorum_field=f"label {_QUORUM}",
            notices=tuple(_differences(alive, quorum)),
        )


def _is_podgroup(pod: Mapping[str, Any], name: str, switches: JobFeatures) -> bool:
    """Whether the pod is in a PodGroup of this name, by the label of a dialect that is on."""
    return PODGROUPS in switches.gangs and label_of(pod, gang_names.POD_GROUP_X_K8S_LABEL) == name


def _quorum_problems(pod: Mapping[str, Any]) -> Iterable[FieldError]:
    written = label_of(pod, _QUORUM)
    if not written and _QUORUM not in labels_of(pod):
        needed = f"how many pods of {label_of(pod, _NAME)} must start together"
        return [FieldError(_QUORUM_PATH, f"must be set together with the group's name: {needed}")]
    quorum = _positive(written)
    if quorum is None:
        return [FieldError(_QUORUM_PATH, "must be a whole number of pods, 1 or more", written)]
    if quorum > LARGEST_QUORUM:
        return [FieldError(_QUORUM_PATH, f"must be at most {LARGEST_QUORUM}", written)]
    return []


def _quorum_of(pod: ManagedPod) -> int:
    return _positive(label_of(pod.obj, _QUORUM)) or 1


def _differences(members: Sequence[ManagedPod], quorum: int) -> Iterator[GangNotice]:
    for pod in members:
        if _quorum_of(pod) != quorum:
            yield GangNotice(
                f"label {_QUORUM} is {_quorum_of(pod)}, and {quorum} on pod {members[0].name} of the same group; "
                "the oldest pod counts",
                pod,
            )


def _timeout(first: ManagedPod, quorum: int, rules: GangRules) -> float:
    written = _positive(annotations_of(first.obj).get(gang_names.SCHEDULE_TIMEOUT_ANNOTATION, ""))
    return rules.timeouts.seconds(quorum) if written is None else min(float(written), rules.timeouts.maximum)


def _positive(written: str) -> int | None:
    """Return the number of decimal digits alone, 1 or more; None for every other text."""
    number = int_of(written, bits=64) if written.isascii() and written.isdigit() else None
    return number or None
