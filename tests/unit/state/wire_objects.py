"""Wire objects for tests of their conversion."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.core.workload import Head

JSON = dict[str, Any]
T = TypeVar("T")
PREFIX = "kueue.x-k8s.io/"
CREATED = datetime(2026, 1, 1, tzinfo=UTC)
MOVED = datetime(2026, 1, 1, 2, tzinfo=UTC)


def read(kind: type[T], **obj: Any) -> T:
    return msgspec.convert(obj, kind)


def make_node(*, status: JSON | None = None, **spec: Any) -> wire_core.Node:
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "7500m", "memory": "1Gi"}}
    metadata = {"name": "n1", "labels": {"rack": "r1"}}
    return read(wire_core.Node, metadata=metadata, spec=spec, status=ready | (status or {}))


def make_pod(
    *,
    phase: str = "Running",
    labels: JSON | None = None,
    annotations: JSON | None = None,
    deleted: bool = False,
    owners: Sequence[JSON] = (),
    **spec: Any,
) -> wire_core.Pod:
    metadata: JSON = {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "5"}
    metadata |= {"labels": labels or {}, "annotations": annotations or {}, "ownerReferences": owners}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return read(wire_core.Pod, metadata=metadata, spec=spec, status={"phase": phase})


def asking(**requests: str) -> JSON:
    """A pod spec of one container with these requests."""
    return {"containers": [{"resources": {"requests": requests}}]}


def make_workload(
    *,
    pod_sets: list[JSON] | None = None,
    conditions: dict[str, tuple[str, str]] | None = None,
    status: JSON | None = None,
    metadata: JSON | None = None,
    **spec: Any,
) -> wire.Workload:
    """A Workload of four pods; `conditions` are (status, reason), all since two o'clock."""
    made = [
        {"type": kind, "status": value, "reason": reason, "lastTransitionTime": "2026-01-01T02:00:00Z"}
        for kind, (value, reason) in (conditions or {}).items()
    ]
    meta = {"name": "w", "namespace": "ns", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    default = [{"name": "main", "count": 4, "template": {"spec": asking(cpu="1500m")}}]
    return read(
        wire.Workload,
        metadata=meta | (metadata or {}),
        spec={"queueName": "main", "podSets": default if pod_sets is None else pod_sets, **spec},
        status={"conditions": made, **(status or {})},
    )


def wants(profile: str) -> JSON:
    """The metadata of a workload that chooses how it is placed."""
    return {"annotations": {"kqueue.dev/placement-profile": profile}}


def replacing(key: str) -> JSON:
    """The metadata of a slice that takes over from an older one."""
    return {"annotations": {PREFIX + "workload-slice-replacement-for": key}}


def labelled(label: str) -> JSON:
    """The pods of `make_workload` with a label."""
    return {"name": "main", "count": 4, "template": {"metadata": {"labels": {label: "a"}}, "spec": asking(cpu="1500m")}}


def head_of(workload: wire.Workload, *, topology_only: bool = False) -> Head:
    return model.head(workload, queue="team", topology_only=topology_only, last_tried={})


def reserved(assignments: list[JSON], **more: Any) -> wire.Workload:
    """A Workload that holds these."""
    held = {"clusterQueue": "team", "podSetAssignments": assignments}
    status = {"admission": held, **more.pop("status", {})}
    return make_workload(conditions={"QuotaReserved": ("True", "QuotaReserved")}, status=status, **more)
