"""A load that arrives over time: its objects, and who makes them, runs them and takes them away again.

The shape is that of the compatible system's load harness: 5 cohorts of 6 ClusterQueues, each with 500 Workloads of
three classes that arrive at their own pace.  There are no Jobs and no pods: `Player` stands for kubelets and jobs.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock, SystemClock
from kqueue.controllers import resources as kinds
from kqueue.core.workload import Admission, PodSetAssignment
from kqueue.runtime.client import Client
from kqueue.runtime.lane import Lane
from kqueue.runtime.reflector import Projection, Reflector
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.status_writer import StatusWriter
from kqueue.state import status
from tests.bench._changes import Changes

COHORTS, QUEUES = 5, 6
NOMINAL, BORROWING = 20, 100
"""CPUs of each ClusterQueue: its own, and what it may borrow."""
RACKS, HOSTS = 10, 64
HOST_OFFERS = {"cpu": "96", "memory": "256Gi", "pods": "110"}
Object = dict[str, Any]

BLOCK, RACK, HOST = (
    "cloud.provider.com/topology-block",
    "cloud.provider.com/topology-rack",
    "kubernetes.io/hostname",
)
TOPOLOGY: Object = {
    "metadata": {"name": "default-topology"},
    "spec": {"levels": [{"nodeLabel": label} for label in (BLOCK, RACK, HOST)]},
}
FLAVOR: Object = {"metadata": {"name": "flavor"}, "spec": {}}
TAS_FLAVOR: Object = {
    "metadata": {"name": "flavor"},
    "spec": {"nodeLabels": {"tas-node-group": "tas"}, "topologyName": "default-topology"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Workloads of one class, as many in each queue; one arrives each `interval` seconds and runs for `run` seconds."""

    name: str
    count: int
    cpu: int
    run: float
    interval: float
    priority: int
    pods: int
    slice_size: int
    """Pods of a slice, in the third of the class that asks for slices."""


KINDS = (
    Kind(name="small", count=350, cpu=1, run=0.2, interval=0.1, priority=50, pods=2, slice_size=1),
    Kind(name="medium", count=100, cpu=5, run=0.5, interval=0.5, priority=100, pods=4, slice_size=2),
    Kind(name="large", count=50, cpu=20, run=1.0, interval=1.2, priority=200, pods=8, slice_size=4),
)


@dataclass(frozen=True, slots=True)
class Shape:
    """The whole load, or a share of its workloads at the same pace; with topology, in equal parts of three requests."""

    topology: bool
    share: float = 1.0

    def count(self, kind: Kind) -> int:
        """Workloads of a class in one queue."""
        return max(1, round(kind.count * self.share))

    @property
    def workloads(self) -> int:
        """All of them."""
        return COHORTS * QUEUES * sum(self.count(kind) for kind in KINDS)

    @property
    def quota(self) -> int:
        """CPUs of all queues."""
        return COHORTS * QUEUES * NOMINAL

    @property
    def arrival_bound(self) -> float:
        """Seconds until the last one arrives."""
        return max((self.count(kind) - 1) * kind.interval for kind in KINDS)

    @property
    def capacity_bound(self) -> float:
        """Seconds that the quota needs for all of them, were it always full."""
        return COHORTS * QUEUES * sum(self.count(kind) * kind.cpu * kind.run for kind in KINDS) / self.quota

    def objects(self) -> Iterator[tuple[ResourceType, Object]]:
        """What is there before the first workload arrives."""
        if self.topology:
            yield kinds.TOPOLOGIES, TOPOLOGY
            for rack in range(RACKS):
                for host in range(HOSTS):
                    yield kinds.NODES, node(rack, host)
        yield kinds.RESOURCE_FLAVORS, TAS_FLAVOR if self.topology else FLAVOR
        for cohort in queues():
            yield kinds.COHORTS, {"metadata": {"name": cohort}, "spec": {}}
            for queue in queues()[cohort]:
                yield kinds.NAMESPACES, {"metadata": {"name": queue}}
                yield kinds.CLUSTER_QUEUES, cluster_queue(queue, cohort)
                local = {"metadata": {"name": queue, "namespace": queue}, "spec": {"clusterQueue": queue}}
                yield kinds.LOCAL_QUEUES, local

    def arrivals(self) -> Iterator[tuple[float, str, Kind, int]]:
        """(second, queue, class, number in its class), in order of time."""
        streams = [
            [(i * kind.interval, queue, kind, i) for i in range(self.count(kind))]
            for cohort in queues().values()
            for queue in cohort
            for kind in KINDS
        ]
        return heapq.merge(*streams, key=lambda arrival: arrival[0])

    def workload(self, queue: str, kind: Kind, number: int) -> Object:
        """One of a class."""
        pods = kind.pods if self.topology else 1
        container = {
            "name": "c",
            "image": "example.dev/train:1",
            "resources": {"requests": {"cpu": f"{kind.cpu * 1000 // pods}m"}},
        }
        template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
        pod_set: Object = {"name": "main", "count": pods, "template": template}
        if self.topology:
            pod_set["topologyRequest"] = self.request(kind, number)
        return {
            "metadata": {"name": f"{kind.name}-{number}", "namespace": queue},
            "spec": {"queueName": queue, "priority": kind.priority, "active": True, "podSets": [pod_set]},
        }

    @staticmethod
    def request(kind: Kind, number: int) -> Object:
        """The three requests in turn."""
        sliced = {"podSetSliceRequiredTopology": RACK, "podSetSliceSize": kind.slice_size}
        return ({"required": RACK}, {"preferred": RACK}, sliced)[number % 3]


def queues() -> Mapping[str, list[str]]:
    """Names of the ClusterQueues, by cohort."""
    return {f"cohort-{c}": [f"cq-{c}-{q}" for q in range(QUEUES)] for c in range(COHORTS)}


def cluster_queue(name: str, cohort: str) -> Object:
    """It takes back what it lent, and lets higher priorities in."""
    quota = {"name": "cpu", "nominalQuota": str(NOMINAL), "borrowingLimit": str(BORROWING)}
    flavors = [{"name": "flavor", "resources": [quota]}]
    return {
        "metadata": {"name": name},
        "spec": {
            "cohortName": cohort,
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
        },
    }


def node(rack: int, host: int) -> Object:
    """A host; hosts of no two racks have the same name."""
    name = f"host-{rack:02}-{host:02}"
    labels = {"tas-node-group": "tas", BLOCK: "block-0", RACK: f"rack-{rack:02}", HOST: name}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": HOST_OFFERS, "capacity": HOST_OFFERS, "conditions": [ready]},
    }


@dataclass(slots=True)
class Life:
    """One workload, as far as it has come."""

    kind: Kind
    queue: str
    number: int
    seen: float | None = None
    """When the watch first showed it; like all times here, seconds of the event loop's clock."""
    admitted: float | None = None
    """When it was first admitted."""
    holds_since: float | None = None
    """Since when it holds quota; None while it holds none."""
    runs: asyncio.TimerHandle | None = None
    leaving: bool = False
    finished: bool = False


@dataclass(slots=True)
class Ledger:
    """Who holds how much quota, in the order in which the API server wrote it."""

    used: Counter[str] = field(default_factory=Counter)
    """CPUs by cohort."""
    cpu_seconds: float = 0.0
    """Quota that was held, until now given back."""
    problems: list[str] = field(default_factory=list)

    def take(self, cohort: str, life: Life, now: float) -> None:
        """It holds quota from now on."""
        life.holds_since = now
        self.used[cohort] += life.kind.cpu
        if self.used[cohort] > QUEUES * NOMINAL:
            self.problems.append(f"{cohort} uses {self.used[cohort]} of {QUEUES * NOMINAL} CPUs")

    def give_back(self, cohort: str, life: Life, now: float) -> None:
        """It does not any more."""
        assert life.holds_since is not None
        self.used[cohort] -= life.kind.cpu
        self.cpu_seconds += life.kind.cpu * (now - life.holds_since)
        life.holds_since = None


class Player:
    """Makes the workloads when they are due, and does what kubelets and jobs would.

    An admitted workload is finished when it has run for its time; the reservation of an evicted one is taken away.
    """

    def __init__(self, client: Client, shape: Shape) -> None:
        self._client, self._shape, self._clock = client, shape, SystemClock()
        self._cohort_of = {queue: cohort for cohort, names_ in queues().items() for queue in names_}
        self.watch: Reflector[wire.Workload, wire.Workload] = Reflector(
            client, kinds.WORKLOADS, Projection(wire.Workload, lambda workload: workload), clock=self._clock
        )
        self._writer = StatusWriter(
            client,
            kinds.WORKLOADS,
            store=self.watch.store,
            decode=wire.Workload,
            key_of=model.workload_key,
            version_of=lambda workload: workload.metadata.resource_version,
        )
        self.lives: dict[str, Life] = {}
        self.ledger = Ledger()
        self.changes = Changes()
        self.admissions = self.evictions = self.finished = 0
        self.begun = self.ended = self.last_arrival = 0.0
        self.moved = 0.0
        """When a workload last came or finished."""
        self.done = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._tasks: asyncio.TaskGroup | None = None
        self.watch.subscribe(self._on_workload)

    async def play(self) -> None:
        """Return when all workloads have come and finished."""
        self.begun = self.moved = self._loop.time()
        async with asyncio.TaskGroup() as self._tasks:
            for at, queue, kind, number in self._shape.arrivals():
                self.lives[f"{queue}/{kind.name}-{number}"] = Life(kind, queue, number)
                await asyncio.sleep(max(0.0, self.begun + at - self._loop.time()))
                self._tasks.create_task(self._create(queue, kind, number))
            await self.done.wait()
        self.ended = self._loop.time()

    async def _create(self, queue: str, kind: Kind, number: int) -> None:
        await self._client.create(kinds.WORKLOADS, typed(kinds.WORKLOADS, self._shape.workload(queue, kind, number)))
        self.last_arrival = self._loop.time()

    # --- what the watch shows ----------------------------------------------------------------------------------

    def _on_workload(self, old: wire.Workload | None, new: wire.Workload | None) -> None:
        if new is None:
            self.ledger.problems.append("a workload was deleted")
            return
        key, now = model.workload_key(new), self._loop.time()
        life = self.lives[key]
        self.changes.add(key, old, new, now=now)
        if life.seen is None:
            life.seen = self.moved = now
        reserved = model.condition_true(new, names.CONDITION_QUOTA_RESERVED)
        finished = model.condition_true(new, names.CONDITION_FINISHED)
        self._count(life, new, holds=reserved and not finished, now=now)
        if finished:
            self._end(life, now)
        elif reserved and model.condition_true(new, names.CONDITION_EVICTED):
            self._leave(key, life)
        elif reserved and model.condition_true(new, names.CONDITION_ADMITTED) and life.runs is None:
            self.admissions += 1
            life.admitted = now if life.admitted is None else life.admitted
            life.runs = self._loop.call_later(life.kind.run, self._spawn, key, finish(self._clock))
        elif not reserved:
            life.runs, life.leaving = None, False

    def _count(self, life: Life, new: wire.Workload, *, holds: bool, now: float) -> None:
        cohort = self._cohort_of[life.queue]
        if holds and life.holds_since is None:
            self.ledger.take(cohort, life, now)
            if self._shape.topology:
                self.ledger.problems.extend(misplaced(self._shape, life, new))
        elif not holds and life.holds_since is not None:
            self.ledger.give_back(cohort, life, now)

    def _end(self, life: Life, now: float) -> None:
        if life.finished:
            return
        life.finished, self.moved = True, now
        self.finished += 1
        if self.finished == self._shape.workloads:
            self.done.set()

    def _leave(self, key: str, life: Life) -> None:
        if life.leaving:
            return
        if life.runs is not None:
            life.runs.cancel()
        life.leaving = True
        self.evictions += 1
        self._spawn(key, unreserve(self._clock))

    def _spawn(self, key: str, change: Callable[[wire.Workload], status.Patch | None]) -> None:
        assert self._tasks is not None
        self._tasks.create_task(self._write(key, change))

    async def _write(self, key: str, change: Callable[[wire.Workload], status.Patch | None]) -> None:
        await self._writer.write(key, change, lane=Lane.STATUS)

    # --- where it stands ---------------------------------------------------------------------------------------

    def waits(self) -> dict[str, float]:
        """Mean seconds from a workload's first sight to its first admission, by class."""
        found: defaultdict[str, list[float]] = defaultdict(list)
        for life in self.lives.values():
            if life.seen is not None and life.admitted is not None:
                found[life.kind.name].append(life.admitted - life.seen)
        return {name: sum(waited) / len(waited) for name, waited in found.items()}

    def stuck(self, limit: int = 5) -> str:
        """What has not come to its end, and what the first of these say."""
        left = {key: life for key, life in self.lives.items() if not life.finished}
        states = Counter("running" if x.runs else "holding" if x.holds_since else "waiting" for x in left.values())
        lines = [f"{self.finished} of {self._shape.workloads} finished, {dict(states)}; CPUs {dict(self.ledger.used)}"]
        for key in list(left)[:limit]:
            workload = self.watch.store.get(key)
            told = workload.status.conditions if workload is not None else ()
            lines.append(f"{key}: " + ("; ".join(f"{c.type}={c.status} {c.reason}: {c.message}" for c in told) or "-"))
        return "\n".join(lines)


class Unhindered(Player):
    """Admits each workload as soon as it is seen, whatever the quota: what the load takes when nobody decides."""

    def _on_workload(self, old: wire.Workload | None, new: wire.Workload | None) -> None:
        super()._on_workload(old, new)
        if new is not None and new.status.admission is None:
            self._spawn(model.workload_key(new), _reserve(self._clock))


def typed(resource: ResourceType, obj: Object) -> Object:
    """With its kind."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, **obj}


def _reserve(clock: SystemClock) -> Callable[[wire.Workload], status.Patch | None]:
    def change(workload: wire.Workload) -> status.Patch | None:
        [pod_set] = workload.spec.pod_sets
        usage = {"cpu": sum(kind.cpu * 1000 for kind in KINDS if workload.spec.priority == kind.priority)}
        taken = PodSetAssignment(name=pod_set.name, flavors={"cpu": "flavor"}, usage=usage, count=pod_set.count)
        admission = Admission(queue=workload.metadata.namespace, pod_sets=(taken,))
        return status.reserve(workload, admission, wanted=(), stamp=status.Stamp(clock.now()))

    return change


def finish(clock: Clock) -> Callable[[wire.Workload], status.Patch | None]:
    """What a job writes that has run; nothing where it was evicted meanwhile."""

    def change(workload: wire.Workload) -> status.Patch | None:
        if model.condition_true(workload, names.CONDITION_EVICTED) or workload.status.admission is None:
            return None  # it was sent away at its very end
        return status.finish(workload, reason="Succeeded", message="It ran", stamp=status.Stamp(clock.now()))

    return change


def unreserve(clock: Clock) -> Callable[[wire.Workload], status.Patch | None]:
    """What takes the reservation of an evicted workload away, when its pods are gone."""

    def change(workload: wire.Workload) -> status.Patch | None:
        if not model.condition_true(workload, names.CONDITION_EVICTED):
            return None
        stamp = status.Stamp(clock.now())
        reason, message = names.REASON_PENDING_EVALUATION, "Its pods are gone"
        return status.unreserve(workload, reason=reason, message=message, stamp=stamp, requeued=True)

    return change


def misplaced(shape: Shape, life: Life, workload: wire.Workload) -> Iterator[str]:
    """What is wrong with the hosts of an admitted workload, if anything is."""
    admission = workload.status.admission
    stored = admission.pod_set_assignments[0].topology_assignment if admission is not None else None
    key = model.workload_key(workload)
    if stored is None:
        yield f"{key} has no hosts"
        return
    by_rack: Counter[str] = Counter()
    for domain in model.assignment(stored).domains:
        by_rack[domain.values[-1].rpartition("-")[0]] += domain.count
    request = shape.request(life.kind, life.number)
    if by_rack.total() != life.kind.pods:
        yield f"{by_rack.total()} of the {life.kind.pods} pods of {key} have hosts"
    if "required" in request and len(by_rack) != 1:
        yield f"{key} wants one rack and has {dict(by_rack)}"
    if any(count % request.get("podSetSliceSize", 1) for count in by_rack.values()):
        yield f"{key} has slices across racks: {dict(by_rack)}"
