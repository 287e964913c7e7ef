"""A controller that starts on a large cluster that is in use: how long until it admits, and what it needs for that.

The sandbox's API server, in a process of its own, holds 15,000 nodes of 8 GPUs (100 racks), 100,000 pods that run on
12,500 of them, and 50,000 Workloads in 30 ClusterQueues of 5 cohorts: 12,500 admitted ones by topology with 8 pods
each, 17,500 finished ones, 20,000 that wait for a rack.  There are no Jobs: nothing is said of what they cost.  A
`kqueue controller` as users start it, but without leader election, then watches all of it; 2,500 nodes are free, so the
first cycle admits.

    first_s         seconds from the start of the process until its first admission is stored; goal: 30
    peak_rss_mib    the most memory that it had until `AFTERWARDS` seconds later; goal: 1,024
    first_rss_mib   the same until the first admission
    cpu_s           CPU seconds of the process until then: less than `first_s` where it waited for a core or the server

    start/controller, start/webhook   the process against an API server that holds nothing: `cpu_s` is what it has used
                    when its readiness probe says yes first; goal: 0.6

`start/large` takes a minute: `make bench ROWS=start`.  `KQUEUE_START_SHARE=0.1` makes all of it smaller.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kqueue.api.crd_files import crd_folder
from kqueue.core.topology import Domain, TopologyAssignment, encode
from kqueue.runtime.loop import run
from kqueue.sandbox.api import NAMESPACES, NODES, PODS, Object
from kqueue.sandbox.cluster import Sandbox, SandboxOptions
from kqueue.sandbox.nodes import new_node
from kqueue.sandbox.store import StoreChange
from kqueue.sandbox.topology_spec import DEFAULT_ALLOCATABLE, parse_topology
from tests.bench._meter import cpu_seconds, peak_mib
from tests.bench._planted import NOW, Planted, condition, ours, serve
from tests.bench.table import REPETITIONS, Figure, Row, at_most, check

SHARE = float(os.environ.get("KQUEUE_START_SHARE", "1"))
RACKS, HOSTS, GPUS = max(1, round(100 * SHARE)), 150, 8
RUNNING, FINISHED, WAITING = round(12_500 * SHARE), round(17_500 * SHARE), round(20_000 * SHARE)
COHORTS, QUEUES = 5, 30
RACK = "cloud.provider.com/topology-rack"
AFTERWARDS, PATIENCE = 15.0, 300.0
GOAL_SECONDS, GOAL_MIB = 30, 1024
GOAL_READY_SECONDS = 0.6


# --- the cluster, in a process of its own


class World(Planted):
    """The cluster of `start/large`."""

    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__(sandbox)
        self.first: float | None = None
        """When the first Workload was admitted."""

    def fill(self) -> None:
        """Everything; takes seconds."""
        hosts = self._nodes()
        self._queues()
        active = condition("Active")
        del active["observedGeneration"]
        for number in range(RUNNING):
            self._running(number, hosts[number])
        for number in range(FINISHED):
            status = {"conditions": [condition("QuotaReserved"), condition("Admitted"), condition("Finished")]}
            self._workload(f"finished-{number}", number, pods=GPUS, status=status)
        for number in range(WAITING):
            status = {"conditions": [condition("QuotaReserved", holds=False, reason="WaitingForQuota")]}
            self._workload(f"waits-{number}", number, pods=16 * GPUS, status=status)
        self.api.listen(self._look)

    def _look(self, _kind: object, change: StoreChange) -> None:
        obj = change.record.obj if change.record is not None and change.old is not None else {}
        if self.first is not None or obj.get("kind") != "Workload" or not obj["metadata"]["name"].startswith("waits-"):
            return
        if any(c["type"] == "Admitted" and c["status"] == "True" for c in obj["status"].get("conditions", ())):
            self.first = time.time()
            print(json.dumps({"first": self.first}), flush=True)

    def _nodes(self) -> list[str]:
        spec = parse_topology(f"1x{RACKS}x{HOSTS}", allocatable=DEFAULT_ALLOCATABLE)
        hosts = []
        for number, blueprint in enumerate(spec.blueprints()):
            node = new_node(blueprint, number=number, now=NOW)
            self.put(NODES, blueprint.name, {k: node[k] for k in ("spec", "status")}, labels=node["metadata"]["labels"])
            hosts.append(blueprint.name)
        self.levels = list(spec.levels)
        return hosts

    def _queues(self) -> None:
        self.put(ours("topologies"), "dc", {"spec": {"levels": [{"nodeLabel": level} for level in self.levels]}})
        flavor = {"nodeLabels": {"kubernetes.io/os": "linux"}, "topologyName": "dc"}
        self.put(ours("resourceflavors"), "gpu", {"spec": flavor})
        quota = {"name": "nvidia.com/gpu", "nominalQuota": str(RACKS * HOSTS * GPUS // QUEUES)}
        groups = [{"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": "gpu", "resources": [quota]}]}]
        for number in range(QUEUES):
            name = f"q-{number}"
            spec = {"cohortName": f"c-{number % COHORTS}", "namespaceSelector": {}, "resourceGroups": groups,
                    "queueingStrategy": "BestEffortFIFO"}  # fmt: skip
            self.put(ours("clusterqueues"), name, {"spec": spec, "status": {}})
            self.put(NAMESPACES, name, {"spec": {}, "status": {"phase": "Active"}},
                     labels={"kubernetes.io/metadata.name": name})  # fmt: skip
            self.put(ours("localqueues"), "main", {"spec": {"clusterQueue": name}, "status": {}}, name)

    def _workload(self, name: str, number: int, *, pods: int, status: Object) -> None:
        amounts = {"nvidia.com/gpu": "1"}
        container = {"name": "main", "image": "registry.example.dev/train:v1", "command": ["train", "--config", "c"],
                     "env": [{"name": f"SETTING_{i}", "value": "v" * 20} for i in range(10)],
                     "resources": {"requests": amounts, "limits": amounts}}  # fmt: skip
        template = {
            "metadata": {"labels": {"app": "train"}},
            "spec": {"containers": [container], "restartPolicy": "Never"},
        }
        pod_set = {"name": "main", "count": pods, "template": template, "topologyRequest": {"required": RACK}}
        spec = {"queueName": "main", "active": True, "priority": 0, "podSets": [pod_set]}
        finalizers = ["kueue.x-k8s.io/resource-in-use"]
        self.put(ours("workloads"), name, {"spec": spec, "status": status}, f"q-{number % QUEUES}",
                 finalizers=finalizers)  # fmt: skip

    def _running(self, number: int, host: str) -> None:
        """Eight pods on one host."""
        name, queue = f"runs-{number}", f"q-{number % QUEUES}"
        placed = TopologyAssignment(("kubernetes.io/hostname",), (Domain((host,), GPUS),))
        entry = {"name": "main", "flavors": {"nvidia.com/gpu": "gpu"}, "resourceUsage": {"nvidia.com/gpu": str(GPUS)},
                 "count": GPUS, "topologyAssignment": encode(placed)}  # fmt: skip
        status = {
            "conditions": [condition("QuotaReserved"), condition("Admitted"), condition("PodsReady")],
            "admission": {"clusterQueue": queue, "podSetAssignments": [entry]},
        }
        self._workload(name, number, pods=GPUS, status=status)
        amounts = {"nvidia.com/gpu": "1"}
        for rank in range(GPUS):
            container = {"name": "main", "image": "registry.example.dev/train:v1", "command": ["train"],
                         "resources": {"requests": amounts, "limits": amounts}}  # fmt: skip
            spec = {"nodeName": host, "restartPolicy": "Never", "containers": [container],
                    "nodeSelector": {"kubernetes.io/hostname": host, "kubernetes.io/os": "linux"}}  # fmt: skip
            ready = [{"type": "Ready", "status": "True", "lastTransitionTime": NOW}]
            notes = {"kueue.x-k8s.io/workload": name, "kueue.x-k8s.io/podset-required-topology": RACK}
            labels = {"kueue.x-k8s.io/podset": "main", "kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/tas": "true",
                      "batch.kubernetes.io/job-completion-index": str(rank)}  # fmt: skip
            self.put(PODS, f"{name}-{rank}", {"spec": spec, "status": {"phase": "Running", "conditions": ready}}, queue,
                     labels=labels, annotations=notes)  # fmt: skip


# --- the controller


@contextlib.contextmanager
def started(*command: str, **settings: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended with the block.  It may write bytecode: what is measured is a start without compiling."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen([sys.executable, "-m", *command], env=environment, **settings)
    try:
        yield process
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()


async def told(process: subprocess.Popen[bytes], controller: subprocess.Popen[bytes] | None = None) -> dict[str, float]:
    """The next line that the server says, while both run."""
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        line = asyncio.create_task(asyncio.to_thread(process.stdout.readline))
        while not line.done():
            check(controller is None or controller.poll() is None, "the controller has ended")
            check(process.poll() is None, "the API server has ended")
            await asyncio.wait({line}, timeout=0.2)
        found: dict[str, float] = json.loads(line.result())
        return found


async def measured() -> tuple[float, float, float, float]:
    """(seconds, MiB until then, MiB afterwards, CPU seconds)."""
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "config"
        with started("tests.bench.start", str(kubeconfig), stdout=subprocess.PIPE) as server:
            await told(server)
            command = ["kqueue", "controller", "--no-leader-elect", "--kubeconfig", str(kubeconfig), "--health-address",
                       "0", "--metrics-address", "0", "--log-level", os.environ.get("KQUEUE_START_LOG", "error")]  # fmt: skip
            begun = time.time()
            with started(*command) as controller:
                first = (await told(server, controller))["first"]
                early, cpu = peak_mib(controller.pid), cpu_seconds(controller.pid)
                await asyncio.sleep(AFTERWARDS)
                check(controller.poll() is None, "the controller has ended")
                return first - begun, early, peak_mib(controller.pid), cpu


def measure() -> Iterator[Figure]:
    """One start."""
    seconds, early, late, cpu = asyncio.run(measured())
    goal = at_most if SHARE == 1 else lambda _limit: None
    yield Figure("first_s", [seconds], goal=goal(GOAL_SECONDS))
    yield Figure("peak_rss_mib", [late], goal=goal(GOAL_MIB))
    yield Figure("first_rss_mib", [early])
    yield Figure("cpu_s", [cpu])


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def is_ready(port: int) -> bool:
    """What the readiness probe says."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


async def until_ready(command: Sequence[str], kubeconfig: Path) -> float:
    """CPU seconds of one start."""
    port = free_port()
    flags = ["--kubeconfig", str(kubeconfig), "--health-address", f"127.0.0.1:{port}", "--metrics-address", "0",
             "--log-level", "error"]  # fmt: skip
    with started("kqueue", *command, *flags) as process:
        async with asyncio.timeout(PATIENCE):
            while not await asyncio.to_thread(is_ready, port):
                check(process.poll() is None, "the process has ended")
                await asyncio.sleep(0.01)
        return cpu_seconds(process.pid)


async def ready_times(command: Sequence[str]) -> list[float]:
    """CPU seconds of each start, beside one API server; the first start writes the bytecode and is not counted."""
    sandbox = Sandbox(SandboxOptions(parts=frozenset({"server"}), crds=(crd_folder(),)))
    await sandbox.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            kubeconfig = Path(folder) / "config"
            sandbox.write_kubeconfig(kubeconfig)
            return [await until_ready(command, kubeconfig) for _ in range(1 + REPETITIONS)][1:]
    finally:
        await sandbox.stop()


def measure_ready(*command: str) -> Iterator[Figure]:
    """A start against an empty API server."""
    yield Figure("cpu_s", asyncio.run(ready_times(command)), goal=at_most(GOAL_READY_SECONDS))


WEBHOOK = ("webhook", "--host", "127.0.0.1", "--port", "0", "--url", "https://127.0.0.1:{port}")
ROWS = (
    Row("start/large", partial(measure), alone=True, asked="start"),
    Row("start/controller", partial(measure_ready, "controller", "--no-leader-elect"), alone=True),
    Row("start/webhook", partial(measure_ready, *WEBHOOK), alone=True),
)


if __name__ == "__main__":
    run(serve(Path(sys.argv[1]), lambda sandbox: World(sandbox).fill()))
