"""Reservation: domains that are free from one time to another, for maintenance or for one ClusterQueue."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from kqueue.api.bounds import INT64_MAX
from kqueue.api.defragmentation_plan import DomainPath, WorkloadKey
from kqueue.api.fields import Conditions, Count, LabelKey, ObjectName, Quantity, Time
from kqueue.api.model import ATOMIC, ApiModel, Column, Resource, Rule, Served
from kqueue.api.names import KQUEUE_API_VERSION, KQUEUE_GROUP, KQUEUE_VERSION
from kqueue.api.reservation_names import (
    LONGEST_RESERVATION_DAYS,
    MOST_DOMAINS,
    MOST_LISTED,
    MOST_RESOURCES,
    RESERVATION_KIND,
)

EndSource = Literal["Promised", "Expected", "Learned", "Evicted", "Unknown"]
Domain = Annotated[tuple[Annotated[str, Field(max_length=63)], ...], Field(min_length=1, max_length=16), ATOMIC]
_LONGEST_PATHS = 2_200
"""Characters of two paths with 16 values of 63 each, and of the number of the others."""
_LONGEST = timedelta(days=LONGEST_RESERVATION_DAYS)


def _fixed(what: str) -> Rule:
    return Rule(cel="self == oldSelf", message=f"{what} cannot change; create another Reservation instead")


class ReservationSpec(ApiModel):
    """The domains, the times, and the ClusterQueue that may use them."""

    rules = (
        Rule(
            cel="has(self.domain) ? !has(self.level) && !has(self.count) : has(self.level) && has(self.count)",
            message="set either domain, or level and count",
            holds=lambda spec: (
                (spec.level is None and spec.count is None)
                if spec.domain is not None
                else None not in (spec.level, spec.count)
            ),
        ),
        Rule(
            cel="has(self.domain) == has(oldSelf.domain)",
            message="domain cannot be replaced by level and count; create another Reservation instead",
        ),
        Rule(
            cel="self.from < self.to",
            message="to must be after from",
            holds=lambda spec: spec.begins < spec.to,
            field=".to",
        ),
        Rule(
            cel=f"self.to - self.from <= duration('{24 * LONGEST_RESERVATION_DAYS}h')",
            message=f"to must be at most {LONGEST_RESERVATION_DAYS} days after from",
            holds=lambda spec: spec.to - spec.begins <= _LONGEST,
            field=".to",
        ),
        Rule(
            cel="!has(self.drainFrom) || self.drainFrom <= self.from",
            message="drainFrom must not be after from",
            holds=lambda spec: spec.drain_from is None or spec.drain_from <= spec.begins,
            field=".drainFrom",
        ),
    )
    topology: Annotated[ObjectName, _fixed("the topology")]
    """Topology that has the domains.  It cannot change."""
    domain: Annotated[Domain, _fixed("the domain")] | None = None
    """Domain: its values of the levels, the widest level first, as in [block-1, rack-3].  It cannot change."""
    level: Annotated[LabelKey, _fixed("the level")] | None = None
    """Topology level of which kqueue chooses domains, as its node label key.  It cannot change."""
    count: Annotated[int, Field(strict=True, ge=1, le=MOST_DOMAINS), _fixed("the count")] | None = None
    """Number of the domains that kqueue chooses.  It cannot change."""
    resources: Annotated[Mapping[str, Quantity], Field(max_length=MOST_RESOURCES)] | None = None
    """Amounts of each host that are reserved.  Absent: everything."""
    begins: Annotated[Time, Field(alias="from")]
    """Time from which the resources are to be free."""
    to: Time
    """Time at which the reservation ends."""
    drain_from: Time | None = None
    """Time from which no workload starts there that may still run at `from`.  Absent: from the creation on."""
    cluster_queue: ObjectName | None = None
    """ClusterQueue whose workloads may use the resources from `from` on.  Absent: maintenance, nothing starts there."""
    ttl_seconds_after_ended: Annotated[int, Field(strict=True, ge=0, le=INT64_MAX)] | None = None
    """Seconds after the end of the reservation until it is deleted.  Absent: it is kept."""


class ReservedDomain(ApiModel):
    """A domain that is reserved."""

    path: DomainPath
    """Values of its levels, the widest level first."""
    hosts: Count
    """Number of its hosts, cordoned ones included."""


class RunningThere(ApiModel):
    """A workload with pods on reserved hosts."""

    workload: WorkloadKey
    """Namespace and name of the Workload, joined by a slash."""
    pods: Count
    """Number of its pods there."""
    ends: Time | None = None
    """Time at which it ends at the latest, as far as known.  Absent: unknown."""
    source: EndSource = "Unknown"
    """Origin of that time: a promised, an expected or a learned run time; Evicted: it is being evicted."""
    late: bool = False
    """Whether it is not known to end before the reservation begins."""


class ReservationStatus(ApiModel):
    """The chosen domains, and the workloads that still run there."""

    observed_generation: Annotated[int, Field(strict=True, ge=0, le=INT64_MAX)] | None = None
    """Generation of the spec that the status is about."""
    domains: Annotated[tuple[ReservedDomain, ...], Field(max_length=MOST_DOMAINS), ATOMIC] = ()
    """Reserved domains.  kqueue chooses them once where the spec has level and count."""
    domain_paths: Annotated[str, Field(max_length=_LONGEST_PATHS)] = ""
    """Paths of the first two domains, as `kqueue drain` takes them, and the number of the others."""
    workloads: Count | None = None
    """Number of workloads of other ClusterQueues that run there."""
    late_workloads: Count | None = None
    """Number of these workloads that are not known to end before the reservation begins."""
    running: Annotated[tuple[RunningThere, ...], Field(max_length=MOST_LISTED), ATOMIC] = ()
    """The workloads of other ClusterQueues there, late ones first, as many as the list may have."""
    conditions: Conditions = ()
    """Planned, Draining, Ready and Ended, with time and cause."""


class DomainReservation(Resource):
    """Domains of a topology that are free from one time to another, for maintenance or for one ClusterQueue.

    No workload starts there that is not promised to end before.
    """

    served: ClassVar = Served(
        group=KQUEUE_GROUP,
        version=KQUEUE_VERSION,
        kind=RESERVATION_KIND,
        plural="reservations",
        columns=(
            Column(name="Domains", path=".status.domainPaths", description="Reserved domains"),
            Column(name="From", path=".spec.from", description="Begin of the reservation"),
            Column(name="To", path=".spec.to", description="End of the reservation"),
            Column(name="Queue", path=".spec.clusterQueue", description="ClusterQueue for which the domains are"),
            Column(
                name="Ready",
                path=".status.conditions[?(@.type=='Ready')].status",
                description="Whether the domains are free, and reserved",
            ),
            Column(name="Running", path=".status.workloads", type="integer", description="Workloads that run there"),
            Column(
                name="Late",
                path=".status.lateWorkloads",
                type="integer",
                description="Workloads there that may not end before",
            ),
        ),
    )
    api_version: str = KQUEUE_API_VERSION
    """Group and version of this representation of the object."""
    kind: str = RESERVATION_KIND
    """Kind of the object."""
    spec: ReservationSpec
    """The domains, the times, and the ClusterQueue that may use them."""
    status: ReservationStatus = ReservationStatus()
    """The chosen domains, and the workloads that still run there."""
