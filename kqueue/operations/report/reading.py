"""Reads a record into a report, one cycle at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from kqueue.core.quota import FlavorResource
from kqueue.core.workload import Snapshot
from kqueue.errors import ConfigError
from kqueue.operations.report.coverage import Coverage
from kqueue.operations.report.figures import (
    ALL_QUEUES,
    MADE_WAY,
    PackingFigures,
    QueueReport,
    RecordFacts,
    WaitFigures,
)
from kqueue.operations.report.stays import BegunStay, SeenEviction, Stays
from kqueue.operations.report.use import UseMeter
from kqueue.record.decided import Decided
from kqueue.record.entries import Begin
from kqueue.record.records import FoundCycle, Record

_SECOND = timedelta(seconds=1)
_MOST_VERSIONS = 16


def read_report(
    record: Record,
    since: datetime | None = None,
    until: datetime | None = None,
    *,
    progress: Callable[[FoundCycle], None] = lambda _found: None,
) -> QueueReport:
    """Return the report of the cycles from `since` on and before `until`; None: all.

    Cycles before `since` are read, too: they tell what ran, what waited and what was told when the time begins.
    Memory grows with the workloads that wait or run, and by one number for each start.

    Raises:
        ConfigError: the record has no cycle in this time.
        DamagedRecordError: it was cut or changed; the error has the place.
    """
    reader, times = _ReportReader(since, until), list[datetime]()
    for found in record.cycles():
        progress(found)
        if not reader.take(found):
            break
        times = [times[0] if times else reader.last, reader.last]
    if not reader.cycles:
        known = f"; it has {_text(times[0])} to {_text(times[-1])}" if times else ", and no other"
        raise ConfigError(f"the record has no cycle in this time{known}: change --from and --to")
    return reader.finished()


def _text(time: datetime) -> str:
    return time.isoformat(timespec="seconds")


@dataclass(slots=True)
class _Facts:
    """Facts of the record as they grow."""

    missing: int = 0
    writers: int = 0
    ended_early: int = 0
    steps_back: int = 0
    number: int | None = None
    versions: dict[str, None] = field(default_factory=dict)

    def take(self, found: FoundCycle, number: int, *, counts: bool) -> None:
        """Take the number of a cycle: its writer counts all cycles, also those that it could not write."""
        is_new = self.number is None or number <= self.number
        if counts:
            self.missing += 0 if is_new or self.number is None else number - self.number - 1
            self.writers += is_new or not self.writers
            self.ended_early += bool(found.entry.error)
            if len(self.versions) < _MOST_VERSIONS:
                self.versions[found.begin.version] = None
        self.number = number


class _ReportReader:
    """Follows the cycles of a record."""

    def __init__(self, since: datetime | None, until: datetime | None) -> None:
        self._since, self._until = since, until
        self._stays, self._coverage, self._facts = Stays(), Coverage(), _Facts()
        self._use = UseMeter(since, until)
        self._waits: dict[str, list[int]] = {}
        self._packing: dict[tuple[str, str], list[int]] = {}
        self._evictions: dict[tuple[str, str], int] = {}
        self._file: Begin | None = None
        self.cycles = 0
        self._begin: datetime | None = None
        self.last = datetime.min.replace(tzinfo=UTC)
        """The time of the last cycle that was taken."""

    def take(self, found: FoundCycle) -> bool:
        """Take a cycle.  Return False, and take nothing, if it is behind the end of the report."""
        now, cycle = found.moment(), found.recorded()
        question, snapshot = cycle.question, cycle.question.snapshot
        if self._file is None:
            self.last = now
        at = max(self.last, now)  # a clock that steps back would make waits and use negative
        if self._until is not None and at >= self._until:
            return False
        counts = self._counts(at)
        self._facts.steps_back += now < self.last and counts
        self._facts.take(found, cycle.number, counts=counts)
        self.last, self.cycles = at, self.cycles + counts
        if counts and self._begin is None:
            self._begin = at
            self._stays.not_carried_out = self._stays.unseen_starts = 0
        if found.begin is not self._file:
            self._file = found.begin
            self._stays.next_file()
        self._coverage.tell(found.told, self._stays.running)
        self._use.take(at, snapshot.nodes)
        for queue in snapshot.nodes:
            changes = found.entry.admitted.get(queue)
            for event in self._stays.hold(queue, snapshot.admitted.get(queue, {}), changes, at):
                self._note(event)
        self._stays.try_heads([*question.heads, *(head for head in cycle.asked.values() if head is not None)], at)
        for decision in found.decided():
            self._decide(decision, snapshot, at)
        return True

    def _counts(self, at: datetime) -> bool:
        return self._since is None or at >= self._since

    def _decide(self, decision: Decided, snapshot: Snapshot, at: datetime) -> None:
        head, stays = decision.head, self._stays
        undone = stays.retried(decision)
        if undone is not None and undone.told is not None:
            self._coverage.give_back(head.uid, undone.told)
        if decision.decision == "Admit":
            stays.start(decision, at, self._coverage.taken(head.uid))
            if head.queue in snapshot.nodes and decision.admission is not None:
                self._use.admitted(at, snapshot.nodes[head.queue].root, head.queue, _usage(decision))
        evicted = [(one.admitted.uid, one.reason) for one in decision.targets]
        evicted += [(one.uid, MADE_WAY) for one in decision.made_way]
        for uid, cause in evicted:
            for event in stays.evict(uid, at, cause):
                self._note(event)

    def _note(self, event: BegunStay | SeenEviction) -> None:
        if not self._counts(event.at):
            return
        if isinstance(event, SeenEviction):
            for queue in (event.queue, ALL_QUEUES):
                key = queue, event.cause
                self._evictions[key] = self._evictions.get(key, 0) + 1
            return
        if event.wait is not None:
            self._waits.setdefault(event.queue, []).append(event.wait)
        for level in event.levels:
            for queue in (event.queue, ALL_QUEUES):
                sums = self._packing.setdefault((queue, level.level), [0, 0, 0, 0])
                for i, more in enumerate((1, level.used, level.lower_bound, level.used <= level.lower_bound)):
                    sums[i] += more
        self._coverage.started(event.queue, event.at, event.told)

    def finished(self) -> QueueReport:
        """Return the report."""
        for begun in self._stays.finish():
            self._note(begun)
        self._use.finish()
        self._coverage.finish(((uid, queue) for uid, (queue, _) in self._stays.line.items()), self.last)
        facts, levels = self._facts, list(dict.fromkeys(level for _, level in self._packing))  # the widest one first
        return QueueReport(
            record=RecordFacts(
                begin=self._begin or self.last,
                end=self.last,
                cycles=self.cycles,
                missing=facts.missing,
                writers=facts.writers,
                ended_early=facts.ended_early,
                not_carried_out=self._stays.not_carried_out,
                unseen_starts=self._stays.unseen_starts,
                steps_back=facts.steps_back,
                versions=tuple(facts.versions),
            ),
            waits=self._wait_figures(),
            use=dict(self._use.figures()),
            use_over_time=self._use.slots.found(),
            slots_begin=self._use.begin or self.last,
            slot_seconds=self._use.slots.length // 1_000_000,
            packing={
                key: PackingFigures(searches=sums[0], used=sums[1], fewest=sums[2], tight=sums[3])
                for key, sums in sorted(self._packing.items(), key=lambda pair: (pair[0][0], levels.index(pair[0][1])))
            },
            evictions=dict(sorted(self._evictions.items())),
            coverage=self._coverage.figures(),
        )

    def _wait_figures(self) -> Mapping[str, WaitFigures]:
        waiting: dict[str, list[int]] = {}
        for queue, since in self._stays.line.values():
            waiting.setdefault(queue, []).append((self.last - since) // _SECOND)
        found = {
            queue: WaitFigures.of(self._waits.get(queue, ()), waiting.get(queue, ()))
            for queue in sorted(self._waits.keys() | waiting.keys())
        }
        every = [wait for waits in self._waits.values() for wait in waits]
        return {ALL_QUEUES: WaitFigures.of(every, [wait for waits in waiting.values() for wait in waits]), **found}


def _usage(decision: Decided) -> dict[FlavorResource, int]:
    found: dict[FlavorResource, int] = {}
    for pod_set in decision.admission.pod_sets if decision.admission is not None else ():
        for resource, amount in pod_set.usage.items():
            if resource in pod_set.flavors:
                column = FlavorResource(pod_set.flavors[resource], resource)
                found[column] = found.get(column, 0) + amount
    return found
