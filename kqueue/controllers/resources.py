"""The kinds that the controllers watch and write, as resources of the API server."""

from __future__ import annotations

from kqueue.api import names
from kqueue.api.reservation_names import RESERVATION_KIND
from kqueue.api.wire import provisioning
from kqueue.jobs.gang.batch_process import KIND, PLURAL, WORKSPACE_KIND
from kqueue.jobs.gang.dialect import Dialect
from kqueue.jobs.kind import NamedKind
from kqueue.kinds import ReadKind
from kqueue.runtime.resources import ResourceType

NODES = ResourceType("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = ResourceType("", "v1", "namespaces", "Namespace", namespaced=False)
PODS = ResourceType("", "v1", "pods", "Pod")
SERVICES = ResourceType("", "v1", "services", "Service")
CONFIG_MAPS = ResourceType("", "v1", "configmaps", "ConfigMap")
LIMIT_RANGES = ResourceType("", "v1", "limitranges", "LimitRange")
RUNTIME_CLASSES = ResourceType("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
POD_DISRUPTION_BUDGETS = ResourceType("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
_DEVICES, _V1 = "resource.k8s.io", "v1"
RESOURCE_CLAIM_TEMPLATES = ResourceType(_DEVICES, _V1, "resourceclaimtemplates", "ResourceClaimTemplate")
RESOURCE_CLAIMS = ResourceType(_DEVICES, _V1, "resourceclaims", "ResourceClaim")
RESOURCE_SLICES = ResourceType(_DEVICES, _V1, "resourceslices", "ResourceSlice", namespaced=False)
DEVICE_CLASSES = ResourceType(_DEVICES, _V1, "deviceclasses", "DeviceClass", namespaced=False)
PRIORITY_CLASSES = ResourceType("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)


def _ours(plural: str, kind: str, *, namespaced: bool = False) -> ResourceType:
    return ResourceType(names.GROUP, names.VERSION, plural, kind, namespaced=namespaced)


WORKLOADS = _ours("workloads", names.WORKLOAD_KIND, namespaced=True)
LOCAL_QUEUES = _ours("localqueues", names.LOCAL_QUEUE_KIND, namespaced=True)
CLUSTER_QUEUES = _ours("clusterqueues", names.CLUSTER_QUEUE_KIND)
COHORTS = _ours("cohorts", names.COHORT_KIND)
RESOURCE_FLAVORS = _ours("resourceflavors", names.RESOURCE_FLAVOR_KIND)
TOPOLOGIES = _ours("topologies", names.TOPOLOGY_KIND)
ADMISSION_CHECKS = _ours("admissionchecks", names.ADMISSION_CHECK_KIND)
WORKLOAD_PRIORITY_CLASSES = _ours("workloadpriorityclasses", names.WORKLOAD_PRIORITY_CLASS_KIND)
PROVISIONING_REQUEST_CONFIGS = _ours("provisioningrequestconfigs", names.PROVISIONING_REQUEST_CONFIG_KIND)
MULTIKUEUE_CONFIGS = _ours("multikueueconfigs", names.MULTIKUEUE_CONFIG_KIND)
MULTIKUEUE_CLUSTERS = _ours("multikueueclusters", names.MULTIKUEUE_CLUSTER_KIND)
PROVISIONING_REQUESTS = ResourceType(provisioning.GROUP, provisioning.VERSION, provisioning.PLURAL, provisioning.KIND)
POD_TEMPLATES = ResourceType("", "v1", "podtemplates", "PodTemplate")
DEFRAGMENTATION_PLANS = ResourceType(
    names.KQUEUE_GROUP, names.KQUEUE_VERSION, "defragmentationplans", names.DEFRAGMENTATION_PLAN_KIND, namespaced=False
)
RESERVATIONS = ResourceType(
    names.KQUEUE_GROUP, names.KQUEUE_VERSION, "reservations", RESERVATION_KIND, namespaced=False
)
BATCH_PROCESSES = ResourceType(KIND.group, KIND.version, PLURAL, KIND.kind)
WORKSPACE_BATCH_PROCESSES = ResourceType(WORKSPACE_KIND.group, WORKSPACE_KIND.version, PLURAL, WORKSPACE_KIND.kind)

GANGS = ResourceType(names.KQUEUE_VISIBILITY_GROUP, "v1alpha1", "gangs", "Gang")
"""Gangs as commands print them; no objects of the API server."""


def resource_of(kind: NamedKind) -> ResourceType:
    """Return the resource of the API server with the objects of the kind."""
    return ResourceType(kind.gvk.group, kind.gvk.version, kind.resource, kind.gvk.kind)


def read_resource(kind: ReadKind) -> ResourceType:
    """Return the resource of the API server with objects that jobs refer to."""
    return ResourceType(kind.group, kind.version, kind.plural, kind.kind, namespaced=kind.namespaced)


def group_object_resources(dialect: Dialect) -> list[ResourceType]:
    """Return the kind of the dialect's group objects in its versions, the newest first."""
    return [ResourceType(kind.group, kind.version, dialect.plural, kind.kind) for kind in dialect.kinds]
