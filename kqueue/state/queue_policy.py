"""Rules of ClusterQueues for workloads that do not fit: one policy for each name in `spec.queueingStrategy`.

A new policy is one class, and one line that registers it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from kqueue.model.pending import RequeueReason


class QueuePolicy(Protocol):
    """The rules for a workload that a cycle did not admit."""

    @property
    def name(self) -> str:
        """The name in `spec.queueingStrategy`."""
        ...

    @property
    def skips_heads(self) -> bool:
        """Whether workloads behind a workload that does not fit are tried."""
        ...

    def is_immediate(self, reason: RequeueReason) -> bool:
        """Whether a workload that is requeued for this reason is tried again in the next cycle."""
        ...


class StrictFifo:
    """No workload is tried before the workload ahead of it."""

    name = "StrictFIFO"
    skips_heads = False

    def is_immediate(self, reason: RequeueReason) -> bool:
        """Whether the reason is any other than that the queue does not serve the namespace."""
        return reason is not RequeueReason.NAMESPACE_MISMATCH


class BestEffortFifo:
    """A workload that does not fit is parked until an event may help, and the next workload is tried."""

    name = "BestEffortFIFO"
    skips_heads = True

    def is_immediate(self, reason: RequeueReason) -> bool:
        """Whether the workload fitted, or will fit."""
        return reason in _IMMEDIATE


_IMMEDIATE = frozenset(
    {
        RequeueReason.FAILED_AFTER_NOMINATION,
        RequeueReason.PENDING_PREEMPTION,
        RequeueReason.PREEMPTION_FAILED,
    }
)
SHAPE_WIDE = frozenset({RequeueReason.NO_FIT, RequeueReason.PREEMPTION_NO_CANDIDATES})
"""Reasons that apply to all workloads of a shape."""

STRICT_FIFO: QueuePolicy = StrictFifo()
BEST_EFFORT_FIFO: QueuePolicy = BestEffortFifo()

_policies: dict[str, QueuePolicy] = {policy.name: policy for policy in (STRICT_FIFO, BEST_EFFORT_FIFO)}
POLICIES: Mapping[str, QueuePolicy] = MappingProxyType(_policies)
"""Policies by name."""


def register(policy: QueuePolicy) -> None:
    """Add a policy at the start of a process.  Raises ValueError when its name is taken or empty."""
    if not policy.name or policy.name in _policies:
        raise ValueError(f"queue policy {policy.name!r} cannot be added: the name is empty or taken")
    _policies[policy.name] = policy
