"""Workloads that a PodDisruptionBudget protects: their pods are under a budget that allows no disruption.

Pods are matched by the labels of their templates, so the answer needs no watch of whole pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.kube.requirement import labels_match

NO_BUDGETS: frozenset[str] = frozenset()


class DisruptionBudgets:
    """Follows PodDisruptionBudgets and Workloads, and keeps the UIDs of the protected Workloads."""

    def __init__(self, workloads: Callable[[str], Iterable[wire.Workload]]) -> None:
        """`workloads` returns the Workloads of a namespace."""
        self._workloads = workloads
        self._exhausted: dict[str, dict[str, wire_core.PodDisruptionBudget]] = {}
        """By namespace, by name: budgets that allow no disruption."""
        self._protected: dict[str, set[str]] = {}
        """By namespace with such a budget: UIDs of protected Workloads."""
        self._all: frozenset[str] | None = NO_BUDGETS
        """All protected Workloads; None: they have changed since."""

    def protected(self) -> frozenset[str]:
        """Return the UIDs of all protected Workloads."""
        if self._all is None:
            self._all = NO_BUDGETS.union(*self._protected.values())
        return self._all

    def on_budget(self, old: wire_core.PodDisruptionBudget | None, new: wire_core.PodDisruptionBudget | None) -> None:
        """Follow a budget that appeared, changed or is gone (`new` is None)."""
        seen = new or old
        if seen is None:
            return
        namespace, name = seen.metadata.namespace, seen.metadata.name
        known = self._exhausted.setdefault(namespace, {})
        before = known.pop(name, None)
        if new is not None and new.status.disruptions_allowed <= 0:
            known[name] = new
        after = known.get(name)
        if before is None and after is None:
            same = True
        else:
            same = before is not None and after is not None and before.spec == after.spec
        if not same:
            found = {w.metadata.uid for w in (self._workloads(namespace) if known else ()) if _covered(known, w)}
            self._protected[namespace], self._all = found, None
        if not known:
            del self._exhausted[namespace]
            self._protected.pop(namespace, None)

    def on_workload(self, old: wire.Workload | None, new: wire.Workload | None) -> None:
        """Follow a Workload."""
        seen = new or old
        known = self._exhausted.get(seen.metadata.namespace) if seen is not None else None
        if seen is None or not known:
            return
        protected, before = self._protected[seen.metadata.namespace], old.metadata.uid if old is not None else ""
        if old is not None and (new is None or new.metadata.uid != before) and before in protected:
            protected.discard(before)
            self._all = None
        if new is not None and (new.metadata.uid in protected) is not _covered(known, new):
            protected.symmetric_difference_update((new.metadata.uid,))
            self._all = None


def _covered(budgets: Mapping[str, wire_core.PodDisruptionBudget], workload: wire.Workload) -> bool:
    return any(covers(budget, workload) for budget in budgets.values())


def covers(budget: wire_core.PodDisruptionBudget, workload: wire.Workload) -> bool:
    """Whether a budget selects pods of a Workload; a budget without a selector selects none."""
    selector = budget.spec.selector
    return selector is not None and any(
        labels_match(selector.match_labels, selector.match_expressions, pod_set.template.metadata.labels)
        for pod_set in workload.spec.pod_sets
    )
