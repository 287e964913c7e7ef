"""JobSets, pods, groups of pods, Deployments and StatefulSets in the form that users submit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kqueue.api import names
from kqueue.sandbox.api import Object
from tests.sim.objects import NAMESPACE, template


def _topology(topology: tuple[str, str] | None) -> dict[str, str]:
    return {f"{names.GROUP}/podset-{topology[0]}-topology": topology[1]} if topology is not None else {}


def _labels(queue: str, priority: str) -> dict[str, str]:
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
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": _labels(queue, priority)},
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
    metadata = {**made["metadata"], "name": name, "namespace": NAMESPACE, "labels": _labels(queue, priority)}
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
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": _labels(queue, priority)},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": made, **more},
    }


def group_of(pod: Object) -> str:
    """Return the group of a pod; empty if it has none."""
    return str((pod["metadata"].get("annotations") or {}).get(names.POD_GROUP_NAME_ANNOTATION, ""))
