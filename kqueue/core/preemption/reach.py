"""Whose hosts are of any use to the preemptor: who holds none of them need not be asked about when hosts are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kqueue.core.charging import same_hosts
from kqueue.core.topology.request import PodSetRequest
from kqueue.core.topology.tree import Tree
from kqueue.core.workload import Admitted, Snapshot, TopologyView


def on_hosts_for(snapshot: Snapshot, requests: Mapping[str, Sequence[PodSetRequest]]) -> Callable[[Admitted], bool]:
    """Tells of a workload whether it holds a leaf that passes the node rules of any pod set, in its topology flavor."""
    passing = {flavor: _passing(snapshot.topologies[flavor].tree, pod_sets) for flavor, pod_sets in requests.items()}
    known: dict[Admitted, bool] = {}

    def matters(workload: Admitted) -> bool:
        answer = known.get(workload)
        if answer is None:
            answer = known[workload] = _holds(workload, passing, snapshot.topologies)
        return answer

    return matters


def _passing(tree: Tree, pod_sets: Sequence[PodSetRequest]) -> NDArray[np.bool_]:
    passing = np.zeros(len(tree), dtype=np.bool_)
    for pod_set in pod_sets:
        mask = tree.eligible(pod_set.rules).mask
        if mask is None:
            passing[:] = True
        else:
            passing |= mask
    return passing


def _holds(
    workload: Admitted, passing: Mapping[str, NDArray[np.bool_]], topologies: Mapping[str, TopologyView]
) -> bool:
    for flavor, domains in workload.domains.items():
        for name in same_hosts(flavor, topologies):
            if name not in passing:
                continue
            leaves = (topologies[name].tree.leaf_of(domain.values) for domain in domains)
            if any(leaf is not None and passing[name][leaf] for leaf in leaves):
                return True
    return False
