"""PodGroups of Volcano (`scheduling.volcano.sh/v1beta1`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kqueue.api import gang_names, names
from kqueue.errors import FieldError
from kqueue.jobs.fields import JSON, annotation_of, annotations_of, condition_status, mapping, text, whole
from kqueue.jobs.gang import group_object
from kqueue.jobs.gang.dialect import GangRules, GroupProblem, PodSelection
from kqueue.jobs.gang.status import group_condition, hindrance_of, is_quorum_scheduled, with_others
from kqueue.jobs.gang.value import GangMembership, GangNotice, GangPhase, GangRef, GangRole, GangSpec, GangState
from kqueue.jobs.kind import GroupVersionKind, JobContext
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.switches import JobFeatures

FRAMEWORK = "scheduling.volcano.sh/podgroup"
KIND = GroupVersionKind("scheduling.volcano.sh", "v1beta1", "PodGroup")
_GROUPS = gang_names.VOLCANO_GROUP_ANNOTATIONS
_TASK = gang_names.VOLCANO_TASK_ANNOTATION
_CONDITION = " || ".join(f"{key!r} in object.metadata.annotations" for key in _GROUPS)
_PHASES = {
    GangPhase.PENDING: "Pending",
    GangPhase.SCHEDULING: "Inqueue",
    GangPhase.RUNNING: "Running",
    GangPhase.UNKNOWN: "Unknown",
    GangPhase.FAILED: "Unknown",
    GangPhase.FINISHED: "Completed",
}
"""The phase in Volcano's words."""


class VolcanoPodGroups:
    """The dialect: an annotation on pods names a PodGroup, whose spec has the quorum and minima of tasks."""

    framework = FRAMEWORK
    kinds = (KIND,)
    plural = "podgroups"
    makes_workloads = False
    guards_occupant = False
    announces_room = True
    writes_status = True
    names_workloads: GroupVersionKind | None = KIND
    has_extras = True
    joined_by = f"metadata.annotations[{_GROUPS[0]}]"
    marks = frozenset(_GROUPS)

    def membership(self, pod: Mapping[str, Any], switches: JobFeatures) -> GangMembership | None:
        """Return the group of the first annotation that is set; the task is the role."""
        name = next((name for key in _GROUPS if (name := annotation_of(pod, key))), "")
        return GangMembership(framework=FRAMEWORK, name=name, role=annotation_of(pod, _TASK)) if name else None

    def selection(self) -> PodSelection:
        """Return pods with one of the annotations."""
        return PodSelection(word="volcano", condition=f"has(object.metadata.annotations) && ({_CONDITION})")

    def proposed_queue(self, obj: JSON) -> str:
        """Return `spec.queue`."""
        return text(obj, "spec", "queue")

    def pod_problems(self, new: JSON, old: JSON | None, around: JobContext) -> Iterator[FieldError]:
        """Yield nothing: Volcano's controllers write the annotations."""
        yield from ()

    def pod_warnings(self, pod: JSON, around: JobContext) -> Iterable[str]:
        """Return nothing."""
        return ()

    def spec(
        self, ref: GangRef, obj: JSON | None, members: Sequence[ManagedPod], rules: GangRules
    ) -> GangSpec | GroupProblem:
        """Return the wish of the PodGroup's spec, or why the gang gets no Workload."""
        if obj is None:
            message = f"PodGroup {ref.name} does not exist in namespace {ref.namespace}; create it, or take annotation"
            return GroupProblem(f"{message} {_GROUPS[0]} off", members[0], incomplete=True)
        mistake = next(iter(object_problems(obj)), None)
        if mistake is not None:
            return GroupProblem(f"PodGroup {ref.name}: {mistake}")
        roles = tuple(GangRole(name=task, minimum=minimum) for task, minimum in sorted(_tasks(obj).items()))
        quorum = quorum_of(obj)
        unknown = group_object.without_level(named_level(obj), rules)
        return GangSpec(
            quorum=quorum,
            roles=roles,
            least=group_object.least_of(obj),
            deadline=group_object.deadline_of(rules, quorum),
            queue=group_object.queue_of(obj) or text(obj, "spec", "queue"),
            priority_class=group_object.priority_class_of(obj),
            pod_priority_class=text(obj, "spec", "priorityClassName"),
            topology=({} if unknown else _topology(obj)) or group_object.topology_of(obj),
            limit=group_object.limit_of(obj),
            quorum_field="spec.minMember",
            notices=(GangNotice(unknown, members[0], names.REASON_MISCONFIGURED),) if unknown and members else (),
        )

    def queues_alone(self, obj: JSON) -> bool:
        """Return False: all pods of a group start together."""
        return False

    def phase(self, obj: JSON) -> GangPhase | None:
        """Return the phase for Volcano's word; None for a word that kqueue does not write.

        A group that has told its controller to create pods waits for them.
        """
        if _is_announced(mapping(obj, "status")):
            return GangPhase.PENDING
        written = text(obj, "status", "phase")
        return next((phase for phase, word in _PHASES.items() if word == written), None)

    def report(self, state: GangState) -> JSON:
        """Return phase, counts and conditions of the status, in Volcano's words.

        `Inqueue` before the first admission lets a controller create pods; it stays until the quorum is there, because
        such a controller would stop at any other word.
        """
        counts, waits = state.counts, state.workload is None and state.counts.phase is GangPhase.PENDING
        announced = waits and (state.has_room or _is_announced(state.status))
        return {
            "phase": _PHASES[GangPhase.SCHEDULING if announced else counts.phase],
            "running": counts.running,
            "succeeded": counts.succeeded,
            "failed": counts.failed,
            "conditions": with_others(state, _conditions(state)),
        }


def _is_announced(status: Mapping[str, Any]) -> bool:
    """Whether the status lets a controller create pods although nothing is admitted yet."""
    waits = condition_status({"status": status}, "Unschedulable") == "True"
    return waits and text(status, "phase") == _PHASES[GangPhase.SCHEDULING]


def _conditions(state: GangState) -> list[JSON]:
    """Return Scheduled and Unschedulable; their transition is the Workload."""
    quorum = state.gang.quorum
    reason, message = hindrance_of(state)
    is_complete = state.workload is not None or state.gang.problem is None
    said = [
        group_condition(
            state,
            "Scheduled",
            holds=is_quorum_scheduled(state),
            yes=("QuorumScheduled", f"The quorum of {quorum} pods has nodes"),
            no=("QuorumNotScheduled", f"Fewer than {quorum} pods have nodes"),
        ),
        group_condition(
            state,
            "Unschedulable",
            holds=state.counts.phase is GangPhase.PENDING,
            yes=("NotEnoughResources" if is_complete else reason, message or "The group waits for quota"),
            no=("Released", "The quorum was released"),
        ),
    ]
    transition = text(state.workload, "metadata", "uid")
    return [{**condition, "transitionID": transition} if transition else condition for condition in said]


def quorum_of(obj: JSON) -> int:
    """Return `spec.minMember` (absent or 0: 1), or the sum of `spec.minTaskMember` if that is larger."""
    return max(whole(obj, "spec", "minMember") or 1, sum(_tasks(obj).values()))


def _tasks(obj: JSON) -> dict[str, int]:
    """Return the minimum of each task, without minima that are no positive numbers."""
    found = mapping(obj, "spec", "minTaskMember")
    return {t: n for t, n in found.items() if isinstance(n, int) and not isinstance(n, bool) and n > 0}


def _topology(obj: JSON) -> dict[str, str]:
    """Return `spec.networkTopology` as an annotation; empty: it names no tier, or an unknown mode."""
    wish = mapping(obj, "spec", "networkTopology")
    keys = {"hard": names.REQUIRED_TOPOLOGY_ANNOTATION, "soft": names.PREFERRED_TOPOLOGY_ANNOTATION}
    key, tier = keys.get(text(wish, "mode") or "hard"), text(wish, "highestTierName")
    return {key: tier} if key and tier else {}


def named_level(obj: JSON) -> tuple[str, str] | None:
    """Return the topology level that the spec names, and the sentence in case no Topology has it; None: it names
    none.
    """
    tier = next(iter(_topology(obj).values()), "")
    return (tier, _no_level(tier)) if tier else None


def _no_level(tier: object) -> str:
    return f"spec.networkTopology has no effect: {tier} is no level of a Topology"


def object_problems(obj: JSON) -> Iterator[FieldError]:
    """Yield each mistake of a PodGroup's spec."""
    found = group_object.quorum_problem("spec.minMember", quorum_of(obj))
    if found is not None:
        yield found
    yield from group_object.least_problems(obj)


def object_warnings(obj: JSON) -> Iterator[str]:
    """Yield sentences about fields that have no effect, or another effect than the user may expect."""
    given, needed = whole(obj, "spec", "minMember") or 1, sum(_tasks(obj).values())
    if needed > given:
        yield f"spec.minMember is {given} and spec.minTaskMember needs {needed} together; {needed} counts"
    wish = mapping(obj, "spec", "networkTopology")
    if wish and not _topology(obj):
        yield _no_level(wish.get("highestTierName") or wish.get("highestTierAllowed") or "the highest tier")
    if mapping(obj, "spec").get("subGroupPolicy"):
        yield "subGroupPolicy has no effect; use one PodGroup per subgroup, or topology annotations"
    if gang_names.VOLCANO_WAITING_TIME_ANNOTATION in annotations_of(obj):
        yield f"metadata.annotations[{gang_names.VOLCANO_WAITING_TIME_ANNOTATION}] has no effect"
