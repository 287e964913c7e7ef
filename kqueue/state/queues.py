"""Where pending workloads wait: per ClusterQueue a heap (active), a parking place (inadmissible), one in flight.

A workload is in at most one of the three.  Everything here is plain `def` on one event loop, so each change is whole.

    push ──► active ──pop──► in flight ──requeue──► active          (immediate, or a flush came in between)
                ▲                            └────► inadmissible    (did not fit: wait for an event)
                └───────────── flush ◄──────────────────┘           (something was freed or changed)

Source: the compatible system's queue manager (KEP-168 and what its behaviour shows).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import NamedTuple

import structlog

from kqueue.core.quota import FlavorResource
from kqueue.state.ranked import Ranked

_log = structlog.get_logger(__name__)


class Strategy(StrEnum):
    """How a ClusterQueue treats a head that does not fit."""

    STRICT_FIFO = "StrictFIFO"
    BEST_EFFORT_FIFO = "BestEffortFIFO"


class RequeueReason(StrEnum):
    """Why a workload comes back from a cycle; decides whether it is tried again at once."""

    GENERIC = ""
    FAILED_AFTER_NOMINATION = "FailedAfterNomination"
    NAMESPACE_MISMATCH = "NamespaceMismatch"
    NO_FIT = "NoFit"
    PREEMPTION_NO_CANDIDATES = "PreemptionNoCandidates"
    PREEMPTION_GATED = "PreemptionGated"
    PENDING_PREEMPTION = "PendingPreemption"
    PREEMPTION_FAILED = "PreemptionFailed"


IMMEDIATE_BEST_EFFORT = frozenset(
    {
        RequeueReason.FAILED_AFTER_NOMINATION,
        RequeueReason.PENDING_PREEMPTION,
        RequeueReason.PREEMPTION_FAILED,
    }
)
SHAPE_WIDE = frozenset({RequeueReason.NO_FIT, RequeueReason.PREEMPTION_NO_CANDIDATES})


class Asked(NamedTuple):
    """What a workload asks for, so far that it need not be read again: equal where pods and counts are equal.

    `generation` and `ended` (pods of each pod set that have ended for good) tell an object that asks for the same.
    """

    generation: int
    ended: tuple[tuple[str, int], ...]
    pods: str
    """Digest of its pod sets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """What the queues know of one waiting workload.

    `key` is namespace/name; `shape` is equal for workloads that cannot differ in the outcome of a try;
    `version` changes whenever something relevant for a try changed (a parked workload is tried again then);
    `not_before` keeps it parked until then (None: no back-off); `on_hold` parks it until an update clears it.
    """

    key: str
    uid: str
    local_queue: str
    priority: int
    timestamp: datetime
    shape: str
    version: str
    not_before: datetime | None = None
    on_hold: bool = False
    asked: Asked | None = None
    """None: what it asks for is read anew at each try."""

    def may_run(self, now: datetime) -> bool:
        """Whether its back-off is over."""
        return not self.on_hold and (self.not_before is None or self.not_before <= now)


class Verdict(NamedTuple):
    """What a try has said: the reason and the message of QuotaReserved=False.

    `lacks` has each amount of quota that a flavor did not have free, by column; empty where no quota was missing.
    """

    reason: str
    message: str
    lacks: tuple[tuple[FlavorResource, int], ...] = ()


NO_VERDICT = Verdict("", "")
"""The try has said nothing that others could be told."""


_Rank = tuple[bool, int, datetime, str]


_Line = Ranked[str, _Rank]
"""Workloads of one shape and one LocalQueue, which are parked and come back as one."""
_Lines = dict[str, dict[str, _Line]]
"""By shape and LocalQueue, without empty ones."""
_NO_LINES: dict[str, _Line] = {}
_Bound = tuple[_Rank, str, str]
"""Nobody in the active line of this shape and LocalQueue goes before this rank, if there is such a line."""
_SLACK = 64


@dataclass(slots=True)
class _Queue:
    """The buckets of one ClusterQueue.

    Parking all workloads of a shape, or waking them, moves lines, not workloads.
    """

    strategy: Strategy
    usage: Callable[[str], float] | None = None  # of LocalQueues: who used least goes first; None: it does not count
    waiting: dict[str, Pending] = field(default_factory=dict)  # active or parked
    active: _Lines = field(default_factory=dict)
    parked: _Lines = field(default_factory=dict)
    parked_count: int = 0
    fronts: dict[str, list[_Bound]] = field(default_factory=dict)
    """Heaps of bounds, one at least for each active line; all together, or by LocalQueue where usage counts."""
    resting: set[str] = field(default_factory=set)  # of those who wait: with a back-off, or on hold, when seen last
    in_flight: Pending | None = None
    preemptor: str | None = None  # for whom others leave; goes first where others may be skipped
    moved_shapes: dict[str, Verdict] = field(default_factory=dict)  # shape -> what the try said that parked it
    pops: int = 0
    flushed_at_pop: int = -1

    def rank(self, item: Pending) -> _Rank:
        sticky = item.key == self.preemptor and self.strategy is Strategy.BEST_EFFORT_FIFO
        return (not sticky, -item.priority, item.timestamp, item.uid)

    def used_by(self, item: Pending) -> float:
        return self.usage(item.local_queue) if self.usage is not None else 0.0

    # --- who waits where

    @property
    def active_count(self) -> int:
        return len(self.waiting) - self.parked_count

    def parked_item(self, key: str) -> Pending | None:
        item = self.waiting.get(key)
        return item if item is not None and _holds(self.parked, item) else None

    def is_active(self, key: str) -> bool:
        item = self.waiting.get(key)
        return item is not None and _holds(self.active, item)

    def items(self) -> Iterator[Pending]:
        yield from self.waiting.values()
        if self.in_flight is not None:
            yield self.in_flight

    # --- moving one

    def activate(self, item: Pending) -> None:
        line = self._join(self.active, item)
        first = line.first()
        if first is not None and first[1] == item.key:
            self._bound(first[0], item.shape, item.local_queue)

    def park(self, item: Pending) -> None:
        self._join(self.parked, item)

    def _join(self, lines: _Lines, item: Pending) -> _Line:
        """Let it stand in the line where it belongs, and nowhere else."""
        known = self.waiting.get(item.key)
        if known is not None and not (_is_alike(known, item) and _holds(lines, known)):
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
        """Take one out of whichever line it stands in."""
        item = self.waiting.get(key)
        if item is not None:
            self._leave(self.parked if _holds(self.parked, item) else self.active, item)

    def _leave(self, lines: _Lines, item: Pending) -> None:
        del self.waiting[item.key]
        self.resting.discard(item.key)
        line = lines[item.shape][item.local_queue]
        line.remove(item.key)
        if lines is self.parked:
            self.parked_count -= 1
        if not line:
            _take_out(lines, item.shape, item.local_queue)

    def prefer(self, key: str) -> None:
        """Others leave for this one; it goes first from here on, in place of whoever did."""
        before, self.preemptor = self.preemptor, key
        for changed in {before, key}:
            item = self.waiting.get(changed) if changed is not None else None
            if item is not None:
                if _holds(self.parked, item):
                    self.park(item)
                else:
                    self.activate(item)

    def forget(self, key: str) -> None:
        """It leaves the queue for good, so nobody makes room for it any more."""
        self.drop(key)
        if self.preemptor == key:
            self.preemptor = None

    # --- moving lines

    def park_shape(self, shape: str, told: Callable[[Collection[str]], None]) -> None:
        """Park all active ones of a shape; `told` who they are, in one call for each LocalQueue."""
        for local_queue, line in self.active.pop(shape, _NO_LINES).items():
            told(line)
            self.parked_count += len(line)
            _add(self.parked, shape, local_queue, line)

    def wake(self, now: datetime, may_enter: Callable[[Pending], bool]) -> set[str]:
        """Bring parked workloads back that may enter, once their back-off is over; returns their shapes.

        A line is asked about once.
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
        """Put all in order afresh: what the order goes by has changed."""
        for lines in (self.active, self.parked):
            for of_shape in lines.values():
                for line in of_shape.values():
                    for key in line:
                        line.put(key, self.rank(self.waiting[key]))
        self._rebuild_fronts()

    # --- who is first

    def _bound(self, rank: _Rank, shape: str, local_queue: str) -> None:
        """Note that nobody in an active line goes before this rank."""
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
        """Who is first of a front: its rank, and where it stands.  None: nobody is there, and the front is gone.

        Bounds come up to where they belong here, when they are looked at: so lines come and go without any ado.
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
        """Who goes first of all; None when nobody is active."""
        if self.usage is None:
            return self._first_of("") if self.fronts else None
        firsts = {which: first for which in list(self.fronts) if (first := self._first_of(which)) is not None}
        if len(firsts) < 2:
            return next(iter(firsts.values()), None)
        used = {which: self.usage(which) for which in firsts}
        least = min(used.values())
        return min(first for which, first in firsts.items() if not used[which] > least)

    def pop(self) -> Pending | None:
        """Take the best active entry in flight; None when there is none."""
        first = self._first()
        if first is None:
            return None
        _, shape, local_queue = first
        line = self.active[shape][local_queue]
        key = line.take_first()
        assert key is not None
        if not line:
            _take_out(self.active, shape, local_queue)
        self.pops += 1
        self.resting.discard(key)
        item = self.in_flight = self.waiting.pop(key)
        return item

    def in_order(self) -> Iterator[str]:
        """Keys of the active ones, first to go first, without changing anything; cheap for those at the front."""
        walks = (self._walk(which, front) for which, front in self.fronts.items())
        return (key for *_, key in heapq.merge(*walks))

    def _walk(self, which: str, front: list[_Bound]) -> Iterator[tuple[float, _Rank, str]]:
        """Those of some lines, each looked into when its first one may have its turn."""
        used = self.usage(which) if self.usage is not None else 0.0
        open_lines: list[tuple[_Rank, str, Iterator[tuple[_Rank, str]]]] = []
        to_come, opened = front.copy(), set[tuple[str, str]]()
        while open_lines or to_come:
            if to_come and not (open_lines and open_lines[0][0] < to_come[0][0]):
                _, shape, local_queue = heapq.heappop(to_come)
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


def _may_come_back(
    name: str,
    verdicts: Mapping[str, Verdict],
    may_enter: Callable[[str, Pending, Verdict], bool],
    item: Pending,
) -> bool:
    verdict = verdicts.get(item.shape)
    return verdict is not None and may_enter(name, item, verdict)


def _is_alike(one: Pending, other: Pending) -> bool:
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
    """Put a whole line where there may be one already: the shorter one joins the longer one."""
    of_shape = lines.setdefault(shape, {})
    there = of_shape.get(local_queue)
    if there is None:
        of_shape[local_queue] = line
        return
    longer, shorter = (there, line) if len(there) >= len(line) else (line, there)
    longer.take_in(shorter)
    of_shape[local_queue] = longer


class Queues:
    """All waiting workloads.  What brings or frees one reports by `on_wake` that a cycle may have something to do."""

    def __init__(
        self, now: Callable[[], datetime], on_wake: Callable[[], None] = lambda: None, *, by_shape: bool = True
    ) -> None:
        """`by_shape`: what a try has said of one workload counts for all that cannot differ in its outcome."""
        self._now, self._by_shape = now, by_shape
        self._on_wake = on_wake
        self.on_parked: Callable[[Collection[str]], None] = lambda _keys: None
        """Told of workloads that are parked without a try of their own, because an equal one was refused.

        Must go through them at once, if at all.
        """
        self._queues: dict[str, _Queue] = {}
        self._local: dict[str, str] = {}  # LocalQueue key -> ClusterQueue
        self._known: dict[str, Pending] = {}  # every pending workload, also those without a queue
        self._home: dict[str, str] = {}  # workload key -> ClusterQueue whose buckets hold it
        self._of_local: dict[str, dict[str, None]] = {}  # LocalQueue key -> keys of its pending workloads

    # --- queues ------------------------------------------------------------------------------------------------

    def set_cluster_queue(self, name: str, strategy: Strategy, *, usage: Callable[[str], float] | None = None) -> None:
        """Create the ClusterQueue or change its strategy; workloads that waited for it move in.

        `usage` is that of a LocalQueue: workloads of the one that used least go first, whatever their priority.  It is
        asked whenever a head is taken.  None: usage does not count.
        """
        queue = self._queues.get(name)
        if queue is None:
            self._queues[name] = _Queue(strategy, usage=usage)
            self._adopt()
        elif (queue.strategy, queue.usage) != (strategy, usage):
            queue.strategy, queue.usage = strategy, usage
            queue.rebuild()

    def remove_cluster_queue(self, name: str) -> None:
        """Forget the ClusterQueue; its workloads are kept and come back with it."""
        if self._queues.pop(name, None) is not None:
            self._home = {key: home for key, home in self._home.items() if home != name}

    def set_local_queue(self, key: str, cluster_queue: str | None) -> None:
        """Point a LocalQueue at a ClusterQueue; None: it is gone or stopped and its workloads are withdrawn."""
        if self._local.get(key) == cluster_queue:
            return
        if cluster_queue is None:
            self._local.pop(key, None)
        else:
            self._local[key] = cluster_queue
        for pending in list(self._of_local.get(key, ())):
            self._withdraw(pending)
        self._adopt()

    def cluster_queue_of(self, local_queue: str) -> str | None:
        """The ClusterQueue a LocalQueue feeds; None when it is unknown, stopped or points nowhere known."""
        return self._local.get(local_queue)

    def _adopt(self) -> None:
        for item in self._known.values():
            if item.key not in self._home:
                self._place(item, fresh=True)
        self._on_wake()

    def _withdraw(self, key: str) -> None:
        queue = self._queues.get(self._home.pop(key, ""))
        if queue is not None:
            queue.forget(key)
            if queue.in_flight is not None and queue.in_flight.key == key:
                queue.in_flight = None

    # --- workloads ---------------------------------------------------------------------------------------------

    def push(self, item: Pending) -> None:
        """Add a workload or take in its newer version.

        In flight: only remembered, the requeue sees it.  Parked and nothing relevant changed: stays parked.
        """
        old = self._known.get(item.key)
        if old is not None and old.local_queue != item.local_queue:
            self._forget_local(old)
        self._known[item.key] = item
        self._of_local.setdefault(item.local_queue, {})[item.key] = None
        home = self._home.get(item.key)
        if home is not None and self._local.get(item.local_queue) != home:
            self._withdraw(item.key)
            home = None
        queue = self._queues.get(home or "")
        if queue is not None and queue.in_flight is not None and queue.in_flight.key == item.key:
            return
        parked = queue.parked_item(item.key) if queue is not None else None
        if queue is not None and parked is not None and old is not None and parked.version == item.version:
            queue.park(item)
            if self._may_run(parked) or not self._may_run(item):
                return
        self._place(item, fresh=False)
        self._on_wake()

    def _place(self, item: Pending, *, fresh: bool) -> None:
        home = self._local.get(item.local_queue)
        queue = self._queues.get(home or "")
        if home is None or queue is None:
            return
        self._home[item.key] = home
        if queue.in_flight is not None and queue.in_flight.key == item.key:
            return
        waits = not queue.is_active(item.key) and (
            not self._may_run(item)
            or (queue.strategy is Strategy.BEST_EFFORT_FIFO and item.shape in queue.moved_shapes and not fresh)
        )
        if waits:
            queue.park(item)
        else:
            queue.activate(item)

    def delete(self, key: str) -> None:
        """Forget a workload: admitted, finished, deactivated or deleted."""
        item = self._known.pop(key, None)
        if item is not None:
            self._forget_local(item)
        self._withdraw(key)

    def _forget_local(self, item: Pending) -> None:
        keys = self._of_local[item.local_queue]
        del keys[item.key]
        if not keys:
            del self._of_local[item.local_queue]

    def pop_heads(self, is_active: Callable[[str], bool]) -> list[tuple[str, Pending]]:
        """Take the best workload of every active ClusterQueue that has none in flight: (ClusterQueue, workload)."""
        heads: list[tuple[str, Pending]] = []
        for name, queue in self._queues.items():
            if queue.in_flight is not None or not queue.fronts:
                continue
            try:
                item = queue.pop() if is_active(name) else None
            except Exception:  # noqa: BLE001 - the boundary that keeps one queue from stopping the others
                _log.exception("a ClusterQueue could not be asked for its head", cluster_queue=name)
                continue
            if item is not None:
                heads.append((name, item))
        return heads

    def is_strict(self, name: str) -> bool:
        """Whether a ClusterQueue tries no workload before the one in front of it; False for an unknown one."""
        queue = self._queues.get(name)
        return queue is not None and queue.strategy is Strategy.STRICT_FIFO

    def in_flight(self, name: str) -> Pending | None:
        """Who was taken as the head of a ClusterQueue, and neither settled nor brought back; None: nobody."""
        queue = self._queues.get(name)
        return queue.in_flight if queue is not None else None

    def settle(self, key: str) -> None:
        """The in-flight workload was admitted: free the slot, forget the workload."""
        queue = self._queues.get(self._home.get(key, ""))
        if queue is None or queue.in_flight is None or queue.in_flight.key != key:
            self.delete(key)  # it was moved or withdrawn meanwhile
            return
        queue.in_flight = None
        if queue.preemptor == key:
            queue.preemptor = None
        del self._home[key]
        item = self._known.pop(key, None)
        if item is not None:
            self._forget_local(item)

    def requeue(
        self, key: str, reason: RequeueReason, *, verdict: Verdict = NO_VERDICT, has_more: bool = False
    ) -> bool:
        """Bring an in-flight workload back, in its newest version.  True when it is in the heap again.

        Nobody is woken: who runs the cycles knows whether the next one can find anything else.

        It goes into the heap when the reason is immediate for the strategy, a flush came since it was popped, or it
        `has_more` flavors to try; otherwise it is parked, and with it, after a failed fit, all of its shape.  One that
        others leave for goes first from then on, until it leaves the queue or another one takes its place.
        A workload that was deleted, moved or withdrawn meanwhile is not brought back.
        """
        home = self._home.get(key)
        queue = self._queues.get(home or "")
        item = self._known.get(key)
        if queue is None or queue.in_flight is None or queue.in_flight.key != key:
            return False  # it was moved or withdrawn meanwhile, and stands where it belongs
        queue.in_flight = None
        if item is None:
            return False
        if reason is RequeueReason.PENDING_PREEMPTION:
            queue.prefer(key)
        if self._may_run(item) and self._is_immediate(queue, reason, has_more=has_more):
            queue.activate(item)
            return True
        if self._by_shape and reason in SHAPE_WIDE and queue.strategy is Strategy.BEST_EFFORT_FIFO:
            queue.moved_shapes[item.shape] = verdict
            queue.park_shape(item.shape, self.on_parked)
        queue.park(item)
        return False

    def _may_run(self, item: Pending) -> bool:
        """Whether its back-off is over; the time is asked for only where there is one."""
        return not item.on_hold if item.not_before is None else item.may_run(self._now())

    @staticmethod
    def _is_immediate(queue: _Queue, reason: RequeueReason, *, has_more: bool) -> bool:
        if queue.strategy is Strategy.STRICT_FIFO:
            immediate = reason is not RequeueReason.NAMESPACE_MISMATCH
        else:
            immediate = reason in IMMEDIATE_BEST_EFFORT
        return immediate or has_more or queue.flushed_at_pop >= queue.pops

    def flush(self, names: Iterable[str], may_enter: Callable[[str, Pending], bool] = lambda _q, _p: True) -> int:
        """Move parked workloads of these ClusterQueues back into their heaps; returns how many moved.

        `may_enter(cluster_queue, workload)` says whether the namespace matches, and is asked about one of many that are
        alike and of the same LocalQueue; back-off is respected too.
        """
        moved = 0
        now = self._now()
        for name in names:
            queue = self._queues.get(name)
            if queue is None:
                continue
            queue.flushed_at_pop = queue.pops
            queue.moved_shapes.clear()
            before = queue.parked_count
            queue.wake(now, partial(may_enter, name))
            moved += before - queue.parked_count
        if moved:
            self._on_wake()
        return moved

    def bring_back(self, names: Iterable[str], may_enter: Callable[[str, Pending, Verdict], bool]) -> int:
        """Move some parked workloads of these ClusterQueues back into their heaps.

        `may_enter(cluster_queue, workload, verdict)` is asked about one of each line of workloads whose shape was
        parked as a whole; the others stay.  Returns the most shapes that any one ClusterQueue got back.
        """
        most, now = 0, self._now()
        for name in names:
            queue = self._queues.get(name)
            if queue is None or not queue.parked:
                continue
            shapes = queue.wake(now, partial(_may_come_back, name, queue.moved_shapes, may_enter))
            for shape in shapes:
                queue.moved_shapes.pop(shape, None)
            most = max(most, len(shapes))
        if most:
            self._on_wake()
        return most

    # --- views -------------------------------------------------------------------------------------------------

    def counts(self, name: str) -> tuple[int, int]:
        """(active + in flight, inadmissible) of a ClusterQueue; (0, 0) when unknown."""
        queue = self._queues.get(name)
        if queue is None:
            return (0, 0)
        return (queue.active_count + (queue.in_flight is not None), queue.parked_count)

    def local_count(self, local_queue: str) -> int:
        """Pending workloads of a LocalQueue, wherever they wait."""
        return len(self._of_local.get(local_queue, ()))

    def known(self) -> list[str]:
        """Keys of all pending workloads, wherever they wait."""
        return list(self._known)

    def known_count(self) -> int:
        """How many workloads wait, wherever they wait."""
        return len(self._known)

    def stands(self, key: str) -> tuple[str, bool] | None:
        """The LocalQueue of a pending workload, and whether it is active or in flight; None when it does not wait.

        One that no ClusterQueue takes is not active.
        """
        item = self._known.get(key)
        if item is None:
            return None
        queue = self._queues.get(self._home.get(key, ""))
        return item.local_queue, queue is not None and queue.parked_item(key) is None

    def forms(self, name: str) -> tuple[int, int]:
        """Shapes of the active workloads and of the inadmissible ones of a ClusterQueue; (0, 0) when unknown."""
        queue = self._queues.get(name)
        if queue is None:
            return (0, 0)
        flying = queue.in_flight is not None and queue.in_flight.shape not in queue.active
        return (len(queue.active) + flying, len(queue.parked))

    def bulk_verdict(self, key: str) -> Verdict | None:
        """What the try has said that parked this workload's shape; None when it was not parked so."""
        queue = self._queues.get(self._home.get(key, ""))
        item = queue.parked_item(key) if queue is not None else None
        return queue.moved_shapes.get(item.shape) if queue is not None and item is not None else None

    def position(self, key: str) -> tuple[int, int] | None:
        """(place from 1, length) in its ClusterQueue in heap order, parked ones included; None when not queued."""
        queue = self._queues.get(self._home.get(key, ""))
        if queue is None:
            return None
        order = sorted(queue.items(), key=lambda item: (queue.used_by(item), queue.rank(item)))
        places = {item.key: place for place, item in enumerate(order, start=1)}
        return (places[key], len(order)) if key in places else None

    def front(self, name: str, most: int) -> tuple[list[str], int]:
        """Those who will be tried next in a ClusterQueue, at most so many, in that order; and how many there are.

        Without those set aside and the one that is being tried.  Costs by how many are asked for, not by how many wait.
        """
        queue = self._queues.get(name)
        return (list(islice(queue.in_order(), most)), queue.active_count) if queue is not None else ([], 0)

    def waiting(self, name: str) -> list[Pending]:
        """All that wait in a ClusterQueue, those set aside and the one that is being tried among them; in no order."""
        queue = self._queues.get(name)
        return list(queue.items()) if queue is not None else []

    def rank(self, name: str, item: Pending) -> tuple[float, _Rank]:
        """What goes before what in a ClusterQueue that exists: the smaller one."""
        queue = self._queues[name]
        return queue.used_by(item), queue.rank(item)

    def home(self, key: str) -> str | None:
        """The ClusterQueue in which a workload waits; None when in none."""
        return self._home.get(key)

    def is_active(self, key: str) -> bool:
        """Whether a workload stands in the line of those who will be tried."""
        queue = self._queues.get(self._home.get(key, ""))
        return queue is not None and queue.is_active(key)

    def goes_by_usage(self, name: str) -> bool:
        """Whether what LocalQueues used counts in a ClusterQueue."""
        queue = self._queues.get(name)
        return queue is not None and queue.usage is not None

    def knows(self, name: str) -> bool:
        """Whether there is such a ClusterQueue."""
        return name in self._queues

    def names(self) -> list[str]:
        """All known ClusterQueues."""
        return list(self._queues)

    def is_known(self, key: str) -> bool:
        """Whether the workload waits here, in whatever bucket."""
        return key in self._known


SECOND_PASS_DELAYS = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds before the first, the second ... try; the last one repeats.  Source: the compatible system."""


class SecondPass:
    """Admitted workloads that the scheduling loop must look at again: each after a pause that grows with its tries.

    The pause comes before the first try, too, so that failures of one moment are handled together.
    """

    def __init__(self) -> None:
        self.later: Callable[[str, float], None] = lambda _key, _seconds: None
        """Told to call `ready(key)` in so many seconds; once per key, also when it is told twice."""
        self._tries: dict[str, int] = {}
        self._ready: dict[str, None] = {}

    def ask(self, key: str) -> None:
        """The workload needs a look.  Asking again while it waits changes nothing."""
        if key not in self._tries:
            self._tries[key] = 0
            self._wait(key)

    def ready(self, key: str) -> bool:
        """Its pause is over.  False: it was dropped meanwhile."""
        if key in self._tries:
            self._ready[key] = None
        return key in self._ready

    def take(self) -> list[str]:
        """Those whose pause is over, in that order.  Each must be dropped or failed next."""
        taken = list(self._ready)
        self._ready.clear()
        return taken

    def failed(self, key: str) -> None:
        """The look was in vain: another one follows after a longer pause."""
        if key in self._tries:
            self._tries[key] += 1
            self._wait(key)

    def drop(self, key: str) -> None:
        """No look is needed any more."""
        self._tries.pop(key, None)
        self._ready.pop(key, None)

    def _wait(self, key: str) -> None:
        self.later(key, SECOND_PASS_DELAYS[min(self._tries[key], len(SECOND_PASS_DELAYS) - 1)])
