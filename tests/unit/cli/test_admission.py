"""The webhooks served and registered: certificates, TLS, and what the API server is told."""

from __future__ import annotations

import base64
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509

from kqueue.cli.admission import register, serving
from kqueue.clock import SystemClock
from kqueue.config import Configuration, parse
from kqueue.errors import ConfigError
from kqueue.runtime.certificates import CertificateFolder, make_bundle, write_bundle
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
    text: str = "", *, certificates: Path | None = None, records: list[ReviewRecord] | None = None
) -> AsyncIterator[tuple[WebhookServer, CertificateFolder]]:
    """The webhooks on a free port of loopback."""
    kept = [] if records is None else records
    async with serving(
        make_configuration(text),
        clock=SystemClock(),
        host="127.0.0.1",
        port=0,
        certificates=certificates,
        on_review=kept.append,
    ) as running:
        yield running


def make_review(obj: JSON) -> JSON:
    """The API server's question about a Job that is to be created."""
    request = {
        "uid": "u",
        "kind": {"group": "batch", "version": "v1", "kind": "Job"},
        "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
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


def job_path(server_side: list[JSON]) -> str:
    """Where the API server asks about new Jobs."""
    (hook,) = (h for h in server_side if h["rules"][0]["resources"] == ["jobs"])
    path: str = hook["clientConfig"]["service"]["path"]
    return path


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A user of an API server without webhooks."""
    sandbox = Sandbox(SandboxOptions(parts=frozenset({"server"})))
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
    """At the registered path, with the registered authority, a new Job with a queue is suspended; it is counted."""
    records: list[ReviewRecord] = []
    async with served(records=records) as (server, tls):
        await register(client, make_configuration(), ca_bundle=tls.bundle.ca, url="")
        mutating, _ = await registered(client)
        authority = base64.b64decode(mutating[0]["clientConfig"]["caBundle"]).decode()
        trusting = ssl.create_default_context(cadata=authority)
        answer = await post(server.port, job_path(mutating), make_review(JOB), trusting)

    assert answer["allowed"]
    assert b'"/spec/suspend"' in base64.b64decode(answer["patch"])
    assert [(r.path, r.operation, r.result) for r in records] == [(job_path(mutating), "CREATE", "allowed")]


async def test_a_certificate_made_here_is_for_the_service_and_for_loopback() -> None:
    """So the API server may come either way; the folder that held the key is gone afterwards."""
    text = "namespace: batch\ninternalCertManagement: {webhookServiceName: hooks}\n"
    async with served(text) as (_, tls):
        certificate = x509.load_pem_x509_certificate(tls.bundle.certificate)
        folder = tls.folder
        kept = folder.exists()

    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) == {"hooks.batch.svc", "localhost"}
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert (kept, folder.exists()) == (True, False)


async def test_certificates_of_a_folder_are_used(tmp_path: Path) -> None:
    """Its authority vouches for what is served, and the folder stays."""
    bundle = make_bundle(["127.0.0.1"], now=SystemClock().now())
    write_bundle(bundle, tmp_path)
    async with served(certificates=tmp_path) as (server, tls):
        trusting = ssl.create_default_context(cadata=bundle.ca.decode())
        answer = await post(server.port, "/mutate-batch-v1-job", make_review(JOB), trusting)

    assert answer["uid"] == "u"
    assert tls.bundle.ca == bundle.ca
    assert (tmp_path / "tls.key").exists()


async def test_a_folder_without_certificates_is_named(tmp_path: Path) -> None:
    """Nothing is served then."""
    with pytest.raises(ConfigError, match=str(tmp_path)):
        async with served(certificates=tmp_path):
            pass


async def test_the_tls_settings_of_the_configuration_hold() -> None:
    """A client below the least version is turned away."""
    async with served("tls: {minVersion: VersionTLS13}\n") as (server, tls):
        old = ssl.create_default_context(cadata=tls.bundle.ca.decode())
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(aiohttp.ClientConnectorError):
            await post(server.port, "/", {}, old)


async def test_gates_reach_the_webhooks() -> None:
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
        async with served(text) as (server, tls):
            trusting = ssl.create_default_context(cadata=tls.bundle.ca.decode())
            path = "/validate-kueue-x-k8s-io-v1beta2-workload"
            answers.append((await post(server.port, path, make_review(workload), trusting))["allowed"])

    assert answers == [False, True]


@pytest.mark.parametrize(
    ("url", "want"),
    [
        pytest.param("", {"name": "hooks", "namespace": "batch"}, id="through-the-service"),
        pytest.param("https://127.0.0.1:9", None, id="by-address"),
    ],
)
async def test_the_api_server_is_told_where_to_ask(client: Client, url: str, want: JSON | None) -> None:
    """Through the service of the configuration, or at the address that was given."""
    configuration = make_configuration("namespace: batch\ninternalCertManagement: {webhookServiceName: hooks}\n")
    await register(client, configuration, ca_bundle=b"authority", url=url)

    for hook in [hook for hooks in await registered(client) for hook in hooks]:
        target = hook["clientConfig"]
        assert base64.b64decode(target["caBundle"]) == b"authority"
        assert target.get("url", "").startswith(url)
        service = target.get("service")
        assert (service and {key: service[key] for key in ("name", "namespace")}) == want


async def test_a_new_authority_replaces_the_old(client: Client) -> None:
    """After a restart with another certificate the same configurations tell of it; nothing is registered twice."""
    configuration = make_configuration()
    await register(client, configuration, ca_bundle=b"old", url="https://127.0.0.1:1")
    before = await registered(client)
    await register(client, configuration, ca_bundle=b"new", url="https://127.0.0.1:2")
    after = await registered(client)

    assert [[h["name"] for h in hooks] for hooks in after] == [[h["name"] for h in hooks] for hooks in before]
    targets = [hook["clientConfig"] for hooks in after for hook in hooks]
    assert {base64.b64decode(target["caBundle"]) for target in targets} == {b"new"}
    assert all(target["url"].startswith("https://127.0.0.1:2/") for target in targets)


async def test_only_enabled_kinds_are_asked_about(client: Client) -> None:
    """A kind that nobody enabled is not held up; our own kinds always are looked at."""
    configuration = make_configuration('integrations: {frameworks: ["jobset.x-k8s.io/jobset"]}\n')
    await register(client, configuration, ca_bundle=b"a", url="")
    resources = {r for hooks in await registered(client) for hook in hooks for r in hook["rules"][0]["resources"]}

    assert "jobs" not in resources
    assert {"workloads", "clusterqueues"} <= resources
