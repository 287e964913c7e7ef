"""The life of a batch Job with a controller that is killed at each of its writes: a check that asks for another try, a
preemption, a start with fewer pods, two time-outs of pods that do not get ready, deactivation, reactivation, the end.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from kqueue.api import names
from kqueue.config.policy import RequeuingStrategy, WaitForPodsReady
from kqueue.sandbox.api import JOBS, NODES, Object
from kqueue.sandbox.topology_spec import POOL_LABEL
from tests.sim import invariants
from tests.sim.lifetime import Lifetime, interrupted, told
from tests.sim.objects import CLUSTER_QUEUES, NAMESPACE, WORKLOADS, job, ours, ours_of
from tests.sim.tenancy import PEACEFUL
from tests.sim.world import condition, is_true, owner_of

CHECKS = ours_of("admissionchecks")
CHECK = "budget"
CORES = 20
"""Quota of the ClusterQueue."""
_BACK_OFF = RequeuingStrategy(backoff_limit_count=1, backoff_base_seconds=3, backoff_max_seconds=10)
_READY = WaitForPodsReady(timeout=timedelta(seconds=8), block_admission=True, requeuing_strategy=_BACK_OFF).resolved()
SETTINGS: dict[str, Any] = {"tenancy": replace(PEACEFUL, pods_ready=_READY)}
STRIDE = 41


class JobLife(Lifetime):
    """`low`: four pods of five cores each, or two at least; it takes all of the quota of `plain`."""

    ALWAYS = invariants.ALWAYS
    AT_REST = (*invariants.AT_REST, invariants.nothing_is_held)

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.written: Object = {}
        """The Job's spec as it was accepted."""
        self.answers = 0
        """Of the check, to the Job."""
        self.least = 4
        """Pods of the smallest start."""

    async def prepare(self) -> None:
        world = self.world
        await world.api.create(CHECKS, ours("AdmissionCheck", CHECK, spec={"controllerName": "example.com/budget"}))
        active = {
            "type": "Active",
            "status": "True",
            "reason": "Active",
            "message": "",
            "lastTransitionTime": world.api.now_text(),
        }
        await world.api.patch(CHECKS, CHECK, {"status": {"conditions": [active]}}, subresource="status")
        spec = {
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "admissionChecksStrategy": {"admissionChecks": [{"name": CHECK}]},
        }
        await world.api.patch(CLUSTER_QUEUES, "plain", {"spec": spec})

    async def live(self) -> None:
        world = self.world
        low = job(
            "low", queue="plain", pods=4, gpus=0, cpus="5", topology=None, priority="low", run_seconds=30, at_least=2
        )
        self.written = copy.deepcopy((await world.submit(low))["spec"])
        await self.until(lambda: self.pods("low") == 4)
        high = job("high", queue="plain", pods=2, gpus=0, cpus="5", topology=None, priority="high", run_seconds=10)
        await world.submit(high)
        await self.until(lambda: self.pods("low") == self.pods("high") == 2)
        await self.until(lambda: is_true(world.find(JOBS, "high"), "Complete"))
        await self.close_nodes(True)
        await self.hold("HoldAndDrain")
        await self.until(lambda: self.pods("low") == 0)
        await self.hold("None")
        await self.until(lambda: not self.workload()["spec"].get("active", True))
        await self.until(lambda: self.workload()["status"].get("admission") is None)
        await self.close_nodes(False)
        await self.pass_time(5)
        assert self.pods("low") == 0
        name = self.workload()["metadata"]["name"]
        await world.api.patch(WORKLOADS, name, {"spec": {"active": True}}, namespace=NAMESPACE)
        await self.until(lambda: is_true(world.find(JOBS, "low"), "Complete"))

    async def play(self) -> None:
        """The check says once that it cannot tell yet, and then that all is well."""
        for workload in self.world.objects(WORKLOADS):
            checks = (workload.get("status") or {}).get("admissionChecks") or []
            held = is_true(workload, names.CONDITION_QUOTA_RESERVED)
            if not held or not any(c["name"] == CHECK and c["state"] == "Pending" for c in checks):
                continue
            self.answers += owner_of(workload) == "low"
            state = "Retry" if owner_of(workload) == "low" and self.answers == 1 else "Ready"
            answer = {"name": CHECK, "state": state, "message": "", "lastTransitionTime": self.world.api.now_text()}
            patch = {"status": {"admissionChecks": [answer]}}
            name = workload["metadata"]["name"]
            await self.world.api.patch(WORKLOADS, name, patch, namespace=NAMESPACE, subresource="status")

    def look(self) -> None:
        assert 5 * len(self.running()) <= CORES
        found, workload = self.world.find(JOBS, "low"), self.world.workload_of("low")
        if found is None:
            return
        self.least = min(self.least, found["spec"]["parallelism"])
        if not found["spec"]["suspend"]:
            return
        if not is_true(workload, names.CONDITION_QUOTA_RESERVED) and self.pods("low") == 0:
            assert {**found["spec"], "suspend": True} == {**self.written, "suspend": True}

    def pods(self, name: str) -> int:
        """Pods of the Job that run."""
        return len(self.running(lambda pod: owner_of(pod) == name))

    def workload(self) -> Object:
        """That of `low`."""
        found = self.world.workload_of("low")
        assert found is not None
        return found

    async def hold(self, policy: str) -> None:
        """Stop the queue, or let it go on."""
        await self.world.api.patch(CLUSTER_QUEUES, "plain", {"spec": {"stopPolicy": policy}})

    async def close_nodes(self, closed: bool) -> None:
        """No new pod finds a node."""
        for node in self.world.objects(NODES):
            if node["metadata"]["labels"].get(POOL_LABEL) == "cheap":
                await self.world.api.patch(NODES, node["metadata"]["name"], {"spec": {"unschedulable": closed}})

    def end(self) -> dict[str, Any]:
        """What became of it, moments aside."""
        workload, found = self.workload(), self.world.find(JOBS, "low")
        assert found is not None
        statistics = workload["status"]["schedulingStats"]["evictions"]
        finished = condition(workload, names.CONDITION_FINISHED) or {}
        return {
            "evictions": sorted((e["reason"], e.get("underlyingCause", ""), e["count"]) for e in statistics),
            "finished": (finished["status"], finished["reason"]),
            "requeued": (workload["status"].get("requeueState") or {}).get("count"),
            "succeeded": found["status"]["succeeded"],
            "failed": found["status"].get("failed", 0),
            "answers": self.answers,
            "least": self.least,
        }


END = {
    "evictions": [
        ("AdmissionCheck", "", 1),
        ("ClusterQueueStopped", "", 1),
        ("Deactivated", "RequeuingLimitExceeded", 1),
        ("PodsReadyTimeout", "WaitForStart", 1),
        ("Preempted", "", 1),
    ],
    "finished": ("True", "Succeeded"),
    "requeued": None,
    "succeeded": 4,
    "failed": 0,
    "answers": 6,
    "least": 2,
}


@pytest.mark.proves("Job", "eviction and requeue")
@pytest.mark.proves("Job", "partial admission")
async def test_a_job_lives_through_all_that_can_happen_to_it() -> None:
    """Each eviction is counted once with its reason, and whenever the Job is stopped it is what its user wrote."""
    life = await told(JobLife, **SETTINGS)

    assert not life.died
    assert life.end() == END


@pytest.mark.slow
@pytest.mark.parametrize(("first", "after"), [(1, False), (6, True)], ids=["before", "after"])
async def test_a_controller_killed_at_any_write_changes_nothing_of_that(first: int, after: bool) -> None:
    """Every forty-first write (set `STRIDE` to 1 for all of them), until the story has no more."""
    tellings = await interrupted(JobLife, first, STRIDE, after=after, **SETTINGS)

    assert len(tellings) > 100 // STRIDE
    assert {life.at: life.end() for life in tellings} == {life.at: END for life in tellings}
