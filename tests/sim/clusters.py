"""A manager and two worker clusters on one fake clock, each with its own API server, webhooks and controller.

The manager reaches a worker over simulated clients of its own, which can be cut off from that worker alone.
"""

from __future__ import annotations

import base64
import functools
import random
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any
from unittest import mock

import structlog
import yaml

from kqueue.clock import FakeClock
from kqueue.config import Configuration
from kqueue.config.dispatchers import DISPATCHER_ALL_AT_ONCE
from kqueue.controllers import multikueue_setup, worker_sources
from kqueue.controllers.worker_cluster import WorkerCluster, WorkerHandlers, WorkerLink, WorkerTools
from kqueue.runtime.client import Client
from kqueue.runtime.kubeconfig import ClusterAccess
from kqueue.sandbox.api import GroupVersionResource, Object
from kqueue.sandbox.topology_spec import POOL_LABEL
from tests.integration.doubles import playing
from tests.sim.api_client import NONE, Faults, SimulatedClient
from tests.sim.cluster_dispatch import EXTERNAL, ExternalDispatcher, LinkClient
from tests.sim.custom import KINDS, custom_kinds_run
from tests.sim.objects import (
    CLUSTER_QUEUES,
    FLAVORS,
    GPU,
    LEVELS,
    LOCAL_QUEUES,
    NAMESPACE,
    TOPOLOGIES,
    cluster_queue,
    ours,
    ours_of,
)
from tests.sim.tenancy import Tenancy, pool
from tests.sim.world import World, note_bugs

CONTROLLER = "kueue.x-k8s.io/multikueue"
WORKERS = ("east", "west")
CUSTOM = ("train",)
"""The custom kinds of the clusters, by the beginning of their objects' names."""
LOST_SECONDS = 60
"""`workerLostTimeout` of the manager."""
_OWN_NAMESPACE = "kueue-system"
_SECRETS = GroupVersionResource("", "v1", "secrets")
_NAMESPACES = GroupVersionResource("", "v1", "namespaces")


def kubeconfig(cluster: str) -> str:
    """Return a kubeconfig of a worker; its server does not exist."""
    return yaml.safe_dump(
        {
            "clusters": [{"name": "it", "cluster": {"server": f"https://{cluster}.invalid"}}],
            "users": [{"name": "me", "user": {"token": "secret"}}],
            "contexts": [{"name": "here", "context": {"cluster": "it", "user": "me"}}],
            "current-context": "here",
        }
    )


def _tenants(gpus: int, *, is_manager: bool) -> list[tuple[GroupVersionResource, Object]]:
    """Return the queue `solo` with so many GPUs; that of the manager has the check."""
    queue = cluster_queue("solo", flavors={"gpu": {"cpu": 400, GPU: gpus}})
    if is_manager:
        queue["spec"]["admissionChecksStrategy"] = {"admissionChecks": [{"name": "elsewhere"}]}
    gpu = {"nodeLabels": {POOL_LABEL: "gpu"}, "topologyName": "dc"}
    return [
        (TOPOLOGIES, ours("Topology", "dc", spec={"levels": [{"nodeLabel": level} for level in LEVELS]})),
        (FLAVORS, ours("ResourceFlavor", "gpu", spec=gpu)),
        (CLUSTER_QUEUES, queue),
        (LOCAL_QUEUES, ours("LocalQueue", "solo", namespace=NAMESPACE, spec={"clusterQueue": "solo"})),
    ]


def _connections() -> Iterator[tuple[GroupVersionResource, Object]]:
    """Yield what names the workers on the manager."""
    yield _NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _OWN_NAMESPACE}}
    for name in WORKERS:
        data = {"kubeconfig": base64.b64encode(kubeconfig(name).encode()).decode()}
        meta = {"name": name, "namespace": _OWN_NAMESPACE}
        yield _SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data}
        source = {"clusterSource": {"kubeConfig": {"location": name}}}
        yield ours_of("multikueueclusters"), ours("MultiKueueCluster", name, spec=source)
    yield ours_of("multikueueconfigs"), ours("MultiKueueConfig", "all", spec={"clusters": list(WORKERS)})
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"}
    spec = {"controllerName": CONTROLLER, "parameters": parameters}
    yield ours_of("admissionchecks"), ours("AdmissionCheck", "elsewhere", spec=spec)


MANAGER = Tenancy(objects=(*_connections(), *_tenants(80, is_manager=True)), pools=(), placed=frozenset({"gpu"}))
WORKER = Tenancy(
    objects=tuple(_tenants(48, is_manager=False)), pools=(pool("gpu", (1, 2, 4), gpus=8),), placed=frozenset({"gpu"})
)


class SeededCluster(WorkerCluster):
    """A connection whose pauses and watches take their jitter from the seed of the world."""

    def __init__(self, name: str, handlers: WorkerHandlers, tools: WorkerTools, *, seed: str) -> None:
        super().__init__(name, handlers, tools)
        self._seed = f"{seed}/{name}"
        self._backoff._chance = random.Random(self._seed)
        self._steps.queue._chance = random.Random(f"{self._seed}/steps")

    @asynccontextmanager
    async def _opened(self, content: bytes, ours: str) -> AsyncIterator[WorkerLink]:
        async with super()._opened(content, ours) as link:
            for watch in link.all():
                chance = random.Random(f"{self._seed}/{watch.resource}")
                watch._chance = watch._backoff._chance = watch._absence._chance = chance
            yield link


class ManagerWorld(World):
    """The manager's cluster; its controller has clients of the workers, too, which die with it."""

    def __init__(self, seed: int | str, workers: Mapping[str, World], **settings: Any) -> None:
        super().__init__(seed, **settings)
        self.workers = workers
        self.cut: set[str] = set()
        """Workers that the manager does not reach."""
        self.links: dict[str, list[SimulatedClient]] = {name: [] for name in workers}
        """The clients of all processes, by worker."""
        self.connections: dict[str, WorkerCluster] = {}
        """The connections of the last process, by worker."""

    def make_connection(self, name: str, handlers: WorkerHandlers, tools: WorkerTools) -> WorkerCluster:
        """Return the connection of the living process to a worker."""
        made = SeededCluster(name, handlers, tools, seed=f"{self.seed}/controller-{self._started}")
        self.connections[name] = made
        return made

    def connect(self, access: ClusterAccess, _settings: object, **_how: object) -> Client:
        """Return a client for the cluster of a kubeconfig."""
        name = access.server.removeprefix("https://").removesuffix(".invalid")
        clients = self.links[name]
        worker = self.workers[name]
        seed = f"{self.seed}/link-{name}-{len(clients)}"
        faults = self.controller.client.faults if self.controller is not None else self.faults
        client = LinkClient(worker, self.clock, seed=seed, faults=faults)
        client.partitioned = name in self.cut
        clients.append(client)
        return client

    def set_faults(self, faults: Faults) -> None:
        """Let all clients of the living controller have other faults."""
        for client in self._living():
            client.faults = faults

    def set_cut(self, name: str, *, is_cut: bool) -> None:
        """Cut a worker off from the manager, or end that.  Watches break, as connections do whose packets are lost."""
        (self.cut.add if is_cut else self.cut.discard)(name)
        for client in self.links[name]:
            client.partitioned = is_cut

    def _living(self) -> list[SimulatedClient]:
        mine = [client for clients in self.links.values() for client in clients if not client.killed]
        return [*mine, *([self.controller.client] if self.controller is not None else [])]

    async def stop(self) -> None:
        """End everything, the connections of killed controllers, too."""
        await super().stop()
        for clients in self.links.values():
            for client in clients:
                await client.close()

    def is_connected(self, name: str) -> bool:
        """Whether the living controller has a connection to a worker."""
        return self.controller is not None and name in self.connections and self.connections[name].link is not None

    def kill_controller(self) -> None:
        """Simulate SIGKILL: nothing reaches the workers any more, either."""
        for client in self._living():
            client.kill()
        self.connections = {}
        super().kill_controller()


class Clusters:
    """The three worlds."""

    def __init__(
        self,
        seed: int | str,
        *,
        faults: Faults = NONE,
        job_sets: bool = False,
        more_kinds: bool = False,
        dispatcher: str = DISPATCHER_ALL_AT_ONCE,
    ) -> None:
        """`more_kinds`: JobSets, pods that are queued themselves, and training jobs, besides Jobs."""
        self.seed, self.clock, self.dispatcher, self.more_kinds = seed, FakeClock(), dispatcher, more_kinds
        settings: dict[str, Any] = {"faults": faults, "job_sets": job_sets or more_kinds, "clock": self.clock}
        if more_kinds:
            settings |= {"pods": True, "kinds": tuple(KINDS[prefix].framework for prefix in CUSTOM)}
        self.workers = {name: World(f"{seed}/{name}", tenancy=WORKER, **settings) for name in WORKERS}
        self.manager = ManagerWorld(seed, self.workers, tenancy=MANAGER, **settings)
        for world in self.worlds.values():
            world.configured = _without_learning(world.configured)
        self.manager.configured = _of_manager(self.manager.configured, dispatcher)

    @property
    def worlds(self) -> dict[str, World]:
        """All three by name; the manager last."""
        return {**self.workers, "manager": self.manager}

    def fingerprint(self) -> str:
        """Return a text that is equal for equal histories of all clusters."""
        return " ".join(world.history.fingerprint() for world in self.worlds.values())


def _without_learning(found: Configuration) -> Configuration:
    """Return the configuration without learned run times, whose ConfigMap is written while a world rests."""
    return found.model_copy(update={"run_times": found.run_times.model_copy(update={"learn": False})})


def _of_manager(found: Configuration, dispatcher: str) -> Configuration:
    checks = found.admission_checks.model_copy(update={"controllers": (CONTROLLER,)})
    update = {"origin": "here", "worker_lost_timeout": timedelta(seconds=LOST_SECONDS), "dispatcher_name": dispatcher}
    return found.model_copy(
        update={"admission_checks": checks, "multi_kueue": found.multi_kueue.model_copy(update=update)}
    )


@contextmanager
def _simulated_links(manager: ManagerWorld) -> Iterator[None]:
    """Let the product open simulated clients where it opens connections to workers."""
    with (
        mock.patch.object(worker_sources, "client_of", manager.connect),
        mock.patch.object(multikueue_setup, "WorkerCluster", manager.make_connection),
    ):
        yield


@asynccontextmanager
async def simulated_clusters(seed: int | str, **settings: Any) -> AsyncIterator[Clusters]:
    """Run the three worlds, each with a controller, for the time of the block."""
    clusters = Clusters(seed, **settings)
    configured = structlog.get_config()
    structlog.configure(processors=[functools.partial(note_bugs, clusters.manager)], cache_logger_on_first_use=False)
    try:
        with _simulated_links(clusters.manager):
            async with AsyncExitStack() as stack:
                for world in clusters.worlds.values():
                    await world.start()
                    if clusters.more_kinds:
                        await stack.enter_async_context(custom_kinds_run(world.api, clusters.clock, CUSTOM))
                    world.start_controller()
                    await world.settle()
                if clusters.dispatcher == EXTERNAL:
                    dispatcher = ExternalDispatcher(clusters.manager, WORKERS)
                    await stack.enter_async_context(playing(dispatcher.run()))
                yield clusters
            for world in clusters.worlds.values():
                await world.stop()
    finally:
        structlog.configure(**configured)
