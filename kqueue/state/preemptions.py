"""Claims of preemptors that outlive their cycle, and preemption that repeats itself.

A claim begins when victims are chosen and ends when its preemptor is admitted, gives up, or is gone.  It lives in
memory only: after a restart the preemptor is tried again, finds its victims on their way out, and claims anew.

A preemptor that makes the same workload leave a second time goes round in circles if it was not admitted in between,
or if it was, and had to leave for that workload again, directly or by way of others: what it gains does not last.  That
is counted, and from then on the workload is safe from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from cachetools import LRUCache

from kqueue.core.workload import Claim

LOOP_AT = 2
"""The eviction of one workload for the same preemptor that makes it a loop."""


class Preemptions:
    """The preemptions under way, which cycles pass to later cycles."""

    def __init__(self) -> None:
        self.on_ended: Callable[[Claim], None] = lambda _claim: None
        """Told of each claim that is over: what it kept is free, and whoever left for it may come back."""
        self.loops = 0
        """Loops found so far."""
        self.ended = 0
        """Claims that are over so far."""
        self._claims: dict[str, Claim] = {}
        # preemptor -> victim -> evictions: since the preemptor was admitted last, and ever
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
        """The preemptor is admitted, gives up or is gone.  Nothing happens when it claims nothing."""
        claim = self._claims.pop(uid, None)
        if claim is not None:
            self.ended += 1
            self.on_ended(claim)

    def passed(self, queue: str, *, by: str) -> list[Claim]:
        """A workload (uid) of a ClusterQueue goes before all that claim anything there; their claims, now over."""
        ended = [c for c in self._claims.values() if c.queue == queue and c.uid != by]
        for claim in ended:
            self.end(claim.uid)
        return ended

    def evicts(self, uid: str, victims: Iterable[str]) -> list[str]:
        """Record that a preemptor evicts these workloads (uids); return those that it evicts again and again."""
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
        """The preemptor is in: what it did to get there is forgiven, unless it has to leave for its victims again."""
        self.end(uid)
        self._evicted.pop(uid, None)

    def is_safe(self, victim: str, preemptor: str) -> bool:
        """Whether a workload must not leave for this preemptor again."""
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
        """Whether the preemptor had to leave for the victim, or for one that had to, and so on."""
        seen, found = {victim}, [victim]
        for uid in found:
            left = {v for v, times in self._ever.get(uid, {}).items() if times > 0}
            if preemptor in left:
                return True
            found += left - seen
            seen |= left
        return False
