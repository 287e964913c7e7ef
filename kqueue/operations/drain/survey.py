"""The effect of a drain: the workloads that end in time, that may move, and that stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from kqueue.api.wire.reservation import DomainReservation
from kqueue.clock import utc_text
from kqueue.core.joint.defrag import DefragPlan
from kqueue.core.joint.moving import common_path
from kqueue.core.reserving import DomainOccupant
from kqueue.operations.drain.target import DrainTarget
from kqueue.state.defrag.document import plan_object, pod_minutes
from kqueue.state.defrag.draining import moves_out
from kqueue.state.defrag.view import DefragState
from kqueue.state.reservations import Reservations
from kqueue.state.reserved_hosts import hosts_of
from kqueue.state.run_times import RunTimes

JSON = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainedWorkload:
    """A workload in the domain, and what becomes of it.

    Args:
        fate: `EndsInTime`, `MayMove` or `Stays`.
        detail: where it would move and what that costs, or why it stays.
    """

    occupant: DomainOccupant
    fate: str
    detail: str = ""

    def as_json(self) -> JSON:
        """Return the workload as a command prints it."""
        one = self.occupant
        found: JSON = {"workload": one.key, "pods": one.pods, "source": str(one.source), "fate": self.fate}
        if one.ends is not None:
            found["ends"] = utc_text(one.ends)
        return found | ({"detail": self.detail} if self.detail else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainSurvey:
    """The state of a drain.

    Args:
        nodes: the names of the nodes of the domain; `empty` are those without workloads.
        workloads: those of other ClusterQueues in the domain.
        plan: the DefragmentationPlan of the moves; None: nothing may move.
        problem: why nothing is reserved; empty: it is.
    """

    nodes: tuple[str, ...]
    empty: tuple[str, ...]
    workloads: tuple[DrainedWorkload, ...]
    plan: JSON | None = None
    problem: str = ""

    @property
    def fates(self) -> frozenset[tuple[str, int, str]]:
        """The workloads with their pods and fates, without what changes from second to second."""
        return frozenset((one.occupant.key, one.occupant.pods, one.fate) for one in self.workloads)

    @property
    def staying(self) -> list[DrainedWorkload]:
        """The workloads that neither end in time nor may move."""
        return [one for one in self.workloads if one.fate == "Stays"]


def survey(
    state: DefragState, target: DrainTarget, own: Mapping[str, Any], others: Sequence[Mapping[str, Any]]
) -> DrainSurvey:
    """Return what a drain comes to; `own` is its Reservation, `others` are all other ones."""
    times = RunTimes(None, lambda: state.now)
    reservations = Reservations(state.cache, state.workloads.get, lambda: state.now, times.of)
    mine = _read(own, state.now)
    for other in others:
        reservations.on_reservation(None, _read(other, state.now))
    reservations.on_reservation(None, mine)
    seen = reservations.seen(mine.metadata.name)
    assert seen is not None
    claims = [claim.domains for claim in reservations.claims() if claim.key != mine.metadata.name]
    late = [one for one in seen.occupants if one.is_late(mine.spec.begins)]
    flavor = next((host.flavor for host in hosts_of(state.cache, target.topology, [target.domain])), "")
    moves = moves_out(state, flavor, target.domain, [one.key for one in late], claims)
    plan = moves.answer.found if moves.answer is not None else None
    moved = {move.gang.key: move for move in plan.moves} if isinstance(plan, DefragPlan) else {}
    workloads: list[DrainedWorkload] = []
    for one in seen.occupants:
        if one not in late:
            workloads.append(DrainedWorkload(occupant=one, fate="EndsInTime"))
        elif one.key in moved:
            move = moved[one.key]
            where = "/".join(common_path(move.target.places, move.target.places)) or "several domains"
            cost = f"to {where}, and loses {pod_minutes(move.gang.cost)}"
            workloads.append(DrainedWorkload(occupant=one, fate="MayMove", detail=cost))
        else:
            why = ", ".join(moves.stays.get(one.key, ()))
            workloads.append(DrainedWorkload(occupant=one, fate="Stays", detail=why))
    nodes = _nodes(state, target)
    refusal = next((v for v in seen.verdicts if v.kind == "Planned" and not v.holds), None)
    return DrainSurvey(
        nodes=tuple(sorted(nodes)),
        empty=tuple(sorted(name for name, busy in nodes.items() if not busy)),
        workloads=tuple(workloads),
        plan=plan_object(moves.answer, message="kqueue drain computed it") if moves.answer is not None else None,
        problem=refusal.message if refusal is not None else "",
    )


def _nodes(state: DefragState, target: DrainTarget) -> dict[str, bool]:
    """Return the nodes of a domain, and whether workloads have pods there."""
    cache = state.cache
    hosts = {host.written for host in hosts_of(cache, target.topology, [target.domain])}
    cache.ledger.follow_hosts(hosts)
    levels = cache.quota.topologies()[target.topology]
    depth, found = len(target.domain), dict[str, bool]()
    for name, node in cache.ledger.nodes.items():
        path = tuple(node.labels.get(level, "") for level in levels)
        written = next((w for w in (path[-1:], path) if w in hosts), None)
        if path[:depth] == target.domain and written is not None:
            found[name] = bool(cache.ledger.holders_on.at(written))
    return found


def _read(obj: Mapping[str, Any], now: datetime) -> DomainReservation:
    """Return a Reservation; one that is not stored yet is made now."""
    meta = {"uid": "new", "creationTimestamp": utc_text(now), **obj["metadata"]}
    return msgspec.convert({**obj, "metadata": meta}, DomainReservation, strict=False)
