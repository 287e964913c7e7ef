"""Whether the preemptor fits, in a snapshot that some have left; and giving back those that need not have left."""

from __future__ import annotations

from collections.abc import Callable

from kqueue.core import quota
from kqueue.core.preemption.simulation import Simulation
from kqueue.core.preemption.target import Preemptor, Target


class Fit:
    """The test for one preemptor in one simulation.

    `places` says whether the preemptor's pods find domains in the snapshot as it is; None: it asks for none.
    """

    def __init__(self, simulation: Simulation, preemptor: Preemptor, places: Callable[[], bool] | None) -> None:
        self._simulation = simulation
        self._node = simulation.snapshot.nodes[preemptor.queue]
        self._wanted = list(preemptor.usage.items())
        self._places = places
        self._answer: tuple[int, bool] | None = None

    def __call__(self, *, borrowing: bool) -> bool:
        """Whether quota and hosts are there; without `borrowing`, whether nominal quota is."""
        return self._quota_fits(borrowing=borrowing) and self._hosts_fit()

    def _quota_fits(self, *, borrowing: bool) -> bool:
        node = self._node
        for i, (column, amount) in enumerate(self._wanted):
            fits_nominal = borrowing or quota.plus(node.usage.get(column, 0), amount) <= node.quota(column).nominal
            if not fits_nominal or amount > quota.available(node, column):
                # what is short now is likely to be short next time, too, and costs nothing when asked first
                self._wanted.insert(0, self._wanted.pop(i))
                return False
        return True

    def _hosts_fit(self) -> bool:
        if self._places is None:
            return True
        if self._answer is None or self._answer[0] != self._simulation.moves:
            self._answer = self._simulation.moves, self._places()
        return self._answer[1]


def fill_back(targets: list[Target], simulation: Simulation, fits: Callable[[], bool]) -> None:
    """Strike out targets without which the preemptor fits as well, last ones first; the very last one stays.

    The last target takes the place of one that is struck out.
    """
    for i in range(len(targets) - 2, -1, -1):
        simulation.put_back(targets[i].admitted)
        if fits():
            targets[i] = targets[-1]
            targets.pop()
        else:
            simulation.remove(targets[i].admitted)
