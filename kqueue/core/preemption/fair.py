"""Targets by fair shares: workloads of the queue with the highest share are preempted first, while shares become
fairer.

Queues are chosen from the root down, by the share of each branch; each removal changes the shares. Queues in different
branches are compared by the shares of the branches, with the preemptor counted in its own branch.

Source: the compatible system's fair sharing (KEP-1714).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from kqueue.core.fair_share import Share, dominant_share
from kqueue.core.preemption.candidates import Order, candidates, order, over_quota, within_quota
from kqueue.core.preemption.findings import Findings
from kqueue.core.preemption.fit import Fit, HostNeeds, without_needless
from kqueue.core.preemption.simulation import Simulation, everybody, simulate
from kqueue.core.preemption.target import PreemptionReason, Preemptor, SharingStrategy, Target
from kqueue.core.quota import FlavorResource, QuotaNode
from kqueue.core.workload import Admitted, Preempts, Snapshot

_Waiting = dict[QuotaNode, deque[Admitted]]
"""Candidates by queue, in the order of preemption."""
_Entry = tuple[tuple[object, ...], int, QuotaNode]


def fair_targets(
    snapshot: Snapshot, preemptor: Preemptor, findings: Findings, hosts: HostNeeds | None
) -> tuple[Target, ...]:
    """Return the workloads to preempt so that the preemptor fits, in no particular order; empty: that is not possible.

    `findings.rules.fair` has the strategies.
    """
    strategies = findings.rules.fair
    assert strategies
    waiting = _collect(snapshot, preemptor, findings)
    if not waiting:
        return ()
    with simulate(
        snapshot, with_domains=hosts is not None, matters=hosts.matters if hosts is not None else everybody
    ) as simulation:
        search = _Search(simulation, preemptor, findings, hosts)
        if search.first_pass(waiting, strategies[0]) or (len(strategies) > 1 and search.second_pass()):
            return search.needed()
    return ()


def fair_candidates(snapshot: Snapshot, preemptor: Preemptor, findings: Findings) -> list[Admitted]:
    """Return the workloads that policies let the preemptor preempt, queue by queue."""
    return [admitted for waiting in _collect(snapshot, preemptor, findings).values() for admitted in waiting]


def _collect(snapshot: Snapshot, preemptor: Preemptor, findings: Findings) -> _Waiting:
    spec, own = snapshot.queues[preemptor.queue], snapshot.nodes[preemptor.queue]
    waiting: _Waiting = {}
    queues = [own]
    if spec.reclaims is not Preempts.NEVER:
        queues += _other_borrowers(own, preemptor.needs, findings)
    for queue in queues:
        policy = spec.preempts_own if queue is own else spec.reclaims
        found = candidates(snapshot, queue.name, policy, preemptor, findings)
        if found:
            waiting[queue] = deque(found)
    return waiting


def _other_borrowers(own: QuotaNode, columns: frozenset[FlavorResource], findings: Findings) -> list[QuotaNode]:
    return [queue for queue in over_quota(own.root, columns, findings, queues=True) if queue is not own]


def any_other_queue_borrows(own: QuotaNode, columns: frozenset[FlavorResource], findings: Findings) -> bool:
    """Whether any other queue of the tree uses more than its quota."""
    over = over_quota(own.root, columns, findings, queues=True)
    return bool(over) and over != [own]


class _Choice:
    """Chooses the queue of the next target.

    Branches without candidates are left out, and so are branches that do not borrow, except on the path to the
    preemptor's own queue. Every cohort keeps its children in a heap. Between two choices only the chosen queue and its
    ancestors can change, so only these are inserted into their heaps again with their present shares.
    """

    def __init__(self, waiting: _Waiting, own: QuotaNode, key: Callable[[Admitted], Order]) -> None:
        self._waiting = waiting
        self._key = key
        self._on_the_way = set(own.path_to_root())
        self._root = own.root
        self._serial = count()
        self._heaps: dict[QuotaNode, list[_Entry]] = {}
        if self._root.is_cohort:
            self._offer_all(self._root)
        self._chosen: list[QuotaNode] = []

    def next(self) -> QuotaNode | None:
        """Return the queue whose first candidate is tried next; None when no queue is left."""
        for node in reversed(self._chosen):
            self._offer(node)
        self._chosen = []
        node = self._root
        while node in self._heaps:
            if not self._heaps[node]:
                return None
            node = heappop(self._heaps[node])[-1]
            self._chosen.append(node)
        return node if self._waiting.get(node) else None

    def _offer_all(self, cohort: QuotaNode) -> None:
        self._heaps[cohort] = []
        for child in cohort.children:
            if child.is_cohort:
                self._offer_all(child)
            if child.is_cohort or child in self._waiting:
                self._offer(child)

    def _offer(self, node: QuotaNode) -> None:
        """Insert a node into its parent's heap if it has candidates. Nodes below it must have been inserted before."""
        if not (self._heaps[node] if node.is_cohort else self._waiting[node]):
            return
        share = dominant_share(node)
        if not share.is_borrowing and node not in self._on_the_way:
            return
        assert node.parent is not None
        # the highest share first; of equal shares a cohort, then the queue whose first candidate is preempted first
        tie = (node.name,) if node.is_cohort else self._key(self._waiting[node][0])
        rank = (not share.is_endless, -share.scaled, not node.is_cohort, tie)
        heappush(self._heaps[node.parent], (rank, next(self._serial), node))


class _Search:
    """A search for targets. The preemptor's usage is charged, except during the test whether it fits."""

    def __init__(
        self, simulation: Simulation, preemptor: Preemptor, findings: Findings, hosts: HostNeeds | None
    ) -> None:
        self._simulation = simulation
        self._preemptor = preemptor
        self._own = simulation.snapshot.nodes[preemptor.queue]
        self._own_side = {node.parent: node for node in self._own.path_to_root()}
        self._key = order(preemptor, findings)
        self._fit = Fit(simulation, preemptor, hosts)
        self._targets: list[Target] = []
        self._aside: _Waiting = {}
        simulation.charge(preemptor.queue, preemptor.usage)
        self._stays_within_nominal = findings.rules.within_nominal and within_quota(self._own, preemptor.needs)

    def first_pass(self, waiting: _Waiting, strategy: SharingStrategy) -> bool:
        """Take the candidates that the strategy allows until the preemptor fits; put the others aside."""
        choice = _Choice(waiting, self._own, self._key)
        while (queue := choice.next()) is not None:
            if queue is self._own:
                fits = self._take(waiting[queue].popleft(), PreemptionReason.IN_CLUSTER_QUEUE)
            elif self._stays_within_nominal:
                fits = self._take(waiting[queue].popleft(), PreemptionReason.IN_COHORT_RECLAMATION)
            else:
                fits = self._take_fairly(queue, waiting[queue], strategy)
            if fits:
                return True
        return False

    def second_pass(self) -> bool:
        """Take one candidate of each queue from the candidates put aside, if its branch has a higher share than the
        preemptor's branch will have.
        """
        choice = _Choice(self._aside, self._own, self._key)
        while (queue := choice.next()) is not None:
            candidate = self._aside[queue].popleft()
            self._aside[queue].clear()
            mine, theirs = self._compared(queue)
            is_fair = dominant_share(mine) < dominant_share(theirs)
            if is_fair and self._take(candidate, PreemptionReason.IN_COHORT_FAIR_SHARING):
                return True
        return False

    def needed(self) -> tuple[Target, ...]:
        """Return the targets without workloads that need not be preempted after all."""
        return without_needless(self._targets, self._simulation, self._fit, self._fits)

    def _take_fairly(self, queue: QuotaNode, waiting: deque[Admitted], strategy: SharingStrategy) -> bool:
        """Take the first candidate of the queue that the strategy allows, and put the candidates before it aside."""
        mine, theirs = self._compared(queue)
        final, initial = dominant_share(mine), dominant_share(theirs)
        aside = self._aside.setdefault(queue, deque())
        while waiting:
            candidate = waiting.popleft()
            if strategy is SharingStrategy.LTI:
                is_fair = final < initial
            else:
                is_fair = final <= self._share_without(candidate, theirs)
            if is_fair:
                return self._take(candidate, PreemptionReason.IN_COHORT_FAIR_SHARING)
            aside.append(candidate)
        return False

    def _share_without(self, candidate: Admitted, node: QuotaNode) -> Share:
        self._simulation.uncharge(candidate.queue, candidate.usage)
        share = dominant_share(node)
        self._simulation.charge(candidate.queue, candidate.usage)
        return share

    def _compared(self, queue: QuotaNode) -> tuple[QuotaNode, QuotaNode]:
        """Return the children of the lowest cohort around both queues: on the preemptor's side, and on the
        other side.
        """
        node = queue
        while node.parent not in self._own_side:
            assert node.parent is not None
            node = node.parent
        return self._own_side[node.parent], node

    def _take(self, candidate: Admitted, reason: PreemptionReason) -> bool:
        """Remove a candidate; return whether the preemptor fits now."""
        self._simulation.remove(candidate)
        self._targets.append(Target(candidate, reason))
        return self._fits()

    def _fits(self) -> bool:
        preemptor = self._preemptor
        self._simulation.uncharge(preemptor.queue, preemptor.usage)
        fits = self._fit(borrowing=True)
        self._simulation.charge(preemptor.queue, preemptor.usage)
        return fits
