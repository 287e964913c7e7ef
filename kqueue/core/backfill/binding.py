"""The rules by which a claim with a time binds other workloads.

A claim does not bind a workload that ends before the claim's time, one that is ahead of the claim's workload, and one
of a ClusterQueue to which the claim is open.  All others may use only what the claim leaves.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from kqueue.core.workload import Claim, Head


def ends_before(claim: Claim, head: Head, now: datetime) -> bool:
    """Whether a workload that starts now has ended at the claim's time."""
    seconds = head.ends_within(guesses=claim.guesses)
    return claim.at is not None and seconds is not None and now + timedelta(seconds=seconds) <= claim.at


def place_of(head: Head) -> tuple[int, datetime]:
    """Return the place of a workload in its line; a smaller one goes first."""
    return -head.priority, head.timestamp


def is_ahead(claim: Claim, head: Head) -> bool:
    """Whether a workload goes before the claim's workload: by a higher priority, or as the older one of two equals."""
    if claim.rank is None:
        return False
    priority, timestamp = claim.rank
    return place_of(head) < (-priority, timestamp)


def is_open(claim: Claim, head: Head, now: datetime) -> bool:
    """Whether the claim of a Reservation has begun for the ClusterQueue of a workload."""
    return head.queue in claim.open_to and claim.at is not None and claim.at <= now


def binds(claim: Claim, head: Head, now: datetime) -> bool:
    """Whether a claim with a time binds a workload that starts now."""
    return not (is_open(claim, head, now) or is_ahead(claim, head) or ends_before(claim, head, now))
