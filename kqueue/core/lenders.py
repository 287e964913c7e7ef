"""Quota that a ClusterQueue's next workloads will request, withheld from borrowers of the same cycle.

A cycle tries one head of each ClusterQueue.  The free nominal quota of a queue could be lent to the heads of other
queues, although workloads of the queue wait behind its head: the next cycles would reclaim the quota, and evict the
workloads that were just admitted.  So while heads of a queue are being admitted, the quota that the workloads behind
them request is not lent.  A queue whose head is not admitted withholds nothing: workloads behind it may never be tried.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from kqueue.core.preemption import simulate
from kqueue.core.quota import FlavorResource, QuotaNode, Usage, has_room, minus
from kqueue.core.share_order import NextHead
from kqueue.core.workload import Head, Preempts, Snapshot

_MOST = 4
"""The number of workloads behind a head that are examined: a later cycle examines the next ones."""


@dataclass(slots=True)
class Lenders:
    """The ClusterQueues whose heads were admitted in this cycle within their nominal quota."""

    snapshot: Snapshot
    next_head: NextHead
    _admitted: dict[str, tuple[str, Usage]] = field(default_factory=dict, init=False)
    """The admitted head and its usage, by ClusterQueue."""
    _kept: dict[str, Usage] = field(default_factory=dict, init=False)
    """The requests of the workloads behind the head within nominal quota, by ClusterQueue; filled at the first use."""

    def admitted(self, head: Head, usage: Usage) -> None:
        """Record that the head of a ClusterQueue was admitted without borrowing."""
        if self.snapshot.queues[head.queue].reclaims is Preempts.ANY:
            self._admitted[head.queue] = head.key, usage

    def leave(self, queue: str, usage: Usage) -> bool:
        """Whether a borrowing workload of this ClusterQueue fits beside the requests of the other queues' next
        workloads.
        """
        if not self._admitted:
            return True
        kept = dict(self._beside(queue, usage))
        if not kept:
            return True
        with simulate(self.snapshot, with_domains=False) as simulation:
            for lender, amounts in kept.items():
                simulation.charge(lender, amounts)
            return has_room(self.snapshot.nodes[queue], usage)

    def _beside(self, queue: str, columns: Collection[FlavorResource]) -> Iterator[tuple[str, Usage]]:
        root = _root(self.snapshot.nodes[queue])
        for lender in self._admitted:
            if lender == queue or _root(self.snapshot.nodes[lender]) is not root:
                continue
            kept = self._kept.get(lender)
            if kept is None:
                kept = self._kept[lender] = self._next_of(lender)
            asked = {column: amount for column, amount in kept.items() if column in columns}
            if asked:
                yield lender, asked

    def _next_of(self, lender: str) -> Usage:
        """Return the requests of the next workloads in the head's flavors, up to nominal quota."""
        key, usage = self._admitted[lender]
        node = self.snapshot.nodes[lender]
        left = {c: max(0, minus(node.quota(c).nominal, node.usage.get(c, 0))) for c in usage}
        asked = dict.fromkeys(left, 0)
        seen = [key]
        while len(seen) <= _MOST and any(asked[c] < left[c] for c in left):
            head = self.next_head(lender, seen)
            if head is None:
                break
            seen.append(head.key)
            for column in asked:
                asked[column] += _amount(head, column.resource)
        return {column: min(amount, left[column]) for column, amount in asked.items() if min(amount, left[column]) > 0}


def _amount(head: Head, resource: str) -> int:
    return sum(p.request.requests.get(resource, 0) * p.request.count for p in head.pod_sets)


def _root(node: QuotaNode) -> QuotaNode:
    *_, root = node.path_to_root()
    return root
