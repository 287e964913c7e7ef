"""Choose one cluster for all groups of pods of an owner, as a LeaderWorkerSet has several.

Each group has a Workload, and each Workload is in one cluster at most, whatever is decided here.  The first group that
gets a cluster decides for the others.  Source: Kueue, where only the group with index 0 does: there a group that waits
for quota keeps the others waiting with theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kqueue import model
from kqueue.api import kind_names, names
from kqueue.api.wire import kueue as wire
from kqueue.jobs.fields import int_of


@dataclass(frozen=True, slots=True)
class SetPlace:
    """Where a group may go because of the other groups.

    Args:
        cluster: the only cluster that the group may use; empty: the other groups decide nothing.
        waits_for: name of the Workload that is to get a cluster first; empty: none.
    """

    cluster: str = ""
    waits_for: str = ""

    @property
    def decides(self) -> bool:
        """Whether the other groups decide anything."""
        return bool(self.cluster or self.waits_for)

    def bars(self, cluster: str) -> bool:
        """Whether the group must not use a cluster."""
        return bool(self.waits_for) or (self.cluster not in ("", cluster))


ANYWHERE = SetPlace()


def place_of(workload: wire.Workload, others: Sequence[wire.Workload]) -> SetPlace:
    """Return where a group may go.

    Args:
        workload: its Workload.
        others: the Workloads of the other groups of its owner.
    """
    if not others or not _takes_part(workload):
        return ANYWHERE
    groups = sorted((each for each in (workload, *others) if _takes_part(each)), key=_index)
    placed = next((each for each in groups if each.status.cluster_name), None)
    if placed is not None:
        return SetPlace(cluster=placed.status.cluster_name or "")
    first = next((each for each in groups if each.status.nominated_cluster_names), groups[0])
    return ANYWHERE if first.metadata.name == workload.metadata.name else SetPlace(waits_for=first.metadata.name)


def heeded(workload: wire.Workload | None) -> object:
    """Return what the other groups heed of a Workload, to compare; None: there is none."""
    if workload is None or not _takes_part(workload):
        return None
    return workload.status.cluster_name, workload.status.nominated_cluster_names


def _takes_part(workload: wire.Workload) -> bool:
    """Whether the Workload has quota that it keeps, so that a cluster may run it."""
    return (
        model.condition_true(workload, names.CONDITION_QUOTA_RESERVED)
        and not model.condition_true(workload, names.CONDITION_EVICTED)
        and not model.is_over(workload)
        and workload.metadata.deletion_timestamp is None
    )


def _index(workload: wire.Workload) -> tuple[int, str]:
    written = workload.metadata.annotations.get(kind_names.COMPONENT_WORKLOAD_INDEX_ANNOTATION, "")
    index = int_of(written)
    return (index if index is not None else 0), workload.metadata.name
