"""The webhooks served and registered: certificates, TLS, and what the API server is told."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509

from kqueue.api.crd_files import crd_folder
from kqueue.clock import FakeClock, SystemClock
from kqueue.config import Configuration, parse
from kqueue.controllers.resources import LOCAL_QUEUES, NAMESPACES
from kqueue.errors import ConfigError, UnreachableError
from kqueue.manager.admission import AdmissionEndpoint, _tend, admission
from kqueue.runtime.certificate_secret import SECRETS
from kqueue.runtime.certificates import make_bundle, write_bundle
from kqueue.runtime.client import Client
from kqueue.runtime.resources import ResourceType
from kqueue.sandbox import Sandbox, SandboxOptions
from webhooks.server import ReviewRecord, WebhookServer

JSON = dict[str, Any]
GROUP = "admissionregistration.k8s.io"
KINDS = [
    ResourceType(GROUP, "v1", f"{kind.lower()}s", kind, namespaced=False)
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
]


def make_configuration(text: str = "") -> Configuration:
    """The defaults and `text`."""
    return parse(f"apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{text}", source="test")


@contextlib.asynccontextmanager
async def served(
    client: Client,
    text: str = "",
    *,
    records: list[ReviewRecord] | None = None,
    shown: list[bytes] | None = None,
    **place: Any,
) -> AsyncIterator[WebhookServer]:
    """The webhooks on a free port of loopback, registered at the API server."""
    kept = [] if records is None else records
    certificates = [] if shown is None else shown
    chosen: dict[str, Any] = {"host": "127.0.0.1", "port": 0, "url": "https://127.0.0.1:{port}"}
    settings = AdmissionEndpoint(**(chosen | place))
    async with admission(
        client,
        make_configuration(text),
        settings,
        clock=SystemClock(),
        on_review=kept.append,
        on_certificate=lambda bundle: certificates.append(bundle.certificate),
    ) as made:
        yield made


async def authority(client: Client) -> ssl.SSLContext:
    """Trusts what the API server was told to trust."""
    mutating, _ = await registered(client)
    return ssl.create_default_context(cadata=base64.b64decode(mutating[0]["clientConfig"]["caBundle"]).decode())


@pytest.mark.parametrize("ours", [True, False], ids=["own-certificates", "a-folder"])
async def test_without_registration_the_webhooks_only_answer(client: Client, tmp_path: Path, ours: bool) -> None:
    """Nothing is read, made or changed at the API server's configurations: whoever manages them tells the authority."""
    shown: list[bytes] = []
    if not ours:
        write_bundle(make_bundle(["localhost", "127.0.0.1"], now=SystemClock().now()), tmp_path)
    folder = None if ours else tmp_path
    async with served(client, shown=shown, register=False, certificates=folder) as server:
        found = await client.list_json(KINDS[0])
        async with aiohttp.ClientSession() as session:
            job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "ns"}}
            url = f"https://127.0.0.1:{server.port}/mutate-batch-v1-job"
            async with session.post(url, json=make_review(job), ssl=False) as answer:
                assert (await answer.json())["response"]["allowed"] is True

    assert found == []
    assert len(shown) == 1


def make_review(obj: JSON) -> JSON:
    """The API server's question about an object that is to be created."""
    group, _, version = obj["apiVersion"].partition("/")
    request = {
        "uid": "u",
        "kind": {"group": group, "version": version, "kind": obj["kind"]},
        "operation": "CREATE",
        "namespace": "ns",
        "name": "j",
        "object": obj,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
    "spec": {"template": {"spec": {"containers": []}}},
}


async def post(port: int, path: str, body: JSON, tls: ssl.SSLContext) -> JSON:
    """The answer to a review."""
    url = f"https://127.0.0.1:{port}{path}"
    async with aiohttp.ClientSession() as session, session.post(url, json=body, ssl=tls) as response:
        answer: JSON = (await response.json())["response"]
        return answer


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A user of an API server without webhooks."""
    sandbox = Sandbox(SandboxOptions(parts=frozenset({"server"}), crds=(crd_folder(),)))
    await sandbox.start()
    try:
        async with Client(sandbox.url) as made:
            yield made
    finally:
        await sandbox.stop()


async def registered(client: Client) -> list[list[JSON]]:
    """The webhooks of the mutating and of the validating configuration."""
    found = [await client.list_json(kind) for kind in KINDS]
    assert [len(objects) for objects in found] == [1, 1]
    return [objects[0]["webhooks"] for objects in found]


async def test_what_the_api_server_is_told_leads_to_an_answer(client: Client) -> None:
    """At the registered address, with the registered authority, a new Job with a queue is suspended; it is counted."""
    records: list[ReviewRecord] = []
    async with served(client, records=records) as server:
        mutating, _ = await registered(client)
        (hook,) = (h for h in mutating if h["name"] == "mjob.kb.io")
        path = hook["clientConfig"]["url"].removeprefix(f"https://127.0.0.1:{server.port}")
        answer = await post(server.port, path, make_review(JOB), await authority(client))

    assert answer["allowed"]
    assert b'"/spec/suspend"' in base64.b64decode(answer["patch"])
    assert [(r.path, r.operation, r.result) for r in records] == [("/mutate-batch-v1-job", "CREATE", "allowed")]


async def test_a_certificate_made_here_is_for_the_service_and_for_loopback(client: Client) -> None:
    """So the API server may come either way; what replicas share is a Secret in our namespace."""
    text = "namespace: batch\ninternalCertManagement: {webhookServiceName: hooks, webhookSecretName: shared}\n"
    await client.create(NAMESPACES, {"metadata": {"name": "batch"}})
    async with served(client, text, url=""):
        secret = await client.get_json(SECRETS, "shared", "batch")
        certificate = x509.load_pem_x509_certificate(base64.b64decode(secret["data"]["tls.crt"]))

    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) == {"hooks.batch.svc", "localhost"}
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


async def test_certificates_of_a_folder_are_used_and_followed(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its authority vouches for what is served; files that are exchanged are served, and told of, without a restart."""
    monkeypatch.setattr("kqueue.manager.admission.LOOK_SECONDS", 0.02)
    first, second = (make_bundle(["127.0.0.1"], now=SystemClock().now()) for _ in range(2))
    write_bundle(first, tmp_path)
    shown: list[bytes] = []
    async with served(client, certificates=tmp_path, shown=shown) as server:
        before = await post(server.port, "/mutate-batch-v1-job", make_review(JOB), await authority(client))
        write_bundle(second, tmp_path)
        async with asyncio.timeout(20):
            while (await authority(client)).get_ca_certs(True) != trusting(second.ca).get_ca_certs(True):
                await asyncio.sleep(0.01)
        after = await post(server.port, "/mutate-batch-v1-job", make_review(JOB), trusting(second.ca))

    assert (before["allowed"], after["allowed"]) == (True, True)
    assert (shown[0], shown[-1]) == (first.certificate, second.certificate)
    assert (tmp_path / "tls.key").exists()


def trusting(ca: bytes) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=ca.decode())


async def test_a_folder_without_certificates_is_named(client: Client, tmp_path: Path) -> None:
    """Nothing is served then."""
    with pytest.raises(ConfigError, match=str(tmp_path)):
        async with served(client, certificates=tmp_path):
            pass


async def test_the_tls_settings_of_the_configuration_hold(client: Client) -> None:
    """A client below the least version is turned away."""
    async with served(client, "tls: {minVersion: VersionTLS13}\n") as server:
        old = await authority(client)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(aiohttp.ClientConnectorError):
            await post(server.port, "/", {}, old)


async def test_gates_reach_the_webhooks(client: Client) -> None:
    """What a gate switches off is not checked."""
    container = {"name": "c", "resources": {"requests": {"cpu": "-1"}}}
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "ns"},
        "spec": {"podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}]},
    }
    answers = []
    for text in ("", "featureGates: {WorkloadValidateResourcesAreNonNegative: false}\n"):
        async with served(client, text) as server:
            path = "/validate-kueue-x-k8s-io-v1beta2-workload"
            answers.append((await post(server.port, path, make_review(workload), await authority(client)))["allowed"])

    assert answers == [False, True]


QUEUE: dict[str, Any] = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "LocalQueue",
    "metadata": {"name": "default", "namespace": "team"},
    "spec": {"clusterQueue": "c"},
}


async def default_namespaces(client: Client) -> list[str]:
    """Namespaces whose unlabelled objects are sent because of a default queue."""
    mutating, _ = await registered(client)
    entries = [hook for hook in mutating if hook["name"] == "mdefault-queue.kb.io"]
    return [
        name
        for entry in entries
        for rule in entry["namespaceSelector"]["matchExpressions"]
        if rule["operator"] == "In"
        for name in rule["values"]
    ]


async def test_a_default_queue_opts_its_namespace_in_as_long_as_it_is_there(client: Client) -> None:
    """The API server is told within moments, and told when it is gone."""
    await client.create(NAMESPACES, {"metadata": {"name": "team"}})
    async with served(client), asyncio.timeout(20):
        before = await default_namespaces(client)
        await client.create(LOCAL_QUEUES, QUEUE | {"metadata": QUEUE["metadata"] | {"name": "other"}})
        await client.create(LOCAL_QUEUES, QUEUE)
        while await default_namespaces(client) != ["team"]:
            await asyncio.sleep(0.01)
        await client.delete(LOCAL_QUEUES, "default", "team")
        while await default_namespaces(client):
            await asyncio.sleep(0.01)

    assert before == []


async def test_a_job_without_a_queue_gets_the_default_one(client: Client) -> None:
    """Looked up when it is asked about."""
    await client.create(NAMESPACES, {"metadata": {"name": "team"}})
    await client.create(LOCAL_QUEUES, QUEUE)
    unlabelled = JOB | {"metadata": {"name": "j", "namespace": "team"}}
    async with served(client) as server:
        review = make_review(unlabelled)
        review["request"]["namespace"] = "team"
        answer = await post(server.port, "/mutate-default-queue", review, await authority(client))

    labels = [each["value"] for each in json.loads(base64.b64decode(answer["patch"])) if "labels" in each["path"]]
    assert labels == [{"kueue.x-k8s.io/queue-name": "default"}]


class Looks:
    """A caretaker's looks: when each was, and which of them fail."""

    def __init__(self, clock: FakeClock, *, failing: int) -> None:
        self._clock, self._failing = clock, failing
        self.at: list[float] = []

    async def look(self) -> None:
        self.at.append(self._clock.monotonic())
        if len(self.at) <= self._failing:
            raise UnreachableError("no API server")


async def test_a_failed_look_is_repeated_soon_and_then_less_and_less_often() -> None:
    """Until one succeeds; a change is followed at once."""
    clock, wake = FakeClock(), asyncio.Event()
    looks = Looks(clock, failing=4)
    start = clock.monotonic()
    tending = asyncio.create_task(_tend(looks.look, wake, clock))
    await clock.advance(100)
    wake.set()
    await clock.advance(1)
    tending.cancel()

    assert [round(at - start) for at in looks.at] == [15, 17, 21, 29, 44, 59, 74, 89, 100]
