"""Results that plans may share."""

from __future__ import annotations

from dataclasses import dataclass, field

from kqueue.core.demand import Demands
from kqueue.core.preemption import Lowest

_MOST_QUEUES = 10_000
"""The largest number of ClusterQueues whose lowest priority is cached; beyond it, all are dropped."""


@dataclass(slots=True)
class PlanCache:
    """Results of former plans that are still valid.  With an empty cache a plan decides the same, more slowly.

    Args:
        demands: results that follow from the form of workloads; they are compared with the snapshot at every use.
        lowest: lowest priorities by ClusterQueue; each is valid while the queue has the same workloads.
    """

    demands: Demands = field(default_factory=Demands)
    lowest: dict[str, Lowest] = field(default_factory=dict)

    def trim(self) -> None:
        """Drop entries beyond the limits; called before each plan."""
        if len(self.lowest) > _MOST_QUEUES:
            self.lowest.clear()
