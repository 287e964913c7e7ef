"""Nodes, pods, namespaces, limit ranges, runtime and priority classes, as far as we read them."""

from __future__ import annotations

from datetime import datetime

import msgspec

from kqueue.api.wire.meta import Condition, Labels, LabelSelector, ObjectMeta, ResourceList, Struct


class UsedClaim(Struct, frozen=True, kw_only=True):
    """A claim of the pod that a container uses: all of its devices, or those of one request."""

    name: str = ""
    request: str = ""


class ResourceRequirements(Struct, frozen=True, kw_only=True):
    """Requests and limits of a container or of a whole pod."""

    requests: ResourceList = msgspec.field(default_factory=dict)
    limits: ResourceList = msgspec.field(default_factory=dict)
    claims: tuple[UsedClaim, ...] = ()


class ContainerPort(Struct, frozen=True, kw_only=True):
    """A port of a container; `host_port` 0: its node keeps none for it."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = "TCP"


class Container(Struct, frozen=True, kw_only=True):
    """A container: its resources and ports.  `restart_policy` is "Always" for an init container that keeps running."""

    name: str = ""
    restart_policy: str | None = None
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()


class Toleration(Struct, frozen=True, kw_only=True):
    """A taint that the pod tolerates.  An absent key matches all taints, an absent effect all effects."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class NodeSelectorRequirement(Struct, frozen=True, kw_only=True):
    """One rule about a node: `operator` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Struct, frozen=True, kw_only=True):
    """Rules that must hold together.  A term without rules matches no node."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Struct, frozen=True, kw_only=True):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Struct, frozen=True, kw_only=True):
    """A wish with a weight from 1 to 100."""

    weight: int
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Struct, frozen=True, kw_only=True):
    """Which nodes a pod needs and which it likes."""

    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: tuple[PreferredSchedulingTerm, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class PodAffinityTerm(Struct, frozen=True, kw_only=True):
    """Pods by their labels, and the node label whose values are the domains that are shared with them, or are not."""

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class PodAffinity(Struct, frozen=True, kw_only=True):
    """Near which pods a pod has to be, or near which it must not be; preferences are kube-scheduler's alone."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=()
    )


class Affinity(Struct, frozen=True, kw_only=True):
    """Which nodes a pod needs and likes, and which pods it has to be near to, or away from."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class SchedulingGate(Struct, frozen=True, kw_only=True):
    """A reason by name why the pod may not be scheduled yet."""

    name: str


class PodClaim(Struct, frozen=True, kw_only=True):
    """A claim for devices that belongs to a pod: one that exists, or one that is made from a template."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSpec(Struct, frozen=True, kw_only=True):
    """The fields of a pod spec that determine its nodes and its resources."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: ResourceRequirements | None = None
    """Of the pod as a whole; None means the sum of its containers."""
    resource_claims: tuple[PodClaim, ...] = ()
    overhead: ResourceList = msgspec.field(default_factory=dict)
    node_name: str | None = None
    node_selector: Labels = msgspec.field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    host_network: bool = False
    priority: int | None = None
    priority_class_name: str | None = None
    preemption_policy: str | None = None
    runtime_class_name: str | None = None
    restart_policy: str | None = None
    termination_grace_period_seconds: int | None = None


class TemplateMeta(Struct, frozen=True, kw_only=True):
    """Metadata of pods to be made."""

    labels: Labels = msgspec.field(default_factory=dict)
    annotations: Labels = msgspec.field(default_factory=dict)


class PodTemplate(Struct, frozen=True, kw_only=True):
    """Pods to be made."""

    metadata: TemplateMeta = TemplateMeta()
    spec: PodSpec = PodSpec()


class PodStatus(Struct, frozen=True, kw_only=True):
    """`phase` is Pending, Running, Succeeded, Failed or Unknown; empty before the first status."""

    phase: str = ""
    reason: str = ""
    conditions: tuple[Condition, ...] = ()
    start_time: datetime | None = None


class Pod(Struct, frozen=True, kw_only=True):
    """A pod."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Taint(Struct, frozen=True, kw_only=True):
    """A mark that keeps pods away; `effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    effect: str
    value: str = ""
    time_added: datetime | None = None


class NodeSpec(Struct, frozen=True, kw_only=True):
    """Whether a node takes pods.  `unschedulable` means cordoned."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(Struct, frozen=True, kw_only=True):
    """Resources and conditions of a node."""

    allocatable: ResourceList = msgspec.field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()


class Node(Struct, frozen=True, kw_only=True):
    """A node."""

    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Namespace(Struct, frozen=True, kw_only=True):
    """A namespace; queues select it by its labels."""

    metadata: ObjectMeta


class LimitRangeItem(Struct, frozen=True, kw_only=True):
    """Bounds and defaults for one `type`: Container, Pod or PersistentVolumeClaim."""

    type: str
    min: ResourceList = msgspec.field(default_factory=dict)
    max: ResourceList = msgspec.field(default_factory=dict)
    default: ResourceList = msgspec.field(default_factory=dict)
    default_request: ResourceList = msgspec.field(default_factory=dict)


class LimitRangeSpec(Struct, frozen=True, kw_only=True):
    """All bounds of one LimitRange.  None is how the API server writes an empty list."""

    limits: tuple[LimitRangeItem, ...] | None = None


class LimitRange(Struct, frozen=True, kw_only=True):
    """Bounds on what pods of a namespace may request."""

    metadata: ObjectMeta
    spec: LimitRangeSpec = LimitRangeSpec()


class Overhead(Struct, frozen=True, kw_only=True):
    """Overhead of every pod of a runtime class, beside its containers."""

    pod_fixed: ResourceList = msgspec.field(default_factory=dict)


class RuntimeClass(Struct, frozen=True, kw_only=True):
    """How pods are run; it may cost something."""

    metadata: ObjectMeta
    overhead: Overhead | None = None


class PriorityClass(Struct, frozen=True, kw_only=True):
    """A named pod priority."""

    metadata: ObjectMeta
    value: int
    global_default: bool = False
    preemption_policy: str | None = None


class BudgetSpec(Struct, frozen=True, kw_only=True):
    """The pods of a budget; without a selector there are none."""

    selector: LabelSelector | None = None


class BudgetStatus(Struct, frozen=True, kw_only=True):
    """The number of pods that may be disrupted now; 0 before the budget's controller has counted."""

    disruptions_allowed: int = 0


class PodDisruptionBudget(Struct, frozen=True, kw_only=True):
    """A limit of voluntary disruptions."""

    metadata: ObjectMeta
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()
