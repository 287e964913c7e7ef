"""The CustomResourceDefinitions of all kinds, made from their models."""

from __future__ import annotations

from typing import Any, Final

from kqueue.api.admission_check import AdmissionCheck
from kqueue.api.batch_process import BatchProcess, WorkspaceBatchProcess
from kqueue.api.cluster_queue import ClusterQueue
from kqueue.api.cohort import Cohort
from kqueue.api.defragmentation_plan import DefragmentationPlan
from kqueue.api.local_queue import LocalQueue
from kqueue.api.model import Resource
from kqueue.api.multikueue_cluster import MultiKueueCluster
from kqueue.api.multikueue_config import MultiKueueConfig
from kqueue.api.names import API_VERSION, GROUP, OLDER_VERSION
from kqueue.api.pod_group import PodGroup
from kqueue.api.provisioning_request_config import ProvisioningRequestConfig
from kqueue.api.reservation import DomainReservation
from kqueue.api.resource_flavor import ResourceFlavor
from kqueue.api.schema import schema
from kqueue.api.topology import Topology
from kqueue.api.v1beta1.catalog import OLDER_KINDS
from kqueue.api.v1beta1.editing import OlderKind
from kqueue.api.v1beta1.names import CONVERT_PATH, OLDER_API_VERSION
from kqueue.api.workload import Workload
from kqueue.api.workload_priority_class import WorkloadPriorityClass

KINDS: Final[tuple[type[Resource], ...]] = (
    AdmissionCheck,
    BatchProcess,
    ClusterQueue,
    Cohort,
    DefragmentationPlan,
    LocalQueue,
    MultiKueueCluster,
    MultiKueueConfig,
    ProvisioningRequestConfig,
    DomainReservation,
    ResourceFlavor,
    Topology,
    Workload,
    WorkloadPriorityClass,
)
"""Every kind that the API server is to serve."""
OPTIONAL_KINDS: Final[tuple[type[Resource], ...]] = (PodGroup, WorkspaceBatchProcess)
"""Kinds of other projects whose definitions kqueue brings for clusters that lack them."""

WEBHOOK_SERVICE: Final = "kueue-webhook-service"
"""Service of the webhooks, as the definitions name it until the webhooks write where they are reached."""
WEBHOOK_NAMESPACE: Final = "kueue-system"
"""Namespace of that Service."""


def crd(kind: type[Resource]) -> dict[str, Any]:
    """Return the CustomResourceDefinition of a kind: the version that is stored, and v1beta1 if the kind has it."""
    served = kind.served
    name = served.kind or kind.__name__
    older = OLDER_KINDS.get(name) if served.group == GROUP else None
    names: dict[str, Any] = {
        "kind": name,
        "listKind": f"{name}List",
        "plural": served.plural,
        "singular": name.lower(),
    }
    if served.short_names:
        names["shortNames"] = list(served.short_names)
    spec: dict[str, Any] = {
        "group": served.group,
        "names": names,
        "scope": "Namespaced" if served.namespaced else "Cluster",
        "versions": [_version(kind), *([] if older is None else [_older_version(kind, older)])],
    }
    if older is not None and older.converts:
        spec["conversion"] = _conversion()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{served.plural}.{served.group}"},
        "spec": spec,
    }


def _version(kind: type[Resource]) -> dict[str, Any]:
    served = kind.served
    version: dict[str, Any] = {
        "name": served.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema(kind)},
    }
    if kind.has_status():
        version["subresources"] = {"status": {}}
    if served.columns:
        version["additionalPrinterColumns"] = [_column(column) for column in served.columns]
    if served.selectable_fields:
        version["selectableFields"] = [{"jsonPath": path} for path in served.selectable_fields]
    return version


def _older_version(kind: type[Resource], older: OlderKind) -> dict[str, Any]:
    """Return v1beta1, made from the version that is stored."""
    version = _version(kind)
    version.pop("selectableFields", None)
    older.edit(version["schema"]["openAPIV3Schema"])
    version.update(name=OLDER_VERSION, storage=False)
    if older.columns is not None:
        version["additionalPrinterColumns"] = [_column(column) for column in older.columns]
    if not older.deprecated:
        return version
    warning = f"{OLDER_API_VERSION} {older.kind} is deprecated; use {API_VERSION}"
    marks = {"deprecated": True, "deprecationWarning": warning}
    return {**{key: version[key] for key in ("name", "served", "storage")}, **marks, **version}


def _conversion() -> dict[str, Any]:
    """Return the conversion by webhook.  Without the webhook the API server refuses requests in the other version,
    instead of dropping the fields that it does not know.
    """
    service = {"name": WEBHOOK_SERVICE, "namespace": WEBHOOK_NAMESPACE, "path": CONVERT_PATH, "port": 443}
    return {
        "strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"service": service}},
    }


def _column(column: Any) -> dict[str, Any]:
    out = {"name": column.name, "type": column.type, "jsonPath": column.path, "description": column.description}
    return out | {"priority": 1} if column.wide else out
