"""The holding of one workload: its quota, its domains, and the facts by which preemption orders workloads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime

from kqueue.api import names
from kqueue.core.charging import domains_held
from kqueue.core.lost_work import NO_FACTS, RunFacts
from kqueue.core.value import value
from kqueue.core.workload import Admission, Admitted

_NO_TIME = datetime.fromtimestamp(0, UTC)


@value(kw_only=True)
class Holding:
    """The quota and domains of one workload; preemption orders workloads by `priority` and the times."""

    key: str
    uid: str
    local_queue: str
    admission: Admission
    requests: Mapping[str, Mapping[str, int]]
    """The requests of one pod by pod set, for the node ledger."""
    admitted: bool
    assumed: bool
    replaces: Admission | None = None
    """The admission before a move, until the watch reports the write of the new domains; None: the workload is not
    moving.
    """
    priority: int = 0
    timestamp: datetime = _NO_TIME
    reserved_at: datetime | None = None
    admitted_at: datetime | None = None
    evicted: bool = False
    ready: bool = False
    """Whether the pods are ready, or were ready before."""
    takes_over: str | None = None
    """The key of the workload whose quota is a part of this one's: the older slice of the same elastic job, or the
    parent of a variant; None: there is none.
    """
    pods_of: str = ""
    """The name by which the workload's pods are found (`model.siblings_key`); empty: its own key."""
    job: tuple[str, str] | None = None
    """Kind (with its version) and UID of the object that controls the workload; None: no object controls it."""
    facts: RunFacts = NO_FACTS
    """The statements of its user about its run."""
    _view: tuple[frozenset[str], Admitted] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def queue(self) -> str:
        """The ClusterQueue whose quota the workload uses."""
        return self.admission.queue

    @property
    def is_variant(self) -> bool:
        """Whether another Workload controls this one."""
        kind = self.job[0] if self.job is not None else ""
        return kind.startswith(f"{names.GROUP}/") and kind.endswith(f"/{names.WORKLOAD_KIND}")

    @property
    def is_unconfirmed(self) -> bool:
        """Whether no event has confirmed the usage yet: it is assumed, or was moved to other domains."""
        return self.assumed or self.replaces is not None

    def includes(self, other: Holding) -> bool:
        """Whether the holding `other` is a part of this one: this one is the newer slice of the same job, or `other`
        controls it and uses no more than this one, as the parent of an admitted variant does.
        """
        if self.takes_over != other.key or self.queue != other.queue:
            return False
        return self.job == other.job or (self.job is not None and self.job[1] == other.uid and self._covers(other))

    def _covers(self, other: Holding) -> bool:
        own = self.admission.usage()
        return all(amount <= own.get(column, 0) for column, amount in other.admission.usage().items())

    def is_same_reservation(self, other: Holding) -> bool:
        """Whether both are versions of the same reservation."""
        return (self.uid, self.reserved_at) == (other.uid, other.reserved_at) or (
            self.uid == other.uid and self.reserved_at is None
        )

    def view(self, with_topology: frozenset[str]) -> Admitted:
        """Return the workload in the form of preemption; `with_topology` are the flavors that have a topology."""
        known = self._view
        if known is not None and known[0] == with_topology:
            return known[1]
        view = self._seen(with_topology)
        object.__setattr__(self, "_view", (with_topology, view))  # only this cache may change the frozen object
        return view

    def _seen(self, with_topology: frozenset[str]) -> Admitted:
        domains, further = domains_held(self.admission.pod_sets, self.requests, with_topology)
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
            domains=domains,
            further=further,
            pods=sum(pod_set.count for pod_set in self.admission.pod_sets),
            facts=self.facts,
        )
