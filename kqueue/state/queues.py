"""Where pending workloads wait: per ClusterQueue a heap (active), a parking place (inadmissible), one in flight.

A workload is in at most one of the three.  Everything here is plain `def` on one event loop, so each change is whole.

    push ──► active ──pop──► in flight ──requeue──► active          (immediate, or a flush came in between)
                ▲                            └────► inadmissible    (did not fit: wait for an event)
                └───────────── flush ◄──────────────────┘           (something was freed or changed)

Source: the compatible system's queue manager (KEP-168 and what its behaviour shows).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple


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


IMMEDIATE_BEST_EFFORT = frozenset({RequeueReason.FAILED_AFTER_NOMINATION})
SHAPE_WIDE = frozenset({RequeueReason.NO_FIT, RequeueReason.PREEMPTION_NO_CANDIDATES})


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

    def rank(self) -> tuple[int, datetime, str]:
        """Heap order: higher priority, older, smaller uid."""
        return (-self.priority, self.timestamp, self.uid)

    def may_run(self, now: datetime) -> bool:
        """Whether its back-off is over."""
        return not self.on_hold and (self.not_before is None or self.not_before <= now)


class Verdict(NamedTuple):
    """What a try has said: the reason and the message of QuotaReserved=False."""

    reason: str
    message: str


NO_VERDICT = Verdict("", "")
"""The try has said nothing that others could be told."""


@dataclass(slots=True)
class _Queue:
    """The buckets of one ClusterQueue."""

    strategy: Strategy
    heap: list[tuple[tuple[int, datetime, str], str]] = field(default_factory=list)
    active: dict[str, Pending] = field(default_factory=dict)
    inadmissible: dict[str, Pending] = field(default_factory=dict)
    in_flight: Pending | None = None
    moved_shapes: dict[str, Verdict] = field(default_factory=dict)  # shape -> what the try said that parked it
    pops: int = 0
    flushed_at_pop: int = -1

    def activate(self, item: Pending) -> None:
        self.inadmissible.pop(item.key, None)
        old = self.active.get(item.key)
        self.active[item.key] = item
        if old is None or old.rank() != item.rank():
            heapq.heappush(self.heap, (item.rank(), item.key))
            if len(self.heap) > 2 * len(self.active) + 64:  # entries left behind by parking: compact
                self.heap = [(p.rank(), p.key) for p in self.active.values()]
                heapq.heapify(self.heap)

    def park(self, item: Pending) -> None:
        self.active.pop(item.key, None)
        self.inadmissible[item.key] = item

    def drop(self, key: str) -> None:
        self.active.pop(key, None)
        self.inadmissible.pop(key, None)

    def top(self) -> Pending | None:
        """The best active entry; entries of the heap that moved or left are thrown away on the way."""
        while self.heap:
            rank, key = self.heap[0]
            item = self.active.get(key)
            if item is not None and item.rank() == rank:
                return item
            heapq.heappop(self.heap)
        return None

    def items(self) -> Iterator[Pending]:
        yield from self.active.values()
        yield from self.inadmissible.values()
        if self.in_flight is not None:
            yield self.in_flight


class Queues:
    """All waiting workloads.  What brings or frees one reports by `on_wake` that a cycle may have something to do."""

    def __init__(self, now: Callable[[], datetime], on_wake: Callable[[], None] = lambda: None) -> None:
        self._now = now
        self._on_wake = on_wake
        self.on_parked: Callable[[str], None] = lambda _key: None
        """Told of each workload that is parked without a try of its own, because an equal one was refused."""
        self._queues: dict[str, _Queue] = {}
        self._local: dict[str, str] = {}  # LocalQueue key -> ClusterQueue
        self._known: dict[str, Pending] = {}  # every pending workload, also those without a queue
        self._home: dict[str, str] = {}  # workload key -> ClusterQueue whose buckets hold it

    # --- queues ------------------------------------------------------------------------------------------------

    def set_cluster_queue(self, name: str, strategy: Strategy) -> None:
        """Create the ClusterQueue or change its strategy; workloads that waited for it move in."""
        queue = self._queues.get(name)
        if queue is None:
            self._queues[name] = _Queue(strategy)
            self._adopt()
        else:
            queue.strategy = strategy

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
        for item in [p for p in self._known.values() if p.local_queue == key]:
            self._withdraw(item.key)
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
            queue.drop(key)
            if queue.in_flight is not None and queue.in_flight.key == key:
                queue.in_flight = None

    # --- workloads ---------------------------------------------------------------------------------------------

    def push(self, item: Pending) -> None:
        """Add a workload or take in its newer version.

        In flight: only remembered, the requeue sees it.  Parked and nothing relevant changed: stays parked.
        """
        old = self._known.get(item.key)
        self._known[item.key] = item
        home = self._home.get(item.key)
        if home is not None and self._local.get(item.local_queue) != home:
            self._withdraw(item.key)
            home = None
        queue = self._queues.get(home or "")
        if queue is not None and queue.in_flight is not None and queue.in_flight.key == item.key:
            return
        parked = queue.inadmissible.get(item.key) if queue is not None else None
        if queue is not None and parked is not None and old is not None and parked.version == item.version:
            queue.inadmissible[item.key] = item
            if parked.may_run(self._now()) or not item.may_run(self._now()):
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
        waits = item.key not in queue.active and (
            not item.may_run(self._now())
            or (queue.strategy is Strategy.BEST_EFFORT_FIFO and item.shape in queue.moved_shapes and not fresh)
        )
        if waits:
            queue.park(item)
        else:
            queue.activate(item)

    def delete(self, key: str) -> None:
        """Forget a workload: admitted, finished, deactivated or deleted."""
        self._known.pop(key, None)
        self._withdraw(key)

    def pop_heads(self, is_active: Callable[[str], bool]) -> list[tuple[str, Pending]]:
        """Take the best workload of every active ClusterQueue that has none in flight: (ClusterQueue, workload)."""
        heads: list[tuple[str, Pending]] = []
        for name, queue in self._queues.items():
            if queue.in_flight is not None or not is_active(name):
                continue
            item = queue.top()
            if item is None:
                continue
            queue.pops += 1
            heapq.heappop(queue.heap)
            del queue.active[item.key]
            queue.in_flight = item
            heads.append((name, item))
        return heads

    def settle(self, key: str) -> None:
        """The in-flight workload was admitted: free the slot, forget the workload."""
        self.delete(key)

    def requeue(
        self, key: str, reason: RequeueReason, *, verdict: Verdict = NO_VERDICT, has_more: bool = False
    ) -> bool:
        """Bring an in-flight workload back, in its newest version.  True when it is in the heap again.

        Nobody is woken: who runs the cycles knows whether the next one can find anything else.

        It goes into the heap when the reason is immediate for the strategy, a flush came since it was popped, or it
        `has_more` flavors to try; otherwise it is parked, and with it, after a failed fit, all of its shape.
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
        if item.may_run(self._now()) and self._is_immediate(queue, reason, has_more=has_more):
            queue.activate(item)
            return True
        queue.park(item)
        if reason in SHAPE_WIDE and queue.strategy is Strategy.BEST_EFFORT_FIFO:
            self._park_shape(queue, item.shape, verdict)
        return False

    @staticmethod
    def _is_immediate(queue: _Queue, reason: RequeueReason, *, has_more: bool) -> bool:
        if queue.strategy is Strategy.STRICT_FIFO:
            immediate = reason is not RequeueReason.NAMESPACE_MISMATCH
        else:
            immediate = reason in IMMEDIATE_BEST_EFFORT
        return immediate or has_more or queue.flushed_at_pop >= queue.pops

    def _park_shape(self, queue: _Queue, shape: str, verdict: Verdict) -> None:
        queue.moved_shapes[shape] = verdict
        for item in [p for p in queue.active.values() if p.shape == shape]:
            queue.park(item)
            self.on_parked(item.key)

    def flush(self, names: Iterable[str], may_enter: Callable[[str, Pending], bool] = lambda _q, _p: True) -> int:
        """Move parked workloads of these ClusterQueues back into their heaps; returns how many moved.

        `may_enter(cluster_queue, workload)` says whether the namespace matches; back-off is respected too.
        """
        moved = 0
        now = self._now()
        for name in names:
            queue = self._queues.get(name)
            if queue is None:
                continue
            queue.flushed_at_pop = queue.pops
            queue.moved_shapes.clear()
            for item in list(queue.inadmissible.values()):
                if item.may_run(now) and may_enter(name, item):
                    queue.activate(item)
                    moved += 1
        if moved:
            self._on_wake()
        return moved

    # --- views -------------------------------------------------------------------------------------------------

    def counts(self, name: str) -> tuple[int, int]:
        """(active + in flight, inadmissible) of a ClusterQueue; (0, 0) when unknown."""
        queue = self._queues.get(name)
        if queue is None:
            return (0, 0)
        return (len(queue.active) + (queue.in_flight is not None), len(queue.inadmissible))

    def local_count(self, local_queue: str) -> int:
        """Pending workloads of a LocalQueue, wherever they wait."""
        return sum(1 for p in self._known.values() if p.local_queue == local_queue)

    def local_counts(self) -> dict[str, tuple[int, int]]:
        """(active + in flight, inadmissible) of every LocalQueue with pending workloads.

        Those that no ClusterQueue takes count as inadmissible.
        """
        counts: dict[str, tuple[int, int]] = {}
        for key, item in self._known.items():
            queue = self._queues.get(self._home.get(key, ""))
            waits = queue is None or key in queue.inadmissible
            active, inadmissible = counts.get(item.local_queue, (0, 0))
            counts[item.local_queue] = (active + (not waits), inadmissible + waits)
        return counts

    def bulk_verdict(self, key: str) -> Verdict | None:
        """What the try has said that parked this workload's shape; None when it was not parked so."""
        queue = self._queues.get(self._home.get(key, ""))
        if queue is None or key not in queue.inadmissible:
            return None
        return queue.moved_shapes.get(queue.inadmissible[key].shape)

    def position(self, key: str) -> tuple[int, int] | None:
        """(place from 1, length) in its ClusterQueue in heap order, parked ones included; None when not queued."""
        queue = self._queues.get(self._home.get(key, ""))
        if queue is None:
            return None
        order = sorted(queue.items(), key=Pending.rank)
        places = {item.key: place for place, item in enumerate(order, start=1)}
        return (places[key], len(order)) if key in places else None

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
