"""Keys in order of rank, of which only the first is asked for as a rule."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
R = TypeVar("R", bound=tuple[Any, ...])

_SLACK = 64


class Ranked(Generic[K, R]):
    """Keys, each with a rank; the smallest is first.  Keys of equal rank must be comparable.

    Most come in order, so they stand in a row; whoever does not stands in a heap beside it.  Whoever leaves or changes
    rank stays there until it would be first: so both cost next to nothing.
    """

    __slots__ = ("_beside", "_ranks", "_row")

    def __init__(self) -> None:
        self._row: deque[tuple[R, K]] = deque()
        self._beside: list[tuple[R, K]] = []
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
        ranks, row = self._ranks, self._row
        if ranks.get(key) == rank:
            return
        ranks[key] = rank
        entry = rank, key
        while row and ranks.get(row[0][1]) != row[0][0]:
            row.popleft()
        if not row or not entry < row[-1]:
            row.append(entry)
        elif entry < row[0]:
            row.appendleft(entry)
        else:
            heappush(self._beside, entry)
        if len(row) + len(self._beside) > 2 * len(ranks) + _SLACK:
            self._row = deque(sorted((known, key) for key, known in ranks.items()))
            self._beside = []

    def remove(self, key: K) -> None:
        """Take a key out; nothing happens when it is not there."""
        self._ranks.pop(key, None)

    def take_in(self, other: Ranked[K, R]) -> None:
        """Add all keys of another one."""
        for key, rank in other._ranks.items():
            self.put(key, rank)

    def first(self) -> tuple[R, K] | None:
        """The smallest rank, and whose it is; None when there is nobody."""
        row, beside, ranks = self._row, self._beside, self._ranks
        while row and ranks.get(row[0][1]) != row[0][0]:
            row.popleft()
        if not beside:
            return row[0] if row else None
        while beside and ranks.get(beside[0][1]) != beside[0][0]:
            heappop(beside)
        if row and beside:
            return min(row[0], beside[0])
        return row[0] if row else beside[0] if beside else None

    def take_first(self) -> K | None:
        """Take out the first one; None when there is nobody."""
        first = self.first()
        if first is None:
            return None
        key = first[1]
        del self._ranks[key]
        if self._row and self._row[0] is first:
            self._row.popleft()
        return key

    def in_order(self) -> Iterator[tuple[R, K]]:
        """All, the first one first, as they are now; cheap for those at the front."""
        row, beside, ranks = self._row.copy(), self._beside.copy(), self._ranks.copy()
        while row or beside:
            from_row = not beside or (row and row[0] < beside[0])
            rank, key = row.popleft() if from_row else heappop(beside)
            if ranks.get(key) == rank:
                del ranks[key]  # who left and came back may stand there twice
                yield rank, key
