"""The present state of quota, nodes and holdings, put together for the planner.

Watch events change it through plain functions. `held.assumed` charges a decision before the decision is written; the
watch event of the write confirms the charge, and a failed write releases it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from weakref import ref

from kqueue.api.wire import kueue as wire
from kqueue.core import quota
from kqueue.core.least import promise_of
from kqueue.core.order_keys import BUILT_IN_PROFILES
from kqueue.core.quota import QuotaNode
from kqueue.core.topology import DEFAULT_PROFILE, NodeFacts, PodFacts, Profile
from kqueue.core.workload import Admission, Claim, Leader, Promise, QueueSpec, Snapshot, TopologyView
from kqueue.model import DEFAULT_ORDER, QueueOrder, least_of
from kqueue.state.audit import STEP
from kqueue.state.budgets import Budgets
from kqueue.state.cache_audit import CacheAudit
from kqueue.state.device_hosts import DeviceHosts
from kqueue.state.gangs import Gangs
from kqueue.state.holdings import Holdings
from kqueue.state.ledger import NodeLedger
from kqueue.state.quota_cache import QuotaCache
from kqueue.state.requests import Requests


class Cache:
    """All state that a cycle needs, as the watches have reported it.

    `quota` has the configuration, `ledger` the nodes, `held` the usage of workloads and pods; `audits` compares them.
    """

    def __init__(
        self,
        profile: Profile = DEFAULT_PROFILE,
        *,
        merge_duplicate_hostnames: bool = False,
        order: QueueOrder = DEFAULT_ORDER,
        requests: Requests | None = None,
        ignores_undeclared: bool = False,
        fungible: bool = True,
        plugin_profiles: tuple[str, ...] = tuple(BUILT_IN_PROFILES),
    ) -> None:
        """Take the options: `profile` serves ClusterQueues that do not choose one; `merge_duplicate_hostnames` is as in
        `NodeLedger`, `order` as in `model.queue_time`, `ignores_undeclared` and `fungible` as in `QueueSpec`,
        `plugin_profiles` the names that annotation `kqueue.dev/profile` may have.
        """
        self.ledger = NodeLedger(merge_duplicate_hostnames=merge_duplicate_hostnames)
        self.requests = requests or Requests()
        """The requests of workloads."""
        self.quota = QuotaCache(
            self.ledger,
            lambda name: self.held.held_in(name).reserved,
            profile=profile,
            ignores_undeclared=ignores_undeclared,
            fungible=fungible,
            plugin_profiles=plugin_profiles,
        )
        self.devices = DeviceHosts(self.requests.devices, self.ledger.pods)
        """The devices of hosts."""
        self.held = Holdings(self.quota, self.ledger, self.requests, order)
        self.budgets = Budgets()
        """The budgets of ClusterQueues and their use."""
        self.gangs = Gangs()
        """Gangs that start."""
        self.audits = CacheAudit(self.quota, self.held, self.ledger, self.on_node, self.devices.pod_facts)
        self._copies: dict[int, quota.TreeCopy] = {}
        """The copies of the quota trees in the last snapshot, by the identity of their roots."""
        self._prepared: dict[int, quota.TreeCopy] = {}
        """Copies of trees that the next snapshot uses, if it has no others."""
        self._reader: Callable[[], object] = lambda: None
        """Returns the workloads of the last snapshot; None once no reference to them is left."""

    @property
    def generation(self) -> int:
        """The number of changes that may change the outcome of a try."""
        return self.quota.generation

    # --- events that concern more than one part ----------------------------------------------------------------

    def on_flavor(self, name: str, obj: wire.ResourceFlavor | None) -> None:
        """Follow a ResourceFlavor that appeared, changed or (None) is gone."""
        if self.quota.on_flavor(name, obj):
            self.held.on_topologies()

    def on_node(self, name: str, facts: NodeFacts | None) -> bool:
        """Follow a node that appeared, changed or (None) is gone; return whether that may change where pods fit."""
        changed = self.ledger.on_node(name, self.devices.node_facts(facts))
        self.quota.generation += changed
        return changed

    def on_pod(self, key: str, facts: PodFacts | None) -> frozenset[str]:
        """Follow a bound pod that came, changed or (None) is gone; return the nodes on which resources became free."""
        return self.held.on_pod(key, self.devices.pod_facts(key, facts))

    # --- for the planner ---------------------------------------------------------------------------------------

    def copy_steps(self, queues: Iterable[str]) -> Iterator[None]:
        """Copy the quota trees that the next snapshot of these ClusterQueues would have to copy, in short steps."""
        kept = self._copies if self._reader() is None else {}
        trees = self.quota.trees
        for number, name in enumerate(queues):
            if number % STEP == STEP - 1:
                yield
            node = trees.queues.get(name)
            root = node.root if node is not None else None
            if root is not None and id(root) not in kept and id(root) not in self._prepared:
                self._prepared[id(root)] = yield from quota.copy_steps(root)

    def snapshot(self, queues: Iterable[str], claims: Sequence[Claim] = ()) -> Snapshot:
        """Return a snapshot for a cycle over heads of these ClusterQueues; charges to it do not change the cache.

        `claims` are those of earlier cycles; their quota trees are in the snapshot, too. Trees of the last
        snapshot are used again if no reference to it is left: only their changes are applied.
        """
        wanted = {*queues, *(queue for claim in claims for queue in _queues_of(claim))}
        inactive = {name: why.message for name in wanted if (why := self.quota.inactive(name)) is not None}
        specs: dict[str, QueueSpec] = {}
        nodes: dict[str, QuotaNode] = {}
        trees = self.quota.trees
        former, self._copies = self._copies if self._reader() is None else {}, {}
        for name in wanted - inactive.keys():
            queue, node = self.quota.queues.get(name), trees.queues.get(name)
            if queue is None or node is None:
                continue
            specs[name] = queue.spec
            if name not in nodes:
                root = node.root
                copy = self._copies[id(root)] = (
                    former.get(id(root)) or self._prepared.get(id(root)) or quota.TreeCopy(root)
                )
                copy.refresh()
                nodes.update(copy.queues)
        self._prepared = {}
        views = self.held.by_queue.views(nodes.keys(), self.quota.with_topology)
        self._reader = ref(views)
        return Snapshot(
            queues=specs,
            nodes=nodes,
            flavors=dict(self.quota.flavors),
            topologies=self.topologies(),
            inactive=inactive,
            admitted=views,
            claims=claims,
            leaders=self._leaders() if self.gangs.leaders else {},
            promises=self._promises() if self.gangs.promises else (),
        )

    def topologies(self) -> dict[str, TopologyView]:
        """Return the domains of each topology flavor and their free amounts, independent of later changes."""
        return {
            flavor: TopologyView(capacity.tree.topology, capacity.tree, capacity, self.ledger.unusable(flavor))
            for flavor, capacity in self.ledger.snapshot().items()
        }

    def promise_of(self, obj: wire.Workload) -> Promise | None:
        """Return what the admitted gang of a Workload may use beyond its requests; None: it holds no quota here."""
        held = self.held.holding(f"{obj.metadata.namespace}/{obj.metadata.name}")
        spec = self.quota.queue_spec(held.queue) if held is not None else None
        if held is None or spec is None:
            return None
        return promise_of(held.key, held.queue, least_of(obj), held.admission.pod_sets, spec)

    def _promises(self) -> tuple[Promise, ...]:
        """Return what is promised to gangs that hold quota; forget what was promised to others."""
        for key in [key for key in self.gangs.promises if self.held.holding(key) is None]:
            self.gangs.end_promise(key)
        return tuple(map(self._open, self.gangs.promises.values()))

    def _open(self, promise: Promise) -> Promise:
        """Return the part of a promise that pods beyond the quorum have not used yet."""
        left = dict(promise.amounts)
        for key in self.gangs.extras.get(promise.workload, ()):
            held = self.held.holding(key)
            for column, amount in held.admission.usage().items() if held is not None else ():
                if column in left:
                    left[column] = max(0, left[column] - amount)
        return replace(promise, amounts=left)

    def _leaders(self) -> dict[str, Leader]:
        """Return the gangs for which flavors are kept, as far as they hold quota and are not evicted."""
        found: dict[str, Leader] = {}
        for flavor, gang in self.gangs.leaders.items():
            held = self.held.holding(gang.workload)
            if held is not None and not held.evicted and gang.until is not None:
                found[flavor] = Leader(
                    key=gang.key,
                    workload=gang.workload,
                    uid=held.uid,
                    queue=held.queue,
                    priority=held.priority,
                    scheduled=gang.scheduled,
                    quorum=gang.quorum,
                    until=gang.until,
                )
        return found

    def fits(self, admission: Admission, *, instead_of: str | None = None) -> bool:
        """Whether the live cache still has the quota and the domains of a decision made on an older snapshot.

        The usage of the workload `instead_of` counts as free.
        """
        held = self.held.holding(instead_of) if instead_of is not None else None
        if held is None:
            return self._fits(admission)
        self.quota.charge(held.queue, held.admission.usage(), sign=-1)
        try:
            return self._fits(admission)
        finally:
            self.quota.charge(held.queue, held.admission.usage(), sign=1)

    def _fits(self, admission: Admission) -> bool:
        if not self.quota.has_room(admission.queue, admission.usage()):
            return False
        return all(
            (capacity := self.ledger.capacity(flavor)) is not None
            and all(capacity.tree.leaf_of(domain.values) is not None for domain in pod_set.topology.domains)
            for pod_set in admission.pod_sets
            if pod_set.topology is not None
            for flavor in set(pod_set.flavors.values())
            if self.quota.flavors[flavor].topology is not None
        )

    def is_flavor_used(self, flavor: str) -> bool:
        """Whether a ClusterQueue lists the flavor, or a workload still has usage in it."""
        return bool(self.quota.queues_of_flavor(flavor)) or self.held.sums.in_flavor(flavor)


def _queues_of(claim: Claim) -> set[str]:
    """Return the ClusterQueues of a claim, and of the workloads that end before its time."""
    return ({claim.queue} if claim.queue else set()) | {queue for queue, _ in claim.ends.values()}
