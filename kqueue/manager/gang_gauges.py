"""The metrics of gangs, which follow the census of gangs."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from kqueue import model
from kqueue.api import gang_names, names
from kqueue.api.wire import kueue as wire
from kqueue.clock import api_time
from kqueue.controllers.manager import Manager
from kqueue.controllers.raw import JSON
from kqueue.jobs.fields import objects, text
from kqueue.jobs.gang.value import Gang, GangPhase, GangRef
from kqueue.manager.gang_census import STATES, CountedGang, GangCensus, gang_key_of, make_gang_census
from kqueue.observe import Metrics


class GangGauges:
    """Shows gangs by form and phase, their pods beyond the quorum, rejections, and the time from admission to quorum.

    A time is observed only where this process saw the gang before its quorum had nodes, so that a restart observes no
    time twice.
    """

    def __init__(self, metrics: Metrics, census: GangCensus) -> None:
        """Follow the census; all series of its forms exist from the first refresh on."""
        self._metrics, self._census = metrics, census
        self._phases: Counter[tuple[str, str]] = Counter()
        self._extras: Counter[tuple[str, str]] = Counter()
        census.subscribe(self._on_count)
        census.records.gangs.workloads.subscribe(self._on_workload)

    def _on_workload(self, old: wire.Workload | None, new: wire.Workload | None) -> None:
        key, reason = gang_key_of(new), _rejection(new)
        if key and reason and old is not None and _rejection(old) != reason and self._census.is_on(key):
            self._metrics.gang_rejected(GangRef.of_key(key).framework, reason)

    async def refresh(self) -> None:
        """Read the changed gangs, and set every gauge."""
        await self._census.refresh()
        frameworks = self._census.frameworks
        self._metrics.gangs(
            {(name, phase.value): self._phases[name, phase.value] for name in frameworks for phase in GangPhase},
            extras={(name, state): self._extras[name, state] for name in frameworks for state in STATES},
        )

    def _on_count(self, before: CountedGang | None, now: CountedGang | None, gang: Gang | None) -> None:
        """Count one gang that was read again."""
        if before is not None:
            self._count(before, -1)
        if now is not None:
            self._count(now, 1)
        if before is None or now is None or gang is None or not now.scheduled:
            return
        if not (before.scheduled and before.admitted == now.admitted):
            self._observe(gang, now)

    def _count(self, counted: CountedGang, by: int) -> None:
        self._phases[counted.framework, counted.phase] += by
        for state, number in counted.extras.items():
            self._extras[counted.framework, state] += by * number

    def _observe(self, gang: Gang, now: CountedGang) -> None:
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
    census = manager.shared(make_gang_census)
    return GangGauges(metrics, census) if census is not None else None
