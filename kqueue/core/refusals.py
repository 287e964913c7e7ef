"""Decisions for workloads that are not tried: their queue is not active, or they have a mistake."""

from __future__ import annotations

from kqueue.core.decision import Outcome, Wait
from kqueue.core.explain import Blocker, BlockerKind, WaitReason
from kqueue.core.workload import Head, Snapshot


def queue_refusal(head: Head, snapshot: Snapshot) -> Wait:
    """Return the decision for a workload whose ClusterQueue does not exist, or admits nothing."""
    why = snapshot.inactive.get(head.queue)
    if why is None:
        blocker = Blocker(kind=BlockerKind.QUEUE, detail=f"ClusterQueue {head.queue} does not exist; create it")
        return Wait(head=head, outcome=Outcome.REFUSED, reason=WaitReason.MISCONFIGURED, blockers=(blocker,))
    blocker = Blocker(kind=BlockerKind.QUEUE, detail=f"ClusterQueue {head.queue} is not active: {why}")
    return Wait(head=head, outcome=Outcome.REFUSED, reason=WaitReason.SUSPENDED, blockers=(blocker,))


def mistaken(head: Head, problem: str) -> Wait:
    """Return the decision for a workload with a mistake of its user."""
    blocker = Blocker(kind=BlockerKind.REQUESTS, detail=problem)
    return Wait(head=head, outcome=Outcome.NO_FIT, reason=WaitReason.MISCONFIGURED, blockers=(blocker,))
