"""The best placement of identical pods, with proof: fewest domains, then least surplus, then first names.

Where best fit takes the roomiest domains one after the other, this compares all placements.  Of those that satisfy the
request it takes the one with the lexicographically smallest list

    domains used at level 0, at level 1, ..., at the lowest level      (used: holds a worker or the leader)
    surplus: pods that still fit on the used leaves afterwards
    used leaves, by level values; then the leader's leaf

The numbers of domains are found one after the other.  As long as one domain of a level holds everything, only such
domains are looked into.  From there on a *knapsack* (`knapsack.py`) tells whether given numbers of domains suffice, and
at the lowest level which leaves do it with the least surplus.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from kqueue.core.topology.counting import Tally
from kqueue.core.topology.knapsack import NEVER, NO_LEADER, Choice, Knapsack, LimitReached, Problem, by_size
from kqueue.core.topology.request import Resolved
from kqueue.core.topology.tree import Ints, Tree

_NO_ROOM = -NEVER


class Arrangement(NamedTuple):
    """Used leaves in path order without a leaf that only has the leader, pods of each, the leader's leaf or -1."""

    leaves: list[int]
    pods: list[int]
    leader: int = NO_LEADER


class Optimum(NamedTuple):
    """The best arrangement found.  `proven`: there is none better."""

    arrangement: Arrangement
    proven: bool


def optimal(
    tree: Tree, counts: Tally, resolved: Resolved, *, leader: bool, limit: int, incumbent: Arrangement
) -> Optimum:
    """The best arrangement, or the best that was found before `limit` partial arrangements had been looked at.

    Args:
        counts: what fits, as best fit used it.  Its affinity plays no part.
        leader: one leader pod sits on a leaf that can carry it.
        limit: a count, not a time: results do not depend on the machine.
        incumbent: what best fit found.  The result is never worse.
    """
    search = _Search(Problem(tree, counts, resolved, leader=leader, limit=limit), incumbent)
    try:
        search.run()
        proven = True
    except LimitReached:
        proven = False
    return Optimum(search.best or search.incumbent, proven)


class _Search:
    """One search: from the widest domains to where several are needed, and from there by knapsacks."""

    def __init__(self, problem: Problem, incumbent: Arrangement) -> None:
        self.problem = problem
        self.incumbent = incumbent
        self.best: Arrangement | None = None
        self.tree = problem.tree

    def run(self) -> None:
        """Leave the best arrangement in `best`; when the limit ends the run, one better than the incumbent, or None."""
        level, roots = -1, [0]
        if self.problem.request.required:
            level = self.problem.request.level
            roots = self.problem.able(level)
        while level < self.tree.lowest:
            fewest, roots = self._fewest(level, roots)
            if fewest > 1:
                self._fill_several(level, roots, fewest)
                return
            inside = set(roots)
            roots = [child for child in self.problem.able(level + 1) if self.problem.parent(level, child) in inside]
            level += 1
        self._fill_one(roots)

    def _fill_one(self, leaves: Sequence[int]) -> None:
        """Everything on the tightest leaf."""
        leads = self.problem.leader
        leaf = min(leaves, key=lambda leaf: (self.problem.raw(leaf, leads=leads), leaf))
        self.best = Arrangement([leaf], [self.problem.need], leaf if leads else NO_LEADER)

    def _fewest(self, level: int, roots: Sequence[int]) -> tuple[int, list[int]]:
        """The smallest number of children that hold everything, and the roots that have such children."""
        plain = self._fewest_plain(level)
        found: dict[int, list[int]] = {}
        for root in sorted(roots, key=lambda root: int(plain[root])):
            if found and int(plain[root]) > min(found):
                break
            number = self._fewest_led(level, root) if self.problem.leader else int(plain[root])
            found.setdefault(number, []).append(root)
        return min(found), sorted(found[min(found)])

    def _fewest_plain(self, level: int) -> Ints:
        """Per domain, how many of its roomiest children hold the need; too many when all together do not."""
        room = self.problem.room(level + 1).plain
        starts = self.tree.first_child[level] if level >= 0 else np.zeros(1, dtype=np.int64)
        _, _, filled = by_size(room, starts)
        return np.add.reduceat((filled < self.problem.need).astype(np.int64), starts) + 1

    def _fewest_led(self, level: int, root: int) -> int:
        """The same for one domain with the leader in one of the children."""
        children, room = self.problem.children(level, root), self.problem.room(level + 1)
        assert room.leaders is not None
        order = (-room.plain[children]).argsort(kind="stable") + children.start
        plain, led, leads = (array[order].tolist() for array in (room.plain, room.led, room.leaders))
        beside = [fits if can else _NO_ROOM for fits, can in zip(led, leads, strict=True)]
        later = [*accumulate(reversed(beside), max)][::-1]
        toll, fits = _NO_ROOM, 0  # the leader among the roomiest ones, or instead of the last of them
        for number, (alone, led_here) in enumerate(zip(plain, beside, strict=True), start=1):
            toll = max(toll, led_here - alone)
            if max(fits + alone + toll, fits + later[number - 1]) >= self.problem.need:
                return number
            fits += alone
        return len(order) + 1

    # -- several domains -----------------------------------------------------------------------------------------------

    def _fill_several(self, level: int, roots: Sequence[int], fewest: int) -> None:
        """Numbers of domains level by level, then the leaves."""
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
        while not self._choose(*_most_promising(knapsacks, numbers), level):
            pass

    def _start_with_the_roomiest(self, level: int, roots: Sequence[int]) -> None:
        """Replace the incumbent where few roomy domains, in them few roomy domains, and so on, are better."""
        room, leader = self.problem.room(self.tree.lowest), NO_LEADER
        tolls, carries = room.plain - room.led, room.leaders
        toll = 0 if carries is None else int(tolls[carries > 0].min())
        _, leaves = min(self._roomiest(level, root, self.problem.need + toll) for root in roots)
        if carries is not None:
            able = [leaf for leaf in leaves if carries[leaf]]
            if not able:
                return
            leader = min(able, key=lambda leaf: int(tolls[leaf]))
        if self._fitting(leaves, leader)[-1][0] >= self.problem.need:
            self.incumbent = min(self._filled(leaves, leader), self.incumbent, key=self.rank)

    def _roomiest(self, level: int, root: int, need: int) -> tuple[list[int], list[int]]:
        """The fewest roomiest domains by level, and the leaves, which need not hold whole groups or the leader."""
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
        """Append the smallest number of domains of `level` that suffices; the knapsacks for which it does."""
        for knapsack in knapsacks:
            knapsack.expect(level)
        while True:
            able, wanted = _most_promising(knapsacks, numbers)
            able = [knapsack for knapsack in able if knapsack.suffices(wanted)]
            if able:
                numbers[:] = wanted
                return able

    def _choose(self, knapsacks: Sequence[Knapsack], numbers: Sequence[int], level: int) -> bool:
        """The best leaves in these numbers of domains; False when there are none."""
        best = self._known(level, numbers)
        for knapsack in knapsacks:
            found = knapsack.best(numbers, best)
            if found is not None:
                best = found
                self.best = self._filled(best.leaves, best.leader)
        if best is None:
            return False
        self.best = self._filled(best.leaves, best.leader)
        return True

    def _known(self, level: int, numbers: Sequence[int]) -> Choice | None:
        """What best fit found, if it uses these numbers of domains below one of `level`."""
        used, pods, leaves, leader = self.rank(self.incumbent)
        if used != [*[1] * (level + 1), *numbers]:
            return None
        root = int(self.tree.domain_of(level)[leaves[0]]) if level >= 0 else 0
        return Choice(root, pods, leaves, leader)

    def _filled(self, leaves: Sequence[int], leader: int) -> Arrangement:
        """Amounts: level by level the roomiest used domains are filled, and the last takes what is left."""
        amounts = {0: self.problem.need}
        for level, fits in zip(range(-1, self.tree.lowest), reversed(self._fitting(leaves, leader)[:-1]), strict=True):
            amounts = self._poured(level, amounts, fits)
        used = sorted(leaf for leaf, pods in amounts.items() if pods)
        return Arrangement(used, [amounts[leaf] for leaf in used], leader)

    def _fitting(self, leaves: Sequence[int], leader: int) -> list[dict[int, int]]:
        """Pods that fit on these leaves alone, by used domain; the lowest level first, and all there is at the end."""
        room = self.problem.room(self.tree.lowest)
        result = [{leaf: int((room.led if leaf == leader else room.plain)[leaf]) for leaf in leaves}]
        for level in range(self.tree.lowest - 1, -2, -1):
            unit, sums = self.problem.unit(level) if level >= 0 else 1, dict[int, int]()
            for child, pods in result[-1].items():
                parent = self.problem.parent(level, child)
                sums[parent] = sums.get(parent, 0) + pods
            result.append({domain: pods // unit * unit for domain, pods in sums.items()})
        return result

    def _poured(self, level: int, amounts: dict[int, int], fits: dict[int, int]) -> dict[int, int]:
        """The amounts of domains of `level` handed to their children."""
        left, result = dict(amounts), {}
        for child in sorted(fits, key=lambda child: (-fits[child], child)):
            parent = self.problem.parent(level, child)
            result[child] = min(fits[child], left[parent])
            left[parent] -= result[child]
        return result

    def rank(self, arrangement: Arrangement) -> tuple[list[int], int, list[int], int]:
        """Smaller is better."""
        leaves = sorted({*arrangement.leaves, *([arrangement.leader] if self.problem.leader else [])})
        used = [len(set(self.tree.domain_of(level)[leaves].tolist())) for level in range(len(self.tree.levels))]
        pods = sum(self.problem.raw(leaf, leads=leaf == arrangement.leader) for leaf in leaves)
        return used, pods, leaves, arrangement.leader


def _most_promising(knapsacks: Sequence[Knapsack], numbers: Sequence[int]) -> tuple[list[Knapsack], list[int]]:
    """The knapsacks for which the smallest number of domains may suffice, and all numbers with it."""
    number = min(knapsack.at_least for knapsack in knapsacks)
    assert number < NEVER, "best fit found room, so some number of domains has it"
    return [knapsack for knapsack in knapsacks if knapsack.at_least == number], [*numbers, number]
