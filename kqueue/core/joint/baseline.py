"""The one-by-one plan: what ordinary cycles would decide for the batch, by the code of the cycles.

It gives the order of admission to the other candidates, and the score that none of them may fall below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kqueue.core.cycle import plan
from kqueue.core.decision import Admit, Decision, Preempt
from kqueue.core.joint.batch import Batch
from kqueue.core.joint.world import PlannedAdmission, World, as_planned
from kqueue.core.ordering import DEFAULT_RULES, OrderRules
from kqueue.core.plan_cache import PlanCache
from kqueue.core.preemption import Rules
from kqueue.core.workload import Claim, Head


@dataclass(slots=True)
class OneByOne:
    """The result of ordinary cycles.

    Args:
        order: the workloads in the order in which the cycles decided them.
        admitted: by UID.
        claims: of the workloads that preempt others, by UID.
    """

    order: list[Head] = field(default_factory=list)
    admitted: dict[str, PlannedAdmission] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)


def one_by_one(
    world: World, batch: Batch, *, rules: Rules, order: OrderRules = DEFAULT_RULES, cache: PlanCache | None = None
) -> OneByOne:
    """Return the decisions of as many cycles as it takes until each workload of the batch was tried once.

    A strict queue whose head is not admitted gives no further heads: the workloads behind it are not tried, and come
    last in the order.  The admissions are charged to the world, whose claims must not be charged before.
    """
    found, lines = OneByOne(), batch.lines()
    cache = cache if cache is not None else PlanCache()
    while lines:
        heads = [line.popleft() for line in lines.values()]
        for decision in _cycle(world, heads, found.claims, rules, order, cache):
            head = decision.head
            found.order.append(head)
            match decision:
                case Admit():
                    planned = found.admitted[head.uid] = as_planned(decision, world)
                    world.admit(planned)
                case Preempt():
                    found.claims[head.uid] = decision.claim
                case _:
                    pass
            if head.uid not in found.admitted and head.queue in batch.strict:
                found.order.extend(lines[head.queue])
                lines[head.queue].clear()
        lines = {name: line for name, line in lines.items() if line}
    return found


def _cycle(
    world: World, heads: list[Head], claims: Mapping[str, Claim], rules: Rules, order: OrderRules, cache: PlanCache
) -> list[Decision]:
    """Return the decisions of one cycle, without the reasons in full; the world is as before."""
    with world.unchanged() as snapshot:
        with_claims = replace(snapshot, claims=(*snapshot.claims, *claims.values()))
        return list(plan(with_claims, heads, rules=rules, order=order, cache=cache, explains=False))
