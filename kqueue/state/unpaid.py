"""Bound pods without a reservation: the usage that each pod is charged to a ClusterQueue until the pod has ended.

Workloads get quota before their pods start, so these pods are exceptions: pods of a job that a user started while no
webhook answered, or pods beyond the admitted count.  These pods use devices, too, and other workloads must
wait for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kqueue.core.quota import FlavorResource, Usage
from kqueue.core.topology.node import PodFacts
from kqueue.core.value import value
from kqueue.core.workload import Flavor, ResourceGroup


@value(kw_only=True)
class UnpaidPod:
    """A bound pod without a reservation, and the usage charged for the pod."""

    queue: str
    local_queue: str
    facts: PodFacts
    usage: Usage
    amounts: Mapping[str, int] | None = None
    """The amounts of the pod that are charged; None: all its requests."""


def usage_of(
    amounts: Mapping[str, int],
    groups: Iterable[ResourceGroup],
    flavors: Mapping[str, Flavor],
    node_labels: Mapping[str, str],
) -> Usage:
    """Return the quota that a pod uses in a ClusterQueue with these groups; resources outside the groups do not count.

    Each group charges its first flavor whose labels the pod's node has; if no flavor matches, its first existing
    flavor, so that every pod is charged.
    """
    usage = Usage()
    for group in groups:
        known = [flavors[name] for name in group.flavors if name in flavors]
        chosen = next((f for f in known if f.node_labels.items() <= node_labels.items()), known[0] if known else None)
        for resource in group.resources if chosen is not None else ():
            if chosen is not None and amounts.get(resource, 0):
                usage[FlavorResource(chosen.name, resource)] = amounts[resource]
    return usage
