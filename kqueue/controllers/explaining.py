"""Writes the reason why a Workload is pending: its block, or the result of the try of an equal Workload."""

from __future__ import annotations

from typing import NamedTuple

from cachetools import TTLCache

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.meta import Condition
from kqueue.clock import Clock
from kqueue.controllers.blockers import REFUSED, Blockers
from kqueue.controllers.pending_notifications import UNTRIED, PendingNotifications
from kqueue.core.mention import Mention, mentioned, readers_of
from kqueue.runtime.store import Store
from kqueue.runtime.turns import Turns
from kqueue.state import requeueing, status
from kqueue.state.cache import Cache
from kqueue.state.queues import Queues

_QUEUED = (
    names.REASON_NO_MATCHING_FLAVOR,
    names.REASON_EXCEEDS_MAX_QUOTA,
    names.REASON_WAITING_FOR_QUOTA,
    names.REASON_TOPOLOGY_PLACEMENT_FAILED,
    names.REASON_WAITING_FOR_PREEMPTED_WORKLOADS,
    names.REASON_WAITING_FOR_PODS_READY,
    names.REASON_WAITING_FOR_LOCALITY,
    names.REASON_PENDING_EVALUATION,
    names.REASON_PENDING,
    names.REASON_WAITING,
)
"""Reasons of workloads without a block.  Any other reason is replaced when the block has ended, whatever client wrote
it.
"""
_MOST_TURNS, _LONGEST_TURN = 200_000, 3600.0
"""The largest number of Workloads that wait for their first reason, and the seconds after which such a wait is
dropped.
"""
_LOOK_AGAIN = 30.0
"""Seconds after which a Workload that waits for its turn is read again, because the load may have ended."""


class FirstWords(NamedTuple):
    """The time at which a Workload that has not been tried yet gets a reason.

    Args:
        after: seconds of waiting for the first try, after which the wait itself is the reason.
        at_once: the reason is written at the first reconcile.
    """

    after: float = 10.0
    at_once: bool = False


class PendingExplainer:
    """Writes the reasons of pending Workloads."""

    def __init__(
        self,
        *,
        workloads: Store[wire.Workload],
        blockers: Blockers,
        cache: Cache,
        queues: Queues,
        clock: Clock,
        first_words: FirstWords,
        turns: Turns | None = None,
    ) -> None:
        """Take the state; `turns` spreads the first reasons of many Workloads over time; None: they are written at
        once.
        """
        self._turns = turns or Turns(clock, lambda: float("inf"))
        self._turn_at: TTLCache[str, float] = TTLCache(_MOST_TURNS, _LONGEST_TURN, clock.monotonic)
        """By Workload: the monotonic time in seconds at which it gets its first reason, if that was not written at
        once.
        """
        self._blockers, self._cache, self._queues = blockers, cache, queues
        self._clock, self._tell_after, self._at_once = clock, first_words.after, first_words.at_once
        self._started = clock.now()
        self.pending_notifications = PendingNotifications()
        """Workloads whose status has no result of a try."""
        workloads.subscribe(self.pending_notifications.observe)

    def look(self, key: str) -> None:
        """Give a turn to a Workload whose first reason is known."""
        if self.pending_notifications.is_first(key) and self._queues.bulk_verdict(key) is not None:
            self._take_turn(key)

    def _take_turn(self, key: str) -> None:
        at = self._turn_at.get(key)
        if at is None:
            wait = self._turns.take()
            if wait > 0:
                self._turn_at[key] = self._clock.monotonic() + wait
        elif at <= self._clock.monotonic():
            del self._turn_at[key]

    def until_turn(self, key: str) -> float:
        """Return the seconds until the workload's turn to get its first reason; 0: it does not wait for a turn.

        Turns end when the load has ended.
        """
        at = self._turn_at.get(key)
        return 0.0 if at is None or self._turns.are_over else max(0.0, at - self._clock.monotonic())

    def until_look(self, key: str) -> float:
        """Return the seconds until a workload that waits for its turn is read again; 0: it does not wait.

        The turn may come earlier than planned.
        """
        return min(self.until_turn(key), _LOOK_AGAIN)

    def explain(self, workload: wire.Workload) -> status.Patch | None:
        """Return the patch that writes why a pending Workload waits, or removes a block that has ended; None: no
        change.
        """
        if model.condition_true(workload, names.CONDITION_QUOTA_RESERVED):
            return None
        key = model.workload_key(workload)
        if self._cache.held.holding(key) is not None:
            return None  # the workload is being admitted now
        written = model.condition(workload.status.conditions, names.CONDITION_QUOTA_RESERVED)
        if written is not None and written.reason == names.REASON_ON_HOLD:
            return None
        if written is not None and written.reason == names.REASON_QUARANTINED and not self._queues.is_known(key):
            return None
        blocked, stamp = self._blockers.blocker(workload), status.Stamp(self._clock.now())
        if blocked is not None:
            return status.wait(workload, reason=blocked.reason, message=blocked.message, stamp=stamp)
        if self._rests(workload):
            return self._explain_rest(workload, written, stamp)
        verdict = self._queues.bulk_verdict(key)
        if verdict is not None and verdict.reason and (written is None or written.reason in UNTRIED):
            if self.until_turn(key) > 0:
                return None
            return status.wait(workload, reason=verdict.reason, message=verdict.message, stamp=stamp)
        untold = written is None and self.seconds_to_reason(workload) <= 0 and self._queues.is_known(key)
        over = written is not None and _is_for_a_block(written) and not _is_kept_from_preempting(workload)
        if not untold and not over:
            return None
        reason, message = names.REASON_PENDING_EVALUATION, self._untried(key)
        return status.wait(workload, reason=reason, message=message, stamp=stamp, dated=True)

    def _untried(self, key: str) -> str:
        """Return the message for a queued workload that has not been tried."""
        name = self._queues.home(key)
        if name is None:
            return "It has not been tried yet"
        tried = self._queues.in_flight(name)
        front, _ = self._queues.front(name, 1)
        first = tried.key if tried is not None else next(iter(front), key)
        if first == key:
            return f"It is the next workload that ClusterQueue {name} tries"
        ahead = mentioned((Mention(first, name),), readers_of(key))
        if self._queues.is_strict(name):
            return f"ClusterQueue {name} is StrictFIFO, and {ahead} comes first"
        return f"Other workloads of ClusterQueue {name} come first, {ahead} next"

    @staticmethod
    def _explain_rest(workload: wire.Workload, written: Condition | None, stamp: status.Stamp) -> status.Patch | None:
        """Return the patch for a workload that may not be tried yet.

        The reason of its eviction stays, unless a block was written since.
        """
        if written is not None and not _is_for_a_block(written):
            return None
        until = requeueing.requeue_at(workload)
        when = f" before {status.Stamp(until).text}" if until is not None else ""
        evicted = model.condition_true(workload, names.CONDITION_EVICTED)
        message = f"The workload {'was evicted and is not queued again' if evicted else 'is not queued'}{when}"
        return status.wait(workload, reason=names.REASON_PENDING_EVALUATION, message=message, stamp=stamp)

    def _rests(self, workload: wire.Workload) -> bool:
        """Whether the workload waits for a time or for a decision of another client, not for its turn in the queue."""
        requeued = model.condition(workload.status.conditions, names.CONDITION_REQUEUED)
        kept_out = requeued is not None and requeued.status == "False"
        return kept_out or requeueing.waits_until(workload, self._clock.now()) is not None

    def seconds_to_reason(self, workload: wire.Workload) -> float:
        """Return the seconds until a workload without a try gets a reason; 0: there is no reason to write.

        Most workloads are tried at once, and then only the result of the try is written.
        """
        told = model.condition(workload.status.conditions, names.CONDITION_QUOTA_RESERVED) is not None
        created = workload.metadata.creation_timestamp
        if self._at_once or told or created is None or not model.is_queueable(workload):
            return 0.0
        waited = self._clock.now() - max(created, self._started)  # no process tried workloads before this start
        return self._tell_after - waited.total_seconds()


def _is_for_a_block(written: Condition) -> bool:
    """Whether the condition was written for a block, and not by a try."""
    return written.reason not in _QUEUED or written.message.startswith(REFUSED)


def _is_kept_from_preempting(workload: wire.Workload) -> bool:
    """Whether a try has found workloads to preempt, and preemption gates of the workload are closed."""
    blocked = model.condition_true(workload, names.CONDITION_BLOCKED_ON_PREEMPTION_GATES)
    return blocked and bool(model.closed_gates(workload))
