"""Remembers tries that admitted nothing, so that equal tries are not repeated on an equal state."""

from __future__ import annotations

from kqueue.state.cache import Cache

Tries = frozenset[tuple[object, ...]]
"""The heads of one cycle, each with the start of its scan of flavors."""


class RepeatedTries:
    """The tries that admitted nothing on the present state of the cache."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._generation = (0, 0)
        self._failed: set[Tries] = set()

    def is_new(self, tries: Tries) -> bool:
        """Whether these tries have not failed on the present state before; they are remembered as failed.

        A cycle that admits or parks a workload lets the next workload become the head, so a series of cycles ends.
        Heads of StrictFIFO queues come back at once: they are tried again while their scan of flavors advances.
        """
        generation = (self._cache.generation, self._cache.ledger.generation)
        if self._generation != generation:
            self._generation, self._failed = generation, set()
        new = tries not in self._failed
        self._failed.add(tries)
        return new
