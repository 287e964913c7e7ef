"""The cheapest sets of workloads that free enough room together."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest

_SETS = 64
"""Sets that are returned."""
_KEPT, _KEPT_OF_MANY = 16, 3
"""Sets that are kept of those that free the same room without freeing enough."""
_MANY = 20_000
"""Workloads x missing pods, above which fewer sets are kept."""

_Set = tuple[int, int, tuple[int, ...]]
"""Cost, number of workloads, and the workloads by number."""


def cheapest_covers(freed: Sequence[int], costs: Sequence[int], missing: int) -> list[tuple[int, ...]]:
    """Return sets of workloads that free at least `missing` (> 0) pods, the cheapest first, then the smallest.

    None of these sets has a workload without which it frees enough.  The first is a cheapest of all; of the others some
    may be left out.

    Args:
        freed: the pods that each workload frees; those that free nothing are in no set.
        costs: the cost of each.
    """
    kept = _KEPT if len(freed) * missing <= _MANY else _KEPT_OF_MANY
    partial: list[list[_Set]] = [[] for _ in range(missing)]
    partial[0] = [(0, 0, ())]
    enough: list[_Set] = []
    for number, (more, cost) in enumerate(zip(freed, costs, strict=True)):
        if more <= 0:
            continue
        for before in range(missing - 1, -1, -1):  # downwards, so that each workload is in a set once
            if not partial[before]:
                continue
            grown = [(c + cost, n + 1, (*some, number)) for c, n, some in partial[before]]
            if before + more >= missing:
                enough += grown
            else:
                partial[before + more] = nsmallest(kept, partial[before + more] + grown)
        if len(enough) > 4 * _SETS:
            enough = nsmallest(_SETS, enough)
    return [some for _, _, some in nsmallest(_SETS, enough)]
