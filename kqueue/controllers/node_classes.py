"""Taints of nodes that belong to scarce and private flavors, so that pods that kqueue does not queue keep off them.

With `nodeClasses.manageTaints` the controller writes them.  Without it, an event on the flavor counts open nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import structlog

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.controllers.manager import Manager
from kqueue.controllers.record import ObjectReference, Recorder, Reporter
from kqueue.controllers.resources import NODES
from kqueue.core.topology import NodeFacts
from kqueue.errors import NotFoundError
from kqueue.jobs.fields import objects
from kqueue.kube.taints import Taint
from kqueue.runtime.client import Client
from kqueue.runtime.controller import Result
from kqueue.runtime.store import Store

_log = structlog.get_logger(__name__)

EVENT_NODES_OPEN = "NodesOpen"
_KEYS = frozenset({names.CARD_TYPE_ANNOTATION, names.PRIVATE_GROUP_LABEL})
_NO_SCHEDULE = "NoSchedule"
_SOON = 1.0
"""Seconds for which changes of nodes are gathered before the nodes of a flavor are counted."""

JSON = dict[str, Any]
Flavors = Store[wire.ResourceFlavor]
Nodes = Store[NodeFacts]


@dataclass(frozen=True, slots=True)
class ClosedFlavor:
    """A flavor that is scarce or private: the labels of its nodes, and the taints that they need."""

    name: str
    uid: str
    labels: tuple[tuple[str, str], ...]
    taints: tuple[Taint, ...]

    @classmethod
    def of(cls, flavor: wire.ResourceFlavor | None) -> ClosedFlavor | None:
        """Return None for a flavor that is open to all pods, or that does not say which nodes it has."""
        if flavor is None or not flavor.spec.node_labels:
            return None
        taints = model.class_taints(model.node_class(flavor.metadata.annotations))
        meta, labels = flavor.metadata, tuple(sorted(flavor.spec.node_labels.items()))
        return cls(meta.name, meta.uid, labels, taints) if taints else None

    def has(self, node: NodeFacts) -> bool:
        """Whether the node belongs to the flavor."""
        return all(node.labels.get(key) == value for key, value in self.labels)


def closed_flavors(flavors: Iterable[wire.ResourceFlavor]) -> list[ClosedFlavor]:
    """Return the scarce and private ones."""
    return [closed for flavor in flavors if (closed := ClosedFlavor.of(flavor)) is not None]


def wanted_taints(node: NodeFacts, flavors: Iterable[ClosedFlavor]) -> frozenset[Taint]:
    """Return the taints that a node needs.

    A node has one taint of a key.  Where flavors disagree about the value, the least one in the order of text counts.
    """
    found: dict[str, Taint] = {}
    for flavor in flavors:
        for taint in flavor.taints if flavor.has(node) else ():
            known = found.get(taint.key)
            found[taint.key] = taint if known is None or taint.value < known.value else known
    return frozenset(found.values())


def class_taints_on(node: NodeFacts) -> frozenset[Taint]:
    """Return the taints of node classes that a node carries."""
    return frozenset(taint for taint in node.taints if _is_ours(taint.key, taint.effect))


def _is_ours(key: str, effect: str) -> bool:
    return key in _KEYS and effect == _NO_SCHEDULE


class NodeTaints:
    """Puts the taints of node classes on nodes, and takes them off nodes without such a class."""

    def __init__(self, *, client: Client, nodes: Nodes, flavors: Flavors) -> None:
        self._client, self._nodes, self._flavors = client, nodes, flavors

    def is_wrong(self, node: NodeFacts) -> bool:
        """Whether the taints of node classes on the node are others than those that it needs."""
        return class_taints_on(node) != wanted_taints(node, closed_flavors(self._flavors.values()))

    def wrong_nodes(self) -> Iterator[str]:
        """Yield the nodes whose taints have to change."""
        flavors = closed_flavors(self._flavors.values())
        for node in self._nodes.values():
            if class_taints_on(node) != wanted_taints(node, flavors):
                yield node.name

    async def reconcile(self, name: str) -> Result:
        """Write the taints of a node in one patch; other taints stay.  No request is made for a node that is right.

        Raises ConflictError when another client changed the node meanwhile; the node is then reconciled again.
        """
        facts = self._nodes.get(name)
        if facts is None or not self.is_wrong(facts):
            return Result()
        try:
            node = await self._client.get_json(NODES, name)
        except NotFoundError:
            return Result()
        wanted = wanted_taints(facts, closed_flavors(self._flavors.values()))
        patch = taint_patch(node, wanted)
        if patch:
            await self._client.patch(NODES, name, patch)
            _log.info("taints of node classes written", node=name, taints=sorted(map(str, wanted)))
        return Result()


def taint_patch(node: JSON, wanted: frozenset[Taint]) -> JSON:
    """Return the merge patch that gives a node these taints of node classes and no others; empty: it has them."""
    taints = list(objects(node, "spec", "taints"))
    kept = [t for t in taints if not _is_ours(str(t.get("key", "")), str(t.get("effect", ""))) or _taint(t) in wanted]
    missing = wanted - {_taint(t) for t in kept}
    new = [*kept, *({"key": t.key, "value": t.value, "effect": t.effect} for t in sorted(missing, key=str))]
    if new == taints:
        return {}
    version = node["metadata"]["resourceVersion"]
    return {"metadata": {"resourceVersion": version}, "spec": {"taints": new or None}}


def _taint(written: Any) -> Taint:
    return Taint(str(written.get("key", "")), str(written.get("value", "")), str(written.get("effect", "")))


class OpenNodes:
    """Reports nodes of scarce and private flavors that lack a taint, by one event on the flavor."""

    def __init__(self, *, nodes: Nodes, flavors: Flavors, recorder: Recorder) -> None:
        self._nodes, self._flavors, self._recorder = nodes, flavors, recorder
        self._told: dict[str, str] = {}
        """The last message of each flavor."""

    def flavors_of(self, *nodes: NodeFacts | None) -> list[str]:
        """Return the names of scarce and private flavors to which one of the nodes belongs."""
        closed = closed_flavors(self._flavors.values())
        return [flavor.name for flavor in closed if any(node is not None and flavor.has(node) for node in nodes)]

    async def reconcile(self, name: str) -> Result:
        """Count the nodes of a flavor; report a number that is new."""
        flavor = ClosedFlavor.of(self._flavors.get(name))
        message = self._message(flavor) if flavor is not None else ""
        if flavor is None or not message:
            self._told.pop(name, None)
        elif self._told.get(name) != message:
            self._told[name] = message
            regarding = ObjectReference(names.API_VERSION, names.RESOURCE_FLAVOR_KIND, name, "", flavor.uid)
            self._recorder.record(regarding, reason=EVENT_NODES_OPEN, message=message, warning=True, once=True)
        return Result()

    def _message(self, flavor: ClosedFlavor) -> str:
        """Return the sentence of the event about the first taint that nodes lack; empty: none lacks one."""
        nodes = sorted((node for node in self._nodes.values() if flavor.has(node)), key=lambda node: node.name)
        for taint in flavor.taints:
            lacking = [node for node in nodes if taint not in node.taints]
            if lacking:
                counted = f"{len(lacking)} of {len(nodes)} nodes lack the taint {taint}"
                return f"{counted}; others may use them; first: {lacking[0].name}"
        return ""


def setup(manager: Manager) -> None:
    """Add the controller that writes the taints, or else the one that reports nodes without them."""
    if manager.config.node_classes.manage_taints:
        _add_writer(manager)
    else:
        _add_report(manager)


def _add_writer(manager: Manager) -> None:
    nodes, flavors = manager.watches.nodes, manager.watches.flavors
    taints = NodeTaints(client=manager.client, nodes=nodes.store, flavors=flavors.store)
    controller = manager.controller("node_classes", taints.reconcile, workers=4)

    def enqueue_wrong() -> None:
        for name in taints.wrong_nodes():
            controller.enqueue(name)

    def on_node(_old: NodeFacts | None, new: NodeFacts | None) -> None:
        if new is not None and taints.is_wrong(new):
            controller.enqueue(new.name)

    nodes.subscribe(on_node)
    flavors.subscribe(_if_class_changed(enqueue_wrong))
    manager.on_lead.append(enqueue_wrong)


def _add_report(manager: Manager) -> None:
    nodes, flavors = manager.watches.nodes, manager.watches.flavors
    report = OpenNodes(nodes=nodes.store, flavors=flavors.store, recorder=manager.recorder(Reporter.NODES))
    controller = manager.controller("node_classes", report.reconcile)

    def on_node(old: NodeFacts | None, new: NodeFacts | None) -> None:
        if old is None or new is None or (old.labels, old.taints) != (new.labels, new.taints):
            for name in report.flavors_of(old, new):
                controller.enqueue(name, after=_SOON)

    def enqueue_closed() -> None:
        for flavor in closed_flavors(flavors.store.values()):
            controller.enqueue(flavor.name, after=_SOON)

    nodes.subscribe(on_node)
    flavors.subscribe(_if_class_changed(enqueue_closed))


def _if_class_changed(
    enqueue: Callable[[], None],
) -> Callable[[wire.ResourceFlavor | None, wire.ResourceFlavor | None], None]:
    """Return a handler of flavors that calls `enqueue` when nodes or taints of a closed flavor may have changed."""

    def on_flavor(old: wire.ResourceFlavor | None, new: wire.ResourceFlavor | None) -> None:
        if ClosedFlavor.of(old) != ClosedFlavor.of(new):
            enqueue()

    return on_flavor
