"""Commands that make a change with which a workload would start, ready to be copied into a shell."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.core.quantity import format_quantity
from kqueue.core.why import MoreQuota, NodesReturn, OtherCardType, OtherQueue, OtherWish, WorkloadsEnd
from kqueue.core.why.changes import Change, QuotaIncrease
from kqueue.core.workload import Admitted

_PODS_ARE_THERE = ("Pod", "StatefulSet", "ReplicaSet", "Deployment")
"""Kinds whose queue and topology request cannot be changed while their pods exist."""
_MOST = 10
"""Commands of one change."""


def commands(change: Change, *, workload: wire.Workload, queue: wire.ClusterQueue | None) -> list[str]:
    """Return the commands that make the change; empty if no command can, or more than ten would be needed.

    Args:
        change: the change that would let the workload start.
        workload: the waiting workload.
        queue: the ClusterQueue of the change, None if unknown.
    """
    match change:
        case NodesReturn(nodes=nodes):
            found = [f"kubectl uncordon {node}" for node, reason in nodes if reason == "unschedulable"]
        case MoreQuota(increases=increases):
            found = _more_quota(queue, increases) if queue is not None else []
        case OtherQueue(local_queue=local_queue):
            found = _label(workload, f"{names.QUEUE_NAME_LABEL}={local_queue}")
        case OtherWish() as wish:
            found = _annotate(workload, wish)
        case OtherCardType() as other:
            found = _name_type(workload, other)
        case _:
            found = []
    return found if len(found) <= _MOST else []


def stops(workloads: tuple[Admitted, ...]) -> list[str]:
    """Return commands that stop these workloads, except workloads being evicted; empty for more than ten."""
    staying = [workload for workload in workloads if not workload.evicted]
    if len(staying) > _MOST:
        return []
    return [f"kqueue stop workload {name} -n {namespace}" for namespace, name in map(_parts, staying)]


def stops_of(change: Change) -> tuple[Admitted, ...]:
    """Return the workloads that would have to end; empty for other changes."""
    return tuple(change.workloads) if isinstance(change, WorkloadsEnd) else ()


def _parts(workload: Admitted) -> tuple[str, str]:
    namespace, _, name = workload.key.partition("/")
    return namespace, name


def _owner(workload: wire.Workload) -> str | None:
    """Return the job in kubectl's form (`job.batch/NAME`); None if no job can be changed."""
    owner = next((o for o in workload.metadata.owner_references if o.controller), None)
    if owner is None or owner.kind in _PODS_ARE_THERE:
        return None
    group, slash, version = owner.api_version.partition("/")
    kind = f"{owner.kind.lower()}.{version}.{group}" if slash else owner.kind.lower()
    return f"{kind}/{owner.name} -n {workload.metadata.namespace}"


def _label(workload: wire.Workload, label: str) -> list[str]:
    owner = _owner(workload)
    return [f"kubectl label {owner} {label} --overwrite"] if owner is not None else []


def _annotate(workload: wire.Workload, wish: OtherWish) -> list[str]:
    if len(wish.pod_sets) != 1:
        return []
    wished = names.REQUIRED_TOPOLOGY_ANNOTATION if wish.required else names.PREFERRED_TOPOLOGY_ANNOTATION
    annotations = {names.REQUIRED_TOPOLOGY_ANNOTATION: None, wished: wish.level}
    return _patch_template(workload, annotations)


def _name_type(workload: wire.Workload, other: OtherCardType) -> list[str]:
    if len(other.pod_sets) != 1:
        return []
    annotations = {names.CARD_TYPE_ANNOTATION: other.card_type, names.CARD_TYPE_PREFERRED_ANNOTATION: None}
    return _patch_template(workload, annotations)


def _patch_template(workload: wire.Workload, annotations: Mapping[str, str | None]) -> list[str]:
    """Return the command for a Job; none for other owners: only a suspended Job lets one template be changed."""
    owner = next((o for o in workload.metadata.owner_references if o.controller), None)
    if owner is None or owner.kind != "Job" or owner.api_version != "batch/v1":
        return []
    patch = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
    return [f"kubectl patch {_owner(workload)} --type=merge -p {_quoted(patch)}"]


def _more_quota(queue: wire.ClusterQueue, increases: tuple[QuotaIncrease, ...]) -> list[str]:
    """Return one patch for all quotas; the API server refuses it if a quota's index in the ClusterQueue has changed."""
    steps = [step for one in increases for step in _steps(queue, one)]
    if len(steps) != 3 * len(increases):
        return []
    return [f"kubectl patch clusterqueue {queue.metadata.name} --type=json -p {_quoted(steps)}"]


def _steps(queue: wire.ClusterQueue, one: QuotaIncrease) -> Iterator[dict[str, Any]]:
    for g, group in enumerate(queue.spec.resource_groups):
        for f, flavor in enumerate(group.flavors):
            for r, resource in enumerate(flavor.resources):
                if (flavor.name, resource.name) == (one.column.flavor, one.column.resource):
                    path = f"/spec/resourceGroups/{g}/flavors/{f}"
                    at = f"{path}/resources/{r}"
                    yield {"op": "test", "path": f"{path}/name", "value": flavor.name}
                    yield {"op": "test", "path": f"{at}/name", "value": resource.name}
                    amount = format_quantity(one.to, one.column.resource)
                    yield {"op": "add", "path": f"{at}/{one.field}", "value": amount}


def _quoted(value: Any) -> str:
    return shlex.quote(json.dumps(value, separators=(",", ":")))
