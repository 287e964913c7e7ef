"""`simulate/*`, `what-if/*`: answers about what does not exist, with the 12,500 nodes and 10,000 waiting workloads of
`explain/*`.

    simulate/fits       a Job of five whole hosts in one rack: a third of the racks have them
    simulate/waits      a Job of 20 whole hosts in one rack: no rack has them; with blockers and changes
    simulate/copies     100 copies of the first one
    what-if/drain       a rack of twenty hosts goes
    what-if/quota       a queue gets twice its quota
    what-if/file        a new ClusterQueue in the cohort of all others, and its LocalQueue
    simulate/wide       a Job in a cohort tree of 10,000 ClusterQueues, of which 2,000 have a workload that waits
    what-if/wide        a new ClusterQueue in that tree

`answer_ms` is the whole answer, `stretch_ms` the longest time for which nobody else had a turn of the event loop, and
`busy_stretch_ms` how much of such a time the thread was running: other processes lengthen the one, not the other.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

import msgspec

from kqueue.api.wire import kueue as wire
from kqueue.api.wire.meta import ObjectMeta
from kqueue.api.wire.simulation import SimulationSpec
from kqueue.clock import SystemClock
from kqueue.jobs.drafts import Drafting
from kqueue.jobs.job import BatchJob
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import Priority
from kqueue.manager.proposing import PolicyManifestReader
from kqueue.runtime.loop import COLLECTOR_THRESHOLDS, freeze_after_sync
from kqueue.runtime.store import Store
from kqueue.state.heads import Heads
from kqueue.state.tries import Tries
from kqueue.visibility.prospects import Prospects
from kqueue.visibility.question import JSON, AuthorizedQuestion, View
from kqueue.visibility.simulation import Creatable, Drafts, SimulationView
from kqueue.visibility.sources import Freshness, Known, PlanningSource
from kqueue.visibility.what_if import WhatIfView
from tests.bench import explain
from tests.bench._crowd import running
from tests.bench._scheduler import RACK, World
from tests.bench.table import REPETITIONS, Figure, Row, at_most, check
from webhooks.routes import routes

JOB = BatchJob()
WIDE = 10_000
GPU = explain.GPU
WIDE_QUOTA: Mapping[str, str] = {GPU: "80", "cpu": "320"}


class _Jobs:
    """Makes Workloads of Jobs by their adapter, without the webhooks."""

    def __init__(self) -> None:
        self._drafting = Drafting(priority=lambda _job, _sets: Priority(), switches=JobFeatures())

    def kinds_of(self, manifests: Sequence[Mapping[str, Any]]) -> Sequence[Creatable]:
        return [Creatable("batch", "v1", "jobs")]

    async def drafts(self, asked: AuthorizedQuestion, spec: SimulationSpec) -> Drafts:
        return Drafts(workloads=[self._drafting.of_job(JOB, job) for job in spec.manifests])


def job(pods: int, *, topology: bool = True) -> JSON:
    container = {"name": "c", "resources": {"requests": dict(explain.ASKS)}}
    meta = {"name": "train", "namespace": "cq-0", "labels": {"kueue.x-k8s.io/queue-name": "cq-0"}, "uid": "u"}
    wish = {"kueue.x-k8s.io/podset-required-topology": RACK} if topology else {}
    template = {"metadata": {"annotations": wish}, "spec": {"containers": [container]}}
    spec = {"parallelism": pods, "completions": pods, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def prospects_of(world: World, queues: Sequence[str]) -> Prospects:
    """What the views read; each ClusterQueue has a LocalQueue of its name in a namespace of its name."""
    local_queues: Store[wire.LocalQueue] = Store()
    workloads: Store[wire.Workload] = Store()
    for name in queues:
        local = wire.LocalQueue(
            metadata=ObjectMeta(name=name, namespace=name), spec=wire.LocalQueueSpec(cluster_queue=name)
        )
        local_queues.put(f"{name}/{name}", local)
    for key, obj in world.writer.objects.items():
        workloads.put(key, obj)
    return Prospects(
        known=Known(
            workloads=workloads,
            local_queues=local_queues,
            cache=world.cache,
            queues=world.queues,
            namespace_labels=lambda _: {},
        ),
        planning=PlanningSource(
            heads=Heads(world.cache, world.writer.newest),
            tries=Tries(),
            rules=world.loop.planning.rules,
            claims=world.loop.planning.claims,
            held_by=world.loop.planning.held_by,
        ),
        held_back=lambda _: (),
        pending=world.cache.requests.pending,
        clock=SystemClock(),
        freshness=Freshness(leads=lambda: True),
    )


def _views(prospects: Prospects) -> tuple[SimulationView, WhatIfView]:
    reader = PolicyManifestReader(routes((), JobFeatures()), prospects.known, lambda _queues, _quota: lambda _obj: ())
    return SimulationView(prospects, _Jobs()), WhatIfView(prospects, reader)


Stage = tuple[World, SimulationView, WhatIfView, asyncio.AbstractEventLoop]


@cache
def stage() -> Stage:
    """The world of `explain`, and the views."""
    world, _explainer, loop = explain.stage()
    return world, *_views(prospects_of(world, [f"cq-{i}" for i in range(explain.QUEUES)])), loop


@cache
def wide_stage() -> Stage:
    """A root with a hundred Cohorts of a hundred ClusterQueues each; every fifth has a workload that waits, and every
    fifth one that runs.
    """
    loop, names = asyncio.new_event_loop(), [f"cq-{i}" for i in range(WIDE)]

    async def made() -> World:
        world = World()
        world.flavor(topology=False)
        for i in range(WIDE // 100):
            world.cohort(f"inner-{i}", parent="all")
        for i, name in enumerate(names):
            world.queue(name, quota=WIDE_QUOTA, cohort=f"inner-{i // 100}", preemption=explain.PREEMPTING)
        for i in range(0, WIDE, 5):
            status = running(names[i + 1], WIDE_QUOTA, pods=1)
            world.workload("runs", queue=names[i + 1], pods=1, requests=WIDE_QUOTA, status=status)
            world.workload("waits", queue=names[i], pods=1, requests={GPU: str(8 * 10 * WIDE), "cpu": "1"})
        return world

    world = loop.run_until_complete(made())
    gc.collect()
    freeze_after_sync()
    return world, *_views(prospects_of(world, names)), loop


async def _asked(view: View, spec: JSON) -> tuple[JSON, float, float, float]:
    """The answer, the milliseconds that it took, the longest of them without a turn for others, and the same of the
    thread's own time, which other processes do not make longer.
    """
    longest = busy = 0.0

    async def others() -> None:
        nonlocal longest, busy
        before, own = time.perf_counter(), time.thread_time()
        while True:
            await asyncio.sleep(0)
            now, used = time.perf_counter(), time.thread_time()
            longest, before = max(longest, now - before), now
            busy, own = max(busy, used - own), used

    async def allowed(*_: str) -> bool:
        return True

    body = msgspec.json.encode({"spec": spec})
    asked = AuthorizedQuestion(namespace="cq-0", name="", params={}, body=body, reads=allowed, creates=allowed)
    beside = asyncio.create_task(others())
    await asyncio.sleep(0)
    start = time.perf_counter()
    answer = await view(asked)
    took = time.perf_counter() - start
    beside.cancel()
    return answer, took * 1e3, longest * 1e3, busy * 1e3


async def _changed(world: World, runs: str) -> None:
    """A workload that runs ends, and another one starts in its place."""
    obj = world.writer.objects[runs]
    world.intake.on_workload(obj, None)
    world.intake.on_workload(None, obj)


def measure(
    spec: JSON,
    right: Callable[[JSON], bool],
    *,
    goal: float,
    changes: bool = False,
    on: Callable[[], Stage] = stage,
    runs: str = explain.RUNS,
) -> Iterator[Figure]:
    """Ask again and again; what is free changes in between, as it does in a cluster."""
    world, simulations, what_ifs, loop = on()
    thresholds = gc.get_threshold()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)  # as in a controller
    view = what_ifs.view if changes else simulations.view
    times, stretches, busy = [], [], []
    answer: JSON = {}
    for _ in range(REPETITIONS + 1):
        loop.run_until_complete(_changed(world, runs))
        answer, took, stretch, held = loop.run_until_complete(_asked(view, spec))
        times.append(took)
        stretches.append(stretch)
        busy.append(held)
    gc.set_threshold(*thresholds)
    check(right(answer), f"the answer is {answer.get('summary') or answer.get('counts')}: {answer.get('message')}")
    yield Figure("answer_ms", times[1:], goal=at_most(goal))
    yield Figure("first_ms", times[:1])
    yield Figure("stretch_ms", stretches[1:], goal=at_most(20))
    yield Figure("busy_stretch_ms", busy[1:], goal=at_most(20))


def _fits(answer: JSON) -> bool:
    return bool(answer["startsNow"])


def _waits(answer: JSON) -> bool:
    (run,) = answer["workloads"][0]["results"]
    return run["start"] == "Later" and len(run["wouldStartIf"]) >= 2


def _copies(answer: JSON) -> bool:
    return bool(answer["counts"]["Now"] >= 20)


def _drained(answer: JSON) -> bool:
    return bool(answer["counts"]["evicted"] >= 3)


def _new_queue(cohort: str, quota: Mapping[str, str]) -> list[JSON]:
    """A ClusterQueue, and the LocalQueue by which the workloads of namespace `cq-0` could reach it."""
    version, resources = "kueue.x-k8s.io/v1beta2", [{"name": r, "nominalQuota": q} for r, q in quota.items()]
    groups = [{"coveredResources": list(quota), "flavors": [{"name": "flavor", "resources": resources}]}]
    spec = {"resourceGroups": groups, "namespaceSelector": {}, "cohortName": cohort}
    return [
        {"apiVersion": version, "kind": "ClusterQueue", "metadata": {"name": "new"}, "spec": spec},
        {
            "apiVersion": version,
            "kind": "LocalQueue",
            "metadata": {"name": "new", "namespace": "cq-0"},
            "spec": {"clusterQueue": "new"},
        },
    ]


ROWS = (
    Row("simulate/fits", partial(measure, {"manifests": [job(5)]}, _fits, goal=300)),
    Row("simulate/waits", partial(measure, {"manifests": [job(20)]}, _waits, goal=300)),
    Row("simulate/copies", partial(measure, {"manifests": [job(5)], "copies": 100}, _copies, goal=500)),
    Row("what-if/drain", partial(measure, {"drains": ["b00/b00-r01"]}, _drained, goal=4_000, changes=True)),
    Row(
        "what-if/quota",
        partial(
            measure,
            {"quotas": [{"clusterQueue": "cq-0", "column": "flavor.cpu", "value": "10000000"}]},
            lambda answer: answer["finished"],
            goal=4_000,
            changes=True,
        ),
    ),
    Row(
        "what-if/file",
        partial(
            measure,
            {"objects": _new_queue("all", explain.QUOTA)},
            lambda answer: answer["finished"],
            goal=4_000,
            changes=True,
        ),
    ),
    Row(
        "simulate/wide",
        partial(
            measure,
            {"manifests": [job(20, topology=False)]},
            lambda answer: answer["startsNow"],
            goal=1_000,
            on=wide_stage,
            runs="cq-1/runs",
        ),
    ),
    Row(
        "what-if/wide",
        partial(
            measure,
            {"objects": _new_queue("inner-0", {GPU: str(8 * 10 * WIDE), "cpu": "1"})},
            lambda answer: answer["counts"]["starts"],
            goal=4_000,
            changes=True,
            on=wide_stage,
            runs="cq-1/runs",
        ),
    ),
)
