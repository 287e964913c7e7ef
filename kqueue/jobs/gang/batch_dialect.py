"""BatchProcesses (`kqueue.dev/v1alpha1`): gangs whose Workload and pods kqueue makes from one object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kqueue.api import gang_names
from kqueue.errors import FieldError
from kqueue.jobs.fields import JSON, label_of, labels_of, objects, text
from kqueue.jobs.gang import group_object
from kqueue.jobs.gang.batch_process import FRAMEWORK, KIND, PLURAL, plan_of, problems
from kqueue.jobs.gang.dialect import GangRules, GroupProblem, PodSelection
from kqueue.jobs.gang.value import GangDeadline, GangMembership, GangPhase, GangRef, GangRole, GangSpec, GangState
from kqueue.jobs.kind import GroupVersionKind, JobContext
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.switches import JobFeatures

_LABEL = gang_names.BATCH_PROCESS_LABEL
_FIXED = (_LABEL, gang_names.BATCH_PROCESS_TYPE_LABEL, gang_names.BATCH_PROCESS_INDEX_LABEL)


class BatchProcesses:
    """The dialect: a label on pods names the BatchProcess that controls them."""

    framework = FRAMEWORK
    kinds = (KIND,)
    plural = PLURAL
    writes_status = False
    """The controller of BatchProcesses writes the status, which has more in it than a gang's."""
    makes_workloads = True
    guards_occupant = False
    announces_room = False
    names_workloads: GroupVersionKind | None = KIND
    has_extras = True
    joined_by = f"metadata.labels[{_LABEL}]"
    marks = frozenset({_LABEL})

    def membership(self, pod: Mapping[str, Any], switches: JobFeatures) -> GangMembership | None:
        """Return the BatchProcess of the label; None: it does not control the pod, and so has not created it."""
        name = label_of(pod, _LABEL)
        if not name or not _is_controlled(pod, name):
            return None
        return GangMembership(
            framework=FRAMEWORK,
            name=name,
            role=label_of(pod, gang_names.BATCH_PROCESS_TYPE_LABEL),
            rank=label_of(pod, gang_names.BATCH_PROCESS_INDEX_LABEL),
        )

    def selection(self) -> PodSelection | None:
        """Return None: kqueue creates the pods, and names their queue."""
        return None

    def proposed_queue(self, obj: JSON) -> str:
        """Return nothing: the kind has no such field."""
        return ""

    def pod_problems(self, new: JSON, old: JSON | None, around: JobContext) -> Iterator[FieldError]:
        """Yield changed labels of a pod's place: two pods in one place would be counted as one."""
        if old is None or self.membership(old, around.switches) is None:
            return
        before, after = labels_of(old), labels_of(new)
        for key in _FIXED:
            if before.get(key) != after.get(key):
                yield FieldError(f"metadata.labels[{key}]", "cannot change; delete the pod instead", after.get(key))

    def pod_warnings(self, pod: JSON, around: JobContext) -> Iterable[str]:
        """Return nothing."""
        return ()

    def spec(
        self, ref: GangRef, obj: JSON | None, members: Sequence[ManagedPod], rules: GangRules
    ) -> GangSpec | GroupProblem:
        """Return the wish of the BatchProcess's spec, or why the gang gets no Workload."""
        if obj is None:
            return GroupProblem(f"BatchProcess {ref.name} does not exist in namespace {ref.namespace}", incomplete=True)
        mistake = next(iter(problems(obj)), None)
        if mistake is not None:
            return GroupProblem(f"BatchProcess {ref.name}: {mistake}")
        plan = plan_of(obj)
        seconds = group_object.positive(obj, "spec", "podGroup", "timeoutSeconds")
        return GangSpec(
            quorum=plan.quorum,
            desired=plan.replicas,
            roles=tuple(GangRole(name=r.name, minimum=r.base, desired=r.replicas) for r in plan.roles),
            deadline=None if seconds is None else GangDeadline(seconds=float(seconds), since="creation", then="fail"),
            queue=group_object.queue_of(obj),
            priority_class=group_object.priority_class_of(obj),
            topology=group_object.topology_of(obj),
            limit=group_object.positive(obj, "spec", "activeDeadlineSeconds"),
        )

    def queues_alone(self, obj: JSON) -> bool:
        """Return False: all pods of a group start together."""
        return False

    def phase(self, obj: JSON) -> GangPhase | None:
        """Return None: kqueue writes no phase as gangs have it."""
        return None

    def report(self, state: GangState) -> JSON:
        """Return nothing: `batch_status` computes the status."""
        return {}


def _is_controlled(pod: Mapping[str, Any], name: str) -> bool:
    owners = objects(pod, "metadata", "ownerReferences")
    owner = next((owner for owner in owners if owner.get("controller") is True), {})
    group = text(owner, "apiVersion").rpartition("/")[0]
    return (group, text(owner, "kind"), text(owner, "name")) == (KIND.group, KIND.kind, name)
