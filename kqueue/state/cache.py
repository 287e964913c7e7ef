"""What is believed now: quota trees, flavors, nodes, and who holds what.

Fed by watch events through plain functions.  A decision is charged by `assumed` before it is written, and confirmed by
the watch's echo; a write that fails takes it back.

    pending ──assumed──► assumed ──echo──► reserved ──finished, evicted, deleted──► gone
                 │                                                     ▲
                 └── write failed: forgotten                           └── an echo of an older version changes nothing
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import chain
from weakref import ref

import structlog

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.core import quota
from kqueue.core.quota import QuotaNode, Usage
from kqueue.core.topology import DEFAULT_PROFILE, NodeFacts, PodFacts, Profile
from kqueue.core.workload import (
    Admission,
    Admitted,
    Claim,
    Flavor,
    PodSetAssignment,
    QueueSpec,
    Snapshot,
    TopologyView,
)
from kqueue.errors import KqueueError
from kqueue.state import from_api, quota_audit, quota_trees
from kqueue.state.audit import Drift, Recounts, Source, chunks
from kqueue.state.bound_pods import amounts_of
from kqueue.state.charge import Charge
from kqueue.state.from_api import DEFAULT_ORDER, QueueOrder
from kqueue.state.held import Held, HeldSums, Share
from kqueue.state.holding import Holding, standing_in
from kqueue.state.ledger import AssignedUsage, NodeLedger
from kqueue.state.queue_problems import Inactive, problems
from kqueue.state.quota_trees import ConfiguredQueue
from kqueue.state.requests import Requests
from kqueue.state.unpaid import UnpaidPod, usage_of
from kqueue.state.views import HoldingsByQueue


class AssumedTwiceError(KqueueError):
    """The cache was asked to assume a workload that it already holds (a bug in the caller)."""

    def __init__(self, workload: str, held_by: str) -> None:
        super().__init__(f"{workload} is already held by ClusterQueue {held_by}")


_log = structlog.get_logger(__name__)

_POD = "pod/"
_VIEW_COST = 4  # the hosts of a gang are listed
_WORKLOAD_COST = 10  # an admission with its assignment takes about 0.1 ms to decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the watches hold: the truth that an audit compares with."""

    nodes: Source[NodeFacts]
    pods: Source[from_api.PodView]
    workloads: Source[wire.Workload]


class Cache:
    """Everything a cycle needs, true to what the watches have told so far."""

    def __init__(
        self,
        profile: Profile = DEFAULT_PROFILE,
        *,
        merge_duplicate_hostnames: bool = False,
        order: QueueOrder = DEFAULT_ORDER,
        requests: Requests | None = None,
        ignores_undeclared: bool = False,
        fungible: bool = True,
    ) -> None:
        """`profile` serves ClusterQueues that do not choose one; `merge_duplicate_hostnames` is as in `NodeLedger`,
        `order` as in `from_api.queue_time`, `ignores_undeclared` and `fungible` as in `QueueSpec`.
        """
        self.ledger = NodeLedger(merge_duplicate_hostnames=merge_duplicate_hostnames)
        self.requests = requests or Requests()
        """What workloads ask for."""
        self._profile, self._order = profile, order
        self._ignores_undeclared, self._fungible = ignores_undeclared, fungible
        self.generation = 0
        """Rises with every change that may change the outcome of a try."""
        self._room_generations = Counter[str]()
        self._freed = Counter[str]()
        """By the root of a quota tree: how often quota of it was given back since the trees were built."""
        self._rebuilt = 0
        """How often the quota trees were built."""
        self._queues: dict[str, ConfiguredQueue] = {}
        self._deleted_queues: set[str] = set()
        """Names of ClusterQueues that were seen and are gone."""
        self._cohorts: dict[str, wire.Cohort] = {}
        self._flavors: dict[str, Flavor] = {}
        self._with_topology: frozenset[str] = frozenset()
        self._of_many_flavors: set[str] = set()
        """Workloads with places and several flavors: in which of these they stand depends on which have a topology."""
        self._topologies: dict[str, tuple[str, ...]] = {}
        self._checks: dict[str, wire.AdmissionCheck] = {}
        self._holdings: dict[str, Holding] = {}
        self._included: dict[str, Holding] = {}
        """Slices of elastic jobs that are part of newer ones, and not over yet: they count with these."""
        self._newer: dict[str, str] = {}
        """Key of a slice to that of the one that takes over from it, and that holds quota."""
        self._written: dict[str, wire.Workload] = {}
        """Of what is assumed and not being written any more: the object in which it stands."""
        self._kept: dict[str, wire.WorkloadStatus] = {}
        """Of those that hold what their status has lost by somebody's hand: the status as it was."""
        self._by_queue = HoldingsByQueue[Holding]()
        self._sums = HeldSums()
        self._inactive: dict[str, Inactive | None] = {}
        self._topology_only: dict[str, bool] = {}
        self._minimum_runtimes: Mapping[str, timedelta] | None = None
        """Worked out when first asked after a change of the configuration."""
        """What is known of ClusterQueues since the configuration changed last."""
        self._trees = quota_trees.Trees()
        self._copies: dict[int, quota.TreeCopy] = {}
        """What the last snapshot has of the quota trees, by the identity of their roots."""
        self._reader: Callable[[], object] = lambda: None
        """None from it: nobody has that snapshot any more."""
        self._charges: set[Charge] = set()
        """Those whose decisions are being written."""
        self._unconfirmed: set[str] = set()
        """Workloads of which no event has told what they hold: it is assumed, or was moved."""
        self.on_unpaid: Callable[[str, str], None] = lambda _local_queue, _queue: None
        """Called when what is charged for pods changes in a LocalQueue (namespace/name) and a ClusterQueue."""
        self._unpaid: dict[str, UnpaidPod] = {}
        """Bound pods that are charged beside the holdings, by `_pod_key`."""
        self._recounts = Recounts(quota_audit.charged)

    # --- configuration -----------------------------------------------------------------------------------------

    def _reconfigured(self) -> None:
        self.generation += 1
        self._inactive.clear()
        self._topology_only.clear()
        self._minimum_runtimes = None

    def on_cluster_queue(self, name: str, obj: wire.ClusterQueue | None) -> None:
        """A ClusterQueue appeared, changed or (None) is gone.  Usage of its workloads is kept."""
        self._reconfigured()
        if obj is None:
            if self._queues.pop(name, None) is not None:
                self._deleted_queues.add(name)
            self._rebuild(lambda: self.tree_of(name))
            return
        self._deleted_queues.discard(name)
        old = self._queues.get(name)
        if old is not None and from_api.same_queue(old.wire, obj):
            old.wire = obj
            return
        spec, quotas, problem = from_api.queue_spec(
            obj, self._profile, ignores_undeclared=self._ignores_undeclared, fungible=self._fungible
        )
        queue = self._queues[name] = ConfiguredQueue(obj, spec, quotas, QuotaNode(name), problem)
        same = old is not None and old.gives_out_the_same_as(queue)
        self._rebuild(lambda: () if same else self.tree_of(name))

    def on_cohort(self, name: str, obj: wire.Cohort | None) -> None:
        """A Cohort object appeared, changed or (None) is gone; a cohort without object has no quota of its own.

        What of it cannot be read counts for nothing.
        """
        self._reconfigured()
        if obj is None:
            self._cohorts.pop(name, None)
        else:
            self._cohorts[name] = obj
            problem = from_api.cohort_problem(obj)
            if problem:
                _log.warning("a part of a Cohort cannot be read and counts for nothing", name=name, error=problem)
        self._rebuild(lambda: self.queues_in_cohort(name))

    def on_flavor(self, name: str, obj: wire.ResourceFlavor | None) -> None:
        """A ResourceFlavor appeared, changed or (None) is gone."""
        self._reconfigured()
        inline = obj.spec.topology if obj is not None and obj.spec.topology_name is None else None
        levels = tuple(level.node_label for level in inline.levels) if inline is not None else None
        self._set_levels(from_api.inline_topology(name), levels)
        before = self._with_topology
        if obj is None:
            self._flavors.pop(name, None)
            self._with_topology -= {name}
            self.ledger.on_flavor(name, None)
        else:
            flavor = self._flavors[name] = from_api.flavor(obj)
            self._with_topology = self._with_topology - {name} | ({name} if flavor.topology is not None else set())
            self.ledger.on_flavor(name, flavor if flavor.topology is not None else None)
        if self._with_topology != before:
            for key in list(self._of_many_flavors):
                self._charge_domains(self._holdings[key])

    def on_topology(self, name: str, obj: wire.Topology | None) -> None:
        """A Topology appeared, changed or (None) is gone.  The ledger counts the usage of its flavors again."""
        self._reconfigured()
        self._set_levels(name, None if obj is None else tuple(level.node_label for level in obj.spec.levels))

    def _set_levels(self, topology: str, levels: tuple[str, ...] | None) -> None:
        if levels is None:
            self._topologies.pop(topology, None)
        else:
            self._topologies[topology] = levels
        self.ledger.on_topology(topology, levels)

    def on_check(self, name: str, obj: wire.AdmissionCheck | None) -> None:
        """An AdmissionCheck appeared, changed or (None) is gone."""
        self._reconfigured()
        if obj is None:
            self._checks.pop(name, None)
        else:
            self._checks[name] = obj

    def on_node(self, name: str, facts: NodeFacts | None) -> bool:
        """A node appeared, changed or (None) is gone.  True when that may change where pods fit."""
        changed = self.ledger.on_node(name, facts)
        self.generation += changed
        return changed

    def on_pod(self, key: str, facts: PodFacts | None) -> frozenset[str]:
        """A bound pod took its place, changed or (None) left; the names of nodes on which it freed something."""
        freed = frozenset(self.ledger.on_pod(key, facts))
        unpaid = self._unpaid.get(_pod_key(key)) if self._unpaid else None
        if unpaid is not None and unpaid.facts != facts:
            self.release_pod(key)
            if facts is not None and facts.node == unpaid.facts.node and unpaid.amounts is None:
                self.charge_pod(key, unpaid.local_queue, unpaid.queue)
        return freed

    # --- pods that no reservation pays for -----------------------------------------------------------------------

    def charge_pod(self, key: str, local_queue: str, queue: str, amounts: Mapping[str, int] | None = None) -> bool:
        """Charge a bound pod to a ClusterQueue beside what its workloads hold, until the pod has ended.

        `amounts` is what is charged of it, until its requests change; None: all that it takes.  True when the charge
        is new.  Nothing happens where no event has brought the pod, or the ClusterQueue is unknown.
        """
        facts, configured = self.ledger.pods.get(key), self._queues.get(queue)
        if facts is None or configured is None or _pod_key(key) in self._unpaid:
            return False
        node = self.ledger.nodes.get(facts.node)
        taken = amounts if amounts is not None else amounts_of(facts)
        usage = usage_of(taken, configured.spec.groups, self._flavors, node.labels if node is not None else {})
        unpaid = UnpaidPod(queue=queue, local_queue=local_queue, facts=facts, usage=usage, amounts=amounts)
        self._unpaid[_pod_key(key)] = unpaid
        self._count_unpaid(key, unpaid, sign=1)
        return True

    def release_pod(self, key: str) -> str | None:
        """Charge a pod no longer; the ClusterQueue that it was charged to, None where it was charged to none."""
        unpaid = self._unpaid.pop(_pod_key(key), None)
        if unpaid is None:
            return None
        self._count_unpaid(key, unpaid, sign=-1)
        self.generation += 1
        self._count_freed(unpaid.queue)
        return unpaid.queue

    def charged_pod(self, key: str) -> str | None:
        """The ClusterQueue that a pod is charged to beside what workloads hold; None: it is charged to none."""
        unpaid = self._unpaid.get(_pod_key(key))
        return unpaid.queue if unpaid is not None else None

    def _count_unpaid(self, key: str, unpaid: UnpaidPod, *, sign: int) -> None:
        self._recounts.follow(_pod_key(key), *((None, unpaid) if sign > 0 else (unpaid, None)))
        self._sums.add(quota_audit.share(unpaid), sign=sign)
        self._charge_quota(unpaid.queue, unpaid.usage, sign=sign)
        self.on_unpaid(unpaid.local_queue, unpaid.queue)

    # --- workloads ---------------------------------------------------------------------------------------------

    def on_workload(self, key: str, obj: wire.Workload | None, before: wire.Workload | None = None) -> bool:
        """Follow a Workload's watch event.  True when it gave something back.

        A reservation seen is charged (replacing what was assumed); a finished, inactive or deleted workload is
        dropped at once; a pending one only if it was reserved, so that an event from before our write does not undo
        what was assumed.  One that was admitted and whose status contradicts itself now, where that of `before` did
        not, goes on holding what it held: its pods run.
        """
        held = self._holdings.get(key)
        if obj is None or from_api.is_over(obj):
            return self._drop(key)
        admission = self.requests.admission(obj)
        if admission is not None:
            holding = self._reserved(key, obj, admission, assumed=False)
            if held is not None and self._moves_from(held, obj, admission):
                if held.assumed:  # the admission is seen, the move is not
                    moved = replace(holding, admission=held.admission, replaces=held.replaces, evicted=held.evicted)
                    self._hold(moved)
                return False
            if held is not None and held.evicted and held.is_same_reservation(holding):
                holding = replace(holding, evicted=True)  # from before the write that evicts it
            self._written.pop(key, None)
            self._hold(holding)
            return False
        if held is not None and self._keeps(held, obj, before):
            return False
        if held is not None and (not held.assumed or held.uid != obj.metadata.uid or self._written_before(key, obj)):
            return self._drop(key)
        return held is None and self._included.pop(key, None) is not None

    def _keeps(self, held: Holding, obj: wire.Workload, before: wire.Workload | None) -> bool:
        if held.uid != obj.metadata.uid or not from_api.is_mangled(obj):
            return False
        if held.key in self._kept:
            return True
        sound = before
        if held.assumed:  # nobody has seen yet what was written
            sound = self._written.get(held.key) if self._written_before(held.key, obj) else None
        if sound is None or sound.metadata.uid != held.uid or not from_api.is_admitted(sound):
            return False
        self._kept[held.key] = sound.status
        return True

    def lost_status(self, key: str) -> wire.WorkloadStatus | None:
        """The status of a workload that still holds what it lost by somebody's hand; None: it lost nothing so."""
        return self._kept.get(key)

    def on_written(self, key: str, obj: wire.Workload) -> None:
        """What was assumed or moved stands in the object: a later version without it means that it has ended."""
        held = self._holdings.get(key)
        if held is not None and held.is_unconfirmed and held.uid == obj.metadata.uid:
            self._written[key] = obj

    def _moves_from(self, held: Holding, obj: wire.Workload, admission: Admission) -> bool:
        """Whether the object is from before the write that moves the workload to other domains."""
        return (held.uid, held.replaces) == (obj.metadata.uid, admission) and not self._written_before(held.key, obj)

    def _written_before(self, key: str, obj: wire.Workload) -> bool:
        """Whether what is assumed or moved was written in an earlier version than that of the object."""
        written = self._written.get(key)
        return written is not None and _version(written) < _version(obj)

    def on_answer(self, key: str, obj: wire.Workload) -> None:
        """Follow a Workload for which something is assumed and that was read, perhaps ahead of its watch.

        A reservation in it is held as what is assumed is: events from before change nothing, the watch's own confirms
        it.  Settling the charge does not take it back.  Where the watch has already told what became of the
        Workload, nothing changes.
        """
        held = self._holdings.get(key)
        if held is None or not held.assumed or held.uid != obj.metadata.uid or from_api.is_over(obj):
            return
        admission = self.requests.admission(obj)
        if admission is not None:
            self._hold(self._reserved(key, obj, admission, assumed=True))
            self._written[key] = obj

    def assumed(self, holding: Holding) -> Charge:
        """Hold quota and domains from now on for a decision; whoever writes the decision owns the charge.

        Raises AssumedTwiceError when the workload holds something already.
        """
        held = self._holdings.get(holding.key)
        if held is not None:
            raise AssumedTwiceError(holding.key, held.queue)
        self._hold(holding)
        return self._charge_for(holding)

    def moved(self, key: str, admission: Admission) -> Charge:
        """Hold other domains for a workload that holds some, while that is being written.

        Events from before the write change nothing.  Raises KeyError when the workload holds nothing.
        """
        before, written = self._holdings[key], self._written.get(key)
        holding = replace(before, admission=admission, replaces=before.admission)
        self._hold(holding)
        return self._charge_for(holding, written)

    def _charge_for(self, holding: Holding, before: wire.Workload | None = None) -> Charge:
        """`before` is the object in which what the decision replaces stands, where no event has told of it yet."""
        key = holding.key
        charge = Charge(key, confirm=partial(self.on_written, key), settle=partial(self._settle, holding, before))
        self._charges.add(charge)
        return charge

    def _settle(self, decided: Holding, before: wire.Workload | None, charge: Charge) -> None:
        """Give back what a decision held, unless it stands, or something newer took its place.

        The admission tells whether the holding is still that of the decision: marks such as `evicted` make another
        holding of it, and an event or an answer of the API server brings an admission of its own.
        """
        self._charges.discard(charge)
        held = self._holdings.get(decided.key) or self._included.get(decided.key)
        if held is None or held.admission is not decided.admission or decided.key in self._written:
            return
        if held.replaces is None:
            self._drop(decided.key)
        else:
            self._hold(replace(held, admission=held.replaces, replaces=None))
            if before is not None and held.assumed:
                self._written[decided.key] = before

    def mark_evicted(self, key: str, uid: str, *, evicted: bool = True) -> bool:
        """Note that a workload is being told to leave (or, if that failed, that it is not).  True when that is new."""
        holding = self._holdings.get(key)
        if holding is None or holding.uid != uid or holding.evicted == evicted:
            return False
        self._hold(replace(holding, evicted=evicted))
        return True

    def hide(self, key: str) -> None:
        """Let nobody preempt a workload, until it holds nothing any more: plans that look at it fail."""
        self._by_queue.hide(key)

    def unready(self) -> str | None:
        """A workload that holds quota and whose pods are not ready; None when there is none."""
        return next((key for key, holding in self._holdings.items() if not holding.ready), None)

    def path_of(self, queue: str) -> str:
        """/root cohort/.../ClusterQueue, for people."""
        node = self._trees.queues.get(queue)
        above = [n.name for n in node.path_to_root()] if node is not None else [queue]
        return "/" + "/".join(reversed(above))

    def fits(self, admission: Admission, *, instead_of: str | None = None) -> bool:
        """Whether the live cache still has the quota and the domains of a decision made on an older snapshot.

        What the workload `instead_of` holds counts as free.
        """
        held = self._holdings.get(instead_of) if instead_of is not None else None
        if held is None:
            return self._fits(admission)
        self._charge_quota(held.queue, held.admission.usage(), sign=-1)
        try:
            return self._fits(admission)
        finally:
            self._charge_quota(held.queue, held.admission.usage(), sign=1)

    def _fits(self, admission: Admission) -> bool:
        node = self._trees.queues.get(admission.queue)
        if node is None or self.inactive(admission.queue) is not None:
            return False
        if any(v > max(0, quota.available(node, column)) for column, v in admission.usage().items()):
            return False
        return all(
            (capacity := self.ledger.capacity(flavor)) is not None
            and all(capacity.tree.leaf_of(domain.values) is not None for domain in pod_set.topology.domains)
            for pod_set in admission.pod_sets
            if pod_set.topology is not None
            for flavor in set(pod_set.flavors.values())
            if self._flavors[flavor].topology is not None
        )

    def _reserved(self, key: str, obj: wire.Workload, admission: Admission, *, assumed: bool) -> Holding:
        """What a Workload holds by this admission in its status."""
        return Holding(
            key=key,
            uid=obj.metadata.uid,
            local_queue=from_api.local_queue_key(obj),
            admission=admission,
            requests=self.requests.per_pod(obj),
            admitted=from_api.condition_true(obj, names.CONDITION_ADMITTED),
            assumed=assumed,
            priority=from_api.priority(obj, self._order),
            timestamp=from_api.queue_time(obj, self._order),
            reserved_at=from_api.since(obj, names.CONDITION_QUOTA_RESERVED),
            admitted_at=from_api.since(obj, names.CONDITION_ADMITTED),
            evicted=from_api.condition_true(obj, names.CONDITION_EVICTED),
            ready=from_api.condition_true(obj, names.CONDITION_PODS_READY),
            takes_over=from_api.replaced_key(obj),
            job=from_api.controller_of(obj.metadata),
            pods_of=from_api.siblings_key(obj),
        )

    def _hold(self, holding: Holding) -> None:
        """Charge a holding; one that is part of another is not charged beside it."""
        newer = self._holdings.get(self._newer.get(holding.key, ""))
        if newer is not None and newer.includes(holding):
            self._drop(holding.key)
            self._included[holding.key] = holding
            return
        self._put(holding)
        if holding.takes_over is not None:
            self._newer[holding.takes_over] = holding.key
            older = self._holdings.get(holding.takes_over)
            if older is not None and holding.includes(older):
                self._drop(older.key)
                self._included[older.key] = older

    def _put(self, holding: Holding) -> None:
        old = self._holdings.get(holding.key)
        if old is None:
            self._charge(holding)
        elif (old.admission, old.requests) != (holding.admission, holding.requests):
            self._drop(holding.key, replaced=True)
            self._charge(holding)
        elif (old.admitted, old.local_queue) != (holding.admitted, holding.local_queue):
            self._recounts.follow(holding.key, old, holding)
            self._sums.add(quota_audit.share(old), sign=-1)
            self._sums.add(quota_audit.share(holding), sign=1)
        self.generation += old is not None and old.priority != holding.priority
        if holding.is_unconfirmed:
            self._unconfirmed.add(holding.key)
        elif self._unconfirmed:
            self._unconfirmed.discard(holding.key)
        self._holdings[holding.key] = holding
        self._kept.pop(holding.key, None)
        self._by_queue.put(holding)

    def _charge(self, holding: Holding) -> None:
        self._charge_quota(holding.queue, holding.admission.usage(), sign=1)
        self._charge_domains(holding)
        self._recounts.follow(holding.key, None, holding)
        self._sums.add(quota_audit.share(holding), sign=1)

    def _drop(self, key: str, *, replaced: bool = False) -> bool:
        """Hold nothing for a workload any more; `replaced`: but its domains, until they are charged anew."""
        included = self._included.pop(key, None)
        holding = self._holdings.pop(key, None)
        if holding is None:
            return included is not None
        self.generation += 1
        self._count_freed(holding.queue)
        self._written.pop(key, None)
        self._kept.pop(key, None)
        self._unconfirmed.discard(key)
        self._by_queue.drop(holding)
        self._recounts.follow(key, holding, None)
        self._sums.add(quota_audit.share(holding), sign=-1)
        self._charge_quota(holding.queue, holding.admission.usage(), sign=-1)
        self._of_many_flavors.discard(key)
        if not replaced:
            self.ledger.remove_usage(key)
        if holding.takes_over is not None and self._newer.pop(holding.takes_over, None) is not None:
            left_alone = self._included.pop(holding.takes_over, None)
            if left_alone is not None:
                self._hold(left_alone)
        return True

    def _charge_quota(self, queue: str, usage: Usage, *, sign: int) -> None:
        node = self._trees.queues.get(queue)
        if node is None:
            return  # the ClusterQueue is gone; when it comes back the rebuild counts the holding
        change = quota.add_usage if sign > 0 else quota.remove_usage
        for column, amount in usage.items():
            change(node, column, amount)

    def _charge_domains(self, holding: Holding) -> None:
        usages: list[AssignedUsage] = []
        for pod_set in holding.admission.pod_sets:
            if pod_set.topology is None:
                continue
            if len(set(pod_set.flavors.values())) > 1:
                self._of_many_flavors.add(holding.key)
            requests = holding.requests.get(pod_set.name, {})
            for flavor in self._standing_in(pod_set):
                usages.append(AssignedUsage(flavor=flavor, assignment=pod_set.topology, requests=requests))
        if usages:
            self.ledger.add_usage(holding.key, usages, pods_of=holding.pods_of)
        else:
            self.ledger.remove_usage(holding.key)

    def _standing_in(self, pod_set: PodSetAssignment) -> list[str]:
        """The flavor that the pods are counted in; all that may become it, while none of them is known."""
        flavor = standing_in(pod_set, self._with_topology)
        return [flavor] if flavor is not None else sorted(set(pod_set.flavors.values()))

    # --- quota trees -------------------------------------------------------------------------------------------

    def _rebuild(self, tree: Callable[[], Iterable[str]]) -> None:
        """Make the quota trees afresh from configuration and holdings; `tree` is what has changed."""
        before = list(tree())
        self._trees = quota_trees.build(self._queues, self._cohorts, self._shares())
        self._room_generations.update({*before, *tree()})
        self._rebuilt += 1
        self._freed.clear()

    def _shares(self) -> Iterator[Share]:
        """The shares of quota that workloads, and pods without a reservation, take."""
        return map(quota_audit.share, chain[Holding | UnpaidPod](self._holdings.values(), self._unpaid.values()))

    # --- views -------------------------------------------------------------------------------------------------

    def snapshot(self, queues: Iterable[str], claims: Sequence[Claim] = ()) -> Snapshot:
        """What a cycle over heads of these ClusterQueues decides on; charging it does not touch the cache.

        `claims` are kept for preemptors of earlier cycles; their trees are in it, too.  Trees that the last one had
        are not copied again, once nobody has that one: what has changed in them is brought up to date.
        """
        wanted = {*queues, *(claim.queue for claim in claims)}
        inactive = {name: why.message for name in wanted if (why := self.inactive(name)) is not None}
        specs: dict[str, QueueSpec] = {}
        nodes: dict[str, QuotaNode] = {}
        former, self._copies = self._copies if self._reader() is None else {}, {}
        for name in wanted - inactive.keys():
            queue = self._queues.get(name)
            if queue is None:
                continue
            specs[name] = queue.spec
            if name not in nodes:
                root = queue.node.root
                copy = self._copies[id(root)] = former.get(id(root)) or quota.TreeCopy(root)
                copy.refresh()
                nodes.update(copy.queues)
        views = self._by_queue.views(nodes.keys(), self._with_topology)
        self._reader = ref(views)
        topologies = {
            flavor: TopologyView(capacity.tree.topology, capacity.tree, capacity, self.ledger.unusable(flavor))
            for flavor, capacity in self.ledger.snapshot().items()
        }
        return Snapshot(
            queues=specs,
            nodes=nodes,
            flavors=dict(self._flavors),
            topologies=topologies,
            inactive=inactive,
            admitted=views,
            claims=claims,
        )

    def views(self) -> list[Admitted]:
        """All who hold anything, as snapshots of this moment have them."""
        return [holding.view(self._with_topology) for holding in self._holdings.values()]

    def view_steps(self) -> Iterator[None]:
        """Make `views` ready in short steps: those who come between the steps are made when they are asked for."""
        for keys in chunks(list(self._holdings), _VIEW_COST):
            for holding in map(self._holdings.get, keys):
                if holding is not None:
                    holding.view(self._with_topology)
            yield

    def inactive(self, name: str) -> Inactive | None:
        """Why the ClusterQueue may not admit; None when it may, or does not exist.

        The reason is that of the first problem, in the order of the compatible system; the message names them all.
        """
        queue = self._queues.get(name)
        if queue is None:
            return None
        if name not in self._inactive:
            found = list(self._problems(name, queue))
            why = Inactive(found[0].reason, "; ".join(p.message for p in found)) if found else None
            self._inactive[name] = why
        return self._inactive[name]

    def _problems(self, name: str, queue: ConfiguredQueue) -> Iterator[Inactive]:
        yield from problems(
            queue.wire, queue.spec, flavors=self._flavors, topologies=self._topologies, checks=self._checks
        )
        if queue.problem:
            yield Inactive(names.REASON_UNKNOWN, queue.problem)
        if name in self._trees.in_cycle:
            yield Inactive(names.REASON_UNKNOWN, "its cohort tree has a cycle; correct a Cohort's spec.parentName")

    def room_generation(self, name: str) -> int:
        """Rises when a workload leaves a ClusterQueue or holds something else in it, and when quota of its tree or the
        order of its flavors changes; not when a workload gets quota.
        """
        return self._room_generations[name]

    def freed_generation(self, name: str) -> tuple[int, int]:
        """Differs when quota was given back or configured anew in the tree of a ClusterQueue; not when it was taken."""
        return self._rebuilt, self._freed[self._root_of(name)]

    def _root_of(self, queue: str) -> str:
        node = self._trees.queues.get(queue)
        return [*node.path_to_root()][-1].name if node is not None else queue

    def _count_freed(self, queue: str) -> None:
        self._room_generations[queue] += 1
        self._freed[self._root_of(queue)] += 1

    def queue_names(self) -> list[str]:
        """All known ClusterQueues."""
        return list(self._queues)

    def queue_spec(self, name: str) -> QueueSpec | None:
        """A ClusterQueue as planning sees it; None when unknown."""
        queue = self._queues.get(name)
        return queue.spec if queue is not None else None

    def minimum_runtimes(self) -> Mapping[str, timedelta]:
        """How long workloads run at least before they may be preempted, of the ClusterQueues that say so."""
        if self._minimum_runtimes is None:
            self._minimum_runtimes = {
                name: timedelta(seconds=queue.spec.minimum_runtime)
                for name, queue in self._queues.items()
                if queue.spec.minimum_runtime
            }
        return self._minimum_runtimes

    def queue_object(self, name: str) -> wire.ClusterQueue | None:
        """The ClusterQueue as last seen; None when unknown."""
        queue = self._queues.get(name)
        return queue.wire if queue is not None else None

    def is_topology_only(self, name: str) -> bool:
        """Whether every flavor of the ClusterQueue has a topology, so that pods without a request are placed too."""
        known = self._topology_only.get(name)
        if known is None:
            queue = self._queues.get(name)
            groups = queue.spec.groups if queue is not None else ()
            flavors = [self._flavors.get(f) for group in groups for f in group.flavors]
            known = queue is not None and all(f is not None and f.topology is not None for f in flavors)
            self._topology_only[name] = known
        return known

    def is_unknown(self, queue: str) -> bool:
        """Whether a ClusterQueue of that name was never seen."""
        return queue not in self._queues and queue not in self._deleted_queues

    def tree_of(self, name: str) -> list[str]:
        """The ClusterQueues that share a root cohort with this one, itself included; empty when unknown."""
        node = self._trees.queues.get(name)
        return [n.name for n in node.root.walk() if not n.is_cohort] if node is not None else []

    def queues_in_cohort(self, cohort: str) -> list[str]:
        """The ClusterQueues of the tree that a cohort is part of."""
        node = self._trees.cohorts.get(cohort)
        return [n.name for n in node.root.walk() if not n.is_cohort] if node is not None else []

    def queues_of_flavor(self, flavor: str) -> list[str]:
        """The ClusterQueues that list a flavor."""
        return [n for n, q in self._queues.items() if any(flavor in g.flavors for g in q.spec.groups)]

    def queues_beside(self, flavor: str) -> set[str]:
        """The ClusterQueues that list a flavor, or another one whose pods stand on the same hosts."""
        return {queue for name in self.ledger.flavors_beside(flavor) for queue in self.queues_of_flavor(name)}

    def resources_of(self, flavor: str) -> set[str]:
        """Resources of which some ClusterQueue has quota in a flavor."""
        nodes = self._trees.queues.values()
        return {column.resource for node in nodes for column in node.quotas if column.flavor == flavor}

    def is_flavor_used(self, flavor: str) -> bool:
        """Whether a ClusterQueue lists the flavor, or a workload still holds some of it."""
        return bool(self.queues_of_flavor(flavor)) or self._sums.in_flavor(flavor)

    def is_check_used(self, check: str) -> bool:
        """Whether a ClusterQueue names the AdmissionCheck."""
        strategies = (q.wire.spec.admission_checks_strategy for q in self._queues.values())
        return any(rule.name == check for s in strategies if s is not None for rule in s.admission_checks)

    def topologies(self) -> Mapping[str, tuple[str, ...]]:
        """Levels of every Topology by name, those that flavors list themselves included; not to be changed."""
        return self._topologies

    def flavor(self, name: str) -> Flavor | None:
        """A ResourceFlavor as choosing it goes; None when unknown."""
        return self._flavors.get(name)

    def flavors_of_topology(self, topology: str) -> list[str]:
        """The flavors that name a Topology."""
        return [f.name for f in self._flavors.values() if f.topology == topology]

    def node_of(self, name: str) -> QuotaNode | None:
        """The ClusterQueue's live quota node, to be read only."""
        return self._trees.queues.get(name)

    def cohort_node(self, name: str) -> QuotaNode | None:
        """The live quota node of a cohort, to be read only; None when there is neither an object nor a member."""
        return self._trees.cohorts.get(name)

    def has_members(self, cohort: str) -> bool:
        """Whether a ClusterQueue or a Cohort names the cohort as its parent."""
        node = self._trees.cohorts.get(cohort)
        return node is not None and bool(node.children)

    def cohort_names(self) -> list[str]:
        """All cohorts, also those without an object."""
        return list(self._trees.cohorts)

    def holding(self, key: str) -> Holding | None:
        """What a workload holds; None when nothing."""
        return self._holdings.get(key)

    def held_in(self, queue: str) -> Held:
        """What is held in a ClusterQueue, to be read only."""
        return self._sums.of_queue(queue)

    def held_through(self, local_queue: str, queue: str) -> Held:
        """What is held in a ClusterQueue through a LocalQueue (namespace/name), to be read only."""
        return self._sums.of_local_queue(local_queue, queue)

    def holdings(self, queue: str | None = None) -> list[Holding]:
        """All holdings, or those of one ClusterQueue."""
        return list((self._holdings if queue is None else self._by_queue.of(queue)).values())

    # --- audit -------------------------------------------------------------------------------------------------

    def audit(self) -> list[Drift]:
        """All of `audit_steps` at once: for caches nobody is waiting for."""
        return [drift for drifts in self.audit_steps() for drift in drifts]

    def audit_steps(self, told: Told | None = None) -> Iterator[list[Drift]]:
        """Compare what is believed with what was told, and every sum with its parts; what is wrong is healed.

        Each step is short and gives what it found, usually nothing.  Events may come between steps: a step compares the
        present with the present.  None: what was told is taken for believed, and only sums are compared.
        """
        if told is not None:
            for keys in chunks(_either(told.nodes, self.ledger.nodes)):
                yield self._found(self._audit_node(key, told.nodes.get(key)) for key in keys)
            for keys in chunks(_either(told.pods, self.ledger.pods)):
                yield self._found(self._audit_pod(key, told.pods.get(key)) for key in keys)
            for keys in chunks(_either(told.workloads, self._holdings), _WORKLOAD_COST):
                yield self._found(self._audit_workload(key, told.workloads.get(key)) for key in keys)
        for drifts in self.ledger.audit_steps():
            yield self._found(drifts)
        yield from self._audit_quota()

    def audit_charges(self, workloads: Source[wire.Workload]) -> list[Drift]:
        """Compare what no event has confirmed with its owner; what nobody owns is given back.

        An owner is a write under way, or the answer to one of which the watch has not told yet.  Costs nothing where
        every holding is confirmed, else some microseconds for each that is not.
        """
        if not self._unconfirmed:
            return []
        writing = {charge.key for charge in self._charges}
        return self._found(
            self._audit_charge(key, workloads.get(key)) for key in list(self._unconfirmed) if key not in writing
        )

    def audit_workload(self, key: str, told: wire.Workload | None) -> list[Drift]:
        """Compare what one workload holds with what the watch has told of it; None: the watch does not have it."""
        return self._found([self._audit_workload(key, told)])

    def confirmed(self) -> int:
        """How many keys `confirmed_keys` has; costs by what is not confirmed."""
        assumed = sum(self._holdings[key].assumed for key in self._unconfirmed)
        return len(self._holdings) + len(self._included) - assumed - len(self._kept)

    def confirmed_keys(self) -> set[str]:
        """Workloads that hold something by their status, as an event has told."""
        assumed = {key for key in self._unconfirmed if self._holdings[key].assumed}
        return (self._holdings.keys() | self._included.keys()) - assumed - self._kept.keys()

    def _audit_charge(self, key: str, told: wire.Workload | None) -> Drift | None:
        held, written = self._holdings[key], self._written.get(key)
        if told is not None and written is not None and _version(told) < _version(written):
            return None  # the watch is about to tell of it
        if written is None and held.assumed:
            self._drop(key)
        elif told is not None and self._bears_out(told, held):
            return None
        self.on_workload(key, told)
        after = self._holdings.get(key)
        return Drift("charge", key, held.admission, after and after.admission)

    def _found(self, drifts: Iterable[Drift | None]) -> list[Drift]:
        found = [drift for drift in drifts if drift is not None]
        self.generation += bool(found)
        return found

    def _audit_node(self, name: str, told: NodeFacts | None) -> Drift | None:
        believed = self.ledger.nodes.get(name)
        return Drift("node", name, believed, told) if self.on_node(name, told) else None

    def _audit_pod(self, key: str, told: from_api.PodView | None) -> Drift | None:
        believed, actual = self.ledger.pods.get(key), told.bound if told is not None else None
        if believed == actual:
            return None
        self.on_pod(key, actual)
        return Drift("foreign-pod", key, believed, actual)

    def _audit_workload(self, key: str, told: wire.Workload | None) -> Drift | None:
        """What a workload holds, against its status.  What is assumed is newer than what was told, and stays."""
        believed = self._holdings.get(key) or self._included.get(key)
        try:
            if told is not None and self._bears_out(told, believed):
                return None
            self.on_workload(key, told)
        except KqueueError as error:
            return Drift("workload", key, believed and believed.admission, str(error))
        actual = self._holdings.get(key) or self._included.get(key)
        return Drift("workload", key, believed and believed.admission, actual and actual.admission)

    def _bears_out(self, told: wire.Workload, held: Holding | None) -> bool:
        admission = None if from_api.is_over(told) else self.requests.admission(told)
        if held is not None and admission is None and held.key in self._kept:
            return not from_api.is_over(told) and held.uid == told.metadata.uid  # it is about to be put back
        if held is None or admission is None:
            is_assumed = (
                held is not None
                and held.assumed
                and not from_api.is_over(told)
                and not self._written_before(held.key, told)
            )
            return admission is None and (held is None or (is_assumed and held.uid == told.metadata.uid))
        if self._moves_from(held, told, admission):
            return True
        return (held.admission, held.uid, held.assumed) == (admission, told.metadata.uid, False)

    def _audit_quota(self) -> Iterator[list[Drift]]:
        yield self._found(self._audit_unpaid(key, unpaid) for key, unpaid in list(self._unpaid.items()))
        with self._recounts.open() as recount:
            for _ in recount.steps(self._holdings, self._unpaid):
                yield []
            for queues in chunks(list(self._queues)):
                yield self._found(
                    quota_audit.audit_queue(self._trees, name, recount.sums.get((name,), {})) for name in queues
                )
            yield self._found([self._audit_sums(recount.sums)])
        for queue in {id(node.root): name for name, node in self._trees.queues.items() if node.parent}.values():
            yield self._found(quota_audit.audit_tree(self._trees, queue))

    def _audit_unpaid(self, key: str, unpaid: UnpaidPod) -> Drift | None:
        """A pod that is charged, against the bound pods."""
        pod = key.removeprefix(_POD)
        actual = self.ledger.pods.get(pod)
        if actual == unpaid.facts:
            return None
        self.release_pod(pod)
        return Drift("quota", f"of pod {pod}", unpaid.facts, actual)

    def _audit_sums(self, counted: Mapping[quota_audit.Place, Mapping[quota.FlavorResource, int]]) -> Drift | None:
        """What statuses and gauges show."""
        actual = HeldSums(quota_audit.share_of(place, amounts) for place, amounts in counted.items() if len(place) > 1)
        if self._sums.is_same_as(actual):
            return None
        self._sums = actual
        return Drift("quota", "as shown", "other sums than those of what is held", "")


def _version(obj: wire.Workload) -> int:
    return int(obj.metadata.resource_version or 0)


def _either(told: Source[object], believed: Iterable[str]) -> Iterator[str]:
    """Keys that were told, then those that are only believed in."""
    yield from list(told)
    yield from (key for key in list(believed) if told.get(key) is None)


def _pod_key(pod: str) -> str:
    """The key of a pod among all that takes quota; no workload has one with two slashes."""
    return _POD + pod
