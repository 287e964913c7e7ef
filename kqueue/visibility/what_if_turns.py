"""Decides about all waiting workloads of a what-if, in turns as cycles do.

A turn has the first workload of each ClusterQueue that is not decided.  One that starts, or waits, makes room for the
next one; one whose room another took in its turn is tried again.  Behind one that waits, those of its ClusterQueue with
the same shape wait, too; in a StrictFIFO one, all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kqueue.api.wire import kueue as wire
from kqueue.core.decision import Admit, Decision, Outcome, Preempt, Wait
from kqueue.core.why import PlanSequence
from kqueue.core.workload import Head
from kqueue.errors import InvalidObjectError
from kqueue.model.pending import Pending
from kqueue.visibility.pacing import PlanningBudget
from kqueue.visibility.placements import never
from kqueue.visibility.what_if_answer import STARTS, StartVerdict, WhatIfDecisions
from kqueue.visibility.what_if_lines import TriedLine

_TOGETHER, _QUEUES = 16, 1_000
"""Heads of one cycle, if there are no more ClusterQueues than this; else each head has a cycle of its own, because a
cycle in a large tree would hold the event loop for long.
"""
_CHEAP = 25
"""Verdicts by the shape of an earlier workload between two looks at the clock."""

HeadOf = Callable[[str, Pending, wire.Workload], Head]
"""Makes the head of a workload of this ClusterQueue; raises InvalidObjectError."""


@dataclass(slots=True)
class _Front:
    """A line, and the number of its workloads that are decided."""

    line: TriedLine
    decided: int = 0

    @property
    def first(self) -> tuple[Pending, wire.Workload] | None:
        """The first workload that is not decided; None: all are."""
        return self.line.items[self.decided] if self.decided < len(self.line.items) else None

    def shape(self, item: Pending) -> tuple[str, str]:
        """Return the group of a workload: if one of the group waits, all behind it wait."""
        return self.line.queue, "" if self.line.is_strict else item.shape


@dataclass(frozen=True, slots=True)
class _Tried:
    front: _Front
    item: Pending
    head: Head


class DecidedTurns:
    """The turns of one state."""

    def __init__(
        self,
        lines: Iterable[TriedLine],
        head_of: HeadOf,
        sequence: PlanSequence,
        found: WhatIfDecisions,
        budget: PlanningBudget,
        queues: int,
    ) -> None:
        """`found` gets the verdicts; `queues` is the number of ClusterQueues with and without waiting workloads."""
        self._together = _TOGETHER if queues <= _QUEUES else 1
        self._fronts = [_Front(line) for line in lines]
        self._head_of, self._sequence, self._found, self._budget = head_of, sequence, found, budget
        self._waited: dict[tuple[str, str], StartVerdict] = {}
        self._strict: dict[str, _Tried] = {}
        """First workloads of StrictFIFO lines that wait, by UID: each cycle tries them again."""
        self._since = budget.clock.monotonic()

    async def run(self) -> None:
        """Decide until all are decided, or no time is left."""
        while turn := await self._turn():
            turn.sort(key=lambda one: (-one.head.priority, one.head.timestamp, one.head.uid))
            undecided = self._left
            for begin in range(0, len(turn), self._together):
                if not self._budget.is_left:
                    return
                await self._decide(turn[begin : begin + self._together])
            if self._left == undecided:
                for one in turn:  # none of them would ever be decided
                    self._say(one.front, one.item, StartVerdict(key=one.item.key, queue=one.head.queue, start="Later"))

    @property
    def _left(self) -> int:
        return self._found.of - self._found.planned

    async def _turn(self) -> list[_Tried]:
        """Return the first workloads of all lines that are still to be decided, and decide those before them."""
        turn: list[_Tried] = []
        for number, front in enumerate(self._fronts, 1):
            if number % _CHEAP == 0:
                self._since = await self._budget.step(self._since)
            while self._budget.is_left and (first := front.first) is not None:
                item, obj = first
                known = self._waited.get(front.shape(item))
                if known is None:
                    head = self._made(front, item, obj)
                    if head is not None:
                        turn.append(_Tried(front, item, head))
                        break
                else:
                    self._say_behind(front, item, known)
                if self._found.planned % _CHEAP == 0:
                    self._since = await self._budget.step(self._since)
        self._fronts = [front for front in self._fronts if front.first is not None]
        return turn

    def _made(self, front: _Front, item: Pending, obj: wire.Workload) -> Head | None:
        queue = front.line.queue
        try:
            return self._head_of(queue, item, obj)
        except InvalidObjectError as e:
            self._say(front, item, StartVerdict(key=item.key, queue=queue, start="Never", message=str(e)))
            return None

    async def _decide(self, some: Sequence[_Tried]) -> None:
        again = self._strict if len(self._strict) + len(some) <= self._together else {}
        tried = {one.head.uid: one for one in (*again.values(), *some)}
        for decision in self._sequence.decide_turn([one.head for one in tried.values()]):
            one = tried[decision.head.uid]
            verdict = _verdict(one, decision)
            if one.head.uid in self._strict:
                self._say_again(one, verdict)
            elif not (isinstance(decision, Wait) and decision.outcome is Outcome.SKIPPED):
                self._say(one.front, one.item, verdict)
                if one.front.line.is_strict and verdict.start not in STARTS:
                    self._strict[one.head.uid] = one
            self._since = await self._budget.step(self._since)

    def _say_again(self, one: _Tried, verdict: StartVerdict) -> None:
        """Follow another try of a workload that waited; those behind it are decided already."""
        if verdict.start in STARTS:
            self._found.verdicts[one.item.key] = verdict
            del self._strict[one.head.uid]

    def _say_behind(self, front: _Front, item: Pending, known: StartVerdict) -> None:
        line = front.line
        behind = "behind one that waits in a StrictFIFO queue" if line.is_strict else known.message
        start = "Later" if line.is_strict else known.start
        self._say(front, item, StartVerdict(key=item.key, queue=line.queue, start=start, message=behind))

    def _say(self, front: _Front, item: Pending, verdict: StartVerdict) -> None:
        self._found.verdicts[item.key] = verdict
        self._found.planned += 1
        front.decided += 1
        if verdict.start not in STARTS:
            self._waited.setdefault(front.shape(item), verdict)


def _verdict(one: _Tried, decision: Decision) -> StartVerdict:
    key, queue = one.item.key, one.head.queue
    match decision:
        case Admit():
            return StartVerdict(key=key, queue=queue, start="Now")
        case Preempt(targets=targets):
            victims = tuple(target.admitted for target in targets)
            return StartVerdict(key=key, queue=queue, start="AfterPreemption", victims=victims)
        case Wait(blockers=blockers) as wait:
            start = "Never" if never(blockers) else "Later"
            return StartVerdict(key=key, queue=queue, start=start, message=wait.message)
