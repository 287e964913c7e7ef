"""JobSets on the simulated cluster: child Jobs, order, suspension, policies, restarts and the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from kqueue.clock import FakeClock
from kqueue.sandbox.api import JOB_SETS, JOBS, Object
from kqueue.sandbox.cluster import PARTS, Sandbox, SandboxOptions
from kqueue.sandbox.jobset_plan import plan
from kqueue.sandbox.nodes import NodeOptions
from kqueue.sandbox.topology_spec import parse_topology
from tests.unit.sandbox.simulated_world import FAIL, FOR_EVER, NAMESPACE, RUN, World, condition_of

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
PREFIX = "jobset.sigs.k8s.io/"
INDEX = "batch.kubernetes.io/job-completion-index"


def replicated(
    name: str = "w", *, replicas: int = 2, pods: int = 1, run: str = FOR_EVER, fail: bool = False, **more: Any
) -> Object:
    notes = {RUN: run, **({FAIL: "true"} if fail else {})}
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    spec = {
        "parallelism": pods,
        "completions": pods,
        "backoffLimit": 0,
        "template": {
            "metadata": {"annotations": notes, "labels": {"app": "x"}},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        },
    }
    return {
        "name": name,
        "replicas": replicas,
        "template": {"metadata": {"labels": {"mine": "1"}}, "spec": spec},
        **more,
    }


def make_jobset(*jobs: Object, **spec: Any) -> Object:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "s", "namespace": NAMESPACE},
        "spec": {"replicatedJobs": list(jobs or (replicated(),)), **spec},
    }


@asynccontextmanager
async def cluster(topology: str = "1x2x2") -> AsyncIterator[World]:
    """The whole sandbox without a server: what is deleted with its owner goes, too."""
    clock = FakeClock()
    options = SandboxOptions(
        topology=parse_topology(topology),
        parts=PARTS - {"server"},
        nodes=NodeOptions(heartbeat_seconds=0),
    )
    sandbox = Sandbox(options, clock=clock)
    await sandbox.start()
    await sandbox.settle()
    try:
        yield World(sandbox.api, clock, sandbox)
    finally:
        await sandbox.stop()


def jobset(world: World) -> Object:
    return world.api.get(JOB_SETS, "s", namespace=NAMESPACE)


def jobs(world: World) -> dict[str, Object]:
    return {job["metadata"]["name"]: job for job in world.api.list(JOBS)}


def counts(world: World, name: str = "w") -> dict[str, int]:
    """The counts of a replicated job that are not 0."""
    (found,) = (s for s in jobset(world)["status"]["replicatedJobsStatus"] if s["name"] == name)
    return {key: value for key, value in found.items() if key != "name" and value}


async def patch(world: World, spec: Object) -> None:
    await world.api.patch(JOB_SETS, "s", {"spec": spec}, namespace=NAMESPACE)
    await world.simulation.settle()


async def test_every_child_says_whose_it_is_and_which_one() -> None:
    """By label and annotation, on the Job and on its pods, beside what the user wrote."""
    async with cluster("1x2x4") as world:
        await world.add(JOB_SETS, make_jobset(replicated("lead", replicas=1), replicated("w", replicas=2, pods=2)))

        assert jobs(world).keys() == {"s-lead-0", "s-w-0", "s-w-1"}
        child = jobs(world)["s-w-1"]
        pods = world.pods(lambda pod: pod["metadata"]["labels"]["job-name"] == "s-w-1")
        wanted = {
            f"{PREFIX}jobset-name": "s",
            f"{PREFIX}replicatedjob-name": "w",
            f"{PREFIX}replicatedjob-replicas": "2",
            f"{PREFIX}job-index": "1",
            f"{PREFIX}job-global-index": "2",
            f"{PREFIX}restart-attempt": "0",
        }
        for owner in (child, *pods):
            assert wanted.items() <= owner["metadata"]["labels"].items()
            assert wanted.items() <= owner["metadata"]["annotations"].items()
        assert child["metadata"]["labels"]["mine"] == "1"
        assert [pod["metadata"]["labels"][INDEX] for pod in pods] == ["0", "1"]
        assert {pod["metadata"]["labels"]["app"] for pod in pods} == {"x"}
        assert {pod["spec"]["subdomain"] for pod in pods} == {"s"}
        assert child["metadata"]["ownerReferences"][0]["uid"] == jobset(world)["metadata"]["uid"]
        assert counts(world) == {"ready": 2, "active": 2}


async def test_it_completes_when_all_its_jobs_have() -> None:
    """Counts of succeeded Jobs grow as they end, and the end is a condition and a terminal state."""
    async with cluster() as world:
        await world.add(JOB_SETS, make_jobset(replicated("a", replicas=1, run="5"), replicated("w", run="10")))
        await world.pass_time(6)
        assert counts(world, "a") == {"succeeded": 1}
        assert condition_of(jobset(world), "Completed") is None
        await world.pass_time(5)

        assert condition_of(jobset(world), "Completed") == ("True", "AllJobsCompleted")
        assert jobset(world)["status"]["terminalState"] == "Completed"
        assert counts(world) == {"succeeded": 2}


async def test_any_target_may_be_enough() -> None:
    """The rest is stopped then."""
    policy = {"operator": "Any", "targetReplicatedJobs": ["a", "b"]}
    early, on_time = replicated("early", replicas=1, run="2"), replicated("a", replicas=1, run="5")
    async with cluster() as world:
        await world.add(JOB_SETS, make_jobset(early, on_time, replicated("b", replicas=1), successPolicy=policy))
        await world.pass_time(3)
        assert condition_of(jobset(world), "Completed") is None
        await world.pass_time(3)

        assert condition_of(jobset(world), "Completed") is not None
        assert jobs(world).keys() == {"s-early-0", "s-a-0"}
        assert world.phases() == {"Succeeded": 2}


async def test_a_suspended_jobset_holds_its_jobs_and_lets_them_go_as_its_templates_say_then() -> None:
    """What came into the templates meanwhile reaches Jobs that were made before, and goes again with the next change."""
    async with cluster("1x2x2") as world:
        await world.add(JOB_SETS, make_jobset(suspend=True))
        assert {job["spec"]["suspend"] for job in jobs(world).values()} == {True}
        assert condition_of(jobset(world), "Suspended") == ("True", "SuspendedJobs")
        assert (counts(world), world.pods()) == ({"suspended": 2}, [])

        changed = replicated()
        template = changed["template"]["spec"]["template"]
        template["metadata"]["labels"]["new"] = "1"
        template["spec"] |= {
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [{"key": "t", "operator": "Exists"}],
            "schedulingGates": [{"name": "example.com/g"}],
        }
        await patch(world, {"suspend": False, "replicatedJobs": [changed]})
        pod, _ = world.pods()
        assert condition_of(jobset(world), "Suspended") == ("False", "ResumedJobs")
        assert (pod["metadata"]["labels"]["new"], pod["spec"]["nodeSelector"]) == ("1", {"kubernetes.io/os": "linux"})
        assert "t" in [toleration.get("key") for toleration in pod["spec"]["tolerations"]]
        assert pod["spec"]["schedulingGates"] == [{"name": "example.com/g"}]
        assert counts(world) == {"active": 2}

        await patch(world, {"suspend": True, "replicatedJobs": [replicated()]})
        assert (counts(world), world.pods()) == ({"suspended": 2}, [])
        await patch(world, {"suspend": False})
        pod, _ = world.pods()
        assert "schedulingGates" not in pod["spec"]
        assert "nodeSelector" not in pod["spec"]
        assert counts(world) == {"ready": 2, "active": 2}


async def test_without_a_policy_one_failed_job_is_the_end() -> None:
    """The others are stopped."""
    async with cluster() as world:
        await world.add(JOB_SETS, make_jobset(replicated("a", replicas=1, run="5", fail=True), replicated("w")))
        await world.pass_time(6)

        assert condition_of(jobset(world), "Failed") == ("True", "FailedJobs")
        assert jobset(world)["status"]["terminalState"] == "Failed"
        assert jobs(world).keys() == {"s-a-0"}
        assert world.phases() == {"Failed": 1}


async def test_a_failure_runs_everything_again_as_often_as_allowed() -> None:
    """All Jobs are made anew, also those that had succeeded; then the limit ends it."""
    async with cluster("1x2x2") as world:
        ended = replicated("done", replicas=1, run="1")
        broken = replicated("w", replicas=1, run="5", fail=True)
        await world.add(JOB_SETS, make_jobset(ended, broken, failurePolicy={"maxRestarts": 1}))
        first = {name: job["metadata"]["uid"] for name, job in jobs(world).items()}
        await world.pass_time(2)
        assert counts(world, "done") == {"succeeded": 1}
        await world.pass_time(4)

        status = jobset(world)["status"]
        assert (status["restarts"], status["restartsCountTowardsMax"]) == (1, 1)
        again = jobs(world)
        assert again.keys() == first.keys()
        assert not {job["metadata"]["uid"] for job in again.values()} & set(first.values())
        assert {job["metadata"]["labels"][f"{PREFIX}restart-attempt"] for job in again.values()} == {"1"}
        await world.pass_time(10)
        assert condition_of(jobset(world), "Failed") == ("True", "ReachedMaxRestarts")


@pytest.mark.parametrize(
    ("action", "restarts", "ended"),
    [
        pytest.param("FailJobSet", 0, "FailJobSetFailurePolicyAction", id="fails-at-once"),
        pytest.param("RestartJobSetAndIgnoreMaxRestarts", 2, None, id="restarts-without-counting"),
        pytest.param("RestartJobSet", 0, "ReachedMaxRestarts", id="counts-as-without-a-rule"),
    ],
)
async def test_rules_of_the_failure_policy_decide(action: str, restarts: int, ended: str | None) -> None:
    """The first that fits the failed Job."""
    rules = [
        {"name": "other", "action": "FailJobSet", "targetReplicatedJobs": ["elsewhere"]},
        {"name": "this", "action": action, "onJobFailureReasons": ["BackoffLimitExceeded"]},
    ]
    async with cluster() as world:
        broken = replicated(replicas=1, run="5", fail=True)
        await world.add(JOB_SETS, make_jobset(broken, failurePolicy={"maxRestarts": 0, "rules": rules}))
        await world.pass_time(12)

        found = condition_of(jobset(world), "Failed")
        assert (found and found[1], jobset(world)["status"]["restarts"]) == (ended, restarts)


@pytest.mark.parametrize(
    ("second", "spec"),
    [
        pytest.param({}, {"startupPolicy": {"startupPolicyOrder": "InOrder"}}, id="in-order"),
        pytest.param({"dependsOn": [{"name": "a", "status": "Complete"}]}, {}, id="after-completion"),
    ],
)
async def test_later_jobs_wait_for_their_turn(second: Object, spec: Object) -> None:
    """In order: until those before are ready.  With a dependency: until it has come so far."""
    async with cluster() as world:
        gated = replicated("a", replicas=1, run="5")
        if spec:
            gated["template"]["spec"]["template"]["spec"]["schedulingGates"] = [{"name": "example.com/g"}]
        await world.add(JOB_SETS, make_jobset(gated, replicated("w", **second), **spec))
        assert jobs(world).keys() == {"s-a-0"}
        for pod in world.pods():
            await world.patch_pod(pod["metadata"]["name"], {"spec": {"schedulingGates": None}})
        await world.pass_time(6)

        assert jobs(world).keys() == {"s-a-0", "s-w-0", "s-w-1"}
        assert counts(world) == {"ready": 2, "active": 2}


async def test_it_goes_some_time_after_its_end_and_takes_all_along() -> None:
    """As long after as `ttlSecondsAfterFinished` says."""
    async with cluster() as world:
        await world.add(JOB_SETS, make_jobset(replicated(run="5"), ttlSecondsAfterFinished=10))
        await world.pass_time(14)
        assert len(world.api.list(JOB_SETS)) == 1
        await world.pass_time(2)

        assert (world.api.list(JOB_SETS), world.api.list(JOBS), world.pods()) == ([], [], [])


async def test_what_others_run_is_left_alone() -> None:
    """Not even its status is written."""
    async with cluster() as world:
        await world.add(JOB_SETS, make_jobset(managedBy="example.com/other"))

        assert (jobs(world), jobset(world).get("status")) == ({}, None)


async def test_a_jobset_without_replicas_has_no_jobs() -> None:
    """And is complete as soon as it may run."""
    async with cluster() as world:
        await world.add(JOB_SETS, make_jobset(replicated(replicas=0), suspend=True))
        assert condition_of(jobset(world), "Completed") is None
        await patch(world, {"suspend": False})

        assert jobs(world) == {}
        assert condition_of(jobset(world), "Completed") is not None


async def test_a_deleted_jobset_takes_its_jobs_and_pods_along() -> None:
    """The garbage collector follows the owners."""
    async with cluster() as world:
        await world.add(JOB_SETS, make_jobset())
        assert len(world.pods()) == 2
        await world.api.delete(JOB_SETS, "s", namespace=NAMESPACE)
        await world.pass_time(60)

        assert (world.api.list(JOB_SETS), world.api.list(JOBS), world.pods()) == ([], [], [])


def test_jobs_are_made_at_once_and_never_beside_one_of_the_same_name() -> None:
    """Without an order nobody waits for anybody; a Job that is on its way out keeps its name until it is gone."""
    job_set = make_jobset(replicated("a", replicas=1), replicated("w"))
    job_set["metadata"]["uid"] = "u"
    first = plan(job_set, [], NEW_YEAR).create
    going = {**first[0], "metadata": {**first[0]["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    second = plan(job_set, [going, first[1]], NEW_YEAR).create

    assert [job["metadata"]["name"] for job in first] == ["s-a-0", "s-w-0", "s-w-1"]
    assert [job["metadata"]["name"] for job in second] == ["s-w-1"]
