"""The gangs that start: admitted, and with fewer members on nodes than their quorum.

The reconciler of gangs notes them, and notes them again after a restart, because all facts are in objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from kqueue.core.workload import Promise


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingGang:
    """A gang that starts.

    Args:
        key: the key of `gang_key`.
        uid: the UID that breaks ties.
        workload: namespace/name of its Workload.
        flavors: all flavors of its admission.
        keeps: the flavor that it needs for members that find no node; empty: there are none.
        until: when the flavor is free at the latest; None: it keeps none.
        rejectable: when it may be rejected because too many members find no node; None: they are few enough.
    """

    key: str
    uid: str
    workload: str
    since: datetime
    scheduled: int
    quorum: int
    flavors: frozenset[str]
    keeps: str = ""
    until: datetime | None = None
    rejectable: datetime | None = None

    @property
    def rank(self) -> tuple[Fraction, datetime, str]:
        """Return the rank among gangs that are in each other's way: the smallest goes first.

        That is the gang closest to its quorum; of equals the older one, then the one with the lower UID.
        """
        return -Fraction(self.scheduled, self.quorum), self.since, self.uid


class Gangs:
    """The starting gangs, by the key of their Workload, and what is promised to admitted gangs."""

    def __init__(self) -> None:
        self.promises: dict[str, Promise] = {}
        """Amounts that an admitted gang may use beyond its requests, by its Workload."""
        self.extras: dict[str, set[str]] = {}
        """Workloads of pods beyond the quorum of such a gang, by its Workload."""
        self.on_promise: Callable[[str], None] = lambda _queue: None
        """Called with the ClusterQueue of a promise that has ended."""
        self._starting: dict[str, StartingGang] = {}
        self._keepers: dict[str, dict[str, StartingGang]] = {}
        """By flavor: the gangs that need it for members without nodes."""
        self.leaders: dict[str, StartingGang] = {}
        """By flavor: the first of these gangs by rank."""
        self.on_leader: Callable[[str], None] = lambda _flavor: None
        """Called when a flavor is no longer kept for the gang for which it was kept."""
        self._grace: dict[str, datetime] = {}
        """The last rejection, by flavor."""

    def note(self, gang: StartingGang) -> None:
        """Note the present state of a gang that starts."""
        before = self._starting.get(gang.workload)
        self._starting[gang.workload] = gang
        if before is not None and before.keeps and before.keeps != gang.keeps:
            self._leave(before)
        if gang.keeps:
            self._keepers.setdefault(gang.keeps, {})[gang.workload] = gang
            self._choose(gang.keeps)

    def drop(self, workload: str) -> None:
        """Forget a gang that starts no more."""
        gang = self._starting.pop(workload, None)
        if gang is not None and gang.keeps:
            self._leave(gang)

    def _leave(self, gang: StartingGang) -> None:
        """Take a gang out of those that need the flavor."""
        keepers = self._keepers[gang.keeps]
        del keepers[gang.workload]
        if not keepers:
            del self._keepers[gang.keeps]
        self._choose(gang.keeps)

    def _choose(self, flavor: str) -> None:
        """Choose the leader of a flavor anew."""
        before = self.leaders.pop(flavor, None)
        keepers = self._keepers.get(flavor)
        if keepers:
            self.leaders[flavor] = min(keepers.values(), key=lambda gang: gang.rank)
        now = self.leaders.get(flavor)
        if before is not None and (now is None or now.workload != before.workload):
            self.on_leader(flavor)

    def promise(self, promise: Promise | None) -> None:
        """Note what is promised to an admitted gang; nothing for one without least resources."""
        if promise is not None and promise.amounts:
            self.promises[promise.workload] = promise

    def note_extra(self, extra: str, base: str) -> None:
        """Note that a pod beyond the quorum of a gang has quota; both are Workloads."""
        if base in self.promises:
            self.extras.setdefault(base, set()).add(extra)

    def end_promise(self, workload: str) -> None:
        """Forget what was promised: the gang has lost its admission, or its deadline is over."""
        self.extras.pop(workload, None)
        promise = self.promises.pop(workload, None)
        if promise is not None:
            self.on_promise(promise.queue)

    def note_rejection(self, workload: str, now: datetime) -> None:
        """Note that a gang was rejected: other gangs of its flavors get time to use what it leaves."""
        gang = self._starting.get(workload)
        self.drop(workload)
        if gang is not None:
            self._grace.update(dict.fromkeys(gang.flavors, now))

    def last_rejection(self, flavors: frozenset[str]) -> datetime | None:
        """Return the time of the last rejection of a gang in any of these flavors; None: there was none."""
        return max((at for flavor in flavors if (at := self._grace.get(flavor)) is not None), default=None)

    def rejected_before(self, gang: StartingGang) -> datetime | None:
        """Return when another gang in a flavor of this one may be rejected, which goes first; None: there is none.

        It goes first because it is further from its quorum.

        The times of two gangs that started together differ a little, so a gang also waits for one whose time has not
        come yet.
        """
        others = [other.rejectable for other in self._beside(gang) if other.rank > gang.rank]
        return max((at for at in others if at is not None), default=None)

    def _beside(self, gang: StartingGang) -> Iterator[StartingGang]:
        for other in self._starting.values():
            if other.workload != gang.workload and not other.flavors.isdisjoint(gang.flavors):
                yield other
