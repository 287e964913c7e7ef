"""Dispatch to worker clusters: what it costs, and what a lost worker costs.  `make bench ROWS=multikueue`.

The manager's controller runs in this process; its API server and those of the workers are sandboxes without nodes, each
in a process of its own.  This process also plays the workers' queues: it admits each copy on one of the workers, in turn,
as soon as it is seen.  Jobs are made 32 at a time.

`multikueue/dispatch`: 1,000 Jobs, three workers, all of them asked.

    seconds_s               from the first Job's creation until each has been dispatched, runs on one worker, and has no
                            copy on the others
    requests_per_try        requests to workers, and GETs of originals on the manager, but watches and probes, divided by
                            (workloads x workers)
    own_writes_per_job      requests of the manager on its own cluster that change something, of all controllers
    pass_ms                 mean CPU of this process for one job, the played queues included

`multikueue/lost`: 150 Jobs three times: with two workers, with a third one that accepts connections and never answers,
and with two again.

    lag_ratio, wall_ratio   99th percentile of how late the event loop wakes a heartbeat, and the wall time: with the lost
                            worker to the larger one without
    lag_*_ms                the lags

`multikueue/kinds`: what one kind more costs a connection to a worker, in which nothing of that kind exists.

    absent_mib, absent_watches      JobSets, where their definition is not installed
    present_mib, present_watches    JobSets, where it is; memory is what Python allocates while the watches stand
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from kqueue.api.crd_files import crd_folder
from kqueue.api.wire import kueue as wire
from kqueue.clock import SystemClock
from kqueue.config import Configuration, Timings, parse
from kqueue.controllers import resources as kinds
from kqueue.controllers import worker_sources
from kqueue.controllers.worker_cluster import WorkerLink, WorkerTools
from kqueue.jobs.catalog import BY_FRAMEWORK
from kqueue.jobs.multikueue.copies import Origin
from kqueue.jobs.switches import JobFeatures
from kqueue.manager.process import Flags, running
from kqueue.observe import configure_logs
from kqueue.runtime.client import Client, client_of, connect
from kqueue.runtime.kubeconfig_secret import cluster_in
from kqueue.runtime.loop import run
from kqueue.runtime.reflector import Projection, Reflector
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.transport import ClientSettings, RequestRecord
from kqueue.sandbox import Sandbox, SandboxOptions
from kqueue.sandbox.cluster import PARTS
from tests.bench._meter import percentile
from tests.bench.load import IN_FLIGHT, sandbox
from tests.bench.table import Figure, Row, at_most, check

CHECK = "kueue.x-k8s.io/multikueue"
NAMESPACE, OWN_NAMESPACE = "default", "kueue-system"
JOBS, TRIES_GOAL, SECONDS_GOAL = 1_000, 4, 60
LOST_JOBS, PATIENCE, AT_ONCE = 150, 300, 32
KIND_GOAL_MIB = 3
_BEAT = 0.005
_GROUP = "kueue.x-k8s.io/v1beta2"
_SECRETS = ResourceType("", "v1", "secrets", "Secret")
_JOBS = kinds.resource_of(BY_FRAMEWORK["batch/job"])


def _of_kueue(plural: str, kind: str, *, namespaced: bool = False) -> ResourceType:
    return ResourceType("kueue.x-k8s.io", "v1beta2", plural, kind, namespaced=namespaced)


CLUSTERS, CONFIGS = (
    _of_kueue("multikueueclusters", "MultiKueueCluster"),
    _of_kueue("multikueueconfigs", "MultiKueueConfig"),
)
_FLAVORS, _CHECKS = _of_kueue("resourceflavors", "ResourceFlavor"), _of_kueue("admissionchecks", "AdmissionCheck")
_QUEUES = _of_kueue("clusterqueues", "ClusterQueue")
_DOORS = _of_kueue("localqueues", "LocalQueue", namespaced=True)


def settings() -> Configuration:
    """Return the manager's configuration."""
    return parse(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nleaderElection: {leaderElect: false}\n"
        "clientConnection: {qps: -1, burst: 0}\n"
        f"admissionChecks: {{controllers: [{CHECK}]}}\nmultiKueue: {{origin: bench}}\n",
        source="bench",
    )


def made(kind: str, name: str, spec: dict[str, Any], **meta: str) -> dict[str, Any]:
    """Return an object of ours."""
    return {"apiVersion": _GROUP, "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}


def job(name: str) -> dict[str, Any]:
    """Return a Job of two pods that a worker is to run."""
    container = {"name": "main", "image": "example.com/train:1", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {
            "suspend": True,
            "managedBy": CHECK,
            "parallelism": 2,
            "completions": 2,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


class PlayedWorker:
    """The queue of a worker: it admits each copy whose turn it is here."""

    def __init__(self, name: str, client: Client, turns: tuple[int, int]) -> None:
        """`turns` are the number of this worker and that of all."""
        self.name, self._client, self._turns = name, client, turns
        self.workloads: Reflector[wire.Workload, wire.Workload] = Reflector(
            client, kinds.WORKLOADS, Projection(wire.Workload, lambda obj: obj), clock=SystemClock()
        )
        self.jobs: set[str] = set()
        self._asked: set[str] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.workloads.store.subscribe(self._on_workload)

    def _on_workload(self, _old: wire.Workload | None, new: wire.Workload | None) -> None:
        if new is None or new.metadata.uid in self._asked:
            return
        mine, all_of_them = self._turns
        owner = new.metadata.name.rsplit("-", 2)[1]  # job-NAME-NUMBER-HASH
        if int(owner) % all_of_them == mine:
            self._asked.add(new.metadata.uid)
            self._tasks.add(asyncio.ensure_future(self._admit(new.metadata.name)))

    async def _admit(self, name: str) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        assigned = {
            "name": "main",
            "count": 2,
            "flavors": {"cpu": "plain"},
            "resourceUsage": {"cpu": "2"},
        }
        conditions = [
            {"type": kind, "status": "True", "reason": "Played", "message": "played", "lastTransitionTime": now}
            for kind in ("QuotaReserved", "Admitted")
        ]
        admission = {"clusterQueue": "team", "podSetAssignments": [assigned]}
        status = {"status": {"admission": admission, "conditions": conditions}}
        await self._client.patch(kinds.WORKLOADS, name, status, NAMESPACE, subresource="status")

    async def until_settled(self) -> None:
        """Raise what a write has met."""
        for task in list(self._tasks):
            await task

    async def run_jobs(self) -> list[str]:
        """Return the names of the Jobs on the cluster."""
        listed = await self._client.get_path(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", resource=_JOBS)
        return [item["metadata"]["name"] for item in listed["items"]]


class Requests:
    """Counts the manager's requests, apart by the cluster that they go to."""

    def __init__(self) -> None:
        self.own: Counter[tuple[str, str]] = Counter()
        """(verb, plural) on the manager's own cluster."""
        self.remote: Counter[tuple[str, str]] = Counter()

    def on_own(self, record: RequestRecord) -> None:
        """Count a request to the manager's own cluster."""
        self.own[record.verb, record.resource.partition(".")[0]] += 1

    def connect(self, cluster: Any, limits: ClientSettings, *, clock: Any) -> Client:
        """Open a client of a worker whose requests are counted."""

        def count(record: RequestRecord) -> None:
            self.remote[record.verb, record.resource.partition(".")[0]] += 1

        return client_of(cluster, limits, clock=clock, on_request=count)

    def tried(self) -> int:
        """Return the requests of all tries, but watches and probes."""
        left_out = ("watch", "list")
        remote = sum(n for (verb, plural), n in self.remote.items() if verb not in left_out and plural != "version")
        return remote + self.own["get", "workloads"] + self.own["get", "jobs"]

    def own_writes(self) -> int:
        """Return the writes on the manager's own cluster, but events."""
        reads = ("get", "list", "watch")
        return sum(n for (verb, plural), n in self.own.items() if verb not in reads and plural != "events")


class Bench:
    """A manager and its workers."""

    def __init__(self, client: Client, workers: Sequence[PlayedWorker], requests: Requests) -> None:
        self.client, self.workers, self.requests = client, workers, requests
        self.workloads: Reflector[wire.Workload, wire.Workload] = Reflector(
            client, kinds.WORKLOADS, Projection(wire.Workload, lambda obj: obj), clock=SystemClock()
        )
        self._made = 0

    async def dispatched(self, jobs: int) -> float:
        """Make so many Jobs, and return the seconds until each runs on one worker and is nowhere else."""
        begun, wanted = time.perf_counter(), self._made + jobs
        places = asyncio.Semaphore(AT_ONCE)

        async def make(number: int) -> None:
            async with places:
                await self.client.create(_JOBS, job(f"train-{number}"))

        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(make(number) for number in range(self._made, wanted)))
            self._made = wanted
            while not self._are_dispatched(wanted):
                await asyncio.sleep(0.05)
        return time.perf_counter() - begun

    def _are_dispatched(self, wanted: int) -> bool:
        ready = sum(
            any(entry.state == "Ready" for entry in workload.status.admission_checks)
            for workload in self.workloads.store.values()
        )
        copies = sum(len(worker.workloads.store) for worker in self.workers)
        return ready == wanted and copies == wanted

    async def check_jobs(self) -> None:
        """Fail unless each Job is on one worker."""
        found: Counter[str] = Counter()
        for worker in self.workers:
            await worker.until_settled()
            found.update(await worker.run_jobs())
        check(len(found) == self._made, f"{len(found)} of {self._made} Jobs are on workers")
        check(set(found.values()) == {1}, "a Job is on two workers")

    async def name_cluster(self, name: str, kubeconfig: str) -> None:
        """Tell the manager of a worker."""
        data = {"kubeconfig": base64.b64encode(kubeconfig.encode()).decode()}
        meta = {"name": name, "namespace": OWN_NAMESPACE}
        await self.client.create(_SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})
        source = {"clusterSource": {"kubeConfig": {"location": name}}}
        await self.client.create(CLUSTERS, made("MultiKueueCluster", name, source))

    async def use(self, names: Sequence[str]) -> None:
        """Let the queue's check ask these workers."""
        await self.client.patch(CONFIGS, "all", {"spec": {"clusters": list(names)}})


async def _fill(client: Client, *, is_manager: bool) -> None:
    quota = [{"name": "cpu", "nominalQuota": "100000"}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "plain", "resources": quota}]}]
    queue: dict[str, Any] = {"namespaceSelector": {}, "resourceGroups": groups}
    objects = [(_FLAVORS, made("ResourceFlavor", "plain", {}))]
    if is_manager:
        queue["admissionChecksStrategy"] = {"admissionChecks": [{"name": "elsewhere"}]}
        parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"}
        spec = {"controllerName": CHECK, "parameters": parameters}
        objects.append((_CHECKS, made("AdmissionCheck", "elsewhere", spec)))
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OWN_NAMESPACE}}
        await client.create(kinds.NAMESPACES, space)
    objects.append((_QUEUES, made("ClusterQueue", "team", queue)))
    objects.append((_DOORS, made("LocalQueue", "main", {"clusterQueue": "team"}, namespace=NAMESPACE)))
    for resource, obj in objects:
        await client.create(resource, obj)


@asynccontextmanager
async def _watched(watches: Sequence[Reflector[Any, Any]]) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(watch.run()) for watch in watches]
    try:
        for watch in watches:
            await watch.synced.wait()
        yield
    finally:
        for task in tasks:
            task.cancel()


async def _cluster(stack: AsyncExitStack, folder: Path, *, is_manager: bool) -> tuple[Path, Client]:
    folder.mkdir()
    servers = await stack.enter_async_context(sandbox(folder))
    limits = ClientSettings(lanes=IN_FLIGHT)
    client = await stack.enter_async_context(await connect(servers.kubeconfig, None, limits))
    await _fill(client, is_manager=is_manager)
    return servers.kubeconfig, client


@asynccontextmanager
async def benched(workers: int) -> AsyncIterator[Bench]:
    """Run a manager with so many connected workers, named `w0`, `w1` and so on."""
    names = [f"w{number}" for number in range(workers)]
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kqueue-bench-")))
        kubeconfig, client = await _cluster(stack, folder / "manager", is_manager=True)
        requests, played, configs = Requests(), [], []
        for number, name in enumerate(names):
            config, their = await _cluster(stack, folder / name, is_manager=False)
            played.append(PlayedWorker(name, their, (number, workers)))
            configs.append(config.read_text())
        bench = Bench(client, played, requests)
        await client.create(CONFIGS, made("MultiKueueConfig", "all", {"clusters": names}))
        for name, config_text in zip(names, configs, strict=True):
            await bench.name_cluster(name, config_text)
        stack.enter_context(mock.patch.object(worker_sources, "client_of", requests.connect))
        parts = frozenset({"core", "scheduler", "jobs"})
        flags = Flags(kubeconfig=kubeconfig, parts=parts, health_address="0", metrics_address="0")
        await stack.enter_async_context(_watched([bench.workloads, *(worker.workloads for worker in played)]))
        process = await stack.enter_async_context(
            running(settings(), flags, timings=Timings(), on_request=requests.on_own)
        )
        await process.operator.ready.wait()
        await _until_active(client)
        yield bench


async def _until_active(client: Client) -> None:
    async with asyncio.timeout(60):
        while True:
            found = await client.get_json(_CHECKS, "elsewhere")
            told = {c["type"]: c["reason"] for c in found.get("status", {}).get("conditions", ())}
            if told.get("Active") == "Active":
                return
            await asyncio.sleep(0.1)


async def _dispatch() -> list[Figure]:
    async with benched(3) as bench:
        cpu = time.process_time()
        seconds = await bench.dispatched(JOBS)
        spent = time.process_time() - cpu
        await bench.check_jobs()
        tries = JOBS * len(bench.workers)
        return [
            Figure("seconds_s", [seconds], at_most(SECONDS_GOAL)),
            Figure("requests_per_try", [bench.requests.tried() / tries], at_most(TRIES_GOAL)),
            Figure("own_writes_per_job", [bench.requests.own_writes() / JOBS]),
            Figure("pass_ms", [spent / JOBS * 1e3]),
        ]


# --- a lost worker


@asynccontextmanager
async def black_hole() -> AsyncIterator[str]:
    """Run a server that accepts connections and never answers; yield a kubeconfig of it."""
    opened: list[asyncio.StreamWriter] = []

    async def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        yield yaml.safe_dump(
            {
                "clusters": [{"name": "it", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "users": [{"name": "me", "user": {"token": "none"}}],
                "contexts": [{"name": "here", "context": {"cluster": "it", "user": "me"}}],
                "current-context": "here",
            }
        )
    finally:
        for writer in opened:
            writer.close()
        server.close()


async def _beats(into: list[float]) -> None:
    """Note how late the event loop wakes this, in milliseconds, until cancelled."""
    while True:
        asked = time.perf_counter() + _BEAT
        await asyncio.sleep(_BEAT)
        into.append(max(0.0, time.perf_counter() - asked) * 1e3)


async def _batch(bench: Bench) -> tuple[float, float]:
    """Return the wall time of a batch of Jobs, and the 99th percentile of the lag."""
    lags: list[float] = []
    gc.collect()
    beats = asyncio.ensure_future(_beats(lags))
    try:
        seconds = await bench.dispatched(LOST_JOBS)
    finally:
        beats.cancel()
    return seconds, percentile(lags, 99)


async def _lost() -> list[Figure]:
    async with benched(2) as bench, black_hole() as nowhere:
        names = [worker.name for worker in bench.workers]
        await _batch(bench)  # opens connections
        before = await _batch(bench)
        await bench.name_cluster("lost", nowhere)
        await bench.use(["lost", *names])
        during = await _batch(bench)
        await bench.use(names)
        after = await _batch(bench)
        await bench.check_jobs()
    wall, lag = max(before[0], after[0]), max(before[1], after[1])
    return [
        Figure("lag_ratio", [during[1] / lag]),
        Figure("wall_ratio", [during[0] / wall], at_most(1.2)),
        Figure("lag_without_ms", [before[1], after[1]]),
        Figure("lag_with_ms", [during[1]]),
    ]


# --- one kind more


async def _connection_mib(kubeconfig: Path, frameworks: Sequence[str]) -> tuple[float, int]:
    """Return what a connection that watches these kinds keeps in memory, and how many watches stand."""

    async def nobody() -> str:
        return ""

    watches: Counter[str] = Counter()

    def count(record: RequestRecord) -> None:
        watches[record.verb] += record.status < 400

    access = await cluster_in(kubeconfig.read_bytes(), "bench", clock=SystemClock())
    tools = WorkerTools(
        origin=Origin("bench"),
        kinds=[BY_FRAMEWORK[name] for name in frameworks],
        switches=JobFeatures(),
        clock=SystemClock(),
        identity=nobody,
    )
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    async with client_of(access, clock=SystemClock()) as client:
        link = WorkerLink("w", client, tools, lambda _key: None)
        tasks = [asyncio.ensure_future(watch.run()) for watch in link.all()]
        for watch in link.all():
            await watch.settled.wait()
        await asyncio.sleep(0.5)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        standing = sum(not watch.missing for watch in link.all())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return (after - before) / 2**20, standing


async def _kinds() -> list[Figure]:
    figures = []
    tracemalloc.start()
    for name, parts in (("absent", PARTS - {"jobsets"}), ("present", PARTS)):
        async with contextlib.AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            served = Sandbox(SandboxOptions(crds=(crd_folder(),), parts=parts))
            await served.start()
            stack.push_async_callback(served.stop)
            served.write_kubeconfig(folder / "config")
            one, two = ["batch/job"], ["batch/job", "jobset.x-k8s.io/jobset"]
            await _connection_mib(folder / "config", two)  # imports, and fills caches
            less, few = await _connection_mib(folder / "config", one)
            more, many = await _connection_mib(folder / "config", two)
        is_there = name == "present"
        figures += [
            Figure(f"{name}_mib", [max(0.0, more - less)], at_most(KIND_GOAL_MIB if is_there else 0.1)),
            Figure(f"{name}_watches", [many - few], at_most(1 if is_there else 0)),
        ]
    tracemalloc.stop()
    return figures


def _measured(row: Any) -> Iterator[Figure]:
    configure_logs("console", "error")
    yield from run(row())


ROWS = (
    Row("multikueue/dispatch", partial(_measured, _dispatch), alone=True),
    Row("multikueue/lost", partial(_measured, _lost), alone=True),
    Row("multikueue/kinds", partial(_measured, _kinds), alone=True),
)
