"""The resources that must be free before the gang of a Workload starts."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kqueue.api import gang_names
from kqueue.api.wire import kueue as wire
from kqueue.core.quantity import parse_quantity

_NONE: Mapping[str, int] = {}


def least_text(obj: wire.Workload) -> str:
    """Return the annotation with the resources of a gang; empty: it has none."""
    return obj.metadata.annotations.get(gang_names.MIN_RESOURCES_ANNOTATION, "")


def least_of(obj: wire.Workload) -> Mapping[str, int]:
    """Return the amounts by resource; amounts that cannot be read, or are not positive, are left out."""
    written = least_text(obj)
    if not written:
        return _NONE
    try:
        texts = msgspec.json.decode(written, type=dict[str, str])
    except msgspec.DecodeError:
        return _NONE
    return least_amounts(texts)


def least_amounts(texts: Mapping[str, str]) -> Mapping[str, int]:
    """Return quantities as amounts by resource; those that cannot be read, or are not positive, are left out."""
    found: dict[str, int] = {}
    for resource, text in texts.items():
        try:
            amount = parse_quantity(text, resource)
        except ValueError:
            continue
        if amount > 0:
            found[resource] = amount
    return found
