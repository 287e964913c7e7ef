"""Repairs: room for a workload by other places for workloads of the same candidate.

Workloads that ran before the round never move.  A repair that fails leaves the world exactly as it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
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
_FEWEST_STEPS = 2
"""Steps of the smallest repair."""


def repack(world: World, candidate: Candidate, one: RankedWorkload, unit_of: Mapping[str, Unit]) -> bool:
    """Place the workload and all of the candidate in its flavors anew, the largest first; return whether all fit.

    Large workloads that need one domain leave the most room for each other when they are placed first.
    """
    for choice in world.choices(one.head):
        if not choice.requests:
            continue
        if world.steps_left < _FEWEST_STEPS or _is_hopeless(world, candidate, choice, repack):
            continue
        moved = list(candidate.in_flavors(frozenset(choice.requests)))
        if not moved or world.steps_left <= len(moved):
            continue
        world.steps_left -= len(moved) + 1
        ranks = {planned.head.uid: place for place, planned in enumerate(moved)}
        sizes = {planned.head.uid: units(planned.requests, unit_of) for planned in moved}
        sizes[one.head.uid], ranks[one.head.uid] = units(choice.requests, unit_of), len(moved)
        needs = {planned.head.uid: needs_one_domain(planned.requests) for planned in moved}
        needs[one.head.uid] = needs_one_domain(choice.requests)
        items: list[PlannedAdmission | Choice] = sorted(
            [*moved, choice], key=lambda i: (not needs[i.head.uid], -sizes[i.head.uid], ranks[i.head.uid])
        )
        with world.attempt() as attempt:
            for planned in moved:
                world.withdraw(planned)
            placed = place_all(world, items)
            if placed is None:
                _note_hopeless(candidate, choice, repack)
                continue
            attempt.keep()
        candidate.admitted.update({planned.head.uid: planned for planned in placed})
        candidate.hopeless.clear()
        return True
    return False


def _is_hopeless(world: World, candidate: Candidate, choice: Choice, repair: Hashable) -> bool:
    """Whether a repair is in vain: less is free than the pods request, or it has failed for fewer pods of the form."""
    form, count = _form(choice)
    if count >= candidate.hopeless.get((repair, form), count + 1):
        return True
    for flavor, requests in choice.requests.items():
        capacity = world.snapshot.topologies[flavor].capacity
        for resource in {resource for request in requests for resource, amount in request.requests.items() if amount}:
            row = capacity.row(resource)
            asked = sum(request.requests.get(resource, 0) * request.count for request in requests)
            if row is None or asked > int(row.clip(0).sum()):
                return True
    return False


def _note_hopeless(candidate: Candidate, choice: Choice, repair: Hashable) -> None:
    form, count = _form(choice)
    key = repair, form
    candidate.hopeless[key] = min(count, candidate.hopeless.get(key, count))


def _form(choice: Choice) -> tuple[Hashable, int]:
    """Return the form of a workload's pods, without their number, and the number; several pod sets are one form."""
    pod_sets = [(flavor, request) for flavor, requests in choice.requests.items() for request in requests]
    if len(pod_sets) == 1:
        ((flavor, request),) = pod_sets
        return (flavor, request.shape, request.topology, request.within), request.count
    return tuple([(flavor, r.shape, r.topology, r.within, r.group, r.count) for flavor, r in pod_sets]), 1


def place_all(world: World, items: Sequence[PlannedAdmission | Choice | Head]) -> list[PlannedAdmission] | None:
    """Place and charge workloads in this order: withdrawn ones, one with flavors, or any.

    None: one of them has no room, and those before it stay charged.
    """
    placed: list[PlannedAdmission] = []
    for item in items:
        match item:
            case PlannedAdmission():
                planned = world.again(item)
            case Choice():
                planned = world.by_policy(item) or world.place(item)
            case _:
                planned = world.find(item)
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
        if world.steps_left < _FEWEST_STEPS or _is_hopeless(world, candidate, choice, eject):
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
        _note_hopeless(candidate, choice, eject)
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
        others = place_all(world, leaving)
        if others is None:
            return False
        attempt.keep()
    candidate.admitted.update({planned.head.uid: planned for planned in (mine, *others)})
    candidate.hopeless.clear()
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
    domain_of, known = tree.domain_of(level), candidate.domains
    found: dict[int, list[PlannedAdmission]] = defaultdict(list)
    for planned in candidate.in_flavors(frozenset((flavor,))):
        key = id(planned), flavor, level
        if key not in known:
            leaves = (tree.leaf_of(usage.values) for usage in planned.domains[flavor])
            domains = {domain_of.item(leaf) for leaf in leaves if leaf is not None}
            known[key] = planned, domains.pop() if len(domains) == 1 else None
        domain = known[key][1]
        if domain is not None:
            found[domain].append(planned)
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
