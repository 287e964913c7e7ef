"""Card types, scarce flavors and private groups on the whole road, and the tenants of the examples."""

from __future__ import annotations

import asyncio
import contextlib
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from kqueue.manager.process import RunningOperator, running
from tests.integration.controlplane.access import RequestError
from tests.integration.controlplane.cluster import POLL_SECONDS, WAIT_SECONDS, Cluster, KubectlError
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import KUEUE, Object, Road, job
from tests.integration.teams import FAST, Plane, configuration, flags, patch, post
from tests.readings import page_of
from tests.unit.charts.rendering import by_template, rendered_text

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]

TENANTS = Path(__file__).parents[2] / "examples" / "tenants"
MANAGES = configuration("nodeClasses: {manageTaints: true}\n")
CARD, PREFERRED, GROUP = "kqueue.dev/card-type", "kqueue.dev/card-type-preferred", "kqueue.dev/private-group"
POOL = "example.com/pool"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
USER_ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/kueue-batch-user-role"
GPU = "nvidia.com/gpu"


async def add_pools(cluster: Cluster, *pools: str) -> None:
    """One node of 8 GPUs in each pool."""
    for pool in pools:
        await cluster.add_nodes((1, 1, 1), labels={POOL: pool}, prefix=pool)


def asking(road: Road, name: str, *, gpus: int = 1, **keys: str) -> Object:
    """A Job of one pod; `keys` are `card`, `preferred` and `private` of its template."""
    made = job(name, road.namespace, pods=1, required=None, run_seconds=600, gpus=gpus)
    metadata = made["spec"]["template"]["metadata"]
    for key, annotation in (("card", CARD), ("preferred", PREFERRED)):
        if key in keys:
            metadata["annotations"][annotation] = keys[key]
    if "private" in keys:
        metadata["labels"] = {GROUP: keys["private"]}
    return made


async def submit(road: Road, name: str, **settings: Any) -> None:
    await road.cluster.request("POST", road.jobs, asking(road, name, **settings))


async def pool_of(road: Road, name: str) -> str:
    """The pool on which the one pod of a Job runs."""

    def runs(listed: Object) -> bool:
        return any(p["status"].get("phase") == "Running" for p in listed["items"])

    selector = f"{road.pods}?labelSelector=batch.kubernetes.io/job-name={name}"
    [pod] = (await road.cluster.until(selector, runs, what=f"a running pod of {name}"))["items"]
    node = await road.cluster.get(f"/api/v1/nodes/{pod['spec']['nodeName']}")
    pool: str = node["metadata"]["labels"][POOL]
    return pool


async def refusal(road: Road, name: str) -> str:
    """The message of QuotaReserved, once it says that no flavor matches."""
    found = await road.until_workload(name, "QuotaReserved", status="False", reason="NoMatchingFlavor")
    message: str = found["message"]
    return message


async def make_classes(plane: Plane, **gpus: int) -> Road:
    """The classes of the example, and one queue with so many GPUs of each."""
    await add_pools(plane.cluster, *gpus)
    namespace = await plane.cluster.create_namespace("classes")
    for flavor in yaml.safe_load_all((TENANTS / "1-classes.yaml").read_text()):
        await plane.cluster.request("POST", f"{KUEUE}/resourceflavors", flavor)
    flavors = [
        {"name": name, "resources": [{"name": "cpu", "nominalQuota": 64}, {"name": GPU, "nominalQuota": amount}]}
        for name, amount in gpus.items()
    ]
    groups = [{"coveredResources": ["cpu", GPU], "flavors": flavors}]
    await post(plane, "clusterqueues", "team", {"namespaceSelector": {}, "resourceGroups": groups})
    await post(plane, "localqueues", "main", {"clusterQueue": "team"}, namespace=namespace)
    return Road(plane.cluster, namespace)


async def until_tainted(cluster: Cluster, pool: str, taints: list[str]) -> None:
    """Wait until the nodes of a pool have exactly these taints of node classes."""

    def keys(found: Object) -> list[str]:
        written = [t for t in found["spec"].get("taints") or () if t["key"].startswith("kqueue.dev/")]
        return sorted(f"{t['key']}={t['value']}:{t['effect']}" for t in written)

    await cluster.until(f"/api/v1/nodes/{pool}-0-0-0", lambda found: keys(found) == taints, what=f"taints of {pool}")


@pytest.mark.mechanism("3.35")
async def test_required_waits_and_preferred_falls_back_3_35(either_plane: Plane) -> None:
    """Another job has all a100."""
    road = await make_classes(either_plane, a100=8, v100=8)
    async with running(MANAGES, flags(either_plane), timings=FAST):
        await submit(road, "first", gpus=8, card="a100")
        assert await pool_of(road, "first") == "a100"
        await submit(road, "required", card="a100")
        await submit(road, "preferred", preferred="a100")
        fell_back = await pool_of(road, "preferred")
        waits = await road.until_workload("required", "QuotaReserved", status="False", reason="WaitingForQuota")
        await either_plane.cluster.request("DELETE", f"{road.jobs}/first?propagationPolicy=Background")
        came = await pool_of(road, "required")

    assert (fell_back, came) == ("v100", "a100")
    assert "a100" in waits["message"]


async def test_a_waiting_job_may_name_another_type_3_35(either_plane: Plane) -> None:
    """In its template, which rewrites the Workload."""
    road = await make_classes(either_plane, a100=8, v100=8)
    async with running(MANAGES, flags(either_plane), timings=FAST):
        await submit(road, "moves", card="x100")
        message = await refusal(road, "moves")
        change = {"spec": {"template": {"metadata": {"annotations": {CARD: "v100"}}}}}
        await patch(either_plane, f"{road.jobs}/moves", change)
        assert await pool_of(road, "moves") == "v100"

    assert "ClusterQueue team has no flavor of card type x100; it has a100, v100" in message


@pytest.mark.mechanism("3.36")
async def test_scarce_nodes_are_for_those_that_name_them_3_36(either_plane: Plane) -> None:
    """The scarce flavor alone is free: a queued job waits, a plain pod stays pending beside the empty node."""
    road = await make_classes(either_plane, a100=1, h100=8)
    async with running(MANAGES, flags(either_plane), timings=FAST):
        await until_tainted(either_plane.cluster, "h100", [f"{CARD}=h100:NoSchedule"])
        await submit(road, "fills", gpus=1)
        assert await pool_of(road, "fills") == "a100"
        await submit(road, "nameless")
        waits = await road.until_workload("nameless", "QuotaReserved", status="False", reason="WaitingForQuota")
        container = {"name": "c", "image": "example.com/x:1", "resources": {"limits": {GPU: "8"}}}
        body = {"metadata": {"name": "plain"}, "spec": {"containers": [container], "nodeSelector": {POOL: "h100"}}}
        await either_plane.cluster.request("POST", road.pods, body)

        def unschedulable(pod: Object) -> bool:
            return any(c.get("reason") == "Unschedulable" for c in pod["status"].get("conditions") or ())

        await either_plane.cluster.until(f"{road.pods}/plain", unschedulable, what="the plain pod is unschedulable")
        await submit(road, "named", gpus=8, card="h100")
        named = await pool_of(road, "named")
        plain = await either_plane.cluster.get(f"{road.pods}/plain")

    assert named == "h100"
    assert not plain["spec"].get("nodeName")
    assert "a100" in waits["message"]


@pytest.mark.mechanism("3.38")
async def test_private_machines_are_for_their_group_3_38(either_plane: Plane) -> None:
    """They come last in the queue, and the others are full."""
    road = await make_classes(either_plane, v100=1, lab=8)
    async with running(MANAGES, flags(either_plane), timings=FAST):
        await until_tainted(either_plane.cluster, "lab", [f"{GROUP}=lab:NoSchedule"])
        await submit(road, "member", private="lab")
        assert await pool_of(road, "member") == "lab"
        await submit(road, "stranger", gpus=1)
        assert await pool_of(road, "stranger") == "v100"
        await submit(road, "late")
        await road.until_workload("late", "QuotaReserved", status="False", reason="WaitingForQuota")
        await patch(either_plane, f"{KUEUE}/resourceflavors/lab", {"metadata": {"annotations": {GROUP: None}}})
        await until_tainted(either_plane.cluster, "lab", [])
        assert await pool_of(road, "late") == "lab"


def requests_for_pods(process: RunningOperator) -> float:
    """Requests of the controller for single pods or nodes, in whatever way."""
    series = re.compile(r'^kqueue_api_requests_total\{.*resource="(?:pods|nodes)".*\} (\S+)$', re.MULTILINE)
    return sum(map(float, series.findall(page_of(process.operator.metrics).decode())))


@pytest.mark.mechanism("3.38")
async def test_pods_on_private_machines_cost_no_more_requests_3_38(either_plane: Plane) -> None:
    """Forty pods of a group, and forty without one: neither are asked about, nor written, one by one."""
    road = await make_classes(either_plane, v100=8, lab=8)
    async with running(MANAGES, flags(either_plane), timings=FAST) as process:
        await until_tainted(either_plane.cluster, "lab", [f"{GROUP}=lab:NoSchedule"])
        counts = [requests_for_pods(process)]
        for name, keys in (("member", {"private": "lab"}), ("stranger", {})):
            made = asking(road, name, gpus=0, **keys)
            made["spec"] |= {"parallelism": 40, "completions": 40}
            made["spec"]["template"]["metadata"]["annotations"]["sandbox.kqueue.dev/run-seconds"] = "1"
            await road.cluster.request("POST", road.jobs, made)
            await road.until_complete(name)
            counts.append(requests_for_pods(process))

    assert counts[0] > 0  # the taint of the private node
    few = 5  # a patch of a node that is tried again; forty would be one for each pod
    assert [after - before < few for before, after in pairwise(counts)] == [True, True]


async def test_open_nodes_are_an_event_where_taints_are_not_managed_g4_15(either_plane: Plane) -> None:
    """And nothing is written to nodes."""
    await make_classes(either_plane, h100=8)
    async with running(configuration(), flags(either_plane), timings=FAST):

        def said(listed: Object) -> bool:
            return any(e["reason"] == "NodesOpen" for e in listed["items"])

        events = await either_plane.cluster.until("/api/v1/namespaces/default/events", said, what="event NodesOpen")
        node = await either_plane.cluster.get("/api/v1/nodes/h100-0-0-0")

    [event] = [e for e in events["items"] if e["reason"] == "NodesOpen"]
    sentence = (
        "1 of 1 nodes lack the taint kqueue.dev/card-type=h100:NoSchedule; others may use them; first: h100-0-0-0"
    )
    assert (event["involvedObject"]["name"], event["message"]) == ("h100", sentence)
    assert not node["spec"].get("taints")


# --- examples/tenants ------------------------------------------------------------------------------------------------


async def apply_tenants(plane: Plane) -> None:
    """All files but the jobs; the sandbox has no ValidatingAdmissionPolicy."""
    await add_pools(plane.cluster, "a100", "v100", "h100", "lab")
    await plane.kubectl("apply", "-f", "-", stdin="---\n".join(by_template(rendered_text())["user-roles.yaml"]))
    for file in sorted(TENANTS.glob("[1-5]-*.yaml")):
        if isinstance(plane, ControlPlane) or "tolerations" not in file.name:
            await plane.kubectl("apply", "-f", str(file))
    if isinstance(plane, ControlPlane):
        await plane.cluster.until(USER_ROLE, has_all_rules, what="the role of users has its rules")


def has_all_rules(role: Object) -> bool:
    """Another controller gathers the rules of an aggregated role, some time after the role is there."""
    resources = {resource for rule in role.get("rules") or () for resource in rule["resources"]}
    return {"jobs", "workloads"} <= resources


@pytest.mark.mechanism("3.37", "3.39")
async def test_each_tenant_of_the_example_has_one_job_in_and_one_out_3_39(either_plane: Plane) -> None:
    """Flavors per queue say who may use which class (3.37, G4.18)."""
    cluster = either_plane.cluster
    await apply_tenants(either_plane)
    red, blue = Road(cluster, "red"), Road(cluster, "blue")
    async with running(MANAGES, flags(either_plane), timings=FAST):
        for pool, taint in (("h100", f"{CARD}=h100"), ("lab", f"{GROUP}=lab")):
            await until_tainted(cluster, pool, [f"{taint}:NoSchedule"])
        for obj in yaml.safe_load_all((TENANTS / "6-jobs.yaml").read_text()):
            obj["spec"]["template"]["metadata"].setdefault("annotations", {})["sandbox.kqueue.dev/run-seconds"] = "600"
            await cluster.request("POST", f"/apis/batch/v1/namespaces/{obj['metadata']['namespace']}/jobs", obj)
        pools = (await pool_of(red, "on-h100"), await pool_of(blue, "in-the-lab"))
        refused = (await refusal(red, "wants-the-lab"), await refusal(blue, "wants-h100"))
        policies = await cluster.get("/apis/networking.k8s.io/v1/networkpolicies")

    assert pools == ("h100", "lab")
    assert "ClusterQueue red has no machines of private group lab" in refused[0]
    assert "ClusterQueue blue has no flavor of card type h100; it has v100" in refused[1]
    owners = {p["metadata"]["namespace"] for p in policies["items"] if p["metadata"]["name"] == "own-tenant-only"}
    assert owners == {"red", "blue"}


async def may(cluster: Cluster, groups: list[str], verb: str, path: str, namespace: str = "") -> bool:
    """What a SubjectAccessReview says; `path` is group/resource."""
    group, _, resource = path.rpartition("/")
    attributes = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
    spec = {"user": "ann", "groups": groups, "resourceAttributes": attributes}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    return bool((await cluster.request("POST", REVIEWS, body))["status"]["allowed"])


async def test_users_administrators_and_strangers_have_the_rights_of_their_roles_g4_20(either_plane: Plane) -> None:
    cluster = either_plane.cluster
    await apply_tenants(either_plane)
    asked = {
        "a job here": ("create", "batch/jobs", "red"),
        "a job there": ("create", "batch/jobs", "blue"),
        "own workloads": ("list", "kueue.x-k8s.io/workloads", "red"),
        "change workloads": ("patch", "kueue.x-k8s.io/workloads", "red"),
        "a flavor": ("patch", "kueue.x-k8s.io/resourceflavors", ""),
        "a queue": ("patch", "kueue.x-k8s.io/clusterqueues", ""),
    }
    granted = {
        who: {what for what, question in asked.items() if await may(cluster, [who], *question)}
        for who in ("red-users", "queue-administrators", "strangers")
    }

    assert granted == {
        "red-users": {"a job here", "own workloads"},
        "queue-administrators": set(asked),
        "strangers": set(),
    }


@pytest.mark.controlplane
async def test_users_of_tenants_write_no_tolerations_of_classes_g4_25(plane: ControlPlane) -> None:
    """The API server refuses it; what kqueue adds at the start passes."""
    await apply_tenants(plane)
    container = {"name": "c", "image": "registry.k8s.io/pause:3.10"}

    def tolerant(name: str, **toleration: str) -> str:
        pod = {"containers": [container], "restartPolicy": "Never", "tolerations": [toleration]}
        spec = {"suspend": True, "template": {"spec": pod}}
        return yaml.safe_dump({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec})

    async def create(text: str, *options: str) -> str:
        user = ("-n", "red", "--as", "ann", "--as-group", "red-users")
        return await plane.kubectl("create", *user, *options, "-f", "-", stdin=text)

    refused = (tolerant("a", key=CARD, operator="Exists"), tolerant("b", operator="Exists"))
    async with asyncio.timeout(WAIT_SECONDS):  # the API server reads a new policy a moment after it is written
        with contextlib.suppress(KubectlError):
            while await create(refused[0], "--dry-run=server"):
                await asyncio.sleep(POLL_SECONDS)
    for text in refused:
        with pytest.raises(KubectlError, match="for kqueue to add"):
            await create(text)
    assert "job.batch/c created" in await create(tolerant("c", key="spot", operator="Exists"))
    with pytest.raises(RequestError):
        await plane.cluster.get("/apis/batch/v1/namespaces/red/jobs/a")
