"""Rules of the API server that a manifest must keep before anybody could create it, where answers depend on them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kqueue.api.fields import DNS_SUBDOMAIN_PATTERN

JSON = dict[str, Any]
_NAME = re.compile(DNS_SUBDOMAIN_PATTERN)
_COUNTS = frozenset(
    {"parallelism", "completions", "replicas", "minReplicas", "maxReplicas", "minAvailable", "minMember", "size"}
)
"""Fields of all kinds that count pods, or groups of them; negative ones are refused at creation."""
_LEVELS = 32
"""Levels of a manifest below which nothing is looked at."""


def broken_rules(obj: JSON) -> list[str]:
    """Return the rules that a manifest breaks, each with its field."""
    return [*_of_names(obj), *_of_counts(obj.get("spec"), "spec", _LEVELS)]


def _of_names(obj: JSON) -> Iterator[str]:
    metadata = obj.get("metadata")
    for field in ("name", "generateName"):
        name = metadata.get(field) if isinstance(metadata, dict) else None
        if isinstance(name, str) and name:
            whole = f"{name}x" if field == "generateName" else name  # the API server adds a suffix
            if len(name) > 253 or not _NAME.fullmatch(whole):
                yield f"metadata.{field}: {name[:60]!a} must be lower-case letters, digits, '-' and '.'"


def _of_counts(value: object, path: str, levels: int) -> Iterator[str]:
    if levels == 0:
        return
    if isinstance(value, dict):
        for key, found in value.items():
            if key in _COUNTS and type(found) is int and found < 0:
                yield f"{path}.{key}: must not be negative, is {found}"
            yield from _of_counts(found, f"{path}.{key}", levels - 1)
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from _of_counts(one, f"{path}[{number}]", levels - 1)
