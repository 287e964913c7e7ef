"""The watches that plans of moves need beside those of every process: the plans, and PodDisruptionBudgets.

Each controller that needs one asks for it by `Manager.shared`, so that a process has one watch of a kind.
"""

from __future__ import annotations

from kqueue.api.wire import core as wire_core
from kqueue.api.wire.defragmentation import DefragmentationPlan
from kqueue.controllers.manager import Manager
from kqueue.controllers.resources import DEFRAGMENTATION_PLANS, POD_DISRUPTION_BUDGETS
from kqueue.runtime.reflector import Reflector


def plans_watch(manager: Manager) -> Reflector[DefragmentationPlan, DefragmentationPlan]:
    """Add the watch of DefragmentationPlans, whose definition an older installation may lack."""
    return manager.watches.watch(DEFRAGMENTATION_PLANS, DefragmentationPlan, optional=True)


def budgets_watch(
    manager: Manager,
) -> Reflector[wire_core.PodDisruptionBudget, wire_core.PodDisruptionBudget]:
    """Add the watch of PodDisruptionBudgets."""
    return manager.watches.watch(POD_DISRUPTION_BUDGETS, wire_core.PodDisruptionBudget)
