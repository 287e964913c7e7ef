"""Failed hosts in the status of a Workload: each change is a pure function that makes a patch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

import msgspec

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.core.topology import TopologyAssignment, encode
from kqueue.state import failures, status
from kqueue.state.conditions import Patch, Stamp

UNHEALTHY_NODES_MAX = 8
"""The maximum of the Workload's schema."""


def mark_unhealthy(obj: wire.Workload, host: str, *, stamp: Stamp) -> Patch | None:
    """Add a failed host to the list of hosts to replace, and count the failure; None: the host is already in the list.

    If more hosts failed than the list may have, the workload is evicted instead: too few of its pods are left.
    """
    listed = [node.name for node in obj.status.unhealthy_nodes]
    if host in listed:
        return None
    remembered = _remember(failures.after_lost_node(obj, host, stamp.now))
    if len(listed) == UNHEALTHY_NODES_MAX:
        failed = ", ".join([*listed, host])
        message = f"More than {UNHEALTHY_NODES_MAX} nodes failed at once: {failed}"
        patch = status.evict(obj, reason=names.REASON_NODE_FAILURES, message=message, stamp=stamp)
        return patch and {"status": {**patch["status"], **remembered}}
    return {"status": {"unhealthyNodes": [{"name": name} for name in (*listed, host)], **remembered}}


def blame(obj: wire.Workload, host: str, created: datetime, *, stamp: Stamp) -> Patch | None:
    """Return a patch that counts the failure of a pod, created at `created`, on a host; None: it is already counted."""
    fields = _remember(failures.after_failed_pod(obj, host, created, stamp.now))
    return {"status": fields} if fields else None


def _remember(entries: Iterable[wire.NodeFailures] | None) -> Patch:
    if entries is None:
        return {}
    return {
        "nodeFailures": [
            {"name": entry.name, "count": entry.count, "lastFailureTime": Stamp(entry.last_failure_time).text}
            for entry in entries
        ]
    }


def unmark_unhealthy(obj: wire.Workload, recovered: Collection[str]) -> Patch | None:
    """Remove recovered hosts from the list; None: none of them is in the list."""
    listed = [node.name for node in obj.status.unhealthy_nodes]
    left = [name for name in listed if name not in recovered]
    if left == listed:
        return None
    return {"status": {"unhealthyNodes": [{"name": name} for name in left] or None}}


def with_hosts(obj: wire.Workload, assignments: Mapping[str, TopologyAssignment]) -> wire.Workload:
    """Return the workload with these assignments and without failed hosts.

    The assignments cover all pods that still had domains, so no domain is released yet.
    """
    stored = obj.status.admission
    assert stored is not None
    pod_sets = tuple(
        msgspec.structs.replace(
            held, topology_assignment=msgspec.convert(encode(assignments[held.name]), wire.TopologyAssignment)
        )
        if held.name in assignments
        else held
        for held in stored.pod_set_assignments
    )
    admission = msgspec.structs.replace(stored, pod_set_assignments=pod_sets)
    finished = tuple(entry for entry in obj.status.finished_pods if entry.name not in assignments)
    return msgspec.structs.replace(
        obj,
        status=msgspec.structs.replace(obj.status, admission=admission, unhealthy_nodes=(), finished_pods=finished),
    )


def replace_hosts(obj: wire.Workload, assignments: Mapping[str, TopologyAssignment]) -> Patch:
    """Rewrite assignments and clear the list of failed hosts, in one patch."""
    now = with_hosts(obj, assignments).status
    assert now.admission is not None
    pod_sets = [{**msgspec.to_builtins(held), "name": held.name} for held in now.admission.pod_set_assignments]
    fields: Patch = {"admission": {"podSetAssignments": pod_sets}, "unhealthyNodes": None}
    if now.finished_pods != obj.status.finished_pods:
        fields["finishedPods"] = [*msgspec.to_builtins(now.finished_pods)] or None
    return {"status": fields}
