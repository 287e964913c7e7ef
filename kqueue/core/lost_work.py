"""The work that a running workload loses when it stops: since its last safe point, and for its restart.

All searches for workloads to stop or to move use the same price (`lost_seconds`).  Users can lower the price by their
annotations about checkpoints, and raise it by `RESTART_MAX` at most, because no workload loses more time than it has
run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import datetime, timedelta
from typing import Protocol

from kqueue.core.value import value

RESTART_SECONDS = 60
"""Seconds that a restart takes, where the workload does not say it."""
RESTART_MAX = 3_600
"""The most seconds of a restart that count."""
LOST_MAX = 2_592_000
"""The most seconds that count as lost: 30 days."""
_MOST_DIGITS = 18
"""More digits would not fit an int64."""
_SECOND, _NO_TIME = timedelta(seconds=1), timedelta(0)


def lost_seconds(
    running: int, *, checkpoint_age: int | None = None, interval: int | None = None, restart: int = RESTART_SECONDS
) -> int:
    """Return the seconds that each pod loses when its workload is moved or preempted.

    They are the time since the last safe point, which is the later of its start and its last checkpoint, and the time
    of a restart.  `interval`: seconds between checkpoints whose times are not known.
    """
    since = max(0, running)
    if checkpoint_age is not None:
        since = min(since, max(0, checkpoint_age))
    elif interval is not None:
        since = min(since, max(0, interval))
    return min(LOST_MAX, since + min(RESTART_MAX, max(0, restart)))


def parse_pod_seconds(text: str) -> int:
    """Parse a number of pod-seconds.

    Raises:
        ValueError: no whole number; the message quotes the text and says what to write.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise ValueError(f"{text[:60]!r} must be a whole number of pod-seconds such as 360000")
    return int(text)


@value(kw_only=True)
class Checkpoints:
    """Times from which the loss of a running workload follows.

    Args:
        age: seconds since its last checkpoint; None: none is known.
        interval: seconds between its checkpoints; None: unknown.
        restart: seconds that its restart takes.
    """

    age: int | None = None
    interval: int | None = None
    restart: int = RESTART_SECONDS

    def lost(self, running: int) -> int:
        """Return the seconds that each pod loses when the workload stops after so many seconds."""
        return lost_seconds(running, checkpoint_age=self.age, interval=self.interval, restart=self.restart)


NO_CHECKPOINTS = Checkpoints()


@value(kw_only=True)
class RunFacts:
    """Statements of the user of a running workload about its run, none of which depends on the present time.

    Args:
        minimum_runtime: the time for which it asks to be safe from preemption; None: it does not ask.
        last_checkpoint: the time of its last checkpoint; None: none is known.
        checkpoints: the interval and the time of a restart; `age` is not used.
    """

    minimum_runtime: timedelta | None = None
    last_checkpoint: datetime | None = None
    checkpoints: Checkpoints = field(default_factory=Checkpoints)

    def lost(self, since: datetime, now: datetime) -> int:
        """Return the seconds that each pod of a workload that runs `since` then loses when it stops now.

        A checkpoint in the future does not count.
        """
        told, last = self.checkpoints, self.last_checkpoint
        age = (now - last) // _SECOND if last is not None and last <= now else None
        return lost_seconds((now - since) // _SECOND, checkpoint_age=age, interval=told.interval, restart=told.restart)


NO_FACTS = RunFacts()
"""The facts of a workload whose user says nothing."""


class RunLimited(Protocol):
    """The limits of one ClusterQueue; None: it sets none."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def minimum_runtime(self) -> int:
        """Seconds for which all its workloads are safe from preemption."""

    @property
    def longest_runtime(self) -> int | None:
        """The most such seconds that a job may ask for."""

    @property
    def most_lost(self) -> int | None:
        """The pod-seconds of lost work above which its workloads are preempted last."""


@value(kw_only=True)
class RunLimits:
    """The limits that ClusterQueues set on the preemption of their workloads, by ClusterQueue.

    Args:
        minimum: the time for which all its workloads are safe from preemption.
        longest: the longest such time that a job may ask for.
        most_lost: the pod-seconds of lost work above which its workloads are preempted last.
    """

    minimum: Mapping[str, timedelta] = field(default_factory=dict)
    longest: Mapping[str, timedelta] = field(default_factory=dict)
    most_lost: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, queues: Iterable[RunLimited]) -> RunLimits:
        """Return the limits of these ClusterQueues."""
        listed = list(queues)
        return cls(
            minimum={q.name: timedelta(seconds=q.minimum_runtime) for q in listed if q.minimum_runtime},
            longest={q.name: timedelta(seconds=q.longest_runtime) for q in listed if q.longest_runtime is not None},
            most_lost={q.name: q.most_lost for q in listed if q.most_lost is not None},
        )

    def granted(self, queue: str, facts: RunFacts) -> timedelta:
        """Return the time for which a workload is safe from preemption.

        It is what the workload asks for, up to the longest time of its ClusterQueue, which is that of all its workloads
        unless it says another one.  A workload that asks for nothing gets the time of all.
        """
        own, asked = self.minimum.get(queue, _NO_TIME), facts.minimum_runtime
        return own if asked is None else min(asked, self.longest.get(queue, own))


NO_LIMITS = RunLimits()
"""The limits where no ClusterQueue sets any."""
