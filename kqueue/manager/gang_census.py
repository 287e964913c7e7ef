"""All gangs of a process, and what summaries count of each: only gangs that have changed are read again."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import structlog

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers.gang_records import GangRecords, make_gang_records
from kqueue.controllers.manager import Manager
from kqueue.controllers.pod_writes import watch_pods
from kqueue.isolation import isolated_logged
from kqueue.jobs.fields import text
from kqueue.jobs.gang.naming import gang_of_workload
from kqueue.jobs.gang.overview import queue_name, settled_counts
from kqueue.jobs.gang.registry import dialects
from kqueue.jobs.gang.stage import GangStage, stage_of
from kqueue.jobs.gang.status import admitted_at
from kqueue.jobs.gang.value import Gang, GangRef
from kqueue.jobs.pod_view import ManagedPod
from kqueue.runtime.store import Store, object_key

_log = structlog.get_logger(__name__)

_MEMBERS = 200
"""Members of the gangs that are read between two turns of the event loop: about 2 ms."""
WAITING, RUNNING = STATES = "waiting", "running"
"""States of members beyond the quorum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedGang:
    """The part of one gang that metrics and summaries count."""

    framework: str
    phase: str
    stage: GangStage
    queue: str = ""
    """Its LocalQueue as namespace/name; empty: none is known."""
    cluster_queue: str = ""
    """The ClusterQueue that admits it, or reserves quota for it; empty: none does."""
    extras: Mapping[str, int] = field(default_factory=dict)
    """Members beyond the quorum, by state."""
    admitted: str = ""
    """The time of the admission; empty: none."""
    scheduled: bool = False
    """Whether the quorum has nodes."""


OnCount = Callable[[CountedGang | None, CountedGang | None, Gang | None], None]
"""Takes the part of a gang before and after it was read, and its record; None: it did not exist, or does not."""


class GangCensus:
    """Knows the keys of all gangs by namespace, and counts gangs.  Its memory is one small value per gang."""

    def __init__(
        self, records: GangRecords, clock: Clock, *, pods: Store[ManagedPod], frameworks: Collection[str]
    ) -> None:
        """`frameworks`: the forms that are on; gangs of other forms are not known."""
        self.records, self.frameworks, self._clock = records, tuple(frameworks), clock
        self._changed: dict[str, None] = {}
        self._keys: defaultdict[str, set[str]] = defaultdict(set)
        self._counted: dict[str, CountedGang] = {}
        self._stages: Counter[tuple[str, str, GangStage]] = Counter()
        self._handlers: list[OnCount] = []
        self._one_at_a_time = asyncio.Lock()
        pods.subscribe(self._on_pod)
        records.gangs.objects.subscribe(self._mark)
        records.gangs.workloads.subscribe(self._on_workload)

    def subscribe(self, handler: OnCount) -> None:
        """Call `handler` for each gang that was read again."""
        self._handlers.append(handler)

    def keys(self, namespace: str = "") -> list[str]:
        """Return the keys of the gangs of a namespace, by name; empty: of all namespaces."""
        every = (self._keys.get(namespace, ()),) if namespace else self._keys.values()
        found = (GangRef.of_key(key) for keys in every for key in keys)
        return [ref.key for ref in sorted(found, key=lambda ref: (ref.namespace, ref.name, ref.framework))]

    def stages(self) -> Mapping[tuple[str, str, GangStage], int]:
        """Return numbers of gangs by LocalQueue (namespace/name), ClusterQueue of the admission, and stage."""
        return self._stages

    def is_counted(self, key: str) -> bool:
        """Whether the gang has members or a Workload; a group object alone may belong to another scheduler."""
        return key in self._counted

    def is_on(self, key: str) -> bool:
        """Whether the form of the gang is on."""
        return GangRef.of_key(key).framework in self.frameworks

    async def refresh(self) -> None:
        """Read the changed gangs, in pieces with turns of the event loop between."""
        async with self._one_at_a_time:
            members = 0
            for key in list(self._changed):
                self._changed.pop(key, None)
                with isolated_logged(_log, "gang could not be counted", gang=key):
                    members += 1 + self._read(key)
                if members >= _MEMBERS:
                    members = 0
                    await self._clock.sleep(0)

    def _on_pod(self, old: ManagedPod | None, new: ManagedPod | None) -> None:
        for pod in filter(None, (old, new)):
            if pod.group:
                self._mark(pod.group)

    def _on_workload(self, old: wire.Workload | None, new: wire.Workload | None) -> None:
        key = gang_key_of(new or old)
        if key:
            self._mark(key)

    def _mark(self, key: str) -> None:
        """Note that the gang of this key has changed."""
        if self.is_on(key):
            self._changed[key] = None
            self._keys[key.partition("/")[0]].add(key)

    def _read(self, key: str) -> int:
        """Count one gang anew; return the number of its members."""
        gang = self.records.of(key)
        now = self._value(key, gang) if gang is not None else None
        before = self._counted.pop(key, None)
        if gang is None:
            self._drop(key)
        if before is not None:
            self._count(before, -1)
        if now is not None:
            self._counted[key] = now
            self._count(now, 1)
        for handler in self._handlers:
            handler(before, now, gang)
        return len(gang.members) if gang is not None else 0

    def _drop(self, key: str) -> None:
        namespace = key.partition("/")[0]
        keys = self._keys.get(namespace, set())
        keys.discard(key)
        if not keys:
            self._keys.pop(namespace, None)

    def _count(self, counted: CountedGang, by: int) -> None:
        place = counted.queue, counted.cluster_queue, counted.stage
        self._stages[place] += by
        if not self._stages[place]:
            del self._stages[place]

    def _value(self, key: str, gang: Gang) -> CountedGang | None:
        """Return the part of a gang that counts; None for a group object alone."""
        workload = self.records.workload(key)
        if workload is None and not gang.members:
            return None
        counts = settled_counts(gang, self.records.gangs.object_of(key), workload)
        present = [pod for pod in gang.extras if pod.runnable]
        admitted, queue, unseen = admitted_at(workload), queue_name(gang, workload), gang.unseen
        waiting = sum(pod.gated for pod in present) + unseen.present - unseen.released
        running = sum(pod.phase == "Running" for pod in present) + unseen.running
        return CountedGang(
            framework=gang.ref.framework,
            phase=counts.phase.value,
            stage=stage_of(counts.phase, workload),
            queue=object_key(gang.ref.namespace, queue) if queue else "",
            cluster_queue=text(workload, "status", "admission", "clusterQueue"),
            extras={WAITING: waiting, RUNNING: running},
            admitted=admitted,
            scheduled=bool(admitted) and sum(pod.scheduled for pod in gang.base) >= gang.quorum,
        )


def gang_key_of(workload: wire.Workload | None) -> str:
    """Return the key of the gang whose quorum the Workload counts; empty: it counts none."""
    if workload is None or workload.metadata.annotations.get(names.IS_GROUP_WORKLOAD_ANNOTATION) != "true":
        return ""
    metadata = workload.metadata
    return gang_of_workload(metadata.namespace, metadata.name, metadata.annotations)


def make_gang_census(manager: Manager) -> GangCensus | None:
    """Return the census of a process, fed by its watches; None: no pods are queued."""
    records, watch = manager.shared(make_gang_records), manager.shared(watch_pods)
    if records is None or watch is None:
        return None
    frameworks = [dialect.framework for dialect in dialects(manager.switches)]
    return GangCensus(records, manager.clock, pods=watch.store, frameworks=frameworks)
