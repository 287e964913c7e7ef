"""The best that any plan could do, by CP-SAT, for figures that say how much of it plans reach."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import ceil
from typing import Any

_LIMIT_MS = 15_000


def _solver() -> Any:
    """Return a solver; other rows do not have its memory."""
    from ortools.linear_solver import pywraplp

    solver = pywraplp.Solver.CreateSolver("SAT")
    solver.SetTimeLimit(_LIMIT_MS)
    return solver


def most_further(sizes: Sequence[int], rooms: Sequence[int], largest: int) -> int | None:
    """Return the most gangs of `largest` hosts that fit beside all gangs of these sizes, each in one of the rooms.

    None: the solver reached its limit.
    """
    solver = _solver()
    counts = Counter(sizes)
    inside = {(size, rack): solver.IntVar(0, n, "") for size, n in counts.items() for rack in range(len(rooms))}
    further = [solver.IntVar(0, room // largest, "") for room in rooms]
    for size, n in counts.items():
        solver.Add(sum(inside[size, rack] for rack in range(len(rooms))) == n)
    for rack, room in enumerate(rooms):
        solver.Add(sum(size * inside[size, rack] for size in counts) + largest * further[rack] <= room)
    solver.Maximize(sum(further))
    return round(solver.Objective().Value()) if solver.Solve() == solver.OPTIMAL else None


def fewest_split(sizes: Sequence[int], rooms: Sequence[int]) -> int:
    """Return a number of gangs of these sizes below which no plan stays that lets gangs use more than one room.

    If the solver reaches its limit, the number that it has proved by then.
    """
    solver = _solver()
    counts = Counter(sizes)
    inside = {(size, rack): solver.IntVar(0, n, "") for size, n in counts.items() for rack in range(len(rooms))}
    split = {size: solver.IntVar(0, n, "") for size, n in counts.items()}
    for size, n in counts.items():
        solver.Add(sum(inside[size, rack] for rack in range(len(rooms))) + split[size] == n)
    for rack, room in enumerate(rooms):
        solver.Add(sum(size * inside[size, rack] for size in counts) <= room)
    solver.Minimize(sum(split.values()))
    solver.Solve()
    least: float = solver.Objective().BestBound()
    return ceil(least - 1e-6)
