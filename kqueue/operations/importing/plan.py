"""The plan for one pod of an import: pure functions over the state of the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.core.quota_requests import Counting
from kqueue.core.workload import Admission, PodSetAssignment
from kqueue.errors import InvalidObjectError
from kqueue.jobs import pod_view, rules
from kqueue.jobs.copied import COPIES_NONE, CopiedKeys
from kqueue.jobs.gang.pods import group_name
from kqueue.jobs.pod import PlainPod
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import Priority, priority_source, workload_for
from kqueue.kube import names as kube_names
from kqueue.operations.importing.mapping import MappingRule, rule_for
from kqueue.state.requests import Requests

Object = Mapping[str, Any]

_KIND = PlainPod()
_PARENTS = (names.WORKLOAD_ANNOTATION, names.POD_SUSPENDING_PARENT_ANNOTATION)
"""Annotations of pods whose job is queued."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportWorld:
    """The objects of the cluster by name."""

    local_queues: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """ClusterQueue of each LocalQueue, by namespace and name."""
    cluster_queues: Mapping[str, Object] = field(default_factory=dict)
    flavors: Mapping[str, Object] = field(default_factory=dict)
    node_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    priorities: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Values of priority classes, by kind and name."""
    workloads: Mapping[str, Object] = field(default_factory=dict)
    """Workloads of pods, by the pod's UID."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSettings:
    """Settings of an import."""

    rules: Sequence[MappingRule]
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that imported pods get besides kqueue's."""
    switches: JobFeatures = field(default_factory=JobFeatures)
    counting: Counting = field(default_factory=Counting)
    copied: CopiedKeys = COPIES_NONE
    """Keys of labels that are copied from the pod to its Workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportStep:
    """A pod that can be imported, with the objects to write."""

    pod: Object
    labels: Mapping[str, str]
    """Labels to set on the pod."""
    workload: Mapping[str, Any]
    """The Workload to create, or the existing one."""
    admission: Admission


@dataclass(frozen=True, slots=True)
class ImportProblem:
    """The reason that a pod cannot be imported, in one sentence."""

    text: str


class Skipped:
    """A pod that a rule leaves out, or that was imported already."""


def plan(pod: Object, world: ImportWorld, settings: ImportSettings) -> ImportStep | ImportProblem | Skipped:
    """Return the import step for a pod that has not ended, or the problem."""
    rule = rule_for(pod, settings.rules)
    if rule is None:
        return ImportProblem("no rule maps it to a LocalQueue; add one, with skip: true if it is to stay out")
    if rule.skip:
        return Skipped()
    try:
        return _step(pod, rule.queue, world, settings)
    except _ProblemError as e:
        return ImportProblem(str(e))
    except InvalidObjectError as e:
        return ImportProblem(str(e))


class _ProblemError(Exception):
    """Ends the planning of a pod; caught by `plan`."""


def _step(pod: Object, queue: str, world: ImportWorld, settings: ImportSettings) -> ImportStep | Skipped:
    meta = pod["metadata"]
    _refuse_others(pod, queue, settings)
    there = world.workloads.get(meta["uid"])
    if there is not None and (there.get("status") or {}).get("admission") and pod_view.is_managed(pod):
        return Skipped()
    cluster_queue = _cluster_queue(meta["namespace"], queue, world)
    labels = {**settings.labels, names.QUEUE_NAME_LABEL: queue, names.MANAGED_LABEL: "true"}
    labelled = {**pod, "metadata": {**meta, "labels": {**(meta.get("labels") or {}), **labels}}}
    made = workload_for(
        _KIND,
        labelled,
        priority=_priority(labelled, world, settings),
        switches=settings.switches,
        copied=settings.copied,
    )
    usage = Requests(settings.counting).total(msgspec.convert(made, wire.Workload, strict=False))
    assigned = _assignment(pod, cluster_queue, usage, world)
    admission = Admission(queue=cluster_queue["metadata"]["name"], pod_sets=(assigned,))
    return ImportStep(pod=pod, labels=labels, workload=there or made, admission=admission)


def _refuse_others(pod: Object, queue: str, settings: ImportSettings) -> None:
    """Refuse pods that have a managed owner, wait for a gate, or request what cannot be added to a running pod."""
    named = rules.queue_name(pod)
    if named not in ("", queue):
        raise _ProblemError(f"its label {names.QUEUE_NAME_LABEL} says {named}, the rules say {queue}")
    annotations = pod["metadata"].get("annotations") or {}
    if any(annotation in annotations for annotation in _PARENTS):
        raise _ProblemError("its job is queued, and counts it already")
    if pod_view.gates_of(pod):
        raise _ProblemError("it is held by a scheduling gate, so it does not run: create it anew with a queue")
    if group_name(pod, settings.switches):
        raise _ProblemError("it is in a group of pods; pods are imported one by one")
    if not names.TOPOLOGY_ANNOTATIONS.isdisjoint(annotations):
        raise _ProblemError("it has a topology request, and a running pod cannot be placed again")


def _cluster_queue(namespace: str, queue: str, world: ImportWorld) -> Object:
    name = world.local_queues.get((namespace, queue))
    if name is None:
        raise _ProblemError(f"there is no LocalQueue {queue} in its namespace")
    found = world.cluster_queues.get(name)
    if found is None:
        raise _ProblemError(f"LocalQueue {queue} forwards to ClusterQueue {name}, which does not exist")
    if (found["spec"].get("admissionChecksStrategy") or {}).get("admissionChecks"):
        raise _ProblemError(f"ClusterQueue {name} has admission checks, which an import cannot pass")
    return found


def _priority(pod: Object, world: ImportWorld, settings: ImportSettings) -> Priority:
    source = priority_source(dict(pod), _KIND.pod_sets(dict(pod), settings.switches))
    if source is None:
        return Priority(value=int((pod.get("spec") or {}).get("priority") or 0))
    value = world.priorities.get((source.kind, source.name))
    if value is None:
        raise _ProblemError(f"it names {source.kind} {source.name}, which does not exist")
    return Priority(value=value, kind=source.kind, name=source.name)


def _assignment(pod: Object, queue: Object, usage: Mapping[str, int], world: ImportWorld) -> PodSetAssignment:
    """Assign each resource that needs quota the first flavor of its group whose labels the pod's node has.

    Raises:
        _ProblemError: the ClusterQueue does not list a resource, or no flavor of a group matches the node.
    """
    flavors: dict[str, str] = {}
    for group in queue["spec"].get("resourceGroups") or ():
        asked = [r for r in group["coveredResources"] if usage.get(r)]
        if kube_names.PODS_RESOURCE in group["coveredResources"]:
            asked.append(kube_names.PODS_RESOURCE)
        if asked:
            flavors |= dict.fromkeys(asked, _flavor(pod, group, queue, world))
    missing = sorted(r for r, amount in usage.items() if amount and r not in flavors)
    if missing:
        raise _ProblemError(f"ClusterQueue {queue['metadata']['name']} has no quota for {', '.join(missing)}")
    counted = {**usage, kube_names.PODS_RESOURCE: 1}
    return PodSetAssignment(name=names.DEFAULT_PODSET, flavors=flavors, usage={r: counted[r] for r in flavors}, count=1)


def _flavor(pod: Object, group: Object, queue: Object, world: ImportWorld) -> str:
    listed = [str(each["name"]) for each in group["flavors"]]
    missing = [name for name in listed if name not in world.flavors]
    if missing:
        raise _ProblemError(
            f"ClusterQueue {queue['metadata']['name']} lists ResourceFlavor {missing[0]}, which does not exist"
        )
    node = (pod.get("spec") or {}).get("nodeName") or ""
    if not node:
        return listed[0]
    labels = world.node_labels.get(node, {})
    for name in listed:
        wanted = (world.flavors[name].get("spec") or {}).get("nodeLabels") or {}
        if all(labels.get(key) == value for key, value in wanted.items()):
            return name
    raise _ProblemError(f"its node {node} has the labels of no flavor in {', '.join(listed)}")
