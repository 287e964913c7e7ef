"""Targets by fair shares: who has borrowed most, for their weight, gives first, and only as far as that is fairer.

Queues are chosen from the root down, by the share of each branch, and what is removed changes the shares.  Where two
queues lie in different branches it is the branches that are compared, with the preemptor counted in its own.

Source: the compatible system's fair sharing (KEP-1714).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from kqueue.core.fair_share import Share, dominant_share
from kqueue.core.preemption.candidates import candidates, in_order, order, within_quota
from kqueue.core.preemption.fit import Fit, fill_back
from kqueue.core.preemption.simulation import Simulation, simulate
from kqueue.core.preemption.target import PreemptionReason, Preemptor, Rules, Strategy, Target
from kqueue.core.quota import QuotaNode
from kqueue.core.workload import Admitted, Preempts, Snapshot

_Waiting = dict[QuotaNode, deque[Admitted]]
"""Candidates by queue, first to go first."""


def fair_targets(
    snapshot: Snapshot, preemptor: Preemptor, rules: Rules, places: Callable[[], bool] | None
) -> tuple[Target, ...]:
    """Workloads that have to go so that the preemptor fits, in no meaningful order; () when that is not possible.

    `rules.fair` names the strategies.
    """
    assert rules.fair
    waiting = _collect(snapshot, preemptor, rules)
    if not waiting:
        return ()
    with simulate(snapshot, with_domains=places is not None) as simulation:
        search = _Search(simulation, preemptor, rules, places)
        if search.first_pass(waiting, rules.fair[0]) or (len(rules.fair) > 1 and search.second_pass()):
            return search.needed()
    return ()


def _collect(snapshot: Snapshot, preemptor: Preemptor, rules: Rules) -> _Waiting:
    spec, own = snapshot.queues[preemptor.queue], snapshot.nodes[preemptor.queue]
    waiting: _Waiting = {}
    for queue in _queues(own.root) if spec.reclaims is not Preempts.NEVER else (own,):
        if queue is not own and within_quota(queue, preemptor.needs):
            continue
        policy = spec.preempts_own if queue is own else spec.reclaims
        found = candidates(snapshot, queue.name, policy, preemptor, rules)
        if found:
            waiting[queue] = deque(in_order(found, preemptor, rules))
    return waiting


def _queues(root: QuotaNode) -> Iterator[QuotaNode]:
    pending = [root]
    while pending:
        node = pending.pop()
        if node.is_cohort:
            pending += node.children
        else:
            yield node


class _Shares:
    """Shares of nodes, worked out once until something below them changes."""

    def __init__(self) -> None:
        self._known: dict[QuotaNode, Share] = {}

    def __getitem__(self, node: QuotaNode) -> Share:
        share = self._known.get(node)
        if share is None:
            share = self._known[node] = dominant_share(node)
        return share

    def forget(self, queue: QuotaNode) -> None:
        """The queue's usage has changed."""
        for node in queue.path_to_root():
            self._known.pop(node, None)


class _Choice:
    """Which queue the next target comes from.

    Branches without candidates are out, and those that do not borrow, except for the way to the preemptor's own queue.
    """

    def __init__(
        self, waiting: _Waiting, own: QuotaNode, shares: _Shares, key: Callable[[Admitted], tuple[object, ...]]
    ) -> None:
        self._waiting = waiting
        self._shares = shares
        self._key = key
        self._on_the_way = set(own.path_to_root())
        self._root = own.root
        self._branches: dict[QuotaNode, list[QuotaNode]] = {}
        for queue in waiting:
            self._add(queue)

    def _add(self, node: QuotaNode) -> None:
        while node.parent is not None:
            siblings = self._branches.setdefault(node.parent, [])
            siblings.append(node)
            if len(siblings) > 1:
                return
            node = node.parent

    def next(self) -> QuotaNode | None:
        """The queue whose first candidate is looked at next; None when there is none left."""
        if self._root not in self._branches:
            return self._root if self._waiting.get(self._root) else None
        node = self._root
        while True:
            best = self._best_child(node)
            if best is None:
                if node is self._root:
                    return None
                assert node.parent is not None
                self._branches[node.parent].remove(node)
                node = self._root
            elif best in self._waiting:
                return best
            else:
                node = best

    def _best_child(self, cohort: QuotaNode) -> QuotaNode | None:
        """The cohort or queue with the highest share; between equals a cohort, or whose first candidate goes first."""
        branches = self._branches[cohort]
        alive = [node for node in branches if self._may_give(node)]
        if len(alive) < len(branches):
            branches[:] = alive
        if not alive:
            return None
        highest = max(self._shares[node] for node in alive)
        best = [node for node in alive if self._shares[node] == highest]
        cohorts = [node for node in best if node not in self._waiting]
        if cohorts:
            return min(cohorts, key=lambda node: node.name)
        return best[0] if len(best) == 1 else min(best, key=lambda queue: self._key(self._waiting[queue][0]))

    def _may_give(self, node: QuotaNode) -> bool:
        if node in self._waiting and not self._waiting[node]:
            return False
        return node in self._on_the_way or self._shares[node].is_borrowing


class _Search:
    """One search.  The preemptor counts as if it ran, except when it is tested whether it fits."""

    def __init__(
        self, simulation: Simulation, preemptor: Preemptor, rules: Rules, places: Callable[[], bool] | None
    ) -> None:
        self._simulation = simulation
        self._preemptor = preemptor
        self._own = simulation.snapshot.nodes[preemptor.queue]
        self._own_side = {node.parent: node for node in self._own.path_to_root()}
        self._key = order(preemptor, rules)
        self._shares = _Shares()
        self._fit = Fit(simulation, preemptor, places)
        self._targets: list[Target] = []
        self._aside: _Waiting = {}
        simulation.charge(preemptor.queue, preemptor.usage)
        self._stays_within_nominal = rules.within_nominal and within_quota(self._own, preemptor.needs)

    def first_pass(self, waiting: _Waiting, strategy: Strategy) -> bool:
        """Take what the strategy allows until the preemptor fits; what it does not is put aside."""
        choice = _Choice(waiting, self._own, self._shares, self._key)
        while (queue := choice.next()) is not None:
            if queue is self._own:
                fits = self._take(queue, waiting[queue].popleft(), PreemptionReason.IN_CLUSTER_QUEUE)
            elif self._stays_within_nominal:
                fits = self._take(queue, waiting[queue].popleft(), PreemptionReason.IN_COHORT_RECLAMATION)
            else:
                fits = self._take_fairly(queue, waiting[queue], strategy)
            if fits:
                return True
        return False

    def second_pass(self) -> bool:
        """Take one of each queue from what was put aside, where its branch has more than the preemptor's will have."""
        choice = _Choice(self._aside, self._own, self._shares, self._key)
        while (queue := choice.next()) is not None:
            candidate = self._aside[queue].popleft()
            self._aside[queue].clear()
            mine, theirs = self._compared(queue)
            is_fair = self._shares[mine] < self._shares[theirs]
            if is_fair and self._take(queue, candidate, PreemptionReason.IN_COHORT_FAIR_SHARING):
                return True
        return False

    def needed(self) -> tuple[Target, ...]:
        """The targets, without those that may stay after all."""
        fill_back(self._targets, self._simulation, self._fits)
        return tuple(self._targets)

    def _take_fairly(self, queue: QuotaNode, waiting: deque[Admitted], strategy: Strategy) -> bool:
        """Take the first candidate of the queue that the strategy allows, and put those before it aside."""
        mine, theirs = self._compared(queue)
        final, initial = self._shares[mine], self._shares[theirs]
        aside = self._aside.setdefault(queue, deque())
        if final.is_endless and not initial.is_endless:
            aside += waiting
            waiting.clear()
            return False
        while waiting:
            candidate = waiting.popleft()
            if strategy is Strategy.LTI:
                is_fair = final < initial
            else:
                is_fair = final <= self._share_without(candidate, theirs)
            if is_fair:
                return self._take(queue, candidate, PreemptionReason.IN_COHORT_FAIR_SHARING)
            aside.append(candidate)
        return False

    def _share_without(self, candidate: Admitted, node: QuotaNode) -> Share:
        self._simulation.uncharge(candidate.queue, candidate.usage)
        share = dominant_share(node)
        self._simulation.charge(candidate.queue, candidate.usage)
        return share

    def _compared(self, queue: QuotaNode) -> tuple[QuotaNode, QuotaNode]:
        """The children of the lowest cohort around both queues: the preemptor's side, and the other one."""
        node = queue
        while node.parent not in self._own_side:
            assert node.parent is not None
            node = node.parent
        return self._own_side[node.parent], node

    def _take(self, queue: QuotaNode, candidate: Admitted, reason: PreemptionReason) -> bool:
        """Remove a candidate; whether the preemptor fits now."""
        self._simulation.remove(candidate)
        self._shares.forget(queue)
        self._targets.append(Target(candidate, reason))
        return self._fits()

    def _fits(self) -> bool:
        preemptor = self._preemptor
        self._simulation.uncharge(preemptor.queue, preemptor.usage)
        fits = self._fit(borrowing=True)
        self._simulation.charge(preemptor.queue, preemptor.usage)
        return fits
