"""Gangs of other dialects than Kueue's: one huge one, a crowd of them, and one among many others.

gangs/one/...     one gang of 1,000 pods, as the rows of `pod_group`: pods that name their gang by labels, or a PodGroup
                  of the coscheduling plugin, of Volcano or of Kubernetes; or a BatchProcess, whose pods kqueue makes
gangs/crowd/N     N gangs by labels of 100 pods each, without a topology, made by a process of its own on a sandbox
                  without scheduler and kubelets; the controller's client is uncapped
    workloads_s   seconds from the first request that makes a pod until the last Workload exists; goal: 120 for 1,000
    released_s    seconds until no pod has a gate; goal: 90 for 1,000
    patches       patches of pods, per pod; goal: 1.05
    controller_cpu_s   CPU time of this process, the controller's, until then; sandbox_cpu_s, maker_cpu_s: of the others
    member_kib    growth of this process per pod, when the watch has brought all releases
    view_kib      of that the view that each pod of a cluster has, and the view of a queued pod (`ManagedPod`) with the
                  pod's JSON, as measured on 1,000 of them
    beyond_kib    the rest: Workloads, indexes, memories, events, and what the allocator keeps; goal: 2
gangs/reconcile   the reconcile of a running gang of 100 pods, in which nothing changes
    few_ms, many_ms   with 10 and with 1,000 other gangs of 10 pods; goal: 5
    ratio         the second by the first; goal: 1.2
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from kqueue.config import Timings, parse
from kqueue.controllers.raw import RawObject, as_json
from kqueue.jobs.gang.coscheduling_labels import FRAMEWORK
from kqueue.jobs.gang.key import KUEUE_GROUPS, gang_key
from kqueue.jobs.gang.naming import workload_key_of_gang
from kqueue.jobs.gang.pods import managed_pod
from kqueue.jobs.switches import JobFeatures
from kqueue.manager.process import Flags, running
from kqueue.observe import configure_logs
from kqueue.runtime.loop import freeze_after_sync, run
from kqueue.runtime.store import split_key
from kqueue.runtime.transport import RequestRecord
from tests.bench._gang_forms import batch, by_kubernetes, by_labels, by_pod_group, by_volcano, labels_of
from tests.bench._meter import cpu_seconds, held_kib, resident_kib
from tests.bench.pod_group import CONFIGURATION, POD_PATH, PREFIX, Listed, measure, pod
from tests.bench.road import Cluster, Object, queues, sandbox_process
from tests.bench.table import REPETITIONS, Figure, Row, at_most, check
from tests.unit.controllers.pod_world import Pods
from tests.unit.jobs.pods import make_pod

PODS_OF_EACH = 100
AT_ONCE = 32
SAMPLE = 1_000
WAIT_SECONDS = 600
UNCAPPED = "clientConnection: {qps: -1, burst: 0}\n"
NO_DEADLINE = "gangs: {scheduleTimeout: {base: 2h, maximum: 2h}}\n"
"""No member of the crowd gets a node, and none is to be stopped for that."""


# --- a crowd


def member(gang: int, index: int) -> Object:
    """A member of one of many gangs, as the webhook leaves it."""
    made = pod(index, topology=False, form=by_labels(f"gang-{gang}", PODS_OF_EACH))
    made["metadata"]["name"] = f"gang-{gang}-{index}"
    made["spec"]["schedulingGates"] = [{"name": f"{PREFIX}admission"}]
    return made


async def create_all(url: str, gangs: int) -> None:
    """Create all members of so many gangs, one gang after the other."""
    todo = ((gang, index) for gang in range(gangs) for index in range(PODS_OF_EACH))
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:

        async def work() -> None:
            for gang, index in todo:
                body = msgspec.json.encode(member(gang, index))
                headers = {"Content-Type": "application/json"}
                async with session.post(url + POD_PATH, data=body, headers=headers) as answer:
                    answer.raise_for_status()

        for _ in range(AT_ONCE):
            tasks.create_task(work())


class Progress:
    """Counts the controller's writes, and notes when the last Workload and the last release came."""

    def __init__(self, gangs: int) -> None:
        self.writes: Counter[tuple[str, str, str]] = Counter()
        self._gangs, self._released = gangs, asyncio.Event()
        self.workloads_at = self.released_at = 0.0

    def count(self, record: RequestRecord) -> None:
        """Take one request that has ended."""
        if record.verb in ("get", "list", "watch"):
            return
        key = (record.verb, record.resource, record.subresource)
        self.writes[key] += 1
        if key == ("create", "workloads.kueue.x-k8s.io", "") and self.writes[key] == self._gangs:
            self.workloads_at = time.perf_counter()
        if key == ("patch", "pods", "") and self.writes[key] >= self._gangs * PODS_OF_EACH:
            self.released_at = time.perf_counter()
            self._released.set()

    async def until_released(self) -> None:
        """Wait for as many patches as there are pods."""
        async with asyncio.timeout(WAIT_SECONDS):
            await self._released.wait()


async def until(reached: Callable[[], bool]) -> None:
    """Look twice a second."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not reached():
            await asyncio.sleep(0.5)


def plain_queues() -> Iterator[tuple[str, Object]]:
    """Yield the tenant of `road`, with a flavor without a topology."""
    for collection, obj in queues():
        if obj["kind"] == "ResourceFlavor":
            obj["spec"].pop("topologyName")
        if obj["kind"] != "Topology":
            yield collection, obj


async def crowded(kubeconfig: Path, server: int, gangs: int) -> list[Figure]:
    """So many gangs at once; `server` is the process of the API server."""
    progress = Progress(gangs)
    parts = frozenset({"core", "scheduler", "jobs", "topology"})
    flags = Flags(kubeconfig=kubeconfig, parts=parts, health_address="0", metrics_address="0")
    configuration = parse(
        CONFIGURATION % FRAMEWORK + UNCAPPED + NO_DEADLINE, source="bench", own_namespace="kqueue-system"
    )
    async with (
        aiohttp.ClientSession() as session,
        running(configuration, flags, timings=Timings(), on_request=progress.count) as process,
    ):
        url = process.operator.client.server
        cluster = Cluster(session, url)
        for collection, obj in plain_queues():
            await cluster.ask("POST", collection, obj)
        await process.operator.ready.wait()
        before, begun, cpu, served = resident_kib(), time.perf_counter(), time.process_time(), cpu_seconds(server)
        maker = await asyncio.create_subprocess_exec(sys.executable, "-m", "tests.bench.gangs", url, str(gangs))
        try:
            await progress.until_released()
            served = cpu_seconds(server) - served
        finally:
            with contextlib.suppress(ProcessLookupError):
                maker.terminate()
            await maker.wait()
        made = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = time.process_time() - cpu
        watches = process.operator.watches.named()
        views = watches["pods-managed"].store
        await until(lambda: not any(view.gated for view in views.values()))
        gc.collect()
        after = resident_kib()
        samples = [list(islice(watches[name].store.values(), SAMPLE)) for name in ("pods", "pods-managed")]
        of_views = sum(held_kib(sample) / len(sample) for sample in samples)
        async with session.get(url + POD_PATH) as answer:
            pods = msgspec.json.decode(await answer.read(), type=Listed).items
    members = gangs * PODS_OF_EACH
    gated = sum(bool(each.spec.scheduling_gates) for each in pods)
    check((len(pods), gated) == (members, 0), f"{gated} of {len(pods)} pods are gated")
    whole = gangs == 1_000
    return [
        Figure("workloads_s", [progress.workloads_at - begun], goal=at_most(120) if whole else None),
        Figure("released_s", [progress.released_at - begun], goal=at_most(90) if whole else None),
        Figure("patches", [progress.writes["patch", "pods", ""] / members], goal=at_most(1.05)),
        Figure("controller_cpu_s", [cpu]),
        Figure("sandbox_cpu_s", [served]),
        Figure("maker_cpu_s", [made.ru_utime + made.ru_stime]),
        Figure("member_kib", [(after - before) / members]),
        Figure("view_kib", [of_views]),
        Figure("beyond_kib", [(after - before) / members - of_views], goal=at_most(2) if whole else None),
    ]


def crowd(gangs: int) -> Iterator[Figure]:
    """The figures of a crowd."""
    configure_logs("console", "error")
    with sandbox_process("4x8x16", without="scheduler,kubelet") as (kubeconfig, server):
        yield from run(crowded(kubeconfig, server, gangs))


# --- one among others


ON = JobFeatures(gangs=(KUEUE_GROUPS, FRAMEWORK))
KEY = gang_key(FRAMEWORK, "team", "gang-0")


def many(gang: int, members: int) -> list[Object]:
    """Members of one gang that run."""
    labels = labels_of(f"gang-{gang}", members)
    return [make_pod(f"gang-{gang}-{index}", role="r", labels=labels) for index in range(members)]


async def one_of(others: int) -> Pods:
    """A world with a running gang of 100 pods, and others of ten in the store."""
    world = Pods(*many(0, PODS_OF_EACH), switches=ON)
    await world.rest(KEY)
    world.admit(split_key(workload_key_of_gang(KEY, ON))[1])
    await world.rest(KEY)
    world.runs(*(f"gang-0-{index}" for index in range(PODS_OF_EACH)))
    await world.rest(KEY)
    for gang in range(1, others + 1):
        for made in many(gang, 10):
            view = managed_pod(as_json(msgspec.convert(made, RawObject)), ON)
            world.pods.put(view.key, view)
    return world


def reconcile() -> Iterator[Figure]:
    """The reconcile of one gang beside few and beside many others."""
    configure_logs("console", "error")
    with asyncio.Runner() as runner:
        times: dict[int, list[float]] = {}
        for others in (10, 1_000):
            world = runner.run(one_of(others))
            before = len(world.client.writes())
            times[others] = [_cpu_ms(partial(_reconciled, runner, world)) for _ in range(REPETITIONS)]
            check(len(world.client.writes()) == before, "a reconcile in which nothing changed has written")
            runner.run(world.close())
    yield Figure("few_ms", times[10], goal=at_most(5))
    yield Figure("many_ms", times[1_000], goal=at_most(5))
    yield Figure("ratio", [many / few for few, many in zip(times[10], times[1_000], strict=True)], goal=at_most(1.2))


def _cpu_ms(act: Callable[[], object]) -> float:
    """Return the processor time of one call, in milliseconds: the median of twenty."""
    gc.collect()
    freeze_after_sync()
    times = []
    for _ in range(20):
        begun = time.thread_time()
        act()
        times.append(time.thread_time() - begun)
    return statistics.median(times) * 1e3


def _reconciled(runner: asyncio.Runner, world: Pods) -> Any:
    return runner.run(world.reconcile(KEY))


ROWS = (
    *(
        Row(f"gangs/one/{name}", partial(measure, topology=topology, form=form), alone=True)
        for name, topology, form in (
            ("labels", False, by_labels()),
            ("labels_in_one_block", True, by_labels()),
            ("podgroup", False, by_pod_group()),
            ("volcano", False, by_volcano()),
            ("kubernetes", False, by_kubernetes()),
            ("batchprocess", False, batch()),
        )
    ),
    Row("gangs/crowd/100", partial(crowd, 100), alone=True),
    Row("gangs/crowd/1000", partial(crowd, 1_000), alone=True, asked="gangs/crowd"),
    Row("gangs/reconcile", reconcile, alone=True),
)

if __name__ == "__main__":
    run(create_all(sys.argv[1], int(sys.argv[2])))
