"""Moves under way: what plans keep for the workloads that they move, the hints for them, and the last hour's moves.

All of it follows from the objects of plans, so a new leader that has read them keeps the same resources.  A plan counts
only while its approval is for the hash of what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.defragmentation import DefragmentationPlan, PlannedMove
from kqueue.core.charging import counted_in
from kqueue.core.hints import PlanHint
from kqueue.core.joint.movable import MoveHistory
from kqueue.core.joint.move_steps import UNDER_WAY, UNFINISHED, MoveState, PlanPhase
from kqueue.core.topology import DomainUsage
from kqueue.core.workload import Admission, Claim, Head, PodSetAssignment
from kqueue.errors import InvalidObjectError
from kqueue.isolation import isolated_logged
from kqueue.state.cache import Cache
from kqueue.state.defrag.document import hash_of
from kqueue.state.heads import Heads
from kqueue.state.holding import Holding
from kqueue.state.queues import Queues

_log = structlog.get_logger(__name__)

_HOUR = timedelta(hours=1)
_GONE = frozenset((MoveState.EVICTING, MoveState.REPLACING))
"""States in which a workload without quota waits for its target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedPlan:
    """A plan whose moves are not over.

    Args:
        obj: the plan.
        is_sound: whether its hash is that of what it says.
        is_approved: whether its approval is for that hash.
    """

    obj: DefragmentationPlan
    is_sound: bool
    is_approved: bool

    @property
    def name(self) -> str:
        """The name of the plan."""
        return self.obj.metadata.name

    @property
    def phase(self) -> str:
        """The phase as it is written."""
        return self.obj.status.phase or PlanPhase.PROPOSED

    @property
    def is_trusted(self) -> bool:
        """Whether resources are kept for it."""
        return self.is_sound and self.is_approved

    @property
    def is_running(self) -> bool:
        """Whether further moves of it may begin."""
        return self.is_trusted and self.phase == PlanPhase.RUNNING

    def kept(self) -> Iterator[PlannedMove]:
        """Yield the moves whose targets are kept: of a plan that is over only those that have begun."""
        wanted = UNFINISHED if self.is_running else UNDER_WAY
        return (move for move in self.obj.status.moves if move.state in wanted)


@dataclass(frozen=True, slots=True)
class _Begun:
    """A move that began."""

    at: datetime
    pods: int


class Moves:
    """Follows plans, and answers what the planner keeps for them."""

    def __init__(
        self,
        cache: Cache,
        queues: Queues,
        newest: Callable[[str], wire.Workload | None],
        now: Callable[[], datetime],
    ) -> None:
        """`newest` returns the latest version of a Workload."""
        self._cache, self._queues, self._newest, self._now = cache, queues, newest, now
        self._heads = Heads(cache, newest)
        self._plans: dict[str, FollowedPlan] = {}
        self._begun: dict[tuple[str, str], _Begun] = {}
        """Moves that began, by the UIDs of plan and workload; of deleted plans, too."""
        self._tried: dict[str, tuple[int, int]] = {}
        """By the UID of a workload, the generation of the cache at which it was last taken before all others."""
        self._kept: dict[str, Claim] = {}
        """The claims of the last answer, by the UID of their workloads."""
        self._goals: set[str] = set()
        """The UIDs of gangs for which a domain is kept."""
        self._given_up: set[str] = set()
        """The UIDs of workloads for which nothing is kept, because plans of cycles failed on it."""
        self.goal_claim: Callable[[FollowedPlan], Claim | None] = lambda _plan: None
        """Returns the room that a plan frees for its waiting gang; None: there is none."""
        self.on_ended: Callable[[Claim], None] = lambda _claim: None
        """Called for each claim that has ended: its resources are free."""

    # --- plans

    def on_plan(self, _old: DefragmentationPlan | None, new: DefragmentationPlan | None) -> None:
        """Follow a plan that appeared, changed or is gone."""
        seen = new if new is not None else _old
        if seen is None:
            return
        if new is None:
            self._plans.pop(seen.metadata.name, None)
            return
        for move in new.status.moves:
            if move.begun is not None:
                self._begun[new.metadata.uid, move.uid or move.workload] = _Begun(move.begun, move.pods)
        self._plans[new.metadata.name] = followed(new)

    def plan(self, name: str) -> FollowedPlan | None:
        """Return a plan; None: it is gone."""
        return self._plans.get(name)

    def plans_of(self, key: str) -> list[str]:
        """Return the names of the plans that are not over, and that move a Workload or wait for it."""
        unfinished = [plan for plan in self._plans.values() if _is_open(plan) or _may_begin(plan)]
        return [plan.name for plan in unfinished if _names(plan, key)]

    def carried_out(self, *, besides: str = "") -> str:
        """Return the name of a plan that is carried out; empty: none is."""
        return min((plan.name for plan in self._plans.values() if plan.name != besides and _is_open(plan)), default="")

    def history(self, now: datetime) -> MoveHistory:
        """Return the moves of the last hour, and the ClusterQueues of which a workload is being moved."""
        for key in [key for key, begun in self._begun.items() if now - begun.at >= _HOUR]:
            del self._begun[key]
        begun = self._begun.values()
        return MoveHistory(
            moves=len(begun),
            pods=sum(one.pods for one in begun),
            queues=frozenset(
                self.queue_of(move.workload)
                for plan in self._plans.values()
                if plan.is_trusted
                for move in plan.obj.status.moves
                if move.state in UNDER_WAY
            ),
        )

    def queue_of(self, key: str) -> str:
        """Return the ClusterQueue of a Workload; empty: it has none."""
        holding = self._cache.held.holding(key)
        if holding is not None:
            return holding.queue
        obj = self._newest(key)
        return (self._queues.cluster_queue_of(model.local_queue_key(obj)) or "") if obj is not None else ""

    # --- for the planner

    @property
    def has_plans(self) -> bool:
        """Whether resources may be kept for any plan."""
        return bool(self._kept) or any(map(_is_open, self._plans.values()))

    def claims(self, *, besides: str = "") -> tuple[Claim, ...]:
        """Return what is kept for moved workloads and waiting gangs; not for the workload with the UID `besides`."""
        if not self.has_plans:
            return ()
        kept: dict[str, Claim] = {}
        self._goals = set()
        for plan in list(self._plans.values()):
            with isolated_logged(_log, "what a plan of moves keeps is unknown, so nothing is kept", plan=plan.name):
                kept.update((c.uid, c) for c in self._claims_of(plan) if c.uid not in self._given_up)
        before, self._kept = self._kept, kept
        for uid, claim in before.items():
            if uid not in kept:
                self.on_ended(claim)
        return tuple(claim for uid, claim in kept.items() if uid != besides)

    def give_up(self, uid: str) -> None:
        """Keep nothing for a workload any more, because plans of cycles fail on it; no effect if nothing is kept."""
        if uid in self._kept:
            self._given_up.add(uid)

    def _claims_of(self, plan: FollowedPlan) -> list[Claim]:
        if not plan.is_trusted:
            return []
        found = [claim for move in plan.kept() if (claim := self.claim_of(move)) is not None]
        if plan.is_running:
            goal = self.goal_claim(plan)
            if goal is not None:
                found.append(replace(goal, movers=self._movers(plan)))
                self._goals.add(goal.uid)
        return found

    def _movers(self, plan: FollowedPlan) -> dict[str, tuple[str, str]]:
        """Return the workloads that have not left their old domains yet."""
        found: dict[str, tuple[str, str]] = {}
        for move in plan.kept():
            held = self._cache.held.holding(move.workload)
            if held is not None and not is_again(move, held):
                found[held.uid] = held.queue, held.key
        return found

    def claim_of(self, move: PlannedMove) -> Claim | None:
        """Return the target of a move as a claim; None: its workload needs none (any more), or a domain is gone."""
        obj = self._newest(move.workload)
        if obj is None or not is_planned(move, obj) or model.is_over(obj):
            return None
        held = self._cache.held.holding(move.workload)
        if held is not None and is_again(move, held):
            return None
        if held is None and not (move.state in _GONE and model.is_queueable(obj)):
            return None
        queue = self.queue_of(move.workload)
        if not queue:
            return None
        head = self._head(obj, queue)
        domains = self.target_of(move, head) if head is not None else None
        if head is None or domains is None or not _is_of(move, head):
            return None
        pod_sets = _assigned(move, head)
        return Claim(
            key=move.workload,
            uid=obj.metadata.uid,
            queue=queue,
            usage=Admission(queue=queue, pod_sets=pod_sets).usage(),
            domains=domains,
            victims={held.uid: (held.queue, held.key)} if held is not None else {},
            pod_sets=pod_sets,
        )

    def _head(self, obj: wire.Workload, queue: str) -> Head | None:
        try:
            return self._heads.make(obj, None, queue=queue, now=self._now())
        except InvalidObjectError:
            return None

    def target_of(self, move: PlannedMove, head: Head) -> Mapping[str, tuple[DomainUsage, ...]] | None:
        """Return the target of a move, by flavor; None: a domain of it is gone, or pods of it have none."""
        known = self._cache.quota.with_topology
        per_pod = {pod_set.name: pod_set.request.requests for pod_set in head.pod_sets}
        found: dict[str, tuple[DomainUsage, ...]] = {}
        for pod_set in _assigned(move, head):
            flavor, where = counted_in(pod_set, known), pod_set.topology
            capacity = self._cache.ledger.capacity(flavor) if flavor is not None else None
            if flavor is None or where is None:
                continue
            if capacity is None or where.count != pod_set.count:
                return None
            taken = [DomainUsage(where.named(d.values), per_pod[pod_set.name], d.count) for d in where.domains]
            if any(capacity.tree.leaf_of(one.values) is None for one in taken):
                return None
            found[flavor] = (*found.get(flavor, ()), *taken)
        return found or None

    def due(self) -> dict[str, str]:
        """Return the workloads that are tried before all others of their ClusterQueues, by ClusterQueue.

        Each is returned once for each state of the cache: the others are tried then.
        """
        if not self.has_plans:
            return {}
        generation = self._cache.generation, self._cache.ledger.generation
        found: dict[str, str] = {}
        for claim in self._kept.values():
            queue = claim.queue
            waits = self._queues.is_known(claim.key) and self._cache.held.holding(claim.key) is None
            if waits and queue not in found and self._tried.get(claim.uid) != generation and self._is_turn(claim):
                self._tried[claim.uid] = generation
                found[queue] = claim.key
        if len(self._tried) > len(self._kept):
            self._tried = {uid: at for uid, at in self._tried.items() if uid in self._kept}
        return found

    def _is_turn(self, claim: Claim) -> bool:
        """Whether a workload may take what is kept for it.

        A gang waits for those that leave its domain, and in a strict queue for those that come before it.
        """
        if claim.uid not in self._goals:
            return True
        if claim.movers:
            return False
        return not self._queues.is_strict(claim.queue) or self._queues.front(claim.queue, 1)[0] == [claim.key]

    def hints(self) -> dict[str, PlanHint]:
        """Return the domains that plans chose for workloads that wait, by UID."""
        found: dict[str, PlanHint] = {}
        for plan in self._plans.values() if self.has_plans else ():
            with isolated_logged(_log, "the targets of a plan of moves cannot be read", plan=plan.name):
                found.update(self._hints_of(plan) if plan.is_trusted else ())
        return found

    def _hints_of(self, plan: FollowedPlan) -> Iterator[tuple[str, PlanHint]]:
        for move in plan.kept():
            obj = self._newest(move.workload) if move.state in _GONE else None
            if obj is not None and is_planned(move, obj):
                yield (
                    obj.metadata.uid,
                    PlanHint(
                        flavors={one.name: one.flavors for one in move.assignments},
                        places=_places(move),
                        plan=f"moved by DefragmentationPlan {plan.name}",
                    ),
                )


def followed(obj: DefragmentationPlan) -> FollowedPlan:
    """Return a plan, and whether its hash and its approval hold."""
    digest, written = hash_of(obj), obj.status.hash
    return FollowedPlan(obj=obj, is_sound=digest == written, is_approved=bool(written) and obj.spec.approved == written)


def is_planned(move: PlannedMove, obj: wire.Workload) -> bool:
    """Whether a Workload is the one that was planned, and not another of its name."""
    return move.uid in ("", obj.metadata.uid)


def is_again(move: PlannedMove, held: Holding) -> bool:
    """Whether a workload got its quota after the eviction of its move."""
    if move.begun is None:
        return False
    return held.reserved_at is None or held.reserved_at >= move.begun


def _is_open(plan: FollowedPlan) -> bool:
    return plan.is_trusted and (plan.is_running or any(move.state in UNDER_WAY for move in plan.obj.status.moves))


def _may_begin(plan: FollowedPlan) -> bool:
    return plan.phase in (PlanPhase.PROPOSED, PlanPhase.APPROVED) and plan.is_approved


def _names(plan: FollowedPlan, key: str) -> bool:
    goal = plan.obj.spec.goal.workload
    moved = any(move.workload == key for move in plan.obj.status.moves)
    return moved or (goal is not None and f"{goal.namespace}/{goal.name}" == key)


def _assigned(move: PlannedMove, head: Head) -> tuple[PodSetAssignment, ...]:
    """Return the planned flavors and domains of a workload, and the quota that they use."""
    asked = {pod_set.name: pod_set.quota_requests for pod_set in head.pod_sets}
    found: list[PodSetAssignment] = []
    for one in move.assignments:
        if one.name not in asked:
            continue
        count = one.count or 0
        usage = {resource: amount * count for resource, amount in asked[one.name].items() if resource in one.flavors}
        where = model.assignment(one.topology_assignment) if one.topology_assignment is not None else None
        found.append(
            PodSetAssignment(name=one.name, flavors=dict(one.flavors), usage=usage, count=count, topology=where)
        )
    return tuple(found)


def _is_of(move: PlannedMove, head: Head) -> bool:
    """Whether a move has no more pods of any pod set than its workload."""
    counts = {pod_set.name: pod_set.request.count for pod_set in head.pod_sets}
    return all((one.count or 0) <= counts.get(one.name, 0) for one in move.assignments)


def _places(move: PlannedMove) -> dict[str, tuple[tuple[tuple[str, ...], int], ...]]:
    found: dict[str, tuple[tuple[tuple[str, ...], int], ...]] = {}
    for one in move.assignments:
        if one.topology_assignment is not None:
            domains = model.assignment(one.topology_assignment).domains
            found[one.name] = tuple((domain.values, domain.count) for domain in domains)
    return found


def limited(history: MoveHistory, pods: Iterable[int], *, moves: int, most_pods: int) -> str:
    """Return why a further move must not begin within this hour; empty: it may.

    Args:
        history: the moves of the last hour.
        pods: the numbers of pods of the workloads that would be moved next.
        moves, most_pods: the most that begin within an hour.
    """
    further = sum(pods)
    if history.moves >= moves:
        return f"{history.moves} moves began within the last hour; joint.rescheduling.maxMovesPerHour is {moves}"
    if history.pods + further > most_pods:
        return (
            f"{history.pods} pods were moved within the last hour, and {further} more are too many; "
            f"joint.rescheduling.maxPodsPerHour is {most_pods}"
        )
    return ""
