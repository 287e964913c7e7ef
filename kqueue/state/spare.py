"""Measure the free capacity of a flavor: how many gangs fit on empty nodes, and how fragmented the capacity is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from kqueue.core.joint.fragmentation import fragmentation
from kqueue.core.topology.capacity import Capacity
from kqueue.core.topology.node import PODS

GANG_SIZES = tuple(2**k for k in range(13))
"""Nodes of a gang: 1, 2, 4 ... 4096."""


@dataclass(frozen=True, slots=True)
class FreeRoom:
    """The free capacity of one flavor, by topology level."""

    slots: Mapping[tuple[str, int], int]
    """The number of gangs that fit on empty nodes, each gang within one domain of the level, by level and gang size.

    Only gang sizes that an empty cluster could hold are listed."""
    broken: Mapping[tuple[str, str], float]
    """The fraction (0 to 1) of the free amount that lies in partly used domains, by level and resource; 0 where nothing
    is free."""
    lost: Mapping[tuple[str, int], float]
    """The fraction (0 to 1) of the empty nodes that gangs of a size cannot use, by level and gang size, as `slots`."""


def room_of(capacity: Capacity, taken: Collection[str], resources: Collection[str]) -> FreeRoom:
    """Measure the current free capacity.  Uses numpy over the leaves: 1 ms for 12,500 leaves.

    Args:
        capacity: the free amounts of the leaves, and their amounts without workloads placed by topology.
        taken: names of nodes that are not empty though no workload is placed on them.
        resources: the resources whose fragmentation is measured.
    """
    tree, idle = capacity.tree, capacity.empty()
    empty = np.ones(len(tree), dtype=bool)
    for resource in capacity.resources:
        free, most = capacity.row(resource), idle.row(resource)
        if free is not None:
            empty &= free >= (most if most is not None else 0)
    if taken:
        firsts = [leaf.nodes[0].name not in taken for leaf in tree.leaves]
        empty &= np.array(firsts, dtype=bool)
        for number, leaf in enumerate(tree.leaves):
            if len(leaf.nodes) > 1 and any(node.name in taken for node in leaf.nodes):
                empty[number] = False
    slots: dict[tuple[str, int], int] = {}
    lost: dict[tuple[str, int], float] = {}
    broken: dict[tuple[str, str], float] = {}
    for depth, level in enumerate(tree.levels):
        domain_of, number = tree.domain_of(depth), tree.domains(depth)
        leaves = np.bincount(domain_of, minlength=number)
        whole = np.bincount(domain_of, weights=empty, minlength=number).astype(np.int64)
        for size in GANG_SIZES:
            if size <= leaves.max(initial=0):
                found = fragmentation(whole, size)
                slots[level, size], lost[level, size] = found.slots, found.thousandths / 1000
        all_empty = whole == leaves
        for resource in resources:
            row = capacity.row(resource)
            if row is not None and resource != PODS:
                free = np.maximum(row, 0)
                total = int(free.sum())
                unbroken = int(free[all_empty[domain_of]].sum())
                broken[level, resource] = 1 - unbroken / total if total else 0.0
    return FreeRoom(slots, broken, lost)
