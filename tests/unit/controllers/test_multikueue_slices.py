"""Elastic jobs that another cluster runs: a slice takes the job over where it is, and the job grows and shrinks there.

Ids such as `17.2.9` are items of the specification of the workload life cycle.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kqueue.controllers.resources import WORKLOADS
from tests.unit.controllers.builders import JSON, condition, make_workload, reserved, status_of
from tests.unit.controllers.multikueue_world import JOBS, OWNER, Crash, MultiKueueWorld, Worker, make_job

ADMITTED = (condition("QuotaReserved"), condition("Admitted"))
PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"
ELASTIC = {"kueue.x-k8s.io/elastic-job": "true", "kueue.x-k8s.io/workload-slice-name": "w"}
REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"


class SliceWorld(MultiKueueWorld):
    """A Job of three pods, whose first slice `w` has quota; the second, `v`, replaces it."""

    def __init__(self) -> None:
        super().__init__(elastic=True)
        self.client.put(JOBS, make_job(parallelism=3, completions=None))
        self.client.put(WORKLOADS, self._slice("w", 3))
        self.reserve()

    @staticmethod
    def _slice(name: str, count: int, **annotations: str) -> JSON:
        meta = {"annotations": {**ELASTIC, **annotations}, "ownerReferences": [OWNER]}
        made = make_workload(name, metadata={"uid": f"uid-of-{name}", **meta})
        made["spec"]["podSets"][0]["count"] = count
        return made

    def grow(self, count: int) -> None:
        """The user makes the Job larger, and the manager makes a slice for it."""
        self.client.change(JOBS, "ns/j", {"spec": {"parallelism": count}})
        self.client.put(WORKLOADS, self._slice("v", count, **{REPLACES: "ns/w"}))

    def give(self) -> None:
        """The manager reserves quota for the second slice; the first is finished."""
        entry = {"name": "multi", "state": "Pending", "message": "", "lastTransitionTime": "2025-12-31T00:00:00Z"}
        status = reserved(condition("Admitted", "False"), admissionChecks=[entry])
        self.client.change(WORKLOADS, "ns/v", {"status": status})
        self.finish("w", "WorkloadSliceReplaced")

    def finish(self, name: str, reason: str) -> None:
        known = (self.workload(name) or {})["status"]["conditions"]
        ended = [*known, condition("Finished", reason=reason)]
        self.client.change(WORKLOADS, f"ns/{name}", {"status": {"conditions": ended}})

    async def step(self) -> float | None:
        """Both slices are decided about, in the order of their events."""
        self._bring()
        for key in ("ns/v", "ns/w"):
            await self.reconciler.reconcile(key)
            self._bring()
        return await super().step()

    def tell_slice(self, worker: Worker, *conditions: JSON) -> None:
        worker.client.change(WORKLOADS, "ns/v", {"status": {"conditions": list(conditions)}})

    async def running(self) -> Worker:
        await self.settled()
        worker = self.workers["a"]
        worker.tell(*ADMITTED)
        await self.settled()
        worker.client.change(JOBS, "ns/j", {"spec": {"suspend": False}, "status": {"active": 3}})
        self.client.change(JOBS, "ns/j", {"spec": {"suspend": False}})
        await self.settled()
        assert self.size() == (3, "w")
        return worker

    def size(self) -> tuple[int, str]:
        """Parallelism and Workload of the copy of the Job."""
        job = self.workers["a"].job
        assert job is not None
        assert job["metadata"]["labels"][PREBUILT] == job["metadata"]["annotations"][PREBUILT]
        return job["spec"]["parallelism"], job["metadata"]["labels"][PREBUILT]

    @property
    def heir(self) -> JSON:
        found: JSON = (self.workload("v") or {})["status"]
        return found


async def grown() -> tuple[SliceWorld, Worker]:
    """The second slice waits for the cluster that runs the job."""
    world = SliceWorld()
    worker = await world.running()
    world.grow(5)
    await world.settled()
    assert worker.names == ["ns/w", "ns/j"], "17.2.3: nothing happens before it has quota"
    world.give()
    await world.settled()
    return world, worker


async def test_a_job_grows_where_it_runs() -> None:
    """17.2.9: the slice inherits clusterName; the job gets its size when the worker has admitted it, in one write."""
    world, worker = await grown()
    assert (world.heir["clusterName"], world.heir.get("nominatedClusterNames")) == ("a", None)
    assert (worker.names, world.workers["b"].names) == (["ns/w", "ns/v", "ns/j"], [])
    assert world.size() == (3, "w")
    copy = worker.client.object(WORKLOADS, "ns/v")
    assert copy is not None
    assert copy["metadata"]["annotations"][REPLACES] == "ns/w"

    world.tell_slice(worker, *ADMITTED)
    await world.settled()

    assert world.size() == (5, "v")
    assert world.heir["admissionChecks"][0]["state"] == "Ready"
    assert worker.job is not None
    assert worker.job["spec"]["suspend"] is False, "it is not stopped"
    assert len([c for c in worker.client.writes() if c.resource == JOBS]) == 2, "its creation, and one change"


async def test_a_job_shrinks_where_it_runs() -> None:
    """17.2.6: the copy of the Workload gets the counts, and the job too; nothing starts anew."""
    world = SliceWorld()
    worker = await world.running()
    world.client.change(JOBS, "ns/j", {"spec": {"parallelism": 2}})
    pods = [{**(world.workload("w") or {})["spec"]["podSets"][0], "count": 2}]
    world.client.change(WORKLOADS, "ns/w", {"spec": {"podSets": pods}})
    await world.settled()
    assert world.size() == (2, "w")
    assert (worker.workload or {})["spec"]["podSets"][0]["count"] == 2
    assert world.entry["state"] == "Ready"


async def test_a_job_that_ends_before_it_has_grown_ends_here_too() -> None:
    """Its status comes back while its new slice waits."""
    world, worker = await grown()
    worker.client.change(JOBS, "ns/j", {"status": {"active": None, "succeeded": 3}})
    await world.settled()
    ours = world.client.object(JOBS, "ns/j")
    assert ours is not None
    assert ours["status"] == {"succeeded": 3}


async def test_a_slice_that_loses_its_quota_takes_the_job_along() -> None:
    """The copy of the job is the older slice's by name, which is over here: nobody else would end it."""
    world, worker = await grown()
    gone = [condition("Evicted"), condition("QuotaReserved", "False")]
    world.client.change(WORKLOADS, "ns/v", {"status": {"conditions": gone}})
    await world.settled()
    assert worker.job is None
    assert "ns/v" not in worker.names


async def test_an_older_slice_that_is_gone_leaves_the_job_to_the_newer_one() -> None:
    """It was kept for no time; the worker has not admitted the new one yet."""
    world, worker = await grown()
    world.client.drop(WORKLOADS, "ns/w")
    world.sync()
    world.lead()
    world.reconciler.collect_garbage()
    await world.settled()
    assert worker.names == ["ns/v", "ns/j"]
    world.tell_slice(worker, *ADMITTED)
    await world.settled()
    assert world.size() == (5, "v")


async def test_a_slice_that_is_dropped_before_it_has_quota_leaves_the_job_alone() -> None:
    """The user makes the job small again."""
    world = SliceWorld()
    worker = await world.running()
    world.grow(5)
    entry = {"name": "multi", "state": "Pending", "message": "", "lastTransitionTime": "2025-12-31T00:00:00Z"}
    world.client.change(WORKLOADS, "ns/v", {"status": {"admissionChecks": [entry]}})
    await world.settled()
    conditions = [condition("Finished", reason="OutOfSync")]
    world.client.change(WORKLOADS, "ns/v", {"status": {"conditions": conditions}})
    await world.settled()
    assert world.size() == (3, "w")
    assert worker.names == ["ns/w", "ns/j"]


@pytest.mark.parametrize("first", ["v", "w"])
async def test_two_slices_do_not_pull_at_the_job(first: str) -> None:
    """Between the quota of the new slice and the end of the older one, the new one has the job."""
    world = SliceWorld()
    worker = await world.running()
    world.grow(5)
    world.give()
    alive = [c for c in world.status["conditions"] if c["type"] != "Finished"]
    world.client.change(WORKLOADS, "ns/w", {"status": {"conditions": alive}})
    await world.settled()
    world.tell_slice(worker, *ADMITTED)
    await world.settled()
    for key in (f"ns/{first}", "ns/v", "ns/w"):
        await world.reconciler.reconcile(key)
    await world.settled()
    assert world.size() == (5, "v")


@pytest.mark.parametrize("done", [True, False], ids=["answer-lost", "never-done"])
@pytest.mark.parametrize("nth", range(1, 13))
async def test_killed_at_any_write_an_elastic_job_runs_once(nth: int, done: bool) -> None:
    """Growth on the worker, and an eviction: one cluster at a time has the job, and in the end none has."""
    world = SliceWorld()
    crash = Crash(nth, done)

    def check() -> None:
        assert sum(worker.job is not None for worker in world.workers.values()) <= 1

    live = partial(world.live, crash, check)

    await live()
    for worker in world.workers.values():
        worker.tell(*ADMITTED)
    await live()
    world.grow(5)
    await live()
    world.give()
    await live()
    world.tell_slice(world.workers["a"], *ADMITTED)
    await live()
    assert world.size() == (5, "v")
    assert world.heir["admissionChecks"][0]["state"] == "Ready"
    gone: dict[str, Any] = {
        "clusterName": None,
        "conditions": [condition("QuotaReserved", "False"), condition("Evicted")],
    }
    world.client.change(WORKLOADS, "ns/v", {"status": gone})
    await live()
    assert [worker.job for worker in world.workers.values()] == [None, None]
    assert status_of(world.workload("w"), "Finished") == ("True", "WorkloadSliceReplaced")
