"""The best placement of identical pods, with proof: fewest domains, then least surplus, then first names.

Best fit takes the domains with most room one after the other; `optimal` compares all placements. Of all placements that
satisfy the request it takes the one with the lexicographically smallest list

    domains used at level 0, at level 1, ..., at the lowest level      (used: holds a worker or the leader)
    surplus: pods that still fit on the used leaves afterwards
    used leaves, by level values; then the leader's leaf

The numbers of domains are found one after the other. While one domain of a level holds all pods, only such domains are
searched. Below that level a *knapsack* (`knapsack.py`) decides whether given numbers of domains suffice, and at the
lowest level which leaves have the least surplus.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from kqueue.core.topology.counting import Tally
from kqueue.core.topology.knapsack import NEVER, NO_LEADER, Knapsack, KnapsackProblem, LeafChoice, LimitReached, by_size
from kqueue.core.topology.request import Resolved
from kqueue.core.topology.tree import Ints, Tree

_NO_ROOM = -NEVER
_STEPS_LED = 10
_ROOTS_TRIED = 64
"""The largest number of domains whose roomiest children are tried before the search; for more, the tries cost
too much.
"""


class Arrangement(NamedTuple):
    """Used leaves in path order without a leaf that only has the leader, pods of each, the leader's leaf or -1."""

    leaves: list[int]
    pods: list[int]
    leader: int = NO_LEADER


class Optimum(NamedTuple):
    """The best arrangement found. `proven`: no arrangement is better."""

    arrangement: Arrangement
    proven: bool


def optimal(
    tree: Tree, counts: Tally, resolved: Resolved, *, leader: bool, limit: int, incumbent: Arrangement
) -> Optimum:
    """Return the best arrangement, or the best one found in `limit` steps.

    Args:
        counts: the pods that fit, as best fit used them.  Affinity is ignored.
        leader: one leader pod sits on a leaf that can carry it.
        limit: a count, not a time: results do not depend on the machine.
        incumbent: the arrangement of best fit.  The result is never worse.
    """
    search = _Search(KnapsackProblem(tree, counts, resolved, leader=leader, limit=limit), incumbent)
    try:
        search.run()
        proven = True
    except LimitReached:
        proven = False
    return Optimum(search.answer(), proven)


class _Search:
    """A search: descends from the widest domains to the level where several are needed, then uses knapsacks."""

    def __init__(self, problem: KnapsackProblem, incumbent: Arrangement) -> None:
        self.problem = problem
        self.incumbent = incumbent
        self.tree = problem.tree
        self._best: tuple[Sequence[int], int] | None = None
        """The leaves, and the leader's leaf."""

    def answer(self) -> Arrangement:
        """Return the best known arrangement."""
        return self.incumbent if self._best is None else self._filled(*self._best)

    def run(self) -> None:
        """Search until the end or the step limit."""
        level, roots = -1, np.zeros(1, dtype=np.int64)
        if self.problem.request.required:
            level = self.problem.request.level
            roots = self.problem.able(level)
        while level < self.tree.lowest:
            fewest, roots = self._fewest(level, roots)
            if fewest > 1:
                self._fill_several(level, roots.tolist(), fewest)
                return
            able = self.problem.able(level + 1)
            roots = able[np.isin(self.problem.parents(level, able), roots)]
            level += 1
        self._fill_one(roots)

    def _fill_one(self, leaves: Ints) -> None:
        """Put all pods on the tightest leaf."""
        leads = self.problem.leader
        leaf = int(leaves[self.problem.raw_rooms(leads=leads)[leaves].argmin()])
        self._best = [leaf], leaf if leads else NO_LEADER

    def _fewest(self, level: int, roots: Ints) -> tuple[int, Ints]:
        """Return the smallest number of children with room for all pods, and the roots that have such children."""
        plain = self._fewest_plain(level)[roots]
        if not self.problem.leader:
            return int(plain.min()), roots[plain == plain.min()]
        order = plain.argsort(kind="stable")
        fewest, found = NEVER, list[int]()
        for root, number_plain in zip(roots[order].tolist(), plain[order].tolist(), strict=True):
            if number_plain > fewest:
                break
            number = self._fewest_led(level, root)
            if number < fewest:
                fewest, found = number, []
            if number == fewest:
                found.append(root)
        return fewest, np.sort(np.array(found, dtype=np.int64))

    def _fewest_plain(self, level: int) -> Ints:
        """Return, per domain, how many of its roomiest children the pods need; too large a number if all together do
        not suffice.
        """
        room = self.problem.room(level + 1).plain
        starts = self.tree.first_child[level] if level >= 0 else np.zeros(1, dtype=np.int64)
        _, _, filled = by_size(room, starts)
        return np.add.reduceat((filled < self.problem.need).astype(np.int64), starts) + 1

    def _fewest_led(self, level: int, root: int) -> int:
        """Return the same number for one domain with the leader in one of its children."""
        children, room = self.problem.children(level, root), self.problem.room(level + 1)
        self.problem.look(_STEPS_LED + (children.stop - children.start) // 2)
        assert room.leaders is not None
        order = (-room.plain[children]).argsort(kind="stable") + children.start
        plain, led, leads = (array[order].tolist() for array in (room.plain, room.led, room.leaders))
        beside = [fits if can else _NO_ROOM for fits, can in zip(led, leads, strict=True)]
        later = [*accumulate(reversed(beside), max)][::-1]
        toll, fits = _NO_ROOM, 0  # the leader is in one of the roomiest, or replaces the last of them
        for number, (alone, led_here) in enumerate(zip(plain, beside, strict=True), start=1):
            toll = max(toll, led_here - alone)
            if max(fits + alone + toll, fits + later[number - 1]) >= self.problem.need:
                return number
            fits += alone
        return len(order) + 1

    # -- several domains -----------------------------------------------------------------------------------------------

    def _fill_several(self, level: int, roots: Sequence[int], fewest: int) -> None:
        """Find the numbers of domains level by level, then the leaves."""
        if level + 1 < self.tree.lowest:
            self._start_with_the_roomiest(level, roots)
        knapsacks = [Knapsack(self.problem, level, root) for root in roots]
        numbers = [fewest]
        for below in range(level + 2, self.tree.lowest):
            knapsacks = self._next_number(knapsacks, numbers, below)
        if level + 1 == self.tree.lowest:
            self._choose(knapsacks, numbers, level)
            return
        for knapsack in knapsacks:
            knapsack.expect(self.tree.lowest)
        while not self._choose(*self._most_promising(knapsacks, numbers), level):
            pass

    def _start_with_the_roomiest(self, level: int, roots: Sequence[int]) -> None:
        """Replace the incumbent if an arrangement of few roomy domains, on every level, is better."""
        room, leader = self.problem.room(self.tree.lowest), NO_LEADER
        tolls, carries = room.plain - room.led, room.leaders
        toll = 0 if carries is None else int(tolls[carries > 0].min())
        wide = np.array(roots, dtype=np.int64)
        if level >= 0 and len(roots) > _ROOTS_TRIED:
            wide = wide[(-self.problem.room(level).plain[wide]).argsort(kind="stable")[:_ROOTS_TRIED]]
        _, leaves = min(self._roomiest(level, root, self.problem.need + toll) for root in wide.tolist())
        if carries is not None:
            able = [leaf for leaf in leaves if carries[leaf]]
            if not able:
                return
            leader = min(able, key=lambda leaf: int(tolls[leaf]))
        if self._fitting(leaves, leader)[-1][1][0] >= self.problem.need:
            self.incumbent = min(self._filled(leaves, leader), self.incumbent, key=self.rank)

    def _roomiest(self, level: int, root: int, need: int) -> tuple[list[int], list[int]]:
        """Return the fewest roomiest domains by level, and the leaves; these may break groups, and may not carry the
        leader.
        """
        domains, numbers = np.array([root], dtype=np.int64), []
        for below in range(level + 1, self.tree.lowest + 1):
            children = self.tree.children(below - 1, domains) if below else np.arange(self.tree.domains(0))
            room = self.problem.room(below).plain[children]
            order = (-room).argsort(kind="stable")
            number = int(room[order].cumsum().searchsorted(need)) + 1
            domains = np.sort(children[order[:number]])
            numbers.append(len(domains))
        return numbers, domains.tolist()

    def _next_number(self, knapsacks: list[Knapsack], numbers: list[int], level: int) -> list[Knapsack]:
        """Append the smallest number of domains of `level` that suffices; return the knapsacks for which it
        suffices.
        """
        for knapsack in knapsacks:
            knapsack.expect(level)
        while True:
            able, wanted = self._most_promising(knapsacks, numbers)
            able = [knapsack for knapsack in able if knapsack.suffices(wanted)]
            if able:
                numbers[:] = wanted
                return able

    def _choose(self, knapsacks: Sequence[Knapsack], numbers: Sequence[int], level: int) -> bool:
        """Set the best leaves in these numbers of domains; False: there are none."""
        best = self._known(level, numbers)
        for knapsack in knapsacks:
            found = knapsack.best(numbers, best)
            if found is not None:
                best = found
                self._best = best.leaves, best.leader
        if best is None:
            return False
        self._best = best.leaves, best.leader
        return True

    def _most_promising(
        self, knapsacks: Sequence[Knapsack], numbers: Sequence[int]
    ) -> tuple[list[Knapsack], list[int]]:
        """Return the knapsacks for which the smallest number of domains may suffice, and all numbers including that
        one.
        """
        self.problem.scan(4 * len(knapsacks))
        number = min(knapsack.at_least for knapsack in knapsacks)
        assert number < NEVER, "best fit found room, so some number of domains has it"
        return [knapsack for knapsack in knapsacks if knapsack.at_least == number], [*numbers, number]

    def _known(self, level: int, numbers: Sequence[int]) -> LeafChoice | None:
        """Return best fit's solution if it uses these numbers of domains below one domain of `level`."""
        used, pods, leaves, leader = self.rank(self.incumbent)
        if used != [*[1] * (level + 1), *numbers]:
            return None
        root = int(self.tree.domain_of(level)[leaves[0]]) if level >= 0 else 0
        return LeafChoice(root, pods, leaves, leader)

    def _filled(self, leaves: Sequence[int], leader: int) -> Arrangement:
        """Return amounts: level by level the used domains with most room are filled, and the last takes the rest."""
        *fitting, _ = self._fitting(leaves, leader)
        amounts = np.array([self.problem.need], dtype=np.int64)
        parents = np.zeros(1, dtype=np.int64)
        for level, (domains, fits) in zip(range(-1, self.tree.lowest), reversed(fitting), strict=True):
            amounts = _filled_children(amounts, parents.searchsorted(self.problem.parents(level, domains)), fits)
            parents = domains
        used = amounts > 0
        return Arrangement(parents[used].tolist(), amounts[used].tolist(), leader)

    def _fitting(self, leaves: Sequence[int], leader: int) -> list[tuple[Ints, Ints]]:
        """Return used domains and the pods that fit on these leaves alone, from the lowest level to the one domain
        above all.
        """
        room, domains = self.problem.room(self.tree.lowest), np.sort(np.array(leaves, dtype=np.int64))
        fits = np.where(domains == leader, room.led[domains], room.plain[domains])
        result = [(domains, fits)]
        for level in range(self.tree.lowest - 1, -2, -1):
            unit = self.problem.unit(level) if level >= 0 else 1
            domains, starts = np.unique(self.problem.parents(level, domains), return_index=True)
            fits = np.add.reduceat(fits, starts) // unit * unit
            result.append((domains, fits))
        return result

    def rank(self, arrangement: Arrangement) -> tuple[list[int], int, list[int], int]:
        """Return the sort key of an arrangement; the smaller is the better."""
        leaves = sorted({*arrangement.leaves, *([arrangement.leader] if self.problem.leader else [])})
        used = [len(np.unique(self.tree.domain_of(level)[leaves])) for level in range(len(self.tree.levels))]
        pods = int(self.problem.raw_rooms()[leaves].sum())
        if self.problem.leader:
            leader = arrangement.leader
            pods += self.problem.raw(leader, leads=True) - self.problem.raw(leader)
        return used, pods, leaves, arrangement.leader


def _filled_children(amounts: Ints, owners: Ints, fits: Ints) -> Ints:
    """Return the amount of each child when the children with most room of every domain are filled first.

    `owners`: per child, the index of its domain in `amounts`, ascending.
    """
    order = np.lexsort((-fits, owners))
    ordered, owners = fits[order], owners[order]
    before = ordered.cumsum() - ordered
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    before -= np.repeat(before[starts], np.diff(starts, append=len(owners)))
    result = np.zeros_like(fits)
    result[order] = np.clip(amounts[owners] - before, 0, ordered)
    return result
