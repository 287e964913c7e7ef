"""Other card types that a waiting workload could name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kqueue.core.node_classes import NodeClass
from kqueue.core.why.changes import OtherCardType
from kqueue.core.workload import Head, PodSet, Snapshot


def other_card_types(head: Head, snapshot: Snapshot) -> Iterator[tuple[OtherCardType, Head]]:
    """Yield each change of the card types of pod sets that get the same flavors, and the head after it.

    Types that the pod sets could get already are left out: without required types, all that are not scarce.
    """
    spec = snapshot.queues.get(head.queue)
    if spec is None:
        return
    flavors = [snapshot.flavors[name] for group in spec.groups for name in group.flavors if name in snapshot.flavors]
    classes = [flavor.node_class for flavor in flavors if flavor.node_class.card_type]
    for pod_sets in _groups(head) if classes else ():
        wanted = pod_sets[0].node_class.required
        names = tuple(pod_set.name for pod_set in pod_sets)
        for card_type in dict.fromkeys(c.card_type for c in classes if _is_other(pod_sets[0], c)):
            yield (
                OtherCardType(pod_sets=names, card_type=card_type, instead_of=wanted),
                _with_type(head, names, card_type),
            )


def _groups(head: Head) -> list[list[PodSet]]:
    groups: dict[str, list[PodSet]] = {}
    for index, pod_set in enumerate(head.pod_sets):
        groups.setdefault(pod_set.request.group or str(index), []).append(pod_set)
    return list(groups.values())


def _is_other(pod_set: PodSet, node_class: NodeClass) -> bool:
    request = pod_set.node_class
    if request.required:
        return node_class.card_type not in request.required
    return node_class.scarce and not request.names_type(node_class.card_type)


def _with_type(head: Head, names: tuple[str, ...], card_type: str) -> Head:
    def changed(pod_set: PodSet) -> PodSet:
        if pod_set.name not in names:
            return pod_set
        return replace(pod_set, node_class=replace(pod_set.node_class, required=(card_type,), preferred=()))

    return replace(head, pod_sets=tuple(map(changed, head.pod_sets)))
