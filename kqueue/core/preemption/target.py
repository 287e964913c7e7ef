"""Values of preemption: preemptors, rules, targets and reasons."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from kqueue.core.quota import FlavorResource, Usage
from kqueue.core.value import value
from kqueue.core.workload import Admitted


class PreemptionReason(StrEnum):
    """Reasons for preempting a workload, as in conditions, events and metrics."""

    IN_CLUSTER_QUEUE = "InClusterQueue"
    """A workload of the same ClusterQueue has precedence."""
    IN_COHORT_RECLAMATION = "InCohortReclamation"
    """Its queue borrowed what the preemptor's queue, or a cohort around that, has a right to."""
    IN_COHORT_FAIR_SHARING = "InCohortFairSharing"
    """Its branch of the cohort has more than its fair share."""
    IN_COHORT_RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"
    """It borrows, and a workload of higher priority is to borrow in its place."""


class SharingStrategy(StrEnum):
    """When fair sharing lets a branch of the tree take from another."""

    LTE = "LessThanOrEqualToFinalShare"
    """Afterwards the preemptor's branch has at most the share of the other one."""
    LTI = "LessThanInitialShare"
    """Afterwards the preemptor's branch has a smaller share than the other one had before."""


@dataclass(frozen=True, slots=True)
class Target:
    """A workload to preempt, and the reason."""

    admitted: Admitted
    reason: PreemptionReason


class Seeker(Protocol):
    """A workload that room is sought for, as far as policies go."""

    @property
    def queue(self) -> str:
        """Its ClusterQueue."""

    @property
    def priority(self) -> int:
        """The higher one may preempt the lower one."""

    @property
    def timestamp(self) -> datetime:
        """Orders it among equals."""


@value(kw_only=True)
class Preemptor:
    """The workload that preempts.

    `usage`: its requests, without zeros.  `needs`: the columns in which quota must be released, and columns of
    workloads on hosts that must be freed.
    """

    uid: str
    key: str
    queue: str
    priority: int
    timestamp: datetime
    usage: Usage
    needs: frozenset[FlavorResource]

    def alone(self, column: FlavorResource, amount: int) -> Preemptor:
        """The same workload, were this column all it asks for: what choosing a flavor wants to know."""
        return Preemptor(
            uid=self.uid,
            key=self.key,
            queue=self.queue,
            priority=self.priority,
            timestamp=self.timestamp,
            usage={column: amount},
            needs=frozenset((column,)),
        )


@dataclass(frozen=True, slots=True)
class LocalQueueUsage:
    """The recent usage of LocalQueues, for ClusterQueues that order their workloads by it.

    Args:
        cluster_queues: names of these ClusterQueues.
        used: by namespace/name of a LocalQueue; one that is not listed has used nothing.
    """

    cluster_queues: frozenset[str]
    used: Mapping[str, float]

    def of(self, workload: Admitted) -> float | None:
        """Return the usage of the workload's LocalQueue; None: its ClusterQueue does not order workloads by usage."""
        return self.used.get(workload.local_queue, 0.0) if workload.queue in self.cluster_queues else None


_UNWRITTEN_FOR = timedelta(seconds=1)
"""When the time of a reservation is not known yet, look again so much later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How targets are chosen, the same for all workloads of a plan.  Plain data: a plan changes nothing here.

    Args:
        now: the time of the plan; stands for reservations that are not written yet.
        fair: strategies of fair sharing, one or two; None: by quota and priority alone.
        within_nominal: with fair sharing, a queue that stays within its nominal quota takes it back whatever the share.
        local_queue_usage: within a ClusterQueue, workloads of the LocalQueue that used most go first; None: usage does
            not count anywhere.
        minimum_runtime: by ClusterQueue, how long its workloads run at least before they may be preempted.
        spared: by UID of a preemptor, UIDs of workloads that must not be preempted for it.
    """

    now: datetime
    fair: tuple[SharingStrategy, ...] | None = None
    within_nominal: bool = True
    local_queue_usage: LocalQueueUsage | None = None
    minimum_runtime: Mapping[str, timedelta] = field(default_factory=dict)
    spared: Mapping[str, Collection[str]] = field(default_factory=dict)

    def is_spared(self, workload: Admitted, preemptor: Preemptor) -> bool:
        """Whether this workload must never be preempted for that one."""
        return bool(self.spared) and workload.uid in self.spared.get(preemptor.uid, ())

    def protected_until(self, workload: Admitted) -> datetime | None:
        """Until when a workload must be left to run; None: it may be preempted."""
        minimum = self.minimum_runtime.get(workload.queue)
        if minimum is None:
            return None
        if workload.reserved_at is None:
            return self.now + _UNWRITTEN_FOR
        if workload.admitted_at is None:
            return None
        until = workload.admitted_at + minimum
        return until if until > self.now else None
