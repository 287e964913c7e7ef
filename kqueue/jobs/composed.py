"""Compute the Workload of a StatefulSet, the labels of its pods, and the next step; this module writes nothing.

The Workload is created before the pods, with the StatefulSet's number of replicas.  The pods join it as they appear;
their group size never exceeds the Workload's count, so that the group always matches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto

from kqueue.api import names
from kqueue.jobs import node_classes, pod_view, rules, syntax, topology_request
from kqueue.jobs.copied import COPIES_NONE, CopiedKeys
from kqueue.jobs.fields import JSON, annotations_of, condition_status, int_of, labels_of, mapping, objects, text, whole
from kqueue.jobs.gang.match import counts_of, on_hold
from kqueue.jobs.patch import Patch
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.stateful_set import FRAMEWORK, GVK, replicas
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.template import without_duplicate_environment
from kqueue.jobs.workload import LONG_NAME, SHORT_NAME, Priority, equivalent, workload_name
from kqueue.kube import names as kube_names

_INDEX = topology_request.IndexLabels(pod=kube_names.STATEFUL_SET_POD_INDEX_LABEL)
_REVISION = "controller-revision-hash"
_OWNER_GVK = f"{GVK.api_version}, Kind={GVK.kind}"


class Next(Enum):
    """The next step for the Workload."""

    NOTHING = auto()
    CREATE = auto()
    ADOPT = auto()
    """Another client created it for this StatefulSet: add the owner reference."""
    HOLD = auto()
    """The StatefulSet has no replicas and no pods: put the Workload on hold and release its quota."""
    WAIT = auto()
    """As HOLD, but only after the pods are gone."""
    GIVE_BACK = auto()
    """The Workload has quota for another number of pods, and no pod has started: requeue it."""
    REWRITE = auto()
    """The Workload has no quota and does not match the StatefulSet: rewrite it."""
    RESUME = auto()
    """The StatefulSet has replicas again: requeue the Workload."""
    MISFIT = auto()
    """Pods run, and the Workload has another number of pods; only scaling to 0 resolves this."""
    OVER = auto()
    """The Workload is finished, and the StatefulSet is not."""


def is_marked(stateful_set: JSON) -> bool:
    """Whether the webhook has reviewed the StatefulSet, so that its pods are gated."""
    marks = annotations_of(mapping(stateful_set, "spec", "template"))
    return marks.get(names.POD_SUSPENDING_PARENT_ANNOTATION) == FRAMEWORK


def names_of(stateful_set: JSON, switches: JobFeatures) -> tuple[str, str]:
    """Return the name of the Workload, and the name of a Workload created before the StatefulSet had a UID."""
    metadata = mapping(stateful_set, "metadata")
    limit = SHORT_NAME if switches.short_names else LONG_NAME
    name, uid = text(metadata, "name"), text(metadata, "uid")
    return workload_name(GVK, name, uid, limit=limit), workload_name(GVK, name, "", limit=limit)


# --- the Workload


def pod_sets(stateful_set: JSON, switches: JobFeatures) -> list[JSON]:
    """Return one pod set, `main`, of all replicas."""
    template = mapping(stateful_set, "spec", "template")
    metadata = {"labels": labels_of(template), "annotations": annotations_of(template)}
    found: JSON = {
        "name": names.DEFAULT_PODSET,
        "count": replicas(stateful_set),
        "template": without_duplicate_environment({"metadata": metadata, "spec": dict(mapping(template, "spec"))}),
    }
    request = topology_request.topology_request(template, {}, index=_INDEX, switches=switches)
    return [found if request is None else {**found, "topologyRequest": request}]


def workload_of(
    stateful_set: JSON, priority: Priority, switches: JobFeatures, copied: CopiedKeys = COPIES_NONE
) -> JSON:
    """Return the complete Workload to create."""
    labels = {**copied.labels_from(stateful_set), **node_classes.class_labels(stateful_set)}
    uid = text(stateful_set, "metadata", "uid")
    if uid and syntax.label_value(uid) is None:
        labels[names.JOB_UID_LABEL] = uid
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.WORKLOAD_KIND,
        "metadata": {
            "name": names_of(stateful_set, switches)[0],
            "namespace": text(stateful_set, "metadata", "namespace"),
            "finalizers": [names.RESOURCE_IN_USE_FINALIZER],
            "ownerReferences": [owner_reference(stateful_set)],
            "labels": labels,
            "annotations": {
                **copied.annotations_from(stateful_set),
                **_copied(stateful_set),
                **marks_of(stateful_set, switches),
            },
        },
        "spec": spec_of(stateful_set, priority, switches),
    }


def spec_of(stateful_set: JSON, priority: Priority, switches: JobFeatures) -> JSON:
    """Return only the `spec`, to rewrite a Workload without a reservation."""
    spec: JSON = {"podSets": pod_sets(stateful_set, switches), "priority": priority.value, "active": True}
    if rules.queue_name(stateful_set):
        spec["queueName"] = rules.queue_name(stateful_set)
    if priority.reference is not None:
        spec["priorityClassRef"] = priority.reference
    return spec


def owner_reference(stateful_set: JSON) -> JSON:
    """Return an owner reference that is no controller reference: the Workload is deleted with the StatefulSet and the
    last of its pods.
    """
    metadata = mapping(stateful_set, "metadata")
    return {
        "apiVersion": GVK.api_version,
        "kind": GVK.kind,
        "name": text(metadata, "name"),
        "uid": text(metadata, "uid"),
    }


def marks_of(stateful_set: JSON, switches: JobFeatures) -> dict[str, str]:
    """Return the annotations that the Workload must have, gates included."""
    gates = annotations_of(stateful_set).get(names.ADMISSION_GATED_BY_ANNOTATION, "")
    return {
        names.IS_GROUP_WORKLOAD_ANNOTATION: "true",
        names.JOB_OWNER_GVK_ANNOTATION: _OWNER_GVK,
        names.JOB_OWNER_NAME_ANNOTATION: text(stateful_set, "metadata", "name"),
        **({names.ADMISSION_GATED_BY_ANNOTATION: gates} if gates and switches.admission_gated_by else {}),
    }


def _copied(stateful_set: JSON) -> dict[str, str]:
    own = annotations_of(stateful_set)
    found = {key: value for key, value in own.items() if key.startswith(names.PROVISIONING_REQUEST_ANNOTATION_PREFIX)}
    found |= node_classes.class_annotations(stateful_set) | rules.joint_traits(stateful_set)
    if rules.placement_profile(stateful_set):
        found[names.PLACEMENT_PROFILE_ANNOTATION] = rules.placement_profile(stateful_set)
    return found


def next_step(stateful_set: JSON, workload: JSON | None, switches: JobFeatures, *, runs: bool) -> Next:
    """Return the next step for the Workload; `runs`: whether any pod may use resources."""
    wanted = replicas(stateful_set)
    if workload is None:
        return Next.CREATE if wanted else Next.NOTHING
    if mapping(workload, "metadata").get("deletionTimestamp"):
        return Next.NOTHING
    if condition_status(workload, names.CONDITION_FINISHED) == "True":
        return Next.OVER if wanted else Next.NOTHING
    if not _is_known(stateful_set, workload, switches):
        return Next.ADOPT
    if wanted == 0:
        if on_hold(workload):
            return Next.NOTHING
        return Next.WAIT if runs else Next.HOLD
    if condition_status(workload, names.CONDITION_QUOTA_RESERVED) == "True":
        if sum(counts_of(workload).values()) == wanted:
            return Next.NOTHING
        return Next.MISFIT if runs else Next.GIVE_BACK
    if not equivalent(pod_sets(stateful_set, switches), workload, slim=True):
        return Next.MISFIT if runs else Next.REWRITE
    return Next.RESUME if on_hold(workload) else Next.NOTHING


def _is_known(stateful_set: JSON, workload: JSON, switches: JobFeatures) -> bool:
    uid = text(stateful_set, "metadata", "uid")
    owned = any(text(owner, "uid") == uid for owner in objects(workload, "metadata", "ownerReferences"))
    has = annotations_of(workload)
    wanted = marks_of(stateful_set, switches)
    gates = names.ADMISSION_GATED_BY_ANNOTATION
    return owned and all(has.get(key, "") == wanted.get(key, "") for key in {*wanted, gates})


# --- its pods


def stamp(pod: ManagedPod, stateful_set: JSON, workload: JSON, switches: JobFeatures) -> Patch:
    """Return the patch that adds a live pod to the group; empty if the pod is in it, or is being deleted.

    Afterwards the patch has only changes of the queue and of the number of pods.
    """
    if pod.deleting or pod.terminated or pod_view.suspending_parent(pod.obj) != FRAMEWORK:
        return {}
    total = min(replicas(stateful_set), sum(counts_of(workload).values()))
    queue, name = rules.queue_name(stateful_set), text(workload, "metadata", "name")
    labels: dict[str, str] = {names.QUEUE_NAME_LABEL: queue} if queue else {}
    annotations: dict[str, str] = {names.POD_GROUP_TOTAL_COUNT_ANNOTATION: str(total)} if total else {}
    if pod.group != f"{text(stateful_set, 'metadata', 'namespace')}/{name}":
        labels[names.MANAGED_LABEL] = "true"
        if rules.priority_class(stateful_set):
            labels[names.PRIORITY_CLASS_LABEL] = rules.priority_class(stateful_set)
        annotations |= {
            names.POD_GROUP_FAST_ADMISSION_ANNOTATION: "true",
            names.POD_GROUP_SERVING_ANNOTATION: "true",
            names.POD_GROUP_POD_INDEX_LABEL_ANNOTATION: kube_names.STATEFUL_SET_POD_INDEX_LABEL,
            names.ROLE_HASH_ANNOTATION: names.DEFAULT_PODSET,
        }
        identifiers = {names.POD_GROUP_NAME_ANNOTATION: name, names.PREBUILT_WORKLOAD_NAME_ANNOTATION: name}
        (annotations if switches.identifier_annotations else labels).update(identifiers)
    changes = {
        "labels": _others(labels, labels_of(pod.obj)),
        "annotations": _others(annotations, annotations_of(pod.obj)),
    }
    metadata = {part: change for part, change in changes.items() if change}
    return {"metadata": metadata} if metadata else {}


def _others(wanted: Mapping[str, str], present: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in wanted.items() if present.get(key) != value}


def outdated(stateful_set: JSON, pods: Sequence[ManagedPod]) -> tuple[ManagedPod, ...]:
    """Return the gated pods of a revision that is being replaced.

    The StatefulSet controller waits until they are ready, in vain if they can only start after the update.
    """
    spec, now = mapping(stateful_set, "spec"), mapping(stateful_set, "status")
    current, update = text(now, "currentRevision"), text(now, "updateRevision")
    if not update or current == update or text(spec, "updateStrategy", "type") not in ("", "RollingUpdate"):
        return ()
    first = whole(spec, "updateStrategy", "rollingUpdate", "partition") or 0
    return tuple(
        pod
        for pod in pods
        if pod.gated and not pod.deleting and labels_of(pod.obj).get(_REVISION) == current and _ordinal(pod) >= first
    )


def _ordinal(pod: ManagedPod) -> int:
    number = int_of(labels_of(pod.obj).get(kube_names.STATEFUL_SET_POD_INDEX_LABEL, ""))
    return -1 if number is None else number
