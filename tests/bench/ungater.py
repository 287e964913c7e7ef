"""How fast gated pods are released: 10,000 of many gangs, with the client limits that users get.

`python -m tests.bench.ungater`.  The sandbox runs in a process of its own with 512 simulated nodes, its scheduler and
kubelets among them; this process runs the ungater alone (`--parts topology`).

    admitted at once   the gated pods are there and known; then all Workloads are admitted, as after a long wait:
                       seconds from the first admission until the last gate is gone; goal: 60 s.  The rate limit alone
                       takes the seconds given beside it
    at a start         a controller is started when all are admitted: seconds from its start, the sync of its watches
                       and the list of the pods included
    patches            requests that changed something, per pod; goal: 1
    lists              pages of pods read beside the watch
    stall              longest time that the event loop was held, sampled each 5 ms
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from kqueue.config import Timings, load
from kqueue.manager.process import Flags, RunningOperator, running
from kqueue.observe import configure_logs
from kqueue.runtime.loop import run
from kqueue.runtime.transport import RequestRecord
from tests.bench._loop import loop_name
from tests.bench.road import Cluster, sandbox

GANGS, PODS, HOSTS_PER_GANG = 500, 20, 2
GOAL_SECONDS = 60
TICK = 0.005
AT_ONCE = 32
POD_PATH, WORKLOAD_PATH = "/api/v1/namespaces/default/pods", "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads"
HOST, GATE, PREFIX = "kubernetes.io/hostname", "kueue.x-k8s.io/topology", "kueue.x-k8s.io/"
INDEX = "batch.kubernetes.io/job-completion-index"
NOW = "2026-01-01T00:00:00Z"
Object = dict[str, Any]


def workload(name: str) -> Object:
    """A gang whose pods are ranked."""
    pod_set = {
        "name": "main",
        "count": PODS,
        "template": {"spec": {"containers": [{"name": "main", "image": "example.dev/train:1"}]}},
        "topologyRequest": {"unconstrained": True, "podIndexLabel": INDEX},
    }
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"queueName": "main", "podSets": [pod_set]},
    }


def admission(hosts: list[str]) -> Object:
    """The status of a Workload that is admitted to these hosts, in equal parts."""
    slices = [
        {
            "domainCount": 1,
            "valuesPerLevel": [{"universal": host}],
            "podCounts": {"universal": PODS // HOSTS_PER_GANG},
        }
        for host in hosts
    ]
    assigned = {"name": "main", "count": PODS, "topologyAssignment": {"levels": [HOST], "slices": slices}}
    conditions = [
        {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": NOW}
        for kind in ("QuotaReserved", "Admitted")
    ]
    return {"status": {"conditions": conditions, "admission": {"clusterQueue": "t", "podSetAssignments": [assigned]}}}


def pod(gang: str, index: int) -> Object:
    """A pod of a gang, gated."""
    marks = {f"{PREFIX}podset-unconstrained-topology": "true", f"{PREFIX}workload": gang}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{gang}-{index}",
            "namespace": "default",
            "labels": {f"{PREFIX}podset": "main", INDEX: str(index)},
            "annotations": marks,
        },
        "spec": {
            "schedulingGates": [{"name": GATE}],
            "containers": [{"name": "main", "image": "example.dev/train:1"}],
        },
    }


class Load:
    """Gangs with their hosts, and the requests that make them."""

    def __init__(self, cluster: Cluster, session: aiohttp.ClientSession, url: str, hosts: list[str]) -> None:
        self._cluster, self._session, self._url = cluster, session, url
        self.hosts = {
            f"gang-{n}": sorted(hosts[(n * HOSTS_PER_GANG + k) % len(hosts)] for k in range(HOSTS_PER_GANG))
            for n in range(GANGS)
        }

    async def create(self) -> None:
        """All Workloads, waiting, and all pods, gated."""
        await self._each((WORKLOAD_PATH, workload(name)) for name in self.hosts)
        await self._each((POD_PATH, pod(name, index)) for name in self.hosts for index in range(PODS))

    async def admit(self) -> None:
        """All Workloads at once."""
        for name, hosts in self.hosts.items():
            path = f"{self._url}{WORKLOAD_PATH}/{name}/status"
            headers = {"Content-Type": "application/merge-patch+json"}
            async with self._session.patch(path, json=admission(hosts), headers=headers) as answer:
                answer.raise_for_status()

    async def check(self) -> None:
        """Each pod stands where its rank belongs.

        Raises:
            AssertionError: one does not.
        """
        listed = await self._cluster.ask("GET", POD_PATH)
        assert len(listed["items"]) == GANGS * PODS
        for found in listed["items"]:
            gang, _, index = found["metadata"]["name"].rpartition("-")
            host = self.hosts[gang][int(index) * HOSTS_PER_GANG // PODS]
            assert not found["spec"].get("schedulingGates"), found["metadata"]["name"]
            assert found["spec"]["nodeSelector"] == {HOST: host}, found["metadata"]["name"]

    async def _each(self, objects: Iterable[tuple[str, Object]]) -> None:
        todo = iter(objects)

        async def work() -> None:
            for path, obj in todo:
                await self._cluster.ask("POST", path, obj)

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))


class Watched:
    """What a controller asks for, and how long it holds the event loop."""

    def __init__(self) -> None:
        self.writes, self.lists, self.stall = Counter[str](), 0, 0.0
        self.released = asyncio.Event()

    def on_request(self, record: RequestRecord) -> None:
        if record.verb == "list" and record.resource == "pods":
            self.lists += 1
        if record.verb in ("get", "list", "watch"):
            return
        self.writes[f"{record.verb} {record.resource}" + (f" ({record.status})" if record.status >= 300 else "")] += 1
        if self.writes["patch pods"] == GANGS * PODS:
            self.released.set()

    @asynccontextmanager
    async def sampled(self) -> AsyncIterator[None]:
        """In the block the event loop is watched."""
        self.stall = 0.0
        sampling = asyncio.create_task(self._sample())
        try:
            yield
        finally:
            sampling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sampling

    async def _sample(self) -> None:
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(TICK)
            self.stall = max(self.stall, time.perf_counter() - begun - TICK)


@asynccontextmanager
async def ungater(kubeconfig: Path, watched: Watched) -> AsyncIterator[RunningOperator]:
    """A controller process that only releases pods."""
    found = load(None)
    alone = found.leader_election.model_copy(update={"leader_elect": False})
    configuration = found.model_copy(update={"leader_election": alone})
    flags = Flags(kubeconfig=kubeconfig, parts=frozenset({"topology"}), health_address="0", metrics_address="0")
    async with running(configuration, flags, timings=Timings(), on_request=watched.on_request) as process:
        yield process


@asynccontextmanager
async def loaded(kubeconfig: Path) -> AsyncIterator[Load]:
    """A cluster full of gated pods whose Workloads wait."""
    url = next(line.split()[-1] for line in kubeconfig.read_text().splitlines() if "server:" in line)
    async with aiohttp.ClientSession() as session:
        cluster = Cluster(session, url)
        nodes = await cluster.ask("GET", "/api/v1/nodes")
        load = Load(cluster, session, url, sorted(node["metadata"]["name"] for node in nodes["items"]))
        await load.create()
        yield load


async def admitted_at_once() -> None:
    """The first row."""
    watched = Watched()
    with sandbox("4x8x16") as kubeconfig:
        async with loaded(kubeconfig) as gangs, ungater(kubeconfig, watched) as process:
            await process.operator.ready.wait()
            synced = watched.lists
            begun = time.perf_counter()
            async with watched.sampled(), asyncio.timeout(300):
                await gangs.admit()
                await watched.released.wait()
            seconds = time.perf_counter() - begun
            await gangs.check()
    report("admitted at once", watched, seconds, lists=watched.lists - synced)


async def at_a_start() -> None:
    """The second row."""
    watched = Watched()
    with sandbox("4x8x16") as kubeconfig:
        async with loaded(kubeconfig) as gangs:
            await gangs.admit()
            begun = time.perf_counter()
            async with watched.sampled(), ungater(kubeconfig, watched), asyncio.timeout(300):
                await watched.released.wait()
                seconds = time.perf_counter() - begun
            await gangs.check()
    report("at a start", watched, seconds, lists=watched.lists)


def report(row: str, watched: Watched, seconds: float, *, lists: int) -> None:
    """With the goals."""
    limits = load(None).client_connection
    floor = max(0.0, GANGS * PODS - limits.burst) / limits.qps
    patches = sum(watched.writes.values()) / (GANGS * PODS)
    print(f"\n{row}: {GANGS * PODS} pods of {GANGS} gangs")
    print(f"{'seconds':<12}{seconds:>10.1f}  (goal: {GOAL_SECONDS}; the rate limit alone: {floor:.1f})")
    print(f"{'patches':<12}{patches:>10.3f}  (goal: 1)  {dict(watched.writes)}")
    print(f"{'lists':<12}{lists:>10}")
    print(f"{'stall':<12}{watched.stall * 1000:>10.0f}  ms")


async def main() -> None:
    """Run, print."""
    limits = load(None).client_connection
    print(f"CPython {platform.python_version()}, {loop_name()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
    print(f"client: {limits.qps:g} requests per second, burst {limits.burst}; 512 nodes, 2 hosts per gang of {PODS}")
    await admitted_at_once()
    await at_a_start()


if __name__ == "__main__":
    configure_logs("console", "error")
    run(main())
