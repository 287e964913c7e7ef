"""The life of a gang by labels with a controller that is killed at each of its writes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from kqueue.api import gang_names, names
from kqueue.jobs.gang.counts import PHASE_EDGES
from kqueue.jobs.gang.value import GangPhase
from kqueue.sandbox import names as sandbox_names
from kqueue.sandbox.api import JOBS, PODS, Object
from tests.sim import gang_invariants, invariants, queue_invariants
from tests.sim.gangs import LABELS, LABELS_AND_OBJECTS, base_workload, labelled, members
from tests.sim.kinds import POD_GROUPS
from tests.sim.kinds import pod as plain_pod
from tests.sim.lifetime import Lifetime, interrupted, runs, told
from tests.sim.objects import CLUSTER_QUEUES, NAMESPACE, job
from tests.sim.world import condition, is_true

ALWAYS = (
    invariants.nothing_was_breached_on_the_way,
    invariants.audits_find_nothing,
    gang_invariants.counts_sum_to_the_quorum,
    *queue_invariants.ALWAYS,
)
AT_REST = (
    invariants.watches_are_true,
    invariants.cache_equals_the_api,
    invariants.nothing_is_held,
    *gang_invariants.OF_GANGS,
    *queue_invariants.AT_REST,
)
STRIDE = 37
FAIL_NOW = {
    "metadata": {"annotations": {sandbox_names.RUN_SECONDS_ANNOTATION: "0", sandbox_names.FAIL_ANNOTATION: "true"}}
}


class ShapedLife(Lifetime):
    """A job of several roles gathers, runs, makes room for a Job, runs again with other pods, loses a pod, and ends."""

    ALWAYS = ALWAYS
    AT_REST = AT_REST
    roles: tuple[int, ...]
    """The cores of each member."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.end: Object = {}
        """The Workload when it had ended."""

    async def prepare(self) -> None:
        rules = {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}
        await self.world.api.patch(CLUSTER_QUEUES, "plain", rules)

    async def create(self, round_: str, number: int) -> None:
        """Create one member."""
        settings: dict[str, Any] = {"quorum": len(self.roles), "priority": "low", "run_seconds": 20}
        pod = labelled(f"{round_}-{number}", "job", cpus=self.roles[number], **settings)
        await self.world.api.create(PODS, pod, namespace=NAMESPACE)

    async def live(self) -> None:
        world, whole = self.world, len(self.roles)
        for number in range(whole):
            assert self.going() == 0
            await self.create("first", number)
            await self.pass_time(1)
        await self.until(lambda: self.going() == whole)
        await world.submit(job("high", queue="plain", pods=12, gpus=0, topology=None, priority="high", run_seconds=3))
        await self.until(lambda: is_true(world.find(JOBS, "high"), "Complete"))
        assert self.going() == 0
        for number in range(whole):
            await self.create("second", number)
        await self.until(lambda: self.going() == whole)
        await self.add_beyond()
        await world.api.patch(PODS, "second-1", FAIL_NOW, namespace=NAMESPACE)
        await self.until(lambda: is_true(self.workload(), names.CONDITION_WAITING_FOR_REPLACEMENT_PODS))
        await self.create("third", 1)
        await self.until(lambda: is_true(self.workload(), names.CONDITION_FINISHED))
        await self.pass_time(20)
        self.end = self.workload() or {}
        await self.remove()
        for pod in members(world, "job"):
            await world.api.delete(PODS, pod["metadata"]["name"], namespace=NAMESPACE)
        await self.until(lambda: not members(world, "job") and self.workload() is None)

    async def add_beyond(self) -> None:
        """Add members beyond the quorum."""

    async def remove(self) -> None:
        """Delete objects other than pods that the user created."""

    def look(self) -> None:
        """No member is let out while nothing is reserved for the whole gang."""
        if not is_true(self.workload(), names.CONDITION_QUOTA_RESERVED):
            loose = [pod["metadata"]["name"] for pod in members(self.world, "job") if _may_run(pod)]
            assert not loose, f"{loose} may run, and nothing is reserved for their gang"

    def told(self) -> Any:
        pods = members(self.world, "job")
        return [(p["metadata"]["name"], p["status"]["phase"], _may_run(p)) for p in pods], self.workload()

    def workload(self) -> Object | None:
        return base_workload(self.world, "job")

    def going(self) -> int:
        """Members that run and are to go on."""
        return sum(runs(pod) and "deletionTimestamp" not in pod["metadata"] for pod in members(self.world, "job"))


def _may_run(pod: Object) -> bool:
    gated = any(gate["name"] == names.ADMISSION_GATE for gate in pod["spec"].get("schedulingGates") or ())
    ended = pod["status"].get("phase") in ("Succeeded", "Failed")
    return not gated and not ended and "deletionTimestamp" not in pod["metadata"]


class MpiLife(ShapedLife):
    """A launcher and three workers."""

    roles = (1, 4, 4, 4)


class TensorFlowLife(ShapedLife):
    """Two parameter servers and two workers."""

    roles = (2, 2, 5, 5)


class PodGroupLife(ShapedLife):
    """Four pods of a PodGroup, and a fifth one that fails."""

    roles = (3, 3, 3, 3)

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.phases: list[str] = []
        """Phases in the status, in the order in which they were written."""
        self.last: Object = {}
        """The status before the PodGroup was deleted."""

    async def prepare(self) -> None:
        await super().prepare()
        group = {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": "job", "namespace": NAMESPACE},
            "spec": {"minMember": len(self.roles)},
        }
        await self.world.api.create(POD_GROUPS, group, namespace=NAMESPACE)
        self.world.on_settled.append(self.note)

    def note(self) -> None:
        """Note the phase, if it has changed."""
        phase = ((self.world.find(POD_GROUPS, "job") or {}).get("status") or {}).get("phase")
        if phase and self.phases[-1:] != [phase]:
            self.phases.append(phase)

    async def create(self, round_: str, number: int) -> None:
        made = plain_pod(f"{round_}-{number}", queue="plain", gpus=0, topology=None, priority="low", run_seconds=20)
        made["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
        made["metadata"]["labels"][gang_names.POD_GROUP_X_K8S_LABEL] = "job"
        await self.world.api.create(PODS, made, namespace=NAMESPACE)

    async def add_beyond(self) -> None:
        """A pod beyond the quorum runs and fails; the gang runs on."""
        await self.create("more", 0)
        await self.until(lambda: runs(self.world.find(PODS, "more-0") or {}))
        before = list(self.phases)
        await self.world.api.patch(PODS, "more-0", FAIL_NOW, namespace=NAMESPACE)
        await self.pass_time(3)
        assert self.phases == before

    async def remove(self) -> None:
        self.last = self.world.find(POD_GROUPS, "job") or {}
        await self.world.api.delete(POD_GROUPS, "job", namespace=NAMESPACE)


def _is_a_way(phases: list[str]) -> bool:
    """Whether each change of the phase is one that may occur."""
    found = [None, *map(GangPhase, phases)]
    return all(after in PHASE_EDGES[before] for before, after in pairwise(found) if after is not None)


@pytest.mark.mechanism("3.31", "4.4", "4.5", "4.7", "4.18")
async def test_a_pod_group_shows_the_phases_of_its_life() -> None:
    """It waits, starts whole, makes room, starts again, loses a member, gets another, and finishes."""
    life = await told(PodGroupLife, gangs=LABELS_AND_OBJECTS)

    whole = ["Pending", "Scheduling", "Running"]
    assert life.phases[:7] == [*whole, *whole, "Failed"]
    assert life.phases[-1] == "Finished"
    assert _is_a_way(life.phases)
    assert {key: life.last["status"].get(key) for key in ("running", "succeeded")} == {"running": 0, "succeeded": 4}


@pytest.mark.slow
@pytest.mark.mechanism("4.8")
@pytest.mark.parametrize(("first", "after"), [(1, False), (2, True)], ids=["before", "after"])
async def test_a_pod_group_outlives_a_controller_killed_at_any_write(first: int, *, after: bool) -> None:
    """The same life, with other controllers; phases change as they may."""
    tellings = await interrupted(PodGroupLife, first, STRIDE, after=after, gangs=LABELS_AND_OBJECTS)

    assert len(tellings) > 60 // STRIDE
    assert [life.phases for life in tellings if not _is_a_way(life.phases) or life.phases[-1] != "Finished"] == []


@pytest.mark.mechanism("0.20")
@pytest.mark.parametrize("story", [MpiLife, TensorFlowLife])
async def test_a_job_of_several_roles_runs_whole_or_not_at_all(story: type[ShapedLife]) -> None:
    """Row 0.20: through an eviction and the failure of a member, and never some members without the others."""
    life = await told(story, gangs=LABELS)

    assert not life.died
    finished = condition(life.end, names.CONDITION_FINISHED)
    assert finished is not None
    assert finished["message"].startswith("4 of 4 ")


@pytest.mark.slow
@pytest.mark.mechanism("0.20")
@pytest.mark.parametrize("story", [MpiLife, TensorFlowLife])
@pytest.mark.parametrize(("first", "after"), [(1, False), (2, True)], ids=["before", "after"])
async def test_a_controller_killed_at_any_write_changes_nothing_of_that(
    story: type[ShapedLife], first: int, after: bool
) -> None:
    """Every thirty-seventh write (set `STRIDE` to 1 for all of them), until the story has no more."""
    tellings = await interrupted(story, first, STRIDE, after=after, gangs=LABELS)

    assert len(tellings) > 60 // STRIDE
    assert [life.at for life in tellings if not life.end] == []
