"""Whether the preemptor fits, in a snapshot that some have left; and giving back those that need not have left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kqueue.core import quota
from kqueue.core.preemption.simulation import Simulation, everybody
from kqueue.core.preemption.target import Preemptor, Target
from kqueue.core.workload import Admitted


@dataclass(frozen=True, slots=True)
class Hosts:
    """What the preemptor's pods need besides quota.

    `places` says whether they find domains in the snapshot as it is; `matters` whether that may depend on the hosts
    which a workload holds.
    """

    places: Callable[[], bool]
    matters: Callable[[Admitted], bool] = everybody


class Fit:
    """The test for one preemptor in one simulation.  `hosts` is None when its pods need no domains."""

    def __init__(self, simulation: Simulation, preemptor: Preemptor, hosts: Hosts | None) -> None:
        self._simulation = simulation
        self._node = simulation.snapshot.nodes[preemptor.queue]
        self._wanted = tuple(preemptor.usage.items())
        self._short = list(self._wanted)
        self._returns = simulation.returns
        self._hosts = hosts
        self._answer: tuple[int, bool] | None = None

    def __call__(self, *, borrowing: bool) -> bool:
        """Whether quota and hosts are there; without `borrowing`, whether nominal quota is.

        It is the same for all tests of a simulation.
        """
        return self._quota_fits(borrowing=borrowing) and self._hosts_fit()

    def _quota_fits(self, *, borrowing: bool) -> bool:
        node, short = self._node, self._short
        if self._returns != self._simulation.returns:
            self._returns = self._simulation.returns
            short = self._short = list(self._wanted)
        while short:  # a column that fits goes on doing so while others leave
            column, amount = short[-1]
            if not borrowing and quota.plus(node.usage.get(column, 0), amount) > node.quota(column).nominal:
                return False
            if amount > quota.available(node, column):
                return False
            short.pop()
        return True

    def _hosts_fit(self) -> bool:
        if self._hosts is None:
            return True
        if self._answer is None or self._answer[0] != self._simulation.moves:
            self._answer = self._simulation.moves, self._hosts.places()
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
