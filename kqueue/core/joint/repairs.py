"""Repairs: room for a workload by other places for workloads of the same candidate.

Workloads that ran before the round never move.  A repair that fails leaves the world exactly as it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np

from kqueue.core.joint.batch import RankedWorkload
from kqueue.core.joint.candidate import Candidate
from kqueue.core.joint.homes import with_most_at_home
from kqueue.core.joint.packing import packed
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
_SHARE_REPACKED, _SHARE_PACKED = 32, 8
"""The steps that are left for each workload that `repack` places anew, and for each domain that `pack` fills anew."""
_WIDTHS = 4, 8, 16, 32, 1024
"""Domains whose workloads `pack` arranges anew, one number after the other."""
_TRIES = 200
"""Domains that one search of `pack` fills."""
_TRIES_OF_STEP = 1
"""Domains that a search by numbers fills in about the time of a step."""


def find(world: World, candidate: Candidate, head: Head) -> PlannedAdmission | None:
    """Return what `World.find` returns; gangs of a form for which there was no room are not looked for again before a
    workload of the candidate moves.

    Until then room gets only less.  Slices are looked for each time: fewer pods may be no whole number of slices.
    """
    profile = world.snapshot.queues[head.queue].profile.with_algorithm(head.algorithm)
    for choice in world.choices(head):
        sliced = any(request.topology.slices for some in choice.requests.values() for request in some)
        search = find, profile
        if choice.requests and not sliced and _is_hopeless(world, candidate, choice, search):
            continue
        found = world.by_policy(choice) or world.place(choice)
        if found is not None:
            return found
        _note_hopeless(candidate, choice, search)
    return None


def repack(world: World, candidate: Candidate, one: RankedWorkload, unit_of: Mapping[str, Unit]) -> bool:
    """Place the workload and all of the candidate in its flavors anew, the largest first; return whether all fit.

    Large workloads that need one domain leave the most room for each other when they are placed first.
    """
    for choice in world.choices(one.head):
        if not choice.requests:
            continue
        if world.steps_left < _FEWEST_STEPS or _is_hopeless(world, candidate, choice, repack):
            continue
        most = world.steps_left // _SHARE_REPACKED
        flavors = frozenset(choice.requests)
        if candidate.hopeless.get((repack, flavors), 0) > most:
            continue
        moved = list(islice(candidate.in_flavors(flavors), most + 1))
        if not 0 < len(moved) <= most:
            candidate.hopeless[repack, flavors] = len(moved)  # no fewer before a workload moves
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
        for resource in {resource for request in requests for resource, amount in request.requests.items() if amount}:
            free = world.free(flavor, resource)
            asked = sum(request.requests.get(resource, 0) * request.count for request in requests)
            if free is None or asked > free:
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


def pack(world: World, candidate: Candidate, one: RankedWorkload, unit_of: Mapping[str, Unit]) -> bool:
    """Place the workload and those of the candidate in the domains with most free room anew, as an exact search by
    units says; return whether all fit.

    Only workloads of one flavor that need one domain of the same level move.
    """
    for choice in world.choices(one.head):
        if len(choice.requests) != 1 or not needs_one_domain(choice.requests):
            continue
        if world.steps_left < _FEWEST_STEPS or _is_hopeless(world, candidate, choice, pack):
            continue
        ((flavor, requests),) = choice.requests.items()
        tree = world.snapshot.topologies[flavor].tree
        level = _required_level(tree, requests)
        if level is None or flavor not in unit_of:
            continue
        key, size = (pack, flavor, level), unit_of[flavor].of(requests)
        if not size or size >= candidate.hopeless.get(key, size + 1):
            continue
        pool = _Pool.of(world, candidate, choice, level, unit_of)
        for width in _WIDTHS:
            if world.steps_left < max(_FEWEST_STEPS, _SHARE_PACKED * min(width, len(pool.free))):
                break
            if _packed_anew(world, candidate, pool, width):
                return True
            if width >= len(pool.free):
                break
        candidate.hopeless[key] = size
    return False


@dataclass(slots=True, kw_only=True)
class _Pool:
    """The domains whose workloads `pack` may move.

    Args:
        free: domain and free units, most units first.
        inside: by domain, the workloads that may move, and their units.
    """

    choice: Choice
    flavor: str
    level: int
    unit: Unit
    free: list[tuple[int, int]]
    inside: Mapping[int, Sequence[tuple[PlannedAdmission, int]]]
    size: int
    """The units of the new workload."""
    units_inside: Mapping[int, int]
    """By domain, the units that may move."""

    @classmethod
    def of(cls, world: World, candidate: Candidate, choice: Choice, level: int, unit_of: Mapping[str, Unit]) -> _Pool:
        """Return the domains of a level for a workload of one flavor."""
        ((flavor, requests),) = choice.requests.items()
        view, unit = world.snapshot.topologies[flavor], unit_of[flavor]
        inside = {
            domain: [
                (planned, size)
                for planned in some
                if len(planned.requests) == 1
                and _required_level(view.tree, planned.requests[flavor]) == level
                and (size := unit.of(planned.requests[flavor]))
            ]
            for domain, some in _by_domain(candidate, flavor, view.tree, level).items()
        }
        pods = {
            request.shape: unit.of_pod(request)
            for some in (requests, *(planned.requests[flavor] for group in inside.values() for planned, _ in group))
            for request in some
        }
        free = np.max([pods_per_domain(view.capacity, shape)[level] * size for shape, size in pods.items()], axis=0)
        order = np.argsort(-free, kind="stable").tolist()
        return cls(
            choice=choice,
            flavor=flavor,
            level=level,
            unit=unit,
            free=list(zip(order, free[order].tolist(), strict=True)),
            inside=inside,
            size=unit.of(requests),
            units_inside={domain: sum([size for _, size in some]) for domain, some in inside.items()},
        )

    def chosen(self, width: int) -> list[tuple[int, int]]:
        """Return so many domains with most free room, with their free units.

        One of four could have the new workload if all others left.
        """
        could = (one for one in self.free if one[1] + self.moving(one[0]) >= self.size)
        able = list(islice(could, max(1, width // 4)))
        known = {domain for domain, _ in able}
        others = (one for one in self.free if one[0] not in known)
        return [*able, *islice(others, max(0, width - len(able)))]

    def of_pod(self, one: PlannedAdmission | Choice) -> int:
        """Return the units of the largest pod."""
        return max([self.unit.of_pod(request) for request in one.requests[self.flavor]])

    def moving(self, domain: int) -> int:
        """Return the units that may move out of a domain."""
        return self.units_inside.get(domain, 0)


def _packed_anew(world: World, candidate: Candidate, pool: _Pool, width: int) -> bool:
    """Arrange the workloads of the domains with most free room anew, and the new one with them."""
    chosen = pool.chosen(width)
    movers = [
        (planned, size, number) for number, (d, _) in enumerate(chosen) for planned, size in pool.inside.get(d, ())
    ]
    rooms = [free + pool.moving(domain) for domain, free in chosen]
    sizes = [pool.size, *(size for _, size, _ in movers)]
    if sum(sizes) > sum(rooms):
        return False
    found = packed(sizes, rooms, most=_TRIES + len(rooms))
    world.steps_left -= 1 + found.tries // _TRIES_OF_STEP
    if found.places is None:
        return False
    tree = world.snapshot.topologies[pool.flavor].tree
    targets = with_most_at_home(sizes, found.places, [None, *(number for _, _, number in movers)], rooms)
    new, entering = targets[0], defaultdict[int, list[PlannedAdmission | Choice]](list)
    entering[new].append(pool.choice)
    staying, moved = defaultdict[int, list[PlannedAdmission]](list), dict[str, PlannedAdmission]()
    with world.attempt() as attempt:
        for (planned, _, number), target in zip(movers, targets[1:], strict=True):
            if target == number:
                staying[number].append(planned)
            else:
                world.withdraw(planned)
                entering[target].append(planned)
        for number, items in sorted(entering.items()):
            within = GangDomains(levels=tree.levels, paths=(tree.path_of(pool.level, chosen[number][0]),))
            placed = _placed_within(world, pool, items, within)
            if placed is None:  # hosts are used otherwise than the numbers say: all of the domain are placed anew
                for planned in staying[number]:
                    world.withdraw(planned)
                placed = _placed_within(world, pool, [*items, *staying[number]], within)
            if placed is None:
                return False
            moved.update({planned.head.uid: planned for planned in placed})
        attempt.keep()
    candidate.admitted.update(moved)
    candidate.hopeless.clear()
    return True


def _placed_within(
    world: World, pool: _Pool, items: Sequence[PlannedAdmission | Choice], within: GangDomains
) -> list[PlannedAdmission] | None:
    """Place and charge workloads in one domain, those with the largest pods first; None: one has no room, and all are
    withdrawn again.
    """
    placed: list[PlannedAdmission] = []
    world.steps_left -= len(items)
    with world.attempt() as attempt:
        for item in sorted(items, key=lambda one: -pool.of_pod(one)):
            planned = world.place(item, within=within) if isinstance(item, Choice) else world.again(item, within=within)
            if planned is None:
                return None
            world.admit(planned)
            placed.append(planned)
        attempt.keep()
    return placed


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
