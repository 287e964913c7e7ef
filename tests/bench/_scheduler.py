"""A scheduler in memory: cache, queues and cycle as shipped, with status writes that are answered at once.

Objects are parsed before the clock starts, and there is no watch: what is written is handed to whoever reads the newest
version, and nothing comes back as an event.  Events and metrics are made as in the controller; events are handed to a
post that counts them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.meta import Condition
from kqueue.clock import FakeClock
from kqueue.controllers.intake import Intake, IntakeState
from kqueue.manager.telemetry import CycleObserver, Events, WorkloadCounter
from kqueue.observe import EventRecorder, Metrics, configure_logs
from kqueue.observe.events import EventHooks
from kqueue.runtime.lane import Lane
from kqueue.scheduling.context import Lookups, SchedulingState
from kqueue.scheduling.loop import SchedulingLoop
from kqueue.scheduling.settings import LoopSettings
from kqueue.state.cache import Cache
from kqueue.state.preemptions import Preemptions
from kqueue.state.queues import Queues

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
BLOCK, RACK, HOST = (
    "cloud.provider.com/topology-block",
    "cloud.provider.com/topology-rack",
    "kubernetes.io/hostname",
)
TOPOLOGY = {
    "metadata": {"name": "default-topology"},
    "spec": {"levels": [{"nodeLabel": x} for x in (BLOCK, RACK, HOST)]},
}
FLAVOR = {"metadata": {"name": "flavor"}, "spec": {}}
TAS_FLAVOR = {
    "metadata": {"name": "flavor"},
    "spec": {"nodeLabels": {"tas-node-group": "tas"}, "topologyName": "default-topology"},
}
GIB = 1 << 30


class Writer:
    """Stands for the status writer: every write is answered at once, nothing is encoded.

    Of what is written the answer has the conditions only.
    """

    def __init__(self) -> None:
        self.objects: dict[str, wire.Workload] = {}
        self.patches: dict[str, list[Mapping[str, Any]]] = {}

    def newest(self, key: str) -> wire.Workload | None:
        """The workload as it was made, or answered last."""
        return self.objects.get(key)

    async def write(
        self,
        key: str,
        change: Callable[[wire.Workload], Mapping[str, Any] | None],
        *,
        lane: Lane = Lane.STATUS,
        subresource: str | None = "status",
    ) -> wire.Workload | None:
        """Build the patch, keep it, answer."""
        del lane, subresource
        obj = self.objects[key]
        patch = change(obj)
        if patch is None:
            return None
        self.patches.setdefault(key, []).append(patch)
        conditions = msgspec.convert(patch["status"].get("conditions", ()), tuple[Condition, ...])
        status = msgspec.structs.replace(obj.status, conditions=conditions or obj.status.conditions)
        answer = self.objects[key] = msgspec.structs.replace(obj, status=status)
        return answer


class World:
    """Cache, queues, loop, and what fills them.  Logs are written as shipped, to nowhere."""

    def __init__(self, settings: LoopSettings | None = None, preemptions: Preemptions | None = None) -> None:
        configure_logs(stream=Path(os.devnull).open("wb"))  # noqa: SIM115 - as long as the process
        self.clock = FakeClock()
        self.cache = Cache()
        self.queues = Queues(self.clock.now, lambda: None)
        self.writer = Writer()
        self.events = 0
        self.metrics = Metrics()
        self.intake = Intake(
            IntakeState(cache=self.cache, queues=self.queues),
            namespace_labels=lambda _namespace: {},
            wake=lambda: None,
            clock=self.clock,
        )

        async def post(_event: dict[str, Any]) -> None:
            self.events += 1

        async def patch(_namespace: str, _name: str, _change: dict[str, Any]) -> None:
            self.events += 1

        self.recorder = EventRecorder(
            post=post, patch=patch, clock=self.clock, instance="bench", hooks=EventHooks(lost=lambda *_: None)
        )
        self.loop = SchedulingLoop(
            SchedulingState(cache=self.cache, queues=self.queues, preemptions=preemptions or Preemptions()),
            Lookups(namespace_labels=lambda _namespace: {}, look_at_parked=self.intake.look_at_parked),
            writer=self.writer,  # type: ignore[arg-type]
            observer=CycleObserver(self.metrics, Events(self.recorder), self.clock),
            clock=self.clock,
            settings=settings,
        )
        self.counter = WorkloadCounter(
            self.metrics, self.clock, lambda: True, cluster_queue_of=self.queues.cluster_queue_of
        )
        self._made = 0

    # --- filling -----------------------------------------------------------------------------------------------

    def flavor(self, *, topology: bool) -> None:
        """The one flavor `flavor`."""
        if topology:
            self.intake.on_topology(None, msgspec.convert(TOPOLOGY, wire.Topology))
        self.intake.on_flavor(None, msgspec.convert(TAS_FLAVOR if topology else FLAVOR, wire.ResourceFlavor))

    def cohort(self, name: str, *, parent: str | None = None, weight: int = 1) -> None:
        """A Cohort without quota of its own."""
        spec = {"parentName": parent, "fairSharing": {"weight": weight}}
        self.intake.on_cohort(None, msgspec.convert({"metadata": {"name": name}, "spec": spec}, wire.Cohort))

    def queue(
        self,
        name: str,
        *,
        quota: Mapping[str, str],
        cohort: str | None = None,
        flavors: Sequence[str] = ("flavor",),
        **spec: Any,
    ) -> None:
        """A ClusterQueue with this quota in each flavor, and a LocalQueue of its name in the namespace of its name."""
        resources = [{"name": r, "nominalQuota": q} for r, q in quota.items()]
        quotas = [{"name": flavor, "resources": resources} for flavor in flavors]
        groups = [{"coveredResources": list(quota), "flavors": quotas}]
        body = {
            "metadata": {"name": name},
            "spec": {"resourceGroups": groups, "namespaceSelector": {}, "cohortName": cohort, **spec},
        }
        self.intake.on_cluster_queue(None, msgspec.convert(body, wire.ClusterQueue))
        local = {"metadata": {"name": name, "namespace": name}, "spec": {"clusterQueue": name}}
        self.intake.on_local_queue(None, msgspec.convert(local, wire.LocalQueue))

    def node(
        self,
        name: str,
        *,
        block: str,
        rack: str,
        allocatable: Mapping[str, str | int],
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """A host that is ready."""
        labels = {"tas-node-group": "tas", BLOCK: block, RACK: rack, HOST: name, **(labels or {})}
        body = {
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": dict(allocatable), "conditions": [{"type": "Ready", "status": "True"}]},
        }
        self.intake.on_node(None, model.node_facts(msgspec.convert(body, wire_core.Node)))

    def workload(
        self,
        name: str,
        *,
        queue: str,
        pods: int,
        requests: Mapping[str, str],
        priority: int = 0,
        topology: Mapping[str, Any] | None = None,
        template: Mapping[str, Any] | None = None,
        annotations: Mapping[str, str] | None = None,
        status: Mapping[str, Any] | None = None,
        created: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
        gates: Sequence[str] = (),
    ) -> wire.Workload:
        """A Workload of one pod set `main`, 1 ms younger than the one before; with a status it may hold quota.

        `template` has further fields of the pods' spec, `annotations` are those of the pod template; `metadata` is
        further metadata of the Workload, and `gates` are its preemption gates.
        """
        created = created or EPOCH + timedelta(milliseconds=self._made)
        self._made += 1
        spec = {"containers": [{"name": "c", "resources": {"requests": dict(requests)}}], **(template or {})}
        pod_template: dict[str, Any] = {"spec": spec}
        if annotations:
            pod_template["metadata"] = {"annotations": dict(annotations)}
        pod_set: dict[str, Any] = {"name": "main", "count": pods, "template": pod_template}
        if topology is not None:
            pod_set["topologyRequest"] = dict(topology)
        body = {
            "metadata": {
                "name": name,
                "namespace": queue,
                "uid": f"{queue}/{name}",
                "generation": 1,
                "creationTimestamp": created.isoformat().replace("+00:00", "Z"),
                **(metadata or {}),
            },
            "spec": {
                "queueName": queue,
                "priority": priority,
                "active": True,
                "podSets": [pod_set],
                "preemptionGates": [{"name": gate} for gate in gates],
            },
            "status": dict(status or {}),
        }
        obj = msgspec.convert(body, wire.Workload)
        self.writer.objects[f"{queue}/{name}"] = obj
        self.intake.on_workload(None, obj)
        self.counter.on_workload(None, obj)
        return obj

    # --- running -----------------------------------------------------------------------------------------------

    async def cycle(self) -> bool:
        """One cycle, the end of its writes, and the events it has made."""
        success = await self.loop.cycle()
        await self.loop.drain()
        await self.recorder.drain()
        return success

    async def close(self) -> None:
        """Stop what waits for its time."""
        await self.intake.close()
