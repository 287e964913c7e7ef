"""Nominations beside claims with a time: a head that such a claim does not bind may use what the claim keeps.

    beside     the head fits in what all claims leave: nothing is delayed
    past       it does not, and some claims do not bind it: it is nominated as if these were not there
    kept for   it fits only without claims that bind it: it waits

A claim that borrows does not bind a head of another ClusterQueue that stays within its own quota: lent quota returns to
its owner.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from datetime import datetime

from kqueue.core.backfill.binding import binds, ends_before, is_open
from kqueue.core.flavors import Pins
from kqueue.core.nomination import FITS, NominatedHead, Nominator
from kqueue.core.topology.request import Profile
from kqueue.core.topology.result import DomainUsage
from kqueue.core.workload import Admitted, Claim, Head


class Passing:
    """Nominates the heads of one cycle; without claims with a time, as the nominator does."""

    def __init__(self, nominator: Nominator, now: datetime) -> None:
        """`now`: the time at which heads that are admitted start."""
        self._nominator, self._claims, self._now = nominator, nominator.claims, now
        self._known: dict[tuple[object, ...], tuple[object, bool]] = {}
        """Results for equal heads; the value keeps the pod sets, so that their identity stays unique."""
        self._chosen: dict[str, tuple[str, ...]] = {}
        """By UID: the claims that do not bind a head which `choose` has left to `nominate`.  Claims do not change in
        between.
        """

    def choose(self, head: Head, profile: Profile) -> NominatedHead | None:
        """Return as `Nominator.choose`; None also for a head that is to be nominated without some of the claims."""
        if self._claims.has_timed:
            loose = self._loose(head)
            if loose or self._claims.is_planned(head.uid):
                self._chosen[head.uid] = loose
                return None
            self._leave_to_end(head, loose)
        return self._nominator.choose(head, profile)

    def commit(self, entry: NominatedHead) -> NominatedHead:
        """Return as `Nominator.commit`."""
        entry = self._nominator.commit(entry)
        return self._judged(entry, None) if self._claims.has_timed else entry

    def nominate(self, head: Head, profile: Profile, *, pinned: Pins | None = None) -> NominatedHead:
        """Return the best nomination of a head, as `Nominator.nominate`."""
        if not self._claims.has_timed:
            return self._nominator.nominate(head, profile, pinned=pinned)
        loose = self._chosen.pop(head.uid, None)
        if loose is None:
            loose = self._loose(head)
        self._leave_to_end(head, loose)
        if loose:
            with self._claims.without(head.uid):
                beside = self._nominator.fitting(head, profile, pinned)
            if beside is not None:
                return beside
        with self._claims.without_all(self._own(head, *loose)):
            entry = self._nominator.nominate(head, profile, pinned=pinned)
        entry.passes = loose
        return self._judged(entry, pinned)

    def moves(self, entry: NominatedHead) -> bool:
        """Return as `Nominator.moves`."""
        with self.past(entry):
            return self._nominator.moves(entry)

    def past(self, entry: NominatedHead) -> AbstractContextManager[None]:
        """Leave the claims that an entry passes, and its own claim with a time, uncharged inside the block."""
        return self._claims.without_all(self._own(entry.head, *entry.passes))

    def start(
        self, entry: NominatedHead, domains: Mapping[str, tuple[DomainUsage, ...]]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Follow the admission of an entry whose usage is charged; `domains` is its usage of hosts by flavor.

        Returns the claims (UIDs) among whose ending workloads it is now, and those whose room it took for good, which
        have ended.
        """
        admitted = Admitted.starting(entry.head, self._now, entry.usage, domains)
        joins: list[str] = []
        takes: list[str] = []
        timed = self._claims.timed(besides=entry.head.uid) if entry.passes else ()
        for claim in [claim for claim in timed if claim.uid in entry.passes]:
            if ends_before(claim, entry.head, self._now):
                self._claims.join(claim.uid, admitted)
                joins.append(claim.uid)
            elif not is_open(claim, entry.head, self._now):
                self._claims.give_up(claim.uid)
                takes.append(claim.uid)
        return tuple(joins), tuple(takes)

    def _own(self, head: Head, *others: str) -> tuple[str, ...]:
        """Return the UIDs of these claims, and that of the head if it has a claim with a time."""
        return (head.uid, *others) if self._claims.is_planned(head.uid) else others

    def _loose(self, head: Head) -> tuple[str, ...]:
        """Return the claims of others that do not bind a head."""
        timed = self._claims.timed(besides=head.uid)
        return tuple([claim.uid for claim in timed if not binds(claim, head, self._now)])

    def _leave_to_end(self, head: Head, loose: Collection[str]) -> None:
        """Let the head preempt no workload that ends for a claim that binds it: the claim would get the freed room."""
        binding = [claim for claim in self._claims.timed(besides=head.uid) if claim.uid not in loose]
        if not binding:
            return
        if ends := frozenset(uid for claim in binding for uid in claim.ends):
            self._nominator.findings.leave_to_end(head.uid, ends)

    def _judged(self, entry: NominatedHead, pinned: Pins | None) -> NominatedHead:
        """Return the entry, with the claims for which its room is kept, if it does not fit because of them."""
        head = entry.head
        if entry.result is FITS:
            return entry
        binding = [c for c in self._claims.timed(besides=head.uid) if c.uid not in entry.passes]
        if not binding:
            return entry
        lenders = tuple(claim.uid for claim in binding if _may_take_back(head, claim))
        if lenders and (own := self._without(entry, lenders, pinned)) is not None and not own.level:
            return own
        if self._would_fit(entry, tuple(claim.uid for claim in binding), pinned):
            entry.kept_for = tuple(binding)
        return entry

    def _would_fit(self, entry: NominatedHead, binding: tuple[str, ...], pinned: Pins | None) -> bool:
        """Whether the head fits without these claims, computed once for equal heads while no entry is processed."""
        head = entry.head
        if pinned is not None or head.avoided or head.replaces is not None:
            return self._without(entry, binding, pinned) is not None
        key = (head.queue, id(head.pod_sets), head.algorithm, entry.passes, binding)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = head.pod_sets, self._without(entry, binding, None) is not None
        return known[1]

    def _without(self, entry: NominatedHead, others: tuple[str, ...], pinned: Pins | None) -> NominatedHead | None:
        """Return the nomination without further claims if the head fits then; None: it does not."""
        head = entry.head
        passes = (*entry.passes, *others)
        with self._claims.without_all(self._own(head, *passes)):
            found = self._nominator.fitting(head, entry.profile, pinned)
        if found is not None:
            found.passes = passes
        return found


def _may_take_back(head: Head, claim: Claim) -> bool:
    return claim.borrows and claim.queue != head.queue
