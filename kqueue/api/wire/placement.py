"""Question and answer of the view `placements`: how a workload that does not exist here would stand now."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from kqueue.api.wire.kueue import WorkloadSpec
from kqueue.api.wire.meta import Struct

KIND: Final = "Placement"
PLURAL: Final = "placements"
MOST_BYTES: Final = 512 * 1024
"""The largest question that is read: as large as the largest usual Workload."""


class PlacementMetadata(Struct, frozen=True, kw_only=True):
    """The metadata of a question: the namespace, and the annotations that planning reads."""

    namespace: str = ""
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class PlacementQuestion(Struct, frozen=True, kw_only=True):
    """A workload as its queue would see it."""

    metadata: PlacementMetadata = PlacementMetadata()
    spec: WorkloadSpec


class PreemptedWorkload(Struct, frozen=True, kw_only=True):
    """A workload that would be preempted; without a name where the caller may not read it."""

    namespace: str = ""
    name: str = ""
    priority: int = 0


class PlacementAnswer(Struct, frozen=True, kw_only=True):
    """The answer.  A field that is missing is not known.

    Args:
        start: `Now`, `AfterPreemption`, `Later` or `Never`.
        message: why, for people.
        level: the level at which the domains are counted; the widest one that the gang asks for.
        domains: domains that the gang would use; no placement could use less than `fewest_domains`.
        pods_left: how many more pods of the gang the domains that it would use could hold.
        room: how many of such gangs fit now, one after the other, counted up to a limit.
        preempts: how many workloads would be preempted; `preempted` are the first ones.
        borrows: whether the queue would borrow quota.
        waiting_ahead: workloads that the queue tries before it.
        at: the time from which on it may start.
    """

    start: str
    message: str = ""
    cluster_queue: str = ""
    level: str = ""
    domains: int = 0
    fewest_domains: int = 0
    pods_left: int | None = None
    room: int = 0
    preempts: int = 0
    preempted: tuple[PreemptedWorkload, ...] = ()
    borrows: bool = False
    waiting_ahead: int = 0
    at: datetime | None = None
