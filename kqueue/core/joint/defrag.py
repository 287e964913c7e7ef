"""Defragmentation plans: the cheapest moves of running workloads after which a gang has room in one domain.

Each workload that moves has a free place before any of them leaves: there are no chains of moves and no swaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum

import numpy as np

from kqueue.core.joint.covers import cheapest_covers
from kqueue.core.joint.fragmentation import Fragmentation, fragmentation, reachable_slots
from kqueue.core.joint.moving import (
    MoveTarget,
    RunningGang,
    Topologies,
    charge,
    close,
    placed,
    release,
    relocated,
    trial,
)
from kqueue.core.topology.counting import pods_per_domain
from kqueue.core.topology.request import DEFAULT_PROFILE, GangDomains, PodSetRequest, Profile
from kqueue.core.topology.result import Path
from kqueue.core.topology.tree import Ints
from kqueue.core.value import value

_DOMAINS = 32
"""Domains that are tried."""
_BLOCKERS = 10
"""Workloads that are named when there is no plan."""
_NO_ROOM = "it has no other place that is free now and as good"


@value(kw_only=True)
class Goal:
    """A gang that is to have room in one domain of a level.

    Args:
        level: the number of the level in the topology of the flavor.
        requests: its pod sets, all of this flavor.
        worth: the value of its start, in the same unit as the cost of moves; None: no workload waits for the room.
    """

    flavor: str
    level: int
    requests: tuple[PodSetRequest, ...]
    profile: Profile = DEFAULT_PROFILE
    worth: int | None = None

    @property
    def largest(self) -> PodSetRequest:
        """The pod set with most pods, whose form stands for the gang where room is counted."""
        return max(self.requests, key=lambda request: request.count)

    @property
    def pods(self) -> int:
        """The pods of all pod sets."""
        return sum(request.count for request in self.requests)


@value(kw_only=True)
class DefragSettings:
    """The limits of a plan.

    Args:
        moves, pods, pod_seconds: the most that a plan moves, and loses.
        least_gain: thousandths of the cost that the gain must reach.
    """

    moves: int = 4
    pods: int = 64
    pod_seconds: int = 7_200
    least_gain: int = 2_000


@value(kw_only=True)
class Move:
    """A workload that moves to domains that are free now."""

    gang: RunningGang
    target: MoveTarget


@value(kw_only=True)
class DefragPlan:
    """Moves after which the goal has room in `domain`.

    Args:
        moves: in their order.
        before, after: the room for such gangs; after the moves, before the gang starts.
    """

    domain: Path
    moves: tuple[Move, ...]
    before: Fragmentation
    after: Fragmentation

    @property
    def cost(self) -> int:
        """The pod-seconds that are lost."""
        return sum(move.gang.cost for move in self.moves)


class NoPlanReason(StrEnum):
    """Why there is no plan."""

    FITS = "Fits"
    """The gang has room without any move."""
    TOO_LARGE = "TooLarge"
    """No domain of the level holds the gang, even without all other workloads that may be moved."""
    BLOCKED = "Blocked"
    """Workloads that cannot be moved have the room."""
    BUDGET = "Budget"
    """Moves are found, and exceed the limits of a plan."""
    GAIN = "Gain"
    """Moves are found, and cost more than they gain."""


@value(kw_only=True)
class MoveBlocker:
    """A workload that stays in a domain, and why."""

    key: str
    pods: int
    reasons: tuple[str, ...]


@value(kw_only=True)
class NoPlan:
    """The answer where no moves help.

    Args:
        domain: the domain that came closest; empty: there is none.
        missing: the pods for which it lacks room, even after all possible moves.
        blockers: the workloads in it that cannot be moved, those with most room first.
        cheapest: the cost of the moves that were found, where they exceed a limit.
    """

    reason: NoPlanReason
    before: Fragmentation
    domain: Path = ()
    missing: int = 0
    blockers: tuple[MoveBlocker, ...] = ()
    cheapest: int | None = None


@value()
class _Inside:
    """A workload with pods in a domain, and the further pods of the goal that fit there once it has left."""

    gang: RunningGang
    freed: int


@value(kw_only=True)
class DefragQuestion:
    """All that a search for moves reads; see `defragment`."""

    topologies: Topologies
    goal: Goal
    running: Sequence[RunningGang]
    settings: DefragSettings

    def answer(self) -> DefragPlan | NoPlan:
        """Search, and return the plan, or why there is none."""
        return defragment(self.topologies, self.goal, self.running, self.settings)


def defragment(
    topologies: Topologies, goal: Goal, running: Sequence[RunningGang], settings: DefragSettings
) -> DefragPlan | NoPlan:
    """Return the cheapest moves after which the goal has room in one domain of its level, or why there are none.

    Equal inputs have equal answers: ties are broken by the number of moves, then by the path of the domain.  The free
    amounts of `topologies` are the same afterwards.  `running` are all workloads with domains, movable or not.
    """
    return _Search(topologies, goal, running, settings).answer()


class _Search:
    """One call of `defragment`."""

    def __init__(
        self, topologies: Topologies, goal: Goal, running: Sequence[RunningGang], settings: DefragSettings
    ) -> None:
        self._topologies, self._goal, self._settings = topologies, goal, settings
        self._tree = topologies[goal.flavor].tree
        self._before = self._pods().copy()  # counts are updated in place
        self._room = fragmentation(self._before, goal.pods)
        self._inside: dict[int, list[_Inside]] = {}
        for gang in sorted(running, key=lambda gang: gang.key):
            self._note(gang)
        self._cheapest: int | None = None
        """The cost of the cheapest moves that exceed a limit."""

    def answer(self) -> DefragPlan | NoPlan:
        """Return the plan."""
        if placed({self._goal.flavor: self._goal.requests}, self._topologies, self._goal.profile) is not None:
            return NoPlan(reason=NoPlanReason.FITS, before=self._room)
        if not self._may_help():
            return self._none(NoPlanReason.BLOCKED)
        best: tuple[int, int, Path, tuple[Move, ...]] | None = None
        for domain in self._closest_first():
            moves = self._moves(domain, best[0] if best is not None else None)
            if moves is not None:
                found = sum(move.gang.cost for move in moves), len(moves), self._path(domain), moves
                best = found if best is None or found[:3] < best[:3] else best
        if best is None:
            return self._none(NoPlanReason.BLOCKED if self._cheapest is None else NoPlanReason.BUDGET)
        cost, _, path, moves = best
        worth = self._goal.worth
        if worth is not None and worth * 1000 < self._settings.least_gain * cost:
            self._cheapest = cost
            return self._none(NoPlanReason.GAIN)
        with trial(self._topologies):
            for move in moves:
                release(move.gang.usage, self._topologies)
                charge(move.target.usage, self._topologies)
            after = fragmentation(self._pods(), self._goal.pods)
        return DefragPlan(domain=path, moves=moves, before=self._room, after=after)

    # --- room

    def _pods(self) -> Ints:
        """Return the pods of the goal's form that fit now, by domain of the level."""
        return pods_per_domain(self._topologies[self._goal.flavor].capacity, self._goal.largest.shape)[self._goal.level]

    def _note(self, gang: RunningGang) -> None:
        """Note in which domains a workload has room of the goal."""
        with trial(self._topologies):
            release(gang.usage, self._topologies)
            more = self._pods() - self._before
        for domain in np.flatnonzero(more).tolist():
            self._inside.setdefault(domain, []).append(_Inside(gang, int(more[domain])))
        for domain in self._domains_of(gang).difference(np.flatnonzero(more).tolist()):
            self._inside.setdefault(domain, []).append(_Inside(gang, 0))

    def _domains_of(self, gang: RunningGang) -> set[int]:
        """Return the domains of the level in which a workload has pods."""
        domain_of = self._tree.domain_of(self._goal.level)
        leaves = [self._tree.leaf_of(usage.values) for of_flavor in gang.usage.values() for usage in of_flavor]
        return {domain_of.item(leaf) for leaf in leaves if leaf is not None}

    def _movable(self, domain: int) -> list[_Inside]:
        return [one for one in self._inside.get(domain, ()) if not one.gang.immovable]

    def _missing(self, domain: int, gangs: Sequence[RunningGang] = ()) -> int:
        """Return the pods of the goal for which the domain has no room once these workloads have left."""
        if not gangs:
            return self._goal.pods - int(self._before[domain])
        with trial(self._topologies):
            for gang in gangs:
                release(gang.usage, self._topologies)
            return self._goal.pods - int(self._pods()[domain])

    def _may_help(self) -> bool:
        """Whether any arrangement of the movable workloads might have more room for such gangs."""
        movable = {one.gang.key: one.gang for domain in self._inside for one in self._movable(domain)}
        if not movable:
            return False
        if len(self._goal.requests) > 1:
            return True  # room is counted for one form of pod only
        with trial(self._topologies):
            for gang in movable.values():
                release(gang.usage, self._topologies)
            emptied = self._pods().copy()
        capacity = self._topologies[self._goal.flavor].capacity
        free = [
            int(row.clip(0).sum()) // amount if (row := capacity.row(resource)) is not None else 0
            for resource, amount in self._goal.largest.shape.requests
        ]
        return reachable_slots(emptied, min(free), self._goal.pods) > self._room.slots

    def _closest_first(self) -> Iterator[int]:
        """Yield the domains with workloads that may be moved, those that lack least first."""
        lacking = sorted((self._missing(domain), domain) for domain in self._inside if self._movable(domain))
        return (domain for _, domain in lacking[:_DOMAINS])

    def _path(self, domain: int) -> Path:
        return self._tree.path_of(self._goal.level, domain)

    # --- moves

    def _moves(self, domain: int, most: int | None) -> tuple[Move, ...] | None:
        """Return the cheapest moves that make room in a domain, cheaper than `most`; None: there are none."""
        found = [one for one in self._movable(domain) if self._moved(domain, [one.gang]) is not None]
        missing = max(1, self._missing(domain))
        sets = cheapest_covers([one.freed for one in found], [one.gang.cost for one in found], missing)
        everyone = tuple(range(len(found)))
        for chosen in sets if everyone in sets or not everyone else [*sets, everyone]:
            gangs = [found[number].gang for number in chosen]
            cost = sum(gang.cost for gang in gangs)
            if most is not None and cost > most:
                continue
            if not self._fits_without(domain, gangs):
                continue
            moves = self._moved(domain, gangs)
            if moves is None:
                continue
            if self._is_within(gangs):
                return moves
            self._cheapest = cost if self._cheapest is None else min(cost, self._cheapest)
        return None

    def _is_within(self, gangs: Sequence[RunningGang]) -> bool:
        limits = self._settings
        return (
            len(gangs) <= limits.moves
            and sum(gang.pods for gang in gangs) <= limits.pods
            and sum(gang.cost for gang in gangs) <= limits.pod_seconds
        )

    def _fits_without(self, domain: int, gangs: Sequence[RunningGang]) -> bool:
        """Whether the goal has room in a domain once these workloads have left."""
        if self._missing(domain, gangs) > 0 and len(self._goal.requests) == 1:
            return False
        within = GangDomains(levels=self._tree.levels, paths=(self._path(domain),))
        requests = [replace(request, within=within) for request in self._goal.requests]
        with trial(self._topologies):
            for gang in gangs:
                release(gang.usage, self._topologies)
            return placed({self._goal.flavor: requests}, self._topologies, self._goal.profile) is not None

    def _moved(self, domain: int, gangs: Sequence[RunningGang]) -> tuple[Move, ...] | None:
        """Return places outside of a domain for all these workloads, the largest first, on room that is free now."""
        moves: list[Move] = []
        with trial(self._topologies):
            close(self._goal.flavor, self._tree.leaves_of(self._goal.level, domain), self._topologies)
            for gang in sorted(gangs, key=lambda gang: (-gang.pods, gang.key)):
                target = relocated(gang, self._topologies)
                if target is None:
                    return None
                charge(target.usage, self._topologies)
                moves.append(Move(gang=gang, target=target))
        return tuple(moves)

    # --- no plan

    def _none(self, reason: NoPlanReason) -> NoPlan:
        """Return the domain that came closest, with the workloads that stay in it."""
        if not len(self._before):
            return NoPlan(reason=NoPlanReason.TOO_LARGE, before=self._room)
        closest: tuple[int, int] | None = None
        for domain in range(len(self._before)):
            able = [one.gang for one in self._movable(domain)]
            lacking = self._missing(domain, able), domain
            closest = lacking if closest is None or lacking < closest else closest
        assert closest is not None
        missing, domain = closest
        inside = sorted(self._inside.get(domain, ()), key=lambda one: (-one.freed, one.gang.key))
        blockers = [
            MoveBlocker(key=one.gang.key, pods=one.freed, reasons=one.gang.immovable or (_NO_ROOM,))
            for one in inside
            if one.gang.immovable or self._moved(domain, [one.gang]) is None
        ]
        if not blockers and reason is NoPlanReason.BLOCKED and missing > 0:
            reason = NoPlanReason.TOO_LARGE
        return NoPlan(
            reason=reason,
            before=self._room,
            domain=self._path(domain),
            missing=max(0, missing),
            blockers=tuple(blockers[:_BLOCKERS]),
            cheapest=self._cheapest,
        )
