"""What must hold of quota, order and preemption.  Each function yields one sentence per breach.

Everything is worked out from API objects alone.  What is promised of an admission is judged once, when the world's
horizon has passed since: then all that the controller had decided before it has been written, too.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from kqueue.api import names
from kqueue.sandbox.api import Object
from tests.sim.api_client import NONE
from tests.sim.history import Admitted, Life, Stand, admission_of
from tests.sim.objects import CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES, WORKLOADS
from tests.sim.quota_tree import Column, QuotaTree
from tests.sim.reading import Breaches, holders, quota_usage, requests_of
from tests.sim.world import World, condition, is_true

_TREES_MAX = 256
"""Orders in which changes may have been heard of that are tried; beyond, nobody can say what was known."""
_SETTLED, _SETTLED_AFTER_FAULTS = 4.5, 20.0
"""Seconds in which nothing has happened, so that nothing is on its way any more."""
_LEFT_AFTER = 60.0
"""Seconds in which the slowest pods have ended."""


def usage_of(workloads: Iterable[Object]) -> dict[str, Counter[Column]]:
    """ClusterQueue to what its Workloads hold."""
    usage: defaultdict[str, Counter[Column]] = defaultdict(Counter)
    for workload in workloads:
        usage[admission_of(workload)["clusterQueue"]].update(quota_usage(workload))  # type: ignore[index]
    return usage


def _is(mine: Object, other: Object) -> bool:
    return bool(mine["metadata"]["uid"] == other["metadata"]["uid"])


# --- at the moment of an admission -----------------------------------------------------------------------------------


def keeps_to_quota(world: World, workload: Object) -> Breaches:
    """No admission takes a ClusterQueue, or a cohort above it, beyond what it has and may borrow.

    Any state of the queues within the horizon counts as known; what an administrator has taken away meanwhile is owed,
    but nobody adds to it.
    """
    queue: str = admission_of(workload)["clusterQueue"]  # type: ignore[index]
    others = usage_of(w for w in holders(world) if not _is(w, workload))
    wanted = quota_usage(workload)
    told = None
    for tree in _trees(world):
        told = next((o for c, n in wanted.items() if n and (o := tree.overrun(queue, c, n, others)) is not None), None)
        if told is None:
            return
    if told is not None:
        yield f"{workload['metadata']['name']} of {queue} takes too much: {told}"


def enters_an_open_queue(world: World, workload: Object) -> Breaches:
    """Nobody is admitted through a queue that is stopped, gone or on its way out."""
    queue: str = admission_of(workload)["clusterQueue"]  # type: ignore[index]
    for plural, name in (
        (CLUSTER_QUEUES.plural, queue),
        (LOCAL_QUEUES.plural, workload["spec"].get("queueName", "")),
    ):
        known = world.history.specs[plural, name].since(world.stale)
        if not any(_is_open(each) for each in known):
            yield f"{workload['metadata']['name']} was admitted through {plural} {name}, which takes nobody"


def waits_for_pods(world: World, workload: Object) -> Breaches:
    """Where admission is blocked: nobody is admitted while the pods of another one are not ready."""
    if world.tenancy.pods_ready is None:
        return
    for other in holders(world):
        life = world.history.lives[other["metadata"]["uid"]]
        held = life.stands.stayed(Stand.HOLDS, world.stale, math.inf)
        if held and not _is(other, workload) and life.ready.stayed(False, world.stale, math.inf):
            yield f"{workload['metadata']['name']} was admitted although {other['metadata']['name']} is not ready"


def _is_open(told: tuple[Object, bool] | None) -> bool:
    return told is not None and not told[1] and told[0].get("stopPolicy", "None") == "None"


def _trees(world: World) -> Iterator[QuotaTree]:
    """The quota as the controller may have known it: each object as it is, or as it was within the horizon."""
    kinds = (CLUSTER_QUEUES.plural, COHORTS.plural)
    known = {key: _distinct(past.since(world.stale)) for key, past in world.history.specs.items() if key[0] in kinds}
    if math.prod(len(each) for each in known.values()) > _TREES_MAX:
        return
    for chosen in itertools.product(*known.values()):
        specs: dict[str, dict[str, Object]] = {kind: {} for kind in kinds}
        for (kind, name), told in zip(known, chosen, strict=True):
            if told is not None:
                specs[kind][name] = told[0]
        yield QuotaTree(specs[CLUSTER_QUEUES.plural], specs[COHORTS.plural])


def _distinct(told: list[tuple[Object, bool] | None]) -> list[tuple[Object, bool] | None]:
    """The newest first, and each once."""
    out: list[tuple[Object, bool] | None] = []
    for each in reversed(told):
        if each not in out:
            out.append(each)
    return out


ON_ADMISSION = (keeps_to_quota, enters_an_open_queue, waits_for_pods)


# --- after every step ------------------------------------------------------------------------------------------------


def nobody_is_passed(world: World) -> Breaches:
    """While a Workload waits in a strict ClusterQueue, none behind it is admitted; in any queue, no equal one is.

    It waits from well before the other admission until well after it, in a queue that was open and the same all the
    time.  An equal one that was preempted may have to wait for those it left for.
    """
    history, margin = world.history, world.margin
    for admitted in _ripe(world, "nobody_is_passed"):
        first, last = admitted.at - margin, admitted.at + margin
        queue: str = admission_of(admitted.workload)["clusterQueue"]  # type: ignore[index]
        strict = _strict(history.specs[CLUSTER_QUEUES.plural, queue].between(first, last))
        if strict is None:
            continue
        mine = history.lives[admitted.uid]
        for life in history.lives.values():
            if life.rank >= mine.rank or not life.stands.stayed(Stand.WAITS, first, last):
                continue
            door = history.specs[LOCAL_QUEUES.plural, life.queue].between(first, last)
            if not door or any(not _is_open(each) or each[0].get("clusterQueue") != queue for each in door):
                continue
            was_preempted = any(p.uid == life.uid for p in history.preemptions)
            if strict or (life.shape == mine.shape and not was_preempted):
                yield f"{mine.name} was admitted to {queue} at t={admitted.at:.1f} while {life.name} waited before it"


def _strict(told: list[tuple[Object, bool] | None]) -> bool | None:
    """Whether a ClusterQueue was strict all the time; None when it was another one, stopped or away at some time."""
    if not told or any(not _is_open(each) for each in told):
        return None
    specs = [each[0] for each in told if each is not None]
    if any(spec != specs[0] for spec in specs):
        return None
    return bool(specs[0].get("queueingStrategy") == "StrictFIFO")


def who_made_room_comes_later(world: World) -> Breaches:
    """A Workload that was preempted for another one is not admitted again while the other one waits for its room."""
    history, margin = world.history, world.margin
    for admitted in _ripe(world, "who_made_room_comes_later"):
        before = [p for p in history.preemptions if p.uid == admitted.uid and p.at < admitted.at]
        if not before:
            continue
        preemptor = history.lives.get(before[-1].preemptor)
        if preemptor is None or any(before[-1].at <= started for started in world.starts if started <= admitted.at):
            continue
        first, last = max(before[-1].at, admitted.at - margin), admitted.at + margin
        waits = preemptor.stands.stayed(Stand.WAITS, first, last)
        if waits and preemptor.says.stayed(names.REASON_WAITING_FOR_PREEMPTED_WORKLOADS, admitted.at - margin, last):
            name = history.lives[admitted.uid].name
            yield f"{name} made room for {preemptor.name}, which waits, and was admitted at t={admitted.at:.1f}"


def nobody_goes_round_in_circles(world: World) -> Breaches:
    """While nothing changes from outside, nobody is preempted twice for one that did not get in, nor three times at all.

    Whatever changes, one controller preempts a Workload at most twice for another one that did not get in.
    """
    admissions: defaultdict[str, list[float]] = defaultdict(list)
    for admitted in world.history.admissions:
        admissions[admitted.uid].append(admitted.at)
    quiet, lasting, any_times = Counter[_Round](), Counter[_Round](), Counter[_Round]()
    for each in world.history.preemptions:
        got_in = sum(at <= each.at for at in admissions[each.preemptor])
        controllers = sum(started <= each.at for started in world.starts)
        quiet[each.uid, each.preemptor, each.era, got_in] += 1
        lasting[each.uid, each.preemptor, controllers, got_in] += 1
        any_times[each.uid, each.preemptor, each.era, 0] += 1
    for rounds, allowed in ((quiet, 1), (lasting, 2), (any_times, 2)):
        for (uid, preemptor, _, _), times in rounds.items():
            if times > allowed:
                yield f"{_name(world, uid)} was preempted {times} times for {_name(world, preemptor)}, to no end"


_Round = tuple[str, str, int, int]
"""Victim, preemptor, and what was the same."""


def _name(world: World, uid: str) -> str:
    life = world.history.lives.get(uid)
    return life.name if life is not None else uid


def _ripe(world: World, invariant: str) -> list[Admitted]:
    """The admissions that this invariant has not judged and now can."""
    admissions = world.history.admissions
    begin = end = world.judged.get(invariant, 0)
    while end < len(admissions) and admissions[end].at + world.margin <= world.clock.monotonic():
        end += 1
    world.judged[invariant] = end
    return admissions[begin:end]


def nobody_starves_meanwhile(world: World) -> Breaches:
    """Without faults nobody has to wait until all is at rest."""
    if world.faults == NONE:
        yield from nobody_starves(world)
        yield from nobody_waits_for_those_who_left(world)


ALWAYS = (nobody_is_passed, who_made_room_comes_later, nobody_goes_round_in_circles, nobody_starves_meanwhile)


# --- when all is quiet -----------------------------------------------------------------------------------------------


def who_was_evicted_came_back(world: World) -> Breaches:
    """Whoever was told to leave has left, and waits again unless its queue is stopped or it is switched off."""
    now = world.clock.monotonic()
    for workload in world.objects(WORKLOADS):
        name, stand = workload["metadata"]["name"], world.history.lives[workload["metadata"]["uid"]].stands.now()
        evicted = condition(workload, names.CONDITION_EVICTED)
        if stand is Stand.OVER or evicted is None or evicted["status"] != "True":
            continue
        if world.history.lives[workload["metadata"]["uid"]].stands.stayed(Stand.LEAVES, now - _LEFT_AFTER, now):
            yield f"{name} was told to leave and still holds its quota: {evicted['message']}"
        elif stand is Stand.LEAVES:
            continue
        elif evicted["reason"] == names.REASON_PREEMPTED and workload["spec"].get("active", True):
            requeued = condition(workload, names.CONDITION_REQUEUED)
            if requeued is None or (requeued["status"], requeued["reason"]) != ("True", names.REASON_PREEMPTED):
                yield f"{name} was preempted and did not come back: {requeued}"


def nobody_waits_for_those_who_left(world: World) -> Breaches:
    """Whoever waits for others to leave is in, or waits for something else, once they have left."""
    if not _is_settled(world):
        return
    for workload in world.objects(WORKLOADS):
        said = condition(workload, names.CONDITION_QUOTA_RESERVED)
        waits = said is not None and said["reason"] == names.REASON_WAITING_FOR_PREEMPTED_WORKLOADS
        if waits and world.history.lives[workload["metadata"]["uid"]].stands.now() is Stand.WAITS:
            yield f"{workload['metadata']['name']} waits for others to leave, and nobody is on the way out: {said}"


def nobody_starves(world: World) -> Breaches:
    """Nobody waits who fits, or whom its queue's rules give enough: by making those of lower priority leave, or by
    taking its own nominal quota back.

    Asked of Workloads of one pod set in queues without a topology, of which nobody who goes first keeps room free.
    """
    if world.tenancy.pods_ready is not None or not _is_settled(world):
        return
    specs = {
        kind.plural: {o["metadata"]["name"]: o["spec"] for o in world.objects(kind) if not _leaves(o)}
        for kind in (CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES)
    }
    everywhere = {
        kind: {o["metadata"]["name"]: o["spec"] for o in world.objects(kind)} for kind in (CLUSTER_QUEUES, COHORTS)
    }
    tree = QuotaTree(everywhere[CLUSTER_QUEUES], everywhere[COHORTS])
    held = holders(world)
    lives = world.history.lives
    waiting: defaultdict[str, list[tuple[Life, Object]]] = defaultdict(list)
    for workload in world.objects(WORKLOADS):
        life = lives[workload["metadata"]["uid"]]
        door = specs[LOCAL_QUEUES.plural].get(life.queue)
        if life.stands.now() is Stand.WAITS and door is not None and door.get("stopPolicy", "None") == "None":
            waiting[door["clusterQueue"]].append((life, workload))
    strict = {q for q in waiting if specs[CLUSTER_QUEUES.plural].get(q, {}).get("queueingStrategy") == "StrictFIFO"}
    for queue, line in waiting.items():
        status = next((o for o in world.objects(CLUSTER_QUEUES) if o["metadata"]["name"] == queue), None)
        if queue not in specs[CLUSTER_QUEUES.plural] or not is_true(status, names.CONDITION_ACTIVE):
            continue
        spec = specs[CLUSTER_QUEUES.plural][queue]
        flavors = [f["name"] for group in spec.get("resourceGroups") or () for f in group["flavors"]]
        if not world.tenancy.placed.isdisjoint(flavors) or not strict.isdisjoint(tree.tree_of(queue) - {queue}):
            continue
        line.sort(key=lambda entry: entry[0].rank)
        for life, workload in line[:1] if queue in strict else line:
            why = _starves(tree, queue, spec, workload, held)
            if why is not None:
                yield f"{life.name} of {queue} waits although {why}"


def _leaves(obj: Object) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def _starves(tree: QuotaTree, queue: str, spec: Object, workload: Object, held: list[Object]) -> str | None:
    pod_set = workload["spec"]["podSets"][0]
    if pod_set.get("topologyRequest"):
        return None
    wanted = requests_of(pod_set["template"]["spec"])["cpu"] * pod_set["count"]
    usage, rules = usage_of(held), spec.get("preemption") or {}
    priority = workload["spec"].get("priority") or 0
    higher = [
        w
        for w in held
        if admission_of(w)["clusterQueue"] != queue or (w["spec"].get("priority") or 0) >= priority  # type: ignore[index]
    ]
    for group in spec.get("resourceGroups") or ():
        for flavor in (f["name"] for f in group["flavors"]):
            column = (flavor, "cpu")
            if tree.fits(queue, {column: wanted}, usage):
                return f"it fits in {flavor}"
            own, used = tree.nominal(queue, column), usage[queue][column]
            if rules.get("reclaimWithinCohort") == "Any" and used + wanted <= own:
                return f"{queue} has {own} of {column} of its own, and uses {used}"
            may = rules.get("withinClusterQueue", "Never") != "Never"
            if may and wanted <= own and tree.fits(queue, {column: wanted}, usage_of(higher)):
                return f"it would fit in {flavor} if those of lower priority left"
    return None


def _is_settled(world: World) -> bool:
    """Whether nothing has happened for a while, and nobody is on the way out."""
    quiet = _SETTLED if world.faults == NONE else _SETTLED_AFTER_FAULTS
    if world.clock.monotonic() - world.history.stirred < quiet:
        return False
    return all(life.stands.now() is not Stand.LEAVES for life in world.history.lives.values())


AT_REST = (who_was_evicted_came_back, nobody_waits_for_those_who_left, nobody_starves)
