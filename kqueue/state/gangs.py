"""The gangs that start: admitted, and with fewer members on nodes than their quorum.

The reconciler of gangs notes them, and notes them again after a restart, because all facts are in objects.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from itertools import islice

from kqueue.core.workload import Promise

GangRank = tuple[Fraction, datetime, str, str]


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
    rank: GangRank = field(init=False, repr=False, compare=False)
    """The rank among gangs that are in each other's way: the smallest goes first.

    That is the gang closest to its quorum; of equals the older one, then the one with the lower UID, then by name.
    """

    def __post_init__(self) -> None:
        """Compute the rank once, because each event of a gang compares it with those of many others."""
        progress = Fraction(self.scheduled, self.quorum)
        object.__setattr__(self, "rank", (-progress, self.since, self.uid, self.workload))


class _RankedGangs:
    """Gangs by flavor, those of each flavor in the order of their ranks, which all differ."""

    def __init__(self) -> None:
        self._ranked: dict[str, list[StartingGang]] = {}

    def add(self, flavor: str, gang: StartingGang) -> None:
        """Add a gang that the flavor does not have."""
        insort(self._ranked.setdefault(flavor, []), gang, key=_rank_of)

    def remove(self, flavor: str, gang: StartingGang) -> None:
        """Take out a gang that was added with the same rank."""
        ranked = self._ranked[flavor]
        del ranked[bisect_left(ranked, gang.rank, key=_rank_of)]
        if not ranked:
            del self._ranked[flavor]

    def first(self, flavor: str) -> StartingGang | None:
        """Return the gang with the smallest rank."""
        return next(iter(self._ranked.get(flavor, ())), None)

    def after(self, flavor: str, rank: GangRank) -> Iterator[StartingGang]:
        """Yield the gangs with a greater rank."""
        ranked = self._ranked.get(flavor, [])
        return islice(ranked, bisect_right(ranked, rank, key=_rank_of), None)


def _rank_of(gang: StartingGang) -> GangRank:
    return gang.rank


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
        self._keepers = _RankedGangs()
        """The gangs that need the flavor for members without nodes."""
        self._rejectable = _RankedGangs()
        """The gangs that may be rejected, now or later, in each of their flavors."""
        self.leaders: dict[str, StartingGang] = {}
        """By flavor: the first by rank of the gangs that need it for members without nodes."""
        self.on_leader: Callable[[str], None] = lambda _flavor: None
        """Called when a flavor is no longer kept for the gang for which it was kept."""
        self._grace: dict[str, datetime] = {}
        """The last rejection, by flavor."""

    def note(self, gang: StartingGang) -> None:
        """Note the present state of a gang that starts."""
        before = self._starting.get(gang.workload)
        if before == gang:
            return
        self._starting[gang.workload] = gang
        if before is not None:
            self._leave(before)
        if gang.keeps:
            self._keepers.add(gang.keeps, gang)
        if gang.rejectable is not None:
            for flavor in gang.flavors:
                self._rejectable.add(flavor, gang)
        if before is not None and before.keeps not in ("", gang.keeps):
            self._choose(before.keeps)
        if gang.keeps:
            self._choose(gang.keeps)

    def drop(self, workload: str) -> None:
        """Forget a gang that starts no more."""
        gang = self._starting.pop(workload, None)
        if gang is not None:
            self._leave(gang)
            if gang.keeps:
                self._choose(gang.keeps)

    def _leave(self, gang: StartingGang) -> None:
        """Take a gang out of the ranks of its flavors."""
        if gang.keeps:
            self._keepers.remove(gang.keeps, gang)
        if gang.rejectable is not None:
            for flavor in gang.flavors:
                self._rejectable.remove(flavor, gang)

    def _choose(self, flavor: str) -> None:
        """Choose the leader of a flavor anew."""
        before, now = self.leaders.pop(flavor, None), self._keepers.first(flavor)
        if now is not None:
            self.leaders[flavor] = now
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

    def give_time(self, gang: StartingGang, now: datetime) -> None:
        """Give other gangs of its flavors time to use what a gang leaves that is rejected now."""
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
        others = (other for flavor in gang.flavors for other in self._rejectable.after(flavor, gang.rank))
        times = (other.rejectable for other in others if other.workload != gang.workload)
        return max((at for at in times if at is not None), default=None)
