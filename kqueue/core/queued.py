"""A waiting workload as the order of its ClusterQueue sees it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

EXTRAS_WAITING: Final = 16
"""Pods beyond the quorum of one group that wait in a queue at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedGang:
    """The group of pods that a waiting workload represents.

    `since` is the creation of the group, or the eviction that moved it back; `uid` the UID of its object or of its
    first pod; `extra`: the workload is a pod beyond the quorum, which stands behind the group.
    """

    key: str
    since: datetime
    uid: str
    extra: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """A waiting workload, as far as its place in a ClusterQueue goes.

    `timestamp` is its creation, or the eviction that moved it back; `first_try` is None before its first try.
    """

    key: str
    uid: str
    queue: str
    local_queue: str
    priority: int
    timestamp: datetime
    created: datetime
    first_try: datetime | None = None
    gang: QueuedGang | None = None
