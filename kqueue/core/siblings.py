"""Variants of one parent: one is admitted at a time, and a more preferred one takes the place of the others."""

from __future__ import annotations

from kqueue.core.decision import Outcome, Wait
from kqueue.core.explain import Blocker, BlockerKind, WaitReason
from kqueue.core.preemption import PreemptionReason, Target
from kqueue.core.workload import Head, Sibling, Snapshot


def behind_sibling(head: Head) -> Wait | None:
    """Return the decision for a variant that is not tried, because a sibling in a more preferred flavor is admitted, or
    any sibling is being admitted; None: it is tried.
    """
    sibling = head.variant.sibling if head.variant is not None else None
    if sibling is None or not (sibling.is_preferred or sibling.is_assumed):
        return None
    return _behind(head, sibling)


def sibling_to_leave(head: Head, snapshot: Snapshot) -> Target | Wait | None:
    """Return the sibling that must leave before a variant that fits is admitted: the parent moves to its flavor.

    The decision to wait: the parent does not move.  None: no sibling is admitted.
    """
    sibling = head.variant.sibling if head.variant is not None else None
    if sibling is None:
        return None
    held = snapshot.admitted.get(head.queue, {}).get(sibling.key)
    if held is None or not sibling.may_leave:
        return _behind(head, sibling)
    return Target(held, PreemptionReason.FLAVOR_MIGRATION)


def _behind(head: Head, sibling: Sibling) -> Wait:
    """Return the decision to wait; while the sibling's admission is being written, the variant is tried again soon."""
    outcome = Outcome.SKIPPED if sibling.is_assumed else Outcome.SIBLING
    what = "the variant" if sibling.may_leave or sibling.is_preferred else "another variant, which is kept,"
    blocker = Blocker(kind=BlockerKind.SIBLING, queue=head.queue, flavor=sibling.flavor, detail=what)
    return Wait(head=head, outcome=outcome, reason=WaitReason.PENDING_EVALUATION, blockers=(blocker,))
