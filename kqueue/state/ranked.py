"""Keys in order of rank, of which only the first is asked for as a rule."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
R = TypeVar("R", bound=tuple[Any, ...])

_SLACK = 64


class Ranked(Generic[K, R]):
    """Keys, each with a rank; the smallest is first.  Keys of equal rank must be comparable.

    Whoever leaves or changes rank stays in the heap until it would be first: so both cost next to nothing.
    """

    __slots__ = ("_heap", "_ranks")

    def __init__(self) -> None:
        self._heap: list[tuple[R, K]] = []
        self._ranks: dict[K, R] = {}

    def __len__(self) -> int:
        return len(self._ranks)

    def __iter__(self) -> Iterator[K]:
        """All keys, in no order of rank."""
        return iter(self._ranks)

    def __contains__(self, key: object) -> bool:
        return key in self._ranks

    def put(self, key: K, rank: R) -> None:
        """Add a key or change its rank."""
        if self._ranks.get(key) == rank:
            return
        self._ranks[key] = rank
        heappush(self._heap, (rank, key))
        if len(self._heap) > 2 * len(self._ranks) + _SLACK:
            self._heap = [(known, key) for key, known in self._ranks.items()]
            heapify(self._heap)

    def remove(self, key: K) -> None:
        """Take a key out; nothing happens when it is not there."""
        self._ranks.pop(key, None)

    def take_in(self, other: Ranked[K, R]) -> None:
        """Add all keys of another one."""
        for key, rank in other._ranks.items():
            self.put(key, rank)

    def first(self) -> tuple[R, K] | None:
        """The smallest rank, and whose it is; None when there is nobody."""
        heap, ranks = self._heap, self._ranks
        while heap:
            entry = heap[0]
            if ranks.get(entry[1]) == entry[0]:
                return entry
            heappop(heap)
        return None

    def in_order(self) -> Iterator[tuple[R, K]]:
        """All, the first one first, as they are now; cheap for those at the front."""
        heap, ranks = self._heap.copy(), self._ranks.copy()
        while heap:
            rank, key = heappop(heap)
            if ranks.get(key) == rank:
                del ranks[key]  # who left and came back may stand in the heap twice
                yield rank, key
