"""A process that does not run, with objects in its stores, and questions to its simulations."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.clock import FakeClock
from kqueue.config import Timings
from kqueue.kinds import FRAMEWORKS, GANG_DIALECTS
from kqueue.manager.operator import Operator
from kqueue.manager.simulating import make_simulations
from kqueue.observe import Checks, Metrics
from kqueue.runtime.client import Client
from kqueue.visibility.question import JSON, AuthorizedQuestion
from tests.unit.controllers.builders import make_cluster_queue, make_flavor, make_local_queue, make_workload, read
from tests.unit.manager.test_operator_scheduling import configuration

PRIORITY = "kueue.x-k8s.io/priority-class"
QUEUE = "kueue.x-k8s.io/queue-name"
ALL = (
    f"integrations: {{frameworks: [{', '.join(sorted({*FRAMEWORKS, *GANG_DIALECTS}))}]}}\n"
    "featureGates: {SparkApplicationIntegration: true}\n"
)


class Simulated:
    """ClusterQueue `team` with ten cpus behind LocalQueue `main` of namespace `ns`."""

    def __init__(self, operator: Operator) -> None:
        self.operator, self.view = operator, make_simulations(operator, None)
        self.readable, self.creatable = {"ns"}, True
        self.answers = asyncio.Event()
        """Set while the API server answers questions about rights."""
        self.answers.set()
        self.asked: list[tuple[str, str, str]] = []
        watches = operator.watches
        watches.namespaces.store.put("ns", read(wire_core.Namespace, {"metadata": {"name": "ns"}}))
        watches.flavors.store.put("default", read(wire.ResourceFlavor, make_flavor()))
        self.put_queue()

    def put_queue(self, name: str = "team", *, local: str = "main", **spec: Any) -> None:
        watches = self.operator.watches
        watches.cluster_queues.store.put(name, read(wire.ClusterQueue, make_cluster_queue(name, **spec)))
        found = make_local_queue(local, cluster_queue=name)
        watches.local_queues.store.put(f"ns/{local}", read(wire.LocalQueue, found))

    def put_priority(self, name: str, value: int) -> None:
        found = read(wire.WorkloadPriorityClass, {"metadata": {"name": name}, "value": value})
        self.operator.watches.workload_priorities.store.put(name, found)

    def put_workload(self, name: str, **settings: Any) -> None:
        obj = read(wire.Workload, make_workload(name, **settings))
        self.operator.watches.workloads.store.put(f"{obj.metadata.namespace}/{name}", obj)

    async def ask(self, *manifests: JSON, user: str = "ann", raw: bytes | None = None, **spec: Any) -> JSON:
        async def reads(namespace: str) -> bool:
            return namespace in self.readable

        async def creates(group: str, version: str, resource: str) -> bool:
            await self.answers.wait()
            self.asked.append((group, version, resource))
            return self.creatable

        body = msgspec.json.encode({"spec": {"manifests": manifests, **spec}}) if raw is None else raw
        asked = AuthorizedQuestion(
            namespace="ns", name="", params={}, body=body, reads=reads, user=user, creates=creates
        )
        plain: JSON = msgspec.json.decode(msgspec.json.encode(await self.view.view(asked)))
        return plain


@contextlib.asynccontextmanager
async def simulated(text: str = ALL) -> AsyncIterator[Simulated]:
    """The process with this configuration."""
    clock = FakeClock()
    client = Client("http://127.0.0.1:1", clock=clock)
    try:
        operator = Operator(
            client=client,
            config=configuration(text),
            timings=Timings(),
            clock=clock,
            metrics=Metrics(clock=clock),
            checks=Checks(),
        )
        yield Simulated(operator)
    finally:
        await client.close()


def container(cpus: int | str = 1) -> JSON:
    return {"name": "main", "image": "example.com/train:1", "resources": {"requests": {"cpu": str(cpus)}}}


def template(cpus: int | str = 1, **metadata: Any) -> JSON:
    return {"metadata": metadata, "spec": {"containers": [container(cpus)], "restartPolicy": "Never"}}


def job(name: str = "train", *, pods: int = 1, cpus: int | str = 1, queue: str = "main", priority: str = "") -> JSON:
    labels = {QUEUE: queue, PRIORITY: priority}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {key: value for key, value in labels.items() if value}},
        "spec": {"parallelism": pods, "completions": pods, "template": template(cpus)},
    }


def results(answer: JSON) -> list[list[tuple[str, int]]]:
    """Start and copies of each run of each workload."""
    return [[(run["start"], run["copies"]) for run in one["results"]] for one in answer["workloads"]]
