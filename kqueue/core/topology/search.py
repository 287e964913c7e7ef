"""The search for domains: the level, the domains of that level, and the way down to the leaves.

*Choose the level*: the requested level, and for preferred requests each wider one in turn, until one domain has room
for all pods; if none has, several domains.  *Descend*: above the slice level the children of all chosen domains are one
pool that is filled greedily again; at and below it each domain keeps the pods assigned to it.

Ties are always decided by level values, so equal input gives equal output.  Source: KEP-2724.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from kqueue.core.topology.balanced import balance
from kqueue.core.topology.counting import Tally
from kqueue.core.topology.filling import FEW, NEVER, take_few, tightest
from kqueue.core.topology.request import Resolved
from kqueue.core.topology.result import LayerFit, Misfit, MisfitCode
from kqueue.core.topology.tree import Ints, Tree

_RADIX_MAX = np.iinfo(np.int16).max
_NO_LEADER = -1
_MANY = 256
"""The largest number of domains that are always sorted; more are sorted only if there is no other way."""
_domain_of = itemgetter(1)


@dataclass(slots=True)
class ChosenDomains:
    """Domains of one level in the order they were taken, the units of each, and the domain with the leader."""

    domains: Ints
    pods: Ints
    leader: int = _NO_LEADER


def _in_path_order(chosen: ChosenDomains) -> tuple[list[int], list[int], int]:
    """Return the used leaves, the pods of each, and the leader's leaf."""
    used = np.flatnonzero(chosen.pods)
    used = used[chosen.domains[used].argsort()]
    return chosen.domains[used].tolist(), chosen.pods[used].tolist(), chosen.leader


class PlacementSearch:
    """A search over one tally."""

    def __init__(self, tree: Tree, counts: Tally, resolved: Resolved, *, leaders: int) -> None:
        self._tree = tree
        self._counts = counts
        self._request = resolved
        self._leaders = leaders
        self._plain = leaders == 0 and counts.affinity is None
        self.last_level = resolved.level
        self._groups: tuple[int, int, Ints, Ints] | None = None

    def run(self) -> tuple[list[int], list[int], int] | Misfit:
        """Return the leaves in path order, the pods of each, and the leader's leaf (-1 without a leader); or the
        misfit.
        """
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
        return _in_path_order(chosen)

    def balanced(self) -> tuple[list[int], list[int], int] | None:
        """Return a balanced placement in the form of `run`; None: there is none, or its domains ran out on the way
        down.
        """
        found = balance(self._tree, self._counts, self._request, leaders=self._leaders)
        if found is None:
            return None
        below = PlacementSearch(self._tree, found.counts, self._request, leaders=self._leaders)
        chosen = below._split_down(found.level, ChosenDomains(found.domains, found.pods, found.leader))
        return None if chosen is None else _in_path_order(chosen)

    # -- the level ----------------------------------------------------------------------------------------------------

    def _find_level(self, level: int) -> int | Ints | Misfit:
        """Return the domain for the pod set, or the domains, of `level` or a wider one (`last_level`)."""
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
        if best is None:  # the pods of the gang are in domains that the tree does not have
            return self._misfit(MisfitCode.NO_FIT, fit=0)
        fit = int(self._counts.slices[level][best])
        left_over = fit >= self._request.need or (leaders is not None and not leaders[level][best])
        return self._misfit(MisfitCode.NO_FIT, fit=fit, leader=left_over)

    def _one_domain(self, level: int) -> int | None:
        """Return the domain of this level that will have all pods; None: no domain has room."""
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
            return None  # only with preferred affinity can the best-scored domain be too small for a required request
        return self._best_fit(level, order[first:], counts.slices_led[level], need, wanted)

    def _tightest_domain(self, level: int) -> int | None:
        """Return, without leader and affinity, the smallest domain that fits; of equals the one with fewest pods, then
        the first.
        """
        slices, need = self._counts.slices[level], self._request.need
        if len(slices) > _MANY and slices.max() < need:
            return None  # a check costs less than a subtraction
        best = tightest(slices, need)
        if best is None or self._counts.uniform:
            return best
        return self._fewest_pods(level, slice(0, len(slices)), best)

    def _fewest_pods(self, level: int, inside: slice, best: int) -> int:
        """Return the domain with fewest pods among the domains with as many slices as the best one; of equals the
        first. Domains are numbered from the first of `inside`.
        """
        slices, pods = self._counts.slices[level], self._counts.pods[level]
        if slices is pods or inside.stop - inside.start == 1:
            return best
        rooms = slices[inside]
        (alike,) = (rooms == rooms[best]).nonzero()
        return best if len(alike) == 1 else int(alike[pods[inside][alike].argmin()])

    def best_domain(self) -> int | None:
        """Return the domain of the last level that came closest; None: there are none.

        It has the most slices; of equals it is the first. If a leader or affinity comes before capacity, only the
        domains preferred by these are compared.
        """
        level, inside = self.last_level, self._counts.inside(self._tree)
        slices = self._counts.slices[level]
        domains = self._all(level) if inside is None else np.unique(self._tree.domain_of(level)[inside])
        if not len(domains):
            return None
        if self._plain or self._request.least:
            return domains.item(slices[domains].argmax())
        return self._order(level, domains, led=True).item(0)

    def _spread(self, level: int) -> Ints | Misfit:
        """Return several domains of this level, in the order in which they are filled."""
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

    # -- the descent ---------------------------------------------------------------------------------------------------

    def _descend(self, domains: Ints) -> ChosenDomains | None:
        """Go down from domains of `last_level` to leaves; None: they have less room than was counted."""
        tree, request, level = self._tree, self._request, self.last_level
        current = self._minimise(level, domains, request.need, self._leaders, in_slices=True)
        while current is not None and level < request.slice_level:
            pool = tree.children(level, current.domains)
            level += 1
            current = self._minimise(level, pool, request.need, self._leaders, in_slices=True, sort=True)
        return None if current is None else self._split_down(level, current)

    def _fill_one(self, domain: int) -> list[tuple[int, int]] | None:
        """Do `_descend` from one domain with room for all pods, without leader, affinity and inner layers.

        Returns (pods, leaf), ascending by leaf; None: there are too many domains somewhere on the way down to do it
        without numpy.
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
        """Do `_minimise` with `sort` for the children of these domains (ascending) of `level`; return (units, child) as
        taken.

        None: there are too many children to do it without numpy, or they have too little room.
        """
        starts, counts = self._tree.first_child[level], self._counts
        room, pods = (counts.slices if in_slices else counts.pods)[level + 1], counts.pods[level + 1]
        ascending = self._request.least or not in_slices  # below the slice level, domains with fewest pods come first
        pairs: list[tuple[int, int]] = []
        for parent in parents:
            first = starts.item(parent)
            end = starts.item(parent + 1) if parent + 1 < len(starts) else len(room)
            if len(parents) == 1:
                rooms = room[first:end]
                one = tightest(rooms, 1 if ascending else need)
                if one is not None and rooms.item(one) >= need:
                    if room is not pods:
                        one = self._fewest_pods(level + 1, slice(first, end), one)
                    return [(need, first + one)]
            if len(pairs) + end - first > FEW:
                return None
            pairs += zip(room[first:end].tolist(), range(first, end), strict=True)
        if room is not pods:
            pairs.sort(key=lambda pair: pods.item(pair[1]))
        return take_few(pairs, need, ascending=ascending, sort=True)

    def _split_down(self, level: int, chosen: ChosenDomains) -> ChosenDomains | None:
        """Distribute the pods of every domain of `level` among its children, down to the leaves; None: the children
        have less room.
        """
        current: ChosenDomains | None = chosen
        while current is not None and level < self._tree.lowest:
            current = self._split(level, current)
            level += 1
        return current

    def _split(self, level: int, parents: ChosenDomains) -> ChosenDomains | None:
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
        return ChosenDomains(np.concatenate(domains), np.concatenate(pods), leader)

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
    ) -> ChosenDomains | None:
        """Fill these domains in their order with `need` units, ending on the tightest that holds the rest.

        Units are slices of the request, or groups of `inner_size` pods.  With `sort`, the domains (ascending) are
        ordered first.  None: they have no room for `need`, or for the leader.
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
            return ChosenDomains(taken.domains, taken.pods * size)
        order = self._order(level, domains) if sort else domains
        order = self._leader_first(level, order, plain=plain, led=led, wanted=need)
        return self._fill_with_leader(level, order, plain, led, need, size)

    def _groups_of(self, level: int, size: int) -> tuple[Ints, Ints]:
        """Return the groups of `size` pods that fit in each domain of a level, alone and beside the leader.

        They are computed once for all parents whose pods are split.
        """
        if self._groups is None or self._groups[:2] != (level, size):
            pods, led = self._counts.pods[level], self._counts.pods_led[level]
            plain = pods // size
            self._groups = level, size, plain, plain if led is pods else led // size
        return self._groups[2:]

    def _fill_with_leader(
        self, level: int, order: Ints, plain: Ints, led: Ints, need: int, size: int
    ) -> ChosenDomains | None:
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
                return ChosenDomains(np.array(domains), np.array(units) * size, domain)
            rest = self._fill(level, order[i + 1 :], plain, left)
            if rest is None:
                return None
            return ChosenDomains(
                np.concatenate([domains, rest.domains]), np.concatenate([units, rest.pods]) * size, domain
            )
        return None

    def _fill(self, level: int, domains: Ints, room: Ints, need: int, *, sort: bool = False) -> ChosenDomains | None:
        """Take domains in order until `need` (> 0) units have room, the last one by best fit; None: there is not enough
        room.

        `pods` of the result are units.  Domains without room are skipped, because they could only get zero units (with
        a leader they stay, because one of their children may carry it).
        """
        if len(domains) <= FEW and self._plain and self._counts.uniform:
            pairs = list(zip(room[domains].tolist(), domains.tolist(), strict=True))
            few = take_few(pairs, need, ascending=self._request.least, sort=sort)
            if few is None:
                return None
            return ChosenDomains(np.array([d for _, d in few]), np.array([units for units, _ in few]))
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
            final = last + int(np.where(tail >= left, tail, NEVER).argmin())
        taken, units = order[: last + 1].copy(), rooms[: last + 1].copy()
        taken[last], units[last] = order[final], left
        return ChosenDomains(taken, units)

    def _fill_equal(self, domains: Ints, room: Ints, need: int) -> ChosenDomains | None:
        """Do `_fill` with `sort`, if the first domains in order, all of equal room, suffice; None: they do not."""
        rooms = room if len(domains) == len(room) else room[domains]
        value = int(rooms.min() if self._request.least else rooms.max())
        if not value and self._request.least:
            value = int(np.where(rooms > 0, rooms, NEVER).min())
        if not value or value == NEVER:
            return None
        whole, left = divmod(need - 1, value)
        left += 1
        alike = rooms == value
        first = np.flatnonzero(alike[: _MANY * (whole + 1)])  # most often the domains are among these
        if len(first) <= whole:
            first = np.flatnonzero(alike)
        if len(first) <= whole:
            return None
        taken = domains[first[: whole + 1]]
        units = np.full(whole + 1, value, dtype=np.int64)
        units[-1] = left
        if left < value and not self._request.least:
            tight = np.where((rooms >= left) & (rooms < value), rooms, NEVER)
            best = int(tight.argmin())
            if tight[best] != NEVER:
                taken[-1] = domains[best]
        return ChosenDomains(taken, units)

    # -- orders --------------------------------------------------------------------------------------------------------

    def _all(self, level: int) -> Ints:
        return np.arange(self._tree.domains(level), dtype=np.int64)

    def _order(self, level: int, domains: Ints, *, led: bool = False) -> Ints:
        """Return these domains (ascending) in the order in which they are considered.

        Preferred affinity comes first where it counts; then most slices (fewest in least mode); then fewest pods; then
        level values. `led`: order by capacity beside the leader, with the domains that can carry it before all others.
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
        """Return the position of the first of the smallest rooms >= need among the leading run of equal affinity; if
        none, the first.
        """
        head = order[: self._equal_affinity(level, order)]
        rooms = room[head]
        fits = rooms >= need
        if leaders and self._counts.leaders is not None:
            fits &= self._counts.leaders[level][head] >= leaders
        candidates = np.where(fits, rooms, NEVER)
        best = int(candidates.argmin())
        return int(head[best] if candidates[best] != NEVER else head[0])

    def _equal_affinity(self, level: int, order: Ints) -> int:
        """Return the length of the leading run of equal affinity."""
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
        """Move the first domain that can carry the leader and leave enough room for the workers to the front."""
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

    # -- the misfit-----------------------------------------------------------------------------------------------------

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
        """Return the slices of each layer that fit in the domain with most slices; empty unless there are several
        layers.
        """
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
