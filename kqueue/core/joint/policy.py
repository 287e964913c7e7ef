"""Policies of joint placement: what each place costs a workload, and how long it rather waits.

A policy is pure: it has no clock, no chance and no I/O.  It sees values and returns whole numbers, in points per unit;
`kqueue.core.joint.contract` checks that.  A new policy is one file with a class, and one line that registers it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import StrEnum
from typing import Protocol

import numpy as np

from kqueue.core.joint.policy_view import JudgedPods, WorldView
from kqueue.core.topology.tree import Ints
from kqueue.core.value import value

NEVER = int(np.iinfo(np.int64).max)
"""The cost of a domain that no pod of the workload may use."""


class Depth(StrEnum):
    """The lowest nodes that a policy looks at."""

    DOMAIN = "Domain"
    """Domains of the level that a workload requires or prefers."""
    HOST = "Host"
    """Domains of the lowest level."""


@value(kw_only=True)
class JudgedPlace:
    """Pods of one pod set on leaves of a topology.

    Args:
        leaves: the numbers of the leaves.
        counts: the pods on each of them.
    """

    pods: JudgedPods
    leaves: Ints
    counts: Ints


class PlacePolicy(Protocol):
    """Judges places.  `BasePolicy` has a default for each method."""

    depth: Depth
    in_search: bool
    """Whether it chooses domains in the search, too, and not in the relaxation alone."""
    by_value: bool
    """Whether rounds with it let value decide inside one priority, as with `order: Priority`."""
    looks_at_use: bool
    """Whether it looks at measured use; the controller measures only where a policy does."""

    def key(self, pods: JudgedPods) -> Hashable:
        """Return what the policy sees of the pods beyond their requests; pods with different keys are not merged."""
        ...

    def waiting(self, pods: JudgedPods) -> int | None:
        """Return the seconds of waiting that count for the workload; None: those that it has waited."""
        ...

    def domains(self, pods: JudgedPods, level: int, view: WorldView) -> Ints | None:
        """Return the cost of each domain of a level, 0 or more, or `NEVER`; None: all cost nothing."""
        ...

    def hosts(self, pods: JudgedPods, nth: int, view: WorldView) -> Ints | None:
        """Return the cost of the n-th further pod on each leaf, which never falls with n; None: all cost nothing."""
        ...

    def patience(self, pods: JudgedPods, view: WorldView) -> int | None:
        """Return the points beyond which the workload rather waits than uses a domain; None: it never waits."""
        ...

    def real_cost(self, place: JudgedPlace, view: WorldView) -> int:
        """Return the cost of pods on their leaves, in points; the view is without them."""
        ...


class BasePolicy:
    """A policy for which all places are equal."""

    depth = Depth.DOMAIN
    in_search = True
    by_value = False
    looks_at_use = False

    def key(self, pods: JudgedPods) -> Hashable:
        """See nothing beyond the requests."""
        return ()

    def waiting(self, pods: JudgedPods) -> int | None:
        """Count what the workload has waited."""
        return None

    def domains(self, pods: JudgedPods, level: int, view: WorldView) -> Ints | None:
        """Return the cost of the cheapest leaf of each domain; None: all are equal."""
        costs, starts = self.hosts(pods, 1, view) if self.depth is Depth.HOST else None, view.tree.first_leaf[level]
        return np.minimum.reduceat(costs, starts) if costs is not None and len(starts) else None

    def hosts(self, pods: JudgedPods, nth: int, view: WorldView) -> Ints | None:
        """Find all leaves equal."""
        return None

    def patience(self, pods: JudgedPods, view: WorldView) -> int | None:
        """Never wait."""
        return None

    def real_cost(self, place: JudgedPlace, view: WorldView) -> int:
        """Return the sum over all pods: of `hosts` for policies of depth HOST, of `domains` for others."""
        pods = place.pods
        if self.depth is Depth.HOST:
            return pods.units * _sum_of_hosts(self, place, view)
        level = pods.level if pods.level >= 0 else view.tree.lowest
        costs = self.domains(pods, level, view)
        if costs is None:
            return 0
        return pods.units * int((costs[view.tree.domain_of(level)[place.leaves]] * place.counts).sum())


def _sum_of_hosts(policy: BasePolicy, place: JudgedPlace, view: WorldView) -> int:
    total = 0
    for nth in range(1, int(place.counts.max(initial=0)) + 1):
        costs = policy.hosts(place.pods, nth, view)
        if costs is None:
            return 0
        total += int(costs[place.leaves[place.counts >= nth]].sum())
    return total


class PolicyFailedError(Exception):
    """A policy has failed; the round is planned again without it."""

    def __init__(self, policy: str, problem: str) -> None:
        super().__init__(f"{policy}: {problem}")
        self.policy, self.problem = policy, problem


def widest_difference(costs: Sequence[int], level: int) -> int:
    """Return the cost of a level, of a list with the widest level first; levels beyond it cost as its last one."""
    return costs[min(level, len(costs) - 1)] if costs else 0
