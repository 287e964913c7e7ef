"""A second implementation of preemption: all amounts are summed again for every question, without caches.

It follows the documented rules word by word, and shares only the input values with the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cmp_to_key

from kqueue.core.preemption import Preemptor, Rules, SharingStrategy
from kqueue.core.quota import FlavorResource, QuotaNode
from kqueue.core.workload import Admitted, Preempts, QueueSpec, Snapshot

Answer = list[tuple[str, str]]
"""Uid and reason of each target, in their order."""


@dataclass
class Ledger:
    """Who is gone, and whether the preemptor counts as running."""

    snapshot: Snapshot
    preemptor: Preemptor
    gone: set[str] = field(default_factory=set)
    with_preemptor: bool = False

    def nominal(self, node: QuotaNode, column: FlavorResource) -> int:
        return node.quotas[column].nominal if column in node.quotas else 0

    def subtree(self, node: QuotaNode, column: FlavorResource) -> int:
        lent = sum(self.subtree(child, column) - self.local(child, column) for child in node.children)
        return self.nominal(node, column) + lent

    def local(self, node: QuotaNode, column: FlavorResource) -> int:
        limit = node.quotas[column].lending_limit if column in node.quotas else None
        return 0 if limit is None else max(0, self.subtree(node, column) - limit)

    def usage(self, node: QuotaNode, column: FlavorResource) -> int:
        if node.is_cohort:
            return sum(max(0, self.usage(child, column) - self.local(child, column)) for child in node.children)
        running = self.snapshot.admitted[node.name].values()
        used = sum(w.usage.get(column, 0) for w in running if w.uid not in self.gone)
        if self.with_preemptor and node.name == self.preemptor.queue:
            used += self.preemptor.usage.get(column, 0)
        return used

    def local_available(self, node: QuotaNode, column: FlavorResource) -> int:
        return max(0, self.local(node, column) - self.usage(node, column))

    def available(self, node: QuotaNode, column: FlavorResource) -> int:
        if node.parent is None:
            return self.subtree(node, column) - self.usage(node, column)
        above = self.available(node.parent, column)
        limit = node.quotas[column].borrowing_limit if column in node.quotas else None
        if limit is not None:
            local = self.local(node, column)
            stored = max(0, self.usage(node, column) - local)
            above = min(above, (self.subtree(node, column) - local) - stored + limit)
        return self.local_available(node, column) + above

    def potential(self, node: QuotaNode, column: FlavorResource) -> int:
        if node.parent is None:
            return self.subtree(node, column)
        most = self.local(node, column) + self.potential(node.parent, column)
        limit = node.quotas[column].borrowing_limit if column in node.quotas else None
        return most if limit is None else min(most, self.subtree(node, column) + limit)

    def within_quota(self, node: QuotaNode) -> bool:
        return all(self.usage(node, c) <= self.subtree(node, c) for c in self.preemptor.needs)

    def fits(self, *, borrowing: bool) -> bool:
        node, counted = self.snapshot.nodes[self.preemptor.queue], self.with_preemptor
        self.with_preemptor = False
        result = True
        for column, amount in self.preemptor.usage.items():
            if not borrowing and self.usage(node, column) + amount > self.nominal(node, column):
                result = False
            if amount > max(0, self.available(node, column)):
                result = False
        self.with_preemptor = counted
        return result

    def share(self, node: QuotaNode) -> tuple[int, Fraction]:
        """(1, ratio) with weight 0 and something borrowed, else (0, share)."""
        if node.parent is None:
            return 0, Fraction(0)
        listed = {column for below in node.walk() for column in below.quotas}
        ratio = Fraction(0)
        for resource in {column.resource for column in listed}:
            over = [self.usage(node, c) - self.subtree(node, c) for c in listed if c.resource == resource]
            known = {c for any_node in node.root.walk() for c in any_node.quotas if c.resource == resource}
            lendable = sum(self.potential(node.parent, c) for c in known)
            if lendable > 0:
                ratio = max(ratio, Fraction(1000 * sum(max(0, o) for o in over), lendable))
        if ratio > 0 and node.weight == 0:
            return 1, ratio
        return 0, ratio / Fraction(node.weight, 1_000_000_000) if ratio > 0 else ratio

    def borrows(self, node: QuotaNode) -> bool:
        listed = {column for below in node.walk() for column in below.quotas}
        return node.parent is not None and any(self.usage(node, c) > self.subtree(node, c) for c in listed)


def path(node: QuotaNode) -> list[QuotaNode]:
    """The node, its parent, and so on."""
    return [node] if node.parent is None else [node, *path(node.parent)]


def allowed(policy: Preempts, preemptor: Preemptor, workload: Admitted, rules: Rules) -> bool:
    """Whether the workload is a candidate under this policy."""
    if not any(column in workload.usage for column in preemptor.needs):
        return False
    if rules.is_spared(workload, preemptor) and not workload.evicted:
        return False
    lower = workload.priority < preemptor.priority
    newer_equal = workload.priority == preemptor.priority and preemptor.timestamp < workload.timestamp
    match policy:
        case Preempts.NEVER:
            return False
        case Preempts.LOWER_PRIORITY:
            return lower
        case Preempts.LOWER_OR_NEWER_EQUAL:
            return lower or newer_equal
        case Preempts.ANY:
            return True


def comparison(preemptor: Preemptor, rules: Rules) -> Callable[[Admitted, Admitted], int]:
    """Below zero when the first one goes first.  Usage of LocalQueues is left out."""

    def compare(a: Admitted, b: Admitted) -> int:
        if a.evicted != b.evicted:
            return -1 if a.evicted else 1
        if (a.queue == preemptor.queue) != (b.queue == preemptor.queue):
            return 1 if a.queue == preemptor.queue else -1
        if a.priority != b.priority:
            return a.priority - b.priority
        at_a, at_b = a.reserved_at or rules.now, b.reserved_at or rules.now
        if at_a != at_b:
            return -1 if at_a > at_b else 1
        return -1 if a.uid < b.uid else 1

    return compare


def give_back(chosen: Answer, ledger: Ledger, *, borrowing: bool) -> Answer:
    """Give back, from the last but one to the first, whoever need not go."""
    i = len(chosen) - 1
    while i > 0:
        i -= 1
        ledger.gone.discard(chosen[i][0])
        if ledger.fits(borrowing=borrowing):
            last = chosen.pop()
            chosen[i] = last
        else:
            ledger.gone.add(chosen[i][0])
    return chosen


# --- by quota and priority -------------------------------------------------------------------------------------------


@dataclass
class Candidate:
    """A candidate of the classical algorithm."""

    workload: Admitted
    variant: str
    ancestor: QuotaNode | None


REASONS = {
    "WithinCQ": "InClusterQueue",
    "HierarchicalReclaim": "InCohortReclamation",
    "ReclaimWithoutBorrowing": "InCohortReclamation",
    "ReclaimWhileBorrowing": "InCohortReclaimWhileBorrowing",
}


def classical(snapshot: Snapshot, preemptor: Preemptor, rules: Rules) -> Answer:
    """Collection, attempts, and the walk through the sequence."""
    ledger = Ledger(snapshot, preemptor)
    spec, own = snapshot.queues[preemptor.queue], snapshot.nodes[preemptor.queue]
    hierarchical, priority, same = collect(ledger, spec, own, rules)
    by = cmp_to_key(comparison(preemptor, rules))
    lists = [sorted(found, key=lambda c: by(c.workload)) for found in (hierarchical, priority, same)]
    sequence = [c for found in lists for c in found if c.workload.evicted]
    sequence += [c for found in lists for c in found if not c.workload.evicted]

    forbidden = not spec.borrow_preempts
    strictly_under = all(ledger.usage(own, c) < ledger.nominal(own, c) for c in preemptor.needs)
    if not (hierarchical or priority) or (forbidden and not strictly_under):
        flags = [True]
    elif forbidden and not hierarchical:
        flags = [False, True]
    else:
        flags = [True, False]
    for flag in flags:
        found = attempt(Ledger(snapshot, preemptor), sequence, borrowing=flag)
        if found:
            return found
    return []


def collect(
    ledger: Ledger, spec: QueueSpec, own: QuotaNode, rules: Rules
) -> tuple[list[Candidate], list[Candidate], list[Candidate]]:
    """The three lists: hierarchical, priority, same queue."""
    snapshot, preemptor = ledger.snapshot, ledger.preemptor
    same = [
        Candidate(w, "WithinCQ", None)
        for w in snapshot.admitted[own.name].values()
        if allowed(spec.preempts_own, preemptor, w, rules)
    ]
    hierarchical: list[Candidate] = []
    priority: list[Candidate] = []
    if own.parent is None or spec.reclaims is Preempts.NEVER:
        return hierarchical, priority, same
    request = preemptor.usage
    advantage = all(ledger.usage(own, c) + v <= ledger.subtree(own, c) for c, v in request.items())
    remaining = {c: max(0, v - ledger.local_available(own, c)) for c, v in request.items()}
    processed = own
    for ancestor in path(own)[1:]:
        for queue in borrowers(ledger, ancestor, processed):
            for w in snapshot.admitted[queue.name].values():
                if not allowed(spec.reclaims, preemptor, w, rules):
                    continue
                if advantage:
                    hierarchical.append(Candidate(w, "HierarchicalReclaim", ancestor))
                    continue
                limit = spec.borrow_preempts_up_to
                if (
                    not spec.borrow_preempts
                    or w.priority >= preemptor.priority
                    or (limit is not None and w.priority > limit)
                ):
                    variant = "ReclaimWithoutBorrowing"
                else:
                    variant = "ReclaimWhileBorrowing"
                priority.append(Candidate(w, variant, ancestor))
        fits = all(ledger.usage(ancestor, c) + v <= ledger.subtree(ancestor, c) for c, v in remaining.items())
        advantage = advantage or fits
        remaining = {c: max(0, v - ledger.local_available(ancestor, c)) for c, v in remaining.items()}
        processed = ancestor
    return hierarchical, priority, same


def borrowers(ledger: Ledger, cohort: QuotaNode, processed: QuotaNode) -> Iterator[QuotaNode]:
    """Queues of the subtree that are not pruned."""
    for child in cohort.children:
        if child is processed or ledger.within_quota(child):
            continue
        if child.is_cohort:
            yield from borrowers(ledger, child, processed)
        else:
            yield child


def attempt(ledger: Ledger, sequence: list[Candidate], *, borrowing: bool) -> Answer:
    """One walk through the sequence."""
    chosen: Answer = []
    for candidate in sequence:
        if candidate.ancestor is not None:
            if borrowing and candidate.variant == "ReclaimWithoutBorrowing":
                continue
            nodes = path(ledger.snapshot.nodes[candidate.workload.queue])
            if any(ledger.within_quota(node) for node in nodes[: nodes.index(candidate.ancestor)]):
                continue
        ledger.gone.add(candidate.workload.uid)
        chosen.append((candidate.workload.uid, REASONS[candidate.variant]))
        if ledger.fits(borrowing=borrowing):
            return give_back(chosen, ledger, borrowing=borrowing)
    return []


# --- by fair shares --------------------------------------------------------------------------------------------------


def fair(snapshot: Snapshot, preemptor: Preemptor, rules: Rules) -> Answer:
    """Both passes."""
    assert rules.fair
    ledger = Ledger(snapshot, preemptor)
    spec, own = snapshot.queues[preemptor.queue], snapshot.nodes[preemptor.queue]
    candidates: list[Admitted] = []
    for queue in (node for node in own.root.walk() if not node.is_cohort):
        borrowing = any(ledger.usage(queue, c) > ledger.nominal(queue, c) for c in preemptor.needs)
        policy = spec.preempts_own if queue is own else spec.reclaims
        if queue is own or borrowing:
            candidates += [w for w in snapshot.admitted[queue.name].values() if allowed(policy, preemptor, w, rules)]
    if not candidates:
        return []
    candidates.sort(key=cmp_to_key(comparison(preemptor, rules)))
    ledger.with_preemptor = True
    chosen: Answer = []
    aside = first_pass(ledger, candidates, chosen, rules)
    if aside is not None and len(rules.fair) > 1:
        aside = second_pass(ledger, aside, chosen, rules)
    return give_back(chosen, ledger, borrowing=True) if aside is None else []


def first_pass(ledger: Ledger, candidates: list[Admitted], chosen: Answer, rules: Rules) -> list[Admitted] | None:
    """None when the preemptor fits, else those put aside."""
    assert rules.fair
    own = ledger.snapshot.nodes[ledger.preemptor.queue]
    left = list(candidates)
    aside: list[Admitted] = []
    pruned: set[QuotaNode] = set()
    unconditional = rules.within_nominal and all(
        ledger.usage(own, c) <= ledger.nominal(own, c) for c in ledger.preemptor.needs
    )
    while (queue := next_queue(ledger, left, pruned, rules)) is not None:
        waiting = [w for w in left if w.queue == queue.name]
        if queue is own or unconditional:
            reason = "InClusterQueue" if queue is own else "InCohortReclamation"
            left.remove(waiting[0])
            ledger.gone.add(waiting[0].uid)
            chosen.append((waiting[0].uid, reason))
            if ledger.fits(borrowing=True):
                return None
            continue
        mine, theirs = sides(own, queue)
        final, old = ledger.share(mine), ledger.share(theirs)
        if final[0] and not old[0]:
            aside += waiting
            left = [w for w in left if w.queue != queue.name]
            continue
        for workload in waiting:
            left.remove(workload)
            ledger.gone.add(workload.uid)
            new = ledger.share(theirs)
            passes = final <= new if rules.fair[0] is SharingStrategy.LTE else final < old
            if not passes:
                ledger.gone.discard(workload.uid)
                aside.append(workload)
                continue
            chosen.append((workload.uid, "InCohortFairSharing"))
            if ledger.fits(borrowing=True):
                return None
            break
    return aside


def second_pass(ledger: Ledger, aside: list[Admitted], chosen: Answer, rules: Rules) -> list[Admitted] | None:
    """None when the preemptor fits."""
    own = ledger.snapshot.nodes[ledger.preemptor.queue]
    left, pruned = list(aside), set[QuotaNode]()
    while (queue := next_queue(ledger, left, pruned, rules)) is not None:
        workload = next(w for w in left if w.queue == queue.name)
        mine, theirs = sides(own, queue)
        if ledger.share(mine) < ledger.share(theirs):
            ledger.gone.add(workload.uid)
            chosen.append((workload.uid, "InCohortFairSharing"))
            if ledger.fits(borrowing=True):
                return None
        pruned.add(queue)
    return []


def sides(own: QuotaNode, other: QuotaNode) -> tuple[QuotaNode, QuotaNode]:
    """The children of the lowest common ancestor."""
    mine, theirs = path(own)[::-1], path(other)[::-1]
    depth = next(i for i in range(len(mine)) if mine[i] is not theirs[i])
    return mine[depth], theirs[depth]


def next_queue(ledger: Ledger, left: list[Admitted], pruned: set[QuotaNode], rules: Rules) -> QuotaNode | None:
    """Walk down from the root until a queue is found or the root is pruned."""
    own = ledger.snapshot.nodes[ledger.preemptor.queue]
    if own.parent is None:
        return own if any(w.queue == own.name for w in left) else None
    while own.root not in pruned:
        found = walk_down(ledger, own.root, left, pruned, rules)
        if found is not None:
            return found
    return None


def walk_down(
    ledger: Ledger, cohort: QuotaNode, left: list[Admitted], pruned: set[QuotaNode], rules: Rules
) -> QuotaNode | None:
    """One walk; None when it ended in a cohort that was pruned."""
    own = ledger.snapshot.nodes[ledger.preemptor.queue]
    compare = comparison(ledger.preemptor, rules)
    best_queue: QuotaNode | None = None
    best_cohort: QuotaNode | None = None
    for queue in cohort.children:
        if queue.is_cohort or queue in pruned:
            continue
        waiting = [w for w in left if w.queue == queue.name]
        if not waiting or (queue is not own and not ledger.borrows(queue)):
            pruned.add(queue)
        elif best_queue is None or ledger.share(queue) > ledger.share(best_queue):
            best_queue = queue
        elif ledger.share(queue) == ledger.share(best_queue):
            first = next(w for w in left if w.queue == best_queue.name)
            if compare(waiting[0], first) < 0:
                best_queue = queue
    for child in sorted((c for c in cohort.children if c.is_cohort), key=lambda c: c.name):
        if child in pruned:
            continue
        if child not in path(own) and not ledger.borrows(child):
            pruned.add(child)
        elif best_cohort is None or ledger.share(child) > ledger.share(best_cohort):
            best_cohort = child
    if best_cohort is None and best_queue is None:
        pruned.add(cohort)
        return None
    if best_cohort is not None and (best_queue is None or ledger.share(best_cohort) >= ledger.share(best_queue)):
        return walk_down(ledger, best_cohort, left, pruned, rules)
    return best_queue
