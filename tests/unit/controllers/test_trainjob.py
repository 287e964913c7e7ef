"""A TrainJob, its runtime and its Workload in step: another runtime, none at all, and a controller killed anywhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from kqueue.controllers.others import completer, enqueue_readers
from kqueue.controllers.raw import RawObject, as_json
from kqueue.controllers.resources import WORKLOADS, read_resource
from kqueue.errors import InvalidObjectError, UnreachableError
from kqueue.jobs.job import BatchJob
from kqueue.jobs.trainjob import TrainJob
from kqueue.kinds import JOB_SETS, TRAINING_RUNTIMES, ReadKind
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.store import Store
from tests.unit.controllers.builders import condition, status_of
from tests.unit.controllers.test_job import JOBS, Jobs
from tests.unit.jobs.builders import JSON, UID
from tests.unit.jobs.test_trainjob import EMPTY, as_made, child, make, runtime, written

KEY = "team/train"
TRAINJOBS = ResourceType("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob")
CLUSTER, NAMESPACED = TRAINING_RUNTIMES
TWO = runtime(policy={"numNodes": 2})


class TrainJobs(Jobs):
    """A world with a TrainJob `train`, and its runtime unless `of` is None."""

    def __init__(self, of: JSON | None = TWO) -> None:
        kind = TrainJob()
        super().__init__(kind=kind)
        self.client.drop(JOBS, "team/sample")
        self.client.watch(TRAINJOBS, self.jobs, _seen)
        self.others = {(read.group, read.kind): [self._store(read)] for read in (*TRAINING_RUNTIMES, JOB_SETS)}
        self.writes.complete = completer(kind, self.others)
        job = make(runtimePatches=[EMPTY])
        self.client.put(TRAINJOBS, {key: value for key, value in job.items() if key != "others"})
        if of is not None:
            self.client.put(read_resource(CLUSTER), of)

    def _store(self, read: ReadKind) -> Store[JSON]:
        store: Store[JSON] = Store(read.plural)
        self.client.watch(read_resource(read), store, _seen)
        return store

    async def step(self, *, late: bool = False) -> list[str]:
        before = len(self.client.writes())
        if not late:
            self.sync()
        await self.reconciler.reconcile(KEY)
        return [str(call) for call in self.client.writes()[before:]]

    async def queued(self) -> None:
        await self.rest()
        assert len(self.client.keys(WORKLOADS)) == 1

    async def running(self, **status: Any) -> None:
        await self.queued()
        self.admit()
        await self.rest()
        self.tell(active=1, **status)
        assert self.job["spec"]["suspend"] is False
        self.recorder.events.clear()

    def tell(self, **counts: int) -> None:
        """As Trainer does."""
        self.client.change(TRAINJOBS, KEY, {"status": {"jobsStatus": [child("node", **counts)]}})

    def admit(self) -> None:
        assignment = {"name": "node", "count": 2, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "2"}}
        admission = {"clusterQueue": "team", "podSetAssignments": [assignment]}
        conditions = [condition("QuotaReserved"), condition("Admitted")]
        self.client.change(WORKLOADS, self.key, {"status": {"admission": admission, "conditions": conditions}})

    def evict(self, reason: str = "Preempted", message: str = "somebody needs it") -> None:
        conditions = [*self.found["status"]["conditions"], condition("Evicted", reason=reason, message=message)]
        self.client.change(WORKLOADS, self.key, {"status": {"conditions": conditions}})

    @property
    def key(self) -> str:
        (key,) = self.client.keys(WORKLOADS)
        return key

    @property
    def job(self) -> JSON:
        obj = self.client.object(TRAINJOBS, KEY)
        assert obj is not None
        return obj

    @property
    def found(self) -> JSON:
        obj = self.client.object(WORKLOADS, self.key)
        assert obj is not None
        return obj


def _seen(obj: Any) -> JSON:
    return as_json(msgspec.convert(obj, RawObject))


@pytest.fixture
async def world() -> AsyncIterator[TrainJobs]:
    made = TrainJobs()
    yield made
    await made.close()


@pytest.fixture
async def without_runtime() -> AsyncIterator[TrainJobs]:
    made = TrainJobs(None)
    yield made
    await made.close()


def counts(workload: JSON) -> list[tuple[str, int]]:
    return [(p["name"], p["count"]) for p in workload["spec"]["podSets"]]


async def test_without_its_runtime_a_job_waits_outside_the_queue(without_runtime: TrainJobs) -> None:
    """It says what is missing; with the runtime it is queued."""
    world = without_runtime
    with pytest.raises(InvalidObjectError, match=r"spec\.runtimeRef\.name: there is no ClusterTrainingRuntime torch"):
        await world.step()
    told = world.recorder.reasons
    before = world.client.keys(WORKLOADS)
    world.client.put(read_resource(CLUSTER), TWO)
    await world.queued()

    assert (told, before) == (["InvalidJob"], [])
    assert counts(world.found) == [("node", 2)]


async def test_a_waiting_job_asks_for_what_its_runtime_says_now(world: TrainJobs) -> None:
    """In the same Workload, which keeps its place."""
    await world.queued()
    key = world.key
    world.client.change(read_resource(CLUSTER), "torch", {"spec": {"mlPolicy": {"numNodes": 5}}})
    await world.rest()

    assert world.key == key
    assert counts(world.found) == [("node", 5)]


async def test_a_runtime_that_changed_since_the_admission_is_not_started(world: TrainJobs) -> None:
    """What it needs now was not admitted."""
    await world.queued()
    world.admit()
    world.client.change(read_resource(CLUSTER), "torch", {"spec": {"mlPolicy": {"numNodes": 5}}})
    await world.rest()

    assert world.job["spec"]["suspend"] is True
    assert counts(world.found) == [("node", 5)]
    assert status_of(world.found, "Admitted")[0] != "True"


async def test_a_start_is_two_writes_of_the_job(world: TrainJobs) -> None:
    await world.queued()
    world.admit()
    made = await world.step()

    assert len([call for call in made if "trainjobs" in call]) == 2
    assert world.job["spec"]["suspend"] is False
    assert len(written(world.job)) == 1
    assert not world.job["metadata"].get("annotations")


async def test_killed_between_the_two_writes_it_starts_all_the_same(world: TrainJobs) -> None:
    """The first write is not taken for a suspension by the user, which would deactivate the Workload."""
    await world.queued()
    world.admit()
    world.client.fail(UnreachableError("no answer"), key=KEY, done=True)
    with pytest.raises(UnreachableError):
        await world.step()
    half = world.job
    await world.rest()

    assert half["spec"]["suspend"] is True
    assert len(written(half)) == 1
    assert world.job["spec"]["suspend"] is False
    assert len(written(world.job)) == 1
    assert world.found["spec"]["active"] is True


async def test_a_user_who_suspends_a_started_job_is_heard(world: TrainJobs) -> None:
    await world.running()
    world.client.change(TRAINJOBS, KEY, {"spec": {"suspend": True}})
    await world.step()

    assert world.found["spec"]["active"] is False
    assert world.job["spec"]["suspend"] is True


async def test_an_evicted_job_is_suspended_then_emptied_then_gives_its_quota_back(world: TrainJobs) -> None:
    await world.running()
    world.evict()
    await world.rest()
    waiting = world.job, status_of(world.found, "QuotaReserved")[0]
    world.tell()
    await world.rest()

    assert waiting[0]["spec"]["suspend"] is True
    assert len(written(waiting[0])) == 1
    assert waiting[1] == "True"
    assert written(world.job) == []
    assert status_of(world.found, "QuotaReserved")[0] == "False"
    assert world.recorder.reasons.count("Stopped") == 1


async def test_a_job_that_is_stopped_for_another_runtime_is_emptied_too(world: TrainJobs) -> None:
    """Its next Workload has nothing of the last admission."""
    await world.running()
    world.evict()
    await world.rest()
    world.client.change(read_resource(CLUSTER), "torch", {"spec": {"mlPolicy": {"numNodes": 5}}})
    world.tell()
    await world.rest()

    assert written(world.job) == []
    assert counts(world.found) == [("node", 5)]
    assert "nodeSelector" not in world.found["spec"]["podSets"][0]["template"]["spec"]


@pytest.mark.parametrize("edit", ["changed", "deleted"])
async def test_a_running_job_outlives_its_runtime(world: TrainJobs, edit: str) -> None:
    """Trainer leaves its JobSet as it is."""
    await world.running()
    owner = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "train", "uid": UID}
    metadata = {"name": "train", "namespace": "team", "ownerReferences": [{**owner, "controller": True}]}
    spec = {"suspend": False, "replicatedJobs": [as_made(2)]}
    world.client.put(read_resource(JOB_SETS), {"metadata": metadata, "spec": spec})
    if edit == "changed":
        world.client.change(read_resource(CLUSTER), "torch", {"spec": {"mlPolicy": {"numNodes": 5}}})
    else:
        world.client.drop(read_resource(CLUSTER), "torch")
    await world.rest()

    assert world.job["spec"]["suspend"] is False
    assert counts(world.found) == [("node", 2)]
    assert world.recorder.reasons == []


async def test_a_jobset_larger_than_the_admission_is_stopped(world: TrainJobs) -> None:
    """The runtime was larger at the moment when Trainer read it."""
    await world.running()
    owner = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "train", "uid": UID}
    metadata = {"name": "train", "namespace": "team", "ownerReferences": [{**owner, "controller": True}]}
    world.client.put(
        read_resource(JOB_SETS), {"metadata": metadata, "spec": {"suspend": False, "replicatedJobs": [as_made(9)]}}
    )
    await world.step()

    assert world.job["spec"]["suspend"] is True


def test_jobs_are_looked_at_when_what_they_refer_to_changes() -> None:
    """A runtime of their namespace or of the cluster; others concern nobody."""
    jobs, clusters, own = (Store[JSON](name) for name in ("jobs", "cluster", "namespaced"))
    others = {(CLUSTER.group, CLUSTER.kind): [clusters], (NAMESPACED.group, NAMESPACED.kind): [own]}
    found: list[str] = []
    enqueue_readers(TrainJob(), jobs, others, found.append)
    for name, reference in (("a", {"name": "torch"}), ("b", {"name": "torch", "kind": "TrainingRuntime"})):
        job = make(reference=reference)
        jobs.put(f"team/{name}", job)
    clusters.put("torch", {"metadata": {"name": "torch"}})
    clusters.put("other", {"metadata": {"name": "other"}})
    own.put("else/torch", {"metadata": {"name": "torch", "namespace": "else"}})
    own.put("team/torch", {"metadata": {"name": "torch", "namespace": "team"}})
    own.remove("team/torch")

    assert found == ["team/a", "team/b", "team/b"]


def test_other_kinds_get_their_jobs_as_they_are() -> None:
    job, found, jobs = make(), list[str](), Store[JSON]("jobs")
    enqueue_readers(BatchJob(), jobs, {}, found.append)
    jobs.put(KEY, job)

    assert completer(BatchJob(), {})(job) is job
    assert found == []
