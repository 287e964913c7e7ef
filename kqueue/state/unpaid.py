"""Bound pods that no reservation pays for: what each of them is charged to a ClusterQueue until it has ended.

Workloads get quota before their pods start, so such pods are exceptions: a job that was started by hand while no
webhook answered, or pods beyond what was admitted.  They take devices all the same, and others must wait for these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kqueue.core.quota import FlavorResource, Usage
from kqueue.core.topology.node import PodFacts
from kqueue.core.value import value
from kqueue.core.workload import Flavor, ResourceGroup


@value(kw_only=True)
class UnpaidPod:
    """A bound pod and what it is charged."""

    queue: str
    local_queue: str
    facts: PodFacts
    usage: Usage
    amounts: Mapping[str, int] | None = None
    """What of the pod is charged; None: all that it takes."""


def usage_of(
    amounts: Mapping[str, int],
    groups: Iterable[ResourceGroup],
    flavors: Mapping[str, Flavor],
    node_labels: Mapping[str, str],
) -> Usage:
    """What a pod takes of the quota of a ClusterQueue with these groups; resources that no group lists count nowhere.

    Of the flavors of a group the first one counts whose labels the pod's node has; where none matches, the first one
    that exists, so that every pod is charged.
    """
    usage = Usage()
    for group in groups:
        known = [flavors[name] for name in group.flavors if name in flavors]
        chosen = next((f for f in known if f.node_labels.items() <= node_labels.items()), known[0] if known else None)
        for resource in group.resources if chosen is not None else ():
            if chosen is not None and amounts.get(resource, 0):
                usage[FlavorResource(chosen.name, resource)] = amounts[resource]
    return usage
