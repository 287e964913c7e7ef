"""The queues' entry for a waiting workload, and the reasons for which a cycle returns it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from kqueue.core.queued import QueuedGang
from kqueue.core.quota import FlavorResource


class RequeueReason(StrEnum):
    """The reasons for which a cycle requeues a workload; they decide whether it is tried again at once."""

    GENERIC = ""
    FAILED_AFTER_NOMINATION = "FailedAfterNomination"
    NAMESPACE_MISMATCH = "NamespaceMismatch"
    NO_FIT = "NoFit"
    PREEMPTION_NO_CANDIDATES = "PreemptionNoCandidates"
    PREEMPTION_GATED = "PreemptionGated"
    PENDING_PREEMPTION = "PendingPreemption"
    PREEMPTION_FAILED = "PreemptionFailed"


class RequestSummary(NamedTuple):
    """The requests of a workload in parsed form; equal for workloads with equal pods and counts.

    An object with the same `generation` and `ended` (pods of each pod set that have ended for good) has the same
    requests.
    """

    generation: int
    ended: tuple[tuple[str, int], ...]
    pods: str
    """Digest of the pod sets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """The queues' entry for one waiting workload.

    `key` is namespace/name; `shape` is equal for workloads whose tries have the same result; `version` changes with
    every change that matters for a try (then a parked workload is tried again); `not_before` is the time until which it
    stays parked (None: no back-off); `on_hold` parks it until an update clears it.
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
    created: datetime | None = None
    """None: as `timestamp`."""
    gang: QueuedGang | None = None
    """The group of pods that it represents; None: it represents none."""
    asked: RequestSummary | None = None
    """The parsed requests; None: each try parses the requests again."""

    def may_run(self, now: datetime) -> bool:
        """Whether the workload's back-off is over."""
        return not self.on_hold and (self.not_before is None or self.not_before <= now)


class LastTry(NamedTuple):
    """The result of the last try: reason and message of QuotaReserved=False.

    `lacks` has the missing quota by column; empty if no quota was missing.
    """

    reason: str
    message: str
    lacks: tuple[tuple[FlavorResource, int], ...] = ()


NO_VERDICT = LastTry("", "")
"""The result of a try that does not apply to equal workloads."""
