"""All values from which the decisions of one plan follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from kqueue.core.cycle import plan
from kqueue.core.decision import ALL_LOOKS, Decision, Phase, SecondLooks
from kqueue.core.hints import Hints
from kqueue.core.hooks import HooksByProfile
from kqueue.core.ordering import DEFAULT_RULES, OrderRules
from kqueue.core.plan_cache import PlanCache
from kqueue.core.preemption import Rules
from kqueue.core.share_order import NextHead, no_next_head
from kqueue.core.workload import Head, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanQuestion:
    """The arguments of `cycle.plan` that decide; equal questions have equal answers.

    A plan charges the snapshot, so a question is answered once.
    """

    snapshot: Snapshot
    heads: Sequence[Head]
    rules: Rules
    order: OrderRules = DEFAULT_RULES
    held_by: str = ""
    one_at_a_time: bool = False
    looks: SecondLooks = ALL_LOOKS
    hints: Hints = field(default_factory=dict)
    hooks: HooksByProfile = field(default_factory=dict)

    def decisions(
        self,
        *,
        next_head: NextHead = no_next_head,
        cache: PlanCache | None = None,
        enter: Callable[[Phase], None] = lambda _phase: None,
        planner_failed: Callable[[str, Exception], None] = lambda _name, _error: None,
    ) -> Iterator[Decision]:
        """Yield the planner's decisions in their order; the arguments are those of `cycle.plan`."""
        return plan(
            self.snapshot,
            self.heads,
            rules=self.rules,
            order=self.order,
            held_by=self.held_by,
            one_at_a_time=self.one_at_a_time,
            looks=self.looks,
            cache=cache,
            enter=enter,
            next_head=next_head,
            planner_failed=planner_failed,
            hooks=self.hooks,
            hints=self.hints,
        )
