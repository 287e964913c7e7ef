"""The road of one admission: what is written for it, how fast gangs get through, how fast a controller is ready.

`python -m tests.bench.road`.  The sandbox runs in a process of its own with 512 simulated nodes (4 blocks x 8 racks x
16 hosts, 8 GPUs each); controller and webhooks run in this process, in front of an uncapped client.

    writes           60 Jobs of 8 one-GPU pods, required rack, submitted at once: requests that change something,
                     from the first POST until the last pod runs, by object, per admission; goal: 1 Workload,
                     1 Workload status, 1 Job and 8 pods
    until running    seconds from the first POST until the last of these pods runs
    ready            seconds from the start of `kqueue controller` on a cluster without our objects until /readyz says
                     so, and the interpreter's own start and imports in it (`kqueue controller --help`); goal: 1 s
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp

from kqueue.config import Timings, load
from kqueue.manager.process import Flags, running
from kqueue.observe import configure_logs
from kqueue.runtime.loop import run
from kqueue.runtime.transport import RequestRecord
from tests.bench._loop import loop_name

RUNS = 3
JOBS, PODS = 60, 8
READY_RUNS = 5
GOAL_READY = 1.0
BATCH, KUEUE = "/apis/batch/v1/namespaces/default/jobs", "/apis/kueue.x-k8s.io/v1beta2"
RACK = "cloud.provider.com/topology-rack"
LEVELS = ("cloud.provider.com/topology-block", RACK, "kubernetes.io/hostname")
STATUS = ("patch", "workloads.kueue.x-k8s.io", "status")
READY = ("patch", "workloads.kueue.x-k8s.io", "status, once PodsReady")
CRITICAL = {
    ("create", "workloads.kueue.x-k8s.io", ""): ("Workload created", 1),
    STATUS: ("Workload status patched", 1),
    ("patch", "jobs.batch", ""): ("Job patched", 1),
    ("patch", "pods", ""): ("pod patched", PODS),
}
Object = dict[str, Any]
Check = Callable[[Object], bool]


@contextlib.contextmanager
def sandbox(topology: str, *, without: str = "") -> Iterator[Path]:
    """A simulated cluster in a process of its own, perhaps without parts of it; its kubeconfig."""
    with sandbox_process(topology, without=without) as (kubeconfig, _):
        yield kubeconfig


@contextlib.contextmanager
def sandbox_process(topology: str, *, without: str = "") -> Iterator[tuple[Path, int]]:
    """The same, with the process ID."""
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "config"
        command = [sys.executable, "-m", "kqueue", "sandbox", "--port", "0", "--topology", topology,
                   "--run-seconds", "0", "--kubeconfig", str(kubeconfig), "-o", "json",
                   *(("--without", without) if without else ())]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            try:
                json.loads(process.stdout.readline())
                yield kubeconfig, process.pid
            finally:
                process.terminate()


def queues() -> list[tuple[str, Object]]:
    """(collection, object): one tenant with room for everything."""
    quota = [{"name": "gpu", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": "1000000"}]}]
    groups = [{"coveredResources": ["nvidia.com/gpu"], "flavors": quota}]
    made = [
        ("Topology", "topologies", "dc", {"levels": [{"nodeLabel": label} for label in LEVELS]}),
        (
            "ResourceFlavor",
            "resourceflavors",
            "gpu",
            {"nodeLabels": {"kubernetes.io/os": "linux"}, "topologyName": "dc"},
        ),
        ("ClusterQueue", "clusterqueues", "team", {"namespaceSelector": {}, "resourceGroups": groups}),
        ("LocalQueue", "namespaces/default/localqueues", "main", {"clusterQueue": "team"}),
    ]
    version = "kueue.x-k8s.io/v1beta2"
    return [
        (f"{KUEUE}/{path}", {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec})
        for kind, path, name, spec in made
    ]


def job(name: str) -> Object:
    """One gang in one rack, already suspended, so that no webhook is needed."""
    amounts = {"nvidia.com/gpu": "1"}
    container = {"name": "main", "image": "example.dev/train:1", "resources": {"requests": amounts, "limits": amounts}}
    template = {
        "metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": RACK}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {"suspend": True, "parallelism": PODS, "completions": PODS, "completionMode": "Indexed",
                 "template": template},
    }  # fmt: skip


class Cluster:
    """Bare requests to the sandbox."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session, self._url = session, url

    async def ask(self, method: str, path: str, body: Object | None = None) -> Object:
        async with self._session.request(method, self._url + path, json=body) as answer:
            answer.raise_for_status()
            found: Object = await answer.json()
            return found

    async def until(self, path: str, reached: Check) -> None:
        """Poll; nothing that is measured waits longer than this looks away."""
        async with asyncio.timeout(120):
            while not reached(await self.ask("GET", path)):
                await asyncio.sleep(0.02)


async def admissions(kubeconfig: Path) -> tuple[Counter[tuple[str, str, str]], float]:
    """Requests that changed something, and seconds until all pods ran.

    A Workload that says PodsReady at the end had one patch for that, when its pods ran already: counted by itself.
    """
    writes: Counter[tuple[str, str, str]] = Counter()

    def count(record: RequestRecord) -> None:
        if record.verb not in ("get", "list", "watch"):
            writes[record.verb, record.resource, record.subresource] += 1

    found = load(None)
    alone = found.leader_election.model_copy(update={"leader_elect": False})
    client = found.client_connection.model_copy(update={"qps": 100_000.0, "burst": 100_000})
    configuration = found.model_copy(update={"leader_election": alone, "client_connection": client})
    parts = frozenset({"core", "scheduler", "jobs", "topology"})
    flags = Flags(kubeconfig=kubeconfig, parts=parts, health_address="0", metrics_address="0")
    async with (
        aiohttp.ClientSession() as session,
        running(configuration, flags, timings=Timings(), on_request=count) as process,
    ):
        cluster = Cluster(session, process.operator.client.server)
        for collection, obj in queues():
            await cluster.ask("POST", collection, obj)
        await process.operator.synced.wait()
        await cluster.until(f"{KUEUE}/clusterqueues/team", lambda queue: _is(queue, "Active"))
        writes.clear()
        begun = time.perf_counter()
        for i in range(JOBS):
            await cluster.ask("POST", BATCH, job(f"gang-{i}"))
        await cluster.until(BATCH, lambda jobs: all(j["status"].get("ready") == PODS for j in jobs["items"]))
        seconds = time.perf_counter() - begun
        workloads = f"{KUEUE}/namespaces/default/workloads"
        await cluster.until(workloads, lambda listed: all(_is(w, "PodsReady") for w in listed["items"]))
    writes[STATUS] -= JOBS
    writes[READY] += JOBS
    return writes, seconds


def _is(obj: Object, kind: str) -> bool:
    return any(c["type"] == kind and c["status"] == "True" for c in obj.get("status", {}).get("conditions", []))


async def ready(kubeconfig: Path) -> float:
    """Seconds from the start of a controller process until it says that it is ready."""
    command = [sys.executable, "-m", "kqueue", "controller", "--no-leader-elect", "--kubeconfig", str(kubeconfig),
               "--health-address", "127.0.0.1:18081", "--metrics-address", "0", "--log-level", "error"]  # fmt: skip
    begun = time.perf_counter()
    process = await asyncio.create_subprocess_exec(*command)
    try:
        async with aiohttp.ClientSession() as session, asyncio.timeout(60):
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get("http://127.0.0.1:18081/readyz") as answer:
                        if answer.status == 200:
                            return time.perf_counter() - begun
                await asyncio.sleep(0.005)
    finally:
        process.terminate()
        await process.wait()


def start() -> float:
    """Seconds of the interpreter and its imports alone."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-m", "kqueue", "controller", "--help"], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def report(writes: Counter[tuple[str, str, str]], seconds: float) -> None:
    """Per admission, with the goal."""
    for key, (what, goal) in CRITICAL.items():
        print(f"{what:<44}{writes.pop(key, 0) / JOBS:>8.2f} (goal: {goal})")
    for (verb, resource, subresource), n in sorted(writes.items()):
        what = f"beside the road: {verb} {resource}{'/' + subresource if subresource else ''}"
        print(f"{what:<44}{n / JOBS:>8.2f}")
    print(f"{JOBS} gangs of {PODS} pods run after {seconds:.2f} s")


async def main() -> None:
    """Run, print."""
    print(f"CPython {platform.python_version()}, {loop_name()}, {os.cpu_count()} CPUs")
    print(f"\nper admission of {PODS} pods")
    for _ in range(RUNS):
        with sandbox("4x8x16") as kubeconfig:
            report(*await admissions(kubeconfig))
    with sandbox("1x1x1") as kubeconfig:
        measured = [await ready(kubeconfig) for _ in range(READY_RUNS)]
    imports = statistics.median([await asyncio.to_thread(start) for _ in range(READY_RUNS)])
    median = statistics.median(measured)
    print(
        f"\nready after {median:.2f} s, of which {imports:.2f} s are the interpreter's start (goal: {GOAL_READY:.0f} s)"
    )


if __name__ == "__main__":
    configure_logs("console", "error")
    run(main())
