"""Invariants of JobSets, single pods, groups of pods, Deployments and StatefulSets, besides those of every world."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime

from kqueue.api import names
from kqueue.controllers.gang import EVENT_GROUP_FINISHED
from kqueue.controllers.gang_past import EVENT_GONE
from kqueue.controllers.pod_writes import EVENT_HELD
from kqueue.sandbox.api import DEPLOYMENTS, EVENTS, JOB_SETS, JOBS, PODS, STATEFUL_SETS, Object
from tests.sim import invariants
from tests.sim.invariants import is_held, is_over
from tests.sim.kinds import LEADER_SETS, gang_of_workload, group_objects, group_of, is_extra
from tests.sim.objects import FOREIGN, WORKLOADS
from tests.sim.reading import Breaches, Invariant, holds
from tests.sim.world import World, is_true, owner_of, subject_of

_OWNERS = (PODS, JOBS, JOB_SETS, DEPLOYMENTS, STATEFUL_SETS, LEADER_SETS)
"""Kinds whose objects have Workloads or pods; not every world serves all of them."""
_TOLD = (names.EVENT_ERR_WORKLOAD_COMPOSE, EVENT_HELD, EVENT_GROUP_FINISHED, EVENT_GONE)
_SOON_REMOVED = 45.0
"""Seconds, more than the longest downtime of a controller."""
_SOON = 400.0
"""Seconds within which a pod gets the note that nothing will start it."""


def is_ours(pod: Object) -> bool:
    """Whether the pod is queued itself, alone or in a group."""
    return names.QUEUE_NAME_LABEL in (pod["metadata"].get("labels") or {}) or bool(group_of(pod))


class _Book:
    """Pods and Workloads by their owner."""

    def __init__(self, world: World) -> None:
        self._job_owner = {job["metadata"]["name"]: owner_of(job) for job in world.objects(JOBS)}
        self.workloads: defaultdict[str, list[Object]] = defaultdict(list)
        """Workloads by their owner."""
        for workload in world.objects(WORKLOADS):
            names_ = {subject_of(workload), workload["metadata"]["name"], gang_of_workload(workload)}
            for name in names_ - {""}:
                self.workloads[name].append(workload)

    def subject_of(self, pod: Object) -> str:
        """Return the owner that is queued: the pod's group, itself, its Job or JobSet; empty for foreign pods."""
        if is_ours(pod):
            return ("" if is_extra(pod) else group_of(pod)) or str(pod["metadata"]["name"])
        job = owner_of(pod)
        return (self._job_owner[job] or job) if job in self._job_owner else ""


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase", ""))


def whoever_runs_has_quota(world: World) -> Breaches:
    """A running or terminating pod belongs to a Workload with quota, except objects that users started."""
    book = _Book(world)
    for pod in world.objects(PODS):
        name, subject = pod["metadata"]["name"], book.subject_of(pod)
        if _phase(pod) != "Running" or not subject or subject.startswith(FOREIGN) or subject in world.let_out:
            continue
        if not any(map(holds, book.workloads[subject])):
            yield f"pod {name} of {subject} runs and nobody holds quota for it"


def groups_are_held_whole(world: World) -> Breaches:
    """No member of a group whose Workload has no quota may run."""
    book = _Book(world)
    for pod in world.objects(PODS):
        group = group_of(pod)
        if not group or group in world.let_out or is_held(pod) or is_over(pod):
            continue
        if not any(is_true(w, names.CONDITION_QUOTA_RESERVED) for w in book.workloads[book.subject_of(pod)]):
            yield f"pod {pod['metadata']['name']} is out of its gate, and group {group} has no quota"


def nobody_is_too_many(world: World) -> Breaches:
    """A group has no more pods than its Workload, once the controller knows of the surplus."""
    patience = world.horizon + _SOON_REMOVED
    members: defaultdict[str, list[Object]] = defaultdict(list)
    for pod in world.objects(PODS):
        age = (world.clock.now() - datetime.fromisoformat(pod["metadata"]["creationTimestamp"])).total_seconds()
        if (
            group_of(pod)
            and age > patience
            and _phase(pod) != "Failed"
            and not pod["metadata"].get("deletionTimestamp")
        ):
            members[group_of(pod)].append(pod)
    for workload in world.objects(WORKLOADS):
        name, wanted = workload["metadata"]["name"], sum(p["count"] for p in workload["spec"]["podSets"])
        if len(members[name]) > wanted and not is_true(workload, names.CONDITION_FINISHED):
            yield f"group {name} is to have {wanted} pods and has {len(members[name])} for long"


AT_ANY_MOMENT: tuple[Invariant, ...] = (whoever_runs_has_quota, groups_are_held_whole, nobody_is_too_many)
ALWAYS: tuple[Invariant, ...] = (*invariants.ALWAYS, *AT_ANY_MOMENT)


# --- when all is quiet -------------------------------------------------------------------------------------------------


def who_is_held_knows_why(world: World) -> Breaches:
    """A gated pod has an unfinished Workload that is not admitted, or a note about what its group lacks.

    A pod that nothing will start gets a note within minutes.
    """
    book = _Book(world)
    told = {e["regarding"]["name"] for e in world.objects(EVENTS) if e["reason"] in _TOLD}
    since = world.clock.monotonic() - max(world.starts[-1], world.history.stirred)
    for pod in world.objects(PODS):
        if not is_held(pod) or is_over(pod):
            continue
        subject, group = book.subject_of(pod), group_of(pod)
        alive = [w for w in book.workloads[subject] if not is_true(w, names.CONDITION_FINISHED)]
        friends = [p["metadata"]["name"] for p in world.objects(PODS) if group and group_of(p) == group]
        if not alive and since > _SOON and told.isdisjoint({*friends, pod["metadata"]["name"]}):
            yield f"pod {pod['metadata']['name']} of {subject} is gated; there is no Workload, and nobody says why"
        for workload in alive:
            waits = is_true(workload, names.CONDITION_WAITING_FOR_REPLACEMENT_PODS) or gang_of_workload(workload)
            if is_true(workload, names.CONDITION_ADMITTED) and not _is_leaving(workload) and not waits:
                yield f"pod {pod['metadata']['name']} is gated although {subject} is admitted"


def _is_leaving(workload: Object) -> bool:
    return is_true(workload, names.CONDITION_EVICTED)


def groups_run_whole(world: World) -> Breaches:
    """A group has no more pods than its Workload; an admitted group without missing pods has exactly as many."""
    members: defaultdict[str, list[Object]] = defaultdict(list)
    for pod in world.objects(PODS):
        if group_of(pod) and _phase(pod) != "Failed" and not pod["metadata"].get("deletionTimestamp"):
            members[group_of(pod)].append(pod)
    for workload in world.objects(WORKLOADS):
        name, wanted = workload["metadata"]["name"], sum(p["count"] for p in workload["spec"]["podSets"])
        if name not in members or is_true(workload, names.CONDITION_FINISHED):
            continue
        if len(members[name]) > wanted:
            yield f"group {name} is to have {wanted} pods and has {len(members[name])}"
        waits = is_true(workload, names.CONDITION_WAITING_FOR_REPLACEMENT_PODS) or any(map(_is_fast, members[name]))
        if holds(workload) and not _is_leaving(workload) and not waits and len(members[name]) < wanted:
            yield f"group {name} is admitted with {wanted} pods and has {len(members[name])}"


def _is_fast(pod: Object) -> bool:
    return names.POD_GROUP_FAST_ADMISSION_ANNOTATION in (pod["metadata"].get("annotations") or {})


def job_sets_run_exactly_when_admitted(world: World) -> Breaches:
    """A queued JobSet is suspended and without pods unless its Workload is admitted; then it is not suspended."""
    book = _Book(world)
    alive = {book.subject_of(pod) for pod in world.objects(PODS) if not is_over(pod)}
    for job_set in world.api.every(JOB_SETS):
        name = job_set["metadata"]["name"]
        if is_true(job_set, "Completed") or is_true(job_set, "Failed"):
            continue
        admitted = any(holds(w) and not _is_leaving(w) for w in book.workloads[name])
        if admitted == bool(job_set["spec"].get("suspend")):
            yield f"JobSet {name} is {'' if admitted else 'not '}admitted and {'' if admitted else 'not '}suspended"
        if not admitted and name in alive:
            yield f"JobSet {name} has pods without being admitted"


def nobody_is_stuck(world: World) -> Breaches:
    """Deleted objects are removed, except pods whose group waits for their replacements (a group with fast admission
    does not report that), and Workloads of deleted group objects whose pods run; an ended single pod has no finalizer of
    ours.
    """
    fast = {group_of(pod) for pod in world.objects(PODS) if _is_fast(pod)}
    waiting = {
        gang_of_workload(workload) or workload["metadata"]["name"]
        for workload in world.objects(WORKLOADS)
        if is_true(workload, names.CONDITION_WAITING_FOR_REPLACEMENT_PODS)
        or (workload["metadata"]["name"] in fast and not is_true(workload, names.CONDITION_FINISHED))
    }
    runs_for = {
        (pod["metadata"].get("annotations") or {}).get(names.WORKLOAD_ANNOTATION)
        for pod in world.objects(PODS)
        if not is_over(pod)
    }
    for kind in (WORKLOADS, *_OWNERS):
        for obj in world.api.every(kind):
            left = kind == WORKLOADS and gang_of_workload(obj) and obj["metadata"]["name"] in runs_for
            if obj["metadata"].get("deletionTimestamp") and group_of(obj) not in waiting and not left:
                yield f"{kind.plural} {obj['metadata']['name']} is to go and does not: {obj['metadata'].get('finalizers')}"
    for pod in world.objects(PODS):
        held = names.MANAGED_POD_FINALIZER in (pod["metadata"].get("finalizers") or ())
        if held and _phase(pod) in ("Succeeded", "Failed") and (is_extra(pod) or not group_of(pod)):
            yield f"pod {pod['metadata']['name']} has ended and is held"


def workloads_have_owners(world: World) -> Breaches:
    """Every unfinished Workload has an existing owner."""
    there = {obj["metadata"]["uid"] for kind in _OWNERS for obj in world.api.every(kind)} | {
        obj["metadata"]["uid"] for obj in group_objects(world)
    }
    for workload in world.objects(WORKLOADS):
        owners = {owner["uid"] for owner in workload["metadata"].get("ownerReferences") or ()}
        left = gang_of_workload(workload) and workload["metadata"].get("deletionTimestamp")  # its last pods run
        if not is_true(workload, names.CONDITION_FINISHED) and there.isdisjoint(owners) and not left:
            yield f"Workload {workload['metadata']['name']} is for nobody"


AT_REST: tuple[Invariant, ...] = (
    *invariants.AT_REST,
    who_is_held_knows_why,
    groups_run_whole,
    job_sets_run_exactly_when_admitted,
    nobody_is_stuck,
    workloads_have_owners,
)


def left_of(world: World, gone: list[str]) -> Iterator[str]:
    """Yield remaining objects that should be deleted."""
    book = _Book(world)
    yield from (f"{name} is gone and has a Workload" for name in gone if book.workloads[name])
    for pod in world.objects(PODS):
        app = (pod["metadata"].get("labels") or {}).get("app", "")
        if book.subject_of(pod) in gone or app in gone:
            yield f"pod {pod['metadata']['name']} is left of what is gone"
