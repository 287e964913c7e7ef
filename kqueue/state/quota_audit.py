"""Audits of quota: compares trees and sums with the holdings from which they are computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kqueue.core import quota
from kqueue.core.quota import Usage
from kqueue.state.audit import Drift
from kqueue.state.held import HoldingShare
from kqueue.state.holding import Holding
from kqueue.state.quota_trees import Trees
from kqueue.state.unpaid import UnpaidPod

Place = tuple[str, ...]
"""A place in which holdings are counted: a ClusterQueue, or a LocalQueue in a ClusterQueue; admitted or not."""
_WORKLOADS = quota.FlavorResource("", "")
"""The column in which an audit counts workloads."""


def share(fact: Holding | UnpaidPod) -> HoldingShare:
    """Return the quota that a workload, or a pod without a reservation, uses."""
    if isinstance(fact, UnpaidPod):
        return HoldingShare(fact.queue, fact.local_queue, admitted=True, usage=fact.usage, workloads=0)
    return HoldingShare(fact.queue, fact.local_queue, fact.admitted, fact.admission.usage())


def charged(fact: Holding | UnpaidPod) -> Iterator[tuple[Place, Iterable[tuple[quota.FlavorResource, int]]]]:
    """Return the quota usage of a workload or a pod, by place."""
    part = share(fact)
    yield (part.queue,), part.usage.items()
    place = (part.queue, part.local_queue, "admitted" if part.admitted else "")
    yield place, ((_WORKLOADS, part.workloads), *part.usage.items())


def share_of(place: Place, counted: Mapping[quota.FlavorResource, int]) -> HoldingShare:
    """Return the sums that an audit has counted in one place."""
    queue, local_queue, admitted = place
    amounts = dict(counted)
    return HoldingShare(queue, local_queue, bool(admitted), amounts, workloads=amounts.pop(_WORKLOADS, 0))


def audit_queue(trees: Trees, name: str, counted: Mapping[quota.FlavorResource, int]) -> Drift | None:
    """Compare the usage of a ClusterQueue with the recount; correct differences."""
    node = trees.queues.get(name)
    actual = quota.total([counted])
    if node is None or _nonzero(node.usage) == actual:
        return None
    drift = Drift("quota", f"of ClusterQueue {name}", _shown(node.usage), _shown(actual))
    quota.set_usage(node, actual)
    return drift


def audit_tree(trees: Trees, queue: str) -> list[Drift]:
    """Check the quota tree of a ClusterQueue: quota and usage of Cohorts follow from their children. Return the
    differences.
    """
    node, drifts = trees.queues.get(queue), list[Drift]()
    if node is None:
        return drifts
    twin = quota.copy_tree(node.root)[queue]
    quota.rebuild(twin.root)
    for mine, anew in zip(node.root.walk(), twin.root.walk(), strict=True):
        believed, actual = (_nonzero(mine.usage), mine.subtree), (_nonzero(anew.usage), anew.subtree)
        if believed != actual:
            kind = "Cohort" if mine.is_cohort else "ClusterQueue"
            drifts.append(Drift("quota", f"below {kind} {mine.name}", believed, actual))
    if drifts:
        quota.rebuild(node.root)
    return drifts


def _nonzero(usage: Mapping[quota.FlavorResource, int]) -> Usage:
    return {column: amount for column, amount in usage.items() if amount}


def _shown(usage: Mapping[quota.FlavorResource, int]) -> str:
    return "; ".join(f"{amount} {column}" for column, amount in sorted(_nonzero(usage).items())) or "nothing"
