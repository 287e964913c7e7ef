"""Answers of worker clusters: how well a workload would stand there now, and what is on its way there since.

An answer is the word of another writer.  It is read once, checked and clamped, and only ranks clusters: the worker's
own queue decides.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any

import msgspec

from kqueue.api.wire.placement import PlacementAnswer
from kqueue.printable import printable

_MOST = 1_000_000
"""The largest number that counts."""
_LONGEST_TEXT = 500
_LONGEST_NAME = 253
_NAMED = 5
"""Workloads to preempt that are named."""
_FARTHEST = timedelta(days=365)


class Start(IntEnum):
    """When a workload would start; a smaller one is better."""

    NOW = 0
    AFTER_PREEMPTION = 1
    UNKNOWN = 2
    """The cluster has not answered, or cannot be asked."""
    LATER = 3
    NEVER = 4
    """Not even when the cluster is empty."""


_STARTS = {
    "Now": Start.NOW,
    "AfterPreemption": Start.AFTER_PREEMPTION,
    "Later": Start.LATER,
    "Never": Start.NEVER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAnswer:
    """The answer of a cluster about a workload.

    Args:
        start: when it would start.
        message: why, for people.
        asked_at: the time of the question; None: it was not asked.
        level: the level at which domains are counted; empty: the workload asks for no topology.
        domains: domains that the workload would use, of which `fewest` are the least.
        left: pods of the workload that these domains could still hold; None: not known.
        room: how many such workloads fit now, one after the other.
        preempts: workloads that would be preempted, of which `preempted` names some.
        borrows: whether the queue would borrow quota.
        ahead: workloads that are tried before.
        at: the time from which on it may start; None: not known.
    """

    start: Start
    message: str = ""
    asked_at: datetime | None = None
    level: str = ""
    domains: int = 0
    fewest: int = 0
    left: int | None = None
    room: int = 0
    preempts: int = 0
    preempted: tuple[str, ...] = ()
    borrows: bool = False
    ahead: int = 0
    at: datetime | None = None

    def charged(self, on_their_way: int) -> ClusterAnswer:
        """Return the answer after so many such workloads were sent to the cluster since it was asked."""
        if on_their_way <= 0:
            return self
        ahead = min(_MOST, self.ahead + on_their_way)
        if self.start is not Start.NOW or on_their_way < self.room:
            return replace(self, ahead=ahead, room=max(0, self.room - on_their_way))
        message = f"{_counted(on_their_way)} on the way there, which may take the room"
        return replace(self, start=Start.LATER, message=message, ahead=ahead, room=0)


def _counted(workloads: int) -> str:
    return "1 other workload is" if workloads == 1 else f"{workloads} other workloads are"


def unknown(why: str, asked_at: datetime | None = None) -> ClusterAnswer:
    """Return the answer of a cluster that gave none."""
    return ClusterAnswer(start=Start.UNKNOWN, message=_text(why), asked_at=asked_at)


def read_answer(found: Any, asked_at: datetime) -> ClusterAnswer:
    """Return the answer in a JSON document of a worker; unknown if it cannot be read."""
    try:
        placement = msgspec.convert(found, PlacementAnswer)
    except (msgspec.ValidationError, RecursionError):
        return unknown("its answer cannot be read", asked_at)
    start = _STARTS.get(placement.start)
    if start is None:
        return unknown("its answer has a form that this version does not know", asked_at)
    fewest = _whole(placement.fewest_domains)
    return ClusterAnswer(
        start=start,
        message=_text(placement.message),
        asked_at=asked_at,
        level=_text(placement.level)[:_LONGEST_NAME],
        domains=max(fewest, _whole(placement.domains)),
        fewest=fewest,
        left=None if placement.pods_left is None else _whole(placement.pods_left),
        room=max(1, _whole(placement.room)) if start is Start.NOW else 0,
        preempts=max(1, _whole(placement.preempts)) if start is Start.AFTER_PREEMPTION else 0,
        preempted=tuple(
            f"{_name(one.namespace)}/{_name(one.name)}" for one in placement.preempted[:_NAMED] if one.name
        ),
        borrows=placement.borrows,
        ahead=_whole(placement.waiting_ahead),
        at=_time(placement.at, asked_at),
    )


def _whole(number: int) -> int:
    return min(max(number, 0), _MOST)


def _text(words: str) -> str:
    return printable(words[:_LONGEST_TEXT])


def _name(words: str) -> str:
    return printable(words[:_LONGEST_NAME])


def _time(at: datetime | None, asked_at: datetime) -> datetime | None:
    """Return a time that can be meant: one with a zone, after the question, and not beyond all plans."""
    if at is None or at.tzinfo is None or not asked_at <= at <= asked_at + _FARTHEST:
        return None
    return at


@dataclass(slots=True)
class _Sent:
    pods: int
    at: datetime
    settled: datetime | None = None
    was_found: bool = False
    """Whether `at` is the time at which this process read about it."""


class InFlight:
    """Workloads that were sent to clusters and that an answer of these clusters may not know yet.

    An entry ends when a question was asked after the cluster gave its copy quota, when the workload is sent elsewhere
    before, or after a while.  The ledger is advice: without it several gangs would be sent to the same free domain.  It
    follows from the nominated clusters of Workloads: a process that begins takes those for sent just now.
    """

    def __init__(self, lasts: timedelta) -> None:
        """`lasts`: the time after which an entry ends in any case."""
        self._lasts = lasts
        self._sent: dict[str, dict[str, _Sent]] = {}
        """By cluster and UID, the oldest first."""

    def sent(self, uid: str, clusters: Collection[str], pods: int, now: datetime) -> None:
        """Note the clusters to which a workload is sent now, in place of all others without quota for it."""
        for of_cluster in self._sent.values():
            self._expire(of_cluster, now)
        for cluster in clusters:
            of_cluster = self._sent.setdefault(cluster, {})
            if uid not in of_cluster:
                of_cluster[uid] = _Sent(max(1, pods), now)
        for cluster, of_cluster in self._sent.items():
            entry = of_cluster.get(uid)
            if cluster not in clusters and entry is not None and entry.settled is None:
                del of_cluster[uid]

    def settled(self, uid: str, cluster: str, now: datetime) -> None:
        """Note that a cluster has given the copy quota: questions from now on count it there."""
        entry = self._sent.get(cluster, {}).get(uid)
        if entry is not None and entry.settled is None:
            entry.settled = now

    def found(self, uid: str, clusters: Collection[str], pods: int, now: datetime) -> None:
        """Note the clusters to which a former process has sent a workload, at a time that is not known."""
        for cluster in clusters:
            entry = _Sent(max(1, pods), now, was_found=True)
            self._sent.setdefault(cluster, {}).setdefault(uid, entry)

    def last(self, uid: str, now: datetime) -> datetime | None:
        """Return when a workload was sent to a cluster last; None: not within the time of an entry, or not known."""
        entries = [found for of_cluster in self._sent.values() if (found := of_cluster.get(uid)) is not None]
        known = (entry.at for entry in entries if not entry.was_found)
        return max((at for at in known if at + self._lasts > now), default=None)

    def ahead(self, cluster: str, uid: str, pods: int, asked_at: datetime, now: datetime) -> int:
        """Return how many workloads of so many pods the entries of others make up that the answer does not know."""
        of_cluster = self._sent.get(cluster, {})
        self._expire(of_cluster, now)
        counted = [
            entry
            for other, entry in of_cluster.items()
            if other != uid and (entry.settled is None or entry.settled >= asked_at)
        ]
        return sum(-(-entry.pods // max(1, pods)) for entry in counted)

    def _expire(self, of_cluster: dict[str, _Sent], now: datetime) -> None:
        while of_cluster:
            uid, oldest = next(iter(of_cluster.items()))
            if oldest.at + self._lasts > now:
                return
            del of_cluster[uid]
