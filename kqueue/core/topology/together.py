"""Pod sets of one gang that share a level: one domain of the level has to have all of them.

Domains whose sums suffice are tried in turn, those with the least free capacity first, and the pod sets are placed
inside one by one, larger pods first.  Where that fails, all ways to fill the domain's leaves are tried (`packing.py`).
A preferred level is followed by each wider level, and then each pod set is placed for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kqueue.core.assignment import TopologyAssignment
from kqueue.core.topology.arranged import Hint
from kqueue.core.topology.capacity import Capacity
from kqueue.core.topology.counting import pods_per_domain, pods_within
from kqueue.core.topology.packing import packed
from kqueue.core.topology.request import AUTO, GangDomains, PodSetRequest, TopologyRequest
from kqueue.core.topology.result import Misfit, MisfitCode, Path, Placement, Shortage
from kqueue.core.topology.tree import Tree
from kqueue.core.value import value

Requests = Mapping[str, Sequence[PodSetRequest]]
"""Pod sets by flavor."""
Answers = dict[str, Placement | Misfit]
"""Placements and misfits by flavor."""
Place = Callable[[Requests, Hint | None], Answers]
"""Places the pod sets of all flavors, each for itself, within the domains that they name; Misfits may lack the costlier
facts.
"""

_ATTEMPT = 80
"""The steps that count for one pod set in one domain, for each _LEAVES leaves of the tree."""
_LEAVES = 10_000
_MOST_CHOICES = 50
"""The largest number of domains that are tried for pods that lost all their hosts."""
_ALMOST = 1 - 1e-9
"""Sums are compared as floating-point numbers, so that they cannot overflow: a little less counts as enough."""


class Kin(NamedTuple):
    """Pod sets that share a domain of one level."""

    level: str
    required: bool
    names: frozenset[str]


def kin_of(requests: Requests) -> Kin | None:
    """Return the pod sets that share a level; None: there are no two of them.

    Pod sets of the gang with a level of their own are not among them: the level of most pod sets is the gang's.
    """
    by_level: dict[tuple[str, bool], list[str]] = {}
    for request in (r for some in requests.values() for r in some if r.together and r.count > 0):
        label = request.topology.required or request.topology.preferred
        if label is not None:
            by_level.setdefault((label, request.topology.required is not None), []).append(request.name)
    most = max(by_level.items(), key=lambda item: len(item[1]), default=None)
    if most is None or len(most[1]) < 2:
        return None
    (label, required), names = most
    return Kin(label, required, frozenset(names))


def place_kin(
    kin: Kin, capacities: Mapping[str, Capacity], requests: Requests, place: Place, *, steps: int, hint: Hint | None
) -> Answers | None:
    """Return the answers of `place` for the first domain with room for all kin; other pod sets are placed beside them.
    None: the level is only preferred, and no domain has room.

    `capacities` are those that `place` uses.  `steps` limits the search; more domains than can be tried are tried from
    both ends: those with least and those with most free capacity.
    """
    search = _KinSearch(kin, capacities, requests, place, steps)
    if hint is not None and (found := search.hinted(hint)) is not None:
        return found
    levels = search.levels()
    for level in levels:
        found = search.at(level)
        if found is not None:
            return found
    if not kin.required:
        return None
    return search.misfit(levels[0]) if levels else search.without_level()


Held = Mapping[str, Sequence[tuple[PodSetRequest, TopologyAssignment]]]
"""Pod sets with their present places, by flavor."""


def near_each_other(held: Held, capacities: Mapping[str, Capacity], failed: Collection[str]) -> Iterator[Held]:
    """Yield the pod sets with the domains that may be tried for kin; pods on `failed` hosts are lost.

    While any of the kin keep pods, their domains are the only choice, or the first one if the level is only preferred.
    Otherwise the domains whose sums suffice come in turn, and for a preferred level at last the pod sets as they are.
    """
    known = {flavor: some for flavor, some in held.items() if flavor in capacities}
    requests = {flavor: [request for request, _ in some] for flavor, some in known.items()}
    kin = kin_of(requests)
    if kin is None:
        yield held
        return
    kept: dict[tuple[str, ...], set[Path]] = {}
    for flavor, some in sorted(known.items()):
        tree, level = capacities[flavor].tree, _level(capacities[flavor].tree, kin.level)
        places = [domain for request, there in some if request.name in kin.names for domain in there.domains]
        leaves = [tree.leaf_of(domain.values) for domain in places if domain.values[-1] not in failed]
        paths = {tree.paths[leaf][: level + 1] for leaf in leaves if leaf is not None} if level is not None else None
        if level is not None and paths:
            kept.setdefault(tree.levels[: level + 1], set()).update(paths)
    for levels, domains in kept.items():
        yield _all_within(held, kin, GangDomains(levels=levels, paths=tuple(sorted(domains)), required=kin.required))
        return
    nowhere = GangDomains(levels=(kin.level,), paths=())
    choices = [_all_within(held, kin, near) for near in _choices(kin, capacities, requests)]
    yield from choices or ([_all_within(held, kin, nowhere)] if kin.required else [])
    if not kin.required:
        yield held


def _choices(kin: Kin, capacities: Mapping[str, Capacity], requests: Requests) -> Iterator[GangDomains]:
    search = _KinSearch(kin, capacities, requests, lambda _requests, _hint: {}, 0)
    for level in search.levels():
        for domain in search.domains(level)[:_MOST_CHOICES]:
            yield search.near(level, domain.path)


def _all_within(held: Held, kin: Kin, near: GangDomains) -> Held:
    """Return the pod sets, all kin within these domains."""
    return {
        flavor: [(replace(r, within=near) if r.name in kin.names else r, places) for r, places in some]
        for flavor, some in held.items()
    }


def _level(tree: Tree, label: str) -> int | None:
    """Return the number of a level; None: the tree has none of this label."""
    if label == AUTO and AUTO not in tree.levels:
        return tree.lowest
    return tree.levels.index(label) if label in tree.levels else None


@value()
class _Domain:
    """One domain that might have room; `room` is how often the kin would fit by its scarcest resource."""

    room: float
    path: Path


class _KinSearch:
    """One search for a domain for all kin."""

    def __init__(
        self, kin: Kin, capacities: Mapping[str, Capacity], requests: Requests, place: Place, steps: int
    ) -> None:
        self._kin, self._requests, self._place, self._steps = kin, requests, place, steps
        self._spaces = {
            flavor: (capacities[flavor], mine)
            for flavor, some in sorted(requests.items())
            if (mine := [r for r in some if r.name in kin.names])
        }
        self._trees = [capacity.tree for capacity, _ in self._spaces.values()]
        self._ordered = {
            flavor: sorted(mine, key=lambda request: _pods_on_a_leaf(capacity, request))
            for flavor, (capacity, mine) in self._spaces.items()
        }

    def levels(self) -> list[int]:
        """Return the levels of which one domain may have the kin, in the order of tries; empty: a tree lacks the level,
        or the flavors have different ones.
        """
        first = self._trees[0]
        level = _level(first, self._kin.level)
        if level is None or any(tree.levels[: level + 1] != first.levels[: level + 1] for tree in self._trees):
            return []
        return [level] if self._kin.required else list(range(level, -1, -1))

    def hinted(self, hint: Hint) -> Answers | None:
        """Return the placement that a planner proposes; None: it has not all kin in one domain of the level."""
        answers, levels = self._place(self._requests, hint), self.levels()
        if not _all_placed(answers) or not levels:
            return None
        domains = {
            path[: levels[0] + 1]
            for answer in answers.values()
            if isinstance(answer, Placement)
            for pod_set in answer.pod_sets
            if pod_set.name in self._kin.names
            for path in pod_set.paths
        }
        return answers if len(domains) == 1 else None

    def at(self, level: int) -> Answers | None:
        """Return the placement in the first domain of a level that has room for all; None: no domain has."""
        cost = len(self._kin.names) * _ATTEMPT * max(1, -(-len(self._trees[0]) // _LEAVES))
        for domain in _from_both_ends(self.domains(level), max(2, self._steps // cost)):
            answers = self._within(level, domain.path)
            if _all_placed(answers):
                return answers
            self._steps -= cost
            by_leaves = self._packed(level, domain.path)
            if by_leaves is not None:
                return by_leaves
        return None

    def domains(self, level: int) -> list[_Domain]:
        """Return the domains whose sums suffice, the one with the least free capacity first."""
        rooms: dict[Path, float] | None = None
        for capacity, mine in self._spaces.values():
            room = _rooms(capacity, mine, level)
            here = {capacity.tree.path_of(level, d): room.item(d) for d in np.flatnonzero(room >= _ALMOST).tolist()}
            rooms = here if rooms is None else {p: min(rooms[p], here[p]) for p in rooms.keys() & here.keys()}
        return sorted((_Domain(room, path) for path, room in (rooms or {}).items()), key=lambda d: (d.room, d.path))

    def near(self, level: int, path: Path) -> GangDomains:
        """Return one domain of a level as the only one."""
        return GangDomains(levels=self._trees[0].levels[: level + 1], paths=(path,))

    def _within(self, level: int, path: Path, hint: Hint | None = None) -> Answers:
        """Place everything, the kin in this domain; they come first, larger pods before smaller ones."""
        near = self.near(level, path)
        restricted: dict[str, list[PodSetRequest]] = {}
        for flavor, some in self._requests.items():
            mine = [replace(request, within=near) for request in self._ordered.get(flavor, ())]
            restricted[flavor] = mine + [request for request in some if request.name not in self._kin.names]
        return {
            flavor: answer if isinstance(answer, Misfit) else _reordered(answer, self._requests[flavor])
            for flavor, answer in self._place(restricted, hint).items()
        }

    def _packed(self, level: int, path: Path) -> Answers | None:
        """Return a placement in this domain by trying all ways to fill its leaves; None: there is none, or the search
        is too long, or the requests have rules that it does not know.
        """
        if len(self._spaces) != 1 or self._steps <= 0:
            return None
        ((capacity, mine),) = self._spaces.values()
        if not all(_is_plain(request) for request in mine):
            return None
        found = packed(capacity, mine, path, limit=self._steps)
        self._steps -= found.steps
        if found.places is None:
            return None
        answers = self._within(level, path, found.places)
        return answers if _all_placed(answers) else None

    # --- why not ---------------------------------------------------------------------------------------------------

    def misfit(self, level: int) -> Answers:
        """Return answers with the misfit of the kin: how many of their pods fit in the domain that came closest."""
        flavor, (capacity, mine) = next(iter(self._spaces.items()))
        tree = capacity.tree
        facts = Misfit(
            code=MisfitCode.NO_FIT,
            pod_set=mine[0].name,
            topology=tree.topology,
            level=tree.levels[level],
            total=sum(request.count for _, some in self._spaces.values() for request in some),
            leaves=len(tree),
            together=tuple(request.name for _, some in self._spaces.values() for request in some),
        )
        best = self._closest(level)
        if best is None:
            return {**self._place(self._requests, None), flavor: facts}
        answers = self._within(level, best)
        fit = sum(_pods_of(answers[flavor], self._kin.names) for flavor in self._spaces)
        short = next((s for c, some in self._spaces.values() if (s := _short(c, some, level, best)) is not None), None)
        return {**answers, flavor: replace(facts, fit=fit, best_domain=best, shortage=short)}

    def _closest(self, level: int) -> Path | None:
        """Return the domain in which most pods fit if each pod set is counted for itself; of equals the one with most
        free capacity; None: there is no domain.
        """
        scores: dict[Path, tuple[int, float]] = {}
        for capacity, mine in self._spaces.values():
            counted = sum(np.minimum(pods_within(capacity, r)[level], r.count) for r in mine)
            room = _rooms(capacity, mine, level, known=False)
            for d, pods in enumerate(np.atleast_1d(counted).tolist()):
                path = capacity.tree.path_of(level, d)
                before, free = scores.get(path, (0, float("inf")))
                scores[path] = before + pods, min(free, room.item(d))
        return min(scores, key=lambda path: (-scores[path][0], -scores[path][1], path), default=None)

    def without_level(self) -> Answers:
        """Return answers for kin in flavors whose topologies have not the same levels down to that of the gang."""
        flavor, (capacity, mine) = next(iter(self._spaces.items()))
        detail = f"pod sets that share level {self._kin.level} are in flavors whose topologies have not the same levels"
        misfit = Misfit(
            code=MisfitCode.INVALID_GROUP, pod_set=mine[0].name, topology=capacity.tree.topology, detail=detail
        )
        return {**self._place(self._requests, None), flavor: misfit}


def _all_placed(answers: Answers) -> bool:
    return all(isinstance(answer, Placement) for answer in answers.values())


def _from_both_ends(domains: list[_Domain], most: int) -> Iterator[_Domain]:
    """Yield the domains in order; if there are more than `most`, the first ones, and then the last ones, backwards."""
    if len(domains) <= most:
        yield from domains
        return
    yield from domains[: most - most // 2]
    yield from reversed(domains[len(domains) - most // 2 :])


def _rooms(
    capacity: Capacity, pod_sets: Sequence[PodSetRequest], level: int, *, known: bool = True
) -> NDArray[np.float64]:
    """Return, per domain of a level, how often all these pods would fit by the scarcest resource alone; 0 if one of the
    pod sets does not fit by itself (not with `known` False).
    """
    tree = capacity.tree
    room = np.full(tree.domains(level), np.inf)
    asked: dict[str, float] = {}
    for request in pod_sets:
        if known:
            room[pods_within(capacity, request)[level] < request.count] = 0.0
        for resource, amount in request.shape.requests:
            asked[resource] = asked.get(resource, 0.0) + float(amount) * request.count
    for resource, total in asked.items():
        np.minimum(room, _free(capacity, resource, level) / total, out=room)
    return room


def _free(capacity: Capacity, resource: str, level: int) -> NDArray[np.float64]:
    """Return the free amount of a resource per domain of a level."""
    tree, row = capacity.tree, capacity.row(resource)
    if row is None or not len(tree):
        return np.zeros(tree.domains(level))
    free: NDArray[np.float64] = np.add.reduceat(np.maximum(row, 0).astype(np.float64), tree.first_leaf[level])
    return free


def _pods_on_a_leaf(capacity: Capacity, request: PodSetRequest) -> int:
    """Return how many of the pods an empty leaf can have at most: fewer for larger pods."""
    return int(pods_per_domain(capacity.empty(), request.shape)[-1].max(initial=0))


def _reordered(found: Placement, requests: Sequence[PodSetRequest]) -> Placement:
    """Return the placement with its pod sets in request order."""
    by_name = {pod_set.name: pod_set for pod_set in found.pod_sets}
    return Placement(tuple(by_name[request.name] for request in requests if request.name in by_name))


def _is_plain(request: PodSetRequest) -> bool:
    """Whether only room and node rules decide which leaves of a domain may have the pods."""
    alone = (request.group, request.apart, request.one_domain) == (None, frozenset(), ())
    return alone and request.topology == TopologyRequest(
        required=request.topology.required, preferred=request.topology.preferred
    )


def _pods_of(answer: Placement | Misfit, names: frozenset[str]) -> int:
    """Return how many pods of these pod sets have places in an answer, with those of the first that has not all."""
    placed = answer.pod_sets if isinstance(answer, Placement) else answer.placed
    pods = sum(pod_set.assignment.count for pod_set in placed if pod_set.name in names)
    if isinstance(answer, Misfit) and answer.pod_set in names and answer.unit == "pod":
        pods += min(answer.fit, max(0, answer.total - 1))
    return pods


def _short(capacity: Capacity, pod_sets: Sequence[PodSetRequest], level: int, path: Path) -> Shortage | None:
    """Return the resource that the domain has too little of for all pods; of several the one that is scarcest; None: it
    has enough of each, but not in the right pieces.
    """
    tree: Tree = capacity.tree
    leaf = next(i for i, full in enumerate(tree.paths) if full[: level + 1] == path)
    leaves = tree.leaves_of(level, tree.domain_of(level).item(leaf))
    scarcest: tuple[float, Shortage] | None = None
    for resource in sorted({name for request in pod_sets for name, _ in request.shape.requests}):
        asked = sum(dict(request.shape.requests).get(resource, 0) * request.count for request in pod_sets)
        row = capacity.row(resource)
        free = sum(max(0, amount) for amount in row[leaves].tolist()) if row is not None else 0
        if free < asked and (scarcest is None or free / asked < scarcest[0]):
            scarcest = free / asked, Shortage(resource, asked, free)
    return scarcest[1] if scarcest is not None else None
