"""Nodes and pods by host: the hostname label of nodes, which assignments and node selectors name."""

from __future__ import annotations

from collections.abc import Iterable

from kqueue.core.topology import HOSTNAME, NodeFacts, Taint
from kqueue.kube.taints import REPELLING_EFFECTS
from kqueue.model import GangPod, PodView
from kqueue.runtime.store import Store

HOST_INDEX = "host"
PLACE_INDEX = "place"


def hosts_of_node(node: NodeFacts) -> list[str]:
    """Return the index values of a node: its host."""
    return [node.labels[HOSTNAME]] if HOSTNAME in node.labels else []


def places_of_pod(view: PodView) -> set[tuple[str, str]]:
    """Return the index values of a pod: for gang pods the host of their node selector, for all pods of Workloads their
    node.
    """
    pod = view.gang
    if pod is None:
        return {("node", node_of(view))} if node_of(view) else set()
    pinned = pod.node_selector.get(HOSTNAME)
    places = {("host", pinned)} if pinned else set()
    return places | {("node", pod.node)} if pod.node else places


def node_of(view: PodView) -> str:
    """Return the name of the node that runs a pod of a Workload.

    Empty: the pod is on no node, or names no Workload.
    """
    if view.gang is not None:
        return view.gang.node
    return view.bound.node if view.bound is not None and view.workload else ""


def repelling(node: NodeFacts) -> list[Taint]:
    """Return the taints that exclude pods from a node unless the pods tolerate them."""
    return [taint for taint in node.taints if taint.effect in REPELLING_EFFECTS]


def stuck_on(pods: Iterable[GangPod], host: str) -> list[GangPod]:
    """Return the pods that were released to the host and never bound, and that have neither ended nor are being
    deleted.
    """
    return [
        pod
        for pod in pods
        if not pod.node
        and not pod.gated
        and not pod.terminal
        and not pod.deleting
        and pod.node_selector.get(HOSTNAME) == host
    ]


class HostIndex:
    """The nodes and pods of each host, from the watches."""

    def __init__(self, nodes: Store[NodeFacts], pods: Store[PodView]) -> None:
        """Take the stores and add the indexes of this module to them."""
        self._nodes, self._pods = nodes, pods
        nodes.add_index(HOST_INDEX, hosts_of_node)
        pods.add_index(PLACE_INDEX, places_of_pod)

    def node(self, host: str) -> NodeFacts | None:
        """Return the host's node, the first by name of several; None: the host has no node."""
        nodes = self._nodes.by_index(HOST_INDEX, host)
        return min(nodes, key=lambda node: node.name) if nodes else None

    def of_node(self, name: str) -> str | None:
        """Return the host of the node with this name; None: the node is unknown or lacks the label."""
        node = self._nodes.get(name) if name else None
        return node.labels.get(HOSTNAME) if node is not None else None

    def is_troubled(self, host: str) -> bool:
        """Whether the host has no node, or its node is not ready or has a taint that excludes pods."""
        node = self.node(host)
        return node is None or not node.ready or bool(repelling(node))

    def pinned(self, host: str) -> list[GangPod]:
        """Return the gang pods whose node selector names the host."""
        return [view.gang for view in self._pods.by_index(PLACE_INDEX, ("host", host)) if view.gang is not None]

    def pods_at(self, host: str, node: NodeFacts | None) -> list[GangPod]:
        """Return the gang pods that are pinned to the host or run on its node."""
        views = {view.key: view for view in self._pods.by_index(PLACE_INDEX, ("host", host))}
        if node is not None:
            views |= {view.key: view for view in self._pods.by_index(PLACE_INDEX, ("node", node.name))}
        return [view.gang for view in views.values() if view.gang is not None]

    def runs_unmarked(self, siblings: str, node: NodeFacts) -> bool:
        """Whether the node runs a pod of the job that lacks the annotations of placed pods."""
        views = self._pods.by_index(PLACE_INDEX, ("node", node.name))
        return any(view.gang is None and view.workload == siblings and not view.leaving for view in views)
