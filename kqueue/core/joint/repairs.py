"""Repairs: room for a workload by other places for workloads of the same candidate.

Workloads that ran before the round never move.  A repair that fails leaves the world exactly as it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np

from kqueue.core.joint.batch import RankedWorkload
from kqueue.core.joint.candidate import Candidate
from kqueue.core.joint.units import Unit, units
from kqueue.core.joint.world import Choice, PlannedAdmission, World, needs_one_domain
from kqueue.core.topology.counting import pods_per_domain
from kqueue.core.topology.request import GangDomains, PodSetRequest
from kqueue.core.topology.tree import Tree
from kqueue.core.workload import Head

_DOMAINS = 16
"""Domains that `eject` tries."""
_SETS = 14
"""Sets of workloads that `eject` takes out of one domain."""


def repack(world: World, candidate: Candidate, one: RankedWorkload, unit_of: Mapping[str, Unit]) -> bool:
    """Place the workload and all of the candidate in its flavors anew, the largest first; return whether all fit.

    Large workloads that need one domain leave the most room for each other when they are placed first.
    """
    for choice in world.choices(one.head):
        if not choice.requests:
            continue
        moved = list(candidate.in_flavors(frozenset(choice.requests)))
        if not moved or world.steps_left <= len(moved):
            continue
        world.steps_left -= len(moved) + 1
        ranks = {planned.head.uid: place for place, planned in enumerate(moved)}
        heads = [planned.head for planned in moved]
        sizes = {planned.head.uid: units(planned.requests, unit_of) for planned in moved}
        sizes[one.head.uid], ranks[one.head.uid] = units(choice.requests, unit_of), len(moved)
        needs = {planned.head.uid: needs_one_domain(planned.requests) for planned in moved}
        needs[one.head.uid] = needs_one_domain(choice.requests)
        heads = sorted([*heads, one.head], key=lambda h: (not needs[h.uid], -sizes[h.uid], ranks[h.uid]))
        with world.attempt() as attempt:
            for planned in moved:
                world.withdraw(planned)
            placed = place_all(world, heads)
            if placed is None:
                continue
            attempt.keep()
        candidate.admitted.update({planned.head.uid: planned for planned in placed})
        return True
    return False


def place_all(world: World, heads: Sequence[Head]) -> list[PlannedAdmission] | None:
    """Place and charge workloads in this order; None: one of them has no room, and those before it stay charged."""
    placed: list[PlannedAdmission] = []
    for head in heads:
        planned = world.find(head)
        if planned is None:
            return None
        world.admit(planned)
        placed.append(planned)
    return placed


def eject(world: World, candidate: Candidate, one: RankedWorkload, unit_of: Mapping[str, Unit]) -> bool:
    """Place the workload in a domain out of which one or two workloads of the candidate move; return whether all fit.

    Only for workloads of one flavor that need one domain of a level.
    """
    for choice in world.choices(one.head):
        if len(choice.requests) != 1 or not needs_one_domain(choice.requests):
            continue
        ((flavor, requests),) = choice.requests.items()
        view = world.snapshot.topologies[flavor]
        level = _required_level(view.tree, requests)
        unit = unit_of.get(flavor)
        if level is None or unit is None:
            continue
        inside = _by_domain(candidate, flavor, view.tree, level)
        for domain, room in _roomiest(world, flavor, requests, level, unit):
            within = GangDomains(levels=view.tree.levels, paths=(view.tree.path_of(level, domain),))
            missing = unit.of(requests) - room
            for leaving in _leavers(inside.get(domain, ()), missing, unit_of):
                if world.steps_left < 1 + len(leaving):
                    return False
                world.steps_left -= 1 + len(leaving)
                if _exchanged(world, candidate, choice, within, leaving):
                    return True
    return False


def _exchanged(
    world: World, candidate: Candidate, choice: Choice, within: GangDomains, leaving: Sequence[PlannedAdmission]
) -> bool:
    """Place the workload within the domain in place of others, and these elsewhere; return whether all fit."""
    with world.attempt() as attempt:
        for planned in leaving:
            world.withdraw(planned)
        mine = world.place(choice, within=within)
        if mine is None:
            return False
        world.admit(mine)
        others = place_all(world, [planned.head for planned in leaving])
        if others is None:
            return False
        attempt.keep()
    candidate.admitted.update({planned.head.uid: planned for planned in (mine, *others)})
    return True


def _roomiest(
    world: World, flavor: str, requests: Sequence[PodSetRequest], level: int, unit: Unit
) -> Iterator[tuple[int, int]]:
    """Yield the domains with most room for pods of the largest pod set, and the units that fit; ties by path."""
    largest = max(requests, key=lambda request: (unit.of_pod(request) * request.count, request.count))
    capacity = world.snapshot.topologies[flavor].capacity
    pods = pods_per_domain(capacity, largest.shape)[level]
    for domain in np.argsort(-pods, kind="stable")[:_DOMAINS].tolist():
        yield domain, int(pods[domain]) * max(1, unit.of_pod(largest))


def _by_domain(candidate: Candidate, flavor: str, tree: Tree, level: int) -> dict[int, list[PlannedAdmission]]:
    """Return the workloads of the candidate that are in one domain of the level, by domain."""
    domain_of = tree.domain_of(level)
    found: dict[int, list[PlannedAdmission]] = defaultdict(list)
    for planned in candidate.in_flavors(frozenset((flavor,))):
        leaves = (tree.leaf_of(usage.values) for usage in planned.domains[flavor])
        domains = {domain_of.item(leaf) for leaf in leaves if leaf is not None}
        if len(domains) == 1:
            found[domains.pop()].append(planned)
    return found


def _leavers(
    inside: Sequence[PlannedAdmission], missing: int, unit_of: Mapping[str, Unit]
) -> list[tuple[PlannedAdmission, ...]]:
    """Return sets of one or two workloads that have the missing units, the smallest first."""
    sized = [(units(planned.requests, unit_of), planned) for planned in inside]
    sets = [
        (sum(size for size, _ in some), tuple([planned for _, planned in some]))
        for number in (1, 2)
        for some in combinations(sized, number)
    ]
    enough = [(size, some) for size, some in sets if size >= missing]
    return [some for _, some in sorted(enough, key=lambda item: item[0])[:_SETS]]


def _required_level(tree: Tree, requests: Sequence[PodSetRequest]) -> int | None:
    """Return the one level of which a domain must have all pods; None: the pod sets require none, or several."""
    levels = {request.topology.required for request in requests}
    label = levels.pop() if len(levels) == 1 else None
    return tree.levels.index(label) if label in tree.levels else None
