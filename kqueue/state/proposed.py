"""Objects that do not exist, or not in this form: the configuration of a question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kqueue.api.wire import kueue as wire
from kqueue.core.quota import QuotaNode


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedObjects:
    """Objects that a question puts in the place of those of the same kind and name; LocalQueues by namespace/name."""

    cluster_queues: Mapping[str, wire.ClusterQueue] = field(default_factory=dict)
    cohorts: Mapping[str, wire.Cohort] = field(default_factory=dict)
    flavors: Mapping[str, wire.ResourceFlavor] = field(default_factory=dict)
    local_queues: Mapping[str, wire.LocalQueue] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.cluster_queues or self.cohorts or self.flavors or self.local_queues)

    def cohort_names(self) -> Iterator[str]:
        """Yield the names of all Cohorts that the objects are or name."""
        for queue in self.cluster_queues.values():
            yield queue.spec.cohort_name or ""
        for name, cohort in self.cohorts.items():
            yield name
            yield cohort.spec.parent_name or ""


def trees_with(nodes: Mapping[str, QuotaNode], names: Iterator[str]) -> list[QuotaNode]:
    """Return the roots of the trees in which nodes with these names are, each once."""
    roots = {id(node.root): node.root for name in names if (node := nodes.get(name)) is not None}
    return list(roots.values())
