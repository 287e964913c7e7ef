"""Fair sharing over several cycles: a preemption waits for queues with a lower share whose victims are leaving.

A cycle takes one workload of each ClusterQueue, and a preemptor stays the head of its queue until its victims have
left.  So a queue whose victims leave quickly has its next workload tried while another queue, which comes first by its
share, still waits for its victims.  Before a preemption is decided, the workload behind each waiting preemptor is
therefore compared with the one to be decided, at the children of the lowest cohort around both queues.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kqueue.core.fair_share import dominant_share
from kqueue.core.quota import FlavorResource, QuotaNode, Usage, minus, plus, rising
from kqueue.core.workload import Claim, Head

NextHead = Callable[[str, Collection[str]], Head | None]
"""Returns the workload of a ClusterQueue that is tried next if these (namespace/name) are left out; None: there is
none.
"""


def no_next_head(_queue: str, _without: Collection[str]) -> None:
    """Return None: the workloads behind the heads are not known."""


@dataclass(slots=True)
class ShareOrder:
    """The queues whose preemptors wait, or were admitted in this cycle after they had waited."""

    nodes: Mapping[str, QuotaNode]
    next_head: NextHead
    _claimed: dict[str, Claim] = field(default_factory=dict, init=False)
    """The claims that were fulfilled in this cycle, by ClusterQueue."""
    _next: dict[tuple[str, str], Usage | None] = field(default_factory=dict, init=False)
    """The requests of the workload behind a preemptor, by ClusterQueue and preemptor."""

    def fulfilled(self, claim: Claim) -> None:
        """Record that the preemptor of the claim was admitted in this cycle."""
        self._claimed[claim.queue] = claim

    def concerns(self, claims: Iterable[Claim]) -> list[Claim]:
        """Return the claims to compare with: open claims, and claims fulfilled in this cycle."""
        return [*claims, *self._claimed.values()]

    def first_below(self, queue: str, claims: Iterable[Claim]) -> str | None:
        """Return the first ClusterQueue whose share, with its next workload, would be below the share of `queue`; None:
        none.

        The quota nodes must have the usage that they will have when all claims are fulfilled and the workload of
        `queue` is admitted.
        """
        own_side = {node.parent: node for node in self.nodes[queue].path_to_root()}
        for claim in claims:
            if claim.queue == queue or claim.queue not in self.nodes:
                continue
            sides = _compared(own_side, self.nodes[claim.queue])
            wanted = self._behind(claim) if sides is not None else None
            if sides is None or wanted is None:
                continue
            mine, theirs = sides
            added = rising(wanted, self.nodes[claim.queue], theirs)
            if dominant_share(theirs, added) < dominant_share(mine):
                return claim.queue
        return None

    def _behind(self, claim: Claim) -> Usage | None:
        """Return the quota requests of the workload behind a preemptor, in its flavors; None: no workload."""
        known = (claim.queue, claim.uid)
        if known not in self._next:
            head = self.next_head(claim.queue, (claim.key,))
            self._next[known] = _in_flavors_of(claim, head) if head is not None else None
        return self._next[known]


def _compared(own_side: Mapping[QuotaNode | None, QuotaNode], node: QuotaNode) -> tuple[QuotaNode, QuotaNode] | None:
    """Return the children of the lowest cohort around both queues, own side first; None: they are in different
    trees.
    """
    while node.parent is not None:
        if node.parent in own_side:
            return own_side[node.parent], node
        node = node.parent
    return None


def _in_flavors_of(claim: Claim, head: Head) -> Usage:
    asked: dict[str, int] = {}
    for pod_set in head.pod_sets:
        for resource, amount in pod_set.quota_requests.items():
            asked[resource] = plus(asked.get(resource, 0), amount * pod_set.request.count)
    columns = {column.resource: column for column in sorted(claim.usage, reverse=True)}
    return {column: asked[resource] for resource, column in columns.items() if resource in asked}


def differences(nodes: Iterable[QuotaNode], before: Mapping[QuotaNode, Usage]) -> Mapping[QuotaNode, Usage]:
    """Return the changes of usage of these nodes, in the columns that changed."""
    return {node: changed for node in nodes if (changed := dict(_changed(node.usage, before[node])))}


def _changed(now: Usage, before: Usage) -> Iterator[tuple[FlavorResource, int]]:
    for column in now.keys() | before.keys():
        if (amount := minus(now.get(column, 0), before.get(column, 0))) != 0:
            yield column, amount
