"""Invariants of quota, order and preemption.  Each function yields one sentence per breach.

Everything is computed from API objects alone.  An admission is judged once, when the world's horizon has passed since:
then all earlier decisions of the controller have been written, too.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator

from kqueue.api import names
from kqueue.sandbox.api import Object
from tests.sim.api_client import NONE
from tests.sim.entitled import Scene, entitled, queue_of, usage_of
from tests.sim.history import Admitted, Stand
from tests.sim.objects import CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES, WORKLOADS
from tests.sim.quota_tree import QuotaTree
from tests.sim.reading import Breaches, holders, quota_usage
from tests.sim.world import World, condition

_TREES_MAX = 256
"""Limit of tried orders of changes; beyond it the controller's knowledge is uncertain."""
_SETTLED, _SETTLED_AFTER_FAULTS = 4.5, 20.0
"""Seconds without events, after which nothing is pending."""
_LEFT_AFTER = 60.0
"""Seconds within which the slowest pods end."""


def _is(mine: Object, other: Object) -> bool:
    return bool(mine["metadata"]["uid"] == other["metadata"]["uid"])


# --- at the moment of an admission -----------------------------------------------------------------------------------


def keeps_to_quota(world: World, workload: Object) -> Breaches:
    """No admission exceeds the quota and borrowing limits of a ClusterQueue, or of a cohort above it.

    Any state of the queues within the horizon counts as known.  After an administrator reduced quota, usage may exceed
    it, but no admission may add to the excess.
    """
    queue = queue_of(workload)
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
    """No Workload is admitted through a queue that is stopped, deleted or being deleted."""
    queue = queue_of(workload)
    for plural, name in (
        (CLUSTER_QUEUES.plural, queue),
        (LOCAL_QUEUES.plural, workload["spec"].get("queueName", "")),
    ):
        known = world.history.specs[plural, name].since(world.stale)
        if not any(_is_open(each) for each in known):
            yield f"{workload['metadata']['name']} was admitted through {plural} {name}, which takes nobody"


def waits_for_pods(world: World, workload: Object) -> Breaches:
    """With blocked admission, no Workload is admitted while the pods of another one have never been ready.

    With faults, only Workloads whose pods have not been ready for longer than the horizon count.
    """
    if world.tenancy.pods_ready is None:
        return
    for other in holders(world):
        life = world.history.lives[other["metadata"]["uid"]]
        if _is(other, workload) or life.stands.now() is not Stand.HOLDS:
            continue
        admitted_at = life.stands.changed_at()
        known = world.faults == NONE or admitted_at <= world.stale
        if known and life.ready.stayed(False, admitted_at if world.faults == NONE else world.stale, math.inf):
            yield f"{workload['metadata']['name']} was admitted although {other['metadata']['name']} is not ready"


def _is_open(told: tuple[Object, bool] | None) -> bool:
    return told is not None and not told[1] and told[0].get("stopPolicy", "None") == "None"


def _trees(world: World) -> Iterator[QuotaTree]:
    """Yield the quota trees that the controller may have known: each object at present, or within the horizon."""
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
    """Return the values, the newest first, each once."""
    out: list[tuple[Object, bool] | None] = []
    for each in reversed(told):
        if each not in out:
            out.append(each)
    return out


ON_ADMISSION = (keeps_to_quota, enters_an_open_queue, waits_for_pods)


# --- after every step ------------------------------------------------------------------------------------------------


def nobody_is_passed(world: World) -> Breaches:
    """While a Workload waits in a strict ClusterQueue, none behind it is admitted; in any queue, no equal one is.

    Judged if it waits from well before the other admission until well after it, in a queue that was open and the same
    all the time.  A preempted equal one may have to wait for its preemptor, and one that was created while a Workload
    behind it waited for victims waits for that Workload.
    """
    history, margin = world.history, world.margin
    for admitted in _ripe(world, "nobody_is_passed"):
        first, last = admitted.at - margin, admitted.at + margin
        in_line = history.in_line_since(admitted) - margin
        queue = queue_of(admitted.workload)
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
            was_there = life.stands.stayed(Stand.WAITS, in_line, last)
            if strict or (life.shape == mine.shape and was_there and not was_preempted):
                yield f"{mine.name} was admitted to {queue} at t={admitted.at:.1f} while {life.name} waited before it"


def _strict(told: list[tuple[Object, bool] | None]) -> bool | None:
    """Whether a ClusterQueue was strict all the time; None if it was changed, stopped or deleted at some time."""
    if not told or any(not _is_open(each) for each in told):
        return None
    specs = [each[0] for each in told if each is not None]
    if any(spec != specs[0] for spec in specs):
        return None
    return bool(specs[0].get("queueingStrategy") == "StrictFIFO")


def who_made_room_comes_later(world: World) -> Breaches:
    """A preempted Workload is not admitted again while its preemptor waits for its resources."""
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
        if waits and preemptor.says.stayed(names.REASON_WAITING_FOR_PREEMPTED_WORKLOADS, first, last):
            name = history.lives[admitted.uid].name
            yield f"{name} made room for {preemptor.name}, which waits, and was admitted at t={admitted.at:.1f}"


def nobody_goes_round_in_circles(world: World) -> Breaches:
    """Without outside changes, no Workload is preempted twice for a preemptor that is not admitted, nor three times.

    With any changes, one controller preempts a Workload at most twice for a preemptor that is not admitted.
    """
    admissions: defaultdict[str, list[float]] = defaultdict(list)
    for admitted in world.history.admissions:
        admissions[admitted.uid].append(admitted.at)
    quiet, lasting, any_times = Counter[_Round](), Counter[_Round](), Counter[_Round]()
    for each in world.history.preemptions:
        got_in = sum(at < each.at for at in admissions[each.preemptor])  # at once: that is what it left for
        controllers = sum(started <= each.at for started in world.starts)
        quiet[each.uid, each.preemptor, each.era, got_in] += 1
        lasting[each.uid, each.preemptor, controllers, got_in] += 1
        any_times[each.uid, each.preemptor, each.era, 0] += 1
    for rounds, allowed in ((quiet, 1), (lasting, 2), (any_times, 2)):
        for (uid, preemptor, _, _), times in rounds.items():
            if times > allowed:
                yield f"{_name(world, uid)} was preempted {times} times for {_name(world, preemptor)}, to no end"


_Round = tuple[str, str, int, int]
"""Victim, preemptor, and the unchanged era."""


def _name(world: World, uid: str) -> str:
    life = world.history.lives.get(uid)
    return life.name if life is not None else uid


def _ripe(world: World, invariant: str) -> list[Admitted]:
    """Return the admissions that this invariant has not judged and now can."""
    admissions = world.history.admissions
    begin = end = world.judged.get(invariant, 0)
    while end < len(admissions) and admissions[end].at + world.margin <= world.clock.monotonic():
        end += 1
    world.judged[invariant] = end
    return admissions[begin:end]


def nobody_waits_for_nobody(world: World) -> Breaches:
    """Without faults, no Workload waits for resources that will not become free until the world is at rest."""
    if world.faults == NONE:
        yield from nobody_waits_for_those_who_left(world)


ALWAYS = (nobody_is_passed, who_made_room_comes_later, nobody_goes_round_in_circles, nobody_waits_for_nobody)


# --- when all is quiet -----------------------------------------------------------------------------------------------


def who_was_evicted_came_back(world: World) -> Breaches:
    """An evicted Workload has no pods and waits again, unless its queue is stopped or it is deactivated."""
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
    """A preemptor is admitted, or waits for another reason, once its victims have released their resources.

    Does not apply behind the head of a strict ClusterQueue, where Workloads are not tried.
    """
    if not _is_settled(world):
        return
    scene = Scene(world)
    for queue, line in scene.lines.items():
        for life, workload in line[:1] if scene.is_strict(queue) else line:
            if life.says.now() == names.REASON_WAITING_FOR_PREEMPTED_WORKLOADS:
                said = condition(workload, names.CONDITION_QUOTA_RESERVED)
                yield f"{life.name} waits for others to leave, and nobody is on the way out: {said}"


def nobody_starves(world: World) -> Breaches:
    """No Workload with a right to run waits, once nothing changes any more."""
    if _is_settled(world):
        yield from (told for _, told in entitled(Scene(world)))


def _is_settled(world: World) -> bool:
    """Whether nothing has happened for a while, and no Workload is being evicted."""
    quiet = _SETTLED if world.faults == NONE else _SETTLED_AFTER_FAULTS
    if world.clock.monotonic() - world.history.stirred < quiet:
        return False
    lives = world.history.lives
    return all(lives[w["metadata"]["uid"]].stands.now() is Stand.HOLDS for w in holders(world))


AT_REST = (who_was_evicted_came_back, nobody_waits_for_those_who_left, nobody_starves)
