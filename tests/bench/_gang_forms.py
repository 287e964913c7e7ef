"""The forms in which pods name their gang, beside Kueue's annotations: one for each dialect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kqueue.api import gang_names, names
from kqueue.jobs.gang import batch_process, coscheduling_labels, podgroup_k8s, podgroup_volcano, podgroup_x_k8s
from kqueue.jobs.gang.registry import dialect_of
from tests.bench.pod_group import PODS, Form
from tests.bench.road import Object

ROOT = Path(__file__).resolve().parents[2]
OPTIONAL, EXAMPLES = ROOT / "config" / "crd" / "optional", ROOT / "examples" / "gangs" / "kinds"
GPU = "nvidia.com/gpu"


def labels_of(gang: str, quorum: int) -> dict[str, str]:
    """The labels of a member."""
    return {
        gang_names.COSCHEDULING_NAME_LABEL: gang,
        gang_names.COSCHEDULING_MIN_AVAILABLE_LABEL: str(quorum),
    }


def by_labels(gang: str = "gang", quorum: int = PODS) -> Form:
    """Return the form without a group object."""
    return Form(framework=coscheduling_labels.FRAMEWORK, labels=labels_of(gang, quorum))


def by_pod_group(gang: str = "gang", quorum: int = PODS) -> Form:
    """Return the form with a PodGroup of the coscheduling plugin, whose definition is optional."""
    return Form(
        framework=podgroup_x_k8s.FRAMEWORK,
        labels={gang_names.POD_GROUP_X_K8S_LABEL: gang},
        definitions=(OPTIONAL / "podgroups.scheduling.x-k8s.io.yaml",),
        group=_group(podgroup_x_k8s.FRAMEWORK, gang, {"minMember": quorum}),
    )


def by_volcano(gang: str = "gang", quorum: int = PODS) -> Form:
    """Return the form with Volcano's PodGroup."""
    return Form(
        framework=podgroup_volcano.FRAMEWORK,
        annotations={gang_names.VOLCANO_GROUP_ANNOTATIONS[0]: gang},
        definitions=(EXAMPLES / "podgroups.scheduling.volcano.sh.yaml",),
        group=_group(podgroup_volcano.FRAMEWORK, gang, {"minMember": quorum}),
    )


def by_kubernetes(gang: str = "gang", quorum: int = PODS) -> Form:
    """Return the form with Kubernetes' own PodGroup."""
    return Form(
        framework=podgroup_k8s.FRAMEWORK,
        spec={"schedulingGroup": {"podGroupName": gang}},
        definitions=(EXAMPLES / "podgroups.scheduling.k8s.io.yaml",),
        group=_group(
            podgroup_k8s.FRAMEWORK, gang, {"schedulingPolicy": {"gang": {"minCount": quorum}}}, version="v1alpha2"
        ),
    )


def batch(gang: str = "gang", pods: int = PODS) -> Form:
    """Return the form of a BatchProcess of one process; kqueue makes its pods."""
    process = {
        "name": "worker",
        "replicas": pods,
        "resources": {"limits": {GPU: "1"}},
        "template": {"metadata": {"annotations": {"sandbox.kqueue.dev/run-seconds": "3600"}}},
    }
    spec = {"image": "example.com/train:1", "simpleProcesses": [process]}
    return Form(
        framework=batch_process.FRAMEWORK,
        group=_group(batch_process.FRAMEWORK, gang, spec, queue="main"),
        makes_pods=True,
    )


def _group(framework: str, name: str, spec: Any, *, version: str = "", queue: str = "") -> tuple[str, Object]:
    """Return collection and object of a dialect's kind, in its newest version if none is named."""
    dialect = dialect_of(framework)
    kind = next(each for each in dialect.kinds if version in ("", each.version))
    metadata: Object = {"name": name, "namespace": "default"}
    if queue:
        metadata["labels"] = {names.QUEUE_NAME_LABEL: queue}
    obj = {"apiVersion": f"{kind.group}/{kind.version}", "kind": kind.kind, "metadata": metadata, "spec": spec}
    return f"/apis/{kind.group}/{kind.version}/namespaces/default/{dialect.plural}", obj
