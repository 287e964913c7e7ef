"""A plan without the costlier facts about misfits: only its messages are shorter."""

from __future__ import annotations

from collections import Counter

from kqueue.core.cycle import plan
from kqueue.core.decision import Decision, Wait
from tests.unit.core.cycle_worlds import in_short
from tests.unit.core.test_progress import bustle, make_model

WORLDS = 40


def test_a_plan_that_explains_less_decides_the_same() -> None:
    seen = Counter[object]()
    for seed in range(WORLDS):
        model = make_model(seed)
        bustle(model, 8)
        heads = model.heads()
        full, short = (
            list(plan(model.snapshot(model.claims.values()), heads, rules=model.rules(), explains=explains))
            for explains in (True, False)
        )
        assert [decided(one) for one in full] == [decided(one) for one in short], f"seed {seed}"
        seen.update(decided(one)[0] for one in full)
        seen["explained"] += sum(map(examined, full))
        assert not sum(map(examined, short)), f"seed {seed}"
    assert all(seen[kind] for kind in ("admit", "preempt", "wait", "explained")), seen


def decided(decision: Decision) -> tuple[object, ...]:
    """What the decision does, and the cause of a wait, without its text."""
    if isinstance(decision, Wait):
        causes = [(b.kind, b.flavor, b.misfit.code if b.misfit is not None else None) for b in decision.blockers]
        return "wait", decision.head.uid, decision.outcome, decision.reason, causes
    return in_short(decision)


def examined(decision: Decision) -> int:
    """The leaves that were examined for an explanation."""
    blockers = decision.blockers if isinstance(decision, Wait) else ()
    return sum(blocker.misfit.leaves for blocker in blockers if blocker.misfit is not None)
