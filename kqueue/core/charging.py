"""Usage of hosts that several flavors share.

A decision is charged to, and released from, all of these flavors.  A trial, which finds the workloads to preempt,
releases usage only in the flavors that the workload was assigned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack

from kqueue.core.topology.result import DomainUsage
from kqueue.core.workload import Admitted, PodSetAssignment, TopologyView


def same_hosts(flavor: str, topologies: Mapping[str, TopologyView]) -> list[str]:
    """Return the flavor and all flavors with the same hosts as leaves; empty if the flavor has no topology now."""
    view = topologies.get(flavor)
    if view is None:
        return []
    if not view.tree.is_hostname:
        return [flavor]
    return [name for name, other in topologies.items() if other.tree.is_hostname]


def charge_domains(flavor: str, usage: Iterable[DomainUsage], topologies: Mapping[str, TopologyView]) -> None:
    """Charge pods that are placed in this flavor to every flavor with the same hosts."""
    usage = tuple(usage)
    for name in same_hosts(flavor, topologies):
        topologies[name].capacity.charge(usage)


def release_domains(flavor: str, usage: Iterable[DomainUsage], topologies: Mapping[str, TopologyView]) -> None:
    """Release what `charge_domains` charged."""
    usage = tuple(usage)
    for name in same_hosts(flavor, topologies):
        topologies[name].capacity.release(usage)


def own_domains(
    workload: Admitted, topologies: Mapping[str, TopologyView]
) -> Iterable[tuple[str, tuple[DomainUsage, ...]]]:
    """Yield the usage of hosts by a workload, for each flavor that its pods were assigned and are counted in now."""
    if not workload.further:  # almost all workloads return here, and a search calls this very often
        return workload.domains.items()
    own = list(workload.domains.items())
    for flavor, others in workload.further.items():
        shared = same_hosts(flavor, topologies)
        own += [(other, usage) for other, usage in others.items() if other in shared]
    return own


def fit_together(usage: Mapping[str, Sequence[DomainUsage]], topologies: Mapping[str, TopologyView]) -> bool:
    """Whether the usage of one workload, by flavor, fits at the same time, by the rule of `place_workload`."""
    if len(usage) == 1:  # a single flavor cannot compete with itself for hosts
        ((flavor, taken),) = usage.items()
        return topologies[flavor].capacity.fits(taken)
    on_hosts: list[DomainUsage] = []
    with ExitStack() as undo:
        for flavor in sorted(usage):
            tree, capacity = topologies[flavor].tree, topologies[flavor].capacity
            if tree.is_hostname:
                undo.enter_context(capacity.trial())
                capacity.charge(on_hosts)
                on_hosts += usage[flavor]
            if not capacity.fits(usage[flavor]):
                return False
    return True


HeldDomains = dict[str, tuple[DomainUsage, ...]]
"""Usage of hosts, by topology flavor."""


def domains_held(
    pod_sets: Iterable[PodSetAssignment],
    requests: Mapping[str, Mapping[str, int]],
    with_topology: Collection[str],
) -> tuple[HeldDomains, dict[str, HeldDomains]]:
    """Return the usage of hosts by a workload, and its usage in further flavors, as `Admitted` has both.

    `requests` are the requests of one pod, by pod set; `with_topology` are the flavors that have a topology.
    """
    domains: dict[str, list[DomainUsage]] = {}
    further: dict[str, dict[str, list[DomainUsage]]] = {}
    for pod_set in pod_sets:
        flavor = counted_in(pod_set, with_topology)
        where = pod_set.topology
        if where is None or flavor is None:
            continue
        of_pod = requests.get(pod_set.name, {})
        placed = [DomainUsage(where.named(d.values), of_pod, d.count) for d in where.domains]
        domains.setdefault(flavor, []).extend(placed)
        for other in sorted(set(pod_set.flavors.values()).intersection(with_topology) - {flavor}):
            further.setdefault(flavor, {}).setdefault(other, []).extend(placed)
    return _in_tuples(domains), {flavor: _in_tuples(others) for flavor, others in further.items()}


def _in_tuples(usage: Mapping[str, list[DomainUsage]]) -> HeldDomains:
    return {flavor: tuple(some) for flavor, some in usage.items()}


def counted_in(pod_set: PodSetAssignment, with_topology: Collection[str]) -> str | None:
    """Return the flavor in which the pods of a pod set count on their hosts; None: in no flavor.

    A pod set with several topology flavors counts in the first by name; the other flavors share the hosts.
    """
    return min(set(pod_set.flavors.values()).intersection(with_topology), default=None)
