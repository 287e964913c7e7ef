"""Keys of gangs."""

from __future__ import annotations

KUEUE_GROUPS = "pod"
"""The framework of Kueue's own groups; their keys do not name it."""

_LONG = f"{KUEUE_GROUPS}:"


def gang_key(framework: str, namespace: str, name: str) -> str:
    """Return the key of a gang: `NAMESPACE/NAME` of Kueue's groups, `NAMESPACE/FRAMEWORK:NAME` of all others.

    No valid name has a colon; of Kueue's groups a name with one gets the long form, too, so that keys of two dialects
    are never equal.
    """
    short = framework == KUEUE_GROUPS and ":" not in name
    return f"{namespace}/{name}" if short else f"{namespace}/{framework}:{name}"


def is_of_kueue(key: str) -> bool:
    """Whether the key is that of one of Kueue's own groups."""
    return ":" not in key or key.partition("/")[2].startswith(_LONG)
