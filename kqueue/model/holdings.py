"""The quota and domains that a Workload uses, read from its status."""

from __future__ import annotations

import msgspec

from kqueue.api import check_names, names
from kqueue.api.wire import kueue as wire
from kqueue.core.topology import TopologyAssignment, decode
from kqueue.core.workload import Admission, PodSetAssignment
from kqueue.model.conditions import condition_true
from kqueue.model.resources import amounts


def admission(obj: wire.Workload, *, reclaims: bool = True) -> Admission | None:
    """Return the admission in the status, without its released part; None without a reservation.

    `reclaims`: `status.reclaimablePods` releases quota and `status.finishedPods` releases places (gate
    ReclaimablePods); without it both fields are ignored.
    """
    stored = obj.status.admission
    if stored is None or not condition_true(obj, names.CONDITION_QUOTA_RESERVED):
        return None
    counts = {p.name: p.count for p in obj.spec.pod_sets}
    reclaimed = {r.name: r.count for r in obj.status.reclaimable_pods} if reclaims else {}
    finished = finished_places(obj) if reclaims and obj.status.finished_pods else {}
    return Admission(
        queue=stored.cluster_queue,
        pod_sets=tuple(
            _assigned(a, counts.get(a.name, 0), reclaimed.get(a.name, 0), finished.get(a.name))
            for a in stored.pod_set_assignments
        ),
    )


def finished_places(obj: wire.Workload) -> dict[str, TopologyAssignment]:
    """Return, per pod set, the places of the present assignment that the pod set has given back."""
    return {f.name: assignment(f.topology_assignment) for f in obj.status.finished_pods}


def _assigned(
    a: wire.PodSetAssignment, spec_count: int, reclaimed: int, finished: TopologyAssignment | None
) -> PodSetAssignment:
    count = spec_count if a.count is None else a.count
    usage = amounts(a.resource_usage, f"status.admission.podSetAssignments[{a.name}].resourceUsage")
    needed = _still_needed(count, spec_count, reclaimed)
    if count > 0 and needed < count:  # the quota of finished pods is released
        usage = {r: v // count * needed for r, v in usage.items()}
    places = None if a.topology_assignment is None else assignment(a.topology_assignment)
    return PodSetAssignment(
        name=a.name,
        flavors=dict(a.flavors),
        usage={r: v for r, v in usage.items() if r in a.flavors},
        count=count,
        topology=places if places is None or finished is None else places.without(finished),
        delayed=a.delayed_topology_request == check_names.DELAYED_PENDING,
    )


def _still_needed(admitted: int, spec_count: int, reclaimed: int) -> int:
    """Return the number of pods of a pod set that still need their quota.

    More reclaimed pods than the spec has can only refer to the larger count before an elastic job was scaled down: the
    status has not been rewritten yet.  Then the remaining admitted pods count, up to the count of the spec.
    """
    if reclaimed > spec_count:
        return max(0, min(spec_count, admitted - reclaimed))
    return max(0, spec_count - reclaimed)


def assignment(stored: wire.TopologyAssignment) -> TopologyAssignment:
    """Return the assignment in a status."""
    return decode(msgspec.to_builtins(stored))
