"""`api/cost`: what each kind of write costs a kube-apiserver, in CPU: `make bench ROWS=api/cost`; about two minutes.

Nothing else writes: there is no controller, and this process sends each kind 400 times, 16 at a time, to different
objects: the server tries a patch again that another one of the same object has overtaken.  The patches are
those of the product (`state/status.py`), the objects those of `load/third`, without topology.

    ms_KIND           CPU of kube-apiserver for one write, in milliseconds, garbage collection included
    etcd_ms_KIND      of etcd
    ms_admission_N_watches    of the admission, while N more clients watch Workloads

    workload          a Workload is created
    wait, admission, eviction, give_back    patches of its status: a reason for waiting, quota reserved and admitted,
                      evicted, the reservation taken away
    event             an Event is created
    cluster_queue, local_queue    a patch of the counts in its status
    job               a patch that starts a Job: `suspend`, and labels and a node selector of its template
    pod               a patch that takes a scheduling gate off a Pod, and adds a node selector
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import SystemClock
from kqueue.controllers import resources as kinds
from kqueue.core.workload import Admission, PodSetAssignment
from kqueue.observe import configure_logs
from kqueue.runtime.client import Client, connect
from kqueue.runtime.loop import run
from kqueue.runtime.reflector import Projection, Reflector
from kqueue.runtime.resources import EVENTS, ResourceType
from kqueue.state import status
from tests.bench._arrivals import KINDS, NOMINAL, Shape, queues, typed
from tests.bench._meter import Meter
from tests.bench.load import Servers, filled
from tests.bench.table import Figure, Row, check

WRITES, IN_FLIGHT = 400, 16
QUEUE = "cq-0-0"
SMALL = KINDS[0]
JOBS = ResourceType("batch", "v1", "jobs", "Job")
WATCHES = (1, 4)
Object = dict[str, Any]
Change = Callable[[wire.Workload], status.Patch | None]


class Costs:
    """Sends writes of one kind after the other, and measures each."""

    def __init__(self, client: Client, servers: Servers) -> None:
        self._client, self._servers, self._clock = client, servers, SystemClock()
        self._shape = Shape(topology=False)
        self._queues = [queue for cohort in queues().values() for queue in cohort]
        self._workloads: dict[str, wire.Workload] = {}
        self.api: dict[str, float] = {}
        self.etcd: dict[str, float] = {}

    @property
    def _stamp(self) -> status.Stamp:
        return status.Stamp(self._clock.now())

    async def measure(self, kind: str, write: Callable[[int], Awaitable[object]]) -> None:
        """Send so many writes of a kind; what one took of each server's CPU, in milliseconds."""
        places = asyncio.Semaphore(IN_FLIGHT)

        async def send(number: int) -> None:
            async with places:
                await write(number)

        meter = Meter(self._servers.pids)
        async with asyncio.TaskGroup() as tasks:
            for number in range(WRITES):
                tasks.create_task(send(number))
        spent = meter.spent().by
        self.api[kind] = spent["api_server"] / WRITES * 1e3
        self.etcd[kind] = spent["etcd"] / WRITES * 1e3

    # --- Workloads

    async def workloads(self, prefix: str = "w") -> None:
        """Create them, and go with each through all changes of its status."""
        await self.measure("workload", self._create(prefix))
        await self.measure("wait", self._change(prefix, self._wait))
        await self.measure("admission", self._change(prefix, self._admit))
        await self.measure("eviction", self._change(prefix, self._evict))
        await self.measure("give_back", self._change(prefix, self._give_back))

    async def watched(self, watches: int) -> None:
        """Admissions while so many more clients watch."""
        prefix = f"watched-{watches}"
        create = self._create(prefix)
        for number in range(WRITES):
            await create(number)
        async with AsyncExitStack() as stack:
            for _ in range(watches):
                await stack.enter_async_context(_watch(self._servers.kubeconfig))
            await self.measure(f"admission_{watches}_watches", self._change(prefix, self._admit))

    def _create(self, prefix: str) -> Callable[[int], Awaitable[None]]:
        async def create(number: int) -> None:
            body = self._shape.workload(QUEUE, SMALL, number)
            body["metadata"]["name"] = name = f"{prefix}-{number}"
            made = await self._client.create(kinds.WORKLOADS, typed(kinds.WORKLOADS, body))
            self._workloads[name] = msgspec.convert(made, wire.Workload, strict=False)

        return create

    def _change(self, prefix: str, change: Change) -> Callable[[int], Awaitable[None]]:
        async def patch(number: int) -> None:
            name = f"{prefix}-{number}"
            wanted = change(self._workloads[name])
            check(wanted is not None, f"nothing is to be written of {name}")
            made = await self._client.patch(kinds.WORKLOADS, name, wanted, QUEUE, subresource="status")
            self._workloads[name] = msgspec.convert(made, wire.Workload, strict=False)

        return patch

    def _wait(self, workload: wire.Workload) -> status.Patch | None:
        message = "1 cpu of flavor flavor asked, ClusterQueue cq-0-0 has 0 free"
        requests = status.requested({"main": {"cpu": 1000}})
        reason = names.REASON_WAITING_FOR_QUOTA
        return status.wait(workload, reason=reason, message=message, stamp=self._stamp, requests=requests)

    def _admit(self, workload: wire.Workload) -> status.Patch | None:
        taken = PodSetAssignment(name="main", flavors={"cpu": "flavor"}, usage={"cpu": 1000}, count=1)
        admission = Admission(queue=QUEUE, pod_sets=(taken,))
        return status.reserve(workload, admission, wanted=(), stamp=self._stamp)

    def _evict(self, workload: wire.Workload) -> status.Patch | None:
        message = (
            "Makes room for a workload of ClusterQueue cq-0-1: its ClusterQueue takes back quota that was borrowed"
        )
        return status.evict(
            workload, reason=names.REASON_PREEMPTED, message=message, stamp=self._stamp, preempted="InCohortReclamation"
        )

    def _give_back(self, workload: wire.Workload) -> status.Patch | None:
        reason = names.REASON_PENDING_EVALUATION
        return status.unreserve(workload, reason=reason, message="Its pods are gone", stamp=self._stamp, requeued=True)

    # --- other kinds

    async def others(self) -> None:
        """Events, counts of queues, Jobs and Pods."""
        await self.measure("event", self._event)
        await self.measure("cluster_queue", lambda n: self._count(kinds.CLUSTER_QUEUES, n))
        await self.measure("local_queue", lambda n: self._count(kinds.LOCAL_QUEUES, n))
        for number in range(WRITES):
            await self._client.create(JOBS, _job(number))
            await self._client.create(kinds.PODS, _pod(number))
        start = {"spec": {"suspend": False, "template": {"metadata": {"labels": {"a": "b"}},
                                                         "spec": {"nodeSelector": {"pool": "a"}}}}}  # fmt: skip
        await self.measure("job", lambda n: self._client.patch(JOBS, f"j-{n}", start, QUEUE))
        release = {"spec": {"schedulingGates": [], "nodeSelector": {"kubernetes.io/hostname": "host-1"}}}
        await self.measure("pod", lambda n: self._client.patch(kinds.PODS, f"p-{n}", release, QUEUE))

    async def _event(self, number: int) -> None:
        about = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "name": f"w-{number}", "namespace": QUEUE}
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"w-{number}.{number:x}", "namespace": QUEUE},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:00:00Z",
            "count": 1,
            "source": {"component": "kueue-admission"},
            "reportingComponent": "kueue-admission",
            "reportingInstance": "bench",
            "action": "Admitted",
            "reason": "Admitted",
            "involvedObject": about,
            "message": "Admitted by ClusterQueue cq-0-0, 0 s after the reservation",
            "type": "Normal",
        }
        await self._client.create(EVENTS, body)

    async def _count(self, resource: ResourceType, number: int) -> None:
        used = [{"name": "cpu", "total": str(number % NOMINAL)}]
        flavors = [{"name": "flavor", "resources": used}]
        counts = {"pendingWorkloads": number, "reservingWorkloads": number, "admittedWorkloads": number,
                  "flavorsReservation": flavors, "flavorsUsage": flavors}  # fmt: skip
        queue = self._queues[number % len(self._queues)]
        namespace = queue if resource is kinds.LOCAL_QUEUES else None
        await self._client.patch(resource, queue, {"status": counts}, namespace, subresource="status")


@asynccontextmanager
async def _watch(kubeconfig: Path) -> AsyncIterator[None]:
    """One more client that watches Workloads."""
    async with await connect(kubeconfig, None) as client:
        seen: Reflector[wire.Workload, wire.Workload] = Reflector(
            client, kinds.WORKLOADS, Projection(wire.Workload, lambda workload: workload), clock=SystemClock()
        )
        task = asyncio.create_task(seen.run())
        await seen.synced.wait()
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _template() -> Object:
    container = {"name": "c", "image": "example.dev/train:1", "resources": {"requests": {"cpu": "1"}}}
    return {"containers": [container], "restartPolicy": "Never"}


def _job(number: int) -> Object:
    spec = {"suspend": True, "template": {"spec": _template()}}
    return typed(JOBS, {"metadata": {"name": f"j-{number}", "namespace": QUEUE}, "spec": spec})


def _pod(number: int) -> Object:
    spec = {**_template(), "schedulingGates": [{"name": names.TOPOLOGY_GATE}]}
    return typed(kinds.PODS, {"metadata": {"name": f"p-{number}", "namespace": QUEUE}, "spec": spec})


async def measured() -> Costs:
    """All kinds, on one control plane."""
    async with filled(Shape(topology=False), on_sandbox=False) as (_, servers, client):
        costs = Costs(client, servers)
        await costs.workloads("warm-up")
        await costs.workloads()
        for watches in WATCHES:
            await costs.watched(watches)
        await costs.others()
        return costs


def measure() -> Iterator[Figure]:
    """The row."""
    configure_logs("console", "error")
    costs = run(measured())
    for kind, milliseconds in costs.api.items():
        yield Figure(f"ms_{kind}", [milliseconds])
    for kind, milliseconds in costs.etcd.items():
        yield Figure(f"etcd_ms_{kind}", [milliseconds])


ROWS = (Row("api/cost", measure, alone=True, asked="api"),)
