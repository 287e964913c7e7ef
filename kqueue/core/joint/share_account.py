"""The shares of ClusterQueues while workloads are counted one after another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from kqueue.core.joint.batch import RankedWorkload
from kqueue.core.joint.costs import STEPS
from kqueue.core.joint.fair_shares import FairShares
from kqueue.core.joint.round_policies import RoundPolicies
from kqueue.core.joint.units import Unit
from kqueue.core.topology.request import PodSetRequest

_STEP, _MOST_WAITING = 1000, 999
"""A step of a share is worth more than all waiting."""

Requests = Mapping[str, Sequence[PodSetRequest]]
"""Pod sets by flavor."""


class ShareAccount:
    """Counts the units of ClusterQueues, from those that are used before the round."""

    def __init__(self, policies: RoundPolicies | None, unit_of: Mapping[str, Unit]) -> None:
        """Take the policies of the round; flavors whose policies count no shares are not counted."""
        self._unit_of = unit_of
        found = {flavor: policies.shares(flavor) for flavor in sorted(policies.queues)} if policies is not None else {}
        self._shares: dict[str, FairShares] = {flavor: one for flavor, one in found.items() if one is not None}
        self._taken: dict[tuple[str, str], int] = defaultdict(int)

    def take(self, one: RankedWorkload, requests: Requests) -> int | None:
        """Count a workload; return its value in its rank, None: shares do not count in its flavors."""
        queue, total, counts = one.head.queue, 0, False
        for flavor, pod_sets in requests.items():
            shares = self._shares.get(flavor)
            if shares is None:
                continue
            counts, size = True, self._unit_of[flavor].of(pod_sets)
            before = shares.used.get(queue, 0) + self._taken[flavor, queue]
            waiting = min(_MOST_WAITING, one.waited)
            total += _STEP * shares.worth(queue, before, size) + size * waiting
            self._taken[flavor, queue] += size
        return max(1, total) if counts else None

    def share(self, queue: str, requests: Requests) -> int:
        """Return the largest step that the first unit of a workload would have; 0: shares do not count for it."""
        steps = [
            shares.step(queue, shares.used.get(queue, 0) + self._taken[flavor, queue] + 1)
            for flavor in requests
            if (shares := self._shares.get(flavor)) is not None
        ]
        return min(STEPS, max(steps, default=0))


def by_share(
    order: Sequence[RankedWorkload], requests: Mapping[str, Requests], account: ShareAccount
) -> list[RankedWorkload]:
    """Return the workloads of each rank in turn over their ClusterQueues: the one with the least share goes first.

    The workloads of a ClusterQueue keep their order; of equal shares, the workload that was first goes first.
    """
    lines: dict[int, dict[str, list[RankedWorkload]]] = defaultdict(lambda: defaultdict(list))
    places = {one.head.uid: place for place, one in enumerate(order)}
    for one in order:
        lines[one.rank][one.head.queue].append(one)
    found: list[RankedWorkload] = []
    for rank in sorted(lines):
        waiting = {queue: some[::-1] for queue, some in lines[rank].items()}
        while waiting:
            firsts = [some[-1] for some in waiting.values()]
            best = min(
                firsts,
                key=lambda one: (account.share(one.head.queue, requests[one.head.uid]), places[one.head.uid]),
            )
            account.take(best, requests[best.head.uid])
            found.append(waiting[best.head.queue].pop())
            if not waiting[best.head.queue]:
                del waiting[best.head.queue]
    return found
