"""MultiKueueCluster: how to reach one worker cluster."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from kqueue.api.fields import Conditions
from kqueue.api.model import ApiModel, Column, Resource, Rule, Served


class KubeConfigSource(ApiModel):
    """A kubeconfig and where it lies."""

    location: Annotated[str, Field(min_length=1, max_length=256)]
    """Name of a Secret in the controller's namespace with the key kubeconfig, or a path on the controller's disk."""
    location_type: Literal["Secret", "Path"] = "Secret"
    """Kind of the location."""


class ClusterProfileRef(ApiModel):
    """A ClusterProfile by name."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    """Name of the ClusterProfile."""


class ClusterSource(ApiModel):
    """Where the credentials come from: exactly one of the fields."""

    rules = (
        Rule(
            cel="has(self.kubeConfig) != has(self.clusterProfileRef)",
            message="exactly one of kubeConfig and clusterProfileRef must be set",
            holds=lambda s: (s.kube_config is None) != (s.cluster_profile_ref is None),
        ),
    )
    kube_config: KubeConfigSource | None = None
    """A kubeconfig."""
    cluster_profile_ref: ClusterProfileRef | None = None
    """A ClusterProfile."""


class MultiKueueClusterSpec(ApiModel):
    """How to reach the cluster."""

    cluster_source: ClusterSource
    """Where the credentials come from."""


class MultiKueueClusterStatus(ApiModel):
    """Whether the cluster can be reached."""

    conditions: Conditions = ()
    """Condition Active: whether the cluster is connected, and why not."""


class MultiKueueCluster(Resource):
    """A worker cluster, and how to reach it."""

    served: ClassVar = Served(
        plural="multikueueclusters",
        short_names=("mkc",),
        columns=(
            Column(
                name="Connected",
                path=".status.conditions[?(@.type=='Active')].status",
                description="Whether the cluster is connected",
            ),
            Column(name="Age", path=".metadata.creationTimestamp", type="date", description="Time since its creation"),
        ),
    )
    kind: str = "MultiKueueCluster"
    """Kind of the object."""
    spec: MultiKueueClusterSpec | None = None
    """How to reach the cluster."""
    status: MultiKueueClusterStatus = MultiKueueClusterStatus()
    """Whether the cluster can be reached."""
