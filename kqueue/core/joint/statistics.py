"""Measured use of nodes, as far as it is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """The last samples of each node, by resource, the oldest first: cpu in milli, everything else in base units.

    Measured use is never free room: it is a cost only.
    """

    samples: Mapping[str, Sequence[Mapping[str, int]]] = field(default_factory=dict)

    def measured(self, node: str, resource: str, percentile: int) -> int | None:
        """Return this percentile of the samples of a node; None: it has no sample of the resource."""
        found = sorted(sample[resource] for sample in self.samples.get(node, ()) if resource in sample)
        return found[(len(found) - 1) * percentile // 100] if found else None


NO_STATISTICS = NodeStatistics()
