"""Attacks on the quota with a tenant's rights: jobs and pods of one namespace.  docs/security.md has the table."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from kqueue.manager.process import Flags, running
from tests.integration.controlplane.access import APPLY_PATCH, MERGE_PATCH, Access, RequestError
from tests.integration.road import KUEUE, Object, job, make_road
from tests.integration.teams import FAST, LONG, Plane, Teams, configuration, flags, make_teams

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]

RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces"
APPS = "/apis/apps/v1/namespaces"
PARENT = "kueue.x-k8s.io/pod-suspending-parent"
WORKLOAD = "kueue.x-k8s.io/workload"
ELASTIC = "kueue.x-k8s.io/elastic-job"
ALL_MANAGED = "manageJobsWithoutQueueName: true\nintegrations: {frameworks: [batch/job, pod]}\n"
HOUR = 3600


def with_webhooks(plane: Plane) -> Flags:
    found = flags(plane)
    where: dict[str, Any] = {"webhook_host": "127.0.0.1", "webhook_port": 0, "webhook_url": "https://127.0.0.1:{port}"}
    return dataclasses.replace(found, parts=found.parts | {"webhooks"}, **where)


class Tenant:
    """A user with rights on jobs and pods of one namespace, and on nothing else."""

    def __init__(self, road: Teams) -> None:
        self.road, access = road, road.cluster.access
        headers = {**access.headers, "Impersonate-User": "mallory", "Impersonate-Group": "system:authenticated"}
        self.access: Access = dataclasses.replace(access, headers=headers)

    async def request(self, method: str, path: str, body: Any = None, **more: Any) -> Object:
        return await self.access.request(method, path, body, **more)

    async def refused(self, method: str, path: str, body: Any = None, **more: Any) -> str:
        """The API server's words; the test fails when the request passes, or fails for another reason."""
        with pytest.raises(RequestError) as caught:
            await self.request(method, path, body, **more)
        assert caught.value.status == 403, caught.value
        return caught.value.message

    def job(self, name: str, *, pods: int, gpus: int = 8, suspend: bool = False, **spec: Any) -> Object:
        """A Job of a queue whose pods run until they are stopped; `spec` is for its pods."""
        made = job(name, self.road.namespace, queue="a", pods=pods, gpus=gpus, required=None, run_seconds=LONG)
        made["spec"]["suspend"] = suspend
        made["spec"]["template"]["spec"] |= spec
        return made

    async def submit(self, name: str, **settings: Any) -> Object:
        return await self.request("POST", self.road.jobs, self.job(name, **settings))

    def pod(self, name: str, **metadata: Any) -> Object:
        """A pod without a queue."""
        template = self.job("x", pods=1)["spec"]["template"]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name} | metadata, "spec": template["spec"]}


@asynccontextmanager
async def attacked(plane: Plane, text: str = "", *, webhooks: bool = True) -> AsyncIterator[Tenant]:
    """A queue of 8 GPUs on 32, kqueue in front of it, and somebody who wants more."""
    tenant = await make_tenant(plane)
    where = with_webhooks(plane) if webhooks else flags(plane)
    async with running(configuration(text), where, timings=FAST) as process:
        await process.operator.ready.wait()
        yield tenant


async def make_tenant(plane: Plane) -> Tenant:
    road = await make_teams(plane, {"a": 8})
    rules = [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]},
    ]
    version, name = "rbac.authorization.k8s.io/v1", {"metadata": {"name": "tenant"}}
    role = {"apiVersion": version, "kind": "Role", **name, "rules": rules}
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "mallory"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"}
    binding = {"apiVersion": version, "kind": "RoleBinding", **name, "subjects": [subject], "roleRef": reference}
    await road.cluster.request("POST", f"{RBAC}/{road.namespace}/roles", role)
    await road.cluster.request("POST", f"{RBAC}/{road.namespace}/rolebindings", binding)
    tenant = Tenant(road)
    async with asyncio.timeout(30):  # the API server learns of roles by watch
        while True:
            with contextlib.suppress(RequestError):
                await tenant.request("GET", road.jobs)
                await tenant.request("GET", road.pods)
                return tenant
            await asyncio.sleep(0.05)
    raise AssertionError("unreachable")


def is_gated(pod: Object) -> bool:
    return bool(pod["spec"].get("schedulingGates"))


async def test_a_queued_job_cannot_be_started_by_hand(either_plane: Plane) -> None:
    """By whatever verb: the field is named, and what to do.  kqueue itself starts what is admitted."""
    async with attacked(either_plane) as tenant:
        jobs = tenant.road.jobs
        waiting = await tenant.submit("large", pods=12)
        start = {"spec": {"suspend": False}}
        applied = tenant.job("large", pods=12)
        applied["metadata"].pop("namespace")
        path = f"{jobs}/large"
        said = [await tenant.refused("PATCH", path, start, content_type=MERGE_PATCH)]
        forced = f"{path}?fieldManager=mine&force=true"
        said.append(await tenant.refused("PATCH", forced, applied, content_type=APPLY_PATCH))
        now = await tenant.request("GET", path)
        said.append(await tenant.refused("PUT", path, {**now, "spec": now["spec"] | {"suspend": False}}))
        unforced = f"{path}?fieldManager=other"
        with pytest.raises(RequestError) as conflict:  # fields of another manager, or our refusal
            await tenant.request("PATCH", unforced, applied, content_type=APPLY_PATCH)
        without = {**applied, "spec": {k: v for k, v in applied["spec"].items() if k != "suspend"}}
        kept = await tenant.request("PATCH", forced, without, content_type=APPLY_PATCH)
        await tenant.submit("small", pods=1)
        await tenant.road.until_running(small=1)

    assert waiting["spec"]["suspend"] is True
    assert all("spec.suspend" in words and "kqueue starts it when it is admitted" in words for words in said), said
    assert conflict.value.status in (403, 409)
    assert kept["spec"]["suspend"] is True


async def test_nobody_but_a_controller_names_a_controller(either_plane: Plane) -> None:
    """One's own admitted Job excuses neither pods nor Jobs; its real pods run."""
    async with attacked(either_plane, ALL_MANAGED) as tenant:
        small = await tenant.submit("small", pods=1, gpus=1)
        await tenant.road.until_running(small=1)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "small", "uid": small["metadata"]["uid"]}
        forged = [{**owner, "controller": True}]
        pod = await tenant.refused("POST", tenant.road.pods, tenant.pod("forged", ownerReferences=forged))
        made = tenant.job("forged", pods=12)
        made["metadata"] |= {"labels": {}, "ownerReferences": forged}
        large = await tenant.refused("POST", tenant.road.jobs, made)
        honest = await tenant.request("POST", tenant.road.pods, tenant.pod("owned", ownerReferences=[owner]))

    assert "metadata.ownerReferences" in pod
    assert "mallory is not the account of its controller" in pod
    assert "metadata.ownerReferences" in large
    assert is_gated(honest), "an owner that does not control a pod says nothing"


async def test_a_pod_does_not_choose_its_parent(either_plane: Plane) -> None:
    """Whatever it says, a pod that nobody controls is queued for itself."""
    async with attacked(either_plane, ALL_MANAGED) as tenant:
        said = ["", "anything", "deployment", "statefulset"]
        made = [
            await tenant.request("POST", tenant.road.pods, tenant.pod(f"p{i}", annotations={PARENT: value}))
            for i, value in enumerate(said)
        ]
        free = {"spec": {"schedulingGates": None}}
        words = await tenant.refused("PATCH", f"{tenant.road.pods}/p0", free, content_type=MERGE_PATCH)

    assert [is_gated(pod) for pod in made] == [True] * len(said)
    assert all(PARENT not in pod["metadata"].get("annotations", {}) for pod in made)
    assert "spec.schedulingGates" in words


async def test_pods_of_an_elastic_job_are_not_released_by_hand(either_plane: Plane) -> None:
    """The job has grown, its quota has not: pods whose gates were removed are stopped, those that are paid for run."""
    async with attacked(either_plane) as tenant:
        grows = tenant.job("grows", pods=2, gpus=4)
        grows["metadata"]["annotations"] = {ELASTIC: "true"}
        await tenant.request("POST", tenant.road.jobs, grows)
        await until_pods(tenant, running=2, gated=0)
        larger = {"spec": {"parallelism": 5, "completions": 5}}
        await tenant.request("PATCH", f"{tenant.road.jobs}/grows", larger, content_type=MERGE_PATCH)
        pods = await until_pods(tenant, running=2, gated=3)
        held = {p["metadata"]["name"]: p["metadata"]["uid"] for p in pods if is_gated(p)}
        for name in held:
            free = {"spec": {"schedulingGates": None}}
            with contextlib.suppress(RequestError):  # the webhook may refuse it; here the controller is tried
                await tenant.request("PATCH", f"{tenant.road.pods}/{name}", free, content_type=MERGE_PATCH)
        paid = {p["metadata"]["uid"] for p in pods} - set(held.values())

        def stopped(listed: Object) -> bool:
            return {p["metadata"]["uid"] for p in listed["items"] if not is_gated(p)} == paid

        await tenant.road.cluster.until(tenant.road.pods, stopped, what="only the pods that are paid for are released")


async def until_pods(tenant: Tenant, *, running: int, gated: int) -> list[Object]:
    """Wait until so many pods run and so many are gated, and no others are there."""

    def reached(listed: Object) -> bool:
        pods = listed["items"]
        runs = sum(p["status"].get("phase") == "Running" for p in pods)
        return (runs, sum(map(is_gated, pods)), len(pods)) == (running, gated, running + gated)

    what = f"{running} pods run, {gated} are gated"
    return list((await tenant.road.cluster.until(tenant.road.pods, reached, what=what))["items"])


async def test_what_was_started_without_webhooks_ends_soon(either_plane: Plane) -> None:
    """Pods of 24 GPUs on a quota of 8, with an hour of grace: they are given 5 s, and are charged until they end."""
    tenant = await make_tenant(either_plane)
    large = tenant.job("large", pods=12, gpus=2, terminationGracePeriodSeconds=HOUR)
    large["spec"]["template"]["metadata"]["annotations"]["sandbox.kqueue.dev/stop-seconds"] = "8"
    await tenant.request("POST", tenant.road.jobs, large)
    await tenant.road.until_running(large=12)
    async with running(configuration(), flags(either_plane), timings=FAST) as process:
        await process.operator.ready.wait()

        def ends(listed: Object) -> bool:
            return all(p["metadata"].get("deletionGracePeriodSeconds", HOUR) <= 5 for p in listed["items"])

        await tenant.road.cluster.until(tenant.road.pods, ends, what="pods that end within 5 s")
        large_job = f"{tenant.road.jobs}/large"
        await tenant.road.cluster.until(large_job, lambda j: j["spec"]["suspend"] is True, what="the job is suspended")
        queue = f"{KUEUE}/clusterqueues/a"
        for gpus in (24, 0):
            what = f"{gpus} GPUs reserved"
            await tenant.road.cluster.until(queue, partial(_reserves, gpus), what=what)


def _reserves(gpus: int, queue: Object) -> bool:
    return reserved(queue) == gpus


def reserved(queue: Object) -> int:
    """GPUs that the ClusterQueue's status shows as reserved."""
    flavors = queue.get("status", {}).get("flavorsReservation", [])
    found = [r["total"] for f in flavors for r in f["resources"] if r["name"] == "nvidia.com/gpu"]
    return sum(map(int, found))


async def test_a_forged_child_is_stopped_where_no_webhook_saw_it(either_plane: Plane) -> None:
    """A Job that names an admitted Job as its controller is queued for itself."""
    async with attacked(either_plane, webhooks=False) as tenant:
        small = await tenant.submit("small", pods=1, gpus=1, suspend=True)
        await tenant.road.until_running(small=1)
        made = tenant.job("forged", pods=12)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "small", "uid": small["metadata"]["uid"]}
        made["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        await tenant.request("POST", tenant.road.jobs, made)
        path = f"{tenant.road.jobs}/forged"
        await tenant.road.cluster.until(path, lambda found: found["spec"]["suspend"], what="the forged Job is stopped")
        await tenant.road.until_running(small=1)


async def test_a_pod_that_can_never_run_keeps_no_quota(either_plane: Plane) -> None:
    """A pod names a Workload and asks for a node that there is not: the evicted Workload's quota goes all the same."""
    async with attacked(either_plane, webhooks=False) as tenant:
        road = tenant.road
        await tenant.submit("first", pods=1, suspend=True)
        await road.until_running(first=1)
        workload = (await road.workload_of("first"))["metadata"]["name"]
        stray = tenant.pod("stray", annotations={WORKLOAD: workload}, labels={"batch.kubernetes.io/job-name": "none"})
        stray["spec"]["nodeSelector"] = {"no": "such"}
        await tenant.request("POST", road.pods, stray)
        await road.events_of("first", "StrayPod")
        await tenant.submit("second", pods=1, suspend=True)
        off = {"spec": {"active": False}}
        path = f"{road.workloads}/{workload}"
        await road.cluster.request("PATCH", path, off, content_type=MERGE_PATCH)
        await road.until_workload("second", "Admitted")


async def test_a_pod_that_says_that_it_is_placed_takes_room(either_plane: Plane) -> None:
    """Its marks hide it from no gang: none is placed onto its host while it runs."""
    road = await make_road(either_plane.cluster, shape=(1, 1, 1))
    placed = job("forged", road.namespace, run_seconds=LONG)["spec"]["template"]
    placed["metadata"] |= {"name": "forged", "annotations": placed["metadata"]["annotations"] | {WORKLOAD: "none"}}
    pod = {"apiVersion": "v1", "kind": "Pod", **placed}
    await road.cluster.request("POST", road.pods, pod)
    runs = "a pod that runs"
    await road.cluster.until(f"{road.pods}/forged", lambda found: found["status"].get("phase") == "Running", what=runs)
    async with running(configuration(), flags(either_plane), timings=FAST) as process:
        await process.operator.ready.wait()
        await road.submit("gang", pods=1)

        def waits(listed: Object) -> bool:
            told = [c["message"] for w in listed["items"] for c in w.get("status", {}).get("conditions", [])]
            return any("has room for one pod" in message for message in told)

        await road.cluster.until(road.workloads, waits, what="a gang that does not fit")
        await road.cluster.request("DELETE", f"{road.pods}/forged")
        await road.until_workload("gang", "Admitted")


async def test_a_pod_that_names_a_deployment_is_stopped_where_no_webhook_saw_it(either_plane: Plane) -> None:
    """A Deployment's controller looks at ReplicaSets only; a queued Deployment of no replicas is enough for an attack."""
    text = "integrations: {frameworks: [batch/job, pod, deployment]}\n"
    async with attacked(either_plane, text, webhooks=False) as tenant:
        owner = await tenant.road.cluster.request("POST", f"{APPS}/{tenant.road.namespace}/deployments", deployment())
        reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "idle", "uid": owner["metadata"]["uid"]}
        honest = tenant.pod("honest", ownerReferences=[reference])
        honest["spec"] |= {"containers": [{"name": "c", "image": "none"}]}
        forged = tenant.pod("forged", ownerReferences=[{**reference, "controller": True}])
        for pod in (honest, forged):
            await tenant.request("POST", tenant.road.pods, pod)

        def only_honest(listed: Object) -> bool:
            runs = {p["metadata"]["name"]: p["status"].get("phase") for p in listed["items"]}
            return runs == {"honest": "Running"}

        await tenant.road.cluster.until(
            tenant.road.pods, only_honest, what="the pod that names a controller is stopped"
        )


def deployment() -> Object:
    """A queued Deployment without pods."""
    labels = {"app": "idle"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    metadata = {"name": "idle", "labels": {"kueue.x-k8s.io/queue-name": "a"}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
