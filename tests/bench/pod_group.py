"""One huge group of pods, from the first pod to the last that runs, with the client limits that users get.

The sandbox runs in a process of its own with 512 simulated nodes of 8 GPUs; this process runs the controller, and makes
the pods, gated as the webhook makes them.  Pods ask for one GPU each and, with a topology, for one block.

    running_s     seconds from the first request that makes a pod until all pods run; goal: 15
    released_s    seconds of these from the admission of the Workload until no pod has the admission gate
    ended_s       seconds from the deletion of the Workload until no pod is left; of the group object, if kqueue makes
                  the pods
    writes        requests that change a pod or a Workload until all pods run, per pod
    group_writes  requests that change the status of the group object until all pods run; goal: 10
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import msgspec
import yaml

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.config import Timings, parse
from kqueue.manager.process import Flags, running
from kqueue.observe import configure_logs
from kqueue.runtime.loop import run
from kqueue.runtime.transport import RequestRecord
from tests.bench.road import KUEUE, Cluster, Object, queues, sandbox
from tests.bench.table import Figure, Row, at_most, check

PODS, GOAL_SECONDS, GOAL_GROUP_WRITES = 1_000, 15, 10
AT_ONCE = 32
PREFIX = "kueue.x-k8s.io/"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POD_PATH, WORKLOADS = "/api/v1/namespaces/default/pods", f"{KUEUE}/namespaces/default/workloads"
BLOCK = "cloud.provider.com/topology-block"
CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection: {leaderElect: false}
integrations: {frameworks: ["%s"]}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The form in which the pods name their group, in a dialect of gangs."""

    framework: str
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    """Fields of the pods' spec."""
    definitions: tuple[Path, ...] = ()
    """Files with the kinds of group objects that the cluster does not have yet."""
    group: tuple[str, Object] | None = None
    """Collection and group object, which is made just before the pods; None: the form has none."""
    makes_pods: bool = False
    """Whether kqueue makes the pods for the group object."""

    @property
    def plural(self) -> str:
        """The plural of the group object's kind; empty: the form has none."""
        return self.group[0].rpartition("/")[2] if self.group is not None else ""


KUEUE_GROUP = Form(
    framework="pod",
    annotations={f"{PREFIX}pod-group-name": "gang", f"{PREFIX}pod-group-total-count": str(PODS)},
)


def pod(index: int, *, topology: bool, form: Form = KUEUE_GROUP) -> Object:
    """A member of the group as the webhook leaves it."""
    marks = {
        **form.annotations,
        f"{PREFIX}role-hash": "worker",
        "sandbox.kqueue.dev/run-seconds": "3600",
    }
    if topology:
        marks[f"{PREFIX}podset-preferred-topology"] = BLOCK
    amounts = {"nvidia.com/gpu": "1"}
    container = {"name": "main", "image": "example.dev/train:1", "resources": {"requests": amounts, "limits": amounts}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"gang-{index}",
            "namespace": "default",
            "labels": {
                **form.labels,
                f"{PREFIX}managed": "true",
                f"{PREFIX}queue-name": "main",
                f"{PREFIX}pod-group-pod-index": str(index),
            },
            "annotations": marks,
            "finalizers": [f"{PREFIX}managed"],
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [container],
            "schedulingGates": [{"name": f"{PREFIX}{gate}"} for gate in ("admission", "topology")],
            **form.spec,
        },
    }


class _Spec(msgspec.Struct, rename="camel"):
    scheduling_gates: list[dict[str, str]] | None = None


class _Status(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    spec: _Spec
    status: _Status


class Listed(msgspec.Struct):
    """A list of pods."""

    items: list[_Pod]


class Workloads(msgspec.Struct):
    """A list of Workloads."""

    items: list[wire.Workload]


T = TypeVar("T", Workloads, Listed)


class World:
    """What the row asks of the sandbox."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session, self._url = session, url
        self.cluster = Cluster(session, url)

    async def create(self, *, topology: bool, form: Form) -> None:
        """The group object, and all pods, some at a time."""
        if form.group is not None:
            await self.cluster.ask("POST", *form.group)
        todo = iter(range(0 if form.makes_pods else PODS))

        async def work() -> None:
            for index in todo:
                await self.cluster.ask("POST", POD_PATH, pod(index, topology=topology, form=form))

        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(work())

    async def until(self, path: str, kind: type[T], reached: Callable[[T], bool]) -> float:
        """Poll, missing or not; the time at which it was reached.  Only what is looked at is read: others need the CPU."""
        async with asyncio.timeout(240):
            while True:
                async with self._session.get(self._url + path) as answer:
                    if answer.status == 200 and reached(msgspec.json.decode(await answer.read(), type=kind)):
                        return time.perf_counter()
                await asyncio.sleep(0.1)


def _admitted(found: Workloads) -> bool:
    return any(model.is_admitted(workload) for workload in found.items)


def _released(pods: Listed) -> bool:
    gates = {gate["name"] for pod in pods.items for gate in pod.spec.scheduling_gates or ()}
    return f"{PREFIX}admission" not in gates


def _running(pods: Listed) -> bool:
    return len(pods.items) == PODS and all(pod.status.phase == "Running" for pod in pods.items)


async def define(kubeconfig: Path, form: Form) -> None:
    """Make the kinds of the form, before a controller asks for them."""
    url = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    async with aiohttp.ClientSession() as session:
        for path in form.definitions:
            await Cluster(session, url).ask("POST", CRDS, yaml.safe_load(path.read_text()))


async def measured(kubeconfig: Path, *, topology: bool, form: Form) -> list[Figure]:
    """One group."""
    writes: Counter[str] = Counter()

    def count(record: RequestRecord) -> None:
        if record.verb not in ("get", "list", "watch") and not record.resource.startswith("events"):
            writes[record.resource.partition(".")[0]] += 1

    await define(kubeconfig, form)
    parts = frozenset({"core", "scheduler", "jobs", "topology"})
    flags = Flags(kubeconfig=kubeconfig, parts=parts, health_address="0", metrics_address="0")
    configuration = parse(CONFIGURATION % form.framework, source="bench", own_namespace="kqueue-system")
    async with (
        aiohttp.ClientSession() as session,
        running(configuration, flags, timings=Timings(), on_request=count) as process,
    ):
        world = World(session, process.operator.client.server)
        for collection, obj in queues():
            await world.cluster.ask("POST", collection, obj)
        await process.operator.ready.wait()
        writes.clear()
        begun = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(world.create(topology=topology, form=form))
            admission = tasks.create_task(world.until(WORKLOADS, Workloads, _admitted))
        admitted = admission.result()
        released = await world.until(POD_PATH, Listed, _released)
        ran = await world.until(POD_PATH, Listed, _running)
        per_pod, of_group = (writes["pods"] + writes["workloads"]) / PODS, writes[form.plural]
        deleted = time.perf_counter()
        collection, obj = form.group if form.group is not None and form.makes_pods else await _workload(world)
        await world.cluster.ask("DELETE", f"{collection}/{obj['metadata']['name']}")
        gone = await world.until(POD_PATH, Listed, lambda pods: not pods.items)
    check(per_pod < (3.5 if form.makes_pods else 2.5), f"{per_pod:.2f} writes per pod")
    return [
        *([Figure("group_writes", [of_group], goal=at_most(GOAL_GROUP_WRITES))] if form.group is not None else ()),
        Figure("running_s", [ran - begun], goal=at_most(GOAL_SECONDS)),
        Figure("released_s", [released - admitted]),
        Figure("ended_s", [gone - deleted]),
        Figure("writes", [per_pod]),
    ]


async def _workload(world: World) -> tuple[str, Object]:
    (found,) = (await world.cluster.ask("GET", WORKLOADS))["items"]
    return WORKLOADS, found


def measure(*, topology: bool, form: Form = KUEUE_GROUP) -> Iterator[Figure]:
    """The figures of one group."""
    configure_logs("console", "error")
    with sandbox("4x8x16") as kubeconfig:
        yield from run(measured(kubeconfig, topology=topology, form=form))


ROWS = (
    Row("pod_group/in_one_block", partial(measure, topology=True), alone=True),
    Row("pod_group/any_place", partial(measure, topology=False), alone=True),
)
