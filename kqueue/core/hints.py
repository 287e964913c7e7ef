"""Hints of a joint plan: the one value that a cycle knows of joint placement.

A hint is checked like the answer of a placer.  One that does not hold any more has no effect: its workload is nominated
like all others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta

from kqueue.core.flavors import Pins
from kqueue.core.preemption import Target
from kqueue.core.topology.arranged import Hint
from kqueue.core.value import value


@value(kw_only=True)
class WaitForPlace:
    """A workload waits for a better place than those that are free.

    `seconds`: after so many seconds further places are good enough; None: no other place ever is.
    """

    seconds: int | None

    def until(self, now: datetime) -> datetime | None:
        """Return the time from which further places are good enough; None: there is none."""
        return now + timedelta(seconds=self.seconds) if self.seconds is not None else None


@value(kw_only=True)
class ProposedVictims:
    """Running workloads that a plan proposes to preempt for a workload.

    Args:
        uids: their UIDs.
        lost: by UID of running workloads, these and others, the points of work that are lost when one leaves.
    """

    uids: tuple[str, ...]
    lost: Mapping[str, int]

    def lost_with(self, targets: Iterable[Target]) -> int | None:
        """Return the points that are lost when these workloads leave; None: unknown.

        Workloads that leave already lose nothing more.
        """
        points = [self.lost.get(target.admitted.uid) for target in targets if not target.admitted.evicted]
        known = [one for one in points if one is not None]
        return sum(known) if len(known) == len(points) else None


def cheaper_targets(
    proposed: ProposedVictims, find: Callable[[Collection[str] | None], tuple[Target, ...]]
) -> tuple[tuple[Target, ...], bool]:
    """Return the targets with which less work is lost, and whether they are the proposed ones.

    `find` searches among these workloads alone, None: among all; empty: no such targets suffice.  The proposed ones
    must suffice, and lose less than those of the search among all: no workload is preempted that the policies protect,
    and none for a workload that would find no targets without the plan.
    """
    usual = find(None)
    most = proposed.lost_with(usual) if usual else None
    if not most:
        return usual, False
    others = find(frozenset(proposed.uids))
    lost = proposed.lost_with(others) if others else None
    return (others, True) if lost is not None and lost < most else (usual, False)


@value(kw_only=True)
class PlanHint:
    """The flavors and the domains that a plan proposes for a workload.

    Args:
        flavors: by pod set and resource.
        places: the domains of its pods.
        plan: the name of the plan, for messages; not empty.
        wait: the workload waits for a better place; None: it is placed, or left out.
        victims: the plan leaves the workload out, and proposes to preempt these; None: it does not.
    """

    flavors: Pins
    places: Hint
    plan: str
    wait: WaitForPlace | None = None
    victims: ProposedVictims | None = None

    @property
    def has_place(self) -> bool:
        """Whether the plan admits the workload."""
        return self.wait is None and self.victims is None


Hints = Mapping[str, PlanHint]
"""By the UID of the workload."""
NO_HINTS: Hints = {}


def wait_of(hints: Hints, uid: str) -> WaitForPlace | None:
    """Return what a workload waits for by a plan; None: it does not wait."""
    hint = hints.get(uid)
    return hint.wait if hint is not None else None
