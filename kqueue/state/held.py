"""Sums of holdings per queue for statuses and gauges, updated as workloads are added and removed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kqueue.core.quota import FlavorResource, Usage
from kqueue.core.value import value
from kqueue.state.audit import accumulate


@dataclass(slots=True)
class QueueHoldings:
    """The quota of one queue that workloads, and pods without a reservation, use; resources of amount zero are left
    out.
    """

    reserving: int = 0
    """The number of workloads with a reservation, admitted ones included."""
    admitted: int = 0
    reserved: Usage = field(default_factory=dict)
    """Quota of all workloads with a reservation, and of pods without one."""
    used: Usage = field(default_factory=dict)
    """The part of `reserved` that admitted workloads and pods without a reservation use."""

    @property
    def is_empty(self) -> bool:
        """Whether no workload and no pod uses quota of the queue."""
        return not self.reserving and not self.reserved

    def add(self, share: HoldingShare, sign: int) -> None:
        """Add (sign 1) or subtract (sign -1) a share."""
        self.reserving += sign * share.workloads
        accumulate(self.reserved, share.usage.items(), sign)
        if share.admitted:
            self.admitted += sign * share.workloads
            accumulate(self.used, share.usage.items(), sign)


@value()
class HoldingShare:
    """The quota that one workload or several equal workloads use; `workloads` is 0 for pods without a reservation."""

    queue: str
    local_queue: str
    admitted: bool
    usage: Mapping[FlavorResource, int]
    workloads: int = 1


class HeldSums:
    """The sums of every ClusterQueue, and of every LocalQueue in it.  Readers must not change the sums."""

    def __init__(self, shares: Iterable[HoldingShare] = ()) -> None:
        self._of_queue = defaultdict[str, QueueHoldings](QueueHoldings)
        self._of_local = defaultdict[tuple[str, str], QueueHoldings](QueueHoldings)
        for share in shares:
            self.add(share, sign=1)

    def add(self, share: HoldingShare, *, sign: int) -> None:
        """Add (sign 1) or subtract (sign -1) a share."""
        place = share.queue, share.local_queue
        in_queue, in_local_queue = self._of_queue[share.queue], self._of_local[place]
        in_queue.add(share, sign)
        in_local_queue.add(share, sign)
        if in_queue.is_empty:
            del self._of_queue[share.queue]
        if in_local_queue.is_empty:
            del self._of_local[place]

    def of_queue(self, name: str) -> QueueHoldings:
        """Return the sums of a ClusterQueue."""
        return self._of_queue.get(name) or QueueHoldings()

    def of_local_queue(self, key: str, queue: str) -> QueueHoldings:
        """Return the sums of a ClusterQueue's workloads that came through a LocalQueue (namespace/name)."""
        return self._of_local.get((queue, key)) or QueueHoldings()

    def in_flavor(self, flavor: str) -> bool:
        """Whether any queue has usage in a flavor."""
        return any(column.flavor == flavor for held in self._of_queue.values() for column in held.reserved)

    def is_same_as(self, other: HeldSums) -> bool:
        """Whether all sums are equal."""
        return (self._of_queue, self._of_local) == (other._of_queue, other._of_local)
