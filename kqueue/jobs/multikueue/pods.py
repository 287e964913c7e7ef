"""Pods that other clusters run: the manager's pod keeps its gate, and has the status of its copy.

A pod has no field that names its controller.  So its gate is what keeps it from running here, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kqueue.api import names
from kqueue.jobs import pod_view
from kqueue.jobs.deployment import Deployment
from kqueue.jobs.fields import JSON, condition_of, mapping, objects, text
from kqueue.jobs.patch import Patch, apply_merge_patch, merge_patch

_OF_ONE_CLUSTER = (
    "podIP",
    "podIPs",
    "hostIP",
    "hostIPs",
    "nominatedNodeName",
    "observedGeneration",
    "qosClass",
    "resize",
    "resourceClaimStatuses",
    "extendedResourceClaimStatus",
)
"""Fields of a pod's status that mean nothing, or something else, on another cluster: an address would make Services of
the manager send requests to a stranger.
"""
_TEMPLATE_HASH = "pod-template-hash"
"""Label by which a ReplicaSet knows its pods."""
_CONTAINERS = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
_OF_A_RUN = (*_CONTAINERS, "startTime", "reason", "message")


def problem(pods: Sequence[JSON]) -> str:
    """Return why no worker cluster can run the pods of a workload; empty: one can."""
    for pod in pods:
        parent = pod_view.suspending_parent(pod)
        if parent not in (None, Deployment.framework):
            return f"The pods of a {parent} cannot be run by a worker cluster without it"
    return runs_here(pods)


def runs_here(pods: Iterable[JSON]) -> str:
    """Return why a worker cluster must not run pods that run on the manager; empty: none does."""
    for pod in pods:
        if not pod_view.is_suspended(pod) and not pod_view.is_deleting(pod):
            return f"Pod {text(pod, 'metadata', 'name')} runs on this cluster already; delete it and create it again"
    return ""


def without_parent(pod: JSON) -> JSON:
    """Return the pod of a Deployment as a pod that is queued alone; any other object unchanged.

    Its ReplicaSet stays on the manager.  A ReplicaSet of the worker must not take the copy for one of its own pods.
    """
    if pod_view.suspending_parent(pod) != Deployment.framework:
        return pod
    metadata = {
        "labels": {_TEMPLATE_HASH: None},
        "annotations": {names.POD_SUSPENDING_PARENT_ANNOTATION: None},
    }
    return apply_merge_patch(pod, {"metadata": metadata})


def needs_copy(pod: JSON) -> bool:
    """Whether a worker cluster is to have a copy of a pod: a pod that has ended is not run again."""
    return not pod_view.is_deleting(pod) and not pod_view.is_terminated(pod)


def status_back(pod: JSON, copy: JSON) -> Patch:
    """Return the patch of the status of the manager's pod by its copy; empty: there is nothing to write.

    A copy that ends because its queue stops it tells nothing: the pod is to run again.
    """
    ended = pod_view.is_terminated(copy)
    if pod_view.is_deleting(pod) or (pod_view.is_terminated(pod) and not ended):
        return {}
    if pod_view.stopped_by_us(copy) or (pod_view.is_deleting(copy) and not ended):
        return {}
    ours, theirs = _shared(pod), _shared(copy)
    for key in _CONTAINERS:
        if _has_begun_anew(objects(ours, key), objects(theirs, key)):
            theirs.pop(key, None)  # the API server takes back no end of a container; without its entry it may begin
    return {"status": patch} if (patch := merge_patch(ours, theirs)) else {}


def status_cleared(pod: JSON) -> Patch:
    """Return the patch of the status of a pod that no cluster runs any more; empty: it waits already."""
    if not pod_view.is_gated(pod) or text(pod, "status", "phase") != "Running":
        return {}
    said = mapping(pod, "status")
    waits = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    since = text(condition_of(pod, "PodScheduled"), "lastTransitionTime")
    condition = {**waits, "lastTransitionTime": since} if since else waits
    return {"status": {"phase": "Pending", "conditions": [condition], **{k: None for k in _OF_A_RUN if k in said}}}


def _shared(pod: JSON) -> JSON:
    return {key: value for key, value in mapping(pod, "status").items() if key not in _OF_ONE_CLUSTER}


def _has_begun_anew(before: Iterable[Mapping[str, Any]], now: Iterable[Mapping[str, Any]]) -> bool:
    running = {text(each, "name") for each in now if not mapping(each, "state", "terminated")}
    return any(text(each, "name") in running for each in before if mapping(each, "state", "terminated"))
