"""Builders for topology tests: hosts in racks in blocks, with cpu in whole cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kqueue.core.topology import (
    HOSTNAME,
    Capacity,
    GangDomains,
    Leaf,
    Misfit,
    NodeFacts,
    NodeRules,
    Placement,
    PodSetRequest,
    SliceLayer,
    TopologyRequest,
    Tree,
    membership,
    place,
)

BLOCK, RACK = "block", "rack"
LEVELS = (BLOCK, RACK, HOSTNAME)


def make_node(
    host: str, cores: int, *, block: str = "b1", rack: str = "r1", pods: int = 110, **facts: Any
) -> NodeFacts:
    """A node named after its host."""
    labels = {BLOCK: block, RACK: rack, HOSTNAME: host, **facts.pop("labels", {})}
    allocatable = {"cpu": cores * 1000, "pods": pods, **facts.pop("allocatable", {})}
    return NodeFacts(name=f"node-{host}", labels=labels, allocatable=allocatable, **facts)


def make_tree(nodes: Sequence[NodeFacts], levels: Sequence[str] = LEVELS, **options: Any) -> Tree:
    """The tree of these nodes, all of one flavor."""
    leaves: tuple[Leaf, ...] = membership(nodes, levels=levels, node_labels={}).leaves
    return Tree(topology="default", levels=levels, leaves=leaves, **options)


def racks(*hosts_per_rack: Mapping[str, int]) -> Capacity:
    """One block of racks r1, r2 ..., each a mapping of host to cores."""
    nodes = [
        make_node(host, cores, rack=f"r{i}")
        for i, hosts in enumerate(hosts_per_rack, start=1)
        for host, cores in hosts.items()
    ]
    return Capacity.of(make_tree(nodes))


def make_pod_set(
    count: int,
    *,
    name: str = "main",
    cores: int = 1,
    group: str | None = None,
    rules: NodeRules | None = None,
    requests: Mapping[str, int] | None = None,
    slices: Sequence[tuple[str, int]] = (),
    ended: int = 0,
    **topology: Any,
) -> PodSetRequest:
    """Pods of whole cores; further keywords go into the topology request."""
    layers = tuple(SliceLayer(level, size) for level, size in slices)
    return PodSetRequest(
        name=name,
        count=count,
        requests=requests if requests is not None else {"cpu": cores * 1000},
        topology=TopologyRequest(slices=layers, **topology),
        group=group,
        rules=rules or NodeRules(),
        ended=ended,
    )


def hosts(found: Placement | Misfit, name: str = "main") -> dict[str, int]:
    """Host (or last path value) -> pods, in assignment order."""
    assert isinstance(found, Placement), found
    placed = found[name]
    return {path[-1]: d.count for path, d in zip(placed.paths, placed.assignment.domains, strict=True)}


def place_one(
    capacity: Capacity, pod_set: PodSetRequest, *, within: tuple[str, ...] | None = None, **options: Any
) -> Placement | Misfit:
    """Place a single pod set, in the domain `within` if it is given."""
    if within is not None:
        levels = capacity.tree.levels[: len(within)]
        pod_set = replace(pod_set, within=GangDomains(levels=levels, paths=(within,)))
    return place(capacity, [pod_set], **options)
