"""Holdings: reservations of workloads, decisions that are being written, and pods without a reservation.

pending ──assumed──► assumed ──echo──► reserved ──finished, evicted, deleted──► gone
             │                                                     ▲
             └── write failed: forgotten                           └── an echo of an older version changes nothing
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.core.charging import counted_in
from kqueue.core.topology import PodFacts
from kqueue.core.workload import Admission, Admitted, PodSetAssignment
from kqueue.errors import KqueueError
from kqueue.model import QueueOrder
from kqueue.state import quota_audit
from kqueue.state.audit import Recounts, chunks
from kqueue.state.bound_pods import amounts_of
from kqueue.state.charge import Charge
from kqueue.state.held import HeldSums, QueueHoldings
from kqueue.state.holding import Holding
from kqueue.state.ledger import AssignedUsage, NodeLedger
from kqueue.state.quota_cache import QuotaCache
from kqueue.state.requests import Requests
from kqueue.state.unpaid import UnpaidPod, usage_of
from kqueue.state.views import HoldingsByQueue

_POD = "pod/"
_VIEW_COST = 4  # the view lists the hosts of a gang


class AssumedTwiceError(KqueueError):
    """A decision about a workload that has usage already (a bug in the caller)."""

    def __init__(self, workload: str, held_by: str) -> None:
        super().__init__(f"{workload} is already held by ClusterQueue {held_by}")


class Holdings:
    """The quota and nodes that workloads and pods use, according to watch events and decisions."""

    def __init__(self, quota: QuotaCache, ledger: NodeLedger, requests: Requests, order: QueueOrder) -> None:
        """Take the parts of the cache; `order` is as in `model.queue_time`."""
        self._quota, self._ledger, self._requests, self._order = quota, ledger, requests, order
        self._of_many_flavors: set[str] = set()
        """Workloads with domains and several flavors: the flavor that counts their pods depends on which flavors have a
        topology.
        """
        self._holdings: dict[str, Holding] = {}
        self._included: dict[str, Holding] = {}
        """Workloads whose usage is a part of the usage of another one (`Holding.includes`): older slices of elastic
        jobs that still exist, and the parents of admitted variants.
        """
        self._newer: dict[str, dict[str, None]] = {}
        """The keys of the workloads with usage that take over another one, by the key of that."""
        self._written: dict[str, wire.Workload] = {}
        """The written object of each assumed or moved holding whose write has ended."""
        self._lost_statuses: dict[str, wire.WorkloadStatus] = {}
        """The former status of workloads that keep usage which another client removed from their status."""
        self.by_queue = HoldingsByQueue[Holding]()
        self.sums = HeldSums()
        self._charges: set[Charge] = set()
        """Charges of decisions that are being written."""
        self._unconfirmed: set[str] = set()
        """Workloads whose usage no watch event has confirmed: it is assumed, or moved to other domains."""
        self.on_unpaid: Callable[[str, str], None] = lambda _local_queue, _queue: None
        """Called with a LocalQueue (namespace/name) and a ClusterQueue when the charges for pods change there."""
        self.unpaid: dict[str, UnpaidPod] = {}
        """Bound pods that are charged in addition to the holdings, by `pod_key`."""
        self.recounts = Recounts(quota_audit.charged)

    def views(self) -> list[Admitted]:
        """Return all workloads with usage, as snapshots of this moment have them."""
        return [holding.view(self._quota.with_topology) for holding in self._holdings.values()]

    def view_steps(self) -> Iterator[None]:
        """Prepare `views` in short steps; holdings that come between the steps are prepared by `views`."""
        for keys in chunks(list(self._holdings), _VIEW_COST):
            for holding in map(self._holdings.get, keys):
                if holding is not None:
                    holding.view(self._quota.with_topology)
            yield

    def on_topologies(self) -> None:
        """Update workloads of several flavors after flavors got or lost a topology."""
        for key in list(self._of_many_flavors):
            self._charge_domains(self._holdings[key])

    # --- workloads ---------------------------------------------------------------------------------------------

    def on_workload(self, key: str, obj: wire.Workload | None, before: wire.Workload | None = None) -> bool:
        """Follow a Workload's watch event; return whether usage was released.

        A reservation is charged (replacing an assumed one); a finished, inactive or deleted workload is dropped at
        once. A pending workload is dropped only if it was reserved, so that an event from before a write does not
        undo an assumption. If the status of an admitted workload contradicts itself now, and that of `before` did not,
        the workload keeps its usage: its pods run.
        """
        held = self._holdings.get(key)
        if obj is None or model.is_over(obj):
            return self._drop(key)
        admission = self._requests.admission(obj)
        if admission is not None:
            holding = self._reserved(key, obj, admission, assumed=False)
            if held is not None and self._moves_from(held, obj, admission):
                if held.assumed:  # the watch has reported the admission, but not the move
                    moved = replace(holding, admission=held.admission, replaces=held.replaces, evicted=held.evicted)
                    self._hold(moved)
                return False
            if held is not None and held.evicted and held.is_same_reservation(holding):
                holding = replace(holding, evicted=True)  # the event is from before the write that evicts it
            self._written.pop(key, None)
            self._hold(holding)
            return False
        if held is not None and self._keeps(held, obj, before):
            return False
        if held is not None and (not held.assumed or held.uid != obj.metadata.uid or self._written_before(key, obj)):
            return self._drop(key)
        return held is None and self._included.pop(key, None) is not None

    def _keeps(self, held: Holding, obj: wire.Workload, before: wire.Workload | None) -> bool:
        if held.uid != obj.metadata.uid or not model.is_damaged_status(obj):
            return False
        if held.key in self._lost_statuses:
            return True
        intact = before
        if held.assumed:  # the watch has not reported the write yet
            intact = self._written.get(held.key) if self._written_before(held.key, obj) else None
        if intact is None or intact.metadata.uid != held.uid or not model.is_admitted(intact):
            return False
        self._lost_statuses[held.key] = intact.status
        return True

    def lost_status(self, key: str) -> wire.WorkloadStatus | None:
        """Return the status of a workload that keeps usage which another client removed from its status; None: none was
        removed.
        """
        return self._lost_statuses.get(key)

    def on_written(self, key: str, obj: wire.Workload) -> None:
        """Record the object in which an assumed or moved holding was written; a later version without it ends the
        holding.
        """
        held = self._holdings.get(key)
        if held is not None and held.is_unconfirmed and held.uid == obj.metadata.uid:
            self._written[key] = obj

    def _moves_from(self, held: Holding, obj: wire.Workload, admission: Admission) -> bool:
        """Whether the object is from before the write that moves the workload to other domains."""
        return (held.uid, held.replaces) == (obj.metadata.uid, admission) and not self._written_before(held.key, obj)

    def _written_before(self, key: str, obj: wire.Workload) -> bool:
        """Whether an assumed or moved holding was written in an earlier version than the object's."""
        written = self._written.get(key)
        return written is not None and version(written) < version(obj)

    def on_answer(self, key: str, obj: wire.Workload) -> None:
        """Follow a Workload with an assumption that was read from the API server, perhaps ahead of its watch.

        Its reservation counts as assumed: earlier events change nothing, and the watch event of this version confirms
        it. Settling the charge does not release it. If the watch has already reported the outcome, nothing changes.
        """
        held = self._holdings.get(key)
        if held is None or not held.assumed or held.uid != obj.metadata.uid or model.is_over(obj):
            return
        admission = self._requests.admission(obj)
        if admission is not None:
            self._hold(self._reserved(key, obj, admission, assumed=True))
            self._written[key] = obj

    def assumed(self, holding: Holding) -> Charge:
        """Charge quota and domains for a decision; the writer of the decision owns the returned charge.

        Raises AssumedTwiceError when the workload has usage already.
        """
        held = self._holdings.get(holding.key)
        if held is not None:
            raise AssumedTwiceError(holding.key, held.queue)
        self._hold(holding)
        return self._charge_for(holding)

    def moved(self, key: str, admission: Admission) -> Charge:
        """Charge other domains for a workload with usage while the move is being written; the writer owns the charge.

        Events from before the write change nothing.  Raises KeyError when the workload has no usage.
        """
        before, written = self._holdings[key], self._written.get(key)
        holding = replace(before, admission=admission, replaces=before.admission)
        self._hold(holding)
        return self._charge_for(holding, written)

    def _charge_for(self, holding: Holding, before: wire.Workload | None = None) -> Charge:
        """Return a new charge for a holding; `before` is the object with the replaced admission, if no event has
        reported that admission yet.
        """
        key = holding.key
        charge = Charge(key, confirm=partial(self.on_written, key), settle=partial(self._settle, holding, before))
        self._charges.add(charge)
        return charge

    def _settle(self, decided: Holding, before: wire.Workload | None, charge: Charge) -> None:
        """Release the charge of a decision, unless it was written or replaced by a newer holding.

        The admission object identifies the decision's holding: marks such as `evicted` replace the holding but keep the
        admission, and an event or an answer of the API server brings an admission of its own.
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
        """Mark a workload as being evicted (`evicted=False`: remove the mark). Returns whether the mark changed."""
        holding = self._holdings.get(key)
        if holding is None or holding.uid != uid or holding.evicted == evicted:
            return False
        self._hold(replace(holding, evicted=evicted))
        return True

    def hide(self, key: str) -> None:
        """Exclude a workload from preemption until it has no usage, because plans that examine it fail."""
        self.by_queue.hide(key)

    def unready(self) -> str | None:
        """Return a workload with quota whose pods are not ready; None when there is none."""
        return next((key for key, holding in self._holdings.items() if not holding.ready), None)

    def _reserved(self, key: str, obj: wire.Workload, admission: Admission, *, assumed: bool) -> Holding:
        """Return the holding of a Workload with this admission in its status."""
        return Holding(
            key=key,
            uid=obj.metadata.uid,
            local_queue=model.local_queue_key(obj),
            admission=admission,
            requests=self._requests.per_pod(obj),
            admitted=model.condition_true(obj, names.CONDITION_ADMITTED),
            assumed=assumed,
            priority=model.priority(obj, self._order),
            timestamp=model.queue_time(obj, self._order),
            reserved_at=model.since(obj, names.CONDITION_QUOTA_RESERVED),
            admitted_at=model.since(obj, names.CONDITION_ADMITTED),
            evicted=model.condition_true(obj, names.CONDITION_EVICTED),
            ready=model.condition_true(obj, names.CONDITION_PODS_READY),
            takes_over=model.taken_over_key(obj),
            job=model.controller_of(obj.metadata),
            pods_of=model.pods_key(obj),
            facts=model.run_facts(obj.metadata.annotations),
        )

    def _hold(self, holding: Holding) -> None:
        """Charge a holding, unless it is a part of another one."""
        if any(self._holdings[key].includes(holding) for key in self._newer.get(holding.key, ())):
            self._drop(holding.key)
            self._included[holding.key] = holding
            return
        if self._included:
            self._included.pop(holding.key, None)
        self._put(holding)
        if holding.takes_over is not None:
            self._newer.setdefault(holding.takes_over, {})[holding.key] = None
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
            self.recounts.follow(holding.key, old, holding)
            self.sums.add(quota_audit.share(old), sign=-1)
            self.sums.add(quota_audit.share(holding), sign=1)
        self._quota.generation += old is not None and old.priority != holding.priority
        if holding.is_unconfirmed:
            self._unconfirmed.add(holding.key)
        elif self._unconfirmed:
            self._unconfirmed.discard(holding.key)
        self._holdings[holding.key] = holding
        self._lost_statuses.pop(holding.key, None)
        self.by_queue.put(holding)

    def _charge(self, holding: Holding) -> None:
        self._quota.charge(holding.queue, holding.admission.usage(), sign=1)
        self._charge_domains(holding)
        self.recounts.follow(holding.key, None, holding)
        self.sums.add(quota_audit.share(holding), sign=1)

    def _drop(self, key: str, *, replaced: bool = False) -> bool:
        """Release the usage of a workload; return whether it had any. `replaced`: keep its domains until the next
        charge.
        """
        included = self._included.pop(key, None)
        holding = self._holdings.pop(key, None)
        if holding is None:
            return included is not None
        self._quota.count_freed(holding.queue)
        self._written.pop(key, None)
        self._lost_statuses.pop(key, None)
        self._unconfirmed.discard(key)
        self.by_queue.drop(holding)
        self.recounts.follow(key, holding, None)
        self.sums.add(quota_audit.share(holding), sign=-1)
        self._quota.charge(holding.queue, holding.admission.usage(), sign=-1)
        self._of_many_flavors.discard(key)
        if not replaced:
            self._ledger.remove_usage(key)
        self._forget_newer(holding)
        return True

    def _forget_newer(self, gone: Holding) -> None:
        """Charge the holding that was a part of one that has ended, unless it is a part of a third one."""
        newer = self._newer.get(gone.takes_over or "")
        if gone.takes_over is None or newer is None:
            return
        newer.pop(gone.key, None)
        if not newer:
            del self._newer[gone.takes_over]
        part = self._included.pop(gone.takes_over, None)
        if part is not None:
            self._hold(part)

    def _charge_domains(self, holding: Holding) -> None:
        usages: list[AssignedUsage] = []
        for pod_set in holding.admission.pod_sets:
            if pod_set.topology is None:
                continue
            if len(set(pod_set.flavors.values())) > 1:
                self._of_many_flavors.add(holding.key)
            requests = holding.requests.get(pod_set.name, {})
            for flavor in self._counted_in(pod_set):
                usages.append(AssignedUsage(flavor=flavor, assignment=pod_set.topology, requests=requests))
        if usages:
            self._ledger.add_usage(holding.key, usages, pods_of=holding.pods_of)
        else:
            self._ledger.remove_usage(holding.key)

    def _counted_in(self, pod_set: PodSetAssignment) -> list[str]:
        """Return the flavor in which the pods count; while no flavor has a topology, all assigned flavors."""
        flavor = counted_in(pod_set, self._quota.with_topology)
        return [flavor] if flavor is not None else sorted(set(pod_set.flavors.values()))

    def holding(self, key: str) -> Holding | None:
        """Return the holding of a workload; None: it has no usage."""
        return self._holdings.get(key)

    def listed(self) -> list[Holding]:
        """Return the holdings of all workloads with usage."""
        return list(self._holdings.values())

    def held_in(self, queue: str) -> QueueHoldings:
        """Return the sum of holdings in a ClusterQueue. Callers must not change it."""
        return self.sums.of_queue(queue)

    def held_through(self, local_queue: str, queue: str) -> QueueHoldings:
        """Return the sum of holdings in a ClusterQueue through a LocalQueue (namespace/name). Callers must not change
        it.
        """
        return self.sums.of_local_queue(local_queue, queue)

    def holdings(self, queue: str | None = None) -> list[Holding]:
        """Return all holdings, or the holdings of one ClusterQueue."""
        return list((self._holdings if queue is None else self.by_queue.of(queue)).values())

    def confirmed(self) -> int:
        """Return the number of `confirmed_keys`; the time grows with the unconfirmed ones."""
        assumed = sum(self._holdings[key].assumed for key in self._unconfirmed)
        return len(self._holdings) + len(self._included) - assumed - len(self._lost_statuses)

    def confirmed_keys(self) -> set[str]:
        """Return the workloads whose usage a watch event has confirmed."""
        assumed = {key for key in self._unconfirmed if self._holdings[key].assumed}
        return (self._holdings.keys() | self._included.keys()) - assumed - self._lost_statuses.keys()

    def agrees_with_watch(self, watched: wire.Workload, held: Holding | None) -> bool:
        """Whether a Workload of the watch has the admission that is charged for it."""
        admission = None if model.is_over(watched) else self._requests.admission(watched)
        if held is not None and admission is None and held.key in self._lost_statuses:
            return not model.is_over(watched) and held.uid == watched.metadata.uid  # the status will be restored soon
        if held is None or admission is None:
            is_assumed = (
                held is not None
                and held.assumed
                and not model.is_over(watched)
                and not self._written_before(held.key, watched)
            )
            return admission is None and (held is None or (is_assumed and held.uid == watched.metadata.uid))
        if self._moves_from(held, watched, admission):
            return True
        return (held.admission, held.uid, held.assumed) == (admission, watched.metadata.uid, False)

    def known(self, key: str) -> Holding | None:
        """Return the holding of a workload, also if it is a part of a newer slice; None: it has no usage."""
        return self._holdings.get(key) or self._included.get(key)

    def is_part(self, key: str) -> bool:
        """Whether the usage of a workload is a part of the usage of another one."""
        return key in self._included

    def of_pods(self, key: str) -> Holding | None:
        """Return the holding of the pods that run under a workload's name: a parent's own, although it is a part of its
        variant's; None: the workload has no usage, or it is a variant, whose name no pod has.
        """
        held = self._holdings.get(key)
        if held is not None:
            return None if held.is_variant else held
        newer = (self._holdings[other] for other in self._newer.get(key, ()))
        return self._included.get(key) if any(other.is_variant for other in newer) else None

    def unowned(self) -> list[str]:
        """Return workloads with unconfirmed usage for which no write is under way."""
        if not self._unconfirmed:
            return []
        writing = {charge.key for charge in self._charges}
        return [key for key in self._unconfirmed if key not in writing]

    def give_up(self, key: str, watched: wire.Workload | None) -> bool:
        """Replace an unconfirmed holding by the state in the watch; False: it is correct, or an event will come."""
        held, written = self._holdings[key], self._written.get(key)
        if watched is not None and written is not None and version(watched) < version(written):
            return False  # the watch will report the written object soon
        if written is None and held.assumed:
            self._drop(key)
        elif watched is not None and self.agrees_with_watch(watched, held):
            return False
        self.on_workload(key, watched)
        return True

    def facts(self) -> tuple[Mapping[str, Holding], Mapping[str, UnpaidPod]]:
        """Return all workloads and pods that use quota. Callers must not change the mappings."""
        return self._holdings, self.unpaid

    def keys(self) -> Iterable[str]:
        """Return the workloads with usage."""
        return self._holdings

    # --- pods without a reservation -------------------------------------------------------------------------------

    def on_pod(self, key: str, facts: PodFacts | None) -> frozenset[str]:
        """Follow a bound pod that came, changed or (None) is gone; return the nodes on which resources became free."""
        freed = frozenset(self._ledger.on_pod(key, facts))
        unpaid = self.unpaid.get(pod_key(key)) if self.unpaid else None
        if unpaid is not None and unpaid.facts != facts:
            self.release_pod(key)
            if facts is not None and facts.node == unpaid.facts.node and unpaid.amounts is None:
                self.charge_pod(key, unpaid.local_queue, unpaid.queue)
        return freed

    def charge_pod(self, key: str, local_queue: str, queue: str, amounts: Mapping[str, int] | None = None) -> bool:
        """Charge a bound pod to a ClusterQueue until the pod has ended; return whether the charge is new.

        `amounts` is charged until the pod's requests change; None: all its requests. No effect if no event has reported
        the pod, or the ClusterQueue is unknown.
        """
        facts, configured = self._ledger.pods.get(key), self._quota.queues.get(queue)
        if facts is None or configured is None or pod_key(key) in self.unpaid:
            return False
        node = self._ledger.nodes.get(facts.node)
        taken = self._requests.devices.as_quota(amounts if amounts is not None else amounts_of(facts))
        usage = usage_of(taken, configured.spec.groups, self._quota.flavors, node.labels if node is not None else {})
        unpaid = UnpaidPod(queue=queue, local_queue=local_queue, facts=facts, usage=usage, amounts=amounts)
        self.unpaid[pod_key(key)] = unpaid
        self._count_unpaid(key, unpaid, sign=1)
        return True

    def release_pod(self, key: str) -> str | None:
        """Release the charge of a pod; return its ClusterQueue, None: the pod was not charged."""
        unpaid = self.unpaid.pop(pod_key(key), None)
        if unpaid is None:
            return None
        self._count_unpaid(key, unpaid, sign=-1)
        self._quota.count_freed(unpaid.queue)
        return unpaid.queue

    def charged_pod(self, key: str) -> str | None:
        """Return the ClusterQueue that a pod is charged to in addition to the holdings; None: the pod is not
        charged.
        """
        unpaid = self.unpaid.get(pod_key(key))
        return unpaid.queue if unpaid is not None else None

    def _count_unpaid(self, key: str, unpaid: UnpaidPod, *, sign: int) -> None:
        self.recounts.follow(pod_key(key), *((None, unpaid) if sign > 0 else (unpaid, None)))
        self.sums.add(quota_audit.share(unpaid), sign=sign)
        self._quota.charge(unpaid.queue, unpaid.usage, sign=sign)
        self.on_unpaid(unpaid.local_queue, unpaid.queue)


def version(obj: wire.Workload) -> int:
    """Return the object's resource version as a number; 0: the object has none."""
    return int(obj.metadata.resource_version or 0)


def pod_key(pod: str) -> str:
    """Return the key of a pod among workloads and pods; no workload has a key with two slashes."""
    return _POD + pod


def pod_of(key: str) -> str:
    """Return the pod (namespace/name) of a `pod_key`."""
    return key.removeprefix(_POD)
