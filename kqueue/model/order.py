"""The order of waiting Workloads: priority and queue time."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from kqueue.api import gang_names, names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.meta import Condition
from kqueue.kube import names as kube_names
from kqueue.model.conditions import NO_TIME, condition
from kqueue.model.gang_time import gang_since


def priority(obj: wire.Workload, order: QueueOrder | None = None) -> int:
    """Return the priority that orders a workload in its queue and among preemption candidates."""
    own = obj.spec.priority or 0
    return own + boost(obj, order) if order is not None and order.boosts else own


def boost(obj: wire.Workload, order: QueueOrder | None = None) -> int:
    """Return the amount that the annotation adds to the priority, if boosts count; 0 if it is not valid."""
    if order is None or not order.boosts:
        return 0
    text = obj.metadata.annotations.get(names.PRIORITY_BOOST_ANNOTATION, "")
    if _BOOST.fullmatch(text) is None:
        return 0
    number = int(text)
    return number if -(2**31) <= number < 2**31 else 0


_BOOST = re.compile(r"[+-]?[0-9]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOrder:
    """The evictions that move a workload behind others of equal priority; after any other eviction, it keeps its place.

    `by_timeout`: its pods were not ready in time. `by_reclaim`: it borrowed, and a workload of higher priority borrowed
    in its place; for clusters in which priority does not order workloads within a cohort. `boosts`: an annotation adds
    to a workload's priority.
    """

    by_timeout: bool = True
    by_reclaim: bool = False
    boosts: bool = False


DEFAULT_ORDER = QueueOrder()
_NEVER = "Never"
_MOVES_BACK = frozenset(
    {names.REASON_ADMISSION_CHECK, gang_names.REASON_GANG_SCHEDULE_TIMEOUT, gang_names.REASON_GANG_REJECTED}
)
"""Reasons of evictions that move a workload behind others in every configuration: a gang that no node can take must not
be the first one again and again.
"""
_NEXT = timedelta(milliseconds=1)


def closed_gates(obj: wire.Workload) -> tuple[str, ...]:
    """Return the closed preemption gates: while a workload has one, it must not preempt."""
    if not obj.spec.preemption_gates:
        return ()
    opened = {gate.name for gate in obj.status.preemption_gates if gate.position == "Open"}
    return tuple(gate.name for gate in obj.spec.preemption_gates if gate.name not in opened)


def never_preempts(obj: wire.Workload, policy_of: Callable[[str], str | None]) -> bool:
    """Whether the class that gives a Workload its priority never preempts, or all its pods say so themselves.

    `policy_of` returns the preemptionPolicy of a PriorityClass; None: the class does not exist, or has none.
    """
    held = obj.spec.priority_class_ref
    if held is not None and held.kind == kube_names.PRIORITY_CLASS_KIND and policy_of(held.name) == _NEVER:
        return True
    pods = [pod_set.template.spec for pod_set in obj.spec.pod_sets]
    return bool(pods) and all(
        (pod.preemption_policy or (policy_of(pod.priority_class_name) if pod.priority_class_name else None)) == _NEVER
        for pod in pods
    )


def queue_time(obj: wire.Workload, order: QueueOrder = DEFAULT_ORDER) -> datetime:
    """Return the time that orders a workload among equals: its creation, which for a gang is that of the group, or the
    eviction that moved it back.
    """
    if not obj.status.conditions:
        return gang_since(obj)
    evicted = _true(obj, names.CONDITION_EVICTED)
    if evicted is not None and (
        evicted.reason in _MOVES_BACK or (evicted.reason == names.REASON_PODS_READY_TIMEOUT and order.by_timeout)
    ):
        return evicted.last_transition_time or NO_TIME
    preempted = _true(obj, names.CONDITION_PREEMPTED) if order.by_reclaim else None
    if preempted is not None and preempted.reason == names.REASON_IN_COHORT_RECLAIM_WHILE_BORROWING:
        return (preempted.last_transition_time or NO_TIME) + _NEXT  # behind the workload for which it was preempted
    return gang_since(obj)


def _true(obj: wire.Workload, kind: str) -> Condition | None:
    found = condition(obj.status.conditions, kind)
    return found if found is not None and found.status == "True" else None
