"""Webhooks on both planes: who is asked, what a person at a terminal reads, and certificates that change meanwhile."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from kqueue.clock import SystemClock
from kqueue.config import Configuration, parse
from kqueue.manager.admission import AdmissionEndpoint, admission
from kqueue.runtime.client import Client, connect
from kqueue.runtime.rotation import Rhythm, split_authorities
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.access import RequestError
from tests.integration.controlplane.cluster import Cluster, KubectlError
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import KUEUE, job
from webhooks.server import ReviewRecord

Object = dict[str, Any]
Plane = ControlPlane | SandboxPlane
MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/kueue-mutating-webhook-configuration"
QUEUE = "kueue.x-k8s.io/queue-name"
MERGE = "application/merge-patch+json"

pytestmark = pytest.mark.slow


def make_configuration(text: str = "") -> Configuration:
    return parse(f"apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{text}", source="test")


class Hooks:
    """A webhook process on a cluster, what it was asked, and Jobs to ask about."""

    def __init__(self, cluster: Cluster, client: Client) -> None:
        self.cluster, self.client = cluster, client
        self.asked: list[ReviewRecord] = []

    async def submit(self, namespace: str, name: str, *, queue: str | None = None, **labels: str) -> Object:
        """Create a Job that is not suspended; with or without a queue."""
        made = job(name, namespace, pods=1, required=None, gpus=1)
        made["spec"]["suspend"] = False
        made["metadata"]["labels"] = labels | ({} if queue is None else {QUEUE: queue})
        return await self.cluster.request("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", made)

    async def until_suspended(self, namespace: str, queue: str | None = None) -> Object:
        """Try Jobs until one is suspended at creation: the API server hears of configurations by watch."""
        async with asyncio.timeout(60):
            for number in range(10_000):
                with contextlib.suppress(RequestError):
                    made = await self.submit(namespace, f"try-{number}", queue=queue)
                    if made["spec"]["suspend"]:
                        return made
                await asyncio.sleep(0.05)
        raise AssertionError("unreachable")


@asynccontextmanager
async def hooks(plane: Plane, text: str = "", *, rhythm: Rhythm | None = None) -> AsyncIterator[Hooks]:
    client = await connect(plane.kubeconfig, None)
    async with client:
        made = Hooks(plane.cluster, client)
        place = AdmissionEndpoint(host="127.0.0.1", port=0, url="https://127.0.0.1:{port}")
        async with admission(
            client,
            make_configuration(text),
            place,
            clock=SystemClock(),
            on_review=made.asked.append,
            rhythm=rhythm,
        ):
            yield made


async def make_queue(cluster: Cluster, namespace: str, name: str = "default") -> None:
    spec = {"clusterQueue": "team"}
    obj = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
    await cluster.request("POST", f"{KUEUE}/namespaces/{namespace}/localqueues", obj)


@pytest.mark.proves("Job", "webhook defaults")
async def test_only_labelled_jobs_are_asked_about_and_an_outage_stops_no_others(either_plane: Plane) -> None:
    """With a queue a Job is suspended; without one it is not even shown to us, and starts when we are gone."""
    cluster = either_plane.cluster
    namespace = await cluster.create_namespace("hooks")
    async with hooks(either_plane) as running:
        await running.until_suspended(namespace, "main")
        running.asked.clear()
        stranger = await running.submit(namespace, "stranger")
        shown = list(running.asked)
        configuration = await cluster.get(MUTATING)
    for hook in configuration["webhooks"]:  # as after a crash: registered, and nobody there
        assert hook["clientConfig"]["url"]
    still = await Hooks(cluster, running.client).submit(namespace, "still")
    with pytest.raises(RequestError, match="failed calling webhook") as refused:
        await Hooks(cluster, running.client).submit(namespace, "queued", queue="main")

    assert (stranger["spec"]["suspend"], still["spec"]["suspend"], shown) == (False, False, [])
    assert "mjob.kb.io" in str(refused.value)


async def test_an_outage_keeps_nobody_from_changing_or_deleting_what_runs(either_plane: Plane) -> None:
    """Validation of jobs fails open, and what is being deleted is not asked about."""
    cluster = either_plane.cluster
    namespace = await cluster.create_namespace("hooks")
    async with hooks(either_plane) as running:
        await running.until_suspended(namespace, "main")
        await running.submit(namespace, "held", queue="main", a="b")
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs/held"
        finalizers = {"metadata": {"finalizers": ["example.com/hold"]}}
        await cluster.request("PATCH", path, finalizers, content_type=MERGE)
    changed = await cluster.request("PATCH", path, {"metadata": {"labels": {"a": "c"}}}, content_type=MERGE)
    await cluster.request("DELETE", f"{path}?propagationPolicy=Background")
    await cluster.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE)

    assert changed["metadata"]["labels"]["a"] == "c"
    assert not await cluster.exists(path)


async def test_a_default_queue_opts_its_namespace_in_and_no_other(either_plane: Plane) -> None:
    """Unlabelled Jobs get it there, also after it was made later; those of other namespaces are not shown to us."""
    cluster = either_plane.cluster
    namespace, other = await cluster.create_namespace("in"), await cluster.create_namespace("out")
    async with hooks(either_plane) as running:
        before = await running.submit(namespace, "before")
        await make_queue(cluster, namespace)
        held = await running.until_suspended(namespace)
        running.asked.clear()
        stranger = await running.submit(other, "stranger")

    assert (before["spec"]["suspend"], stranger["spec"]["suspend"]) == (False, False)
    assert held["metadata"]["labels"][QUEUE] == "default"
    assert [record.path for record in running.asked] == []


async def test_namespaces_that_the_configuration_selects_send_all_their_jobs(either_plane: Plane) -> None:
    """`manageJobsWithoutQueueName` with a selector by label; our own namespace never, whatever its labels."""
    cluster = either_plane.cluster
    names = {name: await cluster.create_namespace(name) for name in ("selected", "left")}
    own = await cluster.create_namespace("own")
    for namespace in (names["selected"], own):
        labels = {"metadata": {"labels": {"batch": "yes"}}}
        await cluster.request("PATCH", f"/api/v1/namespaces/{namespace}", labels, content_type=MERGE)
    text = f"namespace: {own}\nmanageJobsWithoutQueueName: true\nmanagedJobsNamespaceSelector:\n  matchExpressions:\n"
    text += "  - {key: batch, operator: In, values: [yes]}\n".replace("[yes]", '["yes"]')
    text += f"  - {{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, {own}]}}\n"
    async with hooks(either_plane, text) as running:
        held = await running.until_suspended(names["selected"])
        left = await running.submit(names["left"], "left")
        ours = await running.submit(own, "ours")
        labelled = await running.submit(own, "labelled", queue="main")

    assert QUEUE not in held["metadata"].get("labels", {})
    assert [each["spec"]["suspend"] for each in (left, ours, labelled)] == [False, False, False]


BROKEN = """
apiVersion: batch/v1
kind: Job
metadata:
  name: broken
  labels: {kueue.x-k8s.io/queue-name: Main_Queue, kueue.x-k8s.io/max-exec-time-seconds: soon}
  annotations: {kueue.x-k8s.io/job-min-parallelism: "9"}
spec:
  parallelism: 2
  template:
    metadata:
      annotations: {kueue.x-k8s.io/podset-required-topology: "not a label"}
    spec:
      restartPolicy: Never
      containers: [{name: main, image: example.com/x}]
"""


@pytest.mark.proves("Job", "webhook validation")
async def test_a_person_at_a_terminal_reads_every_mistake_at_once(either_plane: Plane) -> None:
    """Each with its path and what to write instead; nothing is stored."""
    cluster = either_plane.cluster
    namespace = await cluster.create_namespace("hooks")
    async with hooks(either_plane) as running:
        await running.until_suspended(namespace, "main")
        with pytest.raises(KubectlError) as refused:
            await either_plane.kubectl("apply", "-n", namespace, "-f", "-", stdin=BROKEN)

    said = str(refused.value)
    for fact in (
        'admission webhook "vjob.kb.io" denied the request',
        "metadata.labels[kueue.x-k8s.io/queue-name]: must be a DNS subdomain",
        "metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]: must be a whole number of seconds, 1 or more",
        "metadata.annotations[kueue.x-k8s.io/job-min-parallelism]: must be a whole number above 0 and below",
        "spec.template.metadata.annotations[kueue.x-k8s.io/podset-required-topology]",
    ):
        assert fact in said
    assert not await cluster.exists(f"/apis/batch/v1/namespaces/{namespace}/jobs/broken")


MISSPELT = """
apiVersion: batch/v1
kind: Job
metadata:
  name: misspelt
  labels: {kueue.x-k8s.io/queue-name: main}
spec:
  template:
    metadata:
      annotations:
        kueue.x-k8s.io/podset-prefered-topology: cloud.example/rack
        kueue.x-k8s.io/podset-required-topology: cloud.example/rak
    spec:
      restartPolicy: Never
      containers: [{name: main, image: example.com/x}]
"""


async def test_a_misspelt_annotation_and_a_misspelt_level_are_warned_of(either_plane: Plane) -> None:
    """The Job is made, and kubectl shows what was probably meant."""
    cluster = either_plane.cluster
    namespace = await cluster.create_namespace("hooks")
    topology = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology", "metadata": {"name": "racks"}}
    topology["spec"] = {"levels": [{"nodeLabel": "cloud.example/rack"}, {"nodeLabel": "kubernetes.io/hostname"}]}
    await cluster.request("POST", f"{KUEUE}/topologies", topology)
    async with hooks(either_plane) as running:
        await running.until_suspended(namespace, "main")
        command = ("create", "--warnings-as-errors", "-n", namespace, "-f", "-")
        with pytest.raises(KubectlError) as warned:
            await either_plane.kubectl(*command, stdin=MISSPELT)

    said = str(warned.value)
    assert "did you mean kueue.x-k8s.io/podset-preferred-topology?" in said
    assert "no Topology has level cloud.example/rak; did you mean cloud.example/rack?" in said
    assert await cluster.exists(f"/apis/batch/v1/namespaces/{namespace}/jobs/misspelt")


async def test_certificates_are_renewed_while_requests_flow_and_none_fails(
    either_plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The authority changes again and again, each told to the API server before it counts; every Job is held."""
    monkeypatch.setattr("kqueue.manager.admission.LOOK_SECONDS", 0.2)
    hasty = Rhythm(valid=timedelta(seconds=20), renew_before=timedelta(seconds=18), pause=timedelta(seconds=2))
    cluster = either_plane.cluster
    namespace = await cluster.create_namespace("hooks")
    seen: set[tuple[bytes, ...]] = set()
    async with hooks(either_plane, rhythm=hasty) as running:
        await running.until_suspended(namespace, "main")
        over = asyncio.Event()
        async with asyncio.timeout(60), asyncio.TaskGroup() as flows:
            flowing = [flows.create_task(flow(running, namespace, number, over)) for number in range(3)]
            while len({pem for each in seen for pem in each}) < 4:
                seen.add(await authorities(cluster))
                await asyncio.sleep(0.05)
            over.set()

    assert sum(task.result() for task in flowing) > 20
    assert min(map(len, seen)) >= 1
    assert max(map(len, seen)) >= 2


async def flow(running: Hooks, namespace: str, number: int, over: asyncio.Event) -> int:
    """Create Jobs until told to stop; each must be held."""
    made = 0
    while not over.is_set():
        held = await running.submit(namespace, f"flow-{number}-{made}", queue="main")
        assert held["spec"]["suspend"]
        made += 1
    return made


async def authorities(cluster: Cluster) -> tuple[bytes, ...]:
    """What the API server is told to trust."""
    hook = (await cluster.get(MUTATING))["webhooks"][0]
    return split_authorities(base64.b64decode(hook["clientConfig"]["caBundle"]))


async def test_replicas_share_a_secret_and_renew_what_is_in_it_together(
    either_plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three at once, on one Secret: nobody fails, and all of them trust and tell what the Secret says."""
    monkeypatch.setattr("kqueue.manager.admission.LOOK_SECONDS", 0.2)
    hasty = Rhythm(valid=timedelta(seconds=30), renew_before=timedelta(seconds=28), pause=timedelta(seconds=1))
    cluster = either_plane.cluster
    own = await cluster.create_namespace("own")
    path = f"/api/v1/namespaces/{own}/secrets/kueue-webhook-server-cert"
    configuration = make_configuration(f"namespace: {own}\n")
    place = AdmissionEndpoint(host="127.0.0.1", port=0)
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(60):
        client = await stack.enter_async_context(await connect(either_plane.kubeconfig, None))
        replicas = [
            admission(client, configuration, place, clock=SystemClock(), on_review=lambda _: None, rhythm=hasty)
            for _ in range(3)
        ]
        await asyncio.gather(*(stack.enter_async_context(replica) for replica in replicas))
        served: set[str] = set()
        while len(served) < 3:
            data = (await cluster.get(path))["data"]
            served.add(data["tls.crt"])
            await asyncio.sleep(0.05)
        told = set(await authorities(cluster))

    current = split_authorities(base64.b64decode(data["ca.crt"]))[0]
    assert current in told
    assert len(told) >= 2


async def test_the_authority_is_written_into_what_a_chart_applied_and_nothing_else_is(either_plane: Plane) -> None:
    """With its own policies and its own order; an entry for somebody else stays without."""
    cluster = either_plane.cluster
    own = await cluster.create_namespace("own")
    configuration = make_configuration(f"namespace: {own}\n")
    rule = {"apiGroups": ["batch"], "apiVersions": ["v1"], "resources": ["jobs"], "operations": ["CREATE"]}
    service = {"name": "kueue-webhook-service", "namespace": own, "path": "/mutate-batch-v1-job"}

    def entry(name: str, client: Object) -> Object:
        selector = {"matchLabels": {"example.com/never": "sent"}}
        common = {"admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Ignore"}
        return {"name": name, "clientConfig": client, "rules": [rule], "objectSelector": selector, **common}

    chart = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": MUTATING.rpartition("/")[2], "labels": {"app.kubernetes.io/managed-by": "Helm"}},
        "webhooks": [
            entry("stranger.example.com", {"url": "https://127.0.0.1:1/"}),
            entry("mjob.kb.io", {"service": service}),
        ],
    }
    before = await cluster.request("POST", MUTATING.rpartition("/")[0], chart)
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(await connect(either_plane.kubeconfig, None))
        await stack.enter_async_context(
            admission(
                client,
                configuration,
                AdmissionEndpoint(host="127.0.0.1", port=0),
                clock=SystemClock(),
                on_review=lambda _: None,
            )
        )
        after = await cluster.get(MUTATING)

    told = [hook["clientConfig"].pop("caBundle", "") for hook in after["webhooks"]]
    assert told[0] == ""
    assert len(split_authorities(base64.b64decode(told[1]))) == 1
    assert after["webhooks"] == before["webhooks"]
