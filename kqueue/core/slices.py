"""Workload slices: an elastic job that grows gets a new workload, which takes over the resources of the older one.

Both exist for a while, and only one of them counts.  The planner plans the new slice as if the older one had ended: the
new slice keeps the flavors and the domains of running pods, and only the additional pods need room.  A failed try
changes nothing: the older slice keeps running.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from kqueue.core import quota
from kqueue.core.assignment import TopologyAssignment
from kqueue.core.charging import charge_domains, release_domains
from kqueue.core.quota import FlavorResource, Usage
from kqueue.core.topology.result import DomainUsage, Placement, usage_of
from kqueue.core.workload import Admitted, Head, PodSetAssignment, Replaced, Snapshot, TopologyView


@dataclass(slots=True)
class Removal:
    """An older slice that is out of a snapshot; it is put back unless another workload has its resources."""

    for_good: bool = False


_AS_IT_IS = nullcontext(Removal())


def without_older(head: Head, snapshot: Snapshot) -> AbstractContextManager[Removal]:
    """Remove the slice that the workload replaces from the snapshot inside the block; afterwards, too, if the caller
    says so.

    No effect for a workload that replaces no slice.
    """
    return _AS_IT_IS if head.replaces is None else _without(head.replaces, snapshot)


@contextmanager
def _without(older: Replaced, snapshot: Snapshot) -> Iterator[Removal]:
    removal, admitted = Removal(), snapshot.admitted
    _shift(older, snapshot, back=False)
    snapshot.admitted = _hidden(older, admitted)
    try:
        yield removal
    finally:
        if not removal.for_good:
            _shift(older, snapshot, back=True)
            snapshot.admitted = admitted


def flavors_to_keep(head: Head) -> dict[str, Mapping[str, str]] | None:
    """Return the flavors per resource that each pod set must keep; None: any flavor is allowed."""
    if head.replaces is None:
        return None
    return {held.name: held.flavors for held in head.replaces.admission.pod_sets}


def places_to_keep(head: Head) -> dict[str, TopologyAssignment] | None:
    """Return the present domains of each pod set; None: no slice is replaced.

    Pod sets with a required level are placed as a whole, because new pods must be in one domain with the others.
    """
    if head.replaces is None:
        return None
    wishes = {pod_set.name: pod_set.request.topology for pod_set in head.pod_sets}
    return {
        held.name: held.topology
        for held in head.replaces.admission.pod_sets
        if held.topology is not None
        and (wish := wishes.get(held.name)) is not None
        and wish.required is None
        and wish.preferred is None
    }


def added_quota(head: Head, usage: Mapping[FlavorResource, int]) -> Usage:
    """Return the usage beyond the usage of the older slice; the whole usage if there is no older slice."""
    held = head.replaces.admission.usage() if head.replaces is not None else {}
    return {column: max(0, amount - held.get(column, 0)) for column, amount in usage.items()}


def added_pods(head: Head, found: Placement) -> Sequence[DomainUsage]:
    """Return the pods of a placement that the older slice does not have in the same places; all pods if it replaces
    none.
    """
    if head.replaces is None:
        return usage_of(found)
    there = {
        (held.name, domain.values): domain.count
        for held in head.replaces.admission.pod_sets
        if held.topology is not None
        for domain in held.topology.domains
    }
    return [
        DomainUsage(domain.values, pod_set.requests, new)
        for pod_set in found.pod_sets
        for domain in pod_set.assignment.domains
        if (new := domain.count - there.get((pod_set.name, domain.values), 0)) > 0
    ]


def _hidden(older: Replaced, admitted: Mapping[str, Mapping[str, Admitted]]) -> Mapping[str, Mapping[str, Admitted]]:
    """Return the workloads without the older slice, so that it is not chosen for preemption."""
    of_queue = admitted.get(older.admission.queue, {})
    if older.key not in of_queue:
        return admitted
    left = {key: workload for key, workload in of_queue.items() if key != older.key}
    return _Changed(admitted, older.admission.queue, left)


class _Changed(Mapping[str, Mapping[str, Admitted]]):
    """A mapping with another value for one key; other values are read from the original only when they are needed."""

    def __init__(self, original: Mapping[str, Mapping[str, Admitted]], key: str, value: Mapping[str, Admitted]) -> None:
        self._original, self._key, self._value = original, key, value

    def __getitem__(self, key: str) -> Mapping[str, Admitted]:
        return self._value if key == self._key else self._original[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._original)

    def __len__(self) -> int:
        return len(self._original)


def _shift(older: Replaced, snapshot: Snapshot, *, back: bool) -> None:
    node = snapshot.nodes[older.admission.queue]
    change_quota, change_hosts = (quota.add_usage, charge_domains) if back else (quota.remove_usage, release_domains)
    for column, amount in older.admission.usage().items():
        change_quota(node, column, amount)
    for held in older.admission.pod_sets:
        flavor = _topology_flavor(held, snapshot.topologies)
        if held.topology is not None and flavor is not None:
            requests = older.requests.get(held.name, {})
            usage = [DomainUsage(held.topology.named(d.values), requests, d.count) for d in held.topology.domains]
            change_hosts(flavor, usage, snapshot.topologies)


def _topology_flavor(held: PodSetAssignment, topologies: Mapping[str, TopologyView]) -> str | None:
    return min((flavor for flavor in held.flavors.values() if flavor in topologies), default=None)
