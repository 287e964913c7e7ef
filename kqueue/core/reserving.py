"""Reservations of domains: their stages, which domains are chosen, and what their conditions say.

created ──drainFrom──► no start that may last ──from──► free for maintenance, or for one ClusterQueue ──to──► ended
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum

from kqueue.core.topology.result import Path
from kqueue.core.value import value


class ReservationStage(StrEnum):
    """The part of the life of a reservation."""

    WAITING = "Waiting"
    """Its domains are not drained yet."""
    DRAINING = "Draining"
    """No workload starts there that may still run when it begins."""
    OPEN = "Open"
    """It has begun."""
    ENDED = "Ended"


class EndSource(StrEnum):
    """The origin of the time at which a workload ends."""

    PROMISED = "Promised"
    """A limit ends it."""
    EXPECTED = "Expected"
    """Its user expects it."""
    LEARNED = "Learned"
    """Workloads like it have ended by then, nine of ten."""
    EVICTED = "Evicted"
    """It is being evicted."""
    UNKNOWN = "Unknown"


@value(kw_only=True)
class ReservedTime:
    """The times of a reservation; `drain_from` None: it drains from its creation on."""

    begins: datetime
    ends: datetime
    drain_from: datetime | None = None

    def stage(self, now: datetime) -> ReservationStage:
        """Return the stage at a time.  A reservation that ends before it begins has ended."""
        if now >= self.ends or self.ends <= self.begins:
            return ReservationStage.ENDED
        if now >= self.begins:
            return ReservationStage.OPEN
        return (
            ReservationStage.WAITING
            if self.drain_from is not None and now < self.drain_from
            else ReservationStage.DRAINING
        )

    def next_change(self, now: datetime) -> datetime | None:
        """Return when the next stage begins; None: it has ended."""
        if self.stage(now) is ReservationStage.ENDED:
            return None
        return min(at for at in (self.drain_from, self.begins, self.ends) if at is not None and at > now)

    def overlaps(self, other: ReservedTime) -> bool:
        """Whether both are open at the same time."""
        return self.begins < other.ends and other.begins < self.ends


@value(kw_only=True)
class DomainOccupant:
    """A workload with pods in a domain.

    Args:
        key: namespace/name.
        pods: the number of its pods there.
        ends: when it ends at the latest, as far as `source` knows; None: unknown.
        loses: pod-seconds that are lost if it is stopped when the reservation begins.
    """

    key: str
    uid: str
    queue: str
    pods: int
    ends: datetime | None = None
    source: EndSource = EndSource.UNKNOWN
    loses: int = 0

    def is_late(self, begins: datetime) -> bool:
        """Whether it is not known to end before the reservation begins."""
        return self.source is not EndSource.EVICTED and (self.ends is None or self.ends > begins)


@value(kw_only=True)
class DomainCandidate:
    """A domain that could be reserved, and the workloads in it."""

    path: Path
    hosts: int
    occupants: Sequence[DomainOccupant] = ()


def choose_domains(candidates: Iterable[DomainCandidate], count: int, begins: datetime) -> tuple[Path, ...]:
    """Return the domains that are drained with the least loss of work, in the order of their paths.

    Domains of equal loss are taken in the order in which their last workload ends, then by path.  Fewer than `count`
    candidates: all of them.
    """
    ranked = sorted(candidates, key=lambda candidate: _rank(candidate, begins))
    return tuple(sorted(candidate.path for candidate in ranked[:count]))


def _rank(candidate: DomainCandidate, begins: datetime) -> tuple[int, int, float, Path]:
    late = [one for one in candidate.occupants if one.is_late(begins)]
    last = max((one.ends.timestamp() for one in candidate.occupants if one.ends is not None), default=0.0)
    return sum(one.loses for one in late), len(late), last, candidate.path


class ReservationProblem(StrEnum):
    """Why a reservation keeps nothing; reasons of the condition Planned."""

    TOPOLOGY_NOT_FOUND = "TopologyNotFound"
    LEVEL_NOT_FOUND = "LevelNotFound"
    DOMAIN_NOT_FOUND = "DomainNotFound"
    TOO_FEW_DOMAINS = "TooFewDomains"
    INVALID_RESOURCES = "InvalidResources"
    INVALID_TIMES = "InvalidTimes"
    OVERLAPS = "Overlaps"
    TOO_MANY_RESERVATIONS = "TooManyReservations"
    TOO_MANY_HOSTS = "TooManyHosts"
    NOT_CHOSEN = "NotChosen"
    PLAN_FAILED = "PlanFailed"


@value(kw_only=True)
class ReservationRefusal:
    """Why a reservation keeps nothing: the reason, and a sentence with field and remedy."""

    problem: ReservationProblem
    message: str


@value(kw_only=True)
class ReservationVerdict:
    """One condition of a reservation."""

    kind: str
    holds: bool
    reason: str
    message: str


def verdicts(
    time: ReservedTime,
    now: datetime,
    *,
    refusal: ReservationRefusal | None,
    hosts: int,
    queue: str,
    occupants: Sequence[DomainOccupant],
    remark: str = "",
) -> tuple[ReservationVerdict, ...]:
    """Return the conditions Planned, Draining, Ready and Ended.

    Args:
        refusal: why it keeps nothing; None: it keeps its domains.
        hosts: the number of its hosts.
        queue: the ClusterQueue that may use it; empty: nothing starts there.
        occupants: the workloads of other ClusterQueues there.
        remark: a further sentence of the condition Planned.
    """
    stage = time.stage(now)
    if stage is ReservationStage.ENDED:
        over = "The reservation has ended; its domains are open to all"
        return (
            _says("Draining", False, "Ended", over),
            _says("Ready", False, "Ended", over),
            _says("Ended", True, "TimeIsOver", over),
        )
    if refusal is not None:
        nothing = "Nothing is reserved: see the condition Planned"
        return (
            _says("Planned", False, str(refusal.problem), refusal.message),
            _says("Draining", False, "NotPlanned", nothing),
            _says("Ready", False, "NotPlanned", nothing),
            ReservationVerdict(
                kind="Ended", holds=False, reason="TimeIsNotOver", message="The reservation has not ended"
            ),
        )
    late = sum(one.is_late(time.begins) for one in occupants)
    running = _running(len(occupants), late)
    planned = f"{'1 host is' if hosts == 1 else f'{hosts} hosts are'} reserved for " + (
        f"ClusterQueue {queue}" if queue else "maintenance"
    )
    return (
        ReservationVerdict(
            kind="Planned", holds=True, reason="Planned", message=planned + (f"; {remark}" if remark else "")
        ),
        _draining(stage, occupants, running),
        _ready(stage, occupants, running, queue),
        _says("Ended", False, "TimeIsNotOver", "The reservation has not ended"),
    )


def _running(count: int, late: int) -> str:
    some = "1 workload runs there" if count == 1 else f"{count} workloads run there"
    if not late:
        return f"{some}, and all of them are known to end before the reservation begins"
    if count == 1:
        return f"{some}, and it is not known to end before the reservation begins"
    return f"{some}, and {late} of them may not end before the reservation begins"


def _draining(stage: ReservationStage, occupants: Sequence[DomainOccupant], running: str) -> ReservationVerdict:
    if stage is ReservationStage.WAITING:
        message = "Any workload may start there until spec.drainFrom"
        return _says("Draining", False, "NotBegun", message)
    if not occupants:
        return ReservationVerdict(
            kind="Draining", holds=False, reason="Empty", message="No workload of others runs there"
        )
    return _says("Draining", True, "WorkloadsRun", running)


def _ready(
    stage: ReservationStage, occupants: Sequence[DomainOccupant], running: str, queue: str
) -> ReservationVerdict:
    if stage is not ReservationStage.OPEN:
        message = "The reservation has not begun; short workloads may still start there"
        return _says("Ready", False, "NotBegun", message)
    if occupants:
        return _says("Ready", False, "WorkloadsRun", running)
    use = f"only workloads of ClusterQueue {queue} start there" if queue else "no workload starts there"
    return ReservationVerdict(
        kind="Ready", holds=True, reason="Ready", message=f"No workload of others runs there, and {use}"
    )


def _says(kind: str, holds: bool, reason: str, message: str) -> ReservationVerdict:
    return ReservationVerdict(kind=kind, holds=holds, reason=reason, message=message)
