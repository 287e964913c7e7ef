"""The judge of a campaign: reads the history of API objects in the order of their revisions and names each breach.

Rules of the first kind hold at every revision: quota, hosts, one admission per job.  Rules of the second kind allow a
state for `patience` seconds, because hand-overs and busy machines take time: a gang is whole, a job that could start
starts.  Rules of the third kind hold at rest: every job has ended, and no ClusterQueue reports a reservation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.chaos import world as w
from tests.chaos.world import Change, Object, World
from tests.integration.road import has, hosts_of
from tests.sim.quota_tree import Column

STUCK = "stuck"
"""The rule that counts as a job that waits; all other rules count as breaches."""
QUOTA, HOST, PARTIAL, PHANTOM, TWICE, FAILED = (
    "quota exceeded",
    "host exceeded",
    "gang partly started",
    "reservation without a Workload",
    "admitted twice",
    "job failed",
)
NO_LEADER = "nobody leads"
"""Found by the campaign itself, from the lease."""
RULES = (STUCK, QUOTA, HOST, PARTIAL, PHANTOM, TWICE, FAILED, NO_LEADER)
PATIENCE = 60.0
"""Seconds that a state may last which ends by itself: several leases of the campaign on a busy machine."""
_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """One thing that must not be."""

    rule: str
    """One of `RULES`."""
    subject: str
    sentence: str
    at: float
    """Seconds on the clock of the audit."""
    revision: int
    """The revision at which it was found."""


@dataclass(slots=True)
class Totals:
    """How much the judge has seen."""

    changes: int = 0
    admissions: int = 0
    evictions: int = 0
    completed: int = 0


class Judge:
    """Takes changes in the order of their revisions; `breaches` grows."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self.world = World()
        self.breaches: list[Breach] = []
        self.totals = Totals()
        self._patience = patience
        self._known: set[tuple[str, str]] = set()
        self._since: dict[tuple[str, str], float] = {}
        self._now, self._looked, self._revision = 0.0, 0.0, 0

    def take(self, change: Change) -> None:
        """One more change.

        Raises:
            ValueError: its revision is not newer than the one before.
        """
        if change.revision <= self._revision:
            raise ValueError(f"revision {change.revision} comes after {self._revision}")
        self._revision, self._now = change.revision, max(self._now, change.at)
        before = self.world.take(change)
        self._count(change, before)
        for rule, check in _AT_EACH_CHANGE.get(change.kind, ()):
            for subject, sentence in check(self.world, before, change):
                self._report(rule, subject, sentence)
        if self._now - self._looked >= _LOOK_SECONDS:
            self.look(self._now)

    def look(self, now: float) -> None:
        """Name the states that have lasted longer than the patience."""
        self._now = self._looked = max(self._now, now)
        found = {(rule, subject): sentence for rule, subject, sentence in _lasting(self.world)}
        self._since = {key: self._since.get(key, self._now) for key in found}
        for key, since in self._since.items():
            if self._now - since > self._patience:
                self._report(*key, f"{found[key]}, for {self._now - since:.0f} s")

    def unsettled(self) -> list[tuple[str, str, str]]:
        """(rule, subject, sentence) for what is not over yet: jobs without an end, reservations without a Workload."""
        return [*_unfinished(self.world), *_phantoms(self.world)]

    def at_rest(self, now: float) -> None:
        """All that could end had time to: what is left is a breach."""
        self.look(now)
        for rule, subject, sentence in self.unsettled():
            self._report(rule, subject, f"at rest: {sentence}")
        for subject, sentence in _ran_again(self.world):
            self._report(TWICE, subject, sentence)

    def _report(self, rule: str, subject: str, sentence: str) -> None:
        if (rule, subject) not in self._known:
            self._known.add((rule, subject))
            self.breaches.append(
                Breach(rule=rule, subject=subject, sentence=sentence, at=self._now, revision=self._revision)
            )

    def _count(self, change: Change, before: Object | None) -> None:
        totals, now = self.totals, None if change.deleted else change.obj
        totals.changes += 1
        if change.kind == "Workload" and now is not None:
            totals.admissions += bool(w.admission(now)) and not (before and w.admission(before))
            totals.evictions += has(now, "Evicted") and not (before and has(before, "Evicted"))
        if change.kind == "Job" and now is not None:
            totals.completed += has(now, "Complete") and not (before and has(before, "Complete"))


Found = Iterator[tuple[str, str]]
"""(subject, sentence) of each breach of one rule."""
Check = Callable[[World, Object | None, Change], Found]

# --- at every revision


def _quota_of_reservations(world: World, _: Object | None, __: Change) -> Found:
    """No ClusterQueue and no cohort has given away more than its quota."""
    yield from _overruns(world, world.reserved(), "by reservations")


def _quota_of_pods(world: World, _: Object | None, __: Change) -> Found:
    """No running pods take more than quota, and none runs without an admission."""
    used, strays = world.used_by_pods()
    yield from _overruns(world, used, "by running pods")
    for pod in strays:
        yield w.label(pod), "the pod runs, and the Workload of its Job has no admission"


def _overruns(world: World, used: dict[str, Counter[Column]], how: str) -> Found:
    for queue, columns in used.items():
        others = {each: taken for each, taken in used.items() if each != queue}
        for column, taken in columns.items():
            if taken and (over := world.tree.overrun(queue, column, taken, others)) is not None:
                yield queue, f"{how}: {over}"


def _hosts_of_reservations(world: World, _: Object | None, __: Change) -> Found:
    """No host is given to more pods than it has room for."""
    for host, left in world.free().items():
        for resource, amount in left.items():
            if amount < 0:
                yield host, f"admissions take {-amount} of {resource} beyond what the host has"


def _hosts_of_pods(world: World, _: Object | None, __: Change) -> Found:
    """No host runs more pods than it has room for."""
    nodes = {w.name(node): w.allocatable(node) for node in world.all("Node")}
    by_job = {w.owner(workload): workload for workload in world.all("Workload")}
    for pod in world.running_pods():
        if (left := nodes.get(pod["spec"]["nodeName"])) is not None and w.owner(pod) in by_job:
            left.subtract(w.requests(by_job[w.owner(pod)]))
    for host, left in nodes.items():
        for resource, amount in left.items():
            if amount < 0:
                yield host, f"running pods take {-amount} of {resource} beyond what the host has"


def _one_admission(world: World, before: Object | None, change: Change) -> Found:
    """A job has one Workload that holds quota, and an admission is replaced only after it was given back."""
    now = change.obj
    if change.deleted or not w.holds(now):
        if before is not None and has(before, "Finished") and not has(now, "Finished") and not change.deleted:
            yield w.label(now), "the Workload was finished and is not finished any more"
        return
    rivals = [each for each in world.holders() if w.owner(each) == w.owner(now)]
    if w.owner(now) and len(rivals) > 1:
        yield w.label(now), f"{len(rivals)} Workloads of one Job hold quota: {', '.join(map(w.label, rivals))}"
    if before is None or not w.holds(before) or _has_lost_nodes(now):
        return
    if _essence(before) != _essence(now):
        yield w.label(now), "the admission was replaced by another one without being given back"


def _one_run(world: World, _: Object | None, change: Change) -> Found:
    """No more pods of a job run than were admitted and have not succeeded."""
    for workload in world.holders():
        if w.owner(workload) == w.owner(change.obj):
            running, left = world.running(workload), world.pods_left(workload)
            if running > left and not _has_lost_nodes(workload):
                done, count = len(world.done(workload)), w.admitted_pods(workload)
                yield w.label(workload), f"{running} pods run and {done} have succeeded, and {count} were admitted"


def _no_failure(_: World, __: Object | None, change: Change) -> Found:
    """Jobs of the load never fail by themselves."""
    if not change.deleted and has(change.obj, "Failed"):
        yield w.label(change.obj), "the Job has failed"


_AT_EACH_CHANGE: dict[str, tuple[tuple[str, Check], ...]] = {
    "Workload": (
        (QUOTA, _quota_of_reservations),
        (QUOTA, _quota_of_pods),
        (HOST, _hosts_of_reservations),
        (TWICE, _one_admission),
    ),
    "Pod": ((QUOTA, _quota_of_pods), (HOST, _hosts_of_pods), (TWICE, _one_run)),
    "Job": ((FAILED, _no_failure),),
}


def _essence(workload: Object) -> tuple[object, ...]:
    """What an admission says: queue, flavors, counts and hosts."""
    given = w.admission(workload)
    flavors = tuple(tuple(sorted(each.get("flavors", {}).items())) for each in given["podSetAssignments"])
    return given["clusterQueue"], flavors, w.admitted_pods(workload), tuple(sorted(hosts_of(workload).items()))


def _has_lost_nodes(workload: Object) -> bool:
    """Whether hosts of the Workload failed: then they are replaced within the admission."""
    status = workload.get("status") or {}
    return bool(status.get("nodeFailures") or status.get("unhealthyNodes"))


# --- what may last for a while


def _lasting(world: World) -> Iterator[tuple[str, str, str]]:
    """(rule, subject, sentence) of all that is wrong if it lasts."""
    room = None
    for workload in world.all("Workload"):
        if has(workload, "Finished"):
            continue
        if w.holds(workload):
            yield from _not_whole(world, workload)
        else:
            room = room or (world.reserved(), world.free())
            yield from _waits_for_nothing(world, workload, *room)
    yield from _phantoms(world)


def _not_whole(world: World, workload: Object) -> Iterator[tuple[str, str, str]]:
    if has(workload, "Evicted"):
        yield STUCK, w.label(workload), "the Workload is evicted and has not given its quota back"
        return
    running, left, done = world.running(workload), world.pods_left(workload), len(world.done(workload))
    if running < left and running + done:
        yield PARTIAL, w.label(workload), f"{running} of {left} pods are bound, {done} have succeeded"
    elif running < left:
        yield STUCK, w.label(workload), "the Workload is admitted and none of its pods is bound"


def _waits_for_nothing(
    world: World, workload: Object, reserved: dict[str, Counter[Column]], free: dict[str, Counter[str]]
) -> Iterator[tuple[str, str, str]]:
    """A Workload that waits although quota and hosts are free."""
    queue = next((each for each in world.all("ClusterQueue") if w.name(each) == world.cluster_queue_of(workload)), None)
    if queue is None or workload["spec"].get("active") is False or not _hosts_have_room(world, workload, free):
        return
    pods, asked = workload["spec"]["podSets"][0]["count"], w.requests(workload)
    del asked["pods"]  # a resource that no quota of the load covers
    for flavor in w.flavors(queue):
        wanted = {(flavor, resource): each * pods for resource, each in asked.items()}
        if world.tree.fits(w.name(queue), wanted, reserved):
            yield STUCK, w.label(workload), f"{pods} pods wait, and quota and hosts have room for them"
            return


def _hosts_have_room(world: World, workload: Object, free: dict[str, Counter[str]]) -> bool:
    pod_set, asked = workload["spec"]["podSets"][0], w.requests(workload)
    level = (pod_set.get("topologyRequest") or {}).get("required")
    places: Counter[str] = Counter()
    for node in world.all("Node"):
        if (left := free.get(w.name(node))) is not None:
            domain = node["metadata"].get("labels", {}).get(level, "") if level else ""
            places[domain] += max(0, min(left[resource] // each for resource, each in asked.items()))
    return any(room >= pod_set["count"] for room in places.values())


# --- at rest


def _unfinished(world: World) -> Iterator[tuple[str, str, str]]:
    for job in world.all("Job"):
        if not has(job, "Complete") and not has(job, "Failed"):
            yield STUCK, w.label(job), "the Job has not come to its end"


def _phantoms(world: World) -> Iterator[tuple[str, str, str]]:
    """ClusterQueues whose status reports more reservations than Workloads hold."""
    holders = Counter(w.admission(each)["clusterQueue"] for each in world.holders())
    for queue in world.all("ClusterQueue"):
        (count, told), own = w.told_reservations(queue), holders[w.name(queue)]
        if count > own:
            yield PHANTOM, w.name(queue), f"the status reports {count} reserving Workloads, {own} hold quota"
        elif told and not own:
            columns = ", ".join(f"{used} of {resource}" for (_, resource), used in told.items())
            yield PHANTOM, w.name(queue), f"the status reports {columns} as reserved, and no Workload holds quota"


def _ran_again(world: World) -> Found:
    """Jobs that count more pods than they want, or whose pods run after their end."""
    running = Counter(w.owner(pod) for pod in world.running_pods())
    for job in world.all("Job"):
        wanted, done = job["spec"]["completions"], w.counted(job)
        if done > wanted:
            yield w.label(job), f"{done} pods succeeded, and the Job wants {wanted}"
        elif has(job, "Complete") and (left := running[job["metadata"]["uid"]]):
            yield w.label(job), f"the Job is Complete, and {left} of its pods run"
