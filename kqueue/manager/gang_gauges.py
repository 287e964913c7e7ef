"""The metrics of gangs: only gangs that have changed are read again, in pieces with turns of the event loop between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kqueue import model
from kqueue.api import gang_names, names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock, api_time
from kqueue.controllers.gang_records import GangRecords, make_gang_records
from kqueue.controllers.manager import Manager
from kqueue.controllers.pod_writes import watch_pods
from kqueue.controllers.raw import JSON
from kqueue.jobs.fields import objects, text
from kqueue.jobs.gang.naming import gang_of_workload
from kqueue.jobs.gang.overview import settled_counts
from kqueue.jobs.gang.registry import dialects
from kqueue.jobs.gang.status import admitted_at
from kqueue.jobs.gang.value import Gang, GangPhase, GangRef
from kqueue.jobs.pod_view import ManagedPod
from kqueue.observe import Metrics
from kqueue.runtime.store import Store

_MEMBERS = 200
"""Members of the gangs that are read between two turns of the event loop: about 2 ms."""
_WAITING, _RUNNING = _STATES = "waiting", "running"


@dataclass(frozen=True, slots=True)
class _Shown:
    """The part of one gang that metrics count."""

    framework: str
    phase: str
    extras: Mapping[str, int] = field(default_factory=dict)
    """Members beyond the quorum, by state."""
    admitted: str = ""
    """The time of the admission; empty: none."""
    scheduled: bool = False
    """Whether the quorum has nodes."""


class GangGauges:
    """Shows gangs by form and phase, their pods beyond the quorum, rejections, and the time from admission to quorum.

    Its memory is one small value per gang.  A time is observed only where this process saw the gang before its quorum
    had nodes, so that a restart observes no time twice.
    """

    def __init__(
        self,
        metrics: Metrics,
        records: GangRecords,
        clock: Clock,
        *,
        pods: Store[ManagedPod],
        frameworks: tuple[str, ...],
    ) -> None:
        """`frameworks`: the forms that are on; all their series exist from the first refresh on."""
        self._metrics, self._records, self._clock, self._frameworks = metrics, records, clock, frameworks
        self._changed: dict[str, None] = {}
        self._shown: dict[str, _Shown] = {}
        self._phases: Counter[tuple[str, str]] = Counter()
        self._extras: Counter[tuple[str, str]] = Counter()
        pods.subscribe(self._on_pod)
        records.gangs.objects.subscribe(self._mark)
        records.gangs.workloads.subscribe(self._on_workload)

    def _on_pod(self, old: ManagedPod | None, new: ManagedPod | None) -> None:
        for pod in filter(None, (old, new)):
            if pod.group:
                self._mark(pod.group)

    def _on_workload(self, old: wire.Workload | None, new: wire.Workload | None) -> None:
        workload = new or old
        if workload is None or workload.metadata.annotations.get(names.IS_GROUP_WORKLOAD_ANNOTATION) != "true":
            return
        metadata = workload.metadata
        key = gang_of_workload(metadata.namespace, metadata.name, metadata.annotations)
        self._mark(key)
        reason = _rejection(new)
        if reason and old is not None and _rejection(old) != reason and key in self._changed:
            self._metrics.gang_rejected(GangRef.of_key(key).framework, reason)

    def _mark(self, key: str) -> None:
        """Note that the gang of this key has changed; forms that are off do not count."""
        if GangRef.of_key(key).framework in self._frameworks:
            self._changed[key] = None

    async def refresh(self) -> None:
        """Read the changed gangs, and set every gauge."""
        changed, self._changed = self._changed, {}
        members = 0
        for key in changed:
            members += 1 + self._read(key)
            if members >= _MEMBERS:
                members = 0
                await self._clock.sleep(0)
        self._metrics.gangs(
            {(name, phase.value): self._phases[name, phase.value] for name in self._frameworks for phase in GangPhase},
            extras={(name, state): self._extras[name, state] for name in self._frameworks for state in _STATES},
        )

    def _read(self, key: str) -> int:
        """Count one gang anew; return the number of its members."""
        before = self._shown.pop(key, None)
        gang = self._records.of(key)
        now = self._value(key, gang) if gang is not None else None
        if before is not None:
            self._count(before, -1)
        if now is not None and gang is not None:
            self._shown[key] = now
            self._count(now, 1)
            if before is not None and now.scheduled and not (before.scheduled and before.admitted == now.admitted):
                self._observe(gang, now)
        return len(gang.members) if gang is not None else 0

    def _count(self, shown: _Shown, by: int) -> None:
        self._phases[shown.framework, shown.phase] += by
        for state, number in shown.extras.items():
            self._extras[shown.framework, state] += by * number

    def _value(self, key: str, gang: Gang) -> _Shown | None:
        """Return the part of a gang that counts; None for a group object alone, which another scheduler may own."""
        workload = self._records.workload(key)
        if workload is None and not gang.members:
            return None
        counts = settled_counts(gang, self._records.gangs.object_of(key), workload)
        present = [pod for pod in gang.extras if pod.runnable]
        admitted = admitted_at(workload)
        return _Shown(
            gang.ref.framework,
            counts.phase.value,
            {_WAITING: sum(p.gated for p in present), _RUNNING: sum(p.phase == "Running" for p in present)},
            admitted,
            bool(admitted) and sum(pod.scheduled for pod in gang.base) >= gang.quorum,
        )

    def _observe(self, gang: Gang, now: _Shown) -> None:
        """Observe the time from the admission until the last member of the quorum had a node."""
        begin = api_time(now.admitted)
        times = [_scheduled_at(pod.obj) for pod in gang.base]
        known = [time for time in times if time is not None]
        if begin is not None and known:
            self._metrics.quorum_scheduled(gang.ref.framework, max(0.0, (max(known) - begin).total_seconds()))


_REJECTIONS = (
    gang_names.REASON_GANG_SCHEDULE_TIMEOUT,
    gang_names.REASON_GANG_REJECTED,
    gang_names.REASON_GANG_MADE_WAY,
)


def _rejection(workload: wire.Workload | None) -> str:
    """Return the reason for which the gang of the Workload was rejected; empty: it was not."""
    evicted = model.condition(workload.status.conditions, names.CONDITION_EVICTED) if workload is not None else None
    return evicted.reason if evicted is not None and evicted.status == "True" and evicted.reason in _REJECTIONS else ""


def _scheduled_at(pod: JSON) -> datetime | None:
    conditions = objects(pod, "status", "conditions")
    found = next((c for c in conditions if c.get("type") == "PodScheduled" and c.get("status") == "True"), {})
    return api_time(text(found, "lastTransitionTime"))


def make_gang_gauges(manager: Manager, metrics: Metrics) -> GangGauges | None:
    """Return the gauges of a process, fed by its watches; None: no pods are queued."""
    records, watch = manager.shared(make_gang_records), manager.shared(watch_pods)
    if records is None or watch is None:
        return None
    frameworks = tuple(dialect.framework for dialect in dialects(manager.switches))
    return GangGauges(metrics, records, manager.clock, pods=watch.store, frameworks=frameworks)
