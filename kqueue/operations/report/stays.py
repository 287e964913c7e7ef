"""Starts, ends and evictions, as the decisions and the recorded holdings show them.

A start is an admission that was decided.  An eviction is a preemption that was decided, or a workload with quota that
is marked as evicted in a later cycle.  An admission that the next cycle does not hold, and whose workload is tried
again, was not carried out: it is no start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kqueue.core.workload import Admitted, Head
from kqueue.operations.report.coverage import Tellings
from kqueue.operations.report.figures import NOT_RECORDED
from kqueue.record.decided import Decided, DecidedLevel
from kqueue.record.entries import HoldingChanges

_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunStay:
    """A start.

    Args:
        wait: seconds in line before it; None: the record does not say since when the workload waited.
        levels: domains used and possible, of each search.
        told: the intervals that were told before it.
    """

    uid: str
    queue: str
    at: datetime
    wait: int | None
    in_line: datetime | None
    levels: tuple[DecidedLevel, ...] = ()
    told: Tellings | None = None


@dataclass(frozen=True, slots=True)
class SeenEviction:
    """A workload that lost its quota before its end."""

    queue: str
    at: datetime
    cause: str


@dataclass(slots=True)
class _Running:
    queue: str
    is_evicted: bool = False


@dataclass(slots=True)
class Stays:
    """Follows cycles in their order.

    Args:
        line: ClusterQueue and time in line of workloads that were tried and do not run, by UID.
        not_carried_out, unseen_starts: as in `RecordFacts`.
    """

    line: dict[str, tuple[str, datetime]] = field(default_factory=dict)
    running: dict[str, _Running] = field(default_factory=dict)
    not_carried_out: int = 0
    unseen_starts: int = 0
    _held: dict[str, Mapping[str, Admitted]] = field(default_factory=dict)
    _in_file: set[str] = field(default_factory=set)
    """ClusterQueues whose holdings are known from the present file, which has all changes since."""
    _begun: dict[str, dict[str, BegunStay]] = field(default_factory=dict)
    """Starts that no later cycle has held yet, by ClusterQueue and UID."""
    _left: dict[str, datetime] = field(default_factory=dict)
    """When evicted workloads were gone, until they are tried again."""

    def next_file(self) -> None:
        """Begin another file: its first changes are from nothing."""
        self._in_file.clear()

    def hold(
        self, queue: str, now: Mapping[str, Admitted], changes: HoldingChanges | None, at: datetime
    ) -> Iterator[BegunStay | SeenEviction]:
        """Take the workloads with quota of a ClusterQueue; yield the starts that they confirm, and evictions."""
        is_first = queue not in self._held
        before = self._held.get(queue, {})
        if queue not in self._in_file or (changes is not None and changes.all):
            keys: Iterable[str] = before.keys() | now.keys()
        elif changes is not None:
            keys = {*changes.drop, *(plain["key"] for plain in changes.set)}
        else:
            keys = ()
        self._in_file.add(queue)
        self._held[queue] = now
        for key in keys:
            old, new = before.get(key), now.get(key)
            if old is not None and (new is None or new.uid != old.uid):
                self._gone(old.uid, at)
            if new is not None:
                yield from self._seen(queue, new, at, is_first=is_first)

    def _gone(self, uid: str, at: datetime) -> None:
        stay = self.running.pop(uid, None)
        if stay is not None and stay.is_evicted:
            self._left[uid] = at

    def _seen(self, queue: str, one: Admitted, at: datetime, *, is_first: bool) -> Iterator[BegunStay | SeenEviction]:
        begun = self._begun.get(queue, {}).pop(one.uid, None)
        stay = self.running.get(one.uid)
        if begun is not None:
            yield begun
        if stay is None:
            stay = self.running[one.uid] = _Running(queue)
            self.line.pop(one.uid, None)
            if is_first:  # it runs since before the record
                stay.is_evicted = one.evicted
            elif begun is None:
                self.unseen_starts += 1
        if one.evicted and not stay.is_evicted:
            stay.is_evicted = True
            yield SeenEviction(queue, at, NOT_RECORDED)

    def try_heads(self, heads: Iterable[Head], at: datetime) -> None:
        """Take workloads that are tried; each is in line since it came, or since its eviction was over."""
        for head in heads:
            if head.uid in self.line or head.uid in self.running:
                continue
            since = max(head.timestamp, self._left.pop(head.uid, head.timestamp))
            self.line[head.uid] = head.queue, min(since, at)

    def retried(self, decision: Decided) -> BegunStay | None:
        """Return the start that was not carried out, because its workload is decided again; None: there is none."""
        begun = self._begun.get(decision.head.queue, {}).pop(decision.head.uid, None)
        if begun is not None:
            self.not_carried_out += 1
            if begun.in_line is not None:
                self.line[begun.uid] = begun.queue, begun.in_line
        return begun

    def start(self, decision: Decided, at: datetime, told: Tellings | None) -> None:
        """Take an admission; it counts once a later cycle holds it, or at the end."""
        head = decision.head
        _, in_line = self.line.pop(head.uid, (head.queue, None))
        self._begun.setdefault(head.queue, {})[head.uid] = BegunStay(
            uid=head.uid,
            queue=head.queue,
            at=at,
            wait=(at - in_line) // _SECOND if in_line is not None else None,
            in_line=in_line,
            levels=tuple(level for search in decision.quality for level in search.levels),
            told=told,
        )

    def evict(self, uid: str, at: datetime, cause: str) -> Iterator[SeenEviction]:
        """Yield the eviction of a workload that was decided; nothing if it does not run or is leaving already."""
        stay = self.running.get(uid)
        if stay is not None and not stay.is_evicted:
            stay.is_evicted = True
            yield SeenEviction(stay.queue, at, cause)

    def finish(self) -> Iterator[BegunStay]:
        """Yield the starts that no later cycle has held, and whose workloads were not tried again."""
        for some in self._begun.values():
            yield from some.values()
