"""Other places for the workloads that a candidate admits: the same workloads, where fewer domains are used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kqueue.core.joint.arrangement import GangArrangement
from kqueue.core.joint.candidate import Candidate
from kqueue.core.joint.repairs import place_all
from kqueue.core.joint.score import Score, Scorer
from kqueue.core.joint.units import Unit, units
from kqueue.core.joint.world import PlannedAdmission, World, needs_one_domain


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A candidate with its score."""

    candidate: Candidate
    score: Score


def polish(new_world: Callable[[], World], best: Scored, scorer: Scorer, unit_of: Mapping[str, Unit]) -> Scored:
    """Return the best arrangement of the same workloads: as it is, the largest first, the smallest first, or as an
    exact search of numbers says.

    An arrangement that leaves out a workload is dropped.  `new_world` returns the world before the round.
    """
    admitted = list(best.candidate.admitted.values())
    if len(admitted) < 2:
        return best
    sizes = {planned.head.uid: units(planned.requests, unit_of) for planned in admitted}
    for arrangement in (
        sorted(admitted, key=lambda p: (not needs_one_domain(p.requests), -sizes[p.head.uid])),
        sorted(admitted, key=lambda p: (not needs_one_domain(p.requests), sizes[p.head.uid])),
    ):
        found = _arranged(new_world(), arrangement, best, scorer)
        if found is not None and found.score.key() > best.score.key():
            best = found
    return _by_numbers(new_world, admitted, best, scorer, unit_of)


def _by_numbers(
    new_world: Callable[[], World],
    admitted: Sequence[PlannedAdmission],
    best: Scored,
    scorer: Scorer,
    unit_of: Mapping[str, Unit],
) -> Scored:
    """Return the best arrangement with more whole gangs or more room for others; the given one if there is none."""
    if scorer.largest is None:
        return best
    given = GangArrangement.of(new_world(), admitted, scorer.largest, unit_of)
    if given is None:
        return best
    for domains in given.found(best.score.slots):
        world = new_world()
        placed = given.place(world, domains, unit_of[given.flavor])
        known = {planned.head.uid for planned in placed}
        others = place_all(world, [planned.head for planned in admitted if planned.head.uid not in known])
        if others is None:
            continue
        found = _scored(world, {planned.head.uid: planned for planned in (*placed, *others)}, best, scorer)
        if found.score.key() > best.score.key():
            best = found
    return best


def _arranged(world: World, order: Sequence[PlannedAdmission], best: Scored, scorer: Scorer) -> Scored | None:
    placed = place_all(world, [planned.head for planned in order])
    if placed is None:
        return None
    return _scored(world, {planned.head.uid: planned for planned in placed}, best, scorer)


def _scored(world: World, by_uid: Mapping[str, PlannedAdmission], best: Scored, scorer: Scorer) -> Scored:
    candidate = Candidate(best.candidate.name, {uid: by_uid[uid] for uid in best.candidate.admitted})
    return Scored(candidate=candidate, score=scorer.score(candidate, world))
