"""Compute from a Workload the additions to a job's templates at its start, and the templates to restore at its stop.

Both depend only on the Workload and its flavors, so a restarted controller computes the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kqueue.api import gang_names, names
from kqueue.jobs import node_classes, syntax, topology_request
from kqueue.jobs.fields import JSON, annotations_of, labels_of, mapping, objects, strings, text, whole
from kqueue.jobs.kind import PodSetInfo, Refused
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.template import info_of, merged, merged_infos


def flavors_of(workload: JSON) -> frozenset[str]:
    """Return the names of all flavors in the admission; `infos_at_start` needs their objects."""
    return frozenset(
        flavor
        for assignment in objects(workload, "status", "admission", "podSetAssignments")
        for flavor in strings(assignment, "flavors").values()
    )


def infos_at_start(
    workload: JSON, flavors: Mapping[str, JSON], *, switches: JobFeatures
) -> tuple[PodSetInfo, ...] | Refused:
    """Return the additions of the admission to each pod set, in the order of the Workload's pod sets.

    Args:
        workload: an admitted Workload.
        flavors: the ResourceFlavor objects by name, at least those of `flavors_of`.
        switches: feature switches.

    Returns:
        One info per pod set; Refused when two sources contradict each other or a pod set has no assignment.

    Raises:
        KeyError: a flavor is missing from `flavors` (a bug in the caller: it looks them up first and retries later).
    """
    assignments = {
        text(a, "name") or names.DEFAULT_PODSET: a
        for a in objects(workload, "status", "admission", "podSetAssignments")
    }
    infos: list[PodSetInfo] = []
    for pod_set in objects(workload, "spec", "podSets"):
        name = text(pod_set, "name") or names.DEFAULT_PODSET
        if name not in assignments:
            return Refused((f"the admission has no assignment for pod set {name}",))
        info = _info(workload, pod_set, assignments[name], flavors, switches)
        if isinstance(info, Refused):
            return info
        infos.append(info)
    return tuple(infos)


def with_flavors(
    template: Mapping[str, Any], name: str, assignment: Mapping[str, Any], flavors: Mapping[str, JSON]
) -> JSON | Refused:
    """Return a pod set's template with the node labels and tolerations of its flavors; Refused if they contradict."""
    found = dict(template)
    for addition in _of_flavors(name, assignment, flavors):
        together = merged(found, addition)
        if isinstance(together, tuple):
            return Refused(tuple(f"pod set {name}: {conflict}" for conflict in together))
        found = together
    return found


def infos_at_stop(workload: JSON) -> tuple[PodSetInfo, ...]:
    """Return the content of each template before the start, with the full count, in the order of the pod sets."""
    return tuple(
        info_of(
            mapping(pod_set, "template"),
            name=text(pod_set, "name") or names.DEFAULT_PODSET,
            count=whole(pod_set, "count"),
        )
        for pod_set in objects(workload, "spec", "podSets")
    )


def _info(
    workload: JSON,
    pod_set: Mapping[str, Any],
    assignment: Mapping[str, Any],
    flavors: Mapping[str, JSON],
    switches: JobFeatures,
) -> PodSetInfo | Refused:
    name = text(pod_set, "name") or names.DEFAULT_PODSET
    count = whole(assignment, "count")
    info = PodSetInfo(
        name=name,
        count=whole(pod_set, "count") if count is None else count,
        labels=_labels(workload, name, switches),
        annotations=_annotations(workload, pod_set, assignment, switches),
        scheduling_gates=_gates(workload, assignment, switches),
    )
    for addition in _additions(workload, name, assignment, flavors):
        together = merged_infos(info, addition)
        if isinstance(together, tuple):
            return Refused(tuple(f"pod set {name}: {conflict}" for conflict in together))
        info = together
    return info


def _additions(
    workload: JSON, name: str, assignment: Mapping[str, Any], flavors: Mapping[str, JSON]
) -> Iterator[PodSetInfo]:
    """Return the additions of each distinct flavor, then those of the admission checks."""
    yield from _of_flavors(name, assignment, flavors)
    for check in objects(workload, "status", "admissionChecks"):
        for update in objects(check, "podSetUpdates"):
            if text(update, "name") == name:
                yield PodSetInfo(
                    name=name,
                    labels=strings(update, "labels"),
                    annotations=strings(update, "annotations"),
                    node_selector=strings(update, "nodeSelector"),
                    tolerations=tuple(objects(update, "tolerations")),
                )


def _of_flavors(name: str, assignment: Mapping[str, Any], flavors: Mapping[str, JSON]) -> Iterator[PodSetInfo]:
    """Yield the additions of each distinct flavor."""
    for flavor in dict.fromkeys(strings(assignment, "flavors").values()):
        spec = mapping(flavors[flavor], "spec")
        yield PodSetInfo(
            name=name,
            node_selector=strings(spec, "nodeLabels"),
            tolerations=(*objects(spec, "tolerations"), *node_classes.tolerations(flavors[flavor])),
        )


def _gates(workload: JSON, assignment: Mapping[str, Any], switches: JobFeatures) -> tuple[str, ...]:
    """Return the gates of new pods.

    The webhook gates elastic jobs, too; this gate prevents that a job without a review by the webhook grows.
    """
    elastic = switches.elastic_jobs and annotations_of(workload).get(names.ELASTIC_JOB_ANNOTATION) == "true"
    return (
        *((names.TOPOLOGY_GATE,) if _placed(assignment) else ()),
        *((names.ELASTIC_JOB_GATE,) if elastic else ()),
    )


def _placed(assignment: Mapping[str, Any]) -> bool:
    return bool(mapping(assignment, "topologyAssignment"))


def _labels(workload: JSON, name: str, switches: JobFeatures) -> dict[str, str]:
    wanted = {names.PODSET_LABEL: name}
    if names.MULTIKUEUE_ORIGIN_LABEL in labels_of(workload):
        wanted[names.MULTIKUEUE_WORKER_WORKLOAD_POD_LABEL] = "true"
    if switches.queue_labels:
        local, cluster = text(workload, "spec", "queueName"), text(workload, "status", "admission", "clusterQueue")
        if local and syntax.label_value(local) is None:
            wanted[names.LOCAL_QUEUE_NAME_LABEL] = local
        if cluster and syntax.dns_label(cluster) is None:
            wanted[names.CLUSTER_QUEUE_NAME_LABEL] = cluster
    return wanted


def _annotations(
    workload: JSON, pod_set: Mapping[str, Any], assignment: Mapping[str, Any], switches: JobFeatures
) -> dict[str, str]:
    wanted: dict[str, str] = {}
    if switches.topology or gang_names.GANG_ANNOTATION in annotations_of(workload):
        wanted[names.WORKLOAD_ANNOTATION] = text(workload, "metadata", "name")
    if switches.topology:
        wanted.update(_marker(pod_set, assignment))
    slice_name = annotations_of(workload).get(names.WORKLOAD_SLICE_NAME_ANNOTATION)
    if switches.elastic_jobs and slice_name:
        wanted[names.WORKLOAD_SLICE_NAME_ANNOTATION] = slice_name
    return wanted


def _names_level(pod_set: Mapping[str, Any]) -> bool:
    """Whether the template requests a level although its pod set has no such request: a user created the Workload by
    hand.
    """
    own = annotations_of(mapping(pod_set, "template"))
    return topology_request.REQUIRED in own or topology_request.PREFERRED in own


def _marker(pod_set: Mapping[str, Any], assignment: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotation that marks pods as placed by topology; empty if the template has one.

    Pods whose template names only a slice level are marked as unconstrained, too, as their request is read so.
    """
    request = mapping(pod_set, "topologyRequest")
    marked = topology_request.marked(mapping(pod_set, "template"))
    if request.get("required") or request.get("preferred"):
        return {} if marked else topology_request.marker_for(request)
    if _placed(assignment) and request.get("unconstrained") is None and not _names_level(pod_set):
        return topology_request.marker_for(request)
    return {}
