"""ProvisioningRequest, a kind of the cluster autoscaler: how nodes are requested, and the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from kqueue.api.wire.meta import Condition, ObjectMeta, Struct

GROUP: Final = "autoscaling.x-k8s.io"
VERSION: Final = "v1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "ProvisioningRequest"
PLURAL: Final = "provisioningrequests"

ACCEPTED: Final = "Accepted"
"""Condition: the autoscaler works on the request."""
PROVISIONED: Final = "Provisioned"
"""Condition: the nodes are there."""
FAILED: Final = "Failed"
"""Condition: there will be no nodes."""
BOOKING_EXPIRED: Final = "BookingExpired"
"""Condition: the nodes are kept for the request no longer."""
CAPACITY_REVOKED: Final = "CapacityRevoked"
"""Condition: the nodes are taken away."""


class TemplateReference(Struct, frozen=True, kw_only=True):
    """The PodTemplate of a pod set, in the namespace of the request."""

    name: str = ""


class ProvisionedPodSet(Struct, frozen=True, kw_only=True):
    """Pods that need nodes."""

    count: int = 0
    pod_template_ref: TemplateReference = TemplateReference()


class ProvisioningRequestSpec(Struct, frozen=True, kw_only=True):
    """The requested nodes."""

    provisioning_class_name: str = ""
    parameters: Mapping[str, str] = msgspec.field(default_factory=dict)
    pod_sets: tuple[ProvisionedPodSet, ...] = ()


class ProvisioningRequestStatus(Struct, frozen=True, kw_only=True):
    """The autoscaler's answer."""

    conditions: tuple[Condition, ...] = ()
    provisioning_class_details: Mapping[str, str] = msgspec.field(default_factory=dict)


class ProvisioningRequest(Struct, frozen=True, kw_only=True):
    """A request for nodes on which pods fit."""

    metadata: ObjectMeta
    spec: ProvisioningRequestSpec = ProvisioningRequestSpec()
    status: ProvisioningRequestStatus = ProvisioningRequestStatus()


class OwnedObject(Struct, frozen=True, kw_only=True):
    """An object of which only the metadata is read."""

    metadata: ObjectMeta


# ---- our own kind that configures the requests ----------------------------------------------------------------------


class RetryStrategy(Struct, frozen=True, kw_only=True):
    """How often a failed request is repeated."""

    backoff_limit_count: int = 3
    backoff_base_seconds: int = 60
    backoff_max_seconds: int = 1800


class NodeSelectorFromRequest(Struct, frozen=True, kw_only=True):
    """A node label and where its value comes from."""

    key: str
    value_from_provisioning_class_detail: str


class PodSetUpdatesFromRequest(Struct, frozen=True, kw_only=True):
    """Additions to pods after a request succeeded."""

    node_selector: tuple[NodeSelectorFromRequest, ...] = ()


class ProvisioningRequestConfigSpec(Struct, frozen=True, kw_only=True):
    """How new nodes are requested."""

    provisioning_class_name: str
    parameters: Mapping[str, str] = msgspec.field(default_factory=dict)
    managed_resources: tuple[str, ...] = ()
    retry_strategy: RetryStrategy = RetryStrategy()
    pod_set_updates: PodSetUpdatesFromRequest | None = None
    pod_set_merge_policy: str | None = None


class ProvisioningRequestConfig(Struct, frozen=True, kw_only=True):
    """How a provisioning check requests new nodes.  `spec` is None only if the object was written without one."""

    metadata: ObjectMeta
    spec: ProvisioningRequestConfigSpec | None = None
