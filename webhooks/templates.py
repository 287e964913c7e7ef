"""Find the metadata in a reviewed object: its own, and that of its pod templates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kqueue.jobs.fields import JSON, mapping, text
from kqueue.jobs.gang.registry import framework_of_kind

_DEPTH = 12
"""Maximum nesting of objects and lists down to a pod template; a JobSet needs six."""
_NOT_ENTERED = frozenset({"metadata", "status", "containers", "initContainers", "volumes"})
"""Fields without pod templates below them."""


@dataclass(frozen=True, slots=True)
class MetadataLocation:
    """An object or a template that has metadata."""

    path: str
    """Path of the metadata."""
    body: Mapping[str, Any]
    is_pod: bool
    """Whether the metadata is of a pod or of a pod template."""
    has_topology: bool
    """Whether topology annotations have an effect there: on pods, templates, and group objects of gangs."""


def places(obj: JSON) -> Iterator[MetadataLocation]:
    """Yield the object itself and its templates."""
    yield MetadataLocation("metadata", obj, _is_pod(obj), _is_pod(obj) or _is_group(obj))
    if not _is_pod(obj):
        yield from _templates(obj.get("spec"), "spec", _DEPTH)


def _templates(value: object, path: str, depth: int) -> Iterator[MetadataLocation]:
    """Yield every nested object that has `metadata` and `spec`."""
    if depth == 0:
        return
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _templates(item, f"{path}[{number}]", depth - 1)
    elif isinstance(value, dict):
        if isinstance(value.get("metadata"), dict) and isinstance(value.get("spec"), dict):
            yield MetadataLocation(f"{path}.metadata", value, _is_pod(value), _is_pod(value))
        for key, item in value.items():
            if key not in _NOT_ENTERED:
                yield from _templates(item, f"{path}.{key}", depth - 1)


def _is_group(obj: Mapping[str, Any]) -> bool:
    return bool(framework_of_kind(text(obj, "apiVersion").rpartition("/")[0], text(obj, "kind")))


def _is_pod(body: Mapping[str, Any]) -> bool:
    return "containers" in mapping(body, "spec")
