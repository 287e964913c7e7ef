"""The words of preemption: who preempts, by which rules, whom, and for what reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from kqueue.core.quota import FlavorResource, QuotaNode, Usage
from kqueue.core.value import value
from kqueue.core.workload import Admitted, Preempts


class PreemptionReason(StrEnum):
    """Why a workload has to go.  Written into conditions, events and metrics."""

    IN_CLUSTER_QUEUE = "InClusterQueue"
    """Another workload of its own queue comes first."""
    IN_COHORT_RECLAMATION = "InCohortReclamation"
    """Its queue borrowed what the preemptor's queue, or a cohort around that, has a right to."""
    IN_COHORT_FAIR_SHARING = "InCohortFairSharing"
    """Its branch of the cohort has more than its fair share."""
    IN_COHORT_RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"
    """It borrows, and a workload of higher priority is to borrow in its place."""


class Strategy(StrEnum):
    """When fair sharing lets a branch of the tree take from another."""

    LTE = "LessThanOrEqualToFinalShare"
    """Afterwards the preemptor's branch has at most the share of the other one."""
    LTI = "LessThanInitialShare"
    """Afterwards the preemptor's branch has a smaller share than the other one had before."""


@dataclass(frozen=True, slots=True)
class Target:
    """A workload that has to go, and why."""

    admitted: Admitted
    reason: PreemptionReason


@dataclass(frozen=True, slots=True)
class Candidates:
    """Those of a queue's workloads that a preemptor may make leave, first to go first."""

    of: Mapping[str, Admitted]
    rules: Rules
    workloads: Sequence[Admitted]


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
    """The workload that room is sought for.

    `usage` is all it asks for, without zeros; `needs` are the columns that somebody must give quota back in, or that
    hold the hosts that somebody must leave.
    """

    uid: str
    key: str
    queue: str
    priority: int
    timestamp: datetime
    usage: Usage
    needs: frozenset[FlavorResource]
    known: dict[tuple[str, Preempts], Candidates] = field(default_factory=dict, repr=False, compare=False)
    """What was found out about queues; belongs to `candidates.py`."""

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
            known=self.known,
        )


@value()
class Lowest:
    """The lowest priority among the workloads of a queue, and the newest timestamp among those that have it."""

    of: Mapping[str, Admitted]
    priority: int
    newest: datetime


def _nobody(_workload: Admitted, _preemptor: Preemptor) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How targets are chosen, the same for all workloads of a cycle.

    Args:
        now: the time of the cycle; stands for reservations that are not written yet.
        fair: strategies of fair sharing, one or two; None: by quota and priority alone.
        within_nominal: with fair sharing, a queue that stays within its nominal quota takes it back whatever the share.
        local_queue_usage: what counts as used by a workload's LocalQueue; within a ClusterQueue, workloads of the one
            that used most go first.  None as answer where the ClusterQueue does not go by it: the same for all its
            workloads.
        protected: workloads that must not be chosen for this preemptor (yet).  Those already evicted are not asked
            about, they go anyway.
        lowest: what is known of queues from earlier cycles: it counts while these hold the same.
    """

    now: datetime
    fair: tuple[Strategy, ...] | None = None
    within_nominal: bool = True
    local_queue_usage: Callable[[Admitted], float | None] | None = None
    protected: Callable[[Admitted, Preemptor], bool] = _nobody
    lowest: dict[str, Lowest] = field(default_factory=dict, repr=False, compare=False)
    """By queue; belongs to `candidates.py`."""
    over_quota: dict[tuple[QuotaNode, bool, frozenset[FlavorResource]], tuple[int, list[QuotaNode]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """What was found out about cohorts, and after how many changes of their trees; as above."""
