"""The first workload of each line that a cycle refused: what the cycle's decisions mean for planned starts."""

from __future__ import annotations

from collections.abc import Callable

from kqueue.core.backfill.binding import place_of
from kqueue.core.backfill.plans import LineRule, StartPlans
from kqueue.core.decision import Admit, Decision, Outcome, Preempt, Wait
from kqueue.core.workload import Head

_REFUSED = frozenset({Outcome.NO_CANDIDATES, Outcome.PLANNED})


class Refusals:
    """Follows the decisions of one cycle after the other."""

    def __init__(self, plans: StartPlans, line_of: Callable[[str], LineRule | None]) -> None:
        """`line_of` returns the line of a ClusterQueue; None: it has none."""
        self._plans, self._line_of = plans, line_of
        self._first: dict[str, tuple[LineRule, Wait]] = {}

    def decided(self, decision: Decision) -> None:
        """Follow a decision: planned starts end or are passed, and workloads join those that end before them."""
        head = decision.head
        match decision:
            case Admit():
                self._plans.join(decision.joins, head.uid, head.queue, head.key)
                for uid in decision.takes:
                    self._plans.pass_by(uid, head.key)
                self._plans.end(head.uid)
            case Preempt():
                self._plans.end(head.uid)
            case Wait() if decision.outcome in _REFUSED:
                rule = self._line_of(head.queue)
                if rule is not None and self._is_first(rule.name, head):
                    self._first[rule.name] = rule, decision

    def _is_first(self, line: str, head: Head) -> bool:
        """Whether a head is ahead of the workload with the line's planned start, and of those refused before.

        Cycles try heads of other ClusterQueues by other rules than their place in line, such as whether they borrow.
        """
        known = self._first.get(line)
        return self._plans.is_first(line, head) and (known is None or place_of(head) < place_of(known[1].head))

    def take(self) -> list[tuple[LineRule, Wait]]:
        """Return the refusals of workloads whose starts are to be planned, and forget them."""
        found, self._first = self._first, {}
        return list(found.values())
