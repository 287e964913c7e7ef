"""Flavors and domains of pods that run: read from their nodes, and checked against what the pod sets request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from kqueue.core.topology import HOSTNAME, Domain, TopologyAssignment
from kqueue.core.workload import PodSet
from kqueue.jobs.fields import objects, strings, text
from kqueue.kube import names as kube_names
from kqueue.operations.importing.refusal import RefusalError

Object = Mapping[str, Any]
NodeLabels = Mapping[str, Mapping[str, str]]


def node_of(pod: Object) -> str:
    """Return the name of the pod's node; empty: it has none."""
    return text(pod, "spec", "nodeName")


def flavors_of(
    pods: Sequence[Object], usage: Mapping[str, int], queue: Object, flavors: Mapping[str, Object], nodes: NodeLabels
) -> dict[str, str]:
    """Return, for each resource that needs quota, the first flavor of its group whose labels all nodes of the pods
    have; the first of all for pods without nodes.

    Raises:
        RefusalError: the ClusterQueue does not list a resource, or no flavor of a group matches the nodes.
    """
    name = queue["metadata"]["name"]
    found: dict[str, str] = {}
    for group in objects(queue, "spec", "resourceGroups"):
        covered = group["coveredResources"]
        asked = [r for r in covered if usage.get(r) or r == kube_names.PODS_RESOURCE]
        if asked:
            listed = [text(one, "name") for one in objects(group, "flavors")]
            missing = [one for one in listed if one not in flavors]
            if missing:
                raise RefusalError(f"ClusterQueue {name} lists ResourceFlavor {missing[0]}, which does not exist")
            found |= dict.fromkeys(asked, _flavor(pods, listed, flavors, nodes))
    lacking = sorted(r for r, amount in usage.items() if amount and r not in found)
    if lacking:
        raise RefusalError(f"ClusterQueue {name} has no quota for {', '.join(lacking)}")
    return found


def _flavor(pods: Sequence[Object], listed: Sequence[str], flavors: Mapping[str, Object], nodes: NodeLabels) -> str:
    used = sorted({node_of(pod) for pod in pods} - {""})
    if not used:
        return listed[0]
    fitting = {node: [one for one in listed if _has(nodes.get(node, {}), flavors[one])] for node in used}
    for node, some in fitting.items():
        if not some:
            raise RefusalError(f"its node {node} has the labels of no flavor in {', '.join(listed)}")
    common = [one for one in listed if all(one in some for some in fitting.values())]
    if common:
        return common[0]
    where = ", ".join(f"{node} ({some[0]})" for node, some in _unlike(fitting))
    raise RefusalError(f"its pods run on nodes of several flavors: {where}; a pod set has one")


def _unlike(fitting: Mapping[str, list[str]]) -> list[tuple[str, list[str]]]:
    """Return one node of each first flavor."""
    return list({some[0]: (node, some) for node, some in fitting.items()}.values())


def _has(labels: Mapping[str, str], flavor: Object) -> bool:
    return strings(flavor, "spec", "nodeLabels").items() <= labels.items()


class NodePlaces:
    """The domains of the pods of one workload."""

    def __init__(self, flavors: Mapping[str, Object], topologies: Mapping[str, Object], nodes: NodeLabels) -> None:
        self._flavors, self._topologies, self._nodes = flavors, topologies, nodes
        self._groups: dict[tuple[str, str], tuple[str, ...]] = {}
        """The domain in which the pods of a group of pod sets run, by the group and its required level."""

    def of(self, pod_set: PodSet, pods: Sequence[Object], flavors: Mapping[str, str]) -> TopologyAssignment | None:
        """Return where the pods run; None for a pod set that asks for no topology: its pods count on their nodes as
        foreign ones, and those that follow them, too.

        Raises:
            RefusalError: the pods are not where the request says, or where they are is not known.
        """
        if not pod_set.asks_topology:
            return None
        if len(pods) != pod_set.request.count:
            raise RefusalError(
                f"pod set {pod_set.name} asks for a topology, and the places of its pods that have ended are not known"
            )
        levels = self._levels(pod_set, flavors)
        paths = [self._path(node_of(pod), levels) for pod in pods]
        self._check(pod_set, levels, paths)
        written = levels[-1:] if levels[-1] == HOSTNAME else levels
        counted = sorted(Counter(paths).items())
        return TopologyAssignment(written, tuple(Domain(path[-len(written) :], count) for path, count in counted))

    def _levels(self, pod_set: PodSet, flavors: Mapping[str, str]) -> tuple[str, ...]:
        names = {text(self._flavors[flavor], "spec", "topologyName") for flavor in flavors.values()} - {""}
        if not names:
            said = ", ".join(sorted(set(flavors.values())))
            raise RefusalError(f"pod set {pod_set.name} asks for a topology, and flavor {said} has none")
        if len(names) > 1:
            raise RefusalError(f"pod set {pod_set.name} would have two topologies: {', '.join(sorted(names))}")
        name = names.pop()
        levels = tuple(text(one, "nodeLabel") for one in objects(self._topologies.get(name, {}), "spec", "levels"))
        if not levels:
            raise RefusalError(f"Topology {name}, which its flavor names, does not exist")
        return levels

    def _path(self, node: str, levels: Sequence[str]) -> tuple[str, ...]:
        labels = self._nodes.get(node, {})
        missing = next((level for level in levels if not labels.get(level)), None)
        if missing is not None:
            raise RefusalError(f"its node {node or '(none)'} lacks the label {missing}, a level of its topology")
        return tuple(labels[level] for level in levels)

    def _check(self, pod_set: PodSet, levels: tuple[str, ...], paths: Sequence[tuple[str, ...]]) -> None:
        """Refuse places that the request forbids: `required` is one domain, also for all pod sets of a group, and the
        pods of a slice are in one domain of the slice's level.
        """
        wish = pod_set.request.topology
        if wish.required:
            depth = _depth(wish.required, levels)
            domains = {path[:depth] for path in paths}
            if pod_set.request.group:
                known = self._groups.setdefault((pod_set.request.group, wish.required), min(domains, default=()))
                domains.add(known)
            if len(domains) > 1:
                some = " and ".join("/".join(domain) for domain in sorted(domains)[:2])
                raise RefusalError(
                    f"pod set {pod_set.name} requires one domain of level {wish.required}, and its pods run in {some}"
                )
        for layer in wish.slices:
            depth = _depth(layer.level, levels)
            for domain, count in sorted(Counter(path[:depth] for path in paths).items()):
                if count % layer.size:
                    raise RefusalError(
                        f"pod set {pod_set.name} has slices of {layer.size} pods in one domain of level {layer.level}, "
                        f"and {count} run in {'/'.join(domain)}"
                    )


def _depth(level: str, levels: Sequence[str]) -> int:
    """Return the number of levels down to this one."""
    if level not in levels:
        raise RefusalError(f"it asks for the level {level}, which its topology does not have")
    return levels.index(level) + 1
