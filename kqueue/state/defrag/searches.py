"""The searches for plans that this process has made, and the workloads for which it makes them."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Generator
from datetime import datetime
from functools import partial

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.core.explain import NO_DOMAINS, WaitReason
from kqueue.core.value import value
from kqueue.model.pending import Pending
from kqueue.state.defrag.view import Lookup
from kqueue.state.queues import Queues

_MOST = 256
_STEP = 200


@value(kw_only=True)
class SearchResult:
    """The last search for one workload: when it was, and why there is no plan; `message` is empty if there is one."""

    at: datetime
    reason: str = ""
    message: str = ""


class SearchMemory:
    """The last searches, by the UID of the waiting Workload; the oldest are forgotten."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, SearchResult] = OrderedDict()
        self.last: datetime | None = None
        """The time of the last search; None: there was none yet."""

    def note(self, uid: str, result: SearchResult) -> None:
        """Remember a search."""
        self._of.pop(uid, None)
        self._of[uid] = result
        if len(self._of) > _MOST:
            self._of.popitem(last=False)

    def of(self, uid: str) -> SearchResult | None:
        """Return the last search for a Workload; None: none is remembered."""
        return self._of.get(uid)


def waits_for_topology(obj: wire.Workload, queues: Queues) -> bool:
    """Whether the last try of a waiting Workload found quota, and no domains."""
    verdict = queues.bulk_verdict(model.workload_key(obj))
    if verdict is not None and verdict.reason:
        return _lacks_domains(verdict.reason, verdict.message)
    told = model.condition(obj.status.conditions, names.CONDITION_QUOTA_RESERVED)
    return told is not None and told.status == "False" and _lacks_domains(told.reason, told.message)


def _lacks_domains(reason: str, message: str) -> bool:
    """Whether a workload fits on no free domains, whose reason is that of missing quota, too, or on none at all."""
    if reason == names.REASON_TOPOLOGY_PLACEMENT_FAILED:
        return True
    return reason == WaitReason.WAITING_FOR_QUOTA and message.startswith(NO_DOMAINS)


def first_waiting(queues: Queues, workloads: Lookup[wire.Workload], most: int) -> Generator[None, None, list[str]]:
    """Return the workloads that wait for topology and would be admitted first, at most `most`, in short steps.

    Each ClusterQueue keeps its own order; among the first ones of several queues, priority and age decide.
    """
    lines: list[list[Pending]] = []
    for name in queues.names():
        found: list[Pending] = []
        for number, item in enumerate(queues.waiting(name)):
            if number % _STEP == 0:
                yield
            obj = workloads.get(item.key)
            if obj is not None and waits_for_topology(obj, queues):
                found.append(item)
        if found and queues.knows(name):
            lines.append(heapq.nsmallest(most, found, key=partial(queues.rank, name)))
    chosen: list[str] = []
    while len(chosen) < most and any(lines):
        line = min(filter(None, lines), key=lambda line: (-line[0].priority, line[0].timestamp, line[0].key))
        chosen.append(line.pop(0).key)
    return chosen
