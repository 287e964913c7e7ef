"""Checks the configuration of the cluster: queues, flavors, labels of nodes, pods that no controller will release."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import msgspec

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock, api_time, utc_text
from kqueue.config import Timings
from kqueue.controllers.leftovers import GATES
from kqueue.controllers.resources import (
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    NODES,
    PODS,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
    WORKLOADS,
)
from kqueue.kube.conditions import condition, is_true
from kqueue.kube.names import CONDITION_READY
from kqueue.model import PodView
from kqueue.operations.checkup.flavors import being_deleted, room
from kqueue.operations.checkup.values import CheckVerdict, failed, many, ok, skipped, warning
from kqueue.operations.node_labels.findings import find
from kqueue.operations.node_labels.reading import read_nodes, read_topologies
from kqueue.runtime.client import Client
from kqueue.state.not_running import NotRunning, not_running

JSON = dict[str, Any]
_SHOWN = 10
_RELEASED = timedelta(seconds=Timings().pods_not_running_after)
_FRESH = timedelta(seconds=60)
"""Age below which a pod may still wait for the creation of its Workload."""


class Tenants:
    """The checks; each is a coroutine without arguments."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client, self._clock = client, clock

    async def queues(self) -> CheckVerdict:
        """Whether ClusterQueues admit, and LocalQueues forward to an existing one."""
        cluster_queues = await self._client.list_json(CLUSTER_QUEUES)
        if not cluster_queues:
            return warning("there is no ClusterQueue yet", "create one: kqueue create clusterqueue --help")
        local_queues = await self._client.list_json(LOCAL_QUEUES)
        idle = {obj["metadata"]["name"]: _inactive(obj) for obj in cluster_queues}
        broken = [f"ClusterQueue {name}: {why}" for name, (why, stopped) in idle.items() if why and not stopped]
        paused = [f"ClusterQueue {name}: {why}" for name, (why, stopped) in idle.items() if why and stopped]
        for obj in local_queues:
            where, target = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}", obj["spec"].get("clusterQueue")
            if target not in idle:
                broken.append(f"LocalQueue {where}: its ClusterQueue {target} does not exist")
            elif obj["spec"].get("stopPolicy", "None") != "None":
                paused.append(f"LocalQueue {where}: its stopPolicy is {obj['spec']['stopPolicy']}")
        text = f"{many(len(cluster_queues), 'ClusterQueue')}, {many(len(local_queues), 'LocalQueue')}"
        if broken:
            return failed(f"{text}; {len(broken)} admit nothing", "correct the causes below", *_few(broken + paused))
        if all(why for why, _ in idle.values()):
            remedy = f"kqueue resume clusterqueue {' '.join(sorted(idle))}"
            return failed(f"{text}; all ClusterQueues are stopped, so nothing is admitted", remedy, *_few(paused))
        if paused:
            return warning(
                f"{text}; {len(paused)} are stopped",
                "kqueue resume clusterqueue NAME, when they should admit again",
                *_few(paused),
            )
        return ok(f"{text}, all active")

    async def flavors(self) -> CheckVerdict:
        """Whether each flavor has nodes that can run pods."""
        flavors = await self._client.list_json(RESOURCE_FLAVORS)
        if not flavors:
            return warning("there is no ResourceFlavor yet", "create one: kqueue create resourceflavor --help")
        topologies = await self._client.list_json(TOPOLOGIES)
        nodes = await self._client.list_json(NODES)
        used = _used_flavors(await self._client.list_json(CLUSTER_QUEUES))
        found = room(flavors, topologies, [n["metadata"].get("labels") or {} for n in nodes if _is_usable(n)])
        stuck = [*being_deleted(topologies, flavors)]
        lines = _few([*stuck, *found.empty.values()])
        if stuck or any(name in used for name in found.empty):
            text = [f"{len(found.empty)} of {len(flavors)} flavors have no usable node"] if found.empty else []
            text += [f"{many(len(stuck), 'Topology')} cannot be deleted"] if stuck else []
            return failed("; ".join(text), "label nodes, uncordon them, or correct the objects below", *lines)
        if found.empty:
            return warning(
                f"{len(found.empty)} flavors that no queue uses have no node", "delete them, or label nodes", *lines
            )
        return ok(f"{many(len(flavors), 'flavor')}, {found.usable} of {len(nodes)} nodes usable")

    async def labels(self) -> CheckVerdict:
        """Whether nodes have the labels that Topologies read."""
        topologies = await read_topologies(self._client)
        if not topologies:
            return skipped("there is no Topology")
        nodes = await read_nodes(self._client)
        found = [(t.name, f) for t in topologies for f in find(t, nodes) if not f.is_note]
        if not found:
            return ok(f"{many(len(topologies), 'Topology')}, nothing is odd")
        return warning(
            f"{many(len(found), 'oddity')} of labels",
            "kqueue topology labels lists the nodes and the commands that correct them",
            *_few(f"{name}: {finding.text}" for name, finding in found),
        )

    async def leftovers(self) -> CheckVerdict:
        """Whether pods have a gate of ours but no Workload that could release them."""
        pods = [pod for pod in await self._client.list_json(PODS) if self._is_held(pod)]
        if not pods:
            return ok("no pod is gated without a Workload")
        known = _Known(await self._client.list_json(WORKLOADS))
        lost = [pod for pod in pods if not known.may_release(pod)]
        if not lost:
            return ok(f"{len(pods)} pods are gated, each waits for a Workload")
        where = Counter(pod["metadata"]["namespace"] for pod in lost)
        return failed(
            f"{len(lost)} pods are gated, and have no Workload that could release them",
            "delete them, or release all pods of a namespace: kqueue uninstall --release --namespace NAME",
            *_few(f"namespace {namespace}: {count} pods" for namespace, count in where.most_common()),
        )

    async def pods(self) -> CheckVerdict:
        """Whether the released pods of admitted Workloads run."""
        views = defaultdict[str, list[PodView]](list)
        for pod in await self._client.list_json(PODS):
            if pod["spec"].get("nodeName"):
                continue
            view = model.pod_view(msgspec.convert(pod, wire_core.Pod, strict=False))
            if view.unbound is not None:
                views[view.unbound.siblings].append(view)
        found = list[NotRunning]()
        for obj in await self._client.list_json(WORKLOADS) if views else ():
            workload = msgspec.convert(obj, wire.Workload, strict=False)
            pods = views.get(model.siblings_key(workload), ())
            found += not_running(workload, pods, controllers=None, now=self._clock.now(), after=_RELEASED)
        if not found:
            return ok("all released pods of admitted Workloads have nodes")
        return warning(
            f"{many(len(found), 'pod')} of admitted Workloads do not run: the scheduler finds no node",
            "change what the pods ask for beyond topology (host ports, affinity, volumes), or free the nodes",
            *_few(f"{pod.key} since {utc_text(pod.since)}: {pod.message}" for pod in found),
        )

    def _is_held(self, pod: JSON) -> bool:
        metadata, made = pod["metadata"], api_time(pod["metadata"].get("creationTimestamp"))
        if metadata.get("deletionTimestamp") or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return False
        is_old = made is None or self._clock.now() - made > _FRESH
        return is_old and any(gate["name"] in GATES for gate in pod["spec"].get("schedulingGates") or ())


class _Known:
    """Workloads that may still release pods: unfinished ones."""

    def __init__(self, workloads: Iterable[JSON]) -> None:
        self._names: set[tuple[str, str]] = set()
        self._owners: set[str] = set()
        for workload in workloads:
            if is_true(workload, names.CONDITION_FINISHED):
                continue
            metadata = workload["metadata"]
            self._names.add((metadata["namespace"], metadata["name"]))
            self._owners.update(owner["uid"] for owner in metadata.get("ownerReferences") or ())

    def may_release(self, pod: JSON) -> bool:
        """Whether a Workload of the pod is unfinished: by its annotation, its group, itself or its owner."""
        metadata = pod["metadata"]
        notes, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
        text = (
            notes.get(names.WORKLOAD_ANNOTATION),
            notes.get(names.POD_GROUP_NAME_LABEL) or labels.get(names.POD_GROUP_NAME_LABEL),
        )
        if any(name and (metadata["namespace"], name) in self._names for name in text):
            return True
        owners = {metadata["uid"], *(owner["uid"] for owner in metadata.get("ownerReferences") or ())}
        return bool(owners & self._owners)


def _inactive(obj: JSON) -> tuple[str, bool]:
    """Return why a ClusterQueue admits nothing (empty: it admits), and whether an administrator stopped it."""
    active = condition(obj, names.CONDITION_ACTIVE)
    if active is None:
        return "no controller has looked at it yet", False
    return ("" if active["status"] == "True" else active["message"]), active["reason"] == names.REASON_STOPPED


def _used_flavors(cluster_queues: Iterable[JSON]) -> set[str]:
    return {
        flavor["name"]
        for obj in cluster_queues
        for group in obj["spec"].get("resourceGroups") or ()
        for flavor in group.get("flavors") or ()
    }


def _is_usable(node: JSON) -> bool:
    ready = is_true(node, CONDITION_READY)
    return ready and not node.get("spec", {}).get("unschedulable")


def _few(lines: Iterable[str]) -> list[str]:
    found = list(lines)
    return [*found[:_SHOWN], *([f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else [])]
