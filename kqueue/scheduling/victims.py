"""Preemptors that wait for their victims to release resources are planned again only after a relevant change.

A preemptor is the head of its ClusterQueue until it is admitted, so every cycle would plan it: on the present state,
and on the state after all claims.  The result stays the same until quota of its tree is released or reconfigured, a
claim ends, a host changes, the workload itself changes, or a victim is no longer being evicted.
"""

from __future__ import annotations

from dataclasses import dataclass

from cachetools import LRUCache

from kqueue.core.workload import Claim
from kqueue.model.pending import Pending
from kqueue.state.cache import Cache
from kqueue.state.preemptions import Preemptions

_MOST = 10_000
"""Limit of remembered preemptors; a forgotten one is planned once more."""


@dataclass(frozen=True, slots=True)
class _State:
    """The state that the result depends on."""

    version: str
    freed: int
    ended: int
    nodes: int


class Victims:
    """Remembers the state on which each waiting preemptor was planned last."""

    def __init__(self, cache: Cache, preemptions: Preemptions) -> None:
        self._cache, self._preemptions = cache, preemptions
        self._tried: LRUCache[str, _State] = LRUCache(maxsize=_MOST)
        """By uid: the state of the present or the last try."""
        self._waits: LRUCache[str, _State] = LRUCache(maxsize=_MOST)
        """By uid: the state on which a preemptor was found to wait for its victims."""

    def are_as_before(self, queue: str, item: Pending) -> bool:
        """Whether a head still waits for victims, all of them being evicted, on an unchanged state: skip its plan."""
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
        """Record that the preemptor's try ended with waiting for its victims."""
        state = self._tried.get(uid)
        if state is not None:
            self._waits[uid] = state

    def _all_leave(self, claim: Claim) -> bool:
        for uid, (_, key) in claim.victims.items():
            held = self._cache.held.holding(key)
            if held is not None and held.uid == uid and not held.evicted:
                return False
        return True
