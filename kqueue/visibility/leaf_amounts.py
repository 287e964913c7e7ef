"""The amounts of each leaf of a flavor's tree: total, foreign, held by workloads, and free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from kqueue.core.devices.views import is_of_request
from kqueue.core.quantity import clamp
from kqueue.core.topology import PODS, Capacity, Tree
from kqueue.core.topology.tree import Ints
from kqueue.state.cache import Cache
from kqueue.state.holding import Holding
from kqueue.visibility.pacing import RequestPace

_LEAVES_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class LeafAmounts:
    """Per leaf: nodes, idle ones, and per resource total, foreign, held and free."""

    nodes: Ints
    idle: Ints
    columns: Mapping[str, tuple[Ints, Ints, Ints, Ints]]

    @classmethod
    def of(cls, capacity: Capacity, foreign: Mapping[str, Ints]) -> LeafAmounts:
        """Return the amounts of a capacity; `foreign`: the usage of foreign pods per leaf, by resource."""
        tree, unused = capacity.tree, capacity.empty()
        nothing = np.zeros(len(tree), dtype=np.int64)
        columns: dict[str, tuple[Ints, Ints, Ints, Ints]] = {}
        touched = np.zeros(len(tree), dtype=np.bool_)
        for resource in sorted({*capacity.resources, *unused.resources}):
            now, without = capacity.row(resource), unused.row(resource)
            free = nothing if now is None else now
            idle = nothing if without is None else without
            others = foreign.get(resource, nothing)
            touched |= free != idle
            if is_device(resource):
                touched |= others > 0
            if not is_of_request(resource):
                columns[resource] = idle + others, others, idle - free, np.maximum(free, 0)
        pods = columns[PODS][3] if PODS in columns else nothing
        nodes = np.fromiter((len(leaf.nodes) for leaf in tree.leaves), dtype=np.int64, count=len(tree))
        return cls(nodes, np.where(touched | (pods <= 0), 0, nodes), columns)


async def foreign_on_leaves(cache: Cache, tree: Tree, pace: RequestPace) -> tuple[Mapping[str, Ints], set[str]]:
    """Return the usage of foreign pods per leaf and resource, and the nodes where they hold a device."""
    taken: dict[str, list[int]] = {}
    devices: set[str] = set()
    for number, leaf in enumerate(tree.leaves):
        if number % _LEAVES_AT_ONCE == 0:
            await pace.step()
        for node in leaf.nodes:
            for resource, amount in cache.ledger.foreign_on(node.name).items():
                column = taken.get(resource)
                if column is None:
                    column = taken[resource] = [0] * len(tree)
                column[number] = clamp(column[number] + amount)
                if amount > 0 and is_device(resource):
                    devices.add(node.name)
    return {resource: np.array(column, dtype=np.int64) for resource, column in taken.items()}, devices


def is_device(resource: str) -> bool:
    """Whether a resource is a device, such as a GPU, for which gangs need whole nodes."""
    return "/" in resource


def pods_by_leaf(holding: Holding, flavor: str, tree: Tree) -> Iterator[tuple[int, int]]:
    """Yield leaves with pods of a workload, and the number of pods; where leaves are hosts, pods of other flavors on
    the same hosts count, too.
    """
    for pod_set in holding.admission.pod_sets:
        where = pod_set.topology
        if where is None or not (tree.is_hostname or flavor in pod_set.flavors.values()):
            continue
        for one in where.domains:
            leaf = tree.leaf_of(where.named(one.values))
            if leaf is not None:
                yield leaf, one.count
