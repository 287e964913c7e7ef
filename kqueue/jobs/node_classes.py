"""Annotations and labels of jobs and pod templates that name a node class, and the tolerations of a flavor's class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kqueue.api import names
from kqueue.api.wire.meta import ObjectMeta
from kqueue.core.node_classes import CARD_TYPES_RULE, parse_card_types
from kqueue.errors import FieldError
from kqueue.jobs.fields import JSON, annotations_of, labels_of

_ANNOTATIONS = (names.CARD_TYPE_ANNOTATION, names.CARD_TYPE_PREFERRED_ANNOTATION)
_KEYS = frozenset({*_ANNOTATIONS, names.PRIVATE_GROUP_LABEL})
_PREBUILT = frozenset({names.PREBUILT_WORKLOAD_NAME_ANNOTATION, names.PREBUILT_WORKLOAD_NAME_LABEL})


def class_annotations(owner: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotations that name a class, right or wrong."""
    own = annotations_of(owner)
    return {key: own[key] for key in _ANNOTATIONS if key in own}


def class_labels(owner: Mapping[str, Any]) -> dict[str, str]:
    """Return the label that names a private group, if it is there."""
    own = labels_of(owner)
    return {names.PRIVATE_GROUP_LABEL: own[names.PRIVATE_GROUP_LABEL]} if names.PRIVATE_GROUP_LABEL in own else {}


def keys(owner: Mapping[str, Any]) -> dict[str, str]:
    """Return all keys of an object that name a class, with their values."""
    return {**class_annotations(owner), **class_labels(owner)}


def metadata(pod: Mapping[str, Any]) -> JSON:
    """Return metadata with these annotations and labels alone; empty for a pod that names no class."""
    found: JSON = {}
    if class_labels(pod):
        found["labels"] = class_labels(pod)
    if class_annotations(pod):
        found["annotations"] = class_annotations(pod)
    return found


def handed_on(owner: Mapping[str, Any], workload: ObjectMeta) -> JSON:
    """Return the merge patch that gives a Workload the class of its owner; empty: it has the class already.

    Keys that the owner lacks are taken off.  A Workload that was made beforehand keeps its own.
    """
    patch: JSON = {}
    if _KEYS.isdisjoint({*class_annotations(owner), *class_labels(owner), *workload.annotations, *workload.labels}):
        return patch
    if not _PREBUILT.isdisjoint({*annotations_of(owner), *labels_of(owner)}):
        return patch
    for part, wanted, had in (
        ("annotations", class_annotations(owner), workload.annotations),
        ("labels", class_labels(owner), workload.labels),
    ):
        changed = {key: wanted.get(key) for key in _KEYS if wanted.get(key) != had.get(key)}
        if changed:
            patch[part] = changed
    return {"metadata": patch} if patch else {}


def tolerations(flavor: Mapping[str, Any]) -> Iterator[JSON]:
    """Yield the tolerations of the taints that the nodes of a scarce or private flavor carry."""
    from kqueue import model  # imports numpy, which webhooks do not need
    from kqueue.model.node_classes import class_tolerations

    for found in class_tolerations(model.node_class(annotations_of(flavor))):
        yield {"key": found.key, "operator": found.operator, "value": found.value, "effect": found.effect}


def problems(owner: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield a mistake for each list of card types that cannot be read; `path` is that of the metadata."""
    for key, written in class_annotations(owner).items():
        if parse_card_types(written) is None:
            yield FieldError(f"{path}.annotations[{key}]", CARD_TYPES_RULE, written)
