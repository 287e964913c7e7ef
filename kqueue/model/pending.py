"""One waiting workload as the queues know it, and the reasons for which it comes back from a cycle."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from kqueue.core.quota import FlavorResource


class RequeueReason(StrEnum):
    """Why a workload comes back from a cycle; decides whether it is tried again at once."""

    GENERIC = ""
    FAILED_AFTER_NOMINATION = "FailedAfterNomination"
    NAMESPACE_MISMATCH = "NamespaceMismatch"
    NO_FIT = "NoFit"
    PREEMPTION_NO_CANDIDATES = "PreemptionNoCandidates"
    PREEMPTION_GATED = "PreemptionGated"
    PENDING_PREEMPTION = "PendingPreemption"
    PREEMPTION_FAILED = "PreemptionFailed"


class RequestSummary(NamedTuple):
    """What a workload asks for, so far that it need not be read again: equal where pods and counts are equal.

    `generation` and `ended` (pods of each pod set that have ended for good) tell an object that asks for the same.
    """

    generation: int
    ended: tuple[tuple[str, int], ...]
    pods: str
    """Digest of its pod sets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """What the queues know of one waiting workload.

    `key` is namespace/name; `shape` is equal for workloads that cannot differ in the outcome of a try;
    `version` changes whenever something relevant for a try changed (a parked workload is tried again then);
    `not_before` keeps it parked until then (None: no back-off); `on_hold` parks it until an update clears it.
    """

    key: str
    uid: str
    local_queue: str
    priority: int
    timestamp: datetime
    shape: str
    version: str
    not_before: datetime | None = None
    on_hold: bool = False
    asked: RequestSummary | None = None
    """None: what it asks for is read anew at each try."""

    def may_run(self, now: datetime) -> bool:
        """Whether its back-off is over."""
        return not self.on_hold and (self.not_before is None or self.not_before <= now)


class LastTry(NamedTuple):
    """What a try has said: the reason and the message of QuotaReserved=False.

    `lacks` has each amount of quota that a flavor did not have free, by column; empty where no quota was missing.
    """

    reason: str
    message: str
    lacks: tuple[tuple[FlavorResource, int], ...] = ()


NO_VERDICT = LastTry("", "")
"""The try has no result that equal workloads could share."""
