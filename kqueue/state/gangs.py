"""The gangs that start: admitted, and with fewer members on nodes than their quorum.

The reconciler of gangs notes them, and notes them again after a restart, because all facts are in objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingGang:
    """A gang that starts.

    Args:
        key: the key of `gang_key`.
        uid: the UID that breaks ties.
        workload: namespace/name of its Workload.
        flavors: all flavors of its admission.
        stuck: members that find no node, by the flavors of their role.
        due: when its deadline is over; None: it has none.
        rejectable: when it may be rejected because too many members find no node; None: they are few enough.
    """

    key: str
    uid: str
    workload: str
    since: datetime
    scheduled: int
    quorum: int
    flavors: frozenset[str]
    stuck: Mapping[str, int] = field(default_factory=dict)
    due: datetime | None = None
    rejectable: datetime | None = None

    @property
    def rank(self) -> tuple[Fraction, datetime, str]:
        """Return the rank among gangs that are in each other's way: the smallest goes first.

        That is the gang closest to its quorum; of equals the older one, then the one with the lower UID.
        """
        return -Fraction(self.scheduled, self.quorum), self.since, self.uid


class Gangs:
    """The starting gangs, by the key of their Workload."""

    def __init__(self) -> None:
        self._starting: dict[str, StartingGang] = {}
        self._grace: dict[str, datetime] = {}
        """The last rejection, by flavor."""

    def note(self, gang: StartingGang) -> None:
        """Note the present state of a gang that starts."""
        self._starting[gang.workload] = gang

    def drop(self, workload: str) -> None:
        """Forget a gang that starts no more."""
        self._starting.pop(workload, None)

    def note_rejection(self, workload: str, now: datetime) -> None:
        """Note that a gang was rejected: other gangs of its flavors get time to use what it leaves."""
        gang = self._starting.pop(workload, None)
        if gang is not None:
            self._grace.update(dict.fromkeys(gang.flavors, now))

    def last_rejection(self, flavors: frozenset[str]) -> datetime | None:
        """Return the time of the last rejection of a gang in any of these flavors; None: there was none."""
        return max((at for flavor in flavors if (at := self._grace.get(flavor)) is not None), default=None)

    def rejected_before(self, gang: StartingGang, now: datetime) -> bool:
        """Whether another gang in a flavor of this one is rejected first, because it is further from its quorum."""
        return any(
            other.rejectable is not None and other.rejectable <= now and other.rank > gang.rank
            for other in self._beside(gang)
        )

    def _beside(self, gang: StartingGang) -> Iterator[StartingGang]:
        for other in self._starting.values():
            if other.workload != gang.workload and not other.flavors.isdisjoint(gang.flavors):
                yield other
