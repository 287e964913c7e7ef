"""Measured use that this process remembers: the last samples of each node, and of each kind of pods.

A ring has one column for each node (or kind of pods); the oldest sample of a column is overwritten.  Samples are costs
only, so nothing is kept beyond the process: after a start the rings fill again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from kqueue.core.joint.statistics import MEASURED, NO_SAMPLE, MeasuredKind, NodeStatistics
from kqueue.core.topology.tree import Ints
from kqueue.core.value import value

K = TypeVar("K", bound=Hashable)

Sample = tuple[int, ...]
"""The amounts of `MEASURED`; `NO_SAMPLE` for a resource that was not measured."""

MOST_KINDS = 10_000
"""The most kinds of pods whose use is remembered; samples of further kinds are not kept."""
INTERVALS = 10
"""A sample that is older than so many intervals is not used."""


class Rings(Generic[K]):
    """The last samples by key.

    Args:
        depth: the number of samples that are kept of a key.
        most: the number of keys that are kept; None: any number.
    """

    def __init__(self, depth: int, most: int | None = None) -> None:
        self._depth, self._most = depth, most
        self.clear()

    def clear(self) -> None:
        """Forget all keys, and give the memory back."""
        self._column: dict[K, int] = {}
        self._unused: list[int] = []
        self._amounts = np.full((self._depth, len(MEASURED), 0), NO_SAMPLE, dtype=np.int64)
        self._taken = np.full((self._depth, 0), -np.inf)
        """The time of each sample."""
        self._next = np.zeros(0, dtype=np.int64)
        """The row of each column's next sample."""

    def __len__(self) -> int:
        return len(self._column)

    def __contains__(self, key: object) -> bool:
        return key in self._column

    @property
    def size(self) -> int:
        """The bytes of all tables."""
        return self._amounts.nbytes + self._taken.nbytes + self._next.nbytes

    def add(self, samples: Mapping[K, Sample], now: float) -> None:
        """Add one sample for each key, in place of the oldest one if its ring is full."""
        found = [(self._of(key), sample) for key, sample in samples.items()]
        known = [(column, sample) for column, sample in found if column is not None]
        columns = np.array([column for column, _ in known], dtype=np.int64)
        if not len(columns):
            return
        rows = self._next[columns]
        self._amounts[rows, :, columns] = np.array([sample for _, sample in known], dtype=np.int64)
        self._taken[rows, columns] = now
        self._next[columns] = (rows + 1) % self._depth

    def _of(self, key: K) -> int | None:
        """Return the column of a key, a new one if it has none; None: there is no room for it."""
        known = self._column.get(key)
        if known is not None:
            return known
        if self._most is not None and len(self._column) >= self._most:
            return None
        if not self._unused:
            self._grow()
        column = self._column[key] = self._unused.pop()
        return column

    def _grow(self) -> None:
        size = len(self._next)
        more = max(64, size // 2)
        self._amounts = np.concatenate(
            [self._amounts, np.full((self._depth, len(MEASURED), more), NO_SAMPLE, dtype=np.int64)], axis=2
        )
        self._taken = np.concatenate([self._taken, np.full((self._depth, more), -np.inf)], axis=1)
        self._next = np.concatenate([self._next, np.zeros(more, dtype=np.int64)])
        self._unused.extend(range(size + more - 1, size - 1, -1))

    def forget(self, key: K) -> None:
        """Forget the samples of a key, if there are any."""
        column = self._column.pop(key, None)
        if column is not None:
            self._amounts[:, :, column], self._taken[:, column], self._next[column] = NO_SAMPLE, -np.inf, 0
            self._unused.append(column)

    def forget_unused(self, since: float) -> None:
        """Forget the keys whose last sample is older than this time."""
        columns = np.fromiter(self._column.values(), dtype=np.int64, count=len(self._column))
        unused = self._taken[:, columns].max(axis=0, initial=-np.inf) < since
        if unused.any():
            for key in [key for key, old in zip(self._column, unused.tolist(), strict=True) if old]:
                self.forget(key)

    def names(self) -> tuple[K, ...]:
        """Return the keys, in the order of `usable`."""
        return tuple(self._column)

    def usable(self, since: float) -> Ints:
        """Return a copy of the samples [number, resource, key], with `NO_SAMPLE` for those older than this time."""
        columns = np.fromiter(self._column.values(), dtype=np.int64, count=len(self._column))
        found: Ints = self._amounts[:, :, columns]
        old: npt.NDArray[np.bool_] = self._taken[:, columns] < since
        found[np.broadcast_to(old[:, None, :], found.shape)] = NO_SAMPLE
        return found


@value(kw_only=True)
class UseSummary:
    """The known measured use: numbers of nodes and kinds of pods with samples, and why samples cannot be read."""

    nodes: int
    kinds: int
    problems: tuple[str, ...]


class StatisticsStore:
    """The measured use of nodes and of kinds of pods.

    Args:
        interval: the seconds between two samples.
        samples: the number of samples that are kept.
        clock: seconds that never go back.
    """

    def __init__(self, *, interval: float, samples: int, clock: Callable[[], float]) -> None:
        self._life, self._clock = INTERVALS * interval, clock
        self.nodes: Rings[str] = Rings(samples)
        self.kinds: Rings[MeasuredKind] = Rings(samples, MOST_KINDS)

    def add_nodes(self, samples: Mapping[str, Sample]) -> None:
        """Add a sample of each of these nodes; nodes without a usable sample leave."""
        self._add(self.nodes, samples)

    def add_kinds(self, samples: Mapping[MeasuredKind, Sample]) -> None:
        """Add a sample of one pod of each of these kinds; kinds without a usable sample leave."""
        self._add(self.kinds, samples)

    def _add(self, rings: Rings[K], samples: Mapping[K, Sample]) -> None:
        rings.forget_unused(self._since())
        rings.add(samples, self._clock())

    def keep_nodes(self, known: Callable[[str], bool]) -> None:
        """Forget the nodes that are gone."""
        for node in self.nodes.names():
            if not known(node):
                self.nodes.forget(node)

    def clear(self) -> None:
        """Forget everything."""
        self.nodes.clear()
        self.kinds.clear()

    def statistics(self) -> NodeStatistics:
        """Return the samples of this moment as values that later samples do not change; old ones are left out."""
        since = self._since()
        kinds, found = self.kinds.names(), self.kinds.usable(since)
        known = found >= 0
        number = known.sum(axis=0)
        means = np.where(number > 0, np.where(known, found, 0).sum(axis=0) // np.maximum(number, 1), NO_SAMPLE)
        return NodeStatistics(
            self.nodes.names(),
            self.nodes.usable(since),
            {kind: tuple(means[:, place].tolist()) for place, kind in enumerate(kinds) if (number[:, place] > 0).any()},
        )

    def _since(self) -> float:
        return self._clock() - self._life
