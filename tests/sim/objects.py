"""The objects that users and operators of a simulated cluster make."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kqueue.api import names
from kqueue.kube import names as kube_names
from kqueue.sandbox import names as sandbox_names
from kqueue.sandbox.api import GroupVersionResource, Object
from kqueue.sandbox.topology_spec import BLOCK_LABEL, POOL_LABEL, RACK_LABEL

GPU = "nvidia.com/gpu"
NAMESPACE = "default"
FOREIGN = "foreign-"
"""Prefix of the names of foreign objects."""
VERSION = f"{names.GROUP}/{names.VERSION}"
LEVELS = (BLOCK_LABEL, RACK_LABEL, kube_names.HOSTNAME_LABEL)


def ours_of(plural: str) -> GroupVersionResource:
    """A kind of our own group."""
    return GroupVersionResource(names.GROUP, names.VERSION, plural)


WORKLOADS, TOPOLOGIES, FLAVORS = ours_of("workloads"), ours_of("topologies"), ours_of("resourceflavors")
CLUSTER_QUEUES, LOCAL_QUEUES, COHORTS = ours_of("clusterqueues"), ours_of("localqueues"), ours_of("cohorts")
WORKLOAD_PRIORITY_CLASSES = ours_of("workloadpriorityclasses")


def ours(kind: str, name: str, *, namespace: str = "", **fields: Any) -> Object:
    """An object of our own group."""
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": VERSION, "kind": kind, "metadata": metadata, **fields}


def cluster_queue(
    name: str,
    *,
    flavors: Mapping[str, Mapping[str, int]],
    cohort: str = "",
    strict: bool = False,
    profile: str = "",
) -> Object:
    """Return a ClusterQueue with nominal quota per flavor and resource; `profile` is its placement profile."""
    covered = sorted(next(iter(flavors.values())))
    quotas = [
        {"name": flavor, "resources": [{"name": r, "nominalQuota": str(amounts[r])} for r in covered]}
        for flavor, amounts in flavors.items()
    ]
    spec: Object = {
        "namespaceSelector": {},
        "queueingStrategy": "StrictFIFO" if strict else "BestEffortFIFO",
        "resourceGroups": [{"coveredResources": covered, "flavors": quotas}],
        **({"cohortName": cohort} if cohort else {}),
    }
    made = ours("ClusterQueue", name, spec=spec)
    if profile:
        made["metadata"]["annotations"] = {names.PLACEMENT_PROFILE_ANNOTATION: profile}
    return made


def queue_objects() -> list[tuple[GroupVersionResource, Object]]:
    """Return the tenants: `left` and `right` (strict) lend to each other, `solo` has profiles `even` or `few`, `twice`
    has the same hosts in two flavors, and `plain` has no topology.
    """
    levels = {"levels": [{"nodeLabel": level} for level in LEVELS]}
    racks = {"levels": [{"nodeLabel": level} for level in LEVELS[1:]]}
    gpu = {"nodeLabels": {POOL_LABEL: "gpu"}, "topologyName": "dc"}
    queues = [
        cluster_queue("left", flavors={"gpu": {"cpu": 200, GPU: 48}}, cohort="both"),
        cluster_queue("right", flavors={"gpu": {"cpu": 200, GPU: 32}}, cohort="both", strict=True),
        cluster_queue("solo", flavors={"gpu": {"cpu": 200, GPU: 48}}),
        cluster_queue("even", flavors={"gpu": {"cpu": 200, GPU: 48}}, profile="balanced"),
        cluster_queue("few", flavors={"gpu": {"cpu": 200, GPU: 48}}, profile="optimal"),
        cluster_queue("twice", flavors={"spot": {"cpu": 20, GPU: 40}, "gpu": {"cpu": 200, GPU: 48}}),
        cluster_queue("plain", flavors={"cheap": {"cpu": 20, GPU: 0}}),
    ]
    return [
        (TOPOLOGIES, ours("Topology", "dc", spec=levels)),
        (TOPOLOGIES, ours("Topology", "racks", spec=racks)),
        (FLAVORS, ours("ResourceFlavor", "gpu", spec=gpu)),
        (FLAVORS, ours("ResourceFlavor", "spot", spec={**gpu, "topologyName": "racks"})),
        (FLAVORS, ours("ResourceFlavor", "cheap", spec={"nodeLabels": {POOL_LABEL: "cheap"}})),
        *(
            (WORKLOAD_PRIORITY_CLASSES, ours("WorkloadPriorityClass", n, value=v))
            for n, v in (("high", 10), ("low", -10))
        ),
        *((CLUSTER_QUEUES, queue) for queue in queues),
        *(
            (
                LOCAL_QUEUES,
                ours(
                    "LocalQueue",
                    q["metadata"]["name"],
                    namespace=NAMESPACE,
                    spec={"clusterQueue": q["metadata"]["name"]},
                ),
            )
            for q in queues
        ),
    ]


def template(
    *,
    gpus: int,
    cpus: str = "1",
    run_seconds: int | None,
    fail: bool = False,
    annotations: Mapping[str, str] | None = None,
) -> Object:
    """Return a pod template; `run_seconds` None: ten seconds, or with restart policy Always until the deletion."""
    notes = dict(annotations or {})
    if run_seconds is not None:
        notes[sandbox_names.RUN_SECONDS_ANNOTATION] = str(run_seconds)
    if fail:
        notes[sandbox_names.FAIL_ANNOTATION] = "true"
    amounts = {"cpu": cpus, **({GPU: str(gpus)} if gpus else {})}
    resources = {"requests": amounts, "limits": {k: v for k, v in amounts.items() if k != "cpu"}}
    container = {"name": "main", "image": "example.com/train:1", "resources": resources}
    return {"metadata": {"annotations": notes}, "spec": {"restartPolicy": "Never", "containers": [container]}}


def job(
    name: str,
    *,
    queue: str | None = "solo",
    pods: int = 4,
    gpus: int = 8,
    topology: tuple[str, str] | None = ("required", RACK_LABEL),
    priority: str = "",
    run_seconds: int | None = 5,
    fail: bool = False,
    cpus: str = "1",
    retries: int = 6,
    layers: tuple[tuple[str, int], ...] = (),
    at_least: int = 0,
    prefers: str = "",
    notes: Mapping[str, str] | None = None,
) -> Object:
    """Return an Indexed Job as its user submits it: not suspended.

    `topology` is (required | preferred | unconstrained, value), `layers` are (level, pods) of slices, coarse to fine;
    `at_least` (0: all) pods are enough for it to start; `prefers` is the place for which a policy lets it wait, `notes` are
    further annotations.
    """
    labels = {names.QUEUE_NAME_LABEL: queue} if queue is not None else {}
    if priority:
        labels[names.PRIORITY_CLASS_LABEL] = priority
    annotations = {f"{names.GROUP}/podset-{topology[0]}-topology": topology[1]} if topology is not None else {}
    if len(layers) == 1:
        ((level, size),) = layers
        annotations |= {names.SLICE_REQUIRED_TOPOLOGY_ANNOTATION: level, names.SLICE_SIZE_ANNOTATION: str(size)}
    elif layers:
        told = json.dumps([{"topology": level, "size": size} for level, size in layers])
        annotations[names.SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS_ANNOTATION] = told
    made = template(gpus=gpus, cpus=cpus, run_seconds=run_seconds, fail=fail, annotations=annotations)
    spec = {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "backoffLimit": retries}
    noted = dict(notes or {}) | ({names.JOB_MIN_PARALLELISM_ANNOTATION: str(at_least)} if at_least else {})
    noted |= {names.PREFERS_ANNOTATION: prefers} if prefers else {}
    own = {"annotations": noted} if noted else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels, **own},
        "spec": {**spec, "template": made},
    }
