"""ProvisioningRequestConfig: how new nodes are requested."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from kqueue.api.fields import DNS_SUBDOMAIN_PATTERN, LABEL_KEY_PATTERN, Int32
from kqueue.api.model import UNIQUE, ApiModel, Resource, Served, keyed


class RetryStrategy(ApiModel):
    """How often a failed request is repeated."""

    backoff_limit_count: Int32 = 3
    """Number of repetitions; 0 means that the first failure is final."""
    backoff_base_seconds: Int32 = 60
    """Time before the first repetition.  It doubles each time."""
    backoff_max_seconds: Int32 = 1800
    """Longest time between two repetitions."""


class NodeSelectorFromRequest(ApiModel):
    """A node label and where its value comes from."""

    key: Annotated[str, Field(min_length=1, max_length=317, pattern=LABEL_KEY_PATTERN)]
    """Node label to select by."""
    value_from_provisioning_class_detail: Annotated[str, Field(min_length=1, max_length=32768)]
    """Entry of the request's provisioningClassDetails that holds the value."""


class PodSetUpdatesFromRequest(ApiModel):
    """Additions to pods after a request succeeded."""

    node_selector: Annotated[tuple[NodeSelectorFromRequest, ...], Field(max_length=8), keyed("key")] = ()
    """Node selector entries."""


class ProvisioningRequestConfigSpec(ApiModel):
    """How new nodes are requested."""

    provisioning_class_name: Annotated[str, Field(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN_PATTERN)]
    """Provisioning class that the requests name."""
    parameters: Annotated[Mapping[str, Annotated[str, Field(max_length=255)]], Field(max_length=100)] = {}
    """Parameters that every request carries."""
    managed_resources: Annotated[tuple[str, ...], Field(max_length=100), UNIQUE] = ()
    """Only pod sets that request one of these resources need new nodes; empty means any resource."""
    retry_strategy: RetryStrategy = Field(default_factory=RetryStrategy)
    """How often a failed request is repeated."""
    pod_set_updates: PodSetUpdatesFromRequest | None = None
    """Additions to pods after a request succeeded."""
    pod_set_merge_policy: Literal["IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"] | None = None
    """Which pod sets are requested together; absent means none."""


class ProvisioningRequestConfig(Resource):
    """How a provisioning check requests new nodes."""

    served: ClassVar = Served(plural="provisioningrequestconfigs", short_names=("prc",))
    kind: str = "ProvisioningRequestConfig"
    """Kind of the object."""
    spec: ProvisioningRequestConfigSpec | None = None
    """How new nodes are requested."""
