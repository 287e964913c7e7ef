"""How often Workloads of one owner may be deleted and made anew because they say something else than the owner.

An owner that never matches its Workload, by a bug or because another controller writes one of the two, would otherwise
be stopped and queued again without end.
"""

from __future__ import annotations

from cachetools import TTLCache

from kqueue.clock import Clock

MOST = 5
WITHIN = 600.0
"""Seconds; a Workload that is left alone for so long may be deleted again."""
_REMEMBERED = 100_000


class Recreations:
    """Counts deletions by owner, and begins anew when the owner has changed."""

    def __init__(self, clock: Clock) -> None:
        self._deleted: TTLCache[str, tuple[int, int]] = TTLCache(_REMEMBERED, WITHIN, clock.monotonic)
        """Generation of the owner and number of deletions since, by the owner's UID."""

    def allows(self, uid: str, generation: int) -> bool:
        """Whether one more Workload of an owner of this UID and generation may be deleted to be made anew."""
        known, number = self._deleted.get(uid, (generation, 0))
        return known != generation or number < MOST

    def deleted(self, uid: str, generation: int) -> None:
        """Count a deletion."""
        known, number = self._deleted.get(uid, (generation, 0))
        self._deleted[uid] = generation, (number if known == generation else 0) + 1
