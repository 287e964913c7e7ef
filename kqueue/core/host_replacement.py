"""Replacement of failed hosts for admitted workloads: other hosts only for the pods that ran on failed hosts.

Source: the compatible system's second pass (topology-aware scheduling, failed nodes).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kqueue.core.assignment import TopologyAssignment
from kqueue.core.charging import charge_domains
from kqueue.core.explain import Blocker, BlockerKind, message
from kqueue.core.topology.replacement import Replacement, repair, uses_host
from kqueue.core.topology.request import PodSetRequest
from kqueue.core.topology.result import DomainUsage, Misfit, MisfitCode, Placement, usage_of
from kqueue.core.topology.together import Held, near_each_other
from kqueue.core.topology_blockers import topology_blocker
from kqueue.core.workload import Damaged, Snapshot


@dataclass(frozen=True, slots=True)
class HostsReplaced:
    """New assignments for the pod sets of a damaged workload that lost hosts; other pod sets keep their assignments."""

    damaged: Damaged
    assignments: Mapping[str, TopologyAssignment]
    stays: str = ""
    """The reason why pods stay on hosts on which they failed repeatedly; empty: they do not."""


@dataclass(frozen=True, slots=True)
class HostsNotReplaced:
    """The reasons why the pods of failed hosts have no places."""

    damaged: Damaged
    blockers: tuple[Blocker, ...]

    @property
    def may_pass(self) -> bool:
        """Whether the only blocker is another host of the workload that is out of use, but not known to have failed."""
        return all(b.misfit is not None and b.misfit.code is MisfitCode.STALE_ASSIGNMENT for b in self.blockers)

    @property
    def message(self) -> str:
        """Return all blockers as sentences."""
        return message(self.blockers)


def replace_hosts(snapshot: Snapshot, damaged: Damaged) -> HostsReplaced | HostsNotReplaced:
    """Find other hosts for the pods of failed hosts, in the workload's flavors, without preemption.

    The new hosts are charged to the snapshot, and the failed hosts stay charged, because no pod can use them.  Hosts on
    which the workload failed repeatedly are avoided, unless there is no other place.
    """
    found = _replace_hosts(snapshot, damaged, damaged.failed, avoided=damaged.avoided)
    if isinstance(found, HostsReplaced) or not damaged.avoided:
        return found
    stay = _may_stay(damaged, snapshot)
    least = _replace_hosts(snapshot, damaged, damaged.failed - stay, avoided=frozenset())
    if isinstance(least, HostsNotReplaced) or not stay:
        return least
    hosts = ", ".join(sorted(stay))
    return replace(least, stays=f"Pods stay on {hosts}, where they failed repeatedly: {found.message}")


def _may_stay(damaged: Damaged, snapshot: Snapshot) -> frozenset[str]:
    """Return the failed hosts that have failed for this workload only, and still accept its pods."""
    requests = {pod_set.name: pod_set.request for pod_set in damaged.pod_sets}
    stay = damaged.failed & damaged.avoided
    for held in damaged.admission.pod_sets:
        view = next((snapshot.topologies[f] for f in held.flavors.values() if f in snapshot.topologies), None)
        for host in [host for host in stay if held.topology is not None and uses_host(held.topology, (host,))]:
            leaf = view.tree.leaf_of((host,)) if view is not None else None
            mask = view.tree.eligible(requests[held.name].rules).mask if view is not None else None
            if leaf is None or (mask is not None and not mask[leaf]):
                stay -= {host}
    return stay


def _replace_hosts(
    snapshot: Snapshot, damaged: Damaged, failed: frozenset[str], *, avoided: frozenset[str]
) -> HostsReplaced | HostsNotReplaced:
    """Try the domains that pod sets which share a level may have; the last answer tells why none of them will do."""
    held = _held_by_flavor(damaged, avoided, snapshot)
    capacities = {flavor: snapshot.topologies[flavor].capacity for flavor in held if flavor in snapshot.topologies}
    found: dict[str, tuple[Replacement, ...]] | HostsNotReplaced = {}
    for choice in near_each_other(held, capacities, failed):
        found = _repaired(snapshot, damaged, failed, choice)
        if not isinstance(found, HostsNotReplaced):
            break
    if isinstance(found, HostsNotReplaced):
        return found
    for flavor, replacements in found.items():
        added = Placement(tuple(replacement.added for replacement in replacements))
        charge_domains(flavor, usage_of(added), snapshot.topologies)
    whole = {r.whole.name: r.whole.assignment for replacements in found.values() for r in replacements}
    return HostsReplaced(damaged, whole)


def _repaired(
    snapshot: Snapshot, damaged: Damaged, failed: frozenset[str], held: Held
) -> dict[str, tuple[Replacement, ...]] | HostsNotReplaced:
    """Return the replacements by flavor, of flavors in which hosts failed."""
    found: dict[str, tuple[Replacement, ...]] = {}
    blockers: list[Blocker] = []
    on_hosts: list[DomainUsage] = []
    for flavor, pod_sets in sorted(held.items()):
        if not any(uses_host(places, failed) for _, places in pod_sets):
            continue
        view = snapshot.topologies.get(flavor)
        if view is None:
            gone = f"the nodes of flavor {flavor} are not known any more, it or its Topology is gone"
            blockers.append(Blocker(kind=BlockerKind.TOPOLOGY, flavor=flavor, detail=gone))
            continue
        capacity = view.capacity
        with capacity.trial():
            capacity.charge(on_hosts)  # flavors with failed hosts have hosts as leaves
            answer = repair(capacity, pod_sets, failed, profile=damaged.profile)
        if isinstance(answer, Misfit):
            blockers.append(topology_blocker(flavor, answer, unusable=view.unusable))
            continue
        found[flavor] = answer
        on_hosts += usage_of(Placement(tuple(replacement.added for replacement in answer)))
    return HostsNotReplaced(damaged, tuple(blockers)) if blockers else found


def _held_by_flavor(damaged: Damaged, avoided: frozenset[str], snapshot: Snapshot) -> Held:
    """Return pod sets with their assignments by topology flavor."""
    requests = {pod_set.name: pod_set.request.avoiding(avoided) for pod_set in damaged.pod_sets}
    out: dict[str, list[tuple[PodSetRequest, TopologyAssignment]]] = {}
    for held in damaged.admission.pod_sets:
        if held.topology is None:
            continue
        flavors_held = sorted(set(held.flavors.values()))
        flavor = next((f for f in flavors_held if f in snapshot.topologies), flavors_held[0])
        out.setdefault(flavor, []).append((requests[held.name], held.topology))
    return out
