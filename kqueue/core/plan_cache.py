"""Results that may be kept from one plan to the next."""

from __future__ import annotations

from dataclasses import dataclass, field

from kqueue.core.demand import Demands
from kqueue.core.preemption import Lowest

_MOST_QUEUES = 10_000
"""ClusterQueues whose lowest priority is kept; then all are dropped."""


@dataclass(slots=True)
class PlanCache:
    """Results of former plans that hold still.  A plan decides the same with a new one, more slowly.

    Args:
        demands: what follows from the form of workloads; compares itself with the snapshot at every use.
        lowest: lowest priorities by ClusterQueue; each counts while the queue holds the same workloads.
    """

    demands: Demands = field(default_factory=Demands)
    lowest: dict[str, Lowest] = field(default_factory=dict)

    def trim(self) -> None:
        """Keep within bounds; called before each plan."""
        if len(self.lowest) > _MOST_QUEUES:
            self.lowest.clear()
