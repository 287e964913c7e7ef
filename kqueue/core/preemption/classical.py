"""Targets by quota and priority: reclaim borrowed quota, and preempt lower workloads of the own queue.

    hierarchical    candidates of queues that borrow quota to which the preemptor's queue, or a cohort around it,
                    has a right
    priority        candidates of other borrowing queues
    own             candidates of the preemptor's queue

Candidates are preempted in this order until the preemptor fits; already evicted ones come first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from kqueue.core import quota
from kqueue.core.preemption.candidates import candidates, in_order, over_quota, within_quota
from kqueue.core.preemption.findings import Findings
from kqueue.core.preemption.fit import Fit, HostNeeds, without_needless
from kqueue.core.preemption.simulation import Simulation, everybody, simulate
from kqueue.core.preemption.target import PreemptionReason, Preemptor, Target
from kqueue.core.quota import FlavorResource, QuotaNode
from kqueue.core.workload import Admitted, Preempts, QueueSpec, Snapshot


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A candidate; `ancestor` is the lowest cohort around its queue and the preemptor's; None: the queues are
    the same.
    """

    admitted: Admitted
    reason: PreemptionReason
    ancestor: QuotaNode | None
    only_without_borrowing: bool = False
    """Whether only a preemptor that then stays within the nominal quota of its queue may preempt it."""


@dataclass(slots=True)
class _Found:
    """All candidates, by the reason for which they may be preempted; each list is sorted at the end, evicted ones
    first.
    """

    hierarchical: list[_Candidate] = field(default_factory=list)
    priority: list[_Candidate] = field(default_factory=list)
    own: list[Admitted] = field(default_factory=list)
    is_last: Callable[[Admitted], bool] | None = None
    """Whether a workload comes after all others of all lists; None: none does."""

    def __bool__(self) -> bool:
        return bool(self.hierarchical or self.priority or self.own)

    def sequence(self) -> Iterator[_Candidate]:
        """Yield the candidates in the order of preemption; usually only a few of very many are read."""
        if self.is_last is None:
            yield from self._lists()
            return
        for last in (False, True):
            for candidate in self._lists():
                admitted = candidate.admitted
                if last is (not admitted.evicted and self.is_last(admitted)):
                    yield candidate

    def _lists(self) -> Iterator[_Candidate]:
        for evicted in (True, False):
            for candidate in chain(self.hierarchical, self.priority):
                if candidate.admitted.evicted is evicted:
                    yield candidate
            for admitted in self.own:
                if admitted.evicted is evicted:
                    yield _Candidate(admitted, PreemptionReason.IN_CLUSTER_QUEUE, None)
                elif evicted:
                    break


def classical_targets(
    snapshot: Snapshot, preemptor: Preemptor, findings: Findings, hosts: HostNeeds | None
) -> tuple[Target, ...]:
    """Return the workloads to preempt so that the preemptor fits, in no particular order; empty: that is not
    possible.
    """
    found = _collect(snapshot, preemptor, findings)
    if not found:
        return ()
    for borrowing in _attempts(snapshot, preemptor, found):
        with simulate(
            snapshot,
            with_domains=hosts is not None,
            matters=hosts.matters if hosts is not None else everybody,
            columns=preemptor.usage.keys() | preemptor.needs,
        ) as simulation:
            targets = _attempt(found.sequence(), simulation, preemptor, hosts, borrowing=borrowing)
        if targets:
            return targets
    return ()


def classical_candidates(snapshot: Snapshot, preemptor: Preemptor, findings: Findings) -> list[Admitted]:
    """Return the workloads that policies let the preemptor preempt, in the order of preemption."""
    return [candidate.admitted for candidate in _collect(snapshot, preemptor, findings).sequence()]


# --- collect ---------------------------------------------------------------------------------------------------------


def _collect(snapshot: Snapshot, preemptor: Preemptor, findings: Findings) -> _Found:
    spec, node = snapshot.queues[preemptor.queue], snapshot.nodes[preemptor.queue]
    own = candidates(snapshot, node.name, spec.preempts_own, preemptor, findings)
    found = _Found(own=own, is_last=findings.rules.is_last if findings.rules.postpones else None)
    if spec.reclaims is Preempts.NEVER or not another_queue_borrows(node, preemptor.needs, findings):
        return found
    for ancestor, done, has_right in _ancestors(node, preemptor):
        queues = list(_borrowing_queues(ancestor, done, preemptor.needs, findings))
        if not queues:
            continue
        others = [c for q in queues for c in candidates(snapshot, q.name, spec.reclaims, preemptor, findings)]
        if has_right:
            reclaim = PreemptionReason.IN_COHORT_RECLAMATION
            found.hierarchical += [_Candidate(admitted, reclaim, ancestor) for admitted in others]
        else:
            found.priority += [_lesser(admitted, ancestor, spec, preemptor) for admitted in others]
    found.hierarchical = _sorted(found.hierarchical, preemptor, findings)
    found.priority = _sorted(found.priority, preemptor, findings)
    return found


def another_queue_borrows(node: QuotaNode, columns: frozenset[FlavorResource], findings: Findings) -> bool:
    """Whether any cohort around a queue has another child that uses more than its quota."""
    while node.parent is not None:
        over = over_quota(node.parent, columns, findings)
        if over and over != [node]:
            return True
        node = node.parent
    return False


def _ancestors(node: QuotaNode, preemptor: Preemptor) -> Iterator[tuple[QuotaNode, QuotaNode, bool]]:
    """Yield every cohort around a queue from the nearest to the root, its child on the path, and whether that child has
    a right to its request to this cohort: the request stays within the subtree quota of the child or of a node below
    it.
    """
    remaining = dict(preemptor.usage)
    has_right = False
    while node.parent is not None:
        fits = all(
            quota.plus(node.usage.get(column, 0), amount) <= node.subtree.get(column, 0)
            for column, amount in remaining.items()
        )
        has_right = has_right or fits
        for column, amount in remaining.items():
            remaining[column] = max(0, quota.minus(amount, quota.local_available(node, column)))
        yield node.parent, node, has_right
        node = node.parent


def _borrowing_queues(
    cohort: QuotaNode, done: QuotaNode | None, columns: frozenset[FlavorResource], findings: Findings
) -> Iterator[QuotaNode]:
    """Yield queues below the cohort that use more than their quota, if all cohorts in between do so, too."""
    for child in over_quota(cohort, columns, findings):
        if child is done:
            continue
        if child.is_cohort:
            yield from _borrowing_queues(child, None, columns, findings)
        else:
            yield child


def _lesser(admitted: Admitted, ancestor: QuotaNode, spec: QueueSpec, preemptor: Preemptor) -> _Candidate:
    """Return a candidate to whose quota the preemptor has no right, and whether a borrowing preemptor may take it."""
    up_to = spec.borrow_preempts_up_to
    is_above = admitted.priority >= preemptor.priority or (up_to is not None and admitted.priority > up_to)
    if not spec.borrow_preempts or is_above:
        return _Candidate(admitted, PreemptionReason.IN_COHORT_RECLAMATION, ancestor, only_without_borrowing=True)
    return _Candidate(admitted, PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING, ancestor)


def _sorted(found: list[_Candidate], preemptor: Preemptor, findings: Findings) -> list[_Candidate]:
    of = {candidate.admitted: candidate for candidate in found}
    return [of[admitted] for admitted in in_order(of, preemptor, findings)]


# --- attempt ---------------------------------------------------------------------------------------------------------


def _attempts(snapshot: Snapshot, preemptor: Preemptor, found: _Found) -> tuple[bool, ...]:
    """Return, for each attempt, whether the preemptor may borrow."""
    spec, node = snapshot.queues[preemptor.queue], snapshot.nodes[preemptor.queue]
    if not found.hierarchical and not found.priority:
        return (True,)
    if spec.borrow_preempts:
        return (True, False)
    is_under_nominal = all(node.usage.get(c, 0) < node.quota(c).nominal for c in preemptor.needs)
    if not is_under_nominal:
        return (True,)
    return (True, False) if found.hierarchical else (False, True)


def _attempt(
    sequence: Iterable[_Candidate],
    simulation: Simulation,
    preemptor: Preemptor,
    hosts: HostNeeds | None,
    *,
    borrowing: bool,
) -> tuple[Target, ...]:
    fit = Fit(simulation, preemptor, hosts)
    fits = partial(fit, borrowing=borrowing)
    targets: list[Target] = []
    for candidate in sequence:
        if not _may_go(candidate, simulation.snapshot, preemptor.needs, borrowing=borrowing):
            continue
        if candidate.ancestor is None and fit.is_of_no_use(candidate.admitted, borrowing=borrowing):
            continue
        simulation.remove(candidate.admitted)
        targets.append(Target(candidate.admitted, candidate.reason))
        if fits():
            return without_needless(targets, simulation, fit, fits, fit.is_missed)
    return ()


def _may_go(candidate: _Candidate, snapshot: Snapshot, columns: Iterable[FlavorResource], *, borrowing: bool) -> bool:
    """Whether the candidate's queue, and every cohort around it that does not contain the preemptor, still borrows."""
    if candidate.ancestor is None:
        return True
    if borrowing and candidate.only_without_borrowing:
        return False
    for node in snapshot.nodes[candidate.admitted.queue].path_to_root():
        if node is candidate.ancestor:
            return True
        if within_quota(node, columns):
            return False
    return True
