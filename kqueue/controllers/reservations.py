"""Chooses the domains of Reservations, writes their status, and deletes those whose time to live is over.

The hosts that are kept follow from the objects and the nodes (`kqueue.state.reservations`).  No write of the status
changes them, except the choice of domains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import structlog

from kqueue.api import names
from kqueue.api.reservation_names import (
    CONDITION_PLANNED,
    CONDITION_READY,
    MOST_LISTED,
    RESERVATION_KIND,
)
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.reservation import DomainReservation, ReservationStatus
from kqueue.clock import Clock, moment_after, utc_text
from kqueue.controllers.manager import Manager
from kqueue.controllers.record import ObjectReference, Recorder, Reporter
from kqueue.controllers.resources import RESERVATIONS
from kqueue.core.reserving import DomainOccupant, ReservationStage
from kqueue.core.topology import NodeFacts
from kqueue.errors import NotFoundError
from kqueue.runtime.client import Client
from kqueue.runtime.controller import Result
from kqueue.runtime.reflector import Reflector
from kqueue.runtime.status_writer import StatusWriter
from kqueue.state.conditions import cut
from kqueue.state.reservations import Reservations, ReservationSeen

_log = structlog.get_logger(__name__)

JSON = dict[str, Any]
_GATHERED = 1.0
"""Seconds between an event and the look at a reservation, in which further events come."""
_LONGEST = 60.0
"""Seconds after which a reservation is looked at again at the latest, because workloads may end later than known."""
_MESSAGE_BYTES = 1024
_SHOWN = 2
"""Domains that `kubectl get` shows."""


class ReservationReconciler:
    """The reconciler of Reservations."""

    def __init__(
        self,
        *,
        client: Client,
        objects: StatusWriter[DomainReservation],
        reservations: Reservations,
        recorder: Recorder,
        clock: Clock,
    ) -> None:
        self._client, self._objects, self._reservations = client, objects, reservations
        self._recorder, self._clock = recorder, clock

    async def reconcile(self, name: str) -> Result:
        """Choose domains, write the status, or delete the reservation."""
        obj = self._objects.newest(name)
        seen = self._reservations.seen(name)
        if obj is None or seen is None:
            return Result()
        if seen.must_choose:
            for _ in self._reservations.choose(name):
                await self._clock.sleep(0)
            seen = self._reservations.seen(name)
            if seen is None:
                return Result()
        if seen.stage is ReservationStage.ENDED and obj.spec.ttl_seconds_after_ended is not None:
            left = self._left(obj)
            if left <= 0:
                return await self._delete(obj)
            await self._write(name, seen)
            return Result(requeue_after=min(left, _LONGEST))
        await self._write(name, seen)
        return Result(requeue_after=self._pause(seen))

    def _pause(self, seen: ReservationSeen) -> float | None:
        """Return the seconds until the reservation is looked at again; None: it has ended."""
        if seen.next_change is None:
            return None
        return min(_LONGEST, max(0.0, (seen.next_change - self._clock.now()).total_seconds()))

    def _left(self, obj: DomainReservation) -> float:
        """Return the seconds until the reservation is deleted."""
        ttl = timedelta(seconds=min(obj.spec.ttl_seconds_after_ended or 0, 10**9))
        return (moment_after(obj.spec.to, ttl) - self._clock.now()).total_seconds()

    async def _delete(self, obj: DomainReservation) -> Result:
        meta = obj.metadata
        try:
            await self._client.delete(RESERVATIONS, meta.name, uid=meta.uid, resource_version=meta.resource_version)
        except NotFoundError:
            return Result()
        _log.info("reservation deleted, whose time to live is over", reservation=meta.name)
        return Result()

    async def _write(self, name: str, seen: ReservationSeen) -> None:
        at = utc_text(self._clock.now())
        before: list[DomainReservation] = []

        def patch(obj: DomainReservation) -> Mapping[str, Any] | None:
            before[:] = [obj]
            wanted = status_of(obj, seen, at)
            return (
                None if msgspec.convert(wanted, ReservationStatus, strict=False) == obj.status else {"status": wanted}
            )

        written = await self._objects.write(name, patch)
        if written is not None:
            self._reservations.on_reservation(None, written)
            self._tell(before[0], written)

    def _tell(self, before: DomainReservation, after: DomainReservation) -> None:
        """Record changes of the conditions Planned and Ready as events."""
        for kind in (CONDITION_PLANNED, CONDITION_READY):
            old, new = _condition(before, kind), _condition(after, kind)
            if new is None or (old is not None and (old[0], old[1]) == (new[0], new[1])):
                continue
            warning = kind == CONDITION_PLANNED and new[0] != "True"
            if new[0] == "True" or warning:
                meta = after.metadata
                reference = ObjectReference(names.KQUEUE_API_VERSION, RESERVATION_KIND, meta.name, "", meta.uid)
                self._recorder.record(reference, reason=f"Reservation{new[1]}", message=new[2], warning=warning)
                _log.info("reservation", reservation=meta.name, condition=kind, reason=new[1], message=new[2])


def _condition(obj: DomainReservation, kind: str) -> tuple[str, str, str] | None:
    return next(((c.status, c.reason, c.message) for c in obj.status.conditions if c.type == kind), None)


def status_of(obj: DomainReservation, seen: ReservationSeen, at: str) -> JSON:
    """Return the whole status; conditions of other types stay, and times of transition as long as the status stays."""
    conditions = {c.type: msgspec.to_builtins(c) for c in obj.status.conditions}
    for verdict in seen.verdicts:
        status, old = "True" if verdict.holds else "False", conditions.get(verdict.kind)
        since = old.get("lastTransitionTime") if old is not None and old.get("status") == status else None
        conditions[verdict.kind] = {
            "type": verdict.kind,
            "status": status,
            "reason": verdict.reason,
            "message": cut(verdict.message, _MESSAGE_BYTES),
            "lastTransitionTime": since or at,
            "observedGeneration": obj.metadata.generation,
        }
    kept = seen.domains or tuple((tuple(one.path), one.hosts) for one in obj.status.domains)
    return {
        "observedGeneration": obj.metadata.generation,
        "domains": [{"path": list(path), "hosts": hosts} for path, hosts in kept],
        "domainPaths": _paths([path for path, _hosts in kept]),
        "workloads": len(seen.occupants),
        "lateWorkloads": seen.late,
        "running": [_running(one, obj) for one in seen.occupants[:MOST_LISTED]],
        "conditions": list(conditions.values()),
    }


def _paths(paths: Sequence[Sequence[str]]) -> str:
    """Return domains as a column of `kubectl get` shows them: two of them, and the number of the others."""
    shown = ", ".join("/".join(path) for path in paths[:_SHOWN])
    return shown + (f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else "")


def _running(one: DomainOccupant, obj: DomainReservation) -> JSON:
    ends = {"ends": utc_text(one.ends)} if one.ends is not None else {}
    late = one.is_late(obj.spec.begins)
    return {"workload": one.key, "pods": one.pods, **ends, "source": str(one.source), "late": late}


def reservations_watch(manager: Manager) -> Reflector[DomainReservation, DomainReservation]:
    """Add the watch of Reservations, whose definition an older installation may lack."""
    return manager.watches.watch(RESERVATIONS, DomainReservation, optional=True)


def setup(manager: Manager) -> None:
    """Add the reconciler, and keep what is reserved."""
    watch, reservations = manager.shared(reservations_watch), manager.reservations
    reconciler = ReservationReconciler(
        client=manager.client,
        objects=manager.writer(RESERVATIONS, watch, DomainReservation),
        reservations=reservations,
        recorder=manager.recorder(Reporter.RESERVATIONS),
        clock=manager.clock,
    )

    controller = manager.controller("reservations", reconciler.reconcile)

    def on_reservation(old: DomainReservation | None, new: DomainReservation | None) -> None:
        reservations.on_reservation(old, new)
        seen = new if new is not None else old
        if seen is not None:
            controller.enqueue(seen.metadata.name)

    def on_workload(_old: wire.Workload | None, _new: wire.Workload | None) -> None:
        if reservations.notices_holders():
            enqueue_all()

    def on_node(_old: NodeFacts | None, _new: NodeFacts | None) -> None:
        if reservations.notices_nodes():
            enqueue_all()

    def enqueue_all() -> None:
        for name in reservations.names():
            controller.enqueue(name, after=_GATHERED)

    watch.subscribe(on_reservation)
    manager.watches.workloads.subscribe(on_workload)
    manager.watches.nodes.subscribe(on_node)
    manager.on_lead.append(enqueue_all)
