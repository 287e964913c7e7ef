"""Invariants of gangs with a quorum, besides those of all kinds.  All is read from objects."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kqueue.api import gang_names, names
from kqueue.sandbox.api import PODS, Object
from tests.sim import kinds_invariants
from tests.sim.api_client import NONE
from tests.sim.invariants import has_gate, is_over
from tests.sim.kinds import POD_GROUPS, base_of, gang_of, gang_of_workload, is_extra
from tests.sim.objects import WORKLOADS
from tests.sim.reading import Breaches, Invariant, holds
from tests.sim.world import World, is_true, subject_of

_MOST_WAITING = 16


@dataclass(slots=True)
class _Gang:
    """One gang as the API server has it."""

    name: str
    pods: list[Object] = field(default_factory=list)
    base: Object | None = None
    """The Workload of the quorum; None: there is none."""
    group: Object | None = None
    """The PodGroup; None: there is none."""

    @property
    def quorums(self) -> set[int]:
        """The quorums that members or the PodGroup name."""
        if self.group is not None:
            return {int(self.group["spec"]["minMember"])}
        label = gang_names.COSCHEDULING_MIN_AVAILABLE_LABEL
        return {int(pod["metadata"]["labels"][label]) for pod in self.pods if label in pod["metadata"]["labels"]}

    @property
    def present(self) -> list[Object]:
        """Members that have neither failed nor are being deleted."""
        return [pod for pod in self.pods if _phase(pod) == "Succeeded" or not is_over(pod)]

    @property
    def going(self) -> int:
        """Members that run or have succeeded."""
        return sum(_phase(pod) in ("Running", "Succeeded") for pod in self.present)


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase", ""))


def _is_gated(pod: Object) -> bool:
    return has_gate(pod, names.ADMISSION_GATE)


def _gangs(world: World) -> list[_Gang]:
    found: defaultdict[str, _Gang] = defaultdict(lambda: _Gang(""))
    for pod in world.objects(PODS):
        if gang_of(pod):
            found.setdefault(gang_of(pod), _Gang(gang_of(pod))).pods.append(pod)
    for workload in world.objects(WORKLOADS):
        gang = gang_of_workload(workload)
        if gang:
            found.setdefault(gang, _Gang(gang)).base = workload
    for group in world.api.every(POD_GROUPS):
        found.setdefault(group["metadata"]["name"], _Gang(group["metadata"]["name"])).group = group
    return list(found.values())


def _started(workload: Object | None) -> bool:
    """Whether the Workload is admitted and neither evicted nor finished."""
    out = (names.CONDITION_EVICTED, names.CONDITION_FINISHED)
    return is_true(workload, names.CONDITION_ADMITTED) and not any(is_true(workload, kind) for kind in out)


def _counts(workload: Object) -> dict[str, int]:
    return {pod_set["name"]: int(pod_set["count"]) for pod_set in workload["spec"]["podSets"]}


def _role(pod: Object) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(names.ROLE_HASH_ANNOTATION, ""))


def name_in_order(workload: Object) -> str:
    """Return the name by which the order of Workloads is checked."""
    return subject_of(workload)


# --- at any moment -----------------------------------------------------------------------------------------------------


def counts_sum_to_the_quorum(world: World) -> Breaches:
    """The counts of a gang's Workload sum to the quorum that its members name."""
    for gang in _gangs(world):
        if gang.base is None or not gang.quorums:
            continue
        total = sum(_counts(gang.base).values())
        if total not in gang.quorums:
            yield f"the Workload of gang {gang.name} counts {total} pods, and its members name {gang.quorums}"


def extras_wait_in_small_numbers(world: World) -> Breaches:
    """At most 16 members beyond a quorum wait in a queue at a time."""
    for gang in _gangs(world):
        waiting = sum(is_extra(pod) and _is_gated(pod) and not is_over(pod) for pod in gang.pods)
        if waiting > _MOST_WAITING:
            yield f"{waiting} members beyond the quorum of gang {gang.name} wait"


def is_complete(world: World, workload: Object) -> Breaches:
    """(At an admission.)  A gang's Workload is admitted only if as many members as its quorum are there.

    Members that ended or were deleted within the horizon may count.
    """
    name = gang_of_workload(workload)
    if not name or world.faults != NONE:
        return
    (gang,) = [gang for gang in _gangs(world) if gang.name == name]
    since = world.clock.now() - timedelta(seconds=world.horizon + 1)
    there = sum(_phase(pod) != "Failed" and not _gone_before(pod, since) for pod in gang.pods)
    wanted = sum(_counts(workload).values())
    if there < wanted:
        yield f"gang {name} was admitted with {there} of {wanted} members"


def _gone_before(pod: Object, moment: datetime) -> bool:
    deleted = pod["metadata"].get("deletionTimestamp")
    return deleted is not None and _phase(pod) != "Succeeded" and datetime.fromisoformat(deleted) < moment


def follows_its_base(world: World, workload: Object) -> Breaches:
    """(At an admission.)  A member beyond a quorum is admitted only after the quorum was, and not after its eviction."""
    if not base_of(workload) or world.faults != NONE:
        return
    base = world.find(WORKLOADS, base_of(workload))
    if base is not None and not _started(base) and not is_true(base, names.CONDITION_FINISHED):
        yield f"{workload['metadata']['name']} was admitted beyond the quorum of {base_of(workload)}, which was not"


ON_ADMISSION = (is_complete, follows_its_base)
AT_ANY_MOMENT: tuple[Invariant, ...] = (
    *kinds_invariants.AT_ANY_MOMENT,
    counts_sum_to_the_quorum,
    extras_wait_in_small_numbers,
)
ALWAYS: tuple[Invariant, ...] = (
    *kinds_invariants.ALWAYS,
    counts_sum_to_the_quorum,
    extras_wait_in_small_numbers,
)


# --- when all is quiet -------------------------------------------------------------------------------------------------


def a_part_of_a_quorum_runs_only_after_a_loss(world: World) -> Breaches:
    """Never do some members of a quorum run without the others, unless a member is lost or has no node yet."""
    for gang in _gangs(world):
        if gang.base is None:
            alive = [pod["metadata"]["name"] for pod in gang.pods if _phase(pod) == "Running" and not is_extra(pod)]
            if alive:
                yield f"{alive} of gang {gang.name} run, and nothing counts them"
            continue
        wanted = sum(_counts(gang.base).values())
        runs = any(_phase(pod) == "Running" for pod in gang.present)
        if is_true(gang.base, names.CONDITION_FINISHED) or not runs or gang.going >= wanted:
            continue
        lost = is_true(gang.base, names.CONDITION_WAITING_FOR_REPLACEMENT_PODS)
        unbound = any(not _is_gated(pod) and not pod["spec"].get("nodeName") for pod in gang.present)
        if not lost and not unbound:
            yield f"{gang.going} of the quorum of {wanted} of gang {gang.name} run, and no member is lost"


def extras_follow_their_base(world: World) -> Breaches:
    """No member beyond a quorum is queued while the Workload of the quorum has no quota and has not finished."""
    there = {workload["metadata"]["name"]: workload for workload in world.objects(WORKLOADS)}
    waiting = {gang.name: any(not is_extra(pod) and not is_over(pod) for pod in gang.pods) for gang in _gangs(world)}
    for workload in there.values():
        if not base_of(workload) or is_true(workload, names.CONDITION_FINISHED):
            continue
        base, name = there.get(base_of(workload)), workload["metadata"]["name"]
        gang = gang_of_workload(base) if base is not None else ""
        if base is None:
            if any(waiting.get(each) for each in _gangs_of(world, workload)):
                yield f"{name} is of a member beyond the quorum of {base_of(workload)}, which does not exist"
        elif not is_true(base, names.CONDITION_FINISHED) and not _started(base):
            yield f"{name} is of a member beyond the quorum of gang {gang}, which has no quota"


def _gangs_of(world: World, workload: Object) -> Iterator[str]:
    owners = {owner["uid"] for owner in workload["metadata"].get("ownerReferences") or ()}
    return (gang_of(pod) for pod in world.objects(PODS) if pod["metadata"]["uid"] in owners)


def incomplete_gangs_hold_nothing(world: World) -> Breaches:
    """A gang with fewer members than its quorum has no quota, unless it has started and waits for replacements."""
    for gang in _gangs(world):
        if gang.base is None or not holds(gang.base) or is_true(gang.base, names.CONDITION_EVICTED):
            continue
        wanted, present = sum(_counts(gang.base).values()), len(gang.present)
        if present < wanted and not is_true(gang.base, names.CONDITION_WAITING_FOR_REPLACEMENT_PODS):
            yield f"gang {gang.name} holds quota with {present} of {wanted} members"


def nobody_waits_where_there_is_room(world: World) -> Breaches:
    """No member is gated, in the quorum or unreserved beyond it, while its role has an admitted place without a pod."""
    for gang in _gangs(world):
        if gang.base is None or not _started(gang.base):
            continue
        taken = Counter(_role(pod) for pod in gang.present if not is_extra(pod) and not _is_gated(pod))
        room = {role: count - taken[role] for role, count in _counts(gang.base).items()}
        for pod in gang.present:
            if room.get(_role(pod), 0) > 0 and _is_gated(pod) and not _has_quota(world, pod):
                yield f"pod {pod['metadata']['name']} is gated, and its role in gang {gang.name} has room"


def _has_quota(world: World, pod: Object) -> bool:
    return any(
        is_true(workload, names.CONDITION_QUOTA_RESERVED)
        for workload in world.objects(WORKLOADS)
        if base_of(workload) and subject_of(workload) == pod["metadata"]["name"]
    )


def who_waits_beyond_a_quorum_is_queued(world: World) -> Breaches:
    """Once a quorum runs, its further members are queued, oldest first, as far as so many may wait."""
    for gang in _gangs(world):
        if gang.base is None or not (_started(gang.base) and gang.going >= sum(_counts(gang.base).values())):
            continue
        gated = [pod for pod in gang.present if _is_gated(pod)]
        marked = [pod for pod in gated if is_extra(pod)]
        if len(marked) < min(_MOST_WAITING, len(gated)):
            yield f"{len(gated)} members of gang {gang.name} wait beyond its quorum, and {len(marked)} are queued"


def group_objects_tell_the_truth(world: World) -> Breaches:
    """Phase and counts in the status of each PodGroup are those of its members and its Workload."""
    for gang in _gangs(world):
        if gang.group is None or not (gang.pods or gang.base is not None):
            continue
        status = gang.group.get("status") or {}
        counts = {
            "running": sum(_phase(pod) == "Running" and not is_over(pod) for pod in gang.pods),
            "succeeded": sum(map(_succeeded, gang.pods)),
            "failed": sum(_phase(pod) == "Failed" for pod in gang.pods),
            "scheduled": sum(bool(pod["spec"].get("nodeName")) for pod in gang.present),
        }
        told = {name: int(status.get(name) or 0) for name in counts}
        if told != counts:
            yield f"PodGroup {gang.name} tells {told}, and its members count to {counts}"
        phases = _phases(gang, counts, str(status.get("phase", "")))
        if status.get("phase", "") not in phases:
            yield f"PodGroup {gang.name} is {status.get('phase')}, not {' or '.join(sorted(phases))}"


def _succeeded(pod: Object) -> bool:
    return _phase(pod) == "Succeeded" and not is_true(pod, names.CONDITION_POD_TERMINATION_TARGET)


def _phases(gang: _Gang, counts: dict[str, int], before: str) -> set[str]:
    """Return the phases that a gang may have, in which it stays while nothing happens."""
    wanted = sum(_counts(gang.base).values()) if gang.base is not None else max(gang.quorums)
    if before == "Finished" or counts["succeeded"] >= max(wanted, len(gang.present)):
        return {"Finished"}
    if not is_true(gang.base, names.CONDITION_ADMITTED) or is_true(gang.base, names.CONDITION_EVICTED):
        return {"Pending"}
    base = [pod for pod in gang.pods if not is_extra(pod)]
    there = Counter(_role(pod) for pod in base if pod in gang.present)
    failed = {_role(pod) for pod in base if _phase(pod) == "Failed"}
    if any(there[role] < count and role in failed for role, count in _counts(gang.base or {}).items()):
        return {"Failed"}
    return {"Running"} if counts["running"] + counts["succeeded"] >= wanted else {"Scheduling", "Unknown"}


OF_GANGS: tuple[Invariant, ...] = (
    a_part_of_a_quorum_runs_only_after_a_loss,
    extras_follow_their_base,
    incomplete_gangs_hold_nothing,
    nobody_waits_where_there_is_room,
    who_waits_beyond_a_quorum_is_queued,
    group_objects_tell_the_truth,
)
AT_REST: tuple[Invariant, ...] = (*kinds_invariants.AT_REST, *OF_GANGS)
