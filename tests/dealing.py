"""The order of tests for several workers, each of which gets an equal, contiguous share (`--dist worksteal`).

A worker that has nothing left takes tests from the end of another one's share.  So tests that are long come first, and
each worker has some of them; between them come others, because long tests wait most of their time for other processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TypeVar

T = TypeVar("T")

_BETWEEN = 0.6
"""The part of a worker's short tests that runs between its long ones; the others come at the end."""


def dealt(tests: Sequence[T], workers: int, *, is_long: Callable[[T], bool], file: Callable[[T], object]) -> list[T]:
    """Return the tests in the order in which they are to be shared out.

    Tests of one kind and file that follow each other stay together, in their order, but where a share ends.
    """
    groups: list[tuple[bool, list[T]]] = [
        (long, list(found)) for (long, _), found in groupby(tests, key=lambda test: (is_long(test), file(test)))
    ]
    long: list[list[list[T]]] = [[] for _ in range(workers)]
    for group in (found for is_long_, found in groups if is_long_):
        min(long, key=lambda share: sum(map(len, share))).append(group)
    short = [test for is_long_, found in groups if not is_long_ for test in found]
    order: list[T] = []
    for number, share in enumerate(long):
        size = (len(tests) - len(order)) // (workers - number)
        room = max(0, size - sum(map(len, share)))
        order += _mixed(share, short[:room])
        del short[:room]
    return order + short


def _mixed(long: Sequence[Sequence[T]], short: Sequence[T]) -> list[T]:
    """Return groups of long tests with equal numbers of short ones before each, and the remaining short ones."""
    step = int(len(short) * _BETWEEN) // len(long) if long else 0
    order: list[T] = []
    for number, group in enumerate(long):
        order += short[number * step : (number + 1) * step]
        order += group
    return order + list(short[len(long) * step :])
