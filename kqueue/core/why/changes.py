"""What could be different, and what that would cost whom."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kqueue.core.topology.result import LevelQuality
from kqueue.core.value import value
from kqueue.core.workload import Admitted

_NAMED = 4
"""So many nodes or workloads are named in a sentence."""


@value(kw_only=True)
class NodesReturn:
    """Nodes that are there and left out take pods again: (name, `unschedulable` or `notReady`)."""

    nodes: tuple[tuple[str, str], ...]


@value(kw_only=True)
class OtherWish:
    """Pod sets ask for another level: `required`, or only `preferred`."""

    pod_sets: tuple[str, ...]
    level: str
    required: bool
    instead_of: str


@value(kw_only=True)
class OtherQueue:
    """The workload waits in another LocalQueue (a name) of its namespace, of this ClusterQueue."""

    local_queue: str
    queue: str


@value(kw_only=True)
class FewerPods:
    """A pod set has fewer pods."""

    pod_set: str
    count: int
    of: int


@value(kw_only=True)
class WorkloadsEnd:
    """These workloads end, or leave; the largest first."""

    workloads: tuple[Admitted, ...]


Change = NodesReturn | OtherWish | OtherQueue | FewerPods | WorkloadsEnd


@value(kw_only=True)
class WhatIf:
    """A change with which the workload would start, as the planner says, and what it would get then.

    Args:
        queue: its ClusterQueue.
        flavors: by pod set.
        quality: domains used against the fewest possible, of each search for domains.
    """

    change: Change
    queue: str
    flavors: Mapping[str, tuple[str, ...]]
    quality: tuple[tuple[LevelQuality, ...], ...] = ()

    @property
    def cost(self) -> tuple[int, ...]:
        """The smaller, the cheaper: first what nobody loses anything by, then what the workload itself gives up, then
        what others give up.
        """
        return _cost(self.change)


def _cost(change: Change) -> tuple[int, ...]:
    match change:
        case NodesReturn(nodes=nodes):
            return 0, len(nodes)
        case WorkloadsEnd(workloads=workloads) if all(workload.evicted for workload in workloads):
            return 0, len(workloads)
        case OtherWish(required=required):
            return 1, required  # to prefer the level leaves the choice with the planner
        case OtherQueue():
            return 2, 0
        case FewerPods(count=count, of=of):
            return 3, of - count
        case WorkloadsEnd(workloads=workloads):
            return 4, len(workloads), max(w.priority for w in workloads), sum(map(size, workloads))


def size(workload: Admitted) -> int:
    """How much a workload holds, to compare it with others: pods that stand on hosts, else what it holds of quota."""
    pods = sum(usage.count for domains in workload.domains.values() for usage in domains)
    return pods or sum(workload.usage.values())


def condition_for(change: Change, name: Callable[[Admitted], str] = lambda workload: workload.key) -> str:
    """The change as the second half of "it would start if"; `name` says what to call a workload."""
    match change:
        case NodesReturn(nodes=nodes):
            return _nodes(nodes)
        case OtherWish() as wish:
            which = f"pod set{'s' if len(wish.pod_sets) > 1 else ''} {' and '.join(wish.pod_sets)}"
            if wish.required:
                return f"{which} required one domain of level {wish.level} instead of {wish.instead_of}"
            return f"{which} only preferred level {wish.level} instead of requiring it"
        case OtherQueue():
            return f"it waited in LocalQueue {change.local_queue} (ClusterQueue {change.queue})"
        case FewerPods():
            return f"pod set {change.pod_set} had {change.count} pods instead of {change.of}"
        case WorkloadsEnd(workloads=workloads):
            return _ends(workloads, name)


def _nodes(nodes: Sequence[tuple[str, str]]) -> str:
    cordoned = [node for node, reason in nodes if reason == "unschedulable"]
    broken = [node for node, reason in nodes if reason != "unschedulable"]
    parts = [_listed(broken, "node", "became ready")] if broken else []
    if cordoned:
        parts.append(_listed(cordoned, "node", "were uncordoned", "was uncordoned"))
    return " and ".join(parts)


def _ends(workloads: Sequence[Admitted], name: Callable[[Admitted], str]) -> str:
    called = [name(workload) for workload in workloads]
    if all(workload.evicted for workload in workloads):
        return _listed(called, "workload", "that are leaving had left", "that is leaving had left")
    return _listed(called, "workload", "ended")


def _listed(names: Sequence[str], noun: str, verb: str, verb_of_one: str | None = None) -> str:
    """`node a was uncordoned`, `2 nodes (a, b) were uncordoned`."""
    if len(names) == 1:
        return f"{noun} {names[0]} {verb_of_one or verb}"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{len(names)} {noun}s ({', '.join(names[:_NAMED])}{more}) {verb}"


def facts(change: Change) -> dict[str, Any]:
    """The change for programs, without the workloads that end: who may be named depends on who asks."""
    match change:
        case NodesReturn(nodes=nodes):
            return {"kind": "NodesReturn", "nodes": [{"name": node, "now": reason} for node, reason in nodes]}
        case OtherWish():
            return {
                "kind": "OtherTopologyRequest",
                "podSets": list(change.pod_sets),
                "required" if change.required else "preferred": change.level,
                "insteadOf": change.instead_of,
            }
        case OtherQueue():
            return {"kind": "OtherQueue", "localQueue": change.local_queue, "clusterQueue": change.queue}
        case FewerPods():
            return {"kind": "FewerPods", "podSet": change.pod_set, "count": change.count, "insteadOf": change.of}
        case WorkloadsEnd(workloads=workloads):
            return {"kind": "WorkloadsEnd", "count": len(workloads)}
