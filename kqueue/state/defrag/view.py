"""The state that decides about moves, of a controller or of objects that a command has read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.core.workload import Claim
from kqueue.state.cache import Cache


@dataclass(frozen=True, slots=True, kw_only=True)
class DefragState:
    """The state of the cluster, with the Workloads by namespace/name."""

    cache: Cache
    workloads: Mapping[str, wire.Workload]
    queue_of: Mapping[str, str]
    """ClusterQueue by LocalQueue (namespace/name)."""
    budgets: Sequence[wire_core.PodDisruptionBudget] = ()
    claims: Sequence[Claim] = ()
    """What is kept for preemptors and for moves under way."""
    now: datetime
    remarks: list[str] = field(default_factory=list)
    """Parts of objects that do not count, and why."""
