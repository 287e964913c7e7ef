"""Preemptors that wait until their victims have left are asked again when something has been given back.

A preemptor is the head of its ClusterQueue until it is admitted, so every cycle would ask it: whether it fits now, and
what it would look like once all claims are fulfilled.  The answer stays the same until quota of its tree is given back
or configured anew, a claim ends, a host changes, the workload itself changes, or a victim no longer leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

from cachetools import LRUCache

from kqueue.core.workload import Claim
from kqueue.model.pending import Pending
from kqueue.state.cache import Cache
from kqueue.state.preemptions import Preemptions

_MOST = 10_000
"""Preemptors that are remembered; one that is forgotten is asked once more."""


@dataclass(frozen=True, slots=True)
class _State:
    """What the answer depends on."""

    version: str
    freed: tuple[int, int]
    ended: int
    nodes: int


class Victims:
    """Remembers on which state each waiting preemptor was asked last."""

    def __init__(self, cache: Cache, preemptions: Preemptions) -> None:
        self._cache, self._preemptions = cache, preemptions
        self._tried: LRUCache[str, _State] = LRUCache(maxsize=_MOST)
        """By uid: the state of the try that is under way, or was the last one."""
        self._waits: LRUCache[str, _State] = LRUCache(maxsize=_MOST)
        """By uid: the state on which a preemptor was found to wait for its victims."""

    def are_as_before(self, queue: str, item: Pending) -> bool:
        """Whether a head waits for victims, all of which leave, and asking it again is of no use."""
        claim = self._preemptions.claim_of(item.uid)
        if claim is None:
            return False
        nodes = self._cache.ledger.generation if claim.domains else 0
        state = _State(item.version, self._cache.quota.freed_generation(queue), self._preemptions.ended, nodes)
        if self._waits.get(item.uid) == state and self._all_leave(claim):
            return True
        self._tried[item.uid] = state
        return False

    def wait(self, uid: str) -> None:
        """The try has said that the preemptor waits for its victims."""
        state = self._tried.get(uid)
        if state is not None:
            self._waits[uid] = state

    def _all_leave(self, claim: Claim) -> bool:
        for uid, (_, key) in claim.victims.items():
            held = self._cache.held.holding(key)
            if held is not None and held.uid == uid and not held.evicted:
                return False
        return True
