"""Orders in which workloads could end, and the smallest sets of them that suffice."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kqueue.core.workload import Admitted

T = TypeVar("T")

_PRUNED = 32
"""The largest set for which each member is tested for whether it can be left out."""


@dataclass(frozen=True, slots=True)
class EndingOrder:
    """Workloads in the order in which they would be ended until the freed resources suffice.

    `alone` are workloads of which one might suffice, the cheapest first. Fewer than `least` workloads do not suffice.
    """

    workloads: list[Admitted]
    alone: list[Admitted]
    least: int

    def with_more(self, other: EndingOrder) -> EndingOrder:
        """Return this order with the workloads of another one behind it."""
        return EndingOrder(
            list(dict.fromkeys([*self.workloads, *other.workloads])),
            list(dict.fromkeys([*self.alone, *other.alone])),
            self.least,
        )

    def without(self, keys: Collection[str | None]) -> EndingOrder:
        """Return the order without these workloads."""
        return EndingOrder(
            [w for w in self.workloads if w.key not in keys], [w for w in self.alone if w.key not in keys], self.least
        )


def prefix(
    line: Sequence[T], fits: Callable[[Sequence[T]], bool], *, least: int = 1
) -> Generator[None, None, list[T] | None]:
    """Return about the shortest prefix of `line` that suffices; None: not even all of `line` does.

    Fewer than `least` entries do not suffice.
    """
    if not line or least > len(line):
        return None
    low = high = least
    while True:
        yield
        if fits(line[:high]):
            break
        if high >= len(line):
            return None
        low, high = high + 1, min(2 * high, len(line))
    yield
    while low < high:
        middle = (low + high) // 2
        if fits(line[:middle]):
            high = middle
        else:
            low = middle + 1
        yield
    return list(line[:high])


def pruned(chosen: Sequence[T], fits: Callable[[Sequence[T]], bool]) -> Generator[None, None, list[T]]:
    """Return the set without members that are not needed; large sets are not changed."""
    kept = list(chosen)
    if len(kept) > _PRUNED:
        return kept
    for member in list(kept):
        if len(kept) == 1:
            break
        fewer = [other for other in kept if other is not member]
        if fits(fewer):
            kept = fewer
        yield
    return kept
