"""PodGroups of the coscheduling plugin (`scheduling.x-k8s.io/v1alpha1`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kqueue.api import gang_names, names
from kqueue.errors import FieldError
from kqueue.jobs.fields import JSON, annotations_of, int_of, label_of, labels_of, text, whole
from kqueue.jobs.gang import group_object
from kqueue.jobs.gang.dialect import GangRules, GroupProblem, PodSelection
from kqueue.jobs.gang.status import (
    admitted_at,
    group_condition,
    hindrance_of,
    is_quorum_ready,
    is_quorum_scheduled,
    with_others,
)
from kqueue.jobs.gang.value import GangMembership, GangPhase, GangRef, GangSpec, GangState
from kqueue.jobs.kind import GroupVersionKind, JobContext
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.switches import JobFeatures

FRAMEWORK = "scheduling.x-k8s.io/podgroup"
KIND = GroupVersionKind(names.POD_GROUP_GROUP, names.POD_GROUP_VERSION, "PodGroup")
_LABEL = gang_names.POD_GROUP_X_K8S_LABEL
_PATH = f"metadata.labels[{_LABEL}]"
_LONGEST_TIME = gang_names.MAX_SCHEDULE_TIME_ANNOTATION
_TIMEOUT_PATH, _LONGEST_PATH = "spec.scheduleTimeoutSeconds", f"metadata.annotations[{_LONGEST_TIME}]"
_PHASES = frozenset(phase.value for phase in GangPhase)


class CoschedulingPodGroups:
    """The dialect: a label on pods names a PodGroup, whose spec has the quorum."""

    framework = FRAMEWORK
    kinds = (KIND,)
    plural = "podgroups"
    makes_workloads = False
    guards_occupant = True
    announces_room = False
    writes_status = True
    names_workloads: GroupVersionKind | None = KIND
    has_extras = True
    joined_by = _PATH
    marks = frozenset({_LABEL})

    def membership(self, pod: Mapping[str, Any], switches: JobFeatures) -> GangMembership | None:
        """Return the group of the label."""
        name = label_of(pod, _LABEL)
        return GangMembership(framework=FRAMEWORK, name=name) if name else None

    def selection(self) -> PodSelection:
        """Return pods with the label."""
        return PodSelection(word="podgroup", label=_LABEL)

    def proposed_queue(self, obj: JSON) -> str:
        """Return nothing: the kind has no such field."""
        return ""

    def pod_problems(self, new: JSON, old: JSON | None, around: JobContext) -> Iterator[FieldError]:
        """Yield an empty label."""
        if labels_of(new).get(_LABEL) == "":
            yield FieldError(_PATH, "must not be empty", "")

    def pod_warnings(self, pod: JSON, around: JobContext) -> Iterable[str]:
        """Return nothing."""
        return ()

    def spec(
        self, ref: GangRef, obj: JSON | None, members: Sequence[ManagedPod], rules: GangRules
    ) -> GangSpec | GroupProblem:
        """Return the wish of the PodGroup's spec, or why the gang gets no Workload."""
        if obj is None:
            message = f"PodGroup {ref.name} does not exist in namespace {ref.namespace}; create it, or take label"
            return GroupProblem(f"{message} {_LABEL} off", members[0], incomplete=True)
        mistake = next(iter(object_problems(obj)), None)
        if mistake is not None:
            return GroupProblem(f"PodGroup {ref.name}: {mistake}")
        quorum = quorum_of(obj)
        return GangSpec(
            quorum=quorum,
            least=group_object.least_of(obj),
            deadline=group_object.deadline_of(rules, quorum, seconds=_seconds(obj)),
            queue=group_object.queue_of(obj),
            priority_class=group_object.priority_class_of(obj),
            topology=group_object.topology_of(obj),
            limit=group_object.limit_of(obj),
            quorum_field="spec.minMember",
        )

    def queues_alone(self, obj: JSON) -> bool:
        """Return False: all pods of a group start together."""
        return False

    def phase(self, obj: JSON) -> GangPhase | None:
        """Return `status.phase`; None for words of other controllers."""
        written = text(obj, "status", "phase")
        return GangPhase(written) if written in _PHASES else None

    def report(self, state: GangState) -> JSON:
        """Return the status: phase, occupant, counts, the time of the last release, and conditions."""
        counts = state.counts
        return {
            "phase": counts.phase.value,
            "occupiedBy": state.occupant,
            "running": counts.running,
            "succeeded": counts.succeeded,
            "failed": counts.failed,
            "scheduled": counts.scheduled,
            "scheduleStartTime": admitted_at(state.workload) or text(state.status, "scheduleStartTime"),
            "message": hindrance_of(state)[1],
            "conditions": with_others(state, _conditions(state)),
        }


def _conditions(state: GangState) -> list[JSON]:
    """Return Queued, Scheduled and Ready."""
    quorum, workload = state.gang.quorum, state.workload
    reason, message = hindrance_of(state)
    few, enough = f"Fewer than {quorum} pods", f"The quorum of {quorum} pods"
    return [
        group_condition(
            state,
            "Queued",
            holds=workload is not None,
            yes=("WorkloadCreated", f"Workload {text(workload, 'metadata', 'name')} counts the quorum"),
            no=(reason or "WorkloadMissing", message or "The Workload does not exist yet"),
        ),
        group_condition(
            state,
            "Scheduled",
            holds=is_quorum_scheduled(state),
            yes=("QuorumScheduled", f"{enough} has nodes"),
            no=(reason or "QuorumNotScheduled", message or f"{few} have nodes"),
        ),
        group_condition(
            state,
            "Ready",
            holds=is_quorum_ready(state),
            yes=("QuorumReady", f"{enough} is ready"),
            no=("QuorumNotReady", f"{few} are ready"),
        ),
    ]


def quorum_of(obj: JSON) -> int:
    """Return `spec.minMember`; absent or 0: 1."""
    return whole(obj, "spec", "minMember") or 1


def object_problems(obj: JSON) -> Iterator[FieldError]:
    """Yield each mistake of a PodGroup's spec."""
    found = group_object.quorum_problem("spec.minMember", quorum_of(obj))
    if found is not None:
        yield found
    yield from group_object.least_problems(obj)
    seconds = whole(obj, "spec", "scheduleTimeoutSeconds")
    if seconds is not None and seconds < 1:
        yield FieldError(_TIMEOUT_PATH, "must be 1 or more; leave it out for the default", seconds)
    longest = annotations_of(obj).get(_LONGEST_TIME)
    if longest is not None and (int_of(longest) or 0) < 1:
        yield FieldError(_LONGEST_PATH, "must be a whole number of seconds, 1 or more", longest)


def object_warnings(obj: JSON, around: JobContext) -> Iterator[str]:
    """Yield each deadline that is cut."""
    yield from group_object.cut(_TIMEOUT_PATH, whole(obj, "spec", "scheduleTimeoutSeconds"), around)
    yield from group_object.cut(_LONGEST_PATH, int_of(annotations_of(obj).get(_LONGEST_TIME, "")), around)


def _seconds(obj: JSON) -> int | None:
    """Return the shorter one of the timeout and the longest schedule time; None: neither is given."""
    given = [
        group_object.positive(obj, "spec", "scheduleTimeoutSeconds"),
        int_of(annotations_of(obj).get(_LONGEST_TIME, "")),
    ]
    return min((seconds for seconds in given if seconds is not None), default=None)
