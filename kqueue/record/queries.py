"""Questions about a record: which decisions, in which cycles, and with which inputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from kqueue.core.workload import Head, Snapshot
from kqueue.errors import ConfigError
from kqueue.record.capture import CapturedCycle, Captures
from kqueue.record.decoding import RecordedCycle
from kqueue.record.plain import Plain
from kqueue.record.records import FoundCycle, Record
from kqueue.record.ring import Ring, RingSettings, files_in
from kqueue.record.told import ToldInterval

NOT_TRIED = "NotTried"
"""Stands in place of a decision for workloads behind the head of a StrictFIFO ClusterQueue."""
_NO_BOUND = timedelta(days=36_500)
_MOST_SAVED = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """The decisions that are asked for; None and empty texts: all.

    Args:
        since, until: bounds of the cycle's time; `until` is not included.
        workload: namespace/name, or the UID.
        queue: a ClusterQueue.
        decision: Admit, Preempt or Wait.
        cycle: the name of one cycle.
    """

    since: datetime | None = None
    until: datetime | None = None
    workload: str = ""
    queue: str = ""
    decision: str = ""
    cycle: str = ""

    def has_cycle(self, found: FoundCycle) -> bool:
        """Whether the cycle is asked for."""
        now = datetime.fromisoformat(found.entry.now)
        is_late_enough = self.since is None or now >= self.since
        is_named = not self.cycle or found.name == self.cycle
        return is_named and is_late_enough and (self.until is None or now < self.until)

    def has(self, decision: Plain) -> bool:
        """Whether the decision is asked for."""
        head = decision["head"]
        return (
            (not self.workload or self.workload in (head["key"], head["uid"]))
            and (not self.queue or self.queue == head["queue"])
            and (not self.decision or self.decision == decision["decision"])
        )


@dataclass(frozen=True, slots=True)
class FoundDecision:
    """A decision and its cycle."""

    found: FoundCycle
    decision: Plain

    def row(self) -> dict[str, str]:
        """Return the decision as texts: time, cycle, workload, ClusterQueue, decision and cause."""
        head = self.decision["head"]
        return {
            "time": _utc(self.found.entry.now),
            "cycle": self.found.name,
            "workload": head["key"],
            "queue": head["queue"],
            "decision": self.decision["decision"],
            "cause": cause(self.decision),
        }


def cycles(record: Record, wanted: Filter) -> Iterator[FoundCycle]:
    """Yield the cycles that are asked for and have a decision that is asked for, or a workload that is not tried."""
    for found in record.cycles():
        if not wanted.has_cycle(found):
            continue
        if next(decisions(found, wanted), None) is not None or not_tried(found, wanted) is not None:
            yield found


def rows(found: FoundCycle, wanted: Filter) -> Iterator[dict[str, str]]:
    """Yield the rows of a cycle: decisions that are asked for, and the workload that is asked for and was not tried."""
    for one in decisions(found, wanted):
        yield one.row()
    if (row := not_tried(found, wanted)) is not None:
        yield {name: text for name, text in row.items() if name != "uid"}


def not_tried(found: FoundCycle, wanted: Filter) -> dict[str, str] | None:
    """Return the row of the workload that is asked for where it waits behind the head of a StrictFIFO ClusterQueue.

    None: it does not, or the filter names no workload, or a decision.  Only before the next entry is read.
    """
    if not wanted.workload or wanted.decision:
        return None
    waiting = found.behind(wanted.workload)
    if waiting is None:
        return None
    heads = {one["head"]["queue"]: one["head"]["key"] for one in map(msgspec.json.decode, found.entry.decisions)}
    queue = found.queue_of(waiting)
    if wanted.queue not in ("", queue):
        return None
    return {
        "time": _utc(found.entry.now),
        "cycle": found.name,
        "workload": waiting.key,
        "uid": waiting.uid,
        "queue": queue,
        "decision": NOT_TRIED,
        "cause": f"ClusterQueue {queue} is StrictFIFO, and {heads.get(queue, 'another workload')} comes first",
    }


def decisions(found: FoundCycle, wanted: Filter) -> Iterator[FoundDecision]:
    """Yield the decisions of a cycle that are asked for."""
    for raw in found.entry.decisions:
        decision = msgspec.json.decode(raw)
        if wanted.has(decision):
            yield FoundDecision(found, decision)


def cause(decision: Plain) -> str:
    """Return the cause of a decision as one text."""
    match decision["decision"]:
        case "Admit":
            return ", ".join(_assigned(pod_set) for pod_set in decision["admission"]["pod_sets"])
        case "Preempt":
            names = (f"{one['admitted']['key']} ({one['reason']})" for one in decision["targets"])
            return f"preempts {', '.join(names)}"
        case _:
            return str(decision["message"])


def _assigned(pod_set: Plain) -> str:
    flavors = "+".join(sorted(set(pod_set["flavors"].values())))
    text = f"{pod_set['name']}: {pod_set['count']} pods in {flavors}"
    topology = pod_set["topology"]
    if not topology or not topology["domains"]:
        return text
    places = [f"{'/'.join(domain['values'])} x{domain['count']}" for domain in topology["domains"]]
    more = f" and {len(places) - 4} more" if len(places) > 4 else ""
    return f"{text} on {', '.join(places[:4])}{more}"


def inputs(cycle: RecordedCycle, uid: str) -> Iterator[str]:
    """Yield sentences about what a workload was decided on: its requests, the quota and the domains of its queue."""
    behind = [line[uid] for line in cycle.lines.values() if uid in line]
    head = next((head for head in (*cycle.question.heads, *behind) if head.uid == uid), None)
    if head is None:
        return
    snapshot = cycle.question.snapshot
    yield f"priority {head.priority}, in line since {_utc(head.timestamp.isoformat())}"
    for pod_set in head.pod_sets:
        yield f"pod set {pod_set.name}: {pod_set.request.count} pods of {_amounts(pod_set.request.requests)}"
    yield from _quota(snapshot, head)
    yield from _domains(snapshot, head)
    for claim in snapshot.claims:
        who = "this workload" if claim.uid == uid else f"{claim.key} of {claim.queue}"
        yield f"kept for {who}: {_amounts({str(column): amount for column, amount in claim.usage.items()})}"
    if cycle.question.held_by:
        yield f"no admission before the pods of {cycle.question.held_by} are ready"


def _quota(snapshot: Snapshot, head: Head) -> Iterator[str]:
    node = snapshot.nodes.get(head.queue)
    if node is None:
        yield f"ClusterQueue {head.queue} {snapshot.inactive.get(head.queue) or 'is not known'}"
        return
    running = snapshot.admitted.get(head.queue, {})
    leaving = sum(one.evicted for one in running.values())
    yield f"ClusterQueue {head.queue}: {len(running)} workloads with quota, {leaving} of them leaving"
    for above in node.path_to_root():
        kind = "Cohort" if above.is_cohort else "ClusterQueue"
        for column in sorted({*above.quotas, *(c for c, used in above.usage.items() if used)}):
            yield f"{kind} {above.name}: {above.usage.get(column, 0)} of {above.quota(column).nominal} {column} in use"


def _domains(snapshot: Snapshot, head: Head) -> Iterator[str]:
    spec = snapshot.queues.get(head.queue)
    flavors = [name for group in spec.groups for name in group.flavors] if spec is not None else []
    for name in dict.fromkeys(flavors):
        view = snapshot.topologies.get(name)
        if view is None:
            continue
        resources, table = view.capacity.tables()
        free = dict(zip(resources, table.clip(min=0).sum(axis=1).tolist(), strict=True))
        yield f"flavor {name}: {len(view.tree)} domains of level {view.tree.levels[-1]}, free {_amounts(free)}"


def _amounts(amounts: dict[str, int] | Any) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in sorted(amounts.items())) or "nothing"


def _utc(text: str) -> str:
    return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def save(record: Record, wanted: Filter, target: Path) -> int:
    """Copy the cycles that are asked for into one new file; return their number.

    Raises ConfigError: the file exists.  OSError: it cannot be written.
    """
    if target.exists():
        raise ConfigError(f"{target}: the file exists; name another one")
    folder = target.with_name(f".{target.name}.new")
    folder.mkdir()
    try:
        return _saved(record, wanted, folder, target)
    finally:
        for path in files_in(folder):
            path.unlink()
        folder.rmdir()


def _saved(record: Record, wanted: Filter, folder: Path, target: Path) -> int:
    captures, number, ring = Captures(), 0, None
    told: dict[str, list[ToldInterval]] = {}
    """Start times of workloads that are not decided in a saved cycle yet: the first and the last one of each."""
    for found in record.cycles():
        for start in found.told:
            told[start.uid] = [*told.get(start.uid, ())[:1], start]
        uids = [one.decision["head"]["uid"] for one in decisions(found, wanted)] if wanted.has_cycle(found) else []
        if not uids and not (wanted.has_cycle(found) and not_tried(found, wanted)):
            continue
        if ring is None:
            ring = Ring(
                RingSettings(
                    path=folder,
                    max_bytes=_MOST_SAVED,
                    max_age=_NO_BOUND,
                    version=found.begin.version,
                    within=found.begin.within,
                )
            )
        captured = _captured(captures, found)
        captured.told = [start for uid in uids for start in told.pop(uid, ())]
        ring.write(captured, datetime.fromisoformat(found.entry.now))
        number += 1
    if ring is None:
        return 0
    ring.close()
    (path,) = files_in(folder)
    path.rename(target)
    return number


def _captured(captures: Captures, found: FoundCycle) -> CapturedCycle:
    cycle = found.recorded()
    captured = captures.take(cycle.number, cycle.question, cycle.lines)
    captured.plugin_answers = cycle.plugin_answers
    captured.asked = [(queue, without, head) for (queue, without), head in cycle.asked.items()]
    captured.answers, captured.plugins, captured.error = cycle.answers, cycle.plugins, cycle.error
    return captured
