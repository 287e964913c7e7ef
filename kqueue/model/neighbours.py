"""Host ports and affinity rules between the pods of one workload.

Only rules between pods of one workload are read, because they are placed together.  kube-scheduler applies such a rule
to the other pods in the cluster.  Source: the fields `hostPort`, `podAffinity` and `podAntiAffinity` of the pod API.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations_with_replacement, islice

from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.pod_affinity import selects
from kqueue.core.topology.node import HOSTNAME

ANY = "0.0.0.0"  # noqa: S104  a value of manifests; nothing listens there
"""All addresses of a host."""
MOST = 100
"""The largest number of ports, and of rules of one kind, that are read from one pod set; kube-scheduler applies the
others.
"""
_KEEPS_RUNNING = "Always"


@dataclass(frozen=True, slots=True)
class NeighbourRules:
    """Rules of one pod set about pods of its workload; see `PodSetRequest`."""

    apart: frozenset[str] = frozenset()
    one_domain: tuple[str, ...] = ()


NO_RULES = NeighbourRules()


def neighbours(obj: wire.Workload) -> Mapping[str, NeighbourRules]:
    """Return the rules of each pod set that has any; empty for most workloads."""
    pod_sets = obj.spec.pod_sets
    if not any(_may_have_rules(p.template.spec) for p in pod_sets):
        return {}
    namespace = obj.metadata.namespace
    apart: dict[str, set[str]] = {p.name: set() for p in pod_sets}
    for one, other in combinations_with_replacement(pod_sets, 2):
        if _exclude_each_other(one, other, namespace):
            apart[one.name].add(other.name)
            apart[other.name].add(one.name)
    found = {p.name: NeighbourRules(frozenset(apart[p.name]), _one_domain(p, namespace)) for p in pod_sets}
    return {name: rules for name, rules in found.items() if rules != NO_RULES}


def _may_have_rules(spec: wire_core.PodSpec) -> bool:
    affinity = spec.affinity
    return any(container.ports for container in (*spec.containers, *spec.init_containers)) or (
        affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)
    )


def _exclude_each_other(one: wire.PodSet, other: wire.PodSet, namespace: str) -> bool:
    """Whether a pod of one pod set cannot share a host with a pod of the other."""
    return _share_a_port(one.template.spec, other.template.spec) or any(
        term.topology_key == HOSTNAME and selects(term, mine.template, theirs.template, namespace)
        for mine, theirs in ((one, other), (other, one))
        for term in _terms(mine, anti=True)
    )


def _one_domain(pod_set: wire.PodSet, namespace: str) -> tuple[str, ...]:
    """Return node labels for which all pods need the same value, by rules of pod affinity to each other."""
    terms = _terms(pod_set, anti=False)
    return tuple(sorted({t.topology_key for t in terms if selects(t, pod_set.template, pod_set.template, namespace)}))


def _terms(pod_set: wire.PodSet, *, anti: bool) -> tuple[wire_core.PodAffinityTerm, ...]:
    affinity = pod_set.template.spec.affinity
    rules = None if affinity is None else affinity.pod_anti_affinity if anti else affinity.pod_affinity
    return () if rules is None else rules.required[:MOST]


def _share_a_port(one: wire_core.PodSpec, other: wire_core.PodSpec) -> bool:
    """Whether both use the same port of the same address, or one of them uses the port on all addresses."""
    mine, theirs = _host_ports(one), _host_ports(other)
    return any(
        ANY in addresses or ANY in others or not addresses.isdisjoint(others)
        for port, addresses in mine.items()
        if (others := theirs.get(port)) is not None
    )


def _host_ports(spec: wire_core.PodSpec) -> dict[tuple[int, str], set[str]]:
    """Return addresses by port and protocol on the host.  Pods on the host's network use the ports of their
    containers.
    """
    found: dict[tuple[int, str], set[str]] = {}
    lasting = (c for c in spec.init_containers if c.restart_policy == _KEEPS_RUNNING)
    ports = (port for container in (*spec.containers, *lasting) for port in container.ports)
    for port in islice(ports, MOST):
        number = port.host_port or (port.container_port if spec.host_network else 0)
        if number:
            found.setdefault((number, port.protocol), set()).add(port.host_ip or ANY)
    return found
