"""Tests whether the preemptor fits after removals from a snapshot, and finds removals that were not necessary.

The search for domains of the preemptor's pods is expensive. So it runs only when enough domains were released since it
last failed, and again only when domains of the last success are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kqueue.core import quota
from kqueue.core.preemption.simulation import Simulation, everybody
from kqueue.core.preemption.target import Preemptor, Target
from kqueue.core.workload import Admitted


def nothing() -> int:
    """Return 0: no domain is known to be missing."""
    return 0


def nobody(_: Admitted) -> bool:
    """Return False for every workload."""
    return False


@dataclass(frozen=True, slots=True)
class HostNeeds:
    """The needs of the preemptor's pods besides quota, as functions.

    `places` returns whether the pods find domains in the present snapshot. `matters` returns whether the hosts of a
    workload can change that. `lacks` returns a lower bound of the domains that must be released first. `disturbs`
    returns whether a workload uses any of the domains that were found last.
    """

    places: Callable[[], bool]
    matters: Callable[[Admitted], bool] = everybody
    lacks: Callable[[], int] = nothing
    disturbs: Callable[[Admitted], bool] = everybody


class Fit:
    """The test for one preemptor in one simulation.  `hosts` is None when its pods need no domains."""

    def __init__(self, simulation: Simulation, preemptor: Preemptor, hosts: HostNeeds | None) -> None:
        self._simulation = simulation
        self._node = simulation.snapshot.nodes[preemptor.queue]
        self._wanted = tuple(preemptor.usage.items())
        self._short = list(self._wanted)
        self._returns = simulation.returns
        self._hosts = hosts
        self._moves = -1
        """The number of moves at the last result about hosts."""
        self._answer = False
        self._found_at = -1
        """The number of moves at the last successful search for domains."""
        self._ask_from = 0
        """The number of released domains from which on another search can succeed."""

    def __call__(self, *, borrowing: bool) -> bool:
        """Whether quota and hosts suffice; without `borrowing`, whether nominal quota and hosts do.

        `borrowing` must be the same for all tests of a simulation.
        """
        return self._quota_fits(borrowing=borrowing) and (self._hosts is None or self._hosts_fit(self._hosts))

    def is_of_no_use(self, admitted: Admitted, *, borrowing: bool) -> bool:
        """Whether only hosts are missing, as far as known, and the workload has no hosts that matter."""
        return (
            self._hosts is not None
            and self._moves == self._simulation.moves
            and not self._answer
            and not self._hosts.matters(admitted)
            and self._quota_fits(borrowing=borrowing)
        )

    def is_missed(self, admitted: Admitted) -> bool:
        """Whether quota of the first column would be short if the workload came back; False: no, or unknown."""
        for column, amount in self._wanted[:1]:
            other, held = self._simulation.snapshot.nodes[admitted.queue], admitted.usage.get(column, 0)
            if held > 0 and quota.is_open(self._node, column) and quota.is_open(other, column):
                left = quota.minus(quota.available(self._node, column), amount)
                return left < held and other.root is self._node.root
        return False

    def is_sure(self) -> bool:
        """Whether domains are found in the present snapshot, if workloads have come back since the last search."""
        if self._hosts is None or self._found_at == self._simulation.moves:
            return True
        return self._hosts.places()

    def distrust(self) -> None:
        """Make the test search for domains again after each workload that comes back."""
        if self._hosts is not None:
            self._hosts = replace(self._hosts, disturbs=everybody)

    def _quota_fits(self, *, borrowing: bool) -> bool:
        node, short = self._node, self._short
        if self._returns != self._simulation.returns:
            self._returns = self._simulation.returns
            short = self._short = list(self._wanted)
        while short:  # a column with enough quota keeps it while more workloads leave
            column, amount = short[-1]
            if not borrowing and quota.plus(node.usage.get(column, 0), amount) > node.quota(column).nominal:
                return False
            if amount > quota.available(node, column):
                return False
            short.pop()
        return True

    def _hosts_fit(self, hosts: HostNeeds) -> bool:
        if self._moves != self._simulation.moves:
            self._moves = self._simulation.moves
            self._answer = self._still_there(hosts) or self._there(hosts)
        return self._answer

    def _still_there(self, hosts: HostNeeds) -> bool:
        """Whether the domains of the last search are free: no returned workload uses any of them."""
        if self._found_at < 0 or any(hosts.disturbs(admitted) for admitted in self._simulation.back):
            return False
        self._simulation.back.clear()
        return True

    def _there(self, hosts: HostNeeds) -> bool:
        simulation = self._simulation
        if simulation.released < self._ask_from:
            return False
        lacking = hosts.lacks()
        if lacking == 0 and hosts.places():
            self._found_at = simulation.moves
            simulation.back.clear()
            return True
        self._ask_from = simulation.released + max(1, lacking)
        return False


def without_needless(
    targets: Sequence[Target],
    simulation: Simulation,
    fit: Fit,
    fits: Callable[[], bool],
    is_missed: Callable[[Admitted], bool] = nobody,
) -> tuple[Target, ...]:
    """Return the necessary targets, and put the others back.

    `fits` asks `fit`, and is true with all targets removed. A target for which `is_missed` is true is necessary without
    a trial.
    """
    needed = list(targets)
    fill_back(needed, simulation, fits, is_missed)
    if not fit.is_sure():  # the search finds no domains now, although the released ones suffice
        fit.distrust()
        gone = {target.admitted for target in needed}
        for target in targets:
            if target.admitted not in gone:
                simulation.remove(target.admitted)
        needed = list(targets)
        fill_back(needed, simulation, fits, is_missed)
    return tuple(needed)


def fill_back(
    targets: list[Target], simulation: Simulation, fits: Callable[[], bool], is_missed: Callable[[Admitted], bool]
) -> None:
    """Remove targets without which the preemptor fits as well, from the last to the first; the very last one stays.

    The last target takes the place of a removed one.
    """
    for i in range(len(targets) - 2, -1, -1):
        if is_missed(targets[i].admitted):
            continue
        simulation.put_back(targets[i].admitted)
        if fits():
            targets[i] = targets[-1]
            targets.pop()
        else:
            simulation.remove(targets[i].admitted)
