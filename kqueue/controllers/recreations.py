"""Limits the number of times that Workloads of one owner are deleted and created again because they do not match it.

Without a limit, an owner that never matches its Workload would be stopped and queued again forever.  The cause may be a
bug, or another controller that writes the owner or the Workload.
"""

from __future__ import annotations

from cachetools import TTLCache

from kqueue.clock import Clock

MOST = 5
WITHIN = 600.0
"""Seconds after the last deletion from which deletions are counted from zero again."""
_REMEMBERED = 100_000


class Recreations:
    """Counts deletions of Workloads by owner.  A new generation of the owner begins at zero."""

    def __init__(self, clock: Clock) -> None:
        self._deleted: TTLCache[str, tuple[int, int]] = TTLCache(_REMEMBERED, WITHIN, clock.monotonic)
        """By the owner's UID: generation of the owner and number of deletions since."""

    def allows(self, uid: str, generation: int) -> bool:
        """Whether one more Workload of the owner with this UID and generation may be deleted and created again."""
        known, number = self._deleted.get(uid, (generation, 0))
        return known != generation or number < MOST

    def deleted(self, uid: str, generation: int) -> None:
        """Count one deletion."""
        known, number = self._deleted.get(uid, (generation, 0))
        self._deleted[uid] = generation, (number if known == generation else 0) + 1
