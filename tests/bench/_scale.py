"""The world of `load/scale`: its numbers, and the process that holds it: the sandbox's API server, kubelets and jobs."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.core.topology import Domain, TopologyAssignment, encode
from kqueue.runtime.loop import run
from kqueue.sandbox.api import NAMESPACES, NODES, PODS, Object
from kqueue.sandbox.cluster import Sandbox
from kqueue.sandbox.nodes import new_node
from kqueue.sandbox.registry import ServedKind
from kqueue.sandbox.store import StoreChange
from kqueue.sandbox.topology_spec import parse_topology
from tests.bench._planted import NOW, Planted, condition, ours, serve

GPUS = 8
"""Of a node, and of each Workload."""
GPU, HOST = "nvidia.com/gpu", "kubernetes.io/hostname"
RACK, BLOCK = "cloud.provider.com/topology-rack", "cloud.provider.com/topology-block"
POOL = "pool"
BLOCKS, PLACED_BLOCKS, RACKS = 15, 10, 10
"""Blocks in all, blocks whose nodes are in the topology, racks of a block.  A rack has as many hosts as there are cohorts."""
QUEUES, RUNNING, PENDING, FOREIGN = 10, 10, 50, 2
"""ClusterQueues of a cohort; Workloads that run in a ClusterQueue; that wait in a full one; pods of others on a node."""
SPARE = 8
"""Workloads that fit into an open ClusterQueue beside those that run."""


class Form(NamedTuple):
    """What a Workload asks for: so many pods of so many GPUs, in a ClusterQueue with topology within one `level`."""

    pods: int
    gpus: int
    level: str


FORMS = (Form(1, 8, HOST), Form(2, 4, RACK))
RUNNING_FORM = Form(8, 1, HOST)


@dataclass(frozen=True, slots=True)
class Scale:
    """How large it is; with 100 cohorts as the module of the row says."""

    cohorts: int

    @property
    def full_cohorts(self) -> int:
        """Four of five: their ClusterQueues have no free quota, and others wait there."""
        return max(1, self.cohorts * 4 // 5)

    @property
    def full(self) -> list[str]:
        """ClusterQueues without free quota."""
        return [self.queue(number) for number in range(self.full_cohorts * QUEUES)]

    @property
    def open(self) -> list[str]:
        """ClusterQueues with free quota, in which nothing waits."""
        return [self.queue(number) for number in range(self.full_cohorts * QUEUES, self.cohorts * QUEUES)]

    @property
    def hosts(self) -> int:
        """Nodes in the topology."""
        return PLACED_BLOCKS * RACKS * self.cohorts

    @property
    def nodes(self) -> int:
        """All nodes."""
        return BLOCKS * RACKS * self.cohorts

    @property
    def pods(self) -> int:
        """Pods of running Workloads, and of others."""
        return self.cohorts * QUEUES * RUNNING * RUNNING_FORM.pods + FOREIGN * self.hosts

    def nominal(self, queue: str) -> int:
        """GPUs of a ClusterQueue."""
        return GPUS * (RUNNING + (SPARE if number_of(queue) >= self.full_cohorts * QUEUES else 0))

    @staticmethod
    def queue(number: int) -> str:
        """The name of a ClusterQueue, of its namespace, and of the LocalQueue there."""
        return f"q-{number:04}"

    @staticmethod
    def cohort(queue: str) -> str:
        """Of a ClusterQueue."""
        return f"cohort-{number_of(queue) // QUEUES:02}"

    @staticmethod
    def placed(queue: str) -> bool:
        """Whether it has a topology: every second one."""
        return number_of(queue) % 2 == 0


def number_of(queue: str) -> int:
    """What `Scale.queue` was given."""
    return int(queue.rpartition("-")[2])


def spec_of(form: Form, *, placed: bool) -> Object:
    """The spec of a Workload."""
    amounts = {GPU: str(form.gpus)}
    container = {"name": "main", "image": "registry.example.dev/train:v1", "command": ["train", "--config", "c"],
                 "env": [{"name": f"SETTING_{i}", "value": "v" * 20} for i in range(10)],
                 "resources": {"requests": amounts, "limits": amounts}}  # fmt: skip
    template = {"metadata": {"labels": {"app": "train"}}, "spec": {"containers": [container], "restartPolicy": "Never"}}
    pod_set: Object = {"name": "main", "count": form.pods, "template": template}
    if placed:
        pod_set["topologyRequest"] = {"required": form.level}
    return {"queueName": "main", "active": True, "priority": 0, "podSets": [pod_set]}


def waiting_since(number: int) -> str:
    """When the Workload of this number in a full ClusterQueue was made; a lower number is older."""
    return (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number)).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- the process


class ScaleWorld(Planted):
    """Everything that is there at the start, and kubelets: pods begin with an admission and end with their Workload."""

    def __init__(self, sandbox: Sandbox, scale: Scale) -> None:
        super().__init__(sandbox)
        self._scale = scale
        self._plain: deque[str] = deque()
        """Nodes outside of the topology, the next one to be used first."""
        self._pods: dict[str, list[str]] = {}
        """Names of pods by key of their Workload."""
        self._todo: deque[tuple[str, Object]] = deque()

    def fill(self) -> None:
        """Everything; takes seconds."""
        hosts = self._make_nodes()
        self._make_queues()
        used = iter(hosts[::2])  # every other one
        for number in range(self._scale.cohorts * QUEUES):
            queue = Scale.queue(number)
            for index in range(RUNNING):
                self._make_running(queue, f"runs-{index:02}", next(used) if Scale.placed(queue) else None)
        status = {"conditions": [condition("QuotaReserved", holds=False, reason="WaitingForQuota")]}
        for queue in self._scale.full:
            for index in range(PENDING):
                self._make_workload(queue, f"waits-{index:04}", FORMS[index % 2], status, since=waiting_since(index))
        self.api.listen(self._look)

    def _make_nodes(self) -> list[str]:
        spec = parse_topology(f"{BLOCKS}x{RACKS}x{self._scale.cohorts}")
        hosts: list[str] = []
        for number, blueprint in enumerate(spec.blueprints()):
            node = new_node(blueprint, number=number, now=NOW)
            placed = number < self._scale.hosts
            labels = node["metadata"]["labels"] | {POOL: "placed" if placed else "plain"}
            self.put(NODES, blueprint.name, {k: node[k] for k in ("spec", "status")}, labels=labels)
            (hosts if placed else self._plain).append(blueprint.name)
        for host in hosts:
            for index in range(FOREIGN):
                self._make_pod("default", f"agent-{host}-{index}", host, {"cpu": "500m"}, {"app": "agent"}, {})
        return hosts

    def _make_queues(self) -> None:
        levels = [{"nodeLabel": label} for label in (BLOCK, RACK, HOST)]
        self.put(ours("topologies"), "dc", {"spec": {"levels": levels}})
        self.put(ours("resourceflavors"), "placed", {"spec": {"nodeLabels": {POOL: "placed"}, "topologyName": "dc"}})
        self.put(ours("resourceflavors"), "plain", {"spec": {"nodeLabels": {POOL: "plain"}}})
        for number in range(self._scale.cohorts):
            self.put(ours("cohorts"), f"cohort-{number:02}", {"spec": {}})
        for queue in self._scale.full + self._scale.open:
            quota = {"name": GPU, "nominalQuota": str(self._scale.nominal(queue))}
            flavor = {"name": "placed" if Scale.placed(queue) else "plain", "resources": [quota]}
            spec = {"cohortName": Scale.cohort(queue), "namespaceSelector": {},
                    "resourceGroups": [{"coveredResources": [GPU], "flavors": [flavor]}],
                    "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}}  # fmt: skip
            self.put(ours("clusterqueues"), queue, {"spec": spec, "status": {}})
            labels = {"kubernetes.io/metadata.name": queue}
            self.put(NAMESPACES, queue, {"spec": {}, "status": {"phase": "Active"}}, labels=labels)
            self.put(ours("localqueues"), "main", {"spec": {"clusterQueue": queue}, "status": {}}, queue)

    def _make_workload(self, queue: str, name: str, form: Form, status: Object, *, since: str = NOW) -> None:
        obj = {"spec": spec_of(form, placed=Scale.placed(queue)), "status": status}
        finalizers = ["kueue.x-k8s.io/resource-in-use"]
        self.put(ours("workloads"), name, obj, queue, finalizers=finalizers, creationTimestamp=since)

    def _make_running(self, queue: str, name: str, host: str | None) -> None:
        """Eight pods, all on one host where the ClusterQueue has a topology."""
        flavor = "plain" if host is None else "placed"
        entry = {"name": "main", "flavors": {GPU: flavor}, "resourceUsage": {GPU: str(GPUS)}, "count": GPUS}
        if host is not None:
            entry["topologyAssignment"] = encode(TopologyAssignment((HOST,), (Domain((host,), GPUS),)))
        status = {"conditions": [condition(kind) for kind in ("QuotaReserved", "Admitted", "PodsReady")],
                  "admission": {"clusterQueue": queue, "podSetAssignments": [entry]}}  # fmt: skip
        self._make_workload(queue, name, RUNNING_FORM, status)
        self._start(queue, name, RUNNING_FORM, [host or self._next_plain()] * GPUS)

    def _start(self, queue: str, name: str, form: Form, hosts: Iterable[str]) -> None:
        made = self._pods[f"{queue}/{name}"] = []
        for rank, host in enumerate(hosts):
            notes = {"kueue.x-k8s.io/workload": name, "kueue.x-k8s.io/podset-required-topology": form.level}
            labels = {"kueue.x-k8s.io/podset": "main", "kueue.x-k8s.io/queue-name": "main",
                      "batch.kubernetes.io/job-completion-index": str(rank)}  # fmt: skip
            made.append(f"{name}-{rank}")
            self._make_pod(queue, made[-1], host, {GPU: str(form.gpus)}, labels, notes)

    def _make_pod(
        self,
        namespace: str,
        name: str,
        host: str,
        amounts: Mapping[str, str],
        labels: Mapping[str, str],
        notes: Mapping[str, str],
    ) -> None:
        container = {"name": "main", "image": "registry.example.dev/train:v1", "command": ["train"],
                     "resources": {"requests": dict(amounts)}}  # fmt: skip
        spec = {"nodeName": host, "restartPolicy": "Never", "containers": [container]}
        ready = [{"type": "Ready", "status": "True", "lastTransitionTime": NOW}]
        obj = {"spec": spec, "status": {"phase": "Running", "conditions": ready}}
        self.put(PODS, name, obj, namespace, labels=dict(labels), annotations=dict(notes))

    def _next_plain(self) -> str:
        self._plain.rotate(-1)
        return self._plain[-1]

    # --- kubelets and jobs

    def _look(self, kind: ServedKind, change: StoreChange) -> None:
        """Note what a change of a Workload means for its pods; nothing may be written in this call."""
        if kind.kind != "Workload" or change.record is None:
            return
        obj = change.record.obj
        key = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
        holding = {c["type"] for c in obj.get("status", {}).get("conditions", ()) if c["status"] == "True"}
        if "Finished" in holding and key in self._pods:
            self._later("end", obj)
        elif "Admitted" in holding and "Finished" not in holding and key not in self._pods:
            self._pods[key] = []
            self._later("start", obj)

    def _later(self, what: str, obj: Object) -> None:
        if not self._todo:
            asyncio.get_running_loop().call_soon(self._work)
        self._todo.append((what, obj))

    def _work(self) -> None:
        while self._todo:
            what, obj = self._todo.popleft()
            queue, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
            if what == "start":
                [pod_set] = obj["spec"]["podSets"]
                gpus = int(pod_set["template"]["spec"]["containers"][0]["resources"]["requests"][GPU])
                self._start(queue, name, Form(pod_set["count"], gpus, RACK), self._hosts_of(obj))
            else:
                self._end(queue, name)

    def _hosts_of(self, workload: Object) -> list[str]:
        """The host of each pod of an admitted Workload."""
        [entry] = workload["status"]["admission"]["podSetAssignments"]
        stored = entry.get("topologyAssignment")
        if stored is None:
            return [self._next_plain()] * entry["count"]
        placement = msgspec.convert(stored, wire.TopologyAssignment)
        return [host for host, count in stored_hosts(placement) for _ in range(count)]

    def _end(self, queue: str, name: str) -> None:
        store = self.api.store(self.api.kind(PODS))
        for pod in self._pods.pop(f"{queue}/{name}"):
            record = store.get(queue, pod)
            if record is not None:
                store.remove(record.obj | {"metadata": dict(record.obj["metadata"])})


def stored_hosts(stored: wire.TopologyAssignment) -> Iterator[tuple[str, int]]:
    """(host, pods) of a stored placement, whose last level is that of hosts."""
    for domain in model.assignment(stored).domains:
        yield domain.values[-1], domain.count


if __name__ == "__main__":
    run(serve(Path(sys.argv[1]), lambda sandbox: ScaleWorld(sandbox, Scale(int(sys.argv[2]))).fill()))
