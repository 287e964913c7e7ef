"""A load that arrives over time, through an API server: `make bench ROWS=load`, or `ROWS=load/sandbox`.

15,000 Workloads in 30 ClusterQueues of 5 cohorts, without Jobs and pods (`_arrivals.py`); `load/tas` adds a topology of
640 nodes and asks for racks.  The controller is a process of its own, without a limit of its client's rate; this
process makes the Workloads and plays kubelets and jobs.  The API server is the real one with etcd, or the sandbox's.

    wall_s              from the first Workload's creation until the last one is finished
    arrival_bound_s     when the last Workload arrives
    capacity_bound_s    CPU-seconds of all Workloads / quota of all queues
    wall_to_bound       wall / the larger bound; goal: 1.5
    least_wall_s        the wall time of the same load when nobody decides: no controller and no quota, each Workload is
                        admitted by this process as soon as it is seen.  What is above it is what deciding takes; where
                        it is above 1.5 of the larger bound, the goal cannot be reached on this machine
    *_writes            requests of the controller that change something, per admission: of Workloads, of events, of
                        all else (statuses of queues)
    *_cpu_pct           of all processors over the wall time; the API server's includes etcd, others are no part of
                        this.  Where they add up to 100, the machine is what bounds the wall time
    usage_pct           quota that is reserved, over the wall time
    wait_*_s            mean time from a Workload's first sight to its first admission, by class

`load/third/baseline` and `load/third/tas` play a third of the Workloads (5,010) at the same pace, on the real API server:

    wall_to_least       wall / least_wall_s
    manager_cpu_s, api_server_cpu_s, etcd_cpu_s    seconds of each process until the last Workload is finished
    all_evictions, evicted_*    Evicted conditions that became true, in all and by reason
    early_evictions     evictions within 5 s of the same workload's latest reservation of quota, by this process's watch
    all_writes, writes_*    requests of the controller that change something, in all and by resource, failed ones
                        included, from its start until the queues are empty and no event waits any more
    events_joined       events that were not written for themselves, because another one of the same moment says them
    events_after_s      from the end of the last Workload until no event waited any more, metrics pages of 5 s included
    changes_*           changes of Workloads by others than this process, by kind, as its watch shows them
    empty_cycles        cycles that admitted nobody, of `cycles`
    events_lost         the controller's counter of events that were not written
    cores_*             processors that all of these processes used, that others used, that were idle, that were stolen

`KQUEUE_LOAD_CHECKOUT=/path` starts the controller of another checkout with that checkout's `.venv`; the bench and the
CRDs stay these.

`KQUEUE_LOAD_SHARE=0.02` takes this share of the Workloads, at the same pace.  The row fails when quota is overdrawn, a
placement does not hold what was asked for, a queue counts somebody in the end, or nothing moves for a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import aiohttp
from prometheus_client.samples import Sample

from kqueue.controllers import resources as kinds
from kqueue.observe import configure_logs
from kqueue.runtime.client import Client, PatchType, connect
from kqueue.runtime.lane import Lane, LaneLimit
from kqueue.runtime.loop import run
from kqueue.runtime.transport import ClientSettings
from tests.bench._arrivals import Player, Shape, Unhindered, typed
from tests.bench._changes import cycle_counts, samples, total
from tests.bench._meter import Meter, Spent, peak_mib
from tests.bench.table import Figure, Row, WrongAnswerError, at_most, check
from tests.integration.controlplane import binaries
from tests.integration.controlplane.plane import ControlPlane, free_ports
from tests.integration.controlplane.processes import Process

SHARE = "KQUEUE_LOAD_SHARE"
SERVER_NAMES = {"kube-apiserver": "api_server", "etcd": "etcd"}
CHECKOUT = "KQUEUE_LOAD_CHECKOUT"
CRDS = Path(__file__).resolve().parents[2] / "config" / "crd"
GOAL = 1.5
START_SECONDS, SETTLE_SECONDS, STALL_SECONDS, WALL_SECONDS = 60, 30, 60, 1800
IN_FLIGHT = {Lane.JOBS: LaneLimit(64), Lane.STATUS: LaneLimit(64)}
API_SERVER = (
    "--max-requests-inflight=5000",
    "--max-mutating-requests-inflight=2500",
    "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",  # nobody makes accounts, or says nodes are well
)
CONFIGURATION = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "clientConnection": {"qps": -1, "burst": 0},
    "leaderElection": {"leaderElect": False},
}


@dataclass(frozen=True, slots=True)
class Servers:
    """A running API server: how to reach it, and the processes behind it."""

    kubeconfig: Path
    pids: dict[str, int]
    """By what the process is: `api_server`, `etcd`."""


@asynccontextmanager
async def real(folder: Path) -> AsyncIterator[Servers]:
    """kube-apiserver and etcd."""
    missing = binaries.why_missing()
    check(missing is None, missing or "")
    async with ControlPlane.start(folder, crds=(CRDS,), flags={"kube-apiserver": API_SERVER}) as plane:
        yield Servers(plane.kubeconfig, {SERVER_NAMES[process.name]: process.pid for process in plane.processes})


@asynccontextmanager
async def sandbox(folder: Path) -> AsyncIterator[Servers]:
    """The sandbox without nodes and controllers of its own."""
    kubeconfig = folder / "kubeconfig"
    left_out = "nodes,kubelet,scheduler,jobs,daemonsets,collector"
    process = Process.start(
        [sys.executable, "-m", "kqueue", "sandbox", "--port", "0", "--topology", "1x1x1", "--without", left_out,
         "--kubeconfig", kubeconfig, "-o", "json"], logs=folder)  # fmt: skip
    try:
        async with limit(START_SECONDS, "the sandbox does not start", process):
            while not (process.log.exists() and "url" in process.log.read_text()):
                check(process.ended() is None, f"the sandbox ended\n{process.tail()}")
                await asyncio.sleep(0.05)
        yield Servers(kubeconfig, {"api_server": process.pid})
    finally:
        process.stop()


def manager_python() -> str:
    """The interpreter that runs the controller: that of the checkout in `KQUEUE_LOAD_CHECKOUT`, else this one."""
    checkout = os.environ.get(CHECKOUT)
    if not checkout:
        return sys.executable
    python = Path(checkout).resolve() / ".venv" / "bin" / "python"
    check(python.exists(), f"{CHECKOUT}={checkout} has no {python}; run `make venv` there")
    return str(python)


@asynccontextmanager
async def controller(
    kubeconfig: Path, folder: Path, *, patience: float = START_SECONDS
) -> AsyncIterator[tuple[Process, str]]:
    """A controller process that is ready within `patience` seconds, and where its metrics are."""
    folder.mkdir()
    config = folder / "config.yaml"
    config.write_text(json.dumps(CONFIGURATION))
    health, metrics = free_ports(2)
    process = Process.start(
        [manager_python(), "-P", "-m", "kqueue", "controller", "--config", config, "--kubeconfig", kubeconfig,
         "--parts", "core,scheduler,topology", "--health-address", f"127.0.0.1:{health}",
         "--metrics-address", f"127.0.0.1:{metrics}"], logs=folder)  # fmt: skip
    try:
        async with limit(patience, "the controller is not ready", process), aiohttp.ClientSession() as session:
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(f"http://127.0.0.1:{health}/readyz") as answer:
                        if answer.status == 200:
                            break
                check(process.ended() is None, f"the controller ended\n{process.tail()}")
                await asyncio.sleep(0.05)
        yield process, f"http://127.0.0.1:{metrics}/metrics"
    finally:
        process.stop()


@asynccontextmanager
async def limit(seconds: float, otherwise: str, process: Process) -> AsyncIterator[None]:
    """The block must end in time."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise WrongAnswerError(f"{otherwise} within {seconds} s\n{process.tail()}") from None


def requests(found: list[Sample]) -> Counter[tuple[str, str, str, str]]:
    """Requests of the controller that change something: (verb, resource, subresource, code)."""
    counted: Counter[tuple[str, str, str, str]] = Counter()
    for sample in found:
        if sample.name == "kqueue_api_requests_total" and sample.labels["verb"] not in ("get", "list", "watch"):
            of = sample.labels
            counted[of["verb"], of["resource"], of["subresource"], of["code"]] += int(sample.value)
    return counted


async def fill(client: Client, shape: Shape) -> None:
    """Make what is there before the first workload arrives."""
    places = asyncio.Semaphore(16)

    async def make_node(obj: dict[str, object]) -> None:
        async with places:
            await client.create(kinds.NODES, obj)
            name = obj["metadata"]["name"]  # type: ignore[index]
            await client.patch(kinds.NODES, name, {"status": obj["status"]}, subresource="status",
                               content_type=PatchType.MERGE)  # fmt: skip

    async with asyncio.TaskGroup() as tasks:
        for resource, obj in shape.objects():
            if resource is kinds.NODES:
                tasks.create_task(make_node(typed(resource, obj)))
            else:
                await client.create(resource, typed(resource, obj))


async def settled(client: Client, process: Process, *, active: bool) -> None:
    """Every ClusterQueue says that it is active, or in the end: that nobody is in it and nothing is used."""
    left = ["all"]

    async def ask() -> None:
        while left:
            listed = await client.list_json(kinds.CLUSTER_QUEUES)
            left[:] = [queue["metadata"]["name"] for queue in listed if not rests(queue.get("status", {}), active)]
            await asyncio.sleep(0.2 if left else 0)

    try:
        await asyncio.wait_for(ask(), SETTLE_SECONDS)
    except TimeoutError:
        what = "are not active" if active else "still count workloads"
        raise WrongAnswerError(f"queues {what} after {SETTLE_SECONDS} s: {left}\n{process.tail()}") from None


async def written_out(metrics: str) -> list[Sample]:
    """What the controller counts when no event waits any more, or after `SETTLE_SECONDS`.

    An older checkout without the gauge is taken to have written all.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + SETTLE_SECONDS
    while total(found := await samples(metrics), "kqueue_events_waiting") and loop.time() < until:
        await asyncio.sleep(0.5)
    return found


def rests(status: dict[str, object], active: bool) -> bool:
    """Whether a ClusterQueue's status says what is waited for."""
    conditions: list[dict[str, str]] = status.get("conditions", [])  # type: ignore[assignment]
    if active:
        return any(c["type"] == "Active" and c["status"] == "True" for c in conditions)
    counts = [status.get(f"{which}Workloads", 0) for which in ("pending", "reserving", "admitted")]
    flavors: list[dict[str, list[dict[str, str]]]] = status.get("flavorsReservation", [])  # type: ignore[assignment]
    return not any(counts) and all(r["total"] == "0" for flavor in flavors for r in flavor["resources"])


async def played(player: Player, process: Process | None = None) -> None:
    """Play to the end; without a controller's process nobody's end is looked for.

    Raises:
        WrongAnswerError: nothing moved for too long, or the controller is gone; says what is stuck.
    """
    loop = asyncio.get_running_loop()
    playing = asyncio.create_task(player.play())
    begun = loop.time()
    try:
        while not playing.done():
            await asyncio.wait({playing}, timeout=1)
            idle, all_in_all = loop.time() - max(player.moved, begun), loop.time() - begun
            ended = process is not None and process.ended() is not None
            if not playing.done() and (idle > STALL_SECONDS or all_in_all > WALL_SECONDS or ended):
                why = f"nothing moves for {idle:.0f} s, {all_in_all:.0f} s after the start"
                raise WrongAnswerError(f"{why}\n{player.stuck()}\n{process.tail() if process else ''}")
        await playing
    finally:
        playing.cancel()


@asynccontextmanager
async def filled(shape: Shape, *, on_sandbox: bool) -> AsyncIterator[tuple[Path, Servers, Client]]:
    """An API server with what is there before the first workload; a folder for whoever works on it, and a client."""
    with tempfile.TemporaryDirectory(prefix="kqueue-load-") as name:
        async with (
            (sandbox if on_sandbox else real)(Path(name)) as servers,
            await connect(servers.kubeconfig, None, ClientSettings(lanes=IN_FLIGHT)) as client,
        ):
            await fill(client, shape)
            yield Path(name), servers, client


@asynccontextmanager
async def watching(player: Player) -> AsyncIterator[None]:
    """While it sees what there is."""
    task = asyncio.create_task(player.watch.run())
    try:
        await player.watch.synced.wait()
        yield
    finally:
        task.cancel()


async def least_wall(share: float, *, on_sandbox: bool) -> float:
    """Seconds that the load without topology takes when nobody decides."""
    shape = Shape(topology=False, share=share)
    async with filled(shape, on_sandbox=on_sandbox) as (_, _, client):
        player = Unhindered(client, shape)
        async with watching(player):
            await played(player)
        check(player.admissions == shape.workloads, f"{player.admissions} of {shape.workloads} are admitted")
        return player.ended - player.begun


async def measured(shape: Shape, *, on_sandbox: bool, third: bool = False) -> list[Figure]:
    """One run."""
    least = await least_wall(shape.share, on_sandbox=on_sandbox)
    async with (
        filled(shape, on_sandbox=on_sandbox) as (folder, servers, client),
        controller(servers.kubeconfig, folder / "controller") as (process, metrics),
    ):
        player = Player(client, shape)
        async with watching(player):
            await settled(client, process, active=True)
            meter = Meter({**servers.pids, "generator": os.getpid(), "controller": process.pid})
            await played(player, process)
            spent = meter.spent()
            await settled(client, process, active=False)
            check(not player.ledger.problems, "\n".join(player.ledger.problems[:10]))
            found = await written_out(metrics)
            after = asyncio.get_running_loop().time() - player.ended
            writes = requests(found)
            tell(player, writes, process)
            told = list(figures(shape, player, writes, spent, peak_mib(process.pid), least))
            return told + (list(third_figures(shape, player, found, spent, least, after)) if third else [])


def tell(player: Player, writes: Counter[tuple[str, str, str, str]], process: Process) -> None:
    """Beside the table: the conditions, and what the controller wrote."""
    limits = CONFIGURATION["clientConnection"]
    print(f"controller's client: {limits}, negative is no limit; in flight: 64", file=sys.stderr)
    print(f"last workload made after {player.last_arrival - player.begun:.1f} s", file=sys.stderr)
    for key, count in writes.most_common():
        print(f"{' '.join(filter(None, key)):<60} {count:>7}", file=sys.stderr)
    errors = [line for line in process.log.read_text().splitlines() if '"level":"error"' in line.replace(" ", "")]
    for line in errors[:3]:
        print(f"one of {len(errors)} errors: {line[:300]}", file=sys.stderr)


def figures(
    shape: Shape,
    player: Player,
    writes: Counter[tuple[str, str, str, str]],
    spent: Spent,
    mib: float,
    least: float,
) -> Iterator[Figure]:
    """What one run comes to."""
    wall = player.ended - player.begun
    processors = (os.cpu_count() or 1) * wall
    yield Figure("workloads", [player.finished])
    yield Figure("wall_s", [wall], floor=least)
    yield Figure("least_wall_s", [least])
    yield Figure("arrival_bound_s", [shape.arrival_bound])
    yield Figure("capacity_bound_s", [shape.capacity_bound])
    yield Figure("wall_to_bound", [wall / max(shape.arrival_bound, shape.capacity_bound)], at_most(GOAL))
    yield Figure("admissions_per_s", [player.admissions / wall])
    per: Counter[str] = Counter()
    for (_, resource, _, _), count in writes.items():
        kind = resource.partition(".")[0]
        per[{"workloads": "workload", "events": "event"}.get(kind, "queue")] += count
    for kind in ("workload", "event", "queue"):
        yield Figure(f"{kind}_writes", [per[kind] / player.admissions])
    yield Figure("controller_cpu_s", [spent.by["controller"]])
    yield Figure("controller_rss_mib", [mib])
    percent = {**spent.by, "api_server": spent.by["api_server"] + spent.by.get("etcd", 0.0)}
    for who in ("controller", "api_server", "generator", "others"):
        yield Figure(f"{who}_cpu_pct", [100 * percent[who] / processors])
    yield Figure("usage_pct", [100 * player.ledger.cpu_seconds / (shape.quota * wall)])
    for kind, waited in player.waits().items():
        yield Figure(f"wait_{kind}_s", [waited])
    yield Figure("evictions", [player.evictions])


def third_figures(
    shape: Shape, player: Player, found: list[Sample], spent: Spent, least: float, after: float
) -> Iterator[Figure]:
    """What `load/third` adds, with its goals; events were written until `after` seconds after the last Workload."""
    wall, changes = player.ended - player.begun, player.changes
    yield Figure("wall_to_least", [wall / least], at_most(1.5 if shape.topology else 1.35))
    yield Figure("manager_cpu_s", [spent.by["controller"]], at_most(25))
    yield Figure("api_server_cpu_s", [spent.by["api_server"]])
    yield Figure("etcd_cpu_s", [spent.by.get("etcd", 0.0)])
    yield Figure("all_evictions", [changes.kinds["eviction"]], at_most(150 if shape.topology else 100))
    for reason, count in changes.reasons.items():
        yield Figure(f"evicted_{reason}", [count])
    yield Figure("early_evictions", [changes.early], at_most(10))
    yield from write_figures(player, requests(found))
    for metric, value in cycle_counts(found):
        yield Figure(metric, [value], at_most(0) if metric == "events_lost" else None)
    yield Figure("events_joined", [total(found, "kqueue_events_joined_total")])
    yield Figure("events_after_s", [after])
    yield from core_figures(spent, wall)


def core_figures(spent: Spent, wall: float) -> Iterator[Figure]:
    """How many processors worked for this run, for others, for nobody, and for other guests of the host."""
    yield Figure("cores_used", [spent.ours / wall])
    yield Figure("cores_others", [spent.by["others"] / wall])
    yield Figure("cores_idle", [spent.idle / wall])
    yield Figure("cores_stolen", [spent.stolen / wall])


def write_figures(player: Player, writes: Counter[tuple[str, str, str, str]]) -> Iterator[Figure]:
    """Requests that change something by resource (counted by the controller), Workload changes by kind (by the watch)."""
    by_resource: Counter[str] = Counter()
    for (_, resource, subresource, _), count in writes.items():
        by_resource[f"{resource.partition('.')[0]}{'_' + subresource if subresource else ''}"] += count
    yield Figure("all_writes", [writes.total()], at_most(13_000))
    yield Figure("writes_per_workload", [writes.total() / max(1, player.finished)])
    for resource, count in by_resource.most_common():
        yield Figure(f"writes_{resource}", [count])
    for kind in ("admission", "eviction", "finalizers", "words"):
        yield Figure(f"changes_{kind}", [player.changes.kinds[kind]])


def measure_third(*, topology: bool) -> Iterator[Figure]:
    """A third of the load on the real API server."""
    share = float(os.environ.get(SHARE, "1")) / 3
    check(0 < share <= 1 / 3, f"{SHARE} must be above 0 and at most 1")
    configure_logs("console", "error")
    yield from run(measured(Shape(topology, share), on_sandbox=False, third=True))


def measure(*, topology: bool, on_sandbox: bool) -> Iterator[Figure]:
    """A row."""
    share = float(os.environ.get(SHARE, "1"))
    check(0 < share <= 1, f"{SHARE}={share} must be above 0 and at most 1")
    configure_logs("console", "error")
    yield from run(measured(Shape(topology, share), on_sandbox=on_sandbox))


ROWS = tuple(
    Row(f"{where}/{name}", partial(measure, topology=topology, on_sandbox=on_sandbox), alone=True, asked=where)
    for where, on_sandbox in (("load", False), ("load/sandbox", True))
    for name, topology in (("baseline", False), ("tas", True))
) + tuple(
    Row(name, partial(measure_third, topology=topology), alone=True, asked="load/third")
    for name, topology in (("load/third/baseline", False), ("load/third/tas", True))
)
