"""The planner's decisions about workloads that are tried one after the other."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from kqueue.core import cycle
from kqueue.core.decision import Decision
from kqueue.core.plan_cache import PlanCache
from kqueue.core.planned_state import PlannedState
from kqueue.core.withheld import WithheldCapacity
from kqueue.core.workload import Head, Snapshot


class PlanSequence:
    """Decides heads one after the other, each on the capacity that earlier ones have left.

    The snapshot is a copy that belongs to the sequence; the state from which it began does not change.
    """

    def __init__(self, world: PlannedState, snapshot: Snapshot, cache: PlanCache | None = None) -> None:
        """Take the rules of `world`, and a copy of its snapshot (`PlannedState.copied`)."""
        self._world, self._cache = world, cache if cache is not None else PlanCache()
        self.snapshot = snapshot

    def decide(self, head: Head) -> Decision:
        """Return the decision of a cycle that tried this head alone, and charge it."""
        (decision,) = self.decide_turn([head])
        return decision

    def decide_turn(self, heads: Sequence[Head]) -> Iterator[Decision]:
        """Yield the decisions of a cycle that tries these heads of several ClusterQueues, and charge them.

        As in any cycle, heads that wait withhold capacity from later ones of the cycle.
        """
        world, withheld = self._world, WithheldCapacity(self.snapshot)
        yield from cycle.plan(
            self.snapshot, heads, rules=world.rules, withheld=withheld, cache=self._cache, hooks=world.hooks
        )
        withheld.give_back()
        self.snapshot.claims = ()  # they are charged from the first plan on

    def state(self, queues: Collection[str]) -> PlannedState:
        """Return the state after all decisions so far, for trials in these ClusterQueues; later decisions do not
        change it.
        """
        now = replace(self._world, snapshot=self.snapshot)
        return replace(now, snapshot=now.copied(queues))
