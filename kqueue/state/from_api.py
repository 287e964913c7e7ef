"""From what the watches bring to what the core decides on.  Pure; what cannot be read raises, naming its field."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec

from kqueue.api import names
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.meta import Condition, LabelSelector, ObjectMeta, OwnerReference, ResourceList
from kqueue.config.duration import parse_duration
from kqueue.core.pod_requests import Amounts, ContainerRequests, PodResources
from kqueue.core.quantity import parse_billionths, parse_quantity
from kqueue.core.quota import FlavorResource, Quota
from kqueue.core.topology import (
    DEFAULT_PROFILE,
    Algorithm,
    NodeFacts,
    NodeRules,
    NodeTerm,
    PodFacts,
    PodSetRequest,
    Profile,
    Requirement,
    SliceLayer,
    Taint,
    Toleration,
    TopologyAssignment,
    TopologyRequest,
    WeightedTerm,
    decode,
)
from kqueue.core.workload import (
    Admission,
    Flavor,
    Head,
    PodSet,
    PodSetAssignment,
    Preempts,
    QueueSpec,
    Replaced,
    ResourceGroup,
)
from kqueue.errors import FieldError, InvalidObjectError
from kqueue.state.queues import Asked, Pending

_NO_TIME = datetime.fromtimestamp(0, UTC)


# --- nodes and pods --------------------------------------------------------------------------------------------------


def amounts(resources: ResourceList, path: str) -> dict[str, int]:
    """Quantities as integers; cpu in milli, everything else in base units.

    Raises InvalidObjectError for one that is no quantity or is negative.
    """
    out: dict[str, int] = {}
    for resource, text in resources.items():
        try:
            value = parse_quantity(text, resource)
        except ValueError as e:
            raise InvalidObjectError("a quantity", [FieldError(f"{path}[{resource}]", str(e), text)]) from e
        if value < 0:
            problem = "must not be negative; write 0 or more"
            raise InvalidObjectError("a quantity", [FieldError(f"{path}[{resource}]", problem, text)])
        out[sys.intern(resource)] = value
    return out


def node_facts(node: wire_core.Node) -> NodeFacts:
    """What placement knows of a node."""
    condition_ready = condition(node.status.conditions, "Ready")
    ready = condition_ready is not None and condition_ready.status == "True"
    return NodeFacts(
        name=sys.intern(node.metadata.name),
        labels={sys.intern(k): sys.intern(v) for k, v in node.metadata.labels.items()},
        allocatable=_shared(tuple(sorted(amounts(node.status.allocatable, "status.allocatable").items()))),
        taints=tuple(taint(t) for t in node.spec.taints),
        ready=ready,
        not_ready_since=condition_ready.last_transition_time or _NO_TIME if condition_ready and not ready else None,
        unschedulable=node.spec.unschedulable,
    )


@lru_cache(maxsize=1024)
def _shared(amounts: tuple[tuple[str, int], ...]) -> Mapping[str, int]:
    """One mapping for all nodes of equal amounts: most nodes of a pool are."""
    return dict(amounts)


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPod:
    """A pod that kqueue places: what the ungater needs of it.

    `index` holds the pod's labels that can number it; `gates` all its scheduling gates by name, in order.
    """

    key: str
    uid: str
    resource_version: str
    workload: str
    """namespace/name of the Workload it belongs to."""
    pod_set: str
    gates: tuple[str, ...]
    node_selector: Mapping[str, str]
    labels: Mapping[str, str]
    index_offset: str | None
    terminal: bool
    deleting: bool
    node: str = ""
    """Name of the node that it is bound to; empty: none yet."""
    slice_name: str | None = None
    """Name shared by the Workloads of an elastic job; None: the job is not elastic."""
    controller: tuple[str, str] | None = None
    """Kind (with its version) and UID of the object that controls it; None: nobody does."""
    failed: bool = False
    """It has ended, and not well."""
    created: datetime = _NO_TIME

    @property
    def gated(self) -> bool:
        """Whether the topology gate still holds it."""
        return names.TOPOLOGY_GATE in self.gates

    @property
    def siblings(self) -> str:
        """namespace/name by which all pods of its job are found; see `siblings_key`."""
        return f"{self.key.partition('/')[0]}/{self.slice_name}" if self.slice_name else self.workload


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticPod:
    """A pod of an elastic job that has not ended: what its ungater needs of it.

    `annotations` are those that admission checks may set; `gates` all its scheduling gates by name, in order.
    """

    key: str
    uid: str
    resource_version: str
    siblings: str
    """namespace/name by which all pods of its job are found; see `siblings_key`.  Empty: it was started without us."""
    pod_set: str
    gates: tuple[str, ...]
    node_selector: Mapping[str, str]
    annotations: Mapping[str, str]
    deleting: bool
    controller: tuple[str, str] | None = None
    """Kind (with its version) and UID of the object that controls it; None: nobody does."""

    @property
    def gated(self) -> bool:
        """Whether the gate of elastic jobs still holds it."""
        return names.ELASTIC_JOB_GATE in self.gates

    @property
    def terminal(self) -> bool:
        """Whether it has ended: then it would be none."""
        return False


@dataclass(frozen=True, slots=True)
class PodView:
    """What is kept of any pod: its key, at most one of the first two, and whose quota it still needs."""

    key: str
    foreign: PodFacts | None = None
    gang: GangPod | None = None
    workload: str = ""
    """namespace/name of the Workload that was started with it, or that all slices of its job share; see `siblings_key`.
    Empty: it has ended, or is not ours.
    """
    elastic: ElasticPod | None = None


_shapes: dict[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]] = {}
"""Equal request tuples are kept once: thousands of pods of one DaemonSet share theirs."""


_forms: dict[tuple[Any, ...], tuple[tuple[str, int], ...]] = {}
"""Requests of foreign pods by what their containers say."""
_FORMS_MAX = 10_000
"""More forms than any cluster has; somebody who makes them all different gets no memory of ours."""


def pod_view(pod: wire_core.Pod) -> PodView:
    """The slim view of a pod: a place taken on a node, a member of a gang, or nothing that matters."""
    meta = pod.metadata
    key = sys.intern(f"{meta.namespace}/{meta.name}")
    terminal = pod.status.phase in ("Succeeded", "Failed")
    if any(marker in meta.annotations for marker in names.TOPOLOGY_MARKER_ANNOTATIONS):
        owner = meta.annotations.get(names.WORKLOAD_ANNOTATION) or meta.annotations.get(
            names.TOPOLOGY_WORKLOAD_ALIAS_ANNOTATION
        )
        return PodView(
            key,
            gang=_gang_pod(pod, owner, terminal=terminal) if owner else None,
            workload=_holds(pod, terminal),
            elastic=_elastic_pod(pod, terminal),
        )
    if not pod.spec.node_name or terminal:
        return PodView(key, workload=_holds(pod, terminal), elastic=_elastic_pod(pod, terminal))
    facts = PodFacts(node=sys.intern(pod.spec.node_name), requests=_requests_of(pod.spec))
    return PodView(key, foreign=facts, workload=_holds(pod, terminal), elastic=_elastic_pod(pod, terminal))


def _holds(pod: wire_core.Pod, terminal: bool) -> str:
    annotations = pod.metadata.annotations
    started_by = annotations.get(names.WORKLOAD_SLICE_NAME_ANNOTATION) or annotations.get(names.WORKLOAD_ANNOTATION)
    return sys.intern(f"{pod.metadata.namespace}/{started_by}") if started_by and not terminal else ""


def _elastic_pod(pod: wire_core.Pod, terminal: bool) -> ElasticPod | None:
    """Pods with the name of a slice, or with the gate."""
    meta, gates = pod.metadata, tuple(gate.name for gate in pod.spec.scheduling_gates)
    if names.WORKLOAD_SLICE_NAME_ANNOTATION not in meta.annotations and names.ELASTIC_JOB_GATE not in gates:
        return None
    siblings = _holds(pod, terminal)
    if not siblings and (terminal or names.ELASTIC_JOB_GATE not in gates):
        return None
    return ElasticPod(
        key=f"{meta.namespace}/{meta.name}",
        uid=meta.uid,
        resource_version=meta.resource_version,
        siblings=siblings,
        pod_set=sys.intern(meta.labels.get(names.PODSET_LABEL) or names.DEFAULT_PODSET),
        gates=gates,
        node_selector=dict(pod.spec.node_selector),
        annotations={key: meta.annotations[key] for key in names.CHECKED_POD_ANNOTATIONS if key in meta.annotations},
        deleting=meta.deletion_timestamp is not None,
        controller=controller_of(meta),
    )


def _requests_of(spec: wire_core.PodSpec) -> tuple[tuple[str, int], ...]:
    """What a pod requests, sorted by resource.  Pods come in few forms, so each form is worked out once."""
    level = spec.resources
    form = (
        tuple([_form(c) for c in spec.containers]),
        tuple([_form(c) for c in spec.init_containers]),
        None if level is None else (tuple(level.requests.items()), tuple(level.limits.items())),
        tuple(spec.overhead.items()),
    )
    known = _forms.get(form)
    if known is None:
        shape = tuple(sorted(template_requests(spec, "spec").items()))
        if len(_forms) >= _FORMS_MAX:
            _forms.clear()
        known = _forms[form] = _shapes.setdefault(shape, shape)
    return known


def _form(container: wire_core.Container) -> tuple[Any, ...]:
    resources = container.resources
    return (tuple(resources.requests.items()), tuple(resources.limits.items()), container.restart_policy == "Always")


def _gang_pod(pod: wire_core.Pod, owner: str, *, terminal: bool) -> GangPod:
    meta = pod.metadata
    pod_set = meta.labels.get(names.PODSET_LABEL) or meta.annotations.get(
        names.TOPOLOGY_PODSET_ALIAS_ANNOTATION, names.DEFAULT_PODSET
    )
    return GangPod(
        key=f"{meta.namespace}/{meta.name}",
        uid=meta.uid,
        resource_version=meta.resource_version,
        workload=f"{meta.namespace}/{owner}",
        pod_set=sys.intern(pod_set),
        gates=tuple(gate.name for gate in pod.spec.scheduling_gates),
        node_selector=dict(pod.spec.node_selector),
        labels=dict(meta.labels),
        index_offset=meta.annotations.get(names.POD_INDEX_OFFSET_ANNOTATION),
        terminal=terminal,
        deleting=meta.deletion_timestamp is not None,
        node=pod.spec.node_name or "",
        slice_name=meta.annotations.get(names.WORKLOAD_SLICE_NAME_ANNOTATION),
        controller=controller_of(meta),
        failed=pod.status.phase == "Failed",
        created=meta.creation_timestamp or _NO_TIME,
    )


def controller_of(meta: ObjectMeta) -> tuple[str, str] | None:
    """Kind (with its version) and UID of the owner that controls the object."""
    return next((_owner(o) for o in meta.owner_references if o.controller), None)


def is_owned_by_one_pod(obj: wire.Workload) -> bool:
    """Whether it is the Workload of a pod that is queued alone: it ends with that pod."""
    owners = obj.metadata.owner_references
    return (
        len(owners) == 1
        and (owners[0].api_version, owners[0].kind) == ("v1", "Pod")
        and obj.metadata.annotations.get(names.IS_GROUP_WORKLOAD_ANNOTATION) != "true"
    )


def _owner(reference: OwnerReference) -> tuple[str, str]:
    return sys.intern(f"{reference.api_version}/{reference.kind}"), sys.intern(reference.uid)


def template_requests(spec: wire_core.PodSpec, path: str) -> dict[str, int]:
    """What one pod of this spec requests in total, without `pods`."""
    return pod_resources(spec, path).total()


def pod_resources(spec: wire_core.PodSpec, path: str) -> PodResources:
    """What the parts of a pod ask for.  Raises InvalidObjectError, with `path` before the field."""

    def read(container: wire_core.Container, where: str) -> ContainerRequests:
        resources = container.resources
        return ContainerRequests(
            amounts(resources.requests, f"{where}.resources.requests"),
            amounts(resources.limits, f"{where}.resources.limits"),
            sidecar=container.restart_policy == "Always",
            name=container.name,
        )

    level = spec.resources
    return PodResources(
        tuple([read(c, f"{path}.containers[{i}]") for i, c in enumerate(spec.containers)]),
        tuple([read(c, f"{path}.initContainers[{i}]") for i, c in enumerate(spec.init_containers)]),
        level=None
        if level is None
        else ContainerRequests(
            amounts(level.requests, f"{path}.resources.requests"), amounts(level.limits, f"{path}.resources.limits")
        ),
        overhead=amounts(spec.overhead, f"{path}.overhead"),
    )


def taint(t: wire_core.Taint) -> Taint:
    """A taint as a value."""
    return Taint(t.key, t.value, t.effect)


def toleration(t: wire_core.Toleration) -> Toleration:
    """A toleration as a value."""
    return Toleration(t.key or "", t.operator or "", t.value or "", t.effect or "")


def node_rules(spec: wire_core.PodSpec) -> NodeRules:
    """Which nodes a template accepts."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    return NodeRules(
        selector=tuple(sorted(spec.node_selector.items())),
        required=None if required is None else tuple(_term(t) for t in required.node_selector_terms),
        tolerations=tuple(toleration(t) for t in spec.tolerations),
        preferred=tuple(
            WeightedTerm(p.weight, _term(p.preference)) for p in (affinity.preferred if affinity is not None else ())
        ),
    )


def _term(t: wire_core.NodeSelectorTerm) -> NodeTerm:
    return NodeTerm(
        tuple(Requirement(r.key, r.operator, r.values) for r in t.match_expressions),
        tuple(Requirement(r.key, r.operator, r.values) for r in t.match_fields),
    )


# --- queues and flavors ----------------------------------------------------------------------------------------------


def flavor(obj: wire.ResourceFlavor) -> Flavor:
    """A ResourceFlavor as a value."""
    spec = obj.spec
    return Flavor(
        name=obj.metadata.name,
        node_labels=dict(spec.node_labels),
        taints=tuple(taint(t) for t in spec.node_taints),
        tolerations=tuple(toleration(t) for t in spec.tolerations),
        topology=spec.topology_name or (inline_topology(obj.metadata.name) if spec.topology is not None else None),
    )


def inline_topology(flavor_name: str) -> str:
    """The name by which the levels that a flavor lists itself are known; no Topology object can have it."""
    return f"{flavor_name} (inline)"


def quotas(groups: Iterable[wire.ResourceGroup]) -> tuple[dict[FlavorResource, Quota], str]:
    """Quota per column, and what cannot be read (empty: all can)."""
    out: dict[FlavorResource, Quota] = {}
    problems: list[str] = []
    for g, group in enumerate(groups):
        for f, flavor_quotas in enumerate(group.flavors):
            for r, resource in enumerate(flavor_quotas.resources):
                path = f"spec.resourceGroups[{g}].flavors[{f}].resources[{r}]"
                try:
                    out[FlavorResource(flavor_quotas.name, resource.name)] = _quota(resource, path)
                except InvalidObjectError as e:
                    problems += [str(error) for error in e.errors]
    return out, "; ".join(problems)


def _quota(resource: wire.ResourceQuota, path: str) -> Quota:
    def read(value: str | int | None, field: str) -> int | None:
        return None if value is None else amounts({resource.name: value}, f"{path}.{field}")[resource.name]

    nominal = read(resource.nominal_quota, "nominalQuota")
    return Quota(
        nominal or 0,
        read(resource.borrowing_limit, "borrowingLimit"),
        read(resource.lending_limit, "lendingLimit"),
    )


_WEIGHT_ONE = 1_000_000_000


def weight(sharing: wire.FairSharing | None) -> tuple[int, str]:
    """The weight in billionths, which is 1 where none can be read, and what cannot be read (empty: all can)."""
    if sharing is None:
        return _WEIGHT_ONE, ""
    try:
        billionths = parse_billionths(sharing.weight)
    except ValueError as e:
        return _WEIGHT_ONE, f"spec.fairSharing.weight: {e}"
    if billionths < 0:
        return _WEIGHT_ONE, "spec.fairSharing.weight: must not be negative; write 0 or more"
    return billionths, ""


def queue_spec(
    obj: wire.ClusterQueue,
    profile: Profile = DEFAULT_PROFILE,
    *,
    ignores_undeclared: bool = False,
    fungible: bool = True,
) -> tuple[QueueSpec, dict[FlavorResource, Quota], str]:
    """A ClusterQueue as planning sees it, its quotas, and what cannot be read (empty: all can).

    `profile` serves ClusterQueues that do not choose one by annotation; `ignores_undeclared` and `fungible` are as in
    `QueueSpec`.
    """
    spec = obj.spec
    columns, problem = quotas(spec.resource_groups)
    algorithm, unknown = _chosen(obj.metadata)
    runtime, unreadable = minimum_runtime(obj.metadata)
    problem = "; ".join(filter(None, (problem, weight(spec.fair_sharing)[1], unknown, unreadable)))
    fungibility, preemption = spec.flavor_fungibility, spec.preemption
    return (
        QueueSpec(
            name=obj.metadata.name,
            groups=tuple(
                ResourceGroup(tuple(g.covered_resources), tuple(f.name for f in g.flavors))
                for g in spec.resource_groups
            ),
            borrow_before_next_flavor=fungibility.when_can_borrow == "MayStopSearch",
            preempt_before_next_flavor=fungibility.when_can_preempt == "MayStopSearch",
            prefers_preemption=fungibility.preference == "PreemptionOverBorrowing",
            fungible=fungible,
            preempts_own=Preempts(preemption.within_cluster_queue),
            reclaims=Preempts(preemption.reclaim_within_cohort),
            borrow_preempts=preemption.borrow_within_cohort.policy != "Never",
            borrow_preempts_up_to=preemption.borrow_within_cohort.max_priority_threshold,
            profile=profile.with_algorithm(algorithm),
            ignores_undeclared=ignores_undeclared,
            minimum_runtime=runtime,
        ),
        columns,
        problem,
    )


def cohort_problem(obj: wire.Cohort) -> str:
    """What of a Cohort cannot be read; empty: all can."""
    return "; ".join(filter(None, (quotas(obj.spec.resource_groups)[1], weight(obj.spec.fair_sharing)[1])))


def same_queue(one: wire.ClusterQueue, other: wire.ClusterQueue) -> bool:
    """Whether planning sees no difference: only status or other metadata changed."""
    return one.spec == other.spec and _own_words(one.metadata) == _own_words(other.metadata)


def _own_words(meta: ObjectMeta) -> list[str | None]:
    """What a ClusterQueue's annotations say to planning, right or wrong."""
    return [meta.annotations.get(key) for key in (names.PLACEMENT_PROFILE_ANNOTATION, names.MINIMUM_RUNTIME_ANNOTATION)]


def minimum_runtime(meta: ObjectMeta) -> tuple[int, str]:
    """For how many seconds, rounded up, workloads of a ClusterQueue run before they may be preempted; 0: from the
    first on.  And what is wrong with what it says; empty: nothing.
    """
    text = meta.annotations.get(names.MINIMUM_RUNTIME_ANNOTATION)
    if text is None:
        return 0, ""
    path = f"metadata.annotations[{names.MINIMUM_RUNTIME_ANNOTATION}]"
    try:
        duration = parse_duration(text)
    except ValueError as e:
        return 0, f"{path}: {text!r} {e}"
    if duration < timedelta(0):
        return 0, f"{path}: {text!r} must not be negative; write 0 or more"
    return -(-duration // timedelta(seconds=1)), ""


def profile_name(meta: ObjectMeta) -> str | None:
    """The placement profile that a ClusterQueue or Workload names, right or wrong; None: it names none."""
    return meta.annotations.get(names.PLACEMENT_PROFILE_ANNOTATION)


def _chosen(meta: ObjectMeta) -> tuple[Algorithm | None, str]:
    """The algorithm of the profile that it names (None: none, or there is no such profile), and what is wrong."""
    name = profile_name(meta)
    if name is None or name in set(Algorithm):
        return None if name is None else Algorithm(name), ""
    path = f"metadata.annotations[{names.PLACEMENT_PROFILE_ANNOTATION}]"
    return None, f"{path}: {name!r} is no profile; use one of {', '.join(Algorithm)}"


def selector_matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether labels match; None selects nothing, an empty selector everything."""
    if selector is None:
        return False
    for key, value in selector.match_labels.items():
        if labels.get(key) != value:
            return False
    for rule in selector.match_expressions:
        has = labels.get(rule.key)
        match rule.operator:
            case "In":
                holds = has is not None and has in rule.values
            case "NotIn":
                holds = has is None or has not in rule.values
            case "Exists":
                holds = has is not None
            case "DoesNotExist":
                holds = has is None
            case _:
                holds = False
        if not holds:
            return False
    return True


# --- workloads -------------------------------------------------------------------------------------------------------


def condition(conditions: Iterable[Condition], kind: str) -> Condition | None:
    """The condition of that type; None when it was never written."""
    for found in conditions:
        if found.type == kind:
            return found
    return None


def condition_true(obj: wire.Workload, kind: str) -> bool:
    """Whether the condition is there and True."""
    found = condition(obj.status.conditions, kind)
    return found is not None and found.status == "True"


def since(obj: wire.Workload, kind: str) -> datetime | None:
    """Since when the condition has been True; None when it is not."""
    found = condition(obj.status.conditions, kind)
    return found.last_transition_time if found is not None and found.status == "True" else None


def priority(obj: wire.Workload, order: QueueOrder | None = None) -> int:
    """What it weighs against others, when it waits and when somebody has to go."""
    own = obj.spec.priority or 0
    return own + boost(obj, order) if order is not None and order.boosts else own


def boost(obj: wire.Workload, order: QueueOrder | None = None) -> int:
    """What its annotation adds to its priority, where that counts; what cannot be read adds nothing."""
    if order is None or not order.boosts:
        return 0
    text = obj.metadata.annotations.get(names.PRIORITY_BOOST_ANNOTATION, "")
    if _BOOST.fullmatch(text) is None:
        return 0
    number = int(text)
    return number if -(2**31) <= number < 2**31 else 0


_BOOST = re.compile(r"[+-]?[0-9]{1,64}")


def is_active(conditions: Iterable[Condition]) -> bool:
    """Whether the condition Active is True."""
    found = condition(conditions, names.CONDITION_ACTIVE)
    return found is not None and found.status == "True"


def is_admitted(obj: wire.Workload) -> bool:
    """Whether it may run: admitted, and it holds what it was admitted with.

    The conditions alone do not say so: anybody who may write the status can write any of them.
    """
    return (
        obj.status.admission is not None
        and condition_true(obj, names.CONDITION_QUOTA_RESERVED)
        and condition_true(obj, names.CONDITION_ADMITTED)
    )


def is_mangled(obj: wire.Workload) -> bool:
    """Whether its status is as nobody leaves it who gives a reservation back: wiped, or saying two things at once.

    Of a workload that never had a reservation this says nothing.
    """
    reserved = condition(obj.status.conditions, names.CONDITION_QUOTA_RESERVED)
    if reserved is None:
        return True
    holds, has = reserved.status == "True", obj.status.admission is not None
    return holds is not has or (not holds and condition_true(obj, names.CONDITION_ADMITTED))


def is_over(obj: wire.Workload) -> bool:
    """Finished, or switched off: it holds nothing.

    One that is switched off while its job runs holds what it has until its last pod is gone and its reservation is
    taken back, as with any other eviction.
    """
    if condition_true(obj, names.CONDITION_FINISHED):
        return True
    return not obj.spec.active and obj.status.admission is None


def workload_key(obj: wire.Workload) -> str:
    """namespace/name."""
    return f"{obj.metadata.namespace}/{obj.metadata.name}"


def siblings_key(obj: wire.Workload) -> str:
    """namespace/name by which its pods are found: all slices of an elastic job share one, any other has its own."""
    slice_name = obj.metadata.annotations.get(names.WORKLOAD_SLICE_NAME_ANNOTATION)
    return f"{obj.metadata.namespace}/{slice_name or obj.metadata.name}"


def local_queue_key(obj: wire.Workload) -> str:
    """namespace/name of the LocalQueue; the name may be empty."""
    return f"{obj.metadata.namespace}/{obj.spec.queue_name or ''}"


def runtime_classes(obj: wire.Workload) -> list[str]:
    """The runtime classes that its templates name."""
    return [name for p in obj.spec.pod_sets if (name := p.template.spec.runtime_class_name)]


def is_queueable(obj: wire.Workload) -> bool:
    """Whether it may wait in a queue: not gated by others, not over, no reservation, not on hold, pods complete, and
    no admission check refuses it or is to be asked again.
    """
    metadata = obj.metadata
    if not obj.spec.active or metadata.deletion_timestamp is not None or obj.status.admission is not None:
        return False
    if metadata.annotations.get(names.ADMISSION_GATED_BY_ANNOTATION):
        return False
    for found in obj.status.conditions:
        if found.type in _KEEPS_OUT and found.status == "True":
            return False
        if found.type == names.CONDITION_QUOTA_RESERVED and found.reason == names.REASON_ON_HOLD:
            return False
    return not any(check.state in _REFUSALS for check in obj.status.admission_checks)


_REFUSALS = (names.CHECK_RETRY, names.CHECK_REJECTED)
_KEEPS_OUT = frozenset(
    {names.CONDITION_FINISHED, names.CONDITION_QUOTA_RESERVED, names.CONDITION_WAITING_FOR_REPLACEMENT_PODS}
)
"""Conditions that no queued workload has."""


def is_placed(obj: wire.Workload) -> bool:
    """Admitted to domains, and neither over nor on its way out: its failed hosts are to be replaced."""
    stored = obj.status.admission
    return (
        stored is not None
        and any(held.topology_assignment is not None for held in stored.pod_set_assignments)
        and condition_true(obj, names.CONDITION_ADMITTED)
        and not condition_true(obj, names.CONDITION_EVICTED)
        and not is_over(obj)
        and obj.spec.active
        and obj.metadata.deletion_timestamp is None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOrder:
    """Which evictions move a workload behind those of its priority; without any it keeps its place by creation.

    `by_timeout`: its pods were not ready in time.  `by_reclaim`: it borrowed, and one of higher priority did so in its
    place; for clusters in which priority does not order workloads within a cohort.  `boosts`: an annotation adds to a
    workload's priority.
    """

    by_timeout: bool = True
    by_reclaim: bool = False
    boosts: bool = False


DEFAULT_ORDER = QueueOrder()
_NEXT = timedelta(milliseconds=1)


def closed_gates(obj: wire.Workload) -> tuple[str, ...]:
    """Its preemption gates that nobody has opened: while there are any it is to preempt nobody."""
    if not obj.spec.preemption_gates:
        return ()
    opened = {gate.name for gate in obj.status.preemption_gates if gate.position == "Open"}
    return tuple(gate.name for gate in obj.spec.preemption_gates if gate.name not in opened)


def queue_time(obj: wire.Workload, order: QueueOrder = DEFAULT_ORDER) -> datetime:
    """The time that orders it among equals: creation, or the eviction that moved it back."""
    if not obj.status.conditions:
        return obj.metadata.creation_timestamp or _NO_TIME
    evicted = _true(obj, names.CONDITION_EVICTED)
    if evicted is not None and (
        evicted.reason == names.REASON_ADMISSION_CHECK
        or (evicted.reason == names.REASON_PODS_READY_TIMEOUT and order.by_timeout)
    ):
        return evicted.last_transition_time or _NO_TIME
    preempted = _true(obj, names.CONDITION_PREEMPTED) if order.by_reclaim else None
    if preempted is not None and preempted.reason == names.REASON_IN_COHORT_RECLAIM_WHILE_BORROWING:
        return (preempted.last_transition_time or _NO_TIME) + _NEXT  # behind the one that it left for
    return obj.metadata.creation_timestamp or _NO_TIME


def _true(obj: wire.Workload, kind: str) -> Condition | None:
    found = condition(obj.status.conditions, kind)
    return found if found is not None and found.status == "True" else None


def pending(obj: wire.Workload, order: QueueOrder = DEFAULT_ORDER, *, added: Sequence[str] = ()) -> Pending:
    """What the queues know of a waiting workload.

    `added` stands for what its namespace and its runtime classes add to its requests, equal where that is equal.
    """
    requeued = condition(obj.status.conditions, names.CONDITION_REQUEUED)
    evicted = condition(obj.status.conditions, names.CONDITION_EVICTED)
    state = obj.status.requeue_state
    asked = asked_for(obj)
    profile = profile_name(obj.metadata)
    shape = sys.intern(_digest([priority(obj, order), asked.pods, asked.ended, profile, replaced_key(obj), added]))
    version = _digest(
        [
            obj.metadata.generation,
            [(c.type, c.status, c.reason) for c in (requeued, evicted) if c is not None],
            state.requeue_at if state is not None else None,
            obj.status.reclaimable_pods,
            bool(closed_gates(obj)),
            boost(obj, order),
            profile,
            added,
        ]
    )
    return Pending(
        key=workload_key(obj),
        uid=obj.metadata.uid,
        local_queue=sys.intern(local_queue_key(obj)),
        priority=priority(obj, order),
        timestamp=queue_time(obj, order),
        shape=shape,
        version=version,
        not_before=state.requeue_at if state is not None else None,
        on_hold=requeued is not None and requeued.status == "False",
        asked=asked,
    )


def asked_for(obj: wire.Workload) -> Asked:
    """What the workload asks for by itself."""
    # labels are left out: those of a Job's pods name the Job
    pods = [(p.name, p.count, p.min_count, p.topology_request, p.template.spec) for p in obj.spec.pod_sets]
    return _asked(obj.metadata.generation, ended_pods(obj), _digest(pods))


@lru_cache(maxsize=10_000)
def _asked(generation: int, ended: tuple[tuple[str, int], ...], pods: str) -> Asked:
    """One object for all that ask for the same: most of those who wait have many equals."""
    return Asked(generation, ended, pods)


def ended_pods(obj: wire.Workload) -> tuple[tuple[str, int], ...]:
    """Per pod set, how many of its pods have ended for good: they are not asked for again."""
    return tuple(sorted((r.name, r.count) for r in obj.status.reclaimable_pods)) if obj.status.reclaimable_pods else ()


def _digest(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()[:16]


def replaced_key(obj: wire.Workload) -> str | None:
    """namespace/name of the older slice of its elastic job that it is to replace; None: of none in its namespace."""
    key = obj.metadata.annotations.get(names.WORKLOAD_SLICE_REPLACEMENT_FOR_ANNOTATION)
    if key is None or key == workload_key(obj) or key.partition("/")[0] != obj.metadata.namespace:
        return None
    return key


def head(
    obj: wire.Workload,
    *,
    queue: str,
    topology_only: bool,
    last_tried: Mapping[tuple[str, str], int],
    replaces: Replaced | None = None,
    order: QueueOrder = DEFAULT_ORDER,
    key: str | None = None,
    pod_sets: tuple[PodSet, ...] | None = None,
    refused: str = "",
) -> Head:
    """A pending workload as the planner tries it.

    `key`: its namespace/name, if somebody has that already.  `pod_sets`: what it asks for, if that has been read
    already.  `refused`: why its requests may not be.
    `topology_only`: all flavors of its queue have a topology, so pod sets without a request are placed too.
    `replaces`: the slice named by `replaced_key`, if it holds anything in the same queue.
    Raises InvalidObjectError when its requests cannot be read.
    """
    algorithm, problem = _chosen(obj.metadata)
    return Head(
        key=key or workload_key(obj),
        uid=obj.metadata.uid,
        queue=queue,
        priority=priority(obj, order),
        timestamp=queue_time(obj, order),
        pod_sets=_pod_sets(obj, implied=topology_only) if pod_sets is None else pod_sets,
        last_tried=last_tried,
        algorithm=algorithm,
        problem="; ".join(filter(None, (problem, refused))) if refused else problem,
        replaces=replaces,
    )


def _pod_sets(obj: wire.Workload, *, implied: bool) -> tuple[PodSet, ...]:
    ended = dict(ended_pods(obj))
    found: list[PodSet] = []
    for i, p in enumerate(obj.spec.pod_sets):
        requests = template_requests(p.template.spec, template_path(i))
        found.append(pod_set(p, requests, ended=ended.get(p.name, 0), implied=implied))
    return tuple(found)


def template_path(index: int) -> str:
    """Where in a Workload the pod spec of a pod set stands."""
    return f"spec.podSets[{index}].template.spec"


def pod_set(
    p: wire.PodSet,
    requests: Amounts,
    *,
    costs: Amounts | None = None,
    ended: int = 0,
    implied: bool = False,
    partial: bool = False,
) -> PodSet:
    """A pod set as planning sees it.

    `requests` are those of one pod, `costs` what it costs in quota (None: the same); `ended` pods are not needed again;
    `implied`: it is placed also if it does not ask for that; `partial`: fewer pods will do if it says so.
    """
    topology = topology_request(p.topology_request)
    asks = _asks(p.topology_request)
    count = max(0, p.count - ended)
    return PodSet(
        request=PodSetRequest(
            name=p.name,
            count=count,
            requests=requests,
            topology=topology if asks else replace(topology, implied=implied),
            group=p.topology_request.pod_set_group_name if p.topology_request is not None else None,
            rules=node_rules(p.template.spec),
            ended=p.count - count,
        ),
        quota_requests=requests if costs is None else costs,
        asks_topology=asks,
        min_count=p.min_count if partial and p.min_count is not None and p.min_count < count else None,
    )


def topology_request(request: wire.TopologyRequest | None) -> TopologyRequest:
    """The part of a topology request that decides placement."""
    if request is None:
        return TopologyRequest()
    slices = tuple(SliceLayer(c.topology, c.size) for c in request.podset_slice_required_topology_constraints)
    if not slices and request.pod_set_slice_required_topology:
        slices = (SliceLayer(request.pod_set_slice_required_topology, request.pod_set_slice_size or 0),)
    return TopologyRequest(
        required=request.required, preferred=request.preferred, unconstrained=request.unconstrained, slices=slices
    )


def _asks(request: wire.TopologyRequest | None) -> bool:
    """Whether a place is asked for in so many words; half a request counts, so that it is refused and not ignored."""
    return request is not None and bool(
        request.required
        or request.preferred
        or request.unconstrained is not None
        or request.pod_set_slice_required_topology
        or request.pod_set_slice_size is not None
        or request.podset_slice_required_topology_constraints
    )


def requests_per_pod(obj: wire.Workload) -> dict[str, dict[str, int]]:
    """Per pod set, what one pod requests; pod sets that cannot be read count as requesting nothing."""
    out: dict[str, dict[str, int]] = {}
    for i, p in enumerate(obj.spec.pod_sets):
        try:
            out[p.name] = template_requests(p.template.spec, template_path(i))
        except InvalidObjectError:
            out[p.name] = {}
    return out


def admission(obj: wire.Workload) -> Admission | None:
    """What the workload holds by its status, less what was given back of it; None without a reservation."""
    stored = obj.status.admission
    if stored is None or not condition_true(obj, names.CONDITION_QUOTA_RESERVED):
        return None
    counts = {p.name: p.count for p in obj.spec.pod_sets}
    reclaimed = {r.name: r.count for r in obj.status.reclaimable_pods}
    finished = finished_places(obj) if obj.status.finished_pods else {}
    return Admission(
        queue=stored.cluster_queue,
        pod_sets=tuple(
            _assigned(a, counts.get(a.name, 0), reclaimed.get(a.name, 0), finished.get(a.name))
            for a in stored.pod_set_assignments
        ),
    )


def finished_places(obj: wire.Workload) -> dict[str, TopologyAssignment]:
    """Per pod set, the places that it has given back of its present assignment."""
    return {f.name: assignment(f.topology_assignment) for f in obj.status.finished_pods}


def _assigned(
    a: wire.PodSetAssignment, spec_count: int, reclaimed: int, finished: TopologyAssignment | None
) -> PodSetAssignment:
    count = spec_count if a.count is None else a.count
    usage = amounts(a.resource_usage, f"status.admission.podSetAssignments[{a.name}].resourceUsage")
    needed = spec_count - reclaimed
    if count > 0 and needed < count:  # finished pods have given their quota back
        usage = {r: v // count * max(0, needed) for r, v in usage.items()}
    places = None if a.topology_assignment is None else assignment(a.topology_assignment)
    return PodSetAssignment(
        name=a.name,
        flavors=dict(a.flavors),
        usage={r: v for r, v in usage.items() if r in a.flavors},
        count=count,
        topology=places if places is None or finished is None else places.without(finished),
    )


def assignment(stored: wire.TopologyAssignment) -> TopologyAssignment:
    """The assignment that a status holds."""
    return decode(msgspec.to_builtins(stored))
