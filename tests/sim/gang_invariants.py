"""Invariants of gangs with a quorum, besides those of all kinds.  All is read from objects."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kqueue.api import gang_names, names
from kqueue.controllers.gang_status import EVENT_CONTESTED
from kqueue.sandbox.api import EVENTS, PODS, Object
from tests.sim import kinds_invariants
from tests.sim.api_client import NONE
from tests.sim.invariants import has_gate, is_over
from tests.sim.kinds import (
    BATCHES,
    KUBERNETES_GROUPS,
    VOLCANO_GROUPS,
    base_of,
    controller_of,
    gang_of,
    gang_of_workload,
    group_objects,
    is_extra,
    is_of_kind,
    quorum_in,
)
from tests.sim.objects import WORKLOADS
from tests.sim.reading import Breaches, Invariant, holds
from tests.sim.world import World, condition, is_true, subject_of

_MOST_WAITING = 16
_SOON = 45.0
"""Seconds, more than the longest downtime of a controller."""
_SILENT = 600.0
"""Seconds for which the status of a PodGroup is left to another controller that goes on writing it."""


@dataclass(slots=True)
class _Gang:
    """One gang as the API server has it."""

    name: str
    pods: list[Object] = field(default_factory=list)
    base: Object | None = None
    """The Workload of the quorum; None: there is none."""
    group: Object | None = None
    """The group object; None: there is none."""

    @property
    def quorums(self) -> set[int]:
        """The quorums that members or the group object name."""
        if self.group is not None:
            return {quorum_in(self.group["spec"])}
        label = gang_names.COSCHEDULING_MIN_AVAILABLE_LABEL
        return {int(pod["metadata"]["labels"][label]) for pod in self.pods if label in pod["metadata"]["labels"]}

    @property
    def present(self) -> list[Object]:
        """Members that have neither failed nor are being deleted."""
        return [pod for pod in self.pods if _phase(pod) == "Succeeded" or not is_over(pod)]

    @property
    def is_left(self) -> bool:
        """Whether its group object was deleted, so that its members run on to their end, and none is started."""
        return self.group is None and self.base is not None and bool(controller_of(self.base))

    @property
    def is_made(self) -> bool:
        """Whether kqueue makes its pods, once its Workload is admitted."""
        return is_of_kind(self.group, BATCHES)

    @property
    def going(self) -> int:
        """Members that run or have succeeded."""
        return sum(_phase(pod) in ("Running", "Succeeded") for pod in self.present)


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase", ""))


def _is_gated(pod: Object) -> bool:
    return has_gate(pod, names.ADMISSION_GATE)


def _gangs(world: World) -> list[_Gang]:
    """Return all gangs; of one whose group object was created again, what belongs to the present object."""
    found: defaultdict[str, _Gang] = defaultdict(lambda: _Gang(""))
    for group in group_objects(world):
        found[group["metadata"]["name"]] = _Gang(group["metadata"]["name"], group=group)
    for workload in world.objects(WORKLOADS):
        name = gang_of_workload(workload)
        if name and _is_of_its_object(found.setdefault(name, _Gang(name)), controller_of(workload)):
            found[name].base = workload
    for pod in world.objects(PODS):
        name = gang_of(pod)
        if name and _is_of_its_object(found.setdefault(name, _Gang(name)), _started_for(world, pod)):
            found[name].pods.append(pod)
    return list(found.values())


def _is_of_its_object(gang: _Gang, owner: str) -> bool:
    """Whether what has this owner belongs to the present group object; the owner may not be known."""
    return gang.group is None or not owner or owner == gang.group["metadata"]["uid"]


def _started_for(world: World, pod: Object) -> str:
    """Return the UID of the group object for which the pod was started; empty: it was not, or for none."""
    started = (pod["metadata"].get("annotations") or {}).get(names.WORKLOAD_ANNOTATION, "")
    return world.history.started_for(started) if started else ""


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
    """The counts of a gang's Workload sum to the quorum that its members or its object name.

    Another quorum counts from the next admission on: until then, or as long as members are missing, one that was
    named before may stay.
    """
    for gang in _gangs(world):
        if gang.base is None or not (gang.quorums or gang.is_left):
            continue
        total, named = sum(_counts(gang.base).values()), gang.quorums | _named_before(world, gang)
        if total not in named:
            yield f"the Workload of gang {gang.name} counts {total} pods, and its members name {named}"


def _named_before(world: World, gang: _Gang) -> set[int]:
    """Return quorums that may still count although the group object has another one now."""
    if gang.base is None or not controller_of(gang.base):
        return set()
    fixed = holds(gang.base) or is_true(gang.base, names.CONDITION_FINISHED) or _is_on_hold(gang.base)
    since = float("-inf") if fixed or gang.is_left else world.clock.monotonic() - world.horizon - _SOON
    told = [each for each in world.history.wishes[gang.name].since(since) if each is not None]
    return {quorum_in(spec) for uid, spec in told if uid == controller_of(gang.base)}


def _is_on_hold(workload: Object) -> bool:
    return (condition(workload, names.CONDITION_QUOTA_RESERVED) or {}).get("reason") == names.REASON_ON_HOLD


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
    if gang.is_made:
        return
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
        if gang.is_left:
            continue
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
        if gang.is_left or is_true(gang.base, names.CONDITION_WAITING_FOR_REPLACEMENT_PODS):
            continue
        if present < wanted:
            yield f"gang {gang.name} holds quota with {present} of {wanted} members"


def nobody_waits_where_there_is_room(world: World) -> Breaches:
    """No member is gated, in the quorum or unreserved beyond it, while its role has an admitted place without a pod."""
    for gang in _gangs(world):
        if gang.base is None or gang.is_left or not _started(gang.base):
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
        if (
            gang.base is None
            or gang.is_left
            or not (_started(gang.base) and gang.going >= sum(_counts(gang.base).values()))
        ):
            continue
        gated = [pod for pod in gang.present if _is_gated(pod)]
        marked = [pod for pod in gated if is_extra(pod)]
        if len(marked) < min(_MOST_WAITING, len(gated)):
            yield f"{len(gated)} members of gang {gang.name} wait beyond its quorum, and {len(marked)} are queued"


_VOLCANO = {"Scheduling": "Inqueue", "Failed": "Unknown", "Finished": "Completed"}
"""Phases that have another name in Volcano's PodGroups."""


def group_objects_tell_the_truth(world: World) -> Breaches:
    """Phase and counts in the status of each group object are those of its members and its Workload.

    The status of Kubernetes' PodGroups is another controller's, and so is one that others go on writing.
    """
    for gang in _gangs(world):
        if gang.group is None or is_of_kind(gang.group, KUBERNETES_GROUPS) or _is_contested(world, gang):
            continue
        if not (gang.pods or gang.base is not None):
            continue
        status = gang.group.get("status") or {}
        counts = {
            "running": sum(_phase(pod) == "Running" and not is_over(pod) for pod in gang.pods),
            "succeeded": sum(map(_succeeded, gang.pods)),
            "failed": sum(_phase(pod) == "Failed" for pod in gang.pods),
        }
        if not is_of_kind(gang.group, VOLCANO_GROUPS):
            counts["scheduled"] = sum(bool(pod["spec"].get("nodeName")) for pod in gang.present)
        told = {name: int(status.get(name) or 0) for name in counts}
        if told != counts:
            yield f"the object of gang {gang.name} tells {told}, and its members count to {counts}"
        phases = _phases_of_batch(gang, counts) if gang.is_made else _phases(gang, counts)
        if status.get("phase", "") not in phases:
            yield f"the object of gang {gang.name} is {status.get('phase')}, not {' or '.join(sorted(phases))}"


def statuses_of_others_are_left_alone(world: World) -> Breaches:
    """The status of Kubernetes' own PodGroups is never written."""
    path = f"/{KUBERNETES_GROUPS.group}/{KUBERNETES_GROUPS.version}/"
    for client in world.clients:
        yield from (f"was written: {write}" for write in client.writes if path in write and "/status" in write)


def _is_contested(world: World, gang: _Gang) -> bool:
    """Whether kqueue leaves the status alone for a while, because another controller goes on writing it."""
    for event in world.objects(EVENTS):
        if event["reason"] == EVENT_CONTESTED and event["regarding"]["name"] == gang.name:
            last = (event.get("series") or {}).get("lastObservedTime") or event["eventTime"]
            if (world.clock.now() - datetime.fromisoformat(last)).total_seconds() <= _SILENT + 1:
                return True
    return False


def _succeeded(pod: Object) -> bool:
    return _phase(pod) == "Succeeded" and not is_true(pod, names.CONDITION_POD_TERMINATION_TARGET)


def _phases(gang: _Gang, counts: dict[str, int]) -> set[str]:
    """Return the phases that a gang may have, in which it stays while nothing happens."""
    found = _common_phases(gang, counts)
    return {_VOLCANO.get(each, each) for each in found} if is_of_kind(gang.group, VOLCANO_GROUPS) else found


def _common_phases(gang: _Gang, counts: dict[str, int]) -> set[str]:
    wanted = sum(_counts(gang.base).values()) if gang.base is not None else max(gang.quorums)
    before = ((gang.group or {}).get("status") or {}).get("phase")
    if before in ("Finished", "Completed") or counts["succeeded"] >= max(wanted, len(gang.present)):
        return {"Finished"}
    if not is_true(gang.base, names.CONDITION_ADMITTED) or is_true(gang.base, names.CONDITION_EVICTED):
        return {"Pending"}
    base = [pod for pod in gang.pods if not is_extra(pod)]
    there = Counter(_role(pod) for pod in base if pod in gang.present)
    failed = {_role(pod) for pod in base if _phase(pod) == "Failed"}
    if any(there[role] < count and role in failed for role, count in _counts(gang.base or {}).items()):
        return {"Failed"}
    return {"Running"} if counts["running"] + counts["succeeded"] >= wanted else {"Scheduling", "Unknown"}


def _phases_of_batch(gang: _Gang, counts: dict[str, int]) -> set[str]:
    """Return the phases that a BatchProcess may have."""
    if is_true(gang.group, "Complete") or is_true(gang.group, "Failed"):
        return {"Finished"} if is_true(gang.group, "Complete") else {"Failed"}
    if gang.group is not None and gang.group["spec"].get("suspend"):
        return {"Suspended"}
    found = _common_phases(gang, counts)
    if found == {"Finished"}:  # its success policy waits for pods that are gated
        return {"Running"}
    return {*found, "Scheduled"} if "Scheduling" in found else found


OF_GANGS: tuple[Invariant, ...] = (
    a_part_of_a_quorum_runs_only_after_a_loss,
    extras_follow_their_base,
    incomplete_gangs_hold_nothing,
    nobody_waits_where_there_is_room,
    who_waits_beyond_a_quorum_is_queued,
    group_objects_tell_the_truth,
    statuses_of_others_are_left_alone,
)
AT_REST: tuple[Invariant, ...] = (*kinds_invariants.AT_REST, *OF_GANGS)
