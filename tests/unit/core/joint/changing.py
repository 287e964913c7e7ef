"""A small cluster that changes event by event, and its state for rounds: as it was followed, and made anew."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from kqueue.core import quota
from kqueue.core.joint.batch import Batch
from kqueue.core.joint.registry import DEFAULT_POLICIES, PolicySpec
from kqueue.core.joint.round import RoundInput
from kqueue.core.joint.round_policies import PolicyInput
from kqueue.core.joint.settings import JointOrder, JointSettings
from kqueue.core.joint.statistics import NodeStatistics
from kqueue.core.planned_state import PlannedState
from kqueue.core.preemption import Rules
from kqueue.core.quota import FlavorResource, Quota, QuotaNode
from kqueue.core.topology import HOSTNAME, Capacity, Leaf, NodeFacts, TopologyRequest, Tree
from kqueue.core.topology.result import DomainUsage
from kqueue.core.workload import Admitted, Flavor, Head, Snapshot, TopologyView
from kqueue.kube.taints import Taint
from tests.builders import GPU, START, make_head, make_queue

CPU, LEVELS, QUEUES = "cpu", ("rack", HOSTNAME), ("a", "b", "c")
REQUESTS = (
    TopologyRequest(required="rack"),
    TopologyRequest(preferred="rack"),
    TopologyRequest(required=HOSTNAME),
    TopologyRequest(unconstrained=True),
)
POLICIES = tuple(
    PolicySpec(name=name, weight=1000, parameters=parameters)
    for name, parameters in (("topology", {}), ("utilisation", {}), ("network", {"resource": CPU}))
)


@dataclass(slots=True)
class Place:
    """The hosts of one flavor: facts, and the tables that follow them."""

    nodes: dict[str, NodeFacts] = field(default_factory=dict)
    foreign: dict[str, dict[str, int]] = field(default_factory=dict)
    tree: Tree = field(default_factory=lambda: Tree(topology="dc", levels=LEVELS, leaves=()))
    capacity: Capacity = field(init=False)

    def __post_init__(self) -> None:
        self.capacity = Capacity.of(self.tree)

    def put(self, node: NodeFacts, usage: list[DomainUsage]) -> None:
        """Add a node, or change it; `usage` is that of the workloads on it."""
        self._edit(node.name, node, usage)

    def remove(self, name: str) -> None:
        """Remove a node."""
        self._edit(name, None, [])
        self.foreign.pop(name, None)

    def _edit(self, name: str, node: NodeFacts | None, usage: list[DomainUsage]) -> None:
        old = self.tree.leaf_of((name,))
        self.nodes.pop(name, None)
        added, free, idle = [], [], []
        if node is not None:
            self.nodes[name] = node
            added = [leaf_of(node)]
            one = self.made(Tree(topology="dc", levels=LEVELS, leaves=added), usage)
            free, idle = [one.free(0)], [one.empty().free(0)]
        tree, edit = self.tree.edited([old] if old is not None else [], added)
        self.tree, self.capacity = tree, self.capacity.edited(tree, edit, free, idle=idle)

    def made(self, tree: Tree, usage: list[DomainUsage]) -> Capacity:
        """The capacity of a tree, made of the facts."""
        there = {name: amounts for name, amounts in self.foreign.items() if tree.leaf_of((name,)) is not None}
        return Capacity.of(tree, foreign=there, usage=usage)

    def anew(self, usage: list[DomainUsage]) -> TopologyView:
        """Tree and capacity, made of the facts."""
        tree = Tree(topology="dc", levels=LEVELS, leaves=[leaf_of(node) for node in self.nodes.values()])
        return TopologyView("dc", tree, self.made(tree, usage))


def leaf_of(node: NodeFacts) -> Leaf:
    """The leaf of a node."""
    return Leaf(tuple(node.labels[level] for level in LEVELS), (node,))


class Cluster:
    """Two flavors, three ClusterQueues of a cohort, workloads that wait and that run."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.places = {"gpu": Place(), "other": Place()}
        self.names, self.seconds = 0, 0
        self.waiting: dict[str, Head] = {}
        self.running: dict[str, tuple[Head, Admitted]] = {}
        self.limits = {queue: Quota(self.chance.randint(8, 80)) for queue in QUEUES}
        self.samples: dict[str, list[dict[str, int]]] = {}
        self.policies = DEFAULT_POLICIES if seed % 5 else POLICIES
        self.order = self.chance.choice(list(JointOrder))
        for _ in range(8):
            self.node_added()
        for _ in range(5):
            self.pushed()

    def event(self) -> str:
        """Let something happen; return what."""
        act = self.chance.choice(EVENTS)
        act(self)
        return act.__name__

    # --- workloads

    def pushed(self) -> None:
        """A workload arrives; some are equal to others."""
        if len(self.waiting) > 9:
            return self.gone()
        self.names += 1
        return self._wait(f"w{self.names}", self.chance.choice(QUEUES))

    def _wait(self, name: str, queue: str) -> None:
        chance = self.chance
        head = make_head(
            name,
            queue=queue,
            pods=chance.choice([1, 2, 2, 4]),
            requests={GPU: chance.choice([1, 2, 4]), **({CPU: 1000} if chance.random() < 0.2 else {})},
            priority=chance.choice([0, 0, 1]),
            age=chance.randint(0, 99),
        )
        topology = chance.choice(REQUESTS)
        pod_sets = tuple([replace(p, request=replace(p.request, topology=topology)) for p in head.pod_sets])
        if chance.random() < 0.15:  # a second pod set, which is placed by itself
            more = make_head(name, pods=1, requests={GPU: 1}).pod_sets[0]
            pod_sets += (replace(more, request=replace(more.request, name="more", topology=topology)),)
        self.waiting[name] = replace(head, pod_sets=pod_sets)

    def updated(self) -> None:
        """A waiting workload is changed."""
        if (name := self._some(self.waiting)) is not None:
            self._wait(name, self.waiting[name].queue)

    def gone(self) -> None:
        """A waiting workload is deleted."""
        if (name := self._some(self.waiting)) is not None:
            del self.waiting[name]

    def moved(self) -> None:
        """A waiting workload is put into another ClusterQueue."""
        if (name := self._some(self.waiting)) is not None:
            self.waiting[name] = replace(self.waiting[name], queue=self.chance.choice(QUEUES))

    def admitted(self) -> None:
        """A waiting workload gets a host and quota."""
        name, flavor = self._some(self.waiting), self.chance.choice(list(self.places))
        host = self._some(self.places[flavor].nodes)
        if name is None or host is None:
            return
        head = self.waiting.pop(name)
        request = head.pod_sets[0].request
        usage = (DomainUsage((host,), request.requests, request.count),)
        self.places[flavor].capacity.charge(usage)
        one = Admitted(
            key=head.key,
            uid=head.uid,
            queue=head.queue,
            local_queue="lq",
            priority=head.priority,
            timestamp=head.timestamp,
            reserved_at=START,
            evicted=False,
            usage={FlavorResource(flavor, GPU): request.requests[GPU] * request.count},
            domains={flavor: usage},
        )
        self.running[name] = head, one

    def finished(self) -> None:
        """A running workload ends."""
        self._ended()

    def evicted(self) -> None:
        """A running workload waits again."""
        ended = self._ended()
        if ended is not None:
            self.waiting[ended.uid] = ended

    def _ended(self) -> Head | None:
        name = self._some(self.running)
        if name is None:
            return None
        head, one = self.running.pop(name)
        for flavor, usage in one.domains.items():
            self.places[flavor].capacity.release(usage)
        return head

    # --- nodes

    def foreign_pods(self) -> None:
        """Pods of others come to a host, or leave it."""
        place, host = self._host()
        if host is not None:
            now = {CPU: self.chance.randint(0, 4000), "pods": self.chance.randint(0, 5)}
            before = place.foreign.get(host, {})
            place.foreign[host] = now
            leaf = place.tree.leaf_of((host,))
            assert leaf is not None, "tree and nodes differ"
            place.capacity.add(leaf, {resource: before.get(resource, 0) - now[resource] for resource in now})
            place.capacity.empty().add(leaf, {resource: before.get(resource, 0) - now[resource] for resource in now})

    def node_amounts(self) -> None:
        """The amounts of a node change."""
        self._changed(lambda node: replace(node, allocatable={**node.allocatable, GPU: self.chance.choice([0, 4, 8])}))

    def node_added(self) -> None:
        """A node appears."""
        flavor = self.chance.choice(["gpu", "gpu", "other"])
        place = self.places[flavor]
        if len(place.nodes) > 8:
            return self.node_removed()
        self.names += 1
        name = f"{flavor}-{self.names:05}"
        labels = {"rack": f"r{self.chance.randint(0, 3)}", HOSTNAME: name}
        return place.put(NodeFacts(name=name, labels=labels, allocatable={GPU: 8, CPU: 32_000, "pods": 20}), [])

    def node_removed(self) -> None:
        """A node disappears."""
        place, host = self._host()
        if host is not None:
            place.remove(host)

    def relabelled(self) -> None:
        """A node is in another rack."""
        rack = f"r{self.chance.randint(0, 3)}"
        self._changed(lambda node: replace(node, labels={**node.labels, "rack": rack}))

    def tainted(self) -> None:
        """A node gets a taint, or loses it."""
        self._changed(lambda node: replace(node, taints=() if node.taints else (Taint("broken"),)))

    def _changed(self, change: Callable[[NodeFacts], NodeFacts]) -> None:
        place, host = self._host()
        if host is not None:
            flavor = next(name for name, one in self.places.items() if one is place)
            place.put(change(place.nodes[host]), [usage for usage in self.usage(flavor) if usage.values == (host,)])

    def _host(self) -> tuple[Place, str | None]:
        place = self.places[self.chance.choice(list(self.places))]
        return place, self._some(place.nodes)

    # --- quota, samples, time

    def quota_changed(self) -> None:
        """The quota of a ClusterQueue changes."""
        limit = self.chance.choice([None, 0, 8])
        self.limits[self.chance.choice(QUEUES)] = Quota(self.chance.randint(0, 80), borrowing_limit=limit)

    def sampled(self) -> None:
        """A node has a new sample."""
        _, host = self._host()
        if host is not None:
            self.samples.setdefault(host, []).append({CPU: self.chance.randint(0, 9000)})

    def time_passed(self) -> None:
        """All wait longer."""
        self.seconds += self.chance.randint(1, 500)

    def _some(self, of: Mapping[str, object]) -> str | None:
        return self.chance.choice(sorted(of)) if of else None

    # --- the state

    def usage(self, flavor: str) -> list[DomainUsage]:
        """The usage of a flavor's hosts by workloads."""
        return [usage for _, one in self.running.values() for usage in one.domains.get(flavor, ())]

    def followed(self) -> RoundInput:
        """The input of a round, with the tables that were followed."""
        return self._given({n: TopologyView("dc", p.tree, p.capacity.fork()) for n, p in self.places.items()})

    def anew(self) -> RoundInput:
        """The input of a round, made of the facts."""
        return self._given({name: place.anew(self.usage(name)) for name, place in self.places.items()})

    def _given(self, views: dict[str, TopologyView]) -> RoundInput:
        root = QuotaNode("all", is_cohort=True)
        for name, limit in self.limits.items():
            node = QuotaNode(name, quotas={FlavorResource(f, GPU): limit for f in views}, parent=root)
            root.children.append(node)
        quota.rebuild(root)
        nodes = {node.name: node for node in root.children}
        running: dict[str, dict[str, Admitted]] = {}
        for _, one in self.running.values():
            running.setdefault(one.queue, {})[one.key] = one
            for column, amount in one.usage.items():
                quota.add_usage(nodes[one.queue], column, amount)
        queues: dict[str, list[Head]] = {}
        for head in sorted(self.waiting.values(), key=lambda h: (-h.priority, h.timestamp, h.uid)):
            queues.setdefault(head.queue, []).append(head)
        snapshot = Snapshot(
            queues={name: make_queue(name, flavors=tuple(views), ignores_undeclared=True) for name in QUEUES},
            nodes=nodes,
            flavors={name: Flavor(name=name, topology="dc") for name in views},
            topologies=views,
            admitted=running,
        )
        now = START + timedelta(seconds=self.seconds)
        samples = {name: some[-5:] for name, some in self.samples.items()}
        return RoundInput(
            state=PlannedState(snapshot=snapshot, rules=Rules(now=now)),
            batch=Batch(queues={queue: tuple(heads) for queue, heads in queues.items()}),
            waited={h.uid: int((now - h.timestamp).total_seconds()) for h in self.waiting.values()},
            settings=JointSettings(order=self.order, steps=32),
            policies=PolicyInput(specs=self.policies, statistics=NodeStatistics.of(samples)),
        )


EVENTS = (
    Cluster.pushed,
    Cluster.pushed,
    Cluster.updated,
    Cluster.gone,
    Cluster.moved,
    Cluster.admitted,
    Cluster.admitted,
    Cluster.evicted,
    Cluster.finished,
    Cluster.foreign_pods,
    Cluster.node_amounts,
    Cluster.node_added,
    Cluster.node_removed,
    Cluster.relabelled,
    Cluster.tainted,
    Cluster.quota_changed,
    Cluster.sampled,
    Cluster.time_passed,
)
