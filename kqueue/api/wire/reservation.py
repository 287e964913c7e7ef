"""Reservations, as far as the controller reads them.  The models in `kqueue.api` describe the fields."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from kqueue.api.wire.meta import Condition, ObjectMeta, Struct


class ReservationSpec(Struct, frozen=True, kw_only=True):
    """The domains, the times, and the ClusterQueue that may use them."""

    topology: str
    domain: tuple[str, ...] | None = None
    level: str | None = None
    count: int | None = None
    resources: Mapping[str, str | int] | None = None
    begins: datetime = msgspec.field(name="from")
    to: datetime
    drain_from: datetime | None = None
    cluster_queue: str | None = None
    ttl_seconds_after_ended: int | None = None


class ReservedDomain(Struct, frozen=True, kw_only=True):
    """A domain that is reserved."""

    path: tuple[str, ...]
    hosts: int = 0


class RunningThere(Struct, frozen=True, kw_only=True):
    """A workload with pods on reserved hosts."""

    workload: str
    pods: int = 0
    ends: datetime | None = None
    source: str = "Unknown"
    late: bool = False


class ReservationStatus(Struct, frozen=True, kw_only=True):
    """The chosen domains, and the workloads that still run there."""

    observed_generation: int | None = None
    domains: tuple[ReservedDomain, ...] = ()
    domain_paths: str = ""
    workloads: int | None = None
    late_workloads: int | None = None
    running: tuple[RunningThere, ...] = ()
    conditions: tuple[Condition, ...] = ()


class DomainReservation(Struct, frozen=True, kw_only=True):
    """Domains of a topology that are free from one time to another."""

    metadata: ObjectMeta
    spec: ReservationSpec
    status: ReservationStatus = ReservationStatus()
