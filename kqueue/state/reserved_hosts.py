"""The hosts of reserved domains: those of the trees, and those that are cordoned or not ready."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kqueue.core.reserving import ReservationProblem, ReservationRefusal
from kqueue.core.topology.node import HOSTNAME, PODS, NodeFacts
from kqueue.core.topology.result import DomainUsage, Path
from kqueue.state.cache import Cache


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedHost:
    """A host of a reserved domain.

    Args:
        flavor: one of the flavors that have it; usage there counts in all that share hosts.
        written: its name as assignments write it.
        domain: the reserved domain.
        allocatable: its amounts; None: it is cordoned or not ready, so nothing starts there.
        nodes: the number of its nodes.
    """

    flavor: str
    written: Path
    domain: Path
    allocatable: Mapping[str, int] | None
    nodes: int = 1


def levels_of(cache: Cache, topology: str) -> tuple[str, ...] | ReservationRefusal:
    """Return the levels of a Topology that flavors use."""
    topologies = cache.quota.topologies()
    levels = topologies.get(topology)
    if levels is None:
        known = ", ".join(sorted(topologies)[:5]) or "none"
        return ReservationRefusal(
            problem=ReservationProblem.TOPOLOGY_NOT_FOUND,
            message=f"spec.topology: there is no Topology {topology}; there are {known}",
        )
    if not _flavors(cache, topology):
        return ReservationRefusal(
            problem=ReservationProblem.TOPOLOGY_NOT_FOUND,
            message=f"spec.topology: no ResourceFlavor uses Topology {topology}; set topologyName of a ResourceFlavor",
        )
    return levels


def hosts_of(cache: Cache, topology: str, domains: Iterable[Path]) -> list[ReservedHost]:
    """Return the hosts of these domains of a Topology, each once, in the order of flavors and paths."""
    found: dict[Path, ReservedHost] = {}
    wanted = list(domains)
    for flavor in _flavors(cache, topology):
        tree = cache.ledger.tree(flavor)
        if tree is None:
            continue
        for domain in wanted:
            for leaf in tree.below(domain):
                written = tree.written(leaf)
                if written not in found:
                    nodes = tree.leaves[leaf].nodes
                    found[written] = ReservedHost(
                        flavor=flavor,
                        written=written,
                        domain=domain,
                        allocatable=_sum(cache.ledger.nodes.get(node.name, node) for node in nodes),
                        nodes=len(nodes),
                    )
        for name in cache.ledger.unusable(flavor):
            _add_unusable(found, cache.ledger.nodes.get(name), flavor, tree.levels, wanted)
    return list(found.values())


def domains_at(cache: Cache, topology: str, level: int) -> dict[Path, int]:
    """Return the domains of a level (by its number) with usable hosts, and the number of these hosts."""
    found: dict[Path, int] = {}
    for flavor in _flavors(cache, topology):
        tree = cache.ledger.tree(flavor)
        for domain in range(tree.domains(level)) if tree is not None else ():
            assert tree is not None
            leaves = tree.leaves_of(level, domain)
            path = tree.path_of(level, domain)
            found[path] = max(found.get(path, 0), leaves.stop - leaves.start)
    return found


def reserved_usage(
    hosts: Iterable[ReservedHost], amounts: Mapping[str, int] | None
) -> dict[str, tuple[DomainUsage, ...]]:
    """Return what is reserved on these hosts, by flavor; `amounts` of each host, None: everything.

    Everything is all pods of a host: every pod uses one, and one resource is charged faster than all of them.
    """
    found: dict[str, list[DomainUsage]] = {}
    for host in hosts:
        if host.allocatable is not None:
            whole = amounts is None
            usage = DomainUsage(host.written, amounts or {}, host.allocatable.get(PODS, 0) if whole else 1)
            found.setdefault(host.flavor, []).append(usage)
    return {flavor: tuple(usage) for flavor, usage in found.items()}


def _flavors(cache: Cache, topology: str) -> list[str]:
    return sorted(cache.quota.flavors_of_topology(topology))


def _sum(nodes: Iterable[NodeFacts]) -> Mapping[str, int]:
    every = list(nodes)
    if len(every) == 1:
        return every[0].allocatable
    total: dict[str, int] = {}
    for node in every:
        for resource, amount in node.allocatable.items():
            total[resource] = total.get(resource, 0) + amount
    return total


def _add_unusable(
    found: dict[Path, ReservedHost],
    node: NodeFacts | None,
    flavor: str,
    levels: tuple[str, ...],
    domains: Iterable[Path],
) -> None:
    if node is None or any(level not in node.labels for level in levels):
        return
    path = tuple([node.labels[level] for level in levels])
    domain = next((one for one in domains if path[: len(one)] == one), None)
    written = path[-1:] if levels[-1] == HOSTNAME else path
    if domain is None:
        return
    known = found.get(written)
    if known is None:
        found[written] = ReservedHost(flavor=flavor, written=written, domain=domain, allocatable=None)
    elif levels[-1] != HOSTNAME:
        found[written] = replace(known, nodes=known.nodes + 1)
