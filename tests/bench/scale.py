"""Steady arrivals in a large cluster that is in use, through an API server: `make bench ROWS=load/scale`.

The sandbox's API server, in a process of its own, holds 15,000 nodes of 8 GPUs (10,000 of them in a topology of blocks,
racks and hosts), 100,000 pods that run on them, 1,000 ClusterQueues in 100 cohorts, and 50,000 Workloads of 8 GPUs:

    800 full ClusterQueues   10 Workloads run in each and take all of its quota, 50 others wait
    200 open ClusterQueues   10 run in each, 8 more would fit, nothing waits

Every second ClusterQueue uses the topology; its Workloads ask for one host, or for two pods in one rack.  80,000 of the
pods belong to the running Workloads, 20,000 to others.  The process also plays kubelets and jobs: pods begin with an
admission and go with the end of their Workload.  This process makes 100 Workloads a second for a minute: 50 in open
ClusterQueues, which are admitted at once and are finished 10 s later, and 50 in full ones, where another Workload is
finished at the same moment, so that the oldest of those that wait can start.  So 100 admissions a second are due.

    ready_s             from the start of the controller's process until it says that it is ready: all watches have
                        delivered what there is
    quiet_s             until it writes nothing more: no change in the API server for `QUIET_SECONDS`, which do not count
    start_writes        changes in the API server until then: those that wait are told why, and where they stand
    arrivals_per_s, admissions_per_s    in the minute of arrivals; goal: 99 % of what is due
    arrival_p50_ms, _p99_ms    from the event of a Workload in an open ClusterQueue to the event of its admission
    end_p50_ms, _p99_ms        from the event of the end of a Workload to that of the admission into what it gave back
    overtaken           Workloads of full ClusterQueues that waited while a younger one of their ClusterQueue was admitted
    drain_s             from the end of that minute until all decisions that were due were seen
    words_s             from the end of that minute until nothing is written any more: reasons for waiting are written
                        last, at a bounded rate
    all_writes, writes_*       requests of the controller that change something, per admission
    *_cores             processors that each process used in that minute; 1 is the most that controller or server can use
    *_rss_mib           the most memory that it had

All times are taken by this process, with a watch of its own.  The row fails when quota or a host is overdrawn, a
placement does not hold what was asked for, a Workload is evicted, a full ClusterQueue admits more than has ended there,
decisions are still due after `DRAIN_SECONDS`, or the statuses of the ClusterQueues do not add up in the end.

`KQUEUE_LOAD_SHARE=0.02` makes all of it smaller, the rate of arrivals too.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from prometheus_client.samples import Sample

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import SystemClock
from kqueue.controllers import resources as kinds
from kqueue.observe import configure_logs
from kqueue.runtime.client import Client, connect
from kqueue.runtime.lane import Lane
from kqueue.runtime.loop import run
from kqueue.runtime.reflector import Projection, Reflector
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.transport import ClientSettings
from tests.bench._arrivals import finish, typed
from tests.bench._changes import cycle_counts, samples, total
from tests.bench._meter import Meter, Spent, peak_mib, percentile
from tests.bench._scale import FORMS, GPUS, HOST, PENDING, QUEUES, RUNNING, Form, Scale, spec_of, stored_hosts
from tests.bench.load import IN_FLIGHT, SHARE, controller, core_figures, limit, requests
from tests.bench.table import Figure, Row, WrongAnswerError, at_least, check
from tests.integration.controlplane.processes import Process

COHORTS, SECONDS, RUN_SECONDS = 100, 60, 10.0
"""Cohorts, and arrivals a second; how long they arrive; how long the Workloads in open ClusterQueues run."""
START_SECONDS, QUIET_SECONDS, DRAIN_SECONDS, WORDS_SECONDS, ROW_SECONDS = 180, 12, 60, 200, 570
IDLE_CORES = 0.1
"""A controller that uses less of a processor has nothing to do."""


@asynccontextmanager
async def server(folder: Path, scale: Scale) -> AsyncIterator[tuple[Path, Process]]:
    """The sandbox's process with everything in it, and its kubeconfig."""
    kubeconfig = folder / "kubeconfig"
    process = Process.start([sys.executable, "-m", "tests.bench._scale", kubeconfig, str(scale.cohorts)], logs=folder)
    try:
        async with limit(START_SECONDS, "the API server is not filled", process):
            while not (process.log.exists() and "filled" in process.log.read_text()):
                check(process.ended() is None, f"the API server ended\n{process.tail()}")
                await asyncio.sleep(0.05)
        yield kubeconfig, process
    finally:
        process.stop()


class Ledger:
    """Who holds what, in the order in which the API server wrote it."""

    def __init__(self, scale: Scale) -> None:
        self._used: Counter[str] = Counter()
        """GPUs by cohort."""
        self._on_host: Counter[str] = Counter()
        self._limits: Counter[str] = Counter()
        for queue in scale.full + scale.open:
            self._limits[scale.cohort(queue)] += scale.nominal(queue)
        self.held: dict[str, Counter[str]] = {}
        """By key of those that hold quota: GPUs on each host, as far as it is known."""
        self.problems: list[str] = []

    def take(self, workload: wire.Workload) -> None:
        """It holds quota from now on."""
        key, queue = model.workload_key(workload), workload.metadata.namespace
        [pod_set] = workload.spec.pod_sets
        hosts = placement(workload)
        gpus = Counter({host: pods * GPUS // pod_set.count for host, pods in hosts.items()})
        self.held[key] = gpus
        self._used[Scale.cohort(queue)] += GPUS
        self._on_host.update(gpus)
        if self._used[Scale.cohort(queue)] > self._limits[Scale.cohort(queue)]:
            self.problems.append(f"{key}: {Scale.cohort(queue)} uses more than its quota")
        self.problems += [f"{key}: {host} is overdrawn" for host in gpus if self._on_host[host] > GPUS]
        if Scale.placed(queue):
            self.problems += misplaced(workload, hosts)

    def give_back(self, key: str) -> None:
        """It does not any more."""
        self._used[Scale.cohort(key.partition("/")[0])] -= GPUS
        self._on_host.subtract(self.held.pop(key))


def placement(workload: wire.Workload) -> Counter[str]:
    """Pods on each host, as its admission says; empty without a topology."""
    admission = workload.status.admission
    stored = admission.pod_set_assignments[0].topology_assignment if admission is not None else None
    return Counter() if stored is None else Counter(dict(stored_hosts(stored)))


def misplaced(workload: wire.Workload, hosts: Mapping[str, int]) -> Iterator[str]:
    """What is wrong with the hosts of an admitted workload, if anything is."""
    key, [pod_set] = model.workload_key(workload), workload.spec.pod_sets
    if sum(hosts.values()) != pod_set.count:
        yield f"{sum(hosts.values())} of the {pod_set.count} pods of {key} have hosts"
    request = pod_set.topology_request
    domains = hosts if request is not None and request.required == HOST else {host.rpartition("-")[0] for host in hosts}
    if len(domains) != 1:
        yield f"{key} wants one {request.required if request else 'domain'} and has {sorted(hosts)}"


class Steady:
    """Makes and finishes Workloads at a steady rate, and takes the times of what is decided."""

    def __init__(self, client: Client, scale: Scale) -> None:
        self._client, self._scale, self._clock = client, scale, SystemClock()
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
        self.ledger = Ledger(scale)
        self._full = frozenset(scale.full)
        self._seen: dict[str, float] = {}
        self._ended: defaultdict[str, deque[float]] = defaultdict(deque)
        """Moments of ends that no admission has followed, by full ClusterQueue."""
        self._waiting = {queue: [f"{queue}/waits-{number:04}" for number in range(PENDING)] for queue in scale.full}
        """Those that have waited from the start, by full ClusterQueue, the oldest first."""
        self.overtaken: set[str] = set()
        """Those of full ClusterQueues that a younger one was admitted before."""
        self.after_arrival: list[float] = []
        self.after_end: list[float] = []
        self.decided_at: list[float] = []
        self.made_at: list[float] = []
        self._loop = asyncio.get_running_loop()
        self._tasks: asyncio.TaskGroup | None = None
        self.watch.subscribe(self._on_workload)

    @property
    def due(self) -> int:
        """Decisions that have to be made in all."""
        return self._scale.cohorts * SECONDS

    async def play(self) -> None:
        """Return when all decisions that were due have been seen, or `DRAIN_SECONDS` after the last arrival."""
        self.begun = time.perf_counter()
        async with asyncio.TaskGroup() as self._tasks:
            for number in range(self.due):
                await asyncio.sleep(self.begun + number / self._scale.cohorts - time.perf_counter())
                self._tasks.create_task(self._arrive(number))
        until = time.perf_counter() + DRAIN_SECONDS
        while len(self.decided_at) < self.due and time.perf_counter() < until:
            await asyncio.sleep(0.05)

    async def _arrive(self, number: int) -> None:
        """Arrivals come to open and full ClusterQueues in turn; for one in a full one, a Workload there ends."""
        queues = self._scale.full if number % 2 else self._scale.open
        turn, place = divmod(number // 2, len(queues))
        await self._create(queues[place], f"comes-{turn:04}", FORMS[turn % 2])
        if number % 2:
            await self._finish(f"{queues[place]}/runs-{turn:02}")

    async def _create(self, queue: str, name: str, form: Form) -> None:
        obj = {"metadata": {"name": name, "namespace": queue}, "spec": spec_of(form, placed=Scale.placed(queue))}
        await self._client.create(kinds.WORKLOADS, typed(kinds.WORKLOADS, obj))
        self.made_at.append(time.perf_counter())

    async def _finish(self, key: str) -> None:
        await self._writer.write(key, finish(self._clock), lane=Lane.STATUS)

    async def _run(self, key: str) -> None:
        await asyncio.sleep(RUN_SECONDS)
        await self._finish(key)

    # --- what the watch shows ----------------------------------------------------------------------------------

    def _on_workload(self, old: wire.Workload | None, new: wire.Workload | None) -> None:
        now = time.perf_counter()
        if new is None:
            self.ledger.problems.append("a workload was deleted")
            return
        key = model.workload_key(new)
        self._seen.setdefault(key, now)
        finished = model.condition_true(new, names.CONDITION_FINISHED)
        reserved = new.status.admission is not None and not finished
        if model.condition_true(new, names.CONDITION_EVICTED):
            self.ledger.problems.append(f"{key} was evicted")
        if reserved and key not in self.ledger.held:
            self.ledger.take(new)
            if self._tasks is not None:
                self._decided(key, new.metadata.namespace, now)
        elif not reserved and key in self.ledger.held:
            self.ledger.give_back(key)
            if new.metadata.namespace in self._full:
                self._ended[new.metadata.namespace].append(now)

    def _decided(self, key: str, queue: str, now: float) -> None:
        self.decided_at.append(now)
        if queue not in self._full:
            assert self._tasks is not None
            self.after_arrival.append(now - self._seen[key])
            self._tasks.create_task(self._run(key))
            return
        self._take_turn(key, queue)
        if self._ended[queue]:
            self.after_end.append(now - self._ended[queue].popleft())
        else:
            self.ledger.problems.append(f"{key} is admitted, though nothing has ended in {queue}")

    def _take_turn(self, key: str, queue: str) -> None:
        waiting = self._waiting[queue]
        self.overtaken.update(overtaken_by(key, waiting))
        if key in waiting:
            waiting.remove(key)

    def stuck(self) -> str:
        """What is due and was not decided."""
        ended = {queue: len(ends) for queue, ends in self._ended.items() if ends}
        return f"{len(self.decided_at)} of {self.due} decisions; in these queues room is not used: {ended}"


def overtaken_by(key: str, waiting: list[str]) -> list[str]:
    """Those that had waited for longer than the one that was admitted; `waiting` begins with the oldest."""
    return waiting[: waiting.index(key)] if key in waiting else list(waiting)


# --- the controller


async def version(client: Client) -> int:
    """How many changes the API server has seen."""
    page = json.loads(await client.list_page(kinds.NAMESPACES, params={"limit": "1"}))
    return int(page["metadata"]["resourceVersion"])


async def quiet(client: Client, process: Process, patience: float) -> float:
    """The moment of the last change, once nothing has changed and the controller was idle for `QUIET_SECONDS`.

    Raises:
        WrongAnswerError: it is not quiet after `patience` seconds.
    """
    async with limit(patience, "the controller is not quiet", process):
        seen, since, meter = await version(client), time.perf_counter(), Meter({"controller": process.pid})
        while True:
            await asyncio.sleep(0.2)
            now, at = await version(client), time.perf_counter()
            busy = at - since >= QUIET_SECONDS and meter.spent().by["controller"] > IDLE_CORES * (at - since)
            if now != seen or busy:
                seen, since, meter = now, at, Meter({"controller": process.pid})
            elif at - since >= QUIET_SECONDS:
                return since


async def check_counts(client: Client, player: Steady) -> None:
    """What the statuses of ClusterQueues count is what the Workloads say."""
    listed = await client.list_json(kinds.CLUSTER_QUEUES)
    counted = Counter[str]()
    for queue in listed:
        for what in ("pendingWorkloads", "reservingWorkloads", "admittedWorkloads"):
            counted[what] += queue.get("status", {}).get(what, 0)
    holds = len(player.ledger.held)
    waits = sum(1 for workload in player.watch.store.values() if waiting(workload))
    want = {"pendingWorkloads": waits, "reservingWorkloads": holds, "admittedWorkloads": holds}
    check(counted == want, f"ClusterQueues count {dict(counted)}, the workloads say {want}")


def waiting(workload: wire.Workload) -> bool:
    """Whether it holds nothing and has not finished."""
    return workload.status.admission is None and not model.condition_true(workload, names.CONDITION_FINISHED)


# --- the row


async def measured(scale: Scale) -> list[Figure]:
    """One run."""
    with tempfile.TemporaryDirectory(prefix="kqueue-scale-") as name:
        async with (
            server(Path(name), scale) as (kubeconfig, api),
            await connect(kubeconfig, None, ClientSettings(lanes=IN_FLIGHT)) as client,
        ):
            before, begun = await version(client), time.perf_counter()
            async with controller(kubeconfig, Path(name) / "controller", patience=START_SECONDS) as (process, metrics):
                told = [Figure("ready_s", [time.perf_counter() - begun])]
                told.append(Figure("quiet_s", [await quiet(client, process, START_SECONDS) - begun]))
                told.append(Figure("start_writes", [await version(client) - before]))
                told.append(Figure("start_rss_mib", [peak_mib(process.pid)]))
                print(", ".join(f"{one.metric} {one.value:.1f}" for one in told), file=sys.stderr)
                player = Steady(client, scale)
                told += await steady(player, client, process, api, metrics)
                return told


async def steady(player: Steady, client: Client, process: Process, api: Process, metrics: str) -> list[Figure]:
    """The minute of arrivals, and what is checked after it."""
    found = await samples(metrics)
    watching = asyncio.create_task(player.watch.run())
    try:
        async with limit(START_SECONDS, "the Workloads are not listed", api):
            await player.watch.synced.wait()
        meter = Meter({"controller": process.pid, "sandbox": api.pid, "generator": os.getpid()})
        await player.play()
        spent, seconds = meter.spent(), time.perf_counter() - player.begun
        check(len(player.decided_at) == player.due, f"{player.stuck()}\n{process.tail()}")
        print(f"{len(player.decided_at)} decisions, end p50 {percentile(player.after_end, 50):.3f} s", file=sys.stderr)
        words = await quiet(client, process, WORDS_SECONDS) - player.begun - SECONDS
        check(not player.ledger.problems, "\n".join(player.ledger.problems[:10]))
        await check_counts(client, player)
        after = await samples(metrics)
    finally:
        watching.cancel()
    told = [*figures(player, spent, seconds), Figure("words_s", [max(0.0, words)])]
    told += write_figures(found, after, len(player.decided_at))
    told += [Figure("controller_rss_mib", [peak_mib(process.pid)]), Figure("sandbox_rss_mib", [peak_mib(api.pid)])]
    return told


def figures(player: Steady, spent: Spent, seconds: float) -> Iterator[Figure]:
    """Rates, times, processors."""
    due = player.due / SECONDS
    for what, moments in (("arrivals", player.made_at), ("admissions", player.decided_at)):
        in_time = sum(1 for moment in moments if moment <= player.begun + SECONDS)
        yield Figure(f"{what}_per_s", [in_time / SECONDS], at_least(0.99 * due))
    for what, times in (("arrival", player.after_arrival), ("end", player.after_end)):
        for percent in (50, 99):
            yield Figure(f"{what}_p{percent}_ms", [1e3 * percentile(times, percent)])
    yield Figure("overtaken", [len(player.overtaken)])
    yield Figure("drain_s", [max(0.0, max(player.decided_at) - player.begun - SECONDS)])
    for who in ("controller", "sandbox", "generator"):
        yield Figure(f"{who}_cores", [spent.by[who] / seconds])
    yield from core_figures(spent, seconds)


def write_figures(before: list[Sample], after: list[Sample], admissions: int) -> Iterator[Figure]:
    """Requests of the controller that change something, per admission, from the first arrival on; cycles."""
    by_resource: Counter[str] = Counter()
    for (_, resource, subresource, _), count in (requests(after) - requests(before)).items():
        by_resource[f"{resource.partition('.')[0]}{'_' + subresource if subresource else ''}"] += count
    yield Figure("all_writes", [by_resource.total() / admissions])
    for resource, count in by_resource.most_common():
        yield Figure(f"writes_{resource}", [count / admissions])
    earlier = dict(cycle_counts(before))
    for metric, value in cycle_counts(after):
        yield Figure(metric, [value - earlier[metric]])
    spent, number = (
        total(after, f"kueue_admission_attempt_duration_seconds_{what}")
        - total(before, f"kueue_admission_attempt_duration_seconds_{what}")
        for what in ("sum", "count")
    )
    yield Figure("cycle_mean_ms", [1e3 * spent / max(1.0, number)])


def measure() -> Iterator[Figure]:
    """The row."""
    share = float(os.environ.get(SHARE, "1"))
    check(0 < share <= 1, f"{SHARE}={share} must be above 0 and at most 1")
    configure_logs("console", "error")
    scale = Scale(cohorts=max(2, round(COHORTS * share)))
    yield from sizes(scale)
    yield from run(bounded(scale))


def sizes(scale: Scale) -> Iterator[Figure]:
    """What is there at the start."""
    queues = len(scale.full) + len(scale.open)
    yield Figure("nodes", [scale.nodes])
    yield Figure("pods", [scale.pods])
    yield Figure("workloads", [queues * RUNNING + len(scale.full) * PENDING])
    yield Figure("cluster_queues", [scale.cohorts * QUEUES])


async def bounded(scale: Scale) -> list[Figure]:
    """`measured`, which ends in time."""
    try:
        async with asyncio.timeout(ROW_SECONDS):
            return await measured(scale)
    except TimeoutError:
        raise WrongAnswerError(f"the row has not ended after {ROW_SECONDS} s") from None


ROWS = (Row("load/scale", measure, alone=True, asked="load/scale"),)
