"""The simulated DaemonSet controller: one pod per matching node.  A changed template affects new pods only."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from kqueue.clock import Clock
from kqueue.errors import NotFoundError
from kqueue.kube.names import NOT_READY_TAINT, UNREACHABLE_TAINT, UNSCHEDULABLE_TAINT
from kqueue.kube.taints import untolerated_taint
from kqueue.sandbox.api import DAEMONSETS, PODS, Api, Object
from kqueue.sandbox.controller_loop import ControllerLoop
from kqueue.sandbox.job_status import changed_fields, is_ready
from kqueue.sandbox.json_object import (
    controller_of,
    controller_reference,
    is_deleting,
    is_terminal,
    key_of,
    split_key,
    uid_of,
)
from kqueue.sandbox.matching import named_node, selects, taints_of, tolerations_of
from kqueue.sandbox.mirror import Mirror

_GATHERING_SECONDS = 0.2  # delay that batches events of pods and nodes, because a round checks all nodes
_MOST_AT_ONCE = 64
_TOLERATIONS: tuple[Object, ...] = (
    {"key": NOT_READY_TAINT, "operator": "Exists", "effect": "NoExecute"},
    {"key": UNREACHABLE_TAINT, "operator": "Exists", "effect": "NoExecute"},
    *(
        {"key": key, "operator": "Exists", "effect": "NoSchedule"}
        for key in (
            NOT_READY_TAINT,
            UNREACHABLE_TAINT,
            UNSCHEDULABLE_TAINT,
            "node.kubernetes.io/disk-pressure",
            "node.kubernetes.io/memory-pressure",
            "node.kubernetes.io/pid-pressure",
        )
    ),
)
"""Tolerations that Kubernetes adds to every pod of a DaemonSet."""


class DaemonSetController:
    """Keeps one pod of every DaemonSet on every node whose labels and taints its template accepts."""

    def __init__(self, api: Api, *, daemon_sets: Mirror, pods: Mirror, nodes: Mirror, clock: Clock) -> None:
        self._api = api
        self._daemon_sets, self._pods, self._nodes = daemon_sets, pods, nodes
        self.loop = ControllerLoop("daemon set", self._reconcile, clock=clock)
        pods.add_index("daemon set", _daemon_set_uid)
        daemon_sets.on_change(self._on_daemon_set)
        pods.on_change(self._on_pod)
        nodes.on_change(self._on_node)

    async def run(self) -> None:
        """Run DaemonSets until cancelled."""
        for mirror in (self._daemon_sets, self._pods, self._nodes):
            await mirror.synced.wait()
        await self.loop.run()

    def _on_daemon_set(self, old: Object | None, new: Object | None) -> None:
        if new is not None and (old is None or old["spec"] != new["spec"] or is_deleting(new)):
            self.loop.add(key_of(new))

    def _on_pod(self, old: Object | None, new: Object | None) -> None:
        pod = new or old
        assert pod is not None
        owner = controller_of(pod)
        if owner is not None and owner.get("kind") == "DaemonSet":
            self.loop.add_after(f"{pod['metadata']['namespace']}/{owner['name']}", _GATHERING_SECONDS)

    def _on_node(self, old: Object | None, new: Object | None) -> None:
        if old is not None and new is not None and _place(old) == _place(new):
            return
        for key in self._daemon_sets.all():
            self.loop.add_after(key, _GATHERING_SECONDS)

    async def _reconcile(self, key: str) -> None:
        namespace, name = split_key(key)
        try:
            daemon_set = self._api.get(DAEMONSETS, name, namespace=namespace)
        except NotFoundError:
            return
        if is_deleting(daemon_set):
            return
        hosts = self._hosts(daemon_set)
        present = {_node_of(pod): pod for pod in self._pods.by("daemon set", uid_of(daemon_set)).values()}
        leaving = [pod for node, pod in present.items() if node not in hosts or is_terminal(pod)]
        await _some_at_a_time([self._delete(pod) for pod in leaving if not is_deleting(pod)])
        missing = [node for node in hosts if node not in present]
        await _some_at_a_time([self._create(daemon_set, node) for node in missing])
        await self._write_status(daemon_set, hosts)

    def _hosts(self, daemon_set: Object) -> dict[str, None]:
        """Return the nodes that should have a pod, in the order of their creation."""
        pod = new_pod(daemon_set, None)
        tolerations = tolerations_of(pod)
        return {
            name: None
            for name, node in self._nodes.all().items()
            if selects(pod, name, node["metadata"].get("labels") or {})
            and untolerated_taint(taints_of(node), tolerations) is None
        }

    async def _create(self, daemon_set: Object, node: str) -> None:
        namespace = daemon_set["metadata"]["namespace"]
        self._pods.remember(await self._api.create(PODS, new_pod(daemon_set, node), namespace=namespace))

    async def _delete(self, pod: Object) -> None:
        namespace, name = split_key(key_of(pod))
        try:
            await self._api.delete(PODS, name, namespace=namespace)
        except NotFoundError:
            return

    async def _write_status(self, daemon_set: Object, hosts: dict[str, None]) -> None:
        pods = [pod for pod in self._pods.by("daemon set", uid_of(daemon_set)).values() if not is_deleting(pod)]
        placed = [pod for pod in pods if _node_of(pod) in hosts]
        ready = sum(map(is_ready, placed))
        wanted = {
            "observedGeneration": daemon_set["metadata"].get("generation"),
            "desiredNumberScheduled": len(hosts),
            "currentNumberScheduled": len(placed),
            "updatedNumberScheduled": len(placed),
            "numberMisscheduled": len(pods) - len(placed),
            "numberReady": ready,
            "numberAvailable": ready or None,
            "numberUnavailable": len(hosts) - ready or None,
        }
        changes = changed_fields(daemon_set.get("status") or {}, wanted)
        if changes:
            namespace, name = split_key(key_of(daemon_set))
            await self._api.patch(DAEMONSETS, name, {"status": changes}, namespace=namespace, subresource="status")


def new_pod(daemon_set: Object, node: str | None) -> Object:
    """Return the pod for one node, with an affinity to it as in Kubernetes; `node` None: without that affinity."""
    template = daemon_set["spec"]["template"]
    metadata, spec = template.get("metadata") or {}, dict(template.get("spec") or {})
    spec["tolerations"] = [*(spec.get("tolerations") or ()), *_TOLERATIONS]
    if node is not None:
        spec["affinity"] = _bound_to(node, spec.get("affinity") or {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{daemon_set['metadata']['name']}-",
            "namespace": daemon_set["metadata"]["namespace"],
            "labels": dict(metadata.get("labels") or {}),
            **({"annotations": dict(metadata["annotations"])} if metadata.get("annotations") else {}),
            "ownerReferences": [controller_reference({"apiVersion": "apps/v1", "kind": "DaemonSet", **daemon_set})],
        },
        "spec": spec,
    }


def _bound_to(node: str, affinity: Object) -> Object:
    """Return the affinity with its required terms replaced by the node's name; the terms were checked before."""
    rule = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchFields": [rule]}]}
    chosen = {**(affinity.get("nodeAffinity") or {}), "requiredDuringSchedulingIgnoredDuringExecution": required}
    return {**affinity, "nodeAffinity": chosen}


def _node_of(pod: Object) -> str:
    return pod["spec"].get("nodeName") or named_node(pod) or ""


def _daemon_set_uid(pod: Object) -> str | None:
    owner = controller_of(pod)
    return str(owner["uid"]) if owner is not None and owner.get("kind") == "DaemonSet" else None


def _place(node: Object) -> tuple[object, object]:
    return (node["metadata"].get("labels"), (node.get("spec") or {}).get("taints"))


async def _some_at_a_time(writes: list[Coroutine[Any, Any, None]]) -> None:
    slots = asyncio.Semaphore(_MOST_AT_ONCE)

    async def one(write: Coroutine[Any, Any, None]) -> None:
        async with slots:
            await write

    results = await asyncio.gather(*map(one, writes), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
