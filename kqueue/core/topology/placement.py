"""Domains for all pod sets of a workload, or the reason why there are none.

Pod sets are placed group by group.  For each group, *count* the pods that fit into every domain (`counting.py`), and
*search* (`search.py`) for domains.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from kqueue.core.assignment import Domain, TopologyAssignment
from kqueue.core.topology.arranged import Hint, hinted
from kqueue.core.topology.capacity import Capacity
from kqueue.core.topology.counting import exclusions, largest_leaf, most_per_leaf, shortage, tally
from kqueue.core.topology.elastic import Inheritance, Places, inherit, merged, places
from kqueue.core.topology.groups import Group, groups_of, in_order, of_group, problem_of
from kqueue.core.topology.matching import rules_problem
from kqueue.core.topology.neighbours import NeighbourHosts
from kqueue.core.topology.placers import FoundPlacement, Question, answer
from kqueue.core.topology.quality import quality_of
from kqueue.core.topology.request import DEFAULT_PROFILE, PodSetRequest, Profile, resolve
from kqueue.core.topology.result import (
    DomainUsage,
    LevelQuality,
    Misfit,
    MisfitCode,
    Path,
    Placement,
    PodSetPlacement,
    usage_of,
)
from kqueue.core.topology.search import PlacementSearch
from kqueue.core.topology.together import kin_of, place_kin
from kqueue.core.topology.tree import Ints, Tree

_QUICK = 10
"""Searches without an explanation, of which a search for victims makes many, get this part of the steps."""


def place(
    capacity: Capacity,
    pod_sets: Sequence[PodSetRequest],
    *,
    profile: Profile = DEFAULT_PROFILE,
    empty: bool = False,
    explain: bool = True,
    measure: bool = False,
    previous: Mapping[str, TopologyAssignment] | None = None,
    beside: Mapping[str, Collection[Path]] | None = None,
    hint: Hint | None = None,
) -> Placement | Misfit:
    """Find domains for all pod sets of one workload in one flavor, or return why that is not possible.

    Args:
        capacity: the free capacity; unchanged afterwards. The caller charges `usage_of` the result.
        pod_sets: in request order: later pod sets see the capacity left by earlier ones.
        empty: search as if every workload placed by topology had ended.
        explain: fill in the costlier facts of a Misfit (excluded leaves, best domain, shortage).
        measure: fill in `quality` of the placed pod sets.
        previous: per pod set, the assignment of the workload slice that this workload replaces; its pods keep their
            places. `capacity` must not have them charged: `place` charges the places that stay.
        beside: by pod set, full paths of the domains of the workload's pods that are not placed here.
        hint: places to use if they have room; None: search.

    Returns:
        A Placement of every pod set with pods, in request order; or the Misfit of the first group that has no room.
    """
    space = capacity.empty() if empty else capacity
    groups = groups_of(pod_sets)
    there = NeighbourHosts(space.tree, beside or {})
    if len(groups) == 1:
        only = _place_group(space, groups[0], profile, previous, there, explain=explain, measure=measure, hint=hint)
        if not isinstance(only, Misfit):
            return Placement(only if len(only) == 1 else in_order(pod_sets, {found.name: found for found in only}))
        return of_group(only, groups[0])
    placed: dict[str, PodSetPlacement] = {}
    with space.trial():
        for i, group in enumerate(groups):
            found = _place_group(space, group, profile, previous, there, explain=explain, measure=measure, hint=hint)
            if isinstance(found, Misfit):
                return replace(of_group(found, group), placed=in_order(pod_sets, placed))
            placed.update((pod_set.name, pod_set) for pod_set in found)
            there.add(found)
            if i + 1 < len(groups):
                space.charge(usage_of(Placement(found)))
    return Placement(in_order(pod_sets, placed))


def place_workload(
    capacities: Mapping[str, Capacity],
    requests: Mapping[str, Sequence[PodSetRequest]],
    *,
    profile: Profile = DEFAULT_PROFILE,
    empty: bool = False,
    explain: bool = True,
    measure: bool = False,
    previous: Mapping[str, TopologyAssignment] | None = None,
    hint: Hint | None = None,
    thorough: bool | None = None,
) -> dict[str, Placement | Misfit]:
    """Run `place` for a workload whose pod sets use several flavors; return the answer of each flavor by name.

    Pod sets that share a level are placed in one domain. Flavors are tried in name order. Flavors with hostname
    topologies share hosts, so a later one sees the usage of an earlier one. A failing flavor does not stop the others.

    `thorough`: the search for one domain makes all steps of the profile, not a part of them; None: if it explains.
    """
    thorough = explain if thorough is None else thorough
    kin = kin_of(requests)
    if kin is not None:
        spaces = {flavor: c.empty() if empty else c for flavor, c in capacities.items()}
        attempt = partial(_in_flavors, capacities, profile=profile, empty=empty, measure=measure, previous=previous)
        found = place_kin(
            kin,
            spaces,
            requests,
            lambda restricted, hint: attempt(restricted, explain=False, hint=hint),
            steps=profile.search_limit if thorough else profile.search_limit // _QUICK,
            hint=hint,
        )
        if found is not None:
            return found
    return _in_flavors(
        capacities,
        requests,
        profile=profile,
        empty=empty,
        explain=explain,
        measure=measure,
        previous=previous,
        hint=hint,
    )


def _in_flavors(
    capacities: Mapping[str, Capacity],
    requests: Mapping[str, Sequence[PodSetRequest]],
    *,
    profile: Profile,
    empty: bool,
    explain: bool,
    measure: bool,
    previous: Mapping[str, TopologyAssignment] | None,
    hint: Hint | None,
) -> dict[str, Placement | Misfit]:
    """Place each pod set for itself, or with its leader."""
    if len(requests) == 1:  # a single pod set has no competitor for hosts
        ((flavor, pod_sets),) = requests.items()
        space = capacities[flavor]
        found = place(
            space,
            pod_sets,
            profile=profile,
            empty=empty,
            explain=explain,
            measure=measure,
            previous=previous,
            hint=hint,
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
                hint=hint,
            )
        results[flavor] = found
        if space.tree.is_hostname:
            placed = Placement(found.placed) if isinstance(found, Misfit) else found
            on_hosts += usage_of(placed)
            there |= {pod_set.name: pod_set.paths for pod_set in placed.pod_sets}
    return results


def _place_group(
    capacity: Capacity,
    group: Group,
    profile: Profile,
    previous: Mapping[str, TopologyAssignment] | None,
    there: NeighbourHosts,
    *,
    explain: bool,
    measure: bool,
    hint: Hint | None = None,
) -> tuple[PodSetPlacement, ...] | Misfit:
    tree, workers, leader = capacity.tree, group.workers, group.leader
    invalid = problem_of(group.members)
    if invalid:
        return Misfit(code=MisfitCode.INVALID_GROUP, pod_set=workers.name, topology=tree.topology, detail=invalid)
    kept = inherit(tree, previous, workers=workers, leader=leader) if previous else None
    if kept is not None:
        return _continue(capacity, workers, leader, kept, profile, there, explain=explain)
    return _find(capacity, workers, leader, profile, there, explain=explain, measure=measure, hint=hint)


def _continue(
    capacity: Capacity,
    workers: PodSetRequest,
    leader: PodSetRequest | None,
    kept: Inheritance,
    profile: Profile,
    there: NeighbourHosts,
    *,
    explain: bool,
) -> tuple[PodSetPlacement, ...] | Misfit:
    """Keep the inherited places without a check of their room, and find domains for the remaining pods."""
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
    there: NeighbourHosts,
    *,
    explain: bool,
    measure: bool = False,
    hint: Hint | None = None,
) -> tuple[PodSetPlacement, ...] | Misfit:
    """Search for domains, first near the gang if the request says so; return the places of all pods, or the Misfit."""
    near = workers.within
    if near is not None and not near.required:
        inside = replace(workers, within=replace(near, required=True))
        first = _find(capacity, inside, leader, profile, there, explain=False, measure=measure, hint=hint)
        if not isinstance(first, Misfit):
            return first
        workers = replace(workers, within=None)
    return _search(capacity, workers, leader, profile, there, explain=explain, measure=measure, hint=hint)


def _search(
    capacity: Capacity,
    workers: PodSetRequest,
    leader: PodSetRequest | None,
    profile: Profile,
    there: NeighbourHosts,
    *,
    explain: bool,
    measure: bool,
    hint: Hint | None,
) -> tuple[PodSetPlacement, ...] | Misfit:
    """Run one search; return the places of all pods, or the Misfit."""
    tree = capacity.tree
    resolved = resolve(workers, tree.levels, profile)
    if isinstance(resolved, Misfit):
        return replace(resolved, topology=tree.topology)
    for member in (workers, leader) if leader is not None else (workers,):
        problem = rules_problem(member.rules, is_hostname=tree.is_hostname, preferred=profile.preferred_affinity)
        if problem:
            return Misfit(code=problem[0], pod_set=member.name, topology=tree.topology, detail=problem[1])
    closed = there.closed(workers, leader)
    counts = tally(capacity, workers, leader, resolved, affinity=profile.preferred_affinity, closed=closed)
    question = Question(
        tree=tree,
        counts=counts,
        request=resolved,
        leaders=0 if leader is None else 1,
        steps=profile.search_limit,
    )
    found: FoundPlacement | Misfit | None = None
    if hint is not None:
        found = hinted(question, hint, workers.name, leader.name if leader is not None else None)
    if found is None:
        found = answer(question)
    if isinstance(found, Misfit):
        return _explained(found, capacity, workers, leader, question, closed.workers) if explain else found
    (leaves, pods, leader_leaf), proven = found.arrangement, found.proven
    quality = quality_of(tree, counts, resolved, leaves, leader_leaf) if measure else ()
    if workers.surplus:
        leaves, pods = _trimmed(leaves, pods, workers.surplus)
    placed = _pod_set_placement(tree, workers, leaves, pods, quality, proven)
    if leader is None:
        return (placed,)
    return placed, _pod_set_placement(tree, leader, [leader_leaf], [1], quality, proven)


def _trimmed(leaves: Sequence[int], pods: Sequence[int], surplus: int) -> tuple[list[int], list[int]]:
    """Return whole slices (leaves in path order, pods of each) without `surplus` pods, which are less than a slice.

    The pods are removed from the end, so they all come from one domain of the slice level: only one slice becomes
    incomplete, and only one group of each inner layer.
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
    question: Question,
    closed: Ints,
) -> Misfit:
    """Return the misfit with the facts that need another pass over the leaves."""
    tree, inside = capacity.tree, question.counts.inside(capacity.tree)
    search = PlacementSearch(tree, question.counts, question.request, leaders=question.leaders)
    if misfit.level in tree.levels:
        search.last_level = tree.levels.index(misfit.level)
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
    leaves = slice(0, len(tree)) if best is None else tree.leaves_of(level, best)
    demand = [(workers.shape, workers.count), *([(leader.shape, 1)] if leader is not None else [])]
    limited = leader if misfit.leader and leader is not None else workers
    short = shortage(capacity, limited.shape, demand, leaves, inside)
    return facts(
        layers=search.layers(),
        best_domain=None if best is None else tree.path_of(level, best),
        shortage=None if alone and short is not None and short.asked <= short.free else short,
    )
