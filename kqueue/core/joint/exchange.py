"""Exchanges inside a rank, with `order: Priority`: one workload out, others of more value in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from kqueue.core.joint.batch import RankedWorkload
from kqueue.core.joint.candidate import Candidate
from kqueue.core.joint.score import Scorer
from kqueue.core.joint.world import PlannedAdmission, World


def exchange(world: World, candidate: Candidate, scorer: Scorer, strict: frozenset[str]) -> None:
    """Replace admitted workloads, the one of least value first, by left-out ones of the same rank while the value of
    the rank grows and steps are left.

    No workload of a strict queue is taken out while a later one of the queue is admitted, and none gets in behind one
    that is left out.
    """
    of_rank: dict[int, list[RankedWorkload]] = defaultdict(list)
    for one in scorer.order:
        of_rank[one.rank].append(one)
    for rank in sorted(of_rank):
        ranked = of_rank[rank]
        inside = [one for one in ranked if one.head.uid in candidate.admitted]
        for one in sorted(inside, key=lambda r: scorer.value(r, candidate.admitted[r.head.uid])):
            if world.steps_left <= 0:
                return
            if one.head.queue not in strict:
                _try(world, candidate, scorer, one, [r for r in ranked if r.head.queue not in strict])


def _try(
    world: World, candidate: Candidate, scorer: Scorer, out: RankedWorkload, others: Sequence[RankedWorkload]
) -> None:
    """Take one workload out and admit others for it, if that is worth more."""
    leaving = candidate.admitted[out.head.uid]
    entered: dict[str, PlannedAdmission] = {}
    gained = 0
    with world.attempt() as attempt:
        world.withdraw(leaving)
        waiting = [one for one in others if one.head.uid not in candidate.admitted]
        for one in sorted(waiting, key=scorer.promised, reverse=True):
            world.steps_left -= 1
            planned = world.find(one.head)
            if planned is not None:
                world.admit(planned)
                entered[one.head.uid] = planned
                gained += scorer.value(one, planned)
            if world.steps_left <= 0:
                break
        if gained <= scorer.value(out, leaving):
            return
        attempt.keep()
    del candidate.admitted[out.head.uid]
    candidate.admitted.update(entered)
