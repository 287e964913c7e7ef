"""The life of a group of pods with a controller that is killed at each of its writes: evicted, replaced, finished."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.api import names
from kqueue.sandbox import names as sandbox_names
from kqueue.sandbox.api import EVENTS, JOBS, PODS, Object
from kqueue.sandbox.topology_spec import BLOCK_LABEL
from tests.sim import invariants, queue_invariants
from tests.sim.lifetime import Lifetime, interrupted, runs, told
from tests.sim.objects import CLUSTER_QUEUES, NAMESPACE, WORKLOADS, job, template
from tests.sim.world import condition, is_true, simulated

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
    invariants.nothing_is_held,
    *queue_invariants.AT_REST,
)
STRIDE = 21


def member(name: str, *, rank: int, seconds: int = 8, group: str = "gang") -> Object:
    """A pod of the group as its user writes it: 8 GPUs, all of the group in one block."""
    notes = {
        names.REQUIRED_TOPOLOGY_ANNOTATION: BLOCK_LABEL,
        names.POD_GROUP_NAME_ANNOTATION: group,
        names.POD_GROUP_TOTAL_COUNT_ANNOTATION: str(PODS_OF_GROUP),
        names.POD_GROUP_POD_INDEX_LABEL_ANNOTATION: "rank",
    }
    labels = {names.QUEUE_NAME_LABEL: "solo", names.PRIORITY_CLASS_LABEL: "low", "rank": str(rank)}
    made = template(gpus=8, run_seconds=seconds, annotations=notes)
    metadata = {**made["metadata"], "name": name, "namespace": NAMESPACE, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made["spec"]}


class PodGroupLife(Lifetime):
    """`gang` runs, makes room for a Job, runs again with other pods, loses one, ends, and is deleted."""

    ALWAYS = ALWAYS
    AT_REST = AT_REST

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.end: Object = {}
        """The Workload when it had ended."""

    async def prepare(self) -> None:
        spec = {"preemption": {"withinClusterQueue": "LowerPriority"}}
        await self.world.api.patch(CLUSTER_QUEUES, "solo", {"spec": spec})

    async def live(self) -> None:
        world = self.world
        for rank in range(PODS_OF_GROUP):
            await world.api.create(PODS, member(f"first-{rank}", rank=rank), namespace=NAMESPACE)
            await self.pass_time(1)
        await self.until(lambda: self.going() == PODS_OF_GROUP)
        await world.submit(job("high", pods=4, priority="high", run_seconds=3))
        await self.until(lambda: is_true(world.find(JOBS, "high"), "Complete"))
        assert is_true(self.workload(), names.CONDITION_WAITING_FOR_REPLACEMENT_PODS)
        for rank in range(PODS_OF_GROUP):
            await world.api.create(PODS, member(f"second-{rank}", rank=rank), namespace=NAMESPACE)
        await self.until(lambda: self.going() == PODS_OF_GROUP)
        failed = {
            "metadata": {
                "annotations": {sandbox_names.RUN_SECONDS_ANNOTATION: "0", sandbox_names.FAIL_ANNOTATION: "true"}
            }
        }
        await world.api.patch(PODS, "second-3", failed, namespace=NAMESPACE)
        await self.until(lambda: is_true(self.workload(), names.CONDITION_WAITING_FOR_REPLACEMENT_PODS))
        await world.api.create(PODS, member("third-3", rank=3), namespace=NAMESPACE)
        await self.until(lambda: is_true(self.workload(), names.CONDITION_FINISHED))
        await self.pass_time(20)
        self.end = self.workload() or {}
        assert not any(_is_held(pod) for pod in self.members())
        for pod in self.members():
            await world.api.delete(PODS, pod["metadata"]["name"], namespace=NAMESPACE)
        await self.until(lambda: not self.members() and self.workload() is None)

    def told(self) -> Any:
        phases = {pod["metadata"]["name"]: (pod["status"]["phase"], _gates(pod)) for pod in self.members()}
        return phases, condition(self.workload(), "QuotaReserved")

    def evictions(self) -> list[tuple[str, int]]:
        """(reason, how often)."""
        return [(entry["reason"], entry["count"]) for entry in self.end["status"]["schedulingStats"]["evictions"]]

    def look(self) -> None:
        """What must hold at any moment: nobody runs beyond the quota, and nobody of the group without a reservation."""
        alive = self.running()
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

    def going(self) -> int:
        """Pods of the group that run and are to go on."""
        return sum(runs(pod) and "deletionTimestamp" not in pod["metadata"] for pod in self.members())


def _gates(pod: Object) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]


def _may_run(pod: Object) -> bool:
    ended = pod["status"].get("phase") in ("Succeeded", "Failed")
    return names.ADMISSION_GATE not in _gates(pod) and not ended and "deletionTimestamp" not in pod["metadata"]


def _is_held(pod: Object) -> bool:
    return names.MANAGED_POD_FINALIZER in (pod["metadata"].get("finalizers") or ())


@pytest.mark.proves("Pod group", "eviction and requeue")
@pytest.mark.proves("Pod group", "replacement pods")
async def test_a_group_lives_through_an_eviction_and_a_failure() -> None:
    """It leaves whole, comes back whole with other pods in the same Workload, one that fails is replaced, all goes."""
    life = await told(PodGroupLife, pods=True)

    assert not life.died
    assert life.evictions() == [("Preempted", 1)]
    assert condition(life.end, names.CONDITION_FINISHED)["reason"] == "Succeeded"  # type: ignore[index]


@pytest.mark.slow
@pytest.mark.parametrize(("first", "after"), [(1, False), (2, True)], ids=["before", "after"])
async def test_a_controller_killed_at_any_write_changes_nothing_of_that(first: int, after: bool) -> None:
    """Every twenty-first write (set `STRIDE` to 1 for all of them), until the story has no more."""
    tellings = await interrupted(PodGroupLife, first, STRIDE, after=after, pods=True)

    assert len(tellings) > 100 // STRIDE
    assert [life.at for life in tellings if life.evictions() != [("Preempted", 1)]] == []


async def test_what_a_group_lacks_is_no_news_after_a_restart() -> None:
    """One event on its pod, however many controllers look at it."""
    async with simulated(pods=True) as world:
        await world.api.create(PODS, member("lonely", rank=0, group="half"), namespace=NAMESPACE)
        for _ in range(3):
            await world.pass_time(20)
            world.kill_controller()
            world.start_controller()
        await world.pass_time(20)
        told = [e["reason"] for e in world.objects(EVENTS) if e["regarding"]["name"] == "lonely"]

    assert told == [names.EVENT_ERR_WORKLOAD_COMPOSE]
