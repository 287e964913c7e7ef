"""Values of preemption: preemptors, rules, targets and reasons."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from kqueue.core.lost_work import NO_LIMITS, RunLimits
from kqueue.core.quota import FlavorResource, Usage
from kqueue.core.value import value
from kqueue.core.workload import Admitted, Head


class PreemptionReason(StrEnum):
    """Reasons for preempting a workload, as in conditions, events and metrics."""

    IN_CLUSTER_QUEUE = "InClusterQueue"
    """A workload of the same ClusterQueue has precedence."""
    IN_COHORT_RECLAMATION = "InCohortReclamation"
    """The queue of the workload borrowed quota to which the preemptor's queue, or a cohort around that queue, has a
    right.
    """
    IN_COHORT_FAIR_SHARING = "InCohortFairSharing"
    """The workload's branch of the cohort has more than its fair share."""
    IN_COHORT_RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"
    """The workload borrows, and a workload of higher priority will borrow in its place."""
    FLAVOR_MIGRATION = "FlavorMigration"
    """A variant of the same parent fits in a flavor that the queue prefers."""


class SharingStrategy(StrEnum):
    """The conditions on which fair sharing lets a branch of the tree preempt in another branch."""

    LTE = "LessThanOrEqualToFinalShare"
    """After the preemption, the preemptor's branch has at most the share of the other branch."""
    LTI = "LessThanInitialShare"
    """After the preemption, the preemptor's branch has a smaller share than the other branch had before."""


@dataclass(frozen=True, slots=True)
class Target:
    """A workload to preempt, and the reason."""

    admitted: Admitted
    reason: PreemptionReason


class Seeker(Protocol):
    """A workload that needs resources, with the facts that policies use."""

    @property
    def queue(self) -> str:
        """The ClusterQueue of the workload."""

    @property
    def priority(self) -> int:
        """The priority; a workload of higher priority may preempt one of lower priority."""

    @property
    def timestamp(self) -> datetime:
        """The time that orders workloads of equal priority."""


@value(kw_only=True)
class Preemptor:
    """The workload that preempts.

    `usage`: its requests, without zeros.  `needs`: the columns in which quota must be released, and columns of
    workloads on hosts that must be freed.  `only`: UIDs; besides workloads that leave already no other one is
    preempted; None: no such limit.
    """

    uid: str
    key: str
    queue: str
    priority: int
    timestamp: datetime
    usage: Usage
    needs: frozenset[FlavorResource]
    only: Collection[str] | None = None

    def alone(self, column: FlavorResource, amount: int) -> Preemptor:
        """Return the workload as if this column were its only request, for the choice of a flavor."""
        return Preemptor(
            uid=self.uid,
            key=self.key,
            queue=self.queue,
            priority=self.priority,
            timestamp=self.timestamp,
            usage={column: amount},
            needs=frozenset((column,)),
        )


def preemptor_of(
    head: Head, usage: Usage, needs: frozenset[FlavorResource], only: Collection[str] | None = None
) -> Preemptor:
    """Return a workload that waits as a preemptor."""
    return Preemptor(
        uid=head.uid,
        key=head.key,
        queue=head.queue,
        priority=head.priority,
        timestamp=head.timestamp,
        usage={column: amount for column, amount in usage.items() if amount},
        needs=needs,
        only=only,
    )


@dataclass(frozen=True, slots=True)
class LocalQueueUsage:
    """The recent usage of LocalQueues, for ClusterQueues that order their workloads by it.

    Args:
        cluster_queues: names of these ClusterQueues.
        used: by namespace/name of a LocalQueue; a LocalQueue that is not listed has no usage.
    """

    cluster_queues: frozenset[str]
    used: Mapping[str, float]

    def of(self, workload: Admitted) -> float | None:
        """Return the usage of the workload's LocalQueue; None: its ClusterQueue does not order workloads by usage."""
        return self.used.get(workload.local_queue, 0.0) if workload.queue in self.cluster_queues else None


_UNWRITTEN_FOR = timedelta(seconds=1)
"""The time until the next check when the time of a reservation is not known yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules for the choice of targets, the same for all workloads of a plan.  A plan does not change them.

    Args:
        now: the time of the plan; also the time of reservations that are not written yet.
        fair: strategies of fair sharing, one or two; None: by quota and priority alone.
        within_nominal: with fair sharing, a queue that stays within its nominal quota reclaims it whatever the shares
            are.
        local_queue_usage: within a ClusterQueue, workloads of the LocalQueue with the highest usage are preempted
            first; None: usage does not count.
        limits: what ClusterQueues say about the preemption of their workloads.
        spared: by UID of a preemptor, UIDs of workloads that must not be preempted for it.
        budgeted: UIDs of workloads with pods under a budget that allows no disruption: they are preempted last.
    """

    now: datetime
    fair: tuple[SharingStrategy, ...] | None = None
    within_nominal: bool = True
    local_queue_usage: LocalQueueUsage | None = None
    limits: RunLimits = NO_LIMITS
    spared: Mapping[str, Collection[str]] = field(default_factory=dict)
    budgeted: frozenset[str] = frozenset()

    def is_spared(self, workload: Admitted, preemptor: Preemptor) -> bool:
        """Whether the workload must never be preempted for this preemptor."""
        return bool(self.spared) and workload.uid in self.spared.get(preemptor.uid, ())

    @property
    def postpones(self) -> bool:
        """Whether any workload is preempted after all others."""
        return bool(self.budgeted or self.limits.most_lost)

    def is_last(self, workload: Admitted) -> bool:
        """Whether the workload is preempted after all others: for a budget over its pods, or for the work it loses."""
        if self.budgeted and workload.uid in self.budgeted:
            return True
        most = self.limits.most_lost.get(workload.queue)
        return most is not None and workload.lost(self.now) > most

    def protected_until(self, workload: Admitted) -> datetime | None:
        """Return the time until which a workload must not be preempted; None: it may be preempted."""
        minimum = self.limits.granted(workload.queue, workload.facts)
        if not minimum:
            return None
        if workload.reserved_at is None:
            return self.now + _UNWRITTEN_FOR
        if workload.admitted_at is None:
            return None
        until = workload.admitted_at + minimum
        return until if until > self.now else None
