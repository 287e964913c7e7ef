"""How many pods and slices fit into each domain.

Counting is floor division of free amounts by a pod's requests, the minimum over resources, and sums per domain.  Pods
per domain are cached per request shape and updated for the leaves that have changed since, so the cost of a second
count grows with the number of changed leaves.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kqueue.core.topology.capacity import Capacity
from kqueue.core.topology.matching import Eligibility
from kqueue.core.topology.request import GangDomains, PodSetRequest, Resolved, Shape
from kqueue.core.topology.result import Exclusions, Path, Shortage
from kqueue.core.topology.tree import Ints, Tree

COUNT_MAX = 2**31 - 1

Mask = NDArray[np.bool_] | None
"""Leaves that accept a pod; None: all leaves do."""

_FEW_LEAVES = 24  # for fewer leaves, scalar arithmetic on the touched leaves is faster than a vectorised recount
_KEPT_BYTES = 32 << 20  # bytes of counts cached per capacity
_KEPT_SHAPES_MIN = 16


class _Counted:
    """Pods per domain of every level, valid at `generation` of one capacity.  Arrays are copied before a change."""

    __slots__ = ("generation", "levels", "mask", "shared")

    def __init__(self, levels: list[Ints], mask: Mask, generation: int, *, shared: bool) -> None:
        self.levels, self.mask, self.generation, self.shared = levels, mask, generation, shared


def pods_per_domain(capacity: Capacity, shape: Shape) -> list[Ints]:
    """Return the pods of this shape that fit, per level and domain; each level is the sum of the level below.

    Callers must not change the arrays.
    """
    return _counted(capacity, shape).levels


def audit_counts(capacity: Capacity, turn: int) -> Shape | None:
    """Count one of the shapes with cached counts anew, by turns; None: nothing differs.

    If its counts differ, all cached counts are dropped.
    """
    shapes = sorted([shape for shape in capacity.counted if isinstance(shape, Shape)], key=lambda one: one.requests)
    if not shapes:
        return None
    shape = shapes[turn % len(shapes)]
    levels = pods_per_domain(capacity, shape)
    anew = _roll_up(capacity.tree, _fit(capacity, shape, capacity.tree.eligible(shape.rules).mask))
    if all(map(np.array_equal, levels, anew)):
        return None
    capacity.counted.clear()
    return shape


def _counted(capacity: Capacity, shape: Shape) -> _Counted:
    kept: dict[object, object] = capacity.counted
    known = kept.pop(shape, None)
    if isinstance(known, _Counted) and known.generation == capacity.generation:
        kept[shape] = known  # last in the dictionary, because it is the latest used
        return known
    if isinstance(known, _Counted):
        touched = capacity.touched_since(known.generation)
        counted = known if touched is not None and _repair(known, capacity, shape, touched) else None
    else:
        counted = _from_origin(capacity, shape)
    if counted is None:
        mask = capacity.tree.eligible(shape.rules).mask
        levels = _roll_up(capacity.tree, _fit(capacity, shape, mask))
        counted = _Counted(levels, mask, capacity.generation, shared=False)
    kept[shape] = counted
    if len(kept) > max(_KEPT_SHAPES_MIN, _KEPT_BYTES // (8 * len(capacity.tree) + 1)):
        del kept[next(iter(kept))]
    return counted


def _from_origin(capacity: Capacity, shape: Shape) -> _Counted | None:
    """Return the counts of the capacity from which this one was forked, adapted to the differences; None: not
    possible.
    """
    if capacity.origin is None:
        return None
    differences = capacity.differs_from_origin()
    if differences is None:
        return None
    theirs = _counted(capacity.origin, shape)
    theirs.shared = True
    mine = _Counted(list(theirs.levels), theirs.mask, capacity.generation, shared=True)
    return mine if _repair(mine, capacity, shape, differences) else None


def _repair(counted: _Counted, capacity: Capacity, shape: Shape, touched: set[int]) -> bool:
    """Recount the touched leaves in place.  False: nothing was changed, because a full recount is cheaper."""
    if len(touched) > max(_FEW_LEAVES, len(capacity.tree) // 4):
        return False
    counted.generation = capacity.generation
    if not touched:
        return True
    if len(touched) <= _FEW_LEAVES:
        _repair_few(counted, capacity, shape, touched)
        return True
    leaves = np.array(sorted(touched), dtype=np.int64)
    lowest = counted.levels[-1].copy()
    lowest[leaves] = _fit(capacity, shape, counted.mask, leaves)
    counted.levels = _roll_up(capacity.tree, lowest)
    counted.shared = False
    return True


def _repair_few(counted: _Counted, capacity: Capacity, shape: Shape, touched: set[int]) -> None:
    requests, mask, lowest = shape.requests, counted.mask, counted.levels[-1]
    most = most_per_leaf(capacity.tree, shape)
    changes: list[tuple[int, int, int]] = []
    for leaf in touched:
        fit = capacity.times(leaf, requests, most) if mask is None or mask[leaf] else 0
        change = fit - lowest.item(leaf)
        if change:
            changes.append((leaf, fit, change))
    if not changes:
        return
    if counted.shared:
        counted.levels = [level.copy() for level in counted.levels]
        counted.shared = False
    *above, lowest = counted.levels
    for leaf, fit, _ in changes:
        lowest[leaf] = fit
    for level, pods in enumerate(above):
        parent = capacity.tree.domain_of(level)
        for leaf, _, change in changes:
            domain = parent.item(leaf)
            pods[domain] = pods.item(domain) + change


def _fit(capacity: Capacity, shape: Shape, mask: Mask, leaves: Ints | None = None) -> Ints:
    """Return the pods that fit on each leaf of the mask, or on each of these leaves, as a new array."""
    size = len(capacity.tree) if leaves is None else len(leaves)
    rows: list[tuple[Ints, int]] = []
    for resource, amount in shape.requests:
        row = capacity.row(resource)
        if row is None:
            return np.zeros(size, dtype=np.int64)
        rows.append((row if leaves is None else row[leaves], amount))
    rows.sort(key=lambda item: item[1] == 1)  # a division comes first: it makes the new array for the rest
    first, amount = rows[0]
    fit = first // amount if amount != 1 else first.copy()
    for row, amount in rows[1:]:
        np.minimum(fit, row // amount if amount != 1 else row, out=fit)
    if size and fit.min() < 0:  # a check costs less than a write
        np.maximum(fit, 0, out=fit)
    most = most_per_leaf(capacity.tree, shape)
    if size and fit.max() > most:
        np.minimum(fit, most, out=fit)
    if mask is not None:
        fit *= mask if leaves is None else mask[leaves]
    return fit


def most_per_leaf(tree: Tree, shape: Shape) -> int:
    """Return the most pods of a shape that one leaf may hold, whatever its capacity."""
    return 1 if shape.alone and tree.is_hostname else COUNT_MAX


def _roll_up(tree: Tree, lowest: Ints) -> list[Ints]:
    """Return the sums per domain for every level, widest first, `lowest` last."""
    levels = [lowest]
    for starts in reversed(tree.first_child):
        levels.append(_sums(levels[-1], starts))
    return levels[::-1]


def _sums(values: Ints, starts: Ints) -> Ints:
    return np.add.reduceat(values, starts) if len(starts) else np.zeros(0, dtype=np.int64)


@dataclass(slots=True, kw_only=True)
class Tally:
    """The pods that fit in each domain, by level: the input of one search.

    Attributes:
        pods, slices: pods and whole slices that fit.  Slices are 0 below the slice level.
        pods_led, slices_led: the same if the leader is in this domain, too.  The very same arrays without a leader.
        leaders: 1 if the leader can be in the domain; None: there is no leader to place.
        affinity: preferred-affinity score; None: it does not count.
        uniform: True if each slice is one pod.
        within: the domains that other pods of the gang allow; None: all domains.
    """

    pods: list[Ints]
    slices: list[Ints]
    pods_led: list[Ints]
    slices_led: list[Ints]
    leaders: list[Ints] | None = None
    affinity: list[Ints] | None = None
    uniform: bool = False
    within: GangDomains | None = None

    def inside(self, tree: Tree) -> Mask:
        """Return the leaves that other pods of the gang allow; None: all leaves."""
        return open_leaves(tree, self.within)


@dataclass(frozen=True, slots=True)
class Closed:
    """Leaves that accept no pod of the workers, or of the leader, because of the workload's other pods there."""

    workers: Ints
    leader: Ints


NOWHERE = Closed(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


def leaves_within(tree: Tree, path: Path) -> slice:
    """Return the leaves of the domain at `path`; an empty slice: the tree has no such domain."""
    if not path:
        return slice(0, len(tree))
    first, level = bisect_left(tree.paths, path), len(path) - 1
    if first == len(tree) or tree.paths[first][: level + 1] != path:
        return slice(first, first)
    return tree.leaves_of(level, tree.domain_of(level).item(first))


def open_leaves(tree: Tree, within: GangDomains | None) -> Mask:
    """Return the leaves that the pods may use because of other pods of their gang; None: all leaves."""
    if within is None or not within.required:
        return None
    mask = np.zeros(len(tree), dtype=np.bool_)
    for path in _paths_within(tree, within):
        mask[leaves_within(tree, path)] = True
    return mask


def _paths_within(tree: Tree, within: GangDomains) -> Sequence[Path]:
    """Return the paths of the gang's domains; none of them is in a tree with other levels."""
    return within.paths if tree.levels[: len(within.levels)] == within.levels else ()


def pods_within(capacity: Capacity, pod_set: PodSetRequest, closed: Ints = NOWHERE.workers) -> list[Ints]:
    """Return `pods_per_domain` of a pod set without the leaves that other pods of its gang exclude, and without
    `closed` ones.
    """
    tree, pods = capacity.tree, pods_per_domain(capacity, pod_set.shape)
    within = pod_set.within if pod_set.within is not None and pod_set.within.required else None
    if not len(closed):
        if within is None:
            return pods
        paths = _paths_within(tree, within)
        if len(paths) == 1:
            return _inside_one(tree, pods, paths[0])
    inside = open_leaves(tree, within)
    some = pods[-1].copy() if inside is None else pods[-1] * inside
    some[closed] = 0
    return _roll_up(tree, some)


def _inside_one(tree: Tree, pods: Sequence[Ints], path: Path) -> list[Ints]:
    """Return the pods per domain without those outside the domain at `path`; this needs no new sums."""
    found = [np.zeros(len(there), dtype=np.int64) for there in pods]
    leaves = leaves_within(tree, path)
    if leaves.start == leaves.stop:
        return found
    whole = max(len(path) - 1, 0)
    for level, there in enumerate(pods):
        domain_of = tree.domain_of(level)
        first, last = domain_of.item(leaves.start), domain_of.item(leaves.stop - 1)
        if level >= whole:
            found[level][first : last + 1] = there[first : last + 1]
        else:  # all pods of a wider domain are in this one
            found[level][first] = pods[whole].item(tree.domain_of(whole).item(leaves.start))
    return found


def tally(
    capacity: Capacity,
    workers: PodSetRequest,
    leader: PodSetRequest | None,
    resolved: Resolved,
    *,
    affinity: bool,
    closed: Closed = NOWHERE,
) -> Tally:
    """Count the pods and slices that fit into every domain of the tree, and of `workers.within` if it is required.

    With `affinity`, preferred terms score the leaves.
    """
    tree = capacity.tree
    pods = pods_within(capacity, workers, closed.workers)
    if resolved.layered or leader is not None:
        inside = open_leaves(tree, workers.within)
        result = _rolled_up(capacity, workers, leader, resolved, pods[-1], closed, inside)
    else:
        slices = _slices(tree, resolved, pods)
        uniform = resolved.slice_size == 1 and resolved.slice_level == tree.lowest
        result = Tally(pods=pods, slices=slices, pods_led=pods, slices_led=slices, uniform=uniform)
    result.within = workers.within
    if affinity:
        scores = tree.eligible(workers.rules).affinity
        if scores is None:
            scores = np.zeros(len(tree), dtype=np.int64)
        inside = result.inside(tree)
        result.affinity = _roll_up(tree, scores if inside is None else scores * inside)
    return result


def _slices(tree: Tree, resolved: Resolved, pods: Sequence[Ints]) -> list[Ints]:
    """Return the slices per domain if the pods of a domain are plain sums."""
    at, size = resolved.slice_level, resolved.slice_size
    if size == 1 and at == tree.lowest:
        return list(pods)
    none = [tree.nothing(level) for level in range(at + 1, len(pods))]
    if size == 1:
        return [*pods[: at + 1], *none]
    slices = [pods[at] // size]
    for starts in reversed(tree.first_child[:at]):
        slices.append(_sums(slices[-1], starts))
    return [*reversed(slices), *none]


def _rolled_up(
    capacity: Capacity,
    workers: PodSetRequest,
    leader: PodSetRequest | None,
    resolved: Resolved,
    leaf_pods: Ints,
    closed: Closed,
    inside: Mask,
) -> Tally:
    """Count in the general case, level by level: inner layers round down on the way up, and the leader displaces as few
    workers as possible.
    """
    tree = capacity.tree
    depth = len(tree.levels)
    leaf_leaders = _leader_leaves(capacity, workers.shape, leader) if leader is not None else None
    leaf_led = leaf_pods
    if leader is not None and leaf_leaders is not None:
        if inside is not None:
            leaf_leaders *= inside
        leaf_leaders[closed.leader] = 0
        leaf_led = _fit_beside(capacity, workers, leader, leaf_leaders)
        leaf_led[closed.workers] = 0
        if inside is not None:
            leaf_led *= inside
    nothing = [np.zeros(tree.domains(level), dtype=np.int64) for level in range(depth)]
    result = Tally(pods=list(nothing), slices=list(nothing), pods_led=list(nothing), slices_led=list(nothing))
    result.pods[-1], result.pods_led[-1] = leaf_pods, leaf_led
    if leaf_leaders is not None:
        result.leaders = [*nothing[:-1], leaf_leaders]
    if resolved.slice_level == tree.lowest:
        result.slices[-1] = leaf_pods // resolved.slice_size
        result.slices_led[-1] = leaf_led // resolved.slice_size
    for level in range(depth - 2, -1, -1):
        roll_up_level(tree, result, resolved, level)
    return result


def roll_up_level(tree: Tree, state: Tally, resolved: Resolved, level: int) -> None:
    """Set the counts of `level` to new arrays computed from the children."""
    starts, below = tree.first_child[level], level + 1
    pods, led = state.pods[below], state.pods_led[below]
    inner = resolved.inner_sizes[below]
    if inner:
        pods, led = pods // inner * inner, led // inner * inner
    pods_sum, slices_sum = _sums(pods, starts), _sums(state.slices[below], starts)
    if state.leaders is None:
        led_sum, slices_led_sum = pods_sum, slices_sum
    else:
        leaders = state.leaders[below]
        led_sum = pods_sum - _smallest_toll(pods - led, leaders, starts)
        slices_led_sum = slices_sum - _smallest_toll(state.slices[below] - state.slices_led[below], leaders, starts)
        can_lead = np.maximum.reduceat(leaders, starts)
        led_sum, slices_led_sum = led_sum * can_lead, slices_led_sum * can_lead
        state.leaders[level] = can_lead
    state.pods[level], state.pods_led[level] = pods_sum, led_sum
    if level == resolved.slice_level:
        slices_sum, slices_led_sum = pods_sum // resolved.slice_size, led_sum // resolved.slice_size
    state.slices[level], state.slices_led[level] = slices_sum, slices_led_sum


def _smallest_toll(tolls: Ints, leaders: Ints, starts: Ints) -> Ints:
    """Return per domain the fewest workers that the leader displaces in any child that can carry it; undefined if no
    child can.
    """
    out_of_the_question = np.iinfo(np.int64).max >> 1
    return np.minimum.reduceat(np.where(leaders > 0, tolls, out_of_the_question), starts)


def _leader_leaves(capacity: Capacity, shape: Shape, leader: PodSetRequest) -> Ints:
    """Return 1 for leaves that accept both templates and have room for one leader pod, else 0."""
    fits = (pods_per_domain(capacity, leader.shape)[-1] > 0).astype(np.int64)
    mask = capacity.tree.eligible(shape.rules).mask
    return fits if mask is None else fits * mask


def _fit_beside(capacity: Capacity, workers: PodSetRequest, leader: PodSetRequest, leaders: Ints) -> Ints:
    """Return the worker pods that fit on each leaf beside the leader; without the leader if it does not fit."""
    shape, taken = workers.shape, dict(leader.shape.requests)
    fit = np.full(len(capacity.tree), most_per_leaf(capacity.tree, shape), dtype=np.int64)
    if leader.name in workers.apart and capacity.tree.is_hostname:
        fit[leaders > 0] = 0
    for resource, amount in shape.requests:
        row = capacity.row(resource)
        if row is None:
            return np.zeros(len(capacity.tree), dtype=np.int64)
        np.minimum(fit, (row - leaders * taken.get(resource, 0)) // amount, out=fit)
    np.maximum(fit, 0, out=fit)
    mask = capacity.tree.eligible(shape.rules).mask
    return fit if mask is None else fit * mask


def exclusions(capacity: Capacity, shape: Shape, inside: Mask = None, closed: Ints = NOWHERE.workers) -> Exclusions:
    """Count the leaves that cannot hold one pod of this shape, by the first cause; leaves that are not `inside` cannot.

    `closed` leaves have another pod of the workload that may not share a host with it.
    """
    eligibility: Eligibility = capacity.tree.eligible(shape.rules)
    pods = pods_per_domain(capacity, shape)[-1]
    passing = np.ones(len(pods), dtype=np.bool_) if eligibility.mask is None else eligibility.mask
    outside = 0
    if inside is not None:
        outside = int(np.count_nonzero(passing & ~inside))
        passing = passing & inside
    unable = passing & (pods == 0)
    others = int(np.count_nonzero((passing & ~unable)[closed]))
    leaves = slice(0, len(unable)) if unable.all() else np.flatnonzero(unable)
    resources = _limits(capacity, shape, leaves)
    return replace(eligibility.excluded, topology_domain=outside, others=others, resources=resources)


def largest_leaf(capacity: Capacity, shape: Shape, excluded: Exclusions) -> Shortage | None:
    """Return the resource that most leaves lack, the request of one pod, and the largest free amount of a leaf.

    None: a leaf has room, rules exclude some leaves, or leaves lack different resources.
    """
    lacking = excluded.resources
    if not lacking or sum(lacking.values()) < len(capacity.tree):
        return None
    resource = max(sorted(lacking), key=lambda name: lacking[name])
    row = capacity.row(resource)
    most = max(0, int(row.max())) if row is not None and len(row) else 0
    asked = dict(shape.requests)[resource]
    return Shortage(resource, asked, most) if most < asked else None


def _limits(capacity: Capacity, shape: Shape, leaves: Ints | slice) -> dict[str, int]:
    """Return the number of leaves that each resource limits; on a tie the alphabetically first resource counts."""
    fits = [_fit_of(capacity, resource, amount, leaves) for resource, amount in shape.requests]
    fewest = fits[0]
    for fit in fits[1:]:
        fewest = np.minimum(fewest, fit)
    undecided = np.ones(len(fewest), dtype=np.bool_)
    limits: dict[str, int] = {}
    for (resource, _), fit in zip(shape.requests, fits, strict=True):
        limited = undecided & (fit == fewest)
        hits = int(np.count_nonzero(limited))
        if hits:
            limits[resource] = hits
            undecided &= ~limited
    return limits


def _fit_of(capacity: Capacity, resource: str, amount: int, leaves: Ints | slice) -> Ints:
    """Return how many times the amount is free on each of these leaves."""
    row = capacity.row(resource)
    if row is None:
        size = leaves.stop - leaves.start if isinstance(leaves, slice) else len(leaves)
        return np.zeros(size, dtype=np.int64)
    fit = np.maximum(row[leaves], 0)
    if amount != 1:
        fit //= amount
    return np.minimum(fit, COUNT_MAX, out=fit)


def shortage(
    capacity: Capacity, limited: Shape, demand: Iterable[tuple[Shape, int]], leaves: slice, inside: Mask = None
) -> Shortage | None:
    """Return the scarcest resource on these leaves, as far as they are `inside`, for pods of shape `limited`: the
    resource that limits most leaves.

    `demand` are all requested shapes with their pods. None when rules, not resources, exclude `limited` from all
    leaves.
    """
    passing: Ints | slice = leaves
    mask = capacity.tree.eligible(limited.rules).mask
    if inside is not None:
        mask = inside if mask is None else mask & inside
    if mask is not None:
        passing = np.arange(leaves.start, leaves.stop, dtype=np.int64)[mask[leaves]]
    limits: Mapping[str, int] = _limits(capacity, limited, passing)
    if not limits:
        return None
    resource = max(sorted(limits), key=lambda name: limits[name])
    asked = sum(dict(shape.requests).get(resource, 0) * pods for shape, pods in demand)
    row, idle = capacity.row(resource), capacity.empty().row(resource)
    free = 0 if row is None else _total(np.maximum(row[passing], 0))
    without_workloads = 0 if idle is None else _total(np.maximum(idle[passing], 0))
    return Shortage(resource, asked, free, max(0, without_workloads - free))


def _total(amounts: Ints) -> int:
    """Return the exact sum of amounts that are not negative, also if it has more than 64 bits."""
    high, low = amounts >> 32, amounts & 0xFFFF_FFFF
    return (int(high.sum()) << 32) + int(low.sum())
