"""Measured use of nodes and pods (metrics.k8s.io), and values of other metrics (custom.metrics.k8s.io)."""

from __future__ import annotations

import msgspec

from kqueue.api.wire.meta import ObjectMeta, Quantity, ResourceList, Struct


class NodeMetrics(Struct, frozen=True, kw_only=True):
    """The use of a node."""

    metadata: ObjectMeta
    usage: ResourceList = msgspec.field(default_factory=dict)


class ContainerMetrics(Struct, frozen=True, kw_only=True):
    """The use of a container."""

    usage: ResourceList = msgspec.field(default_factory=dict)


class PodMetrics(Struct, frozen=True, kw_only=True):
    """The use of a pod's containers."""

    metadata: ObjectMeta
    containers: tuple[ContainerMetrics, ...] = ()


class DescribedObject(Struct, frozen=True, kw_only=True):
    """The object that a value describes."""

    kind: str = ""
    name: str = ""


class MetricValue(Struct, frozen=True, kw_only=True):
    """The value of one metric of an object."""

    described_object: DescribedObject
    value: Quantity
