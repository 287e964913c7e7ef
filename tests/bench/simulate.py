"""`simulate/*`, `what-if/*`: answers about what does not exist, with the 12,500 nodes and 10,000 waiting workloads of
`explain/*`.

    simulate/fits       a Job of five whole hosts in one rack: a third of the racks have them
    simulate/waits      a Job of 20 whole hosts in one rack: no rack has them; with blockers and changes
    simulate/copies     100 copies of the first one
    what-if/drain       a rack of twenty hosts goes
    what-if/quota       a queue gets twice its quota

`answer_ms` is the whole answer, `stretch_ms` the longest time for which nobody else had a turn of the event loop.
"""

from __future__ import annotations

import asyncio
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
from kqueue.runtime.store import Store
from kqueue.state.heads import Heads
from kqueue.state.tries import Tries
from kqueue.visibility.prospects import Prospects
from kqueue.visibility.question import JSON, AuthorizedQuestion, View
from kqueue.visibility.simulation import Creatable, Drafts, SimulationView
from kqueue.visibility.sources import Freshness, Known, PlanningSource
from kqueue.visibility.what_if import WhatIfView
from tests.bench import explain
from tests.bench._scheduler import RACK, World
from tests.bench.table import REPETITIONS, Figure, Row, at_most, check

JOB = BatchJob()


class _Jobs:
    """Makes Workloads of Jobs by their adapter, without the webhooks."""

    def __init__(self) -> None:
        self._drafting = Drafting(priority=lambda _job, _sets: Priority(), switches=JobFeatures())

    def kinds_of(self, manifests: Sequence[Mapping[str, Any]]) -> Sequence[Creatable]:
        return [Creatable("batch", "v1", "jobs")]

    async def drafts(self, asked: AuthorizedQuestion, spec: SimulationSpec) -> Drafts:
        return Drafts(workloads=[self._drafting.of_job(JOB, job) for job in spec.manifests])


def job(pods: int) -> JSON:
    container = {"name": "c", "resources": {"requests": dict(explain.ASKS)}}
    meta = {"name": "train", "namespace": "cq-0", "labels": {"kueue.x-k8s.io/queue-name": "cq-0"}, "uid": "u"}
    template = {
        "metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": RACK}},
        "spec": {"containers": [container]},
    }
    spec = {"parallelism": pods, "completions": pods, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


@cache
def stage() -> tuple[World, SimulationView, WhatIfView, asyncio.AbstractEventLoop]:
    """The world of `explain`, and the views."""
    world, _explainer, loop = explain.stage()
    local_queues: Store[wire.LocalQueue] = Store()
    workloads: Store[wire.Workload] = Store()
    for name in [f"cq-{i}" for i in range(explain.QUEUES)]:
        local = wire.LocalQueue(
            metadata=ObjectMeta(name=name, namespace=name), spec=wire.LocalQueueSpec(cluster_queue=name)
        )
        local_queues.put(f"{name}/{name}", local)
    for key, obj in world.writer.objects.items():
        workloads.put(key, obj)
    prospects = Prospects(
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
    return world, SimulationView(prospects, _Jobs()), WhatIfView(prospects), loop


async def _asked(view: View, spec: JSON) -> tuple[JSON, float, float]:
    """The answer, the milliseconds that it took, and the longest of them without a turn for others."""
    longest = 0.0

    async def others() -> None:
        nonlocal longest
        before = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            longest, before = max(longest, now - before), now

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
    return answer, took * 1e3, longest * 1e3


def measure(spec: JSON, right: Callable[[JSON], bool], *, goal: float, changes: bool = False) -> Iterator[Figure]:
    """Ask again and again; what is free on hosts changes in between, as it does in a cluster."""
    world, simulations, what_ifs, loop = stage()
    view = what_ifs.view if changes else simulations.view
    times, stretches = [], []
    answer: JSON = {}
    for _ in range(REPETITIONS + 1):
        obj = world.writer.objects[explain.RUNS]
        world.intake.on_workload(obj, None)
        world.intake.on_workload(None, obj)
        answer, took, stretch = loop.run_until_complete(_asked(view, spec))
        times.append(took)
        stretches.append(stretch)
    check(right(answer), f"the answer is {answer.get('summary') or answer.get('counts')}: {answer.get('message')}")
    yield Figure("answer_ms", times[1:], goal=at_most(goal))
    yield Figure("first_ms", times[:1])
    yield Figure("stretch_ms", stretches[1:], goal=at_most(20))


def _fits(answer: JSON) -> bool:
    return bool(answer["startsNow"])


def _waits(answer: JSON) -> bool:
    (run,) = answer["workloads"][0]["results"]
    return run["start"] == "Later" and len(run["wouldStartIf"]) >= 2


def _copies(answer: JSON) -> bool:
    return bool(answer["counts"]["Now"] >= 20)


def _drained(answer: JSON) -> bool:
    return bool(answer["counts"]["evicted"] >= 3)


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
)
