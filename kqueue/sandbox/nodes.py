"""Simulated nodes: created from blueprints, with heartbeats, failures on request, taints, and eviction of pods.

- The annotation `sandbox.kqueue.dev/fail: "true"` on a node makes it not ready; without it, the node comes back.
- A Ready condition that a user writes is kept: the node stays so until it is written again.
- A node that is not ready has the taints of the node lifecycle controller, a cordoned node the one of `kubectl cordon`.
- NoExecute taints evict pods, after their toleration's time.  Pods of a deleted node are removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import structlog

from kqueue.clock import Clock
from kqueue.errors import AlreadyExistsError, ApiError, NotFoundError
from kqueue.kube.conditions import condition, with_conditions
from kqueue.kube.names import CONDITION_READY, HOSTNAME_LABEL, NOT_READY_TAINT, UNREACHABLE_TAINT, UNSCHEDULABLE_TAINT
from kqueue.kube.taints import tolerates
from kqueue.sandbox.api import NODES, PODS, Api, Object
from kqueue.sandbox.controller_loop import ControllerLoop
from kqueue.sandbox.json_object import annotation, is_deleting, is_terminal, key_of, split_key, stamp, uid_of
from kqueue.sandbox.kubelet import is_alive
from kqueue.sandbox.matching import taint_json, taint_of, toleration_of
from kqueue.sandbox.mirror import Mirror
from kqueue.sandbox.names import FAIL_ANNOTATION
from kqueue.sandbox.topology_spec import ClusterSpec, NodeBlueprint

KUBELET_VERSION = "v1.36.3"
_UNASKED_TOLERATION_SECONDS = 300.0
"""Time that a pod without own tolerations may stay on a node that is not ready, as in Kubernetes."""
_ORPHAN_SECONDS = 5.0
"""Time until pods of a deleted node are removed; Kubernetes waits 40 s."""
_OWN_TAINTS = (NOT_READY_TAINT, UNREACHABLE_TAINT, UNSCHEDULABLE_TAINT)
_BATCH = 250
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """`heartbeat_seconds` is the interval of each node's heartbeats; 0: none.  Kubelets write one every 5 minutes."""

    heartbeat_seconds: float = 300.0


async def create_nodes(api: Api, spec: ClusterSpec, clock: Clock) -> int:
    """Create the missing nodes of `spec`, ready from the start; return their number."""
    made = 0
    for number, blueprint in enumerate(spec.blueprints()):
        if number % _BATCH == _BATCH - 1:
            await asyncio.sleep(0)
        node = new_node(blueprint, number=number, now=stamp(clock.now()))
        try:
            stored = await api.create(NODES, node)
        except AlreadyExistsError:
            continue
        made += 1
        if not (stored.get("status") or {}).get("allocatable"):
            await api.patch(NODES, blueprint.name, {"status": node["status"]}, subresource="status")
    return made


def new_node(blueprint: NodeBlueprint, *, number: int, now: str) -> Object:
    """Return the Node object of a blueprint, with the status that its kubelet reports."""
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        HOSTNAME_LABEL: blueprint.name,
        **blueprint.labels,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": blueprint.name, "labels": labels},
        "spec": {
            "providerID": f"simulated://{blueprint.name}",
            **({"taints": [taint_json(taint) for taint in blueprint.taints]} if blueprint.taints else {}),
        },
        "status": {
            "capacity": dict(blueprint.allocatable),
            "allocatable": dict(blueprint.allocatable),
            "conditions": _healthy(now),
            "addresses": [
                {"type": "InternalIP", "address": f"10.{number >> 16 & 127}.{number >> 8 & 255}.{number & 255}"},
                {"type": "Hostname", "address": blueprint.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "kernelVersion": "simulated",
                "osImage": "kqueue sandbox",
                "containerRuntimeVersion": "simulated://1",
                "kubeletVersion": KUBELET_VERSION,
                "kubeProxyVersion": "",
                "bootID": "",
                "machineID": "",
                "systemUUID": "",
            },
        },
    }


class NodeLifecycle:
    """Sets readiness and taints of all nodes as requested, and evicts their pods."""

    def __init__(self, api: Api, *, pods: Mirror, nodes: Mirror, clock: Clock, options: NodeOptions) -> None:
        self._api, self._clock, self._options = api, clock, options
        self._pods, self._nodes = pods, nodes
        self.nodes_loop = ControllerLoop("node lifecycle", self._reconcile_node, clock=clock)
        self.pods_loop = ControllerLoop("pod eviction", self._reconcile_pod, clock=clock)
        self._driving: dict[str, dict[str, float]] = {}  # node -> NoExecute taint -> monotonic time of its start
        nodes.on_change(self._on_node)
        pods.on_change(self._on_pod)

    async def run(self) -> None:
        """Run until cancelled."""
        await self._pods.synced.wait()
        await self._nodes.synced.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.nodes_loop.run())
            group.create_task(self.pods_loop.run())
            if self._options.heartbeat_seconds > 0:
                group.create_task(self._beat())

    def _on_node(self, old: Object | None, new: Object | None) -> None:
        name = (new or old or {})["metadata"]["name"]
        self._note_taints(name, [] if new is None else _taints(new))
        if new is not None and _facts(new) != (None if old is None else _facts(old)):
            self.nodes_loop.add(name)
        if new is None or old is None or _taints(new) != _taints(old) or is_alive(new) != is_alive(old):
            for key in self._pods.by("node", name):
                self._look_at_pod(key, gone=new is None)

    def _note_taints(self, name: str, taints: list[Object]) -> None:
        known, now = self._driving.pop(name, {}), self._clock.monotonic()
        noted = {str(taint): known.get(str(taint), now) for taint in taints if taint.get("effect") == "NoExecute"}
        if noted:
            self._driving[name] = noted

    def _on_pod(self, old: Object | None, new: Object | None) -> None:
        if new is None or (old is not None and old["spec"].get("nodeName") == new["spec"].get("nodeName")):
            return
        name = new["spec"].get("nodeName")
        if name:
            node = self._nodes.get(name)
            if node is None or _taints(node):
                self._look_at_pod(key_of(new), gone=node is None)

    def _look_at_pod(self, key: str, *, gone: bool) -> None:
        self.pods_loop.add_after(key, _ORPHAN_SECONDS if gone else 0)

    async def _reconcile_node(self, name: str) -> None:
        try:
            node = self._api.get(NODES, name)
            wanted = annotation(node, FAIL_ANNOTATION) == "true"
            if wanted and is_alive(node):
                node = await self._set_ready(node, ready=False)
            elif not wanted and _failed_on_request(node):
                node = await self._set_ready(node, ready=True)
            taints = _wanted_taints(node)
            if taints != _taints(node):
                lock = {"resourceVersion": node["metadata"]["resourceVersion"]}
                patch = {"metadata": lock, "spec": {"taints": taints or None}}
                self._nodes.remember(await self._api.patch(NODES, name, patch))
        except NotFoundError:
            return

    async def _set_ready(self, node: Object, *, ready: bool) -> Object:
        change = {
            "type": CONDITION_READY,
            "status": "True" if ready else "False",
            "reason": "KubeletReady" if ready else _ON_REQUEST,
            "message": "the simulated kubelet works" if ready else f"the annotation {FAIL_ANNOTATION} asks for it",
            "lastHeartbeatTime": stamp(self._clock.now()),
        }
        return await self._write_conditions(node, [change])

    async def _write_conditions(self, node: Object, changes: list[Object]) -> Object:
        present = (node.get("status") or {}).get("conditions") or []
        conditions = with_conditions(present, changes, stamp(self._clock.now()))
        lock = {"resourceVersion": node["metadata"]["resourceVersion"]}
        patch = {"metadata": lock, "status": {"conditions": conditions}}
        written = await self._api.patch(NODES, node["metadata"]["name"], patch, subresource="status")
        self._nodes.remember(written)
        return written

    async def _reconcile_pod(self, key: str) -> float | None:
        """Remove a pod whose node was deleted or has a NoExecute taint; mark a pod on a failed node as not ready."""
        namespace, name = split_key(key)
        try:
            pod = self._api.get(PODS, name, namespace=namespace)
            node = self._nodes.get(pod["spec"].get("nodeName") or "")
            if node is None:
                if pod["spec"].get("nodeName"):
                    await self._remove_orphan(pod)
                return None
            if is_terminal(pod):
                return None
            if not is_alive(node):
                pod = await self._mark_not_ready(pod)
            return await self._evict_if_due(pod, node)
        except NotFoundError:
            return None

    async def _evict_if_due(self, pod: Object, node: Object) -> float | None:
        left = self._stay_seconds(pod, node)
        if left is None or is_deleting(pod):
            return None
        if left > 0:
            return left
        namespace, name = split_key(key_of(pod))
        why = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": f"node {node['metadata']['name']} has a NoExecute taint that the pod does not tolerate",
        }
        await self._write_pod(pod, {}, [why])
        await self._api.delete(PODS, name, namespace=namespace)
        return None

    def _stay_seconds(self, pod: Object, node: Object) -> float | None:
        """Return seconds that the pod may stay under the node's NoExecute taints; None: for ever, 0 or less: over."""
        since, now = self._driving.get(node["metadata"]["name"], {}), self._clock.monotonic()
        ends = []
        for taint in _taints(node):
            granted = _tolerated_seconds(pod, taint) if taint.get("effect") == "NoExecute" else None
            if granted is not None:
                ends.append(since.get(str(taint), now) + granted - now)
        return min(ends) if ends else None

    async def _remove_orphan(self, pod: Object) -> None:
        namespace, name = split_key(key_of(pod))
        if not is_terminal(pod):
            why = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "DeletionByPodGC",
                "message": f"node {pod['spec']['nodeName']} no longer exists",
            }
            await self._write_pod(pod, {"phase": "Failed"}, [why])
        await self._api.delete(PODS, name, namespace=namespace, grace_period_seconds=0)

    async def _mark_not_ready(self, pod: Object) -> Object:
        ready = condition(pod, CONDITION_READY)
        if ready is None or ready.get("status") != "True":
            return pod
        return await self._write_pod(pod, {}, [{"type": CONDITION_READY, "status": "False"}])

    async def _write_pod(self, pod: Object, status: dict[str, Any], changes: list[Object]) -> Object:
        namespace, name = split_key(key_of(pod))
        present = (pod.get("status") or {}).get("conditions") or []
        conditions = with_conditions(present, changes, stamp(self._clock.now()))
        lock = {"resourceVersion": pod["metadata"]["resourceVersion"], "uid": uid_of(pod)}
        patch = {"metadata": lock, "status": {**status, "conditions": conditions}}
        written = await self._api.patch(PODS, name, patch, namespace=namespace, subresource="status")
        self._pods.remember(written)
        return written

    async def _beat(self) -> None:
        """Write heartbeats evenly spread, one per node and interval."""
        while True:
            names = [name for name, node in self._nodes.all().items() if is_alive(node)]
            pause = self._options.heartbeat_seconds / max(len(names), 1)
            for name in names:
                await self._clock.sleep(pause)
                await self._heartbeat(name)
            if not names:
                await self._clock.sleep(pause)

    async def _heartbeat(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is None or not is_alive(node):
            return
        now = stamp(self._clock.now())
        present = node["status"].get("conditions") or []
        try:
            await self._write_conditions(node, [{**entry, "lastHeartbeatTime": now} for entry in present])
        except ApiError as error:
            log.debug("heartbeat left out", node=name, error=str(error))


_ON_REQUEST = "FailedOnRequest"


def _healthy(now: str) -> list[Object]:
    facts = (
        (CONDITION_READY, "True", "KubeletReady", "the simulated kubelet works"),
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "simulated"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "simulated"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "simulated"),
    )
    return [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        for kind, status, reason, message in facts
    ]


def _taints(node: Object) -> list[Object]:
    return list((node.get("spec") or {}).get("taints") or [])


def _facts(node: Object) -> tuple[object, ...]:
    """Return the fields that the lifecycle depends on, without heartbeats."""
    ready = condition(node, CONDITION_READY) or {}
    cordoned = bool((node.get("spec") or {}).get("unschedulable"))
    return (ready.get("status"), annotation(node, FAIL_ANNOTATION), cordoned, str(_taints(node)))


def _failed_on_request(node: Object) -> bool:
    ready = condition(node, CONDITION_READY)
    return ready is not None and ready.get("status") == "False" and ready.get("reason") == _ON_REQUEST


def _wanted_taints(node: Object) -> list[Object]:
    """Return foreign taints unchanged, then the taints for readiness and cordon."""
    ready = condition(node, CONDITION_READY) or {}
    state = ready.get("status")
    wanted: list[tuple[str, str]] = []
    if state != "True":
        key = NOT_READY_TAINT if state == "False" else UNREACHABLE_TAINT
        wanted += [(key, "NoSchedule"), (key, "NoExecute")]
    if (node.get("spec") or {}).get("unschedulable"):
        wanted.append((UNSCHEDULABLE_TAINT, "NoSchedule"))
    present = _taints(node)
    kept = [t for t in present if t.get("key") not in _OWN_TAINTS or (t.get("key"), t.get("effect")) in wanted]
    there = {(t.get("key"), t.get("effect")) for t in kept}
    return kept + [{"key": key, "effect": effect} for key, effect in wanted if (key, effect) not in there]


def _tolerated_seconds(pod: Object, taint: Object) -> float | None:
    """Return seconds that the pod tolerates the taint: None for ever, 0 not at all."""
    matching: Iterable[Object] = [
        each for each in pod["spec"].get("tolerations") or () if tolerates(toleration_of(each), taint_of(taint))
    ]
    limits = [t.get("tolerationSeconds") for t in matching]
    if not limits:
        return _UNASKED_TOLERATION_SECONDS if taint.get("key") in (NOT_READY_TAINT, UNREACHABLE_TAINT) else 0.0
    given = [float(limit) for limit in limits if limit is not None]
    return min(given) if len(given) == len(limits) else None
