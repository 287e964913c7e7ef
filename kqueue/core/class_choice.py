"""How node classes restrict and order the flavors of a pod set.

Nothing here depends on usage.  Pod sets that name no class meet one rule: scarce and private flavors are not for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kqueue.core.explain import Blocker, BlockerKind, WaitReason
from kqueue.core.node_classes import NodeClass, joined_types
from kqueue.core.topology.node import NodeRules
from kqueue.core.value import value
from kqueue.core.workload import Flavor, PodSet, QueueSpec, ResourceGroup, Snapshot

Flavors = Mapping[str, Flavor]
"""The ResourceFlavors of a snapshot, by name."""


@value()
class ClassFault:
    """A request for a class that no flavor of the ClusterQueue can ever meet."""

    reason: WaitReason
    blocker: Blocker


def class_blocker(pod_set: PodSet, flavor: Flavor, group: ResourceGroup, flavors: Flavors) -> Blocker | None:
    """Return why the class of a flavor keeps the pod set out; None: it does not.

    `group` is the flavor's resource group: card types and private groups concern groups that have such flavors.
    """
    why = _type_problem(pod_set, flavor, group, flavors) or _private_problem(pod_set, flavor, group, flavors)
    why = why or _scarce_problem(pod_set, flavor)
    if not why:
        return None
    return Blocker(kind=BlockerKind.FLAVOR_CLASS, pod_set=pod_set.name, flavor=flavor.name, detail=why)


def _type_problem(pod_set: PodSet, flavor: Flavor, group: ResourceGroup, flavors: Flavors) -> str:
    wanted, card_type = pod_set.node_class.required, flavor.node_class.card_type
    if not wanted or card_type in wanted or not any(c.card_type for c in _classes(group, flavors)):
        return ""
    has = f"has card type {card_type}" if card_type else "has no card type"
    return f"{has}, wanted is {joined_types(wanted)}"


def _private_problem(pod_set: PodSet, flavor: Flavor, group: ResourceGroup, flavors: Flavors) -> str:
    wanted, private = pod_set.node_class.private, flavor.node_class.private_group
    if private == wanted:
        return ""
    if private:
        return f"is private to group {private}"
    return f"is not of private group {wanted}" if _has_private(group, wanted, flavors) else ""


def _scarce_problem(pod_set: PodSet, flavor: Flavor) -> str:
    node_class = flavor.node_class
    if not node_class.scarce or pod_set.node_class.names_type(node_class.card_type):
        return ""
    if _selects(pod_set.request.rules, flavor.node_labels):
        return ""
    return f"is kept for pods that name card type {node_class.card_type}"


def _selects(rules: NodeRules, labels: Mapping[str, str]) -> bool:
    """Whether the node selector, or an expression of the required node affinity, names one of the labels."""
    if any(labels.get(key) == wanted for key, wanted in rules.selector):
        return True
    expressions = [expression for term in rules.required or () for expression in term.expressions]
    return any(e.operator == "In" and labels.get(e.key) in e.values for e in expressions)


# --- the whole ClusterQueue ------------------------------------------------------------------------------------------


def class_fault(
    pod_set: PodSet, asked: Iterable[str], others: Sequence[PodSet], spec: QueueSpec, flavors: Flavors
) -> ClassFault | None:
    """Return why no flavor of the ClusterQueue can be of the requested class; None: some can.

    `asked` are the resources that the pod set requests; `others` are all pod sets of the workload: where one of them
    requests a resource with classes, an inherited request has no effect on the pod sets that request none.
    """
    request, asked = pod_set.node_class, frozenset(asked)
    fault = None
    if request.required:
        fault = _missing_type(pod_set, spec, flavors)
        typed = [g for g in spec.groups if any(c.card_type for c in _classes(g, flavors))]
        what, which = f"card type {joined_types(request.required)}", "flavors with card types"
        fault = fault or _asks_elsewhere(pod_set, asked, others, typed, what, which)
    if fault is None and request.private:
        private = [g for g in spec.groups if _has_private(g, request.private, flavors)]
        if not private:
            return _no_flavor(pod_set, f"ClusterQueue {spec.name} has no machines of private group {request.private}")
        what, which = f"private group {request.private}", "flavors of the group"
        fault = _asks_elsewhere(pod_set, asked, others, private, what, which)
    return fault


def _missing_type(pod_set: PodSet, spec: QueueSpec, flavors: Flavors) -> ClassFault | None:
    known = dict.fromkeys(c.card_type for group in spec.groups for c in _classes(group, flavors) if c.card_type)
    wanted = pod_set.node_class.required
    if not known.keys().isdisjoint(wanted):
        return None
    has = f"it has {', '.join(known)}" if known else "none of its flavors has a card type"
    return _no_flavor(pod_set, f"ClusterQueue {spec.name} has no flavor of card type {joined_types(wanted)}; {has}")


def _asks_elsewhere(
    pod_set: PodSet,
    asked: frozenset[str],
    others: Sequence[PodSet],
    groups: Sequence[ResourceGroup],
    what: str,
    which: str,
) -> ClassFault | None:
    resources = [resource for group in groups for resource in group.resources]
    if not asked.isdisjoint(resources):
        return None
    if pod_set.node_class.inherited and any(not other.quota_requests.keys().isdisjoint(resources) for other in others):
        return None
    detail = f"names {what} and requests none of {', '.join(resources)}, which {which} have"
    blocker = Blocker(kind=BlockerKind.REQUESTS, pod_set=pod_set.name, detail=detail)
    return ClassFault(WaitReason.MISCONFIGURED, blocker)


def _no_flavor(pod_set: PodSet, detail: str) -> ClassFault:
    blocker = Blocker(kind=BlockerKind.FLAVOR_CLASS, pod_set=pod_set.name, detail=detail)
    return ClassFault(WaitReason.NO_MATCHING_FLAVOR, blocker)


# --- order -----------------------------------------------------------------------------------------------------------


def order_of(pod_sets: Sequence[PodSet], group: ResourceGroup, snapshot: Snapshot) -> list[int]:
    """Return the indexes of a group's flavors in the order of tries: preferred card types first, in their order.

    Pod sets that get the same flavors follow the first one with a preference; flavors of one rank keep their order.
    """
    preferred = next((p.node_class.preferred for p in pod_sets if p.node_class.preferred), ())
    ranks = {card_type: rank for rank, card_type in enumerate(preferred)}
    types = [snapshot.flavors[name].node_class.card_type if name in snapshot.flavors else "" for name in group.flavors]
    return sorted(range(len(types)), key=lambda index: ranks.get(types[index], len(ranks)))


def _classes(group: ResourceGroup, flavors: Flavors) -> list[NodeClass]:
    return [flavors[name].node_class for name in group.flavors if name in flavors]


def _has_private(group: ResourceGroup, private: str, flavors: Flavors) -> bool:
    return any(node_class.private_group == private for node_class in _classes(group, flavors))
