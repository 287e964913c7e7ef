"""A controller that starts anew on a cluster full of Jobs: how long until it is quiet, what it writes, what it needs.

The sandbox runs in a process of its own with 512 simulated nodes of 8 GPUs.  A first controller brings 10,000 Jobs of
one pod each to where they are: 4,000 run in all of the quota, half of them placed by topology, 3,000 wait, 3,000 have
finished.  It is stopped, and another one starts, in a process of its own, with the client limits that users get.

    quiet_s         seconds from the start of the process, the interpreter's included, until it has looked at every
                    object and has nothing left to do; goal: 60
    cpu_s           CPU seconds of the process in that time: less than `quiet_s` where it had to wait for a core
    cycles          of the scheduling loop: whoever waits is tried again, as nobody remembers that there was no room
    writes          requests other than reads in that time and the `WATCHED` seconds after it; must be 0
    peak_rss_mib    the most memory that it had

`restart/jobs` takes minutes, most of them for the Jobs' way to where they are: `make bench ROWS=restart`.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import aiohttp

from kqueue.config import Configuration, Timings, load
from kqueue.manager.operator import Operator
from kqueue.manager.process import Flags, running
from kqueue.observe import configure_logs
from kqueue.runtime.loop import run, tune_collector
from kqueue.runtime.transport import RequestRecord
from tests.bench.road import BATCH, KUEUE, RACK, Cluster, Object, queues, sandbox
from tests.bench.table import Figure, Row, at_most, check

JOBS, GOAL_SECONDS = int(os.environ.get("KQUEUE_RESTART_JOBS", "10000")), 60
"""Fewer Jobs are for trying the row out."""
SHARES = {"finished": 0.3, "runs": 0.4, "waits": 0.3}
AT_ONCE = 32
QUIET = 3.0
"""Seconds without work after which a controller counts as quiet; they are not part of the figure."""
SETTLED = 15.0
"""As long before the restart: ten seconds after its try, a Workload is told where it stands."""
WATCHED = 30.0
"""Seconds in which a quiet controller must not write either."""
PATIENCE = 900.0
PARTS = frozenset({"core", "scheduler", "jobs", "topology"})
WORKLOADS = f"{KUEUE}/namespaces/default/workloads"


def job(name: str, *, seconds: int, placed: bool) -> Object:
    """One GPU for some seconds, already suspended, so that no webhook is needed."""
    amounts = {"nvidia.com/gpu": "1"}
    container = {"name": "main", "image": "example.dev/train:1", "resources": {"requests": amounts, "limits": amounts}}
    notes = {"sandbox.kqueue.dev/run-seconds": str(seconds)}
    if placed:
        notes["kueue.x-k8s.io/podset-preferred-topology"] = RACK
    template = {
        "metadata": {"annotations": notes},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {"suspend": True, "parallelism": 1, "completions": 1, "template": template},
    }


def configuration(*, limited: bool) -> Configuration:
    """As users have it, without leader election; when not `limited`, with a client that never waits for itself."""
    found = load(None)
    alone = found.leader_election.model_copy(update={"leader_elect": False})
    client = found.client_connection
    if not limited:
        client = client.model_copy(update={"qps": 100_000.0, "burst": 100_000})
    return found.model_copy(update={"leader_election": alone, "client_connection": client})


class Writes:
    """What a controller's client sends."""

    def __init__(self) -> None:
        self.of: Counter[str] = Counter()
        self.requests = 0

    def count(self, record: RequestRecord) -> None:
        self.requests += 1
        if record.verb not in ("get", "list", "watch"):
            self.of[" ".join(filter(None, (record.verb, record.resource, record.subresource)))] += 1


async def quiet(operator: Operator, writes: Writes, seconds: float = QUIET) -> float:
    """The time of the last work before a controller that leads had none for so many seconds."""
    await operator.ready.wait()
    last, seen = time.time(), (-1, -1)
    async with asyncio.timeout(PATIENCE):
        while True:
            idle = all(controller.queue.idle for controller in operator.manager.controllers)
            now = (operator.loop.cycles, writes.requests)
            if not idle or now != seen:
                last, seen = time.time(), now
            elif time.time() - last > seconds:
                return last
            await asyncio.sleep(0.05)


# --- the Jobs' way to where they are


async def fill(kubeconfig: Path) -> None:
    """Jobs that finish, Jobs that take all of the quota, Jobs that find no room, by a controller that is stopped then."""
    counts = {state: int(JOBS * share) for state, share in SHARES.items()}
    flags = Flags(kubeconfig=kubeconfig, parts=PARTS, health_address="0", metrics_address="0")
    writes, found = Writes(), configuration(limited=False)
    async with (
        aiohttp.ClientSession() as session,
        running(found, flags, timings=Timings(), on_request=writes.count) as process,
    ):
        cluster = Cluster(session, process.operator.client.server)
        for collection, obj in queues():
            if obj["kind"] == "ClusterQueue":
                quota = obj["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]
                quota["nominalQuota"] = str(counts["runs"])
            await cluster.ask("POST", collection, obj)
        for state, count in counts.items():
            await submit(cluster, state, count)
            await quiet(process.operator, writes)
        await quiet(process.operator, writes, SETTLED)
        reached = Counter(map(state_of, (await cluster.ask("GET", WORKLOADS))["items"]))
    check(reached == Counter(counts), f"the Jobs are {dict(reached)}, not {counts}")


async def submit(cluster: Cluster, state: str, count: int) -> None:
    """So many Jobs of which this will become."""
    todo = iter(range(count))

    async def work() -> None:
        for index in todo:
            seconds = 0 if state == "finished" else 360_000
            await cluster.ask("POST", BATCH, job(f"{state}-{index}", seconds=seconds, placed=index % 2 == 0))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(work())


def state_of(workload: Object) -> str:
    """One of `SHARES`, or what is on the way between two of them."""
    held = {c["type"] for c in workload.get("status", {}).get("conditions", ()) if c["status"] == "True"}
    if "Finished" in held:
        return "finished"
    return "runs" if "PodsReady" in held else "is starting" if "QuotaReserved" in held else "waits"


# --- the restart, in a process of its own


async def restarted(kubeconfig: Path) -> None:
    """Run a controller until it is quiet, and a while more; one line of JSON tells how it was."""
    flags = Flags(kubeconfig=kubeconfig, parts=PARTS, health_address="0", metrics_address="0")
    writes = Writes()
    found = configuration(limited=True)
    async with running(found, flags, timings=Timings(), on_request=writes.count) as process:
        ended = await quiet(process.operator, writes)
        cpu = time.process_time()
        await asyncio.sleep(WATCHED)
        seen = len(process.operator.watches.workloads.store.values())
        cycles = process.operator.loop.cycles
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    told = {"ended": ended, "cpu": cpu, "writes": writes.of, "mib": peak, "workloads": seen, "cycles": cycles}
    print(json.dumps(told), flush=True)


def measure() -> Iterator[Figure]:
    """The figures of one restart."""
    configure_logs("console", "error")
    with sandbox("4x8x16") as kubeconfig:
        run(fill(kubeconfig))
        begun = time.time()
        command = [sys.executable, "-m", "tests.bench.restart", str(kubeconfig)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=PATIENCE)
    told = json.loads(done.stdout)
    check(told["workloads"] == JOBS, f"the second controller knows {told['workloads']} Workloads")
    yield Figure("quiet_s", [told["ended"] - begun], goal=at_most(GOAL_SECONDS))
    yield Figure("cpu_s", [told["cpu"]])
    yield Figure("cycles", [told["cycles"]])
    yield Figure("peak_rss_mib", [told["mib"]])
    check(not told["writes"], f"it wrote though nothing had changed: {told['writes']}")
    yield Figure("writes", [sum(told["writes"].values())])


ROWS = (Row("restart/jobs", measure, alone=True, asked="restart"),)


if __name__ == "__main__":
    configure_logs("console", "error")
    tune_collector()
    run(restarted(Path(sys.argv[1])))
