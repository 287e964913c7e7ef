"""The answer to a what-if: the decisions of both sides compared, and written for one user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kqueue.core.fair_share import dominant_share
from kqueue.core.quantity import format_quantity
from kqueue.core.quota import NO_QUOTA, FlavorResource, Quota, QuotaNode
from kqueue.core.workload import Admitted, Snapshot
from kqueue.visibility.explained import Audience
from kqueue.visibility.pacing import RequestPace
from kqueue.visibility.question import JSON, AuthorizedQuestion

LISTED = 100
"""Workloads of each list that are shown; the others are counted."""
_QUEUES_LISTED = 200
_STEP = 250
STARTS = ("Now", "AfterPreemption")
_LISTS = ("starts", "startsNoLonger", "neverStarts")


@dataclass(slots=True, kw_only=True)
class StartVerdict:
    """The decision about one workload."""

    key: str
    queue: str
    start: str
    message: str = ""
    victims: tuple[Admitted, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueUse:
    """Quotas of a ClusterQueue, its use now and once waiting workloads have started, and its share then."""

    quotas: Mapping[FlavorResource, Quota] = field(default_factory=dict)
    now: Mapping[FlavorResource, int] = field(default_factory=dict)
    used: Mapping[FlavorResource, int] = field(default_factory=dict)
    share: int = 0


_NO_USE = QueueUse()


@dataclass(slots=True, kw_only=True)
class WhatIfDecisions:
    """The decisions about all waiting workloads in one state."""

    verdicts: dict[str, StartVerdict] = field(default_factory=dict)
    planned: int = 0
    of: int = 0
    queues: dict[str, QueueUse] = field(default_factory=dict)

    def start(self, key: str) -> str:
        """Return how the workload starts; empty: it was not planned."""
        found = self.verdicts.get(key)
        return found.start if found is not None else ""

    def victims(self) -> dict[str, tuple[Admitted, StartVerdict]]:
        """Return the workloads that would be preempted, with the verdict on their preemptor."""
        return {victim.key: (victim, verdict) for verdict in self.verdicts.values() for victim in verdict.victims}


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """A workload that leaves because of a change, and the reason: `Drained` or `Stopped`."""

    workload: Admitted
    reason: str


async def uses(queues: Iterable[str], before: Snapshot, after: Snapshot, pace: RequestPace) -> dict[str, QueueUse]:
    """Return quotas, use and share of ClusterQueues before and after decisions."""
    found: dict[str, QueueUse] = {}
    for number, name in enumerate(queues):
        if number % _STEP == 0:
            await pace.step()
        node = after.nodes.get(name)
        if node is not None:
            now = before.nodes[name].usage if name in before.nodes else {}
            found[name] = QueueUse(quotas=node.quotas, now=now, used=node.usage, share=_share(node))
    return found


def _share(node: QuotaNode) -> int:
    return dominant_share(node).weighted_share() if node.parent is not None else 0


@dataclass(slots=True)
class Differences:
    """The workloads whose fate differs: lists of what is shown, and their whole lengths."""

    leaving: Sequence[Leaving]
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_LISTS, 0))
    verdicts: dict[str, list[StartVerdict]] = field(default_factory=lambda: {name: [] for name in _LISTS})
    victims: list[tuple[Admitted, StartVerdict]] = field(default_factory=list)

    def count(self, name: str, verdict: StartVerdict) -> None:
        """Add a verdict to a list."""
        self.counts[name] += 1
        if len(self.verdicts[name]) < LISTED:
            self.verdicts[name].append(verdict)

    def keys(self) -> list[str]:
        """Return the workloads that the answer would name."""
        found = [one.workload.key for one in self.leaving[:LISTED]]
        found += [verdict.key for some in self.verdicts.values() for verdict in some]
        return found + [key for victim, verdict in self.victims[:LISTED] for key in (victim.key, verdict.key)]


async def compared(
    before: WhatIfDecisions, after: WhatIfDecisions, leaving: Sequence[Leaving], pace: RequestPace
) -> Differences:
    """Return the workloads whose fate differs."""
    found = Differences(leaving)
    left = {one.workload.key for one in leaving}
    for number, (key, verdict) in enumerate(after.verdicts.items()):
        if number % _STEP == 0:
            await pace.step()
        old = before.start(key)
        if verdict.start == "Never" and old != "Never":
            found.count("neverStarts", verdict)
        if key in left:
            continue
        if verdict.start in STARTS and old not in STARTS and (old or before.planned == before.of):
            found.count("starts", verdict)
        elif verdict.start not in STARTS and old in STARTS:
            found.count("startsNoLonger", verdict)
    if after.planned == after.of:
        for key, verdict in before.verdicts.items():
            if verdict.start in STARTS and key not in after.verdicts:  # its queue does not admit any more
                found.count("startsNoLonger", StartVerdict(key=key, queue=verdict.queue, start="Later"))
    await pace.step()
    known = before.victims()
    found.victims = [entry for key, entry in after.victims().items() if key not in known]
    found.counts["evicted"] = len(leaving) + len(found.victims)
    return found


async def audience_of(asked: AuthorizedQuestion, keys: Iterable[str]) -> Audience:
    """Return the user of an answer that would name these workloads."""
    readable: set[str] = set()
    for namespace in sorted({key.partition("/")[0] for key in keys}):
        if await asked.reads(namespace):
            readable.add(namespace)
    return Audience(readable)


def shown_differences(found: Differences, after: WhatIfDecisions, audience: Audience) -> JSON:
    """Return the counts and the lists of workloads."""
    evicted = [_left(one, after, audience) for one in found.leaving[:LISTED]]
    evicted += [
        audience.workload(victim, reason="Preempted", by=_named(verdict, audience))
        for victim, verdict in found.victims[: LISTED - len(evicted)]
    ]
    lists = {name: [_named(verdict, audience) for verdict in found.verdicts[name]] for name in _LISTS}
    return {"counts": found.counts, **lists, "evicted": evicted}


def _left(one: Leaving, after: WhatIfDecisions, audience: Audience) -> JSON:
    """Return a workload that leaves, and when it would start again."""
    found = after.verdicts.get(one.workload.key)
    again = {"again": found.start, **({"message": found.message} if found.message else {})} if found else {}
    if found is not None and not audience.may_name(one.workload.key):
        again.pop("message", None)
    return audience.workload(one.workload, reason=one.reason, **again)


def _named(verdict: StartVerdict, audience: Audience) -> JSON:
    shown: JSON = {"clusterQueue": verdict.queue, "start": verdict.start}
    if not audience.may_name(verdict.key):
        return {**shown, "hidden": True}
    namespace, _, name = verdict.key.partition("/")
    shown = {"namespace": namespace, "name": name, **shown}
    if verdict.message:
        shown["message"] = verdict.message
    if verdict.victims:
        shown["preempts"] = len(verdict.victims)
    return shown


async def shown_queues(before: WhatIfDecisions, after: WhatIfDecisions, pace: RequestPace) -> list[JSON]:
    """Return quota, use and share of each ClusterQueue: now, and with and without the change once waiting workloads
    have started; those that differ most first.
    """
    ranked: list[tuple[int, str]] = []
    for number, name in enumerate(sorted(before.queues.keys() | after.queues.keys())):
        if number % _STEP == 0:
            await pace.step()
        old, new = before.queues.get(name, _NO_USE), after.queues.get(name, _NO_USE)
        columns = old.quotas.keys() | new.quotas.keys()
        differs = sum(
            (old.used.get(c, 0) != new.used.get(c, 0))
            + (old.quotas.get(c, NO_QUOTA).nominal != new.quotas.get(c, NO_QUOTA).nominal)
            for c in columns
        )
        ranked.append((-(differs + (old.share != new.share)), name))
    ranked.sort()
    found: list[JSON] = []
    for _, name in ranked[:_QUEUES_LISTED]:
        await pace.step()
        found.append(_queue(name, before.queues.get(name, _NO_USE), after.queues.get(name, _NO_USE)))
    return found


def _queue(name: str, old: QueueUse, new: QueueUse) -> JSON:
    resources = []
    for column in sorted(old.quotas.keys() | new.quotas.keys()):
        amounts = {
            "nominal": old.quotas.get(column, NO_QUOTA).nominal,
            "nominalAfter": new.quotas.get(column, NO_QUOTA).nominal,
            "used": old.now.get(column, 0),
            "usedWithout": old.used.get(column, 0),
            "usedWith": new.used.get(column, 0),
        }
        shown = {key: format_quantity(amount, column.resource) for key, amount in amounts.items()}
        resources.append({"flavor": column.flavor, "resource": column.resource, **shown})
    return {"clusterQueue": name, "shareWithout": old.share, "shareWith": new.share, "resources": resources}


def shown_end(before: WhatIfDecisions, after: WhatIfDecisions) -> JSON:
    """Return whether all workloads were planned, and else how many."""
    if before.planned == before.of and after.planned == after.of:
        return {"finished": True}
    planned = (
        f"{before.planned} of {before.of} waiting workloads without the change, {after.planned} of {after.of} with it"
    )
    return {"finished": False, "message": f"not finished: the planner's time sufficed for {planned}"}
