"""Chooses the best leaves below one domain for given numbers of domains per level.

Every domain offers its *options* (domains used below, pods that fit there, cost), and the options of sibling domains
are added up one sibling after the other. A bound keeps the number of options small. Every used domain is charged a
*price* of its level, in pods. With the right prices the sum of the best offers exceeds the need by little, and an
option that is below the best offer by more than that excess is in no solution. (Prices are Lagrange multipliers of the
numbers of domains.) The best known solution gives a second bound, on the cost.

Surplus, names and leader are one integer, so that costs can be added and compared at once: see `Costs`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise

import numpy as np

from kqueue.core.topology.counting import Tally
from kqueue.core.topology.request import Resolved
from kqueue.core.topology.tree import Ints, Tree

NO_LEADER = -1
NEVER = 1 << 62
_FIELD = 24
"""The number of bits of one entry in a packed list of numbers of domains; a tree has fewer leaves than fit in them."""
_LOSSES_MAX = 4096
"""The largest number of possible losses that are stored as bits of one integer."""
_STEP_BITS = 512
"""A partial arrangement whose cost is an integer of more bits counts as several steps: time and memory grow with it."""
_STEP_CHILD = 4
"""The steps for one domain, whatever it offers."""
_STEP_ARRAY = 20
"""The steps for a round of calls on short arrays."""
_STEP_ITEMS = 64
"""The number of array items that count as one more step."""

_Options = dict[int, tuple[int, dict[int, int]]]
"""By packed numbers of domains: their cost at the prices, and the smallest cost by pods that fit."""


class LimitReached(Exception):
    """The search has used all allowed steps."""


@dataclass(frozen=True, slots=True)
class LevelRoom:
    """Pods in whole groups that fit per domain of one level, alone and beside the leader, and the domains that can
    carry the leader.
    """

    plain: Ints
    led: Ints
    leaders: Ints | None


class KnapsackProblem:
    """The pods to place, the tree, and the remaining step budget.

    A step is one partial arrangement, or other work of about the same time. Steps are counted before the work, and all
    work that grows with the tree or the request is counted, so the limit bounds time and memory.
    Level -1 is one domain with everything in it.
    """

    def __init__(self, tree: Tree, counts: Tally, resolved: Resolved, *, leader: bool, limit: int) -> None:
        self.tree = tree
        self.request = resolved
        self.leader = leader
        self.need = resolved.need * resolved.slice_size
        self.room = cache(self._room)
        self._counts = counts
        self._left = limit
        self._starts: list[list[int]] = [starts.tolist() for starts in tree.first_child]

    def look(self, steps: int) -> None:
        """Count steps before they are done; raise LimitReached when the budget is used up."""
        if steps > self._left:
            raise LimitReached
        self._left -= steps

    def scan(self, items: int) -> None:
        """Count the steps of a round of calls on arrays with this many items."""
        self.look(_STEP_ARRAY + items // _STEP_ITEMS)

    def unit(self, level: int) -> int:
        """Return the number of pods in a group that a domain of this level cannot split."""
        at = self.request.slice_level
        return self.request.slice_size if level == at else self.request.inner_sizes[level] or 1 if level > at else 1

    def _room(self, level: int) -> LevelRoom:
        counts, size = self._counts, self.request.slice_size
        if level <= self.request.slice_level:
            plain, led = counts.slices[level] * size, counts.slices_led[level] * size
        else:
            unit = self.unit(level)
            plain, led = counts.pods[level] // unit * unit, counts.pods_led[level] // unit * unit
        return LevelRoom(plain, led, None if counts.leaders is None else counts.leaders[level])

    def children(self, level: int, domain: int) -> slice:
        """Return the children of a domain; level -1 is the one domain above all others."""
        if level < 0:
            return slice(0, self.tree.domains(0))
        starts = self._starts[level]
        return slice(starts[domain], starts[domain + 1] if domain + 1 < len(starts) else self.tree.domains(level + 1))

    def parents(self, level: int, children: Ints) -> Ints:
        """Return the domains of `level` that contain these domains of the level below."""
        if level < 0:
            return np.zeros(len(children), dtype=np.int64)
        return self.tree.first_child[level].searchsorted(children, side="right") - 1

    def able(self, level: int) -> Ints:
        """Return the domains that have room for all pods."""
        room = self.room(level)
        able = (room.led if self.leader else room.plain) >= self.need
        if self.leader and room.leaders is not None:
            able &= room.leaders > 0
        return np.flatnonzero(able)

    def raws(self, leaves: Sequence[int]) -> list[int]:
        """Return the pods that fit on each of these leaves, then the pods that fit beside the leader (0: it does not
        fit).
        """
        counts = self._counts
        raws: list[int] = counts.pods[-1][leaves].tolist()
        if counts.leaders is not None:
            raws += (counts.pods_led[-1][leaves] * counts.leaders[-1][leaves]).tolist()
        return raws

    def raw(self, leaf: int, *, leads: bool = False) -> int:
        """Return the pods that fit on a leaf, in whole groups or not."""
        return int(self.raw_rooms(leads=leads)[leaf])

    def raw_rooms(self, *, leads: bool = False) -> Ints:
        """Return the pods that fit per leaf, in whole groups or not."""
        return (self._counts.pods_led if leads else self._counts.pods)[-1]


@dataclass(frozen=True, slots=True)
class Costs:
    """Surplus, names and leader of some of `leaves` as one integer; costs of separate sets of leaves add up.

    From the most significant part on: raw pods that fit, minus one bit per used leaf (the first leaf has the highest
    bit: of equally many leaves the set of first names has the largest number), plus the place of the leader's leaf.
    """

    leaves: list[int]
    leader_bits: int

    @property
    def shift(self) -> int:
        """The bit at which the raw pods start."""
        return len(self.leaves) + self.leader_bits

    def of(self, place: int, pods: int, *, leads: bool = False) -> int:
        """Return the cost of the leaf at this place of `leaves`."""
        name = 1 << (len(self.leaves) - 1 - place)
        return (pods << self.shift) - (name << self.leader_bits) + (place if leads else 0)

    def pods(self, cost: int) -> int:
        """Return the raw pods of a cost."""
        return -(-cost >> self.shift)

    def names_from(self, leaf: int) -> int:
        """Return the most that the names of leaves from this one on can reduce a cost."""
        return ((1 << (len(self.leaves) - bisect_left(self.leaves, leaf))) - 1) << self.leader_bits

    @property
    def steps(self) -> int:
        """The number of steps that one cost counts as."""
        return 1 + self.shift // _STEP_BITS

    def of_all(self, leaves: Sequence[int], pods: int, leader: int) -> int:
        """Return the cost of these leaves (some of all), with room for this many raw pods; `leader` is the leader's
        leaf or -1.
        """
        used = set(leaves)
        names = int("".join("1" if leaf in used else "0" for leaf in self.leaves), 2)
        place = bisect_left(self.leaves, leader) if leader in used else 0
        return (pods << self.shift) - (names << self.leader_bits) + place

    def used(self, cost: int) -> tuple[list[int], int]:
        """Return the used leaves, ascending, and the leader's leaf."""
        names = (self.pods(cost) << len(self.leaves)) - (cost >> self.leader_bits)
        digits = f"{names:0{len(self.leaves)}b}"
        leader = self.leaves[cost & ((1 << self.leader_bits) - 1)] if self.leader_bits else NO_LEADER
        return [leaf for leaf, digit in zip(self.leaves, digits, strict=True) if digit == "1"], leader


@dataclass(frozen=True, slots=True)
class _Prices:
    """The prices of domains by level, from the root's children on, and the offers of domains at these prices.

    `offers` are upper bounds of pods minus prices, by the same levels. `bound` is an upper bound of the pods that fit
    in the wanted numbers of domains.
    """

    prices: tuple[int, ...]
    offers: tuple[Ints, ...]
    bound: int


@dataclass(frozen=True, slots=True)
class LeafChoice:
    """Used leaves below one root, the raw pods that fit there, and the leader's leaf or -1."""

    root: int
    pods: int
    leaves: list[int]
    leader: int


class Knapsack:
    """The search in the children of one domain, of which several are needed, and in all levels below."""

    def __init__(self, problem: KnapsackProblem, level: int, root: int) -> None:
        self._problem = problem
        self._level = level
        self._root = root
        self.at_least = 1
        """A lower bound for the number of domains of the current level that this knapsack needs."""

    @cached_property
    def _spans(self) -> list[slice]:
        """Return the domains of this knapsack by level, from the root on."""
        spans = [slice(self._root, self._root + 1)]
        for above in range(self._level, self._problem.tree.lowest):
            first, last = spans[-1].start, spans[-1].stop - 1
            spans.append(slice(self._problem.children(above, first).start, self._problem.children(above, last).stop))
        return spans

    def expect(self, level: int) -> None:
        """Prepare for numbers of domains of `level`, with the lower bound for domains that need not lie together."""
        self._problem.scan(_size(self._span(level)))
        room = np.sort(self._problem.room(level).plain[self._span(level)])[::-1]
        self.at_least = int(room.cumsum().searchsorted(self._problem.need)) + 1

    def suffices(self, numbers: Sequence[int]) -> bool:
        """Whether these numbers of domains, by level from the children on, have room for all pods."""
        return self._solve(numbers, None, None) is not None

    def best(self, numbers: Sequence[int], known: LeafChoice | None) -> LeafChoice | None:
        """Return the best leaves in these numbers of domains, which go down to the lowest level; None: no better than
        `known`.

        `known` may lie in another knapsack.  Of equal surplus, the first names are better.
        """
        if known is not None and known.pods - int(known.root < self._root) < self._problem.need:
            return None
        self._problem.scan(_STEP_ITEMS // 8 * _size(self._span(self._problem.tree.lowest)))
        leaves = self._useful()
        if known is not None and known.pods - int(known.root < self._root) < self._fewest_pods(leaves):
            return None
        if len(numbers) == 1 and not self._problem.leader and self._problem.request.slice_size == 1:
            losses = sum(sorted(self._problem.raws(leaves))[-numbers[0] :]) - self._problem.need
            if losses <= _LOSSES_MAX:
                self._problem.look(len(leaves) * numbers[0] * (1 + max(0, losses) // _STEP_BITS))
                return self._best_sum(leaves, numbers[0], known)
        costs = Costs(leaves, len(leaves).bit_length() if self._problem.leader else 0)
        below = self._to_beat(costs, known)
        first_names = costs.names_from(leaves[0]) - (
            costs.names_from(leaves[numbers[-1]]) if len(leaves) > numbers[-1] else 0
        )
        if below is not None and (self._fewest_pods(leaves) << costs.shift) - first_names >= below:
            return None
        cost = self._solve(numbers, costs, below)
        return None if cost is None else LeafChoice(self._root, costs.pods(cost), *costs.used(cost))

    def _useful(self) -> list[int]:
        """Return the leaves that have room for any pods."""
        span, room = self._span(self._problem.tree.lowest), self._problem.room(self._problem.tree.lowest)
        able = room.plain[span] > 0
        if room.leaders is not None:
            able |= room.leaders[span] > 0
        leaves: list[int] = (np.flatnonzero(able) + span.start).tolist()
        return leaves

    def _fewest_pods(self, leaves: Sequence[int]) -> int:
        """Return a lower bound of the raw pods that fit on leaves with room for all pods."""
        unit = math.gcd(*self._problem.raws(leaves))
        return -(-self._problem.need // unit) * unit

    def _best_sum(self, leaves: Sequence[int], number: int, known: LeafChoice | None) -> LeafChoice | None:
        """Compute `best` in the case that only pods count and the leaves are the only domains."""
        rooms = self._problem.raws(leaves)
        places = _smallest_sum(rooms, number, self._problem.need)
        if places is None:
            return None
        found = LeafChoice(
            self._root, sum(rooms[place] for place in places), [leaves[place] for place in places], NO_LEADER
        )
        if known is not None and (known.pods, known.root, known.leaves) <= (found.pods, found.root, found.leaves):
            return None
        return found

    def _to_beat(self, costs: Costs, known: LeafChoice | None) -> int | None:
        """Return the cost that the best leaves must stay below; None: any cost will do."""
        if known is None:
            return None
        if known.root != self._root:
            return known.pods - int(known.root < self._root) << costs.shift
        return costs.of_all(known.leaves, known.pods, known.leader)

    def _span(self, level: int) -> slice:
        """Return the domains of `level` in this knapsack."""
        return self._spans[level - self._level]

    def _solve(self, numbers: Sequence[int], costs: Costs | None, below: int | None) -> int | None:
        """Return the smallest cost, if it is smaller than `below`; None: there is none, and `at_least` grows."""
        self.at_least = numbers[-1] + 1
        if any(number > _size(self._span(self._level + 1 + i)) for i, number in enumerate(numbers)):
            self.at_least = NEVER
            return None
        self._problem.scan(sum(_size(span) for span in self._spans))
        prices = self._prices(numbers)
        missing, price = self._problem.need - prices.bound, prices.prices[-1]
        if missing > 0:  # the bound is valid for other numbers, too: it grows by the price
            self.at_least = numbers[-1] + -(-missing // price) if price > 0 else NEVER
            return None
        return _Sum(self._problem, self._level, self._spans, numbers, prices, costs, below).solve(self._root)

    # -- prices --------------------------------------------------------------------------------------------------------

    def _prices(self, numbers: Sequence[int]) -> _Prices:
        """Return prices at which the bound is small.  Any prices would be valid."""
        room = self._problem.room(self._level + len(numbers)).plain[self._span(self._level + len(numbers))]
        return self._priced(numbers, room, ())

    def _priced(self, numbers: Sequence[int], offers: Ints, below: tuple[tuple[int, Ints], ...]) -> _Prices:
        """Return prices of this level and the levels above; `offers` are offers of its domains before its own price."""
        depth = len(numbers) - len(below)
        self._problem.scan(len(offers))
        if depth == 1:
            place = len(offers) - numbers[0]
            price = int(np.partition(offers, place)[place])
            found = ((price, offers - price), *below)
            charge = sum(p * n for (p, _), n in zip(found, numbers, strict=True))
            bound = int(np.maximum(offers - price, 0).sum()) + charge
            return _Prices(tuple(p for p, _ in found), tuple(o for _, o in found), bound)
        level = self._level + depth
        starts = self._problem.tree.first_child[level - 1][self._span(level - 1)] - self._span(level).start
        unit = self._problem.unit(level - 1)
        ordered = by_size(offers, starts)

        @cache
        def at(price: int) -> _Prices:
            above = _best_sums(ordered, starts, price, unit if not below else 1)
            return self._priced(numbers, above, ((price, offers - price), *below))

        return _smallest(at, np.unique(offers))


def by_size(values: Ints, starts: Ints) -> tuple[Ints, Ints, Ints]:
    """Return within each run of `starts`, descending: the order, the count so far, and the sum so far."""
    sizes = np.diff(starts, append=len(values))
    runs = np.repeat(np.arange(len(starts)), sizes)
    order = np.lexsort((-values, runs))
    sums = values[order].cumsum()
    before = (sums[starts] - values[order][starts])[runs]
    return order, np.arange(1, len(values) + 1) - starts[runs], sums - before


def _smallest_sum(rooms: Sequence[int], number: int, need: int) -> list[int] | None:
    """Return the places of `number` rooms with the smallest sum of at least `need`; of equal sums the first places.

    A choice is described by its loss against the `number` largest rooms: a taken room loses its difference to the
    smallest of these, and an omitted room loses its excess over it. Sets of losses are integers: bit l is set if the
    loss l is possible.
    """
    largest = sorted(rooms, reverse=True)[:number]
    price, budget = largest[-1], sum(largest) - need
    if budget < 0:
        return None
    every = (1 << (budget + 1)) - 1
    lacks = [min(max(0, price - room), budget + 1) for room in rooms]
    above = [min(max(0, room - price), budget + 1) for room in rooms]
    reach = [[1] + [0] * number]  # losses by number of taken rooms, of the rooms from a place on: the last place first
    for lack, over in zip(reversed(lacks), reversed(above), strict=True):
        later = reach[-1]
        here = [(taken << lack | left << over) & every for taken, left in pairwise([0, *later])]
        reach.append(here)
    loss = reach[-1][number].bit_length() - 1
    places = []
    for place, (lack, over, later) in enumerate(zip(lacks, above, reversed(reach[:-1]), strict=True)):
        if number and loss >= lack and later[number - 1] >> (loss - lack) & 1:
            places.append(place)
            number, loss = number - 1, loss - lack
        else:
            loss -= over
    return places


def _size(span: slice) -> int:
    return int(span.stop - span.start)


def _best_sums(ordered: tuple[Ints, Ints, Ints], starts: Ints, price: int, unit: int) -> Ints:
    """Return per run the largest sum of some of its rooms in whole units, minus the price of each room."""
    _, number, sums = ordered
    return np.maximum.reduceat(sums // unit * unit - price * number, starts)


def _smallest(at: Callable[[int], _Prices], candidates: Ints) -> _Prices:
    """Return the prices with the smallest bound, which is convex in the candidates."""
    low, high = 0, len(candidates) - 1
    while low < high:
        middle = (low + high) // 2
        if at(int(candidates[middle])).bound <= at(int(candidates[middle + 1])).bound:
            high = middle
        else:
            low = middle + 1
    return at(int(candidates[low]))


class _Sum:
    """The sum of the options of all domains of one knapsack."""

    def __init__(
        self,
        problem: KnapsackProblem,
        level: int,
        spans: Sequence[slice],
        numbers: Sequence[int],
        prices: _Prices,
        costs: Costs | None,
        below: int | None,
    ) -> None:
        self._problem = problem
        lowest = level + len(numbers)
        self._level, self._lowest, self._spans = level, lowest, spans
        self._prices, self._costs = prices, costs
        self._offers: list[list[int]] = [offers.tolist() for offers in prices.offers]
        fields = [*numbers, 1 if problem.leader else 0]
        self._wanted = sum(number << (i * _FIELD) for i, number in enumerate(fields))
        self._guards = sum(1 << (i * _FIELD + _FIELD - 1) for i in range(len(fields)))
        self._leads = 1 << (len(numbers) * _FIELD)
        self._value = sum(p * n for p, n in zip(prices.prices, numbers, strict=True))
        room = problem.room(lowest)
        span = spans[lowest - level]
        self._plain, self._led = room.plain[span].tolist(), room.led[span].tolist()
        self._carries = None if room.leaders is None else room.leaders[span].tolist()
        self._places = {leaf: place for place, leaf in enumerate(costs.leaves)} if costs is not None else {}
        self._below = below
        self._need, self._shift = problem.need, costs.shift if costs is not None else 0
        self._steps = costs.steps if costs is not None else 1

    def solve(self, root: int) -> int | None:
        """Return the smallest cost of the wanted numbers of domains with room for all pods; None: there are none."""
        found = self._children(self._level, root, self._problem.need - self._value)
        _, costs = found.get(self._wanted, (0, {}))
        return min((cost for pods, cost in costs.items() if pods >= self._problem.need), default=None)

    def _options(self, level: int, domain: int, floor: int) -> _Options:
        """Return the options of this domain of `level`, with at least `floor` pods minus prices."""
        if level == self._lowest:
            return self._leaf(domain)
        depth = level - self._level - 1
        price = self._prices.prices[depth]
        found = self._children(level, domain, floor + price)
        found.pop(0, None)
        unit, one = self._problem.unit(level), 1 << (depth * _FIELD)
        result: _Options = {}
        for numbers, (charge, costs) in found.items():
            if unit > 1:
                costs = _rounded(costs, unit)
            result[numbers + one] = (charge + price, costs)
        return result

    def _leaf(self, leaf: int) -> _Options:
        depth = self._lowest - self._level - 1
        at = leaf - self._spans[depth + 1].start
        price, one = self._prices.prices[depth], 1 << (depth * _FIELD)
        result: _Options = {}
        if self._plain[at]:
            result[one] = (price, {self._plain[at]: self._cost(leaf)})
        if self._carries is not None and self._carries[at]:
            result[one + self._leads] = (price, {self._led[at]: self._cost(leaf, leads=True)})
        return result

    def _cost(self, leaf: int, *, leads: bool = False) -> int:
        if self._costs is None:
            return 0
        return self._costs.of(self._places[leaf], self._problem.raw(leaf, leads=leads), leads=leads)

    def _children(self, level: int, domain: int, floor: int) -> _Options:
        """Return all useful combinations of the children's options; a child may also be unused.

        `floor`: a combination is useful if its pods minus prices, with the best offers of the remaining children, reach
        this number.
        """
        depth = level - self._level
        children, start = self._problem.children(level, domain), self._spans[depth + 1].start
        offers = [max(0, offer) for offer in self._offers[depth][children.start - start : children.stop - start]]
        rest = best = sum(offers)
        found: _Options = {0: (0, {0: 0})}
        for child, offer in zip(range(children.start, children.stop), offers, strict=True):
            rest -= offer
            options = self._options(level + 1, child, floor - best + offer)
            found = self._with(found, options, floor - rest)
            if self._below is not None and level == self._level:
                found = self._cheap(found, level + 1, child)
        return found

    def _cheap(self, found: _Options, level: int, child: int) -> _Options:
        """Return the options that may still become cheaper than `below` with the children after this one."""
        assert self._costs is not None
        assert self._below is not None
        leaves = self._problem.tree.leaves_of(level, child)
        limit = self._below + self._costs.names_from(leaves.stop)
        result: _Options = {}
        for numbers, (charge, costs) in found.items():
            kept = {pods: c for pods, c in costs.items() if c + (max(0, self._need - pods) << self._shift) < limit}
            if kept:
                result[numbers] = (charge, kept)
        return result

    def _with(self, found: _Options, more: _Options, floor: int) -> _Options:
        """Combine each option of `found` with one option of `more` or none; keep the combinations that reach
        `floor`.
        """
        pairs = sum(len(costs) for _, costs in found.values()) * (1 + sum(len(c) for _, c in more.values()))
        self._problem.look(_STEP_CHILD + pairs * self._steps)
        result: _Options = {}
        for numbers, (charge, costs) in found.items():
            enough = floor + charge
            kept = {pods: cost for pods, cost in costs.items() if pods >= enough}
            if kept:
                result[numbers] = (charge, kept)
        fits = self._wanted | self._guards
        for numbers, (charge, costs) in found.items():
            for number, (price, offers) in more.items():
                total = numbers + number
                if (fits - total) & self._guards != self._guards:
                    continue
                sums = result.setdefault(total, (charge + price, {}))[1]
                _add(sums, costs, offers, floor + charge + price)
                if not sums:
                    del result[total]
        if self._problem.request.slice_size > 1 or self._costs is None:
            return {numbers: (charge, _undominated(costs)) for numbers, (charge, costs) in result.items()}
        return result


def _add(sums: dict[int, int], costs: dict[int, int], more: dict[int, int], enough: int) -> None:
    """Add each pair of costs to `sums` if it has enough pods."""
    for pods, cost in costs.items():
        for extra, other in more.items():
            together = pods + extra
            if together >= enough:
                known = sums.get(together)
                if known is None or cost + other < known:
                    sums[together] = cost + other


def _rounded(costs: dict[int, int], unit: int) -> dict[int, int]:
    """Return the costs with pods rounded down to whole units."""
    result: dict[int, int] = {}
    for pods, cost in costs.items():
        whole = pods // unit * unit
        if whole not in result or cost < result[whole]:
            result[whole] = cost
    return result


def _undominated(costs: dict[int, int]) -> dict[int, int]:
    """Drop options that have room for fewer pods at no smaller cost than another option."""
    if len(costs) == 1:
        return costs
    result: dict[int, int] = {}
    cheapest: int | None = None
    for pods in sorted(costs, reverse=True):
        if cheapest is None or costs[pods] < cheapest:
            cheapest = result[pods] = costs[pods]
    return result
