"""Claims of preemptors that last longer than their cycle, and loops of preemptions.

A claim begins when victims are chosen and ends when its preemptor is admitted, gives up, or is gone.  Claims are in
memory only: after a restart the preemptor is tried again, finds its victims being evicted, and begins a new claim.

A preemptor that evicts the same workload a second time is in a loop in two cases: it was not admitted in between, or it
was admitted and then evicted for that workload again, directly or through other workloads.  Such evictions do not last.
They are counted, and from then on the workload is not evicted for this preemptor again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from cachetools import LRUCache

from kqueue.core.workload import Claim

LOOP_AT = 2
"""The number of evictions of one workload for the same preemptor from which they are a loop."""


class Preemptions:
    """The preemptions under way, which one cycle passes to the next."""

    def __init__(self) -> None:
        self.on_ended: Callable[[Claim], None] = lambda _claim: None
        """Called for each ended claim: its resources are free, and the workloads evicted for it may be tried again."""
        self.loops = 0
        """The number of loops found so far."""
        self.ended = 0
        """The number of claims ended so far."""
        self._claims: dict[str, Claim] = {}
        # preemptor -> victim -> number of evictions: since the preemptor was last admitted, and in total
        self._evicted: LRUCache[str, Counter[str]] = LRUCache(maxsize=10_000)
        self._ever: LRUCache[str, Counter[str]] = LRUCache(maxsize=10_000)

    @property
    def has_claims(self) -> bool:
        """Whether any preemptor has a claim."""
        return bool(self._claims)

    def claim_of(self, uid: str) -> Claim | None:
        """Return the claim of a preemptor; None: it has none."""
        return self._claims.get(uid)

    def claims(self, waits: Callable[[Claim], bool]) -> tuple[Claim, ...]:
        """Return all claims whose preemptors still wait, and end the others."""
        for claim in [c for c in self._claims.values() if not waits(c)]:
            self.end(claim.uid)
        return tuple(self._claims.values())

    def begin(self, claim: Claim) -> None:
        """Add a claim behind all other claims; it replaces the preemptor's earlier claim."""
        self._claims.pop(claim.uid, None)  # the claim moves to the end
        self._claims[claim.uid] = claim

    def end(self, uid: str) -> None:
        """End the claim of a preemptor that is admitted, gives up or is gone; no effect if it has no claim."""
        claim = self._claims.pop(uid, None)
        if claim is not None:
            self.ended += 1
            self.on_ended(claim)

    def passed(self, queue: str, *, by: str) -> list[Claim]:
        """End the claims in a ClusterQueue, because a workload (uid) goes before them, and return them; its own claim
        stays.
        """
        ended = [c for c in self._claims.values() if c.queue == queue and c.uid != by]
        for claim in ended:
            self.end(claim.uid)
        return ended

    def evicts(self, uid: str, victims: Iterable[str]) -> list[str]:
        """Record that a preemptor evicts these workloads (uids); return the workloads whose evictions are a loop."""
        victims = list(victims)
        for counts in (self._evicted, self._ever):
            counted = counts.get(uid)
            if counted is None:
                counted = counts[uid] = Counter()
            counted.update(victims)
        circles = [victim for victim in victims if self.is_safe(victim, uid)]
        self.loops += bool(circles)
        return circles

    def not_evicted(self, uid: str, victim: str) -> None:
        """Take back a record of `evicts`: the workload was not evicted, or not for this preemptor."""
        for counts in (self._evicted, self._ever):
            counted = counts.get(uid)
            if counted is not None and counted[victim]:
                counted[victim] -= 1

    def admitted(self, uid: str) -> None:
        """Follow the admission of a preemptor: end its claim, and forget its evictions unless it is evicted for its
        victims.
        """
        self.end(uid)
        self._evicted.pop(uid, None)

    def is_safe(self, victim: str, preemptor: str) -> bool:
        """Whether a workload must not be evicted for this preemptor again."""
        counted, ever = self._evicted.get(preemptor), self._ever.get(preemptor)
        if counted is not None and counted[victim] >= LOOP_AT:
            return True
        return ever is not None and ever[victim] >= LOOP_AT and self._comes_back(victim, preemptor)

    def spared(self, preemptors: Iterable[str]) -> dict[str, frozenset[str]]:
        """Return by preemptor (uid) the workloads (uids) that must not be preempted for it again; without empty
        entries.
        """
        found: dict[str, frozenset[str]] = {}
        for uid in preemptors:
            counted = self._ever.get(uid)
            if counted:
                safe = frozenset([victim for victim in counted if self.is_safe(victim, uid)])
                if safe:
                    found[uid] = safe
        return found

    def _comes_back(self, victim: str, preemptor: str) -> bool:
        """Whether the preemptor was evicted for the victim, directly or through a chain of other preemptors."""
        seen, found = {victim}, [victim]
        for uid in found:
            left = {v for v, times in self._ever.get(uid, {}).items() if times > 0}
            if preemptor in left:
                return True
            found += left - seen
            seen |= left
        return False
