"""Pod sets of extras with the domains of their gang, which follow from the admission of another Workload."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.core.topology import GangDomains, TopologyRequest
from kqueue.core.workload import PodSet
from kqueue.state.ledger import NodeLedger

_MOST_KNOWN = 256
"""The number of kept answers.  Equal extras of one gang share one, so that plans find their demand again."""

_Key = tuple[int, tuple[tuple[TopologyRequest, GangDomains | None], ...]]


class NearGang:
    """Adds levels and domains of gangs to the requests of their extras."""

    def __init__(self, ledger: NodeLedger, newest: Callable[[str], wire.Workload | None]) -> None:
        """Take the domains of all flavors; `newest` returns the latest version of a Workload."""
        self._ledger, self._newest = ledger, newest
        self._known: dict[_Key, tuple[tuple[PodSet, ...], tuple[PodSet, ...]]] = {}
        """The key has the identity of pod sets; the value keeps a reference to them, so that identities stay unique."""

    def pod_sets(self, obj: wire.Workload, pod_sets: tuple[PodSet, ...]) -> tuple[PodSet, ...]:
        """Return the pod sets of a Workload; those of an extra within the domains of its gang.

        A pod set without a topology request has that of the gang's group object.
        """
        key = model.base_key(obj)
        base = self._newest(key) if key is not None else None
        if base is None:
            return pod_sets
        level = model.gang_level(base)
        levels = [p.request.topology if p.asks_topology or level is None else level for p in pod_sets]
        near = tuple([(one, model.near_base(one, base, self._ledger.tree)) for one in levels])
        if all(within is None and one is p.request.topology for (one, within), p in zip(near, pod_sets, strict=True)):
            return pod_sets
        known = self._known.get((id(pod_sets), near))
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            placed = [_placed(p, one, within) for p, (one, within) in zip(pod_sets, near, strict=True)]
            known = self._known[id(pod_sets), near] = pod_sets, tuple(placed)
        return known[1]


def _placed(pod_set: PodSet, topology: TopologyRequest, within: GangDomains | None) -> PodSet:
    asks = pod_set.asks_topology or topology is not pod_set.request.topology
    return replace(pod_set, asks_topology=asks, request=replace(pod_set.request, topology=topology, within=within))
