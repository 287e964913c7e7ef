"""A small world for controllers: objects as JSON on a fake server, and cache and queues that follow its watches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kqueue.api.wire import kueue as wire
from kqueue.clock import FakeClock
from kqueue.controllers.intake import Intake, IntakeSettings, IntakeState
from kqueue.controllers.resources import CLUSTER_QUEUES, LOCAL_QUEUES, RESOURCE_FLAVORS, TOPOLOGIES, WORKLOADS
from kqueue.core.quota import FlavorResource, available
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.store import Store
from kqueue.state.cache import Cache
from kqueue.state.fair_usage import FairUsage
from kqueue.state.quarantine import Quarantine
from kqueue.state.queues import Queues
from kqueue.state.waiting import cause_of
from tests.unit.controllers.fakes import FakeClient, FakeRecorder

JSON = dict[str, Any]
DAY = "2025-12-31"
EARLIER = f"{DAY}T00:00:00Z"
"""A day before the fake clock starts."""


def condition(kind: str, status: str = "True", reason: str = "", message: str = "") -> JSON:
    """One condition, written a day ago."""
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": EARLIER}


OWNED: JSON = {
    "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}]
}
"""Metadata of a Workload that a Job controls."""


def make_workload(
    name: str = "a",
    *,
    queue: str = "main",
    cpus: int | str = 1,
    pods: int = 1,
    priority: int = 0,
    minute: int = 0,
    metadata: JSON | None = None,
    status: JSON | None = None,
    **spec: Any,
) -> JSON:
    """A Workload of one pod set; `cpus` is what one pod requests, a larger `minute` is younger."""
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": str(cpus)}}}]}}
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-of-{name}",
            "creationTimestamp": f"{DAY}T00:{minute:02}:00Z",
            **(metadata or {}),
        },
        "spec": {
            "queueName": queue,
            "priority": priority,
            "active": True,
            "podSets": [{"name": "main", "count": pods, "template": template}],
            **spec,
        },
        "status": status or {},
    }


def reserved(*conditions: JSON, cpus: int = 1, pods: int = 1, queue: str = "team", **more: Any) -> JSON:
    """The status of a Workload that holds quota; without conditions of its own it is admitted."""
    wanted = list(conditions) or [condition("Admitted", reason="Admitted")]
    return {
        "conditions": [condition("QuotaReserved", reason="QuotaReserved"), *wanted],
        "admission": {
            "clusterQueue": queue,
            "podSetAssignments": [
                {
                    "name": "main",
                    "flavors": {"cpu": "default"},
                    "resourceUsage": {"cpu": str(cpus * pods)},
                    "count": pods,
                }
            ],
        },
        **more,
    }


def make_cluster_queue(
    name: str = "team", *, cpus: Mapping[str, int] | int = 10, status: JSON | None = None, **spec: Any
) -> JSON:
    """A ClusterQueue that admits every namespace; `cpus` is its nominal quota per flavor, or in `default`."""
    nominal = {"default": cpus} if isinstance(cpus, int) else cpus
    flavors = [
        {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": str(amount)}]}
        for flavor, amount in nominal.items()
    ]
    groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
    return {
        "metadata": {"name": name},
        "spec": {"resourceGroups": groups, "namespaceSelector": {}, **spec},
        "status": status or {},
    }


def make_local_queue(name: str = "main", *, cluster_queue: str = "team", **spec: Any) -> JSON:
    """A LocalQueue of namespace `ns`."""
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": {"clusterQueue": cluster_queue, **spec}}


def make_flavor(name: str = "default", **spec: Any) -> JSON:
    """A ResourceFlavor, of all nodes."""
    return {"metadata": {"name": name}, "spec": spec}


def read(kind: type[Any], obj: Mapping[str, Any]) -> Any:
    """The object as controllers see it."""
    return msgspec.convert(obj, kind)


def status_of(obj: JSON | None, kind: str) -> tuple[str, str]:
    """(status, reason) of a condition; both empty when it is not there."""
    assert obj is not None
    found: JSON = next((c for c in obj.get("status", {}).get("conditions", ()) if c["type"] == kind), {})
    return found.get("status", ""), found.get("reason", "")


def message_of(obj: JSON | None, kind: str) -> str:
    """The message of a condition; of one that says why a Workload waits, the cause alone."""
    assert obj is not None
    return cause_of(next(str(c["message"]) for c in obj["status"]["conditions"] if c["type"] == kind))


class World:
    """A server with a ClusterQueue `team` of 10 cpu in flavor `default`, behind LocalQueue `main` of namespace `ns`.

    `sync` brings everything to the stores, and through them to cache and queues, as the watches do.
    """

    def __init__(
        self,
        *objects: tuple[ResourceType, JSON],
        waits_for_ready: bool = False,
        concurrent: bool = False,
        fair_usage: FairUsage | None = None,
    ) -> None:
        """`objects` are there beside those that every world has, or in their place; the rest is as in Intake."""
        self.clock = FakeClock()
        self.client = FakeClient()
        self.recorder = FakeRecorder()
        self.namespaces: dict[str, dict[str, str]] = {"ns": {}}
        self.fair_usage = fair_usage
        self.wakes = 0
        """How often the scheduling loop was to wake."""
        self.on_wake: Callable[[], None] = lambda: None
        self.cache = Cache()
        self.queues = Queues(self.clock.now, self._wake)
        self.quarantine = Quarantine()
        self.intake = Intake(
            IntakeState(cache=self.cache, queues=self.queues, fair_usage=fair_usage, quarantine=self.quarantine),
            namespace_labels=self.namespaces.get,
            wake=self._wake,
            clock=self.clock,
            settings=IntakeSettings(waits_for_ready=waits_for_ready, concurrent=concurrent),
        )
        intake = self.intake
        self.topologies: Store[wire.Topology] = self._watch(TOPOLOGIES, wire.Topology, intake.on_topology)
        self.flavors: Store[wire.ResourceFlavor] = self._watch(RESOURCE_FLAVORS, wire.ResourceFlavor, intake.on_flavor)
        self.cluster_queues: Store[wire.ClusterQueue] = self._watch(
            CLUSTER_QUEUES, wire.ClusterQueue, intake.on_cluster_queue
        )
        self.local_queues: Store[wire.LocalQueue] = self._watch(LOCAL_QUEUES, wire.LocalQueue, intake.on_local_queue)
        self.workloads: Store[wire.Workload] = self._watch(WORKLOADS, wire.Workload, intake.on_workload)
        self.writer: StatusWriter[wire.Workload] = self.writer_of(WORKLOADS, self.workloads, wire.Workload)
        for resource, obj in (
            (RESOURCE_FLAVORS, make_flavor()),
            (CLUSTER_QUEUES, make_cluster_queue()),
            (LOCAL_QUEUES, make_local_queue()),
            *objects,
        ):
            self.client.put(resource, obj)

    def _watch(self, resource: ResourceType, kind: type[Any], handler: Callable[[Any, Any], None]) -> Store[Any]:
        store: Store[Any] = Store(resource.plural)
        store.subscribe(handler)
        self.client.watch(resource, store, lambda obj: msgspec.convert(obj, kind))
        return store

    def writer_of(self, resource: ResourceType, store: Store[Any], kind: type[Any]) -> StatusWriter[Any]:
        """A writer of one kind."""
        return StatusWriter(
            self.client,
            resource,
            store=store,
            decode=kind,
            key_of=lambda o: f"{o.metadata.namespace}/{o.metadata.name}" if resource.namespaced else o.metadata.name,
            version_of=lambda o: o.metadata.resource_version,
        )

    def _wake(self) -> None:
        self.wakes += 1
        self.on_wake()

    def add(self, *workloads: JSON) -> None:
        """Workloads appear, and everything is brought."""
        for workload in workloads:
            self.client.put(WORKLOADS, workload)
        self.client.sync()

    def sync(self) -> None:
        """All watches catch up."""
        self.client.sync()

    async def settle(self) -> None:
        """The watches catch up, and whoever waits for something freed is told."""
        self.client.sync()
        await self.clock.advance(1)

    def workload(self, name: str = "a") -> JSON | None:
        """The Workload as the server has it."""
        return self.client.object(WORKLOADS, f"ns/{name}")

    def free(self, queue: str = "team", flavor: str = "default") -> int:
        """Whole cpus that the ClusterQueue may still take."""
        node = self.cache.quota.node_of(queue)
        assert node is not None
        return available(node, FlavorResource(flavor, "cpu")) // 1000

    async def close(self) -> None:
        """Stop what waits."""
        await self.intake.close()
