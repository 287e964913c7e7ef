"""Measured use of nodes and of kinds of pods, as far as it is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kqueue.core.quantity import CPU
from kqueue.core.topology.node import PODS
from kqueue.core.topology.tree import Ints

MEMORY, BANDWIDTH = "memory", "kqueue.dev/bandwidth"
MEASURED = (CPU, MEMORY, BANDWIDTH)
"""The resources of a sample, in their order."""
NO_SAMPLE = -1
"""An amount that was not measured."""
MOST = 1 << 53
"""The largest amount of a sample."""

MeasuredKind = tuple[str, tuple[tuple[str, int], ...]]
"""Pods that are expected to use alike: their ClusterQueue and their requests, sorted."""


def measured_kind(queue: str, requests: Mapping[str, int]) -> MeasuredKind:
    """Return the kind of pods with these requests in a ClusterQueue."""
    return queue, tuple(sorted((resource, n) for resource, n in requests.items() if n and resource != PODS))


def no_samples() -> Ints:
    """Return the table of no node."""
    return np.zeros((0, len(MEASURED), 0), dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class NodeStatistics:
    """The last samples of nodes, and the mean use of one pod by kind: cpu in milli, everything else in base units.

    Measured use is never free room: it is a cost only.

    Args:
        nodes: their names.
        samples: [number of the sample, resource of `MEASURED`, node]; `NO_SAMPLE` where there is none.
        means: by kind of pods, the amounts of `MEASURED`.
    """

    nodes: tuple[str, ...] = ()
    samples: Ints = field(default_factory=no_samples)
    means: Mapping[MeasuredKind, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, samples: Mapping[str, Sequence[Mapping[str, int]]]) -> NodeStatistics:
        """Return the statistics with these samples of each node, by resource.  Amounts are cut to `MOST`."""
        table = np.full((max(map(len, samples.values()), default=0), len(MEASURED), len(samples)), NO_SAMPLE)
        for column, some in enumerate(samples.values()):
            for number, sample in enumerate(some):
                for resource, amount in sample.items():
                    table[number, MEASURED.index(resource), column] = min(amount, MOST)
        return cls(tuple(samples), table.astype(np.int64))

    def equals(self, other: NodeStatistics) -> bool:
        """Whether both have the same samples and means."""
        same = self.nodes == other.nodes and self.means == other.means
        return same and np.array_equal(self.samples, other.samples)

    def measured(self, resource: str, percentile: int) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Return this percentile of the samples of each node of `nodes`, and whether it has any."""
        if resource not in MEASURED or not self.samples.size:
            return np.zeros(len(self.nodes), dtype=np.int64), np.zeros(len(self.nodes), dtype=np.bool_)
        found = np.sort(self.samples[:, MEASURED.index(resource), :], axis=0)
        known = (found >= 0).sum(axis=0)
        place = len(found) - known + (known - 1) * percentile // 100
        amounts = np.take_along_axis(found, np.clip(place, 0, len(found) - 1)[None, :], axis=0)[0]
        return np.where(known > 0, amounts, 0), known > 0

    def mean(self, kind: MeasuredKind, resource: str) -> int | None:
        """Return the mean use of one pod of a kind; None: it was not measured."""
        found = self.means.get(kind)
        amount = found[MEASURED.index(resource)] if found is not None and resource in MEASURED else NO_SAMPLE
        return amount if amount >= 0 else None


NO_STATISTICS = NodeStatistics()


def joined(parts: Sequence[NodeStatistics]) -> NodeStatistics:
    """Return the statistics of all parts, of which each has other nodes and kinds of pods."""
    if not parts:
        return NO_STATISTICS
    of_nodes = [part for part in parts if part.nodes]
    return NodeStatistics(
        tuple([node for part in of_nodes for node in part.nodes]),
        np.concatenate([part.samples for part in of_nodes], axis=2) if of_nodes else no_samples(),
        {kind: amounts for part in parts for kind, amounts in part.means.items()},
    )
