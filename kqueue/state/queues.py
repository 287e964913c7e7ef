"""Where pending workloads wait: per ClusterQueue a heap (active), a parking place (inadmissible), one in flight.

A workload is in at most one of the three.  Everything here is plain `def` on one event loop, so each change is whole.

    push ──► active ──pop──► in flight ──requeue──► active          (immediate, or a flush came in between)
                ▲                            └────► inadmissible    (did not fit: wait for an event)
                └───────────── flush ◄──────────────────┘           (something was freed or changed)

Source: the compatible system's queue manager (KEP-168 and what its behaviour shows).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from functools import partial
from itertools import islice

import structlog

from kqueue.isolation import isolated_logged
from kqueue.model.pending import NO_VERDICT, LastTry, Pending, RequeueReason
from kqueue.state.queue_policy import SHAPE_WIDE, QueuePolicy
from kqueue.state.waiting_queue import Rank, WaitingQueue, may_come_back
from kqueue.state.wake_up import QueueLookup, WakeUp

_log = structlog.get_logger(__name__)


class Queues:
    """All waiting workloads.  What brings or frees one reports by `on_wake` that a cycle may have something to do."""

    def __init__(
        self, now: Callable[[], datetime], on_wake: Callable[[], None] = lambda: None, *, by_shape: bool = True
    ) -> None:
        """`by_shape`: the result of a try counts for all workloads of the same shape."""
        self._now, self._by_shape = now, by_shape
        self._on_wake = on_wake
        self.on_parked: Callable[[Collection[str]], None] = lambda _keys: None
        """Told of workloads that are parked without a try of their own, because an equal one was refused.

        Must go through them at once, if at all.
        """
        self._queues: dict[str, WaitingQueue] = {}
        self._local: dict[str, str] = {}  # LocalQueue key -> ClusterQueue
        self._known: dict[str, Pending] = {}  # all pending workloads, also workloads without a queue
        self._home: dict[str, str] = {}  # workload key -> ClusterQueue in whose buckets it is
        self._of_local: dict[str, dict[str, None]] = {}  # LocalQueue key -> keys of its pending workloads

    # --- queues ------------------------------------------------------------------------------------------------

    def set_cluster_queue(self, name: str, policy: QueuePolicy, *, usage: Callable[[str], float] | None = None) -> None:
        """Create the ClusterQueue or change its policy; workloads that waited for it enter it.

        `usage` returns the usage of a LocalQueue: workloads of the LocalQueue with least usage go first, whatever their
        priority. It is called whenever a head is taken. None: usage does not count.
        """
        queue = self._queues.get(name)
        if queue is None:
            self._queues[name] = WaitingQueue(policy, usage=usage)
            self._adopt()
        elif (queue.policy, queue.usage) != (policy, usage):
            queue.policy, queue.usage = policy, usage
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
            not self._may_run(item) or (queue.policy.skips_heads and item.shape in queue.moved_shapes and not fresh)
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
            with isolated_logged(_log, "a ClusterQueue could not be asked for its head", cluster_queue=name):
                item = queue.pop() if is_active(name) else None
                if item is not None:
                    heads.append((name, item))
        return heads

    def is_strict(self, name: str) -> bool:
        """Whether a ClusterQueue is StrictFIFO; False for an unknown one."""
        queue = self._queues.get(name)
        return queue is not None and not queue.policy.skips_heads

    def in_flight(self, name: str) -> Pending | None:
        """The head of a ClusterQueue that was taken, and neither settled nor brought back; None: there is none."""
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
        self, key: str, reason: RequeueReason, *, verdict: LastTry = NO_VERDICT, has_more: bool = False
    ) -> bool:
        """Return an in-flight workload to its queue, in its newest version; True when it is active again.

        No cycle is woken: the loop knows whether the next cycle can find anything else. The workload becomes active if
        the reason is immediate for the policy, a flush came since it was popped, or it `has_more` flavors to try.
        Otherwise it is parked, and after a failed fit all workloads of its shape with it. A preemptor goes first from
        then on, until it leaves the queue or another preemptor replaces it. A workload that was deleted, moved or
        withdrawn in the meantime is not returned.
        """
        home = self._home.get(key)
        queue = self._queues.get(home or "")
        item = self._known.get(key)
        if queue is None or queue.in_flight is None or queue.in_flight.key != key:
            return False  # it was moved or withdrawn in the meantime, and is in its right place
        queue.in_flight = None
        if item is None:
            return False
        if reason is RequeueReason.PENDING_PREEMPTION:
            queue.prefer(key)
        if self._may_run(item) and self._is_immediate(queue, reason, has_more=has_more):
            queue.activate(item)
            return True
        if self._by_shape and reason in SHAPE_WIDE and queue.policy.skips_heads:
            queue.moved_shapes[item.shape] = verdict
            queue.park_shape(item.shape, self.on_parked)
        queue.park(item)
        return False

    def _may_run(self, item: Pending) -> bool:
        """Whether its back-off is over; the time is asked for only where there is one."""
        return not item.on_hold if item.not_before is None else item.may_run(self._now())

    @staticmethod
    def _is_immediate(queue: WaitingQueue, reason: RequeueReason, *, has_more: bool) -> bool:
        return queue.policy.is_immediate(reason) or has_more or queue.flushed_at_pop >= queue.pops

    def helped_by(self, wake_up: WakeUp, lookup: QueueLookup) -> frozenset[str]:
        """Return the ClusterQueues whose parked workloads a change can help, by the present trees and flavors.

        Changes of trees publish a wake-up before and one after the change.  Unknown names help no ClusterQueue.
        """
        helped = set(wake_up.cluster_queues)
        for names, queues_of in (
            (wake_up.trees_of, lookup.tree_of),
            (wake_up.cohorts, lookup.queues_in_cohort),
            (wake_up.flavors, lookup.queues_of_flavor),
            (wake_up.nodes_of, lookup.queues_beside),
        ):
            for name in names:
                helped.update(queues_of(name))
        if wake_up.everywhere:
            helped.update(self._queues)
        return frozenset(helped)

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

    def bring_back(self, names: Iterable[str], may_enter: Callable[[str, Pending, LastTry], bool]) -> int:
        """Activate some parked workloads of these ClusterQueues.

        `may_enter(cluster_queue, workload, verdict)` is called for one workload of each parked shape; the others stay.
        Returns the largest number of shapes that one ClusterQueue got back.
        """
        most, now = 0, self._now()
        for name in names:
            queue = self._queues.get(name)
            if queue is None or not queue.parked:
                continue
            shapes = queue.wake(now, partial(may_come_back, name, queue.moved_shapes, may_enter))
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

    def bulk_verdict(self, key: str) -> LastTry | None:
        """The verdict that parked this workload's shape; None when the shape is not parked."""
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
        """Return the next workloads of a ClusterQueue in order, at most `most`, and the number of all.

        Workloads set aside and the in-flight workload are left out. The time grows with `most`, not with the number of
        waiting workloads.
        """
        queue = self._queues.get(name)
        return (list(islice(queue.in_order(), most)), queue.active_count) if queue is not None else ([], 0)

    def waiting(self, name: str) -> list[Pending]:
        """Return all waiting workloads of a ClusterQueue, with those set aside and the in-flight one, in no order."""
        queue = self._queues.get(name)
        return list(queue.items()) if queue is not None else []

    def rank(self, name: str, item: Pending) -> tuple[float, Rank]:
        """The rank of a workload in a ClusterQueue that exists; the smaller rank goes first."""
        queue = self._queues[name]
        return queue.used_by(item), queue.rank(item)

    def home(self, key: str) -> str | None:
        """The ClusterQueue in which a workload waits; None when in none."""
        return self._home.get(key)

    def is_active(self, key: str) -> bool:
        """Whether a workload is active, so that it will be tried."""
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
        """Whether the workload waits here, in any bucket."""
        return key in self._known
