"""Changes that could let a workload start, and their cost for other workloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kqueue.core.mention import Mention
from kqueue.core.node_classes import joined_types
from kqueue.core.quantity import format_quantity
from kqueue.core.quota import FlavorResource
from kqueue.core.topology.result import LevelQuality
from kqueue.core.value import value
from kqueue.core.workload import Admitted

_NAMED = 4
"""The largest number of nodes or workloads named in a sentence."""


@value(kw_only=True)
class NodesReturn:
    """Nodes that are left out now return: (name, `unschedulable` or `notReady`)."""

    nodes: tuple[tuple[str, str], ...]


@value(kw_only=True)
class OtherWish:
    """Pod sets request another level: `required`, or only `preferred`."""

    pod_sets: tuple[str, ...]
    level: str
    required: bool
    instead_of: str


@value(kw_only=True)
class OtherCardType:
    """Pod sets name this card type: `instead_of` others that they require now; empty: they require none."""

    pod_sets: tuple[str, ...]
    card_type: str
    instead_of: tuple[str, ...] = ()


@value(kw_only=True)
class OtherQueue:
    """The workload waits in another LocalQueue (a name) of its namespace, which uses this ClusterQueue."""

    local_queue: str
    queue: str


@value(kw_only=True)
class FewerPods:
    """A pod set has fewer pods."""

    pod_set: str
    count: int
    of: int


@value(kw_only=True)
class QuotaIncrease:
    """An increase of one number in a ClusterQueue's quota.

    Args:
        field: `nominalQuota` or `borrowingLimit`.
        to, instead_of: amounts of the column's resource (cpu in milli, everything else in base units).
    """

    column: FlavorResource
    field: str
    to: int
    instead_of: int


@value(kw_only=True)
class MoreQuota:
    """The workload's ClusterQueue has more quota."""

    queue: str
    increases: tuple[QuotaIncrease, ...]


@value(kw_only=True)
class WorkloadsEnd:
    """These workloads end, or finish leaving; the largest first."""

    workloads: tuple[Admitted, ...]


Change = NodesReturn | OtherWish | OtherCardType | OtherQueue | FewerPods | WorkloadsEnd | MoreQuota


@value(kw_only=True)
class WhatIf:
    """A change with which the planner would start the workload, and the resources that the workload would get.

    Args:
        queue: its ClusterQueue.
        flavors: by pod set.
        before: waiting workloads that would start first and use the resources, so that it starts after them; empty:
            there are none, None: not computed.
        quality: domains used against the fewest possible, of each search for domains.
    """

    change: Change
    queue: str
    flavors: Mapping[str, tuple[str, ...]]
    quality: tuple[tuple[LevelQuality, ...], ...] = ()
    before: tuple[Mention, ...] | None = None

    @property
    def cost(self) -> tuple[int, ...]:
        """Return the cost; smaller is cheaper: first changes without a loss, then losses of the workload itself, then
        losses of others, then grants of an administrator.
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
        case OtherCardType():
            return 1, 2
        case OtherQueue():
            return 2, 0
        case FewerPods(count=count, of=of):
            return 3, of - count
        case WorkloadsEnd(workloads=workloads):
            return 4, len(workloads), max(w.priority for w in workloads), sum(map(size, workloads))
        case MoreQuota(increases=increases):
            return 5, len(increases)


def size(workload: Admitted) -> int:
    """Return the size of a workload for comparisons: its number of pods on hosts, or its quota usage if it has no
    hosts.
    """
    pods = sum(usage.count for domains in workload.domains.values() for usage in domains)
    return pods or sum(workload.usage.values())


def condition_for(change: Change, may_name: Callable[[Admitted], bool] = lambda workload: True) -> str:
    """Return the change as the second half of "it would start if"; workloads that may not be named are of other
    namespaces.
    """
    match change:
        case NodesReturn(nodes=nodes):
            return _nodes(nodes)
        case OtherWish() as wish:
            which = _pod_sets(wish.pod_sets)
            if wish.required:
                return f"{which} required one domain of level {wish.level} instead of {wish.instead_of}"
            return f"{which} only preferred level {wish.level} instead of requiring it"
        case OtherCardType():
            instead = f" instead of {joined_types(change.instead_of)}" if change.instead_of else ""
            return f"{_pod_sets(change.pod_sets)} named card type {change.card_type}{instead}"
        case OtherQueue():
            return f"it waited in LocalQueue {change.local_queue} (ClusterQueue {change.queue})"
        case FewerPods():
            return f"pod set {change.pod_set} had {change.count} pods instead of {change.of}"
        case MoreQuota():
            return f"ClusterQueue {change.queue} had {' and '.join(map(_increase, change.increases))}"
        case WorkloadsEnd(workloads=workloads):
            return _ends(workloads, may_name)


def _pod_sets(names: Sequence[str]) -> str:
    return f"pod set{'s' if len(names) > 1 else ''} {' and '.join(names)}"


def _increase(one: QuotaIncrease) -> str:
    to, instead_of = (format_quantity(amount, one.column.resource) for amount in (one.to, one.instead_of))
    return f"a {one.field} of {to} instead of {instead_of} for {one.column}"


def _nodes(nodes: Sequence[tuple[str, str]]) -> str:
    cordoned = [node for node, reason in nodes if reason == "unschedulable"]
    broken = [node for node, reason in nodes if reason != "unschedulable"]
    parts = [_listed(broken, "node", "became ready")] if broken else []
    if cordoned:
        parts.append(_listed(cordoned, "node", "were uncordoned", "was uncordoned"))
    return " and ".join(parts)


def _ends(workloads: Sequence[Admitted], may_name: Callable[[Admitted], bool]) -> str:
    names = [workload.key for workload in workloads if may_name(workload)]
    hidden = len(workloads) - len(names)
    verbs = ("ended", "ended")
    if all(workload.evicted for workload in workloads):
        verbs = ("that is leaving had left", "that are leaving had left")
    if not hidden:
        return _listed(names, "workload", verbs[1], verbs[0])
    if not names:
        who = "a workload of another namespace" if hidden == 1 else f"{hidden} workloads of other namespaces"
        return f"{who} {verbs[hidden > 1]}"
    named, rest = names[:_NAMED], max(0, len(names) - _NAMED)
    others = f"{hidden} of other namespaces"
    more = f"{', '.join(named)}, {rest} more and {others}" if rest else f"{', '.join(named)} and {others}"
    return f"{len(workloads)} workloads ({more}) {verbs[1]}"


def _listed(names: Sequence[str], noun: str, verb: str, verb_of_one: str | None = None) -> str:
    """Return a part of a sentence: `node a was uncordoned`, `2 nodes (a, b) were uncordoned`."""
    if len(names) == 1:
        return f"{noun} {names[0]} {verb_of_one or verb}"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{len(names)} {noun}s ({', '.join(names[:_NAMED])}{more}) {verb}"


def facts(change: Change) -> dict[str, Any]:
    """Return the change for programs, without the workloads that end: their names depend on the user's rights."""
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
        case OtherCardType():
            return {
                "kind": "OtherCardType",
                "podSets": list(change.pod_sets),
                "cardType": change.card_type,
                "insteadOf": list(change.instead_of),
            }
        case OtherQueue():
            return {"kind": "OtherQueue", "localQueue": change.local_queue, "clusterQueue": change.queue}
        case FewerPods():
            return {"kind": "FewerPods", "podSet": change.pod_set, "count": change.count, "insteadOf": change.of}
        case MoreQuota():
            quotas = [
                {
                    "flavor": one.column.flavor,
                    "resource": one.column.resource,
                    one.field: format_quantity(one.to, one.column.resource),
                    "insteadOf": format_quantity(one.instead_of, one.column.resource),
                }
                for one in change.increases
            ]
            return {"kind": "MoreQuota", "clusterQueue": change.queue, "quotas": quotas}
        case WorkloadsEnd(workloads=workloads):
            return {"kind": "WorkloadsEnd", "count": len(workloads)}
