"""The life of a JobSet with a controller that is killed at each of its writes: evicted, requeued, restarted, finished."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kqueue.api import names
from kqueue.sandbox import names as sandbox_names
from kqueue.sandbox.api import JOB_SETS, JOBS, PODS, Object
from kqueue.sandbox.topology_spec import BLOCK_LABEL
from tests.sim import invariants, queue_invariants
from tests.sim.lifetime import Lifetime, interrupted, told
from tests.sim.objects import CLUSTER_QUEUES, GPU, NAMESPACE, WORKLOADS, job, template
from tests.sim.world import is_true

QUOTA = 48
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
STRIDE = 29


def replicated(name: str, *, replicas: int, pods: int, seconds: int) -> Object:
    notes = {names.REQUIRED_TOPOLOGY_ANNOTATION: BLOCK_LABEL, names.PODSET_GROUP_NAME_ANNOTATION: "all"}
    spec = {
        "parallelism": pods,
        "completions": pods,
        "backoffLimit": 0,
        "template": template(gpus=8, run_seconds=seconds, annotations=notes),
    }
    return {"name": name, "replicas": replicas, "template": {"spec": spec}}


def low() -> Object:
    """A leader and two times two workers in one block: 40 of the 48 GPUs; it may restart once."""
    labels = {names.QUEUE_NAME_LABEL: "solo", names.PRIORITY_CLASS_LABEL: "low"}
    jobs = [replicated("leader", replicas=1, pods=1, seconds=8), replicated("workers", replicas=2, pods=2, seconds=8)]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "low", "namespace": NAMESPACE, "labels": labels},
        "spec": {"replicatedJobs": jobs, "failurePolicy": {"maxRestarts": 1}},
    }


class JobSetLife(Lifetime):
    """`low` runs, makes room for a Job, runs again, loses a pod, restarts, and ends."""

    ALWAYS = ALWAYS
    AT_REST = AT_REST

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.written: list[Object] = []
        """The templates as they were accepted."""

    async def prepare(self) -> None:
        spec = {"preemption": {"withinClusterQueue": "LowerPriority"}}
        await self.world.api.patch(CLUSTER_QUEUES, "solo", {"spec": spec})

    async def live(self) -> None:
        world = self.world
        created = await world.api.create(JOB_SETS, low(), namespace=NAMESPACE)
        self.written = copy.deepcopy(self.templates(created))
        await self.until(lambda: len(self.pods()) == 5)
        await world.submit(job("high", pods=4, priority="high", run_seconds=3))
        await self.until(lambda: is_true(world.find(JOBS, "high"), "Complete"))
        await self.until(lambda: len(self.pods()) == 5)
        failed = {
            "metadata": {
                "annotations": {sandbox_names.RUN_SECONDS_ANNOTATION: "0", sandbox_names.FAIL_ANNOTATION: "true"}
            }
        }
        await world.api.patch(PODS, self.pods()[0]["metadata"]["name"], failed, namespace=NAMESPACE)
        await self.until(lambda: is_true(world.find(JOB_SETS, "low"), "Completed"))

    def look(self) -> None:
        alive = self.running()
        assert sum(8 for _ in alive) <= QUOTA, [pod["metadata"]["name"] for pod in alive]
        job_set, workload = self.world.find(JOB_SETS, "low"), self.world.workload_of("low")
        if job_set is not None and job_set["spec"]["suspend"] and not is_true(workload, "QuotaReserved"):
            assert self.templates(job_set) == self.written

    def pods(self) -> list[Object]:
        """Those of the JobSet that run."""
        return self.running(lambda pod: _set_of(pod) == "low")

    @staticmethod
    def templates(job_set: Object) -> list[Object]:
        return [r["template"]["spec"]["template"] for r in job_set["spec"]["replicatedJobs"]]


def _set_of(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get("jobset.sigs.k8s.io/jobset-name", ""))


@pytest.mark.proves("JobSet", "eviction and requeue")
async def test_a_jobset_lives_through_an_eviction_and_a_restart() -> None:
    """It leaves whole, comes back whole, is what it was in between, and runs all its pods again after a failure."""
    life = await told(JobSetLife, job_sets=True)
    world = life.world
    (workload,) = [w for w in world.objects(WORKLOADS) if w["metadata"]["name"].startswith("jobset-low")]
    reasons = [entry["reason"] for entry in workload["status"]["schedulingStats"]["evictions"]]

    assert not life.died
    assert reasons == ["Preempted"]
    assert is_true(workload, names.CONDITION_FINISHED)
    assert world.find(JOB_SETS, "low")["status"]["restarts"] == 1  # type: ignore[index]
    assert GPU in str(workload["status"]["admission"])


@pytest.mark.slow
@pytest.mark.parametrize(("first", "after"), [(1, False), (2, True)], ids=["before", "after"])
async def test_a_controller_killed_at_any_write_changes_nothing_of_that(first: int, after: bool) -> None:
    """Every twenty-ninth write (set `STRIDE` to 1 for all of them), until the story has no more."""
    tellings = await interrupted(JobSetLife, first, STRIDE, after=after, job_sets=True)

    assert len(tellings) > 30 // STRIDE
