"""Claims: resources that preemption frees are reserved for the preemptor.

A preemptor waits until the pods of its victims have ended.  Meanwhile no other workload may get the freed resources,
and resources that were free before and that the preemptor needs must stay free. So each claim reserves, column by
column and host by host, the difference between its request and the usage of its victims.  Nothing is counted twice: the
usage of victims is charged to the victims.

Quota is reserved at every node from the preemptor's queue to the root: a victim of another queue frees quota in the
cohort of both queues, and none in the preemptor's queue or in a cohort of the preemptor alone, which have limits of
their own.

    present state    victims in place; claims charge what the victims do not use     may a workload start now?
    future state     victims gone, claimants in place                                which workloads must be preempted?

A preemptor is planned again while its victims leave one by one.  Workloads that are leaving already are not chosen
again: the plan tests whether the preemptor fits when the last of them has left.

A claim with a time reserves the difference between its request and the usage of the workloads that end before that
time.  Room that is left may be used for ever.  The reserved room may be used by a workload that ends before that time,
too: it joins the workloads that end.  Such a claim is never fulfilled, neither now nor in the future state.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import cast

from kqueue.core import quota
from kqueue.core.charging import same_hosts
from kqueue.core.mention import Mention
from kqueue.core.pending_changes import PendingChanges
from kqueue.core.preemption.simulation import Simulation, simulate
from kqueue.core.quota import FlavorResource, QuotaNode
from kqueue.core.topology.node import PODS
from kqueue.core.topology.result import DomainUsage, Path
from kqueue.core.workload import Admitted, Claim, Head, Snapshot

_AS_IT_IS = nullcontext()


@dataclass(slots=True)
class _Kept:
    """A claim in a snapshot: its remaining victims, and the amounts charged for it in addition."""

    claim: Claim
    victims: tuple[Admitted, ...]
    counted_on: tuple[Admitted, ...]
    """Victims of other preemptors that are leaving, even if these preemptors have no claim any more."""
    usage: tuple[tuple[QuotaNode, FlavorResource, int], ...]
    domains: dict[str, dict[Path, dict[str, int]]]
    """By topology flavor, then written values of the domain: amounts, `pods` included."""
    joined: tuple[Admitted, ...] = ()
    """Workloads of this cycle that end before the claim's time."""
    is_charged: bool = True

    @property
    def leavers(self) -> dict[str, Admitted]:
        """All leaving workloads, by uid."""
        return {victim.uid: victim for victim in (*self.victims, *self.counted_on)}


class Claims:
    """The claims of one cycle on its snapshot, which is charged with them."""

    def __init__(self, snapshot: Snapshot, claims: Iterable[Claim] = ()) -> None:
        """Charge the claims to the snapshot; claims of queues that the snapshot does not have are left out."""
        self._snapshot = snapshot
        self._kept: dict[str, _Kept] = {}
        self._timed: dict[str, _Kept] = {}
        """The claims with a time among them."""
        self._leaving: dict[str, Admitted] = {}
        """Workloads that leave for any claim, by uid."""
        self._leave_for = Counter[str]()
        """The number of claims for which each workload leaves, by uid."""
        self._changes = PendingChanges(snapshot)
        """All changes of fulfilled claims, without the claims that were added after the sum was computed."""
        self._new: dict[str, _Kept] = {}
        self._new_leaving: dict[str, Admitted] = {}
        """Victims of new claims, by uid.  They are added to the sum when it is next needed: for most claims it never
        is.
        """
        self._without_leaving: tuple[_Admitted, _Admitted] | None = None
        """The snapshot's workloads, and the same mapping without the leaving workloads."""
        for claim in claims:
            self.keep(claim)

    def __bool__(self) -> bool:
        return bool(self._kept)

    def all(self) -> Iterator[Claim]:
        """Yield the claims of all preemptors, in the order in which they are fulfilled."""
        return (kept.claim for kept in self._kept.values() if not kept.claim.is_timed)

    def of(self, uid: str) -> Claim | None:
        """Return the claim of a preemptor; None: it has none."""
        kept = self._kept.get(uid)
        return kept.claim if kept is not None and not kept.claim.is_timed else None

    @property
    def has_timed(self) -> bool:
        """Whether any claim has a time."""
        return bool(self._timed)

    def is_planned(self, uid: str) -> bool:
        """Whether a workload has a claim with a time."""
        return uid in self._timed

    def timed(self, *, besides: str) -> list[Claim]:
        """Return the claims with a time, without that of one workload."""
        return [kept.claim for uid, kept in self._timed.items() if uid != besides] if self._timed else []

    def because_of(self, head: Head) -> Claim | None:
        """Return the claim for which a workload, or the older slice that it replaces, must leave; None: it may stay."""
        if not self._kept:
            return None
        older = (head.queue, head.replaces.key) if head.replaces is not None else None
        for uid, kept in self._kept.items():
            victims = kept.claim.victims
            if uid != head.uid and (head.uid in victims or (older is not None and older in victims.values())):
                return kept.claim
        return None

    def leaving(self, *, besides: str = "") -> Mapping[str, Admitted]:
        """Return the workloads that still have to leave for claims, by uid; for the claim of `besides` only evicted
        ones.
        """
        staying = self._staying(besides)
        return {uid: one for uid, one in self._leaving.items() if uid not in staying} if staying else self._leaving

    def _staying(self, besides: str) -> dict[str, Admitted]:
        """Return the workloads that leave only for the claim of this preemptor and are not evicted yet."""
        own = self._kept.get(besides)
        if own is None:
            return {}
        return {v.uid: v for v in own.victims if not v.evicted and self._leave_for[v.uid] == 1}

    def counted_on(self, *, besides: str) -> dict[str, tuple[str, str]]:
        """Return the leaving workloads whose resources a search counts as free: uid to ClusterQueue and key."""
        leaving = self.leaving(besides=besides).values()
        return {victim.uid: (victim.queue, victim.key) for victim in leaving}

    def waits_for_its_own(self, uid: str) -> bool:
        """Whether a victim of this preemptor still has usage."""
        kept = self._kept.get(uid)
        return kept is not None and bool(kept.victims or kept.counted_on)

    def preemptors(self, *, besides: str) -> tuple[Mention, ...]:
        """Return all preemptors except `besides`."""
        return tuple(Mention(claim.key, claim.queue) for claim in self.all() if claim.uid != besides)

    def keep(self, claim: Claim, joined: tuple[Admitted, ...] = ()) -> None:
        """Charge a claim in place of the workload's earlier claim; `joined` as in `join`."""
        self.give_up(claim.uid)
        if claim.usage and claim.queue not in self._snapshot.nodes:
            return
        victims = tuple(self._still_there(claim.victims))
        counted_on = tuple(victim for victim in self._still_there(claim.counts_on) if victim.evicted)
        ends = (*self._still_there(claim.ends), *joined) if claim.is_timed else ()
        usage = self._missing_quota(claim, (*victims, *ends)) if claim.usage else ()
        kept = _Kept(claim, victims, counted_on, usage, {}, joined)
        leaving_hosts = (*victims, *ends, *self._still_there(claim.movers))
        for flavor, taken in claim.domains.items():
            kept.domains[flavor] = self._missing_hosts(flavor, taken, leaving_hosts)
        self._kept[claim.uid] = kept
        if claim.is_timed:
            self._timed[claim.uid] = kept
        for uid, victim in kept.leavers.items():
            self._leave_for[uid] += 1
            if uid not in self._leaving:
                self._leaving[uid] = self._new_leaving[uid] = victim
        self._new[claim.uid] = kept
        self._without_leaving = None
        self._charge(kept, 1)

    def join(self, uid: str, workload: Admitted) -> None:
        """Count a workload that was admitted in this cycle among those that end before the time of a claim."""
        kept = self._timed[uid]
        self.keep(kept.claim, (*kept.joined, workload))

    def _still_there(self, workloads: Mapping[str, tuple[str, str]]) -> Iterator[Admitted]:
        for uid, (queue, key) in workloads.items():
            found = self._snapshot.admitted.get(queue, {}).get(key)
            if found is not None and found.uid == uid:
                yield found

    def give_up(self, uid: str) -> None:
        """End the claim of a preemptor; no effect if it has none."""
        kept = self._kept.pop(uid, None)
        if kept is None:
            return
        self._timed.pop(uid, None)
        self._charge(kept, -1)
        if self._new.pop(uid, None) is None:
            self._admit_claimant(self._changes, kept, -1)
        for leaver, victim in kept.leavers.items():
            self._leave_for[leaver] -= 1
            if not self._leave_for[leaver]:
                del self._leaving[leaver], self._leave_for[leaver]
                if self._new_leaving.pop(leaver, None) is None:
                    _leave(self._changes, victim, -1)
        self._without_leaving = None

    def without(self, uid: str) -> AbstractContextManager[None]:
        """Leave the preemptor's own claim uncharged inside the block."""
        return self.without_all((uid,)) if uid in self._kept else _AS_IT_IS

    def without_all(self, uids: Collection[str]) -> AbstractContextManager[None]:
        """Leave the claims of these workloads uncharged inside the block; blocks may be nested."""
        return self._uncharged([self._kept[uid] for uid in uids if uid in self._kept]) if uids else _AS_IT_IS

    @contextmanager
    def _uncharged(self, some: Iterable[_Kept]) -> Iterator[None]:
        some = [kept for kept in some if kept.is_charged]
        for kept in some:
            self._charge(kept, -1)
            kept.is_charged = False
        try:
            yield
        finally:
            for kept in some:
                self._charge(kept, 1)
                kept.is_charged = True

    @contextmanager
    def first_in_line(self, uid: str) -> Iterator[None]:
        """Restore, inside the block, the quota that a preemptor saw when it claimed, before later claims.

        Use it only for the claimed resources; the preemptor's own claim must be `without`.
        """
        order = list(self._kept)
        later = [self._kept[other] for other in order[order.index(uid) + 1 :]] if uid in self._kept else []
        later = [kept for kept in later if not kept.claim.is_timed]
        for kept in later:
            self._charge_quota(kept, -1)
        try:
            yield
        finally:
            for kept in later:
                self._charge_quota(kept, 1)

    def fulfilled(self, *, besides: str) -> AbstractContextManager[None]:
        """Fulfil, inside the block, all claims except the claim of one preemptor, which must be `without`.

        Workloads that leave for any claim are not in the snapshot, so that no other preemptor chooses them.
        """
        return self._fulfilled(besides) if self._kept else _AS_IT_IS

    @contextmanager
    def _fulfilled(self, besides: str) -> Iterator[None]:
        own, staying = self._kept.get(besides), self._staying(besides)
        if own is not None and len(self._kept) == 1 and len(staying) == len(self._leaving):
            yield
            return
        before = self._snapshot.admitted
        self._snapshot.admitted = self._admitted_without_leaving(staying)
        try:
            with simulate(self._snapshot) as simulation:
                PendingChanges.apply((self._summed_up(), *self._but(own, staying)), simulation)
                yield
        finally:
            self._snapshot.admitted = before

    def _summed_up(self) -> PendingChanges:
        for kept in self._new.values():
            self._admit_claimant(self._changes, kept, 1)
        for victim in self._new_leaving.values():
            _leave(self._changes, victim, 1)
        self._new.clear()
        self._new_leaving.clear()
        return self._changes

    def _but(self, own: _Kept | None, staying: Mapping[str, Admitted]) -> Iterator[PendingChanges]:
        """Yield the changes to undo: this claimant is not admitted, and these workloads stay."""
        if own is not None:
            negated = PendingChanges(self._snapshot)
            self._admit_claimant(negated, own, -1)
            for victim in staying.values():
                _leave(negated, victim, -1)
            yield negated

    def _admitted_without_leaving(self, staying: Mapping[str, Admitted]) -> _Admitted:
        now = self._snapshot.admitted
        if staying:
            return _without(now, [victim for uid, victim in self._leaving.items() if uid not in staying])
        if self._without_leaving is None or self._without_leaving[0] is not now:
            self._without_leaving = now, _without(now, self._leaving.values())
        return self._without_leaving[1]

    @staticmethod
    def _admit_claimant(changes: PendingChanges, kept: _Kept, sign: int) -> None:
        """Charge a claimant in full, and end its claim; a claim with a time stays as it is."""
        if kept.claim.is_timed:
            return
        for node, column, amount in kept.usage:
            changes.add_node(node, column, -sign * amount)
        changes.add_quota(kept.claim.queue, kept.claim.usage, sign)
        for flavor, taken in kept.claim.domains.items():
            changes.add_domains(flavor, taken, -sign)
        for flavor, missing in kept.domains.items():
            changes.add_amounts(flavor, missing, sign)

    def _charge(self, kept: _Kept, sign: int) -> None:
        self._charge_quota(kept, sign)
        self._charge_hosts(kept, sign)

    @staticmethod
    def _charge_quota(kept: _Kept, sign: int) -> None:
        for node, column, amount in kept.usage:
            quota.shift_usage(node, column, sign * amount)

    def _charge_hosts(self, kept: _Kept, sign: int) -> None:
        topologies = self._snapshot.topologies
        for flavor, missing in kept.domains.items():
            for name in same_hosts(flavor, topologies):
                capacity = topologies[name].capacity
                for values, amounts in missing.items():
                    leaf = capacity.tree.leaf_of(values)
                    if leaf is not None:
                        capacity.add(leaf, {resource: -sign * amount for resource, amount in amounts.items()})

    @staticmethod
    def _let_go(kept: Iterable[_Kept], simulation: Simulation) -> None:
        for one in kept:
            for node, column, amount in one.usage:
                simulation.shift(node, column, -amount)

    @staticmethod
    def _hides_quota(*queues: QuotaNode, columns: Collection[FlavorResource]) -> bool:
        """Whether any lending limit from these queues to the root keeps quota from the rest of the tree."""
        return any(
            quota.local_quota(node, column) for queue in queues for node in queue.path_to_root() for column in columns
        )

    def _fulfil(self, simulation: Simulation) -> Collection[str]:
        """Remove the quota of all victims, and charge all claimants.  Return the keys of the victims."""
        leaving = self.leaving()
        for victim in leaving.values():
            simulation.remove(victim)
        for kept in self._kept.values():
            if kept.claim.is_timed:
                for node, column, amount in kept.usage:
                    simulation.shift(node, column, amount)
            else:
                simulation.charge(kept.claim.queue, kept.claim.usage)
        return leaving

    def _missing_quota(
        self, claim: Claim, victims: Iterable[Admitted]
    ) -> tuple[tuple[QuotaNode, FlavorResource, int], ...]:
        """Return the additional usage of each node up to the root if the claimant is admitted and its victims have
        left.
        """
        at = self._snapshot.nodes[claim.queue]
        victims = [victim for victim in victims if victim.queue in self._snapshot.nodes]
        with simulate(self._snapshot, with_domains=False) as simulation:
            self._let_go(self._kept.values(), simulation)
            gone: Collection[str] = ()
            if self._hides_quota(at, *(self._snapshot.nodes[victim.queue] for victim in victims), columns=claim.usage):
                gone = self._fulfil(simulation)  # usage of a cohort depends on the workloads in its queues
            now = [(node, c, node.usage.get(c, 0)) for node in at.path_to_root() for c in claim.usage]
            for victim in victims:
                if victim.uid not in gone:
                    simulation.remove(victim)
            simulation.charge(claim.queue, claim.usage)
            rises = [(node, c, quota.minus(node.usage.get(c, 0), held)) for node, c, held in now]
        return tuple((node, column, amount) for node, column, amount in rises if amount > 0)

    def _missing_hosts(
        self, flavor: str, taken: Iterable[DomainUsage], victims: Iterable[Admitted]
    ) -> dict[Path, dict[str, int]]:
        shared = same_hosts(flavor, self._snapshot.topologies)
        held = _by_domain(u for v in victims for f, usage in v.domains.items() if f in shared for u in usage)
        missing = {
            values: {r: amount - held.get(values, {}).get(r, 0) for r, amount in amounts.items()}
            for values, amounts in _by_domain(taken).items()
        }
        return {values: {r: n for r, n in amounts.items() if n > 0} for values, amounts in missing.items()}


_Admitted = Mapping[str, Mapping[str, Admitted]]


def _without(admitted: _Admitted, leaving: Iterable[Admitted]) -> _Admitted:
    """Return the workloads without the leaving ones; queues without a leaving workload are shared."""
    left: dict[str, dict[str, Admitted]] = {}
    for victim in leaving:
        of_queue = left.get(victim.queue)
        if of_queue is None:
            of_queue = left[victim.queue] = dict(admitted[victim.queue])
        of_queue.pop(victim.key, None)
    layers = (left, admitted)  # only the first layer could be written, and no code writes to it
    return ChainMap(*cast("tuple[MutableMapping[str, Mapping[str, Admitted]], ...]", layers))


def _leave(changes: PendingChanges, victim: Admitted, sign: int) -> None:
    """Remove a victim's quota and hosts; hosts are freed in all flavors that have them."""
    changes.add_quota(victim.queue, victim.usage, -sign)
    for flavor, domains in victim.domains.items():
        changes.add_domains(flavor, domains, sign)


def _by_domain(usage: Iterable[DomainUsage]) -> dict[Path, dict[str, int]]:
    out: dict[Path, dict[str, int]] = {}
    for item in usage:
        amounts = out.setdefault(item.values, {})
        for resource, amount in item.requests.items():
            amounts[resource] = amounts.get(resource, 0) + amount * item.count
        amounts[PODS] = amounts.get(PODS, 0) + item.count
    return out
