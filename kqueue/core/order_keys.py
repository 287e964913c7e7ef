"""The order of waiting workloads: sort keys, and profiles that combine them.

A profile has one list of keys.  Each key is one of those built in, or the `key` of a plugin.  A workload's keys are
computed when it enters its ClusterQueue or changes, so a comparison of two workloads calls no plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

from kqueue.core.queued import Queued
from kqueue.errors import PluginError

DEFAULT_PROFILE_NAME = "default"
"""The profile of ClusterQueues that do not choose one."""
BACK_TO_BACK = "back-to-back"
"""The profile in which the members of a group are handled one after the other."""

OrderKeys = tuple[Any, ...]
"""Values that compare with those of other workloads of the same ClusterQueue."""


def _priority(item: Queued) -> int:
    return -item.priority


def _timestamp(item: Queued) -> datetime:
    return item.timestamp


def _first_attempt(item: Queued) -> datetime:
    """Return the creation of a group; the first try of a single workload, its creation before."""
    return item.gang.since if item.gang is not None else item.first_try or item.created


def _uid(item: Queued) -> str:
    return item.uid


def _uid_descending(item: Queued) -> bytes:
    """Return the complement of the UID of the group or workload: the lexicographically greater UID goes first, and pods
    beyond the quorum of a group right behind the group.
    """
    uid = item.gang.uid if item.gang is not None else item.uid
    behind = item.gang is not None and item.gang.extra
    return bytes(255 - byte for byte in uid.encode()) + (b"\xff\x01" if behind else b"\xff")


def _ungrouped_first(item: Queued) -> bool:
    return item.gang is not None


def _group_creation(item: Queued) -> datetime:
    return item.gang.since if item.gang is not None else item.created


def _pod_creation(item: Queued) -> datetime:
    return item.created


BUILT_IN_KEYS: Mapping[str, Callable[[Queued], Any]] = MappingProxyType(
    {
        "priority": _priority,
        "timestamp": _timestamp,
        "first-attempt": _first_attempt,
        "uid": _uid,
        "uid-descending": _uid_descending,
        "ungrouped-first": _ungrouped_first,
        "group-creation": _group_creation,
        "pod-creation": _pod_creation,
    }
)
"""Keys by the names that profiles give them."""

BUILT_IN_PROFILES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        DEFAULT_PROFILE_NAME: ("priority", "timestamp", "uid"),
        BACK_TO_BACK: ("priority", "first-attempt", "uid-descending"),
        "pod-group": ("priority", "ungrouped-first", "group-creation", "pod-creation", "uid"),
    }
)
"""Lists of keys by the name of the profile."""


@dataclass(frozen=True, slots=True)
class PlaceInOrder:
    """The keys of a workload, and why it must not be tried (empty: it may be)."""

    keys: OrderKeys
    problem: str = ""


class ProfileOrder:
    """The order of one profile."""

    def __init__(self, keys: Sequence[Callable[[Queued], Any]]) -> None:
        """`keys` in the order in which they count; one that raises PluginError puts its workload behind all others."""
        self._keys = tuple(keys)

    def place(self, item: Queued) -> PlaceInOrder:
        """Return the place of a workload.  The smaller keys go first; equal keys are possible."""
        found: list[Any] = []
        problem = ""
        for key in self._keys:
            try:
                found.append(key(item))
            except PluginError as e:
                found.append(LAST)
                problem = problem or str(e)
        return PlaceInOrder(tuple(found), problem)


def keeps_runs(profile: str) -> bool:
    """Whether a ClusterQueue with this profile tries the pods beyond the quorum of a group right after the quorum."""
    return profile == BACK_TO_BACK


LAST = (2, 0)
"""The key of a plugin that gave none."""


def comparable(key: object) -> tuple[int, Any]:
    """Return the key of a plugin so that it compares with all others: numbers, then texts, then `LAST`.

    Raises TypeError for other types, and ValueError for a number that has no place in an order.
    """
    if isinstance(key, str):
        return 1, key
    if not isinstance(key, int | float):
        raise TypeError(f"the key is {type(key).__name__}, not int, float or str")
    if key != key:
        raise ValueError("the key is not a number")
    return 0, key


def built_in_order(profile: str) -> ProfileOrder:
    """Return the order of a built-in profile.  Raises KeyError for an unknown name."""
    return ProfileOrder([BUILT_IN_KEYS[key] for key in BUILT_IN_PROFILES[profile]])
