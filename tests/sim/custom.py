"""Custom kinds in a simulated cluster, with their controllers: training jobs, AppWrappers and SparkApplications, or Ray's
kinds and TrainJobs.

The controllers are the doubles of the integration tests, which ask the API server in process and live on the world's
clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from kqueue.clock import Clock
from kqueue.errors import ApiError
from kqueue.jobs.catalog import BY_GROUP_KIND
from kqueue.jobs.kind import JobKind
from kqueue.kinds import FRAMEWORKS, TRAINING_RUNTIMES, Kind
from kqueue.sandbox.api import CRDS, GroupVersionResource, Object
from kqueue.sandbox.cluster_api import ClusterApi
from tests.integration import appwrapper_double, ray_double, spark_double, training_double, trainjob_double
from tests.integration.controlplane.access import RequestError
from tests.integration.doubles import CustomDouble, definition
from tests.sim.kinds import labels_of_queue
from tests.sim.objects import CLUSTER_QUEUES, GPU, NAMESPACE, job, template
from tests.sim.tenancy import PEACEFUL, Tenancy

KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "train": FRAMEWORKS["kubeflow.org/pytorchjob"],
        "wrap": appwrapper_double.ROW,
        "app": spark_double.ROW,
        "rayjob": ray_double.ROWS["RayJob"],
        "raycluster": ray_double.ROWS["RayCluster"],
        "rayservice": ray_double.ROWS["RayService"],
        "trainjob": trainjob_double.ROW,
    }
)
"""Kinds by the beginning of the names of their objects."""
FIRST, SECOND = ("train", "wrap", "app"), ("rayjob", "raycluster", "rayservice", "trainjob")
"""The kinds of a world of one or the other sort."""
ENDLESS = ("raycluster", "rayservice")
"""The kinds whose objects never end."""
_GATE = "SparkApplicationIntegration"
_LOOK_SECONDS = 2.0
_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)(?:/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[^/?]+)"
    r"(?:/(?P<name>[^/?]+))?(?:/(?P<sub>[^/?]+))?(?:\?(?P<key>[^=]+)=(?P<value>.+))?"
)


def kind_of(name: str) -> Kind | None:
    """Return the custom kind of an object by its name; None: it is of no custom kind."""
    return KINDS.get(name.partition("-")[0])


def resource_of(kind: Kind) -> GroupVersionResource:
    """Return the resource of a kind."""
    return GroupVersionResource(kind.group, kind.version, kind.plural)


def adapter_of(kind: Kind) -> JobKind:
    """Return the adapter of a kind."""
    return BY_GROUP_KIND[kind.group_kind]


def selector_of(name: str, obj: Object) -> Mapping[str, str]:
    """Return the labels of the pods of an object; those of a cluster of Ray have its name, which never changes here."""
    kind = kind_of(name)
    assert kind is not None
    if name.startswith(("rayjob", "rayservice")):
        return {"ray.io/cluster": f"{name}-cluster"}
    return adapter_of(kind).pod_selector(obj)


def custom_tenancy() -> Tenancy:
    """Return peaceful tenants with quota of memory, which Spark's pods ask for."""
    objects = [(kind, _with_memory(obj) if kind == CLUSTER_QUEUES else obj) for kind, obj in PEACEFUL.objects]
    return replace(PEACEFUL, objects=tuple(objects))


def _with_memory(queue: Object) -> Object:
    (group,) = queue["spec"]["resourceGroups"]
    memory = {"name": "memory", "nominalQuota": "1Ti"}
    flavors = [{**flavor, "resources": [*flavor["resources"], memory]} for flavor in group["flavors"]]
    changed = {**group, "coveredResources": [*group["coveredResources"], "memory"], "flavors": flavors}
    return {**queue, "spec": {**queue["spec"], "resourceGroups": [changed]}}


def made(name: str, *, queue: str, pods: int, gpus: int, topology: str, run_seconds: int, priority: str = "") -> Object:
    """Return a custom object with as many pods of these GPUs that are placed."""
    kind = kind_of(name)
    assert kind is not None
    notes = {"kueue.x-k8s.io/podset-required-topology": topology}
    return {
        "apiVersion": f"{kind.group}/{kind.version}",
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels_of_queue(queue, priority)},
        "spec": _SPECS[name.partition("-")[0]](name, pods, gpus, notes, run_seconds),
    }


def _training(_name: str, pods: int, gpus: int, notes: dict[str, str], run_seconds: int) -> Object:
    body = template(gpus=gpus, run_seconds=run_seconds, annotations=notes)
    return {"runPolicy": {}, "pytorchReplicaSpecs": {"Worker": {"replicas": pods, "template": body}}}


def _wrapper(name: str, pods: int, gpus: int, notes: dict[str, str], run_seconds: int) -> Object:
    child = job(f"{name}-job", queue=None, pods=pods, gpus=gpus, topology=None, run_seconds=run_seconds)
    child["spec"] |= {"suspend": False, "backoffLimit": 100}
    child["spec"]["template"]["metadata"].setdefault("annotations", {}).update(notes)
    return {"components": [{"template": child}]}


def _application(_name: str, pods: int, gpus: int, notes: dict[str, str], run_seconds: int) -> Object:
    seconds, role = "sandbox.kqueue.dev/run-seconds", {"cores": 1, "memory": "640m"}
    executor = {
        "instances": pods,
        "gpu": {"name": GPU, "quantity": gpus},
        "annotations": {**notes, seconds: str(run_seconds)},
    }
    return {
        "type": "Scala",
        "mode": "cluster",
        "image": "example.com/spark:4",
        "driver": {**role, "annotations": {seconds: "100000"}},
        "executor": {**role, **executor},
    }


def _cluster(pods: int, gpus: int, notes: dict[str, str]) -> Object:
    head, worker = (template(gpus=n, run_seconds=100_000, annotations=a) for n, a in ((0, {}), (gpus, notes)))
    group = {"groupName": "workers", "replicas": pods, "template": worker}
    return {"headGroupSpec": {"rayStartParams": {}, "template": head}, "workerGroupSpecs": [group]}


def _ray_job(_name: str, pods: int, gpus: int, notes: dict[str, str], run_seconds: int) -> Object:
    cluster = _cluster(pods, gpus, notes)
    return {"entrypoint": str(run_seconds), "shutdownAfterJobFinishes": True, "rayClusterSpec": cluster}


def _ray_cluster(_name: str, pods: int, gpus: int, notes: dict[str, str], _run_seconds: int) -> Object:
    return _cluster(pods, gpus, notes)


def _ray_service(_name: str, pods: int, gpus: int, notes: dict[str, str], _run_seconds: int) -> Object:
    return {"rayClusterConfig": _cluster(pods, gpus, notes)}


def _train_job(name: str, pods: int, _gpus: int, _notes: dict[str, str], _run_seconds: int) -> Object:
    return {"runtimeRef": {"name": name, "kind": RUNTIMES.kind}, "trainer": {"numNodes": pods}}


def runtime(name: str, *, gpus: int, topology: str, run_seconds: int) -> Object:
    """Return the runtime of a TrainJob of this name."""
    notes = {"kueue.x-k8s.io/podset-required-topology": topology}
    body = template(gpus=gpus, run_seconds=run_seconds, annotations=notes)
    body["spec"]["containers"][0]["name"] = "node"
    job_spec = {"completionMode": "Indexed", "backoffLimit": 100, "template": body}
    part = {"name": "node", "template": {"metadata": {"labels": {trainjob_double.STEP: "trainer"}}, "spec": job_spec}}
    spec = {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [part]}}}
    api_version = f"{RUNTIMES.group}/{RUNTIMES.version}"
    return {"apiVersion": api_version, "kind": RUNTIMES.kind, "metadata": {"name": name}, "spec": spec}


RUNTIMES = TRAINING_RUNTIMES[0]
_SPECS: Mapping[str, Callable[[str, int, int, dict[str, str], int], Object]] = {
    "train": _training,
    "wrap": _wrapper,
    "app": _application,
    "rayjob": _ray_job,
    "raycluster": _ray_cluster,
    "rayservice": _ray_service,
    "trainjob": _train_job,
}


class InProcess:
    """Answers requests like an API server's front, in process."""

    def __init__(self, api: ClusterApi) -> None:
        self._api = api

    @asynccontextmanager
    async def session(self) -> AsyncIterator[None]:
        """No connection is needed."""
        yield None

    async def request(
        self, method: str, path: str, body: Any = None, *, content_type: str = "", session: Any = None
    ) -> Object:
        """Carry out one request.

        Raises:
            RequestError: the API server refuses it.
        """
        found = _PATH.fullmatch(path)
        assert found is not None, path
        resource = GroupVersionResource(found["group"] or "", found["version"], found["plural"])
        name, namespace = found["name"], found["namespace"]
        try:
            if method == "GET" and name is not None:
                return self._api.get(resource, name, namespace=namespace)
            if method == "GET":
                key, _, value = (found["value"] or "").partition("=")
                return {"items": self._api.list(resource, namespace=namespace, labels={key: value} if key else None)}
            if method == "POST":
                return await self._api.create(resource, body, namespace=namespace)
            if method == "PATCH":
                return await self._api.patch(resource, name, body, namespace=namespace, subresource=found["sub"])
            if method == "PUT":
                return await self._api.update(resource, body, namespace=namespace)
            await self._api.delete(resource, name, namespace=namespace, propagation="Background")
        except ApiError as e:
            raise RequestError(method, path, e.status, str(e)) from e
        return {}


@asynccontextmanager
async def custom_kinds_run(api: ClusterApi, clock: Clock, which: Sequence[str] = FIRST) -> AsyncIterator[None]:
    """The kinds of a sort are defined, and their controllers run, while the block runs."""
    readable = TRAINING_RUNTIMES if "trainjob" in which else ()
    for kind in (*(KINDS[prefix] for prefix in which), *readable):
        await api.create(CRDS, definition(kind))
    async with doubles_run(clock, _doubles(InProcess(api), which)):
        yield


@asynccontextmanager
async def doubles_run(clock: Clock, doubles: Sequence[CustomDouble]) -> AsyncIterator[None]:
    """The doubles act on the world's clock while the block runs."""

    async def pause() -> None:
        await clock.sleep(_LOOK_SECONDS)

    tasks = [asyncio.create_task(double.run(pause)) for double in doubles]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


_DOUBLES: Mapping[str, Callable[[InProcess], CustomDouble]] = {
    "train": lambda front: training_double.TrainingDouble(front, [KINDS["train"]]),
    "wrap": lambda front: appwrapper_double.AppWrapperDouble(front, [KINDS["wrap"]]),
    "app": lambda front: spark_double.SparkDouble(front, None),
    "rayjob": lambda front: ray_double.KubeRay(front, ray_double.IN_ORDER),
    "trainjob": lambda front: trainjob_double.TrainJobDouble(front),
}
"""The controllers by the first of their kinds."""


def _doubles(front: InProcess, which: Sequence[str]) -> list[CustomDouble]:
    return [make(front) for prefix, make in _DOUBLES.items() if prefix in which]
