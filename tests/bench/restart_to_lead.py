"""A controller that is killed and started again beside busy processes: how long until it leads.

kube-apiserver and etcd (`make controlplane`) hold `JOBS` Jobs that wait, each with its Workload.  A controller with the
default lease (15, 10 and 2 s) leads and is killed with SIGKILL, which leaves its lease held.  Then `LOOPS` busy processes
start on the same cores, and a new controller starts beside them.

    same-machine      the new process can see that the holder of the lease has ended
    another-machine   the holder ran elsewhere: the lease is held, nobody renews it, and nothing else is known

    leads_s         seconds from the start of the process until it leads with caches that are up to date
    won_s           the same until it holds the lease
    filled_s        the same until every watch has brought its initial state
    listens_s       the same until the port of its probes takes connections

`KQUEUE_RESTART_AGAINST=FOLDER` names another checkout, with its `.venv`: both are measured in turn, each pair beside the
same load, and the figures of the other one begin with `against_`.  `KQUEUE_RESTART_LOOPS` sets `LOOPS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tests.bench.load import limit, real
from tests.bench.restart import job
from tests.bench.road import BATCH, KUEUE, queues
from tests.bench.table import REPETITIONS, Figure, Row, check
from tests.integration.controlplane.cluster import Cluster
from tests.integration.controlplane.plane import free_ports
from tests.integration.controlplane.processes import Process

JOBS = 200
LOOPS = int(os.environ.get("KQUEUE_RESTART_LOOPS", "16"))
OTHER = os.environ.get("KQUEUE_RESTART_AGAINST", "")
PATIENCE = 120.0
POLL = 0.02
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
BUSY = f"""
import time
until = time.monotonic() + {PATIENCE}
while time.monotonic() < until:
    pass
"""
FILLED, WON, LEADS = "every watch has synced", "leadership won", "caches are up to date"


@dataclass(frozen=True, slots=True)
class Controller:
    """One controller process."""

    process: Process
    began: float
    """When it was started, in Unix time."""
    port: int
    """Of its probes."""

    async def until(self, event: str) -> float:
        """Seconds from the start until it logged this first."""
        async with limit(PATIENCE, f"the log does not say: {event}", self.process):
            while True:
                for line in self.process.log.read_text().splitlines():
                    with contextlib.suppress(ValueError):
                        found = json.loads(line)
                        if found["event"] == event:
                            return datetime.fromisoformat(found["time"]).timestamp() - self.began
                check(self.process.ended() is None, f"the controller ended\n{self.process.tail()}")
                await asyncio.sleep(POLL)

    async def until_it_listens(self) -> float:
        """Seconds from the start until the port of its probes took a connection."""
        async with limit(PATIENCE, "the controller does not listen", self.process):
            while True:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                        return time.time() - self.began
                await asyncio.sleep(POLL)


@contextmanager
def started(program: Path, kubeconfig: Path, folder: Path, lease: str) -> Iterator[Controller]:
    """A controller that competes for a lease of this name with the default times; killed with the block."""
    folder.mkdir()
    config = folder / "config.yaml"
    election = {"leaderElect": True, "resourceName": lease, "resourceNamespace": "default"}
    head = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
    config.write_text(json.dumps({**head, "leaderElection": election}))
    [port] = free_ports(1)
    flags = ["--config", str(config), "--kubeconfig", str(kubeconfig), "--health-address", f"127.0.0.1:{port}",
             "--metrics-address", "0"]  # fmt: skip
    began = time.time()
    process = Process.start([program, "controller", *flags], logs=folder)
    try:
        yield Controller(process, began, port)
    finally:
        process.stop()


@contextmanager
def busy(folder: Path) -> Iterator[None]:
    """`LOOPS` processes that work all the time; ended with the block, by themselves after `PATIENCE`."""
    loops: list[Process] = []
    try:
        for _ in range(LOOPS):
            loops.append(Process.start([sys.executable, "-I", "-S", "-c", BUSY], logs=folder))
        yield
    finally:
        for each in loops:
            each.stop()


def held_elsewhere(lease: str) -> dict[str, object]:
    """A lease that a controller on another machine has just renewed."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "elsewhere_0b7c5f5e", "leaseDurationSeconds": 15, "acquireTime": now, "renewTime": now}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": lease}, "spec": spec}


@dataclass(frozen=True, slots=True)
class Place:
    """Where restarts are measured: a control plane that is filled, and a folder for what processes leave."""

    cluster: Cluster
    kubeconfig: Path
    folder: Path

    async def restart(self, program: Path, number: int, *, elsewhere: bool) -> dict[str, float]:
        """Seconds from the start of one controller to each moment of its way to the lead, by metric."""
        lease = f"lead-{number}"
        if not elsewhere:
            with started(program, self.kubeconfig, self.folder / f"{lease}-former", lease) as former:
                await former.until(LEADS)
        with busy(self.folder):
            if elsewhere:
                await self.cluster.request("POST", LEASES, held_elsewhere(lease))
            with started(program, self.kubeconfig, self.folder / lease, lease) as new:
                found = {"listens_s": await new.until_it_listens()}
                for metric, event in (("leads_s", LEADS), ("won_s", WON), ("filled_s", FILLED)):
                    found[metric] = await new.until(event)
        return found


@asynccontextmanager
async def place(program: Path) -> AsyncIterator[Place]:
    """A control plane with `JOBS` Jobs for which there is no quota, and the Workloads that a controller made for them."""
    with tempfile.TemporaryDirectory(prefix="kqueue-restart-") as name:
        folder = Path(name)
        async with real(folder) as servers:
            cluster = Cluster(servers.kubeconfig)
            for collection, obj in queues():
                if obj["kind"] == "ClusterQueue":
                    obj["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "0"
                await cluster.request("POST", collection, obj)
            for index in range(JOBS):
                await cluster.request("POST", BATCH, job(f"waits-{index}", seconds=0, placed=False))
            with started(program, servers.kubeconfig, folder / "first", "first") as first:
                await first.until(LEADS)  # before that, the API server refuses to list kinds that it has just got
                await cluster.until(
                    f"{KUEUE}/workloads", lambda found: len(found["items"]) == JOBS, what=f"{JOBS} Workloads"
                )
            yield Place(cluster, servers.kubeconfig, folder)


async def measured(*, elsewhere: bool) -> list[Figure]:
    """Each checkout in turn, `REPETITIONS` times; the one that begins alternates."""
    own = Path(sys.executable).parent / "kqueue"
    checkouts = [("", own)] + ([("against_", Path(OTHER) / ".venv/bin/kqueue")] if OTHER else [])
    samples: defaultdict[str, list[float]] = defaultdict(list)
    async with place(own) as here:
        for number in range(REPETITIONS * len(checkouts)):
            turn, which = divmod(number, len(checkouts))
            prefix, program = checkouts[(turn + which) % len(checkouts)]
            for metric, seconds in (await here.restart(program, number, elsewhere=elsewhere)).items():
                samples[prefix + metric].append(seconds)
    return [Figure(metric, values) for metric, values in samples.items()]


def measure(*, elsewhere: bool) -> Iterator[Figure]:
    """One of the rows."""
    yield from asyncio.run(measured(elsewhere=elsewhere))


ROWS = tuple(
    Row(f"restart/lead/{name}", partial(measure, elsewhere=elsewhere), alone=True, asked="restart")
    for name, elsewhere in (("same-machine", False), ("another-machine", True))
)
