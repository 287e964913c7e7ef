"""Kubernetes' own PodGroups (`scheduling.k8s.io`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kqueue.api import names
from kqueue.errors import FieldError
from kqueue.jobs.fields import JSON, mapping, objects, text, whole
from kqueue.jobs.gang import group_object
from kqueue.jobs.gang.dialect import GangRules, GroupProblem, PodSelection
from kqueue.jobs.gang.value import GangMembership, GangPhase, GangRef, GangSpec, GangState
from kqueue.jobs.kind import GroupVersionKind, JobContext
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.switches import JobFeatures

FRAMEWORK = "scheduling.k8s.io/podgroup"
KINDS = tuple(GroupVersionKind("scheduling.k8s.io", v, "PodGroup") for v in ("v1beta1", "v1alpha3", "v1alpha2"))
_PATH = "spec.schedulingGroup.podGroupName"


class KubernetesPodGroups:
    """The dialect: a field of pods names a PodGroup, whose gang policy has the quorum.

    kube-scheduler owns the status of these objects.  A group with the basic policy is no gang: each pod counts alone.
    """

    framework = FRAMEWORK
    kinds = KINDS
    plural = "podgroups"
    makes_workloads = False
    guards_occupant = False
    announces_room = False
    writes_status = False
    names_workloads: GroupVersionKind | None = KINDS[0]
    has_extras = True
    joined_by = _PATH
    marks = frozenset({"schedulingGroup"})

    def membership(self, pod: Mapping[str, Any], switches: JobFeatures) -> GangMembership | None:
        """Return the group of the field."""
        name = text(pod, "spec", "schedulingGroup", "podGroupName")
        return GangMembership(framework=FRAMEWORK, name=name) if name else None

    def selection(self) -> PodSelection:
        """Return pods with the field."""
        return PodSelection(word="schedulinggroup", condition="has(object.spec.schedulingGroup)")

    def proposed_queue(self, obj: JSON) -> str:
        """Return nothing: the kind has no such field."""
        return ""

    def pod_problems(self, new: JSON, old: JSON | None, around: JobContext) -> Iterator[FieldError]:
        """Yield nothing: the API server checks the field."""
        yield from ()

    def pod_warnings(self, pod: JSON, around: JobContext) -> Iterable[str]:
        """Return nothing."""
        return ()

    def spec(
        self, ref: GangRef, obj: JSON | None, members: Sequence[ManagedPod], rules: GangRules
    ) -> GangSpec | GroupProblem:
        """Return the wish of the PodGroup's gang policy, or why the gang gets no Workload."""
        if obj is None:
            message = f"PodGroup {ref.name} does not exist in namespace {ref.namespace}; create it"
            return GroupProblem(message, members[0], incomplete=True)
        quorum = quorum_of(obj)
        mistake = next(iter(object_problems(obj)), None) or group_object.without_level(named_level(obj), rules)
        if mistake:
            return GroupProblem(f"PodGroup {ref.name}: {mistake}")
        return GangSpec(
            quorum=quorum,
            deadline=group_object.deadline_of(rules, quorum),
            queue=group_object.queue_of(obj),
            priority_class=group_object.priority_class_of(obj),
            pod_priority_class=text(obj, "spec", "priorityClassName"),
            topology=_topology(obj) or group_object.topology_of(obj),
            limit=group_object.limit_of(obj),
            quorum_field="spec.schedulingPolicy.gang.minCount",
        )

    def queues_alone(self, obj: JSON) -> bool:
        """Whether the PodGroup has the basic policy."""
        return not is_gang(obj)

    def phase(self, obj: JSON) -> GangPhase | None:
        """Return None: kqueue writes no phase as gangs have it."""
        return None

    def report(self, state: GangState) -> JSON:
        """Return nothing: kube-scheduler writes the status."""
        return {}


def is_gang(obj: JSON) -> bool:
    """Whether the PodGroup has the gang policy; with the basic policy each pod is queued alone."""
    return isinstance(mapping(obj, "spec", "schedulingPolicy").get("gang"), Mapping)


def quorum_of(obj: JSON) -> int:
    """Return the least number of pods that start together; 1 without a gang policy."""
    return (whole(obj, "spec", "schedulingPolicy", "gang", "minCount") or 1) if is_gang(obj) else 1


def _topology(obj: JSON) -> dict[str, str]:
    """Return the first topology constraint as an annotation; empty: there is none."""
    constraints = objects(obj, "spec", "schedulingConstraints", "topology")
    key = text(constraints[0], "key") if constraints else ""
    return {names.REQUIRED_TOPOLOGY_ANNOTATION: key} if key else {}


def object_problems(obj: JSON) -> Iterator[FieldError]:
    """Yield each mistake of a PodGroup's spec."""
    found = group_object.quorum_problem("spec.schedulingPolicy.gang.minCount", quorum_of(obj))
    if found is not None:
        yield found


def named_level(obj: JSON) -> tuple[str, str] | None:
    """Return the topology level that the spec names, and the sentence in case no Topology has it; None: it names
    none.
    """
    key = _topology(obj).get(names.REQUIRED_TOPOLOGY_ANNOTATION, "")
    return (key, f"spec.schedulingConstraints names {key}, which is a level of no Topology") if key else None


def object_warnings(obj: JSON) -> Iterator[str]:
    """Yield sentences about fields that have no effect."""
    mode = mapping(obj, "spec").get("disruptionMode")
    if mode == "Pod" or (isinstance(mode, Mapping) and "pod" in mode):
        yield "spec.disruptionMode Pod has no effect: kqueue preempts the pods of the quorum together"
