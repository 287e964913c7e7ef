"""Makes the Workload of a BatchProcess from the object, before any of its pods exists.  Pure."""

from __future__ import annotations

from kqueue.api import names
from kqueue.jobs import pod, pod_rules, rules
from kqueue.jobs.copied import COPIES_NONE, CopiedKeys
from kqueue.jobs.fields import JSON, annotations_of, labels_of, mapping, text, whole
from kqueue.jobs.gang.batch_pods import template_of
from kqueue.jobs.gang.batch_process import FRAMEWORK, KIND, BatchPlan, plan_of
from kqueue.jobs.gang.group_object import topology_of
from kqueue.jobs.gang.naming import gang_annotation
from kqueue.jobs.gang.value import GangRef
from kqueue.jobs.kind import JobContext
from kqueue.jobs.patch import apply_merge_patch
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import (
    Priority,
    equivalent,
    same_node_classes,
    same_topology,
    spec_for,
    workload_for,
    workload_name_of,
)


class BatchProcessKind:
    """`WorkloadSource` of BatchProcesses: one pod set for each process type with pods in the base."""

    gvk = KIND

    def pod_sets(self, job: JSON, switches: JobFeatures) -> tuple[JSON, ...]:
        """Return the pod sets, in the order of the processes.

        Topology annotations of the object hold for each process type that has none.
        """
        common = topology_of(job)
        found = []
        for role in plan_of(job).roles:
            if role.base:
                template = template_of(job, role)
                own = dict(mapping(template, "metadata", "annotations"))
                asks = common if names.TOPOLOGY_ANNOTATIONS.isdisjoint(own) else {}
                metadata = {**mapping(template, "metadata"), "annotations": {**asks, **own}}
                like = {**template, "metadata": metadata}
                found.append(pod.pod_set(like, name=role.name, count=role.base, switches=switches))
        return tuple(found)


_SOURCE = BatchProcessKind()


def pod_sets_of(obj: JSON, switches: JobFeatures) -> tuple[JSON, ...]:
    """Return the pod sets of the Workload of a valid BatchProcess."""
    return _SOURCE.pod_sets(obj, switches)


def as_job(obj: JSON, queue: str) -> JSON:
    """Return the object with the labels by which jobs name their queue and their longest execution time."""
    labels = {**labels_of(obj), names.QUEUE_NAME_LABEL: queue}
    seconds = whole(obj, "spec", "activeDeadlineSeconds")
    if seconds:
        labels[names.MAX_EXEC_TIME_SECONDS_LABEL] = str(seconds)
    annotations = {k: v for k, v in annotations_of(obj).items() if k != names.ELASTIC_JOB_ANNOTATION}
    return {**obj, "metadata": {**mapping(obj, "metadata"), "labels": labels, "annotations": annotations}}


def workload_name(obj: JSON, switches: JobFeatures) -> str:
    """Return the name of the Workload."""
    return workload_name_of(_SOURCE, as_job(obj, ""), switches)


def workload_of(
    obj: JSON, *, queue: str, priority: Priority, switches: JobFeatures, copied: CopiedKeys = COPIES_NONE
) -> JSON:
    """Return the complete Workload to create."""
    made = workload_for(_SOURCE, as_job(obj, queue), priority=priority, switches=switches, copied=copied)
    ref = GangRef(framework=FRAMEWORK, namespace=text(obj, "metadata", "namespace"), name=text(obj, "metadata", "name"))
    marks = {names.IS_GROUP_WORKLOAD_ANNOTATION: "true", **gang_annotation(ref)}
    metadata = mapping(made, "metadata")
    return {**made, "metadata": {**metadata, "annotations": {**mapping(metadata, "annotations"), **marks}}}


def spec_of(obj: JSON, *, queue: str, priority: Priority, switches: JobFeatures) -> JSON:
    """Return only the `spec`, to rewrite a Workload without quota."""
    return spec_for(_SOURCE, as_job(obj, queue), priority=priority, switches=switches)


def is_same(obj: JSON, workload: JSON, *, queue: str, switches: JobFeatures) -> bool:
    """Whether the Workload has the processes and the queue that the object has."""
    made = pod_sets_of(obj, switches)
    return (
        text(workload, "spec", "queueName") == queue
        and equivalent(made, workload, slim=True)
        and same_topology(made, workload)
        and same_node_classes(made, workload)
    )


def queued(made: JSON, switches: JobFeatures) -> JSON:
    """Return a new pod with the gates and the finalizer that it has while it is queued.

    The webhook adds the same; so a pod is never started by itself where the webhook is not called.
    """
    return apply_merge_patch(made, pod_rules.defaults(made, JobContext(switches=switches)))


def queue_of(obj: JSON, *, of_namespace: str, has_default: bool) -> str:
    """Return the LocalQueue of a BatchProcess; empty: it has none.

    The first of these counts: the object's label, the namespace's label (`of_namespace`), the LocalQueue `default`.
    """
    return rules.queue_name(obj) or of_namespace or (names.DEFAULT_LOCAL_QUEUE if has_default else "")


def summary(plan: BatchPlan) -> str:
    """Return the base counts as text, as in `2 teacher, 1 student`."""
    return ", ".join(f"{role.base} {role.name}" for role in plan.roles if role.base)
