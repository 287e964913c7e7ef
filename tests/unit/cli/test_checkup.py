"""The doctor's steps one by one: each has something that it finds, and something that it leaves in peace."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kqueue.api import names
from kqueue.api.crd_files import crd_folder
from kqueue.cli.app import run
from kqueue.clock import FakeClock, SystemClock
from kqueue.config import load
from kqueue.controllers.resources import CLUSTER_QUEUES, LOCAL_QUEUES, NODES, PODS, RESOURCE_FLAVORS, WORKLOADS
from kqueue.errors import ForbiddenError, UnreachableError
from kqueue.manager.registration import CONFIGURATIONS
from kqueue.operations.checkup.canary import CANARY_LABEL, Canary, Plan
from kqueue.operations.checkup.flavors import being_deleted, room
from kqueue.operations.checkup.installation import JOBS, Installation
from kqueue.operations.checkup.queues import Tenants
from kqueue.operations.checkup.values import CheckStep, CheckVerdict, StepStatus, examine, failed, many, ok
from kqueue.runtime.certificates import make_bundle
from kqueue.runtime.client import Client
from kqueue.runtime.resources import LEASES, ResourceType
from kqueue.sandbox import Sandbox, SandboxOptions
from kqueue.sandbox.topology_spec import parse_topology
from webhooks.configuration import MUTATING_NAME, VALIDATING_NAME

JSON = dict[str, Any]
CRDS = ResourceType("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False)
MUTATING, VALIDATING = CONFIGURATIONS.values()
LEASE = load(None).leader_election.resource_name


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A sandbox of four nodes, on which nobody runs but an API server."""
    parts = frozenset({"server", "nodes"})
    sandbox = Sandbox(SandboxOptions(topology=parse_topology("1x2x2"), parts=parts, crds=(crd_folder(),)))
    await sandbox.start()
    async with Client(sandbox.url) as client:
        yield client
    await sandbox.stop()


def installation(client: Client, clock: Any = None) -> Installation:
    return Installation(client, "default", "", load(None), clock or SystemClock())


def cluster_queue(name: str = "team", flavor: str = "gpu", **spec: Any) -> JSON:
    quotas = [{"name": flavor, "resources": [{"name": "cpu", "nominalQuota": "8"}]}]
    groups = [{"coveredResources": ["cpu"], "flavors": quotas}]
    return {"metadata": {"name": name}, "spec": {"namespaceSelector": {}, "resourceGroups": groups, **spec}}


def condition(kind: str, status: str = "True", *, reason: str = "Ready", message: str = "well", **more: Any) -> JSON:
    times = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {"type": kind, "status": status, "reason": reason, "message": message, **times, **more}


async def judged(client: Client, resource: ResourceType, obj: JSON, *conditions: JSON) -> None:
    """Create an object with these conditions."""
    kind = {"apiVersion": resource.api_version, "kind": resource.kind}
    made = await client.create(resource, {**kind, **obj})
    await client.patch(
        resource,
        made["metadata"]["name"],
        {"status": {"conditions": list(conditions)}},
        namespace=made["metadata"].get("namespace"),
        subresource="status",
    )


# --- steps -------------------------------------------------------------------------------------------------------


async def test_steps_are_told_one_by_one_and_errors_are_verdicts() -> None:
    """What may not be looked at is no failure; what does not end is one."""
    told: list[CheckStep] = []

    async def well() -> CheckVerdict:
        return ok("well")

    async def may_not() -> CheckVerdict:
        raise ForbiddenError("no right")

    async def hangs() -> CheckVerdict:
        await asyncio.Event().wait()
        raise AssertionError

    steps = await examine([("a", well), ("b", may_not), ("c", hangs)], SystemClock(), told.append, seconds=0.05)
    assert steps == told
    assert [(s.name, s.verdict.status.value) for s in steps] == [("a", "ok"), ("b", "warning"), ("c", "failed")]
    assert steps[2].seconds >= 0.05
    assert "0.05 s" in steps[2].verdict.message


async def test_what_fails_is_repeated_while_there_is_patience() -> None:
    """Until it does not fail, and no longer than that; each step is told once."""
    clock, looks, told = FakeClock(), {"late": 0, "never": 0}, list[CheckStep]()

    async def late() -> CheckVerdict:
        looks["late"] += 1
        return ok("fine") if looks["late"] == 3 else failed("not yet", "wait")

    async def never() -> CheckVerdict:
        looks["never"] += 1
        return failed("no", "look")

    work = asyncio.ensure_future(examine([("late", late), ("never", never)], clock, told.append, patience=10))
    await clock.advance(20)
    steps = await work

    assert [step.verdict.status for step in steps] == [StepStatus.OK, StepStatus.FAILED]
    assert (looks, told) == ({"late": 3, "never": 4}, steps)


async def test_without_an_api_server_nothing_else_is_looked_at() -> None:
    async def down() -> CheckVerdict:
        raise UnreachableError("refused")

    async def never() -> CheckVerdict:
        raise AssertionError

    steps = await examine([("api-server", down), ("kinds", never)], SystemClock(), lambda _: None)
    assert [s.verdict.status for s in steps] == [StepStatus.FAILED, StepStatus.SKIPPED]
    assert steps[0].as_json()["remedy"]


def test_a_cluster_that_is_not_reached_is_told_with_exit_code_one(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(
        "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u, user: {}}]}"
    )
    assert run(["doctor", "--kubeconfig", str(config), "--request-timeout", "1s"]) == 1
    out = capsys.readouterr().out
    assert "failed   api-server" in out
    assert "1 failed, 15 skipped" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--canary"], "--canary needs a LocalQueue"),
        (["-q", "main", "--request", "cpu"], "must be RESOURCE=QUANTITY"),
        (["-q", "main", "--request", "cpu=lots"], "is not a quantity"),
        (["-q", "main", "--request", "cpu=0"], "must be RESOURCE=QUANTITY"),
    ],
)
def test_wrong_calls(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", *arguments]) == 2
    assert said in capsys.readouterr().err


# --- installation ------------------------------------------------------------------------------------------------


async def test_kinds_of_another_version_are_named(client: Client) -> None:
    steps = installation(client)
    assert (await steps.kinds()).status is StepStatus.OK

    crd = await client.get_json(CRDS, "topologies.kueue.x-k8s.io")
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = "of another version"
    await client.patch(CRDS, "topologies.kueue.x-k8s.io", {"spec": {"versions": crd["spec"]["versions"]}})
    other = await steps.kinds()
    assert (other.status, other.details) == (StepStatus.WARNING, ("topologies.kueue.x-k8s.io",))

    await client.delete(CRDS, "cohorts.kueue.x-k8s.io")
    missing = await steps.kinds()
    assert (missing.status, len(missing.details)) == (StepStatus.FAILED, 1)
    assert missing.details[0].startswith("cohorts.kueue.x-k8s.io")  # gone, or on its way


async def register(client: Client, bundle: bytes = b"", *, plural: str = "jobs", service: str = "") -> None:
    """Both configurations with one webhook each."""
    encoded = {"caBundle": base64.b64encode(bundle).decode()} if bundle else {}
    target: JSON = {"url": "https://127.0.0.1:1/mutate", **encoded}
    if service:
        target = {"service": {"namespace": "default", "name": service, "path": "/mutate"}, **encoded}
    rule = {"apiGroups": ["batch"], "apiVersions": ["v1"], "resources": [plural], "operations": ["CREATE"]}
    hook = {
        "name": "mjob.kb.io", "clientConfig": target, "rules": [rule], "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "failurePolicy": "Fail", "timeoutSeconds": 1,
    }  # fmt: skip
    for resource, name in ((MUTATING, MUTATING_NAME), (VALIDATING, VALIDATING_NAME)):
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        await client.create(resource, {**kind, "metadata": {"name": name}, "webhooks": [hook]})


def authority(*, days: float) -> bytes:
    """One that is valid for so many days from now on."""
    now = datetime.now(UTC)
    return make_bundle(["localhost"], now=now - timedelta(days=400), valid=timedelta(days=400 + days)).ca


@pytest.mark.parametrize(
    ("bundle", "status", "said"),
    [
        pytest.param(b"", StepStatus.FAILED, "have no caBundle", id="nothing to trust"),
        pytest.param(b"nonsense", StepStatus.FAILED, "is no certificate", id="no certificate"),
        pytest.param(authority(days=-1), StepStatus.FAILED, "has expired", id="expired"),
        pytest.param(authority(days=3), StepStatus.WARNING, "valid until", id="about to expire"),
        pytest.param(authority(days=100), StepStatus.OK, "valid until", id="sound"),
    ],
)
async def test_certificates(client: Client, bundle: bytes, status: StepStatus, said: str) -> None:
    await register(client, bundle)
    verdict = await installation(client).certificates()
    assert verdict.status is status
    assert said in verdict.message


async def test_webhooks_that_lead_nowhere(client: Client) -> None:
    """To a Service that is not there; and one that does not answer refuses whoever creates a Job."""
    steps = installation(client)
    missing = await steps.webhooks()
    assert missing.status is StepStatus.FAILED
    assert MUTATING_NAME in missing.message
    assert (await steps.reviews()).status is StepStatus.SKIPPED

    await register(client, authority(days=10), service="kueue-webhook-service")
    nowhere = await steps.webhooks()
    assert (nowhere.status, nowhere.details) == (StepStatus.FAILED, ("Service default/kueue-webhook-service",))
    unanswered = await steps.reviews()
    assert unanswered.status is StepStatus.FAILED
    assert "does not get an answer" in unanswered.message
    assert await client.list_json(JOBS, "default") == []


async def test_webhooks_that_do_not_look_at_jobs(client: Client) -> None:
    await register(client, authority(days=100), plural="cronjobs")
    assert (await installation(client).webhooks()).status is StepStatus.WARNING


async def test_a_job_that_nobody_suspends_is_noticed(client: Client) -> None:
    """A webhook is registered that is never asked: for another namespace."""
    await register(client, authority(days=100))
    for resource, name in ((MUTATING, MUTATING_NAME), (VALIDATING, VALIDATING_NAME)):
        found = await client.get_json(resource, name)
        found["webhooks"][0]["namespaceSelector"] = {"matchLabels": {"team": "other"}}
        await client.patch(resource, name, {"webhooks": found["webhooks"]})
    verdict = await installation(client).reviews()
    assert verdict.status is StepStatus.FAILED
    assert "was not suspended" in verdict.message


async def lease(client: Client, namespace: str = "default", **spec: Any) -> None:
    kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    body = {"holderIdentity": "pod-1_x", "leaseDurationSeconds": 4, **spec}
    await client.create(LEASES, {**kind, "metadata": {"name": LEASE, "namespace": namespace}, "spec": body})


async def test_nobody_leads_where_a_lease_is_not_renewed(client: Client) -> None:
    """Written times do not count, for clocks differ."""
    clock = FakeClock()
    await lease(client, renewTime="2030-01-01T00:00:00.000000Z")
    looking = asyncio.create_task(installation(client, clock).controller())
    verdict = await _played(clock, looking)
    assert verdict.status is StepStatus.FAILED
    assert f"Lease default/{LEASE} is not renewed" in verdict.message


async def test_who_leads_is_named(client: Client) -> None:
    clock = FakeClock()
    await lease(client)
    looking = asyncio.create_task(installation(client, clock).controller())
    while clock.next_wake() is None:
        await asyncio.sleep(0.01)
    await client.patch(LEASES, LEASE, {"spec": {"renewTime": "2026-01-01T00:00:01.000000Z"}}, namespace="default")
    verdict = await _played(clock, looking)
    assert (verdict.status, verdict.message) == (StepStatus.OK, f"pod-1_x leads (Lease default/{LEASE})")


async def _played(clock: FakeClock, looking: asyncio.Task[CheckVerdict]) -> CheckVerdict:
    async with asyncio.timeout(20):
        while not looking.done():
            if clock.next_wake() is not None:
                await clock.advance(1.0)
            await asyncio.sleep(0.01)
    return looking.result()


async def test_without_a_lease_somebody_may_still_lead(client: Client) -> None:
    """Whoever has judged the queues as they stand now does so without leader election."""
    steps = installation(client)
    assert (await steps.controller()).status is StepStatus.FAILED
    await judged(client, CLUSTER_QUEUES, cluster_queue(), condition("Active", observedGeneration=1))
    assert (await steps.controller()).status is StepStatus.WARNING


# --- tenants -----------------------------------------------------------------------------------------------------


def local_queue(target: str = "team", **spec: Any) -> JSON:
    return {"metadata": {"name": "main", "namespace": "default"}, "spec": {"clusterQueue": target, **spec}}


STOPPED = condition("Active", "False", reason="Stopped", message="its stopPolicy is Hold")
BROKEN = condition("Active", "False", reason="FlavorNotFound", message="flavor gpu not found")


@pytest.mark.parametrize(
    ("conditions", "local", "status", "detail"),
    [
        pytest.param([condition("Active")], local_queue(), StepStatus.OK, "", id="sound"),
        pytest.param([STOPPED], local_queue(), StepStatus.FAILED, "its stopPolicy is Hold", id="all are stopped"),
        pytest.param([BROKEN], local_queue(), StepStatus.FAILED, "flavor gpu not found", id="broken"),
        pytest.param([], local_queue(), StepStatus.FAILED, "no controller has looked", id="never looked at"),
        pytest.param([condition("Active")], local_queue("other"), StepStatus.FAILED, "other does not exist", id="a door to nowhere"),
        pytest.param([condition("Active")], local_queue(stopPolicy="Hold"), StepStatus.WARNING, "LocalQueue default/main", id="a closed door"),
    ],
)  # fmt: skip
async def test_queues(client: Client, conditions: list[JSON], local: JSON, status: StepStatus, detail: str) -> None:
    tenants = Tenants(client, SystemClock())
    assert (await tenants.queues()).status is StepStatus.WARNING  # there is none
    await judged(client, CLUSTER_QUEUES, cluster_queue(), *conditions)
    await judged(client, LOCAL_QUEUES, local)
    verdict = await tenants.queues()
    assert verdict.status is status
    assert detail in "\n".join(verdict.details)


async def flavor(client: Client, name: str, **labels: str) -> None:
    kind = {"apiVersion": RESOURCE_FLAVORS.api_version, "kind": RESOURCE_FLAVORS.kind}
    await client.create(RESOURCE_FLAVORS, {**kind, "metadata": {"name": name}, "spec": {"nodeLabels": labels}})


async def test_flavors_have_nodes(client: Client) -> None:
    """A flavor without usable nodes fails where a queue uses it; cordoned nodes are no use."""
    tenants = Tenants(client, SystemClock())
    await flavor(client, "gpu", **{"cloud.provider.com/node-group": "default"})
    assert (await tenants.flavors()).status is StepStatus.OK
    await flavor(client, "other", pool="other")
    unused = await tenants.flavors()
    assert (unused.status, unused.details) == (StepStatus.WARNING, ("other: kubectl get nodes -l pool=other",))
    await judged(client, CLUSTER_QUEUES, cluster_queue(flavor="other"))
    assert (await tenants.flavors()).status is StepStatus.FAILED
    for node in await client.list_json(NODES):
        await client.patch(NODES, node["metadata"]["name"], {"spec": {"unschedulable": True}})
    assert len((await tenants.flavors()).details) == 2


NODE = {"rack": "r1", "kubernetes.io/hostname": "h1", "pool": "gpu"}


@pytest.mark.parametrize(
    ("levels", "nodes", "usable", "told"),
    [
        pytest.param(["rack", "kubernetes.io/hostname"], [NODE, NODE], 2, "", id="all-have-all-levels"),
        pytest.param(["rack"], [NODE, {"pool": "gpu"}], 1, "", id="one-has-none"),
        pytest.param(["racks"], [NODE, NODE], 0, "racks is missing on 2 (did you mean rack?)", id="a-misspelt-level"),
        pytest.param(
            ["zone", "rack"], [NODE], 0, "zone is missing on 1: kubectl get nodes -L zone", id="a-level-none-has"
        ),
        pytest.param(["rack"], [{"rack": "r1"}], 0, "gpu: kubectl get nodes -l pool=gpu", id="nodes-of-another-pool"),
    ],
)
def test_a_flavor_needs_nodes_with_all_levels_of_its_topology(
    levels: list[str], nodes: list[dict[str, str]], usable: int, told: str
) -> None:
    """A node without them takes none of the flavor's pods."""
    flavors = [{"metadata": {"name": "gpu"}, "spec": {"nodeLabels": {"pool": "gpu"}, "topologyName": "racks"}}]
    topology = {"metadata": {"name": "racks"}, "spec": {"levels": [{"nodeLabel": level} for level in levels]}}

    found = room(flavors, [topology], nodes)

    assert found.usable == usable
    assert bool(found.empty) == (not usable)
    assert told in found.empty.get("gpu", "")


@pytest.mark.parametrize(
    ("users", "remedy"),
    [(["b", "a"], "kubectl delete resourceflavor a b"), ([], "kqueue doctor shows whether one leads")],
)
def test_a_topology_that_cannot_go_names_what_holds_it(users: list[str], remedy: str) -> None:
    """And nothing is told of one that nobody deletes."""
    gone = {
        "name": "racks",
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["kueue.x-k8s.io/resource-in-use"],
    }
    flavors = [{"metadata": {"name": name}, "spec": {"topologyName": "racks"}} for name in users]

    (line,) = being_deleted([{"metadata": gone}, {"metadata": {"name": "other"}}], flavors)

    assert line.startswith(
        "Topology racks is being deleted since 2026-01-01T00:00:00Z, held by kueue.x-k8s.io/resource"
    )
    assert remedy in line


GATED = {"schedulingGates": [{"name": names.TOPOLOGY_GATE}], "containers": [{"name": "c", "image": "i"}]}
FINISHED = [condition("Finished")]


@pytest.mark.parametrize(
    ("metadata", "conditions", "age", "status"),
    [
        pytest.param({"annotations": {names.WORKLOAD_ANNOTATION: "w"}}, [], 120, StepStatus.OK, id="its Workload is there"),
        pytest.param({"annotations": {names.WORKLOAD_ANNOTATION: "w"}}, FINISHED, 120, StepStatus.FAILED, id="its Workload has finished"),
        pytest.param({"annotations": {names.WORKLOAD_ANNOTATION: "x"}}, [], 120, StepStatus.FAILED, id="its Workload is gone"),
        pytest.param({"labels": {names.POD_GROUP_NAME_LABEL: "w"}}, [], 120, StepStatus.OK, id="a member of a group"),
        pytest.param({}, [], 120, StepStatus.FAILED, id="nobody knows it"),
        pytest.param({}, [], 10, StepStatus.OK, id="so young that its Workload may yet come"),
    ],
)  # fmt: skip
async def test_pods_that_nobody_will_release(
    client: Client, metadata: JSON, conditions: list[JSON], age: float, status: StepStatus
) -> None:
    await client.create(
        PODS,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default", **metadata},
            "spec": GATED,
        },
    )
    pod_sets = [
        {
            "name": "main",
            "count": 1,
            "template": {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}},
        }
    ]
    workload = {"metadata": {"name": "w", "namespace": "default"}, "spec": {"podSets": pod_sets}}
    await judged(client, WORKLOADS, workload, *conditions)
    clock = FakeClock(datetime.now(UTC) + timedelta(seconds=age))

    assert (await Tenants(client, clock).leftovers()).status is status


@pytest.mark.parametrize(
    ("age", "status"),
    [
        pytest.param(120, StepStatus.WARNING, id="released two minutes ago"),
        pytest.param(10, StepStatus.OK, id="released just now"),
    ],
)
async def test_released_pods_that_no_node_runs(client: Client, age: float, status: StepStatus) -> None:
    """The line names the pod and repeats the scheduler's sentence."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
    meta = {"name": "p", "namespace": "default", "annotations": {names.WORKLOAD_ANNOTATION: "w"}}
    containers = [{"name": "c", "image": "i"}]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**meta, "ownerReferences": [owner]},
        "spec": {"containers": containers},
    }
    await judged(client, PODS, pod, condition("PodScheduled", "False", reason="Unschedulable", message="no free ports"))
    template = {"spec": {"containers": containers, "restartPolicy": "Never"}}
    spec = {"podSets": [{"name": "main", "count": 1, "template": template}]}
    workload = {"metadata": {"name": "w", "namespace": "default"}, "spec": spec}
    await judged(client, WORKLOADS, workload, condition("QuotaReserved"), condition("Admitted"))
    admission = {"clusterQueue": "team", "podSetAssignments": [{"name": "main", "count": 1}]}
    await client.patch(WORKLOADS, "w", {"status": {"admission": admission}}, namespace="default", subresource="status")
    clock = FakeClock(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=age))
    verdict = await Tenants(client, clock).pods()

    assert verdict.status is status
    if status is StepStatus.WARNING:
        assert verdict.details == ("default/p since 2026-01-01T00:00:00Z: no free ports",)


# --- the canary --------------------------------------------------------------------------------------------------


async def fly(client: Client, **plan: Any) -> dict[str, CheckStep]:
    wish = Plan(namespace="default", queue="main", **plan)
    return {step.name: step for step in await Canary(client, wish, SystemClock(), lambda _: None).fly()}


async def test_a_canary_of_which_nothing_becomes_is_taken_back(client: Client) -> None:
    """No webhook suspends it, so it is deleted at once."""
    await judged(client, CLUSTER_QUEUES, cluster_queue(), condition("Active"))
    await judged(client, LOCAL_QUEUES, local_queue())
    steps = await fly(client, seconds=1.0)
    assert list(steps) == ["canary-old", "canary-room", "canary-suspend", "canary-cleanup"]
    assert steps["canary-suspend"].verdict.status is StepStatus.FAILED
    assert steps["canary-room"].verdict.message.startswith("2 pods of 10m cpu each")
    assert await client.list_json(JOBS, "default") == []


@pytest.mark.parametrize(
    ("conditions", "local", "said"),
    [
        pytest.param([condition("Active")], None, "LocalQueue default/main does not exist", id="no such queue"),
        pytest.param([condition("Active")], local_queue("other"), "ClusterQueue other does not exist", id="that leads nowhere"),
        pytest.param([STOPPED], local_queue(), "admits nothing: its stopPolicy is Hold", id="that is stopped"),
    ],
)  # fmt: skip
async def test_no_canary_flies_where_it_could_not_land(
    client: Client, conditions: list[JSON], local: JSON | None, said: str
) -> None:
    await judged(client, CLUSTER_QUEUES, cluster_queue(), *conditions)
    if local is not None:
        await judged(client, LOCAL_QUEUES, local)
    steps = await fly(client)
    assert list(steps) == ["canary-old", "canary-room"]
    assert said in steps["canary-room"].verdict.message
    assert await client.list_json(JOBS, "default") == []


async def test_a_canary_that_is_refused_is_told_so_and_nothing_is_taken_back(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody's policy, or rights that are missing: there is no Job then."""
    await judged(client, CLUSTER_QUEUES, cluster_queue(), condition("Active"))
    await judged(client, LOCAL_QUEUES, local_queue())

    async def refuse(*_: Any, **__: Any) -> JSON:
        raise ForbiddenError("images of that registry are not allowed")

    monkeypatch.setattr(client, "create", refuse)
    steps = await fly(client)
    assert list(steps) == ["canary-old", "canary-room", "canary-suspend"]
    assert "images of that registry" in steps["canary-suspend"].verdict.message


@pytest.mark.parametrize(
    ("note", "age", "left"),
    [
        pytest.param('{"host": "elsewhere", "process": 1, "seconds": 60}', 30, 1, id="of another host, and young"),
        pytest.param('{"host": "elsewhere", "process": 1, "seconds": 60}', 121, 0, id="of another host, and too old"),
        pytest.param('{"host": "HERE", "process": 1, "seconds": 60}', 30, 1, id="of a process that lives"),
        pytest.param('{"host": "HERE", "process": 4194305, "seconds": 60}', 30, 0, id="of a process that is gone"),
        pytest.param("nonsense", 0, 0, id="with a note that cannot be read"),
        pytest.param('["a"]', 0, 0, id="with a note of another form"),
    ],
)
async def test_canaries_of_doctors_that_were_killed_are_removed(
    client: Client, note: str, age: float, left: int
) -> None:
    import socket

    notes = {"kqueue.dev/canary-run": note.replace("HERE", socket.gethostname())}
    metadata = {"name": "old", "namespace": "default", "labels": {CANARY_LABEL: "true"}, "annotations": notes}
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}
    await client.create(JOBS, {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
    clock = FakeClock(datetime.now(UTC) + timedelta(seconds=age))

    await Canary(client, Plan(namespace="default", queue="none"), clock, lambda _: None).fly()

    assert len(await client.list_json(JOBS, "default")) == left


@pytest.mark.parametrize(
    ("count", "word", "told"),
    [(1, "flavor", "1 flavor"), (0, "pod", "0 pods"), (2, "Topology", "2 Topologies"), (3, "oddity", "3 oddities")],
)
def test_counts_in_words(count: int, word: str, told: str) -> None:
    assert many(count, word) == told


def test_a_failed_step_has_a_remedy() -> None:
    verdict = failed("broken", "mend it", "a", "b")
    assert CheckStep("x", 0.12345, verdict).as_json() == {
        "name": "x", "status": "failed", "seconds": 0.123, "message": "broken", "remedy": "mend it", "details": ["a", "b"],
    }  # fmt: skip


async def test_conversion_that_nobody_answers(client: Client) -> None:
    """v1beta1 cannot be read then; with one version there is nothing to convert."""
    dead = await installation(client).conversion()
    served = await client.get_json(CRDS, "clusterqueues.kueue.x-k8s.io")
    only = {"versions": served["spec"]["versions"][:1], "conversion": {"strategy": "None", "webhook": None}}
    await client.patch(CRDS, "clusterqueues.kueue.x-k8s.io", {"spec": only})
    absent = await installation(client).conversion()

    assert (dead.status, absent.status) == (StepStatus.FAILED, StepStatus.WARNING)
    assert 'service not found: "kueue-webhook-service"' in dead.message
    assert "start the webhooks" in dead.remedy
    assert "v1beta1 is not served" in absent.message
