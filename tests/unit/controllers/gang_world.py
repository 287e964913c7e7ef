"""Gangs, their pods, and a server with the ungater."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.clock import FakeClock
from kqueue.controllers.resources import PODS, WORKLOADS
from kqueue.controllers.topology_ungater import TopologyUngater, gang_releases
from kqueue.core.hooks import ProfileHooks
from kqueue.model import PodView
from kqueue.runtime.controller import Result
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.store import Store
from tests.unit.controllers.builders import EARLIER, JSON, condition, make_workload
from tests.unit.controllers.fakes import Call, FakeClient, FakeRecorder
from tests.unit.controllers.pod_world import releases_of
from tests.unit.jobs.builders import prefixed

HOST = "kubernetes.io/hostname"
GATE = "kueue.x-k8s.io/topology"
INDEX = "batch.kubernetes.io/job-completion-index"
RANKED = {"required": "rack", "podIndexLabel": INDEX}
IN = Result()


def placed(**hosts: int) -> JSON:
    """An assignment of so many pods to each host."""
    return {
        "levels": [HOST],
        "slices": [
            {"domainCount": 1, "valuesPerLevel": [{"universal": host}], "podCounts": {"universal": pods}}
            for host, pods in hosts.items()
        ],
    }


def make_gang(
    hosts: Mapping[str, int] | None, *conditions: JSON, name: str = "a", request: JSON | None = None, **status: Any
) -> JSON:
    """An admitted Workload whose one pod set was placed on hosts; None: it was placed nowhere."""
    pods = sum((hosts or {}).values())
    return gang_of_sets({"main": (pods, request, hosts)}, *conditions, name=name, **status)


def gang_of_sets(
    sets: Mapping[str, tuple[int, JSON | None, Mapping[str, int] | None]],
    *conditions: JSON,
    name: str = "a",
    **more: Any,
) -> JSON:
    """An admitted Workload of pod sets, each with its count, its topology request and its hosts."""
    specs = [
        {"name": key, "count": pods, "template": {"spec": {}}, "topologyRequest": request or {"required": "rack"}}
        for key, (pods, request, _) in sets.items()
    ]
    assigned = [
        {"name": key, "count": pods, **({"topologyAssignment": placed(**hosts)} if hosts is not None else {})}
        for key, (pods, _, hosts) in sets.items()
    ]
    status = {
        "conditions": list(conditions) or [condition("QuotaReserved"), condition("Admitted")],
        "admission": {"clusterQueue": "team", "podSetAssignments": assigned},
        **more,
    }
    return make_workload(name, podSets=specs, status=status)


def make_pod(
    name: str,
    *,
    workload: str | None = "a",
    pod_set: str = "main",
    index: int | str | None = None,
    gates: tuple[str, ...] = (GATE,),
    host: str | None = None,
    phase: str = "Pending",
    annotations: JSON | None = None,
    deleted: bool = False,
) -> JSON:
    """A pod of a gang; without `workload` one of somebody else."""
    marks = prefixed(podset_required_topology="rack", workload=workload) if workload is not None else {}
    labels = prefixed(podset=pod_set) | ({INDEX: str(index)} if index is not None else {})
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-of-{name}",
            "annotations": marks | (annotations or {}),
            "labels": labels,
            **({"deletionTimestamp": EARLIER, "finalizers": ["held"]} if deleted else {}),
        },
        "spec": {
            "schedulingGates": [{"name": gate} for gate in gates],
            "nodeSelector": {HOST: host} if host is not None else {},
        },
        "status": {"phase": phase},
    }


class Gate:
    """A server with Workloads and pods, and the ungater."""

    def __init__(self, *objects: JSON, hooks: ProfileHooks | None = None) -> None:
        self.clock, self.client = FakeClock(), FakeClient()
        self.workloads: Store[wire.Workload] = Store("workloads")
        self.pods: Store[PodView] = Store("pods")
        self.writer: StatusWriter[wire.Workload] = StatusWriter(
            self.client,
            WORKLOADS,
            store=self.workloads,
            decode=wire.Workload,
            key_of=model.workload_key,
            version_of=lambda workload: workload.metadata.resource_version,
        )
        self.released = 0
        self.in_order = Counter[bool | None]()
        self.recorder, self.fallbacks = FakeRecorder(), Counter[str]()
        self.hosts: dict[str, str] = {}
        releases = releases_of(self, hooks)
        self.ungater = TopologyUngater(
            workloads=self.writer,
            pods=self.pods,
            releases=gang_releases(self.client, self.pods, self.clock, hooks=releases),
            host_of=self.hosts.get,
            recorder=self.recorder,
            on_released=self._count,
            on_fallback=lambda reason: self.fallbacks.update([reason]),
        )
        self.keys: list[str | None] = []
        self.pods.subscribe(lambda old, new: self.keys.append(self.ungater.observe_pod(old, new)))
        self.client.watch(WORKLOADS, self.workloads, lambda obj: msgspec.convert(obj, wire.Workload))
        self.client.watch(PODS, self.pods, lambda obj: model.pod_view(msgspec.convert(obj, wire_core.Pod)))
        for obj in objects:
            self.client.put(WORKLOADS if "podSets" in obj["spec"] else PODS, obj)

    def _count(self, _workload: wire.Workload, in_order: bool | None) -> None:
        self.released += 1
        self.in_order.update([in_order])

    @property
    def patches(self) -> list[Call]:
        """What was sent for pods so far."""
        return self.client.writes()

    async def look_first(self) -> None:
        """What a leader before us has done is known."""
        self.client.put(WORKLOADS, make_gang({"h1": 1}, name="first"))
        self.client.put(PODS, make_pod("first", workload="first"))
        self.client.sync()
        await self.ungater.reconcile("ns/first")
        self.client.drop(PODS, "ns/first")
        self.client.sync()
        self.client.calls.clear()
        self.released = 0

    async def step(self, *, late: bool = False) -> Result:
        """One reconcile, with everything seen or (`late`) with an old picture."""
        if not late:
            self.client.sync()
        return await self.ungater.reconcile("ns/a")

    def pod(self, name: str) -> JSON:
        found = self.client.object(PODS, f"ns/{name}")
        assert found is not None
        return found

    def places(self) -> dict[str, str]:
        """Where released pods go; those that are still gated are left out."""
        out = {}
        for key in self.client.keys(PODS):
            name = key.partition("/")[2]
            spec = self.pod(name)["spec"]
            if not spec.get("schedulingGates"):
                out[name] = spec["nodeSelector"].get(HOST, "")
        return out
