"""The worlds of a run: a few of each kind, or those that the environment chooses."""

from __future__ import annotations

import os

import pytest

SLOW = pytest.mark.slow
SELDOM = pytest.mark.seldom
_FIRST_SLOW = 16


def seeds(usual: str = "0-3,6,87,99,179,1016,1039") -> list[object]:
    """Five, and some that once failed; `KQUEUE_SIM_SEEDS=1000-1100` (or 7,9,12) chooses others.

    In 87 a Job runs with fewer pods after its eviction; in 99 others leave for a Job when an older equal one comes, and
    it starts in other room; in 179 a Job ends when a rest does; in the last two a sliced gang is evicted when some of its
    pods have ended.
    """
    chosen = os.environ.get("KQUEUE_SIM_SEEDS", "")
    numbers: list[int] = []
    for part in (chosen or usual).split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return [pytest.param(n, id=f"seed-{n}", marks=SLOW if n >= _FIRST_SLOW and not chosen else ()) for n in numbers]


def few_seeds(usual: str, more: str) -> list[object]:
    """Some worlds of every run (empty: none), and `more` of `make test-deep`; `KQUEUE_SIM_SEEDS` chooses others."""
    if os.environ.get("KQUEUE_SIM_SEEDS"):
        return seeds()
    deep = [pytest.param(int(n), id=f"seed-{n}", marks=(SLOW, SELDOM)) for n in more.split(",")]
    return [*(seeds(usual) if usual else ()), *deep]


def sizes(usual: int, large: int) -> list[int]:
    """The size of every run, and the large one of `make test-deep`."""
    return [usual, large] if is_deep() else [usual]


def is_deep() -> bool:
    """Whether every turn and every size has a run, as `KQUEUE_SIM_TURNS=all` says."""
    return os.environ.get("KQUEUE_SIM_TURNS") == "all"
