"""What a pending Workload is told of why it waits: what blocks it, what a try of an equal has said, where it stands."""

from __future__ import annotations

from cachetools import TTLCache

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.meta import Condition
from kqueue.clock import Clock
from kqueue.controllers.blockers import REFUSED, Blockers
from kqueue.controllers.lines import Lines
from kqueue.controllers.owed import UNTRIED, Owed
from kqueue.runtime.store import Store
from kqueue.runtime.turns import Turns
from kqueue.state import from_api, requeueing, status
from kqueue.state.cache import Cache
from kqueue.state.queues import Queues

_TRIED = (
    names.REASON_NO_MATCHING_FLAVOR,
    names.REASON_EXCEEDS_MAX_QUOTA,
    names.REASON_WAITING_FOR_QUOTA,
    names.REASON_TOPOLOGY_PLACEMENT_FAILED,
    names.REASON_WAITING_FOR_PREEMPTED_WORKLOADS,
    names.REASON_WAITING_FOR_PODS_READY,
)
"""What tries say of those that go on waiting in line."""
_QUEUED = (*_TRIED, names.REASON_PENDING_EVALUATION, names.REASON_PENDING, names.REASON_WAITING)
"""Reasons of those that nothing blocks; any other is taken back when nothing does, whoever wrote it."""
_MOST_TURNS, _LONGEST_TURN = 200_000, 3600.0
"""Workloads that wait for their first reason at most, and seconds after which such a wait is forgotten."""
_LOOK_AGAIN = 30.0
"""Seconds after which a Workload that waits for its turn is looked at, for the load may have ended."""
_TOLD_AGAIN = 300.0
"""Seconds until where it stands is written again; the next pause is twice as long, and so on."""


class Explainer:
    """Says of pending Workloads why they wait, and where they stand."""

    def __init__(
        self,
        *,
        workloads: Store[wire.Workload],
        blockers: Blockers,
        cache: Cache,
        queues: Queues,
        clock: Clock,
        tell_after: float = 10.0,
        at_once: bool = False,
        turns: Turns | None = None,
    ) -> None:
        """`tell_after`: a Workload that has waited so many seconds for its first try gets that as its reason.
        `at_once`: a Workload that waits gets a reason at the first look.  `turns` spreads the first reasons of many
        Workloads over time; None: they are written at once.
        """
        self._turns = turns or Turns(clock, lambda: float("inf"))
        self._turn_at: TTLCache[str, float] = TTLCache(_MOST_TURNS, _LONGEST_TURN, clock.monotonic)
        """When a Workload gets its first reason, where that was not written at once; in monotonic seconds."""
        self._blockers, self._cache, self._queues = blockers, cache, queues
        self._clock, self._tell_after, self._at_once = clock, tell_after, at_once
        self._started = clock.now()
        self.lines = Lines(queues, clock)
        """Where they stand."""
        self.owed = Owed(clock)
        """Whom to tell something."""
        workloads.subscribe(self.owed.observe)

    async def look(self, key: str, workload: wire.Workload) -> bool:
        """Find out what has to be said; whether it is time to say anew where the Workload stands."""
        again = self._until_told_again(key, workload)
        is_due = again is not None and again <= 0
        is_first = self._queues.bulk_verdict(key) is not None and self.owed.is_first(key)
        if is_first:
            self._take_turn(key)
        if is_due or (is_first and self.until_turn(key) <= 0):
            await self.lines.look(key)
        return is_due

    def _take_turn(self, key: str) -> None:
        at = self._turn_at.get(key)
        if at is None:
            wait = self._turns.take()
            if wait > 0:
                self._turn_at[key] = self._clock.monotonic() + wait
        elif at <= self._clock.monotonic():
            del self._turn_at[key]

    def until_turn(self, key: str) -> float:
        """Seconds until the first reason of a workload is written, where it waits for its turn; else 0.

        No workload waits for a turn when the load has ended.
        """
        at = self._turn_at.get(key)
        return 0.0 if at is None or self._turns.are_over else max(0.0, at - self._clock.monotonic())

    def until_look(self, key: str) -> float:
        """Seconds until a workload that waits for its turn is looked at again: the turn may come early; 0: it does not
        wait.
        """
        return min(self.until_turn(key), _LOOK_AGAIN)

    def explain(self, workload: wire.Workload, *, again: bool) -> status.Patch | None:
        """What blocks a pending Workload before any quota is looked at, taken back when it is gone; None: no news.

        `again`: it is time to say anew where it stands in its line.
        """
        if from_api.condition_true(workload, names.CONDITION_QUOTA_RESERVED):
            return None
        key = from_api.workload_key(workload)
        if self._cache.holding(key) is not None:
            return None  # being admitted right now
        written = from_api.condition(workload.status.conditions, names.CONDITION_QUOTA_RESERVED)
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
            place = self.lines.describe(key)
            told = verdict.message if place is None else status.with_place(verdict.message, place, stamp)
            return status.wait(workload, reason=verdict.reason, message=told, stamp=stamp, queued=place is None)
        reason = names.REASON_PENDING_EVALUATION
        if written is None and self._until_told(workload) <= 0 and self._queues.is_known(key):
            opening = "The workload has not been tried since it was created"
        elif written is not None and _is_blockers_word(written) and not _is_kept_from_preempting(workload):
            opening = "The workload is queued and has not been looked at since its last change"
        elif written is not None and again and self.lines.is_at_front(key):
            reason, opening = written.reason, status.without_place(written.message)
            if _was_tried(reason) and written.message.endswith(f" {self.lines.describe(key)}"):
                return None
        else:
            return None
        place = self.lines.describe(key)
        message = status.with_place(opening, place, stamp) if place is not None else opening
        return status.wait(workload, reason=reason, message=message, stamp=stamp)

    @staticmethod
    def _explain_rest(workload: wire.Workload, written: Condition | None, stamp: status.Stamp) -> status.Patch | None:
        """One that is not to be tried yet: what its eviction has said stands, unless something blocked it since."""
        if written is not None and not _is_blockers_word(written):
            return None
        until = requeueing.requeue_at(workload)
        when = f" before {status.Stamp(until).text}" if until is not None else ""
        evicted = from_api.condition_true(workload, names.CONDITION_EVICTED)
        message = f"The workload {'was evicted and is not queued again' if evicted else 'is not queued'}{when}"
        return status.wait(workload, reason=names.REASON_PENDING_EVALUATION, message=message, stamp=stamp)

    def _until_told_again(self, key: str, workload: wire.Workload) -> float | None:
        """Seconds until a workload that waits in line is told anew where it stands; None when it does not.

        The first time comes soon where it has not been told yet; then the pauses double.  A time that has come is taken
        to be used.
        """
        written = from_api.condition(workload.status.conditions, names.CONDITION_QUOTA_RESERVED)
        in_line = written is not None and written.status != "True" and _is_in_line(workload, written.reason)
        if written is None or not in_line or self._rests(workload):
            self.owed.forget_again(key)
            return None
        again = self.owed.again(key)
        if again is None:
            first = (self._tell_after, _TOLD_AGAIN / 2) if _has_no_place(written) else (_TOLD_AGAIN, _TOLD_AGAIN)
            again = self.owed.tell_again(key, *first)
        left = again.due - self._clock.monotonic()
        if left <= 0:
            self.owed.tell_again(key, 2 * again.pause, 2 * again.pause)
        return left

    def _rests(self, workload: wire.Workload) -> bool:
        """Whether it waits for a time or for somebody's word, and not for its turn."""
        requeued = from_api.condition(workload.status.conditions, names.CONDITION_REQUEUED)
        kept_out = requeued is not None and requeued.status == "False"
        return kept_out or requeueing.waits_until(workload, self._clock.now()) is not None

    def until_next_word(self, key: str, workload: wire.Workload, *, is_due: bool) -> float:
        """Seconds until something is to be said by and by; 0: only when something happens.

        Whoever was tried and knows its place hears of another one after a further try: where nothing happens nobody is
        tried, and nothing is written.  `is_due`: it was time to say something, and there was nothing to say.
        """
        again = self._until_told_again(key, workload)
        if again is None:
            return self._until_told(workload)
        written = from_api.condition(workload.status.conditions, names.CONDITION_QUOTA_RESERVED)
        assert written is not None
        if not _was_tried(written.reason):
            return again
        if not _has_no_place(written) or self._queues.home(key) is None:
            return 0.0
        if is_due and not self.lines.is_far_behind(key):  # it has just come to where it stands
            self.owed.tell_again(key, self._tell_after, _TOLD_AGAIN / 2)
            return self._tell_after
        return again

    def _until_told(self, workload: wire.Workload) -> float:
        """Seconds until a workload that no try has said anything of is told so; 0 when there is nothing to tell.

        Most are tried at once, and then what the try says is all that is written.
        """
        told = from_api.condition(workload.status.conditions, names.CONDITION_QUOTA_RESERVED) is not None
        created = workload.metadata.creation_timestamp
        if self._at_once or told or created is None or not from_api.is_queueable(workload):
            return 0.0
        waited = self._clock.now() - max(created, self._started)  # nobody tried while we were away
        return self._tell_after - waited.total_seconds()


def _is_blockers_word(written: Condition) -> bool:
    """Whether this was written of what blocks a workload, and not by a try."""
    return written.reason not in _QUEUED or written.message.startswith(REFUSED)


def _was_tried(reason: str) -> bool:
    """Whether the reason for which a workload waits in line is of a try."""
    return reason != names.REASON_PENDING_EVALUATION


def _has_no_place(written: Condition) -> bool:
    """Whether a try has said why a workload waits, and nobody where it stands."""
    return _was_tried(written.reason) and status.without_place(written.message) == written.message


def _is_in_line(workload: wire.Workload, reason: str) -> bool:
    """Whether a workload that waits for this reason waits for its turn."""
    return reason == names.REASON_PENDING_EVALUATION or reason in _TRIED or _is_kept_from_preempting(workload)


def _is_kept_from_preempting(workload: wire.Workload) -> bool:
    """Whether a try has said that there is whom to preempt, if only its gates were open, and they are not."""
    blocked = from_api.condition_true(workload, names.CONDITION_BLOCKED_ON_PREEMPTION_GATES)
    return blocked and bool(from_api.closed_gates(workload))
