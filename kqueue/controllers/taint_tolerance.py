"""Decides whether workloads tolerate the taints of a node."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from enum import Enum, auto

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.controllers.hosts import repelling
from kqueue.core.topology import NodeFacts, Taint
from kqueue.core.workload import PodSetAssignment
from kqueue.kube.taints import tolerates


class Tolerance(Enum):
    """How long pods of a workload may stay on a tainted node, from the longest."""

    FOREVER = auto()
    FOR_A_TIME = auto()
    """Every taint is tolerated, at least one of them only for `tolerationSeconds`."""
    NONE = auto()


class TaintTolerance:
    """Compares taints with the tolerations of pod templates, flavors and admission checks."""

    def __init__(self, flavors: Callable[[str], wire.ResourceFlavor | None]) -> None:
        """Take the function that returns a ResourceFlavor by name; None: it does not exist."""
        self._flavors = flavors

    def of(self, workload: wire.Workload, pod_sets: Iterable[PodSetAssignment], node: NodeFacts) -> Tolerance:
        """Return the shortest tolerance that any of the assigned pod sets has for any taint of the node."""
        shortest = Tolerance.FOREVER
        for assigned in pod_sets:
            tolerations = self._tolerations(workload, assigned.name, set(assigned.flavors.values()))
            for taint in repelling(node):
                shortest = max(shortest, _tolerance(taint, tolerations), key=lambda found: found.value)
        return shortest

    def _tolerations(
        self, workload: wire.Workload, pod_set: str, flavors: Collection[str]
    ) -> list[wire_core.Toleration]:
        """Return the tolerations of the template, of the flavors, and of the admission checks."""
        found = [t for spec in workload.spec.pod_sets if spec.name == pod_set for t in spec.template.spec.tolerations]
        for name in sorted(flavors):
            flavor = self._flavors(name)
            if flavor is not None:
                found += [*flavor.spec.tolerations, *_of_class(flavor)]
        for check in workload.status.admission_checks:
            found += [t for update in check.pod_set_updates if update.name == pod_set for t in update.tolerations]
        return found


def _of_class(flavor: wire.ResourceFlavor) -> list[wire_core.Toleration]:
    """Return the tolerations that pods get for the taints of a scarce or private flavor."""
    taints = model.class_taints(model.node_class(flavor.metadata.annotations))
    return [wire_core.Toleration(key=t.key, operator="Equal", value=t.value, effect=t.effect) for t in taints]


def _tolerance(taint: Taint, tolerations: Iterable[wire_core.Toleration]) -> Tolerance:
    """Return how long a taint is tolerated; the operators Gt and Lt do not count."""
    matching = [
        toleration
        for toleration in tolerations
        if toleration.operator not in ("Gt", "Lt") and tolerates(model.toleration(toleration), taint)
    ]
    if not matching:
        return Tolerance.NONE
    forever = any(toleration.toleration_seconds is None for toleration in matching)
    return Tolerance.FOREVER if forever else Tolerance.FOR_A_TIME
