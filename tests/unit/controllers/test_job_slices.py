"""An elastic job and its Workloads: each reconcile takes the next step from the world as it is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.controllers.resources import WORKLOADS
from kqueue.errors import KqueueError, UnreachableError
from kqueue.jobs.switches import JobFeatures
from tests.unit.controllers.builders import JSON, condition, read, reserved, status_of
from tests.unit.controllers.test_job import JOBS, KEY, OURS, RUNNING, Jobs
from tests.unit.jobs.builders import make_job, prefixed

pytestmark = pytest.mark.proves("Job", "workload slices")

GATE = "kueue.x-k8s.io/elastic-job"
SHARED = "kueue.x-k8s.io/workload-slice-name"
REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"
WAITS = condition("QuotaReserved", "False", "WaitingForQuota")


def elastic_job(**more: Any) -> JSON:
    return make_job(annotations=prefixed(elastic_job="true"), parallelism=3, **more)


class Elastic(Jobs):
    """A world with an elastic Job of three pods."""

    def __init__(self, job: JSON | None = None, **more: Any) -> None:
        super().__init__(job if job is not None else elastic_job(), **more)

    async def started(self) -> str:
        """Up to the running job; the name of its first slice."""
        await self.rest()
        (name,) = self.names
        self.give(name, 3)
        await self.rest()
        self.client.change(JOBS, KEY, {"status": {**RUNNING, "active": 3}})
        self.standing["main"] = 3
        await self.rest()
        assert self.job["spec"]["suspend"] is False
        self.recorder.events.clear()
        return name

    async def grown(self, pods: int = 5) -> tuple[str, str]:
        """Up to a second slice that waits; the names of both."""
        first = await self.started()
        self.scale(pods)
        await self.rest()
        (second,) = [name for name in self.names if name != first]
        return first, second

    def scale(self, pods: int) -> None:
        """As the user does."""
        self.client.change(JOBS, KEY, {"spec": {"parallelism": pods}})

    def give(self, name: str, pods: int, *conditions: JSON) -> None:
        """As the scheduling loop does."""
        self.client.change(WORKLOADS, f"team/{name}", {"status": reserved(*conditions, pods=pods)})

    def tell(self, name: str, *conditions: JSON) -> None:
        """Conditions beside those that are there."""
        there = {c["type"]: c for c in self.slice(name)["status"].get("conditions", [])}
        told = {**there, **{c["type"]: c for c in conditions}}
        self.client.change(WORKLOADS, f"team/{name}", {"status": {"conditions": list(told.values())}})

    @property
    def names(self) -> list[str]:
        return [key.removeprefix("team/") for key in self.client.keys(WORKLOADS)]

    def slice(self, name: str) -> JSON:
        found = self.client.object(WORKLOADS, f"team/{name}")
        assert found is not None
        return found

    def count(self, name: str) -> int:
        return int(self.slice(name)["spec"]["podSets"][0]["count"])

    def end_of(self, name: str) -> tuple[str, str]:
        return status_of(self.slice(name), "Finished")


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Elastic]]:
    worlds: list[Elastic] = []

    def build(*args: Any, **more: Any) -> Elastic:
        worlds.append(Elastic(*args, **more))
        return worlds[-1]

    yield build
    for world in worlds:
        await world.close()


async def test_the_first_slice_names_the_chain(make: Callable[..., Elastic]) -> None:
    """It carries its own name, and the pods get that with the gate."""
    world = make()
    name = await world.started()

    assert world.slice(name)["metadata"]["annotations"] == prefixed(elastic_job="true", workload_slice_name=name)
    template = world.job["spec"]["template"]
    assert template["metadata"]["annotations"][SHARED] == name
    assert template["spec"]["schedulingGates"] == [{"name": GATE}]


async def test_a_growing_job_runs_on_and_a_second_slice_waits(make: Callable[..., Elastic]) -> None:
    """It names the one that it is to replace, shares the chain's name, and describes pods as their user did."""
    world = make()
    first, second = await world.grown()

    metadata = world.slice(second)["metadata"]
    assert (metadata["annotations"][REPLACES], metadata["annotations"][SHARED]) == (f"team/{first}", first)
    assert (world.count(first), world.count(second)) == (3, 5)
    templates = [world.slice(name)["spec"]["podSets"][0]["template"] for name in (first, second)]
    assert templates[0] == templates[1]
    assert (metadata["finalizers"], world.job["spec"]["suspend"]) == ([OURS], False)
    assert world.recorder.events == [("Job sample", "CreatedWorkload")]


async def test_when_the_second_is_admitted_the_first_ends(make: Callable[..., Elastic]) -> None:
    """Also where the scheduler died between its two writes; the job is not touched."""
    world = make()
    first, second = await world.grown()
    before = world.job
    world.give(second, 5)

    await world.rest()

    assert (world.end_of(first), world.end_of(second)) == (("True", "WorkloadSliceReplaced"), ("", ""))
    assert OURS not in world.slice(first)["metadata"].get("finalizers", [])
    assert world.job == before
    assert [reason for _, reason in world.recorder.events][-2:] == ["FinishedWorkload", "WorkloadSliceReplaced"]


async def test_a_third_slice_replaces_the_second(make: Callable[..., Elastic]) -> None:
    """The chain keeps the name of the first, and never has three that are not over."""
    world = make()
    first, second = await world.grown()
    world.give(second, 5)
    world.scale(7)

    await world.rest()

    (third,) = set(world.names) - {first, second}
    annotations = world.slice(third)["metadata"]["annotations"]
    assert (annotations[REPLACES], annotations[SHARED]) == (f"team/{second}", first)
    assert world.end_of(first) == ("True", "WorkloadSliceReplaced")


@pytest.mark.parametrize("pods", [4, 6, 3, 1])
async def test_a_slice_that_waits_takes_other_counts(make: Callable[..., Elastic], pods: int) -> None:
    """In place, up and down; what runs has to have ended before it asks for less than that."""
    world = make()
    first, second = await world.grown()
    world.scale(pods)
    await world.rest()
    assert world.count(second) == (pods if pods >= 3 else 5)

    world.standing["main"] = min(pods, 3)
    await world.rest()

    assert (world.count(first), world.count(second), len(world.names)) == (3, pods, 2)


async def test_a_shrinking_job_keeps_its_slice_and_gives_back_what_has_ended(make: Callable[..., Elastic]) -> None:
    """Not before the pods are gone; reservation, admission and name stay."""
    world = make()
    name = await world.started()
    admission = world.slice(name)["status"]["admission"]
    world.scale(1)

    assert await world.step() == []
    assert world.count(name) == 3
    world.standing["main"] = 1
    await world.rest()

    assert (world.count(name), world.names, world.slice(name)["status"]["admission"]) == (1, [name], admission)
    assert world.job["spec"]["suspend"] is False


async def test_a_job_that_waits_changes_in_place(make: Callable[..., Elastic]) -> None:
    """Counts and templates, while it holds nothing."""
    world = make()
    await world.rest()
    (name,) = world.names
    world.scale(9)
    await world.rest()
    assert (world.names, world.count(name)) == ([name], 9)

    world.client.change(JOBS, KEY, {"spec": {"template": {"spec": {"containers": [{"name": "other"}]}}}})
    await world.rest()
    assert world.names == [name]
    assert world.slice(name)["spec"]["podSets"][0]["template"]["spec"]["containers"] == [{"name": "other"}]


async def test_what_was_admitted_for_another_template_is_not_started(make: Callable[..., Elastic]) -> None:
    """A job that is changed between admission and start begins anew: it would run with more than it was given."""
    world = make()
    await world.rest()
    (name,) = world.names
    uid = world.slice(name)["metadata"]["uid"]
    big = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100"}}}]}
    world.give(name, 3)
    world.client.change(JOBS, KEY, {"spec": {"template": {"spec": big}}})

    await world.rest()

    assert world.job["spec"]["suspend"] is True
    (again,) = world.names
    assert world.slice(again)["metadata"]["uid"] != uid
    assert world.slice(again)["spec"]["podSets"][0]["template"]["spec"] == big


async def test_an_evicted_job_stops_before_its_quota_goes(make: Callable[..., Elastic]) -> None:
    """Then the slice that waited is the job's, and starts all of it; the template was restored in between."""
    world = make()
    first, second = await world.grown()
    world.tell(first, condition("Evicted", reason="Preempted"))
    world.client.change(JOBS, KEY, {"status": {"active": 3}})
    await world.rest()
    assert (world.job["spec"]["suspend"], status_of(world.slice(first), "QuotaReserved")[0]) == (True, "True")
    assert "schedulingGates" not in world.job["spec"]["template"]["spec"]

    world.client.change(JOBS, KEY, {"status": {"active": 0}})
    world.standing.clear()
    await world.rest()
    assert (world.end_of(first), world.end_of(second)) == (("True", "WorkloadSliceReplaced"), ("", ""))
    world.give(second, 5)
    await world.rest()

    assert world.job["spec"]["suspend"] is False
    assert world.job["spec"]["template"]["metadata"]["annotations"][SHARED] == first


async def test_a_job_that_was_switched_off_stays_off(make: Callable[..., Elastic]) -> None:
    """The slice that waited to take over must not start it again."""
    world = make()
    first, second = await world.grown()
    world.client.change(WORKLOADS, f"team/{first}", {"spec": {"active": False}})
    world.tell(first, condition("Evicted", reason="Deactivated"))
    world.client.change(JOBS, KEY, {"status": {"active": 0}})
    world.standing.clear()
    world.pods.clear()

    await world.rest()

    assert world.end_of(second) == ("True", "OutOfSync")
    assert (world.end_of(first), world.slice(first)["spec"]["active"]) == (("", ""), False)
    assert world.job["spec"]["suspend"] is True


async def test_a_user_who_suspends_a_grown_job_is_heard(make: Callable[..., Elastic]) -> None:
    """Its template names the first slice; the one that took over is switched off, and does not start it again."""
    world = make()
    _, second = await world.grown()
    world.give(second, 5)
    await world.rest()

    world.client.change(JOBS, KEY, {"spec": {"suspend": True}})
    await world.step()

    assert (world.slice(second)["spec"]["active"], world.job["spec"]["suspend"]) == (False, True)


async def test_a_job_that_is_started_by_hand_is_stopped(make: Callable[..., Elastic]) -> None:
    """Its pods would never be found by who releases them."""
    world = make()
    await world.rest()
    world.client.change(JOBS, KEY, {"spec": {"suspend": False}})
    await world.rest()
    assert world.job["spec"]["suspend"] is True


async def test_a_started_job_that_lost_its_quota_is_stopped(make: Callable[..., Elastic]) -> None:
    """Unless all of its pods are held by the gate: then it waits as it is."""
    world = make()
    name = await world.started()
    world.tell(name, condition("QuotaReserved", "False"), condition("Admitted", "False"))
    world.standing.clear()
    assert await world.step() == []

    world.standing["main"] = 1
    await world.rest()
    assert world.job["spec"]["suspend"] is True


async def test_a_slice_that_was_admitted_meanwhile_is_not_made_larger(make: Callable[..., Elastic]) -> None:
    """What was decided on must not change under it: its quota is that of the old count."""
    world = make()
    first, second = await world.grown()
    world.scale(7)
    world.sync()
    world.give(second, 5)  # the watch has not brought it yet

    await world.reconciler.reconcile(KEY)
    assert world.count(second) == 5
    await world.rest()

    assert world.count(second) == 5
    (third,) = set(world.names) - {first, second}
    assert world.count(third) == 7


async def test_a_job_that_ran_before_the_gate_is_no_elastic_one(make: Callable[..., Elastic]) -> None:
    """Nothing would hold its new pods: when it grows it is stopped and queued anew."""
    world = make(switches=JobFeatures(elastic_jobs=False))
    await world.rest()
    (name,) = world.names
    world.give(name, 3)
    await world.rest()
    assert "schedulingGates" not in world.job["spec"]["template"]["spec"]
    job = world.job

    later = make(job)
    later.client.put(WORKLOADS, world.slice(name))
    await later.rest()
    assert later.job["spec"]["suspend"] is False
    later.scale(5)
    await later.rest()
    assert later.job["spec"]["suspend"] is True


@pytest.mark.parametrize("ended", ["Complete", "Failed"])
async def test_the_end_of_the_job_is_the_end_of_all(make: Callable[..., Elastic], ended: str) -> None:
    """With a slice that waits, too."""
    world = make()
    first, second = await world.grown()
    over = {"type": ended, "status": "True", "message": "done"}
    world.client.change(JOBS, KEY, {"status": {"active": 0, "conditions": [over]}})

    await world.rest()

    reason = "Succeeded" if ended == "Complete" else "Failed"
    assert {world.end_of(name) for name in (first, second)} == {("True", reason)}
    assert all(OURS not in world.slice(name)["metadata"].get("finalizers", []) for name in (first, second))


async def test_a_slice_that_its_user_finishes_is_the_last(make: Callable[..., Elastic]) -> None:
    """No other is made, and the job is left as it is."""
    world = make()
    name = await world.started()
    world.tell(name, condition("Finished", reason="ByHand"))
    await world.rest()
    assert (world.names, world.job["spec"]["suspend"]) == ([name], False)


async def test_a_slice_that_waits_and_is_deleted_comes_back(make: Callable[..., Elastic]) -> None:
    """The job runs on; another is made in its place."""
    world = make()
    first, second = await world.grown()
    uid = world.slice(second)["metadata"]["uid"]
    await world.client.delete(WORKLOADS, second, "team")

    await world.rest()

    assert world.end_of(first) == ("", "")
    (again,) = set(world.names) - {first}
    assert world.slice(again)["metadata"]["uid"] != uid
    assert world.job["spec"]["suspend"] is False


async def test_reports_are_about_what_was_admitted(make: Callable[..., Elastic]) -> None:
    """Of pods that wait for the second slice, none is missing from the first, and none gives its quota back."""
    world = make(elastic_job(completions=20))
    first = await world.started()
    world.client.change(JOBS, KEY, {"status": {"active": 3, "ready": 3}})
    await world.rest()
    assert status_of(world.slice(first), "PodsReady")[0] == "True"

    world.scale(5)
    await world.rest()
    assert status_of(world.slice(first), "PodsReady")[0] == "True"
    world.client.change(JOBS, KEY, {"status": {"active": 4, "ready": 3, "succeeded": 16}})
    await world.rest()
    assert status_of(world.slice(first), "PodsReady")[0] == "True"
    assert world.slice(first)["status"].get("reclaimablePods", []) == []

    world.client.change(JOBS, KEY, {"status": {"active": 2, "ready": 2, "succeeded": 18}})
    await world.rest()
    assert world.slice(first)["status"]["reclaimablePods"] == [{"name": "main", "count": 1}]


async def test_scaled_down_it_gives_back_what_ended_of_the_pods_it_has(make: Callable[..., Elastic]) -> None:
    """Counts of before the scaling are replaced: otherwise quota of pods that run would be given to others, too."""
    world = make(elastic_job(completions=20))
    name = await world.started()
    world.client.change(JOBS, KEY, {"status": {"active": 1, "ready": 1, "succeeded": 19}})
    await world.rest()
    assert world.slice(name)["status"]["reclaimablePods"] == [{"name": "main", "count": 2}]

    world.scale(2)
    world.standing["main"] = 1
    await world.rest()

    assert world.count(name) == 2
    assert world.slice(name)["status"]["reclaimablePods"] == [{"name": "main", "count": 1}]


async def test_priority_follows_to_both(make: Callable[..., Elastic]) -> None:
    """The slice that waits, and the one that it waits behind."""
    labels = prefixed(queue_name="main", priority_class="low")
    world = make(make_job(annotations=prefixed(elastic_job="true"), labels=labels, parallelism=3))
    for name, value in (("low", 1), ("high", 9)):
        obj = {"metadata": {"name": name}, "value": value}
        world.workload_priorities.put(name, read(wire.WorkloadPriorityClass, obj))
    first, second = await world.grown()
    world.client.change(JOBS, KEY, {"metadata": {"labels": prefixed(priority_class="high")}})
    await world.rest()
    assert [world.slice(name)["spec"]["priority"] for name in (first, second)] == [9, 9]


@pytest.mark.parametrize("done", [True, False], ids=["answer-lost", "never-done"])
@pytest.mark.parametrize("nth", range(1, 9))
async def test_killed_at_any_write_it_goes_on(make: Callable[..., Elastic], nth: int, done: bool) -> None:
    """Growth, admission, shrinking and eviction come to the same end, whichever write was the last of a process."""
    world = make()
    first = await world.started()
    lives = 0

    async def live() -> None:
        nonlocal lives
        for _ in range(12):
            lives += 1
            if lives == nth:
                for verb in ("create", "patch", "delete"):
                    world.client.fail(UnreachableError("killed"), verb=verb, done=done)
            before = len(world.client.writes())
            world.sync()
            try:
                await world.reconciler.reconcile(KEY)
            except KqueueError:
                continue
            await world.clock.advance(61)
            if len(world.client.writes()) == before:
                return

    world.scale(5)
    await live()
    (second,) = set(world.names) - {first}
    world.give(second, 5)
    await live()
    world.scale(2)
    world.standing["main"] = 2
    await live()
    world.tell(second, condition("Evicted", reason="Preempted"))
    world.client.change(JOBS, KEY, {"status": {"active": 0}})
    world.standing.clear()
    await live()

    assert world.end_of(first) == ("True", "WorkloadSliceReplaced")
    assert (world.names, world.count(second)) == ([first, second], 2)
    assert status_of(world.slice(second), "QuotaReserved")[0] == "False"
    assert (world.job["spec"]["suspend"], world.job["spec"]["parallelism"]) == (True, 2)
    assert "schedulingGates" not in world.job["spec"]["template"]["spec"]


PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"


def named(name: str) -> JSON:
    """The Workload that the job names; it was made beforehand."""
    return {"metadata": {"annotations": {PREBUILT: name}}}


async def test_slices_that_a_manager_makes_take_over_as_the_job_names_them(make: Callable[..., Elastic]) -> None:
    """As on a worker of MultiKueue: counts may lag behind in either order, and no older slice keeps its quota."""
    world = make()
    first, second = await world.grown()
    for name in (first, second):  # as copies are: without the marks and owners of a job
        bare = {"metadata": {"ownerReferences": None, "labels": None, "finalizers": None}}
        world.client.change(WORKLOADS, f"team/{name}", bare)
    world.client.change(JOBS, KEY, {**named(first), "spec": {"parallelism": 4}})
    await world.rest()
    assert (world.end_of(first), world.end_of(second)) == (("", ""), ("", "")), "out of sync in its size alone"

    world.client.change(JOBS, KEY, {**named(second), "spec": {"parallelism": 5}})
    await world.rest()
    assert world.end_of(first) == ("", ""), "the newer slice has no quota yet"
    world.give(second, 5)
    world.client.change(JOBS, KEY, {"spec": {"suspend": False}})
    await world.rest()

    assert (world.end_of(first), world.end_of(second)) == (("True", "WorkloadSliceReplaced"), ("", ""))
    assert world.slice(second)["metadata"]["ownerReferences"][0]["controller"] is True
    assert world.job["spec"]["suspend"] is False
    world.client.change(JOBS, KEY, {"spec": {"parallelism": 3}})
    await world.rest()
    assert (world.end_of(second), world.job["spec"]["suspend"]) == (("", ""), False)
