"""The check of a planner's answer: no plan may give pods more than their hosts had when the round began."""

from __future__ import annotations

from collections.abc import Mapping

from kqueue.core.hints import PlanHint
from kqueue.core.topology.tree import Ints, Tree
from kqueue.core.workload import Head, TopologyView


class HostRoom:
    """The free amounts of all hosts before a round, without what the plan takes."""

    def __init__(self, topologies: Mapping[str, TopologyView]) -> None:
        """Copy the free amounts."""
        self._trees: dict[str, Tree] = {flavor: view.tree for flavor, view in topologies.items()}
        self._rows: dict[tuple[str, str], Ints] = {}
        for flavor, view in topologies.items():
            resources, table = view.capacity.tables()
            self._rows.update({(flavor, resource): row for resource, row in zip(resources, table, strict=True)})

    def take(self, head: Head, hint: PlanHint) -> str:
        """Charge the pods of a workload; return what is wrong with their places, empty: nothing is.

        Wrong is a pod set that the workload does not have, a host that its flavor does not have, and a host whose free
        amounts do not suffice for all pods that were charged to it.
        """
        requests = {pod_set.name: pod_set.request.requests for pod_set in head.pod_sets}
        for name, places in hint.places.items():
            flavor = next((one for one in hint.flavors.get(name, {}).values() if one in self._trees), None)
            if name not in requests or flavor is None:
                return f"{head.key} has no pod set {name} with a flavor that has a topology"
            tree = self._trees[flavor]
            asked = [(self._rows.get((flavor, resource)), n) for resource, n in requests[name].items() if n]
            for path, pods in places:
                leaf = tree.leaf_of(path[-1:] if tree.is_hostname else path)
                if leaf is None or pods < 1:
                    return f"{head.key} is to have {pods} pods on {'/'.join(path)}, which flavor {flavor} does not have"
                for row, amount in asked:
                    if row is None or int(row[leaf]) < amount * pods:
                        return f"{head.key} and others are to have more than is free on {'/'.join(path)}"
                    row[leaf] -= amount * pods
        return ""
