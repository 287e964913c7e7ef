"""core/v1 Pod, queued one by one: a scheduling gate prevents its start, removing the gate starts it, deleting the pod
stops it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kqueue.api import names
from kqueue.errors import FieldError, InvalidObjectError
from kqueue.jobs import node_classes, pod_rules, pod_view, run_times, topology_request
from kqueue.jobs.fields import JSON, condition_status, mapping, objects, sequence, text
from kqueue.jobs.kind import Finished, GroupVersionKind, JobContext, PodSetInfo, Refused, StopStep
from kqueue.jobs.patch import Patch, merge_patch
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.template import merged, without_duplicate_environment
from kqueue.kube import names as kube_names

FRAMEWORK = "pod"
GVK = GroupVersionKind("", "v1", "Pod")
_OF_ONE_CLUSTER = ("nodeName", "priority", "preemptionPolicy", "ephemeralContainers")
"""Fields of a pod's spec that each cluster sets for itself: from its nodes, from the pod's class, for debugging."""
INDEX = topology_request.IndexLabels(pod=names.POD_GROUP_POD_INDEX_LABEL)


class PlainPod:
    """The adapter of a pod that is queued alone; it has no state.  Groups of pods have no adapter of their own."""

    framework = FRAMEWORK
    gvk = GVK
    resource = "pods"
    defaults_on_update = False
    held_by = "spec.schedulingGates"
    own_controller = ""

    def is_suspended(self, job: JSON) -> bool:
        """Whether the pod is gated or terminated."""
        return pod_view.is_suspended(job)

    def holds_back(self, job: JSON) -> bool:
        """Whether the pod has the admission gate, or the topology gate before its start."""
        return pod_view.is_managed(job) and pod_view.is_gated(job)

    def suspend(self, job: JSON) -> Patch:
        """Return nothing: a started pod is deleted, never gated again."""
        return {}

    def active(self, job: JSON) -> bool:
        """Return False: after a stop the quota is free as soon as the pod's deletion was requested."""
        return False

    def pod_selector(self, job: JSON) -> Mapping[str, str]:
        """Return no labels: the pod is the job."""
        return {}

    def managed_by(self, job: JSON) -> str:
        """Return kqueue's name, always."""
        return ""

    def pod_sets(self, job: JSON, switches: JobFeatures) -> tuple[JSON, ...]:
        """Return one pod set, `main`, with one pod: its spec, and only the labels and annotations that name a node
        class.
        """
        mistakes = list(pod_rules.topology_problems(job, switches))
        if mistakes:
            what = f"Pod {text(job, 'metadata', 'namespace')}/{text(job, 'metadata', 'name')}"
            raise InvalidObjectError(what, mistakes)
        return (pod_set(job, name=names.DEFAULT_PODSET, count=1, switches=switches),)

    def start(self, job: JSON, infos: Sequence[PodSetInfo]) -> Patch | Refused:
        """Return the patch that merges the info and removes the gate; empty for a pod without the gate."""
        if len(infos) != 1:
            return Refused((f"the pod is 1 pod set and the admission has {len(infos)}",))
        return start(job, infos[0])

    def stop(self, job: JSON, infos: Sequence[PodSetInfo]) -> tuple[StopStep, ...]:
        """Return no steps, because no patch stops a pod: see `to_stop`."""
        return ()

    def as_written(self, job: JSON) -> JSON:
        """Return the pod without what the API server and the scheduler of one cluster have added."""
        spec = {key: value for key, value in mapping(job, "spec").items() if key not in _OF_ONE_CLUSTER}
        return {**job, "spec": spec}

    def finished(self, job: JSON) -> Finished | None:
        """Return the result if the phase is Succeeded or Failed; else None."""
        if not pod_view.is_terminated(job):
            return None
        return Finished(text(job, "status", "message"), success=text(job, "status", "phase") == "Succeeded")

    def deadline(self, job: JSON) -> int | None:
        """Return `spec.activeDeadlineSeconds`, after which the kubelet ends the pod."""
        return run_times.seconds_at(job, "spec", "activeDeadlineSeconds")

    def pods_ready(self, job: JSON) -> bool:
        """Whether the condition Ready is true."""
        return condition_status(job, kube_names.CONDITION_READY) == "True"

    def reclaimable(self, job: JSON) -> Mapping[str, int]:
        """Return nothing: a single pod keeps its quota until its end."""
        return {}

    def defaults(self, job: JSON, around: JobContext) -> Patch:
        """Return the label, finalizer, gates and role of a pod that will be queued."""
        return pod_rules.defaults(job, around)

    def problems(self, new: JSON, old: JSON | None, around: JobContext) -> list[FieldError]:
        """Return violations of the shared rules, the rules of groups, and the rules of topology."""
        return pod_rules.problems(new, old, around)

    def warnings(self, new: JSON, around: JobContext) -> list[str]:
        """Return warnings about an owner that is queued itself, and topology annotations without effect."""
        return pod_rules.warnings(new, around)


def pod_set(pod: JSON, *, name: str, count: int, switches: JobFeatures) -> JSON:
    """Return a pod set with pods like this one."""
    template = without_duplicate_environment(
        {"metadata": node_classes.metadata(pod), "spec": dict(mapping(pod, "spec"))}
    )
    found: JSON = {"name": name, "count": count, "template": template}
    request = topology_request.topology_request(pod, pod, index=INDEX, switches=switches)
    return found if request is None else {**found, "topologyRequest": request}


def start(pod: JSON, info: PodSetInfo) -> Patch | Refused:
    """Return one patch that adds the info of the pod set and removes the admission gate.

    It removes the topology gate, too, unless the ungater will assign a place. Other gates stay. Empty for a pod
    without kqueue's gates.
    """
    gates = pod_view.gates_of(pod)
    if not pod_view.is_gated(pod):
        return {}
    placed = names.TOPOLOGY_GATE in info.scheduling_gates
    if placed and names.TOPOLOGY_GATE not in gates:
        return Refused(
            (f"a place was assigned and the pod lacks the gate {names.TOPOLOGY_GATE} to wait for it; create it again",)
        )
    new = merged(pod, info, queued_pod=True)
    if isinstance(new, tuple):
        return Refused(tuple(f"{conflict}; create the pod again without it" for conflict in new))
    gone = {names.ADMISSION_GATE} | (set() if placed else {names.TOPOLOGY_GATE})
    kept = [gate for gate in objects(new, "spec", "schedulingGates") if gate.get("name") not in gone]
    return merge_patch(pod, {**new, "spec": {**new["spec"], "schedulingGates": kept or None}})


def let_go(pod: JSON) -> Patch:
    """Return the patch that removes kqueue's finalizer; empty if the pod does not have it.  Other finalizers stay."""
    finalizers = sequence(pod, "metadata", "finalizers")
    if names.MANAGED_POD_FINALIZER not in finalizers:
        return {}
    kept = [finalizer for finalizer in finalizers if finalizer != names.MANAGED_POD_FINALIZER]
    return {"metadata": {"finalizers": kept or None}}


def to_stop(pod: JSON, why: str) -> bool:
    """Whether a stop deletes the pod: no terminating pod, and a gated or terminated pod only together with its
    Workload.
    """
    if pod_view.is_deleting(pod):
        return False
    return why == names.REASON_WORKLOAD_DELETED or not pod_view.is_suspended(pod)


def termination_target(pod: JSON, *, reason: str, message: str, now: str) -> JSON:
    """Return the status to apply before a pod is deleted; its condition names kqueue as the cause."""
    condition = {
        "type": names.CONDITION_POD_TERMINATION_TARGET,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    }
    metadata = {key: text(pod, "metadata", key) for key in ("name", "namespace", "uid")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": {"conditions": [condition]}}


def stop_reason(why: str, eviction: str = "") -> str:
    """Return the reason of the condition above; `eviction`: the reason of the Workload's eviction, empty: none."""
    return f"{names.WORKLOAD_EVICTED_DUE_TO_PREFIX}{eviction}" if eviction else why
