"""The state that decides about moves, of a controller or of objects that a command has read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, TypeVar

from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.core.workload import Claim
from kqueue.state.cache import Cache

V_co = TypeVar("V_co", covariant=True)


class Lookup(Protocol[V_co]):
    """Finds values by namespace/name."""

    def get(self, key: str, /) -> V_co | None:
        """Return the value, or None."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DefragState:
    """The state of the cluster."""

    cache: Cache
    workloads: Lookup[wire.Workload]
    queue_of: Lookup[str]
    """The ClusterQueues of LocalQueues."""
    budgets: Sequence[wire_core.PodDisruptionBudget] = ()
    claims: Sequence[Claim] = ()
    """The resources that are kept for preemptors and for moves under way."""
    now: datetime
    remarks: list[str] = field(default_factory=list)
    """Parts of objects that do not count, and why."""
