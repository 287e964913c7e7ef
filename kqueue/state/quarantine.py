"""Workloads on which planning fails with a bug: tried twice, then excluded, so that all others go on.

    strike ──► set aside for a moment ──► tried ──► strike ──► in quarantine ──► its spec or the annotation changes
                                            └──► any result: the strike is forgotten

The quarantine is in memory only: after a restart, perhaps of another version, every workload is tried again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType

from cachetools import LRUCache

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.model.pending import Pending

STRIKES = 2
"""Failures in a row that bring a workload into quarantine."""
SET_ASIDE = timedelta(seconds=1)
"""The pause between the first failure and the second try: a cause that passes by itself has time to pass, and the
scheduling loop does not spin.
"""
_FAILURES_MAX = 10_000
_ERROR_LENGTH_MAX = 200
"""The number of characters of an exception's message that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """A workload in quarantine.

    `queue` is its ClusterQueue, empty without one; `generation` and `asked` are the spec's generation and the
    annotation at that time; `since` is the begin of the quarantine; `message` is the sentence in its status.
    """

    key: str
    uid: str
    generation: int
    asked: str
    queue: str
    since: datetime
    message: str

    def is_of(self, obj: wire.Workload) -> bool:
        """Whether the object is the workload that failed, unchanged since then."""
        return (self.uid, self.generation, self.asked) == _identity(obj)


@dataclass(frozen=True, slots=True)
class _Failures:
    """The failures of a workload that is not yet in quarantine."""

    identity: tuple[str, int, str]
    times: int
    until: datetime


class Quarantine:
    """The failures of workloads, and the workloads in quarantine."""

    def __init__(self) -> None:
        self._failures: LRUCache[str, _Failures] = LRUCache(maxsize=_FAILURES_MAX)
        self._held: dict[str, Quarantined] = {}
        self.arrivals = 0
        """The number of workloads that came into quarantine since the start."""

    def __contains__(self, key: object) -> bool:
        """Whether the workload (namespace/name) is in quarantine."""
        return key in self._held

    def get(self, key: str) -> Quarantined | None:
        """Return the record of a workload in quarantine; None when it is not in quarantine."""
        return self._held.get(key)

    def values(self) -> Collection[Quarantined]:
        """Return all workloads in quarantine, in the order in which they came."""
        return self._held.values()

    def by_queue(self) -> Mapping[str, int]:
        """Return the number of workloads in quarantine, by ClusterQueue."""
        return MappingProxyType(Counter(held.queue for held in self._held.values()))

    def strike(
        self,
        key: str,
        obj: wire.Workload,
        error: Exception,
        *,
        doing: str,
        queue: str,
        now: datetime,
        for_good: bool = False,
    ) -> Quarantined | None:
        """Record that planning a workload failed. Returns its quarantine; None: it is to be tried once more, later.

        `doing` names the failed step, as in "planning it"; `for_good`: another try would fail in the same way.
        """
        identity = _identity(obj)
        before = self._failures.pop(key, None)
        times = before.times + 1 if before is not None and before.identity == identity else 1
        if times < STRIKES and not for_good:
            self._failures[key] = _Failures(identity, times, now + SET_ASIDE)
            return None
        uid, generation, asked = identity
        held = self._held[key] = Quarantined(
            key=key,
            uid=uid,
            generation=generation,
            asked=asked,
            queue=queue,
            since=now,
            message=_message(error, doing),
        )
        self.arrivals += 1
        return held

    def delayed(self, item: Pending) -> Pending:
        """Return the queue entry of a workload; a workload that is set aside is not tried before its time."""
        failures = self._failures.get(item.key)
        if failures is None or failures.identity[0] != item.uid:
            return item
        return replace(item, not_before=max(failures.until, item.not_before or failures.until))

    def forget_failures(self, key: str) -> None:
        """Forget the failures of a workload after a try that ended with a result."""
        if self._failures:
            self._failures.pop(key, None)

    def observe(self, key: str, obj: wire.Workload | None) -> bool:
        """Follow the watch event of a workload (None: it is gone). Returns whether it leaves the quarantine."""
        if not self._held and not self._failures:
            return False
        if obj is None or obj.status.admission is not None or model.is_over(obj):
            self._failures.pop(key, None)
            return self._held.pop(key, None) is not None
        held = self._held.get(key)
        if held is not None and not held.is_of(obj):
            del self._held[key]
            return True
        failures = self._failures.get(key)
        if failures is not None and failures.identity != _identity(obj):
            del self._failures[key]
        return False


def _identity(obj: wire.Workload) -> tuple[str, int, str]:
    metadata = obj.metadata
    return metadata.uid, metadata.generation, metadata.annotations.get(names.TRY_AGAIN_ANNOTATION, "")


def described(error: Exception) -> str:
    """Return an exception as one short line; its message may contain text of users."""
    text = " ".join(str(error).split())
    text = text if len(text) <= _ERROR_LENGTH_MAX else f"{text[:_ERROR_LENGTH_MAX]}…"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _message(error: Exception, doing: str) -> str:
    return (
        f"{doing[:1].upper()}{doing[1:]} fails on a bug in kqueue ({described(error)}); "
        f"to retry, edit it or its annotation {names.TRY_AGAIN_ANNOTATION}; please report it"
    )
