"""Writes of this process that the watch has not echoed yet.

A controller that decides on the watch's object alone would repeat a write whose echo is under way.  An entry is removed
when the watch has caught up, after its timeout, or, in a full memory, when newer entries need its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

import structlog

from kqueue.clock import Clock

_log = structlog.get_logger(__name__)

K = TypeVar("K")
V = TypeVar("V")
LIMIT = 100_000
"""Limit of entries in a memory.  A write that is forgotten too early costs a request without effect."""


class OwnWrites(Mapping[K, V], Generic[K, V]):
    """Written values by key, oldest first.  Entries past their timeout are not contained."""

    def __init__(
        self,
        clock: Clock | None = None,
        timeout: float = math.inf,
        *,
        version_of: Callable[[V], int] = lambda _written: 0,
        limit: int | None = LIMIT,
        on_overdue: Callable[[K], None] = lambda _key: None,
    ) -> None:
        """Make an empty memory.

        Args:
            clock: measures the timeout; None: no entry has a timeout.
            timeout: seconds after which a write is no longer waited for, equal for all entries.
            version_of: resource version of a written value, for `echoed` and `newer`.
            limit: limit of entries; None: only the timeout bounds them.
            on_overdue: called with the key of each entry that is removed without an echo.
        """
        self._clock, self._timeout, self._version_of = clock, timeout, version_of
        self._limit, self._on_overdue = limit, on_overdue
        self._entries: dict[K, tuple[V, float]] = {}
        """Written value and deadline.  The timeout is constant, so deadlines are in the order of the entries."""

    def __getitem__(self, key: K) -> V:
        written, deadline = self._entries[key]
        if deadline <= self._now():
            self.drop_overdue()
            raise KeyError(key)
        return written

    def __iter__(self) -> Iterator[K]:
        self.drop_overdue()
        return iter(list(self._entries))

    def __len__(self) -> int:
        self.drop_overdue()
        return len(self._entries)

    def remember(self, key: K, written: V) -> None:
        """Await the echo of this write; replaces an older write of the key, and the timeout begins anew."""
        self.drop_overdue()
        self._entries.pop(key, None)
        self._entries[key] = written, self._now() + self._timeout
        if self._limit is not None and len(self._entries) > self._limit:
            self._drop(next(iter(self._entries)))

    def amend(self, key: K, written: V) -> None:
        """Replace the value of an awaited write; its deadline stays.  Unknown keys change nothing."""
        if key in self:
            self._entries[key] = written, self._entries[key][1]

    def forget(self, key: K) -> None:
        """Forget the write: the watch has brought it, or it failed.  Unknown keys change nothing."""
        self._entries.pop(key, None)

    def echoed(self, key: K, version: int | None) -> None:
        """Forget the write when the watch has an object of this version; None: the object is gone.

        Versions older than the write change nothing.
        """
        written = self.get(key) if key in self._entries else None
        if written is not None and (version is None or version >= self._version_of(written)):
            del self._entries[key]

    def is_behind(self, key: K, version: int) -> bool:
        """Whether the watch's object, of this version, is older than the awaited write."""
        self.echoed(key, version)
        return key in self

    def newer(self, key: K, seen: V) -> V:
        """Return the watch's object, or the written one where it is newer."""
        if key not in self._entries:  # by far the most frequent case: no exception is raised and caught for it
            return seen
        written = self.get(key)
        return written if written is not None and self._version_of(written) > self._version_of(seen) else seen

    def clear(self) -> None:
        """Forget all entries."""
        self._entries.clear()

    def drop_overdue(self) -> None:
        """Forget entries past their timeout; the cost depends on their number only."""
        now = self._now()
        while self._entries:
            key, (_, deadline) = next(iter(self._entries.items()))
            if deadline > now:
                return
            self._drop(key)

    def _drop(self, key: K) -> None:
        del self._entries[key]
        self._on_overdue(key)

    def _now(self) -> float:
        return self._clock.monotonic() if self._clock is not None else 0.0


class Releasable(Protocol):
    """A pod that a gate may hold."""

    @property
    def uid(self) -> str:
        """UID of the pod."""
        ...

    @property
    def gated(self) -> bool:
        """Whether the gate still holds the pod."""
        ...

    @property
    def resource_version(self) -> str:
        """Resource version of the pod."""
        ...


class PendingReleases:
    """Pods whose release was sent and not yet seen, per gang."""

    def __init__(self, clock: Clock, timeout: float) -> None:
        """`timeout`: seconds after which the event of a release counts as lost."""
        self._sent: OwnWrites[tuple[str, str], str | None] = OwnWrites(
            clock, timeout, limit=None, on_overdue=self._overdue
        )
        """By gang and UID.  A text is a version: the release may have failed, so any other version is an echo."""
        self._gangs: dict[str, set[str]] = {}

    def expect(self, gang: str, uid: str) -> None:
        """Note that the pod's release was sent."""
        self._sent.remember((gang, uid), None)
        self._gangs.setdefault(gang, set()).add(uid)

    def doubt(self, gang: str, uid: str, version: str) -> None:
        """Note that the release may have failed; the server has another version, whose event will come."""
        self._sent.amend((gang, uid), version)

    def observe(self, gang: str, pod: Releasable) -> None:
        """Take in an event of the pod; forget the release if this can be its event."""
        if (gang, pod.uid) not in self._sent:
            return
        failed_at = self._sent[gang, pod.uid]
        if not pod.gated or (failed_at is not None and pod.resource_version != failed_at):
            self.observed(gang, pod.uid)

    def observed(self, gang: str, uid: str) -> None:
        """Forget the pod's release: its event came, or never will."""
        self._sent.forget((gang, uid))
        self._leave(gang, uid)

    def satisfied(self, gang: str) -> bool:
        """Whether no release of the gang is awaited; overdue ones are forgotten, because their events were lost."""
        self._sent.drop_overdue()
        return gang not in self._gangs

    def clear(self) -> None:
        """Forget all releases."""
        self._sent.clear()
        self._gangs.clear()

    def _overdue(self, key: tuple[str, str]) -> None:
        gang, uid = key
        _log.warning("the release of a pod was never seen, it is looked at again", gang=gang, uid=uid)
        self._leave(gang, uid)

    def _leave(self, gang: str, uid: str) -> None:
        uids = self._gangs.get(gang)
        if uids is not None:
            uids.discard(uid)
            if not uids:
                del self._gangs[gang]
