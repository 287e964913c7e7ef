"""The day of a record: what there was when it began, what arrived, and how long everything ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from statistics import median_low

import msgspec

from kqueue.core import quota
from kqueue.core.future.run_time import RunTime, RunTimeSource
from kqueue.core.ordering import OrderRules
from kqueue.core.plan_question import PlanQuestion
from kqueue.core.preemption import Rules
from kqueue.core.quota import QuotaNode
from kqueue.core.topology.capacity import Capacity
from kqueue.core.workload import Admitted, Flavor, Head, QueueSpec, TopologyView
from kqueue.errors import ConfigError
from kqueue.record.queries import Filter
from kqueue.record.records import FoundCycle, Record

_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A workload that waited in the day; `head` is as it was tried first."""

    head: Head
    at: datetime


@dataclass(slots=True)
class RecordedDay:
    """A day, as far as the record knows it.

    Args:
        roots: quota trees as they were seen first, by key.
        running: workloads that had quota when the day began, by UID.
        heads: by UID, all workloads that were tried or waited behind the head of a StrictFIFO ClusterQueue; `arrivals`
            are those that did not run when the day began.
        strict: whether a ClusterQueue was StrictFIFO when it was seen first with a head.
        seconds: how long workloads ran, by UID, from their last start in the day or before.
        starts: recorded first starts, by UID.
        usual: the middle run time of each ClusterQueue.
        evictions: the number of recorded preemptions.
    """

    begin: datetime
    end: datetime
    rules: Rules
    order: OrderRules
    question: PlanQuestion
    roots: dict[str, QuotaNode] = field(default_factory=dict)
    strict: dict[str, bool] = field(default_factory=dict)
    specs: dict[str, QueueSpec] = field(default_factory=dict)
    flavors: Mapping[str, Flavor] = field(default_factory=dict)
    topologies: dict[str, TopologyView] = field(default_factory=dict)
    running: dict[str, Admitted] = field(default_factory=dict)
    heads: dict[str, Arrival] = field(default_factory=dict)
    arrivals: dict[str, Arrival] = field(default_factory=dict)
    seconds: dict[str, int] = field(default_factory=dict)
    starts: dict[str, datetime] = field(default_factory=dict)
    usual: dict[str, int] = field(default_factory=dict)
    evictions: int = 0

    def run_time(self, uid: str, queue: str) -> RunTime:
        """Return the run time of a workload; one that is not recorded is the middle one of its ClusterQueue."""
        known = self.seconds.get(uid)
        if known is None and uid not in self.running and uid not in self.starts:
            known = self.usual.get(queue)
        return RunTime(p50=known, p90=known, source=RunTimeSource.LEARNED) if known is not None else RunTime()


def read_day(record: Record, wanted: Filter) -> RecordedDay:
    """Return the day of the cycles that are asked for.  Raises ConfigError: there are none."""
    reader: _DayReader | None = None
    for found in record.cycles():
        if not wanted.has_cycle(found):
            continue
        cycle = found.recorded()
        if reader is None:
            reader = _DayReader(cycle.question)
        reader.take(cycle.question, found)
        reader.take_lines(cycle.lines)
    if reader is None:
        raise ConfigError("the record has no cycle in this time; `kqueue record list` shows its times")
    return reader.finished()


class _DayReader:
    """Follows the cycles of a day in their order."""

    def __init__(self, first: PlanQuestion) -> None:
        now = first.rules.now
        self.day = RecordedDay(begin=now, end=now, rules=first.rules, order=first.order, question=first)
        self._held: dict[str, Mapping[str, Admitted]] = {}
        self._since: dict[str, datetime] = {}
        """The last start of workloads that have quota, by UID."""
        self._open: dict[str, dict[str, str]] = {}
        """UIDs of workloads that are not known to have ended, by ClusterQueue and key."""
        self._lines: dict[str, Mapping[str, Head]] = {}
        self._tried: set[str] = set()

    def take(self, question: PlanQuestion, found: FoundCycle) -> None:
        """Take what a cycle tells."""
        day, snapshot, now = self.day, question.snapshot, question.rules.now
        day.end = max(day.end, now)
        day.flavors = snapshot.flavors
        for name, spec in snapshot.queues.items():
            day.specs.setdefault(name, spec)
        for name, view in snapshot.topologies.items():
            if name not in day.topologies:
                day.topologies[name] = replace(view, capacity=view.capacity.fork())
        self._take_trees(snapshot.nodes)
        for queue in snapshot.nodes:
            self._take_holdings(queue, snapshot.admitted.get(queue, {}), now)
        for tried in question.heads:
            known = day.heads.get(tried.uid)
            if known is None or tried.uid not in self._tried:  # as it waited behind another one, it may have changed
                at = known.at if known is not None else max(day.begin, min(tried.timestamp, now))
                day.heads[tried.uid] = Arrival(tried, at)
                self._tried.add(tried.uid)
            day.strict.setdefault(tried.queue, tried.queue in found.entry.strict)
        for raw in found.entry.decisions:
            decision = msgspec.json.decode(raw)
            if decision["decision"] == "Admit":
                head = decision["head"]
                uid = head["uid"]
                self._since[uid] = now
                self._open.setdefault(head["queue"], {})[head["key"]] = uid
                day.starts.setdefault(uid, now)
            elif decision["decision"] == "Preempt":
                day.evictions += len(decision["targets"])

    def take_lines(self, lines: Mapping[str, Mapping[str, Head]]) -> None:
        """Take the workloads behind the heads of StrictFIFO ClusterQueues; a workload that is tried later is as it was
        tried first.
        """
        day = self.day
        for queue, line in lines.items():
            if line is self._lines.get(queue):
                continue
            self._lines[queue] = line
            for uid, head in line.items():
                if uid not in day.heads:
                    day.heads[uid] = Arrival(head, max(day.begin, min(head.timestamp, day.end)))

    def _take_trees(self, nodes: Mapping[str, QuotaNode]) -> None:
        for node in nodes.values():
            root = node.root
            key = f"{'cohort' if root.is_cohort else 'queue'}/{root.name}"
            if key not in self.day.roots:
                copy = quota.TreeCopy(root)
                self.day.roots[key] = next(iter(copy.queues.values())).root

    def _take_holdings(self, queue: str, now: Mapping[str, Admitted], at: datetime) -> None:
        """Note which workloads of a ClusterQueue have ended since its last cycle, also those that began behind it."""
        day, before = self.day, self._held.get(queue)
        if before is None:
            begun = {one.uid: one for one in now.values() if one.reserved_at and one.reserved_at < day.begin}
            day.running.update({uid: one for uid, one in begun.items() if uid not in day.starts})
            self._since.update({uid: one.admitted_at or day.begin for uid, one in begun.items()})
        self._held[queue] = now
        open_ = self._open.setdefault(queue, {})
        if now is not before or not open_.keys() <= now.keys():
            evicted = {key for key, one in (before or {}).items() if one.evicted}
            open_.update({key: one.uid for key, one in now.items() if one.uid in self._since})
            for key in [key for key in open_ if key not in now]:
                uid = open_.pop(key)
                if key not in evicted:
                    day.seconds[uid] = max(1, (at - self._since[uid]) // _SECOND)

    def finished(self) -> RecordedDay:
        """Return the day."""
        day = self.day
        by_queue: dict[str, list[int]] = {}
        for uid, seconds in day.seconds.items():
            queue = day.heads[uid].head.queue if uid in day.heads else day.running[uid].queue
            by_queue.setdefault(queue, []).append(seconds)
        day.usual = {queue: median_low(some) for queue, some in by_queue.items()}
        day.arrivals = {uid: arrival for uid, arrival in day.heads.items() if uid not in day.running}
        for name, view in day.topologies.items():
            day.topologies[name] = replace(view, capacity=_without_usage(view.capacity))
        return day


def _without_usage(capacity: Capacity) -> Capacity:
    """Return the free amounts as if no workload placed by topology had any."""
    empty = capacity.empty()
    return Capacity.of_tables(capacity.tree, empty.tables(), empty.tables())
