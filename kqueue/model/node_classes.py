"""Node classes in objects: annotations of ResourceFlavors, annotations and labels of pod templates and Workloads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.core import TemplateMeta
from kqueue.api.wire.meta import ObjectMeta
from kqueue.core.node_classes import (
    CARD_TYPES_RULE,
    NO_CLASS_REQUEST,
    NO_NODE_CLASS,
    ClassRequest,
    NodeClass,
    is_card_type,
    parse_card_types,
)
from kqueue.kube.taints import Taint, Toleration

Metadata = TemplateMeta | ObjectMeta
_TYPES = (names.CARD_TYPE_ANNOTATION, names.CARD_TYPE_PREFERRED_ANNOTATION)
_NO_SCHEDULE = "NoSchedule"


# --- of flavors ------------------------------------------------------------------------------------------------------


def node_class(annotations: Mapping[str, str]) -> NodeClass:
    """Return the class of a flavor by its annotations.  Values that cannot be a card type or a group do not count."""
    card_type = annotations.get(names.CARD_TYPE_ANNOTATION, "")
    private = annotations.get(names.PRIVATE_GROUP_LABEL, "")
    if not card_type and not private:
        return NO_NODE_CLASS
    card_type = card_type if is_card_type(card_type) else ""
    return NodeClass(
        card_type=card_type,
        scarce=bool(card_type) and annotations.get(names.SCARCE_ANNOTATION) == "true",
        private_group=private if is_card_type(private) else "",
    )


def class_taints(flavor: NodeClass) -> tuple[Taint, ...]:
    """Return the taints that keep other pods off the nodes of a flavor; empty unless it is scarce or private."""
    found = []
    if flavor.scarce:
        found.append(Taint(names.CARD_TYPE_ANNOTATION, flavor.card_type, _NO_SCHEDULE))
    if flavor.private_group:
        found.append(Taint(names.PRIVATE_GROUP_LABEL, flavor.private_group, _NO_SCHEDULE))
    return tuple(found)


def class_tolerations(flavor: NodeClass) -> tuple[Toleration, ...]:
    """Return the tolerations of these taints, which pods get with the flavor."""
    return tuple(Toleration(taint.key, "Equal", taint.value, taint.effect) for taint in class_taints(flavor))


# --- of pod sets -----------------------------------------------------------------------------------------------------


def class_request(template: TemplateMeta, workload: ObjectMeta) -> ClassRequest:
    """Return the class that a pod set requests.

    Each key counts for itself: the template's value, else the Workload's.  Lists that cannot be read do not count.
    """
    required, own_required = _value(template, workload, names.CARD_TYPE_ANNOTATION)
    preferred, own_preferred = _value(template, workload, names.CARD_TYPE_PREFERRED_ANNOTATION)
    private = template.labels.get(names.PRIVATE_GROUP_LABEL) or workload.labels.get(names.PRIVATE_GROUP_LABEL, "")
    if required is None and preferred is None and not private:
        return NO_CLASS_REQUEST
    own = own_required or own_preferred or names.PRIVATE_GROUP_LABEL in template.labels
    return ClassRequest(
        required=parse_card_types(required) or () if required is not None else (),
        preferred=parse_card_types(preferred) or () if preferred is not None else (),
        private=private,
        inherited=not own,
    )


def _value(template: TemplateMeta, workload: ObjectMeta, key: str) -> tuple[str | None, bool]:
    """Return the value of an annotation, and whether it is the template's own; None: neither has it."""
    own = template.annotations.get(key)
    return (workload.annotations.get(key), False) if own is None else (own, True)


def class_requests(obj: wire.Workload) -> list[tuple[object, ...]]:
    """Return what distinguishes workloads by their class requests, per pod set; empty for workloads without any."""
    found = [(p.name, class_request(p.template.metadata, obj.metadata)) for p in obj.spec.pod_sets]
    if all(request is NO_CLASS_REQUEST for _, request in found):
        return []
    return [(name, r.required, r.preferred, r.private, r.inherited) for name, r in found]


def class_problem(obj: wire.Workload) -> str:
    """Return the card types of a Workload that cannot be read, with their paths; empty: all can."""
    found = [*_problems(obj.metadata, "metadata")]
    for index, pod_set in enumerate(obj.spec.pod_sets):
        found += _problems(pod_set.template.metadata, f"spec.podSets[{index}].template.metadata")
    return "; ".join(found)


def _problems(metadata: Metadata, path: str) -> Iterator[str]:
    for key in _TYPES:
        written = metadata.annotations.get(key)
        if written is not None and parse_card_types(written) is None:
            yield f"{path}.annotations[{key}]: {CARD_TYPES_RULE} (found {written!r})"
