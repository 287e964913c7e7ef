"""Worker clusters, as far as the controller reads them.  The models in `kqueue.api` describe the fields."""

from __future__ import annotations

from kqueue.api.wire.meta import Condition, ObjectMeta, Struct


class KubeConfigSource(Struct, frozen=True, kw_only=True):
    """A kubeconfig and where it lies."""

    location: str
    location_type: str = "Secret"


class ClusterProfileRef(Struct, frozen=True, kw_only=True):
    """A ClusterProfile by name."""

    name: str


class ClusterSource(Struct, frozen=True, kw_only=True):
    """Where the credentials come from: exactly one of the fields."""

    kube_config: KubeConfigSource | None = None
    cluster_profile_ref: ClusterProfileRef | None = None


class MultiKueueClusterSpec(Struct, frozen=True, kw_only=True):
    """How to reach the cluster."""

    cluster_source: ClusterSource = ClusterSource()


class MultiKueueClusterStatus(Struct, frozen=True, kw_only=True):
    """Whether the cluster can be reached."""

    conditions: tuple[Condition, ...] = ()


class MultiKueueCluster(Struct, frozen=True, kw_only=True):
    """A worker cluster."""

    metadata: ObjectMeta
    spec: MultiKueueClusterSpec = MultiKueueClusterSpec()
    status: MultiKueueClusterStatus = MultiKueueClusterStatus()


class MultiKueueConfigSpec(Struct, frozen=True, kw_only=True):
    """The clusters, in order, and whether quotas follow them."""

    clusters: tuple[str, ...] = ()
    quota_management: str | None = None


class MultiKueueConfig(Struct, frozen=True, kw_only=True):
    """Worker clusters that a check may send workloads to."""

    metadata: ObjectMeta
    spec: MultiKueueConfigSpec = MultiKueueConfigSpec()
