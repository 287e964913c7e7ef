"""JobSets, pods, groups of pods, Deployments and StatefulSets in the form that users submit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kqueue.api import gang_names, names
from kqueue.sandbox.api import GroupVersionResource, Object
from tests.sim.objects import NAMESPACE, WORKLOADS, template
from tests.sim.world import World

POD_GROUPS = GroupVersionResource("scheduling.x-k8s.io", "v1alpha1", "podgroups")
VOLCANO_GROUPS = GroupVersionResource("scheduling.volcano.sh", "v1beta1", "podgroups")
KUBERNETES_GROUPS = GroupVersionResource("scheduling.k8s.io", "v1alpha2", "podgroups")
BATCHES = GroupVersionResource("kqueue.dev", "v1alpha1", "batchprocesses")
LEADER_SETS = GroupVersionResource("leaderworkerset.x-k8s.io", "v1", "leaderworkersets")
GROUP_OBJECTS = (POD_GROUPS, VOLCANO_GROUPS, KUBERNETES_GROUPS, BATCHES)
"""Kinds of objects that gangs have."""


def _topology(topology: tuple[str, str] | None) -> dict[str, str]:
    return {f"{names.GROUP}/podset-{topology[0]}-topology": topology[1]} if topology is not None else {}


def labels_of_queue(queue: str, priority: str) -> dict[str, str]:
    """Return the labels of an object in a queue."""
    return {names.QUEUE_NAME_LABEL: queue, **({names.PRIORITY_CLASS_LABEL: priority} if priority else {})}


def job_set(
    name: str,
    *,
    queue: str,
    parts: tuple[tuple[int, int], ...],
    gpus: int,
    topology: tuple[str, str] | None = None,
    together: bool = False,
    priority: str = "",
    run_seconds: int = 5,
    fail: bool = False,
) -> Object:
    """Return a JobSet; `parts` are (replicas, pods of each), `together` places them as one group."""
    notes = _topology(topology) | ({names.PODSET_GROUP_NAME_ANNOTATION: "all"} if together else {})
    retries = 0 if fail else 100
    jobs = [
        {
            "name": f"part-{number}",
            "replicas": replicas,
            "template": {
                "spec": {
                    "parallelism": pods,
                    "completions": pods,
                    "backoffLimit": retries,
                    "template": template(gpus=gpus, run_seconds=run_seconds, fail=fail, annotations=notes),
                }
            },
        }
        for number, (replicas, pods) in enumerate(parts)
    ]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels_of_queue(queue, priority)},
        "spec": {"replicatedJobs": jobs, "failurePolicy": {"maxRestarts": retries}},
    }


def pod(
    name: str,
    *,
    queue: str,
    gpus: int,
    topology: tuple[str, str] | None = None,
    priority: str = "",
    run_seconds: int = 5,
    fail: bool = False,
) -> Object:
    """A pod that is queued alone."""
    made = template(gpus=gpus, run_seconds=run_seconds, fail=fail, annotations=_topology(topology))
    metadata = {**made["metadata"], "name": name, "namespace": NAMESPACE, "labels": labels_of_queue(queue, priority)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made["spec"]}


@dataclass(slots=True, kw_only=True)
class Group:
    """A group of pods as its user intends it."""

    roles: tuple[int, ...]
    """The GPUs of each pod."""
    body: dict[str, Any]
    ranked: bool = False
    fast: bool = False
    complete: bool = True
    """Whether its user creates missing pods."""
    made: int = 0

    @property
    def starts(self) -> int:
        """The number of pods that start together."""
        return len(self.roles)

    def is_whole(self, message: str) -> bool:
        """Whether the message about the end of its Workload tells that all its pods succeeded."""
        return message.startswith(f"{self.starts} of {self.starts} ")

    def member(self, name: str, number: int, **other: str) -> Object:
        """Return the next pod in the role of the `number`-th, with other annotations."""
        self.made += 1
        obj = pod(f"{name}-{self.made}", gpus=self.roles[number], **self.body)
        obj["metadata"]["labels"]["part"] = str(number)
        obj["metadata"]["annotations"] |= {
            names.POD_GROUP_NAME_ANNOTATION: name,
            names.POD_GROUP_TOTAL_COUNT_ANNOTATION: str(len(self.roles)),
            **({names.POD_GROUP_POD_INDEX_LABEL_ANNOTATION: "part"} if self.ranked else {}),
            **({names.POD_GROUP_FAST_ADMISSION_ANNOTATION: "true"} if self.fast else {}),
            **other,
        }
        return obj


def serving(
    kind: str,
    name: str,
    *,
    queue: str,
    replicas: int,
    gpus: int,
    topology: tuple[str, str] | None = None,
    priority: str = "",
) -> Object:
    """A Deployment or StatefulSet, whose pods run until they are deleted."""
    made = template(gpus=gpus, run_seconds=None, annotations=_topology(topology))
    made["metadata"]["labels"] = {"app": name}
    made["spec"]["restartPolicy"] = "Always"
    more = {"serviceName": name, "podManagementPolicy": "Parallel"} if kind == "StatefulSet" else {}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels_of_queue(queue, priority)},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": made, **more},
    }


def gang_of(pod: Object) -> str:
    """Return the gang that a pod names in any dialect but Kueue's; empty if it names none."""
    labels, notes = pod["metadata"].get("labels") or {}, pod["metadata"].get("annotations") or {}
    keys = (gang_names.COSCHEDULING_NAME_LABEL, gang_names.POD_GROUP_X_K8S_LABEL, gang_names.BATCH_PROCESS_LABEL)
    named = [labels.get(key) for key in keys] + [notes.get(key) for key in gang_names.VOLCANO_GROUP_ANNOTATIONS]
    named.append((pod["spec"].get("schedulingGroup") or {}).get("podGroupName"))
    return next((str(name) for name in named if name), "")


def group_of(pod: Object) -> str:
    """Return the group of a pod, in any dialect; empty if it has none."""
    named = (pod["metadata"].get("annotations") or {}).get(names.POD_GROUP_NAME_ANNOTATION, "")
    return str(named) or gang_of(pod)


def is_extra(pod: Object) -> bool:
    """Whether the pod is marked as one beyond the quorum of its gang."""
    return (pod["metadata"].get("annotations") or {}).get(gang_names.EXTRA_ANNOTATION) in ("true", "early")


def base_of(workload: Object) -> str:
    """Return the Workload of the quorum beyond which the Workload's pod is; empty for other Workloads."""
    return str((workload["metadata"].get("annotations") or {}).get(gang_names.EXTRA_OF_ANNOTATION, ""))


def gang_of_workload(workload: Object) -> str:
    """Return the gang whose quorum the Workload counts, in any dialect but Kueue's; empty for other Workloads."""
    marked = (workload["metadata"].get("annotations") or {}).get(gang_names.GANG_ANNOTATION, "")
    return str(marked).partition(":")[2]


def least_of(workload: Object) -> str:
    """Return the amounts that must be free before the gang of the Workload starts; empty: it needs its requests only."""
    return str((workload["metadata"].get("annotations") or {}).get(gang_names.MIN_RESOURCES_ANNOTATION, ""))


def group_objects(world: World) -> list[Object]:
    """Return the group objects of all dialects."""
    return [each for kind in GROUP_OBJECTS for each in world.api.every(kind)]


def group_object_of(world: World, gang: str) -> Object | None:
    """Return the group object of a gang; None: it has none."""
    return next((each for each in group_objects(world) if each["metadata"]["name"] == gang), None)


def quorum_in(spec: Object) -> int:
    """Return the quorum in the spec of a group object."""
    if "minMember" in spec:
        return int(spec["minMember"])
    if "podGroup" in spec:
        return int(spec["podGroup"]["minAvailable"])
    return int(spec["schedulingPolicy"]["gang"]["minCount"])


def is_of_kind(obj: Object | None, kind: GroupVersionResource) -> bool:
    """Whether a group object is of this kind."""
    return obj is not None and obj["apiVersion"] == f"{kind.group}/{kind.version}"


def controller_of(workload: Object) -> str:
    """Return the UID of the Workload's controller; empty: it has none."""
    owners = workload["metadata"].get("ownerReferences") or ()
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), "")


def workload_of_group(world: World, group: str) -> Object | None:
    """Return the Workload of a group in any dialect; None: it does not exist.

    A group object that was created again has its own Workload: the Workload of the earlier object is not returned.
    """
    found = [w for w in world.objects(WORKLOADS) if gang_of_workload(w) == group]
    obj = group_object_of(world, group)
    if obj is not None:
        found = [w for w in found if controller_of(w) == obj["metadata"]["uid"]]
    elif len(found) > 1:  # those of deleted group objects go when their pods have ended
        found = found[-1:]
    assert len(found) <= 1, f"gang {group} has {len(found)} Workloads"
    return found[0] if found else (None if obj is not None else world.find(WORKLOADS, group))
