"""A job and its Workload in step: each reconcile takes the next step from the world as it is, wherever the last ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec
import pytest

from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.controllers.job import JobReconciler
from kqueue.controllers.job_slices import JobSlices
from kqueue.controllers.job_workload import OWNER_INDEX, JobWorkload, owner_keys
from kqueue.controllers.job_writes import JobWrites
from kqueue.controllers.owner_context import OwnerContext, OwnerPolicy, OwnerReports
from kqueue.controllers.owners import Owners
from kqueue.controllers.raw import RawObject, as_json
from kqueue.controllers.resources import RESOURCE_FLAVORS, WORKLOADS
from kqueue.controllers.short_stop import ShortStop, charges_nothing
from kqueue.controllers.workload_steps import MissingPriorityClassError, Referred, WorkloadSteps
from kqueue.errors import ConflictError, InvalidObjectError, NotFoundError, ServerError, UnreachableError
from kqueue.jobs.ancestry import owner_kinds
from kqueue.jobs.copied import COPIES_NONE, CopiedKeys
from kqueue.jobs.job import BatchJob
from kqueue.jobs.switches import JobFeatures
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.store import Store
from tests.unit.controllers.builders import World, condition, make_flavor, message_of, read, reserved, status_of
from tests.unit.controllers.pod_world import releases_of
from tests.unit.jobs.builders import JSON, UID, make_job, make_template, prefixed, pruned

JOBS = ResourceType("batch", "v1", "jobs", "Job")
KEY = "team/sample"
NAME = "job-sample-5b05d"
RUNNING = {"active": 4, "startTime": "2026-01-01T00:00:00Z"}
OURS = "kueue.x-k8s.io/resource-in-use"


class Jobs(World):
    """A world with a Job `sample`, a flavor that selects nodes, and the reconciler of Jobs."""

    resource, workload_name = JOBS, NAME

    def __init__(self, job: JSON | None = None, **more: Any) -> None:
        super().__init__((RESOURCE_FLAVORS, make_flavor(nodeLabels={"pool": "gpu"})))
        self.jobs: Store[JSON] = Store("jobs")
        self.client.watch(self.resource, self.jobs, lambda obj: as_json(msgspec.convert(obj, RawObject)))
        self.workloads.add_index(OWNER_INDEX, owner_keys)
        self.workload_priorities: Store[wire.WorkloadPriorityClass] = Store("workload priorities")
        self.pod_priorities: Store[wire_core.PriorityClass] = Store("pod priorities")
        self.managed = {"team"}
        switches = more.pop("switches", JobFeatures())
        finished = more.pop("finished", None)
        self.steps = WorkloadSteps(
            client=self.client,
            writer=self.writer,
            referred=Referred(
                flavors=self.flavors.get,
                workload_priorities=self.workload_priorities,
                pod_priorities=self.pod_priorities,
            ),
            recorder=self.recorder,
            switches=switches,
            clock=self.clock,
        )
        if finished is not None:
            self.steps.finished = finished
        self.pods: dict[str, int] = {}
        """Workload key to pods of it that have not ended."""
        kind, echo = more.pop("kind", BatchJob()), 60.0
        manages_all = more.pop("manages_all", False)
        self.elsewhere = False
        """Whether a cluster that can be reached has a job that another cluster runs."""
        self.sent = False
        """Whether other clusters alone may run the job."""
        dispatches = more.pop("dispatches", False)
        keep = {"keep_deactivated": more.pop("keep_deactivated", None)}
        releases = releases_of(self, more.pop("hooks", None))
        self.writes = JobWrites(
            kind=kind,
            client=self.client,
            recorder=self.recorder,
            clock=self.clock,
            short_stop=ShortStop(self.client, more.pop("charge", charges_nothing)),
            echo_timeout=echo,
        )
        context = OwnerContext(
            client=self.client,
            book=self.writer,
            workloads=self.workloads,
            steps=self.steps,
            recorder=self.recorder,
            clock=self.clock,
            manages=self.managed.__contains__,
            policy=OwnerPolicy(
                switches=switches,
                copied=more.pop("copied", COPIES_NONE),
                without_queue=manages_all,
                echo_timeout=echo,
                dispatches=dispatches,
                **keep,
            ),
            releases=releases,
            runs_elsewhere=lambda _workload: self.elsewhere,
            is_sent=lambda _workload: self.sent,
        )
        created = {"created": more.pop("on_created")} if "on_created" in more else {}
        self.workload_of = JobWorkload(
            context,
            kind=kind,
            writes=self.writes,
            pods_left=lambda key: bool(self.pods.get(key)),
            reports=OwnerReports(**created),
            **more,
        )
        self.standing: dict[str, int] = {}
        """Released pods of an elastic job, by pod set."""
        self.slices = JobSlices(
            kind=kind,
            workload=self.workload_of,
            steps=self.steps,
            writes=self.writes,
            standing=lambda _siblings: self.standing,
            switches=switches,
        )
        owners = Owners(
            client=self.client,
            known=owner_kinds(["batch/job", "jobset.x-k8s.io/jobset"]),
            stores={("batch", "Job"): self.jobs},
            manages_all=manages_all,
            clock=self.clock,
        )
        self.reconciler = JobReconciler(
            context,
            kind=kind,
            jobs=[self.jobs],
            workload=self.workload_of,
            slices=self.slices,
            writes=self.writes,
            owners=owners,
        )
        self.client.put(self.resource, job if job is not None else make_job())

    async def step(self, *, late: bool = False) -> list[str]:
        """One reconcile, with everything seen or (`late`) with an old picture; the writes it made."""
        before = len(self.client.writes())
        if not late:
            self.sync()
        await self.reconciler.reconcile(KEY)
        return [str(call) for call in self.client.writes()[before:]]

    async def rest(self) -> None:
        """Reconcile until nothing is left to do; fails if that does not end."""
        for _ in range(10):
            if not await self.step():
                return
        raise AssertionError("the job goes on and on")

    def workloads_only(self) -> None:
        """The watch of Workloads catches up; that of Jobs does not tell of the Job."""
        self.sync()
        self.jobs.remove(KEY)

    async def queued(self) -> None:
        """Up to the Workload."""
        await self.rest()
        assert self.client.keys(WORKLOADS) == [f"team/{NAME}"]

    async def running(self, **status: Any) -> None:
        """Up to the running job."""
        await self.queued()
        self.admit()
        await self.rest()
        self.client.change(JOBS, KEY, {"status": {**RUNNING, **status}})
        self.sync()
        assert self.job["spec"]["suspend"] is False
        self.recorder.events.clear()

    def admit(self) -> None:
        """As the scheduling loop does."""
        self.client.change(WORKLOADS, f"team/{NAME}", {"status": reserved(pods=4)})

    def evict(self, reason: str = "Preempted", message: str = "somebody needs it") -> None:
        """As the one who needs the room does."""
        conditions = [*self.found["status"]["conditions"], condition("Evicted", reason=reason, message=message)]
        self.client.change(WORKLOADS, f"team/{self.workload_name}", {"status": {"conditions": conditions}})

    @property
    def job(self) -> JSON:
        """The Job as the server has it."""
        obj = self.client.object(self.resource, KEY)
        assert obj is not None
        return obj

    @property
    def found(self) -> JSON:
        """The Workload as the server has it."""
        obj = self.client.object(WORKLOADS, f"team/{self.workload_name}")
        assert obj is not None
        return obj


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Jobs]]:
    worlds: list[Jobs] = []

    def build(*args: Any, **more: Any) -> Jobs:
        worlds.append(Jobs(*args, **more))
        return worlds[-1]

    yield build
    for world in worlds:
        await world.close()


# --- the Workload is made --------------------------------------------------------------------------------------------


async def test_a_queued_job_gets_one_workload(make: Callable[..., Jobs]) -> None:
    """It is owned by the job and held by our finalizer; the job is told; then there is nothing to do."""
    seconds: list[float] = []
    world = make(copied=CopiedKeys(labels=("stage",)), on_created=seconds.append)
    world.client.change(JOBS, KEY, {"metadata": {"labels": {"stage": "test", "other": "x"}}})
    await world.clock.advance(3)

    assert await world.step() == [f"create workloads team/{NAME}"]

    meta = world.found["metadata"]
    assert (meta["ownerReferences"][0]["uid"], meta["finalizers"]) == (UID, [OURS])
    assert meta["labels"] == {"stage": "test", **prefixed(job_uid=UID)}
    assert (world.found["spec"]["queueName"], world.found["spec"]["podSets"][0]["count"]) == ("main", 4)
    assert (world.recorder.events, seconds) == ([("Job sample", "CreatedWorkload")], [3.0])
    assert await world.step() == []


async def test_a_watch_that_lags_makes_no_second_workload(make: Callable[..., Jobs]) -> None:
    """The name is always the same, so the second creation finds the first; the job is told once."""
    world = make()
    await world.step()

    await world.step(late=True)

    assert world.client.keys(WORKLOADS) == [f"team/{NAME}"]
    assert world.recorder.reasons == ["CreatedWorkload"]


async def test_a_workload_whose_creation_was_not_answered_is_adopted(make: Callable[..., Jobs]) -> None:
    """The reconcile fails; the next one takes what it finds, and goes on with it."""
    world = make()
    world.client.fail(UnreachableError("no answer"), verb="create", done=True)
    with pytest.raises(UnreachableError):
        await world.step()

    assert await world.step() == []
    world.admit()
    assert await world.step() == [f"patch jobs {KEY}"]


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(make_job(labels={}), id="it names no queue"),
        pytest.param(make_job(labels={}, managedBy="example.com/other"), id="it names no queue, and another controller runs it"),
        pytest.param({**make_job(), "metadata": {**make_job()["metadata"], "namespace": "alien"}}, id="its namespace is not managed"),
        pytest.param(make_job(status={"conditions": [condition("Complete")]}), id="it ended without us"),
        pytest.param(make_job(status={"active": 1}), id="pods of its last run are there"),
    ],
)  # fmt: skip
async def test_a_job_that_is_not_to_be_queued_is_left_alone(make: Callable[..., Jobs], job: JSON) -> None:
    """Nothing is written, whatever its state."""
    world = make(job)
    world.sync()

    await world.reconciler.reconcile(f"{job['metadata']['namespace']}/sample")

    assert (world.client.writes(), world.recorder.events) == ([], [])


async def test_a_job_that_cannot_be_read_is_told_so(make: Callable[..., Jobs]) -> None:
    """A warning that names the mistake; no Workload."""
    world = make(make_job(template=make_template(annotations=prefixed(podset_required_topology="not a level!"))))

    with pytest.raises(InvalidObjectError, match="podset-required-topology"):
        await world.step()

    assert (world.recorder.warnings, world.client.writes()) == (["InvalidJob"], [])


def priority_class(name: str, value: int, **more: Any) -> Any:
    return read(wire_core.PriorityClass, {"metadata": {"name": name}, "value": value, **more})


POD_CLASSES = [
    priority_class("high", 100),
    priority_class("default-b", 20, globalDefault=True),
    priority_class("default-a", 10, globalDefault=True),
]


@pytest.mark.parametrize(
    ("job", "classes", "want"),
    [
        pytest.param(make_job(labels=prefixed(queue_name="main", priority_class="team")), POD_CLASSES, (7, "WorkloadPriorityClass", "team"), id="the label comes first"),
        pytest.param(make_job(template=make_template(priorityClassName="high")), POD_CLASSES, (100, "PriorityClass", "high"), id="then the class of the pods"),
        pytest.param(make_job(), POD_CLASSES, (10, "PriorityClass", "default-a"), id="then the lowest default of the cluster"),
        pytest.param(make_job(), POD_CLASSES[:1], (0, "", ""), id="nothing of all that is zero"),
    ],
)  # fmt: skip
async def test_where_the_priority_comes_from(
    make: Callable[..., Jobs], job: JSON, classes: list[Any], want: tuple[int, str, str]
) -> None:
    """Value and class stand in the Workload."""
    world = make(job)
    team = read(wire.WorkloadPriorityClass, {"metadata": {"name": "team"}, "value": 7})
    world.workload_priorities.put("team", team)
    for found in classes:
        world.pod_priorities.put(found.metadata.name, found)

    await world.step()

    reference = world.found["spec"].get("priorityClassRef", {})
    assert (world.found["spec"]["priority"], reference.get("kind", ""), reference.get("name", "")) == want


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        pytest.param(make_job(labels=prefixed(queue_name="main", priority_class="no")), "WorkloadPriorityClassNotFound", id="label"),
        pytest.param(make_job(template=make_template(priorityClassName="no")), "PriorityClassNotFound", id="pods"),
    ],
)  # fmt: skip
async def test_a_job_waits_for_its_priority_class(make: Callable[..., Jobs], job: JSON, reason: str) -> None:
    """A class that is named and missing is no priority of zero: no Workload is made, and the job is told why."""
    world = make(job)

    with pytest.raises(MissingPriorityClassError, match="no does not exist"):
        await world.step()

    assert (world.recorder.warnings, world.client.writes()) == ([reason], [])
    world.workload_priorities.put("no", read(wire.WorkloadPriorityClass, {"metadata": {"name": "no"}, "value": 1}))
    world.pod_priorities.put("no", priority_class("no", 1))
    assert await world.step() == [f"create workloads team/{NAME}"]


# --- the Workload follows the job ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "change", "want"),
    [
        pytest.param({}, {"spec": {"parallelism": 2}}, {"count": 2}, id="other size"),
        pytest.param({}, {"metadata": {"labels": prefixed(max_exec_time_seconds="60")}}, {"maximumExecutionTimeSeconds": 60}, id="a time limit comes"),
        pytest.param({"max_exec_time_seconds": "60"}, {"metadata": {"labels": {"kueue.x-k8s.io/max-exec-time-seconds": None}}}, {"maximumExecutionTimeSeconds": None}, id="a time limit goes"),
    ],
)  # fmt: skip
async def test_a_waiting_workload_follows_its_job(
    make: Callable[..., Jobs], before: dict[str, str], change: JSON, want: JSON
) -> None:
    """It is rewritten, not made anew: name, UID and place in the queue stay; then there is nothing to do."""
    world = make(make_job(labels=prefixed(queue_name="main", **before)))
    await world.queued()
    uid = world.found["metadata"]["uid"]
    world.client.change(JOBS, KEY, change)

    await world.rest()

    spec = world.found["spec"]
    assert {key: {**spec["podSets"][0], **spec}.get(key) for key in want} == want
    assert world.found["metadata"]["uid"] == uid
    assert world.recorder.reasons == ["CreatedWorkload", "UpdatedWorkload"]


RACK, BLOCK = "cloud.example.com/rack", "cloud.example.com/block"
REQUIRED, PREFERRED = (f"kueue.x-k8s.io/podset-{how}-topology" for how in ("required", "preferred"))


def asking(**annotations: str | None) -> JSON:
    return {"spec": {"template": {"metadata": {"annotations": annotations}}}}


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        pytest.param({REQUIRED: BLOCK}, {"required": BLOCK}, id="a wider level"),
        pytest.param({REQUIRED: None, PREFERRED: RACK}, {"preferred": RACK}, id="only preferred"),
        pytest.param({REQUIRED: None}, {}, id="no level"),
    ],
)
async def test_a_waiting_workload_follows_the_topology_request_of_its_job(
    make: Callable[..., Jobs], change: dict[str, str | None], wanted: dict[str, str]
) -> None:
    """A user may edit it while the Job is suspended; the place in the queue stays."""
    world = make(make_job(template={"metadata": {"annotations": {REQUIRED: RACK}}}))
    await world.queued()
    uid = world.found["metadata"]["uid"]
    world.client.change(JOBS, KEY, asking(**change))

    await world.rest()

    asked = world.found["spec"]["podSets"][0].get("topologyRequest") or {}
    assert {key: value for key, value in asked.items() if key in ("required", "preferred")} == wanted
    assert world.found["metadata"]["uid"] == uid
    assert world.recorder.reasons == ["CreatedWorkload", "UpdatedWorkload"]


async def test_a_running_job_is_not_stopped_for_another_topology_request(make: Callable[..., Jobs]) -> None:
    """Its pods have their places."""
    world = make(make_job(template={"metadata": {"annotations": {REQUIRED: RACK}}}))
    await world.queued()
    world.admit()
    await world.rest()
    world.client.change(JOBS, KEY, asking(**{REQUIRED: BLOCK}))

    await world.rest()

    assert world.found["spec"]["podSets"][0]["topologyRequest"]["required"] == RACK
    assert "Stopped" not in world.recorder.reasons


async def test_a_workload_that_was_reserved_meanwhile_is_not_rewritten(make: Callable[..., Jobs]) -> None:
    """The watch had not told yet: what was decided on stays, and the next look deals with it."""
    world = make()
    await world.queued()
    world.client.change(JOBS, KEY, {"spec": {"parallelism": 2}})
    world.sync()
    world.admit()

    await world.step(late=True)

    assert world.found["spec"]["podSets"][0]["count"] == 4
    assert "UpdatedWorkload" not in world.recorder.reasons


async def test_a_deactivated_workload_stays_so_when_it_is_rewritten(make: Callable[..., Jobs]) -> None:
    """`active` is its user's, not its job's."""
    world = make()
    await world.queued()
    world.client.change(WORKLOADS, f"team/{NAME}", {"spec": {"active": False}})
    world.client.change(JOBS, KEY, {"spec": {"parallelism": 2}})

    await world.rest()

    assert (world.found["spec"]["active"], world.found["spec"]["podSets"][0]["count"]) == (False, 2)


async def test_a_job_that_moves_to_another_queue_takes_its_workload_along(make: Callable[..., Jobs]) -> None:
    """One patch of the queue's name."""
    world = make()
    await world.queued()
    world.client.change(JOBS, KEY, {"metadata": {"labels": prefixed(queue_name="other")}})

    assert await world.step() == [f"patch workloads team/{NAME}"]

    assert world.found["spec"]["queueName"] == "other"


async def test_a_job_that_chooses_another_profile_tells_its_workload(make: Callable[..., Jobs]) -> None:
    """One patch; a choice that is taken back stays, because it may be the Workload's own."""
    world = make()
    await world.queued()
    world.client.change(JOBS, KEY, {"metadata": {"annotations": {"kqueue.dev/placement-profile": "optimal"}}})

    assert await world.step() == [f"patch workloads team/{NAME}"]
    assert world.found["metadata"]["annotations"]["kqueue.dev/placement-profile"] == "optimal"

    world.client.change(JOBS, KEY, {"metadata": {"annotations": {"kqueue.dev/placement-profile": None}}})

    assert await world.step() == []


async def test_a_running_job_tells_its_workload_of_each_checkpoint(make: Callable[..., Jobs]) -> None:
    """One patch per change; annotations that only the Workload has stay."""
    world = make()
    await world.running()
    told = {"kqueue.dev/last-checkpoint": "2026-01-01T00:10:00Z"}
    world.client.change(WORKLOADS, f"team/{NAME}", {"metadata": {"annotations": {"kqueue.dev/reschedule": "Always"}}})
    world.client.change(JOBS, KEY, {"metadata": {"annotations": told}})

    assert await world.step() == [f"patch workloads team/{NAME}"]
    assert told.items() <= world.found["metadata"]["annotations"].items()
    assert world.found["metadata"]["annotations"]["kqueue.dev/reschedule"] == "Always"
    assert await world.step() == []


async def test_what_is_owned_too_much_is_deleted(make: Callable[..., Jobs]) -> None:
    """Of two Workloads that match one stays; the other's finalizer is taken off and it goes."""
    world = make()
    await world.queued()
    second = {**world.found, "metadata": {**world.found["metadata"], "name": "second", "uid": "2"}}
    world.client.put(WORKLOADS, second)

    await world.rest()

    assert world.client.keys(WORKLOADS) == [f"team/{NAME}"]
    assert world.recorder.reasons[-1] == "DeletedWorkload"


async def test_the_workload_of_an_earlier_job_of_that_name_is_not_taken_over(make: Callable[..., Jobs]) -> None:
    """Its UID is another: it is deleted, and the job gets a Workload of its own."""
    world = make()
    await world.queued()
    meta = world.found["metadata"]
    owner = {**meta["ownerReferences"][0], "uid": "before"}
    world.client.put(
        WORKLOADS, {**world.found, "metadata": {**meta, "name": "old", "uid": "old", "ownerReferences": [owner]}}
    )
    world.client.drop(WORKLOADS, f"team/{NAME}")

    await world.rest()

    assert world.client.keys(WORKLOADS) == [f"team/{NAME}"]
    assert world.recorder.reasons[-2:] == ["DeletedWorkload", "CreatedWorkload"]


# --- start -----------------------------------------------------------------------------------------------------------


async def test_an_admitted_job_is_started_by_one_patch(make: Callable[..., Jobs]) -> None:
    """Un-suspended with what the admission adds, under the version that was looked at; then nothing is left to do."""
    world = make()
    await world.queued()
    world.admit()
    version = world.job["metadata"]["resourceVersion"]

    assert await world.step() == [f"patch jobs {KEY}"]

    body = world.client.calls[-1].body
    assert body == {
        "metadata": {"resourceVersion": version},
        "spec": {
            "suspend": False,
            "template": {
                "metadata": {
                    "labels": prefixed(podset="main", cluster_queue_name="team", local_queue_name="main"),
                    "annotations": prefixed(workload=NAME),
                },
                "spec": {"nodeSelector": {"pool": "gpu"}},
            },
        },
    }
    assert world.recorder.events[-1] == ("Job sample", "Started")
    assert await world.step() == []


async def test_a_reservation_alone_starts_nothing(make: Callable[..., Jobs]) -> None:
    """Its checks are still to be waited for."""
    world = make()
    await world.queued()
    status = reserved(condition("Admitted", "False", "UnsatisfiedAdmissionChecks"), pods=4)
    world.client.change(WORKLOADS, f"team/{NAME}", {"status": status})

    assert await world.step() == []
    assert world.job["spec"]["suspend"] is True


async def test_a_start_on_an_old_picture_is_refused_and_made_again(make: Callable[..., Jobs]) -> None:
    """Somebody changed the job: the patch conflicts, the next reconcile starts the job as it is now."""
    world = make()
    await world.queued()
    world.admit()
    world.sync()
    world.client.change(JOBS, KEY, {"metadata": {"annotations": {"theirs": "yes"}}})

    with pytest.raises(ConflictError):
        await world.step(late=True)

    assert await world.step() == [f"patch jobs {KEY}"]
    assert world.job["spec"]["suspend"] is False


async def test_a_job_waits_for_a_flavor_that_is_missing(make: Callable[..., Jobs]) -> None:
    """It is not started without what the flavor adds; the error names it."""
    world = make()
    await world.queued()
    world.admit()
    world.client.drop(RESOURCE_FLAVORS, "default")

    with pytest.raises(NotFoundError, match="ResourceFlavor default not found"):
        await world.step()

    assert world.job["spec"]["suspend"] is True


async def test_a_job_that_contradicts_its_admission_has_failed_to_start(make: Callable[..., Jobs]) -> None:
    """The template selects other nodes than the flavor: trying again cannot help, so the Workload is finished."""
    world = make(make_job(template=make_template(nodeSelector={"pool": "other"})))
    await world.queued()
    world.admit()

    await world.rest()

    assert status_of(world.found, "Finished") == ("True", "FailedToStart")
    assert "pool" in message_of(world.found, "Finished")
    assert world.job["spec"]["suspend"] is True


# --- while it runs ---------------------------------------------------------------------------------------------------


async def test_that_all_pods_are_ready_is_written_once(make: Callable[..., Jobs]) -> None:
    """PodsReady appears when it is true for the first time, and is not written again."""
    world = make()
    await world.running(ready=3)
    assert await world.step() == []

    world.client.change(JOBS, KEY, {"status": {"ready": 4}})

    assert await world.step() == [f"patch workloads team/{NAME}/status"]
    assert status_of(world.found, "PodsReady") == ("True", "Started")
    assert await world.step() == []


async def test_pods_that_are_no_longer_needed_are_reported(make: Callable[..., Jobs]) -> None:
    """Of 5 completions 3 are done, so 2 of 4 pods will not come again; told once."""
    world = make(make_job(completions=5))
    await world.running(succeeded=3)

    assert await world.step() == [f"patch workloads team/{NAME}/status"]

    assert world.found["status"]["reclaimablePods"] == [{"name": "main", "count": 2}]
    assert await world.step() == []


async def test_where_pods_give_nothing_back_before_the_end_none_are_reported(make: Callable[..., Jobs]) -> None:
    """Switched off, it reports nothing."""
    world = make(make_job(completions=5), switches=JobFeatures(reclaimable_pods=False))
    await world.running(succeeded=3)
    assert await world.step() == []
    assert "reclaimablePods" not in world.found["status"]


@pytest.mark.parametrize("reports", [pytest.param(True, id="reporting"), pytest.param(False, id="switched off since")])
async def test_what_was_given_back_stays_so_while_quota_is_held(make: Callable[..., Jobs], reports: bool) -> None:
    """A Job that runs with fewer pods than before its eviction counts from those, and the API takes no less than it was
    told: nothing is written then, and an eviction is followed.
    """
    world = make(make_job(completions=5), switches=JobFeatures(reclaimable_pods=reports))
    await world.running(succeeded=1)
    world.client.change(WORKLOADS, f"team/{NAME}", {"status": {"reclaimablePods": [{"name": "main", "count": 2}]}})

    assert await world.step() == []

    assert world.found["status"]["reclaimablePods"] == [{"name": "main", "count": 2}]
    world.evict()
    await world.step()
    assert world.job["spec"]["suspend"] is True


async def test_places_that_are_not_needed_any_more_are_reported_by_the_same_write(make: Callable[..., Jobs]) -> None:
    """Whoever knows them is asked with the newest Workload and what has ended by then."""
    asked: list[tuple[str, dict[str, int]]] = []
    places = {"levels": ["rack"], "slices": []}

    def finished(workload: wire.Workload, ended: Mapping[str, int]) -> dict[str, Any]:
        asked.append((workload.metadata.name, dict(ended)))
        return {"finishedPods": [{"name": "main", "topologyAssignment": places}]}

    world = make(make_job(completions=5), finished=finished)
    await world.running(succeeded=3)

    assert await world.step() == [f"patch workloads team/{NAME}/status"]

    assert asked == [(NAME, {"main": 2})]
    assert world.found["status"]["finishedPods"] == [{"name": "main", "topologyAssignment": places}]
    assert await world.step() == []


@pytest.mark.parametrize("topology", [True, False], ids=["with topology", "without topology"])
async def test_a_job_that_its_user_suspends_stays_suspended(make: Callable[..., Jobs], topology: bool) -> None:
    """Its Workload is made inactive, so that the quota goes back; it is not started again."""
    world = make(switches=JobFeatures(topology=topology))
    await world.running()
    world.client.change(JOBS, KEY, {"spec": {"suspend": True}, "status": {"active": 0}})

    assert await world.step() == [f"patch workloads team/{NAME}"]

    assert world.found["spec"]["active"] is False
    assert world.recorder.reasons == ["Suspended"]
    assert world.job["spec"]["suspend"] is True


@pytest.mark.parametrize("present", [True, False], ids=["imported", "admitted again since"])
async def test_an_imported_job_that_its_user_suspends_stays_suspended(make: Callable[..., Jobs], present: bool) -> None:
    """Its template has no mark of a start; the Workload says with which reservation it was imported."""
    world = make()
    await world.queued()
    world.admit()
    reserved = next(c for c in world.found["status"]["conditions"] if c["type"] == "QuotaReserved")
    at = reserved["lastTransitionTime"] if present else "2020-01-01T00:00:00Z"
    world.client.change(WORKLOADS, f"team/{NAME}", {"metadata": {"annotations": {"kqueue.dev/imported": at}}})

    await world.step()

    assert (world.found["spec"]["active"], world.job["spec"]["suspend"]) == (not present, present)


async def test_a_running_job_that_is_changed_is_stopped_and_queued_anew(make: Callable[..., Jobs]) -> None:
    """What runs is not what was admitted: suspended, restored, and a new Workload of the same name says what it is now."""
    world = make()
    await world.running()
    uid = world.found["metadata"]["uid"]
    world.client.change(JOBS, KEY, {"spec": {"parallelism": 2}})
    await world.rest()
    assert (world.job["spec"]["suspend"], status_of(world.found, "QuotaReserved")[0]) == (True, "True")
    assert "nodeSelector" not in world.job["spec"]["template"]["spec"]

    world.client.change(JOBS, KEY, {"status": {"active": 0, "terminating": 1}})
    await world.rest()
    assert world.found["metadata"]["uid"] == uid

    world.client.change(JOBS, KEY, {"status": {"terminating": 0}})
    await world.rest()

    assert world.found["metadata"]["uid"] != uid
    assert world.found["spec"]["podSets"][0]["count"] == 2
    assert world.recorder.reasons == ["Stopped", "DeletedWorkload", "CreatedWorkload"]


@pytest.mark.parametrize("queued", [True, False], ids=["its Workload waits", "it has no Workload"])
async def test_a_job_that_its_user_starts_is_stopped(make: Callable[..., Jobs], queued: bool) -> None:
    """Without admission nothing runs."""
    world = make()
    if queued:
        await world.queued()
    world.client.change(JOBS, KEY, {"spec": {"suspend": False}})

    await world.rest()

    assert world.job["spec"]["suspend"] is True
    assert "kueue.x-k8s.io/stopping" not in world.job["metadata"].get("annotations", {})
    assert "Stopped" in world.recorder.reasons


# --- stop ------------------------------------------------------------------------------------------------------------


async def test_an_evicted_job_gets_back_what_its_user_wrote(make: Callable[..., Jobs]) -> None:
    """Suspended first; the reservation stays while pods are there."""
    world = make(make_job(template=make_template(labels={"app": "x"}, nodeSelector={"zone": "a"})))
    before = pruned(world.job["spec"])
    await world.running()
    assert world.job["spec"]["template"]["spec"]["nodeSelector"] == {"zone": "a", "pool": "gpu"}
    world.evict(message="a larger one needs it")

    await world.rest()

    assert pruned(world.job["spec"]) == before
    assert "startTime" not in world.job["status"]
    assert (world.recorder.reasons, world.recorder.messages[-1]) == (["Stopped"], "a larger one needs it")
    assert status_of(world.found, "QuotaReserved")[0] == "True"


@pytest.mark.parametrize(
    ("reason", "requeued"),
    [
        pytest.param("Preempted", "True", id="preempted comes back at once"),
        pytest.param("NodeFailures", "True", id="so does one whose node failed"),
        pytest.param("ClusterQueueStopped", "False", id="a stopped queue must start again"),
        pytest.param("Deactivated", "False", id="its user must activate it"),
    ],
)
async def test_quota_goes_back_when_the_last_pod_is_gone(make: Callable[..., Jobs], reason: str, requeued: str) -> None:
    """Reservation, admission and the word on coming back change in one write."""
    world = make()
    await world.running()
    world.evict(reason, "out")
    await world.rest()
    world.client.change(JOBS, KEY, {"status": {"active": 0}})

    assert await world.step() == [f"patch workloads team/{NAME}/status"]

    assert "admission" not in world.found["status"]
    assert status_of(world.found, "QuotaReserved") == ("False", "PendingEvaluation")
    assert status_of(world.found, "Admitted") == ("False", "NoReservation")
    assert status_of(world.found, "Requeued") == (requeued, reason)
    assert message_of(world.found, "QuotaReserved") == "out"
    assert await world.step() == []


@pytest.mark.parametrize("done", [False, True], ids=["the patch was lost", "its answer was lost"])
@pytest.mark.parametrize("steps", [0, 1, 2], ids=["at suspending", "at the start time", "at restoring"])
async def test_a_stop_that_is_cut_off_goes_on(make: Callable[..., Jobs], steps: int, done: bool) -> None:
    """Wherever it ended: the job ends up suspended and restored, without our mark, and is not started meanwhile."""
    world = make()
    before = pruned(world.job["spec"])
    await world.running()
    world.evict()
    world.sync()
    calls = iter([None] * steps + [ServerError("down", status=503)])
    whole = world.client.patch

    async def patch(*args: Any, **more: Any) -> Any:
        error = next(calls, None)
        if error is not None:
            world.client.fail(error, key=KEY, done=done)
        return await whole(*args, **more)

    world.client.patch = patch  # type: ignore[method-assign]
    with pytest.raises(ServerError):
        await world.reconciler.reconcile(KEY)

    await world.rest()

    assert pruned(world.job["spec"]) == before
    assert (world.job["metadata"].get("annotations") or {}, "startTime" in world.job["status"]) == ({}, False)
    assert world.recorder.reasons.count("Started") == 0


async def test_an_admission_does_not_strand_a_stop_that_was_cut_off(make: Callable[..., Jobs]) -> None:
    """A job whose user started it too early was half stopped when its turn came: the stop ends, then the job starts."""
    world = make()
    await world.queued()
    half_stopped = {"metadata": {"annotations": {"kueue.x-k8s.io/stopping": "true"}}, "spec": {"suspend": True}}
    world.client.change(JOBS, KEY, {**half_stopped, "status": RUNNING})
    world.admit()

    await world.rest()

    assert world.job["spec"]["suspend"] is False
    assert world.job["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "gpu"}
    assert "kueue.x-k8s.io/stopping" not in world.job["metadata"].get("annotations", {})


async def test_a_job_whose_workload_is_deleted_is_stopped(make: Callable[..., Jobs]) -> None:
    """The Workload is held until the job's last pod is gone, and its quota with it."""
    world = make()
    await world.running()
    await world.client.delete(WORKLOADS, NAME, "team")
    assert world.found["metadata"]["deletionTimestamp"]

    await world.rest()

    assert world.job["spec"]["suspend"] is True
    assert world.client.keys(WORKLOADS) == [f"team/{NAME}"]

    world.client.change(JOBS, KEY, {"status": {"active": 0}})
    await world.step()

    assert world.client.keys(WORKLOADS) == []


# --- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "reason"), [pytest.param("Complete", "Succeeded", id="it succeeded"), pytest.param("Failed", "Failed", id="it failed")]
)  # fmt: skip
async def test_the_end_of_a_job_is_the_end_of_its_workload(make: Callable[..., Jobs], kind: str, reason: str) -> None:
    """Finished with the job's message, told once; then our finalizer goes.  The job is not touched."""
    world = make()
    await world.running()
    world.client.change(JOBS, KEY, {"status": {"active": 0, "conditions": [condition(kind, message="that was it")]}})
    version = world.job["metadata"]["resourceVersion"]

    await world.rest()

    assert status_of(world.found, "Finished") == ("True", reason)
    assert message_of(world.found, "Finished") == "that was it"
    assert world.found["metadata"].get("finalizers") is None
    assert world.recorder.events == [(f"Workload {NAME}", "FinishedWorkload"), ("Job sample", "FinishedWorkload")]
    assert world.job["metadata"]["resourceVersion"] == version


async def test_a_finished_workload_leaves_its_job_alone(make: Callable[..., Jobs]) -> None:
    """A user who finishes a Workload by hand does not stop the job."""
    world = make()
    await world.running()
    conditions = [*world.found["status"]["conditions"], condition("Finished", reason="ByHand")]
    world.client.change(WORKLOADS, f"team/{NAME}", {"status": {"conditions": conditions}})

    await world.rest()

    assert world.job["spec"]["suspend"] is False
    assert world.client.keys(WORKLOADS) == [f"team/{NAME}"]


@pytest.mark.parametrize("how", ["gone", "going", "another of its name"])
async def test_the_workload_of_a_job_that_is_gone_is_finished(make: Callable[..., Jobs], how: str) -> None:
    """It gives its quota back and is no longer held."""
    world = make()
    await world.running()
    if how == "going":
        leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["foregroundDeletion"]}
        world.client.change(JOBS, KEY, {"metadata": leaving})
    else:
        world.client.drop(JOBS, KEY)
        world.sync()
        if how != "gone":
            world.client.put(JOBS, {**make_job(), "metadata": {**make_job()["metadata"], "uid": "another"}})

    await world.step(late=how == "another of its name")

    assert status_of(world.found, "Finished") == ("True", "OwnerNotFound")
    assert world.found["metadata"].get("finalizers") is None


async def test_a_job_that_only_left_the_watch_keeps_its_workload(make: Callable[..., Jobs]) -> None:
    """The server is asked before anything is ended: a job without its label is alive."""
    world = make()
    await world.running()
    world.jobs.remove(KEY)

    assert await world.step(late=True) == []
    assert status_of(world.found, "Finished") == ("", "")
