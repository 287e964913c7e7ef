"""An import writes in an order that may end anywhere, and takes nothing that has changed since it was planned."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.clock import SystemClock
from kqueue.controllers.resources import NODES, PODS, WORKLOADS, resource_of
from kqueue.errors import InvalidObjectError, NotFoundError, UnreachableError
from kqueue.jobs.catalog import BY_FRAMEWORK
from kqueue.jobs.job import BatchJob
from kqueue.jobs.switches import JobFeatures
from kqueue.operations.importing.plan import ImportStep, plan
from kqueue.operations.importing.run import Importer
from kqueue.operations.importing.units import units_in
from kqueue.operations.importing.world import jobs_in, read_world
from kqueue.runtime.client import Client
from kqueue.runtime.resources import ResourceType
from kqueue.sandbox import Sandbox
from tests.unit.cli.importing.running import KUEUE, RACK, TO_MAIN, Object, job, pod, template, world

JOBS = resource_of(BatchJob())
QUEUE = f"{KUEUE}/queue-name"
Write = Callable[[Client], Awaitable[Any]]


class Interrupted(Client):
    """A client that does something else before a write, or dies there."""

    def __init__(self, url: str, at: ResourceType, meanwhile: Write | None, *, after: int = 0) -> None:
        super().__init__(url)
        self.at, self.meanwhile, self.after, self.writes = at, meanwhile, after, 0

    async def patch(self, resource: ResourceType, *rest: Any, **more: Any) -> Any:
        if resource == self.at:
            self.writes += 1
            if self.meanwhile is None and self.writes > self.after:
                raise UnreachableError("killed")
            if self.meanwhile is not None and self.writes == 1:
                await self.meanwhile(self)
        return await super().patch(resource, *rest, **more)


@dataclass
class Told:
    """What was reported."""

    problems: list[str] = field(default_factory=list)

    def __call__(self, step: ImportStep, problem: str) -> None:
        self.problems.append(problem)


async def planned(client: Client) -> ImportStep:
    """The step for the job that runs, planned from what is stored now."""
    pods = await client.list_json(PODS, "default")
    jobs = [(BatchJob(), one) for one in await client.list_json(JOBS, "default")]
    stored = await read_world(client, ["default"])
    known = world(local_queues={("default", "main"): "team"}, workloads=stored.workloads)
    [unit] = units_in(jobs, pods, JobFeatures())
    found = plan(unit, known, TO_MAIN)
    assert isinstance(found, ImportStep), getattr(found, "text", found)
    return found


async def begin(client: Client) -> None:
    """Two pods of a job run on the hosts of a rack."""
    template_of_two = template(podset_required_topology=RACK)
    made = job(of=template_of_two)
    made["metadata"] = {"name": "j", "namespace": "default"}
    made["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    stored = await client.create(JOBS, made, "default")
    for name, host in (("p0", "h00"), ("p1", "h01")):
        await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": host}})
        one = pod(name, host, template_of_two, controller={"apiVersion": "batch/v1", "kind": "Job", **stored})
        one["metadata"] = {k: v for k, v in one["metadata"].items() if k not in ("uid", "namespace")}
        await client.create(PODS, {**one, "metadata": {**one["metadata"], "namespace": "default"}}, "default")


async def run(client: Client, step: ImportStep) -> list[str]:
    """Import; what was reported."""
    told = Told()
    await Importer(client, SystemClock(), told).run([step], at_once=1)
    return told.problems


async def end_a_pod(client: Client) -> None:
    await Client.patch(client, PODS, "p1", {"status": {"phase": "Succeeded"}}, "default", subresource="status")


async def suspend(client: Client) -> None:
    await Client.patch(client, JOBS, "j", {"spec": {"suspend": True}}, "default")


async def touch(client: Client) -> None:
    await Client.patch(client, PODS, "p0", {"metadata": {"annotations": {"a": "b"}}}, "default")


async def labels(client: Client) -> Object:
    found: Object = (await client.get_json(JOBS, "j", "default"))["metadata"].get("labels") or {}
    return found


@pytest.mark.parametrize(
    ("at", "after", "meanwhile", "text"),
    [
        pytest.param(PODS, 0, end_a_pod, "Pod p1 ended or moved meanwhile", id="a-pod-ends"),
        pytest.param(JOBS, 0, None, "killed", id="killed-before-the-queue"),
        pytest.param(PODS, 1, None, "killed", id="killed-between-the-marks"),
        pytest.param(WORKLOADS, 0, None, "killed", id="killed-before-the-admission"),
        pytest.param(WORKLOADS, 1, None, "killed", id="killed-before-the-gate-is-opened"),
    ],
)
async def test_an_import_that_ends_early_queues_nothing(
    sandbox: Sandbox, client: Client, at: ResourceType, after: int, meanwhile: Write | None, text: str
) -> None:
    """No controller stops the job then, and the next import ends as the first would have."""
    await begin(client)
    step = await planned(client)
    async with Interrupted(sandbox.url, at, meanwhile, after=after) as interrupted:
        [problem] = await run(interrupted, step)
    left = await client.list_json(WORKLOADS, "default")
    assert text in problem
    assert QUEUE not in await labels(client)
    if meanwhile is not None:
        assert left == [], "the Workload is gone with the plan"
        return
    assert not any(model.is_queueable(msgspec.convert(one, wire.Workload, strict=False)) for one in left)
    assert await run(client, await planned(client)) == [""]
    [workload] = await client.list_json(WORKLOADS, "default")
    assert workload["metadata"]["uid"] == left[0]["metadata"]["uid"]
    assert workload["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]
    [reserved] = [c for c in workload["status"]["conditions"] if c["type"] == "QuotaReserved"]
    assert f"{KUEUE}/admission-gated-by" not in workload["metadata"]["annotations"]
    assert workload["metadata"]["annotations"]["kqueue.dev/imported"] == reserved["lastTransitionTime"]
    assert (await labels(client))[QUEUE] == "main"


async def test_a_job_that_is_suspended_before_its_queue_is_left_alone(sandbox: Sandbox, client: Client) -> None:
    """A queue would start it again."""
    await begin(client)
    step = await planned(client)
    async with Interrupted(sandbox.url, PODS, suspend) as interrupted:
        [problem] = await run(interrupted, step)
    assert "Job j was stopped or ended meanwhile" in problem
    assert QUEUE not in await labels(client)
    assert await client.list_json(WORKLOADS, "default") == []


async def test_checks_are_passed_at_the_admission(client: Client) -> None:
    """Their controllers have nothing to answer: the job runs."""
    await begin(client)
    step = replace(await planned(client), checks=("budget", "place"))
    assert await run(client, step) == [""]
    [workload] = await client.list_json(WORKLOADS, "default")
    states = [(one["name"], one["state"]) for one in workload["status"]["admissionChecks"]]
    admitted = [c["status"] for c in workload["status"]["conditions"] if c["type"] == "Admitted"]

    assert states == [("budget", "Ready"), ("place", "Ready")]
    assert all("ran before it was imported" in one["message"] for one in workload["status"]["admissionChecks"])
    assert admitted == ["True"]


async def test_other_writers_of_a_pod_do_not_disturb(sandbox: Sandbox, client: Client) -> None:
    """The mark is made on the version that another client wrote in between."""
    await begin(client)
    step = await planned(client)
    async with Interrupted(sandbox.url, PODS, touch) as interrupted:
        assert await run(interrupted, step) == [""]
    marked = (await client.get_json(PODS, "p0", "default"))["metadata"]["annotations"]
    assert (marked["a"], marked[f"{KUEUE}/workload"]) == ("b", step.workload["metadata"]["name"])


async def test_a_workload_that_a_cycle_admitted_elsewhere_is_not_taken(sandbox: Sandbox, client: Client) -> None:
    """A controller that runs with the kind off may be faster than the import."""
    await begin(client)
    step = await planned(client)

    async def admit(other: Client) -> None:
        name = step.workload["metadata"]["name"]
        condition = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
                     "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
        admission = {"clusterQueue": "other", "podSetAssignments": []}
        status = {"admission": admission, "conditions": [condition]}
        await Client.patch(other, WORKLOADS, name, {"status": status}, "default", subresource="status")

    async with Interrupted(sandbox.url, WORKLOADS, admit) as interrupted:
        [first] = await run(interrupted, step)
    [second] = await run(client, step)
    assert first
    assert "says something else" in second
    assert QUEUE not in await labels(client)


class Runtimes(Client):
    """An API server with one TrainJob and, if it has one, its runtime; it serves nothing else."""

    def __init__(self, url: str, runtime: Object | None) -> None:
        super().__init__(url)
        self.runtime = runtime

    async def list_json(self, resource: ResourceType, *_rest: Any, **_more: Any) -> list[Object]:
        if resource.kind != "TrainJob":
            raise NotFoundError("no such kind", status=404)
        spec = {"runtimeRef": {"name": "torch"}, "trainer": {"numNodes": 2}}
        meta = {"name": "t", "namespace": "ns", "uid": "t"}
        return [{"apiVersion": resource.api_version, "kind": "TrainJob", "metadata": meta, "spec": spec}]

    async def get_json(self, resource: ResourceType, *_rest: Any, **_more: Any) -> Object:
        if self.runtime is None or resource.kind != "ClusterTrainingRuntime":
            raise NotFoundError("nothing", status=404)
        return self.runtime


@pytest.mark.parametrize("exists", [True, False])
async def test_jobs_are_read_with_the_objects_that_their_kind_needs(exists: bool) -> None:
    """The pods of a TrainJob follow from its runtime; kinds that are not served have no jobs."""
    node = {"name": "node", "template": {"metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                                         "spec": {"template": template()}}}  # fmt: skip
    runtime: Object = {"metadata": {"name": "torch"}, "spec": {
        "mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [node]}}
    }}  # fmt: skip
    async with Runtimes("http://127.0.0.1:1", runtime if exists else None) as client:
        [(kind, found)] = await jobs_in(client, ["ns"], BY_FRAMEWORK.values())
    if exists:
        [pod_set] = kind.pod_sets(dict(found), JobFeatures())
        assert pod_set["name"] == "node"
    else:
        with pytest.raises(InvalidObjectError, match="no ClusterTrainingRuntime torch"):
            kind.pod_sets(dict(found), JobFeatures())
