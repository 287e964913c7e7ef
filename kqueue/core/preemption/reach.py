"""Bounds before a search for domains: the workloads whose hosts help, and a lower bound of the missing domains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kqueue.core.charging import own_domains
from kqueue.core.topology.capacity import Capacity
from kqueue.core.topology.counting import open_leaves, pods_per_domain, pods_within
from kqueue.core.topology.request import DEFAULT_PROFILE, PodSetRequest, Profile, resolve
from kqueue.core.topology.result import Misfit, Path, Placement, usage_of
from kqueue.core.topology.tree import Tree
from kqueue.core.workload import Admitted, Snapshot, TopologyView


class VictimReach:
    """Answers about hosts for a search for victims, without a search for domains."""

    def __init__(
        self,
        snapshot: Snapshot,
        requests: Mapping[str, Sequence[PodSetRequest]],
        profile: Profile = DEFAULT_PROFILE,
    ) -> None:
        """Take the snapshot, the pod sets to be placed, by topology flavor, and the profile."""
        self._topologies = snapshot.topologies
        self._requests, self._profile = requests, profile
        self._passing: dict[str, NDArray[np.bool_]] | None = None
        self._matters: dict[Admitted, bool] = {}
        self._found: dict[str, set[Path]] = {}

    def matters(self, workload: Admitted) -> bool:
        """Whether the workload uses, in the topology flavor of any pod set, a leaf that passes the node rules of the
        pod set, and that other pods of its gang do not exclude.
        """
        answer = self._matters.get(workload)
        if answer is None:
            if self._passing is None:
                trees = {flavor: self._topologies[flavor].tree for flavor in self._requests}
                self._passing = {flavor: _passing(tree, self._requests[flavor]) for flavor, tree in trees.items()}
            answer = self._matters[workload] = _holds(workload, self._passing, self._topologies)
        return answer

    def lacks(self) -> int:
        """Return a lower bound of the domains to release before all pods can have domains; pods that keep places do not
        count.
        """
        lacking = 0
        for flavor, pod_sets in self._requests.items():
            capacity = self._topologies[flavor].capacity
            for pod_set in pod_sets:
                lacking = max(lacking, _lacking(capacity, pod_set, self._profile))
        return lacking

    def note(self, found: Mapping[str, Placement]) -> None:
        """Record the domains that were found, by topology flavor."""
        self._found = {flavor: {domain.values for domain in usage_of(found[flavor])} for flavor in found}

    def disturbs(self, workload: Admitted) -> bool:
        """Whether the workload uses any of the domains recorded last, in the flavor of these domains."""
        return any(
            domain.values in found
            for flavor, domains in own_domains(workload, self._topologies)
            if (found := self._found.get(flavor))
            for domain in domains
        )


def _lacking(capacity: Capacity, pod_set: PodSetRequest, profile: Profile) -> int:
    """Return a lower bound of the leaves that the best domain lacks, as if each leaf could take as many pods as any
    leaf can.
    """
    if pod_set.count <= 0:
        return 0
    resolved = resolve(pod_set, capacity.tree.levels, profile)
    if isinstance(resolved, Misfit):
        return 0
    pods = pods_within(capacity, pod_set)
    there = int(pods[0].sum()) if resolved.binding is None else int(pods[resolved.binding].max(initial=0))
    if there >= pod_set.count:
        return 0
    most = int(pods_per_domain(capacity.empty(), pod_set.shape)[-1].max(initial=0))
    return -(-(pod_set.count - there) // most) if most else 0


def _passing(tree: Tree, pod_sets: Sequence[PodSetRequest]) -> NDArray[np.bool_]:
    passing = np.zeros(len(tree), dtype=np.bool_)
    for pod_set in pod_sets:
        masks = (tree.eligible(pod_set.rules).mask, open_leaves(tree, pod_set.within))
        both = [mask for mask in masks if mask is not None]
        passing |= np.logical_and.reduce(both) if both else np.True_
    return passing


def _holds(
    workload: Admitted, passing: Mapping[str, NDArray[np.bool_]], topologies: Mapping[str, TopologyView]
) -> bool:
    for flavor, domains in own_domains(workload, topologies):
        if flavor not in passing:
            continue
        leaves = (topologies[flavor].tree.leaf_of(domain.values) for domain in domains)
        if any(leaf is not None and passing[flavor][leaf] for leaf in leaves):
            return True
    return False
