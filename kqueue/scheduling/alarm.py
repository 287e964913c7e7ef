"""The alarm that wakes the loop at a time, for ClusterQueues that must be tried again without an event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

import structlog

from kqueue.clock import Clock
from kqueue.isolation import isolated_logged
from kqueue.state.queues import Queues
from kqueue.state.wake_up import QueueLookup, WakeUp, WakeUpSource

_log = structlog.get_logger(__name__)

_UNSOUND_FOR = timedelta(seconds=10)
"""Pause of a ClusterQueue's workloads after a snapshot of it could not be made."""


class Alarm:
    """Wakes the loop at the earliest of its times; one task waits for it."""

    def __init__(self, queues: Queues, *, lookup: QueueLookup, clock: Clock, wake: Callable[[], None]) -> None:
        self._queues, self._lookup, self._clock, self._wake = queues, lookup, clock, wake
        self._task: asyncio.Task[None] | None = None
        self._at = clock.now()
        self._held_up: set[str] = set()
        """ClusterQueues with workloads that wait until a protected workload may be preempted."""
        self._rings: set[datetime] = set()
        """Times at which a ClusterQueue may try all its workloads again."""
        self._paused: dict[str, datetime] = {}
        """By ClusterQueue with workloads whose admission could not be written: the time of the next attempt."""
        self._starts: dict[str, datetime] = {}
        """By line of workloads: the time of its planned start, from which its ClusterQueue tries all its workloads."""
        self._start_queues: dict[str, str] = {}
        self._resting: dict[str, datetime] = {}
        """By ClusterQueue of which no snapshot could be made: the time until which none of its workloads is tried."""

    def hold_up(self, queue: str, until: datetime) -> None:
        """Wake the loop at `until`, when a workload of this ClusterQueue may preempt a protected workload."""
        self._held_up.add(queue)
        self.look_again(until)

    def pause(self, queue: str, until: datetime) -> None:
        """Wake the loop at `until`, when a parked workload of this ClusterQueue is due."""
        self._paused[queue] = max(until, self._paused.get(queue, until))
        self.look_again(until)

    def ring_at(self, at: datetime) -> None:
        """Wake the loop at this time, without a look at parked workloads."""
        self._rings.add(at)
        self.look_again(at)

    def start_at(self, line: str, queue: str, at: datetime) -> None:
        """Wake the loop at the planned start of a line, which is that of a workload of this ClusterQueue."""
        self._starts[line], self._start_queues[line] = at, queue
        self.look_again(at)

    def rest(self, queue: str) -> None:
        """Try no workload of this ClusterQueue for ten seconds."""
        until = self._resting[queue] = self._clock.now() + _UNSOUND_FOR
        self.pause(queue, until)

    def rests(self, queue: str) -> bool:
        """Whether no workload of a ClusterQueue is tried."""
        return bool(self._resting) and self._resting.get(queue, self._clock.now()) > self._clock.now()

    def look_again(self, at: datetime) -> None:
        """Wake the loop at this time, or at the time that was set before, whichever is earlier."""
        if self._task is not None and not self._task.done():
            if self._at <= at:
                return
            self._task.cancel()
        self._at, self._task = at, asyncio.create_task(self._ring(at))

    def resume(self) -> None:
        """Start the task that `stop` ended again, for the ClusterQueues that still wait."""
        waiting = [self._clock.now()] if self._held_up else []
        times = [*self._paused.values(), *self._starts.values(), *self._rings, *waiting]
        if times:
            self.look_again(min(times))

    async def stop(self) -> None:
        """End the task; the times are kept for `resume`."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _ring(self, at: datetime) -> None:
        await self._clock.sleep(max(0.0, (at - self._clock.now()).total_seconds()))
        with isolated_logged(_log, "workloads that were set aside for a while could not be brought back"):
            self._wake_queues()
        self._wake()

    def _wake_queues(self) -> None:
        now, queues = self._clock.now(), self._held_up
        queues |= {queue for queue, until in self._paused.items() if until <= now}
        queues |= {self._start_queues.pop(line) for line, at in self._starts.items() if at <= now}
        self._held_up = set()
        self._starts = {line: at for line, at in self._starts.items() if at > now}
        self._paused = {queue: until for queue, until in self._paused.items() if until > now}
        self._resting = {queue: until for queue, until in self._resting.items() if until > now}
        wake_up = WakeUp(source=WakeUpSource.PAUSE, cluster_queues=frozenset(queues))
        self._queues.flush(self._queues.helped_by(wake_up, self._lookup))
        self._rings = {at for at in self._rings if at > now}
        times = [*self._paused.values(), *self._starts.values(), *self._rings]
        if times:
            self._task = None
            self.look_again(min(times))
