"""Rounds of joint placement that this process remembers: the one that is being planned, and the last ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from kqueue.core.explain import Blocker, BlockerKind
from kqueue.core.joint.answer import PlanAnswer, PlannedEntry
from kqueue.core.joint.migration import MigrationGain
from kqueue.core.value import value

_MOST = 32


@value(kw_only=True)
class PlannedRound:
    """The round that is being planned: its number, its beginning, and the UIDs of its workloads."""

    number: int
    began: datetime
    uids: frozenset[str]


@value(kw_only=True)
class RoundRecord:
    """A round that is over.

    Args:
        result: how it ended, as in metrics.
        workloads: the number of workloads of its batch.
        batch: a digest of the UIDs of its workloads, in their order.
        plan: None: it has none.
        problem: why it has no plan; empty if it has one.
        seconds: by phase; those of planning are the planner's.
        gains: what moves of running workloads would gain at most, by flavor; they come after the plan.
    """

    number: int
    began: datetime
    ended: datetime
    result: str
    workloads: int
    batch: str
    plan: PlanAnswer | None
    problem: str
    seconds: dict[str, float]
    gains: dict[str, MigrationGain] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RoundOfWorkload:
    """The last round with a plan that a workload was in: the plan, its entry, and the number of workloads."""

    plan: PlanAnswer
    entry: PlannedEntry
    workloads: int

    def blocker(self) -> Blocker | None:
        """Return the reason that the plan gives a workload to wait; None: it admits the workload, or defers it."""
        entry = self.entry
        if entry.is_admitted or entry.is_deferred:
            return None
        out = f"left out by joint round {self.plan.round}"
        if entry.is_proven:
            detail = f"{out}, proven: no placement of all that come before it leaves room"
        elif self.plan.bound is None:
            detail = out
        else:
            detail = f"{out}: {entry.relaxed} of {entry.units} units would fit in the relaxation"
        return Blocker(kind=BlockerKind.LEFT_OUT_BY_JOINT_ROUND, detail=detail)


class JointHistory:
    """The round that is being planned, and the last rounds."""

    def __init__(self) -> None:
        self.planning: PlannedRound | None = None
        self._rounds: deque[RoundRecord] = deque()
        self._of: dict[str, RoundOfWorkload] = {}

    def begin(self, number: int, began: datetime, uids: Iterable[str]) -> None:
        """Note the round that is being planned."""
        self.planning = PlannedRound(number=number, began=began, uids=frozenset(uids))

    def end(self, record: RoundRecord) -> None:
        """Note that a round is over; the oldest one is forgotten."""
        self._rounds.append(record)
        if record.plan is not None:
            for entry in record.plan.entries:
                self._of[entry.uid] = RoundOfWorkload(record.plan, entry, record.workloads)
        if len(self._rounds) > _MOST:
            self._forget(self._rounds.popleft())

    def _forget(self, record: RoundRecord) -> None:
        for entry in record.plan.entries if record.plan is not None else ():
            known = self._of.get(entry.uid)
            if known is not None and known.plan is record.plan:
                del self._of[entry.uid]

    def rounds(self) -> list[RoundRecord]:
        """Return the remembered rounds, the newest first."""
        return list(reversed(self._rounds))

    def gained(self, number: int, gains: Iterable[MigrationGain]) -> RoundRecord | None:
        """Note what moves would gain in a round, and return its record; None: it is not remembered."""
        for record in reversed(self._rounds):
            if record.number == number:
                record.gains.update({gain.flavor: gain for gain in gains})
                return record
        return None

    def of(self, uid: str) -> RoundOfWorkload | None:
        """Return the last round with a plan that a workload was in; None: none is remembered."""
        return self._of.get(uid)

    def waits_for(self, uid: str) -> Blocker | None:
        """Return the round that is being planned, as the reason why one of its workloads is not tried; None: the
        workload is not in it.
        """
        planning = self.planning
        if planning is None or uid not in planning.uids:
            return None
        others = len(planning.uids) - 1
        detail = f"waits for joint round {planning.number} (with {others} other{'s' if others != 1 else ''})"
        return Blocker(kind=BlockerKind.JOINT_ROUND, detail=detail)
