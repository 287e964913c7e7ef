"""Periodic work: gauges in every replica, and audits of the cache in the leader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog
from cachetools import LRUCache

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers.intake import Intake
from kqueue.controllers.record import ObjectReference, Recorder
from kqueue.core.topology import HOSTNAME, PODS
from kqueue.manager.gang_gauges import GangGauges
from kqueue.manager.gauges import QueueGauges, as_written
from kqueue.observe import Metrics
from kqueue.runtime.store import Store
from kqueue.state.audit import Drift, chunks, short
from kqueue.state.cache import Cache
from kqueue.state.cache_audit import Told
from kqueue.state.ledger import NodeLedger
from kqueue.state.not_running import NotRunning
from kqueue.state.quarantine import Quarantine
from kqueue.state.queues import Queues
from kqueue.state.spare import room_of

_log = structlog.get_logger(__name__)

_REASONS = ("notReady", "unschedulable", "missingLevel", "duplicateHostname")
_OF_A_WORKLOAD = frozenset({"charge", "queue", "workload"})
"""Causes of drifts whose key is the key of a workload."""
_WORKLOADS = 100
"""Workloads whose pods are read before the event loop gets a turn."""
_LOGGED_DRIFTS = 20
"""Drifts of one audit that get a log line each; metrics count all drifts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """All gauges that are refreshed periodically, in every replica."""

    queues: QueueGauges
    nodes: NodeGauges
    foreign: ForeignGauges
    room: RoomGauges
    pods: PodGauges
    gangs: GangGauges | None = None
    """None: no pods are queued."""

    async def refresh(
        self, local_queues: Collection[wire.LocalQueue], workloads: Collection[wire.Workload], *, tell: bool
    ) -> None:
        """Set every gauge.  `tell`: also record events for faults that only an administrator can repair."""
        await self.queues.refresh(list(local_queues), workloads)
        self.nodes.refresh(tell=tell)
        await self.foreign.refresh()
        await self.room.refresh()
        await self.pods.refresh()
        if self.gangs is not None:
            await self.gangs.refresh()


class NodeGauges:
    """Shows how many nodes are left out of their flavors' topologies, and warns once of a duplicate host name."""

    def __init__(self, metrics: Metrics, ledger: NodeLedger, events: Recorder) -> None:
        self._metrics, self._ledger, self._events = metrics, ledger, events
        self._flavors: set[str] = set()
        self._warned: dict[str, str] = {}

    def refresh(self, *, tell: bool = True) -> None:
        """Set every gauge.  `tell`: record an event for each node whose host name became a duplicate."""
        flavors = set(self._ledger.flavors())
        for gone in self._flavors - flavors:
            self._metrics.forget_flavor(gone)
        self._flavors = flavors
        taken: dict[str, str] = {}
        for flavor in sorted(flavors):
            left_out = self._ledger.left_out(flavor)
            counts = Counter(why.reason for why in left_out.values())
            self._metrics.ignored_nodes(flavor, {reason: counts[reason] for reason in _REASONS})
            taken |= {name: why.detail[0] for name, why in left_out.items() if why.reason == "duplicateHostname"}
        for name, other in taken.items() if tell else ():
            if self._warned.get(name) != other:
                self._warn(name, other)
        self._warned = taken if tell else {}

    def _warn(self, name: str, other: str) -> None:
        host = self._ledger.nodes[name].labels[HOSTNAME]
        node = ObjectReference(api_version="v1", kind="Node", namespace="", name=name, uid=name)
        self._events.record(
            node,
            reason="DuplicateHostname",
            message=f"No pods are placed here: node {other} has the same label {HOSTNAME}={host}; give each its own",
            warning=True,
        )


class ForeignGauges:
    """Shows the usage of foreign pods on the nodes of each flavor."""

    def __init__(self, metrics: Metrics, ledger: NodeLedger, clock: Clock) -> None:
        self._metrics, self._ledger, self._clock = metrics, ledger, clock
        self._flavors: set[str] = set()

    async def refresh(self) -> None:
        """Set every gauge, with turns of the event loop in between.  Changes meanwhile may count or not."""
        flavors = self._ledger.flavors()
        for gone in self._flavors.difference(flavors):
            self._metrics.forget_flavor(gone)
        self._flavors = set(flavors)
        for flavor in flavors:
            taken: Counter[str] = Counter()
            for names in chunks(self._ledger.members(flavor)):
                for name in names:
                    for resource, amount in self._ledger.foreign_on(name).items():
                        taken[resource] += amount
                await self._clock.sleep(0)
            pods = taken.pop(PODS, 0)
            if self._ledger.tree(flavor) is not None:  # it may be gone since
                shown = {resource: as_written(resource, amount) for resource, amount in taken.items()}
                self._metrics.foreign(flavor, pods=pods, requests=shown)


class PodGauges:
    """Shows released pods that do not run, by ClusterQueue."""

    def __init__(
        self,
        metrics: Metrics,
        clock: Clock,
        *,
        workloads: Callable[[], Iterable[wire.Workload]],
        not_running: Callable[[wire.Workload], Sequence[NotRunning]],
    ) -> None:
        """`workloads()` returns the workloads that may have such pods, `not_running(workload)` the pods."""
        self._metrics, self._clock = metrics, clock
        self._workloads, self._not_running = workloads, not_running

    async def refresh(self) -> None:
        """Set every gauge; ClusterQueues without such pods have no series."""
        found = Counter[str]()
        for number, workload in enumerate(self._workloads(), start=1):
            pods = self._not_running(workload)
            if pods and workload.status.admission is not None:
                found[workload.status.admission.cluster_queue] += len(pods)
            if number % _WORKLOADS == 0:
                await self._clock.sleep(0)
        self._metrics.not_running(found)


class RoomGauges:
    """Shows how many gangs the empty nodes of each flavor could hold, and how much free capacity is fragmented.

    A node is empty when no workload is placed on it and no other pod uses a device there.
    """

    def __init__(self, metrics: Metrics, cache: Cache, clock: Clock) -> None:
        self._metrics, self._cache, self._clock = metrics, cache, clock
        self._flavors: set[str] = set()

    async def refresh(self) -> None:
        """Set every gauge, with turns of the event loop in between."""
        ledger = self._cache.ledger
        for _ in ledger.build_steps():  # a follower has no cycles that build them
            await self._clock.sleep(0)
        flavors = ledger.flavors()
        for gone in self._flavors.difference(flavors):
            self._metrics.forget_flavor(gone)
        self._flavors = set(flavors)
        for flavor in flavors:
            taken: set[str] = set()
            for names in chunks(ledger.members(flavor)):
                taken |= {name for name in names if _holds_device(ledger.foreign_on(name))}
                await self._clock.sleep(0)
            capacity = ledger.capacity(flavor)
            if capacity is not None and len(capacity.tree):
                room = room_of(capacity, taken, self._cache.quota.resources_of(flavor))
                self._metrics.room(flavor, slots=room.slots, broken=room.broken, lost=room.lost)
            await self._clock.sleep(0)


def _holds_device(requests: Mapping[str, int]) -> bool:
    return any("/" in resource and amount > 0 for resource, amount in requests.items())


class Auditor:
    """Compares the cache with the objects of the watches, corrects the cache, and reports every drift."""

    def __init__(self, *, cache: Cache, told: Told, intake: Intake, metrics: Metrics, clock: Clock) -> None:
        self._cache, self._told, self._intake = cache, told, intake
        self._metrics, self._clock = metrics, clock

    async def audit(self) -> int:
        """Run a whole audit, with turns of the event loop between its steps.  Return the number of drifts."""
        found = 0
        for drifts in self._cache.audits.audit_steps(self._told):
            for drift in drifts:
                found += 1
                self._report(drift, found)
            await self._clock.sleep(0)
        if found:
            _log.error("the cache is healed", drifts=found)
            self._intake.retry_all()
        return found

    def heal(self, drifts: Iterable[Drift]) -> int:
        """Report drifts that another audit has corrected, and retry waiting workloads.  Return the number of drifts."""
        found = 0
        for found, drift in enumerate(drifts, start=1):
            self._report(drift, found)
        if found:
            self._intake.retry_all()
        return found

    def _report(self, drift: Drift, number: int) -> None:
        self._metrics.drift(drift.cause)
        if number <= _LOGGED_DRIFTS:
            _log.error(
                "the cache drifted",
                cause=drift.cause,
                key=drift.key,
                believed=short(drift.believed),
                actual=short(drift.actual),
            )
        if drift.cause in _OF_A_WORKLOAD:
            workload = self._told.workloads.get(drift.key)
            if workload is not None:
                self._intake.on_workload(None, workload)  # its place in the queue may be another now


STANDING_INDEX = "standing"
"""Index of Workloads by whether they wait or hold quota: `model.standing`."""


class QuickAuditor:
    """Compares cache and queues with the Workloads every few seconds.  Equal numbers cost nothing more.

    It finds the faults that keep a job waiting for ever: a charge without an owner, a holding whose Workload holds no
    quota, and a waiting Workload in no queue.  A fault of the last two kinds counts when it is found twice in a row,
    because the numbers may differ for a moment between an event and its effect.
    """

    def __init__(
        self, *, cache: Cache, queues: Queues, quarantine: Quarantine, workloads: Store[wire.Workload], auditor: Auditor
    ) -> None:
        """`workloads` must have STANDING_INDEX.  `auditor` reports the drifts."""
        self._cache, self._queues, self._quarantine = cache, queues, quarantine
        self._workloads, self._auditor = workloads, auditor
        self._unqueued: set[str] = set()
        self._misheld: set[str] = set()
        """Keys that the last comparison found."""
        self._told: LRUCache[str, str] = LRUCache(maxsize=1000)
        """Workloads whose drift was reported, with the resource version: an unreadable status differs every time."""

    def look(self) -> int:
        """Compare, and correct.  Return the number of drifts."""
        drifts = self._cache.audits.audit_charges(self._workloads)
        drifts += self._audit_holdings()
        drifts += self._audit_queues()
        return self._auditor.heal(drifts)

    def _audit_holdings(self) -> list[Drift]:
        if self._workloads.count_by_index(STANDING_INDEX, model.HOLDS) == self._cache.held.confirmed():
            self._misheld = set()
            return []
        told = set(self._workloads.keys_by_index(STANDING_INDEX, model.HOLDS))
        found = told ^ self._cache.held.confirmed_keys()
        twice, self._misheld = found & self._misheld, found
        return [drift for key in sorted(twice) if self._is_new(key) for drift in self._audit_workload(key)]

    def _audit_queues(self) -> list[Drift]:
        if self._workloads.count_by_index(STANDING_INDEX, model.WAITS) == self._queues.known_count():
            self._unqueued = set()
            return []
        told = self._workloads.keys_by_index(STANDING_INDEX, model.WAITS)
        found = {key for key in told if self._is_lost(key)}
        twice, self._unqueued = found & self._unqueued, found
        return [Drift("queue", key, None, "waits") for key in sorted(twice) if self._is_new(key)]

    def _audit_workload(self, key: str) -> list[Drift]:
        return self._cache.audits.audit_workload(key, self._workloads.get(key))

    def _is_new(self, key: str) -> bool:
        """Whether no drift of this version of the workload was reported yet."""
        obj = self._workloads.get(key)
        version = obj.metadata.resource_version if obj is not None else ""
        is_new = self._told.get(key) != version
        self._told[key] = version
        return is_new

    def _is_lost(self, key: str) -> bool:
        return not self._queues.is_known(key) and key not in self._quarantine and self._cache.held.holding(key) is None
