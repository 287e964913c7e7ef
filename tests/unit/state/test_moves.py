"""What plans of moves keep: claims, hints and turns of moved workloads, and the moves of the last hour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace as changed

from kqueue.api.wire import kueue as wire
from kqueue.api.wire.defragmentation import DefragmentationPlan
from kqueue.core.claims import Claims
from kqueue.core.joint.movable import MoveHistory, MoveLimits
from kqueue.core.joint.move_steps import GoalState, MoveState, PlanSeen
from kqueue.core.quota import FlavorResource
from kqueue.operations.defrag.reading import ClusterObjects, state_of
from kqueue.state.cache import Cache
from kqueue.state.defrag.carrying import CarryLimits, PlanFacts
from kqueue.state.defrag.document import hash_of, plan_object
from kqueue.state.defrag.view import DefragState
from kqueue.state.moves import Moves, followed, limited
from kqueue.state.queue_policy import BEST_EFFORT_FIFO, STRICT_FIFO
from kqueue.state.queues import Queues
from tests.unit.cli.defrag_cluster import GPU, NOW, ago, answered, cluster, ours, workload

pytestmark = pytest.mark.mechanism("2.10")

COLUMN = FlavorResource("gpu", GPU)


@dataclass
class World:
    """Racks a, b and c of the published example, with 10, 6 and 5 free hosts; `u` (10 hosts of b) moves to a."""

    objects: ClusterObjects = field(default_factory=cluster)
    least_gain: int = 0

    def __post_init__(self) -> None:
        found = state_of(self.objects, NOW)
        self.cache: Cache = found.cache
        keys = [f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in self.objects.workloads]
        self.workloads = {key: obj for key in keys if (obj := found.workloads.get(key)) is not None}
        self.queues = Queues(lambda: NOW)
        self.queues.set_cluster_queue("team", BEST_EFFORT_FIFO)
        for namespace in ("team-a", "team-b"):
            self.queues.set_local_queue(f"{namespace}/main", "team")
        self.found = found
        self.moves = Moves(self.cache, self.queues, self.workloads.get, lambda: NOW)
        self.facts = PlanFacts(self.moves, self.state, CarryLimits(moves=MoveLimits(), least_gain=self.least_gain))
        self.moves.goal_claim = self.facts.goal_claim

    def state(self) -> DefragState:
        return replace(self.found, workloads=self.workloads)

    def put(self, obj: dict[str, Any]) -> None:
        """A Workload as the watch brings it."""
        read = msgspec.convert(obj, wire.Workload, strict=False)
        key = f"{read.metadata.namespace}/{read.metadata.name}"
        self.workloads[key] = read
        self.cache.held.on_workload(key, read)

    def wait(self, key: str) -> None:
        """A workload waits in its queue."""
        self.queues.push(self.cache.requests.pending(self.workloads[key], self.cache_order))

    @property
    def cache_order(self) -> Any:
        from kqueue.model import DEFAULT_ORDER

        return DEFAULT_ORDER

    def of(self, plan: DefragmentationPlan) -> PlanSeen:
        return self.facts.of(followed(plan), lambda _workload: 0)


def made(phase: str = "Running", *, approved: bool = True, **move: Any) -> DefragmentationPlan:
    """The plan that moves `u`, in a phase and a state of its move."""
    raw = plan_object(answered(cluster()))
    raw["metadata"]["uid"] = "uid-plan"
    raw["status"]["phase"] = phase
    if approved:
        raw["spec"]["approved"] = raw["status"]["hash"]
    (one,) = raw["status"]["moves"]
    raw["status"]["moves"] = [{**one, **move}]
    return msgspec.convert(raw, DefragmentationPlan, strict=False)


def left() -> dict[str, Any]:
    """Workload `u` after its eviction, without quota."""
    obj = workload("u", None, 0, 10, namespace="team-b", reschedule="Always", last_checkpoint=ago(0))
    evicted = {
        "type": "Evicted",
        "status": "True",
        "reason": "Rescheduled",
        "message": "",
        "lastTransitionTime": ago(9),
    }
    return {**obj, "status": {"conditions": [evicted]}}


def again(rack: str = "a", first: int = 6) -> dict[str, Any]:
    """Workload `u` after its next admission."""
    obj = workload("u", rack, first, 10, namespace="team-b", reschedule="Always")
    for condition in obj["status"]["conditions"]:
        condition["lastTransitionTime"] = ago(5)
    return obj


def charged(world: World) -> tuple[dict[str, int], int]:
    """Free GPUs by rack, and quota that is used or kept, in a snapshot with all claims."""
    claims = world.moves.claims()
    snapshot = world.cache.snapshot(["team"], claims)
    Claims(snapshot, claims)
    view = snapshot.topologies["gpu"]
    row = view.capacity.row(GPU)
    assert row is not None
    free = dict.fromkeys("abc", 0)
    for leaf, path in enumerate(view.tree.paths):
        free[path[0]] += int(row[leaf])
    return free, snapshot.nodes["team"].usage.get(COLUMN, 0)


HELD = 8 * (3 + 3 + 10 + 11)
BIG, U = 8 * 16, 8 * 10


def test_a_plan_that_is_carried_out_keeps_targets_and_the_domain_of_the_gang() -> None:
    world = World()
    assert charged(world) == ({"a": 80, "b": 48, "c": 40}, HELD)
    world.moves.on_plan(None, made(state="Reserved"))
    assert charged(world) == ({"a": 0, "b": 0, "c": 40}, HELD + BIG)  # u holds its own quota still


def test_after_its_eviction_all_of_a_target_is_kept_and_no_more() -> None:
    world = World()
    world.moves.on_plan(None, made(state="Evicting", begun=ago(10)))
    world.put(left())
    assert charged(world) == ({"a": 0, "b": 0, "c": 40}, HELD + BIG)
    world.put(again())
    assert [claim.uid for claim in world.moves.claims()] == ["uid-big"]
    assert charged(world) == ({"a": 0, "b": 0, "c": 40}, HELD + BIG)


@pytest.mark.parametrize(
    "plan",
    [
        made("Proposed", approved=False),
        made("Proposed"),
        made("Approved"),
        made(approved=False, state="Reserved"),
        made(pods=9, state="Reserved"),  # changed after its approval
        made("Done", state="Done"),
        made("Aborted", state="Planned"),
    ],
)
def test_other_plans_keep_nothing(plan: DefragmentationPlan) -> None:
    world = World()
    world.moves.on_plan(None, plan)
    assert world.moves.claims() == ()
    assert world.moves.due() == {}
    assert world.moves.hints() == {}


def test_a_plan_that_is_over_keeps_only_the_target_of_the_move_that_has_begun() -> None:
    world = World()
    world.put(left())
    world.moves.on_plan(None, made("Aborted", state="Replacing", begun=ago(10)))
    assert [claim.uid for claim in world.moves.claims()] == ["uid-u"]


@pytest.mark.parametrize(
    "change",
    [
        lambda world: world.workloads.pop("team-b/u"),
        lambda world: world.put({**left(), "spec": {**left()["spec"], "active": False}}),
        lambda world: world.cache.on_node("a15", None),
    ],
    ids=["deleted", "deactivated", "node gone"],
)
def test_nothing_is_kept_for_a_workload_that_cannot_take_its_target(change: Callable[[World], object]) -> None:
    world = World()
    world.put(left())
    world.moves.on_plan(None, made("Aborted", state="Replacing", begun=ago(10)))
    assert world.moves.claims()
    change(world)
    ended: list[str] = []
    world.moves.on_ended = lambda claim: ended.append(claim.uid)
    assert world.moves.claims() == ()
    assert ended == ["uid-u"]


def test_a_deleted_plan_keeps_nothing() -> None:
    world = World()
    plan = made(state="Reserved")
    world.moves.on_plan(None, plan)
    assert world.moves.claims()
    world.moves.on_plan(plan, None)
    assert world.moves.claims() == ()
    assert not world.moves.has_plans


def test_a_moved_workload_goes_first_once_for_each_state_of_the_cache() -> None:
    world = World()
    world.put(left())
    world.moves.on_plan(None, made(state="Replacing", begun=ago(10)))
    world.moves.claims()
    assert world.moves.due() == {}  # it is not queued yet
    world.wait("team-b/u")
    assert world.moves.due() == {"team": "team-b/u"}
    assert world.moves.due() == {}
    world.cache.quota.generation += 1
    assert world.moves.due() == {"team": "team-b/u"}
    hint = world.moves.hints()["uid-u"]
    assert hint.flavors == {"main": {GPU: "gpu"}}
    assert sorted(path[-1] for path, _ in hint.places["main"]) == [f"a{n:02}" for n in range(6, 16)]


def test_the_gang_goes_first_once_all_workloads_have_left() -> None:
    world = World()
    plan = made(state="Evicting", begun=ago(10))
    world.wait("team-a/big")
    world.moves.on_plan(None, plan)
    world.moves.claims()
    assert world.moves.due() == {}
    world.put(again())
    world.moves.claims()
    assert world.moves.due() == {"team": "team-a/big"}


def test_in_a_strict_queue_the_gang_takes_its_turn() -> None:
    world = World()
    world.queues.set_cluster_queue("team", STRICT_FIFO)
    earlier = workload("earlier", None, 0, 1)
    earlier["spec"]["priority"] = 9
    world.put(earlier)
    world.put(again())
    for key in ("team-a/earlier", "team-a/big"):
        world.wait(key)
    world.moves.on_plan(None, made(state="Running", begun=ago(10)))
    world.moves.claims()
    assert world.moves.due() == {}
    world.queues.delete("team-a/earlier")
    assert world.moves.due() == {"team": "team-a/big"}


@pytest.mark.parametrize(
    "change",
    [
        lambda one: changed(one, count=1_000_000),
        lambda one: changed(one, topology_assignment=changed(one.topology_assignment, slices=())),
        lambda one: changed(
            one,
            topology_assignment=changed(
                one.topology_assignment,
                slices=(changed(one.topology_assignment.slices[0], pod_counts=wire.PodCounts(individual=(1,))),),
            ),
        ),
    ],
    ids=["too many pods", "no domains", "unreadable"],
)
def test_a_plan_of_a_hostile_writer_keeps_nothing_and_stops_no_other(change: Callable[[Any], Any]) -> None:
    world = World()
    forged = made(state="Replacing", begun=ago(10))
    move = forged.status.moves[0]
    moves = (changed(move, assignments=tuple(map(change, move.assignments))),)
    forged = changed(forged, status=changed(forged.status, moves=moves))
    digest = hash_of(forged)
    forged = changed(
        forged,
        metadata=changed(forged.metadata, name="a-forged"),
        spec=changed(forged.spec, approved=digest),
        status=changed(forged.status, hash=digest),
    )
    world.put(left())
    world.moves.on_plan(None, forged)
    assert "uid-u" not in {claim.uid for claim in world.moves.claims()}
    world.moves.on_plan(None, made(state="Replacing", begun=ago(10)))
    assert "uid-u" in {claim.uid for claim in world.moves.claims()}
    assert set(world.moves.hints()) == {"uid-u"}


def test_a_claim_on_which_plans_of_cycles_fail_is_given_up() -> None:
    world = World()
    world.moves.on_plan(None, made(state="Reserved"))
    assert {claim.uid for claim in world.moves.claims()} == {"uid-u", "uid-big"}
    world.moves.give_up("uid-u")
    assert [claim.uid for claim in world.moves.claims()] == ["uid-big"]


def test_the_moves_of_the_last_hour_are_those_of_all_plans() -> None:
    world = World()
    plan = made(state="Replacing", begun=ago(10))
    world.moves.on_plan(None, plan)
    assert world.moves.history(NOW) == MoveHistory(moves=1, pods=10, queues=frozenset({"team"}))
    world.moves.on_plan(plan, None)
    assert world.moves.history(NOW) == MoveHistory(moves=1, pods=10)
    assert world.moves.history(NOW + timedelta(seconds=3590)) == MoveHistory()


@pytest.mark.parametrize(
    ("moves", "pods", "text"),
    [(4, 64, ""), (1, 64, "maxMovesPerHour is 1"), (0, 64, "maxMovesPerHour is 0"), (4, 19, "maxPodsPerHour is 19")],
)
def test_the_limits_of_an_hour(moves: int, pods: int, text: str) -> None:
    told = limited(MoveHistory(moves=1, pods=10), [10], moves=moves, most_pods=pods)
    assert (text in told) if text else told == ""


# --- the facts about a plan


def only(seen: PlanSeen) -> tuple[str, ...]:
    return seen.moves[0].obstacles


def test_a_plan_that_holds_has_no_obstacle() -> None:
    world = World()
    plan = made("Approved")
    world.moves.on_plan(None, plan)
    seen = world.of(plan)
    assert (only(seen), seen.goal_obstacles, seen.goal, seen.limited, seen.other) == ((), (), GoalState.WAITS, "", "")
    assert (seen.moves[0].holds, seen.moves[0].again, seen.approved, seen.sound) == (True, False, True, True)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda world: world.put(workload("late", "a", 6, 1)), "its target is not free any more"),
        (lambda world: world.cache.on_node("a15", None), "its target is not free any more"),
        (lambda world: world.put(workload("u", "b", 0, 10, namespace="team-b")), "kqueue.dev/reschedule: Never"),
        (
            lambda world: world.put(
                workload("u", "b", 0, 10, namespace="team-b", reschedule="AfterCheckpoint", last_checkpoint=ago(601))
            ),
            "601 s old",
        ),
    ],
)
def test_whatever_a_plan_has_promised_is_checked_again(change: Callable[[World], object], text: str) -> None:
    world = World()
    plan = made(state="Reserved")
    world.moves.on_plan(None, plan)
    assert only(world.of(plan)) == ()
    change(world)
    assert any(text in reason for reason in only(world.of(plan)))


def test_a_budget_forbids_the_eviction() -> None:
    spec = {"minAvailable": 10, "selector": {"matchLabels": {"app": "u"}}}
    budget = {**ours("PodDisruptionBudget", "kept", spec, namespace="team-b"), "status": {"disruptionsAllowed": 9}}
    world = World(objects=replace(cluster(), budgets=[budget]))
    plan = made(state="Reserved")
    world.moves.on_plan(None, plan)
    assert only(world.of(plan)) == ("PodDisruptionBudget kept does not allow it",)


def test_a_workload_that_was_moved_rests() -> None:
    stats = {"evictions": [{"reason": "Rescheduled", "underlyingCause": "", "count": 1}]}
    world = World()
    obj = workload("u", "b", 0, 10, namespace="team-b", reschedule="Always")
    world.put({**obj, "status": {**obj["status"], "schedulingStats": stats}})
    plan = made(state="Reserved")
    world.moves.on_plan(None, plan)
    assert only(world.of(plan)) == ("it was moved 3600 s ago; at least 21600 s are between two moves",)


def test_the_wait_of_the_gang_must_be_worth_the_moves() -> None:
    """The gang has waited for 7,200 s, times 16 pods; the move loses 600 pod-seconds."""
    for least, pays in ((192_000, True), (192_001, False)):
        world = World(least_gain=least)
        plan = made("Approved")
        world.moves.on_plan(None, plan)
        told = world.of(plan).goal_obstacles
        assert (told == ()) is pays
        assert pays or "has waited for 115200 pod-seconds, the moves lose 600" in told[0]


@pytest.mark.parametrize(
    ("obj", "wanted"),
    [
        (workload("big", "b", 0, 1), GoalState.STARTED),
        ({**workload("big", None, 0, 16), "spec": {**workload("big", None, 0, 16)["spec"], "active": False}}, GoalState.GONE),
    ],
)  # fmt: skip
def test_the_state_of_the_gang(obj: dict[str, Any], wanted: GoalState) -> None:
    world = World()
    world.put(obj)
    assert world.of(made()).goal is wanted


def test_a_workload_of_the_same_name_is_another_one() -> None:
    world = World()
    obj = workload("u", "b", 0, 10, namespace="team-b", reschedule="Always")
    obj["metadata"]["uid"] = "another"
    world.put(obj)
    plan = made(state="Evicting")
    world.moves.on_plan(None, plan)
    assert not world.of(plan).moves[0].exists
    assert "uid-u" not in {claim.uid for claim in world.moves.claims()}


@pytest.mark.parametrize(("seconds", "is_again"), [(0, True), (1, False)])
def test_an_admission_after_the_eviction_is_told_by_its_time(seconds: int, is_again: bool) -> None:
    world = World()
    world.put(again("b", 0))
    begun = NOW - timedelta(seconds=5) + timedelta(seconds=seconds)
    plan = made(state="Evicting")
    plan = changed(plan, status=changed(plan.status, moves=(changed(plan.status.moves[0], begun=begun),)))
    seen = world.of(plan).moves[0]
    assert (seen.again, seen.holds, seen.state) == (is_again, not is_again, MoveState.EVICTING)
