"""Reads topology, flavor, nodes and usage."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kqueue.api.names import TOPOLOGY_MARKER_ANNOTATIONS
from kqueue.core.topology import HOSTNAME, PODS, DomainUsage, NodeFacts, Taint
from kqueue.placing.fields import Fields, Problems, quoted
from kqueue.placing.parts import EFFECTS, quantities, tolerations, written_values
from kqueue.placing.values import FlavorNodes

_MOST_LEVELS = 16
_PHASES = ("", "Pending", "Running", "Succeeded", "Failed", "Unknown")
_TERMINAL = ("Succeeded", "Failed")


def cluster(problems: Problems, document: Fields) -> FlavorNodes:
    """Read the cluster of a placement."""
    name, levels = "default", tuple[str, ...]()
    if document.require("topology", "an object with levels"):
        name, levels = _topology(problems, document)
    flavor = problems.fields(
        document.value("flavor", {}), document.path("flavor"), ("name", "nodeLabels", "tolerations")
    )
    document.require("nodes", "a list of nodes")
    nodes = tuple([_node(problems, path, item) for path, item in document.items("nodes")])
    _check_names(problems, document, nodes)
    usage = problems.fields(document.value("usage", {}), document.path("usage"), ("pods", "tas", "otherFlavors"))
    hostname = bool(levels) and levels[-1] == HOSTNAME
    width = (1 if hostname else len(levels)) if levels else None
    return FlavorNodes(
        topology=name,
        flavor=flavor.text("name", "default"),
        levels=levels,
        node_labels=flavor.labels("nodeLabels"),
        tolerations=tolerations(problems, flavor, "tolerations"),
        nodes=nodes,
        foreign=_foreign(problems, usage, {node.name for node in nodes}),
        usage=tuple([_usage(problems, path, item, width) for path, item in usage.items("tas")]),
        other_usage=tuple(
            # other flavors may have other levels; if leaves are hosts, usage of other flavors counts on the same hosts
            [_usage(problems, path, item, 1 if hostname else None) for path, item in usage.items("otherFlavors")]
        ),
    )


def _topology(problems: Problems, document: Fields) -> tuple[str, tuple[str, ...]]:
    """Return name and levels; no levels if they are invalid."""
    fields = problems.fields(document.value("topology"), document.path("topology"), ("name", "levels"))
    name = fields.text("name", "default")
    before = len(problems.found)
    if not fields.require("levels", "a list of node label keys, widest first,"):
        return name, ()
    levels = fields.texts("levels")
    if len(problems.found) == before and not 1 <= len(levels) <= _MOST_LEVELS:
        problems.add(fields.path("levels"), f"expected 1 to {_MOST_LEVELS} levels, found {len(levels)}")
    for i, (path, level) in enumerate(problems.items(fields.value("levels", []), fields.path("levels"))):
        if not isinstance(level, str):
            continue
        if not level:
            problems.add(path, "a level is the key of a node label and cannot be empty")
        elif level.startswith("x-"):
            problems.add(path, "keys that start with x- are notes and cannot be a level")
        elif level in levels[:i]:
            problems.add(path, f"the levels go from the widest to the narrowest, and {level} is there already")
        elif level == HOSTNAME and i + 1 < len(levels):
            problems.add(path, f"nothing is narrower than {HOSTNAME}: it can only be the last level")
    return name, levels if len(problems.found) == before else ()


def _node(problems: Problems, path: str, item: Any) -> NodeFacts:
    fields = problems.fields(item, path, ("name", "labels", "allocatable", "taints", "unschedulable", "ready"))
    fields.require("name", "the name of the node")
    return NodeFacts(
        name=fields.text("name"),
        labels=fields.labels("labels"),
        allocatable=quantities(problems, fields, "allocatable"),
        taints=tuple([_taint(problems, where, taint) for where, taint in fields.items("taints")]),
        unschedulable=fields.flag("unschedulable"),
        ready=fields.flag("ready", True),
    )


def _taint(problems: Problems, path: str, item: Any) -> Taint:
    fields = problems.fields(item, path, ("key", "value", "effect"))
    fields.require("key", "the key of the taint")
    if fields.require("effect", " or ".join(EFFECTS)):
        fields.choice("effect", EFFECTS, EFFECTS[0])
    effect = fields.value("effect")
    return Taint(fields.text("key"), fields.optional_text("value") or "", str(effect))


def _check_names(problems: Problems, document: Fields, nodes: tuple[NodeFacts, ...]) -> None:
    seen: set[str] = set()
    for i, node in enumerate(nodes):
        if node.name in seen and node.name:
            problems.add(
                f"{document.path('nodes')}/{i}/name",
                f"there is another node of the name {node.name}: give each its own",
            )
        seen.add(node.name)


def _foreign(problems: Problems, usage: Fields, names: Collection[str]) -> dict[str, dict[str, int]]:
    """Return usage per node of running pods that topology did not place."""
    taken: dict[str, dict[str, int]] = {}
    for path, item in usage.items("pods"):
        fields = problems.fields(item, path, ("node", "requests", "phase", "annotations", "name"))
        fields.require("node", "the name of a node")
        fields.require("requests", "an object of quantities")
        fields.text("name")
        node, phase = fields.text("node"), fields.choice("phase", _PHASES, "Running")
        requests, annotations = quantities(problems, fields, "requests"), fields.labels("annotations")
        if not node or phase in _TERMINAL or not TOPOLOGY_MARKER_ANNOTATIONS.isdisjoint(annotations):
            continue
        if node not in names:
            problems.remark(
                fields.path("node"),
                f"nodes has no {quoted(node)}: what this pod takes does not count; correct the name, or leave the "
                "pod out",
            )
        amounts = taken.setdefault(node, {})
        requests[PODS] = requests.get(PODS, 0) + 1
        for resource, amount in requests.items():
            amounts[resource] = amounts.get(resource, 0) + amount
    return taken


def _usage(problems: Problems, path: str, item: Any, width: int | None) -> DomainUsage:
    fields = problems.fields(item, path, ("values", "requests", "count", "workload"))
    fields.require("requests", "an object of quantities")
    fields.require("count", "a number of pods")
    fields.text("workload")
    return DomainUsage(
        written_values(problems, fields, "values", width, "one for each written level"),
        quantities(problems, fields, "requests"),
        fields.integer("count", 0, least=0),
    )
