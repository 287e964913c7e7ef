"""Check the annotations of ResourceFlavors, jobs and pod templates that name node classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kqueue.api import names
from kqueue.core.node_classes import is_card_type
from kqueue.errors import FieldError
from kqueue.jobs.fields import JSON, annotations_of, mapping
from kqueue.jobs.node_classes import problems
from webhooks.templates import places

_NOT_EMPTY = "must be a label value that is not empty: at most 63 letters, digits, '-', '_' and '.'"


def _path(key: str) -> str:
    return f"metadata.annotations[{key}]"


def flavor_problems(flavor: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield every mistake in the class of a ResourceFlavor."""
    own = annotations_of(flavor)
    for key in (names.CARD_TYPE_ANNOTATION, names.PRIVATE_GROUP_LABEL):
        if key in own and not is_card_type(own[key]):
            yield FieldError(_path(key), _NOT_EMPTY, own[key])
    scarce = own.get(names.SCARCE_ANNOTATION)
    if scarce not in (None, "true", "false"):
        yield FieldError(_path(names.SCARCE_ANNOTATION), "must be true or false", scarce)
    if scarce == "true" and names.CARD_TYPE_ANNOTATION not in own:
        yield FieldError(_path(names.SCARCE_ANNOTATION), f"needs {names.CARD_TYPE_ANNOTATION} beside it")
    restricted = scarce == "true" or names.PRIVATE_GROUP_LABEL in own
    if restricted and not mapping(flavor, "spec", "nodeLabels"):
        yield FieldError("spec.nodeLabels", "must say which nodes are of the class")


def request_problems(obj: JSON) -> Iterator[FieldError]:
    """Yield the lists of card types that cannot be read, of an object and of the pod templates in it."""
    if mapping(obj, "metadata").get("deletionTimestamp"):
        return
    for place in places(obj):
        yield from problems(place.body, place.path)
