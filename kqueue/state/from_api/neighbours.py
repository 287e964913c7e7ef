"""What host ports and affinity between pods ask of a workload's own pods.

Only rules between pods of one workload are read, because they are placed together.  What other pods in the cluster mean
for such a rule is kube-scheduler's business.  Source: the fields `hostPort`, `podAffinity` and `podAntiAffinity` of the
pod API.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations_with_replacement

from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.core.topology.node import HOSTNAME
from kqueue.state.from_api.selectors import selector_matches

ANY = "0.0.0.0"  # noqa: S104  what stands in a manifest; nothing listens there
"""All addresses of a host."""
_KEEPS_RUNNING = "Always"


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Rules of one pod set about pods of its workload; see `PodSetRequest`."""

    apart: frozenset[str] = frozenset()
    one_domain: tuple[str, ...] = ()


NO_RULES = Neighbours()


def neighbours(obj: wire.Workload) -> Mapping[str, Neighbours]:
    """The rules of each pod set that has some; empty for most workloads."""
    pod_sets = obj.spec.pod_sets
    if not any(_may_have_rules(p.template.spec) for p in pod_sets):
        return {}
    namespace = obj.metadata.namespace
    apart: dict[str, set[str]] = {p.name: set() for p in pod_sets}
    for one, other in combinations_with_replacement(pod_sets, 2):
        if _exclude_each_other(one, other, namespace):
            apart[one.name].add(other.name)
            apart[other.name].add(one.name)
    found = {p.name: Neighbours(frozenset(apart[p.name]), _one_domain(p, namespace)) for p in pod_sets}
    return {name: rules for name, rules in found.items() if rules != NO_RULES}


def _may_have_rules(spec: wire_core.PodSpec) -> bool:
    affinity = spec.affinity
    return any(container.ports for container in (*spec.containers, *spec.init_containers)) or (
        affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)
    )


def _exclude_each_other(one: wire.PodSet, other: wire.PodSet, namespace: str) -> bool:
    """Whether a pod of the one cannot run on a host with a pod of the other."""
    return _share_a_port(one.template.spec, other.template.spec) or any(
        term.topology_key == HOSTNAME and _means(term, mine, theirs, namespace)
        for mine, theirs in ((one, other), (other, one))
        for term in _terms(mine, anti=True)
    )


def _one_domain(pod_set: wire.PodSet, namespace: str) -> tuple[str, ...]:
    """Labels of which all pods have to find one value: those of rules by which they attract each other."""
    terms = _terms(pod_set, anti=False)
    return tuple(sorted({t.topology_key for t in terms if _means(t, pod_set, pod_set, namespace)}))


# --- host ports ------------------------------------------------------------------------------------------------------


def _share_a_port(one: wire_core.PodSpec, other: wire_core.PodSpec) -> bool:
    theirs = list(_host_ports(other))
    return any(
        (port, protocol) == (their_port, their_protocol)
        and (address == their_address or ANY in (address, their_address))
        for port, protocol, address in _host_ports(one)
        for their_port, their_protocol, their_address in theirs
    )


def _host_ports(spec: wire_core.PodSpec) -> Iterator[tuple[int, str, str]]:
    """Port, protocol and address on the host.  Pods on the host's network have those of their containers there."""
    lasting = (c for c in spec.init_containers if c.restart_policy == _KEEPS_RUNNING)
    for container in (*spec.containers, *lasting):
        for port in container.ports:
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number:
                yield number, port.protocol, port.host_ip or ANY


# --- affinity --------------------------------------------------------------------------------------------------------


def _terms(pod_set: wire.PodSet, *, anti: bool) -> tuple[wire_core.PodAffinityTerm, ...]:
    affinity = pod_set.template.spec.affinity
    rules = None if affinity is None else affinity.pod_anti_affinity if anti else affinity.pod_affinity
    return () if rules is None else rules.required


def _means(term: wire_core.PodAffinityTerm, mine: wire.PodSet, theirs: wire.PodSet, namespace: str) -> bool:
    """Whether a term of `mine` is certain to select the pods of `theirs`.

    Labels that pods get only when they are made are not known: a term that compares by them selects nothing here.
    """
    own, labels = mine.template.metadata.labels, theirs.template.metadata.labels
    return (
        _selects_namespace(term, namespace)
        and all(key in own and labels.get(key) == own[key] for key in term.match_label_keys)
        and all(key in own and labels.get(key) != own[key] for key in term.mismatch_label_keys)
        and selector_matches(term.label_selector, labels)
    )


def _selects_namespace(term: wire_core.PodAffinityTerm, namespace: str) -> bool:
    """Whether the pods of this namespace are meant; labels of a namespace are not looked at."""
    every = term.namespace_selector
    if not term.namespaces and every is None:
        return True
    return namespace in term.namespaces or (
        every is not None and not every.match_labels and not every.match_expressions
    )
