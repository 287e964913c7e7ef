"""The time after the admission of a gang in which its ClusterQueue tries only the pods beyond the gang's quorum."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from kqueue.core.queued import EXTRAS_WAITING
from kqueue.model.pending import Pending

HOLD_FOR: Final = timedelta(seconds=5)
"""The longest hold: pods that were counted may be deleted, and never get a Workload."""


@dataclass(slots=True)
class GangHold:
    """One hold of one ClusterQueue.

    It is in memory alone: after a restart of the controller, other workloads may be tried between the pods.

    Args:
        base: namespace/name of the Workload that counts the quorum.
        expected: the pods that are tried before any other workload.
        until: the end of the hold, whatever was tried.
    """

    base: str
    expected: int
    until: datetime
    _seen: set[str] = field(default_factory=set)
    _tried: set[str] = field(default_factory=set)
    _writing: set[str] = field(default_factory=set)
    """Pods' workloads that were admitted, and whose admission is not written yet."""

    def note(self, item: Pending) -> None:
        """Note a workload that has entered the ClusterQueue."""
        if item.gang is not None and item.gang.extra and item.gang.key == self.base:
            self._seen.add(item.key)

    def note_try(self, key: str) -> None:
        """Note that a workload is being tried; during a hold each is tried once."""
        self._tried.add(key)

    def note_admission(self, key: str) -> None:
        """Note that a workload was admitted, and that its admission will be written."""
        if key in self._tried:
            self._writing.add(key)

    def note_end_of_write(self, key: str) -> bool:
        """Note that such a write has ended, by success or failure; return whether the hold has waited for it."""
        if key not in self._writing:
            return False
        self._writing.remove(key)
        return True

    def left(self, is_active: Callable[[str], bool]) -> Iterable[str]:
        """Return the pods' workloads that are not tried yet."""
        return [key for key in self._seen - self._tried if is_active(key)]

    def is_over(self, now: datetime, is_active: Callable[[str], bool]) -> bool:
        """Whether other workloads may be tried: all were tried, and their admissions are written, because writes that
        are under way together end in any order.

        A pod that cannot be tried counts as tried: a workload of the same shape was refused, or the pod is gone.
        """
        if now >= self.until:
            return True
        if self._writing:
            return False
        return len(self._seen) >= self.expected and len(self._seen) - len(list(self.left(is_active))) >= self.expected


def hold(base: str, extras: int, now: datetime) -> GangHold | None:
    """Return the hold that begins with the admission of a gang that has so many pods beyond its quorum; None: it has
    none.
    """
    if extras <= 0:
        return None
    return GangHold(base=base, expected=min(extras, EXTRAS_WAITING), until=now + HOLD_FOR)
