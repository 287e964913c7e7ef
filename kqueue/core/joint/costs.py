"""The costs of a network: waiting is dearer than every place, and a rank is dearer than all ranks behind it."""

from __future__ import annotations

from kqueue.core.value import value

PLACE_MAX = 100_000
"""The largest cost of a place, in points per unit."""
WAIT_MAX = 2_592_000
"""The most seconds of waiting that count: 30 days."""
STEPS = 64
"""Steps into which the share of a ClusterQueue is cut."""
_RANGE = 1 << 62


@value()
class RankCosts:
    """The costs of the ranks of a network.

    Args:
        ranks: the number of ranks; later ones count as the last.
        step: points per unit between two ranks.
        most_waiting: the most seconds of waiting that count; with shares less than a step of a share costs.
    """

    ranks: int
    step: int
    most_waiting: int = WAIT_MAX

    @classmethod
    def of(cls, *, ranks: int, classes: int, levels: int, nodes: int, shares: int = 0) -> RankCosts:
        """Return the costs; the last ranks are merged if the numbers would be too large for the solver.

        `shares`: the number of cohorts whose ClusterQueues have shares by weight.

        A cycle in the residual network visits each class at most once, so it changes costs of places by less than a
        step: where only domains bind, the cheapest flow schedules the most units of the first rank, then of the second,
        and so on.  `Network.is_by_rank` says when the same holds with quota.
        """
        step = 1 + WAIT_MAX + 2 * (classes + 1) * (levels + 2) * PLACE_MAX + 2 * shares * STEPS * PLACE_MAX
        most = _RANGE // ((nodes + 1) * step) - 2
        return cls(max(1, min(ranks, most)), step, PLACE_MAX - 1 if shares else WAIT_MAX)

    @property
    def unscheduled(self) -> int:
        """The points of a unit that is not scheduled."""
        return (self.ranks + 1) * self.step

    def reward(self, rank: int, waited: int) -> int:
        """Return the points that a unit of a rank saves when it is scheduled."""
        return (self.ranks - min(rank, self.ranks) + 1) * self.step + min(self.most_waiting, max(0, waited))


STAYS = 0
"""The rank of running workloads that are never left out, in a network with `PointCosts`."""


@value()
class PointCosts:
    """Costs without ranks: a unit is worth the seconds that it has waited, so that a cheapest flow has most points.

    Args:
        unscheduled: points of a unit of a running workload that has no place; more than any other change of a flow.
    """

    unscheduled: int

    @classmethod
    def of(cls, *, ranks: int, classes: int, levels: int, nodes: int, shares: int = 0) -> PointCosts:
        """Return the costs; `RankCosts.of` says what the arguments are."""
        del ranks
        worst = 2 * (WAIT_MAX + (levels + 2) * PLACE_MAX)
        return cls(min(1 + (classes + 1) * worst + 2 * shares * STEPS * PLACE_MAX, _RANGE // (nodes + 1) - 1))

    def reward(self, rank: int, waited: int) -> int:
        """Return the points that a unit saves when it is scheduled."""
        return self.unscheduled if rank == STAYS else min(WAIT_MAX, max(0, waited))


Costs = RankCosts | PointCosts
