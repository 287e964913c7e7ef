"""Items in order, of which the first ones are read often and any one may come or go at any time."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import chain
from typing import Any, Generic, TypeVar

T = TypeVar("T", bound=tuple[Any, ...])

_FULL = 2000
"""Items of a block that is split."""


class SortedItems(Generic[T]):
    """Different tuples in ascending order.  A change moves the items of one block, however many items there are."""

    __slots__ = ("_blocks", "_last", "_number")

    def __init__(self) -> None:
        self._blocks: list[list[T]] = []
        self._last: list[T] = []
        """The last item of each block."""
        self._number = 0

    def __len__(self) -> int:
        return self._number

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._blocks)

    def add(self, item: T) -> None:
        """Add an item that is not there."""
        self._number += 1
        if not self._blocks:
            self._blocks, self._last = [[item]], [item]
            return
        at = min(bisect_left(self._last, item), len(self._blocks) - 1)
        block = self._blocks[at]
        insort(block, item)
        if len(block) >= _FULL:
            half = len(block) // 2
            self._blocks[at : at + 1] = [block[:half], block[half:]]
            self._last[at : at + 1] = [block[half - 1], block[-1]]
        else:
            self._last[at] = block[-1]

    def remove(self, item: T) -> None:
        """Remove an item.

        Raises:
            KeyError: it is not there.
        """
        at = bisect_left(self._last, item)
        block = self._blocks[at] if at < len(self._blocks) else []
        inside = bisect_left(block, item)
        if inside == len(block) or block[inside] != item:
            raise KeyError(item)
        self._number -= 1
        del block[inside]
        if block:
            self._last[at] = block[-1]
        else:
            del self._blocks[at], self._last[at]
