"""The workloads that wait in one ClusterQueue: active, parked, and one in flight."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kqueue.core.order_keys import PlaceInOrder
from kqueue.model.pending import LastTry, Pending
from kqueue.state.gang_hold import GangHold
from kqueue.state.profile_orders import QueueSorting
from kqueue.state.queue_policy import QueuePolicy
from kqueue.state.ranked import Ranked

Rank = tuple[Any, ...]
"""The smaller rank goes first; all ranks of a ClusterQueue compare with each other."""


_Line = Ranked[str, Rank]
"""Workloads of one shape and one LocalQueue, which are parked and activated together."""
_Lines = dict[str, dict[str, _Line]]
"""Lines by shape and LocalQueue; no line is empty."""
_NO_LINES: dict[str, _Line] = {}
_Bound = tuple[Rank, str, str]
"""A lower bound: no workload in the active line of this shape and LocalQueue has a smaller rank, if the line exists."""
_SLACK = 64


@dataclass(slots=True)
class WaitingQueue:
    """The buckets of one ClusterQueue.

    Parking or activating all workloads of a shape moves lines, not workloads.
    """

    policy: QueuePolicy
    usage: Callable[[str], float] | None = None  # usage of LocalQueues: least usage goes first; None: it does not count
    order: QueueSorting | None = None
    """The order of its profile; None: priority, timestamp, UID."""
    places: dict[str, tuple[Pending, PlaceInOrder]] = field(default_factory=dict)
    """The places of workloads in that order; a workload that changes gets another one."""
    waiting: dict[str, Pending] = field(default_factory=dict)  # active or parked
    active: _Lines = field(default_factory=dict)
    parked: _Lines = field(default_factory=dict)
    parked_count: int = 0
    fronts: dict[str, list[_Bound]] = field(default_factory=dict)
    """Heaps of bounds, at least one for each active line; one heap for all lines, or one per LocalQueue if usage
    counts.
    """
    resting: set[str] = field(
        default_factory=set
    )  # waiting workloads with a back-off, or on hold, as of their last update
    in_flight: Pending | None = None
    unplaced: str = ""
    """Why the workload in flight must not be tried: a plugin gave no key for it.  Empty: it may be tried."""
    preemptor: str | None = None  # the preemptor; it goes first where others may be skipped
    moved_shapes: dict[str, LastTry] = field(default_factory=dict)  # shape -> the result of the try that parked it
    hold: GangHold | None = None
    """While it is set, only pods beyond the quorum of one gang are tried."""
    pops: int = 0
    flushed_at_pop: int = -1

    def rank(self, item: Pending) -> Rank:
        """Return the rank of a workload; the smaller rank goes first."""
        sticky = item.key == self.preemptor and self.policy.skips_heads
        if self.order is None:
            return (not sticky, -item.priority, item.timestamp, item.uid)
        return (not sticky, *self.place(item, self.order).keys)

    def place(self, item: Pending, order: QueueSorting) -> PlaceInOrder:
        """Return the place of a workload in the order of the profile; it is computed once for each of its versions."""
        known = self.places.get(item.key)
        if known is None or known[0] is not item:
            known = self.places[item.key] = item, order.place(item)
        return known[1]

    def sort_by(self, order: QueueSorting | None) -> None:
        """Put all in order by another profile, or by the same one with its keys computed anew."""
        self.order = order
        if order is None or not order.keeps_runs:
            self.hold = None
        self.places = {}
        self.rebuild()

    def used_by(self, item: Pending) -> float:
        """Return the recent usage of a workload's LocalQueue; 0 if usage does not count."""
        return self.usage(item.local_queue) if self.usage is not None else 0.0

    # --- the lines ------

    @property
    def active_count(self) -> int:
        """The number of workloads that the next cycles may try."""
        return len(self.waiting) - self.parked_count

    def parked_item(self, key: str) -> Pending | None:
        """Return a parked workload; None: it is not parked."""
        item = self.waiting.get(key)
        return item if item is not None and _holds(self.parked, item) else None

    def is_active(self, key: str) -> bool:
        """Whether the next cycles may try a workload."""
        item = self.waiting.get(key)
        return item is not None and _holds(self.active, item)

    def items(self) -> Iterator[Pending]:
        """Yield all workloads: the active and parked ones, then the one in flight."""
        yield from self.waiting.values()
        if self.in_flight is not None:
            yield self.in_flight

    # --- moving one

    def activate(self, item: Pending) -> None:
        """Make a workload active, so that the next cycles may try it."""
        line = self._join(self.active, item)
        first = line.first()
        if first is not None and first[1] == item.key:
            self._bound(first[0], item.shape, item.local_queue)

    def park(self, item: Pending) -> None:
        """Park a workload, so that no cycle tries it."""
        self._join(self.parked, item)

    def _join(self, lines: _Lines, item: Pending) -> _Line:
        """Put the workload into its line, and remove it from all others."""
        if self.hold is not None:
            self.hold.note(item)
        known = self.waiting.get(item.key)
        if known is not None and not (is_alike(known, item) and _holds(lines, known)):
            self.drop(item.key)
            known = None
        if known is None and lines is self.parked:
            self.parked_count += 1
        self.waiting[item.key] = item
        if item.on_hold or item.not_before is not None:
            self.resting.add(item.key)
        else:
            self.resting.discard(item.key)
        of_shape = lines.get(item.shape)
        if of_shape is None:
            of_shape = lines[item.shape] = {}
        line = of_shape.get(item.local_queue)
        if line is None:
            line = of_shape[item.local_queue] = Ranked()
        line.put(item.key, self.rank(item))
        return line

    def drop(self, key: str) -> None:
        """Remove a workload from its line."""
        item = self.waiting.get(key)
        if item is not None:
            self._leave(self.parked if _holds(self.parked, item) else self.active, item)

    def _leave(self, lines: _Lines, item: Pending) -> None:
        del self.waiting[item.key]
        self.places.pop(item.key, None)
        self.resting.discard(item.key)
        line = lines[item.shape][item.local_queue]
        line.remove(item.key)
        if lines is self.parked:
            self.parked_count -= 1
        if not line:
            _take_out(lines, item.shape, item.local_queue)

    def prefer(self, key: str) -> None:
        """Put a preemptor first, in place of the preemptor that was first."""
        before, self.preemptor = self.preemptor, key
        for changed in {before, key}:
            item = self.waiting.get(changed) if changed is not None else None
            if item is not None:
                if _holds(self.parked, item):
                    self.park(item)
                else:
                    self.activate(item)

    def forget(self, key: str) -> None:
        """Forget a workload that leaves the queue for good."""
        self.drop(key)
        if self.preemptor == key:
            self.preemptor = None

    # --- moving lines

    def park_shape(self, shape: str, on_parked: Callable[[Collection[str]], None]) -> None:
        """Park all active workloads of a shape; `on_parked` is called with their keys, once for each LocalQueue."""
        for local_queue, line in self.active.pop(shape, _NO_LINES).items():
            on_parked(line)
            self.parked_count += len(line)
            _add(self.parked, shape, local_queue, line)

    def wake(self, now: datetime, may_enter: Callable[[Pending], bool]) -> set[str]:
        """Activate the parked workloads that may enter and whose back-off is over; return their shapes.

        `may_enter` is called once for each line.
        """
        resting = [item for key in self.resting if not (item := self.waiting[key]).may_run(now)]
        still = [item for item in resting if _holds(self.parked, item)]
        for item in still:
            self.drop(item.key)
        places = [(shape, local_queue) for shape, lines in self.parked.items() for local_queue in lines]
        shapes = set[str]()
        for shape, local_queue in places:
            line = self.parked[shape][local_queue]
            if may_enter(self.waiting[next(iter(line))]):
                shapes.add(shape)
                self.parked_count -= len(line)
                _take_out(self.parked, shape, local_queue)
                _add(self.active, shape, local_queue, line)
                self._bound_line(shape, local_queue)
        for item in still:
            self.park(item)
        return shapes

    def rebuild(self) -> None:
        """Recompute the rank of all workloads, because a rule of the order has changed."""
        for lines in (self.active, self.parked):
            for of_shape in lines.values():
                for line in of_shape.values():
                    for key in line:
                        line.put(key, self.rank(self.waiting[key]))
        self._rebuild_fronts()

    # --- the order ---

    def _bound(self, rank: Rank, shape: str, local_queue: str) -> None:
        """Add a lower bound for an active line: no workload of the line has a smaller rank."""
        which = local_queue if self.usage is not None else ""
        front = self.fronts.get(which)
        if front is None:
            self.fronts[which] = [(rank, shape, local_queue)]
            return
        heapq.heappush(front, (rank, shape, local_queue))
        if len(front) > 2 * len(self.waiting) + _SLACK:
            self._rebuild_fronts()

    def _bound_line(self, shape: str, local_queue: str) -> None:
        first = self.active[shape][local_queue].first()
        assert first is not None
        self._bound(first[0], shape, local_queue)

    def _rebuild_fronts(self) -> None:
        self.fronts = {}
        for shape, of_shape in self.active.items():
            for local_queue in of_shape:
                self._bound_line(shape, local_queue)

    def _first_of(self, which: str) -> _Bound | None:
        """Return the rank and line of the first workload of a front; None: the front was empty, and is removed.

        Outdated bounds are corrected here, when they are read, so that parking and activating a line stay cheap.
        """
        front = self.fronts[which]
        while front:
            bound = rank, shape, local_queue = front[0]
            line = self.active.get(shape, _NO_LINES).get(local_queue)
            first = line.first() if line is not None else None
            if first is None:
                heapq.heappop(front)
            elif first[0] == rank:
                return bound
            else:
                heapq.heapreplace(front, (first[0], shape, local_queue))
        del self.fronts[which]
        return None

    def _first(self) -> _Bound | None:
        """Return the bound of the first active workload; None: there is none."""
        if self.usage is None:
            return self._first_of("") if self.fronts else None
        firsts = {which: first for which in list(self.fronts) if (first := self._first_of(which)) is not None}
        if len(firsts) < 2:
            return next(iter(firsts.values()), None)
        used = {which: self.usage(which) for which in firsts}
        least = min(used.values())
        return min(first for which, first in firsts.items() if not used[which] > least)

    def pop(self) -> Pending | None:
        """Take the first active workload in flight, during a hold the first that the hold lets pass; None: there is
        none.
        """
        key = self._take_first() if self.hold is None else self._take_held(self.hold)
        if key is None:
            return None
        item = self.waiting.pop(key)
        self._take_off(item)
        return item

    def _take_first(self) -> str | None:
        first = self._first()
        if first is None:
            return None
        _, shape, local_queue = first
        line = self.active[shape][local_queue]
        key = line.take_first()
        assert key is not None
        if not line:
            _take_out(self.active, shape, local_queue)
        return key

    def _take_held(self, hold: GangHold) -> str | None:
        key = min(hold.left(self.is_active), key=lambda key: (self.rank(self.waiting[key]), key), default=None)
        if key is None:
            return None
        hold.note_try(key)
        item = self.waiting[key]
        line = self.active[item.shape][item.local_queue]
        line.remove(key)
        if not line:
            _take_out(self.active, item.shape, item.local_queue)
        return key

    def take(self, key: str) -> Pending | None:
        """Take a workload in flight that need not be the first, and may be parked; None: it does not wait here."""
        item = self.waiting.get(key)
        if item is not None:
            self._leave(self.parked if _holds(self.parked, item) else self.active, item)
            self._take_off(item)
        return item

    def _take_off(self, item: Pending) -> None:
        self.pops += 1
        self.resting.discard(item.key)
        self.in_flight = item
        self.unplaced = self.place(item, self.order).problem if self.order is not None else ""
        self.places.pop(item.key, None)

    def in_order(self) -> Iterator[str]:
        """Yield the keys of the active workloads in order, without changes; reading only the first ones is cheap."""
        walks = (self._walk(which, front) for which, front in self.fronts.items())
        return (key for *_, key in heapq.merge(*walks))

    def _walk(self, which: str, front: list[_Bound]) -> Iterator[tuple[float, Rank, str]]:
        """Yield the workloads of some lines in order; a line is opened when its first workload may be next."""
        used = self.usage(which) if self.usage is not None else 0.0
        open_lines: list[tuple[Rank, str, Iterator[tuple[Rank, str]]]] = []
        unopened, opened = front.copy(), set[tuple[str, str]]()
        while open_lines or unopened:
            if unopened and not (open_lines and open_lines[0][0] < unopened[0][0]):
                _, shape, local_queue = heapq.heappop(unopened)
                line = self.active.get(shape, _NO_LINES).get(local_queue)
                if line is not None and (shape, local_queue) not in opened:
                    opened.add((shape, local_queue))
                    rest = line.in_order()
                    heapq.heappush(open_lines, (*next(rest), rest))
                continue
            rank, key, rest = heapq.heappop(open_lines)
            yield used, rank, key
            following = next(rest, None)
            if following is not None:
                heapq.heappush(open_lines, (*following, rest))


def may_come_back(
    name: str,
    verdicts: Mapping[str, LastTry],
    may_enter: Callable[[str, Pending, LastTry], bool],
    item: Pending,
) -> bool:
    """Whether a parked workload may be tried again: its shape was parked as a whole, and `may_enter` allows it."""
    verdict = verdicts.get(item.shape)
    return verdict is not None and may_enter(name, item, verdict)


def is_alike(one: Pending, other: Pending) -> bool:
    """Whether the queues treat both workloads alike."""
    return one.shape == other.shape and one.local_queue == other.local_queue


def _holds(lines: _Lines, item: Pending) -> bool:
    of_shape = lines.get(item.shape)
    line = of_shape.get(item.local_queue) if of_shape is not None else None
    return line is not None and item.key in line


def _take_out(lines: _Lines, shape: str, local_queue: str) -> None:
    del lines[shape][local_queue]
    if not lines[shape]:
        del lines[shape]


def _add(lines: _Lines, shape: str, local_queue: str, line: _Line) -> None:
    """Add a whole line; if the line exists already, the shorter one is merged into the longer one."""
    of_shape = lines.setdefault(shape, {})
    there = of_shape.get(local_queue)
    if there is None:
        of_shape[local_queue] = line
        return
    longer, shorter = (there, line) if len(there) >= len(line) else (line, there)
    longer.take_in(shorter)
    of_shape[local_queue] = longer
