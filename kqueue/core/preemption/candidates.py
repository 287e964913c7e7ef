"""Workloads that a queue's policy lets a workload preempt, and their order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from heapq import merge

from kqueue.core.preemption.findings import Candidates, Findings, Lowest
from kqueue.core.preemption.fit import nobody
from kqueue.core.preemption.target import LocalQueueUsage, Preemptor, Seeker
from kqueue.core.quota import FlavorResource, QuotaNode
from kqueue.core.workload import Admitted, Preempts, Snapshot


class Loss:
    """The work that a preemption of one workload loses; it is computed only if it is compared, because few workloads
    are equal in everything before.
    """

    __slots__ = ("_now", "_workload")

    def __init__(self, workload: Admitted, now: datetime) -> None:
        self._workload, self._now = workload, now

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Loss) and self._lost() == other._lost()

    def __lt__(self, other: Loss) -> bool:
        return self._lost() < other._lost()

    def __hash__(self) -> int:
        return hash(self._lost())

    def _lost(self) -> int:
        return self._workload.lost(self._now)


Order = tuple[bool, bool, bool, int, timedelta, Loss, str]

_NEVER, _ANY = Preempts.NEVER, Preempts.ANY
"""Constants, because an attribute lookup in an enum takes 0.1 us, and every waiting head makes it."""


def within_quota(node: QuotaNode, columns: Iterable[FlavorResource]) -> bool:
    """Whether the node and all nodes below it use no more than the node's subtree quota in each of these columns."""
    usage, subtree = node.usage, node.subtree
    return all(usage.get(column, 0) <= subtree.get(column, 0) for column in columns)


def over_quota(
    cohort: QuotaNode, columns: frozenset[FlavorResource], findings: Findings, *, queues: bool = False
) -> list[QuotaNode]:
    """Return the children of a cohort that are not within their quota, in order; with `queues` all ClusterQueues below.

    The result is cached: every head of every queue of a cohort needs it, and usage rarely changes in between.
    """
    key = (cohort, queues, columns)
    known = findings.over_quota.get(key)
    if known is None or known[0] != cohort.changes[0]:
        nodes = (node for node in cohort.walk() if not node.is_cohort) if queues else cohort.children
        known = findings.over_quota[key] = (cohort.changes[0], _over_quota(nodes, columns))
    return known[1]


def _over_quota(nodes: Iterable[QuotaNode], columns: frozenset[FlavorResource]) -> list[QuotaNode]:
    if len(columns) == 1:  # the hot case: the choice of a flavor checks one column in each queue of the cohort
        (column,) = columns
        return [node for node in nodes if node.usage.get(column, 0) > node.subtree.get(column, 0)]
    return [node for node in nodes if not within_quota(node, columns)]


def candidates(
    snapshot: Snapshot, queue: str, policy: Preempts, preemptor: Preemptor, findings: Findings
) -> list[Admitted]:
    """Return the workloads of one queue that use a needed column and may be preempted by the policy, in order of
    preemption.
    """
    if all_are_above(snapshot, queue, policy, preemptor, findings):
        return []
    admitted = snapshot.admitted[queue]
    kept = findings.candidates_of(preemptor)
    known = kept.get((queue, policy))  # independent of the columns that the preemptor needs
    if known is None or known.of is not admitted:
        giving = [
            workload
            for workload in admitted.values()
            if _yields(workload, policy, preemptor)
            and (workload.evicted or not findings.is_protected(workload, preemptor))
        ]
        known = kept[queue, policy] = Candidates(admitted, in_order(giving, preemptor, findings))
    needs, only = preemptor.needs, preemptor.only
    found = [workload for workload in known.workloads if not needs.isdisjoint(workload.usage)]
    return found if only is None else [workload for workload in found if workload.uid in only or workload.evicted]


def _yields(workload: Admitted, policy: Preempts, preemptor: Preemptor) -> bool:
    if policy is Preempts.ANY or workload.priority < preemptor.priority:
        return True
    is_newer_equal = workload.priority == preemptor.priority and preemptor.timestamp < workload.timestamp
    return policy is Preempts.LOWER_OR_NEWER_EQUAL and is_newer_equal


def all_are_above(snapshot: Snapshot, queue: str, policy: Preempts, seeker: Seeker, findings: Findings) -> bool:
    """Whether no workload of a queue may be preempted, found without a check of each workload."""
    if policy is _NEVER:
        return True
    admitted = snapshot.admitted.get(queue)
    if not admitted:
        return True
    if policy is _ANY:
        return False
    lowest = _lowest(admitted, queue, findings)
    if lowest.priority != seeker.priority:
        return lowest.priority > seeker.priority
    return policy is Preempts.LOWER_PRIORITY or lowest.newest <= seeker.timestamp


def lesser(
    snapshot: Snapshot, queue: str, priority: int, columns: Collection[FlavorResource], findings: Findings
) -> list[Admitted]:
    """Return the workloads of one queue that use any of these columns and have a lower priority than this."""
    admitted = snapshot.admitted.get(queue)
    if not admitted or _lowest(admitted, queue, findings).priority >= priority:
        return []
    return [w for w in admitted.values() if w.priority < priority and any(c in w.usage for c in columns)]


def _lowest(admitted: Mapping[str, Admitted], queue: str, findings: Findings) -> Lowest:
    """Return the lowest priority in a queue that has workloads, cached for all heads of a cycle."""
    known = findings.lowest.get(queue)
    if known is not None and known.of is admitted:
        return known
    workloads = iter(admitted.values())
    first = next(workloads)
    priority, newest = first.priority, first.timestamp
    for workload in workloads:
        if workload.priority < priority:
            priority, newest = workload.priority, workload.timestamp
        elif workload.priority == priority and workload.timestamp > newest:
            newest = workload.timestamp
    known = findings.lowest[queue] = Lowest(admitted, priority, newest)
    return known


def order(preemptor: Preemptor, findings: Findings) -> Callable[[Admitted], Order]:
    """Return the key that sorts candidates of different queues in the order of preemption.

    Already evicted workloads come first, then those that are not to be last (`Rules.is_last`), of other queues, of low
    priority, of late admission; between equals the lost work decides, and at last the uid.
    """

    own, rules = preemptor.queue, findings.rules
    now, is_last = rules.now, rules.is_last if rules.postpones else nobody

    def key(workload: Admitted) -> Order:
        held_for = now - (workload.reserved_at or now)
        return (
            not workload.evicted,
            is_last(workload),
            workload.queue == own,
            workload.priority,
            held_for,
            Loss(workload, now),
            workload.uid,
        )

    return key


def in_order(workloads: Iterable[Admitted], preemptor: Preemptor, findings: Findings) -> list[Admitted]:
    """Return candidates in the order in which they are preempted.

    The usage of LocalQueues orders only workloads of one ClusterQueue: each queue is sorted by itself, and the first
    workloads of all queues are then compared without usage.
    """
    key, usage = order(preemptor, findings), findings.rules.local_queue_usage
    if usage is None:
        return sorted(workloads, key=key)
    queues: dict[str, list[Admitted]] = {}
    for workload in workloads:
        queues.setdefault(workload.queue, []).append(workload)
    return list(merge(*_by_local_queue(queues.values(), key, usage), key=key))


def _by_local_queue(
    queues: Iterable[list[Admitted]],
    key: Callable[[Admitted], Order],
    usage: LocalQueueUsage,
) -> Iterator[list[Admitted]]:
    def within(workload: Admitted) -> tuple[bool, bool, float, Order]:
        order = key(workload)
        return (order[0], order[1], -(usage.of(workload) or 0), order)

    for queue in queues:
        yield sorted(queue, key=within)
