"""The choice of domains: level, then domains, then the way down to the leaves.

The search runs in three steps.  *Count* what fits into every domain (`counting.py`).  *Choose the level*: the level
that was asked for, and for preferred requests each wider one in turn, until one domain holds everything; failing that,
several domains.  *Descend*: above the slice level the children of all chosen domains are one pool that is filled
greedily again; at and below it each domain keeps what it was given.  Balanced placement (`balanced.py`) takes the place
of the choice, where it is asked for and possible; each domain keeps what it was given then.

Ties are always decided by level values, so equal input gives equal output.  Source: KEP-2724.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from operator import itemgetter

import numpy as np

from kqueue.core.topology.assignment import Domain, TopologyAssignment
from kqueue.core.topology.balanced import balance
from kqueue.core.topology.capacity import Capacity
from kqueue.core.topology.counting import (
    NOWHERE,
    Closed,
    Tally,
    exclusions,
    largest_leaf,
    leaves_within,
    most_per_leaf,
    shortage,
    tally,
)
from kqueue.core.topology.elastic import Inheritance, Places, inherit, merged, places
from kqueue.core.topology.matching import rules_problem
from kqueue.core.topology.optimal import Arrangement, optimal
from kqueue.core.topology.request import DEFAULT_PROFILE, PodSetRequest, Profile, Resolved, resolve
from kqueue.core.topology.result import (
    DomainUsage,
    LayerFit,
    LevelQuality,
    Misfit,
    MisfitCode,
    Path,
    Placement,
    PodSetPlacement,
    usage_of,
)
from kqueue.core.topology.tree import Ints, Tree

_NEVER = np.iinfo(np.int64).max
_RADIX_MAX = np.iinfo(np.int16).max
_NO_LEADER = -1
_FEW = 64
"""Up to so many domains are filled without numpy, whose calls cost more than their work then."""
_HANDFUL = 12
"""Among so few domains the tightest is found faster by looking at one after the other."""
_MANY = 256
"""More domains than these are not put in order as long as there is another way."""
_room_of = itemgetter(0)
_domain_of = itemgetter(1)


@dataclass(frozen=True, slots=True)
class _Group:
    """Pod sets that share one domain: workers, and at most one leader pod."""

    name: str | None
    members: tuple[PodSetRequest, ...]
    """In request order."""
    workers: PodSetRequest
    """The pod set that was the larger one when all of its pods were there, the first of equals."""
    leader: PodSetRequest | None
    """The other one."""

    @classmethod
    def of(cls, name: str | None, members: Sequence[PodSetRequest]) -> _Group:
        """These pod sets as a group."""
        if len(members) == 1:
            return cls(name, tuple(members), members[0], None)
        workers = max(members, key=lambda member: member.count + member.ended)
        leader = next((member for member in members if member is not workers), None)
        return cls(name, tuple(members), workers, leader)


def place(
    capacity: Capacity,
    pod_sets: Sequence[PodSetRequest],
    *,
    profile: Profile = DEFAULT_PROFILE,
    empty: bool = False,
    explain: bool = True,
    measure: bool = False,
    within: Path | None = None,
    previous: Mapping[str, TopologyAssignment] | None = None,
    beside: Mapping[str, Collection[Path]] | None = None,
) -> Placement | Misfit:
    """Find domains for all pod sets of one workload in one flavor, or say why that is not possible.

    Args:
        capacity: what is free; unchanged afterwards.  The caller charges `usage_of` the result.
        pod_sets: in request order, which decides: later ones see what earlier ones took.
        empty: ask as if every workload placed by topology had left.
        explain: fill in the costlier facts of a Misfit (excluded leaves, best domain, shortage).
        measure: fill in `quality` of the placed pod sets.
        within: full path of the one domain that may be used, for a single pod set; None: all may.
        previous: per pod set, what the workload slice holds that this workload replaces; its pods stay where they are.
            `capacity` must be without them: what stays is charged here.
        beside: full paths of the domains that pods of the workload are in which are not placed here, by pod set.

    Returns:
        A Placement of every pod set with pods, in request order; or the Misfit of the first group that has no room.
    """
    space = capacity.empty() if empty else capacity
    groups = _groups(pod_sets)
    there = _Neighbours(space.tree, beside or {})
    if len(groups) == 1:
        only = _place_group(space, groups[0], profile, previous, there, explain=explain, measure=measure, within=within)
        if not isinstance(only, Misfit):
            return Placement(only if len(only) == 1 else _in_order(pod_sets, {found.name: found for found in only}))
        return _of_group(only, groups[0])
    placed: dict[str, PodSetPlacement] = {}
    with space.trial():
        for i, group in enumerate(groups):
            found = _place_group(space, group, profile, previous, there, explain=explain, measure=measure)
            if isinstance(found, Misfit):
                return replace(_of_group(found, group), placed=_in_order(pod_sets, placed))
            placed.update((pod_set.name, pod_set) for pod_set in found)
            there.add(found)
            if i + 1 < len(groups):
                space.charge(usage_of(Placement(found)))
    return Placement(_in_order(pod_sets, placed))


def place_workload(
    capacities: Mapping[str, Capacity],
    requests: Mapping[str, Sequence[PodSetRequest]],
    *,
    profile: Profile = DEFAULT_PROFILE,
    empty: bool = False,
    explain: bool = True,
    measure: bool = False,
    previous: Mapping[str, TopologyAssignment] | None = None,
) -> dict[str, Placement | Misfit]:
    """`place` for a workload whose pod sets use several flavors; the answer of each flavor under its name.

    Flavors are tried in name order.  Those with hostname topologies stand on the same hosts, so a later one sees what
    an earlier one took.  A failing flavor does not stop the others.
    """
    if len(requests) == 1:  # nobody takes hosts from anybody
        ((flavor, pod_sets),) = requests.items()
        space = capacities[flavor]
        found = place(
            space, pod_sets, profile=profile, empty=empty, explain=explain, measure=measure, previous=previous
        )
        return {flavor: found}
    results: dict[str, Placement | Misfit] = {}
    on_hosts: list[DomainUsage] = []
    there: dict[str, tuple[Path, ...]] = {}
    for flavor in sorted(requests):
        capacity = capacities[flavor]
        space = capacity.empty() if empty else capacity
        with space.trial():
            if space.tree.is_hostname:
                space.charge(on_hosts)
            found = place(
                space,
                requests[flavor],
                profile=profile,
                explain=explain,
                measure=measure,
                previous=previous,
                beside=there,
            )
        results[flavor] = found
        if space.tree.is_hostname:
            placed = Placement(found.placed) if isinstance(found, Misfit) else found
            on_hosts += usage_of(placed)
            there |= {pod_set.name: pod_set.paths for pod_set in placed.pod_sets}
    return results


def _in_order(pod_sets: Sequence[PodSetRequest], placed: Mapping[str, PodSetPlacement]) -> tuple[PodSetPlacement, ...]:
    return tuple(placed[pod_set.name] for pod_set in pod_sets if pod_set.name in placed)


def _groups(pod_sets: Sequence[PodSetRequest]) -> list[_Group]:
    """Groups in order of first appearance; pod sets without pods are in none."""
    if len(pod_sets) == 1:
        return [_Group.of(pod_sets[0].group, pod_sets)] if pod_sets[0].count > 0 else []
    members: dict[tuple[str | None, int], list[PodSetRequest]] = {}
    for i, pod_set in enumerate(pod_sets):
        if pod_set.count > 0:
            members.setdefault((pod_set.group, -1 if pod_set.group is not None else i), []).append(pod_set)
    return [_Group.of(name, group) for (name, _), group in members.items()]


def _of_group(misfit: Misfit, group: _Group) -> Misfit:
    """All members fail together, and the first is named, unless the template of a certain one is at fault."""
    at_fault = misfit.code in (MisfitCode.INVALID_NODE_SELECTOR, MisfitCode.INVALID_NODE_AFFINITY)
    return replace(misfit, pod_set=misfit.pod_set if at_fault else group.members[0].name, group=group.name)


def _group_problem(group: Sequence[PodSetRequest]) -> str | None:
    if len(group) == 1:
        return None
    if len(group) > 2:
        return f"a group has at most 2 pod sets, this one has {len(group)}"
    first, second = group
    if 1 not in (first.count, second.count):
        return f"one pod set of a group must have 1 pod, these have {first.count} and {second.count}"
    if (first.topology.required, first.topology.preferred) != (second.topology.required, second.topology.preferred):
        return f"{first.name} and {second.name} must ask for the same required or preferred level"
    return None


class _Neighbours:
    """Where the other pods of a workload are, as far as that keeps pods off hosts."""

    __slots__ = ("_paths", "_tree")

    def __init__(self, tree: Tree, paths: Mapping[str, Collection[Path]]) -> None:
        """`paths`: the domains of each pod set that has pods already."""
        self._tree = tree
        self._paths: dict[str, set[Path]] = {name: set(there) for name, there in paths.items()}

    def add(self, placed: Sequence[PodSetPlacement]) -> None:
        """These pod sets have found their domains."""
        for pod_set in placed:
            self._paths.setdefault(pod_set.name, set()).update(pod_set.paths)

    def closed(self, workers: PodSetRequest, leader: PodSetRequest | None) -> Closed:
        """The leaves that they keep workers or the leader off."""
        if not self._paths or not self._tree.is_hostname:
            return NOWHERE
        return Closed(self._kept_off(workers), NOWHERE.leader if leader is None else self._kept_off(leader))

    def _kept_off(self, pod_set: PodSetRequest) -> Ints:
        if not pod_set.apart:
            return NOWHERE.workers
        paths = (path for name in pod_set.apart for path in self._paths.get(name, ()))
        leaves = {leaf for path in paths if (leaf := self._tree.leaf_of(path[-1:])) is not None}
        return np.array(sorted(leaves), dtype=np.int64)


def _place_group(
    capacity: Capacity,
    group: _Group,
    profile: Profile,
    previous: Mapping[str, TopologyAssignment] | None,
    there: _Neighbours,
    *,
    explain: bool,
    measure: bool,
    within: Path | None = None,
) -> tuple[PodSetPlacement, ...] | Misfit:
    tree, workers, leader = capacity.tree, group.workers, group.leader
    invalid = _group_problem(group.members)
    if invalid:
        return Misfit(code=MisfitCode.INVALID_GROUP, pod_set=workers.name, topology=tree.topology, detail=invalid)
    kept = inherit(tree, previous, workers=workers, leader=leader) if previous else None
    if kept is not None:
        return _continue(capacity, workers, leader, kept, profile, there, explain=explain)
    return _find(capacity, workers, leader, profile, there, explain=explain, measure=measure, within=within)


def _continue(
    capacity: Capacity,
    workers: PodSetRequest,
    leader: PodSetRequest | None,
    kept: Inheritance,
    profile: Profile,
    there: _Neighbours,
    *,
    explain: bool,
) -> tuple[PodSetPlacement, ...] | Misfit:
    """Keep what is taken over, without asking whether it has room, and find domains for the rest beside it."""
    tree = capacity.tree
    stays = [_placed(tree, workers, kept.workers)]
    if leader is not None and kept.leader is not None:
        stays.append(_placed(tree, leader, kept.leader))
    if not kept.missing:
        return tuple(stays)
    with capacity.trial():
        capacity.charge(usage_of(Placement(tuple(stays))))
        new_leader = leader if kept.leader is None else None
        there.add(stays)
        found = _find(capacity, replace(workers, count=kept.missing), new_leader, profile, there, explain=explain)
    if isinstance(found, Misfit):
        return found
    added = places(tree, found[0].assignment)
    assert added is not None
    return _placed(tree, workers, merged(kept.workers, added)), *stays[1:], *found[1:]


def _placed(tree: Tree, pod_set: PodSetRequest, where: Places) -> PodSetPlacement:
    return _pod_set_placement(tree, pod_set, [leaf for leaf, _ in where], [pods for _, pods in where], ())


def _find(
    capacity: Capacity,
    workers: PodSetRequest,
    leader: PodSetRequest | None,
    profile: Profile,
    there: _Neighbours,
    *,
    explain: bool,
    measure: bool = False,
    within: Path | None = None,
) -> tuple[PodSetPlacement, ...] | Misfit:
    """One search: all of these pods, or the reason."""
    tree = capacity.tree
    resolved = resolve(workers, tree.levels, profile)
    if isinstance(resolved, Misfit):
        return replace(resolved, topology=tree.topology)
    for member in (workers, leader) if leader is not None else (workers,):
        problem = rules_problem(member.rules, is_hostname=tree.is_hostname, preferred=profile.preferred_affinity)
        if problem:
            return Misfit(code=problem[0], pod_set=member.name, topology=tree.topology, detail=problem[1])
    inside = leaves_within(tree, within) if within is not None else None
    closed = there.closed(workers, leader)
    counts = tally(
        capacity, workers, leader, resolved, affinity=profile.preferred_affinity, within=inside, closed=closed
    )
    search = _Search(tree, counts, resolved, leaders=0 if leader is None else 1)
    chosen = search.run()
    if isinstance(chosen, Misfit):
        return _explained(chosen, capacity, workers, leader, search, inside, closed.workers) if explain else chosen
    leaves, pods, leader_leaf = chosen
    proven = None
    if resolved.optimal:
        (leaves, pods, leader_leaf), proven = optimal(
            tree,
            counts,
            resolved,
            leader=leader is not None,
            limit=profile.search_limit,
            incumbent=Arrangement(*chosen),
        )
    quality = quality_of(tree, counts, resolved, leaves, leader_leaf) if measure else ()
    if workers.surplus:
        leaves, pods = _trimmed(leaves, pods, workers.surplus)
    found = _pod_set_placement(tree, workers, leaves, pods, quality, proven)
    if leader is None:
        return (found,)
    return found, _pod_set_placement(tree, leader, [leader_leaf], [1], quality, proven)


def _trimmed(leaves: Sequence[int], pods: Sequence[int], surplus: int) -> tuple[list[int], list[int]]:
    """Whole slices (leaves in path order, pods of each) without `surplus` pods, which are less than a slice.

    They are taken off the end: so all come off one domain of the slice level, no other slice becomes incomplete, and of
    each inner layer only one group.
    """
    kept = list(zip(leaves, pods, strict=True))
    while surplus:
        leaf, there = kept.pop()
        if there > surplus:
            kept.append((leaf, there - surplus))
        surplus -= min(there, surplus)
    return [leaf for leaf, _ in kept], [there for _, there in kept]


def _pod_set_placement(
    tree: Tree,
    pod_set: PodSetRequest,
    leaves: Sequence[int],
    pods: Sequence[int],
    quality: tuple[LevelQuality, ...],
    proven: bool | None = None,
) -> PodSetPlacement:
    paths = [tree.paths[leaf] for leaf in leaves]
    written = [path[-1:] for path in paths] if tree.is_hostname else paths
    return PodSetPlacement(
        name=pod_set.name,
        assignment=TopologyAssignment(tree.written_levels, tuple(map(Domain, written, pods))),
        paths=tuple(paths),
        requests=pod_set.requests,
        quality=quality,
        proven=proven,
    )


def _explained(
    misfit: Misfit,
    capacity: Capacity,
    workers: PodSetRequest,
    leader: PodSetRequest | None,
    search: _Search,
    inside: slice | None,
    closed: Ints,
) -> Misfit:
    """The misfit with the facts that cost another look at the leaves."""
    tree = capacity.tree
    alone = most_per_leaf(tree, workers.shape) == 1
    excluded = exclusions(capacity, workers.shape, inside, closed)
    facts = partial(
        replace,
        misfit,
        topology=tree.topology,
        leaves=len(tree),
        excluded=excluded,
        alone=alone,
        one_pod=largest_leaf(capacity, workers.shape, excluded),
        selector=",".join(f"{key}={value}" for key, value in workers.rules.selector) if excluded.node_selector else "",
    )
    level, best = search.last_level, None if misfit.spread else search.best_domain()
    if best is None and not misfit.spread:
        return facts(layers=search.layers())
    leaves = _both(slice(0, len(tree)) if best is None else tree.leaves_of(level, best), inside)
    demand = [(workers.shape, workers.count), *([(leader.shape, 1)] if leader is not None else [])]
    limited = leader if misfit.leader and leader is not None else workers
    short = shortage(capacity, limited.shape, demand, leaves)
    return facts(
        layers=search.layers(),
        best_domain=None if best is None else tree.path_of(level, best),
        shortage=None if alone and short is not None and short.asked <= short.free else short,
    )


def _both(leaves: slice, inside: slice | None) -> slice:
    """The leaves that lie in both."""
    if inside is None:
        return leaves
    start = max(leaves.start, inside.start)
    return slice(start, max(start, min(leaves.stop, inside.stop)))


def quality_of(
    tree: Tree, counts: Tally, resolved: Resolved, leaves: Sequence[int], leader_leaf: int
) -> tuple[LevelQuality, ...]:
    """Domains used per level, against the fewest whose capacities sum to the need."""
    used_leaves = sorted({*leaves, *([leader_leaf] if leader_leaf != _NO_LEADER else [])})
    if len(used_leaves) == 1:
        return _one_of_each(tree.levels)
    result = []
    for level, label in enumerate(tree.levels):
        in_slices = level <= resolved.slice_level
        room = counts.slices[level] if in_slices else counts.pods[level]
        need = resolved.need if in_slices else resolved.need * resolved.slice_size
        used = len(set(tree.domain_of(level)[used_leaves].tolist()))
        result.append(LevelQuality(label, used, _fewest(room, need) if used > 1 else 1))
    return tuple(result)


@lru_cache(maxsize=256)
def _one_of_each(levels: tuple[str, ...]) -> tuple[LevelQuality, ...]:
    """The quality of what is on one leaf."""
    return tuple(LevelQuality(level, 1, 1) for level in levels)


def _fewest(room: Ints, need: int) -> int:
    """The smallest number of domains whose rooms sum to the need."""
    largest = int(np.maximum.reduce(room))
    if largest > 0:
        at_least = -(-need // largest)
        if at_least == 1 or np.count_nonzero(room == largest) >= at_least:
            return at_least  # so it is in most clusters, and nothing has to be sorted
    return int(np.sort(room)[::-1].cumsum().searchsorted(need)) + 1


def _tightest(room: Ints, need: int) -> int | None:
    """The smallest room that holds the need (> 0), the first of equals; None when none does."""
    if len(room) > _HANDFUL:
        spare = room - need
        best = int(spare.view(np.uint64).argmin())  # read without sign, those that are too small are the largest
        return best if spare.item(best) >= 0 else None
    tightest, least = None, _NEVER
    for i, free in enumerate(room.tolist()):
        if need <= free < least:
            tightest, least = i, free
    return tightest


def _take_few(
    pairs: Sequence[tuple[int, int]], need: int, *, ascending: bool, sort: bool
) -> list[tuple[int, int]] | None:
    """`_Search._fill` for so few (room, domain) that plain Python is faster: (units, domain) as they are taken.

    `ascending`: those with the smallest room come first, and nothing is saved by a best fit.
    """
    able = [pair for pair in pairs if pair[0] > 0]
    if sort:
        able.sort(key=_room_of, reverse=not ascending)  # stable: equals stay in order
    left, taken = need, 0
    for room, _ in able:
        if room >= left:
            break
        left -= room
        taken += 1
    else:
        return None
    last = able[taken]
    if not ascending:
        for pair in able[taken + 1 :]:
            if left <= pair[0] < last[0]:
                last = pair
    return [*able[:taken], (left, last[1])]


@dataclass(slots=True)
class _Chosen:
    """Domains of one level in the order they were taken, what each got, and the one with the leader."""

    domains: Ints
    pods: Ints
    leader: int = _NO_LEADER


class _Search:
    """One search over one tally."""

    def __init__(self, tree: Tree, counts: Tally, resolved: Resolved, *, leaders: int) -> None:
        self._tree = tree
        self._counts = counts
        self._request = resolved
        self._leaders = leaders
        self._plain = leaders == 0 and counts.affinity is None
        self.last_level = resolved.level
        self._groups: tuple[int, int, Ints, Ints] | None = None

    def run(self) -> tuple[list[int], list[int], int] | Misfit:
        """Leaves in path order, pods of each, and the leader's leaf (-1 without a leader)."""
        chosen = self._balanced() if self._request.balanced else None
        if chosen is None:
            found = self._find_level(self._request.level)
            if isinstance(found, Misfit):
                return found
            if isinstance(found, int):
                inside = self._fill_one(found) if self._plain and not self._request.layered else None
                if inside is not None:
                    return [d for _, d in inside], [pods for pods, _ in inside], _NO_LEADER
                found = np.array([found], dtype=np.int64)
            chosen = self._descend(found)
        if chosen is None:
            return self._misfit(MisfitCode.INTERNAL_INCONSISTENCY, detail="the chosen domains ran out on the way down")
        used = np.flatnonzero(chosen.pods)
        used = used[chosen.domains[used].argsort()]
        return chosen.domains[used].tolist(), chosen.pods[used].tolist(), chosen.leader

    def _balanced(self) -> _Chosen | None:
        """The leaves of a balanced placement; None when there is none, or they ran out on the way down."""
        found = balance(self._tree, self._counts, self._request, leaders=self._leaders)
        if found is None:
            return None
        below = _Search(self._tree, found.counts, self._request, leaders=self._leaders)
        return below._split_down(found.level, _Chosen(found.domains, found.pods, found.leader))

    # -- which level ---------------------------------------------------------------------------------------------------

    def _find_level(self, level: int) -> int | Ints | Misfit:
        """The domain that takes the pod set, or the domains, of `level` or a wider one (`last_level`)."""
        request = self._request
        while True:
            self.last_level = level
            if self._tree.domains(level) == 0:
                return self._misfit(MisfitCode.NO_DOMAINS_AT_LEVEL)
            found = self._one_domain(level)
            if found is not None:
                return found
            if request.required or level == request.widest:
                return self._no_domain(level)
            if level == 0 or request.unconstrained:
                return self._spread(level)
            level -= 1

    def _no_domain(self, level: int) -> Misfit:
        best, leaders = self.best_domain(), self._counts.leaders
        assert best is not None
        fit = int(self._counts.slices[level][best])
        left_over = fit >= self._request.need or (leaders is not None and not leaders[level][best])
        return self._misfit(MisfitCode.NO_FIT, fit=fit, leader=left_over)

    def _one_domain(self, level: int) -> int | None:
        """The domain of this level to hold everything; None when none can."""
        if self._plain:
            return self._tightest_domain(level)
        counts, need, wanted = self._counts, self._request.need, self._leaders
        order = self._order(level, self._all(level), led=True)
        fits = counts.slices_led[level][order] >= need
        if counts.leaders is not None:
            fits &= counts.leaders[level][order] >= wanted
        places = np.flatnonzero(fits)
        if not len(places):
            return None
        first = int(places[0])
        if self._request.least:
            return int(order[first])
        if first and not (self._request.required and counts.affinity is not None):
            return None  # only with preferred affinity may the best-scored domain be too small for a required request
        return self._best_fit(level, order[first:], counts.slices_led[level], need, wanted)

    def _tightest_domain(self, level: int) -> int | None:
        """Without leader and affinity: the smallest that fits, then the one with fewest pods, then the first."""
        slices, need = self._counts.slices[level], self._request.need
        if len(slices) > _MANY and slices.max() < need:
            return None  # to look costs less than to subtract
        best = _tightest(slices, need)
        if best is None or self._counts.uniform:
            return best
        return self._fewest_pods(level, slice(0, len(slices)), best)

    def _fewest_pods(self, level: int, inside: slice, best: int) -> int:
        """The first with fewest pods among the domains that hold as many slices as the best one.

        Domains are those of `inside`, numbered from its first.
        """
        slices, pods = self._counts.slices[level], self._counts.pods[level]
        if slices is pods or inside.stop - inside.start == 1:
            return best
        rooms = slices[inside]
        (alike,) = (rooms == rooms[best]).nonzero()
        return best if len(alike) == 1 else int(alike[pods[inside][alike].argmin()])

    def best_domain(self) -> int | None:
        """The domain of the last level that came closest, the one that is considered first; None when there are none.

        That has the most slices, the first of equals; where a leader or affinity come before capacity, the most among
        those that they prefer.
        """
        slices = self._counts.slices[self.last_level]
        if not len(slices):
            return None
        if self._plain or self._request.least:
            return int(slices.argmax())
        return int(self._order(self.last_level, self._all(self.last_level), led=True)[0])

    def _spread(self, level: int) -> Ints | Misfit:
        """Several domains of this level, in the order in which they are to be filled."""
        counts, request = self._counts, self._request
        left, leaders_left = request.need, self._leaders
        chosen: list[int] = []
        rest = self._all(level)
        if leaders_left:
            assert counts.leaders is not None
            led, leaders = counts.slices_led[level], counts.leaders[level]
            order = self._order(level, rest, led=True)
            order = self._leader_first(level, order, in_slices=True, wanted=request.need)
            i = 0
            while leaders_left > 0 and i < len(order) and leaders[order[i]] > 0:
                domain = int(order[i])
                if not request.least and led[domain] >= left:
                    domain = self._best_fit(level, order[i:], led, left, leaders_left)
                chosen.append(domain)
                leaders_left -= int(leaders[domain])
                left -= int(led[domain])
                i += 1
            if leaders_left > 0:
                return self._misfit(MisfitCode.NO_FIT, fit=0, spread=True, leader=True)
            rest = np.sort(order[i:])
        if left > 0:
            more = self._fill(level, rest, counts.slices[level], left, sort=True)
            if more is None:
                fit = request.need - left + int(counts.slices[level][rest].sum())
                return self._misfit(MisfitCode.NO_FIT, fit=fit, spread=True)
            chosen += more.domains.tolist()
        return np.array(chosen, dtype=np.int64)

    # -- the way down --------------------------------------------------------------------------------------------------

    def _descend(self, domains: Ints) -> _Chosen | None:
        """From domains of `last_level` to leaves; None when they hold less than was counted."""
        tree, request, level = self._tree, self._request, self.last_level
        current = self._minimise(level, domains, request.need, self._leaders, in_slices=True)
        while current is not None and level < request.slice_level:
            pool = tree.children(level, current.domains)
            level += 1
            current = self._minimise(level, pool, request.need, self._leaders, in_slices=True, sort=True)
        return None if current is None else self._split_down(level, current)

    def _fill_one(self, domain: int) -> list[tuple[int, int]] | None:
        """`_descend` from one domain that holds everything, without leader, affinity and inner layers.

        Returns (pods, leaf), ascending by leaf; None: somewhere on the way down are too many domains to do it without
        numpy.
        """
        request = self._request
        taken = [(request.need, domain)]
        for level in range(self.last_level, request.slice_level):
            parents = [parent for _, parent in taken]
            parents.sort()
            pool = self._fill_children(level, parents, request.need, in_slices=True)
            if pool is None:
                return None
            taken = pool
        if request.slice_size != 1:
            taken = [(slices * request.slice_size, parent) for slices, parent in taken]
        for level in range(request.slice_level, self._tree.lowest):
            shares = [self._fill_children(level, [parent], pods, in_slices=False) for pods, parent in taken]
            taken = []
            for share in shares:
                if share is None:
                    return None
                taken += share
        return sorted(taken, key=_domain_of) if len(taken) > 1 else taken

    def _fill_children(
        self, level: int, parents: Sequence[int], need: int, *, in_slices: bool
    ) -> list[tuple[int, int]] | None:
        """`_minimise` with `sort` for the children of these domains (ascending) of `level`: (units, child) as taken.

        None: they are too many to do it without numpy, or not enough.
        """
        starts, counts = self._tree.first_child[level], self._counts
        room, pods = (counts.slices if in_slices else counts.pods)[level + 1], counts.pods[level + 1]
        ascending = self._request.least or not in_slices  # below slices, those with fewest pods come first
        pairs: list[tuple[int, int]] = []
        for parent in parents:
            first = starts.item(parent)
            end = starts.item(parent + 1) if parent + 1 < len(starts) else len(room)
            if len(parents) == 1:
                rooms = room[first:end]
                one = _tightest(rooms, 1 if ascending else need)
                if one is not None and rooms.item(one) >= need:
                    if room is not pods:
                        one = self._fewest_pods(level + 1, slice(first, end), one)
                    return [(need, first + one)]
            if len(pairs) + end - first > _FEW:
                return None
            pairs += zip(room[first:end].tolist(), range(first, end), strict=True)
        if room is not pods:
            pairs.sort(key=lambda pair: pods.item(pair[1]))
        return _take_few(pairs, need, ascending=ascending, sort=True)

    def _split_down(self, level: int, chosen: _Chosen) -> _Chosen | None:
        """Every domain of `level` shares out its pods below, down to the leaves; None when they hold less."""
        current: _Chosen | None = chosen
        while current is not None and level < self._tree.lowest:
            current = self._split(level, current)
            level += 1
        return current

    def _split(self, level: int, parents: _Chosen) -> _Chosen | None:
        """Give each parent's pods to its own children."""
        domains, pods, leader = [], [], _NO_LEADER
        request = self._request
        size = request.slice_size if level < request.slice_level else request.inner_sizes[level + 1] or 1
        for parent, count in zip(parents.domains.tolist(), parents.pods.tolist(), strict=True):
            leads = int(parent == parents.leader)
            if count == 0 and not leads:
                continue
            children = self._tree.children(level, np.array([parent], dtype=np.int64))
            part = self._minimise(level + 1, children, count // size, leads, inner_size=size, sort=True)
            if part is None:
                return None
            domains.append(part.domains)
            pods.append(part.pods)
            leader = part.leader if leads else leader
        return _Chosen(np.concatenate(domains), np.concatenate(pods), leader)

    def _minimise(
        self,
        level: int,
        domains: Ints,
        need: int,
        leaders: int,
        *,
        in_slices: bool = False,
        inner_size: int = 1,
        sort: bool = False,
    ) -> _Chosen | None:
        """Fill these domains in their order with `need` units, ending on the tightest that holds the rest.

        Units are slices of the request, or groups of `inner_size` pods.  With `sort`, the domains (ascending) are
        ordered first.  None: they do not hold `need`, or the leader.
        """
        counts = self._counts
        if in_slices:
            plain, led, size = counts.slices[level], counts.slices_led[level], self._request.slice_size
        elif inner_size > 1:
            plain, led = self._groups_of(level, inner_size)
            size = inner_size
        else:
            plain, led, size = counts.pods[level], counts.pods_led[level], 1
        if not leaders:
            taken = self._fill(level, domains, plain, need, sort=sort)
            if taken is None or size == 1:
                return taken
            return _Chosen(taken.domains, taken.pods * size)
        order = self._order(level, domains) if sort else domains
        order = self._leader_first(level, order, plain=plain, led=led, wanted=need)
        return self._fill_with_leader(level, order, plain, led, need, size)

    def _groups_of(self, level: int, size: int) -> tuple[Ints, Ints]:
        """Groups of so many pods that fit into each domain of a level, alone and beside the leader.

        They are worked out once for all parents whose pods are split.
        """
        if self._groups is None or self._groups[:2] != (level, size):
            pods, led = self._counts.pods[level], self._counts.pods_led[level]
            plain = pods // size
            self._groups = level, size, plain, plain if led is pods else led // size
        return self._groups[2:]

    def _fill_with_leader(
        self, level: int, order: Ints, plain: Ints, led: Ints, need: int, size: int
    ) -> _Chosen | None:
        assert self._counts.leaders is not None
        can_lead, left = self._counts.leaders[level], need
        domains: list[int] = []
        units: list[int] = []
        for i in range(len(order)):
            domain = int(order[i])
            if not self._request.least and led[domain] >= left and can_lead[domain]:
                domain = self._best_fit(level, order[i:], led, left, 1)
            domains.append(domain)
            units.append(min(int(led[domain]), left))
            left -= units[-1]
            if not can_lead[domain]:
                continue
            if left == 0:
                return _Chosen(np.array(domains), np.array(units) * size, domain)
            rest = self._fill(level, order[i + 1 :], plain, left)
            if rest is None:
                return None
            return _Chosen(np.concatenate([domains, rest.domains]), np.concatenate([units, rest.pods]) * size, domain)
        return None

    def _fill(self, level: int, domains: Ints, room: Ints, need: int, *, sort: bool = False) -> _Chosen | None:
        """Take domains in order until `need` (> 0) units have room, the last one by best fit; None: not enough.

        `pods` of the result are units.  Domains without room are passed over: they could only take nothing (while a
        leader is around they stay, because one of their children may carry it).
        """
        if len(domains) <= _FEW and self._plain and self._counts.uniform:
            pairs = list(zip(room[domains].tolist(), domains.tolist(), strict=True))
            few = _take_few(pairs, need, ascending=self._request.least, sort=sort)
            if few is None:
                return None
            return _Chosen(np.array([d for _, d in few]), np.array([units for units, _ in few]))
        if sort and len(domains) > _MANY and self._plain and self._counts.uniform:
            equal = self._fill_equal(domains, room, need)
            if equal is not None:
                return equal
        able = domains if self._leaders else domains[room[domains] > 0]
        order = self._order(level, able) if sort else able
        rooms = room[order]
        sums = rooms.cumsum()
        last = int(sums.searchsorted(need))
        if last == len(order):
            return None
        left = need - (int(sums[last - 1]) if last else 0)
        final = last
        if not self._request.least:
            tail = rooms[last : last + self._equal_affinity(level, order[last:])]
            final = last + int(np.where(tail >= left, tail, _NEVER).argmin())
        taken, units = order[: last + 1].copy(), rooms[: last + 1].copy()
        taken[last], units[last] = order[final], left
        return _Chosen(taken, units)

    def _fill_equal(self, domains: Ints, room: Ints, need: int) -> _Chosen | None:
        """`_fill` with `sort` where those that come first, all of the same room, are enough; None: they are not."""
        rooms = room if len(domains) == len(room) else room[domains]
        value = int(rooms.min() if self._request.least else rooms.max())
        if not value and self._request.least:
            value = int(np.where(rooms > 0, rooms, _NEVER).min())
        if not value or value == _NEVER:
            return None
        whole, left = divmod(need - 1, value)
        left += 1
        alike = rooms == value
        first = np.flatnonzero(alike[: _MANY * (whole + 1)])  # most often they are among these
        if len(first) <= whole:
            first = np.flatnonzero(alike)
        if len(first) <= whole:
            return None
        taken = domains[first[: whole + 1]]
        units = np.full(whole + 1, value, dtype=np.int64)
        units[-1] = left
        if left < value and not self._request.least:
            tight = np.where((rooms >= left) & (rooms < value), rooms, _NEVER)
            best = int(tight.argmin())
            if tight[best] != _NEVER:
                taken[-1] = domains[best]
        return _Chosen(taken, units)

    # -- orders --------------------------------------------------------------------------------------------------------

    def _all(self, level: int) -> Ints:
        return np.arange(self._tree.domains(level), dtype=np.int64)

    def _order(self, level: int, domains: Ints, *, led: bool = False) -> Ints:
        """These domains (ascending) in the order in which they are considered.

        Preferred affinity first where it counts; then most slices (fewest in least mode); then fewest pods; then level
        values.  `led`: by capacity beside the leader, and domains that can carry it before all others.
        """
        counts = self._counts
        slices = (counts.slices_led if led else counts.slices)[level][domains]
        if not self._request.least:
            slices = -slices
        if counts.uniform and self._plain:
            if len(slices) > _MANY and slices.min() >= -_RADIX_MAX and slices.max() <= _RADIX_MAX:
                return domains[slices.astype(np.int16).argsort(kind="stable")]  # numpy sorts these by radix
            return domains[slices.argsort(kind="stable")]
        keys = [(counts.pods_led if led else counts.pods)[level][domains], slices]
        if counts.affinity is not None:
            keys.append(-counts.affinity[level][domains])
        if led and counts.leaders is not None:
            keys.append(-counts.leaders[level][domains])
        return domains[np.lexsort(keys)]

    def _best_fit(self, level: int, order: Ints, room: Ints, need: int, leaders: int) -> int:
        """The first of the smallest rooms >= need among the leading run of equal affinity; failing that the first."""
        head = order[: self._equal_affinity(level, order)]
        rooms = room[head]
        fits = rooms >= need
        if leaders and self._counts.leaders is not None:
            fits &= self._counts.leaders[level][head] >= leaders
        candidates = np.where(fits, rooms, _NEVER)
        best = int(candidates.argmin())
        return int(head[best] if candidates[best] != _NEVER else head[0])

    def _equal_affinity(self, level: int, order: Ints) -> int:
        """Length of the leading run of equal affinity."""
        if self._counts.affinity is None or not len(order):
            return len(order)
        scores = self._counts.affinity[level][order]
        others = np.flatnonzero(scores != scores[0])
        return int(others[0]) if len(others) else len(order)

    def _leader_first(
        self,
        level: int,
        order: Ints,
        *,
        wanted: int,
        plain: Ints | None = None,
        led: Ints | None = None,
        in_slices: bool = False,
    ) -> Ints:
        """The first domain that can carry the leader and leave enough for the workers moves to the front."""
        counts = self._counts
        if in_slices:
            plain, led = counts.slices[level], counts.slices_led[level]
        assert plain is not None
        assert led is not None
        assert counts.leaders is not None
        if len(order) < 2:
            return order
        available = int(plain[order].sum())
        suits = (counts.leaders[level][order] >= 1) & (available - (plain - led)[order] >= wanted)
        places = np.flatnonzero(suits)
        if not len(places) or places[0] == 0:
            return order
        first = int(places[0])
        return np.concatenate([order[first : first + 1], order[:first], order[first + 1 :]])

    # -- why not -------------------------------------------------------------------------------------------------------

    def _misfit(
        self, code: MisfitCode, *, fit: int = 0, spread: bool = False, leader: bool = False, detail: str = ""
    ) -> Misfit:
        request = self._request
        return Misfit(
            code=code,
            pod_set="",
            topology=self._tree.topology,
            level=self._tree.levels[self.last_level],
            count=request.count,
            size=request.slice_size,
            unit="pod" if request.slice_size == 1 else "slice",
            fit=fit,
            total=request.need,
            spread=spread,
            leader=leader,
            detail=detail,
        )

    def layers(self) -> tuple[LayerFit, ...]:
        """What each slice layer would find in the domain with most slices; empty unless there are several layers."""
        slices = self._counts.slices[self.last_level]
        if not self._request.layered or not len(slices):
            return ()
        inside = self._tree.leaves_of(self.last_level, int(slices.argmax()))
        result = []
        for level, size in self._request.layers:
            below = np.unique(self._tree.domain_of(level)[inside])
            fit = int((self._counts.pods[level][below] // size).sum())
            result.append(LayerFit(self._tree.levels[level], fit, self._request.count // size))
        return tuple(result)
