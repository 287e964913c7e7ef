"""Keys in order of rank, for callers that usually need only the first key."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
R = TypeVar("R", bound=tuple[Any, ...])

_SLACK = 64


class Ranked(Generic[K, R]):
    """Keys with ranks; the smallest rank is first.

    Keys of equal rank must be comparable. Most keys arrive in order and are appended to a row; the others go to a heap.
    The old entry of a removed or re-ranked key is dropped only when the entry would be first, so both operations are
    cheap.
    """

    __slots__ = ("_first_index", "_heap", "_ranks", "_row")

    def __init__(self) -> None:
        self._row: list[tuple[R, K]] = []
        self._first_index = 0
        """The number of entries at the beginning of the row that are done."""
        self._heap: list[tuple[R, K]] = []
        self._ranks: dict[K, R] = {}

    def __len__(self) -> int:
        return len(self._ranks)

    def __iter__(self) -> Iterator[K]:
        """Iterate over all keys, in no order of rank."""
        return iter(self._ranks)

    def __contains__(self, key: object) -> bool:
        return key in self._ranks

    def put(self, key: K, rank: R) -> None:
        """Add a key or change its rank."""
        ranks = self._ranks
        if ranks.get(key) == rank:
            return
        ranks[key] = rank
        entry = rank, key
        front = self._front()
        if front is None or not entry < self._row[-1]:
            self._row.append(entry)
        elif self._first_index and entry < front:
            self._first_index -= 1
            self._row[self._first_index] = entry
        else:
            heappush(self._heap, entry)
        if len(self._row) + len(self._heap) > 2 * len(ranks) + _SLACK:
            self._row, self._first_index = sorted((known, key) for key, known in ranks.items()), 0
            self._heap = []

    def remove(self, key: K) -> None:
        """Remove a key; no effect if it is absent."""
        self._ranks.pop(key, None)

    def take_in(self, other: Ranked[K, R]) -> None:
        """Add all keys of another `Ranked`."""
        for key, rank in other._ranks.items():
            self.put(key, rank)

    def first(self) -> tuple[R, K] | None:
        """Return the smallest rank and its key; None when there are no keys."""
        front, heap, ranks = self._front(), self._heap, self._ranks
        while heap and ranks.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        if heap and (front is None or heap[0] < front):
            return heap[0]
        return front

    def _front(self) -> tuple[R, K] | None:
        """Return the first entry of the row; None: the row has no present key."""
        row, ranks = self._row, self._ranks
        while self._first_index < len(row):
            entry = row[self._first_index]
            if ranks.get(entry[1]) == entry[0]:
                return entry
            self._first_index += 1
            if 2 * self._first_index > len(row):
                del row[: self._first_index]
                self._first_index = 0
        return None

    def take_first(self) -> K | None:
        """Remove and return the first key; None when there are no keys."""
        first = self.first()
        if first is None:
            return None
        del self._ranks[first[1]]
        return first[1]

    def in_order(self) -> Iterator[tuple[R, K]]:
        """Yield all present keys with their ranks, in order; reading only the first ones is cheap."""
        row, heap, ranks = self._row[self._first_index :], self._heap.copy(), self._ranks.copy()
        rest = iter(row)
        front = next(rest, None)
        while front is not None or heap:
            if front is not None and not (heap and heap[0] < front):
                (rank, key), front = front, next(rest, None)
            else:
                rank, key = heappop(heap)
            if ranks.get(key) == rank:
                del ranks[key]  # a key that was removed and added again may have two entries
                yield rank, key
