"""Where pending workloads wait: per ClusterQueue a heap (active), a parking place (inadmissible), one in flight.

A workload is in at most one of the three.  All functions are plain `def` on one event loop, so each change is atomic.

    push ──► active ──pop──► in flight ──requeue──► active          (immediate, or a flush came in between)
                ▲                            └────► inadmissible    (did not fit: wait for an event)
                └───────────── flush ◄──────────────────┘           (something was freed or changed)

Source: the compatible system's queue manager (KEP-168 and observed behaviour).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from functools import partial
from itertools import islice

import structlog

from kqueue.isolation import isolated_logged
from kqueue.model.pending import NO_VERDICT, LastTry, Pending, RequeueReason
from kqueue.state.gang_hold import hold
from kqueue.state.profile_orders import QueueSorting
from kqueue.state.queue_policy import BEST_EFFORT_FIFO, SHAPE_WIDE, QueuePolicy
from kqueue.state.waiting_queue import Rank, WaitingQueue, may_come_back
from kqueue.state.wake_up import QueueLookup, WakeUp

_log = structlog.get_logger(__name__)


_UNKNOWN = WaitingQueue(BEST_EFFORT_FIFO)
"""Stands for a ClusterQueue that is not known; always empty."""


class Queues:
    """All waiting workloads. Changes after which a cycle may have work call `on_wake`."""

    def __init__(
        self, now: Callable[[], datetime], on_wake: Callable[[], None] = lambda: None, *, by_shape: bool = True
    ) -> None:
        """Take the options; `by_shape`: the result of a try counts for all workloads of the same shape."""
        self._now, self._by_shape = now, by_shape
        self._on_wake = on_wake
        self.on_parked: Callable[[Collection[str]], None] = lambda _keys: None
        """Called with workloads that are parked without a try of their own, because a workload of the same shape was
        refused.

        The receiver must read the keys during the call: the collection changes later.
        """
        self._queues: dict[str, WaitingQueue] = {}
        self._local: dict[str, str] = {}  # LocalQueue key -> ClusterQueue
        self._known: dict[str, Pending] = {}  # all pending workloads, also workloads without a queue
        self._home: dict[str, str] = {}  # workload key -> ClusterQueue that has the workload
        self._of_local: dict[str, dict[str, None]] = {}  # LocalQueue key -> keys of its pending workloads
        self._held: dict[str, str] = {}  # Workload of an admitted gang -> ClusterQueue that tries only its extras

    # --- queues ------------------------------------------------------------------------------------------------

    def set_cluster_queue(
        self,
        name: str,
        policy: QueuePolicy,
        *,
        usage: Callable[[str], float] | None = None,
        order: QueueSorting | None = None,
    ) -> None:
        """Create the ClusterQueue or change its policy; workloads that waited for it enter it.

        `usage` returns the usage of a LocalQueue: workloads of the LocalQueue with least usage go first, whatever their
        priority. It is called whenever a head is taken. None: usage does not count.  `order` sorts the workloads; None:
        by priority, timestamp and UID.
        """
        queue = self._queues.get(name)
        if queue is None:
            self._queues[name] = WaitingQueue(policy, usage=usage, order=order)
            self._adopt()
        elif (queue.policy, queue.usage, queue.order) != (policy, usage, order):
            queue.policy, queue.usage = policy, usage
            queue.sort_by(order)

    def sort_anew(self) -> None:
        """Compute the keys of all workloads again: plugins compute keys only while this process leads."""
        for queue in self._queues.values():
            if queue.order is not None:
                queue.sort_by(queue.order)

    def remove_cluster_queue(self, name: str) -> None:
        """Forget the ClusterQueue; its workloads are kept and come back with it."""
        if self._queues.pop(name, None) is not None:
            self._home = {key: home for key, home in self._home.items() if home != name}
            self._held = {base: home for base, home in self._held.items() if home != name}

    def set_local_queue(self, key: str, cluster_queue: str | None) -> None:
        """Set the ClusterQueue of a LocalQueue; None: the LocalQueue is gone or stopped, and its workloads are
        withdrawn.
        """
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
        """Return the ClusterQueue of a LocalQueue; None: the LocalQueue is unknown or stopped, or its ClusterQueue is
        unknown.
        """
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
        """Add a workload, or its newer version.

        If the workload is in flight, the new version is only stored, and `requeue` uses it. If the workload is parked
        and no relevant field has changed, it stays parked.
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
        """Take the first workload of every active ClusterQueue with none in flight: (ClusterQueue, workload)."""
        heads: list[tuple[str, Pending]] = []
        for name, queue in self._queues.items():
            if queue.in_flight is not None or not queue.fronts:
                continue
            with isolated_logged(_log, "the head of a ClusterQueue could not be read", cluster_queue=name):
                if queue.hold is not None and queue.hold.is_over(self._now(), queue.is_active):
                    self.end_hold(queue.hold.base)
                item = queue.pop() if is_active(name) else None
                if item is not None:
                    heads.append((name, item))
        return heads

    def keeps_runs(self, name: str) -> bool:
        """Whether a ClusterQueue tries the pods beyond the quorum of a gang right after the quorum."""
        queue = self._queues.get(name)
        return queue is not None and queue.order is not None and queue.order.keeps_runs

    def hold_for(self, name: str, base: str, extras: int) -> datetime | None:
        """Try no other workload of a ClusterQueue before the pods beyond the quorum of a gang that was admitted to it,
        if its profile keeps runs; return the end of the hold, None: there is no hold.

        `base` is the Workload of the quorum, `extras` the number of these pods.
        """
        queue, found = self._queues.get(name), hold(base, extras, self._now())
        if queue is None or found is None or not self.keeps_runs(name):
            return None
        if queue.hold is not None:
            self._held.pop(queue.hold.base, None)
        queue.hold, self._held[base] = found, name
        return found.until

    def note_end_of_write(self, name: str, key: str) -> None:
        """Note that the write of an admission to a ClusterQueue has ended; a hold may have waited for it."""
        queue = self._queues.get(name)
        if queue is not None and queue.hold is not None and queue.hold.note_end_of_write(key):
            self._on_wake()

    def end_hold(self, base: str) -> None:
        """End the hold for the pods of a gang: all were tried, time is over, or the gang has lost its admission."""
        queue = self._queues.get(self._held.pop(base, ""))
        if queue is not None and queue.hold is not None and queue.hold.base == base:
            queue.hold = None
            self._on_wake()

    def pop_these(self, keys: Mapping[str, str]) -> list[tuple[str, Pending]]:
        """Take these workloads (by ClusterQueue), as `pop_heads` takes the first ones: (ClusterQueue, workload).

        Workloads that do not wait any more, or rest, are left out, and so are queues with a workload
        in flight, or with a hold.
        """
        found: list[tuple[str, Pending]] = []
        for name, key in keys.items():
            queue = self._queues.get(name)
            if queue is None or queue.in_flight is not None or queue.hold is not None:
                continue
            item = queue.waiting.get(key)
            if item is not None and self._may_run(item):
                queue.take(key)
                found.append((name, item))
        return found

    def is_strict(self, name: str) -> bool:
        """Whether a ClusterQueue is StrictFIFO; False for an unknown one."""
        queue = self._queues.get(name)
        return queue is not None and not queue.policy.skips_heads

    def in_flight(self, name: str) -> Pending | None:
        """Return the workload that was taken as head of a ClusterQueue, and is neither settled nor requeued; None:
        there is none.
        """
        queue = self._queues.get(name)
        return queue.in_flight if queue is not None else None

    def unplaced(self, name: str) -> str:
        """Return why the workload in flight of a queue must not be tried (a plugin gave no key); empty: it may be."""
        queue = self._queues.get(name)
        return queue.unplaced if queue is not None and queue.in_flight is not None else ""

    def settle(self, key: str) -> None:
        """Forget the in-flight workload, which was admitted; its ClusterQueue may offer another head."""
        queue = self._queues.get(self._home.get(key, ""))
        if queue is None or queue.in_flight is None or queue.in_flight.key != key:
            self.delete(key)  # the workload was moved or withdrawn meanwhile
            return
        queue.in_flight = None
        if queue.hold is not None:
            queue.hold.note_admission(key)
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

        `on_wake` is not called: the loop knows whether the next cycle can have another result. The workload becomes
        active if the reason is immediate for the policy, a flush came since it was popped, or it `has_more` flavors to
        try. Otherwise it is parked, and after a failed fit all workloads of its shape with it. A preemptor goes first
        from then on, until it leaves the queue or another preemptor replaces it. A workload that was deleted, moved or
        withdrawn in the meantime is not returned.
        """
        home = self._home.get(key)
        queue = self._queues.get(home or "")
        item = self._known.get(key)
        if queue is None or queue.in_flight is None or queue.in_flight.key != key:
            return False  # the workload was moved or withdrawn meanwhile, and is in its right place
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
        """Whether the workload's back-off is over; the clock is read only if the workload has a back-off."""
        return not item.on_hold if item.not_before is None else item.may_run(self._now())

    @staticmethod
    def _is_immediate(queue: WaitingQueue, reason: RequeueReason, *, has_more: bool) -> bool:
        return queue.policy.is_immediate(reason) or has_more or queue.flushed_at_pop >= queue.pops

    def helped_by(self, wake_up: WakeUp, lookup: QueueLookup) -> frozenset[str]:
        """Return the ClusterQueues whose parked workloads a change can help, according to the present trees and
        flavors.  Unknown names help no ClusterQueue.
        """
        helped = set(wake_up.cluster_queues)
        if wake_up.trees_of or wake_up.cohorts:
            helped.update(lookup.in_trees(wake_up.trees_of, wake_up.cohorts))
        for names, queues_of in (
            (wake_up.flavors, lookup.queues_of_flavor),
            (wake_up.nodes_of, lookup.queues_beside),
        ):
            for name in names:
                helped.update(queues_of(name))
        if wake_up.everywhere:
            helped.update(self._queues)
        return frozenset(helped)

    def flush(self, names: Iterable[str], may_enter: Callable[[str, Pending], bool] = lambda _q, _p: True) -> int:
        """Move parked workloads of these ClusterQueues back into their heaps; return the number of moved workloads.

        `may_enter(cluster_queue, workload)` returns whether the namespace matches; it is called once for all workloads
        of one shape and LocalQueue. Workloads whose back-off is not over stay parked.
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
        Returns the largest number of shapes that became active in one ClusterQueue.
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
        """Return the numbers (active + in flight, inadmissible) of a ClusterQueue; (0, 0) when it is unknown."""
        queue = self._queues.get(name)
        if queue is None:
            return (0, 0)
        return (queue.active_count + (queue.in_flight is not None), queue.parked_count)

    def local_count(self, local_queue: str) -> int:
        """Return the number of pending workloads of a LocalQueue, in any bucket or none."""
        return len(self._of_local.get(local_queue, ()))

    def known(self) -> list[str]:
        """Return the keys of all pending workloads, in any bucket or none."""
        return list(self._known)

    def known_count(self) -> int:
        """Return the number of pending workloads, in any bucket or none."""
        return len(self._known)

    def status_of(self, key: str) -> tuple[str, bool] | None:
        """Return the LocalQueue of a pending workload, and whether it is active or in flight; None: it is not pending.

        A workload without a ClusterQueue is not active.
        """
        item = self._known.get(key)
        if item is None:
            return None
        queue = self._queues.get(self._home.get(key, ""))
        return item.local_queue, queue is not None and queue.parked_item(key) is None

    def shape_counts(self, name: str) -> tuple[int, int]:
        """Return the numbers of shapes of a ClusterQueue's active and inadmissible workloads; (0, 0) when it is
        unknown.
        """
        queue = self._queues.get(name)
        if queue is None:
            return (0, 0)
        flying = queue.in_flight is not None and queue.in_flight.shape not in queue.active
        return (len(queue.active) + flying, len(queue.parked))

    def bulk_verdict(self, key: str) -> LastTry | None:
        """Return the result of the try that parked this workload's shape; None when the shape is not parked."""
        queue = self._queues.get(self._home.get(key, ""))
        item = queue.parked_item(key) if queue is not None else None
        return queue.moved_shapes.get(item.shape) if queue is not None and item is not None else None

    def position(self, key: str, *, most: int | None = None) -> tuple[int, int] | None:
        """Return (position from 1, length) of a workload in the order of its ClusterQueue, parked ones included; None
        when it waits in no ClusterQueue, or more than `most` workloads wait in it.
        """
        queue = self._queues.get(self._home.get(key, ""))
        if queue is None or (most is not None and len(queue.waiting) > most):
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

    def of_local(self, local_queue: str) -> list[Pending]:
        """Return all pending workloads that name a LocalQueue, in any bucket or none, in no order."""
        return [self._known[key] for key in self._of_local.get(local_queue, ())]

    def waiting(self, name: str) -> list[Pending]:
        """Return all waiting workloads of a ClusterQueue, also those set aside and in flight, in no order."""
        queue = self._queues.get(name)
        return list(queue.items()) if queue is not None else []

    def rank(self, name: str, item: Pending) -> tuple[float, Rank]:
        """Return the rank of a workload in a ClusterQueue, in an unknown one by priority and age; the smaller rank goes
        first.
        """
        queue = self._queues.get(name, _UNKNOWN)
        return queue.used_by(item), queue.rank(item)

    def home(self, key: str) -> str | None:
        """Return the ClusterQueue in which a workload waits; None: in no ClusterQueue."""
        return self._home.get(key)

    def is_active(self, key: str) -> bool:
        """Whether a workload is active, so that it will be tried."""
        queue = self._queues.get(self._home.get(key, ""))
        return queue is not None and queue.is_active(key)

    def goes_by_usage(self, name: str) -> bool:
        """Whether the order of a ClusterQueue follows the usage of its LocalQueues."""
        queue = self._queues.get(name)
        return queue is not None and queue.usage is not None

    def knows(self, name: str) -> bool:
        """Whether the ClusterQueue is known."""
        return name in self._queues

    def names(self) -> list[str]:
        """Return all known ClusterQueues."""
        return list(self._queues)

    def is_known(self, key: str) -> bool:
        """Whether the workload is pending, in any bucket or none."""
        return key in self._known
