"""All ways to fill the leaves of one domain with the pods of several pod sets, one leaf after the other.

After each leaf only the remaining counts matter, and of two of them with no more pods left in any pod set the smaller
one is as good.  The search is exact; its steps are counted, because many pod sets on many leaves have many ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kqueue.core.topology.arranged import Hint
from kqueue.core.topology.capacity import Capacity
from kqueue.core.topology.counting import leaves_within, pods_per_domain
from kqueue.core.topology.request import PodSetRequest
from kqueue.core.topology.result import Path
from kqueue.core.value import value

_MOST_WAYS = 300
"""The largest number of remaining counts that are compared with each other after a leaf."""
_COMPARISONS = 4
"""Comparisons of two counts that take as long as one step."""

_Counts = tuple[int, ...]
"""Pods by pod set."""


@value()
class Packing:
    """The places of all pods, by pod set; None: there are none, or the search ended at its limit of steps."""

    places: Hint | None
    steps: int


def packed(capacity: Capacity, pod_sets: Sequence[PodSetRequest], path: Path, *, limit: int) -> Packing:
    """Find places for all pods of these pod sets on the leaves of one domain, by free amounts and node rules alone."""
    leaves = leaves_within(capacity.tree, path)
    most = [pods_per_domain(capacity, request.shape)[-1][leaves].tolist() for request in pod_sets]
    need = tuple(request.count for request in pod_sets)
    steps = 0
    ways: list[dict[_Counts, tuple[_Counts, _Counts]]] = []
    """Per leaf, by the counts that remain after it: the counts before it, and the pods on it."""
    now: list[_Counts] = [need]
    for number, leaf in enumerate(range(leaves.start, leaves.stop)):
        reached: dict[_Counts, tuple[_Counts, _Counts]] = {}
        free = capacity.free(leaf)
        for left in now:
            caps = tuple(min(count, rooms[number]) for count, rooms in zip(left, most, strict=True))
            for fill in _fills(pod_sets, caps, free):
                steps += 1
                rest = tuple(count - pods for count, pods in zip(left, fill, strict=True))
                reached.setdefault(rest, (left, fill))
                if steps > limit:
                    return Packing(None, steps)
        if len(reached) > _MOST_WAYS:
            return Packing(None, steps)
        ways.append(reached)
        now = _least(list(reached))
        steps += len(reached) * len(now) // _COMPARISONS
        if not any(now[0]):
            return Packing(_places(capacity, pod_sets, leaves.start, ways), steps)
    return Packing(None, steps)


def _fills(pod_sets: Sequence[PodSetRequest], caps: _Counts, free: dict[str, int]) -> Iterator[_Counts]:
    """Yield how many pods of each pod set one leaf may have, with as many of the last one as there is room for."""
    if not pod_sets:
        yield ()
        return
    wanted = pod_sets[0].shape.requests
    fits = min([caps[0], *(max(0, free.get(resource, 0)) // amount for resource, amount in wanted)])
    least = fits if len(pod_sets) == 1 else 0
    for pods in range(fits, least - 1, -1):
        left = {**free, **{resource: free.get(resource, 0) - amount * pods for resource, amount in wanted}}
        for more in _fills(pod_sets[1:], caps[1:], left):
            yield (pods, *more)


def _least(reached: list[_Counts]) -> list[_Counts]:
    """Return the counts of which no others are at most as large in all pod sets, smallest sums first."""
    kept: list[_Counts] = []
    for counts in sorted(reached, key=lambda counts: (sum(counts), counts)):
        if not any(all(a <= b for a, b in zip(other, counts, strict=True)) for other in kept):
            kept.append(counts)
    return kept


def _places(
    capacity: Capacity,
    pod_sets: Sequence[PodSetRequest],
    first: int,
    ways: Sequence[dict[_Counts, tuple[_Counts, _Counts]]],
) -> Hint:
    """Follow the ways back from the last leaf, after which nothing remains."""
    places: dict[str, list[tuple[Path, int]]] = {request.name: [] for request in pod_sets}
    left: _Counts = tuple(0 for _ in pod_sets)
    for number in reversed(range(len(ways))):
        left, fill = ways[number][left]
        for request, pods in zip(pod_sets, fill, strict=True):
            if pods:
                places[request.name].append((capacity.tree.paths[first + number], pods))
    return places
