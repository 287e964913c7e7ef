"""The built-in plugin `kube-preemption`: compares sets of workloads to preempt as kube-scheduler compares nodes.

The first difference decides: fewer workloads under an exhausted PodDisruptionBudget, a lower highest priority, a
lower sum of priorities, fewer workloads, and a later start of the workloads with the highest priority.  Between equal
sets the order of the flavors decides, where kube-scheduler takes any.  Workloads that leave already do not count.

Source: kube-scheduler's choice of a node for preemption.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta

from kqueue.core.preemption import Target
from kqueue.core.workload import Head

NAME = "kube-preemption"
_LOWEST = -(2**31)
"""The lowest priority of Kubernetes.  Sums count from it, so that a further workload never makes a sum smaller."""
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)

Rank = tuple[int, int, int, int, int]


class KubePreemption:
    """A plugin of point `victims`."""

    name = NAME

    def __init__(self, budgeted: Callable[[], Collection[str]] = frozenset) -> None:
        """`budgeted` returns the UIDs of workloads with pods under a budget that allows no disruption."""
        self._budgeted = budgeted

    def rank(self, head: Head, targets: Sequence[Target]) -> Rank:
        """Return the sort key of a set of targets: the smaller one is preferred."""
        del head
        going = [target.admitted for target in targets if not target.admitted.evicted]
        if not going:
            return 0, _LOWEST, 0, 0, 0
        budgeted, highest = self._budgeted(), max(workload.priority for workload in going)
        starts = [w.admitted_at or w.reserved_at for w in going if w.priority == highest]
        return (
            sum(workload.uid in budgeted for workload in going),
            highest,
            sum(workload.priority - _LOWEST for workload in going),
            len(going),
            -min(_since(start) for start in starts),
        )


def _since(start: datetime | None) -> int:
    """Return microseconds since a fixed time; a reservation that is not written yet is the latest one."""
    return (start - _BEGINNING) // timedelta(microseconds=1) if start is not None else 2**63
