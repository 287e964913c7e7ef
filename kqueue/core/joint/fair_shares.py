"""Fair shares of a flavor: the units of each ClusterQueue in steps by its weight, of which early ones count more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from math import gcd

from kqueue.core.joint.costs import PLACE_MAX, STEPS

_STEPS_OF_ALL = 32
"""Steps of all ClusterQueues together if each gets its share of a full flavor."""


@dataclass(frozen=True, slots=True)
class FairShares:
    """The steps of ClusterQueues.

    Args:
        sizes: units of one step by ClusterQueue; 0: all units are in the last step.
        used: units that workloads use before the round.
    """

    sizes: Mapping[str, int]
    used: Mapping[str, int]

    @classmethod
    def of(cls, weights: Mapping[str, int], capacity: int, used: Mapping[str, int]) -> FairShares:
        """Return the steps for weights of any scale, and the units of the whole flavor."""
        scale = reduce(gcd, weights.values(), 0) or 1
        parts = {queue: weight // scale for queue, weight in weights.items()}
        size = max(1, capacity // (_STEPS_OF_ALL * max(1, sum(parts.values()))))
        return cls({queue: part * size for queue, part in parts.items()}, used)

    def step(self, queue: str, nth: int) -> int:
        """Return the step of the n-th unit of a ClusterQueue, from 1 to `STEPS`."""
        size = self.sizes.get(queue, 0)
        return min(STEPS, (nth - 1) // size + 1) if size else STEPS

    def worth(self, queue: str, before: int, units: int) -> int:
        """Return the worth of further units: `STEPS` for each of the first step, 1 for each of the last."""
        total, nth = 0, before + 1
        while units > 0:
            step = self.step(queue, nth)
            some = units if step == STEPS else min(units, step * self.sizes[queue] - nth + 1)
            total += some * (STEPS + 1 - step)
            nth, units = nth + some, units - some
        return total

    def arcs(self, queue: str, demand: int) -> list[tuple[int, int]]:
        """Return the capacity and the cost of each step that further units of a ClusterQueue may need."""
        found: list[tuple[int, int]] = []
        nth = self.used.get(queue, 0) + 1
        while demand > 0:
            step = self.step(queue, nth)
            some = demand if step == STEPS else min(demand, step * self.sizes[queue] - nth + 1)
            found.append((some, step * PLACE_MAX))
            nth, demand = nth + some, demand - some
        return found
