"""The plan for one unit of an import: pure functions over the state of the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kqueue import model
from kqueue.api import gang_names, import_names, names
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.controllers.resources import PODS, resource_of
from kqueue.core.devices.counting import DeviceRules
from kqueue.core.quota_requests import Counting
from kqueue.core.workload import Admission, PodSetAssignment
from kqueue.errors import InvalidObjectError
from kqueue.jobs import pod_view, rules
from kqueue.jobs.copied import COPIES_NONE, CopiedKeys
from kqueue.jobs.fields import JSON, annotations_of, labels_of, mapping, objects, sequence, text, whole
from kqueue.jobs.gang.extras import priority_of_gang
from kqueue.jobs.infos import infos_at_start
from kqueue.jobs.kind import ExceptionalKind, PodSetInfo, Refused
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import Priority, equivalent, priority_source
from kqueue.kube import names as kube_names
from kqueue.model.pod_sets import pod_sets_of
from kqueue.operations.devices import load_objects
from kqueue.operations.importing.draft import Draft, draft, foreign_workload
from kqueue.operations.importing.mapping import MappingRule, rule_for
from kqueue.operations.importing.places import NodePlaces, flavors_of, node_of
from kqueue.operations.importing.refusal import RefusalError
from kqueue.operations.importing.units import ImportUnit
from kqueue.operations.importing.world import ImportWorld, drains
from kqueue.runtime.resources import ResourceType
from kqueue.state import status
from kqueue.state.checks import flavors_of as flavors_in
from kqueue.state.checks import wanted_checks
from kqueue.state.requests import Requests

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSettings:
    """Settings of an import."""

    rules: Sequence[MappingRule]
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that imported objects get besides kqueue's."""
    switches: JobFeatures = field(default_factory=JobFeatures)
    counting: Counting = field(default_factory=Counting)
    devices: DeviceRules | None = None
    """How claimed devices count; None: they do not."""
    copied: CopiedKeys = COPIES_NONE
    """Keys of labels that are copied from the object to its Workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportChange:
    """Labels and annotations to set on one object, while it is as planned."""

    unit: ImportUnit
    resource: ResourceType
    obj: Object
    labels: Mapping[str, str]
    annotations: Mapping[str, str] = field(default_factory=dict)
    finalizer: bool = False
    """Whether it gets kqueue's finalizer, so that it can be counted after its end."""

    def obstacle(self, now: Object) -> str:
        """Return why the present object is no longer as planned, as a sentence; empty: it is."""
        what = f"{self.resource.kind} {text(now, 'metadata', 'name')}"
        if text(now, "metadata", "uid") != text(self.obj, "metadata", "uid") or pod_view.is_deleting(now):
            return f"{what} was deleted meanwhile"
        if self.resource == PODS:
            moved = node_of(now) != node_of(self.obj)
            return f"{what} ended or moved meanwhile" if moved or pod_view.is_terminated(now) else ""
        if self.unit.kind.is_suspended(dict(now)) or self.unit.kind.finished(dict(now)) is not None:
            return f"{what} was stopped or ended meanwhile"
        return ""

    def patch(self, now: Object) -> JSON:
        """Return the merge patch for the present object, of its version; empty: nothing is to be changed."""
        labels = {key: value for key, value in self.labels.items() if labels_of(now).get(key) != value}
        annotations = {key: v for key, v in self.annotations.items() if annotations_of(now).get(key) != v}
        finalizers = [str(one) for one in sequence(now, "metadata", "finalizers")]
        meta: JSON = {key: value for key, value in (("labels", labels), ("annotations", annotations)) if value}
        if self.finalizer and names.MANAGED_POD_FINALIZER not in finalizers:
            meta["finalizers"] = [*finalizers, names.MANAGED_POD_FINALIZER]
        version = {key: text(now, "metadata", key) for key in ("uid", "resourceVersion")}
        return {"metadata": {**version, **meta}} if meta else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportStep:
    """A unit that can be imported, with the objects to write."""

    unit: ImportUnit
    queue: str
    workload: Mapping[str, Any]
    """The Workload to create, or the existing one."""
    admission: Admission
    checks: tuple[str, ...] = ()
    """The admission checks of the admission, which count as passed: the unit runs."""
    changes: tuple[ImportChange, ...]
    """In the order in which they are made: a job gets its queue after its pods have been marked."""


@dataclass(frozen=True, slots=True)
class ImportProblem:
    """The reason that a unit cannot be imported, in one sentence."""

    text: str


class Skipped:
    """A unit that a rule leaves out, that kqueue does not queue, or that is managed already."""


def plan(unit: ImportUnit, world: ImportWorld, settings: ImportSettings) -> ImportStep | ImportProblem | Skipped:
    """Return the import step for a unit, or the problem."""
    if _is_managed(unit, world) or (isinstance(unit.kind, ExceptionalKind) and unit.kind.is_skipped(dict(unit.obj))):
        return Skipped()
    try:
        rule = _rule(unit, settings.rules)
        return Skipped() if rule.skip else _step(unit, rule.queue, world, settings)
    except (RefusalError, InvalidObjectError) as e:
        return ImportProblem(str(e))


def _is_managed(unit: ImportUnit, world: ImportWorld) -> bool:
    """Whether a queue has admitted the unit already, or kqueue keeps it waiting, or is about to stop it."""
    if not all(rules.queue_name(obj) for obj in _queued(unit)):
        return False
    there = _workloads(unit, world)
    if unit.is_job and there and unit.kind.is_suspended(dict(unit.obj)):
        return True
    if not unit.is_job and all(pod_view.is_managed(pod) and pod_view.is_gated(pod) for pod in unit.pods):
        return True
    managed = unit.is_job or all(pod_view.is_managed(pod) for pod in unit.pods)
    return managed and any(mapping(one, "status").get("admission") for one in there)


def _queued(unit: ImportUnit) -> Sequence[Object]:
    """Return the objects that get the label of the queue."""
    return (unit.obj,) if unit.is_job else unit.pods


def _workloads(unit: ImportUnit, world: ImportWorld) -> Sequence[Object]:
    owner = unit.group_object if unit.group and unit.group_object is not None else unit.obj
    of_pods = unit.group and unit.group_object is None
    key = f"{unit.namespace}/{unit.name}" if of_pods else text(owner, "metadata", "uid")
    return world.workloads.get(key, ())


def _rule(unit: ImportUnit, listed: Sequence[MappingRule]) -> MappingRule:
    """Return the rule for all pods of the unit; labels of a job count before those of its pods, which play roles."""
    own = labels_of(unit.obj) if unit.is_job else {}
    found = []
    for pod in unit.pods:
        meta = {**mapping(pod, "metadata"), "labels": {**labels_of(pod), **own}}
        rule = rule_for({**pod, "metadata": meta}, listed)
        if rule is None:
            raise RefusalError("no rule maps it to a LocalQueue; add one, with skip: true if it is to stay out")
        found.append(rule)
    if len({(rule.queue, rule.skip) for rule in found}) > 1:
        said = ", ".join(sorted({rule.queue or "none (skip)" for rule in found}))
        raise RefusalError(f"the rules map its pods to different LocalQueues: {said}")
    return found[0]


def _step(unit: ImportUnit, queue: str, world: ImportWorld, settings: ImportSettings) -> ImportStep:
    for obj in _queued(unit):
        if rules.queue_name(obj) not in ("", queue):
            raise RefusalError(
                f"its label {names.QUEUE_NAME_LABEL} says {rules.queue_name(obj)}, the rules say {queue}"
            )
    if any(pod_view.suspending_parent(pod) for pod in unit.pods):
        raise RefusalError("its job is queued, and counts it already")
    cluster_queue = _cluster_queue(unit.namespace, queue, world)
    labels = {**settings.labels, names.QUEUE_NAME_LABEL: queue}
    if not unit.is_job:
        labels[names.MANAGED_LABEL] = "true"
    found = draft(
        unit,
        labels,
        priority=lambda obj, pod_sets: _priority(unit, obj, pod_sets, world),
        switches=settings.switches,
        copied=settings.copied,
    )
    admission = _admission(found, cluster_queue, world, settings)
    workload = _stored(found, _workloads(unit, world), admission) or found.workload
    if other := foreign_workload(unit, text(workload, "metadata", "name")):
        raise RefusalError(f"its job is queued, and counts it already: a pod names Workload {other}")
    infos = _infos(unit, workload, admission, world, settings.switches)
    changes = tuple(_changes(unit, found, infos, labels))
    checks = _checks(cluster_queue, admission, world)
    return ImportStep(unit=unit, queue=queue, workload=workload, admission=admission, checks=checks, changes=changes)


def _cluster_queue(namespace: str, queue: str, world: ImportWorld) -> Object:
    name = world.local_queues.get((namespace, queue))
    if name is None:
        raise RefusalError(f"there is no LocalQueue {queue} in its namespace")
    found = world.cluster_queues.get(name)
    if found is None:
        raise RefusalError(f"LocalQueue {queue} forwards to ClusterQueue {name}, which does not exist")
    if drains(found) or (namespace, queue) in world.drained:
        raise RefusalError(f"LocalQueue {queue} or ClusterQueue {name} is drained (stopPolicy), which would stop it")
    return found


def _checks(queue: Object, admission: Admission, world: ImportWorld) -> tuple[str, ...]:
    """Return the admission checks of the admission.

    Raises:
        RefusalError: one of them would have another cluster run the unit.
    """
    spec = msgspec.convert(queue.get("spec") or {}, wire.ClusterQueueSpec, strict=False)
    wanted = wanted_checks(spec, flavors_in(admission))
    for name in wanted:
        if text(world.checks.get(name, {}), "spec", "controllerName") == names.MULTIKUEUE_CONTROLLER:
            raise RefusalError(f"AdmissionCheck {name} has other clusters run the workloads, and it runs in this one")
    return wanted


def _priority(unit: ImportUnit, obj: JSON, pod_sets: Sequence[JSON], world: ImportWorld) -> Priority:
    """Return the priority as the controllers find it; the pods name the cluster's default class, where it has one."""
    if unit.base is not None:
        obj, pod_sets = unit.base.speaker, unit.base.priority_sets
    elif unit.is_extra:
        obj, pod_sets = priority_of_gang(obj, pod_sets, None, dict(unit.group_object or {}))
    source = priority_source(obj, pod_sets) or priority_source({}, [{"template": pod} for pod in unit.pods])
    if source is None:
        return Priority(value=min(whole(pod, "spec", "priority") or 0 for pod in unit.pods))
    value = world.priorities.get((source.kind, source.name))
    if value is None:
        raise RefusalError(f"it names {source.kind} {source.name}, which does not exist")
    return Priority(value=value, kind=source.kind, name=source.name)


def _admission(found: Draft, queue: Object, world: ImportWorld, settings: ImportSettings) -> Admission:
    """Return the admission that says where the pods run; pods that have ended keep their quota until the controller
    releases it.
    """
    workload = msgspec.convert(found.workload, wire.Workload, strict=False)
    requests, places = _requests(world, settings), NodePlaces(world.flavors, world.topologies, world.node_labels)
    if problem := requests.problem(workload):
        raise RefusalError(problem)
    per_pod = requests.costs(workload)
    assigned: list[PodSetAssignment] = []
    for pod_set in pod_sets_of(workload, implied=False):
        pods, count = found.members[pod_set.name], pod_set.request.count
        usage = {r: count * amount for r, amount in per_pod[pod_set.name].items()}
        flavors = flavors_of(pods, usage, queue, world.flavors, world.node_labels)
        counted = {**usage, kube_names.PODS_RESOURCE: count}
        assigned.append(
            PodSetAssignment(
                name=pod_set.name,
                flavors=flavors,
                usage={r: counted[r] for r in flavors},
                count=count,
                topology=places.of(pod_set, pods, flavors),
            )
        )
    return Admission(queue=queue["metadata"]["name"], pod_sets=tuple(assigned))


def _requests(world: ImportWorld, settings: ImportSettings) -> Requests:
    """Return the counter of requests with the defaults of the namespaces, as the controller has it."""
    requests = Requests(settings.counting, devices=settings.devices)
    load_objects(world.devices, requests.devices, lambda _problem: None)
    for each in world.limit_ranges:
        requests.on_limit_range(None, msgspec.convert(each, wire_core.LimitRange, strict=False))
    for each in world.runtime_classes:
        requests.on_runtime_class(None, msgspec.convert(each, wire_core.RuntimeClass, strict=False))
    return requests


def _stored(found: Draft, stored: Sequence[Object], admission: Admission) -> Object | None:
    """Return the Workload of an earlier attempt, after a check that it says the same; None: there is none."""
    if not stored:
        return None
    if len(stored) > 1:
        raise RefusalError(f"it has {len(stored)} Workloads: delete those that do not describe it")
    there = dict(stored[0])
    name = text(there, "metadata", "name")
    workload = msgspec.convert(without_gate(there), wire.Workload, strict=False)
    pod_sets = objects(found.workload, "spec", "podSets")
    if model.is_over(workload) or not equivalent([dict(one) for one in pod_sets], there):
        raise RefusalError(f"its Workload {name} is over, or describes other pods: delete it first")
    held = model.admission(workload, reclaims=False)
    if held is not None and held != admission:
        raise RefusalError(
            f"its Workload {name} is admitted with other flavors or places than its pods have: delete it"
        )
    if held is None and not model.is_queueable(workload):
        raise RefusalError(f"its Workload {name} cannot be admitted, it is on hold or was refused: delete it first")
    return there


def without_gate(workload: Object) -> Object:
    """Return the Workload without the gate of imports, which keeps it out of all cycles until it is admitted."""
    annotations = annotations_of(workload)
    if annotations.get(names.ADMISSION_GATED_BY_ANNOTATION) != import_names.IMPORT_GATE:
        return workload
    kept = {key: value for key, value in annotations.items() if key != names.ADMISSION_GATED_BY_ANNOTATION}
    return {**workload, "metadata": {**workload["metadata"], "annotations": kept}}


def _infos(
    unit: ImportUnit, workload: Object, admission: Admission, world: ImportWorld, switches: JobFeatures
) -> dict[str, PodSetInfo]:
    """Return the additions of the admission by pod set, by which kqueue knows the pods.

    Raises:
        RefusalError: they contradict the unit, so that it could not be started again.
    """
    admitted = {**workload, "status": {"admission": status.admission_json(admission)}}
    flavors = {name: dict(flavor) for name, flavor in world.flavors.items()}
    infos = infos_at_start(admitted, flavors, switches=switches)
    again = infos if isinstance(infos, Refused) else unit.kind.start(dict(unit.obj), infos) if unit.is_job else {}
    if isinstance(infos, Refused) or isinstance(again, Refused):
        raise RefusalError(f"it could not be started again as it runs: {again}")
    return {info.name: info for info in infos}


def _changes(
    unit: ImportUnit, found: Draft, infos: Mapping[str, PodSetInfo], labels: Mapping[str, str]
) -> Sequence[ImportChange]:
    changes: list[ImportChange] = []
    for name, pods in found.members.items():
        info = infos[name]
        more = {names.ROLE_HASH_ANNOTATION: name} if unit.group else {}
        more |= {gang_names.EXTRA_ANNOTATION: gang_names.EXTRA} if unit.is_extra else {}
        changes += [
            ImportChange(
                unit=unit,
                resource=PODS,
                obj=pod,
                labels={**info.labels, **({} if unit.is_job else labels)},
                annotations={**info.annotations, **more},
                finalizer=bool(unit.group) or unit.is_extra,
            )
            for pod in pods
        ]
    if unit.is_job:
        changes.append(ImportChange(unit=unit, resource=resource_of(unit.kind), obj=unit.obj, labels=labels))
    return changes
