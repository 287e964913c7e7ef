"""Invariants of preemptions: allowed victims, no unnecessary victims, and freed resources for the preemptor.

Everything is computed from API objects alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kqueue.api import names
from kqueue.sandbox.api import Object
from tests.sim.entitled import Scene, flavors_of, plain_request, priority_of, queue_of, usage_of
from tests.sim.history import Life, Preempted, Stand
from tests.sim.objects import CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES, WORKLOADS
from tests.sim.quota_tree import Column
from tests.sim.reading import Breaches, quota_usage
from tests.sim.world import World

_NONE: Object = {}
_ONE_DECISION = 0.5
"""Seconds within which all writes of one decision are done."""


# --- at the moment of a preemption -----------------------------------------------------------------------------------


def preempts_whom_it_may(world: World, victim: Object, preempted: Preempted) -> Breaches:
    """The rules of the preemptor's ClusterQueue, present ones or ones within the horizon, allow the victim."""
    preemptor = _workload(world, preempted.preemptor)
    life = world.history.lives.get(preempted.preemptor)
    if preemptor is None or life is None:
        return
    doors = world.history.specs[LOCAL_QUEUES.plural, life.queue].since(world.stale)
    own = {told[0]["clusterQueue"] for told in doors if told is not None}
    specs = [
        (queue, told[0])
        for queue in own
        for told in world.history.specs[CLUSTER_QUEUES.plural, queue].since(world.stale)
        if told is not None
    ]
    if not any(_may(world, preemptor, victim, queue, spec) for queue, spec in specs):
        yield (
            f"{life.name} (priority {priority_of(preemptor)}) of {sorted(own)} may not preempt"
            f" {victim['metadata']['name']} (priority {priority_of(victim)}) of {queue_of(victim)}:"
            f" {[spec.get('preemption') for _, spec in specs]}"
        )


def _may(world: World, preemptor: Object, victim: Object, queue: str, spec: Object) -> bool:
    rules = spec.get("preemption") or _NONE
    is_lower = priority_of(victim) < priority_of(preemptor)
    if queue_of(victim) != queue:
        policy = rules.get("reclaimWithinCohort", "Never")
        return bool(spec.get("cohortName")) and (policy == "Any" or (policy == "LowerPriority" and is_lower))
    policy = rules.get("withinClusterQueue", "Never")
    if policy == "LowerOrNewerEqualPriority" and priority_of(victim) == priority_of(preemptor):
        # who was put back because its pods were not ready is as old as that
        was = [w["metadata"]["creationTimestamp"] for w in (preemptor, victim)]
        return was[0] < was[1] or world.tenancy.pods_ready is not None
    return bool(policy != "Never") and is_lower


def _workload(world: World, uid: str) -> Object | None:
    return next((w for w in world.objects(WORKLOADS) if w["metadata"]["uid"] == uid), None)


# --- nobody leaves for nothing ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Choice:
    """The victims of one Workload at one moment, and the state at the decision."""

    scene: Scene
    is_certain: bool
    victims: list[Object] = field(default_factory=list)


class Sparing:
    """Checks that in a world without faults no unnecessary victim is preempted.

    Only if one Workload alone preempts in its tree at a moment, in one flavor and without domains, and no eviction was
    pending before: else the state of the decision is unknown.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._before: Scene | None = None
        self._choices: dict[str, _Choice] = {}

    def preempted(self, victim: Object, preempted: Preempted) -> Breaches:
        """Record a preemption; it is judged at the end of the moment."""
        choice = self._choices.get(preempted.preemptor)
        if choice is None:
            scene, before = Scene(self._world), self._before
            certain = (
                before is not None and before.specs == scene.specs and usage_of(before.held) == usage_of(scene.held)
            )
            choice = self._choices[preempted.preemptor] = _Choice(scene, certain)
        choice.victims.append(victim)
        return iter(())

    def settled(self, scene: Scene) -> None:
        """Judge the preemptions of the moment that has ended."""
        for uid, choice in self._choices.items():
            preemptor = next((e for line in choice.scene.lines.values() for e in line if e[0].uid == uid), None)
            if choice.is_certain and preemptor is not None and self._is_alone(uid, choice):
                told = f"t={self._world.clock.monotonic():.1f}: {preemptor[0].name} preempts "
                self._world.history.violations += [told + each for each in _needless(preemptor[1], choice)]
        self._choices.clear()
        self._before = scene

    def forget(self) -> None:
        """Drop the recorded state, which a new controller does not know."""
        self._choices.clear()
        self._before = None

    def _is_alone(self, uid: str, choice: _Choice) -> bool:
        before, tree = self._before, choice.scene.tree
        assert before is not None
        mine = {other for victim in choice.victims for other in tree.tree_of(queue_of(victim))}
        others = {queue_of(v) for other, c in self._choices.items() if other != uid for v in c.victims}
        return mine.isdisjoint(others) and mine.isdisjoint(before.moving)


def _needless(preemptor: Object, choice: _Choice) -> Breaches:
    scene, victims = choice.scene, choice.victims
    queue = scene.doors[preemptor["spec"]["queueName"]]
    wanted = plain_request(preemptor)
    columns = {column for victim in victims for column, amount in quota_usage(victim).items() if amount}
    if wanted is None or _may_shrink(preemptor) or scene.is_placed(queue) or len(columns) != 1:
        return
    (column,) = columns
    if column[0] not in flavors_of(scene.queues[queue]):
        return
    names_of = sorted(victim["metadata"]["name"] for victim in victims)
    if scene.tree.fits(queue, {column: wanted}, usage_of(scene.held)):
        yield f"{names_of} although it fits beside them"
    for victim in victims:
        name = victim["metadata"]["name"]
        if _fits_without(scene, queue, column, wanted, victims, instead_of=victim):
            yield f"{names_of}, of which {name} could stay"
        yield from _out_of_turn(scene, queue, column, wanted, victims, victim)
        if queue_of(victim) != queue and usage_of(scene.held)[queue_of(victim)][column] <= scene.tree.nominal(
            queue_of(victim), column
        ):
            yield f"{name} of {queue_of(victim)}, which borrows nothing"
    yield from _beyond_threshold(scene, preemptor, queue, column, wanted, victims)


def _may_shrink(workload: Object) -> bool:
    return any(pod_set.get("minCount") is not None for pod_set in workload["spec"]["podSets"])


def _fits_without(
    scene: Scene,
    queue: str,
    column: Column,
    wanted: int,
    victims: list[Object],
    *,
    instead_of: Object,
    other: Object | None = None,
) -> bool:
    """Whether the preemptor fits, within its own nominal quota, if one victim stays and maybe another one leaves."""
    gone = {v["metadata"]["uid"] for v in victims} - {instead_of["metadata"]["uid"]}
    if other is not None:
        gone.add(other["metadata"]["uid"])
    usage = usage_of(w for w in scene.held if w["metadata"]["uid"] not in gone)
    used = usage[queue][column] if queue in usage else 0
    return used + wanted <= scene.tree.nominal(queue, column) and scene.tree.fits(queue, {column: wanted}, usage)


def _out_of_turn(
    scene: Scene, queue: str, column: Column, wanted: int, victims: list[Object], victim: Object
) -> Breaches:
    """Victims in the preemptor's own ClusterQueue have the lowest priorities."""
    if queue_of(victim) != queue:
        return
    leaving = {v["metadata"]["uid"] for v in victims}
    for other in scene.held:
        if queue_of(other) != queue or other["metadata"]["uid"] in leaving or priority_of(other) >= priority_of(victim):
            continue
        was_hit = any(p.uid == other["metadata"]["uid"] for p in scene.world.history.preemptions)
        if not was_hit and _fits_without(scene, queue, column, wanted, victims, instead_of=victim, other=other):
            yield f"{victim['metadata']['name']} rather than {other['metadata']['name']}, which has a lower priority"


def _beyond_threshold(
    scene: Scene, preemptor: Object, queue: str, column: Column, wanted: int, victims: list[Object]
) -> Breaches:
    """A borrowing preemptor preempts only as `borrowWithinCohort` allows.  Covers the children of a root."""
    path = scene.tree.path(queue)
    if scene.world.tenancy.fair_sharing is not None or path is None or len(path) != 2:
        return
    gone = {v["metadata"]["uid"] for v in victims}
    usage, left = usage_of(scene.held), usage_of(w for w in scene.held if w["metadata"]["uid"] not in gone)
    used, remains = (each[queue][column] if queue in each else 0 for each in (usage, left))
    own = scene.tree.nominal(queue, column)
    if used + wanted <= own or remains + wanted <= own:
        return
    rules = (scene.queues[queue].get("preemption") or _NONE).get("borrowWithinCohort") or _NONE
    up_to = rules.get("maxPriorityThreshold")
    for victim in victims:
        priority = priority_of(victim)
        allowed = rules.get("policy", "Never") == "LowerPriority" and priority < priority_of(preemptor)
        if queue_of(victim) != queue and not (allowed and (up_to is None or priority <= up_to)):
            yield f"{victim['metadata']['name']} (priority {priority}) of {queue_of(victim)} while it borrows: {rules}"


# --- who gets what is freed ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Suspicion:
    at: float
    preemptor: Life
    told: str


class Keeping:
    """Checks that in a world without faults no other Workload gets the resources that are freed for a preemptor.

    A preemptor of one flavor that would fit without its victims still fits after another admission.  Judged a moment
    later, if it still waits for its victims.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._suspicions: list[_Suspicion] = []

    def admitted(self, workload: Object) -> Breaches:
        """Record an admission."""
        world = self._world
        preemptors = {p.preemptor for p in world.history.preemptions} - {workload["metadata"]["uid"]}
        waiting = [life for uid, life in world.history.lives.items() if uid in preemptors and _waits(life)]
        if waiting:
            scene = Scene(world)
            self._suspicions += [
                _Suspicion(world.clock.monotonic(), life, told)
                for life in waiting
                if (told := _robbed(scene, life, workload)) is not None
            ]
        return iter(())

    def settled(self, _scene: Scene) -> None:
        """Judge admissions after a moment."""
        world, still = self._world, []
        now = world.clock.monotonic()
        for each in self._suspicions:
            if now < each.at + world.horizon:
                still.append(each)
            elif _waits(each.preemptor, each.at, each.at + world.horizon):
                world.history.violations.append(f"t={each.at:.1f}: {each.told}")
        self._suspicions = still

    def forget(self) -> None:
        """Drop the recorded claims, because the controller that reserved them has ended."""
        self._suspicions.clear()


def _waits(life: Life, first: float | None = None, last: float = 0.0) -> bool:
    says = names.REASON_WAITING_FOR_PREEMPTED_WORKLOADS
    if first is None:
        return life.stands.now() is Stand.WAITS and life.says.now() == says
    return life.stands.stayed(Stand.WAITS, first, last) and life.says.stayed(says, first, last)


def _robbed(scene: Scene, preemptor: Life, taker: Object) -> str | None:
    """Return the breach of an admission while a preemptor waits for its victims, or None."""
    world, queue = scene.world, scene.doors.get(preemptor.queue)
    now, since = world.clock.monotonic(), preemptor.says.changed_at() - _ONE_DECISION
    if queue is None or queue not in scene.open or queue_of(taker) not in scene.tree.tree_of(queue):
        return None
    workload = next((w for life, w in scene.lines[queue] if life.uid == preemptor.uid), None)
    wanted = plain_request(workload) if workload is not None else None
    if wanted is None or workload is None or _may_shrink(workload) or scene.is_placed(queue):
        return None
    if any(since <= started for started in world.starts) or _was_configured(world, since, now):
        return None
    rank = world.history.lives[taker["metadata"]["uid"]].rank
    before_it = scene.is_strict(queue) and scene.lines[queue][0][0].uid != preemptor.uid
    if before_it or (queue_of(taker) == queue and rank < preemptor.rank):
        return None
    victims = {p.uid for p in world.history.preemptions if p.preemptor == preemptor.uid and p.at >= since}
    staying = [w for w in scene.held if w["metadata"]["uid"] not in victims]
    without = [w for w in staying if w["metadata"]["uid"] != taker["metadata"]["uid"]]
    could, can = (
        {f for f in flavors_of(scene.queues[queue]) if scene.tree.fits(queue, {(f, "cpu"): wanted}, usage_of(held))}
        for held in (without, staying)
    )
    if could and not can:
        who = f"{taker['metadata']['name']} of {queue_of(taker)}"
        return f"{who} was admitted into {sorted(could)}, where room was being made for {preemptor.name} of {queue}"
    return None


def _was_configured(world: World, first: float, last: float) -> bool:
    kinds = (CLUSTER_QUEUES.plural, COHORTS.plural, LOCAL_QUEUES.plural)
    pasts: list[Any] = [past for (kind, _), past in world.history.specs.items() if kind in kinds]
    return any(len(past.between(first, last)) > 1 for past in pasts)


ON_PREEMPTION = (preempts_whom_it_may,)
