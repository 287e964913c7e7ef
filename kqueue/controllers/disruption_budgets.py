"""Watches PodDisruptionBudgets, where preemption respects them."""

from __future__ import annotations

from kqueue.controllers.manager import Manager
from kqueue.controllers.plan_watches import budgets_watch
from kqueue.controllers.watches import BY_NAMESPACE
from kqueue.state.disruption_budgets import DisruptionBudgets


def make_budgets(manager: Manager) -> DisruptionBudgets:
    """Return the budgets of a process; they follow no watch before `setup`."""
    store = manager.watches.workloads.store
    return DisruptionBudgets(lambda namespace: store.by_index(BY_NAMESPACE, namespace))


def setup(manager: Manager) -> None:
    """Add the watch, if `preemption.respectDisruptionBudgets` is set."""
    if not manager.config.preemption.respect_disruption_budgets:
        return
    watches, budgets = manager.watches, manager.shared(make_budgets)
    watches.workloads.subscribe(budgets.on_workload)
    manager.shared(budgets_watch).subscribe(budgets.on_budget)
