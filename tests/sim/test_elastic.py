"""The life of an elastic Job with a controller that is killed at each of its writes: it grows, waits for more, shrinks,
is evicted, comes back and ends.
"""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.api import names
from kqueue.controllers.elastic_gates import EVENT_HELD
from kqueue.kube import names as kube_names
from kqueue.sandbox import names as sandbox_names
from kqueue.sandbox.admission import MUTATING, VALIDATING
from kqueue.sandbox.api import EVENTS, JOBS, PODS, Object
from tests.sim import invariants
from tests.sim.invariants import has_gate
from tests.sim.objects import CLUSTER_QUEUES, NAMESPACE, WORKLOADS, job
from tests.sim.world import World, is_true, simulated

QUOTA = 48
GPUS = 8
ALWAYS = (invariants.audits_find_nothing, invariants.released_pods_are_in_their_domains)
AT_REST = (
    invariants.no_gate_is_left_over,
    invariants.watches_are_true,
    invariants.cache_equals_the_api,
    invariants.status_tells_the_usage,
)
MOST = 200
"""More writes than the story has."""
STRIDE = 21
LONGEST = 400
"""Seconds within which each chapter must end, however often the controller dies."""


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
        elastic = job("grows", pods=2, priority="low", run_seconds=9999, topology=None)
        elastic["metadata"]["annotations"] = {names.ELASTIC_JOB_ANNOTATION: "true"}
        await world.submit(elastic)
        await self.until_pods(2)
        await self.scale(4)
        await self.until_pods(4)
        await world.submit(job("fills", pods=2, priority="low", run_seconds=20, topology=None))
        await self.until(lambda: self.running("fills") == 2)
        await self.scale(5)
        await self.until_pods(4, gated=1)
        assert is_true(world.find(JOBS, "fills"), "Complete") is False
        await self.until_pods(5)
        await self.scale(3)
        await self.until_pods(3)
        await world.submit(job("high", pods=4, priority="high", run_seconds=3, topology=None))
        await self.until(lambda: is_true(world.find(JOBS, "high"), "Complete"))
        await self.until_pods(3)
        for pod in world.objects(PODS):
            if _job_of(pod) == "grows":
                ends = {"metadata": {"annotations": {sandbox_names.RUN_SECONDS_ANNOTATION: "0"}}}
                await world.api.patch(PODS, pod["metadata"]["name"], ends, namespace=NAMESPACE)
        await self.until(lambda: is_true(world.find(JOBS, "grows"), "Complete"))
        await self.pass_time(20)
        assert not invariants.breaches(world, (*AT_REST, invariants.nothing_is_held))

    async def scale(self, pods: int) -> None:
        await self.world.api.patch(
            JOBS, "grows", {"spec": {"parallelism": pods, "completions": pods}}, namespace=NAMESPACE
        )

    async def until_pods(self, running: int, *, gated: int = 0) -> None:
        """So many run, so many are gated, and the books say the same."""
        await self.until(lambda: (self.running("grows"), self.gated()) == (running, gated))
        await self.pass_time(3)
        assert not invariants.breaches(self.world, (invariants.cache_equals_the_api,))
        held = [w for w in self.world.objects(WORKLOADS) if _owner(w) == "grows" and _holds(w)]
        assert len(held) == 1, "of two slices with quota one has to end"

    async def until(self, reached: Any) -> None:
        for _ in range(LONGEST):
            if reached():
                return
            await self.pass_time(1)
        raise AssertionError(f"not within {LONGEST} s: {self.running('grows')} run, {self.gated()} are gated")

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
        """What must hold at any moment: no more runs than there is, and nothing runs that holds nothing."""
        alive = [pod for pod in self.world.objects(PODS) if not invariants.is_over(pod)]
        free = [pod for pod in alive if not pod["spec"].get("schedulingGates")]
        assert len(free) * GPUS <= QUOTA, [pod["metadata"]["name"] for pod in free]
        held = [w for w in self.world.objects(WORKLOADS) if _owner(w) == "grows" and _holds(w)]
        admitted = max((w["spec"]["podSets"][0]["count"] for w in held), default=0)
        released = [pod for pod in free if _job_of(pod) == "grows"]
        assert len(released) <= admitted, f"{len(released)} are released, {admitted} were admitted"
        assert len([w for w in held if not is_true(w, names.CONDITION_EVICTED)]) <= 2

    def running(self, name: str) -> int:
        """Pods of the Job that run."""
        return sum(_job_of(pod) == name and pod["status"].get("phase") == "Running" for pod in self.world.objects(PODS))

    def gated(self) -> int:
        """Pods of the elastic Job that its gate holds."""
        gate = {"name": names.ELASTIC_JOB_GATE}
        return sum(gate in (pod["spec"].get("schedulingGates") or ()) for pod in self.world.objects(PODS))


def _job_of(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(kube_names.JOB_NAME_LABEL, ""))


def _owner(workload: Object) -> str:
    return str(workload["metadata"]["ownerReferences"][0]["name"])


def _holds(workload: Object) -> bool:
    return is_true(workload, names.CONDITION_QUOTA_RESERVED) and not is_true(workload, names.CONDITION_FINISHED)


async def told(at: int, *, after: bool) -> tuple[bool, World]:
    """Whether the story was cut short somewhere, and the world after it."""
    async with simulated("elastic") as world:
        life = Life(world, at, after=after)
        await life.tell()
        return life.died, world


@pytest.mark.proves("Job", "workload slices")
async def test_an_elastic_job_lives_through_growth_want_and_eviction() -> None:
    """Three slices took turns; each that was replaced says so, and the last one ended with the Job."""
    died, world = await told(0, after=False)
    mine = [w for w in world.objects(WORKLOADS) if _owner(w) == "grows"]
    reasons = sorted(
        c["reason"] for w in mine for c in w["status"]["conditions"] if c["type"] == names.CONDITION_FINISHED
    )

    assert not died
    assert reasons == ["Succeeded", "WorkloadSliceReplaced", "WorkloadSliceReplaced"]
    assert world.bugs == []


@pytest.mark.slow
@pytest.mark.proves("Job", "workload slices")
@pytest.mark.parametrize(("first", "after"), [(1, False), (2, True)], ids=["before", "after"])
async def test_a_controller_killed_at_any_write_changes_nothing_of_that(first: int, after: bool) -> None:
    """Every twenty-first write (set `STRIDE` to 1 for all of them), until the story has no more."""
    cut = 0
    for at in range(first, MOST, STRIDE):
        died, world = await told(at, after=after)
        assert world.bugs == [], f"killed at write {at}"
        if not died:
            break
        cut += 1
    assert 80 // STRIDE < cut < (MOST - first) // STRIDE


async def test_pods_of_growth_that_is_not_queued_any_more_say_why_they_are_held() -> None:
    """The label was taken off past the webhook: what runs keeps its quota, what waits is told within some minutes."""
    async with simulated() as world:
        elastic = job("grows", pods=4, run_seconds=9999, topology=None)
        elastic["metadata"]["annotations"] = {names.ELASTIC_JOB_ANNOTATION: "true"}
        await world.submit(elastic)
        await world.pass_time(5)
        more = {"spec": {"parallelism": 7, "completions": 7}}  # of 48 GPUs they would need 56
        await world.api.patch(JOBS, "grows", more, namespace=NAMESPACE)
        await world.pass_time(5)
        hooks = [(kind, obj) for kind in (MUTATING, VALIDATING) for obj in world.objects(kind)]
        for kind, obj in hooks:
            await world.api.delete(kind, obj["metadata"]["name"])
        off = {"metadata": {"labels": {names.QUEUE_NAME_LABEL: None}}}
        await world.api.patch(JOBS, "grows", off, namespace=NAMESPACE)
        await world.pass_time(600)
        pods = world.objects(PODS)
        gated = {p["metadata"]["name"] for p in pods if has_gate(p, names.ELASTIC_JOB_GATE)}
        told = {e["regarding"]["name"]: e["note"] for e in world.objects(EVENTS) if e["reason"] == EVENT_HELD}
        workloads = [w["spec"]["podSets"][0]["count"] for w in world.objects(WORKLOADS)]

    assert (len(pods), len(gated)) == (7, 3)
    assert workloads == [4]
    assert set(told) == gated
    assert all("as many pods of its job run" in note for note in told.values())
