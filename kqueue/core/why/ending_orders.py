"""Lines of candidates, and the sets that are found in them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kqueue.core.workload import Admitted

T = TypeVar("T")

_PRUNED = 32
"""In sets up to this size each member is tried for whether it can be left out."""


@dataclass(frozen=True, slots=True)
class EndingOrder:
    """Workloads in the order in which they would be ended until enough have.

    `alone` are workloads of which one might be enough, the cheapest first. Fewer than `least` are not enough.
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
    """Return about the shortest prefix of `line` that is enough; None when all of `line` is not.

    Fewer than `least` are not enough.
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
    """The same without members that are not needed; large sets are left as they are."""
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
