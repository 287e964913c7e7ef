"""Balanced placement: uses the fewest domains, and maximises the pods of the least filled of them.

It serves preferred requests and balances two neighbouring levels: the requested level and the level below. Candidates
are *families*: the domains of that level with one common parent.  Each family has a *threshold*: the smallest number of
slices that any used domain will get; domains with room for fewer are pruned.  The family with the highest threshold
wins; of equal families, the family that needs fewer domains, then the first.  In it, the set with the least surplus is
chosen on both levels, each domain gets the threshold, and the remaining slices are added to the domains with most room
first.

All families are computed at once: a family is a run of domains, and has one entry in each array.
Source: KEP-2724, balanced placement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kqueue.core.topology.counting import Tally, roll_up_level
from kqueue.core.topology.request import Resolved
from kqueue.core.topology.tree import Ints, Tree

_NONE = -1
_ROW_WORDS = 100
"""The fixed cost of one number of domains in the choice of the least surplus, as words moved, even with few pods."""
_MOST_WORDS = 8_000_000
"""The largest number of 64-bit words that this choice may move: about 40 ms. Above it, the domains with most room are
used.
"""


@dataclass(frozen=True, slots=True)
class Balance:
    """A balanced fill of one level; the pods of each domain are then distributed among its children.

    Attributes:
        level, domains: domains of this level, ascending within equal rank, the leader's domain first.
        pods: the pods of each domain.
        leader: the domain that carries the leader, -1 without one.
        counts: the pods that fit in the domains below; 0 in pruned domains.
    """

    level: int
    domains: Ints
    pods: Ints
    leader: int
    counts: Tally


def balance(tree: Tree, counts: Tally, request: Resolved, *, leaders: int) -> Balance | None:
    """Return the balanced choice of domains; None: there is none, and the request must be placed in the usual way.

    `counts` are not changed. If slices are as wide as the requested level, there is nothing to balance.
    """
    level = request.level
    if request.need == 0 or not tree.domains(level) or level == request.slice_level < tree.lowest:
        return None
    return _Balancer(tree, request, leaders).run(counts)


@dataclass(frozen=True, slots=True)
class _Filled:
    """A greedy fill of each family, domains with most room first; `used`, `leader` and `last` are valid only if it
    `fits`.

    `leader` and `last` are the domain with the leader and the last domain without it; -1: there is none.
    """

    fits: NDArray[np.bool_]
    used: Ints
    leader: Ints
    last: Ints


@dataclass(frozen=True, slots=True)
class _Winner:
    """The chosen family: its domains, its threshold, and the counts after pruning with it."""

    domains: Ints
    threshold: int
    counts: Tally


class _Balancer:
    """The balanced placement of one request on one tree."""

    def __init__(self, tree: Tree, request: Resolved, leaders: int) -> None:
        self._tree = tree
        self._request = request
        self._leaders = leaders
        self._level = request.level
        self._deep = request.level < request.slice_level
        """Whether the level below must be balanced, too."""
        starts = tree.first_child[self._level - 1] if self._level else np.zeros(1, dtype=np.int64)
        self._starts = starts
        self._sizes = np.diff(starts, append=tree.domains(self._level))

    def run(self, counts: Tally) -> Balance | None:
        winner = self._winner(counts)
        if winner is None:
            return None
        level, domains = self._level, winner.domains
        if self._deep:
            parents = self._least_surplus(winner.counts, level, self._by_entropy(winner.counts, domains))
            if parents is None:
                return None
            domains = self._tree.children(level, parents)
            level += 1
        chosen = self._least_surplus(winner.counts, level, domains)
        return None if chosen is None else self._share_out(winner, level, chosen)

    # -- the family ---------------------------------------------------------------------------------------------------

    def _winner(self, counts: Tally) -> _Winner | None:
        fits, threshold, cautious = self._thresholds(counts)
        if not fits.any():
            return None
        pruned = self._pruned(counts, threshold)
        filled = self._fill_families(pruned, self._level)
        good, used, retried = fits & filled.fits, filled.used, np.zeros_like(fits)
        again = fits & ~filled.fits & (cautious < threshold) & (cautious > 0)
        pruned_again = pruned
        if again.any():
            pruned_again = self._pruned(counts, cautious)
            filled = self._fill_families(pruned_again, self._level)
            retried = again & filled.fits
            threshold, used = np.where(retried, cautious, threshold), np.where(retried, filled.used, used)
        threshold = np.where(good | retried, threshold, 0)
        highest = int(threshold.max())
        if highest == 0:
            return None
        family = int(np.where(threshold == highest, used, np.iinfo(np.int64).max).argmin())
        start = int(self._starts[family])
        domains = np.arange(start, start + int(self._sizes[family]), dtype=np.int64)
        return _Winner(domains, highest, pruned_again if retried[family] else pruned)

    def _thresholds(self, counts: Tally) -> tuple[NDArray[np.bool_], Ints, Ints]:
        """Return per family: whether it has room for the request, the threshold, and a lower threshold that leaves room
        for the leader.
        """
        level = self._level + 1 if self._deep else self._level
        slices, led = counts.slices[level], counts.slices_led[level]
        filled = self._fill_families(counts, level)
        threshold = self._request.need // np.maximum(filled.used, 1)
        if self._leaders:
            threshold = np.minimum(threshold, led[filled.leader])
        plain = filled.last != _NONE
        threshold = np.where(plain, np.minimum(threshold, slices[filled.last]), threshold)
        threshold = np.where(filled.fits, threshold, 0)
        if not self._leaders:
            return filled.fits, threshold, threshold
        return filled.fits, threshold, np.where(plain, np.minimum(threshold, led[filled.last]), threshold)

    def _fill_families(self, counts: Tally, level: int) -> _Filled:
        starts = self._starts if level == self._level else self._tree.first_child[self._level][self._starts]
        return self._fill(counts, level, np.arange(self._tree.domains(level), dtype=np.int64), starts)

    def _fill(self, counts: Tally, level: int, domains: Ints, starts: Ints) -> _Filled:
        """Fill runs of `domains` (ascending) that begin at `starts`."""
        sizes = np.diff(starts, append=len(domains))
        run = np.repeat(np.arange(len(starts)), sizes)
        rooms = counts.slices[level][domains]
        keys: list[NDArray[Any]] = [counts.pods[level][domains], -rooms]
        if counts.affinity is not None:
            keys.append(-counts.affinity[level][domains])
        able = np.ones(len(starts), dtype=np.bool_)
        leader = np.full(len(starts), _NONE, dtype=np.int64)
        plain = np.ones(len(domains), dtype=np.bool_)
        if self._leaders:
            assert counts.leaders is not None
            first = np.lexsort([*self._led_keys(counts, level, domains), run])[starts]
            leader = domains[first]
            able = counts.leaders[level][leader] > 0
            rooms[first] = counts.slices_led[level][leader]
            plain[first] = False  # the leader's domain is the first of its run
            keys.append(plain)
        order = np.lexsort([*keys, run])
        rooms, plain = rooms[order], plain[order]
        sums = rooms.cumsum()
        ends = sums.searchsorted(sums[starts] - rooms[starts] + self._request.need)
        # affinity may put a domain without room before others: the fill ends there
        barred = np.where((rooms == 0) & plain, np.arange(len(domains)), len(domains))
        fits = able & (ends < np.minimum(starts + sizes, np.minimum.reduceat(barred, starts)))
        ends = np.where(fits, ends, starts)
        last = np.where(plain[ends], domains[order[ends]], _NONE)
        return _Filled(fits, ends - starts + 1, leader, last)

    @staticmethod
    def _led_keys(counts: Tally, level: int, domains: Ints) -> list[Ints]:
        """Return sort keys, the most significant last: domains that can carry the leader first, then most room beside
        it.
        """
        keys = [counts.pods_led[level][domains], -counts.slices_led[level][domains]]
        if counts.affinity is not None:
            keys.append(-counts.affinity[level][domains])
        if counts.leaders is not None:
            keys.append(-counts.leaders[level][domains])
        return keys

    # -- pruning -------------------------------------------------------------------------------------------------------

    def _pruned(self, counts: Tally, threshold: Ints) -> Tally:
        """Return the counts without the domains that have room for fewer slices than the threshold of their family.

        Children are pruned before their parents, whose sums are computed again in between, without inner slice layers.
        """
        tree, level = self._tree, self._level
        result = replace(
            counts,
            pods=list(counts.pods),
            slices=list(counts.slices),
            pods_led=list(counts.pods_led),
            slices_led=list(counts.slices_led),
            leaders=None if counts.leaders is None else list(counts.leaders),
        )
        least = np.repeat(threshold, self._sizes)
        if self._deep:
            _cut(tree, result, level + 1, np.repeat(least, _family_sizes(tree, level)))
            flat = replace(self._request, inner_sizes=(0,) * len(tree.levels))
            for above in range(tree.lowest - 1, level - 1, -1):
                roll_up_level(tree, result, flat, above)
        _cut(tree, result, level, least)
        return result

    # -- the domains of it ---------------------------------------------------------------------------------------------

    def _by_entropy(self, counts: Tally, domains: Ints) -> Ints:
        """Sort domains: domains that can carry the leader first, then most room, then the most even pods of the
        children.
        """
        level = self._level
        known: dict[tuple[int, ...], float] = {}
        evenness = []
        for domain in domains.tolist():
            below = self._tree.children(level, np.array([domain], dtype=np.int64))
            pods = tuple(sorted(counts.pods[level + 1][below].tolist()))
            if pods not in known:
                known[pods] = entropy(pods)
            evenness.append(-known[pods])
        keys = [np.array(evenness), -counts.slices_led[level][domains]]
        if counts.leaders is not None:
            keys.append(-counts.leaders[level][domains])
        return domains[np.lexsort(keys)]

    def _least_surplus(self, counts: Tally, level: int, domains: Ints) -> Ints | None:
        """Return as few domains as a greedy fill uses, with the least surplus; of equal sets the first found."""
        filled = self._fill(counts, level, np.sort(domains), np.zeros(1, dtype=np.int64))
        if not filled.fits[0]:
            return None
        pods, led = counts.pods[level][domains].tolist(), counts.pods_led[level][domains].tolist()
        rooms = counts.slices[level][domains].tolist()
        carries = [0] * len(domains) if counts.leaders is None else counts.leaders[level][domains].tolist()
        found = fewest_surplus(
            [
                (n if slices > 0 else None, with_leader if carrier else None)
                for n, slices, with_leader, carrier in zip(pods, rooms, led, carries, strict=True)
            ],
            used=int(filled.used[0]),
            need=self._request.need * self._request.slice_size,
            leaders=self._leaders,
        )
        return None if found is None else domains[found]

    def _share_out(self, winner: _Winner, level: int, domains: Ints) -> Balance | None:
        """Give each domain the threshold, then the rest to the domains with most room; None if pods are left."""
        counts, threshold = winner.counts, winner.threshold
        extra = self._request.need - len(domains) * threshold
        if extra < 0:
            return None
        domains = np.sort(domains)
        domains = domains[np.lexsort(self._led_keys(counts, level, domains))]
        rooms = counts.slices[level][domains]
        leader = _NONE
        if self._leaders:
            leader = int(domains[0])
            rooms[0] = counts.slices_led[level][leader]
        units = []
        for room in rooms.tolist():
            units.append(threshold + min(room - threshold, extra))
            extra -= units[-1] - threshold
        if extra > 0:
            return None
        return Balance(level, domains, np.array(units, dtype=np.int64) * self._request.slice_size, leader, counts)


def _family_sizes(tree: Tree, level: int) -> Ints:
    """Return the number of children of each domain of `level`."""
    return np.diff(tree.first_child[level], append=tree.domains(level + 1))


def _cut(tree: Tree, counts: Tally, level: int, least: Ints) -> None:
    """Set the counts of domains of `level` below `least` to 0, with all below; a domain below it beside the leader
    cannot carry the leader.
    """
    stays = counts.slices[level] >= least
    leads = stays
    if counts.leaders is not None:
        leads = stays & ((counts.leaders[level] == 0) | (counts.slices_led[level] >= least))
    if leads.all():
        return
    for at in range(level, tree.lowest + 1):
        if at > level:
            sizes = _family_sizes(tree, at - 1)
            stays, leads = np.repeat(stays, sizes), np.repeat(leads, sizes)
        counts.pods[at], counts.slices[at] = counts.pods[at] * stays, counts.slices[at] * stays
        if counts.leaders is None:
            counts.pods_led[at], counts.slices_led[at] = counts.pods[at], counts.slices[at]
            continue
        counts.pods_led[at], counts.slices_led[at] = counts.pods_led[at] * leads, counts.slices_led[at] * leads
        counts.leaders[at] = counts.leaders[at] * leads


def entropy(counts: Sequence[int]) -> float:
    """Return how evenly `counts` (ascending) are spread, in bits; 0 for no counts.

    The sum is computed in order, so that equal counts give exactly equal results.
    """
    total = sum(counts)
    result = 0.0
    for count in counts:
        if count:
            result -= count / total * log2(count / total)
    return result


def fewest_surplus(
    sizes: Sequence[tuple[int | None, int | None]], *, used: int, need: int, leaders: int
) -> list[int] | None:
    """Choose `used` domains with room for `need` (> 0) pods and the leader and the least surplus; None: there are none.

    Args:
        sizes: per domain, the pods that fit, and the pods that fit beside the leader (>= 0). None: the domain may not
            be chosen in this role.
        leaders: 1 when there is a leader to place, else 0.

    Returns:
        Positions in `sizes`.  Of sets with equal surplus, the set that the program below finds first, domain by domain.
        If that would take too long, the domains with most room.
    """
    row = (_ROW_WORDS + need // 64) * (1 + 2 * leaders)
    if row > _MOST_WORDS:
        return _roomiest(sizes, used, need, leaders)
    program, words = _Program(used, need, leaders), 0
    idle: set[tuple[int | None, int | None]] = set()
    for domain, kind in enumerate(sizes):
        if kind in idle:
            continue  # an equal domain changed nothing, and nothing has changed since
        words += row * program.rows
        if words > _MOST_WORDS:
            return _roomiest(sizes, used, need, leaders)
        if program.offer(domain, *kind, following=len(sizes) - domain - 1):
            idle.clear()
        else:
            idle.add(kind)
        if program.is_exact:
            break
    return program.answer


def _roomiest(sizes: Sequence[tuple[int | None, int | None]], used: int, need: int, leaders: int) -> list[int] | None:
    """Return the `used` domains with most room, of equal domains the first; None: they have no room for the pods and
    the leader.
    """
    chosen: list[int] = []
    left = need
    if leaders:
        able = [(led, -place) for place, (_, led) in enumerate(sizes) if led is not None]
        if not able:
            return None
        led, place = max(able)
        chosen, left = [-place], left - led
    plain = [(-size, place) for place, (size, _) in enumerate(sizes) if size is not None and place not in chosen]
    more = sorted(plain)[: used - len(chosen)]
    chosen += [place for _, place in more]
    return chosen if left <= -sum(size for size, _ in more) and len(chosen) == used else None


class _Program:
    """A knapsack program over states (domains chosen, leaders left, pods left).  The first way to a state is kept.

    States with pods left are bits of one integer per number of domains, so that a domain moves all of them by one
    shift.  A state without pods left can only change by taking the leader, which keeps the order of surpluses: of these
    states only the best is kept.
    """

    __slots__ = ("_most", "_over", "_reached", "_steps", "_used")

    def __init__(self, used: int, need: int, leaders: int) -> None:
        self._used = used
        self._most = 0
        """The largest number of domains chosen in any state with pods left."""
        self._reached = [[0] * used for _ in range(leaders + 1)]
        """[leaders left][domains chosen]: bit n is set if a state has n pods left."""
        self._reached[leaders][0] = 1 << need
        self._steps: list[list[list[tuple[int, int, int, int]]]] = [[[] for _ in range(used)] for _ in self._reached]
        """The origin of set bits: (bits, domain, its size, whether it took the leader)."""
        self._over: list[tuple[int, list[int]] | None] = [None] * (used + 1)
        """[domains chosen]: the least surplus and the domains; the leader is left, except in the last entry, which is
        the answer.
        """

    @property
    def rows(self) -> int:
        """The numbers of domains that the next domain may lead to."""
        return min(self._used, self._most + 1)

    @property
    def answer(self) -> list[int] | None:
        """Return the domains of the best answer so far; None: there is no answer yet."""
        best = self._over[self._used]
        return None if best is None else best[1]

    @property
    def is_exact(self) -> bool:
        """Whether the answer has no surplus, so that no better one exists."""
        best = self._over[self._used]
        return best is not None and best[0] == 0

    def offer(self, domain: int, plain: int | None, led: int | None, *, following: int) -> bool:
        """Extend every state by this domain; `following` is the number of later domains. Returns whether a state was
        added.
        """
        fewest = max(1, self._used - following)  # states with fewer domains can never be complete
        most = min(self._used - 1, self._most + 1)
        changed = False
        for left in range(len(self._reached)):
            moves = ((led, 1), (plain, 0)) if left else ((plain, 0),)
            for size, leads in moves:
                if size is not None:
                    changed |= self._finish(left, domain, size, leads, fewest)
                    changed |= self._move(left, domain, size, leads, range(most, fewest - 1, -1))
        if self._most < most and any(reached[most] for reached in self._reached):
            self._most = most
        return changed

    def _move(self, left: int, domain: int, size: int, leads: int, counts: range) -> bool:
        """Extend states with pods left to other such states, for every number of domains, the highest number first."""
        sources, targets, steps = self._reached[left], self._reached[left - leads], self._steps[left - leads]
        changed = False
        for chosen in counts:
            new = (sources[chosen - 1] >> size) & ~(targets[chosen] | 1)
            if new:
                targets[chosen] |= new
                steps[chosen].append((new, domain, size, leads))
                changed = True
        return changed

    def _finish(self, left: int, domain: int, size: int, leads: int, fewest: int) -> bool:
        """Reach states without pods left: complete states, and states that miss only the leader."""
        changed = False
        counts = (self._used,) if left == leads else range(self._used - 1, fewest - 1, -1)
        for chosen in counts:
            source = self._reached[left][chosen - 1]
            covered = source if size + 1 >= source.bit_length() else source & ((2 << size) - 1)
            if covered:
                pods = covered.bit_length() - 1
                if self._is_better(chosen, size - pods):
                    self._over[chosen] = size - pods, [*self._way_to(chosen - 1, left, pods), domain]
                    changed = True
            over = self._over[chosen - 1] if left else None
            if over is not None and self._is_better(chosen, over[0] + size):
                self._over[chosen] = over[0] + size, [*over[1], domain]
                changed = True
        return changed

    def _is_better(self, chosen: int, surplus: int) -> bool:
        known = self._over[chosen]
        return known is None or surplus < known[0]

    def _way_to(self, chosen: int, left: int, pods: int) -> list[int]:
        """Return the domains that led to a state, the last one first."""
        way = []
        while chosen:
            steps = self._steps[left][chosen]
            domain, size, leads = next(step[1:] for step in steps if step[0] >> pods & 1)
            way.append(domain)
            chosen, left, pods = chosen - 1, left + leads, pods + size
        return way
