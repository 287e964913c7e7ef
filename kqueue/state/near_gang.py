"""Pod sets of extras with the domains of their gang, which follow from the admission of another Workload."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.core.topology import GangDomains
from kqueue.core.workload import PodSet
from kqueue.state.ledger import NodeLedger

_MOST_KNOWN = 256
"""The number of kept answers.  Equal extras of one gang share one, so that plans find their demand again."""

_Key = tuple[int, tuple[GangDomains | None, ...]]


class NearGang:
    """Adds the domains of gangs to the requests of their extras."""

    def __init__(self, ledger: NodeLedger, newest: Callable[[str], wire.Workload | None]) -> None:
        """Take the domains of all flavors; `newest` returns the latest version of a Workload."""
        self._ledger, self._newest = ledger, newest
        self._known: dict[_Key, tuple[tuple[PodSet, ...], tuple[PodSet, ...]]] = {}
        """The key has the identity of pod sets; the value keeps a reference to them, so that identities stay unique."""

    def pod_sets(self, obj: wire.Workload, pod_sets: tuple[PodSet, ...]) -> tuple[PodSet, ...]:
        """Return the pod sets of a Workload, within the domains of its gang if it is an extra's."""
        key = model.base_key(obj)
        base = self._newest(key) if key is not None else None
        if base is None:
            return pod_sets
        near = tuple([model.near_base(p.request.topology, base, self._ledger.tree) for p in pod_sets])
        if not any(near):
            return pod_sets
        known = self._known.get((id(pod_sets), near))
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            placed = [
                replace(p, request=replace(p.request, within=within)) for p, within in zip(pod_sets, near, strict=True)
            ]
            known = self._known[id(pod_sets), near] = pod_sets, tuple(placed)
        return known[1]
