"""What a workload takes of hosts, charged to and released from every flavor that stands on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kqueue.core.topology.result import DomainUsage
from kqueue.core.workload import TopologyView


def same_hosts(flavor: str, topologies: Mapping[str, TopologyView]) -> list[str]:
    """The flavor, and every other one whose leaves are the same hosts; none when the flavor has no topology (now)."""
    view = topologies.get(flavor)
    if view is None:
        return []
    if not view.tree.is_hostname:
        return [flavor]
    return [name for name, other in topologies.items() if other.tree.is_hostname]


def charge_domains(flavor: str, usage: Iterable[DomainUsage], topologies: Mapping[str, TopologyView]) -> None:
    """Take what these pods, placed in this flavor, need; in every flavor that stands on the same hosts."""
    usage = tuple(usage)
    for name in same_hosts(flavor, topologies):
        topologies[name].capacity.charge(usage)


def release_domains(flavor: str, usage: Iterable[DomainUsage], topologies: Mapping[str, TopologyView]) -> None:
    """Give back what `charge_domains` took."""
    usage = tuple(usage)
    for name in same_hosts(flavor, topologies):
        topologies[name].capacity.release(usage)
