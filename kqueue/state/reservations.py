"""Reservations: the claims that keep their hosts, and what their status says.

Everything follows from the objects, the nodes and the present time, so that a new leader keeps the same hosts, and a
clock that was set changes nothing for long.  A claim has no quota, and keeps hosts alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from kqueue.api.reservation_names import MOST_HOSTS, MOST_RESERVATIONS
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.reservation import DomainReservation
from kqueue.clock import moment_after
from kqueue.core.future.remaining import Quantile, remaining
from kqueue.core.future.run_time import RunTime
from kqueue.core.quantity import parse_quantity
from kqueue.core.reserving import (
    DomainCandidate,
    DomainOccupant,
    EndSource,
    ReservationProblem,
    ReservationRefusal,
    ReservationStage,
    ReservationVerdict,
    ReservedTime,
    choose_domains,
    verdicts,
)
from kqueue.core.topology.result import Path
from kqueue.core.workload import Claim
from kqueue.state.cache import Cache
from kqueue.state.holding import Holding
from kqueue.state.reserved_hosts import ReservedHost, domains_at, hosts_of, levels_of, reserved_usage

_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)
_STEP = 200
"""Workloads between two steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationSeen:
    """The facts that the status of a reservation has."""

    stage: ReservationStage
    domains: tuple[tuple[Path, int], ...]
    """The domains with the numbers of their hosts."""
    occupants: tuple[DomainOccupant, ...]
    """The workloads of other ClusterQueues there, late ones first."""
    late: int
    verdicts: tuple[ReservationVerdict, ...]
    must_choose: bool
    """Whether its domains are still to be chosen."""
    next_change: datetime | None
    """When its next stage begins; None: it has ended."""


@dataclass(slots=True)
class _Kept:
    """A reservation that has not ended."""

    obj: DomainReservation
    time: ReservedTime
    refusal: ReservationRefusal | None = None
    amounts: Mapping[str, int] | None = None
    """The amounts of each host; None: everything."""
    hosts: list[ReservedHost] = field(default_factory=list)
    remark: str = ""

    @property
    def queue(self) -> str:
        """The ClusterQueue that may use the hosts; empty: none."""
        return self.obj.spec.cluster_queue or ""


class Reservations:
    """Follows Reservations, and answers what the planner keeps for them."""

    def __init__(
        self,
        cache: Cache,
        newest: Callable[[str], wire.Workload | None],
        now: Callable[[], datetime],
        run_time_of: Callable[[wire.Workload], RunTime],
    ) -> None:
        """`newest` returns the latest version of a Workload."""
        self._cache, self._newest, self._now, self._run_time_of = cache, newest, now, run_time_of
        self._objects: dict[str, DomainReservation] = {}
        self._chosen: dict[str, tuple[Path, ...]] = {}
        """Domains that this process has chosen, by UID: they count where the status has none."""
        self._given_up: set[str] = set()
        """The UIDs of reservations for which nothing is kept, because plans of cycles failed on them."""
        self._kept: dict[str, _Kept] = {}
        """Reservations that have not ended, by name."""
        self._changed = True
        self._node_generation = -1
        self._holder_generation = -1
        self._noticed_holders = self._noticed_nodes = -1
        self._parts = False
        """Whether any reservation has a part of each host, so that its claim depends on the workloads there."""
        self._since, self._until = _LAST, _FIRST
        """The time in which no reservation enters another stage."""
        self._claims: dict[str, Claim] = {}
        """By UID."""
        self._open: set[str] = set()
        """The UIDs of reservations that have begun for a ClusterQueue."""
        self.on_freed: Callable[[Claim], None] = lambda _claim: None
        """Called with a claim when others may use what it kept: it has ended, or was changed, or its ClusterQueue may
        use the hosts from now on.
        """

    # --- events

    def on_reservation(self, old: DomainReservation | None, new: DomainReservation | None) -> None:
        """Follow a Reservation that appeared, changed or is gone."""
        seen = new if new is not None else old
        if seen is None:
            return
        self._changed = True
        if new is None:
            self._objects.pop(seen.metadata.name, None)
            self._chosen.pop(seen.metadata.uid, None)
            self._given_up.discard(seen.metadata.uid)
            return
        self._objects[new.metadata.name] = new

    def give_up(self, uid: str) -> None:
        """Keep nothing for a reservation any more, because plans of cycles fail on it; no effect if nothing is kept."""
        if uid in self._claims:
            self._given_up.add(uid)
            self._changed = True

    def names(self) -> list[str]:
        """Return the names of all reservations."""
        return list(self._objects)

    def notices_holders(self) -> bool:
        """Whether workloads on reserved hosts have begun or ended since the last call."""
        seen, self._noticed_holders = self._noticed_holders, self._cache.ledger.holders_on.generation
        return seen != self._noticed_holders and bool(self._objects)

    def notices_nodes(self) -> bool:
        """Whether nodes have changed since the last call, and there are reservations."""
        seen, self._noticed_nodes = self._noticed_nodes, self._cache.ledger.node_generation
        return seen != self._noticed_nodes and bool(self._objects)

    # --- for the planner

    def claims(self) -> tuple[Claim, ...]:
        """Return the claims of all reservations that drain or have begun."""
        if not self._objects and not self._claims:
            return ()
        generation = self._cache.ledger.holders_on.generation
        if self._refresh() or (self._parts and self._holder_generation != generation):
            self._make_claims()
        return tuple(self._claims.values())

    def _make_claims(self) -> None:
        now, before = self._now(), self._claims
        self._holder_generation = self._cache.ledger.holders_on.generation
        found: dict[str, Claim] = {}
        begun: set[str] = set()
        for kept in self._kept.values():
            stage = kept.time.stage(now)
            if kept.refusal is not None or stage in (ReservationStage.WAITING, ReservationStage.ENDED):
                continue
            claim = self._claim(kept)
            if claim.domains:
                found[claim.uid] = claim
                if stage is ReservationStage.OPEN and kept.queue:
                    begun.add(claim.uid)
        self._parts = any(kept.amounts is not None for kept in self._kept.values())
        self._claims, opened, self._open = found, begun - self._open, begun
        for uid, claim in before.items():
            if uid not in found or _may_free(claim, found[uid]):
                self.on_freed(claim)
        for uid in opened:
            self.on_freed(replace(found[uid], queue=next(iter(found[uid].open_to))))

    def _claim(self, kept: _Kept) -> Claim:
        """Return the claim of a reservation.

        It charges the reserved amounts beside the usage of all workloads there, except those of its own ClusterQueue
        where a part of each host is reserved, because they use that part.  So no workload is preempted for hosts that
        the claim would keep from the preemptor: a victim that leaves frees nothing.
        """
        held: list[Holding] = []
        if kept.amounts is not None and kept.queue:
            there = self._cache.ledger.holders_on.on(host.written for host in kept.hosts)
            found = [self._cache.held.holding(key) for key in there]
            held = [one for one in found if one is not None and one.queue == kept.queue]
        return Claim(
            key=kept.obj.metadata.name,
            uid=kept.obj.metadata.uid,
            queue="",
            usage={},
            domains=reserved_usage(kept.hosts, kept.amounts),
            victims={},
            ends={holding.uid: (holding.queue, holding.key) for holding in held},
            at=kept.time.begins,
            until=kept.time.ends,
            open_to=frozenset({kept.queue} if kept.queue else ()),
        )

    def _refresh(self) -> bool:
        """Read objects and nodes again after changes; return whether anything was read."""
        now, nodes = self._now(), self._cache.ledger.node_generation
        if not self._changed and nodes == self._node_generation and self._since <= now < self._until:
            return False
        self._changed, self._node_generation, self._since = False, nodes, now
        kept: dict[str, _Kept] = {}
        hosts = 0
        for obj in sorted(self._objects.values(), key=_age):
            one = _Kept(obj=obj, time=time_of(obj))
            if one.time.stage(now) is ReservationStage.ENDED:
                continue
            self._read(one)
            if one.refusal is None:
                one.refusal = _beyond(len(kept), hosts + len(one.hosts)) or _overlap(one, kept.values())
            if one.refusal is not None:
                one.hosts = []
            hosts += len(one.hosts)
            kept[obj.metadata.name] = one
        self._kept = kept
        changes = [at for one in kept.values() if (at := one.time.next_change(now)) is not None]
        self._until = min(changes, default=_LAST)
        self._cache.ledger.follow_hosts({host.written for one in kept.values() for host in one.hosts})
        return True

    def _read(self, kept: _Kept) -> None:
        """Find the hosts of a reservation, or why it has none."""
        spec = kept.obj.spec
        if kept.obj.metadata.uid in self._given_up:
            kept.refusal = ReservationRefusal(
                problem=ReservationProblem.PLAN_FAILED,
                message="Scheduling fails with this reservation: see the log of the controller, and create another one",
            )
            return
        kept.amounts, kept.refusal = _amounts(spec.resources)
        levels = levels_of(self._cache, spec.topology)
        if isinstance(levels, ReservationRefusal):
            kept.refusal = kept.refusal or levels
        if kept.refusal is not None or isinstance(levels, ReservationRefusal):
            return
        domains = self._domains(kept.obj, levels)
        if isinstance(domains, ReservationRefusal):
            kept.refusal = domains
            return
        kept.hosts = hosts_of(self._cache, spec.topology, domains)
        missing = set(domains) - {host.domain for host in kept.hosts}
        if missing:
            names = ", ".join(sorted(map("/".join, missing)))
            kept.refusal = ReservationRefusal(
                problem=ReservationProblem.DOMAIN_NOT_FOUND,
                message=f"Topology {spec.topology} has no nodes in {names}; kqueue topology lists its domains",
            )

    def _domains(self, obj: DomainReservation, levels: Sequence[str]) -> tuple[Path, ...] | ReservationRefusal:
        spec = obj.spec
        if spec.domain:
            return (tuple(spec.domain),)
        if spec.domain is not None:
            return ReservationRefusal(
                problem=ReservationProblem.DOMAIN_NOT_FOUND, message="spec.domain: names no domain; add its values"
            )
        depth, count = _depth(spec.level or "", levels), spec.count or 0
        if depth is None:
            return ReservationRefusal(
                problem=ReservationProblem.LEVEL_NOT_FOUND,
                message=f"spec.level: Topology {spec.topology} has no level {spec.level}; it has {', '.join(levels)}",
            )
        for chosen in (tuple([tuple(one.path) for one in obj.status.domains]), self._chosen.get(obj.metadata.uid, ())):
            if len(set(chosen)) == len(chosen) == count and all(len(path) == depth + 1 for path in chosen):
                return chosen
        found = domains_at(self._cache, spec.topology, depth)
        if len(found) < count:
            return ReservationRefusal(
                problem=ReservationProblem.TOO_FEW_DOMAINS,
                message=f"spec.count: asks for {count} domains of {spec.level}, and {len(found)} have usable nodes",
            )
        return ReservationRefusal(problem=ReservationProblem.NOT_CHOSEN, message="The domains are being chosen")

    # --- for the status

    def seen(self, name: str) -> ReservationSeen | None:
        """Return what the status of a reservation says; None: it is gone."""
        self.claims()
        obj, now = self._objects.get(name), self._now()
        if obj is None:
            return None
        kept = self._kept.get(name) or _Kept(obj=obj, time=time_of(obj))
        occupants = self._occupants(kept, now)
        late = sum(one.is_late(kept.time.begins) for one in occupants)
        counts: dict[Path, int] = {}
        for host in kept.hosts:
            counts[host.domain] = counts.get(host.domain, 0) + host.nodes
        return ReservationSeen(
            stage=kept.time.stage(now),
            domains=tuple(sorted(counts.items())),
            occupants=tuple(sorted(occupants, key=lambda one: _latest_first(one, kept.time.begins))),
            late=late,
            verdicts=verdicts(
                kept.time,
                now,
                refusal=kept.refusal,
                hosts=sum(counts.values()),
                queue=kept.queue,
                occupants=occupants,
                remark=kept.remark or self._missing_queue(kept.queue),
            ),
            must_choose=kept.refusal is not None and kept.refusal.problem is ReservationProblem.NOT_CHOSEN,
            next_change=kept.time.next_change(now),
        )

    def _occupants(self, kept: _Kept, now: datetime) -> list[DomainOccupant]:
        there = self._cache.ledger.holders_on.on(host.written for host in kept.hosts)
        found = [self._occupant(key, pods, kept.time.begins, now) for key, pods in there.items()]
        return [one for one in found if one is not None and one.queue != kept.queue]

    def _occupant(self, key: str, pods: int, begins: datetime, now: datetime) -> DomainOccupant | None:
        holding = self._cache.held.holding(key)
        if holding is None:
            return None
        ends, source = self._end_of(holding, now)
        view = holding.view(self._cache.quota.with_topology)
        return DomainOccupant(
            key=key,
            uid=holding.uid,
            queue=holding.queue,
            pods=pods,
            ends=ends,
            source=source,
            loses=view.lost(begins),
        )

    def _end_of(self, holding: Holding, now: datetime) -> tuple[datetime | None, EndSource]:
        """Return when a workload ends at the latest, and the origin of that time."""
        if holding.evicted:
            return None, EndSource.EVICTED
        obj = self._newest(holding.key)
        if obj is None:
            return None, EndSource.UNKNOWN
        run_time, since = self._run_time_of(obj), holding.admitted_at or now
        elapsed = max(0, int((now - since).total_seconds()))
        left, promised = remaining(run_time, elapsed, Quantile.P90), run_time.promised
        if left is None:  # the time in which such workloads end is over
            return (None, EndSource.UNKNOWN) if promised is None else (now, EndSource.PROMISED)
        is_promise = promised is not None and elapsed + left >= promised
        source = EndSource.PROMISED if is_promise else EndSource(str(run_time.source))
        return moment_after(since, timedelta(seconds=elapsed + left)), source

    def _missing_queue(self, name: str) -> str:
        """Return a remark about a ClusterQueue that does not exist; empty: it does, or none is named."""
        if not name or name in self._cache.quota.queues:
            return ""
        return f"ClusterQueue {name} does not exist, so nothing starts there: create it, or change spec.clusterQueue"

    # --- the choice of domains

    def choose(self, name: str) -> Iterator[None]:
        """Choose the domains of a reservation in short steps; no effect if they are chosen, or too few exist."""
        self._refresh()
        kept = self._kept.get(name)
        if kept is None or kept.refusal is None or kept.refusal.problem is not ReservationProblem.NOT_CHOSEN:
            return
        spec, now = kept.obj.spec, self._now()
        levels = levels_of(self._cache, spec.topology)
        depth = None if isinstance(levels, ReservationRefusal) else _depth(spec.level or "", levels)
        if depth is None:
            return
        taken = self._taken(kept)
        found = {
            path: DomainCandidate(path=path, hosts=hosts)
            for path, hosts in domains_at(self._cache, spec.topology, depth).items()
            if not any(_is_within(path, other) for other in taken)
        }
        there: dict[Path, list[DomainOccupant]] = {}
        for number, holding in enumerate(self._cache.held.listed()):
            if number % _STEP == 0:
                yield
            for path, pods in self._pods_by_domain(holding, spec.topology, depth).items():
                occupant = self._occupant(holding.key, pods, kept.time.begins, now)
                if occupant is not None and occupant.queue != kept.queue:
                    there.setdefault(path, []).append(occupant)
        candidates = [replace(one, occupants=there.get(path, ())) for path, one in found.items()]
        self._chosen[kept.obj.metadata.uid] = choose_domains(candidates, spec.count or 0, kept.time.begins)
        self._changed = True

    def _taken(self, kept: _Kept) -> list[Path]:
        """Return the domains that other reservations have at the same time."""
        others = [one for one in self._kept.values() if one is not kept and one.time.overlaps(kept.time)]
        return [path for one in others for path in {host.domain for host in one.hosts}]

    def _pods_by_domain(self, holding: Holding, topology: str, depth: int) -> dict[Path, int]:
        found: dict[Path, int] = {}
        view = holding.view(self._cache.quota.with_topology)
        for flavor, usages in view.domains.items():
            facts, tree = self._cache.quota.flavor(flavor), self._cache.ledger.tree(flavor)
            if facts is None or facts.topology != topology or tree is None:
                continue
            for usage in usages:
                leaf = tree.leaf_of(usage.values)
                if leaf is not None:
                    path = tree.paths[leaf][: depth + 1]
                    found[path] = found.get(path, 0) + usage.count
        return found


def time_of(obj: DomainReservation) -> ReservedTime:
    """Return the times of a Reservation."""
    return ReservedTime(begins=obj.spec.begins, ends=obj.spec.to, drain_from=obj.spec.drain_from)


def _age(obj: DomainReservation) -> tuple[datetime, str]:
    return obj.metadata.creation_timestamp or _LAST, obj.metadata.name


def _beyond(reservations: int, hosts: int) -> ReservationRefusal | None:
    if reservations >= MOST_RESERVATIONS:
        return ReservationRefusal(
            problem=ReservationProblem.TOO_MANY_RESERVATIONS,
            message=f"{MOST_RESERVATIONS} older Reservations have not ended, which is the most; delete one of them",
        )
    if hosts > MOST_HOSTS:
        return ReservationRefusal(
            problem=ReservationProblem.TOO_MANY_HOSTS,
            message=f"{hosts} hosts would be reserved with all older Reservations, and {MOST_HOSTS} is the most; "
            "reserve fewer domains, or delete another Reservation",
        )
    return None


def _overlap(kept: _Kept, older: Iterable[_Kept]) -> ReservationRefusal | None:
    """Return a refusal where an older reservation has a host for another ClusterQueue at the same time.

    Maintenance may overlap with every reservation: nothing starts there then.
    """
    own = {host.written for host in kept.hosts}
    for other in older:
        if not kept.time.overlaps(other.time) or own.isdisjoint(host.written for host in other.hosts):
            continue
        name = other.obj.metadata.name
        if kept.queue and other.queue and kept.queue != other.queue:
            return ReservationRefusal(
                problem=ReservationProblem.OVERLAPS,
                message=f"Reservation {name} has hosts of these domains for ClusterQueue {other.queue} at the same "
                "time; choose another time or domain, or delete one of the two",
            )
        if bool(kept.queue) != bool(other.queue):
            kept.remark = f"Reservation {name} has some of them at the same time, and maintenance goes first"
    return None


def _amounts(resources: Mapping[str, str | int] | None) -> tuple[Mapping[str, int] | None, ReservationRefusal | None]:
    """Return the amounts of each host (None: everything), and why they cannot be read."""
    if resources is None:
        return None, None
    try:
        found = {resource: parse_quantity(text, resource) for resource, text in resources.items()}
    except ValueError as e:
        return None, ReservationRefusal(problem=ReservationProblem.INVALID_RESOURCES, message=f"spec.resources: {e}")
    negative = sorted(resource for resource, amount in found.items() if amount < 0)
    if negative:
        return None, ReservationRefusal(
            problem=ReservationProblem.INVALID_RESOURCES,
            message=f"spec.resources[{negative[0]}]: must not be negative",
        )
    return found, None


def _depth(level: str, levels: Sequence[str]) -> int | None:
    return levels.index(level) if level in levels else None


def _is_within(path: Path, other: Path) -> bool:
    """Whether one of two domains is in the other."""
    depth = min(len(path), len(other))
    return path[:depth] == other[:depth]


def _latest_first(one: DomainOccupant, begins: datetime) -> tuple[bool, float, str]:
    return not one.is_late(begins), -(one.ends.timestamp() if one.ends is not None else float("inf")), one.key


def _may_free(before: Claim, after: Claim) -> bool:
    return (before.at, before.open_to, before.domains) != (after.at, after.open_to, after.domains)
