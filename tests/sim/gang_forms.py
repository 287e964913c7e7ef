"""Gangs in the form that users submit: labels on pods, group objects of other projects with their pods, BatchProcesses."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from kqueue.api import gang_names, names
from kqueue.jobs.gang import batch_process, coscheduling_labels, podgroup_k8s, podgroup_volcano, podgroup_x_k8s
from kqueue.sandbox.api import GroupVersionResource, Object
from tests.sim.kinds import BATCHES, KUBERNETES_GROUPS, POD_GROUPS, VOLCANO_GROUPS, Group, labels_of_queue, pod
from tests.sim.objects import NAMESPACE

DIALECTS = (
    coscheduling_labels.FRAMEWORK,
    podgroup_x_k8s.FRAMEWORK,
    podgroup_volcano.FRAMEWORK,
    podgroup_k8s.FRAMEWORK,
    batch_process.FRAMEWORK,
)
"""All dialects of gangs but Kueue's own groups."""


@dataclass(slots=True, kw_only=True)
class LabelledGroup(Group):
    """A gang by labels; members beyond the quorum are wanted, too."""

    quorum: int

    @property
    def starts(self) -> int:
        return self.quorum

    def is_whole(self, message: str) -> bool:
        """Whether the end of its Workload was that of a whole quorum, which may have had another size at that time."""
        found = re.match(r"(\d+) of (\d+) ", message)
        return found is not None and found[1] == found[2]

    def member(self, name: str, number: int, **other: str) -> Object:
        """Return the next pod in the role of the `number`-th, with other labels."""
        self.made += 1
        obj = pod(f"{name}-{self.made}", gpus=self.roles[number], **self.body)
        obj["metadata"]["labels"] |= {"part": str(number), **other}
        self.join(obj, name, other)
        if self.ranked:
            obj["metadata"]["annotations"][names.POD_GROUP_POD_INDEX_LABEL_ANNOTATION] = "part"
        return obj

    def join(self, obj: Object, name: str, other: dict[str, str]) -> None:
        """Make the pod a member by its marks, of which `other` replaces some."""
        marks = {
            gang_names.COSCHEDULING_NAME_LABEL: name,
            gang_names.COSCHEDULING_MIN_AVAILABLE_LABEL: str(self.quorum),
        }
        obj["metadata"]["labels"] |= marks | other


class ObjectGroup(LabelledGroup):
    """A gang with a PodGroup of scheduler-plugins, which has the quorum."""

    resource: ClassVar[GroupVersionResource] = POD_GROUPS

    def join(self, obj: Object, name: str, other: dict[str, str]) -> None:
        """Label the pod with the name of the object."""
        obj["metadata"]["labels"][gang_names.POD_GROUP_X_K8S_LABEL] = name

    def group_object(self, name: str) -> Object:
        """Return the group object."""
        kind = "BatchProcess" if self.resource == BATCHES else "PodGroup"
        return {
            "apiVersion": f"{self.resource.group}/{self.resource.version}",
            "kind": kind,
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": self.spec(),
        }

    def spec(self) -> Object:
        """Return the spec of the group object."""
        return {"minMember": self.quorum}


class VolcanoGroup(ObjectGroup):
    """A gang with Volcano's PodGroup."""

    resource = VOLCANO_GROUPS

    def join(self, obj: Object, name: str, other: dict[str, str]) -> None:
        """Annotate the pod with the name of the object."""
        obj["metadata"]["annotations"][gang_names.VOLCANO_GROUP_ANNOTATIONS[0]] = name


class KubernetesGroup(ObjectGroup):
    """A gang with Kubernetes' own PodGroup."""

    resource = KUBERNETES_GROUPS

    def join(self, obj: Object, name: str, other: dict[str, str]) -> None:
        """Write the name of the object into the field of the pod."""
        obj["spec"]["schedulingGroup"] = {"podGroupName": name}

    def spec(self) -> Object:
        return {"schedulingPolicy": {"gang": {"minCount": self.quorum}}}


class BatchGroup(ObjectGroup):
    """A BatchProcess, whose pods kqueue makes itself: one process for each size of pod."""

    resource = BATCHES

    def group_object(self, name: str) -> Object:
        """Return the BatchProcess with its queue and priority."""
        made = super().group_object(name)
        made["metadata"]["labels"] = labels_of_queue(self.body["queue"], self.body["priority"])
        return made

    def spec(self) -> Object:
        how = {key: self.body[key] for key in ("run_seconds", "topology")}
        processes = [
            {
                "name": f"gpus-{gpus}",
                "replicas": count,
                "minAvailable": 0,
                "template": template_of_pod(gpus=gpus, **how),
            }
            for gpus, count in sorted(Counter(self.roles).items())
        ]
        return {
            "podGroup": {"minAvailable": self.quorum},
            "simpleProcesses": processes,
            "failurePolicy": {"backoffLimit": 1000},
        }


def template_of_pod(*, gpus: int, run_seconds: int, topology: tuple[str, str] | None) -> Object:
    """Return the template of a pod that is queued alone otherwise."""
    made = pod("", queue="", gpus=gpus, topology=topology, run_seconds=run_seconds)
    return {"metadata": {"annotations": made["metadata"]["annotations"]}, "spec": made["spec"]}


FORMS: dict[str, type[LabelledGroup]] = {
    "labels": LabelledGroup,
    "object": ObjectGroup,
    "volcano": VolcanoGroup,
    "kubernetes": KubernetesGroup,
    "batch": BatchGroup,
}
