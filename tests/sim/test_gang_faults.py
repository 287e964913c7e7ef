"""Each invariant of gangs notices the fault that it is there for, and no other invariant does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from kqueue.controllers import gang_checks, gang_extras
from kqueue.jobs.gang import batch_status, compose, counts, extras, podgroup_k8s
from kqueue.jobs.gang import members as gang_members
from kqueue.jobs.gang.value import GangPhase
from kqueue.sandbox.api import PODS, Object
from tests.sim import gang_invariants, invariants, kinds_invariants
from tests.sim.gang_forms import DIALECTS, BatchGroup, KubernetesGroup, LabelledGroup, ObjectGroup
from tests.sim.gangs import base_workload, running
from tests.sim.objects import CLUSTER_QUEUES, NAMESPACE, WORKLOADS
from tests.sim.reading import Invariant
from tests.sim.test_gang_life import FAIL_NOW
from tests.sim.world import World, simulated

JUDGED = tuple(
    each
    for each in (*gang_invariants.ALWAYS, *gang_invariants.AT_REST)
    if each is not invariants.status_tells_the_usage  # of a flavor without GPUs
)
Fault = Callable[[pytest.MonkeyPatch], None]
Story = Callable[[World], Awaitable[None]]


# --- stories ---------------------------------------------------------------------------------------------------------


def of(kind: type[LabelledGroup], quorum: int, members_: int, **body: Any) -> LabelledGroup:
    """A gang with so many equal members."""
    how = {"queue": "plain", "priority": "", "topology": None, "run_seconds": 1000, **body}
    gpus = 8 if how["queue"] == "solo" else 0
    return kind(roles=(gpus,) * members_, quorum=quorum, body=how)


async def submit(world: World, group: LabelledGroup) -> None:
    """A user creates gang `g`."""
    if isinstance(group, ObjectGroup):
        await world.api.create(group.resource, group.group_object("g"), namespace=NAMESPACE)
    for number in range(len(group.roles) if not isinstance(group, BatchGroup) else 0):
        await add(world, group, number)
    await world.pass_time(10)


async def add(world: World, group: LabelledGroup, number: int = 0) -> None:
    await world.api.create(PODS, group.member("g", number), namespace=NAMESPACE)


async def lose(world: World, pod: str) -> None:
    await world.api.delete(PODS, pod, namespace=NAMESPACE)
    await world.pass_time(5)


async def change_pod(world: World, pod: str, change: Object, **how: Any) -> None:
    await world.api.patch(PODS, pod, change, namespace=NAMESPACE, **how)


async def deactivate(world: World) -> None:
    base = base_workload(world, "g")
    assert base is not None
    await world.api.patch(WORKLOADS, base["metadata"]["name"], {"spec": {"active": False}}, namespace=NAMESPACE)
    await world.pass_time(60)


async def hold(world: World) -> None:
    await world.api.patch(CLUSTER_QUEUES, "plain", {"spec": {"stopPolicy": "Hold"}})


async def _four_of_two(world: World) -> None:
    await submit(world, of(LabelledGroup, 2, 4))


async def _three_that_wait(world: World) -> None:
    await hold(world)
    await submit(world, of(LabelledGroup, 2, 3))


async def _thirty_of_two(world: World) -> None:
    await submit(world, of(LabelledGroup, 2, 30, queue="solo"))


async def _an_object_without_members(world: World) -> None:
    await submit(world, of(ObjectGroup, 2, 2))
    for name in running(world, "g"):
        await world.api.delete(PODS, name, namespace=NAMESPACE)
    await world.pass_time(60)


async def _one_of_two(world: World) -> None:
    await submit(world, of(LabelledGroup, 2, 1))
    await lose(world, "g-1")


async def _two_that_run(world: World) -> None:
    await submit(world, of(LabelledGroup, 2, 2))


async def _an_evicted_base(world: World) -> None:
    await submit(world, of(LabelledGroup, 2, 8, queue="solo"))
    assert len(running(world, "g")) == 6
    await deactivate(world)


async def _a_gate_is_taken(world: World) -> None:
    """No node has room for the pod that is let out."""
    await hold(world)
    group = of(LabelledGroup, 2, 2)
    for number in range(2):
        made = group.member("g", number)
        made["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "100"
        await world.api.create(PODS, made, namespace=NAMESPACE)
    await world.pass_time(10)
    await change_pod(world, "g-1", {"spec": {"schedulingGates": []}})
    await world.pass_time(60)


async def _a_member_fails(world: World) -> None:
    await submit(world, of(ObjectGroup, 2, 2))
    await change_pod(world, "g-1", FAIL_NOW)
    await world.pass_time(10)


async def _a_batch_that_waits(world: World) -> None:
    await hold(world)
    await submit(world, of(BatchGroup, 2, 2))


async def _kubernetes_own(world: World) -> None:
    await submit(world, of(KubernetesGroup, 2, 2))


async def _one_ends_and_one_is_replaced(world: World) -> None:
    group = of(LabelledGroup, 2, 2)
    await submit(world, group)
    ends = {"metadata": {"annotations": {"sandbox.kqueue.dev/run-seconds": "1"}}}
    await change_pod(world, "g-1", ends)
    await world.pass_time(5)
    await lose(world, "g-2")
    await add(world, group)
    await world.pass_time(20)


# --- faults ----------------------------------------------------------------------------------------------------------


def _nobody_is_marked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gang_extras, "to_mark", lambda *_, **__: ())


def _all_are_marked(patch: pytest.MonkeyPatch) -> None:
    marked = extras.to_mark

    def to_mark(found: Any, *more: Any, **how: Any) -> Any:
        return [pod for pod in found.extras if pod.gated] if marked(found, *more, **how) else ()

    patch.setattr(gang_extras, "to_mark", to_mark)


def _the_base_has_one_too_many(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compose, "base_of", lambda alive, quorum, roles: gang_members.base_of(alive, quorum + 1, roles))


def _no_quota_is_given_back(patch: pytest.MonkeyPatch) -> None:
    async def leave(*_: Any) -> None:
        return None

    patch.setattr(gang_checks.GangChecks, "_leave_behind", leave)
    _no_loss_is_told(patch)


def _no_loss_is_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(counts, "waiting", lambda *_, **__: None)


def _missing_members_count(patch: pytest.MonkeyPatch) -> None:
    made = compose.pod_sets_of
    patch.setattr(compose, "hindrance", lambda *_, **__: None)
    patch.setattr(compose, "pod_sets_of", lambda *args, **more: made(*args, **{**more, "fast": True}))


def _extras_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gang_extras, "lose_their_base", lambda *_, **__: False)


def _nobody_is_at_large(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(counts, "at_large", lambda *_, **__: ())


def _no_failure_is_a_phase(patch: pytest.MonkeyPatch) -> None:
    wanted = counts.wanted_phase

    def wanted_phase(*facts: Any) -> GangPhase:
        found = wanted(*facts)
        return GangPhase.RUNNING if found is GangPhase.FAILED else found

    patch.setattr(counts, "wanted_phase", wanted_phase)


def _a_batch_always_runs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch_status, "_phase", lambda *_: "Running")


def _its_status_is_written(patch: pytest.MonkeyPatch) -> None:
    dialect = podgroup_k8s.KubernetesPodGroups
    patch.setattr(dialect, "writes_status", True)
    patch.setattr(dialect, "report", lambda *_: {"phase": "Running"})


def _one_starts_alone(patch: pytest.MonkeyPatch) -> None:
    started = counts.starts

    def starts(found: Any, *more: Any, **how: Any) -> Any:
        begun = any(not pod.gated for pod in found.kept)
        first: Any = started(found, *more, **how)
        return counts.Starts(() if begun else first.patches[:1])

    patch.setattr(counts, "starts", starts)


def _newcomers_wait(patch: pytest.MonkeyPatch) -> None:
    started = counts.starts

    def starts(found: Any, *more: Any, **how: Any) -> Any:
        begun = any(not pod.gated for pod in found.kept)
        return counts.Starts() if begun else started(found, *more, **how)

    patch.setattr(counts, "starts", starts)


@dataclass(frozen=True, slots=True)
class Case:
    """One fault in a story, and what notices it."""

    story: Story
    fault: Fault
    noticed_by: Invariant
    noticed_too: Invariant | None = None
    """Another invariant that no such story can keep."""


CASES = {
    "members beyond the quorum are not queued": Case(
        _four_of_two, _nobody_is_marked, gang_invariants.who_waits_beyond_a_quorum_is_queued
    ),
    "more than sixteen of them wait": Case(
        _thirty_of_two, _all_are_marked, gang_invariants.extras_wait_in_small_numbers
    ),
    "a Workload counts more than the quorum": Case(
        _three_that_wait, _the_base_has_one_too_many, gang_invariants.counts_sum_to_the_quorum
    ),
    "a gang that has lost its members holds quota": Case(
        _an_object_without_members, _no_quota_is_given_back, gang_invariants.incomplete_gangs_hold_nothing
    ),
    "an incomplete gang is admitted": Case(
        _one_of_two, _missing_members_count, invariants.nothing_was_breached_on_the_way
    ),
    "a part runs without a loss": Case(
        _two_that_run,
        _one_starts_alone,
        gang_invariants.a_part_of_a_quorum_runs_only_after_a_loss,
        noticed_too=gang_invariants.nobody_waits_where_there_is_room,
    ),
    "members beyond the quorum stay without it": Case(
        _an_evicted_base, _extras_stay, gang_invariants.extras_follow_their_base
    ),
    "a pod of a gang that waits may run": Case(
        _a_gate_is_taken, _nobody_is_at_large, kinds_invariants.groups_are_held_whole
    ),
    "a failed member is no phase": Case(
        _a_member_fails, _no_failure_is_a_phase, gang_invariants.group_objects_tell_the_truth
    ),
    "a BatchProcess that waits tells that it runs": Case(
        _a_batch_that_waits, _a_batch_always_runs, gang_invariants.group_objects_tell_the_truth
    ),
    "the status of another controller is written": Case(
        _kubernetes_own, _its_status_is_written, gang_invariants.statuses_of_others_are_left_alone
    ),
    "a replacement waits beside its place": Case(
        _one_ends_and_one_is_replaced, _newcomers_wait, gang_invariants.nobody_waits_where_there_is_room
    ),
}


async def noticed(story: Story) -> set[str]:
    """Return the names of the invariants that a story breaks."""
    async with simulated(gangs=DIALECTS, job_sets=True, pods=True) as world:
        invariants.watch(world)
        world.history.witnesses += [partial(witness, world) for witness in gang_invariants.ON_ADMISSION]
        await story(world)
        return {told.partition(":")[0] for told in invariants.breaches(world, JUDGED)}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_a_fault_is_noticed_by_its_invariant_alone(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same story without the fault breaks none."""
    assert await noticed(case.story) == set()
    case.fault(monkeypatch)
    wanted = {each.__name__ for each in (case.noticed_by, case.noticed_too) if each is not None}
    assert await noticed(case.story) == wanted


def test_every_invariant_of_gangs_has_a_fault() -> None:
    """An invariant without one might never fail."""
    own = {*gang_invariants.OF_GANGS, *gang_invariants.AT_ANY_MOMENT} - set(kinds_invariants.AT_ANY_MOMENT)

    assert own - {case.noticed_by for case in CASES.values()} == set()
