"""The holding of one workload: quota, domains, and the facts that preemption goes by."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from datetime import UTC, datetime

from kqueue.core.topology import DomainUsage
from kqueue.core.value import value
from kqueue.core.workload import Admission, Admitted, PodSetAssignment

_NO_TIME = datetime.fromtimestamp(0, UTC)


@value(kw_only=True)
class Holding:
    """The quota and domains of one workload; preemption orders workloads by `priority` and the times."""

    key: str
    uid: str
    local_queue: str
    admission: Admission
    requests: Mapping[str, Mapping[str, int]]
    """Per pod set: what one pod requests, for the node ledger."""
    admitted: bool
    assumed: bool
    replaces: Admission | None = None
    """What it held before, while other domains are being written and no event has told of them yet."""
    priority: int = 0
    timestamp: datetime = _NO_TIME
    reserved_at: datetime | None = None
    admitted_at: datetime | None = None
    evicted: bool = False
    ready: bool = False
    """Its pods are ready, or were."""
    takes_over: str | None = None
    """Key of the slice of its elastic job whose pods and quota it takes over; None: of none."""
    pods_of: str = ""
    """What its pods are found by (`model.siblings_key`); empty: its own key."""
    job: tuple[str, str] | None = None
    """Kind (with its version) and UID of the object that controls it; None: nobody does."""
    _view: tuple[frozenset[str], Admitted] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def queue(self) -> str:
        """The ClusterQueue that holds it."""
        return self.admission.queue

    @property
    def is_unconfirmed(self) -> bool:
        """Whether no event has confirmed the usage yet: it is assumed, or was moved to other domains."""
        return self.assumed or self.replaces is not None

    def includes(self, other: Holding) -> bool:
        """Whether what `other` holds is part of what this one holds, as it is with the newer slice of one job."""
        return self.takes_over == other.key and self.job == other.job and self.queue == other.queue

    def is_same_reservation(self, other: Holding) -> bool:
        """Whether one of them is only a later version of the other."""
        return (self.uid, self.reserved_at) == (other.uid, other.reserved_at) or (
            self.uid == other.uid and self.reserved_at is None
        )

    def view(self, with_topology: frozenset[str]) -> Admitted:
        """The workload as preemption sees it; `with_topology` are the flavors that have one."""
        known = self._view
        if known is not None and known[0] == with_topology:
            return known[1]
        view = self._seen(with_topology)
        object.__setattr__(self, "_view", (with_topology, view))  # frozen for everybody else
        return view

    def _seen(self, with_topology: frozenset[str]) -> Admitted:
        domains: dict[str, list[DomainUsage]] = {}
        further: dict[str, dict[str, list[DomainUsage]]] = {}
        for pod_set in self.admission.pod_sets:
            flavor = counted_in(pod_set, with_topology)
            if pod_set.topology is None or flavor is None:
                continue
            requests = self.requests.get(pod_set.name, {})
            where = pod_set.topology
            placed = [DomainUsage(where.named(d.values), requests, d.count) for d in where.domains]
            domains.setdefault(flavor, []).extend(placed)
            for other in sorted(with_topology.intersection(pod_set.flavors.values()) - {flavor}):
                further.setdefault(flavor, {}).setdefault(other, []).extend(placed)
        return Admitted(
            key=self.key,
            uid=self.uid,
            queue=self.queue,
            local_queue=self.local_queue,
            priority=self.priority,
            timestamp=self.timestamp,
            reserved_at=self.reserved_at,
            admitted_at=self.admitted_at,
            evicted=self.evicted,
            usage=self.admission.usage(),
            domains={flavor: tuple(usage) for flavor, usage in domains.items()},
            further={
                flavor: {other: tuple(usage) for other, usage in others.items()} for flavor, others in further.items()
            },
        )


def counted_in(pod_set: PodSetAssignment, with_topology: Collection[str]) -> str | None:
    """The one flavor in which the pods of a pod set are counted on their hosts, which others share; None: in none."""
    return min(set(pod_set.flavors.values()).intersection(with_topology), default=None)
