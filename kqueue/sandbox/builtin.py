"""The kinds that are built into every cluster."""

from __future__ import annotations

from collections.abc import Mapping

from kqueue.sandbox import columns, core_rules, crd_rules, event_rules, job_rules, pod_rules, scale, webhook_rules
from kqueue.sandbox.api import GroupVersionResource
from kqueue.sandbox.registry import ServedKind
from kqueue.sandbox.strategy import PLAIN, WriteStrategy
from kqueue.sandbox.table import NAME_AND_AGE, TableColumn

APPS = "apps"
RBAC = "rbac.authorization.k8s.io"
ALL = ("all",)
SCALED = frozenset(("deployments", "replicasets", "statefulsets", "replicationcontrollers"))
TOP_LEVEL = {"type": ("type",), "reason": ("reason",)}
EVENT_SELECTABLE = {
    **TOP_LEVEL,
    **{
        f"involvedObject.{key}": ("involvedObject", key)
        for key in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    },
    "source": ("source", "component"),
    "reportingComponent": ("reportingComponent",),
}
NEW_EVENT_SELECTABLE = {
    **TOP_LEVEL,
    **{f"regarding.{key}": ("regarding", key) for key in ("kind", "namespace", "name", "uid", "apiVersion")},
    "reportingController": ("reportingController",),
}
POD_SELECTABLE = {
    "spec.nodeName": ("spec", "nodeName"),
    "spec.restartPolicy": ("spec", "restartPolicy"),
    "spec.schedulerName": ("spec", "schedulerName"),
    "spec.serviceAccountName": ("spec", "serviceAccountName"),
    "spec.hostNetwork": ("spec", "hostNetwork"),
    "status.phase": ("status", "phase"),
    "status.podIP": ("status", "podIP"),
    "status.nominatedNodeName": ("status", "nominatedNodeName"),
}


def _kind(
    group: str,
    kind: str,
    plural: str,
    *,
    short: str = "",
    namespaced: bool = True,
    categories: tuple[str, ...] = (),
    status: bool = False,
    subresources: tuple[str, ...] = (),
    generation: bool = False,
    shown: tuple[TableColumn, ...] = NAME_AND_AGE,
    strategy: WriteStrategy = PLAIN,
    selectable: Mapping[str, tuple[str, ...]] | None = None,
    orphans: bool = False,
) -> ServedKind:
    return ServedKind(
        resource=GroupVersionResource(group, "v1", plural),
        kind=kind,
        namespaced=namespaced,
        storage=f"{group}/{plural}",
        singular=kind.lower(),
        short_names=tuple(short.split()),
        categories=categories,
        status=status,
        subresources=(*subresources, scale.NAME) if plural in SCALED else subresources,
        scale=scale.ScalePaths() if plural in SCALED else None,
        generation=generation,
        columns=shown,
        strategy=strategy,
        selectable=selectable or {},
        returns_deleted=plural in ("pods", "services", "serviceaccounts", "persistentvolumeclaims", "resourcequotas"),
        orphans_by_default=orphans,
    )


CORE = (
    _kind("", "Namespace", "namespaces", short="ns", namespaced=False, status=True, subresources=("finalize",),
          shown=columns.NAMESPACES, strategy=core_rules.NAMESPACE, selectable={"status.phase": ("status", "phase")}),
    _kind("", "Node", "nodes", short="no", namespaced=False, status=True, shown=columns.NODES,
          strategy=core_rules.NODE, selectable={"spec.unschedulable": ("spec", "unschedulable")}),
    _kind("", "Pod", "pods", short="po", categories=ALL, status=True, generation=True,
          subresources=("binding", "eviction", "log", "exec", "attach", "portforward"), shown=columns.PODS,
          strategy=pod_rules.POD, selectable=POD_SELECTABLE),
    _kind("", "Service", "services", short="svc", categories=ALL, status=True, shown=columns.SERVICES,
          strategy=core_rules.SERVICE),
    _kind("", "ConfigMap", "configmaps", short="cm", shown=columns.CONFIG_MAPS, strategy=core_rules.CONFIG_MAP),
    _kind("", "Secret", "secrets", shown=columns.SECRETS, strategy=core_rules.SECRET, selectable={"type": ("type",)}),
    _kind("", "ServiceAccount", "serviceaccounts", short="sa", subresources=("token",)),
    _kind("", "Event", "events", short="ev", shown=columns.EVENTS, selectable=EVENT_SELECTABLE,
          strategy=event_rules.EVENT),
    _kind("", "Endpoints", "endpoints", short="ep"),
    _kind("", "LimitRange", "limitranges", short="limits", shown=columns.CREATED_AT),
    _kind("", "ResourceQuota", "resourcequotas", short="quota", status=True, shown=columns.RESOURCE_QUOTAS),
    _kind("", "PersistentVolumeClaim", "persistentvolumeclaims", short="pvc", status=True),
    _kind("", "PersistentVolume", "persistentvolumes", short="pv", namespaced=False, status=True),
    _kind("", "PodTemplate", "podtemplates"),
    _kind("", "ReplicationController", "replicationcontrollers", short="rc", categories=ALL, status=True,
          generation=True),
)  # fmt: skip
OTHERS = (
    _kind(APPS, "Deployment", "deployments", short="deploy", categories=ALL, status=True, generation=True,
          shown=columns.DEPLOYMENTS, strategy=core_rules.DEPLOYMENT),
    _kind(APPS, "DaemonSet", "daemonsets", short="ds", categories=ALL, status=True, generation=True,
          shown=columns.DAEMON_SETS, strategy=core_rules.DAEMON_SET),
    _kind(APPS, "StatefulSet", "statefulsets", short="sts", categories=ALL, status=True, generation=True,
          shown=columns.STATEFUL_SETS, strategy=core_rules.STATEFUL_SET),
    _kind(APPS, "ReplicaSet", "replicasets", short="rs", categories=ALL, status=True, generation=True,
          shown=columns.REPLICA_SETS, strategy=core_rules.WORKLOAD),
    _kind(APPS, "ControllerRevision", "controllerrevisions"),
    _kind("batch", "Job", "jobs", categories=ALL, status=True, generation=True, shown=columns.JOBS,
          strategy=job_rules.JOB, selectable={"status.successful": ("status", "succeeded")}, orphans=True),
    _kind("batch", "CronJob", "cronjobs", short="cj", categories=ALL, status=True, generation=True,
          shown=columns.CRON_JOBS, strategy=job_rules.CRON_JOB),
    _kind("coordination.k8s.io", "Lease", "leases", shown=columns.LEASES),
    _kind("admissionregistration.k8s.io", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations",
          categories=("api-extensions",), namespaced=False, generation=True, shown=columns.WEBHOOKS,
          strategy=webhook_rules.MUTATING),
    _kind("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations",
          categories=("api-extensions",), namespaced=False, generation=True, shown=columns.WEBHOOKS,
          strategy=webhook_rules.VALIDATING),
    _kind("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", short="crd crds",
          categories=("api-extensions",), namespaced=False, status=True, generation=True, shown=columns.CRDS,
          strategy=crd_rules.CRD),
    _kind("apiregistration.k8s.io", "APIService", "apiservices", categories=("api-extensions",), namespaced=False,
          status=True, shown=columns.API_SERVICES),
    _kind(RBAC, "ClusterRole", "clusterroles", namespaced=False, shown=columns.CREATED_AT),
    _kind(RBAC, "ClusterRoleBinding", "clusterrolebindings", namespaced=False, shown=columns.ROLE_BINDINGS),
    _kind(RBAC, "Role", "roles", shown=columns.CREATED_AT),
    _kind(RBAC, "RoleBinding", "rolebindings", shown=columns.ROLE_BINDINGS),
    _kind("scheduling.k8s.io", "PriorityClass", "priorityclasses", short="pc", namespaced=False,
          shown=columns.PRIORITY_CLASSES, strategy=core_rules.PRIORITY_CLASS, generation=True),
    _kind("node.k8s.io", "RuntimeClass", "runtimeclasses", namespaced=False, shown=columns.RUNTIME_CLASSES),
    _kind("discovery.k8s.io", "EndpointSlice", "endpointslices"),
    _kind("policy", "PodDisruptionBudget", "poddisruptionbudgets", short="pdb", status=True, generation=True,
          shown=columns.DISRUPTION_BUDGETS),
    _kind("networking.k8s.io", "Ingress", "ingresses", short="ing", status=True, generation=True),
    _kind("networking.k8s.io", "IngressClass", "ingressclasses", namespaced=False, generation=True),
    _kind("networking.k8s.io", "NetworkPolicy", "networkpolicies", short="netpol", generation=True,
          shown=columns.NETWORK_POLICIES),
    _kind("storage.k8s.io", "StorageClass", "storageclasses", short="sc", namespaced=False,
          shown=columns.STORAGE_CLASSES),
    _kind("resource.k8s.io", "DeviceClass", "deviceclasses", namespaced=False, generation=True),
    _kind("resource.k8s.io", "ResourceSlice", "resourceslices", namespaced=False, generation=True,
          selectable={"spec.nodeName": ("spec", "nodeName"), "spec.driver": ("spec", "driver")}),
    _kind("resource.k8s.io", "ResourceClaim", "resourceclaims", status=True),
    _kind("resource.k8s.io", "ResourceClaimTemplate", "resourceclaimtemplates"),
)  # fmt: skip
NEW_EVENT = ServedKind(
    resource=GroupVersionResource("events.k8s.io", "v1", "events"),
    kind="Event",
    storage="/events",
    singular="event",
    short_names=("ev",),
    columns=columns.NEW_EVENTS,
    selectable=NEW_EVENT_SELECTABLE,
    strategy=event_rules.NEW_EVENT,
    inward=core_rules.event_to_core,
    outward=core_rules.event_from_core,
)
BUILTIN_KINDS: tuple[ServedKind, ...] = (*CORE, *OTHERS, NEW_EVENT)
