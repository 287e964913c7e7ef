"""The planned starts of the first workloads in line, from one cycle to the next.

A line is a ClusterQueue, or all ClusterQueues below a Cohort, with the annotation `kqueue.dev/backfill`.  Each line has
one planned start at most: that of the first workload that did not fit.  A planned start becomes earlier whenever an
earlier one is found.  It becomes later only if it does not hold any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum

from cachetools import LRUCache

from kqueue.core.backfill.binding import is_ahead
from kqueue.core.backfill.mode import BackfillMode
from kqueue.core.value import value
from kqueue.core.workload import Claim, Head

_HISTORIES = 1_000
"""The number of workloads whose former planned starts are kept."""


@value(kw_only=True)
class LineRule:
    """The line of a ClusterQueue.

    Args:
        name: equal for the ClusterQueues of one line.
        guesses: whether guessed run times count as limits.
        evicts: whether workloads that started on a guess are evicted if they hold up a planned start.
    """

    name: str
    guesses: bool
    evicts: bool = False


def nearest_rule(objects: Iterable[tuple[str, BackfillMode | None]]) -> LineRule | None:
    """Return the line of a ClusterQueue; None: it has none.

    `objects` are the ClusterQueue and the Cohorts above it, the nearest first, as kind and name, and what each says;
    the first that says anything decides.
    """
    name, mode = next(((name, mode) for name, mode in objects if mode is not None), ("", BackfillMode.NONE))
    if mode is BackfillMode.NONE:
        return None
    evicts = mode is BackfillMode.ENFORCED
    return LineRule(name=name, guesses=evicts or mode is BackfillMode.EXPECTED, evicts=evicts)


class MoveCause(StrEnum):
    """The reasons for which a planned start becomes later."""

    OVERRUN = "Overrun"
    """A workload runs longer than it was taken to."""
    PASSED = "Passed"
    """A workload that the plan does not bind has started in its room."""
    LESS_ROOM = "LessRoom"
    """Quota or hosts are gone."""


@value(kw_only=True)
class LaterStart:
    """A planned start that became later; `workloads`: the workloads (namespace/name) that are the cause."""

    before: datetime
    after: datetime
    cause: MoveCause
    workloads: tuple[str, ...] = ()


@value(kw_only=True)
class StartHistory:
    """The planned starts of one workload.

    Args:
        first: the first one.
        moves: the number of times that it became later.
        last: the last such time; None: it never became later.
        lost: the planned start that another workload (namespace/name) ended; None: it has one, or gave it up itself.
    """

    first: datetime
    moves: int = 0
    last: LaterStart | None = None
    lost: tuple[datetime, str] | None = None


class StartPlans:
    """The planned starts of all lines."""

    def __init__(self) -> None:
        self.on_ended: Callable[[Claim], None] = lambda _claim: None
        """Called for each planned start that ends: the room that was kept for it may help others."""
        self._claims: dict[str, Claim] = {}
        """By line."""
        self._histories: LRUCache[str, StartHistory] = LRUCache(_HISTORIES)
        """By UID."""

    def __bool__(self) -> bool:
        return bool(self._claims)

    def of(self, line: str) -> Claim | None:
        """Return the planned start of a line; None: it has none."""
        return self._claims.get(line)

    def of_workload(self, uid: str) -> tuple[Claim, StartHistory] | None:
        """Return the planned start of a workload, and its former ones; None: it has none now."""
        claim = next((claim for claim in self._claims.values() if claim.uid == uid), None)
        return (claim, self._histories[uid]) if claim is not None and uid in self._histories else None

    def told(self, uid: str) -> str:
        """Return the planned start of a workload as the end of a sentence about it; empty: it has none.

        The text stays true while planned starts become earlier, because not each of them is written.
        """
        found = self.of_workload(uid)
        if found is None or found[0].at is None:
            return ""
        if found[1].moves:
            return "; its planned start became later"
        return f"; planned to start at {found[0].at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ} at the latest"

    def all(self) -> dict[str, Claim]:
        """Return the planned starts by line."""
        return dict(self._claims)

    def claims(self, waits: Callable[[Claim], bool]) -> tuple[Claim, ...]:
        """Return the claims of all workloads that still wait, by their times, and end the others."""
        for claim in [claim for claim in self._claims.values() if not waits(claim)]:
            self.end(claim.uid)
        return tuple(sorted(self._claims.values(), key=_by_time))

    def is_first(self, line: str, head: Head) -> bool:
        """Whether a head of a line that does not fit is ahead of the workload with the line's planned start, or is this
        workload.
        """
        claim = self._claims.get(line)
        if claim is None or claim.uid == head.uid or claim.rank is None:
            return True
        return is_ahead(claim, head)

    def put(self, line: str, claim: Claim, move: LaterStart | None = None) -> LaterStart | None:
        """Set the planned start of a line in place of its former one; `move`: it became later.

        Returns how the planned start of this workload became later; None: it did not.
        """
        assert claim.at is not None, "a planned start has a time"
        former = self._claims.get(line)
        self._claims[line] = claim
        history = self._histories.get(claim.uid) or StartHistory(first=claim.at)
        if history.lost is not None and history.lost[0] < claim.at:
            before, by = history.lost
            move = LaterStart(before=before, after=claim.at, cause=MoveCause.PASSED, workloads=(by,))
        if move is not None:
            history = replace(history, moves=history.moves + 1, last=move)
        self._histories[claim.uid] = replace(history, lost=None)
        if former is not None and former.uid != claim.uid:
            self._lost(former, claim.key)
        if former is not None and _leaves_room(former, claim):
            self.on_ended(former)
        return move

    def join(self, uids: Iterable[str], workload: str, queue: str, key: str) -> None:
        """Count a workload (its UID, ClusterQueue and key) among those that end before the planned starts of these
        workloads.
        """
        wanted = set(uids)
        for line, claim in self._claims.items():
            if claim.uid in wanted:
                self._claims[line] = replace(claim, ends={**claim.ends, workload: (queue, key)})

    def pass_by(self, uid: str, key: str) -> None:
        """End the planned start of a workload, because another one (namespace/name) has started in its room."""
        claim = next((claim for claim in self._claims.values() if claim.uid == uid), None)
        if claim is not None:
            self._lost(claim, key)
            self.end(uid)

    def _lost(self, claim: Claim, by: str) -> None:
        history = self._histories.get(claim.uid)
        if history is not None and claim.at is not None:
            self._histories[claim.uid] = replace(history, lost=(claim.at, by))

    def end(self, uid: str) -> bool:
        """End the planned start of a workload; return whether it had one."""
        ended = [(line, claim) for line, claim in self._claims.items() if claim.uid == uid]
        for line, claim in ended:
            del self._claims[line]
            self.on_ended(claim)
        return bool(ended)


def _leaves_room(former: Claim, claim: Claim) -> bool:
    """Whether a workload that the former planned start of the line has bound may start now."""
    return former.uid != claim.uid or former.domains != claim.domains or _by_time(former) < _by_time(claim)


def _by_time(claim: Claim) -> tuple[datetime, str]:
    assert claim.at is not None, "a planned start has a time"
    return claim.at, claim.uid
