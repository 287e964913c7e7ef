"""The life of a group of pods with a controller that is killed at each of its writes: evicted, replaced, finished."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.api import names
from kqueue.sandbox.api import JOBS, PODS, Object
from kqueue.sandbox.topology_spec import BLOCK_LABEL
from tests.sim import invariants, queue_invariants
from tests.sim.objects import CLUSTER_QUEUES, NAMESPACE, WORKLOADS, job, template
from tests.sim.world import World, condition, is_true, simulated

QUOTA, PODS_OF_GROUP = 48, 5
ALWAYS = (
    invariants.nothing_was_breached_on_the_way,
    invariants.audits_find_nothing,
    invariants.released_pods_are_in_their_domains,
    *queue_invariants.ALWAYS,
)
AT_REST = (
    invariants.no_gate_is_left_over,
    invariants.watches_are_true,
    invariants.cache_equals_the_api,
    invariants.status_tells_the_usage,
    *queue_invariants.AT_REST,
)
MOST = 400
"""More writes than the story has."""
STRIDE = 7
LONGEST = 400
"""Seconds within which it must end, however often the controller dies."""


def member(name: str, *, rank: int, seconds: int = 8) -> Object:
    """A pod of the group as its user writes it: 8 GPUs, all of the group in one block."""
    notes = {
        names.REQUIRED_TOPOLOGY_ANNOTATION: BLOCK_LABEL,
        names.POD_GROUP_NAME_ANNOTATION: "gang",
        names.POD_GROUP_TOTAL_COUNT_ANNOTATION: str(PODS_OF_GROUP),
        names.POD_GROUP_POD_INDEX_LABEL_ANNOTATION: "rank",
    }
    labels = {names.QUEUE_NAME_LABEL: "solo", names.PRIORITY_CLASS_LABEL: "low", "rank": str(rank)}
    made = template(gpus=8, run_seconds=seconds, annotations=notes)
    metadata = {**made["metadata"], "name": name, "namespace": NAMESPACE, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made["spec"]}


class Life:
    """One telling of the story; the controller dies before or `after` its `at`-th write, 0: never."""

    def __init__(self, world: World, at: int, *, after: bool) -> None:
        self.world, self.at, self.after = world, at, after
        self.died = False

    async def tell(self) -> None:
        world = self.world
        await world.api.patch(CLUSTER_QUEUES, "solo", {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}})
        await self.pass_time(2)
        if self.at:
            world.arm_kill(self.at, after=self.after)
        for rank in range(PODS_OF_GROUP):
            await world.api.create(PODS, member(f"first-{rank}", rank=rank), namespace=NAMESPACE)
            await self.pass_time(1)
        await self.until(lambda: self.running() == PODS_OF_GROUP)
        await world.submit(job("high", pods=4, priority="high", run_seconds=3))
        await self.until(lambda: is_true(world.find(JOBS, "high"), "Complete"))
        assert is_true(self.workload(), names.CONDITION_WAITING_FOR_REPLACEMENT_PODS)
        for rank in range(PODS_OF_GROUP):
            await world.api.create(PODS, member(f"second-{rank}", rank=rank), namespace=NAMESPACE)
        await self.until(lambda: self.running() == PODS_OF_GROUP)
        failed = {"metadata": {"annotations": {names.RUN_SECONDS_ANNOTATION: "0", names.FAIL_ANNOTATION: "true"}}}
        await world.api.patch(PODS, "second-3", failed, namespace=NAMESPACE)
        await self.until(lambda: is_true(self.workload(), names.CONDITION_WAITING_FOR_REPLACEMENT_PODS))
        await world.api.create(PODS, member("third-3", rank=3), namespace=NAMESPACE)
        await self.until(lambda: is_true(self.workload(), names.CONDITION_FINISHED))
        await self.pass_time(20)
        assert not any(_is_held(pod) for pod in self.members())
        assert not invariants.breaches(world, AT_REST)

    async def until(self, reached: Any) -> None:
        for _ in range(LONGEST):
            if reached():
                return
            await self.pass_time(1)
        phases = {pod["metadata"]["name"]: (pod["status"]["phase"], _gates(pod)) for pod in self.members()}
        raise AssertionError(f"not within {LONGEST} s: {phases}, {condition(self.workload(), 'QuotaReserved')}")

    async def pass_time(self, seconds: int) -> None:
        """Second by second, with a look at everything after each; a controller that has died is followed by another."""
        for _ in range(seconds):
            await self.world.pass_time(1)
            if self.world.controller is None:
                self.died = True
                self.world.start_controller()
            assert not invariants.breaches(self.world, ALWAYS)
            self.look()

    def look(self) -> None:
        """What must hold at any moment: nobody runs beyond the quota, and nobody of the group without a reservation."""
        alive = [pod for pod in self.world.objects(PODS) if _runs(pod)]
        assert sum(8 for _ in alive) <= QUOTA, [pod["metadata"]["name"] for pod in alive]
        if not is_true(self.workload(), names.CONDITION_QUOTA_RESERVED):
            loose = [pod["metadata"]["name"] for pod in self.members() if _may_run(pod)]
            assert not loose, f"{loose} are out of their gates and nobody has reserved anything for them"

    def workload(self) -> Object | None:
        return self.world.find(WORKLOADS, "gang")

    def members(self) -> list[Object]:
        return [
            pod
            for pod in self.world.objects(PODS)
            if (pod["metadata"].get("annotations") or {}).get(names.POD_GROUP_NAME_ANNOTATION) == "gang"
        ]

    def running(self) -> int:
        """Pods of the group that run."""
        return sum(_runs(pod) and "deletionTimestamp" not in pod["metadata"] for pod in self.members())


def _runs(pod: Object) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def _gates(pod: Object) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]


def _may_run(pod: Object) -> bool:
    ended = pod["status"].get("phase") in ("Succeeded", "Failed")
    return names.ADMISSION_GATE not in _gates(pod) and not ended and "deletionTimestamp" not in pod["metadata"]


def _is_held(pod: Object) -> bool:
    return names.MANAGED_POD_FINALIZER in (pod["metadata"].get("finalizers") or ())


async def told(at: int, *, after: bool) -> tuple[bool, World]:
    """Whether the story was cut short somewhere, and the world after it."""
    async with simulated("pods", pods=True) as world:
        invariants.watch(world)
        life = Life(world, at, after=after)
        await life.tell()
        return life.died, world


@pytest.mark.proves("Pod group", "eviction and requeue")
@pytest.mark.proves("Pod group", "replacement pods")
async def test_a_group_lives_through_an_eviction_and_a_failure() -> None:
    """It leaves whole, comes back whole with other pods in the same Workload, and one that fails is replaced."""
    died, world = await told(0, after=False)
    workload = world.find(WORKLOADS, "gang")
    assert workload is not None
    reasons = [entry["reason"] for entry in workload["status"]["schedulingStats"]["evictions"]]

    assert not died
    assert reasons == ["Preempted"]
    assert condition(workload, names.CONDITION_FINISHED)["reason"] == "Succeeded"  # type: ignore[index]
    assert world.bugs == []


@pytest.mark.slow
@pytest.mark.parametrize(("first", "after"), [(1, False), (2, True)], ids=["before", "after"])
async def test_a_controller_killed_at_any_write_changes_nothing_of_that(first: int, after: bool) -> None:
    """Every seventh write (set `STRIDE` to 1 for all of them), until the story has no more."""
    cut = 0
    for at in range(first, MOST, STRIDE):
        died, world = await told(at, after=after)
        assert world.bugs == [], f"killed at write {at}"
        if not died:
            break
        cut += 1
    assert 100 // STRIDE < cut < (MOST - first) // STRIDE
