from __future__ import annotations

from typing import Any

import pytest

from kqueue.errors import ForbiddenError
from kqueue.sandbox.api import EVENTS, JOBS, PODS, GroupVersionResource, Object
from kqueue.sandbox.cluster_api import ClusterApi
from kqueue.sandbox.nodes import NodeOptions
from kqueue.sandbox.simulation import ClusterSimulation, SimulationOptions
from tests.unit.sandbox.simulated_world import FOR_EVER, NAMESPACE, condition_of, make_job, make_pod, simulated

INDEX = "batch.kubernetes.io/job-completion-index"
TRACKING = "batch.kubernetes.io/job-tracking"


async def test_a_job_runs_to_complete() -> None:
    """All completions are run, never more than parallelism at once, and counted once; then the Job says so."""
    async with simulated() as world:
        await world.add(JOBS, make_job(parallelism=3, completions=5))

        assert world.status("j")["active"] == world.status("j")["ready"] == 3
        await world.pass_time(10)
        assert (world.status("j")["active"], world.status("j")["succeeded"]) == (2, 3)
        assert condition_of(world.job("j"), "Complete") is None
        await world.pass_time(10)

        status = world.status("j")
        assert condition_of(world.job("j"), "SuccessCriteriaMet") == ("True", "CompletionsReached")
        assert condition_of(world.job("j"), "Complete") == ("True", "CompletionsReached")
        assert (status["succeeded"], status.get("active"), status["ready"]) == (5, None, 0)
        assert (status["startTime"], status["completionTime"]) == ("2026-01-01T00:00:00Z", "2026-01-01T00:00:20Z")
        assert not status["uncountedTerminatedPods"]
        assert world.phases() == {"Succeeded": 5}
        assert not world.pods(lambda pod: TRACKING in pod["metadata"].get("finalizers", ()))


async def test_pods_carry_the_names_of_their_job() -> None:
    """Owner, finalizer and all four labels are there, beside what the template says."""
    async with simulated() as world:
        job = make_job(run=FOR_EVER)
        job["spec"]["template"]["metadata"]["labels"] = {"app": "x"}
        created = await world.add(JOBS, job)

        (pod,) = world.pods()
        uid = created["metadata"]["uid"]
        assert pod["metadata"]["labels"] == {
            "app": "x",
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-name": "j",
            "controller-uid": uid,
            "job-name": "j",
        }
        assert pod["metadata"]["finalizers"] == [TRACKING]
        (owner,) = pod["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("Job", uid, True)


async def test_an_indexed_job_runs_every_index_once() -> None:
    """Pods carry their index as name, label, annotation, host name and environment; completed ones are listed."""
    async with simulated() as world:
        await world.add(JOBS, make_job(parallelism=2, completions=3, completionMode="Indexed"))

        first, second = world.pods()
        assert [pod["metadata"]["labels"][INDEX] for pod in (first, second)] == ["0", "1"]
        assert second["metadata"]["annotations"][INDEX] == "1"
        assert second["metadata"]["name"].startswith("j-1-")
        assert second["spec"]["hostname"] == "j-1"
        assert "JOB_COMPLETION_INDEX" in [entry["name"] for entry in second["spec"]["containers"][0]["env"]]
        await world.pass_time(10)
        assert (world.status("j")["completedIndexes"], world.status("j")["succeeded"]) == ("0-1", 2)
        await world.pass_time(10)

        assert world.status("j")["completedIndexes"] == "0-2"
        assert condition_of(world.job("j"), "Complete") == ("True", "CompletionsReached")
        assert sorted(pod["metadata"]["labels"][INDEX] for pod in world.pods()) == ["0", "1", "2"]


async def test_a_failed_index_is_run_again() -> None:
    """The replacement has the index of the pod that failed, and comes after the back-off."""
    async with simulated() as world:
        await world.add(JOBS, make_job(run=FOR_EVER, parallelism=3, completions=3, completionMode="Indexed"))
        (middle,) = world.pods(lambda pod: pod["metadata"]["labels"][INDEX] == "1")
        await world.patch_pod(
            middle["metadata"]["name"],
            {"metadata": {"annotations": {"sandbox.kqueue.dev/run-seconds": "0", "sandbox.kqueue.dev/fail": "true"}}},
        )

        assert (world.status("j")["failed"], world.status("j")["active"]) == (1, 2)
        await world.pass_time(9.5)
        assert world.status("j")["active"] == 2
        await world.pass_time(1)

        active = world.pods(lambda pod: pod["status"]["phase"] == "Running")
        assert sorted(pod["metadata"]["labels"][INDEX] for pod in active) == ["0", "1", "2"]


async def test_suspending_removes_the_pods_and_resuming_starts_anew() -> None:
    """Pods that go because of the suspension do not count as failed; the start time is that of the resumption."""
    async with simulated() as world:
        await world.add(JOBS, make_job(run="100", parallelism=2, completions=2))
        await world.pass_time(5)

        await world.patch_job("j", {"spec": {"suspend": True}})
        assert not world.pods()
        assert condition_of(world.job("j"), "Suspended") == ("True", "JobSuspended")
        assert (world.status("j").get("active"), world.status("j").get("failed")) == (None, None)
        await world.pass_time(60)
        assert not world.pods()

        await world.patch_job("j", {"spec": {"suspend": False}})
        assert world.phases() == {"Running": 2}
        assert condition_of(world.job("j"), "Suspended") == ("False", "JobResumed")
        assert world.status("j")["startTime"] == "2026-01-01T00:01:05Z"
        await world.pass_time(101)
        assert condition_of(world.job("j"), "Complete") == ("True", "CompletionsReached")


async def test_a_job_that_begins_suspended_has_no_start_time() -> None:
    """While suspended nothing starts, and a start time that was taken away stays away."""
    async with simulated() as world:
        await world.add(JOBS, make_job(suspend=True))
        await world.pass_time(5)

        assert not world.pods()
        assert "startTime" not in world.status("j")
        assert condition_of(world.job("j"), "Suspended") == ("True", "JobSuspended")

        await world.patch_job("j", {"spec": {"suspend": False}})
        await world.patch_job("j", {"spec": {"suspend": True}})
        await world.api.patch(JOBS, "j", {"status": {"startTime": None}}, namespace=NAMESPACE, subresource="status")
        await world.pass_time(5)
        assert "startTime" not in world.status("j")


async def test_failing_pods_burn_the_back_off_limit() -> None:
    """Pauses double from 10 s; one failure more than the limit ends the Job."""
    async with simulated() as world:
        await world.add(JOBS, make_job(run="0", fail=True, backoffLimit=2))

        failed_at = []
        for _ in range(60):
            await world.pass_time(1)
            failed_at.append(world.status("j").get("failed"))
        assert [failed_at.index(n) for n in (1, 2, 3)] == [0, 9, 29]
        assert condition_of(world.job("j"), "FailureTarget") == ("True", "BackoffLimitExceeded")
        assert condition_of(world.job("j"), "Failed") == ("True", "BackoffLimitExceeded")
        assert "completionTime" not in world.status("j")
        assert world.phases() == {"Failed": 3}


async def test_a_deadline_ends_the_job_and_its_pods() -> None:
    """At the deadline the running pods go and the Job is Failed with the reason."""
    async with simulated() as world:
        await world.add(JOBS, make_job(run="100", parallelism=2, completions=2, activeDeadlineSeconds=30))
        await world.pass_time(29)
        assert world.phases() == {"Running": 2}

        await world.pass_time(2)
        assert condition_of(world.job("j"), "Failed") == ("True", "DeadlineExceeded")
        assert not world.pods()
        assert world.status("j")["failed"] == 2


async def test_a_finished_job_is_removed_after_its_time() -> None:
    """ttlSecondsAfterFinished counts from the end."""
    async with simulated() as world:
        await world.add(JOBS, make_job(run="10", ttlSecondsAfterFinished=20))
        await world.pass_time(29)
        assert condition_of(world.job("j"), "Complete") is not None

        await world.pass_time(2)
        assert not world.api.list(JOBS)


async def test_parallelism_can_be_changed() -> None:
    """More pods are made, surplus ones are given up without being failures."""
    async with simulated() as world:
        await world.add(JOBS, make_job(run=FOR_EVER, parallelism=1, completions=4))
        await world.patch_job("j", {"spec": {"parallelism": 4}})
        assert world.status("j")["active"] == 4

        await world.patch_job("j", {"spec": {"parallelism": 2}})
        assert (world.status("j")["active"], world.status("j").get("failed")) == (2, None)
        assert len(world.pods()) == 2


async def test_without_completions_one_success_is_enough() -> None:
    """A work queue Job makes no new pod after the first success, and completes when the last pod is gone."""
    async with simulated() as world:
        await world.add(JOBS, make_job(run="10", parallelism=2))
        late = world.pods()[1]["metadata"]["name"]
        await world.patch_pod(late, {"metadata": {"annotations": {"sandbox.kqueue.dev/run-seconds": "15"}}})
        await world.pass_time(12)
        assert (world.status("j")["succeeded"], world.status("j")["active"]) == (1, 1)
        assert condition_of(world.job("j"), "Complete") is None

        await world.pass_time(5)
        assert world.status("j")["succeeded"] == 2
        assert condition_of(world.job("j"), "Complete") == ("True", "CompletionsReached")


async def test_a_deleted_pod_is_a_failure_and_is_replaced() -> None:
    """What somebody else deletes counts as failed; the Job goes on after the back-off."""
    async with simulated() as world:
        await world.add(JOBS, make_job(run=FOR_EVER))
        (pod,) = world.pods()
        await world.api.delete(PODS, pod["metadata"]["name"], namespace=NAMESPACE)
        await world.pass_time(11)

        assert world.status("j")["failed"] == 1
        (new,) = world.pods()
        assert new["metadata"]["uid"] != pod["metadata"]["uid"]


async def test_jobs_of_other_controllers_are_left_alone() -> None:
    """A Job with another manager gets neither pods nor status."""
    async with simulated() as world:
        await world.add(JOBS, make_job("other", managedBy="example.com/mine"))
        await world.add(JOBS, make_job("own", managedBy="kubernetes.io/job-controller"))

        assert [pod["metadata"]["labels"]["job-name"] for pod in world.pods()] == ["own"]
        assert not world.job("other").get("status", {}).get("conditions")


async def test_pods_that_lose_their_job_lose_the_finalizer() -> None:
    """After an orphaning deletion pods run on and can be deleted."""
    async with simulated() as world:
        await world.add(JOBS, make_job(run=FOR_EVER))
        await world.api.delete(JOBS, "j", namespace=NAMESPACE, propagation="Orphan")
        (pod,) = world.pods()
        await world.patch_pod(pod["metadata"]["name"], {"metadata": {"ownerReferences": None}})

        (pod,) = world.pods()
        assert not pod["metadata"].get("finalizers")
        assert pod["status"]["phase"] == "Running"


async def test_a_stray_finalizer_is_taken_off() -> None:
    """A pod without a Job that carries the tracking finalizer does not stay for ever."""
    async with simulated() as world:
        pod = make_pod("stray")
        pod["metadata"]["finalizers"] = [TRACKING, "example.com/other"]
        await world.add(PODS, pod)

        assert world.pod("stray")["metadata"]["finalizers"] == ["example.com/other"]


class _RefusingApi(ClusterApi):
    """An API server whose admission refuses the first pods, as a webhook would."""

    refusals = 3
    attempts = 0

    async def create(
        self, resource: GroupVersionResource, obj: Object, *, namespace: str | None = None, **more: Any
    ) -> Object:
        """Refuse a few pods."""
        if resource == PODS:
            self.attempts += 1
            if self.attempts <= self.refusals:
                raise ForbiddenError("the webhook says no", status=403, reason="Forbidden")
        return await super().create(resource, obj, namespace=namespace, **more)


async def test_refused_pods_are_tried_again_with_growing_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal stops the batch, is not counted as a failure, and the Job recovers by itself."""
    monkeypatch.setattr("tests.unit.sandbox.simulated_world.ClusterApi", _RefusingApi)
    async with simulated() as world:
        assert isinstance(world.api, _RefusingApi)
        await world.add(JOBS, make_job(run=FOR_EVER, parallelism=8, completions=8))
        assert 1 <= world.api.attempts <= 2, "a batch of one, and once more after the status was written"
        assert not world.pods()
        await world.pass_time(5)

        assert len(world.pods()) == 8
        assert world.status("j").get("failed") is None
        assert world.api.attempts == 3 + 8
        (event,) = world.api.list(EVENTS)
        assert (event["reason"], event["note"]) == ("FailedCreate", "Error creating: the webhook says no")


async def test_a_restarted_controller_counts_every_pod_once() -> None:
    """Whenever the controller is replaced by a new one, the counts come out right."""
    async with simulated() as world:
        await world.add(JOBS, make_job(run="10", parallelism=4, completions=8))
        await world.pass_time(9)
        for _ in range(8):
            await world.simulation.stop()
            simulation = ClusterSimulation(
                world.api, clock=world.clock, options=SimulationOptions(nodes=NodeOptions(heartbeat_seconds=0))
            )
            await simulation.start()
            world.simulation = simulation
            await world.clock.advance(1, turns=3)  # cut short in the middle of what that second brings
        await world.pass_time(40)

        assert world.status("j")["succeeded"] == 8
        assert condition_of(world.job("j"), "Complete") == ("True", "CompletionsReached")
